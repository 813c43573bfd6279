//! nftables' ruleset, from the JSON that nft says (libnftables-json(5)).
//!
//! Room: `node`. Pure. What is not understood is never taken for nothing: a ruleset that is none is an error, and a part of a
//! rule that is not known makes that rule one of which nobody knows what it does. That is why this reads the few parts that
//! concern bridged packets one by one, and not the whole by a schema (the crate `nftables`), which one unknown word anywhere
//! would make unreadable.
use super::super::facts::{Chain, Family, Hook, Match, Names, Rule, Tool, Verdict};
use super::iptables;
use serde_json::Value;

/// Every chain that bridged packets may pass, of what `nft -j list ruleset` says.
///
/// # Errors
/// What of it is not understood.
pub(in super::super) fn ruleset(json: &str) -> Result<Vec<Chain>, &'static str> {
    let value: Value = serde_json::from_str(json).map_err(|_| "what nft lists is not understood")?;
    let objects = value.get("nftables").and_then(Value::as_array).ok_or("what nft lists is not understood")?;
    let mut chains = Vec::new();
    for object in objects {
        if let Some(chain) = object.get("chain") {
            chains.extend(self::chain(chain)?);
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
    Ok(chains)
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
        // Bridged packets pass no other.
        Some(_) | None => None,
    };
    let drops = said.get("policy").and_then(Value::as_str) == Some("drop");
    Ok(Some(Chain { tool: Tool::Nft, family, table, name, hook, drops, rules: Vec::new() }))
}

fn rule(said: &Value) -> Result<Rule, &'static str> {
    let statements = said.get("expr").and_then(Value::as_array).ok_or("nft lists a rule without a statement")?;
    let mut rule = Rule { matches: Vec::new(), verdict: Verdict::Next };
    for statement in statements {
        // `{"accept": null}`: a name and what belongs to it.
        let parts: Vec<(&str, &Value)> =
            statement.as_object().into_iter().flatten().map(|(name, with)| (name.as_str(), with)).collect();
        let [(name, with)] = parts.as_slice() else {
            rule.verdict = Verdict::Unknown;
            continue;
        };
        let target = || with.get("target").and_then(Value::as_str).map(str::to_owned);
        let verdict = match *name {
            "match" => {
                rule.matches.push(condition(with));
                continue;
            }
            "counter" | "log" | "mangle" | "notrack" | "dup" | "flow" | "set" | "map" | "last" | "secmark"
            | "ct helper" | "ct timeout" | "ct expectation" | "continue" => continue,
            "limit" | "quota" | "ct count" | "meter" => {
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
            // The first packet of a connection passes with it, and the others go its way.
            "accept" | "snat" | "dnat" | "masquerade" | "redirect" => Verdict::Accept,
            "drop" | "reject" => Verdict::Drop,
            "return" => Verdict::Return,
            "jump" => target().map_or(Verdict::Unknown, Verdict::Jump),
            "goto" => target().map_or(Verdict::Unknown, Verdict::Goto),
            _ => Verdict::Unknown,
        };
        rule.verdict = verdict;
    }
    Ok(rule)
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
