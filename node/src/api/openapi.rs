//! The OpenAPI 3.1 document, made from the table of routes and the schemas of the types that are really sent.
//!
//! Room: `node`. Pure. docs/openapi.json is this document; a test holds the two together.
use super::problem::Problem;
use super::routes::{Media, Parameter, ROUTES, Route, Shape, Verb};
use super::serve::Health;
use super::service::{ApplyReport, PlanReport};
use crate::api::events::Event;
use crate::spec::NodeSpec;
use crate::status::{InstanceStatus, NodeStatus};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The document.
#[must_use]
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| s.definitions_path = "/components/schemas".into());
    let mut schemas = settings.into_generator();
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(path) = path {
            path.insert(method(route.verb).to_owned(), operation(route, &mut schemas));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "bcd node",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "Served over HTTP/1.1 on the node's unix socket (by default /run/bcd/node/node.sock) to root, \
                to the node's own user and to members of that user's group.",
        },
        "servers": [{ "url": "http://localhost", "description": "The host part is not looked at." }],
        "paths": paths,
        "components": { "schemas": schemas.take_definitions(true) },
    })
}

/// The document as text: pretty, with a newline at its end.
#[must_use]
pub fn text() -> String {
    format!("{:#}\n", document())
}

fn method(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "get",
        Verb::Post => "post",
        Verb::Put => "put",
    }
}

fn operation(route: &Route, schemas: &mut SchemaGenerator) -> Value {
    let mut parameters: Vec<Value> = route.query.iter().map(query).collect();
    if route.path.contains("{id}") {
        parameters.insert(0, json!({ "name": "id", "in": "path", "required": true, "schema": instance_id(schemas) }));
    }
    let (shape, media) = route.answer;
    let (status, answer) = match media {
        Media::Json | Media::JsonOrToml => {
            ("200", json!({ "description": "Done.", "content": content(shape, media, schemas) }))
        }
        Media::Stream => (
            "200",
            json!({ "description": "One value a line, until the client leaves.", "content": content(shape, media, schemas) }),
        ),
        Media::Upgrade => ("101", json!({ "description": "The connection is the console from here on." })),
    };
    let problem = json!({ "application/json": { "schema": schemas.subschema_for::<Problem>() } });
    let mut operation = json!({
        "operationId": route.operation.id(),
        "summary": route.summary,
        "parameters": parameters,
        "responses": {
            status: answer,
            "default": { "description": "Refused or failed.", "content": problem },
        },
    });
    if let (Some(body), Value::Object(fields)) = (route.body, &mut operation) {
        let content = content(body, Media::JsonOrToml, schemas);
        fields.insert("requestBody".to_owned(), json!({ "required": true, "content": content }));
    }
    operation
}

fn query(parameter: &Parameter) -> Value {
    json!({
        "name": parameter.name,
        "in": "query",
        "description": parameter.about,
        "schema": { "type": parameter.kind },
    })
}

fn content(shape: Shape, media: Media, schemas: &mut SchemaGenerator) -> Value {
    let schema = schema(shape, schemas);
    match media {
        Media::Json => json!({ "application/json": { "schema": schema } }),
        Media::JsonOrToml => json!({
            "application/json": { "schema": schema },
            "application/toml": { "schema": schema },
        }),
        Media::Stream => json!({
            "application/x-ndjson": { "schema": schema },
            "text/event-stream": { "schema": schema },
        }),
        Media::Upgrade => json!({}),
    }
}

fn schema(shape: Shape, schemas: &mut SchemaGenerator) -> Value {
    let schema = match shape {
        Shape::NodeStatus => schemas.subschema_for::<NodeStatus>(),
        Shape::InstanceStatus => schemas.subschema_for::<InstanceStatus>(),
        Shape::NodeSpec => schemas.subschema_for::<NodeSpec>(),
        Shape::ApplyReport => schemas.subschema_for::<ApplyReport>(),
        Shape::PlanReport => schemas.subschema_for::<PlanReport>(),
        Shape::Event => schemas.subschema_for::<Event>(),
        Shape::Health => schemas.subschema_for::<Health>(),
        Shape::Object => return json!({ "type": "object" }),
        Shape::Bytes => return json!({}),
    };
    schema.to_value()
}

fn instance_id(schemas: &mut SchemaGenerator) -> Value {
    schemas.subschema_for::<crate::spec::schema::InstanceIdSchema>().to_value()
}
