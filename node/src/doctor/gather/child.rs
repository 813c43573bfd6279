//! The process that asks as the node's user, and its other end.
//!
//! Room: `node`. Everything that belongs to the node's user, or that it could have put something in the place of, is opened
//! and connected to by this process alone, never by root.
//!
//! ```text
//! root: doctor ── pipe: configuration ─▶ root: bcd doctor --probe ── leaves terminal, descriptors, root ─▶ node's user
//!       judges ◀─ pipe: numbers, bounded words ──────────────────────── asks, in the node's own sandbox ──┘
//! ```
//!
//! Invariants: it has no terminal, no descriptor but its pipes and nothing of root before it looks at the first thing of the
//! node's; it gives up root by itself and not by a program that is executed for it, so no process of the node's user may
//! ever trace it or take its descriptors; it types into no terminal (the sandbox's filter); it is not waited for longer than
//! [`TIME`]; what it says is believed as far as the node is, which is to say quoted.
use super::super::facts::{Probe, Unasked, Words};
use super::{ask, output_of};
use crate::fault::{Fault, FaultKind};
use crate::node_user::{self, Found};
use crate::{sandbox, standalone};
use bcd_protocol::config::Config;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{User, close, geteuid, getpid, getsid, setsid};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Read, stdin, stdout};
use std::os::fd::{AsFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Longest time that it has.
const TIME: Duration = Duration::from_secs(20);
/// Most that is passed to it, bytes: a configuration spelt out as JSON.
const QUESTION: u64 = 4 << 20;
/// Most that it may answer, bytes.
const ANSWER: u64 = 64 << 10;

/// What it is to ask.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    /// Where the configuration lies.
    file: PathBuf,
    /// The configuration itself: whether the node's user can read the file is one of the questions.
    text: String,
    /// The user to become, by name, uid and group.
    user: (String, u32, u32),
}

/// What a process finds that asks as `user`; `program` is bcd itself.
pub(super) fn probe_as(program: &Path, file: &Path, text: &str, user: &User) -> Result<Probe, Unasked> {
    let silent = |why: String| Unasked::Silent(Words::from(why));
    let file = std::path::absolute(file).map_err(|e| silent(e.to_string()))?;
    let user = (user.name.clone(), user.uid.as_raw(), user.gid.as_raw());
    let question = Question { file, text: text.to_owned(), user };
    let question = serde_json::to_string(&question).map_err(|e| silent(e.to_string()))?;
    let mut command = Command::new(program);
    // libvirt's client reads settings of its user otherwise.
    command
        .env_clear()
        .envs(["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"].map(|n| (n, "/nonexistent")));
    command.arg0("bcd").args(["doctor", "--probe"]).current_dir("/");
    let says = output_of(&mut command, &question, TIME, ANSWER).map_err(Unasked::Silent)?;
    serde_json::from_str(&says).map_err(|_| silent("it answers something else than was asked".to_owned()))
}

/// The process itself: what it finds, as one line of JSON.
///
/// # Errors
/// `Denied` when it was started by somebody else than a doctor that is root; `Internal` when it cannot give up everything
/// first: then it asks nothing.
pub(crate) fn answer() -> Result<String, Fault> {
    let internal = |what: &'static str| move |error: Errno| Fault::because(FaultKind::Internal, what, error);
    if !(geteuid().is_root() && is_pipe(stdin()) && is_pipe(stdout())) {
        let sentence = "--probe is what bcd doctor asks of a process of its own: run bcd doctor, as root";
        return Err(Fault::new(FaultKind::Denied, sentence));
    }
    lead_a_session().map_err(internal("the terminal cannot be left"))?;
    close_all_but_pipes()?;
    let mut text = String::new();
    stdin()
        .lock()
        .take(QUESTION)
        .read_to_string(&mut text)
        .map_err(|e| Fault::because(FaultKind::Internal, "what to ask cannot be read", e))?;
    let question: Question = serde_json::from_str(&text)
        .map_err(|e| Fault::because(FaultKind::Internal, "what to ask is not understood", e))?;
    let mut config = Config::parse(&question.text)
        .map_err(|e| Fault::because(FaultKind::InvalidSpec, "the configuration cannot be used", e))?;
    let (name, uid, gid) = question.user;
    let found = node_user::look(&name)
        .map_err(|e| Fault::because(FaultKind::Internal, "the node's user cannot be looked up", e))?;
    let found = found.filter(|found| (found.candidate.uid, found.candidate.gid) == (uid, gid));
    let Found { user, candidate } =
        found.ok_or_else(|| Fault::new(FaultKind::Denied, "the node's user has changed meanwhile"))?;
    candidate.judge().map_err(|why| Fault::because(FaultKind::Denied, "the node's user is none to become", why))?;
    standalone::give_up_root(&user)?;
    stay_untraced().map_err(internal("tracing cannot be ruled out"))?;
    // What the kernel lacks is another finding.
    config.helper.require_sandbox = false;
    sandbox::enter(&config)?;
    let probe = ask::probe(&question.file, &config, true)
        .map_err(|_| Fault::new(FaultKind::Internal, "root was not given up"))?;
    serde_json::to_string(&probe).map_err(|e| Fault::because(FaultKind::Internal, "the answer cannot be written", e))
}

fn is_pipe(stream: impl AsFd) -> bool {
    fstat(stream).is_ok_and(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFIFO)
}

/// Becomes the head of a session without a terminal: from then on nothing is typed there and nothing read from there.
fn lead_a_session() -> Result<(), Errno> {
    match setsid() {
        // It is one already.
        Err(Errno::EPERM) if getsid(None)? == getpid() => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// Closes what root's shell, or whatever started the doctor, left open: such as a log, or a socket.
fn close_all_but_pipes() -> Result<(), Fault> {
    let fault = |e| Fault::because(FaultKind::Internal, "the open descriptors cannot be listed", e);
    let mut open = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").map_err(fault)? {
        open.extend(entry.map_err(fault)?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        match close(descriptor) {
            // The list itself was one.
            Ok(()) | Err(Errno::EBADF) => {}
            Err(errno) => return Err(fault(errno.into())),
        }
    }
    Ok(())
}

/// The kernel rules tracing out when a process changes its uid, until it executes a program, which this one never does.
fn stay_untraced() -> Result<(), Errno> {
    prctl::set_dumpable(false)?;
    if prctl::get_dumpable()? { Err(Errno::EPERM) } else { Ok(()) }
}
