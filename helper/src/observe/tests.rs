//! Tests of looking at files; libvirt's side is tested against the real one.
use super::*;
use nix::unistd::mkfifo;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::{Duration, Instant};

fn ask(data_dir: &Path, parts: &[&str]) -> FileFact {
    let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
    let begun = Instant::now();
    let fact = open_base(data_dir).map_or(FileFact::Missing, |base| look(&base, &parts));
    assert!(begun.elapsed() < Duration::from_secs(1), "looking never waits");
    fact
}

fn host() -> tempfile::TempDir {
    let host = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(host.path().join("data/instances/a")).unwrap();
    std::fs::write(host.path().join("data/instances/a/disk.qcow2"), b"12345").unwrap();
    std::fs::write(host.path().join("outside"), b"secret").unwrap();
    host
}

#[test]
fn a_regular_file_is_seen_with_owner_links_and_length() {
    let host = host();
    let data = host.path().join("data");
    let uid = std::fs::metadata(&data).unwrap().uid();
    let fact = ask(&data, &["instances", "a", "disk.qcow2"]);
    assert_eq!(fact, FileFact::Regular { uid, links: 1, bytes: 5 });
    std::fs::hard_link(data.join("instances/a/disk.qcow2"), data.join("second")).unwrap();
    assert_eq!(ask(&data, &["instances", "a", "disk.qcow2"]), FileFact::Regular { uid, links: 2, bytes: 5 });
}

#[test]
fn links_are_not_followed_at_the_end_or_on_the_way() {
    let host = host();
    let data = host.path().join("data");
    symlink("disk.qcow2", data.join("instances/a/seed.iso")).unwrap();
    assert_eq!(ask(&data, &["instances", "a", "seed.iso"]), FileFact::Other, "even to a file beside it");
    symlink("a", data.join("instances/b")).unwrap();
    assert_eq!(ask(&data, &["instances", "b", "disk.qcow2"]), FileFact::Other);
    symlink("/proc/self/root", data.join("instances/c")).unwrap();
    assert_eq!(ask(&data, &["instances", "c", "etc"]), FileFact::Other);
}

#[test]
fn the_way_out_is_closed() {
    let host = host();
    let data = host.path().join("data");
    assert_eq!(ask(&data, &["..", "outside"]), FileFact::Other);
    let absolute = host.path().join("outside");
    assert_eq!(ask(&data, &[absolute.to_str().unwrap()]), FileFact::Other);
}

#[test]
fn a_fifo_a_directory_and_a_socket_are_seen_without_waiting() {
    let host = host();
    let data = host.path().join("data");
    mkfifo(&data.join("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(data.join("socket")).unwrap();
    for name in ["fifo", "socket", "instances"] {
        assert_eq!(ask(&data, &[name]), FileFact::Other, "{name}");
    }
}

#[test]
fn what_is_not_there_is_missing() {
    let host = host();
    let data = host.path().join("data");
    assert_eq!(ask(&data, &["instances", "z", "disk.qcow2"]), FileFact::Missing);
    assert_eq!(ask(&host.path().join("nowhere"), &["disk.qcow2"]), FileFact::Missing);
    assert_eq!(ask(&data, &["instances", "a", "disk.qcow2", "more"]), FileFact::Other, "a file on the way");
}
