//! The command line in an operator's hands, and the image that the operator's instances boot from.
//!
//! Room: `tests`. It speaks to whatever node the configuration names: one of a test's own, or the installed one.
use crate::daemons::wait_for;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// One operator.
#[derive(Debug)]
pub struct Operator {
    bcd: PathBuf,
    config: PathBuf,
    /// Where documents are written.
    desk: PathBuf,
    url: String,
    /// How long a guest may take to boot, seconds.
    boot: u64,
    /// The guest image's digest.
    pub sha256: String,
}

/// What an instance in a test's document differs in.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Its id.
    pub id: &'static str,
    /// `running`, `stopped` or `paused`.
    pub state: &'static str,
    /// More lines of its table.
    pub more: String,
}

impl Wish {
    /// A running instance.
    #[must_use]
    pub fn running(id: &'static str) -> Self {
        Self { id, state: "running", more: String::new() }
    }

    /// A stopped one.
    #[must_use]
    pub fn stopped(id: &'static str) -> Self {
        Self { id, state: "stopped", more: String::new() }
    }
}

impl Operator {
    /// An operator of the node that `config` names, with the program `bcd`. Documents are written to `desk`; instances boot
    /// the image in the file `image`, which is served at `url`, within `boot` seconds.
    ///
    /// # Panics
    /// When the image cannot be read.
    #[must_use]
    pub fn new(bcd: &Path, config: &Path, desk: &Path, image: &Path, url: String, boot: u64) -> Self {
        let bytes = fs::read(image).expect("read the guest image");
        let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { bcd: bcd.to_owned(), config: config.to_owned(), desk: desk.to_owned(), url, boot, sha256 }
    }

    /// Runs `bcd` with arguments.
    ///
    /// # Panics
    /// When it cannot be run.
    #[must_use]
    pub fn bcd(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.bcd);
        command.arg("--config").arg(&self.config).args(arguments);
        command.output().expect("run bcd")
    }

    /// Runs `bcd` with arguments, which must succeed, and returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.bcd(arguments);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "bcd {arguments:?} ended with {}:\n{out}\n{err}", output.status);
        out.into_owned()
    }

    /// The document that wishes for these instances on the guest image.
    #[must_use]
    pub fn document(&self, wishes: &[Wish]) -> String {
        let (url, sha256) = (&self.url, &self.sha256);
        wishes
            .iter()
            .map(|Wish { id, state, more }| {
                format!(
                    "[[instances]]\nid = \"{id}\"\nallocation = \"test\"\nruntime = \"libvirt-kvm\"\nhostname = \"{id}\"\n\
                     vcpus = 1\nmemory_bytes = {}\ndisk_bytes = {}\ndesired_state = \"{state}\"\n\
                     image = {{ url = \"{url}\", sha256 = \"{sha256}\", format = \"qcow2\" }}\n{more}\n",
                    128 << 20,
                    512 << 20,
                )
            })
            .collect()
    }

    /// Writes a document and applies it; more arguments go to `bcd apply`.
    ///
    /// # Panics
    /// When it is refused.
    pub fn apply(&self, wishes: &[Wish], arguments: &[&str]) -> String {
        let path = self.write(&self.document(wishes));
        let path = path.to_str().expect("utf-8");
        self.ok(&[&["apply", path], arguments].concat())
    }

    /// Writes a document to a file.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, text: &str) -> PathBuf {
        let path = self.desk.join("spec.toml");
        fs::write(&path, text).expect("write the document");
        path
    }

    /// The node's status; `None` while the node does not answer.
    #[must_use]
    pub fn status(&self) -> Option<serde_json::Value> {
        let output = self.bcd(&["status", "--json"]);
        serde_json::from_slice(&output.stdout).ok()
    }

    /// One instance of the status.
    #[must_use]
    pub fn instance(&self, id: &str) -> Option<serde_json::Value> {
        let status = self.status()?;
        status.get("instances")?.as_array()?.iter().find(|row| row["id"] == id).cloned()
    }

    /// An instance's state as status names it.
    #[must_use]
    pub fn state(&self, id: &str) -> Option<String> {
        Some(self.instance(id)?.get("state")?.as_str()?.to_owned())
    }

    /// Waits until an instance is in a state.
    ///
    /// # Panics
    /// When it is not within `seconds`.
    pub fn wait_state(&self, id: &str, state: &str, seconds: u64) {
        let mut last = None;
        let begun = std::time::Instant::now();
        while begun.elapsed().as_secs() < seconds {
            last = self.instance(id);
            if last.as_ref().is_some_and(|row| row["state"] == state) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        panic!("{id} is not {state} after {seconds} s: {last:?}");
    }

    /// Waits until an instance is in no status any more.
    ///
    /// # Panics
    /// When it is still there after `seconds`.
    pub fn wait_gone(&self, id: &str, seconds: u64) {
        wait_for(&format!("the end of {id}"), seconds, || self.status().is_some() && self.instance(id).is_none());
    }

    /// Reads the console until the guest says that it is up.
    ///
    /// # Panics
    /// When it does not in time.
    #[must_use]
    pub fn up_line(&self, id: &str) -> String {
        let wanted = format!("bcd-guest: {id} is up");
        let console = self.ok(&["console", id, "--until", &wanted, "--timeout", &self.boot.to_string()]);
        assert!(console.contains(&wanted), "{console}");
        console
    }
}
