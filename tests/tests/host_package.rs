//! The package comes, is replaced and goes, while a guest runs: the guest does not notice.
use bcd_tests::daemons::wait_for;
use bcd_tests::domains;
use bcd_tests::host::{self, DATA, RECORDS, Undo, ok, sh, unit};
use std::fs;
use std::path::Path;

/// Two builds of this checkout; the second is newer to dpkg.
const OLDER: &str = "/mnt/payload/packages/older.deb";
const NEWER: &str = "/mnt/payload/packages/newer.deb";

fn dpkg(arguments: &str) -> String {
    ok(&format!("DEBIAN_FRONTEND=noninteractive dpkg --force-confold {arguments} 2>&1"))
}

fn version() -> String {
    ok("dpkg-query -W -f '${Version}' bcd")
}

#[test]
fn a_guest_does_not_notice_reinstallation_upgrade_removal_and_purge() {
    if !host::inside("a_guest_does_not_notice_reinstallation_upgrade_removal_and_purge") {
        return;
    }
    let operator = host::empty();
    // What installed it installs it again, with its configuration.
    let undo = Undo::with("/mnt/payload/install >/dev/null 2>&1");
    let config = fs::read(host::CONFIG).expect("the configuration");
    let newest = version();
    let _ = operator.apply(&[host::wired("kept", 51)], &[]);
    let _ = operator.up_line("kept");
    wait_for("an answer over the bridge", 30, || host::pings(51));
    let pid = domains::qemu_pid("kept");
    assert!(pid.is_some(), "QEMU runs");
    let pinging = host::Pinging::begin(51);
    let disk = format!("{DATA}/instances/kept/disk.qcow2");
    let record = format!("{RECORDS}/kept.json");
    let same = |after: &str| {
        assert_eq!(domains::qemu_pid("kept"), pid, "another process after {after}");
        assert!(host::pings(51), "no answer after {after}");
        assert!(Path::new(&disk).exists() && Path::new(&record).exists(), "its disk and its record after {after}");
        eprintln!("{after}: the guest runs on");
    };

    for (what, package) in [("reinstallation", NEWER), ("a step back", OLDER), ("an upgrade", NEWER)] {
        let before = [unit("bcd-node.service", "MainPID"), unit("bcd-helper.service", "MainPID")];
        let _ = dpkg(&format!("--install {package}"));
        host::told_again(&operator, "kept", what);
        let after = [unit("bcd-node.service", "MainPID"), unit("bcd-helper.service", "MainPID")];
        assert!(before.iter().zip(&after).all(|(before, after)| before != after), "both daemons are the new ones");
        assert_eq!(version() == newest, package == NEWER, "{what}");
        assert_eq!(fs::read(host::CONFIG).expect("read"), config, "the operator's configuration after {what}");
        same(what);
    }

    let told = dpkg("--remove bcd");
    assert!(
        told.contains("bcd: 1 guest is left as before, running or not") && told.contains(DATA),
        "removal says what stays: {told}"
    );
    assert!(!Path::new("/usr/bin/bcd").exists() && !Path::new("/usr/bin/bcd-helper").exists(), "the programs are gone");
    assert_eq!(ok("pgrep -x 'bcd|bcd-helper' || true"), "", "the daemons are gone");
    same("removal");
    let _ = dpkg(&format!("--install {NEWER}"));
    host::told_again(&operator, "kept", "a new installation");
    same("a new installation");

    let told = dpkg("--purge bcd");
    assert!(
        told.contains("bcd: 1 guest is left: disks stay") && told.contains(RECORDS.trim_end_matches("/records")),
        "purge says what stays: {told}"
    );
    assert!(!Path::new(host::CONFIG).exists(), "the configuration goes with a purge");
    same("purge");
    let _ = dpkg(&format!("--install {NEWER}"));
    fs::write(host::CONFIG, &config).expect("the operator writes it again");
    let _ = ok("systemctl restart bcd-helper.service bcd-node.service");
    host::told_again(&operator, "kept", "an installation after a purge");
    same("an installation after a purge");
    pinging.end_without_a_gap();

    host::clear(&operator);
    let _ = dpkg("--purge bcd");
    for path in [
        "/etc/bcd/secrets",
        "/run/bcd",
        "/var/lib/bcd-helper",
        "/var/lib/bcd/images",
        "/usr/bin/bcd",
        "/usr/lib/systemd/system/bcd-node.service",
    ] {
        assert!(!Path::new(path).exists(), "{path} is left without a guest");
    }
    assert!(!sh("getfacl -cp /var/lib/libvirt/qemu | grep -q group:kvm").status.success(), "the ACL entry is left");
    assert_eq!(ok("systemctl list-units --failed --plain --no-legend"), "", "units have failed");
    drop(undo);
    host::wait_connected(&operator);
}
