//! The machine, its kernel and its programs.
//!
//! Room: `node`. Pure.
use super::super::Finding;
use super::super::facts::{Cgroups, Configured, Host, Landlock};
use super::super::gather::host::FIRMWARE;
use super::{could, fail, ok, warn};
use crate::cli::text::bytes;
use bcd_confine::landlock::{WHOLE_ABI, WHOLE_KERNEL};
use bcd_protocol::config::Accel;

/// Memory that an instance and its VMM need at the least.
const MEMORY_LEAST: u64 = 2 << 30;
/// The oldest kernel ABI of Landlock that gives bcd all it asks of files (6.1 has 2).
const LANDLOCK_FILES: i32 = 2;
/// A clock before this (2026-01-01) was never set: certificates of image servers would not hold.
const CLOCK_EARLIEST: u64 = 1_767_225_600;
/// A clock after this (2100-01-01) is as wrong.
const CLOCK_LATEST: u64 = 4_102_444_800;
/// The oldest systemd that can give a transient unit all that cloud-hypervisor's needs.
const SYSTEMD_LEAST: u32 = 247;
/// The oldest cloud-hypervisor that takes NICs as descriptors on a restore too.
const CLOUD_HYPERVISOR_LEAST: u32 = 40;
/// Controllers that limit what guests and daemons take.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

pub(super) fn kvm(host: &Host, configured: Option<&Configured>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let group = match &host.kvm_group {
        Ok(Some(group)) => *group,
        Ok(None) => {
            return vec![fail(
                "kvm-group",
                "there is no group kvm, which every VMM runs in; groupadd --system kvm makes it, and QEMU's package does",
                "apt-get install qemu-system-x86",
            )];
        }
        Err(why) => {
            return vec![fail(
                "kvm-group",
                format!("the user database does not say whether there is a group kvm: {why}"),
                "see that getent group answers: the helper does not start before",
            )];
        }
    };
    findings.push(ok("kvm-group", format!("group kvm exists, gid {group}")));
    let accel = configured.map_or(Accel::Auto, |c| c.config.libvirt.accel);
    let lacking = |found: String, remedy: &str| {
        if accel == Accel::Kvm {
            fail("kvm", format!("{found}, and libvirt.accel asks for kvm"), remedy)
        } else {
            warn("kvm", format!("{found}: guests run on software emulation, many times slower"), remedy)
        }
    };
    findings.push(match (accel, host.virtualisation, &host.kvm) {
        (Accel::Tcg, _, _) => ok("kvm", "not looked at: libvirt.accel asks for software emulation"),
        (Accel::Auto | Accel::Kvm, false, device) => {
            // Some hosts have a paravirtual one, on which ordinary guest kernels hang.
            let despite = if device.is_some() { ", so /dev/kvm is not hardware's" } else { "" };
            lacking(
                format!("the CPU shows neither vmx nor svm{despite}"),
                "switch virtualisation on in the firmware; in a virtual machine, nested virtualisation on its host",
            )
        }
        (Accel::Auto | Accel::Kvm, true, None) => lacking(
            "there is no /dev/kvm".to_owned(),
            "load kvm_intel or kvm_amd, whichever the CPU is: modprobe kvm_intel",
        ),
        (Accel::Auto | Accel::Kvm, true, Some(device)) => match &device.broken {
            Some(why) => lacking(
                format!("/dev/kvm cannot be opened: {why}"),
                "see what dmesg says of kvm: most often the firmware has switched virtualisation off",
            ),
            None => ok("kvm", "hardware virtualisation is there"),
        },
    });
    // libvirt probes QEMU anew on every define while QEMU cannot open the device: most of a minute each.
    if let Some(device) = &host.kvm
        && (device.gid != group || device.mode & 0o060 != 0o060)
        && device.mode & 0o006 != 0o006
    {
        findings.push(fail(
            "kvm-device",
            format!(
                "/dev/kvm has mode {:04o} and gid {}: VMMs, in group kvm, cannot open it; at boot udev's rules of \
                 qemu-system-x86 see to that",
                device.mode, device.gid
            ),
            "chgrp kvm /dev/kvm && chmod 660 /dev/kvm",
        ));
    }
    findings
}

pub(super) fn iommu(host: &Host) -> Finding {
    let check = "iommu";
    if host.iommu.groups == 0 {
        return could(
            check,
            "the kernel has no IOMMU group: no device can be passed to a guest, which GPUs alone need",
            "for GPUs, switch the IOMMU on in the firmware and boot with intel_iommu=on (AMD: on by default)",
        );
    }
    if !host.iommu.vfio_pci {
        return could(
            check,
            format!("{} IOMMU groups and no vfio-pci: no device can be passed to a guest", host.iommu.groups),
            "for GPUs, use a kernel with CONFIG_VFIO_PCI, as Debian's linux-image-amd64 is",
        );
    }
    ok(check, format!("{} IOMMU groups, and vfio-pci is there", host.iommu.groups))
}

pub(super) fn runtimes(host: &Host, configured: &Configured) -> Option<Finding> {
    let libvirt = configured.probe.as_ref().ok()?.libvirt.as_ref().is_ok_and(|libvirt| libvirt.qemu.is_some());
    let other = match &host.cloud_hypervisor {
        Some(_) => "; cloud-hypervisor is installed, which this bcd does not offer yet",
        None => "",
    };
    Some(if libvirt {
        ok("runtimes", format!("instances run on libvirt-kvm{other}"))
    } else {
        warn(
            "runtimes",
            format!("this host runs no instance runtime{other}"),
            "make libvirt answer (see libvirt): until then every instance is refused",
        )
    })
}

pub(super) fn cloud_hypervisor(host: &Host) -> Option<Finding> {
    let check = "cloud-hypervisor";
    let found = host.cloud_hypervisor.as_ref()?;
    let path = found.path.display();
    let number = |version: &String| version.split('.').next().and_then(|n| n.parse::<u32>().ok());
    let Some(version) = &found.version else {
        return Some(warn(
            check,
            format!("{path} does not say its version"),
            format!("see what {path} --version says"),
        ));
    };
    if number(version).is_none_or(|n| n < CLOUD_HYPERVISOR_LEAST) {
        return Some(warn(
            check,
            format!("{path} is version {version}: it does not take NICs as descriptors"),
            format!("get version {CLOUD_HYPERVISOR_LEAST} or later"),
        ));
    }
    if host.systemd.flatten().is_none_or(|n| n < SYSTEMD_LEAST) {
        return Some(warn(
            check,
            format!("{path} is version {version}, and its units need systemd {SYSTEMD_LEAST} or later"),
            "upgrade the distribution, or do without cloud-hypervisor",
        ));
    }
    if !found.firmware {
        return Some(warn(
            check,
            format!("{path} is version {version}, and there is no firmware {FIRMWARE}"),
            format!("put CLOUDHV.fd of cloud-hypervisor's edk2 at {FIRMWARE}"),
        ));
    }
    Some(ok(check, format!("{path} is version {version}, its firmware is {FIRMWARE}")))
}

pub(super) fn seed_tool(host: &Host) -> Finding {
    match host.seed_tool {
        Some(tool) => ok("seed-tool", format!("{tool} makes seeds")),
        None => fail(
            "seed-tool",
            "neither genisoimage nor xorriso is installed: no instance gets its seed",
            "apt-get install genisoimage",
        ),
    }
}

pub(super) fn systemd(host: &Host) -> Finding {
    let check = "systemd";
    match host.systemd {
        None => warn(
            check,
            "systemd does not run here: nothing starts the daemons at boot or again after a crash",
            "have another service manager start bcd-helper and bcd node, or boot with systemd",
        ),
        Some(None) => warn(check, "systemd runs and does not say its version", "see what systemctl --version says"),
        Some(Some(version)) if version < SYSTEMD_LEAST => warn(
            check,
            format!("systemd {version} is older than {SYSTEMD_LEAST}: part of the units' hardening has no effect"),
            "upgrade the distribution: Debian 12 has 252",
        ),
        Some(Some(version)) => ok(check, format!("systemd {version} runs")),
    }
}

pub(super) fn cgroups(host: &Host) -> Finding {
    let check = "cgroups";
    let remedy = "boot with systemd.unified_cgroup_hierarchy=1 and without cgroup_no_v1= or cgroup_disable=";
    match &host.cgroups {
        Cgroups::Legacy => {
            warn(check, "control groups are of version 1: the limits of the units have no or less effect", remedy)
        }
        Cgroups::Unified(controllers) => {
            let missing: Vec<_> = CONTROLLERS.into_iter().filter(|c| !controllers.iter().any(|has| has == c)).collect();
            if missing.is_empty() {
                ok(check, "control groups are of version 2, with every controller")
            } else {
                warn(check, format!("control groups lack the controllers {}", missing.join(", ")), remedy)
            }
        }
    }
}

/// As both daemons judge it: the whole where the configuration requires that, and where not, what is there.
pub(super) fn sandbox(host: &Host, configured: Option<&Configured>) -> Finding {
    let required = configured.is_some_and(|c| c.config.helper.require_sandbox);
    let lacking = |found: String| {
        if required {
            let remedy = format!(
                "boot a kernel of {WHOLE_KERNEL} or later with landlock in its lsm= list, or set helper.require_sandbox = false"
            );
            fail("sandbox", format!("{found}, and helper.require_sandbox is set: neither daemon starts"), remedy)
        } else {
            let remedy = "boot a kernel of 6.1 or later with landlock in its lsm= list";
            warn("sandbox", format!("{found}: the daemons run with what there is"), remedy)
        }
    };
    if !host.seccomp {
        return lacking("this kernel has no seccomp filters".to_owned());
    }
    match host.landlock {
        Landlock::Missing => lacking("this kernel has no Landlock".to_owned()),
        Landlock::Off => lacking("Landlock is built in and not switched on".to_owned()),
        Landlock::Works(abi) if abi < LANDLOCK_FILES => lacking(format!("Landlock has ABI {abi} only")),
        Landlock::Works(abi) if abi < WHOLE_ABI && required => {
            lacking(format!("Landlock has ABI {abi}, and the whole sandbox needs {WHOLE_ABI}"))
        }
        Landlock::Works(abi) => ok("sandbox", format!("seccomp and Landlock work, Landlock with ABI {abi}")),
    }
}

pub(super) fn memory(host: &Host) -> Option<Finding> {
    let memory = host.memory?;
    let shown = bytes(memory);
    Some(if memory < MEMORY_LEAST {
        warn(
            "memory",
            format!("this host has {shown}"),
            "expect starts to be refused: a guest's VMM needs some beside the guest's own",
        )
    } else {
        ok("memory", format!("this host has {shown}"))
    })
}

pub(super) fn clock(host: &Host) -> Finding {
    let now = crate::cli::text::moment(host.clock.saturating_mul(1000));
    if !(CLOCK_EARLIEST..CLOCK_LATEST).contains(&host.clock) {
        return fail(
            "clock",
            format!("the clock says {now}: no certificate of an image server holds then"),
            "set the clock with date --set, then apt-get install systemd-timesyncd",
        );
    }
    match host.synchronised {
        Some(true) => ok("clock", format!("it is {now}, and something keeps the clock right")),
        None => ok("clock", format!("it is {now}; whether something keeps the clock right cannot be seen")),
        Some(false) => warn(
            "clock",
            format!(
                "it is {now}, and nothing keeps the clock right, as systemd-timesyncd or chrony would: it drifts until \
                 certificates do not hold"
            ),
            "apt-get install systemd-timesyncd",
        ),
    }
}
