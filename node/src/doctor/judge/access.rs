//! What the node's user can get at and read, by what a process of that user found.
//!
//! Room: `node`. Pure. What that process says in words of its own is quoted; paths are the configuration's.
use super::super::Finding;
use super::super::facts::{Configured, Document, Entry, Kind, Need, Part, Place, Seen, Unasked, Unread};
use super::remedy::{command, text};
use super::{fail, ok, warn};
use std::path::Path;

/// That nobody asked as the node's user, where no other finding is the reason.
pub(super) fn unasked(configured: &Configured) -> Option<Finding> {
    let user = configured.config.helper.node_user.as_str();
    match &configured.probe {
        Ok(_) | Err(Unasked::NoUser) => None,
        Err(Unasked::Silent(why)) => Some(warn(
            "access",
            format!("what {user} finds could not be asked, so helper, node and libvirt are not judged: {why}"),
            "mend what the other findings name, then run bcd doctor again",
        )),
    }
}

/// What the node's user cannot get at, where nothing else has said why already.
pub(super) fn barred(configured: &Configured) -> Vec<Finding> {
    let Some(probe) = configured.probe.as_ref().ok().filter(|_| configured.probed_as_node) else { return Vec::new() };
    let user = configured.config.helper.node_user.as_str();
    let told = probe.barred.iter().filter_map(|(need, errno)| {
        let (path, what) = needed(configured, *need);
        let judged = match need {
            Need::Configuration => false,
            Need::DataDir => !owned(configured, &configured.data_dir),
            Need::Secrets => !owned(configured, &configured.secrets),
        };
        let path = text(path);
        let look = command(&["namei", "-l", &path]);
        let remedy =
            format!("see which part of the path is closed to {user} and open that, a directory with chmod o+x: {look}");
        let found = format!("{user} cannot {what}: {path}: {}", Unread::Errno(*errno));
        (!judged).then(|| fail("access", found, remedy))
    });
    told.collect()
}

/// Where the configuration has it, and what the node does there.
fn needed(configured: &Configured, need: Need) -> (&Path, &'static str) {
    let config = &configured.config;
    match need {
        Need::Configuration => (configured.file.as_path(), "read the configuration"),
        Need::DataDir => (config.data_dir.as_path(), "keep instances"),
        Need::Secrets => (config.node.secrets.as_path(), "read user data"),
    }
}

fn owned(configured: &Configured, place: &Place) -> bool {
    match (place.way.last(), configured.node_ids()) {
        (Some(Part { seen: Seen::There(Entry { kind: Kind::Directory, uid, .. }), .. }), Some((node, _))) => {
            *uid == node
        }
        _ => false,
    }
}

pub(super) fn images(configured: &Configured) -> Option<Finding> {
    let shown = configured.config.node.images.ca_file.as_ref()?;
    let read = configured.probe.as_ref().ok()?.certificates?;
    Some(match read {
        Ok(0) => fail(
            "images",
            format!("{shown} holds no certificate"),
            "put PEM certificates there, or unset node.images.ca_file",
        ),
        Ok(1) => ok("images", format!("{shown} adds 1 certificate authority")),
        Ok(number) => ok("images", format!("{shown} adds {number} certificate authorities")),
        Err(why) => fail(
            "images",
            format!("{shown} cannot be read: {why}"),
            "make it a file that the node's user can read, or unset node.images.ca_file",
        ),
    })
}

pub(super) fn document(configured: &Configured) -> Option<Finding> {
    let shown = configured.config.node.spec.as_ref()?;
    let check = "document";
    Some(match configured.probe.as_ref().ok()?.document.as_ref()? {
        Document::Fine(instances) => ok(check, format!("{shown} parses; instances: {instances}")),
        Document::Missing => {
            warn(check, format!("there is no {shown} yet"), "write it, or use bcd apply and unset node.spec")
        }
        Document::Unreadable(why) => {
            warn(check, format!("{shown} cannot be read: {why}"), "make it a file that the node's user can read")
        }
        Document::Wrong { line, column, what } => {
            fail(check, format!("{shown}:{line}:{column}: {what}"), "correct it; the node keeps the document before")
        }
    })
}
