//! Opens a running domain's serial pty for the node.
//!
//! Room: `helper`. The pty's path comes from QEMU by way of libvirt, and a guest that broke out of its VMM may have chosen
//! it. So it is looked at first, without opening it: only a terminal on devpts that belongs to the guest's own uid is
//! opened, and the descriptor that was looked at is the one opened.
use super::Carried;
use super::domain::find;
use crate::harden::Raised;
use crate::libvirt::Lease;
use crate::xmlpty::serial_pty;
use bcd_policy::Outcome;
use bcd_policy::effect::ConsoleOpen;
use bcd_protocol::id::GuestUid;
use bcd_protocol::reply::FailureKind;
use caps::Capability;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open as open_path};
use nix::sys::stat::{Mode, SFlag, fstat, major};
use nix::sys::statfs::{DEVPTS_SUPER_MAGIC, fstatfs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Majors of the kernel's Unix98 pty slaves (Documentation/admin-guide/devices.txt: 136 to 143).
const PTY_MAJORS: std::ops::RangeInclusive<u64> = 136..=143;

/// Why a pty is not opened.
#[derive(Debug, thiserror::Error)]
enum NotOpened {
    /// It cannot be looked at or opened.
    #[error("its serial console cannot be opened: {0}")]
    System(#[from] Errno),
    /// It is not what it should be.
    #[error("what it calls its serial console {0}")]
    NotIts(&'static str),
}

/// Opens the console.
pub(super) fn open(lease: &Lease, effect: &ConsoleOpen, data_dir: &Path) -> Carried {
    let of = effect.domain().name();
    let xml = find(lease, effect.domain()).and_then(|domain| Ok(domain.xml_desc(0)?));
    let xml = match xml {
        Ok(xml) => xml,
        Err(failed) => return Carried::ended(failed.outcome(lease, data_dir)),
    };
    let Some(number) = serial_pty(&xml) else {
        return Carried::failed(FailureKind::Refused, format!("domain {of} has no serial console: it does not run"));
    };
    match open_pty(number, *effect.uid()) {
        Ok(pty) => Carried { descriptor: Some(pty), ..Carried::ended(Outcome::Done) },
        Err(cause) => {
            tracing::warn!(domain = %of, number, %cause, "a console was not opened");
            Carried::failed(FailureKind::Refused, format!("domain {of}: {cause}"))
        }
    }
}

fn open_pty(number: u32, owner: GuestUid) -> Result<OwnedFd, NotOpened> {
    let path = format!("/dev/pts/{number}");
    let seen = open_path(path.as_str(), OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    let stat = fstat(&seen)?;
    if SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) != SFlag::S_IFCHR {
        return Err(NotOpened::NotIts("is no character device"));
    }
    if fstatfs(&seen)?.filesystem_type() != DEVPTS_SUPER_MAGIC || !PTY_MAJORS.contains(&major(stat.st_rdev)) {
        return Err(NotOpened::NotIts("is no pseudo-terminal"));
    }
    if stat.st_uid != owner.get() {
        return Err(NotOpened::NotIts("belongs to another uid than its VMM's"));
    }
    // The pty is its owner's alone (mode 0600 or 0620): opening it is all that this capability is kept for.
    let _raised = Raised::new(Capability::CAP_DAC_OVERRIDE);
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    Ok(open_path(format!("/proc/self/fd/{}", seen.as_raw_fd()).as_str(), flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;

    fn pts_number(slave: &OwnedFd) -> u32 {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", slave.as_raw_fd())).unwrap();
        path.file_name().unwrap().to_str().unwrap().parse().unwrap()
    }

    #[test]
    fn a_pty_of_another_uid_is_not_opened() {
        let pair = openpty(None, None).unwrap();
        let guest = GuestUid::new(bcd_protocol::limits::GUEST_UID_FIRST).unwrap();
        let refused = open_pty(pts_number(&pair.slave), guest);
        assert!(matches!(refused, Err(NotOpened::NotIts("belongs to another uid than its VMM's"))), "{refused:?}");
    }

    #[test]
    fn a_pty_of_the_guest_uid_is_opened_non_blocking() {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: giving a pty away needs root");
            return;
        }
        let pair = openpty(None, None).unwrap();
        let guest = GuestUid::new(bcd_protocol::limits::GUEST_UID_FIRST).unwrap();
        nix::unistd::fchown(&pair.slave, Some(guest.get().into()), None).unwrap();
        let opened = open_pty(pts_number(&pair.slave), guest).unwrap();
        let flags = nix::fcntl::fcntl(&opened, nix::fcntl::FcntlArg::F_GETFL).unwrap();
        assert!(OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK | OFlag::O_RDWR));
        nix::unistd::write(&opened, b"x").unwrap();
        let mut byte = [0u8; 1];
        assert_eq!(nix::unistd::read(&pair.master, &mut byte), Ok(1), "it is the very terminal");
    }

    #[test]
    fn a_pty_that_is_gone_is_an_error() {
        let guest = GuestUid::new(bcd_protocol::limits::GUEST_UID_FIRST).unwrap();
        assert!(matches!(open_pty(4_000_000_000, guest), Err(NotOpened::System(Errno::ENOENT))));
    }
}
