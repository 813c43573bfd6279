//! Derived names.
use super::*;
use crate::sample::{definition, id};
use bcd_protocol::limits;
use proptest::prelude::*;

#[test]
fn names_are_the_documented_ones() {
    let web = id("web");
    assert_eq!(DomainName::of(&web).as_str(), "bcd-web");
    assert_eq!(DomainName::of(&web).to_string(), "bcd-web");
    // printf web | sha256sum
    assert_eq!(TapStem::of(&web).to_string(), "bc4b5e57f6eb");
    assert_eq!(TapName::of(&web, 7).as_str(), "bc4b5e57f6ebn7");
    assert_eq!(TapName::of(&web, 7).to_string(), "bc4b5e57f6ebn7");
    assert_eq!(TapName::all(&web, 0), []);
    assert_eq!(TapName::all(&web, 2), [TapName::of(&web, 0), TapName::of(&web, 1)]);
    assert_eq!(DataPath::disk(&web).join("/"), "instances/web/disk.qcow2");
    assert_eq!(DataPath::seed(&web).join("/"), "instances/web/seed.iso");
    let image = DataPath::image(&definition().image);
    assert_eq!(image.join("/"), format!("images/{}.qcow2", "07".repeat(32)));
    assert_eq!(DataPath::disk(&web).beneath(Path::new("/d")), Path::new("/d/instances/web/disk.qcow2"));
}

proptest! {
    #[test]
    fn every_tap_name_fits_the_kernel_and_no_part_of_a_path_leads_out(
        text in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        index in 0..limits::NICS,
    ) {
        let instance = id(&text);
        let tap = TapName::of(&instance, index);
        prop_assert!(tap.as_str().len() <= limits::INTERFACE_CHARS);
        prop_assert!(tap.as_str().starts_with(&TapStem::of(&instance).to_string()));
        for path in [DataPath::disk(&instance), DataPath::seed(&instance)] {
            for part in path.iter() {
                prop_assert!(!part.is_empty() && !part.contains('/') && part != "." && part != "..");
            }
        }
        let name = DomainName::of(&instance);
        prop_assert_eq!(name.as_str().strip_prefix("bcd-"), Some(text.as_str()));
    }
}
