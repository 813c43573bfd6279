//! Who may call: root, the node's own user, and members of that user's group, by the kernel's word.
//!
//! Room: `node`. The socket's mode keeps others out already; this holds when a mode or a directory is set wrong.
use bcd_confine::users;
use bcd_protocol::id::GuestUid;
use std::io;

/// The peer of a connection, from `SO_PEERCRED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Its effective uid when it connected.
    pub uid: u32,
    /// Its effective gid when it connected.
    pub gid: u32,
    /// Its process, where the kernel knows it.
    pub pid: Option<i32>,
}

/// Whom the API answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// The node's own uid.
    pub uid: u32,
    /// The node's own group; its members may call.
    pub gid: u32,
}

impl Admission {
    /// That of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() }
    }

    /// Whether `caller` may call. A guest's VMM never may, whatever its group. `groups` answers every group of a uid; it is asked only when nothing else decides.
    ///
    /// # Errors
    /// Those of `groups`: a caller whose groups cannot be read is not let in.
    pub fn admits(self, caller: Caller, groups: impl FnOnce(u32) -> io::Result<Vec<u32>>) -> io::Result<bool> {
        if self.admits_at_once(caller) {
            return Ok(true);
        }
        if is_guest(caller) {
            return Ok(false);
        }
        Ok(groups(caller.uid)?.contains(&self.gid))
    }

    /// Whether `caller` may call by what the kernel says alone. `false`: its groups decide.
    #[must_use]
    pub fn admits_at_once(self, caller: Caller) -> bool {
        caller.uid == 0 || caller.uid == self.uid || (caller.gid == self.gid && !is_guest(caller))
    }
}

/// Whether it runs as a guest's uid: a VMM that its guest has taken over.
fn is_guest(caller: Caller) -> bool {
    GuestUid::new(caller.uid).is_ok()
}

/// The groups of the user with this uid, from the host's user database; one that cannot be read there lets nobody in. Blocking.
///
/// # Errors
/// When the database cannot be asked. A uid without an entry has no groups.
pub fn groups_of(uid: u32) -> io::Result<Vec<u32>> {
    users::groups_of_uid(uid).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Admission = Admission { uid: 900, gid: 901 };

    fn admits(uid: u32, gid: u32, groups: &[u32]) -> bool {
        let groups = groups.to_vec();
        NODE.admits(Caller { uid, gid, pid: None }, |_| Ok(groups)).unwrap()
    }

    #[test]
    fn root_the_node_and_members_of_its_group_may_call() {
        assert!(admits(0, 0, &[]));
        assert!(admits(900, 5000, &[]));
        assert!(admits(1000, 901, &[]), "by the group it runs with");
        assert!(admits(1000, 1000, &[27, 901]), "by a supplementary group");
    }

    #[test]
    fn others_may_not_call() {
        assert!(!admits(1000, 1000, &[27, 1000]));
        assert!(!admits(901, 900, &[]), "a uid that is the group's number is nobody");
        assert!(!admits(u32::MAX, u32::MAX, &[]));
    }

    #[test]
    fn a_guests_vmm_is_never_let_in_whatever_its_groups() {
        for uid in [bcd_protocol::limits::GUEST_UID_FIRST, bcd_protocol::limits::GUEST_UID_LAST] {
            assert!(!admits(uid, 901, &[]), "in the node's group, should that be kvm");
            assert!(!admits(uid, 5000, &[901]));
        }
        assert!(admits(bcd_protocol::limits::GUEST_UID_FIRST - 1, 901, &[]));
    }

    #[test]
    fn a_caller_whose_groups_cannot_be_read_is_not_let_in() {
        let caller = Caller { uid: 1000, gid: 1000, pid: None };
        let answer = NODE.admits(caller, |_| Err(io::Error::other("the database is away")));
        assert!(answer.is_err());
    }

    #[test]
    fn the_groups_of_root_are_read_and_an_unknown_uid_has_none() {
        assert!(groups_of(0).unwrap().contains(&0));
        assert_eq!(groups_of(0x7FFC_FFF0).unwrap(), Vec::<u32>::new());
    }
}
