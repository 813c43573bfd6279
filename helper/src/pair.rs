//! The one connection of a helper that its node started: one end of a socket pair, as standard input.
//!
//! Room: `helper`. Invariant: no name leads to it. The other end is whoever root gave it to before this program began, and
//! who that is the kernel says all the same (docs/adr/0011-standalone.md): nothing in a session differs.
use crate::listen::unix_seqpacket;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::socket::{SockaddrStorage, getpeername};
use nix::sys::stat::Mode;
use nix::unistd::dup2_stdin;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

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
