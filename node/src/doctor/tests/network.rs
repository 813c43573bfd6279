//! Bridges and firewalls.
use super::gather::net::dropping;
use super::*;

fn chain(family: &str, table: &str, name: &str) -> Chain {
    Chain { family: family.to_owned(), table: table.to_owned(), name: name.to_owned() }
}

#[test]
fn each_listed_bridge_has_to_be_there_be_one_and_be_up() {
    expect(|f| named(f).bridges[0].1 = Interface::Missing, Level::Fail, "bridges", "no bridge br0");
    expect(|f| named(f).bridges[0].1 = Interface::Other, Level::Fail, "bridges", "br0 is no bridge");
    let remedy =
        expect(|f| named(f).bridges[0].1 = Interface::Bridge { up: false }, Level::Warn, "bridges", "br0 is down");
    assert_eq!(remedy, "ip link set br0 up");
    expect(|f| named(f).bridges.clear(), Level::Warn, "bridges", "no NIC");
    let second = |f: &mut Facts| named(f).bridges.push(("br1".to_owned(), Interface::Missing));
    expect(second, Level::Fail, "bridges", "no bridge br1");
}

/// br_netfilter on, and this chain drops.
fn shut(family: &str, rules: &[&str]) -> impl FnOnce(&mut Facts) {
    let (drops, rules) =
        (Ok(vec![chain(family, "filter", "FORWARD")]), rules.iter().map(ToString::to_string).collect());
    let docker = false;
    move |f| named(f).firewall = Firewall { ipv4: true, ipv6: true, drops, rules, docker }
}

#[test]
fn a_firewall_that_drops_what_bridges_pass_on_warns() {
    for family in ["ip", "ip6", "inet"] {
        let remedy = expect(shut(family, &["-P FORWARD DROP"]), Level::Warn, "firewall", "drops what no rule accepts");
        assert!(remedy.contains("net.bridge.bridge-nf-call-iptables=0"), "{family}: {remedy}");
    }
    let remedy = expect(shut("bridge", &[]), Level::Warn, "firewall", "chain bridge filter FORWARD");
    assert_eq!(remedy, "nft insert rule bridge filter FORWARD meta ibrname br0 accept");
    let docker = |f: &mut Facts| {
        shut("ip", &["-N DOCKER-USER"])(f);
        named(f).firewall.docker = true;
    };
    assert!(expect(docker, Level::Warn, "firewall", "br_netfilter").starts_with("iptables -I DOCKER-USER"));
}

#[test]
fn a_chain_that_bridged_packets_do_not_pass_is_no_finding() {
    for family in ["ip", "ip6", "inet"] {
        let off = |f: &mut Facts| {
            shut(family, &[])(f);
            (named(f).firewall.ipv4, named(f).firewall.ipv6) = (false, false);
        };
        expect_ok(off, "firewall", "no firewall drops what bridges pass on (br0)");
    }
    let other_family = |f: &mut Facts| {
        shut("ip6", &[])(f);
        named(f).firewall.ipv6 = false;
    };
    expect_ok(other_family, "firewall", "no firewall");
}

#[test]
fn a_rule_that_accepts_the_bridges_packets_mends_it_and_a_narrower_one_does_not() {
    for rule in [
        "-A DOCKER-USER -m physdev --physdev-is-bridged -j ACCEPT",
        "-A FORWARD -i br0 -o br0 -j ACCEPT",
        "iifname \"br0\" accept",
        "iifname \"br0\" oifname \"br0\" counter packets 0 bytes 0 accept",
    ] {
        expect_ok(shut("ip", &[rule]), "firewall", "no firewall");
        // To a chain of family bridge those are ports, and iptables does not come that way.
        expect(shut("bridge", &[rule]), Level::Warn, "firewall", "br0");
    }
    expect_ok(shut("bridge", &["meta ibrname \"br0\" accept"]), "firewall", "no firewall");
    for rule in [
        "-A FORWARD -i br0 -p tcp -j ACCEPT",
        "-A FORWARD -i br0 -m conntrack --ctstate ESTABLISHED -j ACCEPT",
        "-A FORWARD -i br01 -j ACCEPT",
        "-A FORWARD -i br0 -j DROP",
        "-A FORWARD -o br0 -j ACCEPT",
        "iifname \"br0\" ip daddr 10.0.0.0/8 accept",
        "-A FORWARD -m physdev --physdev-is-bridged -j DROP",
    ] {
        expect(shut("ip", &[rule]), Level::Warn, "firewall", "br0");
    }
}

#[test]
fn rules_that_cannot_be_seen_warn_only_where_they_matter() {
    let unseen = |ipv4| {
        move |f: &mut Facts| {
            let firewall = &mut named(f).firewall;
            (firewall.ipv4, firewall.drops) = (ipv4, Err("Operation not permitted".into()));
        }
    };
    expect(unseen(true), Level::Warn, "firewall", "Operation not permitted");
    expect_ok(unseen(false), "firewall", "br_netfilter is off");
}

#[test]
fn no_firewall_is_looked_at_without_a_bridge() {
    let none = found(|f| {
        shut("bridge", &[])(f);
        named(f).bridges[0].1 = Interface::Missing;
    });
    assert!(none.iter().all(|f| f.check == "bridges"), "{none:?}");
}

#[test]
fn nftables_own_words_are_understood() {
    let says = r#"{"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
        {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "handle": 2, "type": "filter", "hook": "forward",
                   "prio": 0, "policy": "drop"}},
        {"chain": {"family": "ip", "table": "filter", "name": "DOCKER-USER", "handle": 5}},
        {"chain": {"family": "inet", "table": "filter", "name": "input", "handle": 1, "type": "filter", "hook": "input",
                   "prio": 0, "policy": "drop"}},
        {"chain": {"family": "inet", "table": "filter", "name": "forward", "handle": 3, "type": "filter", "hook": "forward",
                   "prio": 0, "policy": "accept"}},
        {"chain": {"family": "bridge", "table": "b", "name": "f", "handle": 1, "type": "filter", "hook": "forward",
                   "prio": -200, "policy": "drop"}}]}"#;
    assert_eq!(dropping(says), [chain("ip", "filter", "FORWARD"), chain("bridge", "b", "f")]);
    assert_eq!(dropping("nonsense"), []);
}
