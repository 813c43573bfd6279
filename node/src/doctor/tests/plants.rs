//! What the node's user could put into its own places: nobody waits for it, follows it or repeats its name.
use super::gather::{ask, places};
use super::*;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

fn quickly<T>(what: &str, look: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let found = look();
    assert!(start.elapsed() < Duration::from_secs(3), "{what} held it up for {:?}", start.elapsed());
    found
}

#[test]
fn a_fifo_or_a_device_in_the_place_of_a_file_is_named_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    for path in [fifo.as_path(), Path::new("/dev/zero"), dir.path()] {
        let shown = path.display().to_string();
        assert_eq!(quickly(&shown, || ask::certificates(path)), Err(Unread::NoFile), "{shown}");
        assert_eq!(quickly(&shown, || ask::document(path)), Document::Unreadable(Unread::NoFile), "{shown}");
        assert_eq!(quickly(&shown, || places::text(path, 10, |_| true).1), Err(Unread::NoFile), "{shown}");
    }
    let large = dir.path().join("large");
    fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(quickly("a large file", || ask::certificates(&large)), Err(Unread::TooLarge));
    assert_eq!(quickly("a large file", || ask::document(&large)), Document::Unreadable(Unread::TooLarge));
    assert_eq!(quickly("a large file", || places::text(&large, 10, |_| true).1), Err(Unread::TooLarge));
}

#[test]
fn a_link_is_seen_as_one_and_nothing_behind_it_is_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    fs::create_dir(dir.join("real")).unwrap();
    fs::write(dir.join("real/file"), "text").unwrap();
    symlink(dir.join("real"), dir.join("link")).unwrap();
    symlink(dir.join("real/file"), dir.join("to-file")).unwrap();
    let last = |path: &str| {
        let place = places::place(&dir.join(path));
        (place.way.last().unwrap().seen.clone(), place.free.is_some())
    };
    assert!(matches!(last("real/file"), (Seen::There(Entry { kind: Kind::File, .. }), true)));
    assert!(matches!(last("link").0, Seen::There(Entry { kind: Kind::Link, .. })));
    assert_eq!(last("link/file"), (Seen::Behind, false));
    assert_eq!(last("link/none"), (Seen::Behind, false), "nor does it tell whether there is something");
    assert_eq!(last("real/none"), (Seen::Missing, false));
    assert_eq!(places::text(&dir.join("real/file"), 10, |_| true).1.as_deref(), Ok("text"));
    let unread = places::text(&dir.join("real/file"), 10, |way| way.is_empty());
    assert_eq!(unread.1, Err(Unread::Errno(1)), "a way that is judged first and refused leads to nothing that is read");
    for path in ["link/file", "to-file"] {
        assert!(places::text(&dir.join(path), 10, |_| true).1.is_err(), "{path} was followed");
    }
    assert!(places::searchable(&dir.join("link"), Ok(107)).is_err());
    assert_eq!(places::searchable(&dir.join("real"), Ok(107)), Ok(Search::Allowed));
    fs::set_permissions(dir.join("real"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(places::searchable(&dir.join("real"), Ok(107)), Ok(Search::Refused));
}

#[test]
fn names_in_the_secrets_are_an_allocations_or_counted_and_a_crowd_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let secrets = dir.path().join("secrets");
    fs::create_dir(&secrets).unwrap();
    let file = |name: &str, mode| {
        fs::write(secrets.join(name), "x").unwrap();
        fs::set_permissions(secrets.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    file("good", 0o600);
    assert_eq!(ask::loose_secrets(&secrets), Some(Secrets::default()));
    for name in ["a\n-> rm -rf b", "\u{1b}[2J", "x;rm -rf y", "$(reboot)", "-rf"] {
        file(name, 0o600);
    }
    symlink("/etc/shadow", secrets.join("link")).unwrap();
    mkfifo(&secrets.join("fifo"), Mode::S_IRWXU).unwrap();
    file("open", 0o644);
    let found = quickly("a FIFO among them", || ask::loose_secrets(&secrets)).unwrap();
    let named: Vec<&str> = found.named.iter().map(|id| id.as_str()).collect();
    assert_eq!((named, found.others, found.more), (vec!["fifo", "link", "open"], 5, false));
    for number in 0..4200 {
        file(&format!("loose-{number}"), 0o644);
    }
    let found = quickly("a crowd", || ask::loose_secrets(&secrets)).unwrap();
    assert!(found.named.len() == 3 && found.others > 4000 && found.more, "{found:?}");
}

#[test]
fn a_configuration_that_others_may_change_names_nothing_that_is_looked_at() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let file = dir.path().join("bcd.toml");
    fs::write(&file, "[helper]\nnode_user = \"nobody\"\n").unwrap();
    let facts = gather::gather(&file, None);
    assert!(matches!(facts.configuration, Configuration::Open(_)) && facts.configured.is_none(), "{facts:?}");
    mkfifo(&dir.path().join("fifo"), Mode::S_IRWXU).unwrap();
    let facts = quickly("a FIFO", || gather::gather(&dir.path().join("fifo"), None));
    assert!(facts.configured.is_none());
}

#[test]
fn what_asks_as_the_nodes_user_starts_for_nobody_but_doctor() {
    // Neither root with a terminal or a file for its pipes, nor anybody else.
    let refused = crate::doctor::answer().unwrap_err();
    assert!(refused.to_string().contains("run bcd doctor, as root"), "{refused}");
}
