//! What a firewall does to the packets that a bridge passes on from one of its ports to another.
//!
//! Room: `node`. Pure. Each chain is followed for all such packets of one bridge at once. A rule whose matches say nothing
//! but which bridge it is takes all of them or none; one that says more takes a part, and nobody here knows which.
//!
//! Packets that a bridge passes on are nobody's business but the bridge's, unless br_netfilter hands them to iptables, whose
//! forward chain Docker and many firewalls close; chains of family bridge see them always.
use super::super::Finding;
use super::super::facts::{
    Chain, Configured, Family, Firewall, Handed, Hook, Interface, Match, Names, Rule, Tool, Verdict,
};
use super::remedy::command;
use super::{could, ok, warn};

/// Deepest jump that is followed: the kernel allows 16.
const DEPTH: usize = 16;
/// Most rules that are looked at for one chain and bridge: jumps can multiply them.
const RULES: usize = 100_000;

pub(super) fn firewall(configured: &Configured) -> Vec<Finding> {
    let check = "firewall";
    let firewall = &configured.firewall;
    let there = configured.bridges.iter().filter(|(_, interface)| matches!(interface, Interface::Bridge { .. }));
    let bridges: Vec<&str> = there.map(|(name, _)| name.as_str()).collect();
    if bridges.is_empty() {
        return Vec::new();
    }
    let chains = match &firewall.chains {
        Ok(chains) => chains,
        Err(why) if firewall.as_root || bridges.iter().any(|bridge| handed(firewall, bridge)) => {
            return vec![warn(
                check,
                format!("whether a firewall drops what bridges pass on cannot be told: {why}"),
                "run bcd doctor as root, with nftables and iptables installed; or see for yourself: nft list ruleset",
            )];
        }
        Err(_) => {
            return vec![could(
                check,
                "br_netfilter is off, so iptables does not see what bridges pass on; chains of family bridge would, and \
                 only root is shown them",
                "run bcd doctor as root",
            )];
        }
    };
    let mut findings: Vec<Finding> = Vec::new();
    let mut parts: Vec<String> = Vec::new();
    for chain in chains {
        let passing = bridges.iter().filter(|bridge| concerns(chain, firewall, bridge));
        let fates: Vec<(&str, Fate)> =
            passing.map(|bridge| (*bridge, Way::new(chains, chain, bridge).fate(chain))).collect();
        let with = |wanted: Fate| fates.iter().filter(move |(_, fate)| *fate == wanted).map(|(bridge, _)| *bridge);
        for fate in [Fate::All, Fate::Rest] {
            let shut: Vec<&str> = with(fate).collect();
            if !shut.is_empty() {
                let (remedy, lasts) = mend(chain, chains, firewall, &shut);
                findings.push(warn(check, format!("{}{lasts}", told(chain, fate, &shut)), remedy));
            }
        }
        if with(Fate::Part).next().is_some() {
            parts.push(shown(chain));
        }
    }
    if findings.is_empty() {
        let mut found = format!("no firewall drops all that bridges pass on ({})", bridges.join(", "));
        if !parts.is_empty() {
            found.push_str(&format!("; rules of {} may drop some of it", parts.join(", ")));
        }
        for unread in &firewall.unread {
            found.push_str(&format!("; {unread} may too and was not read"));
        }
        findings.push(ok(check, found));
    }
    findings
}

/// Whether anything of a bridge's is handed to chains for IP.
fn handed(firewall: &Firewall, bridge: &str) -> bool {
    firewall.ipv4.is_of(bridge) || firewall.ipv6.is_of(bridge)
}

/// Whether packets that a bridge passes on come into this chain by themselves.
fn concerns(chain: &Chain, firewall: &Firewall, bridge: &str) -> bool {
    chain.hook.is_some()
        && match chain.family {
            Family::Bridge => true,
            Family::Ip => firewall.ipv4.is_of(bridge),
            Family::Ip6 => firewall.ipv6.is_of(bridge),
            Family::Inet => handed(firewall, bridge),
        }
}

/// What a chain drops of a bridge's packets; the worse is the larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// Nothing.
    Nothing,
    /// What some rule narrows down to, or what is not understood: it depends.
    Part,
    /// All that no rule before accepts.
    Rest,
    /// All of it.
    All,
}

/// How many of the packets are still on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    None,
    Some,
    All,
}

/// Whether a packet of the bridge fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fits {
    No,
    Maybe,
    Yes,
}

/// The way of one bridge's packets through one chain and those that it jumps to.
struct Way<'a> {
    chains: Vec<&'a Chain>,
    bridge: &'a str,
    hook: Option<Hook>,
    looked: usize,
    worst: Fate,
}

impl<'a> Way<'a> {
    fn new(all: &'a [Chain], base: &Chain, bridge: &'a str) -> Self {
        let same = |chain: &&Chain| (chain.tool, chain.family, &chain.table) == (base.tool, base.family, &base.table);
        Self { chains: all.iter().filter(same).collect(), bridge, hook: base.hook, looked: 0, worst: Fate::Nothing }
    }

    fn fate(mut self, base: &Chain) -> Fate {
        let left = self.follow(base, Left::All, false, 0);
        if base.drops {
            self.drop(left, false);
        }
        self.worst
    }

    /// Follows a chain with what comes into it; answers what comes out at its end. `narrowed`: a rule before that was fit in
    /// part only led here.
    fn follow(&mut self, chain: &Chain, come: Left, narrowed: bool, depth: usize) -> Left {
        let (mut left, mut returned) = (come, Left::None);
        for rule in &chain.rules {
            if left == Left::None {
                break;
            }
            self.looked = self.looked.saturating_add(1);
            if depth > DEPTH || self.looked > RULES {
                self.worst = self.worst.max(Fate::Part);
                break;
            }
            let fits = self.fits(rule, chain.family);
            if fits == Fits::No {
                continue;
            }
            // What goes the rule's way, and what stays for the next one.
            let (taken, stays) = match fits {
                Fits::Yes => (left, Left::None),
                Fits::Maybe | Fits::No => (Left::Some, Left::Some),
            };
            let narrowed = narrowed || fits == Fits::Maybe;
            match &rule.verdict {
                Verdict::Next => {}
                Verdict::Accept => left = stays,
                Verdict::Drop => {
                    self.drop(taken, narrowed);
                    left = stays;
                }
                Verdict::Return => {
                    returned = returned.max(taken);
                    left = stays;
                }
                Verdict::Jump(name) => left = stays.max(self.enter(name, taken, narrowed, depth)),
                Verdict::Goto(name) => {
                    returned = returned.max(self.enter(name, taken, narrowed, depth));
                    left = stays;
                }
                Verdict::Unknown => {
                    self.worst = self.worst.max(Fate::Part);
                    left = left.min(Left::Some);
                }
            }
        }
        left.max(returned)
    }

    fn enter(&mut self, name: &str, come: Left, narrowed: bool, depth: usize) -> Left {
        match self.chains.iter().copied().find(|chain| chain.name == name) {
            Some(chain) => self.follow(chain, come, narrowed, depth.saturating_add(1)),
            None => {
                self.worst = self.worst.max(Fate::Part);
                come.min(Left::Some)
            }
        }
    }

    fn drop(&mut self, dropped: Left, narrowed: bool) {
        self.worst = self.worst.max(match (dropped, narrowed) {
            (Left::None, _) => Fate::Nothing,
            (Left::Some | Left::All, true) => Fate::Part,
            (Left::Some, false) => Fate::Rest,
            (Left::All, false) => Fate::All,
        });
    }

    fn fits(&self, rule: &Rule, family: Family) -> Fits {
        rule.matches.iter().map(|one| self.fits_one(one, family)).min().unwrap_or(Fits::Yes)
    }

    /// To a chain of family bridge a packet comes in by a port, whose name may be anything but the bridge's own; to the others, by
    /// the bridge itself. Which way it goes out the kernel does not tell a chain before it is forwarded, nor where it came in
    /// after that: then no name of an interface is right, whether another one counts as one is the kernel's version's, and what
    /// is asked of its bridge ends the rule.
    fn fits_one(&self, one: &Match, family: Family) -> Fits {
        let is_bridges = family == Family::Bridge;
        let (no_in, no_out) = (self.hook == Some(Hook::Postrouting), self.hook == Some(Hook::Prerouting));
        match one {
            Match::In(names) if no_in => {
                if names.not {
                    Fits::Maybe
                } else {
                    Fits::No
                }
            }
            Match::Out(names) if no_out => {
                if names.not {
                    Fits::Maybe
                } else {
                    Fits::No
                }
            }
            Match::InBridge(_) if no_in => Fits::No,
            Match::OutBridge(_) if no_out => Fits::No,
            Match::In(names) | Match::Out(names) if !is_bridges => self.named(names),
            Match::In(names) | Match::Out(names) if names.names.iter().any(|name| name != self.bridge) => Fits::Maybe,
            Match::In(names) | Match::Out(names) => {
                if names.not {
                    Fits::Yes
                } else {
                    Fits::No
                }
            }
            Match::InBridge(names) | Match::OutBridge(names) if is_bridges => self.named(names),
            Match::Bridged(bridged) if !is_bridges && *bridged => Fits::Yes,
            Match::Bridged(bridged) if !is_bridges && !*bridged => Fits::No,
            Match::InBridge(_) | Match::OutBridge(_) | Match::Bridged(_) | Match::Other => Fits::Maybe,
        }
    }

    fn named(&self, names: &Names) -> Fits {
        let fits = |name: &String| match name.strip_suffix('*') {
            Some(prefix) => self.bridge.starts_with(prefix),
            None => name == self.bridge,
        };
        if names.names.iter().any(fits) == names.not { Fits::No } else { Fits::Yes }
    }
}

fn shown(chain: &Chain) -> String {
    // Whoever made the chain named it.
    let name = |text: &str| text.chars().filter(|c| c.is_ascii_graphic()).take(60).collect::<String>();
    match chain.tool {
        Tool::Nft => format!("chain {} {} {}", chain.family.name(), name(&chain.table), name(&chain.name)),
        Tool::Iptables(tool) => format!("{tool}'s chain {}", name(&chain.name)),
    }
}

fn told(chain: &Chain, fate: Fate, bridges: &[&str]) -> String {
    let bridges = bridges.join(", ");
    let drops = match fate {
        Fate::All => "drops all of them: guests reach nobody",
        Fate::Rest | Fate::Part | Fate::Nothing => "drops what no rule before accepts: guests may reach nobody",
    };
    let by = match chain.family {
        Family::Bridge => format!("packets that {bridges} passes on go through"),
        Family::Ip | Family::Ip6 | Family::Inet => format!("br_netfilter hands the packets of {bridges} to"),
    };
    format!("{by} {}, which {drops}", shown(chain))
}

/// What opens it, and how long that lasts.
fn mend(chain: &Chain, chains: &[Chain], firewall: &Firewall, bridges: &[&str]) -> (String, &'static str) {
    let docker = |tool: &str| {
        chains.iter().any(|other| other.tool == chain.tool && other.name == "DOCKER-USER").then(|| {
            let accept = command(&[tool, "-I", "DOCKER-USER", "-m", "physdev", "--physdev-is-bridged", "-j", "ACCEPT"]);
            (accept, "; what opens it has to be done again after each start of Docker")
        })
    };
    // What is going out has no bridge any more that it came in by.
    let key = if chain.hook == Some(Hook::Postrouting) { "obrname" } else { "ibrname" };
    match (chain.family, chain.tool) {
        // A name that is none nft would take as a word is not pasted.
        (Family::Bridge, _) if !(is_word(&chain.table) && is_word(&chain.name)) => {
            let rules = bridges.join(", ");
            (format!("see that its rules accept meta {key} {rules}: nft list ruleset shows them"), "")
        }
        (Family::Bridge, _) => {
            let accept = |bridge: &&str| {
                command(&["nft", "insert", "rule", "bridge", &chain.table, &chain.name, "meta", key, bridge, "accept"])
            };
            (bridges.iter().map(accept).collect::<Vec<_>>().join("; "), "")
        }
        (Family::Ip | Family::Ip6 | Family::Inet, Tool::Iptables(tool)) => {
            docker(tool).unwrap_or_else(|| off(firewall, bridges))
        }
        (Family::Ip | Family::Ip6 | Family::Inet, Tool::Nft) => off(firewall, bridges),
    }
}

fn is_word(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/' | b'\\'))
}

/// Switches off what hands packets over: the host's setting, and those of the bridges that have their own.
fn off(firewall: &Firewall, bridges: &[&str]) -> (String, &'static str) {
    let all = [&firewall.ipv4, &firewall.ipv6].contains(&&Handed::All);
    let host =
        all.then(|| "sysctl -w net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0".to_owned());
    let own = |handed: &Handed, bridge: &str| matches!(handed, Handed::Of(_)) && handed.is_of(bridge);
    let each =
        bridges.iter().filter(|bridge| own(&firewall.ipv4, bridge) || own(&firewall.ipv6, bridge)).map(|bridge| {
            let own = ["nf_call_iptables", "0", "nf_call_ip6tables", "0"];
            command(&[&["ip", "link", "set", bridge, "type", "bridge"][..], &own[..]].concat())
        });
    let commands: Vec<String> = host.into_iter().chain(each).collect();
    (commands.join("; "), "; what opens it has to stand in the host's settings too, such as /etc/sysctl.d")
}
