//! Fetches one file over https, piece by piece.
//!
//! Room: `node`. The server is hostile: it may redirect, lie about lengths, drip, never end. Every wait and every length
//! here has a bound. No proxy is taken from the environment.
use super::Progress;
use super::hosts::{AllowedHosts, Refusal, shown};
use crate::fault::{Fault, FaultKind};
use bcd_protocol::config::ImagesConfig;
use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Response, StatusCode, Url};
use std::error::Error;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// Redirects followed: a download site that hands over to a nearer server needs one or two.
const REDIRECTS: usize = 5;
/// Most bytes of a CA file: the whole of Mozilla's list has under 300 KiB.
const CA_FILE_BYTES: u64 = 4 << 20;

/// How long a download may wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For a connection.
    pub(super) connect: Duration,
    /// For the response's head, all redirects included.
    pub(super) head: Duration,
    /// For the next piece of the body.
    pub(super) idle: Duration,
    /// The time over which a body must have brought [`Patience::least`] bytes.
    pub(super) window: Duration,
    /// Least bytes per window.
    pub(super) least: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            head: Duration::from_secs(60),
            idle: Duration::from_secs(30),
            window: Duration::from_secs(60),
            // 2 KiB/s: a server that drips must not hold one of the few places for downloads.
            least: 120 << 10,
        }
    }
}

/// What goes to the writer.
#[derive(Debug)]
pub(super) enum Piece {
    /// The next bytes.
    Bytes(Bytes),
    /// That was all, as far as the server is concerned. A channel that closes without it means a broken download.
    End,
}

/// An https client with the configuration's authorities, hosts and limits.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: Client,
    hosts: AllowedHosts,
    max_bytes: u64,
    patience: Patience,
}

/// A response whose head was found good.
#[derive(Debug)]
pub(super) struct Download {
    response: Response,
    /// The URL as people may see it.
    pub(super) shown: String,
    /// Bytes announced.
    pub(super) total: Option<u64>,
}

impl Fetcher {
    /// Builds the client.
    ///
    /// # Errors
    /// `InvalidSpec` when the CA file or the list of hosts cannot be used.
    pub(super) fn new(config: &ImagesConfig, patience: Patience) -> Result<Self, Fault> {
        // Someone else may have installed one; any will do, but there must be one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let hosts = AllowedHosts::parse(&config.allowed_hosts)?;
        let mut builder = Client::builder()
            .https_only(true)
            .no_proxy()
            .referer(false)
            .user_agent(concat!("bcd/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(patience.connect)
            .read_timeout(patience.idle)
            .redirect(redirects(hosts.clone()));
        for authority in authorities(config)? {
            builder = builder.add_root_certificate(authority);
        }
        let client = builder.build().map_err(|e| match &config.ca_file {
            Some(path) => {
                let sentence = format!("[node.images] ca_file {path} holds a certificate that is none");
                Fault::because(FaultKind::InvalidSpec, sentence, e.without_url())
            }
            None => Fault::because(FaultKind::Internal, "the https client cannot be set up", e.without_url()),
        })?;
        Ok(Self { client, hosts, max_bytes: config.max_bytes, patience })
    }

    /// Asks for `url` and judges the response's head.
    ///
    /// # Errors
    /// As [`super::Store::ensure`].
    pub(super) async fn open(&self, url: &str) -> Result<Download, Fault> {
        let url = Url::parse(url)
            .map_err(|e| Fault::because(FaultKind::InvalidSpec, format!("image.url {url:?} is not a URL"), e))?;
        let shown = shown(&url);
        self.hosts.judge(&url).map_err(|refusal| refused(&shown, refusal))?;
        let request = self.client.get(url).header(ACCEPT_ENCODING, "identity").send();
        let response = match tokio::time::timeout(self.patience.head, request).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(failed(&shown, error)),
            Err(_) => {
                let seconds = self.patience.head.as_secs();
                let sentence = format!("{shown} did not answer within {seconds} s; it will be tried again");
                return Err(Fault::new(FaultKind::Timeout, sentence));
            }
        };
        if response.status() != StatusCode::OK {
            let sentence = format!("{shown} answered {}: check image.url; it will be tried again", response.status());
            return Err(Fault::new(FaultKind::Unavailable, sentence));
        }
        if let Some(encoding) = response.headers().get(CONTENT_ENCODING).filter(|e| e.as_bytes() != b"identity") {
            let sentence = format!("{shown} sends the image encoded as {encoding:?}, which was not asked for");
            return Err(Fault::new(FaultKind::ImageRejected, sentence));
        }
        let total = response.content_length();
        if let Some(total) = total {
            self.within_cap(&shown, total)?;
        }
        Ok(Download { response, shown, total })
    }

    fn within_cap(&self, shown: &str, bytes: u64) -> Result<(), Fault> {
        if bytes <= self.max_bytes {
            return Ok(());
        }
        let sentence = format!(
            "{shown} has {bytes} bytes or more, and [node.images] max_bytes is {}: use a smaller image or raise it",
            self.max_bytes
        );
        Err(Fault::new(FaultKind::ImageRejected, sentence))
    }

    /// Passes the body on to `sink`, then [`Piece::End`]. Stops early, without a fault, when the writer has gone: its own
    /// fault says why.
    ///
    /// # Errors
    /// As [`super::Store::ensure`].
    pub(super) async fn pass(
        &self,
        download: Download,
        sink: mpsc::Sender<Piece>,
        progress: &watch::Sender<Progress>,
    ) -> Result<(), Fault> {
        let Download { response, shown, total } = download;
        let mut body = response.bytes_stream();
        let (mut received, mut window_bytes, mut window) = (0u64, 0u64, Duration::ZERO);
        progress.send_replace(Progress { received, total });
        loop {
            let asked = Instant::now();
            let Some(piece) = body.next().await else { break };
            let bytes = piece.map_err(|error| cut(&shown, received, total, error))?;
            // Only the server's own time counts; a slow disk of ours is not its fault.
            window += asked.elapsed();
            let length = bytes.len() as u64;
            (received, window_bytes) = (received.saturating_add(length), window_bytes.saturating_add(length));
            self.within_cap(&shown, received)?;
            if window >= self.patience.window {
                if window_bytes < self.patience.least {
                    let seconds = window.as_secs();
                    let sentence =
                        format!("{shown} sent only {window_bytes} bytes in {seconds} s; it will be tried again");
                    return Err(Fault::new(FaultKind::Timeout, sentence));
                }
                (window_bytes, window) = (0, Duration::ZERO);
            }
            if sink.send(Piece::Bytes(bytes)).await.is_err() {
                return Ok(());
            }
            progress.send_replace(Progress { received, total });
        }
        if let Some(total) = total.filter(|total| *total != received) {
            let sentence =
                format!("the download of {shown} ended after {received} of {total} bytes; it will be tried again");
            return Err(Fault::new(FaultKind::Unavailable, sentence));
        }
        let _ = sink.send(Piece::End).await;
        Ok(())
    }
}

fn redirects(hosts: AllowedHosts) -> Policy {
    Policy::custom(move |attempt| {
        if attempt.previous().len() > REDIRECTS {
            return attempt.error(TooManyRedirects);
        }
        match hosts.judge(attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(refusal) => attempt.error(refusal),
        }
    })
}

#[derive(Debug, thiserror::Error)]
#[error("it redirects more than {REDIRECTS} times")]
struct TooManyRedirects;

/// The configured authorities; none when none are configured.
fn authorities(config: &ImagesConfig) -> Result<Vec<Certificate>, Fault> {
    let Some(path) = &config.ca_file else { return Ok(Vec::new()) };
    let unusable = |why: &str| format!("[node.images] ca_file {path} {why}");
    let length = std::fs::metadata(path.as_path())
        .map_err(|e| Fault::because(FaultKind::InvalidSpec, unusable("cannot be read"), e))?
        .len();
    if length > CA_FILE_BYTES {
        return Err(Fault::new(FaultKind::InvalidSpec, unusable("is larger than 4 MiB")));
    }
    let pem = std::fs::read(path.as_path())
        .map_err(|e| Fault::because(FaultKind::InvalidSpec, unusable("cannot be read"), e))?;
    let found = Certificate::from_pem_bundle(&pem)
        .map_err(|e| Fault::because(FaultKind::InvalidSpec, unusable("is not a list of PEM certificates"), e))?;
    if found.is_empty() {
        return Err(Fault::new(FaultKind::InvalidSpec, unusable("holds no PEM certificate")));
    }
    Ok(found)
}

fn refused(shown: &str, refusal: Refusal) -> Fault {
    Fault::because(refusal.kind(), format!("image.url {shown} is not fetched"), refusal)
}

/// A request that got no response.
fn failed(shown: &str, error: reqwest::Error) -> Fault {
    let error = error.without_url();
    if let Some(refusal) = find::<Refusal>(&error) {
        let sentence = format!("image.url {shown} redirects to where images are not fetched from");
        return Fault::because(FaultKind::Denied, sentence, refusal.clone());
    }
    if error.is_redirect() {
        return Fault::because(FaultKind::Unavailable, format!("image.url {shown} cannot be followed"), error);
    }
    if error.is_timeout() {
        let sentence = format!("{shown} took too long to answer; it will be tried again");
        return Fault::because(FaultKind::Timeout, sentence, error);
    }
    Fault::because(FaultKind::Unavailable, format!("{shown} cannot be reached; it will be tried again"), error)
}

/// A body that broke off.
fn cut(shown: &str, received: u64, total: Option<u64>, error: reqwest::Error) -> Fault {
    let error = error.without_url();
    let of = total.map_or_else(String::new, |total| format!(" of {total}"));
    if error.is_timeout() {
        let sentence = format!("{shown} sent nothing more after {received}{of} bytes; it will be tried again");
        return Fault::because(FaultKind::Timeout, sentence, error);
    }
    let sentence = format!("the download of {shown} was cut after {received}{of} bytes; it will be tried again");
    Fault::because(FaultKind::Unavailable, sentence, error)
}

/// The first cause of type `E`.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
