//! Looks at bridges and at what filters the packets they pass on.
//!
//! Room: `node`. The firewall is shown to root alone; for others it is a fact that it cannot be seen.
use super::super::facts::{Chain, Firewall, Interface, Words};
use super::{output, program};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Longest time a tool has to list the firewall.
const TOOL_TIME: Duration = Duration::from_secs(10);

pub(super) fn interface(name: &str) -> Interface {
    let path = Path::new("/sys/class/net").join(name);
    if !path.exists() {
        return Interface::Missing;
    }
    if !path.join("bridge").is_dir() {
        return Interface::Other;
    }
    // Bit 0 is IFF_UP. The operational state is `down` for a bridge without ports, which is no fault.
    let flags = fs::read_to_string(path.join("flags")).unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or_default();
    Interface::Bridge { up: flags & 1 != 0 }
}

pub(super) fn firewall() -> Firewall {
    // Without br_netfilter there are no such files, and bridges pass packets on unseen by iptables.
    let set = |name: &str| {
        fs::read_to_string(format!("/proc/sys/net/bridge/bridge-nf-call-{name}")).is_ok_and(|text| text.trim() != "0")
    };
    let (drops, mut rules) = match program("nft") {
        Some(nft) => match output(&nft, &["-j", "list", "chains"], TOOL_TIME) {
            Ok(json) => {
                let drops = dropping(&json);
                let rules = drops.iter().flat_map(|chain| {
                    let shown = output(&nft, &["list", "chain", &chain.family, &chain.table, &chain.name], TOOL_TIME);
                    lines(&shown.unwrap_or_default())
                });
                (Ok(drops.clone()), rules.collect())
            }
            Err(why) => (Err(why), Vec::new()),
        },
        None if program("iptables").is_none() => {
            (Err(Words::from("neither nft nor iptables is installed")), Vec::new())
        }
        None => (Ok(Vec::new()), Vec::new()),
    };
    let mut drops = drops;
    for (tool, family) in [("iptables", "ip"), ("ip6tables", "ip6"), ("iptables-legacy", "ip")] {
        let Some(path) = program(tool) else { continue };
        match output(&path, &["-S"], TOOL_TIME) {
            Ok(says) => {
                let policy = says.lines().any(|line| line.trim() == "-P FORWARD DROP");
                if let (true, Ok(known)) = (policy, &mut drops)
                    && !known.iter().any(|chain| chain.family == family)
                {
                    let (table, name) = ("filter".to_owned(), "FORWARD".to_owned());
                    known.push(Chain { family: family.to_owned(), table, name });
                }
                rules.extend(lines(&says));
            }
            Err(why) if drops.as_ref().is_ok_and(Vec::is_empty) && family == "ip" && rules.is_empty() => {
                drops = Err(why);
            }
            Err(_) => {}
        }
    }
    let docker = rules.iter().any(|rule| rule.contains("DOCKER"));
    Firewall { ipv4: set("iptables"), ipv6: set("ip6tables"), drops, rules, docker }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The chains of the forward hook whose policy is drop, of what `nft -j list chains` says.
pub(crate) fn dropping(json: &str) -> Vec<Chain> {
    let value: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    let objects = value.get("nftables").and_then(|list| list.as_array()).map(Vec::as_slice).unwrap_or_default();
    let chains = objects.iter().filter_map(|object| object.get("chain")).filter_map(|chain| {
        let text = |key: &str| chain.get(key).and_then(|v| v.as_str()).map(str::to_owned);
        if text("hook").as_deref() != Some("forward") || text("policy").as_deref() != Some("drop") {
            return None;
        }
        Some(Chain { family: text("family")?, table: text("table")?, name: text("name")? })
    });
    chains.collect()
}
