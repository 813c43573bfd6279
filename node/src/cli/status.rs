//! `bcd status`.
//!
//! Room: `node`. Rendering is pure: a status and the time in, text out.
use super::failure::{Failure, NO_NODE};
use super::text::{Style, ago, bytes, count, moment, print, print_json, print_json_line, printable, table};
use crate::client::Client;
use crate::spec::DesiredState;
use crate::status::{
    Activity, InstanceState, InstanceStatus, LastError, Link, NodeStatus, ProgressUnit, SpecSource, StopReason,
    UnixMillis,
};
use bcd_protocol::id::InstanceId;
use comfy_table::{Cell, CellAlignment, Color};
use std::process::ExitCode;

/// Clears a terminal and goes to its corner.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Foreign domains that are named without being asked for.
const NAMED: usize = 5;

/// How the status is to be shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    /// As JSON.
    pub(super) json: bool,
    /// Again whenever it changes.
    pub(super) watch: bool,
    /// With each foreign domain.
    pub(super) all: bool,
}

pub(super) async fn run(client: &Client, id: Option<&InstanceId>, how: How) -> Result<ExitCode, Failure> {
    let style = Style::of_stdout();
    let How { json, watch, all: every } = how;
    if watch {
        return follow(client, id, how, style).await;
    }
    match id {
        Some(id) => {
            let instance = client.instance(id).await?;
            if json { print_json(&instance) } else { print(&one(&instance, UnixMillis::now())) }
        }
        None => {
            let status = client.status().await?;
            if json { print_json(&status) } else { print(&all(&status, UnixMillis::now(), style, every)) }
        }
    }
}

async fn follow(client: &Client, id: Option<&InstanceId>, how: How, style: Style) -> Result<ExitCode, Failure> {
    let How { json, all: every, .. } = how;
    let mut statuses = client.watch().await?;
    let mut last = None;
    while let Some(status) = statuses.next().await? {
        let found = id.map(|id| status.instances.iter().find(|i| i.id == *id).ok_or(id));
        match (json, found) {
            (true, None) => drop(print_json_line(&status)?),
            (true, Some(Ok(instance))) if last.as_ref() != Some(instance) => {
                last = Some(instance.clone());
                print_json_line(instance)?;
            }
            (true, Some(Ok(_))) => {}
            (_, Some(Err(id))) => return Err(Failure::new(format!("this node has no instance {id} (any more)"))),
            (false, found) => {
                let now = UnixMillis::now();
                let text = match found {
                    Some(Ok(instance)) => one(instance, now),
                    Some(Err(_)) | None => all(&status, now, style, every),
                };
                let before = match style {
                    Style::Terminal => CLEAR,
                    Style::Plain => "",
                };
                let after = match style {
                    Style::Terminal => "",
                    Style::Plain => "\n",
                };
                print(&format!("{before}{text}{after}"))?;
            }
        }
    }
    Err(Failure::new("the node ended").code(NO_NODE))
}

/// The whole status; `every` shows each foreign domain.
pub(super) fn all(status: &NodeStatus, now: UnixMillis, style: Style, every: bool) -> String {
    let mut out = format!("node     {}, {}\n", printable(&status.version), document(status));
    out.push_str(&format!(
        "helper   {}\n",
        link(status.helper.state, status.helper.version.as_deref(), status.helper.message.as_deref())
    ));
    if status.runtimes.is_empty() {
        out.push_str("runtime  none: `bcd doctor` says what is missing\n");
    }
    for runtime in &status.runtimes {
        let state = link(runtime.state, runtime.version.as_deref(), runtime.message.as_deref());
        out.push_str(&format!("runtime  {} {state}\n", printable(runtime.driver.as_str())));
    }
    for unreadable in &status.unreadable {
        let (since, message) = (ago(unreadable.since.0, now.0), printable(&unreadable.message));
        out.push_str(&format!("unread   {}, for {since}: {message}\n", unreadable.section));
    }
    if let Some(refused) = &status.spec.refused {
        out.push_str(&format!("refused  {}\n", error(refused, now)));
    }
    out.push('\n');
    if status.instances.is_empty() {
        out.push_str("no instances\n");
    } else {
        let header = ["INSTANCE", "STATE", "VCPUS", "MEMORY", "DISK", "ADDRESSES", "NOTE"];
        let rows = status.instances.iter().map(|instance| row(instance, now)).collect();
        out.push_str(&table(style, &header, rows));
    }
    if !status.foreign.is_empty() {
        out.push_str(&format!("\n{} not bcd's, left alone", count(status.foreign.len(), "domain")));
    }
    if !every && !status.foreign.is_empty() {
        let names: Vec<String> = status.foreign.iter().take(NAMED).map(|domain| printable(&domain.name)).collect();
        let more = match status.foreign.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        out.push_str(&format!(": {}{more} (--all shows them)\n", names.join(", ")));
    }
    if every && !status.foreign.is_empty() {
        out.push('\n');
        let header = ["DOMAIN", "STATE", "VCPUS", "MEMORY", "UUID"];
        let rows = status.foreign.iter().map(|domain| {
            let mut row = vec![Cell::new(printable(&domain.name)), state_cell(domain.state)];
            row.extend(resources(domain.vcpus, domain.memory_bytes));
            row.push(Cell::new(domain.uuid));
            row
        });
        out.push_str(&table(style, &header, rows.collect()));
    }
    out
}

/// Which document is in force, and where it came from.
pub(super) fn document(status: &NodeStatus) -> String {
    let spec = &status.spec;
    if spec.generation == 0 {
        return "no document yet: `bcd apply FILE` gives it one".to_owned();
    }
    let source = match &spec.source {
        Some(SpecSource::File { path }) => format!(" from {}", printable(path)),
        Some(SpecSource::Api) => " from bcd apply".to_owned(),
        Some(SpecSource::Kept) => " kept from before the start".to_owned(),
        None => String::new(),
    };
    let accepted = spec.accepted_at.map(|at| format!(", accepted {}", moment(at.0))).unwrap_or_default();
    format!("document {}{source}{accepted}", spec.generation)
}

fn link(state: Link, version: Option<&str>, message: Option<&str>) -> String {
    let state = match state {
        Link::Connected => "connected",
        Link::Unreachable => "unreachable",
    };
    let version = version.map(|v| format!(", version {}", printable(v))).unwrap_or_default();
    let message = message.map(|m| format!(": {}", printable(m))).unwrap_or_default();
    format!("{state}{version}{message}")
}

fn row(instance: &InstanceStatus, now: UnixMillis) -> Vec<Cell> {
    let mut row = vec![Cell::new(&instance.id), state_cell(instance.state)];
    row.extend(resources(instance.vcpus, instance.memory_bytes));
    row.push(number(instance.disk_bytes.map(bytes)));
    row.push(Cell::new(addresses(instance)));
    row.push(Cell::new(note(instance, now)));
    row
}

fn addresses(instance: &InstanceStatus) -> String {
    if instance.addresses.is_empty() {
        return "-".to_owned();
    }
    instance.addresses.iter().map(|net| net.addr().to_string()).collect::<Vec<_>>().join(" ")
}

fn resources(vcpus: Option<u32>, memory: Option<u64>) -> [Cell; 2] {
    [number(vcpus.map(|n| n.to_string())), number(memory.map(bytes))]
}

fn number(text: Option<String>) -> Cell {
    Cell::new(text.unwrap_or_else(|| "-".to_owned())).set_alignment(CellAlignment::Right)
}

fn state_cell(state: InstanceState) -> Cell {
    let cell = Cell::new(state.as_str());
    match state {
        InstanceState::Running => cell.fg(Color::Green),
        InstanceState::Paused | InstanceState::ShuttingDown | InstanceState::Unknown => cell.fg(Color::Yellow),
        InstanceState::Crashed => cell.fg(Color::Red),
        InstanceState::Absent | InstanceState::Stopped => cell,
    }
}

/// What is being done, what went wrong, and where it differs from what is wanted.
fn note(instance: &InstanceStatus, now: UnixMillis) -> String {
    let mut parts = Vec::new();
    if let Some(doing) = &instance.doing {
        parts.push(activity(doing, now));
    }
    if let Some(last) = &instance.last_error {
        parts.push(error(last, now));
    }
    if parts.is_empty() {
        match instance.desired {
            None => parts.push("to be deleted".to_owned()),
            Some(desired) if !is(instance.state, desired) => parts.push(format!("wanted {}", wanted(desired))),
            Some(_) if instance.runs_with.is_some() => parts.push("restart pending".to_owned()),
            Some(_) => {}
        }
        if let Some(reason) = instance.stop_reason.filter(|_| instance.state == InstanceState::Stopped) {
            parts.push(stopped(reason).to_owned());
        }
    }
    parts.join("; ")
}

/// Whether a state is the wanted one.
pub(super) fn is(state: InstanceState, desired: DesiredState) -> bool {
    match desired {
        DesiredState::Running => state == InstanceState::Running,
        DesiredState::Stopped => state == InstanceState::Stopped,
        DesiredState::Paused => state == InstanceState::Paused,
    }
}

fn wanted(desired: DesiredState) -> &'static str {
    match desired {
        DesiredState::Running => "running",
        DesiredState::Stopped => "stopped",
        DesiredState::Paused => "paused",
    }
}

fn stopped(reason: StopReason) -> &'static str {
    match reason {
        StopReason::PoweredOff => "powered off",
        StopReason::Destroyed => "ended",
        StopReason::Crashed => "crashed or killed",
        StopReason::FailedToStart => "failed to start",
        StopReason::Saved => "saved to a file by somebody else",
    }
}

/// `fetching the image 45 % of 1.5 GiB (12 s)`.
pub(super) fn activity(doing: &Activity, now: UnixMillis) -> String {
    let progress = match doing.progress {
        None => String::new(),
        Some(progress) => {
            let show = |value: u64| match progress.unit {
                ProgressUnit::Bytes => bytes(value),
                ProgressUnit::Seconds => format!("{value} s"),
            };
            match progress.total {
                Some(total) if total > 0 => {
                    format!(" {} % of {}", u128::from(progress.done) * 100 / u128::from(total), show(total))
                }
                Some(_) | None => format!(" {}", show(progress.done)),
            }
        }
    };
    format!("{}{progress} ({})", printable(&doing.what), ago(doing.since.0, now.0))
}

/// `ImageRejected: … (3 times, last 12 s ago)`.
pub(super) fn error(error: &LastError, now: UnixMillis) -> String {
    let times = if error.times > 1 { format!("{} times, last ", error.times) } else { String::new() };
    format!("{:?}: {} ({times}{} ago)", error.kind, printable(&error.message), ago(error.at.0, now.0))
}

/// One instance, a line per value.
pub(super) fn one(instance: &InstanceStatus, now: UnixMillis) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| out.push_str(&format!("{name:<12}{value}\n"));
    line("instance", instance.id.to_string());
    line("state", instance.state.as_str().to_owned());
    if let Some(reason) = instance.stop_reason {
        line("because", stopped(reason).to_owned());
    }
    line("wanted", instance.desired.map_or("deleted", wanted).to_owned());
    line("runtime", printable(instance.runtime.as_str()));
    if let Some(allocation) = &instance.allocation {
        line("allocation", allocation.to_string());
    }
    if let Some(runs) = &instance.runs_with {
        let vcpus = runs.vcpus.map(|vcpus| count(usize::try_from(vcpus).unwrap_or(usize::MAX), "vCPU"));
        let parts: Vec<String> = vcpus.into_iter().chain(runs.memory_bytes.map(bytes)).collect();
        line("restart", format!("pending: it runs with {} until its next start", parts.join(" and ")));
    }
    if let Some(vcpus) = instance.vcpus {
        line("vcpus", vcpus.to_string());
    }
    if let Some(memory) = instance.memory_bytes {
        line("memory", bytes(memory));
    }
    if let Some(disk) = instance.disk_bytes {
        line("disk", bytes(disk));
    }
    if let Some(image) = &instance.image_sha256 {
        line("image", format!("sha256 {image}"));
    }
    for nic in &instance.nics {
        let addresses: Vec<String> = nic.addresses.iter().map(ToString::to_string).collect();
        line(
            "nic",
            format!("{} on {}, {} {}", printable(&nic.tap), nic.bridge, nic.mac, addresses.join(" "))
                .trim_end()
                .to_owned(),
        );
    }
    for gpu in &instance.gpus {
        line("gpu", printable(&format!("{gpu}")));
    }
    for volume in &instance.volumes {
        let access = if volume.read_only { "read-only" } else { "read-write" };
        line("volume", printable(&format!("{} as {}, {access}", volume.id, volume.serial)));
    }
    if let Some(uuid) = &instance.uuid {
        line("uuid", uuid.to_string());
    }
    if let Some(uid) = &instance.uid {
        line("uid", uid.to_string());
    }
    if let Some(doing) = &instance.doing {
        line("doing", activity(doing, now));
    }
    if let Some(last) = &instance.last_error {
        line("error", error(last, now));
        if let Some(at) = last.retry_at {
            line("next try", moment(at.0));
        }
    }
    out
}
