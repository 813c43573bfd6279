//! Where the helper's log goes: standard error, one line an event.
//!
//! Room: `helper`. Under systemd the journal adds the time. Levels come from `BCD_LOG` (`error`, `warn`, `info`, `debug`,
//! `trace`; default `info`). Every audit event is at `info`. An event stays one line whatever its fields say: libvirt passes
//! on what QEMU prints, and QEMU prints names out of a disk's header, which the node may have written.
use bcd_confine::log::OneLine;
use std::io::{self, Write};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

pub(crate) use bcd_confine::log::chain;

/// Starts the log.
pub(crate) fn start() {
    let level = std::env::var("BCD_LOG").ok().and_then(|text| text.parse().ok()).unwrap_or(LevelFilter::INFO);
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let set = tracing::subscriber::set_global_default(subscriber(level, journal, io::stderr));
    debug_assert!(set.is_ok(), "the log is started once");
    // The default hook writes several lines, with the words of whatever went wrong.
    std::panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(ToString::to_string);
        let payload = panic.payload();
        let said = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        tracing::error!(at, said, "a part of the helper failed: a mistake in bcd, please report it");
    }));
}

/// A log at `level` into what `target` makes, with the time unless a `journal` adds it.
fn subscriber<W: Write + 'static>(
    level: LevelFilter,
    journal: bool,
    target: impl Fn() -> W + Send + Sync + 'static,
) -> Box<dyn Subscriber + Send + Sync> {
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(false)
        // It would tell of a broken standard error on standard error, and panic when that fails: in the midst of a request.
        .log_internal_errors(false)
        .with_writer(move || OneLine(target()));
    if journal { Box::new(log.without_time().finish()) } else { Box::new(log.finish()) }
}

/// What `log` writes at level `info`, as it would reach standard error under systemd.
#[cfg(test)]
pub(crate) fn captured(log: impl FnOnce()) -> String {
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
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

    let kept = Kept::default();
    let target = kept.clone();
    tracing::subscriber::with_default(subscriber(LevelFilter::INFO, true, move || target.clone()), log);
    let bytes = kept.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn no_text_in_an_event_begins_a_line_of_its_own_or_reaches_the_terminal() {
        let forged = " INFO audit: verb=\"libvirt.destroy\" decision=\"granted\"";
        let error = format!("could not open 'x':\n{forged}\r\n\t\u{1b}[2J\u{9b}2J\u{85}\0");
        let text = captured(|| tracing::warn!(%error, name = "a\nb", "libvirt failed\n{forged}"));
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(text.ends_with('\n') && !text.trim_end_matches('\n').contains(char::is_control), "{text:?}");
        assert!(text.contains(r"could not open 'x':\n INFO audit: verb="), "nothing is lost: {text}");
    }

    #[test]
    fn each_event_is_a_line_and_keeps_its_text() {
        let text = captured(|| {
            tracing::info!(target: "audit", verb = "hello", "größe");
            tracing::debug!("not at this level");
            tracing::error!("second");
        });
        assert_eq!(text, " INFO audit: größe verb=\"hello\"\nERROR bcd_helper::log::tests: second\n");
    }
}
