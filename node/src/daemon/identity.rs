//! Who the node may be, and that it is the only one for its `data_dir`.
//!
//! Room: `node`.
use crate::fault::{Fault, FaultKind};
use crate::layout::Layout;
use crate::own_file;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};

/// Files and sockets that the node makes are nobody else's but where it says so, whatever its starter's mask is; and from
/// here on nobody of its uid looks into it or traces it.
pub(super) fn close() -> Result<(), Fault> {
    umask(Mode::from_bits_truncate(0o077));
    prctl::set_dumpable(false).map_err(|e| Fault::because(FaultKind::Internal, "tracing cannot be refused", e))
}

/// Refuses to go on as root or with a capability: nothing in the node needs either, and a node that has them makes the
/// helper's checks worthless.
pub(super) fn check() -> Result<(), Fault> {
    let status = fs::read_to_string("/proc/self/status")
        .map_err(|e| Fault::because(FaultKind::Internal, "/proc/self/status cannot be read", e))?;
    judge(&status)
}

fn judge(status: &str) -> Result<(), Fault> {
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
            .ok_or_else(|| Fault::new(FaultKind::Internal, format!("/proc/self/status has no {name}")))
    };
    if field("Uid")?.split_whitespace().any(|uid| uid == "0") {
        return Err(Fault::new(
            FaultKind::Denied,
            "bcd node does not run as root: its unit starts it as the configured node_user; by hand use --standalone, \
             which starts its helper and gives up root (docs/install.md says how to start the two by themselves)",
        ));
    }
    for set in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
        let found = field(set)?;
        if found.bytes().any(|digit| digit != b'0') {
            return Err(Fault::new(
                FaultKind::Denied,
                format!("bcd node does not run with capabilities, and {set} is {found}: start it without any"),
            ));
        }
    }
    Ok(())
}

/// Whether this process hangs on the terminal of a session that somebody else leads: then a process of this user's that waited
/// for the start may have typed into it, as whoever sits there.
pub(super) fn on_anothers_terminal() -> Result<bool, Fault> {
    let stat = fs::read_to_string("/proc/self/stat")
        .map_err(|e| Fault::because(FaultKind::Internal, "/proc/self/stat cannot be read", e))?;
    hangs_on_anothers(&stat).ok_or_else(|| Fault::new(FaultKind::Internal, "/proc/self/stat is not as proc(5) says"))
}

/// pid (comm) state ppid pgrp session tty_nr …, where the name may hold anything.
fn hangs_on_anothers(stat: &str) -> Option<bool> {
    let pid = stat.split(' ').next()?;
    let mut after_name = stat.rsplit_once(") ")?.1.split(' ').skip(3);
    let (session, terminal) = (after_name.next()?, after_name.next()?);
    Some(terminal != "0" && session != pid)
}

/// Descriptors wanted: one console for each guest, and room for files, callers and downloads beside the most instances
/// that a helper serves.
const DESCRIPTORS: u64 = 8192;

/// Raises the soft limit on descriptors, which is 1024 by default, as far as the hard limit lets it.
pub(super) fn raise_descriptor_limit() -> Result<(), Fault> {
    let fault =
        |e| Fault::because(FaultKind::Internal, "the limit on descriptors cannot be raised", std::io::Error::from(e));
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(fault)?;
    let wanted = DESCRIPTORS.min(hard).max(soft);
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).map_err(fault)
}

/// Locks `data_dir` for this process, for as long as the answer lives.
pub(super) fn lock(layout: &Layout) -> Result<Flock<File>, Fault> {
    let fault = |what: String, error| Fault::because(FaultKind::Unavailable, what, error);
    let (root, directory) = (layout.root(), layout.node());
    let meta = fs::symlink_metadata(root).map_err(|e| {
        fault(format!("data_dir {} is not there: make it, owned by the node's user, mode 0710", root.display()), e)
    })?;
    let own = nix::unistd::geteuid().as_raw();
    if !meta.is_dir() || meta.uid() != own {
        return Err(Fault::new(
            FaultKind::Unavailable,
            format!("data_dir {} is not a directory of uid {own}, the node's user: change its owner", root.display()),
        ));
    }
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(fault(format!("{} cannot be made", directory.display()), error)),
    }
    let path = layout.lock();
    let file = own_file::open(&path, OpenOptions::new().create(true).truncate(false).write(true))
        .map_err(|e| fault(format!("{} cannot be opened", path.display()), e))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, error)| fault(format!("another node works on {}: stop it first", root.display()), error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "Name:\tbcd\nUid:\t990\t990\t990\t990\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n\
                         CapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\n";

    #[test]
    fn a_plain_user_is_fine_whatever_its_bounding_set() {
        judge(PLAIN).expect("fine");
    }

    #[test]
    fn root_in_any_of_the_four_uids_is_refused() {
        for uids in ["0\t990\t990\t990", "990\t0\t990\t990", "990\t990\t0\t990", "990\t990\t990\t0"] {
            let fault = judge(&PLAIN.replace("990\t990\t990\t990", uids)).expect_err(uids);
            assert_eq!(fault.kind(), FaultKind::Denied);
        }
    }

    #[test]
    fn each_capability_set_but_the_bounding_set_must_be_empty() {
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            let from = format!("{set}:\t0000000000000000");
            let fault = judge(&PLAIN.replace(&from, &format!("{set}:\t0000000000001000"))).expect_err(set);
            assert!(fault.chain().contains(set), "{fault}");
        }
    }

    #[test]
    fn a_terminal_is_anothers_when_the_session_is_and_there_is_one() {
        for (stat, expected) in [
            ("812 (bcd) S 1 812 700 34816 812 4194560", Some(true)),
            ("812 (bcd) S 1 812 812 34816 812 4194560", Some(false)),
            ("812 (bcd) S 1 812 700 0 -1 4194560", Some(false)),
            ("812 (a) S 1 1 812 0 ) S 1 812 700 34816 812 4194560", Some(true)),
            ("812 (bcd) S 1", None),
            ("", None),
        ] {
            assert_eq!(hangs_on_anothers(stat), expected, "{stat}");
        }
        on_anothers_terminal().expect("this process's own");
    }

    #[test]
    fn the_soft_limit_on_descriptors_is_raised_and_the_hard_one_kept() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("limits");
        setrlimit(Resource::RLIMIT_NOFILE, 256, hard).expect("lowered");
        raise_descriptor_limit().expect("raised");
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).expect("limits"), (DESCRIPTORS.min(hard), hard));
    }

    #[test]
    fn a_second_node_on_one_data_dir_is_refused_until_the_first_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let layout = Layout::new(dir.path());
        let first = lock(&layout).expect("locked");
        assert!(lock(&layout).expect_err("twice").chain().contains("another node"));
        drop(first);
        lock(&layout).expect("locked again");
    }

    #[test]
    fn what_stands_in_the_place_of_the_lock_is_told_and_holds_nobody_up() {
        let dir = tempfile::tempdir().expect("a directory");
        let layout = Layout::new(dir.path());
        drop(lock(&layout).expect("locked"));
        let path = layout.lock();
        fs::remove_file(&path).expect("removed");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).expect("a FIFO");
        let fault = lock(&layout).expect_err("a FIFO").chain();
        assert!(fault.contains(&path.display().to_string()) && fault.contains("no regular file"), "{fault}");
        fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).expect("a link");
        assert!(lock(&layout).expect_err("a link").chain().contains("no regular file"));
        assert!(!dir.path().join("elsewhere").exists());
    }

    #[test]
    fn a_data_dir_that_is_a_link_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).expect("a link");
        assert!(lock(&Layout::new(&link)).expect_err("a link").chain().contains("is not a directory"));
    }
}
