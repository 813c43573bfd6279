//! The lists as they stand in the sources: which calls, and the reason of each that is rare.
//!
//! An entry is `libc::SYS_name,` on a line of its own. One that a guest's life does not need every time has a comment
//! `// rare: reason` on its line. Calls that are made and refused on purpose are in a comment `// refused: name: reason`.
use bcd_tests::sources;
use std::collections::{BTreeMap, BTreeSet};

/// One daemon's lists.
pub(crate) struct Listed {
    /// Calls with any argument, each with the reason of a rare one.
    pub(crate) allowed: BTreeMap<String, Option<String>>,
    /// Calls with some arguments, and for each of these the reason of a rare one.
    pub(crate) only: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// Calls that are made and refused on purpose.
    pub(crate) refused: BTreeMap<String, String>,
    /// Calls that end the process.
    pub(crate) intruder: BTreeSet<String>,
}

impl Listed {
    /// All calls that are left.
    pub(crate) fn calls(&self) -> BTreeSet<String> {
        self.allowed.keys().chain(self.only.keys()).cloned().collect()
    }
}

/// Reads a daemon's lists.
pub(crate) fn read(file: &str) -> Listed {
    let mut listed =
        Listed { allowed: BTreeMap::new(), only: BTreeMap::new(), refused: BTreeMap::new(), intruder: BTreeSet::new() };
    let mut block = String::new();
    let mut other_machine = false;
    let mut call = String::new();
    let text = sources::read(&sources::top().join(file));
    for line in text.lines() {
        let (code, comment) = line.split_once("//").map_or((line, ""), |(code, comment)| (code, comment.trim()));
        if let Some((name, reason)) = comment.strip_prefix("refused: ").and_then(|rest| rest.split_once(": ")) {
            listed.refused.insert(name.to_owned(), reason.to_owned());
        }
        let reason = comment.strip_prefix("rare: ").map(str::to_owned);
        if line.starts_with("#[cfg(") {
            other_machine = line.contains("not(");
        }
        if let Some(name) = line
            .strip_prefix("pub(super) ")
            .unwrap_or(line)
            .strip_prefix("const ")
            .and_then(|rest| rest.split(':').next())
        {
            block = name.to_owned();
        }
        let words: Vec<&str> = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        for word in words {
            if let Some(name) = word.strip_prefix("SYS_").filter(|_| !other_machine) {
                match block.as_str() {
                    "INTRUDER" => drop(listed.intruder.insert(name.to_owned())),
                    "INTRUDER_WITH" => {}
                    "ONLY" => {
                        call = name.to_owned();
                        listed.only.entry(call.clone()).or_default();
                    }
                    _ => drop(listed.allowed.insert(name.to_owned(), reason.clone())),
                }
            } else if block == "ONLY"
                && ["AF_", "PR_", "FIO", "TC", "TIO", "SIO"].iter().any(|begin| word.starts_with(begin))
            {
                listed.only.entry(call.clone()).or_default().insert(word.to_owned(), reason.clone());
            }
        }
        if line.starts_with("];") || line.ends_with("];") {
            block.clear();
            other_machine = false;
        }
    }
    listed
}
