//! What strace saw of a daemon and its children once the filter was in force.
use bcd_tests::daemons::wait_for;
use bcd_tests::place::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// How often a daemon sets a filter: after the last time all are in force.
const FILTERS: usize = 4;

/// One daemon's trace: a file for each thread.
pub(crate) struct Tracer {
    directory: PathBuf,
}

impl Tracer {
    pub(crate) fn new(place: &Place, name: &str) -> Self {
        let directory = place.root().join(format!("trace-{name}"));
        fs::create_dir(&directory).expect("make a directory");
        Self { directory }
    }

    /// What to start the daemon with, which tells its state to a service manager at `manager`. The daemon stays this process's
    /// child: strace is a grandchild of it (`-D`).
    pub(crate) fn command(&self, manager: &Path) -> Vec<String> {
        let to = self.directory.join("of").display().to_string();
        let manager = format!("NOTIFY_SOCKET={}", manager.display());
        [
            "env",
            &manager,
            "WATCHDOG_USEC=3000000",
            "strace",
            "-D",
            "-ff",
            "-qq",
            "-s",
            "32",
            "-e",
            "signal=none",
            "-o",
            &to,
        ]
        .map(str::to_owned)
        .into()
    }

    /// The calls, once strace has written them all. The daemon must have ended.
    pub(crate) fn calls(&self) -> Calls {
        let texts = || -> BTreeMap<PathBuf, String> {
            let entries = fs::read_dir(&self.directory).expect("traces").flatten();
            entries.map(|entry| (entry.path(), fs::read_to_string(entry.path()).unwrap_or_default())).collect()
        };
        // Of a thread that ended the last line says so, or it was in a call when the others ended the process.
        let mut last = texts();
        wait_for("the end of the traces", 20, || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            let now = texts();
            std::mem::replace(&mut last, now.clone()) == now
        });
        let mut made: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for text in last.values() {
            // The first thread sets the filters; what has none began after them.
            let before =
                text.lines().enumerate().filter(|(_, line)| line.starts_with("seccomp(SECCOMP_SET_MODE_FILTER"));
            let begin = before.map(|(at, _)| at + 1).collect::<Vec<_>>();
            assert!(begin.is_empty() || begin.len() == FILTERS, "{} filters were set", begin.len());
            for line in text.lines().skip(begin.last().copied().unwrap_or(0)) {
                if let Some((name, _)) = line.split_once('(')
                    && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
                {
                    made.entry(name.to_owned()).or_default().insert(line.to_owned());
                }
            }
        }
        Calls(made)
    }
}

/// Calls by name, each with the lines it was seen in.
pub(crate) struct Calls(BTreeMap<String, BTreeSet<String>>);

impl Calls {
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }

    /// A line with this call.
    pub(crate) fn example(&self, name: &str) -> &str {
        self.0.get(name).and_then(|lines| lines.first()).map_or("", String::as_str)
    }

    /// Whether the call was made with this argument, by the name that strace and the C library have for it.
    pub(crate) fn with(&self, name: &str, argument: &str) -> bool {
        let is_in =
            |line: &String| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == argument);
        self.0.get(name).is_some_and(|lines| lines.iter().any(is_in))
    }
}
