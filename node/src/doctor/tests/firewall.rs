//! Firewalls: what nft and iptables say, and what becomes of a bridge's packets.
use super::gather::{iptables, nft};
use super::*;

/// br_netfilter hands everything over, and these are the chains.
fn filtered(chains: Vec<Chain>) -> impl FnOnce(&mut Facts) {
    move |f| {
        named(f).firewall =
            Firewall { ipv4: Handed::All, ipv6: Handed::All, chains: Ok(chains), as_root: true, unread: Vec::new() };
    }
}

/// By the host's setting, or not at all.
fn handed(all: bool) -> Handed {
    if all { Handed::All } else { Handed::Of(Vec::new()) }
}

/// iptables' table filter: `-P FORWARD DROP` and these rules.
fn closed(rules: &[&str]) -> Vec<Chain> {
    let says = format!("-P INPUT ACCEPT\n-P FORWARD DROP\n-P OUTPUT ACCEPT\n-N DOCKER-USER\n{}\n", rules.join("\n"));
    iptables::table("iptables", Family::Ip, &says).unwrap()
}

/// A base chain of nftables at the forward hook, with these statements a rule.
fn nft_chain(family: &str, policy: &str, rules: &[&str]) -> Vec<Chain> {
    nft_chain_at("forward", family, policy, rules)
}

fn nft_chain_at(hook: &str, family: &str, policy: &str, rules: &[&str]) -> Vec<Chain> {
    let rules: String = rules
        .iter()
        .map(|expr| {
            format!(
                r#", {{"rule": {{"family": "{family}", "table": "t", "chain": "f", "handle": 1, "expr": {expr}}}}}"#
            )
        })
        .collect();
    let says = format!(
        r#"{{"nftables": [{{"metainfo": {{"version": "1.0.6"}}}}, {{"table": {{"family": "{family}", "name": "t"}}}},
        {{"chain": {{"family": "{family}", "table": "t", "name": "f", "handle": 1, "type": "filter", "hook": "{hook}", "prio": 0,
        "policy": "{policy}"}}}},
        {{"chain": {{"family": "{family}", "table": "t", "name": "other", "handle": 2}}}}{rules}]}}"#
    );
    nft::ruleset(&says).unwrap().chains
}

fn meta(key: &str, op: &str, right: &str) -> String {
    format!(r#"{{"match": {{"op": "{op}", "left": {{"meta": {{"key": "{key}"}}}}, "right": {right}}}}}"#)
}

const NONE: nft::Ruleset = nft::Ruleset { chains: Vec::new(), devices: Vec::new() };
const ALL: &str = "drops all of them";
const REST: &str = "drops what no rule before accepts";

#[test]
fn a_chain_that_closes_what_bridges_pass_on_warns_with_a_remedy_of_its_tool() {
    for family in ["ip", "ip6", "inet"] {
        let remedy = expect(filtered(nft_chain(family, "drop", &[])), Level::Warn, "firewall", ALL);
        assert!(remedy.starts_with("sysctl -w net.bridge.bridge-nf-call-iptables=0"), "{family}: {remedy}");
    }
    let remedy = expect(filtered(nft_chain("bridge", "drop", &[])), Level::Warn, "firewall", "chain bridge t f");
    assert_eq!(remedy, "nft insert rule bridge t f meta ibrname br0 accept");
    let docker = closed(&["-A FORWARD -j DOCKER-USER", "-A DOCKER-USER -j RETURN"]);
    let remedy = expect(filtered(docker), Level::Warn, "firewall", "iptables's chain FORWARD, which drops all");
    assert_eq!(remedy, "iptables -I DOCKER-USER -m physdev --physdev-is-bridged -j ACCEPT");
    let plain = iptables::table("iptables-legacy", Family::Ip, "-P FORWARD DROP\n").unwrap();
    let remedy = expect(filtered(plain), Level::Warn, "firewall", "iptables-legacy's chain FORWARD");
    assert!(remedy.starts_with("sysctl"), "{remedy}");
}

#[test]
fn a_drop_or_reject_without_a_policy_closes_a_chain_as_well() {
    for rules in [
        vec!["-A FORWARD -j DROP"],
        vec!["-A FORWARD -i br0 -j REJECT --reject-with icmp-host-prohibited"],
        vec!["-A FORWARD ! -i eth0 -j DROP"],
        vec!["-A FORWARD -j DOCKER-USER", "-A DOCKER-USER -j DROP"],
        vec!["-A FORWARD -g DOCKER-USER", "-A FORWARD -j ACCEPT", "-A DOCKER-USER -o br0 -j DROP"],
    ] {
        let says = format!("-P FORWARD ACCEPT\n-N DOCKER-USER\n{}\n", rules.join("\n"));
        let chains = iptables::table("iptables", Family::Ip, &says).unwrap();
        expect(filtered(chains), Level::Warn, "firewall", ALL);
    }
    for drop in [r#"{"drop": null}"#, r#"{"reject": {"type": "icmpx", "expr": "admin-prohibited"}}"#] {
        expect(filtered(nft_chain("inet", "accept", &[&format!("[{drop}]")])), Level::Warn, "firewall", ALL);
        let named = format!("[{}, {drop}]", meta("ibrname", "==", "\"br0\""));
        expect(filtered(nft_chain("bridge", "accept", &[&named])), Level::Warn, "firewall", ALL);
    }
    let rest = ["-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-A FORWARD -j REJECT"];
    expect(filtered(closed(&rest)), Level::Warn, "firewall", REST);
}

#[test]
fn chains_that_bridged_packets_do_not_pass_say_nothing() {
    let unhanded = |chains: Vec<Chain>, ipv4, ipv6| {
        move |f: &mut Facts| {
            filtered(chains)(f);
            (named(f).firewall.ipv4, named(f).firewall.ipv6) = (handed(ipv4), handed(ipv6));
        }
    };
    for family in ["ip", "ip6", "inet"] {
        expect_ok(unhanded(nft_chain(family, "drop", &[]), false, false), "firewall", "no firewall drops all");
    }
    expect_ok(unhanded(nft_chain("ip6", "drop", &[]), true, false), "firewall", "no firewall drops all");
    expect_ok(unhanded(nft_chain("ip", "drop", &[]), false, true), "firewall", "no firewall drops all");
    expect(unhanded(nft_chain("bridge", "drop", &[]), false, false), Level::Warn, "firewall", ALL);
    // What INPUT accepts is not forwarded, and what it drops is not either.
    let input = closed(&["-A INPUT -i br0 -j ACCEPT", "-A OUTPUT -o br0 -j ACCEPT"]);
    expect(filtered(input), Level::Warn, "firewall", ALL);
    let input =
        iptables::table("iptables", Family::Ip, "-P INPUT DROP\n-P FORWARD ACCEPT\n-A INPUT -j DROP\n").unwrap();
    expect_ok(filtered(input), "firewall", "no firewall drops all");
    let says = r#"{"nftables": [{"chain": {"family": "inet", "table": "t", "name": "i", "hook": "input", "policy": "drop"}},
        {"chain": {"family": "netdev", "table": "t", "name": "n", "hook": "ingress", "policy": "drop"}},
        {"chain": {"family": "bridge", "table": "t", "name": "b", "hook": "input", "policy": "drop"}}]}"#;
    expect_ok(filtered(nft::ruleset(says).unwrap().chains), "firewall", "no firewall drops all");
}

#[test]
fn a_rule_that_accepts_all_of_a_bridges_packets_opens_the_chain_and_a_narrower_or_another_one_does_not() {
    for rule in [
        "-A FORWARD -m physdev --physdev-is-bridged -j ACCEPT",
        "-A FORWARD -i br0 -o br0 -j ACCEPT",
        "-A FORWARD -i br+ -m comment --comment \"-p tcp ! none\" -j ACCEPT",
        "-A FORWARD ! -i eth0 -j ACCEPT",
        "-A FORWARD -o br0 -j ACCEPT",
    ] {
        expect_ok(filtered(closed(&[rule])), "firewall", "no firewall drops all that bridges pass on (br0)");
        // Behind what takes them all it comes too late.
        expect(filtered(closed(&["-A FORWARD -j DROP", rule])), Level::Warn, "firewall", ALL);
        // In a chain that nothing leads to it does nothing.
        let aside = rule.replace("FORWARD", "DOCKER-USER");
        expect(filtered(closed(&[&aside])), Level::Warn, "firewall", ALL);
        expect_ok(filtered(closed(&[&aside, "-A FORWARD -j DOCKER-USER"])), "firewall", "no firewall drops all");
    }
    for rule in [
        "-A FORWARD ! -i br0 -j ACCEPT",
        "-A FORWARD -i br01 -j ACCEPT",
        "-A FORWARD -i eth0 -o br0 -j ACCEPT",
        "-A FORWARD -m physdev ! --physdev-is-bridged -j ACCEPT",
        "-A FORWARD -i br0 -j LOG",
    ] {
        expect(filtered(closed(&[rule])), Level::Warn, "firewall", ALL);
    }
    for rule in [
        "-A FORWARD -i br0 -p tcp -j ACCEPT",
        "-A FORWARD -i br0 -m conntrack --ctstate ESTABLISHED -j ACCEPT",
        "-A FORWARD -m physdev --physdev-in tap0 --physdev-is-bridged -j ACCEPT",
        "-A FORWARD -s 10.0.0.0/8 ! -d 10.0.0.1/32 -j ACCEPT",
        "-A FORWARD -i br0 -j NFQUEUE --queue-num 1",
    ] {
        expect(filtered(closed(&[rule])), Level::Warn, "firewall", REST);
    }
}

#[test]
fn nftables_rules_are_followed_by_their_own_keys() {
    let accept =
        |matches: &str| format!("[{matches}, {{\"counter\": {{\"packets\": 0, \"bytes\": 0}}}}, {{\"accept\": null}}]");
    let set = r#"{"set": ["eth0", "br0"]}"#;
    for matches in [
        meta("iifname", "==", "\"br0\""),
        meta("iifname", "==", set),
        meta("oifname", "==", "\"br*\""),
        meta("iifname", "!=", "\"eth0\""),
    ] {
        expect_ok(filtered(nft_chain("inet", "drop", &[&accept(&matches)])), "firewall", "no firewall drops all");
        // To a chain of family bridge those are ports.
        let found = found(filtered(nft_chain("bridge", "drop", &[&accept(&matches)])));
        assert!(
            matches!(found.as_slice(), [f] if f.check == "firewall" && f.level == Level::Warn),
            "{matches}: {found:?}"
        );
    }
    for key in ["ibrname", "obrname"] {
        let bridge = accept(&meta(key, "==", "\"br0\""));
        expect_ok(filtered(nft_chain("bridge", "drop", &[&bridge])), "firewall", "no firewall drops all");
        let other = accept(&meta(key, "!=", "\"br0\""));
        expect(filtered(nft_chain("bridge", "drop", &[&other])), Level::Warn, "firewall", ALL);
    }
    let dropped = |matches: &str| format!("[{matches}, {{\"drop\": null}}]");
    let map =
        r#"{"map": {"key": {"payload": {"protocol": "ip", "field": "saddr"}}, "data": {"set": [["10.0.0.1", 1]]}}}"#;
    for unknown in [
        meta("iifname", "==", "\"@ports\""),
        meta("mark", "==", "1"),
        r#"{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established"]}}"#.to_owned(),
        r#"{"xt": {"type": "match", "name": "physdev"}}"#.to_owned(),
        r#"{"limit": {"rate": 1, "per": "second"}}"#.to_owned(),
        // Each of these goes on with some packets and ends the rule for the others.
        r#"{"set": {"op": "add", "elem": "x", "set": "@s", "stmt": [{"limit": {"rate": 1, "per": "second"}}]}}"#
            .to_owned(),
        r#"{"map": {"op": "update", "elem": "x", "data": 1, "map": "@m"}}"#.to_owned(),
        r#"{"flow": {"op": "add", "flowtable": "@f"}}"#.to_owned(),
        r#"{"mangle": {"key": {"payload": {"protocol": "ip", "field": "ttl"}}, "value": 5}}"#.to_owned(),
        format!(r#"{{"mangle": {{"key": {{"meta": {{"key": "mark"}}}}, "value": {map}}}}}"#),
        format!(r#"{{"counter": {map}}}"#),
    ] {
        let part = filtered(nft_chain("inet", "accept", &[&dropped(&unknown)]));
        expect_ok(part, "firewall", "rules of chain inet t f may drop some of it");
    }
    for nothing in [
        r#"{"xt": {"type": "match", "name": "comment"}}"#,
        r#"{"log": {"prefix": "x", "flags": ["skuid", "ether"]}}"#,
        r#"{"counter": {"packets": 1, "bytes": 60}}"#,
        r#"{"mangle": {"key": {"meta": {"key": "mark"}}, "value": 5}}"#,
    ] {
        expect(filtered(nft_chain("ip", "accept", &[&dropped(nothing)])), Level::Warn, "firewall", ALL);
    }
    let target = r#"[{"xt": {"type": "target", "name": "REJECT"}}]"#;
    expect(filtered(nft_chain("ip", "accept", &[target])), Level::Warn, "firewall", ALL);
}

/// nft leaves out the match of the protocol that a refusal brings with it.
#[test]
fn a_refusal_of_one_protocol_is_none_of_the_others() {
    let reject = |kind: &str| format!(r#"[{{"reject": {{"type": "{kind}", "expr": "port-unreachable"}}}}]"#);
    for (family, kind) in
        [("ip", "tcp reset"), ("inet", "tcp reset"), ("inet", "icmp"), ("inet", "icmpv6"), ("bridge", "icmp")]
    {
        let part = filtered(nft_chain(family, "accept", &[&reject(kind)]));
        expect_ok(part, "firewall", "may drop some of it");
    }
    for (family, kind) in [("ip", "icmp"), ("ip6", "icmpv6"), ("inet", "icmpx"), ("bridge", "icmpx")] {
        expect(filtered(nft_chain(family, "accept", &[&reject(kind)])), Level::Warn, "firewall", ALL);
    }
}

/// Of what was forwarded the kernel tells no chain where it came in, nor of what came in where it goes out.
#[test]
fn a_rule_that_asks_for_an_interface_that_its_hook_is_not_told_fits_nothing() {
    for (hook, untold, told) in [("postrouting", "ibrname", "obrname"), ("prerouting", "obrname", "ibrname")] {
        let rule = |key, op| format!("[{}, {{\"accept\": null}}]", meta(key, op, "\"br0\""));
        for op in ["==", "!="] {
            let closed = nft_chain_at(hook, "bridge", "drop", &[&rule(untold, op)]);
            let remedy = expect(filtered(closed), Level::Warn, "firewall", ALL);
            assert_eq!(remedy, format!("nft insert rule bridge t f meta {told} br0 accept"));
        }
        let open = nft_chain_at(hook, "bridge", "drop", &[&rule(told, "==")]);
        expect_ok(filtered(open), "firewall", "no firewall drops all");
        let port = if hook == "postrouting" { "iifname" } else { "oifname" };
        for family in ["inet", "bridge"] {
            let closed = nft_chain_at(hook, family, "drop", &[&rule(port, "==")]);
            expect(filtered(closed), Level::Warn, "firewall", ALL);
        }
    }
    let mut chains = nft_chain_at("postrouting", "bridge", "drop", &[]);
    chains[0].name = "f; reboot\n".to_owned();
    let remedy = expect(filtered(chains), Level::Warn, "firewall", "chain bridge t f;reboot,");
    assert_eq!(remedy, "see that its rules accept meta obrname br0: nft list ruleset shows them");
}

#[test]
fn what_is_not_understood_may_drop_and_never_passes_for_nothing() {
    for statement in [
        r#"[{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["invalid", {"drop": null}]]}}}]"#,
        r#"[{"queue": null}]"#,
        r#"[{"of tomorrow": {"x": 1}}]"#,
        r#"[{"xt": null}]"#,
        r#"[{"two": 1, "words": 2}]"#,
        r#"["word"]"#,
        r#"[{"jump": {"target": "nowhere"}}]"#,
        r#"[{"jump": null}]"#,
    ] {
        // Whatever stands behind it: it is not known whether a packet comes that far.
        for behind in ["", r#", {"drop": null}"#, r#", {"accept": null}"#, r#", {"counter": null}"#] {
            let statements = format!("{}{behind}]", statement.strip_suffix(']').unwrap());
            let part = filtered(nft_chain("inet", "accept", &[&statements]));
            expect_ok(part, "firewall", "rules of chain inet t f may drop some of it");
            // And may accept some, but not all.
            expect(filtered(nft_chain("inet", "drop", &[&statements])), Level::Warn, "firewall", REST);
        }
    }
    let around = [r#"[{"jump": {"target": "f"}}]"#, r#"[{"jump": {"target": "f"}}]"#];
    expect_ok(filtered(nft_chain("inet", "accept", &around)), "firewall", "may drop some of it");
    let unread = |f: &mut Facts| {
        filtered(Vec::new())(f);
        named(f).firewall.unread = vec!["ebtables' own tables".to_owned()];
    };
    expect_ok(unread, "firewall", "ebtables' own tables may too and was not read");
}

#[test]
fn a_chain_at_an_interface_is_told_from_one_that_no_interfaces_packets_pass() {
    let stands = |chain: &str, interface: &str| {
        let says = format!(r#"{{"nftables": [{{"chain": {{"table": "t", "name": "c", {chain}}}}}]}}"#);
        nft::ruleset(&says).unwrap().stands_at(interface)
    };
    for chain in [
        r#""family": "netdev", "hook": "ingress", "dev": "eth0", "policy": "drop""#,
        r#""family": "netdev", "hook": "egress", "dev": ["eth1", "eth0"], "policy": "accept""#,
        r#""family": "inet", "hook": "ingress", "dev": "eth0""#,
        r#""family": "netdev", "hook": "ingress", "dev": "eth*""#,
        r#""family": "netdev", "hook": "ingress", "dev": [{"of": "tomorrow"}]"#,
        r#""family": "bridge", "hook": "of tomorrow""#,
    ] {
        assert!(stands(chain, "eth0"), "{chain}");
    }
    for chain in [
        r#""family": "netdev", "hook": "ingress", "dev": "eth1""#,
        r#""family": "netdev", "hook": "ingress", "dev": "wlan*""#,
        r#""family": "netdev""#,
        r#""family": "inet", "hook": "input", "dev": "eth0""#,
        r#""family": "bridge", "hook": "forward""#,
        r#""family": "ip", "hook": "postrouting""#,
    ] {
        assert!(!stands(chain, "eth0"), "{chain}");
    }
}

#[test]
fn a_table_of_iptables_that_may_drop_and_is_not_read_is_named() {
    assert_eq!(iptables::others("iptables-legacy", "nat\nfilter\n"), None);
    assert_eq!(iptables::others("iptables-legacy", ""), None);
    let others = iptables::others("iptables-legacy", "raw\nfilter\nmangle\nnat\n");
    assert_eq!(others.as_deref(), Some("iptables-legacy's raw, mangle"));
}

#[test]
fn what_a_tool_says_and_is_no_ruleset_cannot_be_told_instead_of_being_empty() {
    for says in [
        "nonsense",
        "",
        "{}",
        r#"{"nftables": {}}"#,
        r#"{"nftables": [{"chain": {"family": "ip"}}]}"#,
        r#"{"nftables": [{"chain": {"family": "ip", "table": "t", "name": 7}}]}"#,
        r#"{"nftables": [{"rule": {"family": "ip", "table": "t", "chain": "gone", "expr": []}}]}"#,
        r#"{"nftables": [{"chain": {"family": "ip", "table": "t", "name": "c"}},
            {"rule": {"family": "ip", "table": "t", "chain": "c"}}]}"#,
    ] {
        assert!(nft::ruleset(says).is_err(), "{says}");
    }
    assert_eq!(nft::ruleset(r#"{"nftables": [{"metainfo": {"version": "1.0.6"}}]}"#), Ok(NONE));
    for says in
        ["iptables v1.8.9: table is incompatible\n", "-A FORWARD -j DROP\n", "-P FORWARD DROP\n-A X \"\n", "-X\n"]
    {
        assert!(iptables::table("iptables", Family::Ip, says).is_err(), "{says}");
    }
    let unseen = |as_root, ipv4| {
        move |f: &mut Facts| {
            let firewall = &mut named(f).firewall;
            (firewall.as_root, firewall.ipv4) = (as_root, handed(ipv4));
            firewall.chains = Err("what nft lists is not understood".into());
        }
    };
    let told = "whether a firewall drops what bridges pass on cannot be told: \"what nft lists";
    for (as_root, ipv4) in [(true, false), (true, true), (false, true)] {
        expect(unseen(as_root, ipv4), Level::Warn, "firewall", told);
    }
    let plain =
        expect_ok(unseen(false, false), "firewall", "chains of family bridge would, and only root is shown them");
    assert_eq!(plain.remedy.as_deref(), Some("run bcd doctor as root"));
}

#[test]
fn each_bridge_is_judged_by_itself_and_none_without_one() {
    let two = |f: &mut Facts| {
        filtered(closed(&["-A FORWARD -i br0 -j ACCEPT"]))(f);
        named(f).bridges.push(("br1".to_owned(), Interface::Bridge { up: true }));
    };
    expect(two, Level::Warn, "firewall", "hands the packets of br1 to");
    let none = found(|f| {
        filtered(nft_chain("bridge", "drop", &[]))(f);
        named(f).bridges[0].1 = Interface::Missing;
    });
    assert!(none.iter().all(|f| f.check == "bridges"), "{none:?}");
}

#[test]
fn a_bridge_that_hands_its_packets_over_by_itself_is_judged_and_mended_by_itself() {
    let own = |bridge: &'static str| {
        move |f: &mut Facts| {
            filtered(nft_chain("ip", "drop", &[]))(f);
            let of = Handed::Of(vec![bridge.to_owned()]);
            (named(f).firewall.ipv4, named(f).firewall.ipv6) = (of, Handed::Of(Vec::new()));
            named(f).bridges.push(("br1".to_owned(), Interface::Bridge { up: true }));
        }
    };
    let remedy = expect(own("br1"), Level::Warn, "firewall", "hands the packets of br1 to chain ip t f");
    assert_eq!(remedy, "ip link set br1 type bridge nf_call_iptables 0 nf_call_ip6tables 0");
    expect_ok(own("br2"), "firewall", "no firewall drops all");
}

#[test]
fn jumps_that_multiply_are_not_followed_for_ever() {
    let mut says = "-P FORWARD ACCEPT\n".to_owned();
    let chains = 15;
    for number in 0..chains {
        says.push_str(&format!("-N c{number}\n"));
    }
    for number in 0..chains {
        let (from, to) = (number, number + 1);
        let to = if to == chains { "RETURN".to_owned() } else { format!("c{to}") };
        says.push_str(&format!("-A c{from} -p tcp -j {to}\n").repeat(20));
    }
    says.push_str("-A FORWARD -j c0\n");
    let start = std::time::Instant::now();
    let chains = iptables::table("iptables", Family::Ip, &says).unwrap();
    expect_ok(filtered(chains), "firewall", "rules of iptables's chain FORWARD may drop some of it");
    assert!(start.elapsed() < std::time::Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn a_chain_whose_name_is_no_word_is_not_pasted() {
    let mut chains = nft_chain("bridge", "drop", &[]);
    chains[0].name = "f; reboot\n".to_owned();
    let remedy = expect(filtered(chains), Level::Warn, "firewall", "chain bridge t f;reboot,");
    assert_eq!(remedy, "see that its rules accept meta ibrname br0: nft list ruleset shows them");
}
