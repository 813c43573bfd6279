//! A thousand defined instances: real domains in a real libvirt with real records.
use bcd_protocol::definition::ImageRef;
use bcd_protocol::reply::Reply;
use bcd_protocol::request::Request;
use bcd_tests::domains::Cleaner;
use bcd_tests::files::{self, id};
use bcd_tests::place::Place;
use bcd_tests::wire::Wire;
use std::fs;

/// How many.
pub(crate) const COUNT: usize = 1_000;

/// Their names.
pub(crate) fn names() -> Vec<String> {
    (0..COUNT).map(|number| format!("crowd-{number:04}")).collect()
}

/// Makes their files and defines them through the helper. The returned cleaner removes the domains whatever happens.
pub(crate) fn define(place: &Place) -> (ImageRef, Cleaner) {
    let names = names();
    let cleaner = Cleaner { instances: names.clone() };
    let base = files::base(place);
    let first = files::instance(place, &names[0], &base);
    let mut wire = Wire::welcomed(place);
    for name in &names {
        let dir = place.data().join("instances").join(name);
        if dir != first {
            fs::create_dir(&dir).expect("make a directory");
            for file in ["disk.qcow2", "seed.iso"] {
                fs::copy(first.join(file), dir.join(file)).expect("copy");
                place.give(&dir.join(file));
            }
            place.give(&dir);
        }
        let definition = files::definition(&base, Vec::new());
        let reply = wire.call(&Request::LibvirtDefine { instance: id(name), definition });
        assert!(matches!(reply, Reply::Defined(_)), "{name}: {reply:?}");
    }
    (base, cleaner)
}

/// The document that wishes for exactly these, stopped.
pub(crate) fn document(base: &ImageRef) -> String {
    names()
        .iter()
        .map(|name| {
            format!(
                "[[instances]]\nid = \"{name}\"\nallocation = \"test\"\nruntime = \"libvirt-kvm\"\nhostname = \"{name}\"\n\
                 vcpus = 1\nmemory_bytes = {}\ndisk_bytes = {}\ndesired_state = \"stopped\"\n\
                 image = {{ url = \"https://localhost:1/none\", sha256 = \"{}\", format = \"{}\" }}\n",
                64 << 20,
                files::BASE_BYTES,
                base.sha256,
                base.format
            )
        })
        .collect()
}

/// Removes them through the helper.
pub(crate) fn undefine(place: &Place) {
    let mut wire = Wire::welcomed(place);
    for name in names() {
        let reply = wire.call(&Request::LibvirtUndefine { instance: id(&name) });
        assert!(matches!(reply, Reply::Done { .. }), "{name}: {reply:?}");
    }
}
