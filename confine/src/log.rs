//! What both daemons' logs have in common: an event is one line, whatever others' words are in it, and an error is told with
//! its causes.
//!
//! Room: `confine`. Some of the words that a daemon writes were chosen by others: a server, a tool, libvirt, who passes on
//! what QEMU prints, and QEMU prints names out of a disk's header. None of them may begin a line of its own.
use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Writes each event as one line: what would end it early, or move the cursor of whoever reads it, is spelt out. The
/// formatter spells that out in messages alone, not in fields; its colours are spelt out too, and must be off.
#[derive(Debug)]
pub struct OneLine<W>(pub W);

impl<W: Write> Write for OneLine<W> {
    /// Takes an event whole, as the formatter hands it over.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let mut line = String::with_capacity(text.len());
        printable(text.strip_suffix('\n').unwrap_or(&text), &mut line);
        line.push('\n');
        self.0.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Adds `text` to `line` with every character spelt out that would begin a line of its own, move the cursor, or turn round
/// the order in which a terminal shows the rest.
pub fn printable(text: &str, line: &mut String) {
    for character in text.chars() {
        if character.is_control() || is_hidden(character) {
            let _never_fails = write!(line, "{}", character.escape_default());
        } else {
            line.push(character);
        }
    }
}

/// Separators of lines and marks of direction, which are no control characters and none that anybody sees.
fn is_hidden(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
    )
}

/// An error with its causes as one line: `a: b: c`.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Debug, Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(log: impl FnOnce()) -> String {
        let kept = Kept::default();
        let target = kept.clone();
        let format = tracing_subscriber::fmt().with_writer(move || OneLine(target.clone())).with_ansi(false);
        tracing::subscriber::with_default(format.without_time().with_target(false).finish(), log);
        String::from_utf8(kept.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn no_words_of_others_begin_a_line_of_the_log_or_move_the_cursor() {
        let words = "the server says\r\n INFO instance web-1 is running\t\u{1b}[2J\u{9b}2J\u{85}\0\u{2028}\u{202e}";
        for text in [
            logged(|| tracing::warn!(cause = %words, "image rejected")),
            logged(|| tracing::warn!(cause = words, "image rejected")),
            logged(|| tracing::warn!("image rejected: {words}")),
        ] {
            assert_eq!(text.matches('\n').count(), 1, "{text:?}");
            assert!(text.ends_with('\n') && !text.trim_end_matches('\n').contains(char::is_control), "{text:?}");
            assert!(text.contains(r"\u{2028}\u{202e}"), "{text:?}");
            assert!(text.contains(r"the server says\r\n INFO instance web-1 is running\t"), "nothing is lost: {text}");
        }
    }
}
