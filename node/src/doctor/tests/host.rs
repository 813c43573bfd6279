//! The machine, its kernel and its programs.
use super::*;

fn vmm(change: impl FnOnce(&mut CloudHypervisor)) -> Option<CloudHypervisor> {
    let path = PathBuf::from("/usr/bin/cloud-hypervisor");
    let mut vmm = CloudHypervisor { path, version: Some("54.0".to_owned()), firmware: true };
    change(&mut vmm);
    Some(vmm)
}

#[test]
fn software_emulation_warns_and_fails_where_kvm_is_insisted_on() {
    expect(|f| f.host.virtualisation = false, Level::Warn, "kvm", "so /dev/kvm is not hardware's");
    expect(|f| (f.host.virtualisation, f.host.kvm) = (false, None), Level::Warn, "kvm", "software emulation");
    expect(|f| f.host.kvm = None, Level::Warn, "kvm", "no /dev/kvm");
    let broken = |f: &mut Facts| f.host.kvm.as_mut().unwrap().broken = Some("No such device".to_owned());
    expect(broken, Level::Warn, "kvm", "cannot be opened: No such device");
    let insist = |f: &mut Facts| named(f).config.libvirt.accel = Accel::Kvm;
    expect(|f| (insist(f), f.host.virtualisation = false).1, Level::Fail, "kvm", "libvirt.accel asks for kvm");
    expect(|f| (insist(f), broken(f)).1, Level::Fail, "kvm", "No such device");
}

#[test]
fn software_emulation_by_choice_is_no_finding() {
    let change = |f: &mut Facts| {
        (f.host.virtualisation, f.host.kvm) = (false, None);
        named(f).config.libvirt.accel = Accel::Tcg;
    };
    expect_ok(change, "kvm", "asks for software emulation");
}

#[test]
fn a_kvm_device_that_vmms_cannot_open_fails_whatever_the_cpu_can() {
    let device = |gid, mode| Some(Device { gid, mode, broken: None });
    for (gid, mode) in [(0, 0o600), (0, 0o660), (107, 0o600), (107, 0o640), (107, 0o620)] {
        let remedy = expect(|f| f.host.kvm = device(gid, mode), Level::Fail, "kvm-device", "cannot open it");
        assert_eq!(remedy, "chgrp kvm /dev/kvm && chmod 660 /dev/kvm");
    }
    for (gid, mode) in [(107, 0o660), (0, 0o666), (107, 0o666)] {
        assert_eq!(found(|f| f.host.kvm = device(gid, mode)), [], "{gid} {mode:o}");
    }
    expect(|f| f.host.kvm_group = Ok(None), Level::Fail, "kvm-group", "there is no group kvm");
    let silent = |f: &mut Facts| f.host.kvm_group = Err("Input/output error".to_owned());
    expect(silent, Level::Fail, "kvm-group", "does not say whether there is a group kvm: Input/output error");
}

#[test]
fn a_host_that_can_pass_no_device_is_told_how_and_not_blamed() {
    let none = expect_ok(|f| f.host.iommu.groups = 0, "iommu", "no IOMMU group");
    assert!(none.remedy.unwrap().contains("intel_iommu=on"));
    let no_driver = expect_ok(|f| f.host.iommu.vfio_pci = false, "iommu", "14 IOMMU groups and no vfio-pci");
    assert!(no_driver.remedy.unwrap().contains("CONFIG_VFIO_PCI"));
    assert_eq!(expect_ok(|_| {}, "iommu", "vfio-pci is there").remedy, None);
}

#[test]
fn cloud_hypervisor_is_judged_where_it_is_installed() {
    let change = |change: fn(&mut CloudHypervisor)| move |f: &mut Facts| f.host.cloud_hypervisor = vmm(change);
    expect_ok(
        change(|_| {}),
        "cloud-hypervisor",
        "version 54.0, its firmware is /usr/share/cloud-hypervisor/CLOUDHV.fd",
    );
    expect(change(|v| v.firmware = false), Level::Warn, "cloud-hypervisor", "no firmware /usr/share");
    expect(change(|v| v.version = None), Level::Warn, "cloud-hypervisor", "does not say its version");
    expect(change(|v| v.version = Some("39.0".into())), Level::Warn, "cloud-hypervisor", "version 39.0");
    assert_eq!(found(change(|v| v.version = Some("40.0".into()))), []);
    for systemd in [None, Some(None), Some(Some(246))] {
        let found = found(|f| (f.host.systemd, f.host.cloud_hypervisor) = (systemd, vmm(|_| {})));
        let checks: Vec<&str> = found.iter().map(|f| f.check.as_str()).collect();
        assert_eq!(checks, ["cloud-hypervisor", "systemd"], "{systemd:?}");
    }
}

#[test]
fn runtimes_are_named_and_a_host_without_one_is_warned() {
    expect_ok(|_| {}, "runtimes", "libvirt-kvm");
    expect_ok(|f| f.host.cloud_hypervisor = vmm(|_| {}), "runtimes", "does not offer yet");
    let found = found(|f| asked(f).libvirt = Err("refused".into()));
    let levels: Vec<_> = found.iter().map(|f| (f.check.as_str(), f.level)).collect();
    assert_eq!(levels, [("runtimes", Level::Warn), ("libvirt", Level::Fail)]);
    assert!(found[0].found.contains("this host runs no instance runtime"), "{found:?}");
}

#[test]
fn old_or_missing_systemd_and_cgroups_warn() {
    expect(|f| f.host.systemd = None, Level::Warn, "systemd", "does not run here");
    expect(|f| f.host.systemd = Some(None), Level::Warn, "systemd", "does not say its version");
    expect(|f| f.host.systemd = Some(Some(246)), Level::Warn, "systemd", "systemd 246 is older than 247");
    expect_ok(|f| f.host.systemd = Some(Some(247)), "systemd", "systemd 247 runs");
    expect(|f| f.host.cgroups = Cgroups::Legacy, Level::Warn, "cgroups", "version 1");
    let some = Cgroups::Unified(["cpu", "io", "pids"].map(str::to_owned).to_vec());
    expect(|f| f.host.cgroups = some, Level::Warn, "cgroups", "controllers cpuset, memory");
}

#[test]
fn a_weaker_sandbox_warns_and_fails_where_the_whole_is_required() {
    for (landlock, seccomp, part) in [
        (Landlock::Missing, true, "no Landlock"),
        (Landlock::Off, true, "not switched on"),
        (Landlock::Works(1), true, "ABI 1 only"),
        (Landlock::Works(4), false, "no seccomp"),
    ] {
        let change = |f: &mut Facts| (f.host.landlock, f.host.seccomp) = (landlock, seccomp);
        expect(change, Level::Warn, "sandbox", part);
        let required = |f: &mut Facts| {
            change(f);
            named(f).config.helper.require_sandbox = true;
        };
        expect(required, Level::Fail, "sandbox", "require_sandbox");
    }
    expect_ok(|f| f.host.landlock = Landlock::Works(2), "sandbox", "ABI 2");
}

/// Both daemons refuse to start then: `a_partial_landlock_is_not_the_whole` of confine.
#[test]
fn a_landlock_that_knows_a_part_fails_where_the_whole_is_required_and_the_remedy_names_the_kernel_that_has_it() {
    let with = |abi| {
        move |f: &mut Facts| {
            f.host.landlock = Landlock::Works(abi);
            named(f).config.helper.require_sandbox = true;
        }
    };
    for abi in 2..bcd_confine::landlock::WHOLE_ABI {
        let remedy = expect(with(abi), Level::Fail, "sandbox", &format!("ABI {abi}, and the whole sandbox needs 6"));
        assert!(remedy.contains("6.12 or later") && remedy.contains("require_sandbox = false"), "{remedy}");
    }
    for abi in [bcd_confine::landlock::WHOLE_ABI, 7] {
        expect_ok(with(abi), "sandbox", &format!("ABI {abi}"));
    }
}

#[test]
fn clock_memory_and_seed_tool() {
    expect(|f| f.host.seed_tool = None, Level::Fail, "seed-tool", "genisoimage nor xorriso");
    expect(|f| f.host.memory = Some(1 << 30), Level::Warn, "memory", "1 GiB");
    expect(|f| f.host.clock = 0, Level::Fail, "clock", "1970-01-01");
    expect(|f| f.host.clock = u64::MAX, Level::Fail, "clock", "9999-12-31");
    expect(|f| f.host.synchronised = Some(false), Level::Warn, "clock", "nothing keeps the clock right");
    expect_ok(|f| f.host.synchronised = None, "clock", "cannot be seen");
}
