//! Users, directories and files: whose they are, who else may write there, and how much room there is.
//!
//! Room: `node`. Pure. The rules are the daemons' own, and a test makes real directories and holds doctor and daemons to
//! the same answer: what root reads or binds in is root's alone, from `/` on and without links; the node's socket lies in
//! another directory, in which it can make it and not everyone can.
use super::super::Finding;
use super::super::facts::{Configured, Document, Entry, Kind, Part, Place, Seen};
use super::{fail, ok, warn};
use crate::cli::text::bytes;
use bcd_protocol::node_user::make;
use std::path::Path;

/// Free space below which new images and disks will soon fail.
const FREE_LITTLE: u64 = 10 << 30;
/// Free space below which they fail now.
const FREE_NONE: u64 = 1 << 30;
/// Free space without which the helper can write no record: a few thousand of some KiB each.
const FREE_RECORDS: u64 = 64 << 20;

/// By the rule that the helper starts by, and a standalone node.
pub(super) fn node_user(configured: &Configured) -> Finding {
    let (check, name) = ("node-user", configured.config.helper.node_user.as_str());
    match &configured.node_user {
        Ok(Some(user)) => match user.judge() {
            Ok(()) => ok(check, format!("user {name} exists, uid {}", user.uid)),
            Err(why) => {
                fail(check, format!("user {name} has {why}: the helper does not start for it"), why.remedy(name))
            }
        },
        Ok(None) => fail(check, format!("there is no user {name}, which the node runs as"), make(name)),
        Err(why) => fail(
            check,
            format!("the user database does not say who {name} is: {why}"),
            "see that `getent passwd` and `getent group` answer: the helper does not start before",
        ),
    }
}

/// What on the way to a place somebody else than root may change.
pub(super) fn breaches<'a>(check: &'a str, way: &'a [Part]) -> impl Iterator<Item = Finding> + 'a {
    way.iter().filter_map(move |part| {
        let path = part.path.display();
        let entry = match &part.seen {
            Seen::Missing => return None,
            Seen::Unseen(why) => {
                return Some(warn(check, format!("{path} cannot be looked at: {why}"), "run bcd doctor as root"));
            }
            Seen::There(entry) => entry,
        };
        if entry.kind == Kind::Link {
            return Some(fail(
                check,
                format!("{path} is a link, and root follows none here"),
                format!("name the place that {path} leads to in its stead"),
            ));
        }
        if entry.uid != 0 {
            return Some(fail(
                check,
                format!("{path} belongs to uid {}: it must be root's", entry.uid),
                format!("chown root {path}"),
            ));
        }
        if entry.mode & 0o022 == 0 {
            return None;
        }
        let found = format!("{path} has mode {:04o}: no one but root may write there", entry.mode);
        // A directory such as /tmp is everybody's on purpose: what lies in it has to move.
        let remedy = if entry.mode & 0o1002 != 0o1002 {
            format!("chmod go-w {path}")
        } else {
            format!("move it out of {path}, to a directory that is root's alone")
        };
        Some(fail(check, found, remedy))
    })
}

/// The last part, if it is a directory.
fn directory(place: &Place) -> Result<&Entry, &Seen> {
    match place.way.last().map(|part| &part.seen) {
        Some(Seen::There(entry)) if entry.kind == Kind::Directory => Ok(entry),
        Some(seen) => Err(seen),
        None => Err(&Seen::Missing),
    }
}

/// The directories of both sockets. They are two: in the helper's root alone may write, in the node's the node has to.
pub(super) fn sockets(configured: &Configured) -> Vec<Finding> {
    let check = "sockets";
    let config = &configured.config;
    let user = config.helper.node_user.as_str();
    let (helper_dir, node_dir) = (config.helper.socket.as_path().parent(), config.node.api.as_path().parent());
    let (Some(helper_dir), Some(node_dir)) = (helper_dir, node_dir) else { return Vec::new() };
    if helper_dir == node_dir {
        let (shown, below) = (helper_dir.display(), helper_dir.join("node"));
        return vec![fail(
            check,
            format!(
                "both sockets are to lie in {shown}: nobody but root may write in the helper's, and the node has to"
            ),
            format!("set api = \"{}/node.sock\" in [node], then {}", below.display(), make_node(&below, user)),
        )];
    }
    let mut findings = helper_sockets(configured, helper_dir, user);
    // The node's may lie below the helper's, and is made once that is there.
    if findings.is_empty() || !node_dir.starts_with(helper_dir) {
        findings.extend(node_sockets(configured, node_dir, user));
    }
    if findings.is_empty() {
        let (helper, node) = (helper_dir.display(), node_dir.display());
        findings.push(ok(
            check,
            format!("both daemons can make their sockets, in {helper} and {node}, and nobody can replace them"),
        ));
    }
    findings
}

fn make_helper(dir: &Path, user: &str) -> String {
    format!("install -d -o root -g {user} -m 0750 {}", dir.display())
}

fn make_node(dir: &Path, user: &str) -> String {
    format!("install -d -o {user} -g {user} -m 0710 {}", dir.display())
}

fn helper_sockets(configured: &Configured, dir: &Path, user: &str) -> Vec<Finding> {
    let check = "sockets";
    let make = make_helper(dir, user);
    let entry = match directory(&configured.helper_sockets) {
        Ok(entry) => entry,
        Err(seen) => return vec![absent(check, dir, seen, &make)],
    };
    let way = &configured.helper_sockets.way;
    let above = way.split_last().map_or(way.as_slice(), |(_, above)| above);
    let mut findings: Vec<Finding> = breaches(check, above).collect();
    if entry.uid != 0 || entry.mode & 0o022 != 0 {
        findings.push(fail(
            check,
            described(dir, entry, "others could put something in the helper's socket's place"),
            make,
        ));
    } else if let Some(ids) = configured.node_ids()
        && allowed(entry, ids) & 0o1 == 0
    {
        findings.push(fail(
            check,
            described(dir, entry, &format!("{user} cannot reach the helper's socket there")),
            make,
        ));
    }
    findings
}

fn node_sockets(configured: &Configured, dir: &Path, user: &str) -> Option<Finding> {
    let check = "sockets";
    let make = make_node(dir, user);
    let entry = match directory(&configured.node_sockets) {
        Ok(entry) => entry,
        Err(seen) => return Some(absent(check, dir, seen, &make)),
    };
    let ids = configured.node_ids()?;
    if (entry.uid != 0 && entry.uid != ids.0) || entry.mode & 0o002 != 0 {
        return Some(fail(check, described(dir, entry, "others could replace the node's socket"), make));
    }
    (allowed(entry, ids) & 0o3 != 0o3)
        .then(|| fail(check, described(dir, entry, &format!("{user} cannot make the node's socket there")), make))
}

/// What `entry`'s mode allows the user and group `ids`: three bits.
fn allowed(entry: &Entry, (uid, gid): (u32, u32)) -> u32 {
    match entry.uid == uid {
        true => entry.mode >> 6,
        false if entry.gid == gid => entry.mode >> 3,
        false => entry.mode,
    }
}

fn described(path: &Path, entry: &Entry, consequence: &str) -> String {
    let Entry { uid, gid, mode, .. } = entry;
    format!("{} has mode {mode:04o}, uid {uid} and gid {gid}: {consequence}", path.display())
}

fn absent(check: &str, path: &Path, seen: &Seen, make: &str) -> Finding {
    let path = path.display();
    match seen {
        Seen::Missing => fail(check, format!("there is no {path}"), make),
        Seen::Unseen(why) => warn(check, format!("{path} cannot be looked at: {why}"), "run bcd doctor as root"),
        Seen::There(_) => {
            fail(check, format!("{path} is no directory; a link is not followed"), format!("move it away, then {make}"))
        }
    }
}

/// The helper's records: it makes the directory itself where the way there is root's alone.
pub(super) fn state_dir(configured: &Configured) -> Vec<Finding> {
    let (check, path) = ("state-dir", configured.config.helper.state_dir.as_path());
    let place = &configured.state_dir;
    let mut findings: Vec<Finding> = breaches(check, &place.way).collect();
    let shown = path.display();
    match directory(place) {
        Ok(_) | Err(Seen::Unseen(_)) => {}
        Err(Seen::Missing) => {
            let above = place.way.len().checked_sub(2).and_then(|i| place.way.get(i));
            if above.is_some_and(|part| part.seen == Seen::Missing) {
                let make = format!("install -d -o root -g root -m 0700 {shown}");
                findings.push(fail(check, format!("there is no {shown}, nor the directory above it"), make));
            }
        }
        Err(Seen::There(entry)) if entry.kind == Kind::Link => {}
        Err(Seen::There(_)) => {
            findings.push(fail(check, format!("{shown} is no directory"), format!("move {shown} away")))
        }
    }
    if let Some(free) = place.free.filter(|free| *free < FREE_RECORDS) {
        let found = format!("{shown} has {} free: no record can be written, so nothing can be changed", bytes(free));
        findings.push(fail(check, found, "free space there"));
    }
    if findings.is_empty() {
        findings.push(ok(check, format!("{shown} is root's alone")));
    }
    findings
}

pub(super) fn data_dir(configured: &Configured) -> Vec<Finding> {
    let (check, path) = ("data-dir", &configured.config.data_dir);
    let user = configured.config.helper.node_user.as_str();
    let make = format!("install -d -o {user} -g {user} -m 0710 {path}");
    let entry = match directory(&configured.data_dir) {
        Ok(entry) => entry,
        Err(seen) => return vec![absent(check, path.as_path(), seen, &make)],
    };
    let mut findings = Vec::new();
    if let Some((node, _)) = configured.node_ids()
        && node != entry.uid
    {
        findings.push(fail(
            check,
            format!("{path} belongs to uid {}, not to {user} (uid {node})", entry.uid),
            format!("chown {user}: {path}"),
        ));
    }
    if entry.mode & 0o007 != 0 {
        findings.push(warn(
            check,
            format!("{path} has mode {:04o}: other users of this host may look into it", entry.mode),
            format!("chmod o= {path}"),
        ));
    }
    for above in &configured.data_dir_closed {
        let above = above.display();
        findings.push(fail(
            check,
            format!("VMMs, in group kvm, may not pass through {above} to {path}"),
            format!("setfacl -m g:kvm:x {above}, or move data_dir"),
        ));
    }
    let free = configured.data_dir.free;
    match free {
        Some(free) if free < FREE_NONE => findings.push(fail(
            check,
            format!("{path} has {} free", bytes(free)),
            "free space there, or move data_dir to a larger file system",
        )),
        Some(free) if free < FREE_LITTLE => findings.push(warn(
            check,
            format!("{path} has only {} free for images and disks", bytes(free)),
            "free space there",
        )),
        Some(_) | None => {}
    }
    if findings.is_empty() {
        let free = free.map(|free| format!(", {} free", bytes(free))).unwrap_or_default();
        findings.push(ok(check, format!("{path} is {user}'s{free}")));
    }
    findings
}

pub(super) fn secrets(configured: &Configured) -> Vec<Finding> {
    let (check, path) = ("secrets", &configured.config.node.secrets);
    let user = configured.config.helper.node_user.as_str();
    let entry = match directory(&configured.secrets) {
        Ok(entry) => entry,
        Err(Seen::Missing) => return vec![ok(check, format!("there is no {path}: instances get no user data"))],
        Err(seen) => {
            let make = format!("install -d -o {user} -g {user} -m 0700 {path}");
            return vec![absent(check, path.as_path(), seen, &make)];
        }
    };
    let mut findings = Vec::new();
    if let Some((node, _)) = configured.node_ids()
        && node != entry.uid
    {
        findings.push(fail(
            check,
            format!("{path} belongs to uid {} and not to {user}, who reads it", entry.uid),
            format!("chown -R {user}: {path}"),
        ));
    }
    if entry.mode & 0o077 != 0 {
        findings.push(warn(
            check,
            format!("{path} has mode {:04o}: others than its owner may look into it", entry.mode),
            format!("chmod 0700 {path}"),
        ));
    }
    for file in configured.loose_secrets.iter().flatten() {
        findings.push(fail(
            check,
            format!("{path}/{file} is no file of {user}'s alone: the node does not read it"),
            format!("chown {user}: {path}/{file} && chmod 0600 {path}/{file}"),
        ));
    }
    if findings.is_empty() {
        findings.push(ok(check, format!("{path} is {user}'s alone")));
    }
    findings
}

/// What the node's user cannot get at, where nothing else has said why already.
pub(super) fn barred(configured: &Configured) -> Vec<Finding> {
    let config = &configured.config;
    let user = config.helper.node_user.as_str();
    let own = [config.data_dir.as_path(), config.node.secrets.as_path()];
    let owned = |path: &Path| {
        let place = if path == own[0] { &configured.data_dir } else { &configured.secrets };
        matches!((directory(place), configured.node_ids()), (Ok(entry), Some((uid, _))) if entry.uid == uid)
    };
    let told = configured.probe.barred.iter().filter(|(path, _, _)| {
        let judged = (own.contains(&path.as_path()) && !owned(path))
            || Some(path.as_path()) == config.node.api.as_path().parent();
        configured.probed_as_node && !judged
    });
    told.map(|(path, what, why)| {
        let path = path.display();
        fail(
            "access",
            format!("{user} cannot {what}: {path}: {why}"),
            format!(
                "namei -l {path} shows which part of the path is closed to {user}: open it (chmod o+x for a directory)"
            ),
        )
    })
    .collect()
}

pub(super) fn images(configured: &Configured) -> Option<Finding> {
    let (path, read) = configured.ca_file.as_ref()?;
    let shown = path.display();
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
            "make it readable for the node, or unset node.images.ca_file",
        ),
    })
}

pub(super) fn document(configured: &Configured) -> Option<Finding> {
    let (path, document) = configured.document.as_ref()?;
    let (check, shown) = ("document", path.display());
    Some(match document {
        Document::Fine(instances) => ok(check, format!("{shown} parses; instances: {instances}")),
        Document::Missing => {
            warn(check, format!("there is no {shown} yet"), "write it, or use bcd apply and unset node.spec")
        }
        Document::Unreadable(why) => {
            warn(check, format!("{shown} cannot be read: {why}"), "make it readable for the node's user")
        }
        Document::Wrong(why) => fail(check, why.clone(), "correct it; the node keeps the document before"),
    })
}
