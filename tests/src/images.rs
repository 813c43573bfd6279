//! An image server of a test: https on loopback, with an authority of its own.
//!
//! Room: `tests`. It serves a directory, and can be told to misbehave: to cut a body short, to promise another length, to
//! be slow. One thread a connection; it ends with the test's process.
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the server does with a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manner {
    /// Sends it.
    #[default]
    Honest,
    /// Sends this many bytes of it, then closes.
    CutAfter(u64),
    /// Sends it in pieces of 64 KiB with a pause between them.
    Slow(Duration),
}

/// A running server.
#[derive(Debug)]
pub struct ImageServer {
    address: SocketAddr,
    ca: PathBuf,
    manner: Arc<Mutex<Manner>>,
    requests: Arc<AtomicU32>,
    sent: Arc<AtomicU64>,
}

impl ImageServer {
    /// Serves `dir`; the authority's certificate is written to `ca`.
    ///
    /// # Panics
    /// When a certificate cannot be made or no port is free.
    #[must_use]
    pub fn serve(dir: &Path, ca: &Path) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = Arc::new(certified(ca));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let server = Self {
            address: listener.local_addr().expect("an address"),
            ca: ca.to_owned(),
            manner: Arc::default(),
            requests: Arc::default(),
            sent: Arc::default(),
        };
        let (manner, requests, sent) = (server.manner.clone(), server.requests.clone(), server.sent.clone());
        let dir = dir.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, dir, manner) = (config.clone(), dir.clone(), manner.clone());
                let (requests, sent) = (requests.clone(), sent.clone());
                std::thread::spawn(move || {
                    let _ = answer(stream, config, &dir, &manner, &requests, &sent);
                });
            }
        });
        server
    }

    /// The URL of a file.
    #[must_use]
    pub fn url(&self, file: &str) -> String {
        format!("https://localhost:{}/{file}", self.address.port())
    }

    /// The authority's certificate.
    #[must_use]
    pub fn ca(&self) -> &Path {
        &self.ca
    }

    /// Changes what is done with bodies from now on.
    ///
    /// # Panics
    /// When another thread panicked.
    pub fn behave(&self, manner: Manner) {
        *self.manner.lock().expect("not poisoned") = manner;
    }

    /// How many requests came.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.requests.load(Ordering::SeqCst)
    }

    /// How many bytes of bodies were sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

fn certified(ca: &Path) -> ServerConfig {
    let mut params = CertificateParams::new(Vec::new()).expect("params");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    fs::write(ca, issuer.pem()).expect("write the authority's certificate");
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).expect("params");
    let certificate = leaf.signed_by(&key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a server's configuration")
}

fn answer(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    dir: &Path,
    manner: &Mutex<Manner>,
    requests: &AtomicU32,
    sent: &AtomicU64,
) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    let mut first = String::new();
    stream.read_line(&mut first)?;
    let mut line = String::new();
    while stream.read_line(&mut line)? > 2 {
        line.clear();
    }
    requests.fetch_add(1, Ordering::SeqCst);
    let name = first.split(' ').nth(1).unwrap_or("/").trim_start_matches('/').to_owned();
    let stream = stream.get_mut();
    let Ok(mut file) = fs::File::open(dir.join(&name)) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    let length = file.metadata()?.len();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    let manner = *manner.lock().expect("not poisoned");
    let mut left = match manner {
        Manner::CutAfter(bytes) => bytes.min(length),
        Manner::Honest | Manner::Slow(_) => length,
    };
    let mut piece = vec![0u8; 64 * 1024];
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
        let got = file.read(&mut piece[..want])?;
        if got == 0 {
            break;
        }
        stream.write_all(&piece[..got])?;
        stream.flush()?;
        let got = u64::try_from(got).expect("a length");
        sent.fetch_add(got, Ordering::SeqCst);
        left -= got;
        if let Manner::Slow(pause) = manner {
            std::thread::sleep(pause);
        }
    }
    stream.conn.send_close_notify();
    stream.flush()
}
