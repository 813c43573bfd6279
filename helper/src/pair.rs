//! The one connection of a helper that its node started: one end of a socket pair, as standard input.
//!
//! Room: `helper`. Invariant: no name leads to it. The other end is whoever root gave it to before this program began, and
//! who that is the kernel says all the same (docs/adr/0011-standalone.md): nothing in a session differs.
use crate::listen::unix_seqpacket;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{SockaddrStorage, getpeername};
use nix::sys::stat::Mode;
use nix::unistd::dup2_stdin;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Why standard input cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PairError {
    /// It is something else.
    #[error(
        "it is {0}: --connection-on-stdin is for `bcd node --standalone`, which passes one end of a SEQPACKET pair"
    )]
    Kind(&'static str),
    /// A system call failed.
    #[error("cannot {what} it: {cause}")]
    System {
        /// What failed.
        what: &'static str,
        /// Why.
        cause: Errno,
    },
}

/// Takes the connection from standard input, which is `/dev/null` from then on: the connection ends with the answer.
///
/// # Errors
/// [`PairError`] when it is no connected SEQPACKET unix socket.
pub(crate) fn take() -> Result<OwnedFd, PairError> {
    let system = |what| move |cause| PairError::System { what, cause };
    let input = std::io::stdin();
    let socket = input.as_fd().try_clone_to_owned().map_err(|e| PairError::System {
        what: "take",
        cause: e.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw),
    })?;
    check(&socket)?;
    let nothing = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()).map_err(system("replace"))?;
    dup2_stdin(&nothing).map_err(system("replace"))?;
    let flags = fcntl(&socket, FcntlArg::F_GETFL).map_err(system("read the flags of"))?;
    let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
    fcntl(&socket, FcntlArg::F_SETFL(flags)).map_err(system("make non-blocking"))?;
    Ok(socket)
}

/// Whether the node at the other end of standard input has gone. Reads nothing of what it may have said before.
pub(crate) fn is_over() -> bool {
    is_closed(std::io::stdin().as_fd())
}

fn is_closed(socket: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::new(socket, PollFlags::empty())];
    let answered = poll(&mut asked, PollTimeout::ZERO).is_ok();
    answered && asked.iter().any(|end| end.revents().is_some_and(|found| found.contains(PollFlags::POLLHUP)))
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
        assert!(!is_closed(ours.as_fd()), "nothing was said yet");
        send(theirs.as_raw_fd(), b"hello", MsgFlags::empty()).unwrap();
        assert!(!is_closed(ours.as_fd()));
        drop(theirs);
        assert!(is_closed(ours.as_fd()));
        assert_eq!(recv(ours.as_raw_fd(), &mut [0; 8], MsgFlags::empty()), Ok(5));
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
