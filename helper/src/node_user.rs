//! Who the node is: the one user that the helper answers, and whose group may open its socket.
//!
//! Room: `helper`. Asks the host's user database; who may be it is `bcd_protocol::node_user`'s rule. Invariant: a database
//! that does not answer is an error, and never a user, a group or a membership that is not there.
use bcd_protocol::config::UserName;
use bcd_protocol::node_user::{Candidate, GUESTS_GROUP, LIBVIRT_GROUP, Unfit, make};
use nix::errno::Errno;
use nix::unistd::{Gid, Group, User, getgrouplist};
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
        groups: groups_of(name, user.gid)?,
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

fn groups_of(name: &str, own: Gid) -> Result<Vec<u32>, UnfitUser> {
    // A name from the configuration holds no NUL.
    let c_name = CString::new(name).map_err(|_| Errno::EINVAL);
    let groups = known(&format!("the groups of {name}"), c_name.and_then(|name| getgrouplist(&name, own)))?;
    Ok(groups.iter().map(|group| group.as_raw()).collect())
}

/// What the database answered.
fn known<T>(what: &str, answer: Result<T, Errno>) -> Result<T, UnfitUser> {
    answer.map_err(|cause| UnfitUser::Lookup { what: what.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::{Resource, setrlimit};
    use std::collections::BTreeSet;
    use std::os::fd::{AsFd, AsRawFd};
    use std::process::{Command, Stdio};

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

    /// Names of the users that the host's own file lists.
    fn names() -> Vec<String> {
        let file = std::fs::read_to_string("/etc/passwd").unwrap();
        file.lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
    }

    #[test]
    fn every_group_of_every_user_is_asked_for() {
        let mut in_others = 0;
        for name in names() {
            let user = User::from_name(&name).unwrap().unwrap();
            let groups: BTreeSet<_> = groups_of(&name, user.gid).unwrap().into_iter().collect();
            let said = Command::new("id").args(["-G", "--", &name]).output().unwrap();
            let said = String::from_utf8(said.stdout).unwrap();
            assert_eq!(groups, said.split_whitespace().map(|gid| gid.parse().unwrap()).collect(), "{name}: {said}");
            in_others += usize::from(groups.len() > 1);
        }
        if in_others == 0 {
            println!("skipped in part: nobody here is in a group beside its own");
        }
        assert_eq!(gid_of("root"), Ok(Some(0)));
        assert_eq!(gid_of("no-such-group-here"), Ok(None));
    }

    #[test]
    fn a_database_that_does_not_answer_is_an_error_and_not_an_absence() {
        let test = "node_user::tests::a_database_that_does_not_answer_is_an_error_and_not_an_absence";
        if std::env::var("BCD_NO_DATABASE").is_ok_and(|asked| asked == test) {
            // All numbers below this one are taken: nothing can be opened any more, no database either.
            let free = u64::try_from(std::io::stdin().as_fd().try_clone_to_owned().unwrap().as_raw_fd()).unwrap();
            setrlimit(Resource::RLIMIT_NOFILE, free, free).unwrap();
            let silent = find(&name("daemon")).unwrap_err();
            assert_eq!(silent, UnfitUser::Lookup { what: "user daemon".to_owned(), cause: Errno::EMFILE });
            assert!(crate::log::chain(&silent).contains("user daemon: EMFILE"), "{}", crate::log::chain(&silent));
            let nobody_knows = find(&name("no-such-user-here")).unwrap_err();
            assert!(matches!(nobody_knows, UnfitUser::Lookup { cause: Errno::EMFILE, .. }), "{nobody_knows}");
            assert!(matches!(gid_of(LIBVIRT_GROUP), Err(UnfitUser::Lookup { cause: Errno::EMFILE, .. })));
            return;
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env("BCD_NO_DATABASE", test);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}
