//! The console of a real guest: from its first line, for several clients, one of which stops reading, across restarts of
//! the guest and of the node.
use bcd_tests::daemons::{self, bin, wait_for};
use bcd_tests::pair::{Pair, Wish};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

/// A `bcd console` whose output is collected.
struct Client {
    child: Child,
    typed: ChildStdin,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Client {
    fn attach(pair: &Pair, id: &str) -> Self {
        let mut child = spawn(pair, &["console", id]);
        let typed = child.stdin.take().expect("piped");
        let mut output = child.stdout.take().expect("piped");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&shown);
        thread::spawn(move || {
            let mut piece = [0_u8; 4096];
            while let Ok(count @ 1..) = output.read(&mut piece) {
                collected.lock().expect("not poisoned").extend_from_slice(&piece[..count]);
            }
        });
        Self { child, typed, shown }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("not poisoned")).into_owned()
    }

    /// Waits until `text` was shown `times` times.
    fn wait(&self, text: &str, times: usize, seconds: u64) {
        wait_for(&format!("{text:?} on the console"), seconds, || self.shown().matches(text).count() >= times);
    }

    fn type_line(&mut self, line: &str) {
        self.typed.write_all(format!("{line}\r").as_bytes()).expect("type");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(pair: &Pair, arguments: &[&str]) -> Child {
    let mut command = Command::new(bin("bcd"));
    command.arg("--config").arg(pair.place.config()).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("run bcd")
}

#[test]
fn consoles_show_a_boot_from_its_first_line_and_outlive_clients_guests_and_nodes() {
    if !bcd_tests::real("consoles_show_a_boot_from_its_first_line_and_outlive_clients_guests_and_nodes") {
        return;
    }
    let Some(mut pair) = Pair::start("consoles", &["con"], "") else { return };
    // At once: a node that has just started has not looked at its host yet, and must not refuse because of that.
    pair.apply(&[Wish::running("con")], &[]);
    wait_for("the instance in the status", 30, || pair.instance("con").is_some());
    // Attached before there is a guest: it waits for one.
    let mut first = Client::attach(&pair, "con");
    first.wait("bcd-guest: con is up", 1, 180);
    let boot = first.shown();
    assert_eq!(boot.matches("bcd-guest: kernel up").count(), 1, "the first line is there, once: {boot}");
    assert!(pair.up_line("con").contains("bcd-guest: kernel up"), "a late client sees the boot too");

    // `--until` took the input over with its attach; so does whoever comes next, and the one before is told.
    first.wait("another client has taken over the input", 1, 10);
    let mut second = Client::attach(&pair, "con");
    second.wait("con# ", 1, 30);
    second.type_line("echo $((6 * 7)) is the answer");
    second.wait("\r\n42 is the answer", 1, 60);
    first.wait("\r\n42 is the answer", 1, 10);
    first.type_line("echo never $((1 + 1))");

    // A client that reads nothing: what the guest prints, all of it, reaches the others.
    let mut stuck = spawn(&pair, &["console", "con", "--read-only"]);
    second.type_line("head -c 2500000 /dev/zero | tr '\\0' x; echo; echo printed $((40 + 2))");
    second.wait("printed 42", 1, 240);
    let printed = second.shown().matches('x').count();
    assert!(printed >= 2_500_000, "{printed}");
    assert!(!second.shown().contains("never 2"), "what a reader types does not arrive");
    let mut rest = Vec::new();
    stuck.stdout.take().expect("piped").read_to_end(&mut rest).expect("it ends, for its session has ended");
    assert!(stuck.wait().expect("ended").success());
    let rest = String::from_utf8_lossy(&rest).into_owned();
    assert!(
        rest.contains("bcd-guest: con is up") && !rest.contains("printed 42"),
        "it did not keep up: {}",
        rest.len()
    );

    // The node goes and comes back; the guest goes on, and so does its backlog.
    pair.node.take().expect("runs").kill();
    pair.node = Some(daemons::node(&pair.place));
    let mut third = Client::attach(&pair, "con");
    third.wait("bytes are left out here]", 1, 30);
    assert!(third.shown().contains("bcd-guest: kernel up"), "the boot is kept");
    wait_for("the console to be open again", 30, || {
        third.type_line("echo back $((2 + 3))");
        thread::sleep(std::time::Duration::from_secs(2));
        third.shown().contains("back 5")
    });

    // The guest goes and is started again: the same client sees both, and the backlog is the new start's.
    third.type_line("off");
    third.wait("the guest is stopped]", 1, 60);
    third.wait("the guest is started]", 1, 60);
    third.wait("bcd-guest: con is up", 2, 180);
    let late = pair.up_line("con");
    assert_eq!(late.matches("bcd-guest: kernel up").count(), 1, "one boot: {late}");
    assert!(!late.contains("left out here"), "the boot before is gone: {late}");

    pair.apply(&[], &["--allow-delete"]);
    third.wait("the instance is deleted]", 1, 60);
    pair.wait_gone("con", 60);
}
