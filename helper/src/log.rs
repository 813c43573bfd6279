//! Where the helper's log goes: standard error, one line an event.
//!
//! Room: `helper`. Under systemd the journal adds the time. Levels come from `BCD_LOG` (`error`, `warn`, `info`, `debug`,
//! `trace`; default `info`). Every audit event is at `info`.
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Starts the log.
pub(crate) fn start() {
    let level = std::env::var("BCD_LOG").ok().and_then(|text| text.parse().ok()).unwrap_or(LevelFilter::INFO);
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(false)
        .with_writer(std::io::stderr);
    if std::env::var_os("JOURNAL_STREAM").is_some() { log.without_time().init() } else { log.init() }
}

/// An error with its causes as one line: `a: b: c`.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
