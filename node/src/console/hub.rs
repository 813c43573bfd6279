//! One console: reads its pty while the guest runs, hands the bytes to viewers and to the backlog.
//!
//! Room: `node`. Two locks, never held across an await: `shared` for moments, `store` by blocking threads while they
//! read or write files. The reader takes `shared` alone, so a slow disk never holds up a guest: past
//! [`PENDING_BYTES`] the oldest output that waits is counted as left out. The order is always `store`, then `shared`.
use super::pty::Pty;
use super::session::{InputRefused, Queue, Session, notice};
use super::store::{PART_BYTES, Store};
use super::{Attach, Boot, ConsoleOpener, VIEWERS};
use crate::fault::{Fault, FaultKind};
use bcd_protocol::id::InstanceId;
use bytes::Bytes;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};

/// Output that may wait for the disk: as much as the latest part that is kept.
const PENDING_BYTES: usize = 1024 * 1024;
/// Output is written to disk this long after its first byte, for a boot prints letter by letter, or once there is
/// [`WRITE_BYTES`] of it.
const WRITE_DELAY: Duration = Duration::from_millis(100);
/// As much output is written at once.
const WRITE_BYTES: usize = 128 * 1024;
/// After as much output the others on this thread have their turn: viewers must get to read.
const TURN_BYTES: usize = 64 * 1024;
/// Reads at the most for the last words of a guest that has stopped.
const LAST_READS: usize = 64;
/// Wait for each of them: the kernel hands a pty's bytes over a moment after they were written.
const LAST_WAIT: Duration = Duration::from_millis(50);
/// Pieces of input that may wait for a guest that takes none.
const INPUT_PIECES: usize = 16;
/// First and longest wait before the next try to open a console.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));
/// Tries at the short waits; afterwards one every [`SLOW_RETRY`].
const QUICK_TRIES: u32 = 20;
/// The wait between tries once the quick ones are used up.
const SLOW_RETRY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Hub {
    instance: InstanceId,
    store: Mutex<Store>,
    shared: Mutex<Shared>,
    /// There is output for the disk.
    unwritten: Notify,
    /// There is much of it.
    crowded: Notify,
    input: mpsc::Sender<(u64, Bytes)>,
    /// The other end of `input`, taken by whichever run is reading.
    typed: tokio::sync::Mutex<mpsc::Receiver<(u64, Bytes)>>,
    connected: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Shared {
    run: Option<Run>,
    pending: VecDeque<u8>,
    lost: u64,
    viewers: Vec<Viewer>,
    writer: Option<u64>,
    last_viewer: u64,
    closed: bool,
}

/// A start of the guest that is being followed.
#[derive(Debug)]
struct Run {
    boot: Boot,
    stop: watch::Sender<bool>,
}

#[derive(Debug)]
struct Viewer {
    id: u64,
    queue: Arc<Queue>,
}

impl Hub {
    pub(super) fn new(instance: &InstanceId, dir: PathBuf) -> Arc<Self> {
        let (input, typed) = mpsc::channel(INPUT_PIECES);
        Arc::new(Self {
            instance: instance.clone(),
            store: Mutex::new(Store::new(dir, PART_BYTES)),
            shared: Mutex::default(),
            unwritten: Notify::new(),
            crowded: Notify::new(),
            input,
            typed: tokio::sync::Mutex::new(typed),
            connected: watch::Sender::new(false),
        })
    }

    pub(super) fn start(self: &Arc<Self>, boot: Boot, opener: &Arc<dyn ConsoleOpener>) {
        let mut shared = self.shared();
        if shared.closed || shared.run.as_ref().is_some_and(|run| run.boot == boot) {
            return;
        }
        let (stop, stopped) = watch::channel(false);
        if let Some(earlier) = shared.run.replace(Run { boot, stop }) {
            earlier.stop.send_replace(true);
        }
        drop(shared);
        tokio::spawn(Arc::clone(self).follow(boot, Arc::clone(opener), stopped));
    }

    pub(super) fn stop(&self) {
        if let Some(run) = self.shared().run.take() {
            run.stop.send_replace(true);
        }
    }

    pub(super) fn close(&self) {
        let mut shared = self.shared();
        shared.closed = true;
        shared.writer = None;
        for viewer in shared.viewers.drain(..) {
            viewer.queue.end("the instance is deleted");
        }
        if let Some(run) = shared.run.take() {
            run.stop.send_replace(true);
        }
    }

    pub(super) async fn connected(&self, wait: Duration) -> bool {
        let mut connected = self.connected.subscribe();
        let now = tokio::time::timeout(wait, connected.wait_for(|c| *c)).await;
        matches!(now, Ok(Ok(_)))
    }

    /// Blocking: reads the backlog's files. A backlog that cannot be read or written does not keep a viewer out.
    pub(super) fn attach(self: &Arc<Self>, attach: Attach) -> Result<Session, Fault> {
        let mut store = lock(&self.store);
        let queue = Arc::new(Queue::default());
        let (id, pending, lost) = {
            let mut shared = self.shared();
            if shared.closed {
                let sentence = format!("instance {} is being deleted: it has no console any more", self.instance);
                return Err(Fault::new(FaultKind::Unavailable, sentence));
            }
            if shared.viewers.len() >= VIEWERS {
                let sentence = format!(
                    "console {} has {VIEWERS} clients already, the most it serves: close one and try again",
                    self.instance
                );
                return Err(Fault::new(FaultKind::ResourcesExhausted, sentence));
            }
            // What is pending now goes to the files, what comes later to this viewer's queue: nothing twice or never.
            let id = shared.join(attach, &queue);
            let (pending, lost) = shared.take_pending();
            (id, pending, lost)
        };
        let written = write_out(&mut store, pending, lost);
        let backlog = written.and_then(|()| store.backlog()).unwrap_or_else(|error| {
            tracing::warn!(instance = %self.instance, %error, "console backlog cannot be read");
            notice("the backlog cannot be read; the node's log says why")
        });
        Ok(Session::new(Arc::clone(self), id, backlog, queue))
    }

    pub(super) fn detach(&self, id: u64) {
        let mut shared = self.shared();
        shared.viewers.retain(|v| v.id != id);
        if shared.writer == Some(id) {
            shared.writer = None;
        }
    }

    pub(super) async fn write(&self, viewer: u64, bytes: Bytes) -> Result<(), InputRefused> {
        {
            let shared = self.shared();
            if shared.closed {
                return Err(InputRefused::Closed);
            }
            if shared.writer != Some(viewer) {
                return Err(InputRefused::ReadOnly);
            }
            // Nobody types at a guest that is off; what was typed then must not reach its next start.
            if shared.run.is_none() {
                return Ok(());
            }
        }
        self.input.send((viewer, bytes)).await.map_err(|_| InputRefused::Closed)
    }

    async fn follow(self: Arc<Self>, boot: Boot, opener: Arc<dyn ConsoleOpener>, mut stopped: watch::Receiver<bool>) {
        // An earlier run that is still reading its last bytes holds this.
        let mut typed = self.typed.lock().await;
        while typed.try_recv().is_ok() {}
        let hub = Arc::clone(&self);
        let begun = tokio::task::spawn_blocking(move || lock(&hub.store).begin(boot)).await;
        if let Ok(Err(error)) = begun {
            tracing::warn!(instance = %self.instance, %error, "console backlog cannot be begun");
        }
        self.say("the guest is started");
        let written = watch::Sender::new(false);
        let write = self.keep_writing(written.subscribe());
        let read = async {
            self.read(&opener, &mut typed, &mut stopped).await;
            self.connected.send_replace(false);
            self.say("the guest is stopped");
            written.send_replace(true);
        };
        tokio::join!(read, write);
    }

    /// Opens the console and reads it, again and again until the guest is said to have stopped.
    async fn read(
        &self,
        opener: &Arc<dyn ConsoleOpener>,
        typed: &mut mpsc::Receiver<(u64, Bytes)>,
        stopped: &mut watch::Receiver<bool>,
    ) {
        let mut tries = 0_u32;
        let mut wait = RETRY.0;
        while !*stopped.borrow() {
            let opened = tokio::select! {
                opened = opener.open(&self.instance) => opened,
                _ = stopped.wait_for(|s| *s) => return,
            };
            let pty = opened.and_then(|fd| {
                Pty::new(fd).map_err(|e| Fault::because(FaultKind::Internal, "the console cannot be set up", e))
            });
            match pty {
                Ok(pty) => {
                    (tries, wait) = (0, RETRY.0);
                    self.connected.send_replace(true);
                    let ended = self.pump(&pty, typed, stopped).await;
                    self.connected.send_replace(false);
                    if let Err(error) = ended {
                        tracing::info!(instance = %self.instance, %error, "console lost");
                    }
                }
                Err(fault) => {
                    if tries == 0 || tries == QUICK_TRIES {
                        tracing::info!(instance = %self.instance, error = fault.chain(), "console not open yet");
                    }
                    tries = tries.saturating_add(1);
                }
            }
            let pause = if tries > QUICK_TRIES { SLOW_RETRY } else { wait };
            wait = wait.saturating_mul(2).min(RETRY.1);
            let _ = tokio::time::timeout(pause, stopped.wait_for(|s| *s)).await;
        }
    }

    /// Moves bytes both ways until the other end is gone or the guest is said to have stopped.
    async fn pump(
        &self,
        pty: &Pty,
        typed: &mut mpsc::Receiver<(u64, Bytes)>,
        stopped: &mut watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let mut out = Bytes::new();
        let mut turn = 0_usize;
        loop {
            if turn >= TURN_BYTES {
                turn = 0;
                tokio::task::yield_now().await;
            }
            // In no fixed order: a flood of output must not keep the Ctrl-C that is to end it from the guest.
            tokio::select! {
                _ = stopped.wait_for(|s| *s) => break,
                count = pty.read(|bytes| self.deliver(bytes)) => match count? {
                    0 => return Ok(()),
                    count => turn = turn.saturating_add(count),
                },
                count = pty.write(&out), if !out.is_empty() => {
                    out = out.slice(count?.min(out.len())..);
                }
                Some((viewer, bytes)) = typed.recv(), if out.is_empty() => {
                    // Input of a viewer that has been taken over from meanwhile is let go; that of one which only left
                    // was typed while it was there.
                    if self.shared().writer.is_none_or(|writer| writer == viewer) {
                        out = bytes;
                    }
                }
            }
        }
        // The guest's last words may still be on their way; one that prints on has not stopped.
        for _ in 0..LAST_READS {
            let last = tokio::time::timeout(LAST_WAIT, pty.read(|bytes| self.deliver(bytes))).await;
            if !matches!(last, Ok(Ok(1..))) {
                break;
            }
        }
        Ok(())
    }

    fn deliver(&self, bytes: &[u8]) {
        let mut shared = self.shared();
        shared.pending.extend(bytes);
        let over = shared.pending.len().saturating_sub(PENDING_BYTES);
        shared.pending.drain(..over);
        shared.lost = shared.lost.saturating_add(over as u64);
        let crowded = shared.pending.len() >= WRITE_BYTES;
        shared.tell(bytes);
        drop(shared);
        self.unwritten.notify_one();
        if crowded {
            self.crowded.notify_one();
        }
    }

    /// Writes pending output to disk until the run is over and all is written.
    async fn keep_writing(self: &Arc<Self>, mut over: watch::Receiver<bool>) {
        let mut failing = false;
        loop {
            let last = tokio::select! {
                () = self.unwritten.notified() => false,
                _ = over.wait_for(|o| *o) => true,
            };
            if !last {
                tokio::select! {
                    () = self.crowded.notified() => {}
                    () = tokio::time::sleep(WRITE_DELAY) => {}
                    _ = over.wait_for(|o| *o) => {}
                }
            }
            let hub = Arc::clone(self);
            let wrote = tokio::task::spawn_blocking(move || hub.write_pending()).await;
            match wrote {
                Ok(Err(error)) if !failing => {
                    failing = true;
                    tracing::warn!(instance = %self.instance, %error, "console backlog cannot be written");
                }
                Ok(Ok(())) => failing = false,
                Ok(Err(_)) | Err(_) => {}
            }
            if last {
                return;
            }
        }
    }

    /// Writes what is pending to the files. Blocking. It is taken with the files already locked: an attach in between
    /// would find it neither in the files nor in what is pending.
    fn write_pending(&self) -> std::io::Result<()> {
        let mut store = lock(&self.store);
        let (pending, lost) = self.shared().take_pending();
        write_out(&mut store, pending, lost)
    }

    /// Says a line of ours to the viewers. It is not part of the backlog.
    fn say(&self, text: &str) {
        self.shared().tell(&notice(text));
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn take_pending(&mut self) -> (VecDeque<u8>, u64) {
        (std::mem::take(&mut self.pending), std::mem::take(&mut self.lost))
    }

    fn join(&mut self, attach: Attach, queue: &Arc<Queue>) -> u64 {
        self.last_viewer = self.last_viewer.saturating_add(1);
        let id = self.last_viewer;
        if attach == Attach::Control {
            let earlier = self.writer.replace(id);
            if let Some(viewer) = self.viewers.iter().find(|v| Some(v.id) == earlier) {
                viewer.queue.push(&notice("another client has taken over the input; this one reads on"));
            }
        }
        self.viewers.push(Viewer { id, queue: Arc::clone(queue) });
        id
    }

    fn tell(&mut self, bytes: &[u8]) {
        let writer = &mut self.writer;
        self.viewers.retain(|viewer| {
            let keeps_up = viewer.queue.push(bytes);
            if !keeps_up && *writer == Some(viewer.id) {
                *writer = None;
            }
            keeps_up
        });
    }
}

fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_out(store: &mut Store, mut pending: VecDeque<u8>, lost: u64) -> std::io::Result<()> {
    if lost > 0 {
        store.lose(lost)?;
    }
    if pending.is_empty() { Ok(()) } else { store.append(pending.make_contiguous()) }
}
