//! The command line's way to a running node: one HTTP/1.1 request per connection over its unix socket.
//!
//! Room: `node`. What comes back is parsed into the same types that the node sends.
use crate::api::events::Event;
use crate::api::service::{ApplyOptions, ApplyReport, Document, PlanReport};
use crate::api::{CONSOLE_PROTOCOL, Problem};
use crate::console::Attach;
use crate::spec::{Format, NodeSpec};
use crate::status::{InstanceStatus, NodeStatus};
use bcd_protocol::id::InstanceId;
use bytes::{Bytes, BytesMut};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

/// Longest wait for an answer for which the node asks others, and for all of any answer: above the node's own deadline.
const ANSWER_TIME: Duration = Duration::from_secs(90);
/// Longest wait for the head of an answer that the node has at hand: one that is at work gives it in milliseconds.
const READ_TIME: Duration = Duration::from_secs(10);
/// Longest value in a stream or answer, bytes: the status of four thousand instances fits.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Why a node did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody serves the socket.
    #[error("no node answers on {}", socket.display())]
    NotRunning {
        /// The socket.
        socket: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The node closed the connection without a word: that is how it treats callers it does not admit.
    #[error("the node on {} closed the connection", socket.display())]
    Closed {
        /// The socket.
        socket: PathBuf,
    },
    /// The node refused or failed; the sentence is its own.
    #[error("{}", problem.message)]
    Refused {
        /// The HTTP status.
        status: StatusCode,
        /// What the node says.
        problem: Problem,
    },
    /// The connection failed under way.
    #[error("the connection to the node failed")]
    Broken {
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The node did not answer in time.
    #[error("the node did not answer within {} s", .0.as_secs())]
    Late(Duration),
    /// What came is not what this version of bcd understands.
    #[error("the node answered something else than {wanted}: is it of another version?")]
    NotUnderstood {
        /// What was expected.
        wanted: &'static str,
        /// Why it is not that.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A node by its socket.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    read_time: Duration,
    answer_time: Duration,
}

impl Client {
    /// The node that serves `socket`. Nothing is sent yet.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), read_time: READ_TIME, answer_time: ANSWER_TIME }
    }

    /// The node's status.
    ///
    /// # Errors
    /// [`ClientError`], as every method here.
    pub async fn status(&self) -> Result<NodeStatus, ClientError> {
        self.value("/v1/status", "a status").await
    }

    /// The document in force.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn spec(&self) -> Result<NodeSpec, ClientError> {
        self.value("/v1/spec", "a document").await
    }

    /// One instance's status.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `NotFound` when the node has no such instance.
    pub async fn instance(&self, id: &InstanceId) -> Result<InstanceStatus, ClientError> {
        self.value(&format!("/v1/instances/{id}"), "an instance's status").await
    }

    /// The status now and whenever it changes.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn watch(&self) -> Result<Values<NodeStatus>, ClientError> {
        self.values("/v1/status/watch", "a status").await
    }

    /// Events after number `after`, or from now on; `follow` goes on for ever.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn events(&self, after: Option<u64>, follow: bool) -> Result<Values<Event>, ClientError> {
        let after = after.map(|seq| format!("&after={seq}")).unwrap_or_default();
        self.values(&format!("/v1/events?follow={follow}{after}"), "an event").await
    }

    /// Puts a document in force.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the node's reason.
    pub async fn apply(&self, document: &Document, options: ApplyOptions) -> Result<ApplyReport, ClientError> {
        let target = format!("/v1/spec?allow_delete={}&name={}", options.allow_delete, encoded(&document.name));
        self.send_document(Method::PUT, &target, document, "a report on what was applied").await
    }

    /// What a document would change.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the node's reason.
    pub async fn plan(&self, document: &Document) -> Result<PlanReport, ClientError> {
        let target = format!("/v1/plan?name={}", encoded(&document.name));
        self.send_document(Method::POST, &target, document, "a plan").await
    }

    /// Attaches to an instance's console: the raw connection.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the node's reason.
    pub async fn console(
        &self,
        id: &InstanceId,
        attach: Attach,
    ) -> Result<TokioIo<hyper::upgrade::Upgraded>, ClientError> {
        let read_only = attach == Attach::ReadOnly;
        let request = Request::get(format!("/v1/instances/{id}/console?read_only={read_only}"))
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, CONSOLE_PROTOCOL)
            .body(Full::default());
        let response = self.send(request, self.answer_time).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let text = format!("HTTP status {}", response.status());
            return Err(ClientError::NotUnderstood { wanted: "a console", source: text.into() });
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(|e| ClientError::Broken { source: e.into() })?;
        Ok(TokioIo::new(upgraded))
    }

    async fn value<T: DeserializeOwned>(&self, target: &str, wanted: &'static str) -> Result<T, ClientError> {
        whole(self.send(Request::get(target).body(Full::default()), self.read_time).await?, wanted).await
    }

    async fn values<T>(&self, target: &str, wanted: &'static str) -> Result<Values<T>, ClientError> {
        let request = Request::get(target).header(header::ACCEPT, "application/x-ndjson").body(Full::default());
        let body = self.send(request, self.read_time).await?.into_body();
        Ok(Values { body, line: BytesMut::new(), wanted, of: PhantomData })
    }

    async fn send_document<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
        document: &Document,
        wanted: &'static str,
    ) -> Result<T, ClientError> {
        let media = match document.format {
            Format::Toml => "application/toml",
            Format::Json => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(header::CONTENT_TYPE, media)
            .body(Full::from(document.text.clone()));
        whole(self.send(request, self.answer_time).await?, wanted).await
    }

    /// Sends one request on a connection of its own and answers what is not a refusal; its head has to come within `time`.
    async fn send(
        &self,
        request: http::Result<Request<Full<Bytes>>>,
        time: Duration,
    ) -> Result<Response<Incoming>, ClientError> {
        let broken = |e: Box<dyn std::error::Error + Send + Sync>| ClientError::Broken { source: e };
        let mut request = request.map_err(|e| broken(e.into()))?;
        request.headers_mut().insert(header::HOST, header::HeaderValue::from_static("localhost"));
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| ClientError::NotRunning { socket: self.socket.clone(), source })?;
        let lost = |e: hyper::Error| {
            if e.is_incomplete_message() || e.is_canceled() || is_hang_up(&e) {
                ClientError::Closed { socket: self.socket.clone() }
            } else {
                ClientError::Broken { source: e.into() }
            }
        };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        tokio::spawn(connection.with_upgrades());
        let response = tokio::time::timeout(time, sender.send_request(request))
            .await
            .map_err(|_| ClientError::Late(time))?
            .map_err(lost)?;
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            let problem = whole(response, "a problem").await?;
            return Err(ClientError::Refused { status, problem });
        }
        Ok(response)
    }
}

fn is_hang_up(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|e| e.downcast_ref::<io::Error>());
    source.is_some_and(|e| matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset))
}

async fn whole<T: DeserializeOwned>(response: Response<Incoming>, wanted: &'static str) -> Result<T, ClientError> {
    let body = http_body_util::Limited::new(response.into_body(), ANSWER_BYTES);
    let body = tokio::time::timeout(ANSWER_TIME, body.collect())
        .await
        .map_err(|_| ClientError::Late(ANSWER_TIME))?
        .map_err(|source| ClientError::Broken { source })?;
    parse(&body.to_bytes(), wanted)
}

fn parse<T: DeserializeOwned>(bytes: &[u8], wanted: &'static str) -> Result<T, ClientError> {
    serde_json::from_slice(bytes).map_err(|e| ClientError::NotUnderstood { wanted, source: e.into() })
}

/// `text` as a query's value.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Values that come one a line until either side ends.
#[derive(Debug)]
pub struct Values<T> {
    body: Incoming,
    line: BytesMut,
    wanted: &'static str,
    of: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Values<T> {
    /// The next value; `None` once the node has ended the stream. Cancelling it loses nothing.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        loop {
            while let Some(end) = self.line.iter().position(|b| *b == b'\n') {
                let line = self.line.split_to(end.saturating_add(1)).freeze();
                // An empty line only says that the node is still there.
                let line = line.trim_ascii();
                if !line.is_empty() {
                    return parse(line, self.wanted).map(Some);
                }
            }
            if self.line.len() > ANSWER_BYTES {
                let source = format!("a line is longer than {ANSWER_BYTES} bytes").into();
                return Err(ClientError::NotUnderstood { wanted: self.wanted, source });
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(e)) => return Err(ClientError::Broken { source: e.into() }),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.line.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_that_hangs_is_given_up_soon_where_it_only_reads_and_later_where_it_asks_others() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("node.sock");
        // A stopped process: the kernel takes connections for it, and nothing answers.
        let _hung = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let (read_time, answer_time) = (Duration::from_millis(40), Duration::from_millis(90));
        let client = Client { read_time, answer_time, ..Client::new(&socket) };
        let id = InstanceId::parse("a").unwrap();
        let document = Document { name: "a.toml".to_owned(), format: Format::Toml, text: String::new() };
        let late = |error: Option<ClientError>| match error {
            Some(ClientError::Late(time)) => time,
            other => panic!("not late: {other:?}"),
        };
        assert_eq!(late(client.status().await.err()), read_time);
        assert_eq!(late(client.spec().await.err()), read_time);
        assert_eq!(late(client.instance(&id).await.err()), read_time);
        assert_eq!(late(client.watch().await.err()), read_time);
        assert_eq!(late(client.events(None, true).await.err()), read_time);
        assert_eq!(late(client.plan(&document).await.err()), answer_time);
        assert_eq!(late(client.apply(&document, ApplyOptions::default()).await.err()), answer_time);
        assert_eq!(late(client.console(&id, Attach::ReadOnly).await.err()), answer_time);
        let usual = Client::new(&socket);
        assert_eq!((usual.read_time, usual.answer_time), (Duration::from_secs(10), Duration::from_secs(90)));
    }
}
