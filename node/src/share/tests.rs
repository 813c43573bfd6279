//! Tests of ACL entries on a real filesystem: exactly the rights of one guest.
use super::*;
use bcd_protocol::definition::ImageFormat;
use bcd_protocol::id::Sha256Digest;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use tempfile::TempDir;

struct Host {
    directory: TempDir,
    layout: Layout,
    image: ImageRef,
}

fn id(name: &str) -> InstanceId {
    InstanceId::parse(name).unwrap()
}

fn uid(index: u32) -> GuestUid {
    GuestUid::new(bcd_protocol::limits::GUEST_UID_FIRST + index).unwrap()
}

fn kvm() -> u32 {
    nix::unistd::Group::from_name(GROUP).unwrap().expect("the host has a group kvm").gid.as_raw()
}

fn empty() -> Host {
    let directory = tempfile::tempdir().unwrap();
    let image = ImageRef { sha256: Sha256Digest::from_bytes([9; 32]), format: ImageFormat::Qcow2 };
    Host { layout: Layout::new(directory.path()), directory, image }
}

fn host(instances: &[&str]) -> Host {
    let host = empty();
    prepare(&host.layout).unwrap();
    file(&host.layout.image(&host.image), "base");
    for name in instances {
        crate::disk::make_directory(&host.layout, &id(name)).unwrap();
        file(&host.layout.disk(&id(name)), "disk");
        file(&host.layout.seed(&id(name)), "seed");
    }
    host
}

fn file(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

impl Host {
    fn share(&self, name: &str, index: u32) -> Result<(), Fault> {
        with_guest(&self.layout, &id(name), uid(index), &self.image)
    }

    fn base(&self) -> PathBuf {
        self.layout.image(&self.image)
    }
}

/// The whole ACL as `getfacl` would show it, one line an entry.
fn acl(path: &Path) -> Vec<String> {
    PosixACL::read_acl(path).unwrap().as_text().lines().map(str::to_owned).collect()
}

fn inode_change(path: &Path) -> (i64, i64) {
    let metadata = fs::metadata(path).unwrap();
    (metadata.ctime(), metadata.ctime_nsec())
}

/// Whether a process of this uid and group may do what the shell's `test` asks. Needs root.
fn may(uid: u32, gid: u32, test: &str, path: &Path) -> bool {
    Command::new("/usr/bin/test").arg(test).arg(path).uid(uid).gid(gid).status().unwrap().success()
}

#[test]
fn shared_directories_have_one_entry_and_no_access_for_the_world() {
    let host = empty();
    fs::set_permissions(host.directory.path(), Permissions::from_mode(0o755)).unwrap();
    prepare(&host.layout).unwrap();
    for path in [host.layout.root().to_owned(), host.layout.images(), host.layout.instances()] {
        let expected = [
            "user::rwx".to_owned(),
            "group::---".to_owned(),
            "group:kvm:--x".to_owned(),
            "mask::--x".to_owned(),
            "other::---".to_owned(),
        ];
        assert_eq!(acl(&path), expected, "{}", path.display());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o710);
        let before = inode_change(&path);
        prepare(&host.layout).unwrap();
        assert_eq!(inode_change(&path), before, "an ACL that is right is written again");
    }
}

#[test]
fn a_guest_gets_exactly_its_rights_and_a_repeat_writes_nothing() {
    let host = host(&["a"]);
    host.share("a", 0).unwrap();
    let expect = |path: &Path, owner: &str, perms: &str| {
        let number = uid(0).get();
        let lines = [
            format!("user::{owner}"),
            format!("user:{number}:{perms}"),
            "group::---".to_owned(),
            format!("mask::{perms}"),
            "other::---".to_owned(),
        ];
        assert_eq!(acl(path), lines, "{}", path.display());
    };
    let paths = [host.layout.instance(&id("a")), host.layout.disk(&id("a")), host.layout.seed(&id("a")), host.base()];
    for (path, (owner, perms)) in paths.iter().zip([("rwx", "--x"), ("rw-", "rw-"), ("rw-", "r--"), ("rw-", "r--")]) {
        expect(path, owner, perms);
    }
    let before: Vec<_> = paths.iter().map(|path| inode_change(path)).collect();
    host.share("a", 0).unwrap();
    assert_eq!(paths.iter().map(|path| inode_change(path)).collect::<Vec<_>>(), before);
    // A chmod sets the mask and so takes the rights away: the next pass gives them back.
    fs::set_permissions(&paths[1], Permissions::from_mode(0o600)).unwrap();
    host.share("a", 0).unwrap();
    expect(&paths[1], "rw-", "rw-");
}

#[test]
fn a_new_uid_replaces_the_old_one_on_what_one_guest_owns() {
    let host = host(&["a"]);
    host.share("a", 0).unwrap();
    host.share("a", 1).unwrap();
    for path in [host.layout.instance(&id("a")), host.layout.disk(&id("a")), host.layout.seed(&id("a"))] {
        let lines = acl(&path);
        assert!(!lines.iter().any(|line| line.starts_with(&format!("user:{}:", uid(0)))), "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with(&format!("user:{}:", uid(1)))), "{lines:?}");
    }
}

#[test]
fn guests_of_one_image_come_and_go_without_each_other() {
    let host = host(&["a", "b"]);
    host.share("a", 0).unwrap();
    host.share("b", 1).unwrap();
    withdraw(&host.layout, uid(0), &host.image).unwrap();
    let line = |index: u32| format!("user:{}:r--", uid(index));
    assert!(!acl(&host.base()).contains(&line(0)) && acl(&host.base()).contains(&line(1)));
    let before = inode_change(&host.base());
    withdraw(&host.layout, uid(0), &host.image).unwrap();
    assert_eq!(inode_change(&host.base()), before);
    host.share("a", 2).unwrap();
    assert_eq!(retain(&host.layout, &host.image, &HashSet::from([uid(2)])).unwrap(), 1);
    assert!(!acl(&host.base()).contains(&line(1)) && acl(&host.base()).contains(&line(2)));
    fs::remove_file(host.base()).unwrap();
    withdraw(&host.layout, uid(2), &host.image).unwrap();
}

#[test]
fn guests_that_start_at_once_all_get_their_entry_on_the_base() {
    let names: Vec<_> = (0..16).map(|i| format!("g{i}")).collect();
    let host = host(&names.iter().map(String::as_str).collect::<Vec<_>>());
    thread::scope(|scope| {
        for (index, name) in names.iter().enumerate() {
            let host = &host;
            scope.spawn(move || host.share(name, u32::try_from(index).unwrap()).unwrap());
        }
    });
    let guests = acl(&host.base()).iter().filter(|line| line.starts_with("user:2")).count();
    assert_eq!(guests, names.len());
}

#[test]
fn a_base_that_is_full_refuses_with_its_count_and_takes_guests_again_later() {
    let host = host(&["a"]);
    let mut acl = PosixACL::new(0o600);
    let mut guests = 0;
    // Grow the list until the file system refuses, in steps that keep this quick.
    let mut step = 256;
    while step > 0 {
        for index in guests..guests + step {
            acl.set(Qualifier::User(uid(100 + index).get()), ACL_READ);
        }
        if acl.write_acl(host.base()).is_ok() {
            guests += step;
            if guests > 8000 {
                // Lists of any length fit here: nothing to be shown.
                return;
            }
        } else {
            for index in guests..guests + step {
                acl.remove(Qualifier::User(uid(100 + index).get()));
            }
            step /= 2;
        }
    }
    let fault = host.share("a", 0).unwrap_err();
    assert_eq!(fault.kind(), FaultKind::ResourcesExhausted);
    assert!(fault.to_string().contains(&format!("with {guests} guests")), "{fault}");
    let unchanged = PosixACL::new(0o600);
    assert_eq!(acl_of(&host.layout.disk(&id("a"))), unchanged.entries(), "a refusal shares nothing");
    withdraw(&host.layout, uid(100), &host.image).unwrap();
    host.share("a", 0).unwrap();
}

fn acl_of(path: &Path) -> Vec<ACLEntry> {
    PosixACL::read_acl(path).unwrap().entries()
}

#[test]
fn links_and_foreign_objects_are_refused_and_untouched() {
    let aside = tempfile::tempdir().unwrap();
    let target = aside.path().join("target");
    for what in ["disk link", "directory link", "hard link", "fifo", "base link"] {
        let host = host(&["a"]);
        file(&target, "target");
        let disk = host.layout.disk(&id("a"));
        let place = match what {
            "base link" => host.base(),
            _ => disk,
        };
        match what {
            "directory link" => {
                let directory = host.layout.instance(&id("a"));
                fs::rename(&directory, aside.path().join("moved")).unwrap();
                symlink(aside.path().join("moved"), &directory).unwrap();
            }
            "hard link" => {
                fs::remove_file(&place).unwrap();
                fs::hard_link(&target, &place).unwrap();
            }
            "fifo" => {
                fs::remove_file(&place).unwrap();
                nix::unistd::mkfifo(&place, nix::sys::stat::Mode::S_IRWXU).unwrap();
            }
            _ => {
                fs::remove_file(&place).unwrap();
                symlink(&target, &place).unwrap();
            }
        }
        let fault = host.share("a", 0).unwrap_err();
        assert_eq!(fault.kind(), FaultKind::Internal, "{what}");
        assert_eq!(fault.to_string().contains("reached by a link"), what == "directory link", "{fault}");
        assert_eq!(acl_of(&target), PosixACL::new(0o600).entries(), "{what}");
        let _ = fs::remove_dir_all(aside.path().join("moved"));
        fs::remove_file(&target).unwrap();
    }
}

#[test]
fn a_default_acl_is_refused_with_its_remedy() {
    let host = host(&[]);
    let mut default = PosixACL::new(0o700);
    default.set(Qualifier::User(12345), ACL_READ);
    default.write_default_acl(host.layout.images()).unwrap();
    let fault = prepare(&host.layout).unwrap_err();
    assert!(fault.to_string().contains("setfacl -k"), "{fault}");
}

#[test]
fn a_data_dir_that_is_a_link_is_refused_with_what_to_do() {
    let host = host(&[]);
    let aside = tempfile::tempdir().unwrap();
    let link = aside.path().join("link");
    symlink(host.directory.path(), &link).unwrap();
    let fault = prepare(&Layout::new(&link)).unwrap_err();
    assert!(fault.to_string().contains("not to a link"), "{fault}");
}

#[test]
fn a_missing_file_is_named() {
    let host = host(&["a"]);
    fs::remove_file(host.layout.seed(&id("a"))).unwrap();
    let fault = host.share("a", 0).unwrap_err();
    assert!(fault.to_string().contains("seed.iso is not there"), "{fault}");
}

#[test]
fn the_kernel_gives_each_guest_its_own_files_and_no_others() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let host = host(&["a", "b"]);
    host.share("a", 0).unwrap();
    host.share("b", 1).unwrap();
    let (a, b) = (id("a"), id("b"));
    let guest = |test, path: &Path| may(uid(0).get(), kvm(), test, path);
    assert!(guest("-r", &host.layout.disk(&a)) && guest("-w", &host.layout.disk(&a)));
    assert!(guest("-r", &host.layout.seed(&a)) && !guest("-w", &host.layout.seed(&a)));
    assert!(guest("-r", &host.base()) && !guest("-w", &host.base()));
    assert!(guest("-x", &host.layout.instance(&a)) && !guest("-r", &host.layout.instance(&a)));
    assert!(!guest("-e", &host.layout.disk(&b)) && !guest("-e", &host.layout.seed(&b)));
    for directory in [host.layout.root().to_owned(), host.layout.images(), host.layout.instances()] {
        assert!(guest("-x", &directory) && !guest("-r", &directory) && !guest("-w", &directory));
    }
    // Another local user, and the guest's uid without the group, do not even get in.
    assert!(!may(12345, 12345, "-e", &host.base()));
    assert!(!may(uid(0).get(), 12345, "-e", &host.layout.disk(&a)));
}

/// The name of the test below, which runs itself again as another user.
const AS_PLAIN_OWNER: &str = "share::tests::an_owner_without_privileges_can_share_its_files";

#[test]
fn an_owner_without_privileges_can_share_its_files() {
    if nix::unistd::geteuid().is_root() {
        let home = tempfile::tempdir().unwrap();
        chown(home.path(), Some(12345), Some(12345)).unwrap();
        let output = Command::new("/proc/self/exe")
            .args(["--exact", AS_PLAIN_OWNER, "--nocapture"])
            .env("TMPDIR", home.path())
            .current_dir("/")
            .uid(12345)
            .gid(12345)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("shared as uid 12345"), "{said}{output:?}");
        return;
    }
    // As the node runs: /proc/self belongs to root then.
    nix::sys::prctl::set_dumpable(false).unwrap();
    let host = host(&["a"]);
    host.share("a", 0).unwrap();
    assert!(acl(&host.layout.disk(&id("a"))).contains(&format!("user:{}:rw-", uid(0))));
    withdraw(&host.layout, uid(0), &host.image).unwrap();
    assert!(!acl(&host.base()).iter().any(|line| line.contains(&uid(0).to_string())));
    eprintln!("shared as uid {}", nix::unistd::geteuid());
}
