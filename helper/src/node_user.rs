//! Who the node is: the one user that the helper answers, and whose group may open its socket.
//!
//! Room: `helper`. Who may be it is `bcd_protocol::node_user`'s rule. Invariant: no user is answered that the rule refuses, or
//! of whom the host's user database does not say all that the rule asks.
use bcd_confine::users::{self, Account, Unanswered};
use bcd_protocol::config::UserName;
use bcd_protocol::node_user::{ASKED, Candidate, NoNode, fit};
use nix::unistd::User;

/// Why there is no user to answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnfitUser {
    /// The user database does not say.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// Not there, not to be told apart, or root's equal.
    #[error(transparent)]
    NoNode(#[from] NoNode),
}

/// The node's user, when the helper may answer it.
///
/// # Errors
/// [`UnfitUser`].
pub(crate) fn find(name: &UserName) -> Result<User, UnfitUser> {
    let found = users::look(name.as_str(), ASKED)?.map(|account| {
        let Account { user, groups, asked } = account;
        let candidate = Candidate::new(user.uid.as_raw(), user.gid.as_raw(), groups, asked);
        (user, candidate)
    });
    Ok(fit(name.as_str(), found)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bcd_protocol::node_user::Unfit;

    fn name(text: &str) -> UserName {
        UserName::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn a_user_of_this_host_is_found_by_name_and_one_that_is_not_fit_is_refused() {
        let missing = NoNode::Missing { user: "no-such-user-here".to_owned() };
        assert_eq!(find(&name("no-such-user-here")), Err(missing.into()));
        let nameless = NoNode::Unfit { user: "nobody".to_owned(), why: Unfit::Nameless };
        assert_eq!(find(&name("nobody")), Err(nameless.into()));
        assert_eq!(find(&name("daemon")).unwrap().name, "daemon");
    }
}
