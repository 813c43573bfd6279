//! Who may be the node's user: one rule for the helper, which answers that user alone, for a standalone start, which becomes
//! it, and for `bcd doctor`, which tells beforehand.
//!
//! Room: `protocol`. Pure: whoever asks brings what the host's user database says. Invariant: a user that passes can be told
//! apart from everybody else by its uid, nobody is in its group who is not the node's equal, and it is neither in root's group nor
//! in libvirt's. Other groups that a host makes as much as root (docker, disk, sudo) are its administrator's to keep it out of.
use crate::id::GuestUid;

/// The group that every guest's VMM runs in.
pub const GUESTS_GROUP: &str = "kvm";

/// The group whose members libvirt lets manage every domain of the host, which is as much as being root.
pub const LIBVIRT_GROUP: &str = "libvirt";

/// The groups of which the rule asks whether the host has them and the user is in them; see [`Candidate::new`].
pub const ASKED: [&str; 2] = [GUESTS_GROUP, LIBVIRT_GROUP];

/// The kernel's `overflowuid` and `overflowgid`: what it shows for whoever it cannot name, and user and group of services that
/// have none of their own.
const NAMELESS: u32 = 65_534;

/// Numbers that stand for "none" to the calls which set an id, in 32 and in 16 bits.
const NONE: [u32; 2] = [u32::MAX, 65_535];

/// What the host's user database says of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its uid.
    pub uid: u32,
    /// Its own group, whose members are let into the node's sockets.
    pub gid: u32,
    /// Every group that it is a member of, its own among them or not.
    pub groups: Vec<u32>,
    /// The gid of [`GUESTS_GROUP`], where there is one.
    pub guests: Option<u32>,
    /// The gid of [`LIBVIRT_GROUP`], where there is one.
    pub libvirt: Option<u32>,
}

/// Why a user cannot be the node's; as text, what the user has that it must not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Setting that id would set nothing.
    #[error("the uid or gid {0}, which means none")]
    NoId(u32),
    /// Root under another name.
    #[error("uid 0, which is root's")]
    Root,
    /// The user of whoever has none.
    #[error("uid 65534, which is that of whoever the kernel cannot name")]
    Nameless,
    /// A guest, to every check by uid.
    #[error("a uid of the range that guests run as")]
    Guest,
    /// Files of root's are open to that group.
    #[error("root's group as its own")]
    RootsGroup,
    /// The group of whoever has none: all of them would command the node.
    #[error("group 65534 as its own, which is that of whoever has no other")]
    NamelessGroup,
    /// Every guest's VMM would be let into the node's sockets.
    #[error("group kvm as its own, which every guest's VMM has")]
    GuestsGroup,
    /// Root by way of libvirt, and whoever else is in it would command the node.
    #[error("group libvirt as its own, which makes it root's equal")]
    LibvirtsGroup,
    /// Of root's group, beside its own.
    #[error("root's group among its groups")]
    AmongRoots,
    /// Of libvirt's group, beside its own.
    #[error("group libvirt among its groups, which makes it root's equal")]
    AmongLibvirts,
}

impl Unfit {
    /// What mends it for `user`: a command, or a sentence with one.
    #[must_use]
    pub fn remedy(self, user: &str) -> String {
        match self {
            Self::AmongRoots => format!("gpasswd --delete {user} root"),
            Self::AmongLibvirts => format!("gpasswd --delete {user} {LIBVIRT_GROUP}"),
            Self::NoId(_)
            | Self::Root
            | Self::Nameless
            | Self::Guest
            | Self::RootsGroup
            | Self::NamelessGroup
            | Self::GuestsGroup
            | Self::LibvirtsGroup => {
                "give the node an unprivileged user and a group of its own (useradd --system --user-group \
                                      …), and name it in [helper] node_user"
                    .to_owned()
            }
        }
    }
}

/// The command that makes `user` as the package does, for a host that has none of that name.
#[must_use]
pub fn make(user: &str) -> String {
    format!("useradd --system --user-group --no-create-home --shell /usr/sbin/nologin {user}")
}

/// Why the name in the configuration is none of a user that may be the node's; as text with what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoNode {
    /// No such user.
    #[error("helper.node_user {user} is no user of this host: create it ({}) or name another", make(.user))]
    Missing {
        /// The name.
        user: String,
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

/// The user that was found for `name` of the configuration, whatever form it has beside what is asked of it, when it may be
/// the node's.
///
/// # Errors
/// [`NoNode`]: none was found, or it may not.
pub fn fit<U>(name: &str, found: Option<(U, Candidate)>) -> Result<U, NoNode> {
    let (user, candidate) = found.ok_or_else(|| NoNode::Missing { user: name.to_owned() })?;
    candidate.judge().map_err(|why| NoNode::Unfit { user: name.to_owned(), why })?;
    Ok(user)
}

impl Candidate {
    /// Of a user with these ids; `asked` are the gids of [`ASKED`], where the host has them.
    #[must_use]
    pub fn new(uid: u32, gid: u32, groups: Vec<u32>, asked: [Option<u32>; 2]) -> Self {
        let [guests, libvirt] = asked;
        Self { uid, gid, groups, guests, libvirt }
    }

    /// Whether this user may be the node's.
    ///
    /// # Errors
    /// [`Unfit`]: the first clause that it breaks.
    pub fn judge(&self) -> Result<(), Unfit> {
        let own = |group: Option<u32>| group == Some(self.gid);
        let among = |group: u32| self.groups.contains(&group);
        if let Some(id) = [self.uid, self.gid].into_iter().find(|id| NONE.contains(id)) {
            Err(Unfit::NoId(id))
        } else if self.uid == 0 {
            Err(Unfit::Root)
        } else if self.uid == NAMELESS {
            Err(Unfit::Nameless)
        } else if GuestUid::new(self.uid).is_ok() {
            Err(Unfit::Guest)
        } else if own(Some(0)) {
            Err(Unfit::RootsGroup)
        } else if own(Some(NAMELESS)) {
            Err(Unfit::NamelessGroup)
        } else if own(self.guests) {
            Err(Unfit::GuestsGroup)
        } else if own(self.libvirt) {
            Err(Unfit::LibvirtsGroup)
        } else if among(0) {
            Err(Unfit::AmongRoots)
        } else if self.libvirt.is_some_and(among) {
            Err(Unfit::AmongLibvirts)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{GUEST_UID_FIRST, GUEST_UID_LAST};

    const KVM: u32 = 107;
    const LIBVIRT: u32 = 106;

    fn user(uid: u32, gid: u32, more: &[u32]) -> Candidate {
        let groups = [&[gid], more].concat();
        Candidate { uid, gid, groups, guests: Some(KVM), libvirt: Some(LIBVIRT) }
    }

    #[test]
    fn a_user_that_shares_its_uid_or_group_with_root_guests_or_the_nameless_is_not_the_node() {
        for (uid, gid, why) in [
            (u32::MAX, 990, Unfit::NoId(u32::MAX)),
            (65_535, 990, Unfit::NoId(65_535)),
            (990, u32::MAX, Unfit::NoId(u32::MAX)),
            (990, 65_535, Unfit::NoId(65_535)),
            (0, 990, Unfit::Root),
            (65_534, 990, Unfit::Nameless),
            (GUEST_UID_FIRST, 990, Unfit::Guest),
            (GUEST_UID_LAST, 990, Unfit::Guest),
            (990, 0, Unfit::RootsGroup),
            (990, 65_534, Unfit::NamelessGroup),
            (990, KVM, Unfit::GuestsGroup),
            (990, LIBVIRT, Unfit::LibvirtsGroup),
        ] {
            assert_eq!(user(uid, gid, &[]).judge(), Err(why), "{uid} {gid}");
        }
    }

    #[test]
    fn a_user_with_roots_rights_by_way_of_another_group_is_not_the_node() {
        assert_eq!(user(990, 990, &[100, 0]).judge(), Err(Unfit::AmongRoots));
        assert_eq!(user(990, 990, &[100, LIBVIRT]).judge(), Err(Unfit::AmongLibvirts));
    }

    #[test]
    fn a_user_and_a_group_of_its_own_are_fine_whatever_harmless_groups_come_with_them() {
        for fine in [user(990, 990, &[]), user(990, 990, &[100, KVM]), user(GUEST_UID_FIRST - 1, 990, &[])] {
            assert_eq!(fine.judge(), Ok(()), "{fine:?}");
        }
        assert_eq!(user(GUEST_UID_LAST + 1, 990, &[]).judge(), Ok(()));
        // No such groups on this host: nobody has them.
        let bare = |gid| Candidate { guests: None, libvirt: None, ..user(990, gid, &[]) };
        assert_eq!((bare(KVM).judge(), bare(LIBVIRT).judge()), (Ok(()), Ok(())));
    }

    #[test]
    fn a_database_that_leaves_a_users_own_group_out_of_its_list_changes_nothing() {
        let unlisted = |gid| Candidate { groups: Vec::new(), ..user(990, gid, &[]) };
        assert_eq!(unlisted(0).judge(), Err(Unfit::RootsGroup));
        assert_eq!(unlisted(LIBVIRT).judge(), Err(Unfit::LibvirtsGroup));
        assert_eq!(unlisted(990).judge(), Ok(()));
    }

    #[test]
    fn a_refusal_names_the_user_what_it_has_and_what_to_do() {
        let absent = fit::<()>("vm", None).unwrap_err();
        assert_eq!(absent, NoNode::Missing { user: "vm".to_owned() });
        assert_eq!(
            absent.to_string(),
            "helper.node_user vm is no user of this host: create it (useradd --system --user-group --no-create-home --shell \
             /usr/sbin/nologin vm) or name another"
        );
        let member = fit("vm", Some(((), Candidate::new(990, 990, vec![990, LIBVIRT], [Some(KVM), Some(LIBVIRT)]))));
        assert_eq!(
            member.unwrap_err().to_string(),
            "helper.node_user vm has group libvirt among its groups, which makes it root's equal: gpasswd --delete vm libvirt"
        );
        let guests = fit("vm", Some(((), Candidate::new(990, KVM, vec![KVM], [Some(KVM), Some(LIBVIRT)]))));
        assert_eq!(guests, Err(NoNode::Unfit { user: "vm".to_owned(), why: Unfit::GuestsGroup }));
        assert_eq!(fit("vm", Some((7, user(990, 990, &[100])))), Ok(7));
    }

    #[test]
    fn each_remedy_mends_what_is_wrong_and_nothing_else() {
        assert_eq!(Unfit::AmongRoots.remedy("vm"), "gpasswd --delete vm root");
        assert_eq!(Unfit::AmongLibvirts.remedy("vm"), "gpasswd --delete vm libvirt");
        for why in [
            Unfit::NoId(65_535),
            Unfit::Root,
            Unfit::Nameless,
            Unfit::Guest,
            Unfit::RootsGroup,
            Unfit::NamelessGroup,
            Unfit::GuestsGroup,
            Unfit::LibvirtsGroup,
        ] {
            assert!(why.remedy("vm").contains("--user-group") && !why.remedy("vm").contains("vm "), "{why}");
        }
        assert!(make("vm").ends_with(" vm") && make("vm").contains("--user-group"));
    }
}
