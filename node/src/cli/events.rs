//! `bcd events`.
//!
//! Room: `node`.
use super::failure::Failure;
use super::text::{moment, print, print_json_line, printable};
use crate::api::events::Event;
use crate::client::Client;
use std::process::ExitCode;

pub(super) async fn run(client: &Client, follow: bool, after: Option<u64>, json: bool) -> Result<ExitCode, Failure> {
    let mut events = client.events(Some(after.unwrap_or(0)), follow).await?;
    while let Some(event) = events.next().await? {
        if json {
            print_json_line(&event)?;
        } else {
            print(&line(&event))?;
        }
    }
    if follow {
        return Err(Failure::new("the node ended the events").code(super::failure::NO_NODE));
    }
    Ok(ExitCode::SUCCESS)
}

/// One event as one line.
pub(super) fn line(event: &Event) -> String {
    let instance = event.instance.as_deref().map(|id| format!("{}: ", printable(id))).unwrap_or_default();
    let (at, kind, message) = (moment(event.at_ms), event.kind.as_str(), printable(&event.message));
    format!("{:>6}  {at}  {kind:<16}  {instance}{message}\n", event.seq)
}
