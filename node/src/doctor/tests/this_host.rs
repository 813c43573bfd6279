//! Gathering: words of the kernel and of tools, and this very host.
use super::gather::{ask, configured, gather, host, output_of};
use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn cpu_flags_are_whole_words_of_the_flags_line() {
    assert!(host::cpu_flags("processor\t: 0\nflags\t\t: fpu vme vmx ssse3\n"));
    assert!(host::cpu_flags("flags\t\t: fpu\n\nflags\t\t: svm\n"));
    assert!(!host::cpu_flags("flags\t\t: fpu vmxoff svm_lock\nmodel name\t: svm vmx\nvmx flags\t: vnmi vmx\n"));
    assert!(!host::cpu_flags(""));
}

#[test]
fn memory_is_read_in_bytes() {
    assert_eq!(host::mem_total("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16_384 * 1024));
    assert_eq!(host::mem_total("MemFree: 1 kB\n"), None);
    assert_eq!(host::mem_total("MemTotal: many kB\n"), None);
}

#[test]
fn versions_are_read_from_what_programs_say() {
    assert_eq!(host::systemd_version("systemd 252 (252.38-1~deb12u1)\n+PAM +AUDIT\n"), Some(252));
    assert_eq!(host::systemd_version("systemd 257~rc2 (257)\n"), Some(257));
    assert_eq!(host::systemd_version("systemctl 252\n"), None);
    assert_eq!(host::vmm_version("cloud-hypervisor v54.0.0\n").as_deref(), Some("54.0.0"));
    assert_eq!(host::vmm_version("cloud-hypervisor v40.0-12-gabcdef-dirty\n").as_deref(), Some("40.0"));
    assert_eq!(host::vmm_version("cloud-hypervisor\n"), None);
}

#[test]
fn this_host_is_looked_at_without_a_node_or_a_configuration() {
    let facts = gather(Path::new("/no-such-bcd.toml"), None);
    assert_eq!(facts.configuration, Configuration::Missing(PathBuf::from("/no-such-bcd.toml")));
    assert!(facts.configured.is_none());
    assert!(facts.host.memory.is_some_and(|m| m > 1 << 20));
    assert!(facts.host.seccomp);
}

#[test]
fn what_a_configuration_names_is_looked_at_where_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().to_str().unwrap();
    let (file, secrets) = (dir.path().join("bcd.toml"), dir.path().join("secrets"));
    std::fs::create_dir(&secrets).unwrap();
    for (name, mode) in [("closed", 0o600), ("open", 0o640)] {
        std::fs::write(secrets.join(name), "x").unwrap();
        std::fs::set_permissions(secrets.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap();
    // Whoever runs this test owns the files; root is no node user, and nobody (the user) owns none of them.
    let node_user = if user.uid.is_root() { "nobody".to_owned() } else { user.name };
    let text = format!(
        "data_dir = \"{top}/data\"\n[node]\nsecrets = \"{top}/secrets\"\napi = \"{top}/node.sock\"\n[helper]\nnode_user = \
         \"{node_user}\"\nsocket = \"{top}/helper.sock\"\nstate_dir = \"{top}/state\"\ninstance_bridges = \
         [\"no-such-bridge\", \"lo\"]\n[libvirt]\nuri = \"qemu:///system?socket={top}/none\"\n"
    );
    std::fs::write(&file, &text).unwrap();
    let config = Config::parse(&text).unwrap();
    let named = configured(&file, &text, config, &Ok(Some(107)), None);
    let bridges: Vec<Interface> = named.bridges.iter().map(|(_, interface)| *interface).collect();
    assert_eq!(bridges, [Interface::Missing, Interface::Other]);
    assert_eq!(named.virtlogd, None, "another libvirt than the host's keeps its logs elsewhere");
    assert_eq!(named.data_dir.way.last().unwrap().seen, Seen::Missing);
    let found = ask::loose_secrets(&secrets).unwrap();
    assert_eq!(found.named.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["open"]);
    if user.uid.is_root() {
        // Root asks nothing of the node's user by itself.
        assert_eq!(named.probe, Err(Unasked::NoUser));
        return;
    }
    let probe = named.probe.unwrap();
    assert!(matches!(&probe.helper, Helper::Unreachable(why) if why.as_str().contains("helper.sock")), "{probe:?}");
    assert!(matches!(&probe.node, Node::Unreachable(why) if why.as_str().contains("node.sock")), "{probe:?}");
    assert!(probe.libvirt.is_err());
}

#[test]
fn a_program_that_says_too_much_is_told_from_one_that_fails() {
    let said = |script: &str| {
        let mut shell = std::process::Command::new("/bin/sh");
        output_of(shell.args(["-c", script]), "", std::time::Duration::from_secs(20), 10)
    };
    assert_eq!(said("printf 0123456789").as_deref(), Ok("0123456789"));
    for script in ["yes", "printf 0123456789a", "printf 0123456789a; exit 1"] {
        assert_eq!(said(script), Err("it says too much".into()), "{script}");
    }
    assert_eq!(said("echo no >&2; exit 1"), Err("no".into()));
}

/// As a helper that answers somebody else alone: it hangs up on each connection, and takes the first one late.
#[test]
fn a_helper_whose_backlog_is_full_listens_all_the_same() {
    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept, bind, connect, listen, socket,
    };
    use std::os::fd::AsRawFd;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("helper.sock");
    let address = UnixAddr::new(&path).unwrap();
    let made = |flags| socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
    let server = made(SockFlag::SOCK_CLOEXEC);
    bind(server.as_raw_fd(), &address).unwrap();
    listen(&server, Backlog::new(1).unwrap()).unwrap();
    let mut waiting = Vec::new();
    loop {
        let client = made(SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC);
        match connect(client.as_raw_fd(), &address) {
            Ok(()) => waiting.push(client),
            Err(errno) => break assert_eq!(errno, nix::errno::Errno::EAGAIN),
        }
    }
    assert!(!waiting.is_empty());
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        while let Ok(taken) = accept(server.as_raw_fd()) {
            nix::unistd::close(taken).unwrap();
        }
    });
    let own = nix::unistd::geteuid().as_raw();
    assert_eq!(ask::helper(&path, own, false), Helper::Listens);
    let another = ask::helper(&path, own + 1, false);
    assert!(matches!(another, Helper::Unreachable(_)), "somebody else's: {another:?}");
}

#[test]
fn a_directory_that_everybody_may_write_is_found_on_the_way() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let file = dir.path().join("bcd.toml");
    std::fs::write(&file, "").unwrap();
    let found: Vec<Finding> = judge(&gather(&file, None)).into_iter().filter(|f| f.check == "configuration").collect();
    assert!(found.iter().any(|f| f.level == Level::Fail && f.found.starts_with("/tmp has mode 1777")), "{found:?}");
}
