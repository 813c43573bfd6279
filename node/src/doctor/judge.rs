//! What the facts mean and what to do about them.
//!
//! Room: `node`. Pure. Each check is one function; a check whose ground is missing (no configuration, no node user)
//! says so once, in the check of that ground.
use super::facts::{Configuration, Directory, Document, Facts, Helper, Interface, Landlock, Search};
use super::{Finding, Level};
use crate::cli::text::bytes;
use bcd_protocol::config::Accel;

/// Free space below which new images and disks will soon fail.
const FREE_LITTLE: u64 = 10 << 30;
/// Free space below which they fail now.
const FREE_NONE: u64 = 1 << 30;
/// Memory that an instance and its VMM need at the least.
const MEMORY_LEAST: u64 = 2 << 30;
/// The oldest kernel ABI of Landlock that gives bcd all it asks of files (6.1 has 2).
const LANDLOCK_FILES: i32 = 2;
/// A clock before this (2026-01-01) was never set: certificates of image servers would not hold.
const CLOCK_EARLIEST: u64 = 1_767_225_600;
/// A clock after this (2100-01-01) is as wrong.
const CLOCK_LATEST: u64 = 4_102_444_800;

/// Judges everything.
#[must_use]
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = configuration(facts);
    findings.push(node_user(facts));
    findings.extend(kvm(facts));
    findings.extend(libvirt(facts));
    findings.push(qemu_directory(facts));
    findings.push(helper(facts));
    findings.push(seed_tool(facts));
    findings.extend(bridges(facts));
    findings.extend(data_dir(facts));
    findings.push(secrets(facts));
    findings.extend(images(facts));
    findings.extend(document(facts));
    findings.push(sandbox(facts));
    findings.extend(memory(facts));
    findings.push(clock(facts));
    findings
}

fn ok(check: &str, found: impl Into<String>) -> Finding {
    Finding { level: Level::Ok, check: check.to_owned(), found: found.into(), remedy: None }
}

fn warn(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { level: Level::Warn, check: check.to_owned(), found: found.into(), remedy: Some(remedy.into()) }
}

fn fail(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { level: Level::Fail, check: check.to_owned(), found: found.into(), remedy: Some(remedy.into()) }
}

fn configuration(facts: &Facts) -> Vec<Finding> {
    let check = "configuration";
    match &facts.configuration {
        Configuration::Missing(path) => vec![warn(
            check,
            format!("there is no {}: the defaults hold", path.display()),
            "copy packaging/bcd.toml there, or name yours with --config",
        )],
        Configuration::Unreadable(path, why) => {
            vec![fail(
                check,
                format!("{} cannot be read: {why}", path.display()),
                "make it readable for everyone; it holds no secret",
            )]
        }
        Configuration::Wrong(path, why) => {
            vec![fail(
                check,
                format!("{} is not usable: {why}", path.display()),
                "correct that key; neither daemon starts before",
            )]
        }
        Configuration::Fine(path, open) if open.is_empty() => {
            vec![ok(check, format!("{} is fine and root's alone", path.display()))]
        }
        Configuration::Fine(_, open) => open
            .iter()
            .map(|part| {
                fail(check, part.clone(), "give it to root and let nobody else write: the helper does not start before")
            })
            .collect(),
    }
}

fn node_user(facts: &Facts) -> Finding {
    let name = facts.config.helper.node_user.as_str();
    match facts.node_user {
        Some((uid, _)) => ok("node-user", format!("user {name} exists, uid {uid}")),
        None => fail(
            "node-user",
            format!("there is no user {name}, which the node runs as"),
            format!("useradd --system --user-group --no-create-home --shell /usr/sbin/nologin {name}"),
        ),
    }
}

fn kvm(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(group) = facts.kvm_group else {
        findings.push(fail(
            "kvm-group",
            "there is no group kvm, which every VMM runs in",
            "apt-get install qemu-system-x86, or groupadd --system kvm",
        ));
        return findings;
    };
    findings.push(ok("kvm-group", format!("group kvm exists, gid {group}")));
    let needed = facts.config.libvirt.accel == Accel::Kvm;
    let lacking = |found: &str, remedy: &str| {
        if needed {
            fail("kvm", format!("{found}, and libvirt.accel asks for kvm"), remedy)
        } else {
            warn("kvm", format!("{found}: guests run on software emulation, many times slower"), remedy)
        }
    };
    findings.push(match (facts.config.libvirt.accel, facts.virtualisation, facts.kvm) {
        (Accel::Tcg, _, _) => ok("kvm", "not looked at: libvirt.accel asks for software emulation"),
        (Accel::Auto | Accel::Kvm, false, _) => lacking(
            "the CPU shows neither vmx nor svm",
            "switch virtualisation on in the firmware; in a virtual machine, nested virtualisation on its host",
        ),
        (Accel::Auto | Accel::Kvm, true, None) => {
            lacking("there is no /dev/kvm", "modprobe kvm_intel or kvm_amd, whichever the CPU is")
        }
        (Accel::Auto | Accel::Kvm, true, Some(_)) => ok("kvm", "hardware virtualisation is there"),
    });
    // libvirt probes QEMU anew on every define while QEMU cannot open the device: most of a minute each.
    if let Some(device) = facts.kvm
        && (device.gid != group || device.mode & 0o060 != 0o060)
        && device.mode & 0o006 != 0o006
    {
        findings.push(fail(
            "kvm-device",
            format!("/dev/kvm has mode {:04o} and gid {}: VMMs, in group kvm, cannot open it", device.mode, device.gid),
            "chgrp kvm /dev/kvm && chmod 660 /dev/kvm; udev's rules of qemu-system-x86 do that at boot",
        ));
    }
    findings
}

fn libvirt(facts: &Facts) -> Vec<Finding> {
    let uri = facts.config.libvirt.uri.as_str();
    let libvirt = match &facts.libvirt {
        Ok(libvirt) => libvirt,
        Err(why) => {
            return vec![fail(
                "libvirt",
                format!("no answer on {uri}: {why}"),
                "apt-get install libvirt-daemon-system and start libvirtd; this is its read-only socket, open to all",
            )];
        }
    };
    let mut findings = vec![match libvirt.qemu {
        Some(qemu) => {
            ok("libvirt", format!("libvirt {} with QEMU {} answers on {uri}", version(libvirt.version), version(qemu)))
        }
        None => fail(
            "libvirt",
            format!("libvirt {} answers on {uri} and knows no QEMU", version(libvirt.version)),
            "apt-get install qemu-system-x86, then restart libvirtd",
        ),
    }];
    if facts.virtlogd == Some(false) {
        findings.push(fail(
            "virtlogd",
            "virtlogd's socket is not there: libvirt refuses every start without it",
            "start virtlogd (systemctl start virtlogd.socket, or virtlogd -d)",
        ));
    }
    findings
}

fn version(number: u32) -> String {
    format!("{}.{}.{}", number / 1_000_000, number / 1000 % 1000, number % 1000)
}

fn qemu_directory(facts: &Facts) -> Finding {
    let check = "qemu-directory";
    match &facts.qemu_directory {
        Ok(Search::Allowed) => ok(check, "group kvm may search /var/lib/libvirt/qemu"),
        Ok(Search::Refused) => fail(
            check,
            "group kvm may not search /var/lib/libvirt/qemu: a VMM with a uid of its own cannot start",
            "setfacl -m g:kvm:x /var/lib/libvirt/qemu, again after each boot that makes it anew",
        ),
        Err(why) => warn(
            check,
            format!("whether group kvm may search /var/lib/libvirt/qemu cannot be seen: {why}"),
            "run bcd doctor as root, or install libvirt-daemon-system",
        ),
    }
}

fn helper(facts: &Facts) -> Finding {
    let socket = &facts.config.helper.socket;
    let own = env!("CARGO_PKG_VERSION");
    match &facts.helper {
        Helper::Welcome(version) if version == own => ok("helper", format!("bcd-helper {version} answers on {socket}")),
        Helper::Welcome(version) => warn(
            "helper",
            format!("bcd-helper is version {version}, this bcd {own}"),
            "restart the helper after an upgrade: guests go on meanwhile",
        ),
        Helper::Listens => ok(
            "helper",
            format!(
                "it listens on {socket}; it answers user {} alone, so its version was not asked",
                facts.config.helper.node_user.as_str()
            ),
        ),
        Helper::Forbidden => warn(
            "helper",
            format!("this user may not connect to {socket}"),
            format!("run bcd doctor as root or as {}", facts.config.helper.node_user.as_str()),
        ),
        Helper::Unreachable(why) => {
            fail("helper", why.clone(), "start bcd-helper --config FILE as root; docs/install.md shows a unit")
        }
    }
}

fn seed_tool(facts: &Facts) -> Finding {
    match facts.seed_tool {
        Some(tool) => ok("seed-tool", format!("{tool} makes seeds")),
        None => fail(
            "seed-tool",
            "neither genisoimage nor xorriso is installed: no instance gets its seed",
            "apt-get install genisoimage (or xorriso)",
        ),
    }
}

fn bridges(facts: &Facts) -> Vec<Finding> {
    if facts.bridges.is_empty() {
        return vec![warn(
            "bridges",
            "no bridge is listed: instances have no NIC",
            "list the bridges that instances may use in [helper] instance_bridges and restart the helper",
        )];
    }
    let each = facts.bridges.iter().map(|(name, interface)| match interface {
        Interface::Bridge { up: true } => ok("bridges", format!("bridge {name} is up")),
        Interface::Bridge { up: false } => warn(
            "bridges",
            format!("bridge {name} is down: guests on it reach nobody"),
            format!("ip link set {name} up"),
        ),
        Interface::Other => fail(
            "bridges",
            format!("{name} is no bridge: instances with a NIC on it cannot start"),
            "name a bridge in [helper] instance_bridges",
        ),
        Interface::Missing => fail(
            "bridges",
            format!("there is no bridge {name}: instances with a NIC on it cannot start"),
            format!("ip link add {name} type bridge && ip link set {name} up, and keep it in the host's network setup"),
        ),
    });
    each.collect()
}

fn data_dir(facts: &Facts) -> Vec<Finding> {
    let (check, path) = ("data-dir", &facts.config.data_dir);
    let user = facts.config.helper.node_user.as_str();
    let make = format!("install -d -o {user} -g {user} -m 0710 {path}");
    let (uid, mode, free) = match &facts.data_dir {
        Directory::Missing => return vec![fail(check, format!("there is no {path}"), make)],
        Directory::Unseen(why) => {
            return vec![warn(check, format!("{path} cannot be looked at: {why}"), "run bcd doctor as root")];
        }
        Directory::Other => return vec![fail(check, format!("{path} is no directory; a link is not followed"), make)],
        Directory::There { uid, mode, free } => (*uid, *mode, *free),
    };
    let mut findings = Vec::new();
    if let Some((node, _)) = facts.node_user
        && node != uid
    {
        findings.push(fail(
            check,
            format!("{path} belongs to uid {uid}, not to {user} (uid {node})"),
            format!("chown {user}: {path}"),
        ));
    }
    if mode & 0o007 != 0 {
        findings.push(warn(
            check,
            format!("{path} has mode {mode:04o}: other users of this host may look into it"),
            format!("chmod o= {path}"),
        ));
    }
    let room = free.map(|free| (bytes(free), free));
    match room {
        Some((shown, free)) if free < FREE_NONE => {
            findings.push(fail(
                check,
                format!("{path} has {shown} free"),
                "free space there, or move data_dir to a larger file system",
            ));
        }
        Some((shown, free)) if free < FREE_LITTLE => {
            findings.push(warn(
                check,
                format!("{path} has only {shown} free for images and disks"),
                "free space there",
            ));
        }
        Some((shown, _)) if findings.is_empty() => {
            findings.push(ok(check, format!("{path} is {user}'s, {shown} free")))
        }
        None if findings.is_empty() => findings.push(ok(check, format!("{path} is {user}'s"))),
        Some(_) | None => {}
    }
    findings
}

fn secrets(facts: &Facts) -> Finding {
    let (check, path) = ("secrets", &facts.config.node.secrets);
    let user = facts.config.helper.node_user.as_str();
    match &facts.secrets {
        Directory::Missing => ok(check, format!("there is no {path}: instances get no user data")),
        Directory::Unseen(why) => warn(check, format!("{path} cannot be looked at: {why}"), "run bcd doctor as root"),
        Directory::Other => fail(
            check,
            format!("{path} is no directory; a link is not followed"),
            "make it a directory, or set node.secrets",
        ),
        Directory::There { mode, .. } if mode & 0o077 != 0 => warn(
            check,
            format!("{path} has mode {mode:04o}: others than its owner may look into it"),
            format!("chmod 0700 {path}"),
        ),
        Directory::There { uid, .. } if facts.node_user.is_some_and(|(node, _)| node != *uid) => fail(
            check,
            format!("{path} belongs to uid {uid} and is closed to {user}, who reads it"),
            format!("chown -R {user}: {path}"),
        ),
        Directory::There { .. } => ok(check, format!("{path} is {user}'s alone")),
    }
}

fn images(facts: &Facts) -> Option<Finding> {
    let (path, read) = facts.ca_file.as_ref()?;
    let shown = path.display();
    Some(match read {
        Ok(0) => fail(
            "images",
            format!("{shown} holds no certificate"),
            "put PEM certificates there, or unset node.images.ca_file",
        ),
        Ok(1) => ok("images", format!("{shown} adds 1 certificate authority")),
        Ok(number) => ok("images", format!("{shown} adds {number} certificate authorities")),
        Err(why) => fail(
            "images",
            format!("{shown} cannot be read: {why}"),
            "make it readable for the node, or unset node.images.ca_file",
        ),
    })
}

fn document(facts: &Facts) -> Option<Finding> {
    let (path, document) = facts.document.as_ref()?;
    let (check, shown) = ("document", path.display());
    Some(match document {
        Document::Fine(instances) => ok(check, format!("{shown} parses; instances: {instances}")),
        Document::Missing => {
            warn(check, format!("there is no {shown} yet"), "write it, or use bcd apply and unset node.spec")
        }
        Document::Unreadable(why) => {
            warn(check, format!("{shown} cannot be read: {why}"), "make it readable for the node's user")
        }
        Document::Wrong(why) => fail(check, why.clone(), "correct it; the node keeps the document before"),
    })
}

fn sandbox(facts: &Facts) -> Finding {
    let required = facts.config.helper.require_sandbox;
    let lacking = |found: String| {
        let remedy = "boot a kernel of 6.1 or later with landlock in its lsm= list";
        if required {
            fail("sandbox", format!("{found}, and helper.require_sandbox is set"), remedy)
        } else {
            warn("sandbox", format!("{found}: the daemons run with what there is"), remedy)
        }
    };
    if !facts.seccomp {
        return lacking("this kernel has no seccomp filters".to_owned());
    }
    match facts.landlock {
        Landlock::Missing => lacking("this kernel has no Landlock".to_owned()),
        Landlock::Off => lacking("Landlock is built in and not switched on".to_owned()),
        Landlock::Works(abi) if abi < LANDLOCK_FILES => lacking(format!("Landlock has ABI {abi} only")),
        Landlock::Works(abi) => ok("sandbox", format!("seccomp and Landlock work, Landlock with ABI {abi}")),
    }
}

fn memory(facts: &Facts) -> Option<Finding> {
    let memory = facts.memory?;
    let shown = bytes(memory);
    Some(if memory < MEMORY_LEAST {
        warn(
            "memory",
            format!("this host has {shown}"),
            "expect starts to be refused: a guest's VMM needs some beside the guest's own",
        )
    } else {
        ok("memory", format!("this host has {shown}"))
    })
}

fn clock(facts: &Facts) -> Finding {
    let now = crate::cli::text::moment(facts.clock.saturating_mul(1000));
    if (CLOCK_EARLIEST..CLOCK_LATEST).contains(&facts.clock) {
        ok("clock", format!("it is {now}"))
    } else {
        fail(
            "clock",
            format!("the clock says {now}: no certificate of an image server holds then"),
            "set the clock, and run an NTP client",
        )
    }
}
