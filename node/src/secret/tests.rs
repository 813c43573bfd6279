//! Tests of user data: who may read a file of it, and what is ever shown.
use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn allocation(text: &str) -> AllocationId {
    AllocationId::parse(text).expect("an allocation")
}

/// A directory of secrets with one file of this content and mode under the name `a1`.
fn secrets(content: &[u8], mode: u32) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("a1");
    fs::write(&file, content).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("mode");
    directory
}

fn refusal(directory: &Path) -> Fault {
    user_data(directory, &allocation("a1")).map(|found| found.is_some()).expect_err("refused")
}

#[test]
fn user_data_is_read_whole_and_shown_by_length_alone() {
    for mode in [0o600, 0o400] {
        let directory = secrets(b"#cloud-config\npassword: hunter2\n", mode);
        let secret = user_data(directory.path(), &allocation("a1")).expect("read").expect("there");
        assert_eq!(secret.expose(), b"#cloud-config\npassword: hunter2\n");
        assert_eq!(format!("{secret:?}"), "Secret(32 bytes)");
    }
}

#[test]
fn an_allocation_without_a_file_or_a_host_without_a_directory_has_no_user_data() {
    let directory = secrets(b"x", 0o600);
    assert!(user_data(directory.path(), &allocation("a2")).expect("no fault").is_none());
    assert!(user_data(&directory.path().join("none"), &allocation("a1")).expect("no fault").is_none());
}

#[test]
fn a_file_that_others_may_read_is_refused_with_its_name_and_remedy() {
    for mode in [0o640, 0o604, 0o644, 0o660, 0o610] {
        let directory = secrets(b"x", mode);
        let fault = refusal(directory.path());
        assert_eq!(fault.kind(), FaultKind::Denied);
        let sentence = fault.chain();
        assert!(sentence.contains("/a1") && sentence.contains("chmod 0600"), "{sentence}");
        assert!(sentence.contains(&format!("{mode:04o}")), "{sentence}");
    }
}

#[test]
fn a_directory_that_others_may_write_is_refused() {
    let directory = secrets(b"x", 0o600);
    for mode in [0o770, 0o702, 0o1777] {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).expect("mode");
        assert!(refusal(directory.path()).chain().contains("chmod 0700"));
    }
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o750)).expect("mode");
    assert!(user_data(directory.path(), &allocation("a1")).is_ok());
}

#[test]
fn a_link_a_fifo_and_a_directory_are_refused_at_once() {
    let directory = secrets(b"x", 0o600);
    let file = directory.path().join("a1");
    fs::rename(&file, directory.path().join("elsewhere")).expect("moved");
    symlink("elsewhere", &file).expect("a link");
    assert!(refusal(directory.path()).chain().contains("link"));
    fs::remove_file(&file).expect("removed");
    nix::unistd::mkfifo(&file, Mode::S_IRUSR | Mode::S_IWUSR).expect("a FIFO");
    let begun = Instant::now();
    assert!(refusal(directory.path()).chain().contains("no regular file"));
    assert!(begun.elapsed() < Duration::from_secs(5), "no wait for a writer");
    fs::remove_file(&file).expect("removed");
    fs::create_dir(&file).expect("a directory");
    assert!(refusal(directory.path()).chain().contains("no regular file"));
}

#[test]
fn another_users_file_is_refused() {
    if fs::metadata("/proc/self").expect("proc").uid() != 0 {
        eprintln!("skipped: only root can give a file away");
        return;
    }
    let directory = secrets(b"x", 0o600);
    chown(directory.path().join("a1"), Some(12_345), None).expect("given away");
    let sentence = refusal(directory.path()).chain();
    assert!(sentence.contains("12345") && sentence.contains("chown"), "{sentence}");
}

#[test]
fn user_data_up_to_the_bound_is_read_and_above_it_refused() {
    let directory = secrets(&vec![b'a'; USER_DATA_BYTES], 0o600);
    let secret = user_data(directory.path(), &allocation("a1")).expect("read").expect("there");
    assert_eq!(secret.expose().len(), USER_DATA_BYTES);
    let directory = secrets(&vec![b'a'; USER_DATA_BYTES + 1], 0o600);
    let fault = refusal(directory.path());
    assert_eq!(fault.kind(), FaultKind::InvalidSpec);
    assert!(fault.chain().contains("1048576"), "{}", fault.chain());
}
