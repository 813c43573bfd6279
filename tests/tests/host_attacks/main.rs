//! What somebody gets who has a shell on the host: as the node's user, inside a guest's QEMU, or as any other user. Each attack is
//! a command; root runs it first, where it does no harm, so that one that could not succeed for anybody proves nothing.
mod files;
mod host_wide;
mod processes;

use bcd_tests::daemons::wait_for;
use bcd_tests::domains::{self, Foreign};
use bcd_tests::host::{self, DATA, ok, unit};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

/// A domain of the administrator's, with a disk and a running QEMU of its own.
const FOREIGN: &str = "administrators";
const FOREIGN_DISK: &str = "/var/lib/libvirt/images/administrators.raw";

/// One attack.
struct Attack {
    name: String,
    command: String,
    /// Whether root can do it, which is tried first.
    root_can: bool,
}

fn attack(name: impl Into<String>, command: impl Into<String>) -> Attack {
    Attack { name: name.into(), command: command.into(), root_can: true }
}

/// One that would do harm if root tried it, or that root cannot do either.
fn untried(name: impl Into<String>, command: impl Into<String>) -> Attack {
    Attack { root_can: false, ..attack(name, command) }
}

/// What attacks aim at.
struct Target {
    /// Name and pid of processes that are root's or a guest's.
    pids: Vec<(&'static str, String)>,
    /// The uid of a guest's QEMU.
    uid: String,
    /// That guest's serial port on this host.
    pty: String,
    /// The directory of QEMU's monitor of another guest.
    monitor: String,
    /// The base image of both guests: by its name, since whoever cannot list the directory cannot expand a pattern in it.
    base: String,
}

const CONNECT: &str = "python3 -c 'import socket,sys; s=socket.socket(socket.AF_UNIX, int(sys.argv[1])); s.settimeout(5); s.connect(sys.argv[2])'";

/// Connects to a unix socket.
fn connect(path: &str) -> String {
    format!("{CONNECT} 1 {path}")
}

/// Connects to the helper.
fn connect_helper() -> String {
    format!("{CONNECT} 5 {}", host::HELPER_SOCKET)
}

/// Runs each command in a shell of its own as somebody; which of them succeeded.
fn successes(somebody: &[&str], commands: &[&str]) -> Vec<bool> {
    let mut script = String::new();
    for command in commands {
        let _ = writeln!(script, "( {command}\n) </dev/null >/dev/null 2>&1; echo $?");
    }
    let mut words = somebody.to_vec();
    words.extend(["bash", "-c", &script]);
    let output = Command::new(words[0]).args(&words[1..]).current_dir("/").output().expect("run a shell");
    let codes: Vec<bool> = String::from_utf8_lossy(&output.stdout).lines().map(|code| code == "0").collect();
    assert_eq!(codes.len(), commands.len(), "the shell was cut short: {}", String::from_utf8_lossy(&output.stderr));
    codes
}

/// Has somebody try all of it; panics with what succeeded.
/// `proven` are commands that root was seen to be able to run.
fn nothing_succeeds(somebody: &[&str], attacks: &[Attack], proven: &mut BTreeSet<String>) {
    let tried: Vec<&Attack> =
        attacks.iter().filter(|attack| attack.root_can && proven.insert(attack.command.clone())).collect();
    let commands: Vec<&str> = tried.iter().map(|attack| attack.command.as_str()).collect();
    let impossible: Vec<&str> = successes(&["env"], &commands)
        .into_iter()
        .zip(&tried)
        .filter(|(done, _)| !done)
        .map(|(_, attack)| attack.command.as_str())
        .collect();
    assert!(impossible.is_empty(), "root cannot do these either:\n{}", impossible.join("\n"));
    let commands: Vec<&str> = attacks.iter().map(|attack| attack.command.as_str()).collect();
    let succeeded: Vec<String> = successes(somebody, &commands)
        .into_iter()
        .zip(attacks)
        .filter(|(done, _)| *done)
        .map(|(_, attack)| format!("{}: {}", attack.name, attack.command))
        .collect();
    assert!(succeeded.is_empty(), "{} of {} succeeded:\n{}", succeeded.len(), attacks.len(), succeeded.join("\n"));
    eprintln!(
        "{}: none of {} attacks succeeded; {} of them root can do",
        somebody.join(" "),
        attacks.len(),
        tried.len()
    );
}

/// Everything that must be as it was afterwards.
fn still(pids: &[(&'static str, String)]) -> String {
    let mut all = String::new();
    for (name, pid) in pids {
        let _ = writeln!(all, "{name} {pid} {}", ok(&format!("stat -c %Y /proc/{pid}")));
    }
    for file in ["/etc/passwd", "/etc/shadow", "/etc/group", host::CONFIG, FOREIGN_DISK] {
        let _ = writeln!(all, "{file} {}", ok(&format!("sha256sum <{file}; stat -c '%u %g %a' {file}")));
    }
    let _ = writeln!(
        all,
        "{}",
        ok("systemctl list-unit-files --no-legend --plain; systemctl list-units --failed --no-legend --plain")
    );
    let _ = writeln!(
        all,
        "{}",
        ok("virsh -q -c qemu:///system list --all; ip -o link | sort | cut -d' ' -f2-6; findmnt -rn -o TARGET,SOURCE")
    );
    all
}

#[test]
fn neither_the_nodes_user_nor_a_vmm_nor_anybody_else_gets_further() {
    if !host::inside("neither_the_nodes_user_nor_a_vmm_nor_anybody_else_gets_further") {
        return;
    }
    let operator = host::empty();
    let secret = "/etc/bcd/secrets/test";
    let _ =
        ok(&format!("install -o bcd -g bcd -m 600 /dev/null {secret} && printf '#cloud-config\\n{{}}\\n' >{secret}"));
    let _ = operator.apply(&[host::wired("first", 21), host::wired("second", 22)], &[]);
    for id in ["first", "second"] {
        let _ = operator.up_line(id);
    }
    let _ = ok(&format!("truncate -s 1M {FOREIGN_DISK} && chmod 600 {FOREIGN_DISK}"));
    let connection = domains::connect();
    let foreign = Foreign::define(&connection, FOREIGN, None);
    foreign.domain().create().expect("start the administrator's domain");
    let foreign_pid = ok(&format!("pgrep -f 'guest={FOREIGN},'"));
    let qemu = |id: &str| domains::qemu_pid(id).expect("QEMU runs").to_string();
    let target = Target {
        pids: vec![
            ("init", "1".to_owned()),
            ("helper", unit("bcd-helper.service", "MainPID")),
            ("libvirtd", unit("libvirtd.service", "MainPID")),
            ("the administrator's QEMU", foreign_pid),
            ("another guest's QEMU", qemu("second")),
        ],
        uid: ok(&format!("stat -c %u /proc/{}", qemu("first"))),
        pty: ok("virsh -q -c qemu:///system ttyconsole bcd-second"),
        monitor: ok("ls -d /var/lib/libvirt/qemu/domain-*-bcd-second"),
        base: format!("{DATA}/images/{}.qcow2", operator.sha256),
    };
    let before = still(&target.pids);

    let mut proven = BTreeSet::new();
    let user = ["setpriv", "--reuid", "bcd", "--regid", "bcd", "--init-groups"];
    let mut attacks = processes::attacks(&target);
    attacks.extend(files::of_root());
    attacks.extend(files::beyond_the_node(&target));
    attacks.extend(host_wide::attacks());
    nothing_succeeds(&user, &attacks, &mut proven);
    // What it may do, so that the shell was one.
    assert_eq!(successes(&user, &[&connect_helper(), &format!("ls {DATA}/instances")]), [true, true]);

    let vmm = ["setpriv", "--reuid", &target.uid, "--regid", "kvm", "--clear-groups"];
    let mut attacks = processes::attacks(&target);
    attacks.extend(files::of_root());
    attacks.extend(files::of_the_node(&target));
    attacks.extend(files::of_another_guest(&target));
    attacks.extend(host_wide::attacks());
    attacks.push(attack("connect to the helper", connect_helper()));
    attacks.push(attack("connect to the node", connect("/run/bcd/node/node.sock")));
    nothing_succeeds(&vmm, &attacks, &mut proven);
    let own = [format!("head -c 1 {DATA}/instances/first/disk.qcow2"), format!("head -c 1 {}", target.base)];
    assert_eq!(successes(&vmm, &[&own[0], &own[1]]), [true, true], "its own disk, and the base it lies on");

    let nobody = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"];
    attacks.push(attack("a guest's disk", format!("head -c 1 {DATA}/instances/first/disk.qcow2")));
    attacks.push(attack("a base image", format!("head -c 1 {}", target.base)));
    nothing_succeeds(&nobody, &attacks, &mut proven);

    assert_eq!(still(&target.pids), before, "something changed");
    wait_for("both guests as they were", 10, || host::pings(21) && host::pings(22));
    drop(foreign);
    let _ = ok(&format!("rm {FOREIGN_DISK} {secret}"));
    host::clear(&operator);
}
