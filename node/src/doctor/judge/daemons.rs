//! libvirt, the helper and the node: who answers, and in which version.
//!
//! Room: `node`. Pure.
use super::super::Finding;
use super::super::facts::{Configured, Helper, Node, Search};
use super::{fail, ok, warn};

/// The oldest libvirt that bcd is made and tested with (Debian 12's), as libvirt counts.
const LIBVIRT_LEAST: u32 = 9_000_000;

pub(super) fn libvirt(configured: &Configured) -> Vec<Finding> {
    let uri = configured.config.libvirt.uri.as_str();
    let libvirt = match &configured.probe.libvirt {
        Ok(libvirt) => libvirt,
        Err(why) => {
            let barred =
                configured.probed_as_node && (why.contains("authentication") || why.contains("ermission denied"));
            let remedy = if barred {
                "apt-get install polkitd, and start dbus: libvirt's read-only socket then answers every user"
            } else {
                "apt-get install libvirt-daemon-system, then systemctl start libvirtd"
            };
            return vec![fail("libvirt", format!("no answer on {uri}: {why}"), remedy)];
        }
    };
    let shown = version(libvirt.version);
    let mut findings = vec![match libvirt.qemu {
        None => fail(
            "libvirt",
            format!("libvirt {shown} answers on {uri} and knows no QEMU"),
            "apt-get install qemu-system-x86, then systemctl restart libvirtd",
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
            "systemctl start virtlogd.socket (without systemd: virtlogd -d)",
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
            "run bcd doctor as root, or apt-get install libvirt-daemon-system",
        ),
    }
}

pub(super) fn helper(configured: &Configured) -> Finding {
    let socket = &configured.config.helper.socket;
    let own = env!("CARGO_PKG_VERSION");
    let user = configured.config.helper.node_user.as_str();
    match &configured.probe.helper {
        Helper::Welcome(version) if version == own => ok("helper", format!("bcd-helper {version} answers on {socket}")),
        Helper::Welcome(version) => warn(
            "helper",
            format!("bcd-helper is version {version}, this bcd {own}"),
            "systemctl restart bcd-helper: guests go on meanwhile",
        ),
        Helper::Listens => {
            ok("helper", format!("it listens on {socket}; it answers user {user} alone, so its version was not asked"))
        }
        Helper::Forbidden if configured.probed_as_node => fail(
            "helper",
            format!("{user} may not connect to {socket}: it is not in the socket's group"),
            format!("chown root:{user} {socket} && chmod 0660 {socket}, or restart bcd-helper, which makes it so"),
        ),
        Helper::Forbidden => warn(
            "helper",
            format!("this user may not connect to {socket}"),
            format!("run bcd doctor as root or as {user}"),
        ),
        Helper::OfNode(version) => ok("helper", format!("bcd-helper {version} answers its standalone node alone")),
        Helper::Unreachable(why) => fail(
            "helper",
            why.clone(),
            "systemctl start bcd-helper (without systemd: bcd-helper --config FILE, as root); its log says why it ended",
        ),
    }
}

pub(super) fn node(configured: &Configured) -> Finding {
    let socket = &configured.config.node.api;
    let own = env!("CARGO_PKG_VERSION");
    let user = configured.config.helper.node_user.as_str();
    match &configured.node {
        Node::Answers(version, _) if version != own => warn(
            "node",
            format!("bcd node is version {version}, this bcd {own}"),
            "systemctl restart bcd-node: guests go on meanwhile",
        ),
        Node::Answers(_, unread) if !unread.is_empty() => warn(
            "node",
            format!("bcd node answers on {socket} and cannot read {}", unread.join("; ")),
            "mend what the other findings name; the node goes on by itself then, and bcd status shows it",
        ),
        Node::Answers(version, _) => ok("node", format!("bcd node {version} answers on {socket}")),
        Node::Forbidden => warn(
            "node",
            format!("this user may not ask the node on {socket}"),
            format!("run bcd doctor as root, or adduser YOU {user} and log in again"),
        ),
        Node::Unreachable(why) => fail(
            "node",
            why.clone(),
            format!("systemctl start bcd-node (without systemd: bcd node as {user}); its log says why it ended"),
        ),
    }
}
