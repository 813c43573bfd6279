//! Looks at the machine, its kernel and its programs.
//!
//! Room: `node`. Nothing here depends on the configuration.
use super::super::facts::{Cgroups, CloudHypervisor, Device, Host, Iommu, Landlock};
use super::{output, program, within};
use crate::seed;
use landlock::{ABI, Access, AccessFs, LandlockStatus, Ruleset, RulesetAttr};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where cloud-hypervisor's firmware lies by default.
pub(crate) const FIRMWARE: &str = "/usr/share/cloud-hypervisor/CLOUDHV.fd";

pub(super) fn host(kvm_group: Result<Option<u32>, String>) -> Host {
    Host {
        kvm_group,
        virtualisation: cpu_flags(&read_text("/proc/cpuinfo")),
        kvm: device("/dev/kvm"),
        iommu: iommu(),
        seed_tool: seed::available_tool().map(seed::Tool::name),
        cloud_hypervisor: cloud_hypervisor(),
        systemd: systemd(),
        cgroups: cgroups(Path::new("/sys/fs/cgroup")),
        landlock: landlock(),
        seccomp: read_text("/proc/self/status").lines().any(|line| line.starts_with("Seccomp_filters:")),
        memory: mem_total(&read_text("/proc/meminfo")),
        clock: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        synchronised: synchronised(),
    }
}

fn read_text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Whether any CPU shows vmx or svm.
pub(crate) fn cpu_flags(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() == "flags");
    flags.flat_map(|(_, flags)| flags.split_whitespace()).any(|flag| matches!(flag, "vmx" | "svm"))
}

/// `MemTotal`, bytes.
pub(crate) fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn device(path: &str) -> Option<Device> {
    let meta = fs::metadata(path).ok().filter(|meta| meta.file_type().is_char_device())?;
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let broken = opened.err().filter(|e| e.kind() != std::io::ErrorKind::PermissionDenied).map(|e| e.to_string());
    Some(Device { gid: meta.gid(), mode: meta.mode() & 0o7777, broken })
}

fn iommu() -> Iommu {
    let groups = fs::read_dir("/sys/kernel/iommu_groups").map_or(0, Iterator::count);
    let release = read_text("/proc/sys/kernel/osrelease");
    let modules = Path::new("/lib/modules").join(release.trim());
    let listed = |list: &str| {
        fs::read_to_string(modules.join(list)).is_ok_and(|text| text.lines().any(|line| line.contains("/vfio-pci.ko")))
    };
    let vfio_pci =
        Path::new("/sys/bus/pci/drivers/vfio-pci").is_dir() || listed("modules.dep") || listed("modules.builtin");
    Iommu { groups, vfio_pci }
}

fn cloud_hypervisor() -> Option<CloudHypervisor> {
    let path = program("cloud-hypervisor")?;
    let says = output(&path, &["--version"], Duration::from_secs(5)).ok();
    let version = says.and_then(|says| vmm_version(&says));
    Some(CloudHypervisor { path, version, firmware: Path::new(FIRMWARE).is_file() })
}

/// `54.0` of `cloud-hypervisor v54.0.0-dirty`.
pub(crate) fn vmm_version(says: &str) -> Option<String> {
    let word = says.split_whitespace().find_map(|word| word.strip_prefix('v'))?;
    let version: String = word.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let version = version.trim_end_matches('.').to_owned();
    (!version.is_empty()).then_some(version)
}

fn systemd() -> Option<Option<u32>> {
    if !Path::new("/run/systemd/system").is_dir() {
        return None;
    }
    let path = program("systemctl")?;
    let says = output(&path, &["--version"], Duration::from_secs(5)).ok();
    Some(says.and_then(|says| systemd_version(&says)))
}

/// 252 of `systemd 252 (252.38-1~deb12u1)`.
pub(crate) fn systemd_version(says: &str) -> Option<u32> {
    let word = says.lines().next()?.strip_prefix("systemd ")?.split_whitespace().next()?;
    word.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

fn cgroups(root: &Path) -> Cgroups {
    if !statfs(root).is_ok_and(|s| s.filesystem_type() == CGROUP2_SUPER_MAGIC) {
        return Cgroups::Legacy;
    }
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    Cgroups::Unified(controllers.split_whitespace().map(str::to_owned).collect())
}

/// What the service manager knows of the kernel's clock: it asks the kernel, whichever program keeps it.
fn synchronised() -> Option<bool> {
    let path = program("timedatectl")?;
    let says = output(&path, &["show", "--property=NTPSynchronized", "--value"], Duration::from_secs(5)).ok()?;
    match says.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// Restricts a thread that then ends: the crate tells what the kernel gives only to those who use it.
fn landlock() -> Landlock {
    let status = within(Duration::from_secs(5), || {
        let ruleset = Ruleset::default().handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create);
        ruleset.and_then(landlock::RulesetCreated::restrict_self).map(|status| status.landlock)
    });
    match status {
        Some(Ok(LandlockStatus::Available { effective_abi, kernel_abi })) => {
            Landlock::Works(kernel_abi.unwrap_or(effective_abi as i32))
        }
        Some(Ok(LandlockStatus::NotEnabled)) => Landlock::Off,
        Some(Ok(LandlockStatus::NotImplemented) | Err(_)) | None => Landlock::Missing,
    }
}
