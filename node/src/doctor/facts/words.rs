//! Words of others: of the node, the helper, libvirt, a tool, a document.
//!
//! Room: `node`. Invariant: whoever chose them, they are one line, have a bound, move no cursor, have no more than one blank in
//! a row and no arrow, and stand in quotes, also when they come from the process that asks as the node's user. So none of them
//! can pass for a finding or a remedy, also where a terminal goes on with a long line in its next row.
use crate::cli::text::printable;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest text that is shown, characters.
const WORDS_MOST: usize = 240;
/// Longest version that is shown, characters: `12.3.45~rc6-7+deb13u8` has 21.
const VERSION_MOST: usize = 40;

/// Somebody else's words: one line, bounded, shown in quotes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Words(String);

impl Words {
    /// The words without quotes, to look for others in them.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Words {
    fn from(text: &str) -> Self {
        // Cut before it is spelt out too, so that nobody makes a long line out of a short one.
        let ends = |c: char| c.is_whitespace() || shows_nothing(c);
        let most: String = one_blank(text.trim_matches(ends)).take(WORDS_MOST + 1).collect();
        let clean = printable(&most).replace('"', "'").replace("->", "- >");
        let mut words: String = clean.chars().take(WORDS_MOST).collect();
        if clean.chars().nth(WORDS_MOST).is_some() {
            words.push('…');
        }
        // Quotes of another kind look like an end too.
        Self(words.replace(['“', '”', '„', '″'], "'"))
    }
}

/// `text` with one space for each run of characters that show nothing, and none at its start.
fn one_blank(text: &str) -> impl Iterator<Item = char> {
    let mut after_blank = true;
    text.chars().filter_map(move |c| {
        let blank = shows_nothing(c);
        let again = blank && after_blank;
        after_blank = blank;
        (!again).then_some(if blank { ' ' } else { c })
    })
}

/// White space of any width, and what is not white space for Unicode and shows nothing either: fillers and characters of no
/// width (`Default_Ignorable_Code_Point`), and Braille's blank. Control characters are left for what spells them out, as are those that
/// change a direction.
fn shows_nothing(c: char) -> bool {
    (c.is_whitespace() && !c.is_control())
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200d}'
                | '\u{2060}'..='\u{2065}'
                | '\u{206a}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fff8}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

impl From<String> for Words {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Words> for String {
    fn from(words: Words) -> Self {
        words.0
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

/// What somebody says their version is: no more than a version can be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Version(String);

impl Version {
    /// The text; empty for what is no version.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Version {
    fn from(text: &str) -> Self {
        let fits = text.len() <= VERSION_MOST
            && text.starts_with(|c: char| c.is_ascii_digit())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+' | b'~'));
        Self(if fits { text.to_owned() } else { String::new() })
    }
}

impl From<String> for Version {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "unknown" } else { &self.0 })
    }
}
