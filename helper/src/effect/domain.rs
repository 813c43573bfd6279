//! The effects on a libvirt domain.
//!
//! Room: `helper`. A domain is looked up by the record's UUID and its name compared, so that a domain of somebody else's
//! that took either is not acted upon.
use crate::libvirt::{Lease, failure, is_no_domain, sentence};
use bcd_policy::effect::OwnDomain;
use bcd_policy::xml::ROOT_DISK;
use bcd_policy::{Effect, Outcome};
use bcd_protocol::reply::FailureKind;
use std::path::Path;
use virt::domain::Domain;
use virt::error::Error;
use virt::sys;

/// Why an effect on a domain failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// libvirt's error.
    Libvirt(Error),
    /// libvirt's error, after which nobody can tell whether the effect happened.
    Uncertain(Error),
    /// The domain or its disk is not as it was when the effect was decided upon.
    Changed(String),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Libvirt(error)
    }
}

impl Failed {
    /// As policy takes it; the whole message goes to the log.
    pub(super) fn outcome(self, lease: &Lease, data_dir: &Path) -> Outcome {
        match self {
            Self::Changed(detail) => Outcome::Failed(FailureKind::Refused, detail),
            Self::Libvirt(error) => {
                let kind = failure(&error, lease.is_lost());
                tracing::warn!(%error, ?kind, "libvirt failed");
                Outcome::Failed(kind, sentence(&error, data_dir))
            }
            Self::Uncertain(error) => {
                tracing::warn!(%error, "libvirt failed, and whether the effect happened is not known");
                Outcome::Failed(FailureKind::Unavailable, sentence(&error, data_dir))
            }
        }
    }
}

/// Carries out an effect on a domain.
pub(super) fn carry_out(lease: &Lease, effect: &Effect, data_dir: &Path) -> Outcome {
    match act(lease, effect) {
        Ok(()) => Outcome::Done,
        Err(failed) => failed.outcome(lease, data_dir),
    }
}

fn act(lease: &Lease, effect: &Effect) -> Result<(), Failed> {
    match effect {
        Effect::LibvirtDefine(define) => {
            lease.connect().define_domain_xml(define.xml().as_str())?;
        }
        Effect::LibvirtStart(start) => {
            let domain = lease.connect().define_domain_xml(start.xml().as_str())?;
            let paused = if *start.paused() { sys::VIR_DOMAIN_START_PAUSED } else { sys::VIR_DOMAIN_NONE };
            domain.create_with_flags(paused | sys::VIR_DOMAIN_START_FORCE_BOOT)?;
        }
        Effect::LibvirtUndefine(undefine) => {
            let everything = sys::VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                | sys::VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
                | sys::VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
                | sys::VIR_DOMAIN_UNDEFINE_NVRAM;
            find(lease, undefine.domain())?.undefine_flags(everything)?;
        }
        Effect::LibvirtShutdown(shutdown) => {
            find(lease, shutdown.domain())?.shutdown_flags(sys::VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)?;
        }
        Effect::LibvirtDestroy(destroy) => find(lease, destroy.domain())?.destroy()?,
        Effect::LibvirtSuspend(suspend) => {
            find(lease, suspend.domain())?.suspend()?;
        }
        Effect::LibvirtResume(resume) => {
            find(lease, resume.domain())?.resume()?;
        }
        Effect::LibvirtBlockResize(resize) => {
            let domain = find(lease, resize.domain())?;
            let (bytes, now) = (resize.disk().get(), domain.block_info(ROOT_DISK, 0)?.capacity);
            if bytes < now {
                let detail = format!("the disk has {now} bytes already and cannot be cut to {bytes}");
                return Err(Failed::Changed(detail));
            }
            resize_disk(&domain, bytes)?;
        }
        Effect::Nothing | Effect::ConsoleOpen(_) => {}
    }
    Ok(())
}

/// Tells the VMM the new size. An error does not say whether the VMM took it, and only a certain no may be answered as a
/// refusal, so the size is asked for once more.
fn resize_disk(domain: &Domain, bytes: u64) -> Result<(), Failed> {
    let Err(error) = domain.block_resize(ROOT_DISK, bytes, sys::VIR_DOMAIN_BLOCK_RESIZE_BYTES) else { return Ok(()) };
    match domain.block_info(ROOT_DISK, 0) {
        Ok(info) if info.capacity == bytes => Ok(()),
        Ok(_) => Err(Failed::Libvirt(error)),
        Err(_) => Err(Failed::Uncertain(error)),
    }
}

/// The domain that was decided upon.
pub(super) fn find(lease: &Lease, own: &OwnDomain) -> Result<Domain, Failed> {
    let found = lease.connect().lookup_domain_by_uuid_string(&own.uuid().to_string());
    let domain = match found {
        Ok(domain) => domain,
        Err(error) if is_no_domain(&error) => {
            return Err(Failed::Changed(format!("domain {} is gone from libvirt", own.name())));
        }
        Err(error) => return Err(error.into()),
    };
    let name = domain.name()?;
    if name != own.name().as_str() {
        return Err(Failed::Changed(format!("domain {} was renamed behind bcd's back", own.name())));
    }
    Ok(domain)
}
