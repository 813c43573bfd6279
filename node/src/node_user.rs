//! Looks up the user that the node runs as, for the two who need to know it before there is a node: a standalone start and
//! `bcd doctor`.
//!
//! Room: `node`. Who may be it is `bcd_protocol::node_user`'s rule, the helper's as well. A user database that does not answer
//! is an error, never a user or group that is not there.
use bcd_protocol::node_user::{Candidate, GUESTS_GROUP, LIBVIRT_GROUP};
use nix::errno::Errno;
use nix::unistd::{Group, User, getgrouplist};
use std::ffi::CString;
use std::io;

/// A user of this host, and what the rule asks of it.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// The user.
    pub(crate) user: User,
    /// What the rule asks.
    pub(crate) candidate: Candidate,
}

/// The user of this name; `None` when the host has none.
///
/// # Errors
/// When the user database cannot be asked.
pub(crate) fn look(name: &str) -> io::Result<Option<Found>> {
    let Some(user) = User::from_name(name)? else { return Ok(None) };
    let c_name = CString::new(user.name.as_str()).map_err(|_| Errno::EINVAL)?;
    let groups = getgrouplist(&c_name, user.gid)?;
    let candidate = Candidate {
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        groups: groups.into_iter().map(|group| group.as_raw()).collect(),
        guests: gid_of(GUESTS_GROUP)?,
        libvirt: gid_of(LIBVIRT_GROUP)?,
    };
    Ok(Some(Found { user, candidate }))
}

/// The gid of a group; `None` when the host has none of that name.
///
/// # Errors
/// When the user database cannot be asked.
pub(crate) fn gid_of(group: &str) -> io::Result<Option<u32>> {
    Ok(Group::from_name(group)?.map(|group| group.gid.as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bcd_protocol::node_user::Unfit;

    #[test]
    fn a_user_of_this_host_is_looked_up_with_all_its_groups() {
        let root = look("root").expect("asked").expect("root");
        assert_eq!((root.candidate.uid, root.candidate.gid), (0, 0));
        assert!(root.candidate.groups.contains(&0));
        assert_eq!(root.candidate.judge(), Err(Unfit::Root));
        assert!(look("no-such-user-of-bcd").expect("asked").is_none());
    }
}
