//! Carries out what policy granted: one executor a variant, thin, free of decisions.
//!
//! Room: `helper`. An executor takes an effect that only policy can build. Everything here blocks and runs on the
//! blocking pool.
use crate::libvirt::Libvirt;
use bcd_policy::{Effect, Outcome};
use bcd_protocol::reply::FailureKind;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

mod console;
mod domain;

/// What an effect led to, and the descriptor that travels with the reply.
#[derive(Debug)]
pub(crate) struct Carried {
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// A console's descriptor.
    pub(crate) descriptor: Option<OwnedFd>,
}

impl Carried {
    fn failed(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self { outcome: Outcome::Failed(kind, detail.into()), descriptor: None }
    }
}

/// Carries `effect` out. Once begun it is never cancelled: dropping the future leaves it running to its end.
pub(crate) async fn carry_out(libvirt: &Arc<Libvirt>, data_dir: &Path, effect: &Effect) -> Carried {
    if *effect == Effect::Nothing {
        return Carried { outcome: Outcome::Done, descriptor: None };
    }
    let lease = match libvirt.lease().await {
        Ok(lease) => lease,
        Err(cause) => return Carried::failed(FailureKind::Unavailable, cause.to_string()),
    };
    let (effect, data_dir) = (effect.clone(), data_dir.to_owned());
    let work = tokio::task::spawn_blocking(move || match &effect {
        Effect::Nothing => Carried { outcome: Outcome::Done, descriptor: None },
        Effect::ConsoleOpen(open) => console::open(&lease, open, &data_dir),
        Effect::LibvirtDefine(_)
        | Effect::LibvirtUndefine(_)
        | Effect::LibvirtStart(_)
        | Effect::LibvirtShutdown(_)
        | Effect::LibvirtDestroy(_)
        | Effect::LibvirtSuspend(_)
        | Effect::LibvirtResume(_)
        | Effect::LibvirtBlockResize(_) => {
            Carried { outcome: domain::carry_out(&lease, &effect, &data_dir), descriptor: None }
        }
    });
    // A panic on the way says nothing about what had happened by then: the intent stays and is reconciled.
    work.await.unwrap_or_else(|_| Carried::failed(FailureKind::Unavailable, "the helper failed on the way: ask again"))
}
