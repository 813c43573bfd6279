//! One function per operation: parse what the request says, ask the service, answer.
//!
//! Room: `node`. A handler holds nothing across requests; everything a client sends is bounded before it is read.
use super::problem::{ProblemKind, Refusal};
use super::relay;
use super::routes::{Operation, Route};
use super::serve::{Api, Health};
use super::service::{ApplyOptions, Document};
use super::{CONSOLE_PROTOCOL, openapi};
use crate::console::Attach;
use crate::spec;
use crate::spec::parse::DOCUMENT_BYTES;
use axum::RequestPartsExt;
use axum::body::Body;
use axum::extract::{Path, Query, Request};
use axum::response::{IntoResponse, Response};
use bcd_protocol::id::InstanceId;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Longest time for an answer that does not stream.
const DEADLINE: Duration = Duration::from_secs(60);
/// Longest time a client may take to send a document.
const BODY_TIME: Duration = Duration::from_secs(30);
/// A stream that has nothing to say sends an empty line this often, so that a client that is gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Longest name of a document in messages, characters.
const NAME_CHARS: usize = 128;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoQuery {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplyQuery {
    #[serde(default)]
    allow_delete: bool,
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanQuery {
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    after: Option<u64>,
    follow: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConsoleQuery {
    #[serde(default)]
    read_only: bool,
}

/// Answers one request of `route`.
pub(super) async fn handle(route: &'static Route, api: Arc<Api>, request: Request) -> Response {
    if route.operation.streams() {
        return dispatch(route, api, request).await.unwrap_or_else(IntoResponse::into_response);
    }
    match timeout(DEADLINE, dispatch(route, api, request)).await {
        Ok(answer) => answer.unwrap_or_else(IntoResponse::into_response),
        Err(_) => {
            let message = format!("{} took longer than {} s", route.operation.id(), DEADLINE.as_secs());
            Refusal::new(ProblemKind::Timeout, message).into_response()
        }
    }
}

async fn dispatch(route: &'static Route, api: Arc<Api>, request: Request) -> Result<Response, Refusal> {
    match route.operation {
        Operation::GetStatus => {
            query::<NoQuery>(&request)?;
            json(&*api.service.status())
        }
        Operation::WatchStatus => watch_status(&api, &request),
        Operation::GetInstance => {
            query::<NoQuery>(&request)?;
            get_instance(&api, request).await
        }
        Operation::OpenConsole => open_console(&api, request).await,
        Operation::GetSpec => {
            query::<NoQuery>(&request)?;
            json(&*api.service.spec())
        }
        Operation::PutSpec => {
            let query: ApplyQuery = query(&request)?;
            let document = document(request, query.name).await?;
            json(&api.service.apply(document, ApplyOptions { allow_delete: query.allow_delete }).await?)
        }
        Operation::PlanSpec => {
            let query: PlanQuery = query(&request)?;
            let document = document(request, query.name).await?;
            json(&api.service.plan(document).await?)
        }
        Operation::GetEvents => get_events(&api, &request),
        Operation::GetSchema => {
            query::<NoQuery>(&request)?;
            json(&spec::schema())
        }
        Operation::GetOpenApi => {
            query::<NoQuery>(&request)?;
            json(&openapi::document())
        }
        Operation::GetHealth => {
            query::<NoQuery>(&request)?;
            json(&Health::of(&api.service.status()))
        }
    }
}

async fn get_instance(api: &Api, request: Request) -> Result<Response, Refusal> {
    let id = instance_id(request).await?.0;
    let status = api.service.status();
    let found = status.instances.iter().find(|i| i.id == id).ok_or_else(|| no_such_instance(&id))?;
    json(found)
}

async fn open_console(api: &Api, request: Request) -> Result<Response, Refusal> {
    let read_only = query::<ConsoleQuery>(&request)?.read_only;
    if !wants_console(request.headers()) {
        let message = format!(
            "the console is not HTTP: send the headers `Connection: Upgrade` and `Upgrade: {CONSOLE_PROTOCOL}`"
        );
        return Err(Refusal::new(ProblemKind::BadRequest, message).with_status(StatusCode::UPGRADE_REQUIRED));
    }
    let (id, mut request) = instance_id(request).await?;
    if !api.service.status().instances.iter().any(|i| i.id == id) {
        return Err(no_such_instance(&id));
    }
    let place = api.stream()?;
    let attach = if read_only { Attach::ReadOnly } else { Attach::Control };
    let session = api.service.console(&id, attach).await?;
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(client) => relay::relay(session, TokioIo::new(client)).await,
            Err(error) => tracing::debug!(instance = %id, %error, "console client left before its connection was made"),
        }
        drop(place);
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, CONSOLE_PROTOCOL)
        .body(Body::empty())
        .map_err(|e| Refusal::new(ProblemKind::Internal, format!("the answer cannot be built: {e}")))
}

fn wants_console(headers: &HeaderMap) -> bool {
    let lists = |name, token: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .flat_map(|v| v.split(','))
            .any(|item| item.trim().eq_ignore_ascii_case(token))
    };
    lists(header::CONNECTION, "upgrade") && lists(header::UPGRADE, CONSOLE_PROTOCOL)
}

fn watch_status(api: &Api, request: &Request) -> Result<Response, Refusal> {
    query::<NoQuery>(request)?;
    let place = api.stream()?;
    let format = StreamFormat::wanted(request.headers());
    let mut watch = api.service.watch();
    watch.mark_changed();
    let stream = futures_util::stream::unfold((watch, place, true), move |(mut watch, place, alive)| async move {
        if !alive {
            return None;
        }
        let piece = match timeout(KEEP_ALIVE, watch.changed()).await {
            Ok(Ok(())) => {
                let status = Arc::clone(&watch.borrow_and_update());
                format.piece(None, "status", &*status)
            }
            // The node stops.
            Ok(Err(_)) => return None,
            Err(_) => Ok(format.nothing()),
        };
        let alive = piece.is_ok();
        Some((piece, (watch, place, alive)))
    });
    Ok(format.response(Body::from_stream(stream)))
}

fn get_events(api: &Api, request: &Request) -> Result<Response, Refusal> {
    let query: EventsQuery = query(request)?;
    let place = api.stream()?;
    let format = StreamFormat::wanted(request.headers());
    let follow = query.follow.unwrap_or(true);
    // Without a number, those who do not follow want what is there.
    let after = query.after.or(last_event_id(request.headers())).or((!follow).then_some(0));
    let reader = api.service.events(after);
    let stream = futures_util::stream::unfold((reader, place, true), move |(mut reader, place, alive)| async move {
        if !alive {
            return None;
        }
        let next = match reader.ready() {
            Some(event) => Some(event),
            None if !follow => return None,
            None => timeout(KEEP_ALIVE, reader.next()).await.ok(),
        };
        let piece = match next {
            Some(event) => format.piece(Some(event.seq), event.kind.as_str(), &*event),
            None => Ok(format.nothing()),
        };
        let alive = piece.is_ok();
        Some((piece, (reader, place, alive)))
    });
    Ok(format.response(Body::from_stream(stream)))
}

/// Where an `EventSource` that reconnects left off.
fn last_event_id(headers: &HeaderMap) -> Option<u64> {
    headers.get("last-event-id")?.to_str().ok()?.trim().parse().ok()
}

#[derive(Debug, Clone, Copy)]
enum StreamFormat {
    Lines,
    ServerSent,
}

impl StreamFormat {
    fn wanted(headers: &HeaderMap) -> Self {
        let accept = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
        let sse = accept.flat_map(|v| v.split(',')).any(|item| {
            item.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("text/event-stream"))
        });
        if sse { Self::ServerSent } else { Self::Lines }
    }

    /// One value. JSON as serde_json writes it has no line breaks, which both formats need.
    fn piece<T: Serialize>(self, id: Option<u64>, name: &str, value: &T) -> Result<Bytes, serde_json::Error> {
        let mut out = BytesMut::new();
        if let Self::ServerSent = self {
            if let Some(id) = id {
                out.extend_from_slice(format!("id: {id}\n").as_bytes());
            }
            out.extend_from_slice(format!("event: {name}\ndata: ").as_bytes());
        }
        let mut writer = out.writer();
        serde_json::to_writer(&mut writer, value)?;
        let mut out = writer.into_inner();
        out.extend_from_slice(match self {
            Self::Lines => b"\n",
            Self::ServerSent => b"\n\n",
        });
        Ok(out.freeze())
    }

    fn nothing(self) -> Bytes {
        match self {
            Self::Lines => Bytes::from_static(b"\n"),
            Self::ServerSent => Bytes::from_static(b":\n\n"),
        }
    }

    fn response(self, body: Body) -> Response {
        let media = match self {
            Self::Lines => "application/x-ndjson",
            Self::ServerSent => "text/event-stream",
        };
        ([(header::CONTENT_TYPE, media), (header::CACHE_CONTROL, "no-store")], body).into_response()
    }
}

fn query<T: for<'de> Deserialize<'de>>(request: &Request) -> Result<T, Refusal> {
    Query::<T>::try_from_uri(request.uri())
        .map(|Query(query)| query)
        .map_err(|e| Refusal::new(ProblemKind::BadRequest, format!("the query of {}: {e}", request.uri().path())))
}

async fn instance_id(request: Request) -> Result<(InstanceId, Request), Refusal> {
    let (mut parts, body) = request.into_parts();
    let Path(text) =
        parts.extract::<Path<String>>().await.map_err(|e| Refusal::new(ProblemKind::BadRequest, e.to_string()))?;
    let id = InstanceId::parse(&text).map_err(|e| Refusal::new(ProblemKind::BadRequest, e.to_string()))?;
    Ok((id, Request::from_parts(parts, body)))
}

fn no_such_instance(id: &InstanceId) -> Refusal {
    Refusal::new(ProblemKind::NotFound, format!("this node has no instance {id}: `bcd status` lists those it has"))
}

async fn document(request: Request, name: Option<String>) -> Result<Document, Refusal> {
    let format = document_format(request.headers())?;
    let name = document_name(name)?;
    let too_large = || {
        let message = format!("{name} is larger than {DOCUMENT_BYTES} bytes, the most a document may have");
        Refusal::new(ProblemKind::BadRequest, message).with_status(StatusCode::PAYLOAD_TOO_LARGE)
    };
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > DOCUMENT_BYTES as u64) {
        return Err(too_large());
    }
    let started = Instant::now();
    let body = http_body_util::Limited::new(request.into_body(), DOCUMENT_BYTES);
    let bytes = match timeout(BODY_TIME, http_body_util::BodyExt::collect(body)).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(e)) if e.is::<http_body_util::LengthLimitError>() => return Err(too_large()),
        Ok(Err(e)) => return Err(Refusal::new(ProblemKind::BadRequest, format!("{name} was not sent whole: {e}"))),
        Err(_) => {
            let message = format!("{name} was not sent within {} s", started.elapsed().as_secs());
            return Err(Refusal::new(ProblemKind::Timeout, message).with_status(StatusCode::REQUEST_TIMEOUT));
        }
    };
    let text = String::from_utf8(bytes.into()).map_err(|e| {
        let message = format!("{name} is not UTF-8 text: byte {} is none", e.utf8_error().valid_up_to());
        Refusal::new(ProblemKind::BadRequest, message)
    })?;
    Ok(Document { name, format, text })
}

fn document_format(headers: &HeaderMap) -> Result<spec::Format, Refusal> {
    let media = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    match media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/json" => Ok(spec::Format::Json),
        "application/toml" => Ok(spec::Format::Toml),
        other => {
            let message = format!("a document is application/toml or application/json: Content-Type is {other:?}");
            Err(Refusal::new(ProblemKind::BadRequest, message).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE))
        }
    }
}

fn document_name(name: Option<String>) -> Result<String, Refusal> {
    let name = name.unwrap_or_else(|| "document".to_owned());
    let fits =
        !name.is_empty() && name.chars().count() <= NAME_CHARS && !name.chars().any(|c| c.is_control() || c == '/');
    if fits {
        Ok(name)
    } else {
        let message = format!("the document's name is 1 to {NAME_CHARS} characters without '/' and control characters");
        Err(Refusal::new(ProblemKind::BadRequest, message))
    }
}

fn json<T: Serialize>(value: &T) -> Result<Response, Refusal> {
    let bytes = serde_json::to_vec(value)
        .map_err(|e| Refusal::new(ProblemKind::Internal, format!("the answer cannot be written as JSON: {e}")))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], bytes).into_response())
}
