//! Who the node is: the one user that the helper answers, and whose group may open its socket.
//!
//! Room: `helper`. It must be told apart from everybody else by its uid, and its group must have no guest in it: every VMM
//! runs in group kvm.
use bcd_protocol::config::UserName;
use bcd_protocol::id::GuestUid;
use nix::unistd::{Gid, Group, Uid, User};

/// The kernel's `overflowuid`: what it shows for whoever it cannot name, and the user `nobody` of services that share it.
const OVERFLOW_UID: u32 = 65_534;

/// The group of every guest's VMM.
const GUESTS: &str = "kvm";

/// Why a user cannot be the node's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnfitUser {
    /// No such user.
    #[error("helper.node_user {0} is no user of this host: create it (useradd --system {0}) or name another")]
    Missing(String),
    /// Not the node's alone.
    #[error(
        "helper.node_user {user} {what}: give the node a user and a group of its own (useradd --system --user-group …)"
    )]
    Shared {
        /// The user.
        user: String,
        /// With whom it shares what.
        what: &'static str,
    },
}

/// The node's user, when it can be told apart.
///
/// # Errors
/// [`UnfitUser`].
pub(crate) fn find(name: &UserName) -> Result<User, UnfitUser> {
    let name = name.as_str();
    let user = User::from_name(name).ok().flatten().ok_or_else(|| UnfitUser::Missing(name.to_owned()))?;
    let guests = Group::from_name(GUESTS).ok().flatten().map(|group| group.gid);
    match shared(user.uid, user.gid, guests) {
        None => Ok(user),
        Some(what) => Err(UnfitUser::Shared { user: name.to_owned(), what }),
    }
}

/// What a user has in common with others; `guests` is the group of every guest's VMM, where there is one.
fn shared(uid: Uid, gid: Gid, guests: Option<Gid>) -> Option<&'static str> {
    if uid.is_root() {
        Some("has uid 0, which is root's")
    } else if uid.as_raw() == OVERFLOW_UID {
        Some("has uid 65534, which is that of whoever the kernel cannot name")
    } else if GuestUid::new(uid.as_raw()).is_ok() {
        Some("has a uid of the range that guests run as")
    } else if gid.as_raw() == 0 {
        Some("has root's group")
    } else if Some(gid) == guests {
        Some("has group kvm, which every guest has: each could open the node's sockets")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bcd_protocol::limits::{GUEST_UID_FIRST, GUEST_UID_LAST};

    fn why(uid: u32, gid: u32) -> Option<&'static str> {
        shared(uid.into(), gid.into(), Some(Gid::from_raw(108)))
    }

    #[test]
    fn a_user_that_shares_its_uid_or_group_with_root_guests_or_the_nameless_is_not_the_node() {
        for (uid, gid, word) in [
            (0, 990, "uid 0"),
            (65_534, 990, "65534"),
            (GUEST_UID_FIRST, 990, "guests run as"),
            (GUEST_UID_LAST, 990, "guests run as"),
            (990, 0, "root's group"),
            (990, 108, "kvm"),
        ] {
            assert!(why(uid, gid).is_some_and(|what| what.contains(word)), "{uid} {gid}: {:?}", why(uid, gid));
        }
    }

    #[test]
    fn a_user_and_a_group_of_its_own_are_fine() {
        assert_eq!(why(990, 990), None);
        assert_eq!(why(GUEST_UID_FIRST - 1, 65_534), None);
        assert_eq!(shared(990.into(), 108.into(), None), None, "no such group: no guest has it");
    }

    #[test]
    fn a_user_of_this_host_is_found_by_name_and_root_under_another_is_refused() {
        let name = |text: &str| UserName::try_from(text.to_owned()).unwrap();
        assert_eq!(find(&name("no-such-user-here")), Err(UnfitUser::Missing("no-such-user-here".to_owned())));
        assert!(matches!(find(&name("nobody")), Err(UnfitUser::Shared { .. })), "{:?}", find(&name("nobody")));
        assert_eq!(find(&name("daemon")).unwrap().name, "daemon");
    }
}
