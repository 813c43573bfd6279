//! What a command ends with when it cannot do what was asked: an exit code, a sentence, and what to do next.
//!
//! Room: `node`.
use super::text::printable_lines;
use crate::api::ProblemKind;
use crate::client::ClientError;
use crate::fault::{Fault, FaultKind, chain};
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// Refused or failed.
pub const FAILED: u8 = 1;
/// The command line is wrong.
pub const USAGE: u8 = 2;
/// The node does not answer.
pub const NO_NODE: u8 = 3;
/// Not in time.
pub const LATE: u8 = 4;

/// A command's end that is no success.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    sentence: String,
    next: Option<String>,
}

impl Failure {
    /// A failure with the exit code [`FAILED`].
    #[must_use]
    pub fn new(sentence: impl Into<String>) -> Self {
        Self { code: FAILED, sentence: sentence.into(), next: None }
    }

    /// A failure with its causes behind the sentence.
    #[must_use]
    pub fn because(sentence: impl Into<String>, error: &(dyn Error + 'static)) -> Self {
        Self::new(format!("{}: {}", sentence.into(), chain(error)))
    }

    /// With another exit code.
    #[must_use]
    pub fn code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// With what to do next.
    #[must_use]
    pub fn next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }

    /// Whether all there is to it is that nobody reads the output any more.
    fn is_silent(&self) -> bool {
        self.sentence.is_empty()
    }

    /// Prints it to stderr and answers the exit code.
    #[must_use]
    pub fn report(&self) -> ExitCode {
        if !self.is_silent() {
            let mut err = io::stderr().lock();
            let _ = writeln!(err, "bcd: {}", printable_lines(&self.sentence));
            if let Some(next) = &self.next {
                let _ = writeln!(err, "     {}", printable_lines(next));
            }
        }
        ExitCode::from(self.code)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let failure = Self::new(chain(&error));
        match &error {
            ClientError::NotRunning { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => failure
                .code(NO_NODE)
                .next("only root, the node's user and members of its group may ask it: add yourself, or use sudo"),
            ClientError::NotRunning { .. } => {
                failure.code(NO_NODE).next("is `bcd node` running, and is this the node.api of its configuration?")
            }
            ClientError::Closed { .. } => {
                failure.code(NO_NODE).next("either it stopped just now, or it does not admit you: its log says which")
            }
            ClientError::Late(_) => failure
                .code(LATE)
                .next("it may hang: its log may say what it waits for; guests go on when it is restarted"),
            ClientError::Refused { problem, .. } => match problem.kind {
                ProblemKind::Internal => failure.next("this is a defect of bcd: the node's log has more"),
                ProblemKind::Timeout => failure.code(LATE),
                ProblemKind::BadRequest
                | ProblemKind::NotFound
                | ProblemKind::InvalidSpec
                | ProblemKind::ResourcesExhausted
                | ProblemKind::Denied
                | ProblemKind::ImageRejected
                | ProblemKind::Unsupported
                | ProblemKind::Unavailable => failure,
            },
            ClientError::Broken { .. } => failure.code(NO_NODE),
            ClientError::NotUnderstood { .. } => failure.next("compare `bcd --version` with the node's version"),
        }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let failure = Self::new(fault.chain());
        match fault.kind() {
            FaultKind::Internal => failure.next("this is a defect of bcd: the log has more"),
            FaultKind::Timeout => failure.code(LATE),
            FaultKind::InvalidSpec
            | FaultKind::ResourcesExhausted
            | FaultKind::Denied
            | FaultKind::ImageRejected
            | FaultKind::Unsupported
            | FaultKind::Unavailable => failure,
        }
    }
}

/// Failures of writing to stdout or stderr.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            // `bcd status | head -1`: nobody wants the rest.
            return Self { code: 0, sentence: String::new(), next: None };
        }
        Self::because("the output cannot be written", &error)
    }
}
