//! Looks at what policy asks for: a domain in libvirt, files below `data_dir`, network interfaces, random bytes.
//!
//! Room: `helper`. Looking changes nothing and never waits for another process's pleasure: files are opened as paths only
//! (`O_PATH`), so a FIFO or a device in their place is seen and not touched.
use crate::harden::Raised;
use crate::libvirt::{Lease, Libvirt, Waits, is_no_domain};
use crate::sys;
use bcd_policy::{
    DomainFact, DomainQuestion, DomainState, Facts, FileFact, FileQuestion, Questions, Sighting, TapName,
};
use bcd_protocol::id::DomainUuid;
use caps::Capability;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::net::if_::if_nametoindex;
use nix::sys::stat::{Mode, SFlag, fstat};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;
use virt::domain::Domain;
use virt::error::Error;
use virt::sys as libvirt_sys;

#[cfg(test)]
mod tests;

/// Gathers the facts that `questions` ask for; `looks` bounds how many look at files at once.
pub(crate) async fn gather(
    libvirt: &Arc<Libvirt>,
    looks: &Arc<Semaphore>,
    data_dir: &Path,
    questions: Questions,
) -> Facts {
    let domain = match questions.domain.clone() {
        None => None,
        Some(question) => Some(domain(libvirt, question).await),
    };
    let data_dir = data_dir.to_owned();
    let Ok(look) = Arc::clone(looks).acquire_owned().await else { return Facts { domain, ..Facts::default() } };
    let rest = tokio::task::spawn_blocking(move || {
        let _look = look;
        let files = files(&data_dir, &questions.files).collect();
        let taps = Some(questions.taps.iter().filter(|tap| interface_exists(tap)).cloned().collect());
        let random = questions.entropy.then(random).flatten();
        Facts { domain: None, files, taps, random }
    });
    // A panic there leaves every fact missing, which policy refuses.
    let rest = rest.await.unwrap_or_default();
    Facts { domain, ..rest }
}

/// Asks libvirt for one domain, once more on a new connection when the first one turns out to be dead.
pub(crate) async fn domain(libvirt: &Arc<Libvirt>, question: DomainQuestion) -> DomainFact {
    for _ in 0..2 {
        let lease = match libvirt.lease(Waits::Libvirtd).await {
            Ok(lease) => lease,
            Err(cause) => {
                tracing::debug!(%cause, "no connection to libvirt");
                return DomainFact::Unknown;
            }
        };
        let question = question.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let seen = sight(&lease, &question);
            (seen, lease.is_lost())
        });
        match looked.await {
            Ok((Ok(fact), _)) => return fact,
            Ok((Err(error), lost)) => {
                tracing::debug!(%error, lost, "looking up a domain failed");
                if !lost {
                    return DomainFact::Unknown;
                }
            }
            Err(_) => return DomainFact::Unknown,
        }
    }
    DomainFact::Unknown
}

fn sight(lease: &Lease, question: &DomainQuestion) -> Result<DomainFact, Error> {
    let by_name = sighting(lease.connect().lookup_domain_by_name(question.name.as_str()))?;
    let by_uuid = match (&by_name, question.uuid) {
        (_, None) => None,
        // A UUID is one domain's: this is the one.
        (Some(named), Some(uuid)) if named.uuid == uuid => by_name.clone(),
        (_, Some(uuid)) => sighting(lease.connect().lookup_domain_by_uuid_string(&uuid.to_string()))?,
    };
    Ok(DomainFact::Seen { by_name, by_uuid })
}

fn sighting(found: Result<Domain, Error>) -> Result<Option<Sighting>, Error> {
    let seen = found.and_then(|domain| {
        let uuid = domain.uuid()?;
        Ok(Sighting {
            name: domain.name()?,
            uuid: DomainUuid::from_bytes(*uuid.as_bytes()),
            state: state(sys::domain_state(&domain)?),
        })
    });
    match seen {
        Ok(seen) => Ok(Some(seen)),
        Err(error) if is_no_domain(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn state(number: libvirt_sys::virDomainState) -> DomainState {
    match number {
        libvirt_sys::VIR_DOMAIN_RUNNING => DomainState::Running,
        libvirt_sys::VIR_DOMAIN_BLOCKED => DomainState::Blocked,
        libvirt_sys::VIR_DOMAIN_PAUSED => DomainState::Paused,
        libvirt_sys::VIR_DOMAIN_SHUTDOWN => DomainState::ShuttingDown,
        libvirt_sys::VIR_DOMAIN_SHUTOFF => DomainState::Shutoff,
        libvirt_sys::VIR_DOMAIN_CRASHED => DomainState::Crashed,
        libvirt_sys::VIR_DOMAIN_PMSUSPENDED => DomainState::Suspended,
        _ => DomainState::Unknown,
    }
}

fn files<'a>(
    data_dir: &Path,
    questions: &'a [FileQuestion],
) -> impl Iterator<Item = (bcd_policy::FileRole, FileFact)> + use<'a> {
    // `data_dir` is the node's and closed to others: reading it is all that this capability is kept for.
    let _raised = (!questions.is_empty()).then(|| Raised::new(Capability::CAP_DAC_READ_SEARCH));
    let base = if questions.is_empty() { None } else { Some(open_base(data_dir)) };
    let facts: Vec<_> = questions
        .iter()
        .map(|question| {
            let fact = match &base {
                Some(Ok(base)) => look(base, &question.parts),
                Some(Err(Errno::ENOENT)) => FileFact::Missing,
                Some(Err(_)) | None => FileFact::Unreadable,
            };
            (question.role, fact)
        })
        .collect();
    facts.into_iter()
}

fn open_base(data_dir: &Path) -> Result<OwnedFd, Errno> {
    nix::fcntl::open(data_dir, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
}

/// Looks at one file without opening it for anything. No link is followed anywhere beneath `base`.
fn look(base: &OwnedFd, parts: &[String]) -> FileFact {
    let path: PathBuf = parts.iter().collect();
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let file = match openat2(base, &path, how) {
        Ok(file) => file,
        Err(Errno::ENOENT) => return FileFact::Missing,
        // A link on the way or at the end, something that is no directory on the way, or a way out of `base`.
        Err(Errno::ELOOP | Errno::ENOTDIR | Errno::EXDEV) => return FileFact::Other,
        Err(_) => return FileFact::Unreadable,
    };
    let Ok(stat) = fstat(&file) else { return FileFact::Unreadable };
    if SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) != SFlag::S_IFREG {
        return FileFact::Other;
    }
    FileFact::Regular { uid: stat.st_uid, links: stat.st_nlink, bytes: u64::try_from(stat.st_size).unwrap_or(0) }
}

fn interface_exists(tap: &TapName) -> bool {
    // Any other answer than "no such device" counts as there: what cannot be told must not pass for free.
    !matches!(if_nametoindex(tap.as_str()), Err(Errno::ENODEV))
}

fn random() -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok().map(|()| bytes)
}
