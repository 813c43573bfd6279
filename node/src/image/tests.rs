//! Tests of the image store against a real https server: what is fetched, refused and left behind.
use super::*;
use bcd_protocol::config::HostPath;
use bcd_protocol::id::Sha256Digest;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;

mod server;

use server::{Server, Stream};

struct Host {
    directory: TempDir,
    layout: Layout,
    config: ImagesConfig,
}

/// A host that trusts `server` and allows it alone.
fn host(server: &Server) -> Host {
    let directory = tempfile::tempdir().unwrap();
    let authority = directory.path().join("ca.pem");
    fs::write(&authority, server::authority()).unwrap();
    let config = ImagesConfig {
        allowed_hosts: vec![server.host()],
        ca_file: Some(HostPath::try_from(authority.to_str().unwrap().to_owned()).unwrap()),
        ..ImagesConfig::default()
    };
    Host { layout: Layout::new(directory.path()), directory, config }
}

/// Waits short enough for tests.
fn impatient() -> fetch::Patience {
    fetch::Patience {
        connect: Duration::from_secs(5),
        head: Duration::from_millis(800),
        idle: Duration::from_millis(400),
        window: Duration::from_millis(600),
        least: 4096,
    }
}

impl Host {
    fn store(&self) -> Store {
        Store::open(&self.layout, &self.config).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.layout.images()).unwrap();
        let mut names: Vec<_> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    /// Fetches and answers kind and sentence of the refusal, after it was seen that nothing is left.
    fn refused(&self, image: &spec::Image) -> (FaultKind, String) {
        self.refused_by(&Store::with_patience(&self.layout, &self.config, impatient()).unwrap(), image)
    }

    fn refused_by(&self, store: &Store, image: &spec::Image) -> (FaultKind, String) {
        let fault = run(store.ensure(image, |_| {})).unwrap_err();
        assert_eq!(self.names(), Vec::<String>::new(), "{}", fault.chain());
        (fault.kind(), fault.chain())
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A compressed qcow2 of 6 MiB with 3 MiB of noise in it.
fn qcow2() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let (raw, path) = (directory.path().join("raw"), directory.path().join("qcow2"));
        let mut state = 1u32;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        let mut disk: Vec<u8> = noise.take(3 << 20).collect();
        disk.resize(6 << 20, 0);
        fs::write(&raw, disk).unwrap();
        let arguments = ["convert", "-q", "-c", "-f", "raw", "-O", "qcow2"];
        assert!(Command::new("qemu-img").args(arguments).args([&raw, &path]).status().unwrap().success());
        fs::read(path).unwrap()
    })
}

fn digest(content: &[u8]) -> Sha256Digest {
    Sha256Digest::from_bytes(Sha256::digest(content).into())
}

fn image(url: &str, sha256: Sha256Digest, format: &str) -> spec::Image {
    serde_json::from_value(json!({ "url": url, "sha256": sha256, "format": format })).unwrap()
}

/// Serves `content` on every path.
fn serving(content: &'static [u8]) -> Server {
    Server::start(move |_, stream| stream.whole(content))
}

fn asked_for(server: &Server, content: &[u8], format: &str) -> spec::Image {
    image(&server.url("/image"), digest(content), format)
}

#[test]
fn an_image_is_fetched_checked_and_published_once() {
    let server = serving(qcow2());
    let host = host(&server);
    let image = asked_for(&server, qcow2(), "qcow2");
    let figures = Mutex::new(Vec::new());
    let base = run(host.store().ensure(&image, |progress| figures.lock().unwrap().push(progress))).unwrap();
    let name = format!("{}.qcow2", digest(qcow2()));
    assert_eq!(base.path, host.layout.images().join(&name));
    assert_eq!(base.virtual_bytes, 6 << 20);
    assert_eq!(Some(base.image), image.reference());
    assert_eq!(fs::read(&base.path).unwrap(), qcow2());
    let metadata = fs::symlink_metadata(&base.path).unwrap();
    assert_eq!((metadata.permissions().mode() & 0o7777, metadata.nlink()), (0o600, 1));
    assert_eq!(host.names(), [name]);
    let figures = figures.into_inner().unwrap();
    assert!(figures.is_sorted_by_key(|progress| progress.received));
    assert!(figures.iter().all(|progress| progress.total == Some(qcow2().len() as u64)), "{figures:?}");
    // Again, also by a new store: nothing is asked of the server.
    assert_eq!(run(host.store().ensure(&image, |_| {})).unwrap(), base);
    assert_eq!(server.asked(), ["/image"]);
}

#[test]
fn creates_at_once_share_one_download() {
    let server = Server::start(|_, stream| {
        stream.head(200, &[("content-length", &qcow2().len().to_string())]);
        for part in qcow2().chunks(512 << 10) {
            std::thread::sleep(Duration::from_millis(20));
            stream.send(part);
        }
    });
    let host = host(&server);
    let store = host.store();
    let image = asked_for(&server, qcow2(), "qcow2");
    let bases = run(futures_util::future::join_all((0..8).map(|_| store.ensure(&image, |_| {}))));
    assert_eq!(bases.len(), 8);
    for base in bases {
        assert_eq!(base.unwrap().path, host.layout.image(&image.reference().unwrap()));
    }
    assert_eq!(server.asked(), ["/image"]);
    assert_eq!(host.names().len(), 1);
}

#[test]
fn creates_at_once_share_one_fault_and_a_later_one_tries_again() {
    let server = Server::start(|_, stream| {
        std::thread::sleep(Duration::from_millis(100));
        stream.head(503, &[("content-length", "0")]);
    });
    let host = host(&server);
    let store = host.store();
    let image = asked_for(&server, qcow2(), "qcow2");
    for fault in run(futures_util::future::join_all((0..4).map(|_| store.ensure(&image, |_| {})))) {
        let fault = fault.unwrap_err();
        assert_eq!(fault.kind(), FaultKind::Unavailable);
        assert!(fault.to_string().contains("503"), "{fault}");
    }
    assert_eq!(server.asked().len(), 1);
    run(store.ensure(&image, |_| {})).unwrap_err();
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn a_download_that_nobody_waits_for_any_more_is_given_up_and_removed() {
    let server = Server::start(|_, stream| {
        stream.head(200, &[("content-length", &qcow2().len().to_string())]);
        stream.send(&qcow2()[..1 << 20]);
        std::thread::sleep(Duration::from_secs(2));
    });
    let host = host(&server);
    let store = host.store();
    let image = asked_for(&server, qcow2(), "qcow2");
    run(async {
        let ensure = store.ensure(&image, |_| {});
        assert!(tokio::time::timeout(Duration::from_millis(500), ensure).await.is_err());
        while !host.names().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn one_who_stops_waiting_does_not_stop_the_others() {
    let server = Server::start(|_, stream| {
        stream.head(200, &[("content-length", &qcow2().len().to_string())]);
        for part in qcow2().chunks(512 << 10) {
            std::thread::sleep(Duration::from_millis(60));
            stream.send(part);
        }
    });
    let host = host(&server);
    let store = host.store();
    let image = asked_for(&server, qcow2(), "qcow2");
    let (first, second) = run(async {
        let first = tokio::time::timeout(Duration::from_millis(150), store.ensure(&image, |_| {}));
        tokio::join!(first, store.ensure(&image, |_| {}))
    });
    assert!(first.is_err());
    second.unwrap();
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn no_more_downloads_run_at_once_than_configured() {
    static RUNNING: Mutex<(u32, u32)> = Mutex::new((0, 0));
    let server = Server::start(|path, stream| {
        {
            let mut running = RUNNING.lock().unwrap();
            running.0 += 1;
            running.1 = running.1.max(running.0);
        }
        std::thread::sleep(Duration::from_millis(80));
        RUNNING.lock().unwrap().0 -= 1;
        stream.whole(path.as_bytes());
    });
    let host = host(&server);
    let store = host.store();
    let images: Vec<_> =
        (0..6).map(|i| image(&server.url(&format!("/{i}")), Sha256Digest::from_bytes([i; 32]), "raw")).collect();
    let faults = run(futures_util::future::join_all(images.iter().map(|image| store.ensure(image, |_| {}))));
    assert!(faults.iter().all(Result::is_err));
    assert_eq!(RUNNING.lock().unwrap().1, host.config.max_downloads);
}

#[test]
fn a_wrong_digest_is_refused_with_both_and_nothing_is_left() {
    let server = serving(qcow2());
    let host = host(&server);
    let wrong = Sha256Digest::from_bytes([0xab; 32]);
    let (kind, said) = host.refused(&image(&server.url("/image"), wrong, "qcow2"));
    assert_eq!(kind, FaultKind::ImageRejected);
    assert!(said.contains(&wrong.to_string()) && said.contains(&digest(qcow2()).to_string()), "{said}");
}

#[test]
fn a_cut_download_is_unavailable_and_nothing_is_left() {
    let announced = qcow2().len().to_string();
    let half = qcow2().len() / 2;
    type Answer = Box<dyn Fn(&mut Stream) + Send + Sync>;
    let cuts: [Answer; 4] = [
        // Less than was announced, with a proper and with an abrupt end.
        Box::new(move |stream| {
            stream.head(200, &[("content-length", &announced)]);
            stream.send(&qcow2()[..half]);
        }),
        Box::new(move |stream| {
            stream.head(200, &[("content-length", &qcow2().len().to_string())]);
            stream.send(&qcow2()[..half]);
            stream.abort();
        }),
        // No length, and an abrupt end.
        Box::new(move |stream| {
            stream.head(200, &[]);
            stream.send(&qcow2()[..half]);
            stream.abort();
        }),
        // Chunks without the last one.
        Box::new(move |stream| {
            stream.head(200, &[("transfer-encoding", "chunked")]);
            stream.send(format!("{half:x}\r\n").as_bytes());
            stream.send(&qcow2()[..half]);
            stream.send(b"\r\n");
        }),
    ];
    for (index, cut) in cuts.into_iter().enumerate() {
        let server = Server::start(move |_, stream| cut(stream));
        let host = host(&server);
        let (kind, said) = host.refused(&asked_for(&server, qcow2(), "qcow2"));
        assert_eq!(kind, FaultKind::Unavailable, "{index}: {said}");
        assert!(said.contains(&format!("after {half}")), "{index}: {said}");
    }
}

#[test]
fn an_unknown_length_and_chunks_work() {
    for chunked in [false, true] {
        let server = Server::start(move |_, stream| {
            if chunked {
                stream.head(200, &[("transfer-encoding", "chunked")]);
                for part in qcow2().chunks(100_000) {
                    stream.send(format!("{:x}\r\n", part.len()).as_bytes());
                    stream.send(part);
                    stream.send(b"\r\n");
                }
                stream.send(b"0\r\n\r\n");
            } else {
                stream.head(200, &[]);
                stream.send(qcow2());
            }
        });
        let host = host(&server);
        run(host.store().ensure(&asked_for(&server, qcow2(), "qcow2"), |_| {})).unwrap();
    }
}

#[test]
fn a_foreign_container_is_refused_with_its_name_and_nothing_is_left() {
    let page: &'static [u8] = b"<!doctype html><title>Sign in</title>";
    let server = serving(page);
    let host = host(&server);
    for format in ["raw", "qcow2"] {
        let (kind, said) = host.refused(&asked_for(&server, page, format));
        assert_eq!(kind, FaultKind::ImageRejected);
        assert!(said.contains(&format!("declared as {format} and looks like an HTML page")), "{said}");
    }
    let server = serving(qcow2());
    let host = self::host(&server);
    let (kind, said) = host.refused(&asked_for(&server, qcow2(), "raw"));
    assert_eq!(kind, FaultKind::ImageRejected);
    assert!(said.contains("looks like a qcow2 disk"), "{said}");
}

#[test]
fn an_image_beyond_the_cap_is_refused_announced_or_not() {
    for announced in [true, false] {
        let server = Server::start(move |_, stream| {
            let length = qcow2().len().to_string();
            stream.head(200, if announced { vec![("content-length", length.as_str())] } else { vec![] }.as_slice());
            stream.send(qcow2());
        });
        let mut host = host(&server);
        host.config.max_bytes = qcow2().len() as u64 - 1;
        let (kind, said) = host.refused(&asked_for(&server, qcow2(), "qcow2"));
        assert_eq!(kind, FaultKind::ImageRejected);
        assert!(said.contains(&format!("max_bytes is {}", host.config.max_bytes)), "{said}");
        host.config.max_bytes += 1;
        run(host.store().ensure(&asked_for(&server, qcow2(), "qcow2"), |_| {})).unwrap();
    }
}

#[test]
fn a_download_that_cannot_fit_is_refused_before_it_begins() {
    let server = Server::start(|_, stream| {
        stream.head(200, &[("content-length", &(1u64 << 60).to_string())]);
        stream.send(&[0; 4096]);
    });
    let mut host = host(&server);
    host.config.max_bytes = u64::MAX;
    let (kind, said) = host.refused(&asked_for(&server, qcow2(), "qcow2"));
    assert_eq!(kind, FaultKind::ResourcesExhausted);
    assert!(said.contains(&((1u64 << 60) + part::RESERVE).to_string()), "{said}");
}

#[test]
fn a_server_that_drips_or_stops_is_a_timeout() {
    type Answer = fn(&mut Stream);
    let answers: [(Answer, &str); 3] = [
        (|_| std::thread::sleep(Duration::from_secs(3)), "answer"),
        (
            |stream| {
                stream.head(200, &[("content-length", "100000")]);
                stream.send(&[1; 10]);
                std::thread::sleep(Duration::from_secs(3));
            },
            "nothing more after 10 of 100000 bytes",
        ),
        (
            |stream| {
                stream.head(200, &[("content-length", "100000")]);
                for _ in 0..30 {
                    stream.send(&[1; 10]);
                    std::thread::sleep(Duration::from_millis(100));
                }
            },
            "sent only",
        ),
    ];
    for (answer, expected) in answers {
        let server = Server::start(move |_, stream| answer(stream));
        let host = host(&server);
        let (kind, said) = host.refused(&asked_for(&server, qcow2(), "qcow2"));
        assert_eq!(kind, FaultKind::Timeout, "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn only_ok_is_an_image() {
    for status in [201, 204, 206, 304, 401, 403, 404, 500] {
        let server = Server::start(move |_, stream| {
            stream.head(status, &[("content-length", "0")]);
        });
        let host = host(&server);
        let (kind, said) = host.refused(&asked_for(&server, b"", "raw"));
        assert_eq!(kind, FaultKind::Unavailable);
        assert!(said.contains(&status.to_string()), "{said}");
    }
}

#[test]
fn an_encoded_body_is_refused() {
    let server = Server::start(|_, stream| {
        stream.head(200, &[("content-length", "3"), ("content-encoding", "gzip")]);
        stream.send(b"abc");
    });
    let host = host(&server);
    let (kind, said) = host.refused(&asked_for(&server, b"abc", "raw"));
    assert_eq!(kind, FaultKind::ImageRejected);
    assert!(said.contains("gzip"), "{said}");
}

#[test]
fn redirects_are_followed_to_allowed_https_hosts_alone_and_not_for_ever() {
    let other = serving(qcow2());
    let elsewhere = other.url("/there");
    let plain = elsewhere.replace("https:", "http:");
    let server = Server::start(move |path, stream| match path {
        "/here" => stream.redirect("/image"),
        "/elsewhere" => stream.redirect(&elsewhere),
        "/plain" => stream.redirect(&plain),
        "/file" => stream.redirect("file:///etc/passwd"),
        "/loop" => stream.redirect("/loop"),
        _ => stream.whole(qcow2()),
    });
    let mut host = host(&server);
    let ask = |path: &str| image(&server.url(path), digest(qcow2()), "qcow2");
    let (kind, said) = host.refused(&ask("/elsewhere"));
    assert_eq!(kind, FaultKind::Denied, "{said}");
    assert!(said.contains(&other.host()), "{said}");
    let (kind, said) = host.refused(&ask("/plain"));
    assert_eq!(kind, FaultKind::Denied, "{said}");
    let (kind, said) = host.refused(&ask("/file"));
    assert_eq!(kind, FaultKind::Unavailable, "{said}");
    assert!(said.contains("302"), "{said}");
    assert_eq!(other.asked(), Vec::<String>::new());
    let (kind, said) = host.refused(&ask("/loop"));
    assert_eq!(kind, FaultKind::Unavailable, "{said}");
    assert_eq!(server.asked().iter().filter(|path| *path == "/loop").count(), 6);
    host.config.allowed_hosts.push(other.host());
    for path in ["/here", "/elsewhere"] {
        let base = run(host.store().ensure(&ask(path), |_| {})).unwrap();
        fs::remove_file(base.path).unwrap();
    }
    assert_eq!(other.asked(), ["/there"]);
}

#[test]
fn a_host_that_is_not_allowed_is_not_asked() {
    let server = serving(qcow2());
    let mut host = host(&server);
    host.config.allowed_hosts = vec!["images.example".to_owned()];
    let (kind, said) = host.refused(&asked_for(&server, qcow2(), "qcow2"));
    assert_eq!(kind, FaultKind::Denied);
    assert!(said.contains(&format!("list \"{}\"", server.host())), "{said}");
    assert!(server.asked().is_empty());
}

#[test]
fn a_server_of_another_authority_is_not_believed() {
    let server = serving(qcow2());
    let mut host = host(&server);
    host.config.ca_file = None;
    let (kind, said) = host.refused(&asked_for(&server, qcow2(), "qcow2"));
    assert_eq!(kind, FaultKind::Unavailable);
    assert!(said.to_lowercase().contains("certificate"), "{said}");
    // Nor one of the right authority under another name.
    let host = self::host(&server);
    let url = server.url("/image").replace("localhost", "127.0.0.1");
    let mut config = host.config.clone();
    config.allowed_hosts = Vec::new();
    let store = Store::with_patience(&host.layout, &config, impatient()).unwrap();
    let (kind, _) = host.refused_by(&store, &image(&url, digest(qcow2()), "qcow2"));
    assert_eq!(kind, FaultKind::Unavailable);
    assert!(server.asked().is_empty());
}

#[test]
fn a_signed_query_reaches_the_server_and_no_message() {
    let server = Server::start(|_, stream| {
        stream.head(404, &[("content-length", "0")]);
    });
    let host = host(&server);
    let (_, said) = host.refused(&image(&server.url("/image?signature=s3cret"), digest(b""), "raw"));
    assert!(!said.contains("s3cret"), "{said}");
    assert_eq!(server.asked(), ["/image?signature=s3cret"]);
    drop(server);
    let gone = image("https://localhost:1/image?signature=s3cret", digest(b""), "raw");
    let mut config = host.config.clone();
    config.allowed_hosts = Vec::new();
    let (kind, said) = host.refused_by(&Store::open(&host.layout, &config).unwrap(), &gone);
    assert_eq!(kind, FaultKind::Unavailable);
    assert!(!said.contains("s3cret"), "{said}");
}

#[test]
fn an_iso_is_unsupported_by_name() {
    let server = serving(qcow2());
    let host = host(&server);
    let (kind, said) = host.refused(&asked_for(&server, qcow2(), "iso"));
    assert_eq!(kind, FaultKind::Unsupported);
    assert!(said.contains("image.format"), "{said}");
}

#[test]
fn an_unusable_ca_file_is_named() {
    let server = serving(qcow2());
    let host = host(&server);
    let path = host.directory.path().join("ca.pem");
    for content in
        [None, Some(""), Some("no certificate"), Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")]
    {
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let fault = Store::open(&host.layout, &host.config).unwrap_err();
        assert_eq!(fault.kind(), FaultKind::InvalidSpec, "{content:?}");
        assert!(fault.to_string().contains("ca.pem"), "{fault}");
    }
}

#[test]
fn leftovers_go_at_the_next_start_and_nothing_else_does() {
    let server = serving(qcow2());
    let host = host(&server);
    let base = run(host.store().ensure(&asked_for(&server, qcow2(), "qcow2"), |_| {})).unwrap();
    let aside = host.directory.path().join("aside");
    fs::write(&aside, "aside").unwrap();
    let part = |name: &str| host.layout.images().join(format!("{PART_PREFIX}{}-{name}", digest(qcow2())));
    fs::write(part("half"), &qcow2()[..1000]).unwrap();
    symlink(&aside, part("link")).unwrap();
    fs::write(host.layout.images().join("README"), "keep").unwrap();
    host.store();
    assert_eq!(host.names().len(), 2);
    assert!(base.path.exists() && host.names().contains(&"README".to_owned()));
    assert_eq!(fs::read(aside).unwrap(), b"aside");
}

#[test]
fn a_file_that_only_has_the_name_is_not_taken_for_the_image() {
    let server = serving(qcow2());
    let host = host(&server);
    let image = asked_for(&server, qcow2(), "qcow2");
    let store = host.store();
    let path = host.layout.image(&image.reference().unwrap());
    let aside = host.directory.path().join("aside");
    fs::write(&aside, qcow2()).unwrap();
    let plant: [(&str, &dyn Fn()); 5] = [
        ("link", &|| symlink(&aside, &path).unwrap()),
        ("second name", &|| fs::hard_link(&aside, &path).unwrap()),
        ("regular file", &|| nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap()),
        ("written by others", &|| {
            fs::write(&path, qcow2()).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        }),
        ("was changed", &|| fs::write(&path, b"QFI\xfb").unwrap()),
    ];
    for (what, plant) in plant {
        plant();
        let fault = run(store.ensure(&image, |_| {})).unwrap_err();
        assert!(fault.chain().contains(what), "{what}: {}", fault.chain());
        fs::remove_file(&path).unwrap();
    }
    assert!(server.asked().is_empty());
}

#[test]
fn zeroes_of_a_raw_image_take_no_space() {
    static DISK: OnceLock<Vec<u8>> = OnceLock::new();
    let disk = DISK.get_or_init(|| {
        let mut disk = vec![0; 32 << 20];
        disk[..512].fill(0x90);
        disk[20 << 20] = 1;
        disk
    });
    let server = serving(disk);
    let host = host(&server);
    let base = run(host.store().ensure(&asked_for(&server, disk, "raw"), |_| {})).unwrap();
    assert_eq!(base.virtual_bytes, 32 << 20);
    assert!(fs::read(&base.path).unwrap() == *disk);
    let blocks = fs::metadata(&base.path).unwrap().blocks() * 512;
    assert!(blocks < 1 << 20, "{blocks} bytes");
}

#[test]
fn a_sweep_removes_the_unused_and_keeps_the_rest() {
    let server = serving(qcow2());
    let host = host(&server);
    let store = host.store();
    let base = run(store.ensure(&asked_for(&server, qcow2(), "qcow2"), |_| {})).unwrap();
    let unused = format!("{}.raw", Sha256Digest::from_bytes([3; 32]));
    for name in [unused.as_str(), "README", "short.raw", &format!("{}.iso", digest(b""))] {
        fs::write(host.layout.images().join(name), "x").unwrap();
    }
    let removed = store.sweep(&HashSet::from([base.image])).unwrap();
    assert_eq!(removed.len(), 1);
    assert_eq!(removed[0].sha256, Sha256Digest::from_bytes([3; 32]));
    assert!(base.path.exists() && !host.names().contains(&unused));
    assert_eq!(host.names().len(), 4);
    assert_eq!(store.sweep(&HashSet::new()).unwrap(), [base.image]);
    assert!(!base.path.exists());
}
