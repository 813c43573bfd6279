//! The daemons as processes of their own, as an operator's host has them.
//!
//! Room: `tests`. Their logs go to files in the place, and are printed when a test fails.
use crate::place::Place;
use crate::wire::Wire;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The directory of the binaries under test: `BCD_BIN_DIR`, or where cargo put this test's own.
///
/// # Panics
/// When it cannot be told.
#[must_use]
pub fn bin(name: &str) -> PathBuf {
    let dir = std::env::var_os("BCD_BIN_DIR").map(PathBuf::from).unwrap_or_else(|| {
        let exe = std::env::current_exe().expect("this test's path");
        let dir = exe.parent().expect("a directory");
        if dir.ends_with("deps") { dir.parent().expect("a directory").to_owned() } else { dir.to_owned() }
    });
    let path = dir.join(name);
    assert!(path.exists(), "{} is not built: run cargo build --workspace --bins", path.display());
    path
}

/// Waits until `ready` says so.
///
/// # Panics
/// When it does not within `seconds`, naming `what`.
pub fn wait_for(what: &str, seconds: u64, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while !ready() {
        assert!(Instant::now() < end, "{what} did not come within {seconds} s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A running daemon: killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    log: PathBuf,
    name: &'static str,
}

impl Daemon {
    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"))
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it as nothing can be refused: SIGKILL.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, and waits.
    ///
    /// # Panics
    /// When it does not within 20 s or fails.
    pub fn stop(mut self) {
        kill(self.pid(), Signal::SIGTERM).expect("signal");
        let mut status = None;
        wait_for("the daemon's end", 20, || {
            status = self.child.try_wait().expect("wait");
            status.is_some()
        });
        assert!(status.is_some_and(|s| s.success()), "{} ended with {status:?}:\n{}", self.name, self.log());
    }

    /// Waits for its end by itself.
    ///
    /// # Panics
    /// When it does not end within `seconds`.
    pub fn ended(&mut self, seconds: u64) -> std::process::ExitStatus {
        let mut status = None;
        wait_for("the daemon's own end", seconds, || {
            status = self.child.try_wait().expect("wait");
            status.is_some()
        });
        status.expect("a status")
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            eprintln!("--- {} log ({}), last lines:", self.name, self.log.display());
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
    }
}

fn spawn(place: &Place, name: &'static str, mut command: Command) -> Daemon {
    let log = place.root().join(format!("{name}.log"));
    let file = File::options().create(true).append(true).open(&log).expect("open the log");
    let errors = file.try_clone().expect("clone");
    let child = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn().expect("start a daemon");
    Daemon { child, log, name }
}

/// A command that runs `program` by way of `prefix`, such as a tracer; of `program` alone when that is empty.
fn under(prefix: &[String], program: PathBuf) -> Command {
    match prefix {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    }
}

/// Starts the helper without waiting for it, with environment variables.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn spawn_helper(place: &Place, env: &[(&str, &str)]) -> Daemon {
    let mut command = Command::new(bin("bcd-helper"));
    command.arg("--config").arg(place.config()).envs(env.iter().copied());
    spawn(place, "helper", command)
}

/// Starts the helper by way of another program, without waiting for it.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn spawn_helper_under(place: &Place, prefix: &[String]) -> Daemon {
    let mut command = under(prefix, bin("bcd-helper"));
    command.arg("--config").arg(place.config());
    spawn(place, "helper", command)
}

/// Starts the helper and waits until it answers.
///
/// # Panics
/// When it does not.
#[must_use]
pub fn helper(place: &Place) -> Daemon {
    helper_under(place, &[])
}

/// Starts the helper by way of another program and waits until it answers.
///
/// # Panics
/// When it does not.
#[must_use]
pub fn helper_under(place: &Place, prefix: &[String]) -> Daemon {
    let mut daemon = spawn_helper_under(place, prefix);
    wait_for("the helper's socket", 30, || {
        assert!(daemon.is_alive(), "the helper ended:\n{}", daemon.log());
        Wire::of_node(place).is_ok()
    });
    daemon
}

/// Starts the node as its user with no capability at all, without waiting for it.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn spawn_node(place: &Place) -> Daemon {
    spawn_node_under(place, &[])
}

/// Starts the node so by way of another program, which root runs, without waiting for it.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn spawn_node_under(place: &Place, prefix: &[String]) -> Daemon {
    let mut command = under(prefix, PathBuf::from("setpriv"));
    command
        .args(["--reuid", &place.node_uid().to_string(), "--regid", &place.node_gid().to_string(), "--clear-groups"])
        .args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"])
        .arg(bin("bcd"))
        .args(["node", "--config"])
        .arg(place.config());
    command.process_group(0);
    spawn(place, "node", command)
}

/// Starts the node and waits for its API's socket.
///
/// # Panics
/// When it does not come.
#[must_use]
pub fn node(place: &Place) -> Daemon {
    node_under(place, &[])
}

/// Starts the node by way of another program and waits for its API's socket.
///
/// # Panics
/// When it does not come.
#[must_use]
pub fn node_under(place: &Place, prefix: &[String]) -> Daemon {
    let mut daemon = spawn_node_under(place, prefix);
    wait_for("the node's socket", 60, || {
        assert!(daemon.is_alive(), "the node ended:\n{}", daemon.log());
        std::os::unix::net::UnixStream::connect(place.node_socket()).is_ok()
    });
    daemon
}

/// Starts a standalone node as root, without waiting for it.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn spawn_standalone(place: &Place, env: &[(&str, &str)]) -> Daemon {
    let mut command = Command::new(bin("bcd"));
    command.arg("--config").arg(place.config()).args(["node", "--standalone"]).envs(env.iter().copied());
    command.process_group(0);
    spawn(place, "standalone", command)
}

/// Starts a standalone node and waits for its API's socket.
///
/// # Panics
/// When it does not come.
#[must_use]
pub fn standalone(place: &Place) -> Daemon {
    let mut daemon = spawn_standalone(place, &[]);
    wait_for("the standalone node's socket", 30, || {
        assert!(daemon.is_alive(), "the node ended:\n{}", daemon.log());
        std::os::unix::net::UnixStream::connect(place.node_socket()).is_ok()
    });
    daemon
}
