//! `bcd spec`: the document in force, ready to be applied again.
//!
//! Room: `node`. Rendering is pure.
use super::failure::Failure;
use super::status;
use super::text::{print, print_json};
use crate::client::Client;
use crate::spec::NodeSpec;
use crate::status::NodeStatus;
use std::process::ExitCode;

pub(super) async fn run(client: &Client, json: bool) -> Result<ExitCode, Failure> {
    let status = client.status().await?;
    if status.spec.generation == 0 {
        return Err(Failure::new("no document is in force yet").next("`bcd apply FILE` gives the node one"));
    }
    let spec = client.spec().await?;
    if json { print_json(&spec) } else { print(&render(&status, &spec)?) }
}

/// The document as TOML, with its origin as a remark.
pub(super) fn render(status: &NodeStatus, spec: &NodeSpec) -> Result<String, Failure> {
    let text = toml::to_string(spec).map_err(|e| Failure::because("the document cannot be written as TOML", &e))?;
    Ok(format!("# {}\n\n{text}", status::document(status)))
}
