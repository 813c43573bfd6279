//! Looks up the user that the node runs as, for the two who need to know it before there is a node: a standalone start and
//! `bcd doctor`.
//!
//! Room: `node`. Who may be it is `bcd_protocol::node_user`'s rule, the helper's as well; the user database is asked in
//! `bcd_confine::users`, where silence is an error.
use bcd_confine::users::{self, Account, Unanswered};
use bcd_protocol::node_user::{ASKED, Candidate};
use nix::unistd::User;

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
pub(crate) fn look(name: &str) -> Result<Option<Found>, Unanswered> {
    let account = users::look(name, ASKED)?;
    Ok(account.map(|Account { user, groups, asked }| {
        let candidate = Candidate::new(user.uid.as_raw(), user.gid.as_raw(), groups, asked);
        Found { user, candidate }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bcd_protocol::node_user::Unfit;

    #[test]
    fn a_user_of_this_host_is_looked_up_with_what_the_rule_asks() {
        let root = look("root").expect("asked").expect("root");
        assert_eq!((root.candidate.uid, root.candidate.gid), (0, 0));
        assert_eq!(root.candidate.judge(), Err(Unfit::Root));
        assert!(look("no-such-user-of-bcd").expect("asked").is_none());
    }
}
