//! Bridges that instances may use.
//!
//! Room: `node`. Pure.
use super::super::Finding;
use super::super::facts::{Configured, Interface};
use super::remedy::command;
use super::{fail, ok, warn};

pub(super) fn bridges(configured: &Configured) -> Vec<Finding> {
    if configured.bridges.is_empty() {
        return vec![warn(
            "bridges",
            "no bridge is listed: instances have no NIC",
            "list the bridges that instances may use in [helper] instance_bridges and restart the helper",
        )];
    }
    let each = configured.bridges.iter().map(|(name, interface)| match interface {
        Interface::Bridge { up: true } => ok("bridges", format!("bridge {name} is up")),
        Interface::Bridge { up: false } => warn(
            "bridges",
            format!("bridge {name} is down: guests on it reach nobody"),
            command(&["ip", "link", "set", name, "up"]),
        ),
        Interface::Other => fail(
            "bridges",
            format!("{name} is no bridge: instances with a NIC on it cannot start"),
            "name a bridge in [helper] instance_bridges",
        ),
        Interface::Missing => fail(
            "bridges",
            format!(
                "there is no bridge {name}: instances with a NIC on it cannot start; it has to be in the host's network setup \
                 too, to be there after a boot"
            ),
            [["ip", "link", "add", name, "type", "bridge"].as_slice(), &["ip", "link", "set", name, "up"]]
                .map(command)
                .join(" && "),
        ),
    });
    each.collect()
}
