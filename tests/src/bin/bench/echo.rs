//! A bare echo over SEQPACKET between two tokio processes: what a round trip costs before anything is decided.
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tokio_seqpacket::{UnixSeqpacket, UnixSeqpacketListener};

/// The argument that makes this program the echo's server.
pub(crate) const SERVER: &str = "--echo-server";

/// Serves one connection after the other until it is killed.
pub(crate) fn serve(path: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut listener = UnixSeqpacketListener::bind(path).expect("bind");
        loop {
            let socket = listener.accept().await.expect("accept");
            let mut buffer = vec![0u8; bcd_protocol::limits::MESSAGE_BYTES];
            while let Ok(info) = socket.recv(&mut buffer).await {
                if info.bytes_read() == 0 || socket.send(&buffer[..info.bytes_read()]).await.is_err() {
                    break;
                }
            }
        }
    });
}

/// The server as another process; ended when dropped.
#[derive(Debug)]
pub(crate) struct Echo(Child);

impl Echo {
    pub(crate) fn start(path: &Path) -> Self {
        let exe = std::env::current_exe().expect("this program");
        let child = Command::new(exe).arg(SERVER).arg(path).stdin(Stdio::null()).spawn().expect("start the echo");
        bcd_tests::daemons::wait_for("the echo's socket", 10, || path.exists());
        Self(child)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One datagram there and one back.
pub(crate) async fn turn(socket: &UnixSeqpacket, message: &[u8], buffer: &mut [u8]) -> usize {
    socket.send(message).await.expect("send");
    let info = socket.recv(buffer).await.expect("receive");
    assert!(info.bytes_read() > 0, "the other side closed");
    info.bytes_read()
}
