//! The client of the root helper: one connection, many requests under way, replies in any order.
//!
//! Room: `node`. Invariant: a request ends exactly once, with its own reply or with a fault, and at most
//! [`limits::IN_FLIGHT`] are open on one connection. Nothing is sent twice: when the helper goes away, what was under
//! way ends with `Unavailable`, and the caller plans again from what it then observes.
//!
//! ```text
//! Down ── connect, peer is root, Hello ──> Up ── end of file, malformed reply ──> Down (backoff 50 ms .. 1 s)
//! ```
//!
//! A standalone node made its one connection before it began: then Down is for ever, and [`Helper::lost`] tells.
use crate::fault::{Fault, FaultKind};
use bcd_protocol::definition::Definition;
use bcd_protocol::id::InstanceId;
use bcd_protocol::limits;
use bcd_protocol::reply::{Defined, Denied, DomainXml, Failed, FailureKind, RecordView, RecordsPage, Reply};
use bcd_protocol::request::{Request, Verb};
use bcd_protocol::size::DiskBytes;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

pub(crate) mod dial;
mod link;
#[cfg(test)]
mod tests;

use link::{Answer, Link, Origin};

/// Longest time a request may take before its caller is told `Timeout`. Above what libvirt itself allows QEMU for a
/// start (30 s for the monitor socket) and for a define that probes the emulator anew.
const REQUEST_TIME: Duration = Duration::from_secs(120);

/// How often a caller that found the pages of the records changing under it begins again.
const PAGING_TRIES: usize = 8;

/// Whether the helper can be asked now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Connected and welcomed; the number rises with every connection.
    Up {
        /// Which connection since the start of the process, from 1.
        connection: u64,
        /// The helper's package version.
        package: Arc<str>,
    },
    /// Not connected, and why.
    Down {
        /// A sentence for status and doctor.
        reason: Arc<str>,
    },
}

/// A handle to the helper. Clones share the connection; dropping the last one ends it.
#[derive(Debug, Clone)]
pub struct Helper {
    link: Arc<Link>,
    _keeper: Arc<Keeper>,
}

/// Ends the connecting task with the last handle.
#[derive(Debug)]
struct Keeper(tokio::task::AbortHandle);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Every record at one generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Records {
    /// The generation they were read at.
    pub generation: u64,
    /// All records, in the order of their ids.
    pub records: Vec<RecordView>,
}

impl Helper {
    /// Begins to connect to the helper's socket and keeps connecting for as long as the handle lives. The server is
    /// believed only when the kernel says that it runs as `helper_uid`: 0, except in tests.
    ///
    /// Must be called within a tokio runtime. Never fails: a helper that is not there yet is [`Reach::Down`].
    #[must_use]
    pub fn connect(socket: &Path, helper_uid: u32) -> Self {
        Self::connect_with_patience(socket, helper_uid, REQUEST_TIME)
    }

    fn connect_with_patience(socket: &Path, helper_uid: u32, patience: Duration) -> Self {
        Self::keep(Origin::Path { path: PathBuf::from(socket), helper_uid }, patience)
    }

    /// Talks to the helper at the other end of a pair that this process made. It cannot be connected again.
    ///
    /// Must be called within a tokio runtime. Never fails: what is wrong with the pair is told by [`Helper::lost`].
    #[must_use]
    pub fn over(pair: OwnedFd) -> Self {
        Self::keep(Origin::Pair(Mutex::new(Some(pair))), REQUEST_TIME)
    }

    fn keep(origin: Origin, patience: Duration) -> Self {
        let link = Arc::new(Link::new(origin, patience));
        let keeper = tokio::spawn(link::keep(Arc::clone(&link)));
        Self { link, _keeper: Arc::new(Keeper(keeper.abort_handle())) }
    }

    /// Ends with the reason once the helper can never be asked again; never ends where it can be connected to anew.
    pub async fn lost(&self) -> Arc<str> {
        self.link.lost().await
    }

    /// Ends the connection now, whoever else has a handle. A helper that this node started ends with it.
    pub fn hang_up(&self) {
        self.link.hang_up();
    }

    /// Whether the helper can be asked, with every change from now on.
    #[must_use]
    pub fn reach(&self) -> watch::Receiver<Reach> {
        self.link.reach()
    }

    /// Waits until the helper can be asked, at most `patience`.
    ///
    /// # Errors
    /// `Unavailable` with the last reason.
    pub async fn wait_until_up(&self, patience: Duration) -> Result<(), Fault> {
        let mut reach = self.reach();
        let up = tokio::time::timeout(patience, reach.wait_for(|r| matches!(r, Reach::Up { .. }))).await;
        match up {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(self.link.unreachable()),
        }
    }

    /// The records' generation and count, without any record.
    ///
    /// # Errors
    /// As every method here: `Denied` with the rule, the failure's kind, `Unavailable` when the helper is not there or
    /// goes away meanwhile, `Timeout`, `Internal` for a reply of another type.
    pub async fn generation(&self) -> Result<(u64, u32), Fault> {
        let page = self.page(None, 0).await?;
        Ok((page.generation, page.total))
    }

    /// One page of records behind `after`.
    ///
    /// # Errors
    /// As [`Helper::generation`].
    pub async fn page(&self, after: Option<InstanceId>, limit: u16) -> Result<RecordsPage, Fault> {
        let (reply, _) = self.ask(Request::Records { after, limit }).await?;
        if let Reply::Records(page) = reply { Ok(page) } else { Err(strange(Verb::Records, &reply)) }
    }

    /// Every record, all of one generation: pages that change on the way are read anew.
    ///
    /// # Errors
    /// As [`Helper::generation`]; `Unavailable` when the records keep changing.
    pub async fn records(&self) -> Result<Records, Fault> {
        for _ in 0..PAGING_TRIES {
            if let Some(records) = self.records_once().await? {
                return Ok(records);
            }
        }
        Err(Fault::new(
            FaultKind::Unavailable,
            "the helper's records changed while they were read; they are read again",
        ))
    }

    async fn records_once(&self) -> Result<Option<Records>, Fault> {
        let mut after = None;
        let mut generation = None;
        let mut records: Vec<RecordView> = Vec::new();
        loop {
            let page = self.page(after.take(), limits::RECORDS_PER_PAGE).await?;
            if *generation.get_or_insert(page.generation) != page.generation {
                return Ok(None);
            }
            let more = page.more;
            let behind = records.last().map(|r| r.instance.clone());
            records.extend(Vec::from(page.records));
            let last = records.last().map(|r| r.instance.clone());
            if !more {
                return Ok(Some(Records { generation: page.generation, records }));
            }
            if last == behind || records.len() > limits::RECORDS {
                return Err(Fault::new(FaultKind::Internal, "the helper's pages of records do not end"));
            }
            after = last;
        }
    }

    /// Whether [`Helper::define`] would be granted now: the XML that it would define, or the denial.
    ///
    /// # Errors
    /// As [`Helper::generation`], but that a denial is an answer here.
    pub async fn plan(
        &self,
        instance: &InstanceId,
        definition: Definition,
    ) -> Result<Result<DomainXml, Denied>, Fault> {
        match self.answer(Request::LibvirtPlan { instance: instance.clone(), definition }).await?.reply {
            Reply::Plan(xml) => Ok(Ok(xml)),
            Reply::Denied(denied) => Ok(Err(denied)),
            Reply::Failed(failed) => Err(failure(Verb::LibvirtPlan, &failed)),
            reply @ (Reply::Hello(_) | Reply::Records(_) | Reply::Defined(_) | Reply::Done { .. } | Reply::Console) => {
                Err(strange(Verb::LibvirtPlan, &reply))
            }
        }
    }

    /// Defines a domain or changes a defined one.
    ///
    /// # Errors
    /// As [`Helper::generation`].
    pub async fn define(&self, instance: &InstanceId, definition: Definition) -> Result<Defined, Fault> {
        let (reply, _) = self.ask(Request::LibvirtDefine { instance: instance.clone(), definition }).await?;
        if let Reply::Defined(defined) = reply { Ok(defined) } else { Err(strange(Verb::LibvirtDefine, &reply)) }
    }

    /// Removes a stopped domain's definition and record. Answers whether anything was changed.
    ///
    /// # Errors
    /// As [`Helper::generation`].
    pub async fn undefine(&self, instance: &InstanceId) -> Result<bool, Fault> {
        self.change(Request::LibvirtUndefine { instance: instance.clone() }).await
    }

    /// Starts a stopped domain, its CPUs held if `paused`. Answers whether anything was changed.
    ///
    /// # Errors
    /// As [`Helper::generation`].
    pub async fn start(&self, instance: &InstanceId, paused: bool) -> Result<bool, Fault> {
        self.change(Request::LibvirtStart { instance: instance.clone(), paused }).await
    }

    /// Presses the guest's power button once. Answers whether anything was changed.
    ///
    /// # Errors
    /// As [`Helper::generation`].
    pub async fn shutdown(&self, instance: &InstanceId) -> Result<bool, Fault> {
        self.change(Request::LibvirtShutdown { instance: instance.clone() }).await
    }

    /// Ends a domain at once. Answers whether anything was changed.
    ///
    /// # Errors
    /// As [`Helper::generation`].
    pub async fn destroy(&self, instance: &InstanceId) -> Result<bool, Fault> {
        self.change(Request::LibvirtDestroy { instance: instance.clone() }).await
    }

    /// Holds a running domain's CPUs. Answers whether anything was changed.
    ///
    /// # Errors
    /// As [`Helper::generation`].
    pub async fn suspend(&self, instance: &InstanceId) -> Result<bool, Fault> {
        self.change(Request::LibvirtSuspend { instance: instance.clone() }).await
    }

    /// Lets a paused domain's CPUs run. Answers whether anything was changed.
    ///
    /// # Errors
    /// As [`Helper::generation`].
    pub async fn resume(&self, instance: &InstanceId) -> Result<bool, Fault> {
        self.change(Request::LibvirtResume { instance: instance.clone() }).await
    }

    /// Grows the root disk of a running or paused domain. Answers whether anything was changed.
    ///
    /// # Errors
    /// As [`Helper::generation`].
    pub async fn block_resize(&self, instance: &InstanceId, disk: DiskBytes) -> Result<bool, Fault> {
        self.change(Request::LibvirtBlockResize { instance: instance.clone(), disk }).await
    }

    /// Opens a running domain's serial console.
    ///
    /// # Errors
    /// As [`Helper::generation`].
    pub async fn console(&self, instance: &InstanceId) -> Result<OwnedFd, Fault> {
        match self.ask(Request::Console { instance: instance.clone() }).await? {
            (Reply::Console, Some(descriptor)) => Ok(descriptor),
            (reply, _) => Err(strange(Verb::Console, &reply)),
        }
    }

    async fn change(&self, request: Request) -> Result<bool, Fault> {
        let verb = request.verb();
        let (reply, _) = self.ask(request).await?;
        if let Reply::Done { changed } = reply { Ok(changed) } else { Err(strange(verb, &reply)) }
    }

    /// Sends one request and waits for its reply.
    async fn answer(&self, request: Request) -> Result<Answer, Fault> {
        let verb = request.verb();
        let patience = self.link.patience();
        let answered = tokio::time::timeout(patience, self.link.call(request)).await;
        answered.map_err(|_| {
            self.link.note_overdue();
            Fault::new(FaultKind::Timeout, format!("the helper gave no answer to {verb} in {} s", patience.as_secs()))
        })?
    }

    /// As [`Helper::answer`]; refusals and failures become faults here.
    async fn ask(&self, request: Request) -> Result<(Reply, Option<OwnedFd>), Fault> {
        let verb = request.verb();
        let Answer { reply, descriptor } = self.answer(request).await?;
        match reply {
            Reply::Denied(denied) => Err(Fault::new(
                FaultKind::Denied,
                format!("the helper refused {verb} by rule {}: {}", denied.rule, denied.detail),
            )),
            Reply::Failed(failed) => Err(failure(verb, &failed)),
            Reply::Hello(_)
            | Reply::Records(_)
            | Reply::Plan(_)
            | Reply::Defined(_)
            | Reply::Done { .. }
            | Reply::Console => Ok((reply, descriptor)),
        }
    }
}

fn failure(verb: Verb, failed: &Failed) -> Fault {
    Fault::new(failure_kind(failed.kind), format!("{verb} failed: {}", failed.detail))
}

fn failure_kind(kind: FailureKind) -> FaultKind {
    match kind {
        FailureKind::ResourcesExhausted => FaultKind::ResourcesExhausted,
        FailureKind::Unavailable => FaultKind::Unavailable,
        FailureKind::Timeout => FaultKind::Timeout,
        FailureKind::Refused | FailureKind::Ledger => FaultKind::Internal,
    }
}

fn strange(verb: Verb, reply: &Reply) -> Fault {
    let found = match reply {
        Reply::Hello(_) => "hello",
        Reply::Records(_) => "records",
        Reply::Plan(_) => "plan",
        Reply::Defined(_) => "defined",
        Reply::Done { .. } => "done",
        Reply::Console => "console without its descriptor",
        Reply::Denied(_) => "denied",
        Reply::Failed(_) => "failed",
    };
    Fault::new(FaultKind::Internal, format!("the helper answered {verb} with {found}"))
}
