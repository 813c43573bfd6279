//! The systemd units: each restriction is there, and none contradicts what the programs do.
use super::{path, read};
use bcd_tests::sources;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// What a unit says: `Section.Key` to its values in order, an empty value included.
fn unit(name: &str) -> BTreeMap<String, Vec<String>> {
    let (mut section, mut said) = (String::new(), BTreeMap::<String, Vec<String>>::new());
    for line in read(&format!("packaging/systemd/{name}")).lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            said.entry(format!("{section}.{key}")).or_default().push(value.to_owned());
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "{name}: {line:?}");
        }
    }
    said
}

fn words(said: &BTreeMap<String, Vec<String>>, key: &str) -> Vec<String> {
    let values = said.get(key).unwrap_or_else(|| panic!("no {key}"));
    values.iter().flat_map(|value| value.split_whitespace()).map(str::to_owned).collect()
}

fn one<'a>(said: &'a BTreeMap<String, Vec<String>>, key: &str) -> &'a str {
    match said.get(key).map(Vec::as_slice) {
        Some([value]) => value,
        other => panic!("{key} is {other:?}"),
    }
}

const SERVICES: [&str; 2] = ["bcd-helper.service", "bcd-node.service"];

/// Restrictions of both services.
const BOTH: &str = "
    NoNewPrivileges=yes ProtectSystem=strict ProtectHome=yes PrivateTmp=yes PrivateMounts=yes PrivateDevices=yes
    DevicePolicy=closed ProtectProc=invisible ProtectKernelTunables=yes ProtectKernelModules=yes ProtectKernelLogs=yes
    ProtectControlGroups=yes ProtectClock=yes ProtectHostname=yes LockPersonality=yes MemoryDenyWriteExecute=yes
    RestrictNamespaces=yes RestrictRealtime=yes SystemCallArchitectures=native RemoveIPC=yes
    KeyringMode=private UMask=0077 AmbientCapabilities= SocketBindDeny=any NoExecPaths=/ LimitCORE=0 LimitMEMLOCK=0
    MemorySwapMax=0 SystemCallErrorNumber=EPERM OOMPolicy=continue NotifyAccess=main PrivateUsers=no";

#[test]
fn both_services_have_every_restriction() {
    for name in SERVICES {
        let said = unit(name);
        for pair in BOTH.split_whitespace() {
            let (key, value) = pair.split_once('=').expect("a pair");
            assert_eq!(one(&said, &format!("Service.{key}")), value, "{name}: {key}");
        }
        for bound in ["MemoryMax", "TasksMax", "LimitNOFILE", "OOMScoreAdjust", "WatchdogSec", "ExecPaths"] {
            assert!(!one(&said, &format!("Service.{bound}")).is_empty(), "{name}: {bound}");
        }
        let calls = words(&said, "Service.SystemCallFilter");
        assert_eq!(calls.first().map(String::as_str), Some("@system-service"), "{name}: a list of what is allowed");
    }
}

/// What the units' own filter would take from the daemons' own sandbox, and from the walk to an instance's files.
#[test]
fn the_units_leave_the_daemons_what_they_restrict_themselves_with() {
    for name in SERVICES {
        let calls = words(&unit(name), "Service.SystemCallFilter");
        for call in ["seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"] {
            assert!(calls.iter().any(|listed| listed == call), "{name}: {call}");
        }
    }
    let restricts = |name: &str| one(&unit(name), "Service.RestrictSUIDSGID") == "yes";
    for (name, sources, restricted) in
        [("bcd-helper.service", "helper/src/observe.rs", false), ("bcd-node.service", "node/src/share/held.rs", true)]
    {
        assert_eq!(restricts(name), restricted, "{name}");
        let calls = read(sources).contains("openat2(");
        assert_eq!(calls, !restricted, "{sources}: RestrictSUIDSGID= makes openat2 fail");
    }
}

#[test]
fn the_daemons_come_back_by_themselves_for_ever_and_stop_for_no_other_unit() {
    for name in SERVICES {
        let said = unit(name);
        assert_eq!(one(&said, "Service.Type"), "notify");
        assert_eq!(one(&said, "Service.Restart"), "always");
        assert_eq!(one(&said, "Unit.StartLimitIntervalSec"), "0", "a limit would need a person after it");
        for key in ["BindsTo", "PartOf", "Requisite", "Conflicts"] {
            assert!(!said.contains_key(&format!("Unit.{key}")), "{name}: {key} stops it with another unit");
        }
        let required = said.get("Unit.Requires").cloned().unwrap_or_default();
        let allowed: &[&str] = if name == "bcd-helper.service" { &["bcd-helper.socket"] } else { &[] };
        assert_eq!(required, allowed, "{name}: libvirtd may go and come");
        assert!(words(&said, "Unit.After").iter().any(|unit| unit == "libvirtd.service"));
        assert_eq!(one(&said, "Service.KillMode"), "mixed");
        assert!(!said.contains_key("Service.Delegate"), "no guest lies in the daemons' control groups");
    }
    assert!(words(&unit("bcd-node.service"), "Unit.After").iter().any(|unit| unit == "libvirt-guests.service"));
}

#[test]
fn each_capability_in_the_units_is_one_that_the_code_keeps() {
    let mut granted = words(&unit("bcd-helper.service"), "Service.CapabilityBoundingSet");
    let kept = sources::kept_capabilities();
    granted.sort();
    assert!(!kept.is_empty());
    assert!(granted.iter().eq(&kept), "{granted:?}, {kept:?}");
    assert_eq!(one(&unit("bcd-node.service"), "Service.CapabilityBoundingSet"), "", "the node has none");
}

/// The helper bounds what a peer can make it write; what is left are the events of its effects.
#[test]
fn journald_drops_no_audit_event() {
    assert_eq!(one(&unit("bcd-helper.service"), "Service.LogRateLimitIntervalSec"), "0");
}

#[test]
fn the_limits_are_those_that_the_code_wants() {
    let descriptors = |file: &str, before: &str| {
        let code = read(file);
        let (_, rest) = code.split_once(before).unwrap_or_else(|| panic!("{file}: no {before}"));
        rest.chars().take_while(char::is_ascii_digit).collect::<String>()
    };
    let helper = descriptors("helper/src/harden.rs", "Resource::RLIMIT_NOFILE, ");
    assert_eq!(one(&unit("bcd-helper.service"), "Service.LimitNOFILE"), helper);
    let node = descriptors("node/src/daemon/identity.rs", "const DESCRIPTORS: u64 = ");
    assert_eq!(one(&unit("bcd-node.service"), "Service.LimitNOFILE"), node);
}

#[test]
fn the_paths_in_the_units_are_the_defaults_of_the_configuration() {
    let config = bcd_protocol::config::Config::default();
    let socket = unit("bcd-helper.socket");
    assert_eq!(one(&socket, "Socket.ListenSequentialPacket"), config.helper.socket.to_string());
    assert_eq!(one(&socket, "Socket.SocketMode"), "0660");
    assert_eq!(one(&socket, "Socket.SocketUser"), "root");
    let user = config.helper.node_user.as_str();
    assert_eq!(one(&socket, "Socket.SocketGroup"), user);
    let (helper, node) = (unit("bcd-helper.service"), unit("bcd-node.service"));
    assert_eq!(one(&node, "Service.User"), user);
    let directory = |socket: &Path| socket.parent().expect("a directory").display().to_string();
    let (api, sockets) = (directory(config.node.api.as_path()), directory(config.helper.socket.as_path()));
    assert_eq!(words(&node, "Service.ReadWritePaths"), [format!("-{}", config.data_dir), format!("-{api}")]);
    assert_eq!(format!("/var/lib/{}", one(&helper, "Service.StateDirectory")), config.helper.state_dir.to_string());
    assert!(!helper.contains_key("Service.ReadWritePaths"), "nothing else is its to write");
    for said in [&helper, &node] {
        let hidden = words(said, "Service.InaccessiblePaths");
        for path in &hidden {
            let hides = |path: &str, other: &str| {
                format!("{other}/").starts_with(&format!("{}/", path.trim_start_matches('-')))
            };
            assert!(!hides(path, &config.data_dir.to_string()) && !hides(path, "/etc/libvirt"), "{path}");
        }
        assert!(one(said, "Service.ExecStart").contains(" --config /etc/bcd/bcd.toml"));
    }
    let places = read("packaging/bcd.tmpfiles");
    let [data, state, secrets] =
        [config.data_dir.to_string(), config.helper.state_dir.to_string(), config.node.secrets.to_string()];
    for (place, access) in [
        (&data, ["0710", user, user]),
        (&state, ["0700", "root", "root"]),
        (&secrets, ["0700", user, user]),
        // Root alone may put anything beside the helper's socket.
        (&sockets, ["0750", "root", user]),
        (&api, ["0710", user, user]),
    ] {
        let line = places.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let made = line.clone().find(|fields| fields.first() == Some(&"d") && fields.get(1) == Some(&place.as_str()));
        assert_eq!(made.as_deref().and_then(|fields| fields.get(2..5)), Some(&access[..]), "{place}");
    }
}

/// systemd empties and removes what it made for a unit when that unit stops, and gives it to that unit's user when it starts;
/// two units and two owners share these directories.
#[test]
fn no_unit_makes_the_directories_of_the_sockets_or_takes_them_away() {
    for name in ["bcd-helper.service", "bcd-node.service", "bcd-helper.socket"] {
        let said = unit(name);
        let keys = ["RuntimeDirectory", "RuntimeDirectoryMode", "DirectoryMode"];
        let told: Vec<_> =
            said.keys().filter(|key| keys.iter().any(|word| key.ends_with(&format!(".{word}")))).collect();
        assert!(told.is_empty(), "{name}: {told:?}");
    }
}

/// The exposure that systemd computes from a unit file alone; `None` where it cannot be asked.
fn exposure(name: &str) -> Option<f64> {
    let file = path("packaging/systemd").join(name);
    let asked =
        Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager"]).arg(file).output().ok()?;
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("Overall exposure level"))?;
    let number = line.rsplit_once(": ")?.1.split_whitespace().next()?;
    Some(number.parse().unwrap_or_else(|e| panic!("{line}: {e}")))
}

#[test]
fn systemd_rates_the_services_within_their_bounds() {
    let [Some(helper), Some(node)] = SERVICES.map(exposure) else {
        eprintln!("skipped: systemd-analyze cannot rate a unit file here");
        return;
    };
    assert!(node <= 1.3, "the node's exposure is {node}");
    assert!(helper <= 3.0, "the helper's exposure is {helper}");
}

#[test]
fn systemd_takes_every_line_of_the_units() {
    let files = ["bcd-helper.socket", "bcd-helper.service", "bcd-node.service", "bcd-instances.slice"];
    let files = files.map(|name| path("packaging/systemd").join(name));
    let Ok(asked) = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(files).output() else {
        eprintln!("skipped: there is no systemd-analyze here");
        return;
    };
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    // Not installed here, and other packages' units are not ours to judge.
    let ours = said.lines().filter(|line| line.contains("bcd-") && !line.contains("is not executable"));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new());
}
