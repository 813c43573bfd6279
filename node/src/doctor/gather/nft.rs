//! nftables' ruleset, from the JSON that nft says (libnftables-json(5)).
//!
//! Room: `node`. Pure. What is not understood is never taken for nothing: a ruleset that is none is an error, and a part of a
//! rule that is not known makes that rule one of which nobody knows what it does. That is why this reads the few parts that
//! concern bridged packets one by one, and not the whole by a schema (the crate `nftables`), which one unknown word anywhere
//! would make unreadable.
use super::super::facts::{Chain, Family, Hook, Match, Names, Rule, Tool, Verdict};
use super::iptables;
use serde_json::Value;

/// What a ruleset has for bridged packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Ruleset {
    /// Every chain that packets come into on their way through a bridge.
    pub chains: Vec<Chain>,
    /// The interfaces whose own packets come into a chain as they arrive or leave; `*` at the end stands for anything.
    pub devices: Vec<String>,
}

impl Ruleset {
    /// Whether some chain is passed by all that comes in or goes out at this interface.
    #[must_use]
    pub(crate) fn stands_at(&self, interface: &str) -> bool {
        self.devices.iter().any(|device| match device.strip_suffix('*') {
            Some(prefix) => interface.starts_with(prefix),
            None => device == interface,
        })
    }
}

/// What bridged packets may pass, of what `nft -j list ruleset` says.
///
/// # Errors
/// What of it is not understood.
pub(in super::super) fn ruleset(json: &str) -> Result<Ruleset, &'static str> {
    let value: Value = serde_json::from_str(json).map_err(|_| "what nft lists is not understood")?;
    let objects = value.get("nftables").and_then(Value::as_array).ok_or("what nft lists is not understood")?;
    let (mut chains, mut devices) = (Vec::new(), Vec::new());
    for object in objects {
        if let Some(chain) = object.get("chain") {
            chains.extend(self::chain(chain)?);
            devices.extend(self::devices(chain));
        }
    }
    for object in objects {
        if let Some(said) = object.get("rule") {
            let [family, table, name] = ["family", "table", "chain"].map(|key| text(said, key));
            let (family, table, name) = (family?, table?, name?);
            let home = chains.iter_mut().find(|chain| {
                (chain.family.name(), chain.table.as_str(), chain.name.as_str()) == (family, table, name)
            });
            match home {
                Some(chain) => chain.rules.push(rule(said)?),
                None if Family::of(family).is_some() => return Err("nft lists a rule without its chain"),
                None => {}
            }
        }
    }
    Ok(Ruleset { chains, devices })
}

/// Where a chain stands that is no step on the way through a bridge, but at interfaces: hook `ingress` or `egress`, or one that
/// is not known. One that does not say where may stand anywhere.
fn devices(chain: &Value) -> Vec<String> {
    match chain.get("hook").and_then(Value::as_str) {
        None | Some("prerouting" | "input" | "forward" | "output" | "postrouting") => Vec::new(),
        Some(_) => match chain.get("dev") {
            Some(Value::String(device)) => vec![device.clone()],
            Some(Value::Array(devices)) => {
                devices.iter().map(|device| device.as_str().unwrap_or("*").to_owned()).collect()
            }
            Some(_) | None => vec!["*".to_owned()],
        },
    }
}

fn text<'a>(object: &'a Value, key: &str) -> Result<&'a str, &'static str> {
    object.get(key).and_then(Value::as_str).ok_or("nft lists a chain or rule without a name")
}

fn chain(said: &Value) -> Result<Option<Chain>, &'static str> {
    let (table, name) = (text(said, "table")?.to_owned(), text(said, "name")?.to_owned());
    let Some(family) = Family::of(text(said, "family")?) else { return Ok(None) };
    let hook = match said.get("hook").and_then(Value::as_str) {
        Some("prerouting") => Some(Hook::Prerouting),
        Some("forward") => Some(Hook::Forward),
        Some("postrouting") => Some(Hook::Postrouting),
        // What a bridge passes on goes through no other; for those at interfaces see `devices`.
        Some(_) | None => None,
    };
    let drops = said.get("policy").and_then(Value::as_str) == Some("drop");
    Ok(Some(Chain { tool: Tool::Nft, family, table, name, hook, drops, rules: Vec::new() }))
}

/// A statement that is not known leaves open what becomes of a packet, whatever stands behind it.
fn rule(said: &Value) -> Result<Rule, &'static str> {
    let family = said.get("family").and_then(Value::as_str).and_then(Family::of);
    let statements = said.get("expr").and_then(Value::as_array).ok_or("nft lists a rule without a statement")?;
    let mut rule = Rule { matches: Vec::new(), verdict: Verdict::Next };
    for statement in statements {
        // `{"accept": null}`: a name and what belongs to it.
        let parts: Vec<(&str, &Value)> =
            statement.as_object().into_iter().flatten().map(|(name, with)| (name.as_str(), with)).collect();
        let [(name, with)] = parts.as_slice() else {
            rule.verdict = Verdict::Unknown;
            return Ok(rule);
        };
        let target = || with.get("target").and_then(Value::as_str).map(str::to_owned);
        let verdict = match *name {
            "match" => {
                rule.matches.push(condition(with));
                continue;
            }
            "log" | "notrack" | "last" | "continue" => continue,
            "counter" | "secmark" | "ct helper" | "ct timeout" | "ct expectation" if is_flat(with) => continue,
            // A mark, of a packet or its connection, that is always the same.
            "mangle"
                if ["/key/meta", "/key/ct"].iter().any(|key| with.pointer(key).is_some())
                    && with.get("value").is_some_and(is_one) =>
            {
                continue;
            }
            // The rule ends with these for a packet beyond the limit, one that a set has no room for, one that is not in a map,
            // or one that has not what is to be changed.
            "limit" | "quota" | "ct count" | "meter" | "set" | "map" | "flow" | "dup" | "mangle" | "counter"
            | "secmark" | "ct helper" | "ct timeout" | "ct expectation" => {
                rule.matches.push(Match::Other);
                continue;
            }
            // A match or a target of iptables, by its name; its options are not told.
            "xt" => match ["type", "name"].map(|key| with.get(key).and_then(Value::as_str)) {
                [Some("match"), Some("comment")] => continue,
                [Some("match"), _] => {
                    rule.matches.push(Match::Other);
                    continue;
                }
                [Some("target"), Some(name)] => iptables::verdict(name, &[]),
                _ => {
                    rule.matches.push(Match::Other);
                    Verdict::Unknown
                }
            },
            "accept" => Verdict::Accept,
            // The first packet of a connection passes with it, and the others go its way.
            "snat" | "dnat" | "masquerade" | "redirect" => {
                if !is_flat(with) {
                    rule.matches.push(Match::Other);
                }
                Verdict::Accept
            }
            "drop" => Verdict::Drop,
            // Which protocol it is for goes without saying.
            "reject" => {
                match (with.get("type").and_then(Value::as_str), family) {
                    (None | Some("icmpx"), _) => {}
                    (Some("icmp"), Some(Family::Ip)) | (Some("icmpv6"), Some(Family::Ip6)) => {}
                    (Some(_), _) => rule.matches.push(Match::Other),
                }
                Verdict::Drop
            }
            "return" => Verdict::Return,
            "jump" => target().map_or(Verdict::Unknown, Verdict::Jump),
            "goto" => target().map_or(Verdict::Unknown, Verdict::Goto),
            _ => Verdict::Unknown,
        };
        rule.verdict = verdict;
        // No packet comes further than a verdict.
        if rule.verdict != Verdict::Next {
            break;
        }
    }
    Ok(rule)
}

/// Whether it is a value and nothing that is looked up or put together.
fn is_one(said: &Value) -> bool {
    !said.is_object() && !said.is_array()
}

/// Whether that holds for all that belongs to a statement.
fn is_flat(said: &Value) -> bool {
    said.as_object().map_or_else(|| is_one(said), |parts| parts.values().all(is_one))
}

/// `{"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "br0"}`
fn condition(said: &Value) -> Match {
    let key = said.pointer("/left/meta/key").and_then(Value::as_str);
    let not = match said.get("op").and_then(Value::as_str) {
        Some("==" | "in") => false,
        Some("!=") => true,
        Some(_) | None => return Match::Other,
    };
    let Some(names) = said.get("right").and_then(names) else { return Match::Other };
    let names = Names { names, not };
    match key {
        Some("iifname" | "iif") => Match::In(names),
        Some("oifname" | "oif") => Match::Out(names),
        Some("ibrname" | "ibridgename") => Match::InBridge(names),
        Some("obrname" | "obridgename") => Match::OutBridge(names),
        Some(_) | None => Match::Other,
    }
}

/// A name, or an anonymous set of them. A named set (`@…`) would have to be looked up.
fn names(said: &Value) -> Option<Vec<String>> {
    let one = |value: &Value| value.as_str().filter(|name| !name.starts_with('@')).map(str::to_owned);
    match said.get("set") {
        Some(set) => set.as_array()?.iter().map(one).collect(),
        None => one(said).map(|name| vec![name]),
    }
}
