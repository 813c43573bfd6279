//! The host's user database: who a user is, and in which groups.
//!
//! Room: `confine`. Who of them may be the node is not known here (`bcd_protocol::node_user`). Invariant: a database that does
//! not answer is an error, and never a user or a group that is not there; and a membership in a group that is asked for by
//! name is not missed because a list was cut short without a word.
use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::ffi::CString;

#[cfg(test)]
mod tests;

/// The database does not say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the host's user database cannot be asked for {what}")]
pub struct Unanswered {
    /// Whom or what it was asked for.
    pub what: String,
    /// Why it does not say.
    #[source]
    pub cause: Errno,
}

/// A user of this host.
#[derive(Debug, Clone)]
pub struct Account<const N: usize> {
    /// The user's entry.
    pub user: User,
    /// Every group that it is in, its own among them.
    pub groups: Vec<u32>,
    /// The gids of the groups that were asked for, in that order; `None` where the host has none of the name.
    pub asked: [Option<u32>; N],
}

/// The user called `name`, and the gids of `groups`; `None` when the host has no such user. Of root's group and of `groups` it
/// holds that the user is in them or not.
///
/// # Errors
/// [`Unanswered`].
pub fn look<const N: usize>(name: &str, groups: [&str; N]) -> Result<Option<Account<N>>, Unanswered> {
    look_by(name, groups, listed)
}

/// The same with the C library's list of a user's groups.
fn look_by<const N: usize>(
    name: &str,
    groups: [&str; N],
    list: impl Fn(&User) -> Result<Vec<u32>, Unanswered>,
) -> Result<Option<Account<N>>, Unanswered> {
    let user = known(|| format!("user {name}"), User::from_name(name))?;
    let Some(user) = user else { return Ok(None) };
    let (mut of_user, mut asked) = (list(&user)?, [None; N]);
    // That list holds what could be read of the database, and says nothing of the rest. Of these groups it must be known.
    let mut ask = |group: Option<Group>| {
        let group = group?;
        let gid = group.gid.as_raw();
        if group.mem.contains(&user.name) && !of_user.contains(&gid) {
            of_user.push(gid);
        }
        Some(gid)
    };
    ask(known(|| "group 0".to_owned(), Group::from_gid(Gid::from_raw(0)))?);
    for (gid, group) in asked.iter_mut().zip(groups) {
        *gid = ask(group_of(group)?);
    }
    Ok(Some(Account { user, groups: of_user, asked }))
}

/// The gid of a group; `None` when the host has none of that name.
///
/// # Errors
/// [`Unanswered`].
pub fn gid_of(group: &str) -> Result<Option<u32>, Unanswered> {
    Ok(group_of(group)?.map(|group| group.gid.as_raw()))
}

/// The groups of the user with this uid, as far as the C library can read them; none for a uid without an entry.
///
/// # Errors
/// [`Unanswered`].
pub fn groups_of_uid(uid: u32) -> Result<Vec<u32>, Unanswered> {
    match known(|| format!("uid {uid}"), User::from_uid(Uid::from_raw(uid)))? {
        Some(user) => listed(&user),
        None => Ok(Vec::new()),
    }
}

fn group_of(name: &str) -> Result<Option<Group>, Unanswered> {
    known(|| format!("group {name}"), Group::from_name(name))
}

fn listed(user: &User) -> Result<Vec<u32>, Unanswered> {
    // A name of the database holds no NUL.
    let name = CString::new(user.name.as_str()).map_err(|_| Errno::EINVAL);
    let groups = name.and_then(|name| getgrouplist(&name, user.gid));
    let groups = known(|| format!("the groups of {}", user.name), groups)?;
    Ok(groups.into_iter().map(Gid::as_raw).collect())
}

/// What the database answered.
fn known<T>(what: impl Fn() -> String, answer: Result<T, Errno>) -> Result<T, Unanswered> {
    answer.map_err(|cause| Unanswered { what: what(), cause })
}
