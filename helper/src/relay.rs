//! Root's side of a standalone node's log: copies standard input to standard error, a line at a time, and ends with it or with
//! the node.
//!
//! Room: `helper`. The node must not share the descriptor that the helper's audit events go to: it could write lines that look
//! like them, cut the file off, or stop the terminal. Invariants: each line of the node's says that it is, has no control
//! character, and is bounded; more than a rate is counted and not written; whatever becomes of standard error, standard input
//! is read to its end, so that nobody waits for this process; it ends after the node, though another holds the pipe still. One
//! thread, which keeps three descriptors and no right at all.
use crate::budget::{Budget, Tell};
use bcd_confine::log::printable;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// What begins each line of the node's. No event of the helper's begins so: those begin with a time or a level.
const OF_NODE: &str = "node: ";

/// What begins a line about the node's lines.
const OF_RELAY: &str = "bcd-helper: ";

/// Bytes of a line that are shown; the rest is left out. The longest lines are errors with their causes.
const LINE_BYTES: u64 = 4096;

/// Lines that are shown within [`WINDOW`](crate::budget::WINDOW): as many as the helper tells of what had no effect.
const LINES: u32 = 1000;

/// Bytes of lines that are shown within it.
const BYTES: usize = 256 * 1024;

/// Bytes that are read after the node's end: what a pipe holds at most for somebody without root (`pipe-max-size`).
const LEFT_BYTES: usize = 1 << 20;

/// What the node writes, to its end or the node's.
struct Input<P, N> {
    pipe: P,
    /// Can be read from once the node has ended.
    node: N,
    /// Of an ended node: how much is still read.
    left: Option<usize>,
}

impl<P: AsFd, N: AsFd> Input<P, N> {
    /// Waits for the pipe or the node's end; answers whether each is there.
    fn wait(&self, timeout: Option<TimeSpec>) -> io::Result<(bool, bool)> {
        let mut asked =
            [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN), PollFd::new(self.node.as_fd(), PollFlags::POLLIN)];
        ppoll(&mut asked, timeout, None)?;
        let [pipe, node] = asked.map(|end| end.any().unwrap_or(true));
        Ok((pipe, node))
    }
}

impl<P: AsFd, N: AsFd> Read for Input<P, N> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left.is_none() && self.wait(None)?.1 {
            self.left = Some(LEFT_BYTES);
        }
        let Some(left) = self.left else { return Ok(nix::unistd::read(&self.pipe, buffer)?) };
        // What it said before; more comes of nobody who is asked.
        if !self.wait(Some(TimeSpec::new(0, 0)))?.0 {
            return Ok(0);
        }
        let most = buffer.len().min(left);
        let read = nix::unistd::read(&self.pipe, buffer.get_mut(..most).unwrap_or_default())?;
        self.left = Some(left.saturating_sub(read));
        Ok(read)
    }
}

/// Copies until the end of `input`. Errors of `output` lose what was to be written.
pub(crate) fn copy(input: impl Read, mut output: impl Write, clock: impl Fn() -> Instant) {
    let mut input = BufReader::new(input);
    let mut budget = Budget::of_bytes(LINES, BYTES);
    let mut line = Vec::with_capacity(usize::try_from(LINE_BYTES).unwrap_or_default());
    let mut say = |text: &str| {
        // Nobody else could be told.
        let _lost = output.write_all(text.as_bytes());
    };
    loop {
        line.clear();
        let ended = matches!(read(&mut input, LINE_BYTES, &mut line), Ended);
        let whole = line.strip_suffix(b"\n");
        // The last line may have no end.
        let cut = whole.is_none() && u64::try_from(line.len()).is_ok_and(|length| length >= LINE_BYTES);
        if !line.is_empty() {
            let text = shown(whole.unwrap_or(&line), cut);
            match budget.spend(clock(), text.len()) {
                Tell::It => say(&text),
                Tell::AfterCounted(count) => {
                    say(&counted(count));
                    say(&text);
                }
                Tell::Beginning => {
                    say(&format!("{OF_RELAY}the node writes too much of a log: further lines are counted\n"));
                }
                Tell::Nothing => {}
            }
        }
        if cut {
            skip_line(&mut input);
        }
        if ended {
            if budget.untold() > 0 {
                say(&counted(budget.untold()));
            }
            return;
        }
    }
}

fn counted(count: u64) -> String {
    format!("{OF_RELAY}lines of the node's log that were counted and not written: {count}\n")
}

/// A line as it is written.
fn shown(line: &[u8], cut: bool) -> String {
    let mut text = OF_NODE.to_owned();
    printable(&String::from_utf8_lossy(line), &mut text);
    text.push_str(if cut { "…\n" } else { "\n" });
    text
}

/// Whether there is more to read.
enum Reading {
    More,
    Ended,
}
use Reading::{Ended, More};

/// Reads to the end of a line, at most `most` bytes.
fn read(input: &mut impl BufRead, most: u64, line: &mut Vec<u8>) -> Reading {
    match input.take(most).read_until(b'\n', line) {
        // An interruption is none of its errors, and any other ends a pipe.
        Ok(0) | Err(_) => Ended,
        Ok(_) => More,
    }
}

/// Reads the rest of a line and keeps none of it.
fn skip_line(input: &mut impl BufRead) {
    let mut rest = Vec::new();
    while let More = read(input, LINE_BYTES, &mut rest) {
        if rest.ends_with(b"\n") {
            return;
        }
        rest.clear();
    }
}

/// Copies this process's standard input to its standard error, until the end of `node`, a descriptor of a process.
pub(crate) fn run(node: &OwnedFd) {
    copy(Input { pipe: io::stdin(), node, left: None }, io::stderr().lock(), Instant::now);
}

#[cfg(test)]
mod tests;
