//! Asks libvirt, the helper, the node and the kernel, as whoever this process is.
//!
//! Room: `node`. What may hang has a deadline. It is never done as root: root may do what the node's user may not, and some
//! of what is opened and connected to here is that user's to plant. A doctor that runs as root has a child ask (`child`).
use super::super::facts::{Document, Helper, Libvirt, Need, Node, Probe, Secrets, Unasked, Unread, Version, Words};
use super::within;
use crate::client::{Client, ClientError};
use crate::helper::dial::dial;
use crate::helper::{Helper as HelperClient, Reach};
use crate::secret;
use crate::spec;
use crate::spec::parse::DOCUMENT_BYTES;
use crate::status::{HelperStatus, Link};
use bcd_protocol::config::{Config, LibvirtUri};
use bcd_protocol::id::AllocationId;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, access, geteuid};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Longest time libvirt's daemon has to answer.
const LIBVIRT_TIME: Duration = Duration::from_secs(10);
/// Longest time the helper has to answer.
const HELPER_TIME: Duration = Duration::from_secs(3);
/// Longest time the node has to answer.
const NODE_TIME: Duration = Duration::from_secs(5);
/// Most files of user data that are looked at: as many as a helper serves instances at the most.
const FILES: usize = 4096;
/// Most files of user data that are named.
const NAMED: usize = 3;
/// Most that is read of certificates, bytes: a whole bundle has a quarter of that.
const CERTIFICATES: u64 = 1 << 20;
/// Most sections that the node cannot read and that are told.
const UNREAD: usize = 3;
/// The uid that the helper must have.
const ROOT: u32 = 0;

/// What this process finds. `as_node`: it is the node's user.
pub(crate) fn probe(config_file: &Path, config: &Config, as_node: bool) -> Result<Probe, Unasked> {
    if geteuid().is_root() {
        return Err(Unasked::NoUser);
    }
    let spec = config.node.spec.as_ref().map(|file| file.as_path());
    Ok(thread::scope(|scope| {
        let libvirt = scope.spawn(|| libvirt(&config.libvirt.uri));
        let node = scope.spawn(|| node(config.node.api.as_path()));
        let helper = helper(config.helper.socket.as_path(), ROOT, as_node);
        let died = || Words::from("asking it ended unexpectedly");
        Probe {
            helper,
            barred: barred(config_file, config),
            secrets: if as_node { loose_secrets(config.node.secrets.as_path()) } else { None },
            certificates: config.node.images.ca_file.as_ref().map(|file| certificates(file.as_path())),
            document: spec.map(document),
            libvirt: libvirt.join().unwrap_or_else(|_| Err(died())),
            node: node.join().unwrap_or_else(|_| Node::Unreachable(died())),
        }
    }))
}

/// What the node has to get at and this process cannot. The document and the certificates are read, which says more.
fn barred(config_file: &Path, config: &Config) -> Vec<(Need, i32)> {
    let (read, search, write) = (AccessFlags::R_OK, AccessFlags::X_OK, AccessFlags::W_OK);
    let wanted = [
        (Need::Configuration, config_file, read),
        (Need::DataDir, config.data_dir.as_path(), read | write | search),
        (Need::Secrets, config.node.secrets.as_path(), read | search),
    ];
    let refused = wanted.into_iter().filter_map(|(need, path, flags)| match access(path, flags) {
        // What is not there is another check's finding.
        Ok(()) | Err(Errno::ENOENT) => None,
        Err(errno) => Some((need, errno as i32)),
    });
    refused.collect()
}

fn libvirt(uri: &LibvirtUri) -> Result<Libvirt, Words> {
    let uri = uri.as_str().to_owned();
    within(LIBVIRT_TIME, move || {
        virt::error::clear_error_callback();
        let connection = virt::connect::Connect::open_read_only(Some(&uri)).map_err(|e| Words::from(e.message()))?;
        let version = connection.lib_version().map_err(|e| Words::from(e.message()))?;
        Ok(Libvirt { version, qemu: connection.hyp_version().ok().filter(|v| *v > 0) })
    })
    .unwrap_or_else(|| Err(Words::from(format!("it does not answer within {} s", LIBVIRT_TIME.as_secs()))))
}

fn runtime<T>(work: impl Future<Output = Result<T, Words>>) -> Result<T, Words> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| Words::from(e.to_string()))?.block_on(work)
}

/// Whether the helper, which has the uid `helper_uid`, answers on its socket.
pub(crate) fn helper(socket: &Path, helper_uid: u32, as_node: bool) -> Helper {
    match access(socket, AccessFlags::W_OK) {
        Err(Errno::EACCES) => return Helper::Forbidden,
        Err(Errno::ENOENT) => return Helper::Unreachable(Words::from(format!("there is no {}", socket.display()))),
        Err(_) | Ok(()) => {}
    }
    let asked = runtime(async {
        // The helper answers one user and hangs up on others: for them, that root takes the connection is all to see.
        let connected = if as_node { None } else { Some(tokio::time::timeout(HELPER_TIME, dial(socket)).await) };
        let listens = match connected {
            None => false,
            Some(Ok(Ok(connection))) => connection.peer_cred().is_ok_and(|peer| peer.uid() == helper_uid),
            Some(Ok(Err(e))) => return Err(Words::from(format!("nothing answers on {}: {e}", socket.display()))),
            Some(Err(_)) => return Err(Words::from(format!("{} takes no connection", socket.display()))),
        };
        let client = HelperClient::connect(socket, helper_uid);
        match client.wait_until_up(HELPER_TIME).await {
            Ok(()) => Ok(match &*client.reach().borrow() {
                Reach::Up { package, .. } => Helper::Welcome(Version::from(&**package)),
                Reach::Down { reason } => Helper::Unreachable(Words::from(&**reason)),
            }),
            Err(_) if listens => Ok(Helper::Listens),
            Err(fault) => Ok(Helper::Unreachable(Words::from(fault.chain()))),
        }
    });
    asked.unwrap_or_else(Helper::Unreachable)
}

fn node(socket: &Path) -> Node {
    let client = Client::new(socket);
    let asked = runtime(async {
        match tokio::time::timeout(NODE_TIME, client.status()).await {
            Ok(Ok(status)) => {
                let unread = status.unreadable.iter().take(UNREAD);
                let unread = unread.map(|u| Words::from(format!("{}: {}", u.section, u.message))).collect();
                let helper = match status.helper {
                    HelperStatus { state: Link::Connected, version, .. } => {
                        Some(Version::from(version.unwrap_or_default()))
                    }
                    HelperStatus { .. } => None,
                };
                Ok(Node::Answers { version: Version::from(status.version), unread, helper })
            }
            Ok(Err(ClientError::NotRunning { source, .. })) if source.kind() == ErrorKind::PermissionDenied => {
                Ok(Node::Forbidden)
            }
            Ok(Err(ClientError::Closed { .. })) => Ok(Node::Forbidden),
            Ok(Err(error)) => Err(Words::from(crate::fault::chain(&error))),
            Err(_) => Err(Words::from(format!("the node gives no answer within {} s", NODE_TIME.as_secs()))),
        }
    });
    asked.unwrap_or_else(Node::Unreachable)
}

/// Files of user data that the node would refuse, by its own rule. Their names are whoever's who can write there: one that is
/// no allocation's is counted and not told.
pub(crate) fn loose_secrets(directory: &Path) -> Option<Secrets> {
    let mut found = Secrets::default();
    for (number, entry) in fs::read_dir(directory).ok()?.enumerate() {
        if number == FILES {
            found.more = true;
            break;
        }
        let name = entry.ok()?.file_name();
        match name.to_str().and_then(|name| AllocationId::parse(name).ok()) {
            Some(allocation) if secret::check(directory, &allocation).is_err() => found.named.push(allocation),
            Some(_) => {}
            None => found.others += 1,
        }
    }
    found.named.sort();
    found.others += found.named.len().saturating_sub(NAMED);
    found.named.truncate(NAMED);
    Some(found)
}

pub(crate) fn certificates(path: &Path) -> Result<usize, Unread> {
    let text = read(path, CERTIFICATES)?;
    Ok(text.lines().filter(|line| line.trim() == "-----BEGIN CERTIFICATE-----").count())
}

pub(crate) fn document(path: &Path) -> Document {
    let text = match read(path, DOCUMENT_BYTES as u64) {
        Ok(text) => text,
        Err(unread) if unread.is_missing() => return Document::Missing,
        Err(unread) => return Document::Unreadable(unread),
    };
    match spec::parse(&path.display().to_string(), &text) {
        Ok(document) => Document::Fine(document.instances.len()),
        Err(error) => {
            let field = if error.field.is_empty() { String::new() } else { format!("{}: ", error.field) };
            let what = Words::from(format!("{field}{}", error.message));
            Document::Wrong { line: error.line, column: error.column, what }
        }
    }
}

/// Reads a regular file of text as the node does, links followed. What is none is not waited for.
fn read(path: &Path, most: u64) -> Result<String, Unread> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    read_opened(File::from(open(path, flags, Mode::empty())?), most)
}

/// The text of what was opened, if it is a regular file of `most` bytes at the most.
pub(super) fn read_opened(file: File, most: u64) -> Result<String, Unread> {
    let errno = |e: std::io::Error| Unread::Errno(e.raw_os_error().unwrap_or(Errno::EIO as i32));
    if !file.metadata().map_err(errno)?.is_file() {
        return Err(Unread::NoFile);
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(errno)?;
    if bytes.len() as u64 > most {
        return Err(Unread::TooLarge);
    }
    String::from_utf8(bytes).map_err(|_| Unread::NoText)
}
