//! Tests of requests: each has its verb, its name and its instance.
use super::*;
use crate::definition::{ImageFormat, ImageRef, Nics};
use crate::id::{AllocationId, Sha256Digest};
use crate::size::{MemoryBytes, Vcpus};
use std::collections::BTreeSet;

fn every() -> Vec<(Request, Verb, &'static str, bool)> {
    let instance = InstanceId::parse("web-1").unwrap();
    let disk = DiskBytes::new(1 << 30).unwrap();
    let definition = Definition {
        allocation: AllocationId::parse("a").unwrap(),
        vcpus: Vcpus::new(1).unwrap(),
        memory: MemoryBytes::new(512 << 20).unwrap(),
        disk,
        image: ImageRef { sha256: Sha256Digest::from_bytes([1; 32]), format: ImageFormat::Raw },
        nics: Nics::default(),
    };
    let i = || instance.clone();
    let d = || definition.clone();
    vec![
        (Request::Hello { version: 1 }, Verb::Hello, "hello", false),
        (Request::Records { after: Some(i()), limit: 1 }, Verb::Records, "records", false),
        (Request::LibvirtPlan { instance: i(), definition: d() }, Verb::LibvirtPlan, "libvirt.plan", true),
        (Request::LibvirtDefine { instance: i(), definition: d() }, Verb::LibvirtDefine, "libvirt.define", true),
        (Request::LibvirtUndefine { instance: i() }, Verb::LibvirtUndefine, "libvirt.undefine", true),
        (Request::LibvirtStart { instance: i(), paused: true }, Verb::LibvirtStart, "libvirt.start", true),
        (Request::LibvirtShutdown { instance: i() }, Verb::LibvirtShutdown, "libvirt.shutdown", true),
        (Request::LibvirtDestroy { instance: i() }, Verb::LibvirtDestroy, "libvirt.destroy", true),
        (Request::LibvirtSuspend { instance: i() }, Verb::LibvirtSuspend, "libvirt.suspend", true),
        (Request::LibvirtResume { instance: i() }, Verb::LibvirtResume, "libvirt.resume", true),
        (Request::LibvirtBlockResize { instance: i(), disk }, Verb::LibvirtBlockResize, "libvirt.blockresize", true),
        (Request::Console { instance: i() }, Verb::Console, "console", true),
    ]
}

#[test]
fn every_request_has_its_verb_name_and_instance() {
    for (request, verb, name, about_an_instance) in every() {
        assert_eq!(request.verb(), verb);
        assert_eq!(verb.as_str(), name);
        assert_eq!(verb.to_string(), name);
        let expected = about_an_instance.then_some("web-1");
        assert_eq!(request.instance().map(InstanceId::as_str), expected, "{name}");
    }
}

#[test]
fn all_verbs_are_listed_once_in_the_order_of_their_tags() {
    let verbs: Vec<_> = every().into_iter().map(|(_, verb, _, _)| verb).collect();
    assert_eq!(verbs, Verb::ALL);
    let names: BTreeSet<_> = Verb::ALL.iter().map(|verb| verb.as_str()).collect();
    assert_eq!(names.len(), Verb::ALL.len());
}
