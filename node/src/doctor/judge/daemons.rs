//! libvirt, the helper and the node: who answers, and in which version.
//!
//! Room: `node`. Pure.
use super::super::Finding;
use super::super::facts::{Configured, Helper, Node, Probe, Search, Words};
use super::remedy::{command, text};
use super::{fail, ok, warn};

/// The oldest libvirt that bcd is made and tested with (Debian 12's), as libvirt counts.
const LIBVIRT_LEAST: u32 = 9_000_000;

/// The remedy where systemd runs and another where it does not.
fn by<'a>(systemd: bool, service: &'a str, by_hand: &'a str) -> &'a str {
    if systemd { service } else { by_hand }
}

pub(super) fn libvirt(configured: &Configured, systemd: bool) -> Vec<Finding> {
    let uri = configured.config.libvirt.uri.as_str();
    let Ok(probe) = &configured.probe else { return Vec::new() };
    let libvirt = match &probe.libvirt {
        Ok(libvirt) => libvirt,
        Err(why) => {
            let says = |words| why.as_str().contains(words);
            let found = format!("no answer on {uri}: {why}");
            return vec![if configured.probed_as_node && (says("authentication") || says("ermission denied")) {
                let found = format!("{found}; where polkitd and dbus run, its read-only socket answers every user");
                fail("libvirt", found, "apt-get install polkitd")
            } else {
                let remedy = by(
                    systemd,
                    "apt-get install libvirt-daemon-system && systemctl start libvirtd",
                    "apt-get install libvirt-daemon-system && libvirtd -d",
                );
                fail("libvirt", found, remedy)
            }];
        }
    };
    let shown = version(libvirt.version);
    let mut findings = vec![match libvirt.qemu {
        None => fail(
            "libvirt",
            format!("libvirt {shown} answers on {uri} and knows no QEMU"),
            by(
                systemd,
                "apt-get install qemu-system-x86 && systemctl restart libvirtd",
                "get QEMU with apt-get install qemu-system-x86, then start libvirtd anew",
            ),
        ),
        Some(_) if libvirt.version < LIBVIRT_LEAST => warn(
            "libvirt",
            format!("libvirt {shown} answers on {uri}: bcd is made for {} or later", version(LIBVIRT_LEAST)),
            "upgrade the distribution: Debian 12 has 9.0.0",
        ),
        Some(qemu) => ok("libvirt", format!("libvirt {shown} with QEMU {} answers on {uri}", version(qemu))),
    }];
    if configured.virtlogd == Some(false) {
        findings.push(fail(
            "virtlogd",
            "virtlogd's socket is not there: libvirt refuses every start without it",
            by(systemd, "systemctl start virtlogd.socket", "virtlogd -d"),
        ));
    }
    findings
}

fn version(number: u32) -> String {
    format!("{}.{}.{}", number / 1_000_000, number / 1000 % 1000, number % 1000)
}

pub(super) fn qemu_directory(configured: &Configured) -> Finding {
    let check = "qemu-directory";
    match &configured.qemu_directory {
        Ok(Search::Allowed) => ok(check, "group kvm may search /var/lib/libvirt/qemu"),
        Ok(Search::Refused) => fail(
            check,
            "group kvm may not search /var/lib/libvirt/qemu: a VMM with a uid of its own cannot start",
            "setfacl -m g:kvm:x /var/lib/libvirt/qemu",
        ),
        Err(why) => warn(
            check,
            format!("whether group kvm may search /var/lib/libvirt/qemu cannot be seen: {why}"),
            "run bcd doctor as root; where there is no libvirt, apt-get install libvirt-daemon-system",
        ),
    }
}

pub(super) fn helper(configured: &Configured, systemd: bool) -> Option<Finding> {
    let Ok(probe) = &configured.probe else { return None };
    let socket = &configured.config.helper.socket;
    let own = env!("CARGO_PKG_VERSION");
    let user = configured.config.helper.node_user.as_str();
    Some(match &probe.helper {
        Helper::Welcome(version) if version.as_str() == own => {
            ok("helper", format!("bcd-helper {version} answers on {socket}"))
        }
        Helper::Welcome(version) => warn(
            "helper",
            format!("bcd-helper is version {version}, this bcd {own}; guests go on while it is started anew"),
            by(systemd, "systemctl restart bcd-helper", "end bcd-helper and start it as it was started"),
        ),
        Helper::Listens => {
            ok("helper", format!("it listens on {socket}; it answers user {user} alone, so its version was not asked"))
        }
        Helper::Forbidden if configured.probed_as_node => fail(
            "helper",
            format!("{user} may not connect to {socket}: it is not in the socket's group"),
            by(
                systemd,
                "systemctl restart bcd-helper.socket",
                "end bcd-helper and start it as it was started: it makes its socket anew",
            ),
        ),
        Helper::Forbidden => warn(
            "helper",
            format!("this user may not connect to {socket}"),
            format!("run bcd doctor as root or as {user}"),
        ),
        Helper::Unreachable(why) => unreachable(configured, probe, why, systemd),
    })
}

/// A standalone node's helper has no socket, but that node says that it answers.
fn unreachable(configured: &Configured, probe: &Probe, why: &Words, systemd: bool) -> Finding {
    match &probe.node {
        Node::Answers { helper: Some(version), .. } => ok(
            "helper",
            format!("the node says that a helper of its own answers it, version {version}; no other does: {why}"),
        ),
        Node::Answers { helper: None, .. } | Node::Forbidden | Node::Unreachable(_) => fail(
            "helper",
            format!("it does not answer: {why}; its log says why it ended"),
            by(
                systemd,
                "systemctl start bcd-helper",
                &format!("start it as root: {}", command(&["bcd-helper", "--config", &text(&configured.file)])),
            ),
        ),
    }
}

pub(super) fn node(configured: &Configured, systemd: bool) -> Option<Finding> {
    let Ok(probe) = &configured.probe else { return None };
    let socket = &configured.config.node.api;
    let own = env!("CARGO_PKG_VERSION");
    let user = configured.config.helper.node_user.as_str();
    Some(match &probe.node {
        Node::Answers { version, .. } if version.as_str() != own => warn(
            "node",
            format!("bcd node is version {version}, this bcd {own}; guests go on while it is started anew"),
            by(systemd, "systemctl restart bcd-node", "end it and start it as it was started"),
        ),
        Node::Answers { unread, .. } if !unread.is_empty() => {
            let unread: Vec<String> = unread.iter().map(ToString::to_string).collect();
            warn(
                "node",
                format!("bcd node answers on {socket} and says that it cannot read {}", unread.join("; ")),
                "mend what the other findings name; the node goes on by itself then, and bcd status shows it",
            )
        }
        Node::Answers { version, .. } => ok("node", format!("bcd node {version} answers on {socket}")),
        Node::Forbidden if configured.probed_as_node => fail(
            "node",
            format!("{user} itself may not ask what listens on {socket}, which then is no node of its"),
            by(systemd, "systemctl restart bcd-node", "end what listens there, and start the node as it was started"),
        ),
        Node::Forbidden => warn(
            "node",
            format!("this user may not ask the node on {socket}"),
            format!("run bcd doctor as root, or adduser YOU {user} and log in again"),
        ),
        Node::Unreachable(why) => fail(
            "node",
            format!("it does not answer: {why}; its log says why it ended"),
            by(systemd, "systemctl start bcd-node", &started_by_hand(configured)),
        ),
    })
}

/// A process that a shell of root's starts as another user is that user's from its first instruction on, and on root's terminal
/// until it has left that: whoever has the uid could take it over and type for root. So it starts in a session of its own.
fn started_by_hand(configured: &Configured) -> String {
    let user = configured.config.helper.node_user.as_str();
    let group = configured.node_ids().map_or_else(|| user.to_owned(), |(_, gid)| gid.to_string());
    let file = text(&configured.file);
    let both = command(&["setsid", "bcd", "--config", &file, "node", "--standalone"]);
    let identity = command(&["setsid", "setpriv", "--reuid", user, "--regid", &group, "--init-groups"]);
    let without = "--inh-caps=-all --ambient-caps=-all --bounding-set=-all --no-new-privs";
    let alone = format!("{identity} {without} {}", command(&["bcd", "--config", &file, "node"]));
    format!(
        "as root, start it and its helper with {both} </dev/null >>/var/log/bcd.log 2>&1 & or it alone, never on your terminal, \
         with {alone} </dev/null >>/var/log/bcd-node.log 2>&1 &"
    )
}
