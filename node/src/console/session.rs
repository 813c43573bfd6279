//! One viewer's end of a console: its queue, its session, its input.
//!
//! Room: `node`. A queue holds bytes, not messages, so that a guest that prints one letter at a time fills it no faster
//! than its text does.
use super::hub::Hub;
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};

/// Bytes that may wait for one viewer. A boot of Debian prints 100 KiB; a viewer this far behind does not read.
pub(super) const QUEUE_BYTES: usize = 1024 * 1024;

/// Why input was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InputRefused {
    /// Another viewer has taken over, or this one asked to read only.
    #[error("this console session only reads: another client has the input; attach again to take it over")]
    ReadOnly,
    /// The instance is deleted.
    #[error("the console is closed")]
    Closed,
}

/// What waits for one viewer.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<Waiting>,
    ready: Notify,
    over: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    ended: bool,
}

impl Queue {
    /// Adds output; answers whether the viewer keeps up. One that does not gets a notice and its end instead.
    pub(super) fn push(&self, bytes: &[u8]) -> bool {
        let mut waiting = self.lock();
        let fits = waiting.bytes.len().saturating_add(bytes.len()) <= QUEUE_BYTES;
        if fits {
            waiting.bytes.extend_from_slice(bytes);
        } else {
            let behind = waiting.bytes.len();
            let text = format!("this client is {behind} bytes behind and is detached; attach again for the latest");
            waiting.bytes.extend_from_slice(&notice(&text));
            waiting.ended = true;
            self.over.send_replace(true);
        }
        drop(waiting);
        self.ready.notify_one();
        fits
    }

    /// Says `text` and ends.
    pub(super) fn end(&self, text: &str) {
        let mut waiting = self.lock();
        if !waiting.ended {
            waiting.bytes.extend_from_slice(&notice(text));
            waiting.ended = true;
            self.over.send_replace(true);
        }
        drop(waiting);
        self.ready.notify_one();
    }

    async fn take(&self) -> Option<Bytes> {
        loop {
            let woken = self.ready.notified();
            {
                let mut waiting = self.lock();
                if !waiting.bytes.is_empty() {
                    return Some(Bytes::from(std::mem::take(&mut waiting.bytes)));
                }
                if waiting.ended {
                    return None;
                }
            }
            woken.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line of ours within the guest's output.
pub(super) fn notice(text: &str) -> Vec<u8> {
    format!("\r\n[bcd: {text}]\r\n").into_bytes()
}

/// A viewer. Dropping it detaches.
#[derive(Debug)]
pub struct Session {
    backlog: Option<Bytes>,
    queue: Arc<Queue>,
    input: Input,
}

impl Session {
    pub(super) fn new(hub: Arc<Hub>, viewer: u64, backlog: Vec<u8>, queue: Arc<Queue>) -> Self {
        let backlog = Some(backlog).filter(|b| !b.is_empty()).map(Bytes::from);
        Self { backlog, queue, input: Input { hub, viewer } }
    }

    /// The next output, backlog first; `None` once the session has ended. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Option<Bytes> {
        match self.backlog.take() {
            Some(backlog) => Some(backlog),
            None => self.queue.take().await,
        }
    }

    /// Resolves once nothing more will come, also while output still waits to be taken: a client that does not take
    /// it then need not be waited for.
    pub fn over(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut over = self.queue.over.subscribe();
        async move {
            let _ = over.wait_for(|o| *o).await;
        }
    }

    /// This viewer's way to write.
    #[must_use]
    pub fn input(&self) -> Input {
        self.input.clone()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.input.hub.detach(self.input.viewer);
    }
}

/// A viewer's way to write to its guest.
#[derive(Debug, Clone)]
pub struct Input {
    hub: Arc<Hub>,
    viewer: u64,
}

impl Input {
    /// Gives `bytes` to the guest. Waits while the guest takes nothing: that is this viewer's wait alone.
    ///
    /// # Errors
    /// [`InputRefused`] when the viewer may not write (any more).
    pub async fn write(&self, bytes: Bytes) -> Result<(), InputRefused> {
        self.hub.write(self.viewer, bytes).await
    }
}
