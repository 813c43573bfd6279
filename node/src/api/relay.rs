//! A console session on an upgraded connection: bytes both ways until either side ends.
//!
//! Room: `node`. A client that takes nothing holds up nobody: its queue fills, its session is over, and a short while
//! later so is its connection.
use crate::console::{InputRefused, Session};
use bytes::Bytes;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What is read of a client's input at once.
const INPUT_BYTES: usize = 4096;
/// Time a client has to take the last bytes of a session that is over.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub(super) async fn relay<C: AsyncRead + AsyncWrite + Send>(session: Session, client: C) {
    let (mut from, mut to) = tokio::io::split(client);
    let input = session.input();
    let over = session.over();
    let reading = async {
        let mut buffer = vec![0_u8; INPUT_BYTES];
        loop {
            let count = match from.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(count) => count,
            };
            let typed = Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default());
            match input.write(typed).await {
                Ok(()) => {}
                // It was told when that began; what it types is let go.
                Err(InputRefused::ReadOnly) => {}
                Err(InputRefused::Closed) => return std::future::pending().await,
            }
        }
    };
    let writing = async {
        let mut session = session;
        while let Some(output) = session.next().await {
            if to.write_all(&output).await.is_err() || to.flush().await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    let overdue = async {
        over.await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
        () = overdue => {}
    }
}
