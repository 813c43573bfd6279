//! Named steps at which tests end the process, or have the request's work panic.
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
    /// The effect was carried out, on the thread that did it.
    InEffect,
    /// The effect is over, its outcome not written.
    AfterEffect,
    /// The outcome is durable, the reply not sent.
    AfterOutcome,
}

/// Ends the process at once, as a crash would, when `BCD_HELPER_CRASH_AT` is `<verb>:<step>`; panics when it is
/// `<verb>:<step>:panic`, as a mistake on the way would.
#[cfg(any(feature = "failpoints", debug_assertions))]
#[expect(clippy::panic, reason = "what a mistake would do is what this is for; it is in no release")]
pub(crate) fn reach(verb: Verb, step: Step) {
    let name = match step {
        Step::BeforeIntent => "before-intent",
        Step::AfterIntent => "after-intent",
        Step::InEffect => "in-effect",
        Step::AfterEffect => "after-effect",
        Step::AfterOutcome => "after-outcome",
    };
    let Ok(at) = std::env::var("BCD_HELPER_CRASH_AT") else { return };
    let here = format!("{verb}:{name}");
    if at == here {
        tracing::warn!(at, "failpoint reached");
        std::process::abort();
    }
    if at.strip_prefix(&here) == Some(":panic") {
        tracing::warn!(at, "failpoint reached");
        std::panic::panic_any("a failpoint");
    }
}

/// Nothing.
#[cfg(not(any(feature = "failpoints", debug_assertions)))]
pub(crate) fn reach(_verb: Verb, _step: Step) {}
