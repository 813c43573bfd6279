//! A guest on KVM through the installed services, and what must leave it alone: everything that is done to the services.
use bcd_protocol::limits;
use bcd_tests::daemons::wait_for;
use bcd_tests::domains;
use bcd_tests::host::{self, DATA, RECORDS, ok, unit};
use std::fs;

#[test]
fn a_guest_boots_on_kvm_through_the_installed_services() {
    if !host::inside("a_guest_boots_on_kvm_through_the_installed_services") {
        return;
    }
    let operator = host::empty();
    let document = operator.write(&operator.document(&[host::wired("booted", 11)]));
    let _ = operator.ok(&["apply", "--wait", "--timeout", "300", document.to_str().expect("utf-8")]);
    let console = operator.up_line("booted");
    assert!(console.contains("198.18.213.11/24"), "the seed was read: {console}");
    wait_for("an answer over the bridge", 30, || host::pings(11));
    let xml = ok("virsh -q -c qemu:///system dumpxml bcd-booted");
    assert!(xml.starts_with("<domain type='kvm'"), "hardware virtualisation: {xml}");
    let pid = domains::qemu_pid("booted").expect("QEMU runs");
    let uid: u32 = ok(&format!("stat -c %u /proc/{pid}")).parse().expect("a uid");
    assert!((limits::GUEST_UID_FIRST..=limits::GUEST_UID_LAST).contains(&uid), "QEMU's uid: {uid}");
    let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("read");
    assert!(
        cgroup.contains("machine.slice") && !cgroup.contains("bcd-node"),
        "it lives outside of bcd's units: {cgroup}"
    );
    let confined = fs::read_to_string(format!("/proc/{pid}/attr/current")).expect("read");
    assert!(confined.starts_with("libvirt-") && confined.contains("(enforce)"), "AppArmor: {confined}");
    host::clear(&operator);
}

#[test]
fn whatever_happens_to_the_services_a_guest_keeps_its_process_and_its_network() {
    if !host::inside("whatever_happens_to_the_services_a_guest_keeps_its_process_and_its_network") {
        return;
    }
    let operator = host::empty();
    let _ = operator.apply(&[host::wired("lasting", 12)], &[]);
    let _ = operator.up_line("lasting");
    wait_for("an answer over the bridge", 30, || host::pings(12));
    let pid = domains::qemu_pid("lasting");
    let pinging = host::Pinging::begin(12);
    let actions = [
        "systemctl restart bcd-node.service",
        "systemctl restart bcd-helper.service",
        "systemctl kill --signal=KILL bcd-node.service",
        "systemctl kill --signal=KILL bcd-helper.service",
        "systemctl kill --signal=KILL bcd-node.service bcd-helper.service",
        "systemctl daemon-reload",
        "systemctl daemon-reexec",
        "systemctl kill --signal=KILL libvirtd.service",
        "systemctl restart libvirtd.service",
    ];
    for action in actions {
        let node = unit("bcd-node.service", "MainPID");
        let _ = ok(action);
        if action.contains("bcd-node") {
            wait_for("another node", 60, || {
                let now = unit("bcd-node.service", "MainPID");
                now != "0" && now != node
            });
        }
        host::told_again(&operator, "lasting", action);
        assert_eq!(domains::qemu_pid("lasting"), pid, "another process after {action}");
        assert!(host::pings(12), "no answer after {action}");
        eprintln!("{action}: the guest runs on");
    }
    pinging.end_without_a_gap();

    // And it is still an instance like any other.
    let _ = operator.apply(&[], &["--allow-delete"]);
    operator.wait_gone("lasting", host::PATIENCE);
    host::clear(&operator);
    assert!(!std::path::Path::new(&format!("{DATA}/instances/lasting")).exists());
    assert_eq!(fs::read_dir(RECORDS).expect("read").count(), 0);
}
