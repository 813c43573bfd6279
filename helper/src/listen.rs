//! The helper's listening socket: bound here, or passed by the service manager.
//!
//! Room: `helper`. Nobody can connect before the socket has its owner, group and mode: they are set between `bind` and
//! `listen`. A foreign object at the path is never removed, a live helper's socket never taken.
use bcd_confine::trust::{self, Last, Untrusted};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrLike, SockaddrStorage, UnixAddr, bind, connect, getsockname,
    getsockopt, listen, socket, sockopt,
};
use nix::sys::stat::{Mode, SFlag, fstatat, umask};
use nix::unistd::{Gid, Group, Uid, UnlinkatFlags, fchownat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Connections that may wait to be accepted. More than the helper serves: a flood must not fill it between two turns.
const BACKLOG: i32 = 128;

/// Why there is no listening socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// The directory, or one on the way to it, is not there.
    #[error("there is no {missing}, where the socket's directory has to be: install -d -o root -g {group} -m 0750 {directory}",
        missing = missing.display(), directory = directory.display())]
    Missing {
        /// As far as it is there, and the first part that is not.
        missing: PathBuf,
        /// The whole directory.
        directory: PathBuf,
        /// Whose group enters it: by name where it has one.
        group: String,
    },
    /// The directory is not root's alone.
    #[error("the socket's directory is not safe")]
    Directory(#[source] Untrusted),
    /// Something that is not a stale socket of ours lies at the path.
    #[error("{path} is {what}: remove it or configure another socket", path = path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Another helper answers there.
    #[error("{path} is the socket of a running helper: stop that one first", path = path.display())]
    Live {
        /// The path.
        path: PathBuf,
    },
    /// A passed descriptor is not a listening SEQPACKET unix socket.
    #[error("the service manager passed {found}: the socket unit must have one ListenSequentialPacket= path")]
    Passed {
        /// What it was.
        found: String,
    },
    /// A system call failed.
    #[error("cannot {what} {path}: {cause}", path = path.display())]
    System {
        /// What failed.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        cause: Errno,
    },
}

/// A listening socket, non-blocking.
#[derive(Debug)]
pub(crate) struct Listening {
    socket: OwnedFd,
    bound: Option<Bound>,
}

/// What of it is to be removed at the end.
#[derive(Debug)]
pub(crate) struct Bound {
    directory: OwnedFd,
    name: OsString,
}

impl Listening {
    /// The socket, and what to remove at the end when it was bound here.
    pub(crate) fn into_parts(self) -> (OwnedFd, Option<Bound>) {
        (self.socket, self.bound)
    }
}

impl Bound {
    /// Removes the socket's name. A failure leaves a stale socket, which the next start replaces.
    pub(crate) fn remove(self) {
        if let Err(cause) = unlinkat(&self.directory, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
            tracing::debug!(%cause, "the socket stays");
        }
    }
}

/// Takes the socket that the service manager passed, if it passed one.
///
/// # Errors
/// [`ListenError::Passed`] for several sockets or one of another kind.
pub(crate) fn passed() -> Result<Option<Listening>, ListenError> {
    let wrong = |found: String| ListenError::Passed { found };
    let numbers: Vec<_> = sd_notify::listen_fds().map_err(|e| wrong(format!("unusable variables ({e})")))?.collect();
    let number = match numbers.as_slice() {
        [] => return Ok(None),
        [number] => *number,
        many => return Err(wrong(format!("{} sockets", many.len()))),
    };
    check_passed(crate::sys::adopt_passed(number)).map(Some)
}

/// Whether a descriptor is a unix socket of the helper's type; otherwise what it is.
pub(crate) fn unix_seqpacket(socket: &OwnedFd) -> Result<(), &'static str> {
    let family = getsockname::<SockaddrStorage>(socket.as_raw_fd()).ok().and_then(|address| address.family());
    if family != Some(AddressFamily::Unix) {
        return Err("no unix socket");
    }
    if getsockopt(socket, sockopt::SockType) != Ok(SockType::SeqPacket) {
        return Err("a unix socket that is not SEQPACKET");
    }
    Ok(())
}

fn check_passed(socket: OwnedFd) -> Result<Listening, ListenError> {
    let wrong = |found: &str| ListenError::Passed { found: found.to_owned() };
    unix_seqpacket(&socket).map_err(wrong)?;
    if getsockopt(&socket, sockopt::AcceptConn) != Ok(true) {
        return Err(wrong("a socket that does not listen"));
    }
    let set = fcntl(&socket, FcntlArg::F_GETFL)
        .and_then(|flags| fcntl(&socket, FcntlArg::F_SETFL(OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK)));
    match set {
        Ok(_) => Ok(Listening { socket, bound: None }),
        Err(_) => Err(wrong("a socket that cannot be made non-blocking")),
    }
}

/// Binds `path` with mode 0660 and group `group`, replacing a stale socket.
///
/// # Errors
/// [`ListenError`] when the directory is not safe, when something foreign or live is there, or when a call fails.
pub(crate) fn bound(path: &Path, group: Gid) -> Result<Listening, ListenError> {
    let system = |what| move |cause| ListenError::System { what, path: path.to_owned(), cause };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ListenError::Foreign { path: path.to_owned(), what: "no name of a file" });
    };
    let directory =
        trust::open_directory(parent, Last::Closed).map_err(|untrusted| unopened(untrusted, parent, group))?;
    clear_stale(&directory, name, path)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(system("make a socket for"))?;
    let address = address(&directory, name).map_err(system("name"))?;
    // The mode is right from the first moment: bind makes the socket with 0777 less the mask.
    let before = umask(Mode::from_bits_truncate(0o117));
    let made = bind(socket.as_raw_fd(), &address);
    umask(before);
    made.map_err(system("bind"))?;
    let owner = Some(Uid::from_raw(0));
    fchownat(&directory, name, owner, Some(group), AtFlags::AT_SYMLINK_NOFOLLOW).map_err(system("give a group to"))?;
    let backlog = Backlog::new(BACKLOG).map_err(system("listen on"))?;
    listen(&socket, backlog).map_err(system("listen on"))?;
    Ok(Listening { socket, bound: Some(Bound { directory, name: name.to_owned() }) })
}

/// Why the socket's directory is not opened: a fresh boot without a service manager has none, which is told with its remedy.
fn unopened(untrusted: Untrusted, directory: &Path, group: Gid) -> ListenError {
    let Untrusted::Open { path, cause: Errno::ENOENT } = untrusted else { return ListenError::Directory(untrusted) };
    let known = Group::from_gid(group).ok().flatten();
    let group = known.map_or_else(|| group.to_string(), |group| group.name);
    ListenError::Missing { missing: path, directory: directory.to_owned(), group }
}

/// The address of `name` in `directory`, by descriptor: the checked directory is the one used, and no path is too long.
fn address(directory: &OwnedFd, name: &OsStr) -> Result<UnixAddr, Errno> {
    let mut path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    path.push(name);
    UnixAddr::new(&path)
}

fn clear_stale(directory: &OwnedFd, name: &OsStr, path: &Path) -> Result<(), ListenError> {
    let system = |what| move |cause| ListenError::System { what, path: path.to_owned(), cause };
    let foreign = |what| Err(ListenError::Foreign { path: path.to_owned(), what });
    let stat = match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => return Ok(()),
        found => found.map_err(system("look at"))?,
    };
    if SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) != SFlag::S_IFSOCK {
        return foreign("not a socket");
    }
    if stat.st_uid != 0 {
        return foreign("a socket that is not root's");
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let probe = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(system("probe"))?;
    match connect(probe.as_raw_fd(), &address(directory, name).map_err(system("name"))?) {
        // EAGAIN: someone listens and their backlog is full.
        Ok(()) | Err(Errno::EAGAIN) => Err(ListenError::Live { path: path.to_owned() }),
        Err(Errno::EPROTOTYPE) => foreign("a socket of another type"),
        Err(Errno::ECONNREFUSED) => {
            unlinkat(directory, name, UnlinkatFlags::NoRemoveDir).map_err(system("remove the stale"))
        }
        Err(cause) => Err(system("probe")(cause)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_is_told_with_the_command_that_makes_it() {
        let missing = Path::new("/proc/self/no-such/bcd");
        let path = missing.join("helper.sock");
        let open = Untrusted::Open { path: PathBuf::from("/proc/self/no-such"), cause: Errno::ENOENT };
        let told = unopened(open, missing, Gid::from_raw(0)).to_string();
        assert!(told.contains("there is no /proc/self/no-such,"), "{told}");
        assert!(told.ends_with(": install -d -o root -g root -m 0750 /proc/self/no-such/bcd"), "{told}");
        let nameless = Untrusted::Open { path: path.clone(), cause: Errno::ENOENT };
        let told = unopened(nameless, missing, Gid::from_raw(4_000_000_002)).to_string();
        assert!(told.contains("-g 4000000002 "), "a group without a name is given by its number: {told}");
        let other = Untrusted::Open { path: path.clone(), cause: Errno::EACCES };
        assert!(matches!(unopened(other, missing, Gid::from_raw(0)), ListenError::Directory(_)));
        let made = bound(Path::new("/no-such-directory-of-bcd/helper.sock"), Gid::from_raw(0)).map(drop);
        assert!(matches!(made, Err(ListenError::Missing { .. })), "{made:?}");
    }
}
