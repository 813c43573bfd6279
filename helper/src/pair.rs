//! The one connection of a helper that its node started: one end of a socket pair, as standard input, and the node itself.
//!
//! Room: `helper`. Invariants: the helper ends with the process that started it, whoever else may hold the pair then; no name
//! leads to it. The other end is whoever root gave it to before this program began, and
//! who that is the kernel says all the same (docs/adr/0011-standalone.md): nothing in a session differs.
use crate::listen::unix_seqpacket;
use crate::sys;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{SockaddrStorage, getpeername, getsockopt};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, dup2_stdin, getppid};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Why standard input cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PairError {
    /// It is something else.
    #[error(
        "it is {0}: --connection-on-stdin is for `bcd node --standalone`, which passes one end of a SEQPACKET pair"
    )]
    Kind(&'static str),
    /// Nobody is there to end with.
    #[error("process {0}, which made it, did not start this helper or has ended")]
    Orphan(Pid),
    /// A system call failed.
    #[error("cannot {what} it: {cause}")]
    System {
        /// What failed.
        what: &'static str,
        /// Why.
        cause: Errno,
    },
}

/// The connection, and the process that made it: the node's, which executed its program anew since.
#[derive(Debug)]
pub(crate) struct Pair {
    socket: OwnedFd,
    node: OwnedFd,
}

/// Takes the connection from standard input, which is `/dev/null` from then on.
///
/// # Errors
/// [`PairError`] when it is no connected SEQPACKET unix socket, or not of the process that started this one.
pub(crate) fn take() -> Result<Pair, PairError> {
    let system = |what| move |cause| PairError::System { what, cause };
    let input = std::io::stdin();
    let socket = input.as_fd().try_clone_to_owned().map_err(|e| PairError::System {
        what: "take",
        cause: e.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw),
    })?;
    check(&socket)?;
    let maker = Pid::from_raw(getsockopt(&socket, PeerCredentials).map_err(system("ask for the maker of"))?.pid());
    let node = sys::open_process(maker).map_err(|cause| {
        if cause == Errno::ESRCH {
            PairError::Orphan(maker)
        } else {
            PairError::System { what: "follow the maker of", cause }
        }
    })?;
    // It lives, so the descriptor is its own and not one of a later process with its number.
    if getppid() != maker {
        return Err(PairError::Orphan(maker));
    }
    let nothing = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()).map_err(system("replace"))?;
    dup2_stdin(&nothing).map_err(system("replace"))?;
    let flags = fcntl(&socket, FcntlArg::F_GETFL).map_err(system("read the flags of"))?;
    let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
    fcntl(&socket, FcntlArg::F_SETFL(flags)).map_err(system("make non-blocking"))?;
    Ok(Pair { socket, node })
}

impl Pair {
    /// Whether the node has ended or closed its end. Reads nothing of what it may have said before.
    pub(crate) fn is_over(&self) -> bool {
        let mut asked =
            [PollFd::new(self.socket.as_fd(), PollFlags::empty()), PollFd::new(self.node.as_fd(), PollFlags::POLLIN)];
        let over = PollFlags::POLLHUP | PollFlags::POLLIN;
        let answered = poll(&mut asked, PollTimeout::ZERO).is_ok();
        answered && asked.iter().any(|end| end.revents().is_some_and(|found| found.intersects(over)))
    }

    /// The connection, and what can be read from once the node has ended.
    pub(crate) fn into_parts(self) -> (OwnedFd, OwnedFd) {
        (self.socket, self.node)
    }
}

fn check(socket: &OwnedFd) -> Result<(), PairError> {
    unix_seqpacket(socket).map_err(PairError::Kind)?;
    if getpeername::<SockaddrStorage>(socket.as_raw_fd()).is_err() {
        return Err(PairError::Kind("a socket that is not connected"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket, socketpair};

    fn kind(socket: &OwnedFd) -> String {
        check(socket).unwrap_err().to_string()
    }

    #[test]
    fn an_end_whose_other_one_is_gone_is_over_and_what_was_said_before_stays_to_be_read() {
        use nix::sys::socket::{MsgFlags, recv, send};
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let pair = Pair { socket: ours, node: sys::open_process(nix::unistd::getpid()).unwrap() };
        assert!(!pair.is_over(), "nothing was said yet");
        send(theirs.as_raw_fd(), b"hello", MsgFlags::empty()).unwrap();
        assert!(!pair.is_over());
        drop(theirs);
        assert!(pair.is_over());
        assert_eq!(recv(pair.socket.as_raw_fd(), &mut [0; 8], MsgFlags::empty()), Ok(5));
    }

    #[test]
    fn an_end_whose_other_one_is_held_by_somebody_else_is_over_once_the_node_has_ended() {
        let (ours, _held) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let mut node = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(node.id()).unwrap());
        let pair = Pair { socket: ours, node: sys::open_process(pid).unwrap() };
        assert!(!pair.is_over());
        node.kill().unwrap();
        node.wait().unwrap();
        assert!(pair.is_over());
        assert_eq!(sys::open_process(pid).err(), Some(Errno::ESRCH), "it was waited for");
    }

    #[test]
    fn one_end_of_a_seqpacket_pair_is_taken_and_nothing_else() {
        let pair = |kind| socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).unwrap();
        check(&pair(SockType::SeqPacket).0).unwrap();
        assert!(kind(&pair(SockType::Stream).0).contains("not SEQPACKET"));
        assert!(kind(&pair(SockType::Datagram).0).contains("not SEQPACKET"));
        let lone = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).unwrap();
        assert!(kind(&lone).contains("not connected"));
        let network = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
        assert!(kind(&network).contains("no unix socket"));
        assert!(kind(&tempfile::tempfile().unwrap().into()).contains("no unix socket"));
    }
}
