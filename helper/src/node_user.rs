//! Who the node is: the one user that the helper answers, and whose group may open its socket.
//!
//! Room: `helper`. Asks the host's user database; who may be it is `bcd_protocol::node_user`'s rule. Invariant: a database
//! that does not answer is an error, and never a user, a group or a membership that is not there.
use bcd_protocol::config::UserName;
use bcd_protocol::node_user::{Candidate, GUESTS_GROUP, LIBVIRT_GROUP, Unfit, make};
use nix::errno::Errno;
use nix::unistd::{Group, User, getgrouplist};
use std::ffi::CString;

/// Why there is no user to answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnfitUser {
    /// No such user.
    #[error("helper.node_user {user} is no user of this host: create it ({}) or name another", make(.user))]
    Missing {
        /// The name.
        user: String,
    },
    /// The user database does not say.
    #[error("the host's user database cannot be asked for {what}")]
    Lookup {
        /// Whom or what it was asked for.
        what: String,
        /// Why.
        #[source]
        cause: Errno,
    },
    /// Not to be told apart, or root's equal.
    #[error("helper.node_user {user} has {why}: {}", why.remedy(.user))]
    Unfit {
        /// The user.
        user: String,
        /// What it has.
        why: Unfit,
    },
}

/// The node's user, when the helper may answer it.
///
/// # Errors
/// [`UnfitUser`].
pub(crate) fn find(name: &UserName) -> Result<User, UnfitUser> {
    let name = name.as_str();
    let user = known(&format!("user {name}"), User::from_name(name))?;
    let user = user.ok_or_else(|| UnfitUser::Missing { user: name.to_owned() })?;
    let candidate = Candidate {
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
        groups: groups_of(&user)?,
        guests: gid_of(GUESTS_GROUP)?,
        libvirt: gid_of(LIBVIRT_GROUP)?,
    };
    match candidate.judge() {
        Ok(()) => Ok(user),
        Err(why) => Err(UnfitUser::Unfit { user: name.to_owned(), why }),
    }
}

fn gid_of(group: &str) -> Result<Option<u32>, UnfitUser> {
    Ok(known(&format!("group {group}"), Group::from_name(group))?.map(|group| group.gid.as_raw()))
}

fn groups_of(user: &User) -> Result<Vec<u32>, UnfitUser> {
    // A name from the configuration holds no NUL.
    let name = CString::new(user.name.as_str()).map_err(|_| Errno::EINVAL);
    let groups = known(&format!("the groups of {}", user.name), name.and_then(|name| getgrouplist(&name, user.gid)))?;
    Ok(groups.iter().map(|group| group.as_raw()).collect())
}

/// What the database answered.
fn known<T>(what: &str, answer: Result<T, Errno>) -> Result<T, UnfitUser> {
    answer.map_err(|cause| UnfitUser::Lookup { what: what.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> UserName {
        UserName::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn a_user_of_this_host_is_found_by_name_and_one_that_is_not_fit_is_refused_with_the_remedy() {
        let missing = find(&name("no-such-user-here")).unwrap_err();
        assert_eq!(missing, UnfitUser::Missing { user: "no-such-user-here".to_owned() });
        assert!(missing.to_string().contains("--user-group") && missing.to_string().contains(" no-such-user-here)"));
        let nobody = find(&name("nobody")).unwrap_err();
        assert_eq!(nobody, UnfitUser::Unfit { user: "nobody".to_owned(), why: Unfit::Nameless });
        assert!(nobody.to_string().contains("nobody has uid 65534") && nobody.to_string().contains("useradd"));
        assert_eq!(find(&name("daemon")).unwrap().name, "daemon");
    }

    #[test]
    fn every_group_of_a_user_is_asked_for() {
        // Root is in its own group by the user database alone, whatever this process is in.
        let root = User::from_name("root").unwrap().unwrap();
        assert!(groups_of(&root).unwrap().contains(&0));
        assert_eq!(gid_of("root"), Ok(Some(0)));
        assert_eq!(gid_of("no-such-group-here"), Ok(None));
    }

    #[test]
    fn a_database_that_does_not_answer_is_an_error_and_not_an_absence() {
        assert_eq!(known::<Option<Group>>("group kvm", Ok(None)), Ok(None));
        let silent = known::<Option<Group>>("group kvm", Err(Errno::EIO)).unwrap_err();
        assert_eq!(silent, UnfitUser::Lookup { what: "group kvm".to_owned(), cause: Errno::EIO });
        assert!(crate::log::chain(&silent).contains("group kvm: EIO"), "{}", crate::log::chain(&silent));
    }
}
