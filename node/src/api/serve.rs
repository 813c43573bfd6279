//! The socket and its connections: bound where nothing of others lies, each caller checked, everything bounded.
//!
//! Room: `node`. Invariant: no request byte is read from a caller that [`Admission`] does not admit.
use super::caller::{Admission, Caller, groups_of};
use super::handlers;
use super::problem::{ProblemKind, Refusal};
use super::routes::{ROUTES, Verb};
use super::service::NodeService;
use crate::fault::{Fault, FaultKind};
use crate::status::{Link, NodeStatus};
use axum::Router;
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, on};
use http::StatusCode;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections served at once; more wait in the kernel's backlog.
pub const CONNECTIONS: usize = 128;
/// Of them, requests that stream: watches, events, consoles. The rest stays free for short ones.
pub const STREAMS: usize = 96;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 64;
/// Time a client has to send a request's head, also on a connection that is kept open.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// Largest request head, bytes.
const HEAD_BYTES: usize = 16 * 1024;

/// What handlers share.
pub struct Api {
    pub(super) service: Arc<dyn NodeService>,
    streams: Arc<Semaphore>,
}

impl Api {
    /// An API over `service`.
    #[must_use]
    pub fn new(service: Arc<dyn NodeService>) -> Arc<Self> {
        Arc::new(Self { service, streams: Arc::new(Semaphore::new(STREAMS)) })
    }

    /// A place for a request that streams, held for as long as it does.
    pub(super) fn stream(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            let message = format!("{STREAMS} clients watch, follow events or hold consoles, the most at once: end one");
            Refusal::new(ProblemKind::ResourcesExhausted, message)
        })
    }

    fn router(self: &Arc<Self>) -> Router {
        let mut router = Router::new();
        for route in ROUTES {
            let api = Arc::clone(self);
            let method = match route.verb {
                Verb::Get => MethodFilter::GET,
                Verb::Post => MethodFilter::POST,
                Verb::Put => MethodFilter::PUT,
            };
            router = router.route(route.path, on(method, move |request| handlers::handle(route, api, request)));
        }
        router
            .fallback(|request: axum::extract::Request| async move {
                let message = format!("there is no {}: GET /v1/openapi.json lists what there is", request.uri().path());
                Refusal::new(ProblemKind::NotFound, message).into_response()
            })
            .method_not_allowed_fallback(|request: axum::extract::Request| async move {
                let message = format!("{} does not take {}", request.uri().path(), request.method());
                Refusal::new(ProblemKind::BadRequest, message)
                    .with_status(StatusCode::METHOD_NOT_ALLOWED)
                    .into_response()
            })
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("free_streams", &self.streams.available_permits()).finish_non_exhaustive()
    }
}

/// Whether the node answers, and what it reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// The node's package version.
    pub version: String,
    /// Whether the helper answers and everything could be read in the last pass.
    pub ready: bool,
}

impl Health {
    pub(super) fn of(status: &NodeStatus) -> Self {
        let ready = status.helper.state == Link::Connected && status.unreadable.is_empty();
        Self { version: status.version.clone(), ready }
    }
}

/// The bound socket. Dropping it removes the socket, if it is still this one.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: PathBuf,
    inode: (u64, u64),
}

impl Listener {
    /// Binds the API's socket at `path` with mode 0660 and this process's group. Call within a tokio runtime.
    ///
    /// # Errors
    /// `Unavailable` when the directory is missing, is a link or may be written by others, when something that is no
    /// socket of this user lies at `path`, or when another node serves there. A socket that nobody listens on any more
    /// is replaced.
    pub fn bind(path: &Path) -> Result<Self, Fault> {
        let fault = |what: &str| Fault::new(FaultKind::Unavailable, format!("api socket {}: {what}", path.display()));
        let failed = |what: &str, e: io::Error| {
            Fault::because(FaultKind::Unavailable, format!("api socket {}: {what}", path.display()), e)
        };
        let parent = path.parent().ok_or_else(|| fault("it has no directory"))?;
        check_directory(parent).map_err(|what| fault(&what))?;
        clear(path).map_err(|what| fault(&what))?;
        let socket = UnixSocket::new_stream().map_err(|e| failed("cannot be made", e))?;
        // Nobody can connect before `listen`, so there is no moment at which another mode matters.
        socket.bind(path).map_err(|e| {
            let refused = matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem);
            let shown = parent.display();
            let what = format!("it cannot be made in {shown}: set node.api to a path in a directory of the node's own");
            failed(if refused { &what } else { "cannot be bound" }, e)
        })?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o660))
            .map_err(|e| failed("cannot be given its mode", e))?;
        let meta = fs::symlink_metadata(path).map_err(|e| failed("is gone again", e))?;
        let listener = socket.listen(BACKLOG).map_err(|e| failed("cannot be listened on", e))?;
        Ok(Self { listener, path: path.to_owned(), inode: (meta.dev(), meta.ino()) })
    }

    /// Serves until the future is dropped; connections under way end with it.
    pub async fn serve(self, api: Arc<Api>, admission: Admission) {
        let router = api.router();
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let router = router.clone();
                    connections.spawn(async move {
                        connection(stream, router, admission).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "api connection cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

async fn connection(stream: UnixStream, router: Router, admission: Admission) {
    let caller = match stream.peer_cred() {
        Ok(peer) => Caller { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() },
        Err(error) => {
            tracing::warn!(%error, "api caller is unknown");
            return;
        }
    };
    // The user database is asked only where it decides: the threads that may wait for it may all be busy with files.
    let admits = match admission.admits_at_once(caller) {
        true => Ok(Ok(true)),
        false => tokio::task::spawn_blocking(move || admission.admits(caller, groups_of)).await,
    };
    match admits {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => {
            tracing::warn!(uid = caller.uid, pid = caller.pid, "api caller refused");
            return;
        }
        Ok(Err(error)) => {
            tracing::warn!(uid = caller.uid, %error, "api caller refused: its groups cannot be read");
            return;
        }
        Err(error) => {
            tracing::error!(%error, "api caller cannot be checked");
            return;
        }
    }
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(uid = caller.uid, %error, "api connection ended");
    }
}

/// Refuses a directory in which somebody else could put another socket in this one's place.
fn check_directory(dir: &Path) -> Result<(), String> {
    let meta = fs::symlink_metadata(dir).map_err(|e| {
        if e.kind() == io::ErrorKind::NotFound {
            format!("there is no directory {}: as root, {}", dir.display(), make(dir))
        } else {
            format!("directory {}: {e}", dir.display())
        }
    })?;
    let own = nix::unistd::geteuid().as_raw();
    if !meta.is_dir() {
        return Err(format!("{} is not a directory (a link is not followed)", dir.display()));
    }
    if meta.uid() != 0 && meta.uid() != own {
        return Err(format!("directory {} belongs to uid {}: give it to root or uid {own}", dir.display(), meta.uid()));
    }
    let mode = meta.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(format!("directory {} has mode {mode:04o}: others may write there: chmod go-w it", dir.display()));
    }
    Ok(())
}

/// The commands that make a missing directory for this process's user, and the one above where that is missing too, as
/// the helper wants it.
fn make(dir: &Path) -> String {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let user = nix::unistd::User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
    let group = nix::unistd::Group::from_gid(gid).ok().flatten().map_or_else(|| gid.to_string(), |group| group.name);
    let above = dir
        .parent()
        .filter(|above| !above.exists())
        .map_or_else(String::new, |above| format!("install -d -o root -g {group} -m 0750 {} && ", above.display()));
    format!("{above}install -d -o {user} -g {group} -m 0710 {}", dir.display())
}

/// Removes a socket of ours that nobody listens on. Everything else stays and is an error.
fn clear(path: &Path) -> Result<(), String> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(format!("cannot be looked at: {e}")),
    };
    let own = nix::unistd::geteuid().as_raw();
    if !meta.file_type().is_socket() || meta.uid() != own {
        return Err(format!("something that is no socket of uid {own} lies there: remove it, or set another node.api"));
    }
    match try_connect(path) {
        Ok(()) | Err(Errno::EAGAIN) => Err("another node serves there: stop it first".to_owned()),
        Err(Errno::ECONNREFUSED) => fs::remove_file(path).map_err(|e| format!("a stale socket cannot be removed: {e}")),
        Err(e) => Err(format!("whether another node serves there is not known: {e}")),
    }
}

/// Connects without waiting: a listener whose backlog is full is one too.
fn try_connect(path: &Path) -> Result<(), Errno> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let probe = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    socket::connect(probe.as_raw_fd(), &UnixAddr::new(path)?)
}
