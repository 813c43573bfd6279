//! Where the node's log goes: standard error, one line an event, and never at the price of the node.
//!
//! Room: `node`. A standalone node's standard error is a pipe to root's side that does not wait (`crate::standalone`): while
//! nobody reads it, lines are lost and counted. Invariant: no failure of the log is a failure of the node.
use super::failure::{Failure, USAGE};
use bcd_confine::log::OneLine;
use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, PoisonError};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// What was lost of this process's log.
static LOST: Mutex<Lost> = Mutex::new(Lost::new());

/// Starts the log, at the level that `BCD_LOG` says.
pub(super) fn start() -> Result<(), Failure> {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .with_env_var("BCD_LOG")
        .from_env()
        .map_err(|e| Failure::because("BCD_LOG is not usable", &e).code(USAGE))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_ansi(false);
    // It would tell of a broken standard error on standard error, and panic when that fails.
    let log = log.log_internal_errors(false);
    log.with_writer(|| OneLine(Unhurried { target: io::stderr(), lost: &LOST })).init();
    Ok(())
}

/// Lines that did not get through, until that is told.
#[derive(Debug)]
struct Lost {
    lines: u64,
    /// The beginning of one got through, and its end did not.
    torn: bool,
}

impl Lost {
    const fn new() -> Self {
        Self { lines: 0, torn: false }
    }

    /// What the reader is told before the next line.
    fn notice(&self) -> Option<String> {
        let begin = if self.torn { "\n" } else { "" };
        (self.lines > 0)
            .then(|| format!("{begin}lines of the log were lost, since nobody read them in time: {}\n", self.lines))
    }
}

/// Writes each line whole or not at all, as far as the target takes it without waiting.
#[derive(Debug)]
struct Unhurried<'a, W> {
    target: W,
    lost: &'a Mutex<Lost>,
}

impl<W: Write> Write for Unhurried<'_, W> {
    /// Takes a line, which is lost where it cannot be written now.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let told = match lost.notice() {
            None => true,
            Some(notice) => match put(&mut self.target, notice.as_bytes()) {
                Put::Whole => {
                    *lost = Lost::new();
                    true
                }
                Put::Part => {
                    lost.torn = true;
                    false
                }
                Put::Nothing => false,
            },
        };
        match if told { put(&mut self.target, line) } else { Put::Nothing } {
            Put::Whole => {}
            Put::Part => *lost = Lost { lines: lost.lines.saturating_add(1), torn: true },
            Put::Nothing => lost.lines = lost.lines.saturating_add(1),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How much of some bytes got through.
enum Put {
    Whole,
    Part,
    Nothing,
}

fn put(target: &mut impl Write, bytes: &[u8]) -> Put {
    let mut rest = bytes;
    while !rest.is_empty() {
        match target.write(rest) {
            Ok(0) => break,
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    if rest.is_empty() {
        Put::Whole
    } else if rest.len() < bytes.len() {
        Put::Part
    } else {
        Put::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes at once and as many in all, then has no room.
    struct Narrow {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room).min(7);
            if count == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.room -= count;
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log(lost: &Mutex<Lost>, target: &mut Narrow, lines: &[&str]) {
        for line in lines {
            Unhurried { target: &mut *target, lost }.write_all(line.as_bytes()).expect("never fails");
        }
    }

    #[test]
    fn what_nobody_reads_is_lost_and_told_once_somebody_reads_again() {
        let (lost, mut pipe) = (Mutex::new(Lost::new()), Narrow { taken: Vec::new(), room: 12 });
        log(&lost, &mut pipe, &["first line\n", "second line\n", "third\n"]);
        assert_eq!(pipe.taken, b"first line\ns", "nothing waits");
        pipe.room = 1000;
        log(&lost, &mut pipe, &["fourth\n", "fifth\n"]);
        let told = "\nlines of the log were lost, since nobody read them in time: 2\nfourth\nfifth\n";
        assert_eq!(String::from_utf8(pipe.taken).expect("text"), format!("first line\ns{told}"));
    }

    #[test]
    fn a_line_that_finds_no_room_at_all_leaves_no_trace_but_the_count() {
        let (lost, mut pipe) = (Mutex::new(Lost::new()), Narrow { taken: Vec::new(), room: 0 });
        log(&lost, &mut pipe, &["one\n", "two\n", "three\n"]);
        // Room for a part of the notice: nothing of the next line comes before the whole of it.
        pipe.room = 20;
        log(&lost, &mut pipe, &["four\n"]);
        pipe.room = 1000;
        log(&lost, &mut pipe, &["five\n"]);
        let text = String::from_utf8(pipe.taken).expect("text");
        let whole = "lines of the log were lost, since nobody read them in time: 4\nfive\n";
        assert_eq!(text, format!("{}\n{whole}", &whole[..20]));
    }

    #[test]
    fn a_broken_target_is_no_failure() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(ErrorKind::BrokenPipe.into())
            }
        }
        let lost = Mutex::new(Lost::new());
        let mut writer = Unhurried { target: Broken, lost: &lost };
        writer.write_all(b"line\n").expect("lost");
        writer.flush().expect("nothing to do");
    }
}
