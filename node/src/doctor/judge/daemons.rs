//! libvirt, the helper and the node: who answers, and in which version.
//!
//! Room: `node`. Pure.
use super::super::Finding;
use super::super::facts::{Configured, Helper, Node, Probe, Search, Words};
use super::remedy::noted;
use super::{fail, ok, warn};

/// The oldest libvirt that bcd is made and tested with (Debian 12's), as libvirt counts.
const LIBVIRT_LEAST: u32 = 9_000_000;

pub(super) fn libvirt(configured: &Configured) -> Vec<Finding> {
    let uri = configured.config.libvirt.uri.as_str();
    let Ok(probe) = &configured.probe else { return Vec::new() };
    let libvirt = match &probe.libvirt {
        Ok(libvirt) => libvirt,
        Err(why) => {
            let says = |words| why.as_str().contains(words);
            let remedy = if configured.probed_as_node && (says("authentication") || says("ermission denied")) {
                noted("apt-get install polkitd", "and start dbus: libvirt's read-only socket then answers every user")
            } else {
                "apt-get install libvirt-daemon-system && systemctl start libvirtd".to_owned()
            };
            return vec![fail("libvirt", format!("no answer on {uri}: {why}"), remedy)];
        }
    };
    let shown = version(libvirt.version);
    let mut findings = vec![match libvirt.qemu {
        None => fail(
            "libvirt",
            format!("libvirt {shown} answers on {uri} and knows no QEMU"),
            "apt-get install qemu-system-x86 && systemctl restart libvirtd",
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
            noted("systemctl start virtlogd.socket", "without systemd: virtlogd -d"),
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

pub(super) fn helper(configured: &Configured) -> Option<Finding> {
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
            format!("bcd-helper is version {version}, this bcd {own}"),
            noted("systemctl restart bcd-helper", "guests go on meanwhile"),
        ),
        Helper::Listens => {
            ok("helper", format!("it listens on {socket}; it answers user {user} alone, so its version was not asked"))
        }
        Helper::Forbidden if configured.probed_as_node => fail(
            "helper",
            format!("{user} may not connect to {socket}: it is not in the socket's group"),
            noted("systemctl restart bcd-helper.socket", "without systemd: restart bcd-helper, which makes it anew"),
        ),
        Helper::Forbidden => warn(
            "helper",
            format!("this user may not connect to {socket}"),
            format!("run bcd doctor as root or as {user}"),
        ),
        Helper::Unreachable(why) => unreachable(probe, why),
    })
}

/// A standalone node's helper has no socket, but that node says that it answers.
fn unreachable(probe: &Probe, why: &Words) -> Finding {
    match &probe.node {
        Node::Answers { helper: Some(version), .. } => ok(
            "helper",
            format!("the node says that a helper of its own answers it, version {version}; no other does: {why}"),
        ),
        Node::Answers { helper: None, .. } | Node::Forbidden | Node::Unreachable(_) => fail(
            "helper",
            format!("it does not answer: {why}"),
            noted(
                "systemctl start bcd-helper",
                "without systemd: bcd-helper --config FILE, as root; its log says why it ended",
            ),
        ),
    }
}

pub(super) fn node(configured: &Configured) -> Option<Finding> {
    let Ok(probe) = &configured.probe else { return None };
    let socket = &configured.config.node.api;
    let own = env!("CARGO_PKG_VERSION");
    let user = configured.config.helper.node_user.as_str();
    Some(match &probe.node {
        Node::Answers { version, .. } if version.as_str() != own => warn(
            "node",
            format!("bcd node is version {version}, this bcd {own}"),
            noted("systemctl restart bcd-node", "guests go on meanwhile"),
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
        Node::Forbidden => warn(
            "node",
            format!("this user may not ask the node on {socket}"),
            format!("run bcd doctor as root, or adduser YOU {user} and log in again"),
        ),
        Node::Unreachable(why) => fail(
            "node",
            format!("it does not answer: {why}"),
            noted(
                "systemctl start bcd-node",
                &format!("without systemd: bcd node as {user}; its log says why it ended"),
            ),
        ),
    })
}
