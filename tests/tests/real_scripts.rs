//! The package's scripts as dpkg runs them, against places that the node's user has prepared: what it may have planted is
//! neither followed nor in the way.
//!
//! Room: `tests`. Needs root and no libvirtd. Each script runs in a root directory of its own, in which only programs and
//! libraries are the host's; once with systemd's tools and once by hand.
use bcd_tests::place::Place;
use bcd_tests::sources::{self, top};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A host's files without a host.
struct Root {
    place: Place,
    path: PathBuf,
}

/// With what the places are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tools {
    Systemd,
    ByHand,
}

/// What the scripts run where there is no systemd.
const TOOLS: &str = "sh getent install find rm rmdir grep sed sort wc setfacl getfacl cat ls";

impl Root {
    fn new(name: &str) -> Self {
        let place = Place::new(name);
        let path = place.root().join("host");
        for dir in [
            "usr",
            "proc",
            "run",
            "tmp",
            "etc/bcd",
            "etc/tmpfiles.d",
            "etc/sysusers.d",
            "var/lib",
            "by-hand",
            "precious",
        ] {
            fs::create_dir_all(path.join(dir)).expect("make");
        }
        for link in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{link}"), path.join(link)).expect("link");
        }
        for tool in TOOLS.split(' ') {
            symlink(format!("/usr/bin/{tool}"), path.join("by-hand").join(tool)).expect("link");
        }
        for file in ["passwd", "group", "nsswitch.conf"] {
            fs::copy(Path::new("/etc").join(file), path.join("etc").join(file)).expect("copy");
        }
        for (from, to) in [
            ("bcd.tmpfiles", "etc/tmpfiles.d/bcd.conf"),
            ("bcd.sysusers", "etc/sysusers.d/bcd.conf"),
            ("bcd.toml", "etc/bcd/bcd.toml"),
        ] {
            fs::copy(top().join("packaging").join(from), path.join(to)).expect("copy");
        }
        for script in ["postinst", "postrm"] {
            fs::write(path.join(script), sources::read(&top().join("packaging/debian").join(script))).expect("write");
        }
        fs::create_dir(path.join("dev")).expect("make");
        fs::write(path.join("dev/null"), "").expect("make");
        fs::write(path.join("precious/file"), "precious").expect("write");
        mode(&path.join("precious"), 0o700);
        Self { place, path }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// Runs a script in it and returns what it said; `first` is done in its mount namespace before.
    fn run(&self, tools: Tools, first: &str, script: &str) -> String {
        let search = match tools {
            Tools::Systemd => "/usr/sbin:/usr/bin",
            Tools::ByHand => "/by-hand",
        };
        let root = self.path.display();
        let steps = format!(
            "set -e; cd {root}; mount --bind /usr usr; mount -o remount,bind,ro usr; mount -t proc proc proc; mount --bind /dev/null dev/null; {first}\n\
             exec env -i PATH=/usr/sbin:/usr/bin chroot . /usr/bin/env PATH={search} /bin/sh {script}"
        );
        let output = Command::new("unshare").args(["--mount", "sh", "-c", &steps]).output().expect("run unshare");
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{tools:?} {script}: {}\n{said}", output.status);
        said
    }

    /// Whose a path is and with which mode; no link is followed.
    fn access(&self, path: &str) -> (u32, u32, u32) {
        let meta = fs::symlink_metadata(self.at(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        (meta.uid(), meta.gid(), meta.mode() & 0o7777)
    }

    /// Makes a directory of the node's user.
    fn directory_of_the_node(&self, path: &str) {
        fs::create_dir_all(self.at(path)).expect("make");
        self.place.give(&self.at(path));
    }

    /// A link of the node's user to what is not its own.
    fn planted_link(&self, path: &str, to: &str) {
        symlink(to, self.at(path)).expect("link");
        std::os::unix::fs::lchown(self.at(path), Some(self.uid()), Some(self.gid())).expect("chown");
    }

    fn uid(&self) -> u32 {
        self.place.node_uid().as_raw()
    }

    fn gid(&self) -> u32 {
        self.place.node_gid().as_raw()
    }

    fn check_precious(&self) {
        assert_eq!((self.access("precious"), self.access("precious/file")), ((0, 0, 0o700), (0, 0, 0o644)));
        assert_eq!(fs::read_to_string(self.at("precious/file")).expect("read"), "precious");
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// The older layout: both sockets in one directory, in which the node's user could make names.
fn older_layout(root: &Root) {
    fs::create_dir(root.at("run/bcd")).expect("make");
    std::os::unix::fs::chown(root.at("run/bcd"), Some(0), Some(root.gid())).expect("chown");
    mode(&root.at("run/bcd"), 0o1770);
}

#[test]
fn an_upgrade_closes_the_directory_of_the_helpers_socket_and_clears_what_lay_in_the_way() {
    let test = "an_upgrade_closes_the_directory_of_the_helpers_socket_and_clears_what_lay_in_the_way";
    if !bcd_tests::real(test) {
        return;
    }
    for (tools, link) in [(Tools::Systemd, true), (Tools::ByHand, true), (Tools::ByHand, false)] {
        let root = Root::new("upgrade");
        older_layout(&root);
        root.directory_of_the_node("run/bcd/helper.sock");
        root.directory_of_the_node("run/bcd/helper.sock/-rf");
        root.planted_link("run/bcd/helper.sock/within", "/precious/file");
        if link {
            root.planted_link("run/bcd/node", "/precious");
        } else {
            // Another member of the group, with something in the place of the node's own socket.
            fs::create_dir_all(root.at("run/bcd/node/node.sock")).expect("make");
            for path in ["run/bcd/node", "run/bcd/node/node.sock"] {
                std::os::unix::fs::chown(root.at(path), Some(65_534), Some(root.gid())).expect("chown");
            }
        }
        root.planted_link("run/bcd/other", "/precious/file");
        let said = root.run(tools, "", "/postinst configure 0.0.1");
        assert_eq!(root.access("run/bcd"), (0, root.gid(), 0o750), "{tools:?}: {said}");
        assert_eq!(root.access("run/bcd/node"), (root.uid(), root.gid(), 0o710), "{tools:?}: {said}");
        assert!(root.at("run/bcd/node").symlink_metadata().expect("look").is_dir());
        let left: Vec<_> = fs::read_dir(root.at("run/bcd")).expect("list").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["node"], "{tools:?}: {said}");
        assert_eq!(fs::read_dir(root.at("run/bcd/node")).expect("list").count(), 0, "{tools:?}: {said}");
        root.check_precious();
        assert!(!said.contains("has the API in"), "{said}");

        // From now on what is there stays, and a configuration of the older layout is told of.
        let (api, helper) = (root.at("run/bcd/node/node.sock"), root.at("run/bcd/helper.sock"));
        drop(std::os::unix::net::UnixListener::bind(&api).expect("bind"));
        root.place.give(&api);
        drop(std::os::unix::net::UnixListener::bind(&helper).expect("bind"));
        let config = sources::read(&root.at("etc/bcd/bcd.toml"));
        fs::write(root.at("etc/bcd/bcd.toml"), config.replace("/run/bcd/node/node.sock", "/run/bcd/node.sock"))
            .expect("write");
        let said = root.run(tools, "", "/postinst configure 0.0.1");
        for socket in [api, helper] {
            assert!(fs::symlink_metadata(&socket).is_ok_and(|meta| meta.file_type().is_socket()), "{said}");
        }
        assert!(said.contains("set api = \"/run/bcd/node/node.sock\""), "{said}");
    }
}

#[test]
fn a_purge_follows_nothing_stops_half_way_at_nothing_and_leaves_no_mask() {
    let test = "a_purge_follows_nothing_stops_half_way_at_nothing_and_leaves_no_mask";
    if !bcd_tests::real(test) {
        return;
    }
    for (tools, others) in [(Tools::Systemd, false), (Tools::ByHand, true)] {
        let root = Root::new("purge");
        older_layout(&root);
        for dir in
            ["etc/bcd/secrets", "run/bcd/node", "var/lib/bcd", "var/lib/bcd/node/mounted", "var/lib/bcd/instances"]
        {
            root.directory_of_the_node(dir);
        }
        fs::remove_file(root.at("etc/bcd/bcd.toml")).expect("dpkg removes what it knows of before");
        for dir in ["var/lib/bcd-helper/records", "var/lib/libvirt/qemu"] {
            fs::create_dir_all(root.at(dir)).expect("make");
        }
        for link in ["etc/bcd/secrets/link", "run/bcd/node/link", "run/bcd/link", "var/lib/bcd/images"] {
            root.planted_link(link, "/precious");
        }
        let qemu = root.at("var/lib/libvirt/qemu");
        let entries = if others { "g:kvm:x,u:nobody:x" } else { "g:kvm:x" };
        assert!(Command::new("setfacl").args(["-m", entries]).arg(&qemu).status().expect("run setfacl").success());
        // What no rm removes.
        let mount = "mount -t tmpfs tmpfs var/lib/bcd/node/mounted; touch var/lib/bcd/node/mounted/file";
        let kept = "; test -e /var/lib/bcd/node/mounted/file && echo KEPT";
        let said = root.run(tools, mount, &format!("-c '/bin/sh /postrm purge{kept}'"));
        assert!(said.contains("KEPT"), "another file system is not entered: {said}");
        assert!(said.contains("not all of these could be removed"), "{said}");
        for gone in ["etc/bcd", "run/bcd", "var/lib/bcd/images", "var/lib/bcd/instances", "var/lib/bcd-helper"] {
            assert!(fs::symlink_metadata(root.at(gone)).is_err(), "{gone} is still there: {said}");
        }
        root.check_precious();
        let acl = Command::new("getfacl").arg("-cp").arg(&qemu).output().expect("run getfacl");
        let acl = String::from_utf8_lossy(&acl.stdout).into_owned();
        assert!(
            !acl.contains("kvm") && acl.contains("user:nobody") == others && acl.contains("mask") == others,
            "{acl}"
        );
    }
}
