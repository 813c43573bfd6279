//! Bridges, and firewalls that drop what they pass on.
//!
//! Room: `node`. Pure.
use super::super::Finding;
use super::super::facts::{Chain, Configured, Firewall, Interface};
use super::remedy::noted;
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
            noted(
                &format!("ip link add {name} type bridge && ip link set {name} up"),
                "and keep it in the host's network setup",
            ),
        ),
    });
    each.collect()
}

/// Packets that a bridge passes on are nobody's business but the bridge's, unless br_netfilter hands them to iptables,
/// whose forward chain Docker and many firewalls close.
pub(super) fn firewall(configured: &Configured) -> Vec<Finding> {
    let check = "firewall";
    let firewall = &configured.firewall;
    let there = configured.bridges.iter().filter(|(_, interface)| matches!(interface, Interface::Bridge { .. }));
    let bridges: Vec<&str> = there.map(|(name, _)| name.as_str()).collect();
    if bridges.is_empty() {
        return Vec::new();
    }
    let drops = match &firewall.drops {
        Ok(drops) => drops,
        Err(_) if !firewall.ipv4 && !firewall.ipv6 => {
            return vec![ok(check, "br_netfilter is off: iptables does not see what bridges pass on")];
        }
        Err(why) => {
            return vec![warn(
                check,
                format!("br_netfilter hands what bridges pass on to iptables, whose rules cannot be seen: {why}"),
                "run bcd doctor as root, with nftables installed",
            )];
        }
    };
    let mut findings: Vec<Finding> = Vec::new();
    for chain in drops.iter().filter(|chain| concerns(chain, firewall)) {
        let shut: Vec<&str> =
            bridges.iter().copied().filter(|bridge| !accepts(chain, &firewall.rules, bridge)).collect();
        if !shut.is_empty() {
            findings.push(warn(check, told(chain, &shut), mend(chain, firewall, &shut)));
        }
    }
    if findings.is_empty() {
        findings.push(ok(check, format!("no firewall drops what bridges pass on ({})", bridges.join(", "))));
    }
    findings
}

fn concerns(chain: &Chain, firewall: &Firewall) -> bool {
    match chain.family.as_str() {
        "bridge" => true,
        "ip" => firewall.ipv4,
        "ip6" => firewall.ipv6,
        "inet" => firewall.ipv4 || firewall.ipv6,
        _ => false,
    }
}

/// Whether a rule lets everything of a bridge through, or everything bridged. To a chain of family bridge a packet comes in
/// by a port; to the others, by the bridge itself.
fn accepts(chain: &Chain, rules: &[String], bridge: &str) -> bool {
    let keys: &[&str] = if chain.family == "bridge" { &["ibrname"] } else { &["-i", "iifname"] };
    rules.iter().any(|rule| {
        let words: Vec<&str> = rule.split_whitespace().map(|word| word.trim_matches('"')).collect();
        let accepts = words.iter().any(|word| word.eq_ignore_ascii_case("accept"));
        let named = words.windows(2).any(|pair| matches!(pair, [key, value] if keys.contains(key) && *value == bridge));
        let narrowed = ["-p", "-s", "-d", "-m", "ip", "ip6", "tcp", "udp", "icmp", "ct"];
        let bridged = words.contains(&"--physdev-is-bridged");
        let bridged = bridged && chain.family != "bridge";
        accepts && (bridged || (named && !words.iter().any(|word| narrowed.contains(word))))
    })
}

fn told(chain: &Chain, bridges: &[&str]) -> String {
    let Chain { family, table, name } = chain;
    let bridges = bridges.join(", ");
    if family == "bridge" {
        return format!(
            "chain {family} {table} {name} drops what no rule accepts: guests on {bridges} may reach nobody"
        );
    }
    format!(
        "br_netfilter hands the packets of {bridges} to chain {family} {table} {name}, which drops what no rule accepts: \
         guests may reach nobody"
    )
}

fn mend(chain: &Chain, firewall: &Firewall, bridges: &[&str]) -> String {
    let Chain { family, table, name } = chain;
    match family.as_str() {
        "bridge" => {
            let rules =
                bridges.iter().map(|b| format!("nft insert rule bridge {table} {name} meta ibrname {b} accept"));
            rules.collect::<Vec<_>>().join("; ")
        }
        "ip" if firewall.docker => noted(
            "iptables -I DOCKER-USER -m physdev --physdev-is-bridged -j ACCEPT",
            "again after each start of Docker",
        ),
        "inet" | "ip" | "ip6" => noted(
            "sysctl -w net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0",
            "and the same in /etc/sysctl.d",
        ),
        _ => String::new(),
    }
}
