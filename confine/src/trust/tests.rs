//! Who else may not have a hand in a file that root believes. Only root can make such files.
use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A directory of root's with every part on the way to it; not below `/tmp`, where everybody writes.
fn roots() -> Option<tempfile::TempDir> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root has files of root's");
        return None;
    }
    Some(tempfile::tempdir_in("/var/lib").unwrap())
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn give(path: &Path) {
    nix::unistd::chown(path, Some(nix::unistd::Uid::from_raw(65534)), None).unwrap();
}

#[test]
fn a_file_is_read_while_it_and_the_way_to_it_are_roots_alone() {
    let Some(place) = roots() else { return };
    let way = place.path().join("way");
    let file = way.join("file");
    let made = || {
        let _none = fs::remove_dir_all(&way);
        fs::create_dir(&way).unwrap();
        mode(&way, 0o755);
        fs::write(&file, "text").unwrap();
        mode(&file, 0o644);
    };
    made();
    assert_eq!(read_file(&file, 4).unwrap(), "text");
    assert!(matches!(read_file(&file, 3), Err(Untrusted::Kind { what: "it is too large", .. })));
    assert!(matches!(read_file(&way, 4), Err(Untrusted::Kind { what: "it is no regular file", .. })));
    assert!(matches!(read_file(&way.join("none"), 4), Err(Untrusted::Open { cause: Errno::ENOENT, .. })));
    for spoilt in [&file, &way] {
        made();
        give(spoilt);
        assert!(matches!(read_file(&file, 4), Err(Untrusted::Owner { path, uid: 65534 }) if path == *spoilt));
        for (bits, is_refused) in [(0o775, true), (0o757, true), (0o1777, true), (0o755, false)] {
            made();
            mode(spoilt, bits);
            let said = read_file(&file, 4);
            assert_eq!(said.is_err(), is_refused, "{} {bits:o}: {said:?}", spoilt.display());
        }
    }
    made();
    let link = place.path().join("link");
    symlink(&way, &link).unwrap();
    assert!(matches!(read_file(&link.join("file"), 4), Err(Untrusted::Open { .. })), "a link on the way");
    symlink(&file, way.join("other")).unwrap();
    assert!(matches!(read_file(&way.join("other"), 4), Err(Untrusted::Open { .. })), "a link");
}

#[test]
fn a_path_is_spelt_out_as_it_is_read() {
    assert_eq!(spelt_out(Path::new("/a/./b/../c/")).unwrap(), Path::new("/a/c"));
    assert_eq!(spelt_out(Path::new("/../a")).unwrap(), Path::new("/a"));
    let here = std::env::current_dir().unwrap();
    assert_eq!(spelt_out(Path::new("a")).unwrap(), here.join("a"));
    assert!(spelt_out(Path::new("")).is_err());
}
