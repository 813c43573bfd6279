//! Asks libvirt, the helper and the node, as whoever they are to answer.
//!
//! Room: `node`. What may hang has a deadline. Root may do what the node's user may not, so a doctor that runs as root
//! asks through a child of that user.
use super::super::facts::{Helper, Libvirt, Node, Probe};
use super::{output_of, within};
use crate::client::{Client, ClientError};
use crate::helper::{Helper as HelperClient, Reach};
use crate::status::{HelperStatus, Link};
use bcd_protocol::config::{Config, LibvirtUri};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, User, access, geteuid};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Longest time libvirt's daemon has to answer.
const LIBVIRT_TIME: Duration = Duration::from_secs(10);
/// Longest time the helper has to answer.
const HELPER_TIME: Duration = Duration::from_secs(3);
/// Longest time the node has to answer.
const NODE_TIME: Duration = Duration::from_secs(5);
/// Longest time a child that asks as the node's user has.
const CHILD_TIME: Duration = Duration::from_secs(20);

/// What this process finds.
pub(crate) fn probe(config_file: &Path, config: &Config) -> Probe {
    Probe { helper: helper(config), libvirt: libvirt(&config.libvirt.uri), barred: barred(config_file, config) }
}

/// What the node's user finds; `None` when that cannot be asked.
pub(super) fn probe_as(config_file: &Path, text: &str, (uid, gid): (u32, u32)) -> Option<Probe> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    let config_file = std::path::absolute(config_file).ok()?;
    command.arg("--config").arg(config_file).args(["doctor", "--probe"]).uid(uid).gid(gid).current_dir("/");
    // The text itself: whether that user can read the file is one of the questions.
    let says = output_of(&mut command, text, CHILD_TIME).ok()?;
    serde_json::from_str(&says).ok()
}

/// What the node has to get at and this process cannot.
fn barred(config_file: &Path, config: &Config) -> Vec<(PathBuf, String, String)> {
    let (read, search, write) = (AccessFlags::R_OK, AccessFlags::X_OK, AccessFlags::W_OK);
    let mut wanted = vec![
        (config_file.to_owned(), "read the configuration", read),
        (config.data_dir.as_path().to_owned(), "keep instances", read | write | search),
        (config.node.secrets.as_path().to_owned(), "read user data", read | search),
    ];
    if let Some(directory) = config.node.api.as_path().parent() {
        wanted.push((directory.to_owned(), "make its API socket", write | search));
    }
    if let Some(file) = &config.node.images.ca_file {
        wanted.push((file.as_path().to_owned(), "trust image servers", read));
    }
    if let Some(file) = &config.node.spec {
        wanted.push((file.as_path().to_owned(), "read the document", read));
    }
    let refused = wanted.into_iter().filter_map(|(path, what, flags)| match access(&path, flags) {
        // What is not there is another check's finding.
        Ok(()) | Err(Errno::ENOENT) => None,
        Err(errno) => Some((path, what.to_owned(), errno.desc().to_owned())),
    });
    refused.collect()
}

fn libvirt(uri: &LibvirtUri) -> Result<Libvirt, String> {
    let uri = uri.as_str().to_owned();
    within(LIBVIRT_TIME, move || {
        virt::error::clear_error_callback();
        let connection = virt::connect::Connect::open_read_only(Some(&uri)).map_err(|e| e.message().to_owned())?;
        let version = connection.lib_version().map_err(|e| e.message().to_owned())?;
        Ok(Libvirt { version, qemu: connection.hyp_version().ok().filter(|v| *v > 0) })
    })
    .unwrap_or_else(|| Err(format!("it does not answer within {} s", LIBVIRT_TIME.as_secs())))
}

fn runtime<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| e.to_string())?.block_on(work)
}

fn helper(config: &Config) -> Helper {
    let socket = config.helper.socket.as_path();
    let user = User::from_name(config.helper.node_user.as_str()).ok().flatten();
    let answers_another = user.is_some_and(|user| user.uid != geteuid());
    if let Err(Errno::EACCES) = access(socket, AccessFlags::W_OK) {
        return Helper::Forbidden;
    }
    let asked = runtime(async {
        // The helper answers one user and hangs up on others: for them, that it takes the connection is all to see.
        let connected = tokio::time::timeout(HELPER_TIME, tokio_seqpacket::UnixSeqpacket::connect(socket)).await;
        match connected {
            Ok(Ok(_)) => {}
            Ok(Err(e)) => return Err(format!("nothing answers on {}: {e}", socket.display())),
            Err(_) => return Err(format!("{} takes no connection", socket.display())),
        }
        let client = HelperClient::connect(socket, 0);
        match client.wait_until_up(HELPER_TIME).await {
            Ok(()) => Ok(match &*client.reach().borrow() {
                Reach::Up { package, .. } => Helper::Welcome(package.to_string()),
                Reach::Down { reason } => Helper::Unreachable(reason.to_string()),
            }),
            Err(_) if answers_another => Ok(Helper::Listens),
            Err(fault) => Err(fault.chain()),
        }
    });
    asked.unwrap_or_else(Helper::Unreachable)
}

/// A standalone node's helper has no socket, but the node says that it answers.
pub(super) fn with_helper_of_node(probe: Probe, api: &Path) -> Probe {
    let Helper::Unreachable(_) = &probe.helper else { return probe };
    let client = Client::new(api);
    let status = runtime(async {
        let asked = tokio::time::timeout(NODE_TIME, client.status()).await.map_err(|e| e.to_string())?;
        asked.map_err(|e| e.to_string())
    });
    match status.map(|status| status.helper) {
        Ok(HelperStatus { state: Link::Connected, version, .. }) => {
            Probe { helper: Helper::OfNode(version.unwrap_or_default()), ..probe }
        }
        Ok(_) | Err(_) => probe,
    }
}

pub(super) fn node(socket: &Path) -> Node {
    let client = Client::new(socket);
    let asked = runtime(async {
        match tokio::time::timeout(NODE_TIME, client.status()).await {
            Ok(Ok(status)) => {
                let unread = status.unreadable.iter().map(|u| format!("{}: {}", u.section, u.message)).collect();
                Ok(Node::Answers(status.version, unread))
            }
            Ok(Err(ClientError::NotRunning { source, .. })) if source.kind() == ErrorKind::PermissionDenied => {
                Ok(Node::Forbidden)
            }
            Ok(Err(ClientError::Closed { .. })) => Ok(Node::Forbidden),
            Ok(Err(error)) => Err(crate::fault::chain(&error)),
            Err(_) => Err(format!("the node gives no answer within {} s", NODE_TIME.as_secs())),
        }
    });
    asked.unwrap_or_else(Node::Unreachable)
}
