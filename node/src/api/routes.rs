//! The one table of what the API answers. Router and OpenAPI document are both made from it.
//!
//! Room: `node`. The enums are closed: an operation in the table without a handler, or a shape without a schema, does
//! not compile.

/// The request's method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads.
    Get,
    /// Asks something that needs a body, changes nothing.
    Post,
    /// Replaces.
    Put,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the row of ROUTES that names it")]
pub enum Operation {
    GetStatus,
    WatchStatus,
    GetInstance,
    OpenConsole,
    GetSpec,
    PutSpec,
    PlanSpec,
    GetEvents,
    GetSchema,
    GetOpenApi,
    GetHealth,
}

impl Operation {
    /// Its id in the OpenAPI document.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::GetStatus => "getStatus",
            Self::WatchStatus => "watchStatus",
            Self::GetInstance => "getInstance",
            Self::OpenConsole => "openConsole",
            Self::GetSpec => "getSpec",
            Self::PutSpec => "putSpec",
            Self::PlanSpec => "planSpec",
            Self::GetEvents => "getEvents",
            Self::GetSchema => "getSchema",
            Self::GetOpenApi => "getOpenApi",
            Self::GetHealth => "getHealth",
        }
    }

    /// Whether it goes on until the client leaves: such requests have no deadline, and a bound of their own.
    #[must_use]
    pub fn streams(self) -> bool {
        match self {
            Self::WatchStatus | Self::OpenConsole | Self::GetEvents => true,
            Self::GetStatus
            | Self::GetInstance
            | Self::GetSpec
            | Self::PutSpec
            | Self::PlanSpec
            | Self::GetSchema
            | Self::GetOpenApi
            | Self::GetHealth => false,
        }
    }
}

/// What a body is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the type of the same name")]
pub enum Shape {
    NodeStatus,
    InstanceStatus,
    NodeSpec,
    ApplyReport,
    PlanReport,
    Event,
    Health,
    /// Any JSON object: a schema, or the OpenAPI document.
    Object,
    /// Raw bytes both ways.
    Bytes,
}

/// How bodies are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// One JSON value.
    Json,
    /// One JSON value, or TOML.
    JsonOrToml,
    /// One JSON value a line, or server-sent events if the client accepts `text/event-stream`.
    Stream,
    /// Not HTTP any more: the upgraded connection.
    Upgrade,
}

/// A parameter in the query.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its JSON type: `boolean`, `integer` or `string`.
    pub kind: &'static str,
    /// What it does, and what its absence means.
    pub about: &'static str,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The method.
    pub verb: Verb,
    /// The path, parameters in braces; the only one is `id`, an instance's.
    pub path: &'static str,
    /// What is done.
    pub operation: Operation,
    /// One line for people.
    pub summary: &'static str,
    /// Parameters in the query; others are refused.
    pub query: &'static [Parameter],
    /// The request's body.
    pub body: Option<Shape>,
    /// The answer's body and how it is written.
    pub answer: (Shape, Media),
}

const NAME: Parameter = Parameter {
    name: "name",
    kind: "string",
    about: "What messages call the document: a file name without directories. Default: `document`.",
};
const ALLOW_DELETE: Parameter = Parameter {
    name: "allow_delete",
    kind: "boolean",
    about: "Allow a document that deletes more than half of the running instances. Default: false.",
};
const AFTER: Parameter = Parameter {
    name: "after",
    kind: "integer",
    about: "Begin after the event of this number; 0: with the oldest that is kept. Default: with the next one.",
};
const FOLLOW: Parameter = Parameter {
    name: "follow",
    kind: "boolean",
    about: "Go on with events as they happen; false: end after those already there. Default: true.",
};
const READ_ONLY: Parameter = Parameter {
    name: "read_only",
    kind: "boolean",
    about: "Only read: whoever has the input keeps it. Default: false, the input is taken over.",
};

const fn get(path: &'static str, operation: Operation, summary: &'static str, answer: Shape) -> Route {
    Route { verb: Verb::Get, path, operation, summary, query: &[], body: None, answer: (answer, Media::Json) }
}

/// Every request there is.
pub const ROUTES: &[Route] = &[
    get(
        "/v1/status",
        Operation::GetStatus,
        "The node, its instances, and domains that are not its own.",
        Shape::NodeStatus,
    ),
    Route {
        answer: (Shape::NodeStatus, Media::Stream),
        ..get(
            "/v1/status/watch",
            Operation::WatchStatus,
            "The status now, and again whenever it changes; what comes while the client is busy is folded into one.",
            Shape::NodeStatus,
        )
    },
    get("/v1/instances/{id}", Operation::GetInstance, "One instance.", Shape::InstanceStatus),
    Route {
        query: &[READ_ONLY],
        answer: (Shape::Bytes, Media::Upgrade),
        ..get(
            "/v1/instances/{id}/console",
            Operation::OpenConsole,
            "The instance's serial console: its backlog, then what comes, and input the other way. Send `Connection: \
             Upgrade` and `Upgrade: bcd-console`.",
            Shape::Bytes,
        )
    },
    get("/v1/spec", Operation::GetSpec, "The document in force.", Shape::NodeSpec),
    Route {
        verb: Verb::Put,
        path: "/v1/spec",
        operation: Operation::PutSpec,
        summary: "Puts a document in force. Answered once it is accepted; the status shows what becomes of it.",
        query: &[ALLOW_DELETE, NAME],
        body: Some(Shape::NodeSpec),
        answer: (Shape::ApplyReport, Media::Json),
    },
    Route {
        verb: Verb::Post,
        path: "/v1/plan",
        operation: Operation::PlanSpec,
        summary: "What a document would change. Nothing is done.",
        query: &[NAME],
        body: Some(Shape::NodeSpec),
        answer: (Shape::PlanReport, Media::Json),
    },
    Route {
        query: &[AFTER, FOLLOW],
        answer: (Shape::Event, Media::Stream),
        ..get("/v1/events", Operation::GetEvents, "What happened and happens.", Shape::Event)
    },
    get("/v1/schema", Operation::GetSchema, "The JSON Schema of a NodeSpec.", Shape::Object),
    get("/v1/openapi.json", Operation::GetOpenApi, "This document.", Shape::Object),
    get(
        "/v1/healthz",
        Operation::GetHealth,
        "Whether the node answers, and whether it reaches what it needs.",
        Shape::Health,
    ),
];
