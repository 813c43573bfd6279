//! What the API answers instead of what was asked.
//!
//! Room: `node`. One shape for every refusal, with a kind that programs match on and a sentence for people.
use crate::fault::{Fault, FaultKind};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A refusal or failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// Its stable kind.
    pub kind: ProblemKind,
    /// A sentence that says what is wrong and what to do.
    pub message: String,
}

/// Kinds of problems: those of faults, and what only a request can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ProblemKind {
    /// The request itself is wrong: a query, a header, a body that is no text.
    BadRequest,
    /// No such resource, or no such instance.
    NotFound,
    /// The document or one of its values is wrong.
    InvalidSpec,
    /// The host, or the API, has no room for it now.
    ResourcesExhausted,
    /// The policy refused.
    Denied,
    /// An image is not what it is declared to be, or is not safe to open.
    ImageRejected,
    /// bcd or this host cannot do it.
    Unsupported,
    /// It took longer than its deadline.
    Timeout,
    /// Something needed cannot be reached now.
    Unavailable,
    /// A defect; the node's log has more.
    Internal,
}

impl ProblemKind {
    /// The name in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::NotFound => "NotFound",
            Self::InvalidSpec => "InvalidSpec",
            Self::ResourcesExhausted => "ResourcesExhausted",
            Self::Denied => "Denied",
            Self::ImageRejected => "ImageRejected",
            Self::Unsupported => "Unsupported",
            Self::Timeout => "Timeout",
            Self::Unavailable => "Unavailable",
            Self::Internal => "Internal",
        }
    }

    /// The HTTP status it is sent with, unless the route says a closer one.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::InvalidSpec | Self::ImageRejected => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Self::ResourcesExhausted | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<FaultKind> for ProblemKind {
    fn from(kind: FaultKind) -> Self {
        match kind {
            FaultKind::InvalidSpec => Self::InvalidSpec,
            FaultKind::ResourcesExhausted => Self::ResourcesExhausted,
            FaultKind::Denied => Self::Denied,
            FaultKind::ImageRejected => Self::ImageRejected,
            FaultKind::Unsupported => Self::Unsupported,
            FaultKind::Timeout => Self::Timeout,
            FaultKind::Unavailable => Self::Unavailable,
            FaultKind::Internal => Self::Internal,
        }
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self { kind: fault.kind().into(), message: fault.chain() }
    }
}

/// A problem on its way out: with the HTTP status it is sent with.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    problem: Problem,
}

impl Refusal {
    pub(super) fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Self { status: kind.status(), problem: Problem { kind, message: message.into() } }
    }

    /// The same problem under a closer HTTP status.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        let problem = Problem::from(fault);
        Self { status: problem.kind.status(), problem }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, axum::Json(self.problem)).into_response()
    }
}
