//! `bcd plan`, and a plan as text.
//!
//! Room: `node`.
use super::failure::{FAILED, Failure};
use super::text::{bytes, count, print, print_json, printable};
use crate::api::service::{Document, PlanReport};
use crate::client::Client;
use crate::fault::FaultKind;
use crate::plan::{Change, Phase, Step};
use std::process::ExitCode;

pub(super) async fn run(client: &Client, document: &Document, json: bool) -> Result<ExitCode, Failure> {
    let report = client.plan(document).await?;
    if json {
        print_json(&report)?
    } else {
        print(&render(&report))?
    };
    Ok(if is_whole(&report) { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// Whether `apply` of the document, as it stands, would be accepted and bring every instance to what it says, as far as
/// can be told now.
pub(super) fn is_whole(report: &PlanReport) -> bool {
    let plan = &report.plan;
    let held = plan.changes.iter().any(|change| change.refusal.is_some() || change.steps.is_empty());
    let refused = held || plan.refusal.is_some() || report.needs_allow_delete;
    !refused && plan.unreadable.is_empty() && report.unchecked.is_none()
}

/// A plan as text: a line per instance, then a summary.
pub(super) fn render(report: &PlanReport) -> String {
    let plan = &report.plan;
    let mut out = String::new();
    for section in &plan.unreadable {
        out.push_str(&format!("? nothing is decided before {section} can be read: `bcd status` says why it cannot\n"));
    }
    // Each instance says the same; without any, this is the only word.
    if let Some(refusal) = plan.refusal.as_ref().filter(|_| plan.changes.is_empty()) {
        out.push_str(&format!("! the instances are refused: {:?}: {}\n", refusal.kind, printable(&refusal.message)));
    }
    let width = plan.changes.iter().map(|c| c.instance.as_str().len()).max().unwrap_or_default();
    for change in &plan.changes {
        let steps: Vec<String> = change.steps.iter().map(|step| in_words(step, change)).collect();
        let mut what = steps.join(", ");
        if let Some(refusal) = change.refusal.as_ref().filter(|_| waits(change)) {
            what.push_str(&format!("; {}", printable(&refusal.message)));
        } else if let Some(refusal) = &change.refusal {
            let stop = if what.is_empty() { String::new() } else { format!("; {what}") };
            what = format!("{:?}: {}{stop}", refusal.kind, printable(&refusal.message));
        } else if what.is_empty() {
            what = "nothing can be decided: its state is not known".to_owned();
        }
        out.push_str(&format!("{} {:<width$}  {what}\n", sign(change), change.instance.as_str()));
    }
    let unchanged = match plan.unchanged {
        0 => String::new(),
        number => format!("{} unchanged", count(number, "instance")),
    };
    let number = |what: fn(&&Change) -> bool| plan.changes.iter().filter(what).count();
    let changed = match number(|c| !c.steps.is_empty()) {
        0 if !plan.unreadable.is_empty() => "nothing can be decided yet".to_owned(),
        0 if plan.changes.is_empty() && plan.refusal.is_none() => "nothing to do".to_owned(),
        0 => String::new(),
        number => format!("{} to change", count(number, "instance")),
    };
    let waiting = match number(|c| waits(c)) {
        0 => String::new(),
        1 => "1 of them waits".to_owned(),
        number => format!("{number} of them wait"),
    };
    let refused = match number(|c| !waits(c) && (c.refusal.is_some() || c.steps.is_empty())) {
        0 if plan.refusal.is_some() => "all refused".to_owned(),
        0 => String::new(),
        number => format!("{} refused", count(number, "instance")),
    };
    let parts: Vec<String> =
        [changed, waiting, refused, unchanged].into_iter().filter(|part| !part.is_empty()).collect();
    out.push_str(&parts.join(", "));
    out.push('\n');
    if let Some(why) = &report.unchecked {
        out.push_str(&format!("not checked against what the helper allows: {}\n", printable(why)));
    }
    if report.needs_allow_delete {
        let running = count(usize::try_from(report.deletes_running).unwrap_or(usize::MAX), "running instance");
        out.push_str(&format!("it deletes {running}, more than half of them: apply needs --allow-delete\n"));
    }
    out
}

fn sign(change: &Change) -> char {
    match change.phase {
        Phase::Delete => '-',
        Phase::Held => '!',
        Phase::Stop | Phase::Change if change.refusal.is_some() && !waits(change) => '!',
        Phase::Stop => '~',
        Phase::Change if change.steps.contains(&Step::CreateDisk) => '+',
        Phase::Change => '~',
    }
}

/// Whether an instance is begun now and finished once another has given back what it needs: no refusal, though the plan
/// says in the same place why it is not whole.
fn waits(change: &Change) -> bool {
    let later = change.refusal.as_ref().is_some_and(|refusal| refusal.kind == FaultKind::Unavailable);
    later && change.phase == Phase::Change && !change.steps.is_empty()
}

/// A step of a change, which tells a new definition from one for a guest that goes on as it is.
fn in_words(one: &Step, change: &Change) -> String {
    let begins = |step: &Step| matches!(step, Step::CreateDisk | Step::Start { .. });
    if *one == Step::Define && !change.steps.iter().any(begins) {
        "change the definition (counts from its next start)".to_owned()
    } else {
        step(one)
    }
}

/// One step in a few words.
fn step(step: &Step) -> String {
    match step {
        Step::FetchImage => "fetch the image".to_owned(),
        Step::CreateDisk => "create the disk".to_owned(),
        Step::WriteSeed => "write the seed".to_owned(),
        Step::Define => "define".to_owned(),
        Step::Share => "share the files".to_owned(),
        Step::GrowFile { disk_bytes } => format!("grow the disk to {}", bytes(disk_bytes.get())),
        Step::GrowLive { disk_bytes } => format!("grow the disk to {} while it runs", bytes(disk_bytes.get())),
        Step::Start { paused: false } => "start".to_owned(),
        Step::Start { paused: true } => "start paused".to_owned(),
        Step::Suspend => "pause".to_owned(),
        Step::Resume => "resume".to_owned(),
        Step::PowerOff => "power off".to_owned(),
        Step::Destroy => "end".to_owned(),
        Step::Undefine => "undefine".to_owned(),
        Step::RemoveFiles => "remove the files".to_owned(),
    }
}
