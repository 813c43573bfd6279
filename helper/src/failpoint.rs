//! Named steps at which crash tests end the process.
//!
//! Room: `helper`. Compiled into debug builds and with the feature `failpoints`; in the package every call is empty. Only
//! who starts the helper can name a step: root.
use bcd_protocol::request::Verb;

/// A step of a recorded verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Decided, nothing written.
    BeforeIntent,
    /// The intent is durable, the effect not begun.
    AfterIntent,
    /// The effect is over, its outcome not written.
    AfterEffect,
    /// The outcome is durable, the reply not sent.
    AfterOutcome,
}

/// Ends the process at once, as a crash would, when `BCD_HELPER_CRASH_AT` is `<verb>:<step>`.
#[cfg(any(feature = "failpoints", debug_assertions))]
pub(crate) fn reach(verb: Verb, step: Step) {
    let name = match step {
        Step::BeforeIntent => "before-intent",
        Step::AfterIntent => "after-intent",
        Step::AfterEffect => "after-effect",
        Step::AfterOutcome => "after-outcome",
    };
    if std::env::var("BCD_HELPER_CRASH_AT").is_ok_and(|at| at == format!("{verb}:{name}")) {
        tracing::warn!(at = %format!("{verb}:{name}"), "failpoint reached");
        std::process::abort();
    }
}

/// Nothing.
#[cfg(not(any(feature = "failpoints", debug_assertions)))]
pub(crate) fn reach(_verb: Verb, _step: Step) {}
