//! Waiting for a text in a console's output.
//!
//! Room: `node`. Pure.
use std::time::Duration;

/// A text that is waited for.
#[derive(Debug)]
pub(super) struct Wanted {
    text: String,
    /// How long it is waited for.
    pub(super) timeout: Option<Duration>,
    /// The end of what came before, as long as it could be the text's beginning.
    seen: Vec<u8>,
}

impl Wanted {
    /// Waits for `text`, which is not empty.
    pub(super) fn new(text: String, timeout: Option<Duration>) -> Self {
        Self { text, timeout, seen: Vec::new() }
    }

    /// The text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the text has appeared with this piece of output, however it is cut into pieces.
    pub(super) fn appears(&mut self, output: &[u8]) -> bool {
        let text = self.text.as_bytes();
        self.seen.extend_from_slice(output);
        if self.seen.windows(text.len().max(1)).any(|window| window == text) {
            return true;
        }
        let keep = self.seen.len().min(text.len().saturating_sub(1));
        self.seen.drain(..self.seen.len().saturating_sub(keep));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_is_found_across_pieces_and_only_as_a_whole() {
        let mut wanted = Wanted::new("is up".to_owned(), None);
        assert!(!wanted.appears(b"guest i"));
        assert!(!wanted.appears(b"s"));
        assert!(!wanted.appears(b" dow is u"));
        assert!(wanted.appears(b"p\r\n"));
    }

    proptest! {
        #[test]
        fn cutting_the_output_changes_nothing(output in "[ab]{0,24}", text in "[ab]{1,4}", cuts in proptest::collection::vec(1_usize..5, 0..24)) {
            let mut wanted = Wanted::new(text.clone(), None);
            let (mut rest, mut found) = (output.as_bytes(), false);
            for cut in cuts {
                let (piece, later) = rest.split_at(cut.min(rest.len()));
                found |= wanted.appears(piece);
                rest = later;
            }
            found |= wanted.appears(rest);
            prop_assert_eq!(found, output.contains(&text));
        }
    }
}
