//! A raw client of the helper's socket: it can say anything, also what no honest client says.
//!
//! Room: `tests`. Blocking, with a deadline on every receive, so that a hang is a failure and not a wait.
use crate::place::Place;
use bcd_protocol::codec;
use bcd_protocol::limits;
use bcd_protocol::reply::{Denied, RecordsPage, Reply, ReplyMessage};
use bcd_protocol::request::{Request, RequestId, RequestMessage};
use nix::cmsg_space;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect, recvmsg,
    sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// How long a reply may take before the test fails, seconds.
pub const DEADLINE: i64 = 60;

/// One connection.
#[derive(Debug)]
pub struct Wire {
    fd: OwnedFd,
    next: u64,
}

/// Runs `work` in a thread that has the given uid and gid and no capability, so that whatever it opens or connects is that
/// user's.
///
/// # Panics
/// When the kernel refuses, or `work` panics.
pub fn as_user<T: Send>(uid: u32, gid: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // SAFETY: plain system calls without pointers; made directly, they change this thread alone, which ends here.
                let done = unsafe {
                    libc::syscall(libc::SYS_setgroups, 0, 0) == 0
                        && libc::syscall(libc::SYS_setresgid, gid, gid, gid) == 0
                        && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
                };
                assert!(done, "become uid {uid}: {}", io::Error::last_os_error());
                work()
            })
            .join()
            .expect("the thread of another user")
    })
}

impl Wire {
    /// Connects as the calling thread's user.
    ///
    /// # Errors
    /// The kernel's.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let wire = Self::over(socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?)?;
        connect(wire.fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(wire)
    }

    /// Speaks over a socket that is there already, such as one end of a pair.
    ///
    /// # Errors
    /// The kernel's.
    pub fn over(fd: OwnedFd) -> io::Result<Self> {
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(DEADLINE, 0))?;
        setsockopt(&fd, sockopt::SendTimeout, &TimeVal::new(DEADLINE, 0))?;
        Ok(Self { fd, next: 1 })
    }

    /// Connects as a user.
    ///
    /// # Errors
    /// The kernel's.
    pub fn connect_as(path: &Path, uid: u32, gid: u32) -> io::Result<Self> {
        let path: PathBuf = path.to_owned();
        as_user(uid, gid, move || Self::connect(&path))
    }

    /// Connects to a place's helper as its node's user.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of_node(place: &Place) -> io::Result<Self> {
        Self::connect_as(&place.helper_socket(), place.node_uid().as_raw(), place.node_gid().as_raw())
    }

    /// Connects to a place's helper as its node's user, and says hello.
    ///
    /// # Panics
    /// When it cannot, or is not welcomed.
    #[must_use]
    pub fn welcomed(place: &Place) -> Self {
        Self::of_node(place).expect("the node's user connects").greeted()
    }

    /// The first page of records, as many as one may hold.
    ///
    /// # Panics
    /// When there is no such answer.
    #[must_use]
    pub fn records(&mut self) -> RecordsPage {
        match self.call(&Request::Records { after: None, limit: limits::RECORDS_PER_PAGE }) {
            Reply::Records(page) => page,
            other => panic!("no records: {other:?}"),
        }
    }

    /// Says hello with this protocol's version.
    ///
    /// # Panics
    /// When it is not welcomed.
    #[must_use]
    pub fn greeted(mut self) -> Self {
        let reply = self.call(&Request::Hello { version: bcd_protocol::PROTOCOL_VERSION });
        assert!(matches!(reply, Reply::Hello(_)), "not welcomed: {reply:?}");
        self
    }

    /// Sends bytes as one datagram, with descriptors.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send_raw(&self, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
        let rights = [ControlMessage::ScmRights(fds)];
        let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(self.fd.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None)?;
        Ok(())
    }

    /// Sends a request under the next id.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When it cannot be encoded.
    pub fn send(&mut self, request: &Request) -> io::Result<RequestId> {
        let id = RequestId(self.next);
        self.next += 1;
        let message = RequestMessage { id, request: request.clone() };
        self.send_raw(&codec::encode(&message).expect("encode"), &[])?;
        Ok(id)
    }

    /// Receives one datagram and its descriptors. `None`: the other side closed.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` when nothing came within [`DEADLINE`].
    pub fn recv_raw(&self) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let mut buffer = vec![0u8; limits::MESSAGE_BYTES + 1];
        let mut control = cmsg_space!([RawFd; 8]);
        let (length, fds) = {
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            let message = match recvmsg::<()>(self.fd.as_raw_fd(), &mut slices, Some(&mut control), flags) {
                Ok(message) => message,
                Err(nix::errno::Errno::ECONNRESET) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            };
            let mut fds = Vec::new();
            for part in message.cmsgs()? {
                if let ControlMessageOwned::ScmRights(received) = part {
                    // SAFETY: the kernel just made these descriptors for this process, and nothing else owns them.
                    fds.extend(received.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                }
            }
            (message.bytes, fds)
        };
        if length == 0 {
            return Ok(None);
        }
        buffer.truncate(length);
        Ok(Some((buffer, fds)))
    }

    /// Receives one reply and its descriptors.
    ///
    /// # Panics
    /// When the connection is closed, nothing comes, or what comes is no reply.
    pub fn recv(&self) -> (ReplyMessage, Vec<OwnedFd>) {
        let (bytes, fds) = self.recv_raw().expect("receive").expect("the helper closed the connection");
        (codec::decode(&bytes).expect("decode a reply"), fds)
    }

    /// Asks and waits for the answer, which must be to this question.
    ///
    /// # Panics
    /// As [`Wire::recv`], and when the reply is to another request.
    pub fn call(&mut self, request: &Request) -> Reply {
        self.call_with_fds(request).0
    }

    /// As [`Wire::call`], with the descriptors that came.
    ///
    /// # Panics
    /// As [`Wire::call`].
    pub fn call_with_fds(&mut self, request: &Request) -> (Reply, Vec<OwnedFd>) {
        let id = self.send(request).expect("send");
        let (message, fds) = self.recv();
        assert_eq!(message.id, id, "the reply is to another request");
        (message.reply, fds)
    }

    /// Asks for what must be denied, and returns the denial's rule.
    ///
    /// # Panics
    /// When it is not denied.
    pub fn denied(&mut self, request: &Request) -> String {
        match self.call(request) {
            Reply::Denied(Denied { rule, .. }) => rule.to_string(),
            other => panic!("{request:?} was not denied: {other:?}"),
        }
    }

    /// Whether the helper closed this connection: the next receive finds its end.
    ///
    /// # Panics
    /// When nothing happens within the deadline.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self.recv_raw() {
            Ok(None) => true,
            Ok(Some(_)) => false,
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => true,
            Err(error) => panic!("neither an answer nor an end: {error}"),
        }
    }

    /// The descriptor alone.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// The descriptor, for tests that poll or shut it down.
    #[must_use]
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}
