//! The seed's `network-config`, version 2.
//!
//! Room: `node`. Pure. A NIC is matched by its MAC in lower case, which is how the kernel writes it and how cloud-init
//! compares: as text.
use super::SeedNic;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// The document, or none when there is nothing to say that a guest would not do by itself.
pub(super) fn config(nics: &[SeedNic]) -> Option<Value> {
    if !nics.iter().any(is_static) {
        return None;
    }
    let ethernets: Map<String, Value> =
        nics.iter().enumerate().map(|(index, nic)| (format!("nic{index}"), ethernet(nic))).collect();
    Some(json!({ "version": 2, "ethernets": ethernets }))
}

fn is_static(nic: &SeedNic) -> bool {
    !nic.addresses.is_empty() || nic.gateway.is_some() || !nic.nameservers.is_empty()
}

fn ethernet(nic: &SeedNic) -> Value {
    let mut ethernet = json!({
        "match": { "macaddress": nic.mac.to_string() },
        "dhcp4": nic.addresses.is_empty(),
    });
    if !nic.addresses.is_empty() {
        ethernet["addresses"] = json!(nic.addresses);
    }
    if let Some(gateway) = nic.gateway {
        ethernet["routes"] = json!([route(nic, gateway)]);
    }
    if !nic.nameservers.is_empty() {
        ethernet["nameservers"] = json!({ "addresses": nic.nameservers });
    }
    ethernet
}

/// The default route. A gateway that lies in none of the NIC's prefixes (/32, /128, link-local) is reached only when the
/// route says that it is on the link; one that does lie in a prefix must not say so.
fn route(nic: &SeedNic, gateway: IpAddr) -> Value {
    let everything = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
    let mut route = json!({ "to": everything, "via": gateway });
    if !nic.addresses.iter().any(|address| address.contains(&gateway)) {
        route["on-link"] = json!(true);
    }
    route
}
