//! A console's descriptor: raw, non-blocking, read and written as readiness comes.
//!
//! Room: `node`.
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::termios::{self, SetArg};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Bytes read at once: a pty gives at most this much.
const READ_BYTES: usize = 4096;

/// An open console.
#[derive(Debug)]
pub(super) struct Pty(AsyncFd<OwnedFd>);

impl Pty {
    /// Takes a console's descriptor. On a terminal it switches off echo, line editing and signals: the guest's own
    /// terminal does those. A socket is taken as it is.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        match termios::tcgetattr(&fd) {
            Ok(mut settings) => {
                termios::cfmakeraw(&mut settings);
                termios::tcsetattr(&fd, SetArg::TCSANOW, &settings)?;
            }
            Err(Errno::ENOTTY) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
        fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        #[expect(
            deprecated,
            reason = "the sound one is unsafe; an OwnedFd keeps its number, which is all that it asks"
        )]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self(fd))
    }

    /// Waits for output and gives it to `take`. Answers how much it was; `Ok(0)`: the other end is gone. Cancelling it
    /// loses nothing: once bytes are read, they are given before anything is waited for.
    pub(super) async fn read(&self, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            if let Ok(result) = ready.try_io(|fd| read_now(fd.get_ref(), &mut take)) {
                return result;
            }
        }
    }

    /// Writes some of `bytes` once there is room. Cancelling it loses nothing.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.writable().await?;
            if let Ok(result) = ready.try_io(|fd| nix::unistd::write(fd.get_ref(), bytes).map_err(io::Error::from)) {
                return result;
            }
        }
    }
}

/// The buffer is on the stack and only for this call: a thousand idle consoles hold none.
fn read_now(fd: &OwnedFd, take: &mut impl FnMut(&[u8])) -> io::Result<usize> {
    let mut buffer = [0_u8; READ_BYTES];
    let count = match nix::unistd::read(fd, &mut buffer) {
        Ok(count) => count,
        // What a pty says when its other end is closed.
        Err(Errno::EIO) => 0,
        Err(e) => return Err(e.into()),
    };
    if let Some(bytes) = buffer.get(..count).filter(|b| !b.is_empty()) {
        take(bytes);
    }
    Ok(count)
}
