//! Tests of what needs no libvirt.
use super::without_paths;
use std::path::Path;

#[test]
fn paths_of_the_host_are_taken_out_and_ours_stay() {
    let ours = Path::new("/var/lib/bcd");
    for (message, cleaned) in [
        (
            "Could not open '/var/lib/bcd/instances/a/disk.qcow2': Permission denied",
            "Could not open '/var/lib/bcd/instances/a/disk.qcow2': Permission denied",
        ),
        ("see /var/log/libvirt/qemu/bcd-a.log: failed", "see <path>: failed"),
        ("/etc/shadow", "<path>"),
        ("cannot read /var/lib/bcd-helper/records/a.json.", "cannot read <path>."),
        ("open(\"/var/lib/bcd/../../../etc/shadow\")", "open(\"<path>\")"),
        ("file=/root/x,format=raw", "file=<path>,format=raw"),
        ("read/write error and 1/2", "read/write error and 1/2"),
        ("no path here", "no path here"),
    ] {
        assert_eq!(without_paths(message, ours), cleaned);
    }
}
