//! Doctor and real firewalls, each in a network of its own: what is closed is found by what nft and iptables say of it, the
//! remedy as it stands opens it, and looking changes nothing.
//!
//! Room: `tests`. Needs root, nft and iptables, and no libvirtd. The host's own network is not touched.
use bcd_tests::daemons::bin;
use bcd_tests::place::Place;
use serde_json::Value;
use std::process::{Command, Output};

/// Runs `script` in a network of its own that has a bridge br0; `$DOCTOR` is doctor's command line.
fn in_network(place: &Place, script: &str) -> Output {
    let begin = "set -e; mount -t sysfs sysfs /sys; ip link add br0 type bridge; ip link set br0 up; ";
    Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", &format!("{begin}{script}")])
        .env("DOCTOR", format!("{} --config {} doctor --json", bin("bcd").display(), place.config().display()))
        .output()
        .expect("unshare, of util-linux")
}

/// Level, text and remedy of each finding on firewalls, of what doctor says in that network.
fn judged(place: &Place, script: &str) -> Vec<(String, String, String)> {
    let output = in_network(place, &format!("{script}; $DOCTOR || true"));
    let said = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&said)
        .unwrap_or_else(|e| panic!("{e}: {said}{}", String::from_utf8_lossy(&output.stderr)));
    let of_firewall = report["findings"].as_array().expect("findings").iter().filter(|f| f["check"] == "firewall");
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    of_firewall.map(|f| (text(f, "level"), text(f, "found"), text(f, "remedy"))).collect()
}

fn place(name: &str) -> Place {
    let place = Place::new(name);
    place.configure("instance_bridges = [\"br0\"]");
    place
}

/// Whether this kernel can do what a case needs: `begin` works in a network of its own.
fn possible(place: &Place, begin: &str) -> bool {
    let tried = in_network(place, begin);
    if !tried.status.success() {
        eprintln!(
            "skipped: this kernel or host has not all of {begin:?}: {}",
            String::from_utf8_lossy(&tried.stderr).trim()
        );
    }
    tried.status.success()
}

#[test]
fn each_firewall_that_closes_a_bridge_is_found_and_opened_by_its_remedy() {
    if !bcd_tests::real("each_firewall_that_closes_a_bridge_is_found_and_opened_by_its_remedy") {
        return;
    }
    let place = place("firewall");
    let handed = "test \"$(cat /proc/sys/net/bridge/bridge-nf-call-iptables)\" = 1; ";
    let closed = [
        (
            "chain bridge t f, which drops all of them",
            "nft add table bridge t; nft add chain bridge t f '{ type filter hook forward priority 0; policy drop; }'"
                .to_owned(),
        ),
        (
            "chain inet t f, which drops what no rule before accepts",
            format!(
                "{handed}nft add table inet t; nft add chain inet t f '{{ type filter hook forward priority 0; }}'; \
                 nft add rule inet t f ct state established accept; nft add rule inet t f counter reject"
            ),
        ),
        // What lets the bridge into the host lets nothing through it.
        (
            "iptables-nft's chain FORWARD, which drops all of them",
            format!(
                "{handed}iptables-nft -N DOCKER-USER; iptables-nft -A FORWARD -j DOCKER-USER; iptables-nft -P FORWARD DROP; \
                 iptables-nft -A INPUT -i br0 -j ACCEPT; iptables-nft -A FORWARD ! -i br0 -j ACCEPT"
            ),
        ),
        (
            "br_netfilter hands the packets of br0 to chain ip t f, which drops all of them",
            format!(
                "{handed}sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0; \
                 ip link set br0 type bridge nf_call_iptables 1; nft add table ip t; \
                 nft add chain ip t f '{{ type filter hook forward priority 0; policy drop; }}'"
            ),
        ),
        (
            "iptables-legacy's chain FORWARD, which drops all of them",
            format!("{handed}iptables-legacy -A FORWARD -j REJECT"),
        ),
    ];
    for (words, close) in closed {
        if !possible(&place, &close) {
            continue;
        }
        let found = judged(&place, &close);
        let [(level, text, remedy)] = found.as_slice() else { panic!("{close}: one finding, not {found:?}") };
        assert!(level == "warn" && text.contains(words), "{close}: {found:?}");
        // Debian's kernels have what the remedy needs in a module, and some small ones do not.
        let wants_name =
            "nft add table bridge u; nft add chain bridge u c; nft add rule bridge u c meta ibrname br0 accept";
        if remedy.contains("ibrname") && !possible(&place, wants_name) {
            continue;
        }
        let mended = judged(&place, &format!("{close}; {{ {remedy}\n}} >&2"));
        assert!(matches!(mended.as_slice(), [(level, ..)] if level == "ok"), "{close}: after {remedy}: {mended:?}");
    }
    let open = judged(&place, "nft add table ip t; nft add chain ip t f '{ type filter hook forward priority 0; }'");
    assert!(matches!(open.as_slice(), [(level, ..)] if level == "ok"), "{open:?}");
}

#[test]
fn looking_at_the_firewall_loads_no_module_and_makes_no_table() {
    if !bcd_tests::real("looking_at_the_firewall_loads_no_module_and_makes_no_table") {
        return;
    }
    let place = place("firewall-look");
    let state = "cat /proc/net/ip_tables_names /proc/net/ip6_tables_names 2>/dev/null || true; cut -d' ' -f1 /proc/modules | sort; \
                 nft list ruleset";
    let script =
        format!("before=$({state}); $DOCTOR >/dev/null || true; after=$({state}); test \"$before\" = \"$after\"");
    let output = in_network(&place, &script);
    assert!(output.status.success(), "it changed what it looked at: {}", String::from_utf8_lossy(&output.stderr));
    // Where looking would change something, this shows that it was looked for.
    if possible(&place, "test -e /proc/net/ip_tables_names; iptables-legacy -S") {
        let listed = in_network(&place, "iptables-legacy -S >/dev/null; grep -q filter /proc/net/ip_tables_names");
        assert!(listed.status.success(), "to list the table makes none here: this test shows nothing");
    }
}
