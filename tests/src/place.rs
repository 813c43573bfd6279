//! A place on this host that belongs to one test: directories, configuration, and their removal.
//!
//! Room: `tests`. It lies under `/var/lib`, because the helper refuses a directory that others may write, as `/tmp` is.
use nix::unistd::{Gid, Uid, User, chown};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// The node user of every test, made by `tests/run` as the package would.
pub const NODE_USER: &str = "bcd";

/// One test's directories.
#[derive(Debug)]
pub struct Place {
    root: PathBuf,
    /// The node user.
    pub node: User,
}

impl Place {
    /// Makes a place. `name` is in its path.
    ///
    /// # Panics
    /// When this is not root, or there is no user `bcd`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        assert!(Uid::effective().is_root(), "real tests run as root");
        let node = User::from_name(NODE_USER).expect("read users").expect("user bcd exists: run tests/run real");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = PathBuf::from(format!("/var/lib/bcd-test-{}-{count}-{name}", std::process::id()));
        let place = Self { root, node };
        fs::create_dir(&place.root).expect("make the place");
        fs::set_permissions(&place.root, fs::Permissions::from_mode(0o755)).expect("chmod");
        for (dir, mode, owned) in [
            ("data", 0o710, true),
            ("data/instances", 0o710, true),
            ("data/images", 0o710, true),
            ("state", 0o700, false),
            ("run", 0o755, false),
            ("node-run", 0o755, true),
            ("secrets", 0o700, true),
        ] {
            let path = place.root.join(dir);
            fs::create_dir(&path).expect("make a directory");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
            if owned {
                place.give(&path);
            }
        }
        place.configure("");
        place
    }

    /// Gives a path to the node user.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn give(&self, path: &Path) {
        chown(path, Some(self.node.uid), Some(self.node.gid)).expect("chown");
    }

    /// Writes the configuration: the place's paths, and `more` (whole TOML tables or keys of `[helper]` first).
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn configure(&self, more: &str) {
        let root = self.root.display();
        // What runs on another kernel's emulation cannot rely on its KVM; the test host says that its own is good.
        let accel = std::env::var("BCD_TEST_ACCEL").unwrap_or_else(|_| "tcg".to_owned());
        let text = format!(
            "data_dir = \"{root}/data\"\n\
             [node]\napi = \"{root}/node-run/node.sock\"\nsecrets = \"{root}/secrets\"\n\
             [libvirt]\naccel = \"{accel}\"\n\
             [helper]\nsocket = \"{root}/run/helper.sock\"\nstate_dir = \"{root}/state\"\n{more}\n"
        );
        fs::write(self.config(), text).expect("write the configuration");
    }

    /// Writes exactly this as the configuration.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn configure_whole(&self, text: &str) {
        fs::write(self.config(), text).expect("write the configuration");
    }

    /// The configuration file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.root.join("bcd.toml")
    }

    /// The place itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `data_dir`.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// The helper's state.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// The helper's socket.
    #[must_use]
    pub fn helper_socket(&self) -> PathBuf {
        self.root.join("run/helper.sock")
    }

    /// The node's API socket.
    #[must_use]
    pub fn node_socket(&self) -> PathBuf {
        self.root.join("node-run/node.sock")
    }

    /// The node user's uid.
    #[must_use]
    pub fn node_uid(&self) -> Uid {
        self.node.uid
    }

    /// The node user's gid.
    #[must_use]
    pub fn node_gid(&self) -> Gid {
        self.node.gid
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("BCD_KEEP").is_some() {
            eprintln!("kept for a look: {}", self.root.display());
            return;
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}
