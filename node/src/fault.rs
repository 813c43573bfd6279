//! What went wrong with one instance or one request, as status and the API report it.
//!
//! Room: `node`. A fault has a stable kind for programs and a sentence for people that names the field, file or number
//! and says what to do next. Its causes are kept as sources; [`chain`] joins them where a person reads.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt;

/// Stable kinds of faults: programs match on these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FaultKind {
    /// The document or one of its values is wrong; it will not work before it is changed.
    InvalidSpec,
    /// The host lacks memory, disk or another resource; retried every pass.
    ResourcesExhausted,
    /// The helper's policy, or the API's, refused.
    Denied,
    /// An image is not what it is declared to be, or is not safe to open.
    ImageRejected,
    /// bcd or this host cannot do it.
    Unsupported,
    /// Something took longer than its deadline; retried.
    Timeout,
    /// Something needed cannot be reached now; retried.
    Unavailable,
    /// A defect or an unexpected state; the log has more.
    Internal,
}

/// A fault: kind, sentence, causes.
#[derive(Debug)]
pub struct Fault {
    kind: FaultKind,
    sentence: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Fault {
    /// A fault without a cause below it.
    #[must_use]
    pub fn new(kind: FaultKind, sentence: impl Into<String>) -> Self {
        Self { kind, sentence: sentence.into(), source: None }
    }

    /// A fault with its cause.
    #[must_use]
    pub fn because(
        kind: FaultKind,
        sentence: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, sentence: sentence.into(), source: Some(source.into()) }
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// The sentence and its causes as one line, each once.
    #[must_use]
    pub fn chain(&self) -> String {
        chain(self)
    }
}

/// An error and its causes as one line, each once: what the sentence already says is not said again.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        cause = error.source();
    }
    line
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn Error + 'static))
    }
}
