//! Looks at the host. Nothing is changed, and what cannot be seen is a fact too.
//!
//! Room: `node`. Blocking; whatever may hang is asked on a thread of its own with a deadline.
use super::facts::{Configuration, Device, Directory, Document, Facts, Helper, Interface, Landlock, Libvirt, Search};
use crate::helper::{Helper as HelperClient, Reach};
use crate::seed;
use crate::spec;
use crate::spec::parse::DOCUMENT_BYTES;
use bcd_protocol::config::{Config, LibvirtUri};
use landlock::{ABI, Access, AccessFs, LandlockStatus, Ruleset, RulesetAttr};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, Group, User, access, geteuid};
use posix_acl::{ACL_EXECUTE, PosixACL, Qualifier};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest time libvirt's daemon has to answer.
const LIBVIRT_TIME: Duration = Duration::from_secs(10);
/// Longest time the helper has to answer.
const HELPER_TIME: Duration = Duration::from_secs(3);
/// libvirt's directory for QEMU's files.
const QEMU_DIRECTORY: &str = "/var/lib/libvirt/qemu";

pub(super) fn gather(path: &Path) -> Facts {
    let (configuration, config) = read_configuration(path);
    let kvm_group = Group::from_name("kvm").ok().flatten().map(|g| g.gid.as_raw());
    let user = User::from_name(config.helper.node_user.as_str()).ok().flatten();
    let images = config.node.images.ca_file.as_ref().map(|file| file.as_path().to_owned());
    let document = config.node.spec.as_ref().map(|file| file.as_path().to_owned());
    Facts {
        configuration,
        node_user: user.map(|u| (u.uid.as_raw(), u.gid.as_raw())),
        kvm_group,
        virtualisation: cpu_flags(&read_text("/proc/cpuinfo")),
        kvm: device("/dev/kvm"),
        libvirt: libvirt(&config.libvirt.uri),
        virtlogd: virtlogd(&config.libvirt.uri),
        qemu_directory: searchable(Path::new(QEMU_DIRECTORY), kvm_group),
        helper: helper(config.helper.socket.as_path()),
        seed_tool: seed::available_tool().map(seed::Tool::name),
        bridges: config.helper.instance_bridges.iter().map(|b| (b.to_string(), interface(b.as_str()))).collect(),
        data_dir: directory(config.data_dir.as_path()),
        secrets: directory(config.node.secrets.as_path()),
        ca_file: images.map(|file| (file.clone(), certificates(&file))),
        document: document.map(|file| (file.clone(), read_document(&file))),
        landlock: landlock(),
        seccomp: read_text("/proc/self/status").lines().any(|line| line.starts_with("Seccomp_filters:")),
        memory: mem_total(&read_text("/proc/meminfo")),
        clock: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        config,
    }
}

fn read_configuration(path: &Path) -> (Configuration, Config) {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return (Configuration::Missing(path.to_owned()), Config::default());
        }
        Err(e) => return (Configuration::Unreadable(path.to_owned(), e.to_string()), Config::default()),
    };
    match Config::parse(&text) {
        Ok(config) => (Configuration::Fine(path.to_owned(), not_roots_alone(path)), config),
        Err(e) => (Configuration::Wrong(path.to_owned(), e.to_string()), Config::default()),
    }
}

/// The parts of a path that somebody else than root may replace.
fn not_roots_alone(path: &Path) -> Vec<String> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parts = absolute.ancestors().filter_map(|part| {
        let shown = part.display();
        match fs::symlink_metadata(part) {
            Err(e) => Some(format!("{shown} cannot be looked at: {e}")),
            Ok(meta) if meta.is_symlink() => Some(format!("{shown} is a link")),
            Ok(meta) if meta.uid() != 0 => Some(format!("{shown} belongs to uid {}", meta.uid())),
            Ok(meta) if meta.mode() & 0o022 != 0 => {
                Some(format!("{shown} has mode {:04o}: others than root may write to it", meta.mode() & 0o7777))
            }
            Ok(_) => None,
        }
    });
    parts.collect()
}

fn read_text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Whether any CPU shows vmx or svm.
pub(super) fn cpu_flags(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() == "flags");
    flags.flat_map(|(_, flags)| flags.split_whitespace()).any(|flag| matches!(flag, "vmx" | "svm"))
}

/// `MemTotal`, bytes.
pub(super) fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn device(path: &str) -> Option<Device> {
    let meta = fs::metadata(path).ok().filter(|meta| meta.file_type().is_char_device())?;
    Some(Device { gid: meta.gid(), mode: meta.mode() & 0o7777 })
}

fn libvirt(uri: &LibvirtUri) -> Result<Libvirt, String> {
    let uri = uri.as_str().to_owned();
    within(LIBVIRT_TIME, move || {
        virt::error::clear_error_callback();
        let connection = virt::connect::Connect::open_read_only(Some(&uri)).map_err(|e| e.to_string())?;
        let version = connection.lib_version().map_err(|e| e.to_string())?;
        Ok(Libvirt { version, qemu: connection.hyp_version().ok().filter(|v| *v > 0) })
    })
    .unwrap_or_else(|| Err(format!("it does not answer within {} s", LIBVIRT_TIME.as_secs())))
}

fn virtlogd(uri: &LibvirtUri) -> Option<bool> {
    // Another socket is a libvirt with a configuration of its own.
    let default = !uri.as_str().contains('?');
    default.then(|| Path::new("/run/libvirt/virtlogd-sock").exists())
}

fn searchable(path: &Path, kvm: Option<u32>) -> Result<Search, String> {
    let meta = fs::metadata(path).map_err(|e| e.to_string())?;
    let kvm = kvm.ok_or_else(|| "there is no group kvm".to_owned())?;
    let acl = PosixACL::read_acl(path).map_err(|e| e.to_string())?;
    let mask = acl.get(Qualifier::Mask).unwrap_or(ACL_EXECUTE);
    let named = acl.get(Qualifier::Group(kvm)).map(|perm| perm & mask);
    let owning = acl.get(Qualifier::GroupObj).filter(|_| meta.gid() == kvm).map(|perm| perm & mask);
    // An entry that names the group decides; without one, what everyone has.
    let perm = match (named, owning) {
        (None, None) => acl.get(Qualifier::Other).unwrap_or_default(),
        (named, owning) => named.unwrap_or_default() | owning.unwrap_or_default(),
    };
    Ok(if perm & ACL_EXECUTE != 0 { Search::Allowed } else { Search::Refused })
}

fn helper(socket: &Path) -> Helper {
    if let Err(Errno::EACCES) = access(socket, AccessFlags::W_OK) {
        return Helper::Forbidden;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asked = runtime.map_err(|e| e.to_string()).and_then(|runtime| {
        runtime.block_on(async {
            // The helper answers one user and hangs up on others: for them, that it takes the connection is all to see.
            let connected = tokio::time::timeout(HELPER_TIME, tokio_seqpacket::UnixSeqpacket::connect(socket)).await;
            match connected {
                Ok(Ok(_)) => {}
                Ok(Err(e)) => return Err(format!("nothing answers on {}: {e}", socket.display())),
                Err(_) => return Err(format!("{} takes no connection", socket.display())),
            }
            let client = HelperClient::connect(socket, 0);
            match client.wait_until_up(HELPER_TIME).await {
                Ok(()) => Ok(match &*client.reach().borrow() {
                    Reach::Up { package, .. } => Helper::Welcome(package.to_string()),
                    Reach::Down { reason } => Helper::Unreachable(reason.to_string()),
                }),
                Err(_) if geteuid().is_root() => Ok(Helper::Listens),
                Err(fault) => Err(fault.chain()),
            }
        })
    });
    asked.unwrap_or_else(Helper::Unreachable)
}

fn interface(name: &str) -> Interface {
    let path = Path::new("/sys/class/net").join(name);
    if !path.exists() {
        return Interface::Missing;
    }
    if !path.join("bridge").is_dir() {
        return Interface::Other;
    }
    // Bit 0 is IFF_UP. The operational state is `down` for a bridge without ports, which is no fault.
    let flags = fs::read_to_string(path.join("flags")).unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or_default();
    Interface::Bridge { up: flags & 1 != 0 }
}

fn directory(path: &Path) -> Directory {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Directory::Missing,
        Err(e) => return Directory::Unseen(e.to_string()),
    };
    if !meta.is_dir() {
        return Directory::Other;
    }
    let free = nix::sys::statvfs::statvfs(path).ok();
    let free = free.map(|s| s.blocks_available().saturating_mul(s.fragment_size()));
    Directory::There { uid: meta.uid(), mode: meta.mode() & 0o7777, free }
}

fn certificates(path: &PathBuf) -> Result<usize, String> {
    let text = fs::read_to_string(path).map_err(|e| e.to_string())?;
    Ok(text.lines().filter(|line| line.trim() == "-----BEGIN CERTIFICATE-----").count())
}

fn read_document(path: &Path) -> Document {
    let mut text = String::new();
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Document::Missing,
        Err(e) => return Document::Unreadable(e.to_string()),
    };
    if let Err(e) = file.take(DOCUMENT_BYTES as u64 + 1).read_to_string(&mut text) {
        return Document::Unreadable(e.to_string());
    }
    match spec::parse(&path.display().to_string(), &text) {
        Ok(document) => Document::Fine(document.instances.len()),
        Err(e) => Document::Wrong(e.to_string()),
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

/// Runs `work` on a thread of its own and waits for it at most `patience`. A thread that hangs is left behind.
fn within<T: Send + 'static>(patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let _ = send.send(work());
    });
    receive.recv_timeout(patience).ok()
}
