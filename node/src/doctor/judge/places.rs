//! Users, directories and files: whose they are, who else may write there, and how much room there is.
//!
//! Room: `node`. Pure. The rules are the daemons' own, and a test makes real directories and holds doctor and daemons to
//! the same answer: what root reads or binds in is root's alone, from `/` on and without links; the node's socket lies in
//! another directory, in which it can make it and nobody else but root can.
use super::super::Finding;
use super::super::facts::{Configured, Entry, Kind, Part, Place, Secrets, Seen};
use super::remedy::{at, command, on_name, text};
use super::{fail, ok, warn};
use crate::cli::text::bytes;
use bcd_protocol::id::AllocationId;
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
            "see that getent passwd and getent group answer: the helper does not start before",
        ),
    }
}

/// What on the way to a place somebody else than root may change.
pub(super) fn breaches<'a>(check: &'a str, way: &'a [Part]) -> impl Iterator<Item = Finding> + 'a {
    way.iter().enumerate().filter_map(move |(index, part)| {
        let path = part.path.display();
        // By what somebody else can lead elsewhere goes no command.
        let so_far = way.get(..=index).unwrap_or(way);
        let entry = match &part.seen {
            Seen::Missing | Seen::Behind => return None,
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
        if entry.is_roots_alone() {
            return None;
        }
        let found = match entry.uid {
            0 => format!("{path} has mode {:04o}: no one but root may write there", entry.mode),
            uid => format!("{path} belongs to uid {uid}: it must be root's"),
        };
        let named = text(&part.path);
        let remedy = match entry.kind {
            // Whoever could write to it may have it open still: a new file takes its place.
            Kind::File => {
                let fresh = format!("{named}.fresh");
                let copy = command(&["install", "-o", "root", "-g", "root", "-m", "0644", "-T", &named, &fresh]);
                let swap = command(&["mv", "-T", &fresh, &named]);
                format!("make a new one, {copy}, read {fresh} through, and put it in place: {swap}")
            }
            // A directory such as /tmp is everybody's on purpose: what lies in it has to move.
            Kind::Directory | Kind::Link | Kind::Socket | Kind::Other
                if entry.uid == 0 && entry.mode & 0o1002 == 0o1002 =>
            {
                return Some(fail(check, found, format!("move it out of {path}, to a directory that is root's alone")));
            }
            Kind::Directory | Kind::Link | Kind::Socket | Kind::Other if entry.uid == 0 => {
                command(&["chmod", "go-w", &named])
            }
            Kind::Directory | Kind::Link | Kind::Socket | Kind::Other => command(&["chown", "root", &named]),
        };
        Some(fail(check, found, at(so_far, remedy)))
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
        // No command: whoever could write there has put something in the way. The next run judges each directory by itself.
        let (shown, below) = (helper_dir.display(), helper_dir.join("node"));
        return vec![fail(
            check,
            format!(
                "both sockets are to lie in {shown}: nobody but root may write in the helper's, and the node has to"
            ),
            format!("set api = \"{}/node.sock\" in [node], then run bcd doctor again", below.display()),
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
            format!("both daemons can make their sockets, in {helper} and {node}, and nobody else can replace them"),
        ));
    }
    findings
}

/// Something else in the place of the helper's socket, from when others could write there: it keeps the helper from its place.
fn helper_socket(configured: &Configured) -> Option<Finding> {
    let (path, way) = (&configured.config.helper.socket, &configured.helper_socket.way);
    let entry = match &way.last()?.seen {
        Seen::There(entry) => entry,
        Seen::Missing | Seen::Unseen(_) | Seen::Behind => return None,
    };
    if entry.kind == Kind::Socket && entry.uid == 0 {
        return None;
    }
    let kind = match entry.kind {
        Kind::Socket => "a socket",
        Kind::Directory => "a directory",
        Kind::File => "a file",
        Kind::Link => "a link",
        Kind::Other => "no socket",
    };
    let found = format!(
        "{path} is {kind} of uid {} and keeps the helper's socket from its place; restart bcd-helper.socket, or the helper \
         where systemd does not run, once it is gone",
        entry.uid
    );
    // A tree of somebody else's may have a mount in it.
    // No note behind it: a shell that knows no comments would take its words for names.
    let remedy = on_name(way, command(&["rm", "-rf", "--one-file-system", "--", &text(path.as_path())]));
    Some(fail("sockets", found, remedy))
}

fn make_helper(place: &Place, dir: &Path, user: &str) -> String {
    at(&place.way, command(&["install", "-d", "-o", "root", "-g", user, "-m", "0750", &text(dir)]))
}

fn make_node(place: &Place, dir: &Path, user: &str) -> String {
    at(&place.way, command(&["install", "-d", "-o", user, "-g", user, "-m", "0710", &text(dir)]))
}

fn helper_sockets(configured: &Configured, dir: &Path, user: &str) -> Vec<Finding> {
    let check = "sockets";
    let make = make_helper(&configured.helper_sockets, dir, user);
    let entry = match directory(&configured.helper_sockets) {
        Ok(entry) => entry,
        Err(seen) => return vec![absent(check, dir, seen, &make)],
    };
    let way = &configured.helper_sockets.way;
    let above = way.split_last().map_or(way.as_slice(), |(_, above)| above);
    let mut findings: Vec<Finding> = breaches(check, above).collect();
    if !entry.is_roots_alone() {
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
    if findings.is_empty() {
        findings.extend(helper_socket(configured));
    }
    findings
}

fn node_sockets(configured: &Configured, dir: &Path, user: &str) -> Option<Finding> {
    let check = "sockets";
    let make = make_node(&configured.node_sockets, dir, user);
    let entry = match directory(&configured.node_sockets) {
        Ok(entry) => entry,
        Err(seen) => return Some(absent(check, dir, seen, &make)),
    };
    let ids = configured.node_ids()?;
    if (entry.uid != 0 && entry.uid != ids.0) || entry.mode & 0o022 != 0 {
        return Some(fail(check, described(dir, entry, "others could replace the node's socket"), make));
    }
    (allowed(entry, ids) & 0o3 != 0o3)
        .then(|| fail(check, described(dir, entry, &format!("{user} cannot make the node's socket there")), make))
}

/// What `entry`'s mode allows the user and group `ids`: three bits.
fn allowed(entry: &Entry, (uid, gid): (u32, u32)) -> u32 {
    if entry.uid == uid {
        entry.mode >> 6
    } else if entry.gid == gid {
        entry.mode >> 3
    } else {
        entry.mode
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
        Seen::Behind => warn(
            check,
            format!("{path} lies behind a link, which is not followed"),
            "name the place that the link leads to in its stead",
        ),
        Seen::There(_) => fail(
            check,
            format!("{path} is no directory; a link is not followed"),
            format!("move it away, then: {make}"),
        ),
    }
}

/// The helper's records: it makes the directory itself where the way there is root's alone.
pub(super) fn state_dir(configured: &Configured) -> Vec<Finding> {
    let (check, path) = ("state-dir", configured.config.helper.state_dir.as_path());
    let place = &configured.state_dir;
    let mut findings: Vec<Finding> = breaches(check, &place.way).collect();
    let shown = path.display();
    match directory(place) {
        Ok(_) | Err(Seen::Unseen(_) | Seen::Behind) => {}
        Err(Seen::Missing) => {
            let above = place.way.len().checked_sub(2).and_then(|i| place.way.get(i));
            if above.is_some_and(|part| part.seen == Seen::Missing) {
                let make = command(&["install", "-d", "-o", "root", "-g", "root", "-m", "0700", &text(path)]);
                let make = on_name(place.way.split_last().map_or(&[], |(_, above)| above), make);
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
    let (way, named) = (&configured.data_dir.way, text(path.as_path()));
    let make = at(way, command(&["install", "-d", "-o", user, "-g", user, "-m", "0710", &named]));
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
            at(way, command(&["chown", &format!("{user}:"), &named])),
        ));
    }
    if entry.mode & 0o007 != 0 {
        findings.push(warn(
            check,
            format!("{path} has mode {:04o}: other users of this host may look into it", entry.mode),
            at(way, command(&["chmod", "o-rwx", &named])),
        ));
    }
    for above in &configured.data_dir_closed {
        let so_far = way.iter().position(|part| part.path == *above).and_then(|index| way.get(..=index));
        let open = command(&["setfacl", "-m", "g:kvm:x", &text(above)]);
        findings.push(fail(
            check,
            format!(
                "VMMs, in group kvm, may not pass through {} to {path}; data_dir may lie elsewhere",
                above.display()
            ),
            at(so_far.unwrap_or_default(), open),
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
    let (way, named) = (&configured.secrets.way, text(path.as_path()));
    let entry = match directory(&configured.secrets) {
        Ok(entry) => entry,
        Err(Seen::Missing) => return vec![ok(check, format!("there is no {path}: instances get no user data"))],
        Err(seen) => {
            let make = at(way, command(&["install", "-d", "-o", user, "-g", user, "-m", "0700", &named]));
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
            // Not what lies in it: names there may be anybody's.
            at(way, command(&["chown", &format!("{user}:"), &named])),
        ));
    }
    if entry.mode & 0o077 != 0 {
        findings.push(warn(
            check,
            format!("{path} has mode {:04o}: others than its owner may look into it", entry.mode),
            at(way, command(&["chmod", "0700", &named])),
        ));
    }
    let files = configured.probe.as_ref().ok().and_then(|probe| probe.secrets.as_ref());
    findings.extend(files.and_then(|files| loose(configured, files)));
    if findings.is_empty() {
        findings.push(ok(check, format!("{path} is {user}'s alone")));
    }
    findings
}

/// The directory is the node's, so no command of root's goes by a name in it: it would follow what the node's user puts there.
fn loose(configured: &Configured, files: &Secrets) -> Option<Finding> {
    let (path, user) = (&configured.config.node.secrets, configured.config.helper.node_user.as_str());
    let names: Vec<&str> = files.named.iter().map(AllocationId::as_str).collect();
    let others = match (files.others, files.more) {
        (0, false) => None,
        (0, true) => Some("more than were looked at".to_owned()),
        (1, false) => Some("1 other entry".to_owned()),
        (number, false) => Some(format!("{number} other entries")),
        (number, true) => Some(format!("at least {number} others")),
    };
    if names.is_empty() && others.is_none() {
        return None;
    }
    let listed = [(!names.is_empty()).then(|| names.join(", ")), others].into_iter().flatten().collect::<Vec<_>>();
    let found =
        format!("in {path}: {}: no files of {user}'s alone, so the node does not read them", listed.join(", and "));
    let fresh = text(&path.as_path().with_file_name("ALLOCATION.new"));
    let make = command(&["install", "-o", user, "-g", user, "-m", "0600", "FILE", &fresh]);
    let swap = command(&["mv", "-T", &fresh, &text(&path.as_path().join("ALLOCATION"))]);
    let told = format!(
        "make each of them anew outside and move it there: {make}, then {swap}; remove what is no allocation's"
    );
    let remedy = at(&configured.secrets.way, told);
    // Stray names alone keep no instance from its user data.
    Some(if names.is_empty() { warn("secrets", found, remedy) } else { fail("secrets", found, remedy) })
}
