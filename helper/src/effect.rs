//! Carries out what policy granted: one executor a variant, thin, free of decisions.
//!
//! Room: `helper`. An executor takes an effect that only policy can build. Everything here blocks and runs on the
//! blocking pool.
use crate::failpoint::{self, Step};
use crate::libvirt::{Libvirt, Waits};
use bcd_policy::{Effect, Outcome};
use bcd_protocol::reply::FailureKind;
use bcd_protocol::request::Verb;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

mod console;
mod domain;

/// How long a guest's VMM may take to answer. libvirt itself waits without end for a VMM, and 30 s for another call on the
/// same domain.
const VMM_PATIENCE: Duration = Duration::from_secs(40);

/// What the node is told of a request that the helper failed at.
pub(crate) const UNKNOWN: &str =
    "the helper failed on the way, what it had done by then is not known: ask again, and see its log";

/// What an effect led to, and the descriptor that travels with the reply.
#[derive(Debug)]
pub(crate) struct Carried {
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// A console's descriptor.
    pub(crate) descriptor: Option<OwnedFd>,
    /// Whether the helper failed on the way, so that nobody knows what was done by then.
    pub(crate) interrupted: bool,
}

impl Carried {
    fn ended(outcome: Outcome) -> Self {
        Self { outcome, descriptor: None, interrupted: false }
    }

    fn failed(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self::ended(Outcome::Failed(kind, detail.into()))
    }
}

/// Carries `effect` out. Once begun it is never cancelled: dropping the future leaves it running to its end. What a guest's
/// VMM leaves unanswered fails with `Timeout`, so that the record's next request, which may destroy it, need not wait; the
/// call goes on, and its intent is reconciled. `verb` is for tests alone.
pub(crate) async fn carry_out(libvirt: &Arc<Libvirt>, data_dir: &Path, verb: Verb, effect: &Effect) -> Carried {
    if *effect == Effect::Nothing {
        return Carried::ended(Outcome::Done);
    }
    let lease = match libvirt.lease(waits(effect)).await {
        Ok(lease) => lease,
        Err(cause) => return Carried::failed(FailureKind::Unavailable, cause.to_string()),
    };
    let patience = (waits(effect) == Waits::Guest).then_some(VMM_PATIENCE);
    let (effect, data_dir) = (effect.clone(), data_dir.to_owned());
    let work = tokio::task::spawn_blocking(move || {
        let carried = match &effect {
            Effect::Nothing => Carried::ended(Outcome::Done),
            Effect::ConsoleOpen(open) => console::open(&lease, open, &data_dir),
            Effect::LibvirtDefine(_)
            | Effect::LibvirtUndefine(_)
            | Effect::LibvirtStart(_)
            | Effect::LibvirtShutdown(_)
            | Effect::LibvirtDestroy(_)
            | Effect::LibvirtSuspend(_)
            | Effect::LibvirtResume(_)
            | Effect::LibvirtBlockResize(_) => Carried::ended(domain::carry_out(&lease, &effect, &data_dir)),
        };
        failpoint::reach(verb, Step::InEffect);
        carried
    });
    // A panic on the way says nothing about what had happened by then: the intent stays and is reconciled.
    let ended = match patience {
        None => work.await,
        Some(patience) => match tokio::time::timeout(patience, work).await {
            Ok(ended) => ended,
            Err(_) => {
                let seconds = patience.as_secs();
                tracing::warn!(seconds, "a VMM does not answer: its call is left alone");
                let detail = format!("its VMM has not answered for {seconds} s: ask again, or destroy it");
                return Carried::failed(FailureKind::Timeout, detail);
            }
        },
    };
    ended.unwrap_or_else(|_| Carried { interrupted: true, ..Carried::failed(FailureKind::Unavailable, UNKNOWN) })
}

/// Whose answer an effect waits for. Destroying asks the kernel and not the VMM.
fn waits(effect: &Effect) -> Waits {
    match effect {
        Effect::Nothing
        | Effect::ConsoleOpen(_)
        | Effect::LibvirtDefine(_)
        | Effect::LibvirtUndefine(_)
        | Effect::LibvirtDestroy(_) => Waits::Libvirtd,
        Effect::LibvirtStart(_) => Waits::NewVmm,
        Effect::LibvirtShutdown(_)
        | Effect::LibvirtSuspend(_)
        | Effect::LibvirtResume(_)
        | Effect::LibvirtBlockResize(_) => Waits::Guest,
    }
}
