//! Connects to the helper's listening socket, and waits while its backlog is full.
//!
//! Room: `node`. The kernel queues who waits within the call, and refuses who does not wait: in a flood of others at the
//! socket, whoever asks again in a moment gets in, and whoever takes that for an answer does not.
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;
use tokio_seqpacket::UnixSeqpacket;

/// How long to wait for room in the backlog before asking again.
const AGAIN: Duration = Duration::from_millis(2);

/// A connected socket. Waits for room in the backlog without an end: its caller has a deadline.
///
/// # Errors
/// When nobody listens at `path`, or this process may not connect to it.
pub(crate) async fn dial(path: &Path) -> io::Result<UnixSeqpacket> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    let address = UnixAddr::new(path)?;
    loop {
        match connect(socket.as_raw_fd(), &address) {
            Ok(()) => return UnixSeqpacket::try_from(socket),
            Err(Errno::EAGAIN) => tokio::time::sleep(AGAIN).await,
            Err(errno) => return Err(errno.into()),
        }
    }
}
