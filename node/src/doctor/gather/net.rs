//! Looks at bridges and at what filters the packets they pass on.
//!
//! Room: `node`. The firewall is shown to root alone; for others it is a fact that it cannot be seen. Invariant: nothing is
//! loaded or made by looking; what cannot be understood is not taken for nothing.
use super::super::facts::{Chain, Family, Firewall, Handed, Interface, Words};
use super::{iptables, nft, output, program};
use nix::unistd::geteuid;
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

pub(super) fn firewall(bridges: &[(String, Interface)]) -> Firewall {
    // Without br_netfilter there are no such files, and bridges pass packets on unseen by iptables.
    let set = |path: String| fs::read_to_string(path).is_ok_and(|text| text.trim() != "0");
    let handed = |name: &str| {
        if set(format!("/proc/sys/net/bridge/bridge-nf-call-{name}")) {
            return Handed::All;
        }
        // Each bridge can have it switched on by itself, which counts while br_netfilter is there.
        let own = |bridge: &str| set(format!("/sys/class/net/{bridge}/bridge/nf_call_{name}"));
        let there = Path::new("/proc/sys/net/bridge").is_dir();
        Handed::Of(bridges.iter().map(|(bridge, _)| bridge).filter(|bridge| there && own(bridge)).cloned().collect())
    };
    let (ipv4, ipv6) = (handed("iptables"), handed("ip6tables"));
    let mut unread = Vec::new();
    // Their rules are read by a call that would make a table where there is none.
    if ["filter", "nat", "broute"].iter().any(|table| Path::new(&format!("/sys/module/ebtable_{table}")).exists()) {
        unread.push("ebtables' own tables".to_owned());
    }
    for (tables, handed) in [(&V4, &ipv4), (&V6, &ipv6)] {
        if bridges.iter().any(|(bridge, _)| handed.is_of(bridge)) {
            let names = fs::read_to_string(tables.names).unwrap_or_default();
            unread.extend(iptables::others(tables.legacy, &names));
        }
    }
    let chains = nftables().and_then(|ruleset| {
        if bridges.iter().flat_map(|(bridge, _)| ports(bridge)).any(|port| ruleset.stands_at(&port)) {
            unread.push("nftables' chains at ports of bridges".to_owned());
        }
        chains(ruleset.chains)
    });
    Firewall { ipv4, ipv6, chains, as_root: geteuid().is_root(), unread }
}

/// The interfaces that are ports of a bridge now.
fn ports(bridge: &str) -> Vec<String> {
    let ports = fs::read_dir(Path::new("/sys/class/net").join(bridge).join("brif")).into_iter().flatten();
    ports.filter_map(|port| port.ok()?.file_name().into_string().ok()).collect()
}

/// Those of nftables, and iptables' beside them.
fn chains(mut chains: Vec<Chain>) -> Result<Vec<Chain>, Words> {
    for tables in [&V4, &V6] {
        // iptables over nftables: nft does not say what its matches are. Where it cannot say it either, nft's words stand.
        let is_its = |chain: &Chain| chain.family == tables.family && chain.table == "filter";
        let kept = chains.iter().any(|chain| is_its(chain) && chain.name == "FORWARD");
        if kept && let Some(Ok(read)) = listed(tables, tables.over_nft, "nf_tables") {
            chains.retain(|chain| !is_its(chain));
            chains.extend(read);
        }
        // iptables of its own. To list a table that is not there would make it, with its module.
        let names = fs::read_to_string(tables.names).unwrap_or_default();
        if names.lines().any(|name| name.trim() == "filter") {
            let read = listed(tables, tables.legacy, "legacy");
            chains.extend(read.ok_or_else(|| Words::from(format!("there is no {} to list them", tables.legacy)))??);
        }
    }
    Ok(chains)
}

/// One of both IPs, as iptables has it.
struct Tables {
    family: Family,
    names: &'static str,
    either: &'static str,
    over_nft: &'static str,
    legacy: &'static str,
}

const V4: Tables = Tables {
    family: Family::Ip,
    names: "/proc/net/ip_tables_names",
    either: "iptables",
    over_nft: "iptables-nft",
    legacy: "iptables-legacy",
};
const V6: Tables = Tables {
    family: Family::Ip6,
    names: "/proc/net/ip6_tables_names",
    either: "ip6tables",
    over_nft: "ip6tables-nft",
    legacy: "ip6tables-legacy",
};

/// Table filter as the program `name` lists it, or the one without a kind in its name if that is of this kind; `None` where
/// there is neither.
fn listed(tables: &Tables, name: &'static str, kind: &str) -> Option<Result<Vec<Chain>, Words>> {
    let either = || {
        let path = program(tables.either)?;
        output(&path, &["--version"], TOOL_TIME).is_ok_and(|says| says.contains(kind)).then_some((path, tables.either))
    };
    let (path, name) = program(name).map(|path| (path, name)).or_else(either)?;
    let says = output(&path, &["-S"], TOOL_TIME);
    Some(says.and_then(|says| iptables::table(name, tables.family, &says).map_err(Words::from)))
}

fn nftables() -> Result<nft::Ruleset, Words> {
    if !geteuid().is_root() {
        return Err(Words::from("the kernel shows them to root alone"));
    }
    // To ask for rules would load the module, and while it is not loaded there are none.
    if !Path::new("/sys/module/nf_tables").exists() && loadable("nf_tables") {
        return Ok(nft::Ruleset { chains: Vec::new(), devices: Vec::new() });
    }
    let nft = program("nft").ok_or_else(|| Words::from("there is no nft to list them"))?;
    let says = output(&nft, &["-j", "-t", "list", "ruleset"], TOOL_TIME)?;
    nft::ruleset(&says).map_err(Words::from)
}

/// Whether this kernel has a module of that name in a file of its own.
fn loadable(module: &str) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let list = Path::new("/lib/modules").join(release.trim()).join("modules.dep");
    let file = format!("/{module}.ko");
    fs::read_to_string(list).is_ok_and(|text| text.lines().any(|line| line.contains(&file)))
}
