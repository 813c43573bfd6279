//! iptables' filter table, from what `iptables -S` says; and which other tables there are.
//!
//! Room: `node`. Pure. An option that is not known narrows its rule in a way that nobody knows; a line that is none is an
//! error.
use super::super::facts::{Chain, Family, Hook, Match, Names, Rule, Tool, Verdict};

/// The chains of table filter, of what `tool -S` says.
///
/// # Errors
/// What of it is not understood.
pub(in super::super) fn table(tool: &'static str, family: Family, says: &str) -> Result<Vec<Chain>, &'static str> {
    let mut chains: Vec<Chain> = Vec::new();
    let lines: Vec<Vec<String>> = says
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| shlex::split(line).ok_or("what iptables lists is not understood"))
        .collect::<Result<_, _>>()?;
    for line in &lines {
        let chain = |name: &str, hook, drops| Chain {
            tool: Tool::Iptables(tool),
            family,
            table: "filter".to_owned(),
            name: name.to_owned(),
            hook,
            drops,
            rules: Vec::new(),
        };
        match line.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["-P", name, policy, ..] => {
                chains.push(chain(name, (*name == "FORWARD").then_some(Hook::Forward), *policy == "DROP"));
            }
            ["-N", name, ..] => chains.push(chain(name, None, false)),
            ["-A", ..] => {}
            _ => return Err("what iptables lists is not understood"),
        }
    }
    let names: Vec<String> = chains.iter().map(|chain| chain.name.clone()).collect();
    for line in &lines {
        let Some(("-A", [name, rest @ ..])) = line.split_first().map(|(first, rest)| (first.as_str(), rest)) else {
            continue;
        };
        let home = chains.iter_mut().find(|chain| chain.name == *name);
        home.ok_or("iptables lists a rule without its chain")?.rules.push(rule(rest, &names));
    }
    Ok(chains)
}

/// Of the tables that the kernel names as there, a line each, those that may drop what is forwarded and are not read. Table
/// nat may not.
pub(in super::super) fn others(tool: &str, names: &str) -> Option<String> {
    let others: Vec<&str> = names.lines().map(str::trim).filter(|name| !["", "filter", "nat"].contains(name)).collect();
    (!others.is_empty()).then(|| format!("{tool}'s {}", others.join(", ")))
}

fn rule(words: &[String], chains: &[String]) -> Rule {
    let mut rule = Rule { matches: Vec::new(), verdict: Verdict::Next };
    let mut not = false;
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        // What follows an option up to the next one belongs to it.
        let mut value = || words.next_if(|next| !next.starts_with('-') && *next != "!").unwrap_or_default();
        match word {
            "!" => {
                not = true;
                continue;
            }
            "-i" | "--in-interface" => rule.matches.push(Match::In(interface(value(), not))),
            "-o" | "--out-interface" => rule.matches.push(Match::Out(interface(value(), not))),
            "--physdev-is-bridged" => rule.matches.push(Match::Bridged(!not)),
            // Each is nothing by itself: what they bring follows.
            "-m" | "--match" => match value() {
                "physdev" | "comment" => {}
                _ => rule.matches.push(Match::Other),
            },
            // Whatever stands in a comment is none.
            "--comment" => {
                let _comment = words.next();
            }
            "-j" | "--jump" => {
                rule.verdict = verdict(value(), chains);
                // Options of the target.
                return rule;
            }
            "-g" | "--goto" => {
                rule.verdict = Verdict::Goto(value().to_owned());
                return rule;
            }
            _ if word.starts_with('-') => rule.matches.push(Match::Other),
            // The value of an option that is not known.
            _ => {}
        }
        not = false;
    }
    rule
}

fn interface(name: &str, not: bool) -> Names {
    let name = name.strip_suffix('+').map_or_else(|| name.to_owned(), |prefix| format!("{prefix}*"));
    Names { names: vec![name], not }
}

/// What a target does, or a chain of that name.
pub(super) fn verdict(target: &str, chains: &[String]) -> Verdict {
    match target {
        "ACCEPT" => Verdict::Accept,
        "DROP" | "REJECT" => Verdict::Drop,
        "RETURN" => Verdict::Return,
        // Each goes on with the next rule.
        "LOG" | "NFLOG" | "ULOG" | "TRACE" | "AUDIT" | "MARK" | "CONNMARK" | "SECMARK" | "CONNSECMARK" | "TCPMSS"
        | "DSCP" | "TOS" | "TTL" | "HL" | "CLASSIFY" | "CT" | "NOTRACK" | "SET" | "CHECKSUM" => Verdict::Next,
        name if chains.iter().any(|chain| chain == name) => Verdict::Jump(name.to_owned()),
        _ => Verdict::Unknown,
    }
}
