//! What the files keep, with parts of 10 bytes.
use super::*;
use proptest::prelude::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn store(dir: &Path) -> Store {
    Store::new(dir.to_owned(), 10)
}

fn text(store: &mut Store) -> String {
    String::from_utf8(store.backlog().unwrap()).unwrap()
}

#[test]
fn output_within_both_parts_is_kept_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    store.begin(Boot(1)).unwrap();
    assert_eq!(text(&mut store), "");
    store.append(b"0123456").unwrap();
    assert_eq!(text(&mut store), "0123456");
    store.append(b"789abcdefghij").unwrap();
    assert_eq!(text(&mut store), "0123456789abcdefghij");
}

#[test]
fn a_gap_is_told_with_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    store.begin(Boot(1)).unwrap();
    store.append(b"0123456789").unwrap();
    store.append(b"abcdefghijklmnopqrstuvwxyz").unwrap();
    assert_eq!(text(&mut store), "0123456789\r\n[bcd: 16 bytes are left out here]\r\nqrstuvwxyz");
    store.lose(4).unwrap();
    assert!(text(&mut store).contains("20 bytes are left out here"));
}

#[test]
fn another_start_begins_anew_and_the_same_start_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = store(dir.path());
    first.begin(Boot(1)).unwrap();
    first.append(&[b'x'; 45]).unwrap();
    let mut again = store(dir.path());
    again.begin(Boot(1)).unwrap();
    assert_eq!(text(&mut again), text(&mut first));
    again.begin(Boot(2)).unwrap();
    assert_eq!(text(&mut again), "");
    again.append(b"new").unwrap();
    assert_eq!(text(&mut again), "new");
}

#[test]
fn files_are_the_nodes_alone_and_a_link_in_their_place_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let mut mine = store(dir.path());
    mine.begin(Boot(1)).unwrap();
    mine.append(b"secret").unwrap();
    let mode = fs::metadata(dir.path().join("console.head")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let other = tempfile::tempdir().unwrap();
    let target = other.path().join("target");
    fs::write(&target, "untouched").unwrap();
    fs::remove_file(dir.path().join("console.head")).unwrap();
    symlink(&target, dir.path().join("console.head")).unwrap();
    assert!(store(dir.path()).append(b"x").is_err());
    assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
}

proptest! {
    /// The model: the first part, and the last part of what is behind it.
    #[test]
    fn first_and_latest_bytes_are_kept_however_they_come(
        pieces in proptest::collection::vec("[a-z]{0,25}", 0..12),
        reopen in proptest::collection::vec(any::<bool>(), 12),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut current = store(dir.path());
        current.begin(Boot(9)).unwrap();
        for (piece, reopen) in pieces.iter().zip(reopen) {
            if reopen {
                current = store(dir.path());
                current.begin(Boot(9)).unwrap();
            }
            current.append(piece.as_bytes()).unwrap();
        }
        let all = pieces.concat();
        let (head, rest) = all.split_at(all.len().min(10));
        let gap = rest.len().saturating_sub(10);
        let expected = if gap == 0 {
            all.clone()
        } else {
            format!("{head}\r\n[bcd: {gap} bytes are left out here]\r\n{}", &rest[gap..])
        };
        prop_assert_eq!(text(&mut current), expected);
    }
}
