//! What bcd adds to libvirt's own define and start of the same XML, the base image being there.
use crate::report::{Direction, Report};
use bcd_tests::domains;
use bcd_tests::pair::{Pair, Wish};
use std::time::Instant;

const RUNS: usize = 7;

pub(crate) fn run(report: &mut Report) {
    let Some(pair) = Pair::start("bench-apply", &["timed", "warm"], "") else { return };
    // The base image is fetched once, before anything is timed.
    pair.apply(&[Wish { id: "warm", state: "stopped", more: String::new() }], &["--wait"]);
    let stay = Wish { id: "warm", state: "stopped", more: String::new() };
    let connection = domains::connect();
    let mut added = Vec::new();
    for _ in 0..RUNS {
        let path = pair.write(&pair.document(&[stay.clone(), Wish::running("timed")]));
        let begun = Instant::now();
        let _ = pair.ok(&["apply", path.to_str().expect("utf-8"), "--wait"]);
        let ours = begun.elapsed();
        let domain = connection.lookup_domain_by_name("bcd-timed").expect("it runs");
        let xml = domain.xml_desc(virt::sys::VIR_DOMAIN_XML_INACTIVE).expect("its XML");
        domain.destroy().expect("destroy");
        // The same XML by libvirt alone. The node must not take the stop for the guest's own: it is stopped first.
        pair.apply(&[stay.clone(), Wish { id: "timed", state: "stopped", more: String::new() }], &["--wait"]);
        pair.wait_state("timed", "stopped", 60);
        domain.undefine().expect("undefine");
        let begun = Instant::now();
        let alone = connection.define_domain_xml(&xml).expect("define");
        alone.create().expect("start");
        let theirs = begun.elapsed();
        alone.destroy().expect("destroy");
        println!("  apply to running {} ms, libvirt alone {} ms", ours.as_millis(), theirs.as_millis());
        added.push((ours.as_secs_f64() - theirs.as_secs_f64()) * 1e3);
        pair.apply(std::slice::from_ref(&stay), &["--allow-delete", "--wait"]);
        pair.wait_gone("timed", 60);
    }
    pair.apply(&[], &["--allow-delete"]);
    pair.wait_gone("warm", 60);
    report.figure("apply_overhead_ms", "ms", &added, Direction::AtMost, 150.0);
}
