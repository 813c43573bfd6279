//! The benchmarks: each compares two things measured in the same run on the same machine, or a figure with its bound.
//!
//! Room: `tests`. `tests/run bench` builds everything for release and runs this as root with a real libvirtd; the figures
//! go to the file given as the first argument as a list of `{name, value, unit, bound, direction, runs}`, and the exit code
//! is 1 when one is out of its bound. A second argument picks figures whose names contain it.
#![allow(clippy::print_stdout, reason = "figures are printed")]

mod apply;
mod crowd;
mod echo;
mod pass;
mod report;
mod round_trip;

use report::Report;
use std::path::PathBuf;

fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().map(PathBuf::from).unwrap_or_else(|| "target/bench.json".into());
    if first.as_os_str() == echo::SERVER {
        let path = arguments.next().map(PathBuf::from).expect("a socket's path");
        echo::serve(&path);
        return std::process::ExitCode::SUCCESS;
    }
    if !bcd_tests::real("bench") {
        return std::process::ExitCode::FAILURE;
    }
    let only = arguments.next().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let mut report = Report::new(first, only);
    if report.wants(&["helper_round_trip", "helper_requests_per_s"]) {
        round_trip::run(&mut report);
    }
    if report.wants(&["noop_pass_vs_bulk", "noop_pass_vs_virsh", "helper_rss_mib", "node_rss_mib"]) {
        pass::run(&mut report);
    }
    if report.wants(&["apply_overhead_ms"]) {
        apply::run(&mut report);
    }
    report.finish()
}
