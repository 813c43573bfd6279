//! The test host is the host that an operator has: what the other tests of the host prove rests on this.
use bcd_tests::host::{self, ok};
use std::fs;
use std::path::Path;

#[test]
fn systemd_cgroup_v2_landlock_and_apparmor_are_on() {
    if !host::inside("systemd_cgroup_v2_landlock_and_apparmor_are_on") {
        return;
    }
    assert_eq!(fs::read_to_string("/proc/1/comm").expect("read").trim(), "systemd");
    assert_eq!(ok("stat -f -c %T /sys/fs/cgroup"), "cgroup2fs", "cgroup v2 alone");
    let modules = fs::read_to_string("/sys/kernel/security/lsm").expect("the list of security modules");
    for wanted in ["landlock", "apparmor"] {
        assert!(modules.trim().split(',').any(|module| module == wanted), "{wanted} is not in {modules}");
    }
    assert_eq!(fs::read_to_string("/sys/module/apparmor/parameters/enabled").expect("read").trim(), "Y");
    let failed = ok("systemctl list-units --failed --plain --no-legend");
    assert_eq!(failed, "", "units have failed");
}

#[test]
fn guests_have_hardware_style_kvm() {
    if !host::inside("guests_have_hardware_style_kvm") {
        return;
    }
    let flags = fs::read_to_string("/proc/cpuinfo").expect("read");
    assert!(flags.split_whitespace().any(|flag| flag == "svm"), "the CPU shows svm");
    assert_eq!(ok("stat -c '%G %a' /dev/kvm"), "kvm 660", "udev's rules");
    let capabilities = ok("virsh -c qemu:///system domcapabilities --virttype kvm --machine q35");
    assert!(capabilities.contains("<domain>kvm</domain>"), "{capabilities}");
}

#[test]
fn a_spare_device_has_an_iommu_group_of_its_own() {
    if !host::inside("a_spare_device_has_an_iommu_group_of_its_own") {
        return;
    }
    let device = ok("dirname $(grep -l 0x10d3 /sys/bus/pci/devices/*/device)");
    let group = fs::canonicalize(format!("{device}/iommu_group")).expect("the e1000e has an IOMMU group");
    assert_eq!(fs::read_dir(group.join("devices")).expect("read").count(), 1, "it is alone in {}", group.display());
    assert!(Path::new("/sys/bus/pci/drivers/vfio-pci").exists(), "vfio-pci is loaded");
}

#[test]
fn libvirt_answers_anyone_who_reads_and_root_alone_who_writes() {
    if !host::inside("libvirt_answers_anyone_who_reads_and_root_alone_who_writes") {
        return;
    }
    assert_eq!(host::unit("libvirtd.socket", "ActiveState"), "active", "socket activation");
    let _ = ok("virsh -q -c qemu:///system list");
    let nobody = "setpriv --reuid nobody --regid nogroup --clear-groups";
    let _ = ok(&format!("{nobody} virsh -q -r -c qemu:///system list"));
    let refused = host::sh(&format!("{nobody} virsh -q -c qemu:///system list"));
    assert!(!refused.status.success(), "polkit let nobody write");
}
