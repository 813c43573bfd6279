//! systemd's watchdog: each daemon feeds it for as long as it does its work, and what others do or fail to do is no reason
//! to stop.
use bcd_tests::daemons::{bin, wait_for};
use bcd_tests::place::Place;
use bcd_tests::wire::Wire;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the service manager asks for, microseconds.
const ASKED: u64 = 900_000;

/// A daemon under a service manager that this test plays.
struct Watched {
    child: Child,
    manager: UnixDatagram,
    log: PathBuf,
}

impl Watched {
    /// Runs `program` with `arguments`; `whose` is the pid that the watchdog is for, in the shell's words.
    fn start(place: &Place, name: &str, program: &[&str], whose: &str) -> Self {
        let socket = place.root().join("run").join(format!("{name}.notify"));
        let manager = UnixDatagram::bind(&socket).expect("a notification socket");
        // As systemd's own: the helper has no capability in force that would let it write to another user's.
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).expect("chmod");
        let script = format!("export WATCHDOG_PID={whose}; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", script.as_str(), "sh"]).args(program).env("NOTIFY_SOCKET", &socket);
        let log = place.root().join(format!("{name}.log"));
        let file = std::fs::File::create(&log).expect("a log");
        command.env("WATCHDOG_USEC", ASKED.to_string()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        Self { child: command.spawn().expect("start"), manager, log }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"))
    }

    /// The next thing it says, if it says one within `time`.
    fn says(&self, time: Duration) -> Option<String> {
        let mut text = [0; 256];
        self.manager.set_read_timeout(Some(time)).expect("a timeout");
        let length = self.manager.recv(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text[..length]).trim().to_owned())
    }

    /// Holds that it feeds the watchdog `times` times, each within what was asked for.
    fn feeds(&self, times: u32) {
        for nth in 0..times {
            let said = self.says(Duration::from_micros(ASKED));
            assert_eq!(said.as_deref(), Some("WATCHDOG=1"), "feed {nth}");
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- its log:\n{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

fn helper(place: &Place, whose: &str) -> Watched {
    let (program, config) = (bin("bcd-helper"), place.config());
    let words = [&program.display().to_string(), "--config", &config.display().to_string()];
    let helper = Watched::start(place, "helper", &words, whose);
    assert_eq!(helper.says(Duration::from_secs(30)).as_deref(), Some("READY=1"));
    helper
}

#[test]
fn the_helper_feeds_the_watchdog_while_it_is_flooded_and_not_while_it_hangs() {
    if !bcd_tests::real("the_helper_feeds_the_watchdog_while_it_is_flooded_and_not_while_it_hangs") {
        return;
    }
    let place = Place::new("watchdog");
    let helper = helper(&place, "$$");
    helper.feeds(3);
    let (socket, uid, gid) = (place.helper_socket(), place.node_uid().as_raw(), place.node_gid().as_raw());
    let end = Instant::now() + Duration::from_secs(3);
    let flood = std::thread::spawn(move || {
        let mut connections = 0_u32;
        while Instant::now() < end {
            connections += u32::from(Wire::connect_as(&socket, uid, gid).is_ok());
        }
        connections
    });
    helper.feeds(8);
    assert!(flood.join().expect("the flood") > 500, "that was no flood");

    kill(helper.pid(), Signal::SIGSTOP).expect("signal");
    let mut late = 0;
    while helper.says(Duration::from_micros(2 * ASKED)).is_some() {
        late += 1;
        assert!(late < 8, "it hangs, and something feeds the watchdog");
    }
    kill(helper.pid(), Signal::SIGCONT).expect("signal");
    helper.feeds(2);
    kill(helper.pid(), Signal::SIGTERM).expect("signal");
    wait_for("its goodbye", 10, || helper.says(Duration::from_secs(1)).as_deref() == Some("STOPPING=1"));
}

#[test]
fn a_watchdog_of_another_process_is_not_fed() {
    if !bcd_tests::real("a_watchdog_of_another_process_is_not_fed") {
        return;
    }
    let place = Place::new("watchdog-other");
    let helper = helper(&place, "1");
    assert_eq!(helper.says(Duration::from_micros(2 * ASKED)), None);
}

#[test]
fn a_helper_that_hangs_does_not_keep_the_node_from_feeding_its_watchdog() {
    if !bcd_tests::real("a_helper_that_hangs_does_not_keep_the_node_from_feeding_its_watchdog") {
        return;
    }
    let place = Place::new("watchdog-node");
    let helper = helper(&place, "$$");
    let (uid, gid) = (place.node_uid().to_string(), place.node_gid().to_string());
    let (program, config) = (bin("bcd").display().to_string(), place.config().display().to_string());
    let user =
        ["setpriv", "--reuid", &uid, "--regid", &gid, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];
    let node = [&user[..], &["--no-new-privs", &program, "node", "--config", &config]].concat();
    let node = Watched::start(&place, "node", &node, "$$");
    assert_eq!(node.says(Duration::from_secs(30)).as_deref(), Some("READY=1"));
    node.feeds(3);
    kill(helper.pid(), Signal::SIGSTOP).expect("signal");
    node.feeds(12);
    kill(helper.pid(), Signal::SIGCONT).expect("signal");
}
