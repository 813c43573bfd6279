//! An https server on loopback that answers as badly as a test wants it to.
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

struct Authority {
    pem: String,
    config: Arc<ServerConfig>,
}

/// One authority for all tests, and a certificate of it for the name `localhost`.
fn authority_of_tests() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = KeyPair::generate().unwrap();
        let mut root = CertificateParams::new(Vec::new()).unwrap();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = root.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(root, key);
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config =
            ServerConfig::builder().with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key).unwrap();
        Authority { pem, config: Arc::new(config) }
    })
}

/// The authority's certificate.
pub(super) fn authority() -> &'static str {
    &authority_of_tests().pem
}

/// The server. It answers until the process ends.
pub(super) struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

/// One request's answer.
pub(super) struct Stream {
    tls: StreamOwned<ServerConnection, TcpStream>,
    aborted: bool,
}

impl Server {
    /// Answers each request, by its path, with `answer`; one request per connection.
    pub(super) fn start(answer: impl Fn(&str, &mut Stream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), Arc::clone(&asked));
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (Ok(connection), answer, log) = (connection, Arc::clone(&answer), Arc::clone(&log)) else { return };
                thread::spawn(move || serve(connection, &*answer, &log));
            }
        });
        Self { port, asked }
    }

    /// Host and port, as in a list of allowed hosts.
    pub(super) fn host(&self) -> String {
        format!("localhost:{}", self.port)
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.host())
    }

    /// The paths of all requests so far.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(connection: TcpStream, answer: &(impl Fn(&str, &mut Stream) + ?Sized), log: &Mutex<Vec<String>>) {
    let session = ServerConnection::new(Arc::clone(&authority_of_tests().config)).unwrap();
    let mut tls = StreamOwned::new(session, connection);
    let mut lines = BufReader::new(&mut tls).lines();
    let Some(Ok(first)) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let headers: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    assert!(headers.iter().any(|line| line.eq_ignore_ascii_case("accept-encoding: identity")), "{headers:?}");
    log.lock().unwrap().push(path.clone());
    let mut stream = Stream { tls, aborted: false };
    answer(&path, &mut stream);
    if !stream.aborted {
        stream.tls.conn.send_close_notify();
        let _ = stream.tls.flush();
        let _ = stream.tls.sock.shutdown(Shutdown::Write);
    }
}

impl Stream {
    /// Sends a response's head.
    pub(super) fn head(&mut self, status: u16, headers: &[(&str, &str)]) {
        let mut head = format!("HTTP/1.1 {status} Status\r\nconnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.send(format!("{head}\r\n").as_bytes());
    }

    /// Sends bytes; a client that has gone is its own business.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let _ = self.tls.write_all(bytes);
        let _ = self.tls.flush();
    }

    pub(super) fn whole(&mut self, content: &[u8]) {
        self.head(200, &[("content-length", &content.len().to_string())]);
        self.send(content);
    }

    pub(super) fn redirect(&mut self, location: &str) {
        self.head(302, &[("location", location), ("content-length", "0")]);
    }

    /// Ends the connection without TLS's own goodbye.
    pub(super) fn abort(&mut self) {
        self.aborted = true;
        let _ = self.tls.sock.shutdown(Shutdown::Both);
    }
}
