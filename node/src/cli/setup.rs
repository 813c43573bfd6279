//! What commands need before they can begin: the configuration, a document, a runtime, another program.
//!
//! Room: `node`.
use super::Global;
use super::failure::{Failure, USAGE};
use super::log;
use super::text::{Style, print, print_json};
use crate::api::service::Document;
use crate::client::Client;
use crate::daemon::HelperAt;
use crate::spec::Format;
use crate::spec::parse::DOCUMENT_BYTES;
use bcd_protocol::config::{self, Config};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The client of the node that is meant.
pub(super) fn client(global: &Global, api: Option<PathBuf>) -> Result<Client, Failure> {
    match api {
        Some(socket) => Ok(Client::new(&socket)),
        None => Ok(Client::new(global.config()?.node.api.as_path())),
    }
}

impl Global {
    /// The configuration; the defaults when its usual place is empty.
    pub(super) fn config(&self) -> Result<Config, Failure> {
        let path = &self.config;
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound && path == Path::new(config::DEFAULT_PATH) => String::new(),
            Err(e) => {
                let missing = e.kind() == io::ErrorKind::NotFound;
                let failure = match missing {
                    true => Failure::new(format!("there is no configuration {}", path.display())),
                    false => Failure::because(format!("the configuration {} cannot be read", path.display()), &e),
                };
                return Err(
                    failure.next("name another one with --config or BCD_CONFIG, or the node's socket with --api")
                );
            }
        };
        Config::parse(&text).map_err(|e| Failure::new(format!("{}:{e}", path.display())))
    }
}

/// Reads a document, `-` from stdin. Its format is told by its name, stdin's by its first character.
pub(super) fn document(path: &Path) -> Result<Document, Failure> {
    let stdin = path == Path::new("-");
    let shown = if stdin { "stdin".to_owned() } else { path.display().to_string() };
    let cannot = |e: io::Error| Failure::because(format!("the document {shown} cannot be read"), &e);
    let mut text = String::new();
    // One byte more than the most, so that the node's limit is seen here and not by a cut document.
    let limit = (DOCUMENT_BYTES as u64).saturating_add(1);
    if stdin {
        io::stdin().lock().take(limit).read_to_string(&mut text).map_err(cannot)?;
    } else {
        File::open(path).map_err(cannot)?.take(limit).read_to_string(&mut text).map_err(cannot)?;
    }
    if text.len() > DOCUMENT_BYTES {
        return Err(Failure::new(format!("the document {shown} is larger than {DOCUMENT_BYTES} bytes, the most")));
    }
    let json = if stdin {
        text.trim_start().starts_with('{')
    } else {
        path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"))
    };
    let name = path.file_name().filter(|_| !stdin).map_or(shown, |name| name.to_string_lossy().into_owned());
    let name = name.chars().filter(|c| !c.is_control()).take(100).collect();
    Ok(Document { name, format: if json { Format::Json } else { Format::Toml }, text })
}

/// Runs a command's future on a runtime of one thread.
pub(super) fn block_on(command: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::because("the runtime cannot be started", &e))?;
    runtime.block_on(command)
}

/// Runs the node until it is told to end.
pub(super) fn node(global: &Global) -> Result<ExitCode, Failure> {
    log::start()?;
    crate::daemon::run(&global.config, HelperAt::Socket)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs what a standalone start became: a node with its helper, and root's side of its log.
pub(super) fn node_with_helper(global: &Global, helper: Pid, relay: Option<Pid>) -> Result<ExitCode, Failure> {
    log::start()?;
    let ended = crate::daemon::run(&global.config, HelperAt::Stdin(helper));
    let code = ended.map_or_else(|fault| Failure::from(fault).report(), |()| ExitCode::SUCCESS);
    if let Some(relay) = relay {
        crate::standalone::end_log(relay);
    }
    Ok(code)
}

/// Gives up root and ends: what a standalone start tries first.
pub(super) fn rehearse(global: &Global) -> Result<ExitCode, Failure> {
    log::start()?;
    crate::standalone::rehearse(&global.config)?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the helper, gives up root and becomes the node. Returns only when that fails.
pub(super) fn standalone(global: &Global) -> Result<Failure, Failure> {
    log::start()?;
    Ok(crate::standalone::launch(&global.config, beside_this("bcd-helper")).into())
}

/// Tells what this host can run.
pub(super) fn doctor(global: &Global, json: bool) -> Result<ExitCode, Failure> {
    // This very program, whatever lies in its place by now.
    let report = crate::doctor::examine(&global.config, Path::new("/proc/self/exe"));
    if json {
        print_json(&report)?;
    } else {
        print(&super::doctor::render(&report, Style::of_stdout()))?;
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// Becomes the helper: the program beside this one, else the one on PATH. Returns only when that fails.
pub(super) fn exec_helper(global: &Global, arguments: &[OsString]) -> Failure {
    let program = beside_this("bcd-helper").unwrap_or_else(|| PathBuf::from("bcd-helper"));
    let error = Command::new(&program).arg("--config").arg(&global.config).args(arguments).exec();
    let failure = Failure::because(format!("{} cannot be run", program.display()), &error).code(USAGE);
    failure.next("bcd-helper belongs beside bcd, or in a directory of PATH: is the package whole?")
}

fn beside_this(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.parent()?.join(name);
    program.is_file().then_some(program)
}
