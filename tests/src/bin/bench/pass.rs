//! A converge pass that finds nothing to do among a thousand domains, and what the daemons weigh with a thousand records.
//!
//! The pass is the node's own, run by the node's `noop_pass` example against the same helper and libvirtd; it interleaves its
//! passes with bare bulk calls on the same connection and prints both times.
use crate::crowd;
use crate::report::{Direction, Report, median};
use bcd_tests::daemons::{self, bin, wait_for};
use bcd_tests::place::Place;
use serde::Deserialize;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Domains that `virsh` is asked about; each question is a process of its own, so a thousand would take a minute.
const SAMPLE: usize = 25;
const RUNS: usize = 5;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Passes {
    domains: usize,
    steps: usize,
    pass_us: Vec<f64>,
    bulk_us: Vec<f64>,
}

pub(crate) fn run(report: &mut Report) {
    let place = Place::new("bench-crowd");
    let helper = daemons::helper(&place);
    let (base, _cleaner) = crowd::define(&place);
    let spec = place.root().join("spec.toml");
    fs::write(&spec, crowd::document(&base)).expect("write the document");

    let (mut against_bulk, mut against_virsh) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let passes = passes(&place, &spec);
        assert!(passes.domains >= crowd::COUNT, "{} domains", passes.domains);
        assert_eq!(passes.steps, 0, "a pass that finds nothing to do");
        let (pass, bulk) = (median(&passes.pass_us), median(&passes.bulk_us));
        let virsh = virsh_us();
        println!("  pass {pass:.0} us, bulk call {bulk:.0} us, virsh {virsh:.0} us a domain");
        against_bulk.push(pass / bulk);
        against_virsh.push(virsh * f64::from(u32::try_from(crowd::COUNT).expect("a number")) / pass);
    }
    report.figure("noop_pass_vs_bulk", "x bulk call", &against_bulk, Direction::AtMost, 1.5);
    report.figure("noop_pass_vs_virsh", "x faster", &against_virsh, Direction::AtLeast, 1000.0);

    let mut helper_mib = Vec::new();
    let mut node_mib = Vec::new();
    for _ in 0..3 {
        let node = daemons::node(&place);
        let bcd = |arguments: &[&str]| {
            let output =
                Command::new(bin("bcd")).arg("--config").arg(place.config()).args(arguments).output().expect("bcd");
            assert!(output.status.success(), "bcd {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        let _ = bcd(&["apply", spec.to_str().expect("utf-8")]);
        wait_for("a thousand stopped instances in status", 120, || {
            let status: serde_json::Value = serde_json::from_slice(&bcd(&["status", "--json"])).expect("JSON");
            let stopped = |row: &&serde_json::Value| row["state"] == "stopped" && row["last_error"].is_null();
            status["instances"].as_array().is_some_and(|rows| rows.iter().filter(stopped).count() == crowd::COUNT)
        });
        std::thread::sleep(std::time::Duration::from_secs(2));
        helper_mib.push(rss_mib(helper.pid().as_raw()));
        node_mib.push(rss_mib(node.pid().as_raw()));
        node.stop();
    }
    report.figure("helper_rss_mib", "MiB", &helper_mib, Direction::AtMost, 12.0);
    report.figure("node_rss_mib", "MiB", &node_mib, Direction::AtMost, 30.0);
    crowd::undefine(&place);
    helper.stop();
}

fn passes(place: &Place, spec: &Path) -> Passes {
    let output = Command::new("setpriv")
        .args(["--reuid", &place.node_uid().to_string(), "--regid", &place.node_gid().to_string(), "--clear-groups"])
        .arg(bin("examples/noop_pass"))
        .args([place.config().as_os_str(), spec.as_os_str()])
        .output()
        .expect("run noop_pass");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("noop_pass prints JSON")
}

/// Three questions about one domain, each a process, microseconds.
fn virsh_us() -> f64 {
    let begun = Instant::now();
    for name in crowd::names().iter().take(SAMPLE) {
        for verb in ["domstate", "dominfo", "dumpxml"] {
            let domain = format!("bcd-{name}");
            let output = Command::new("virsh").args(["-r", "-c", bcd_tests::domains::URI, verb, &domain]).output();
            assert!(output.is_ok_and(|output| output.status.success()), "virsh {verb} {domain}");
        }
    }
    begun.elapsed().as_secs_f64() * 1e6 / f64::from(u32::try_from(SAMPLE).expect("a number"))
}

fn rss_mib(pid: i32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the daemon runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib / 1024.0
}
