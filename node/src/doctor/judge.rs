//! What the facts mean and what to do about them.
//!
//! Room: `node`. Pure. Each check is one function; a check whose ground is missing (no configuration, no node user)
//! says so once, in the check of that ground. Every remedy is a command or a sentence that says exactly what to do, and
//! what it asks for is what the daemons themselves ask for.
use super::facts::{Configuration, Facts, Unread};
use super::{Finding, Level};
use nix::errno::Errno;
use remedy::{at, command, text};
use std::path::Path;

mod access;
mod daemons;
mod firewall;
mod host;
mod network;
mod places;
mod remedy;

/// Judges everything.
#[must_use]
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = configuration(facts);
    let configured = facts.configured.as_ref();
    findings.extend(configured.map(places::node_user));
    findings.extend(host::kvm(&facts.host, configured));
    findings.push(host::iommu(&facts.host));
    findings.extend(configured.and_then(|c| host::runtimes(&facts.host, c)));
    let systemd = facts.host.systemd.is_some();
    findings.extend(configured.into_iter().flat_map(|c| daemons::libvirt(c, systemd)));
    findings.extend(configured.map(daemons::qemu_directory));
    findings.extend(host::cloud_hypervisor(&facts.host));
    findings.push(host::seed_tool(&facts.host));
    findings.push(host::systemd(&facts.host));
    findings.push(host::cgroups(&facts.host));
    findings.push(host::sandbox(&facts.host, configured));
    if let Some(configured) = configured {
        findings.extend(places::sockets(configured));
        findings.extend(places::state_dir(configured));
        findings.extend(daemons::helper(configured, systemd));
        findings.extend(daemons::node(configured, systemd));
        findings.extend(network::bridges(configured));
        findings.extend(firewall::firewall(configured));
        findings.extend(places::data_dir(configured));
        findings.extend(places::secrets(configured));
        findings.extend(access::unasked(configured));
        findings.extend(access::barred(configured));
        findings.extend(access::images(configured));
        findings.extend(access::document(configured));
    }
    findings.extend(host::memory(&facts.host));
    findings.push(host::clock(&facts.host));
    findings
}

fn ok(check: &str, found: impl Into<String>) -> Finding {
    Finding { level: Level::Ok, check: check.to_owned(), found: found.into(), remedy: None }
}

/// Something that not every host needs is not there: no fault, but how to get it is said.
fn could(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { remedy: Some(remedy.into()), ..ok(check, found) }
}

fn warn(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { level: Level::Warn, ..could(check, found, remedy) }
}

fn fail(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { level: Level::Fail, ..could(check, found, remedy) }
}

/// Said once for everything that cannot be judged without a configuration.
const UNJUDGED: &str = "what it would name is not judged";

fn configuration(facts: &Facts) -> Vec<Finding> {
    let check = "configuration";
    match &facts.configuration {
        Configuration::Missing(path) => vec![fail(
            check,
            format!(
                "there is no {}: neither daemon starts, and {UNJUDGED}; the package has one, packaging/bcd.toml of the sources \
                 is the same, and --config names another",
                path.display()
            ),
            "apt-get install --reinstall -o Dpkg::Options::=--force-confmiss bcd",
        )],
        Configuration::Unreadable(way, why) => {
            let path = way.last().map(|part| part.path.as_path()).unwrap_or(Path::new("/"));
            let remedy = match why {
                Unread::Errno(errno) if *errno == Errno::EACCES as i32 => {
                    at(way, command(&["chmod", "0644", &text(path)]))
                }
                Unread::Errno(_) => {
                    "mend the file system that it lies on, or put the configuration elsewhere".to_owned()
                }
                Unread::NoFile | Unread::TooLarge | Unread::NoText => {
                    "put the configuration there, a file of text".to_owned()
                }
            };
            let found = format!(
                "{} cannot be read: {why}; {UNJUDGED}. It holds no secret: 0644 is its mode, 0755 that of the directories above",
                path.display()
            );
            vec![fail(check, found, remedy)]
        }
        Configuration::Wrong(why) => {
            vec![fail(check, format!("{why}; {UNJUDGED}"), "correct that key; neither daemon starts before")]
        }
        Configuration::Open(way) => {
            let mut breaches: Vec<Finding> = places::breaches(check, way).collect();
            if let Some(last) = breaches.last_mut() {
                last.found.push_str(&format!("; {UNJUDGED}"));
            }
            breaches
        }
        Configuration::Fine(way) => {
            let breaches: Vec<Finding> = places::breaches(check, way).collect();
            match way.last() {
                Some(file) if breaches.is_empty() => {
                    vec![ok(check, format!("{} can be used, and only root may change it", file.path.display()))]
                }
                Some(_) | None => breaches,
            }
        }
    }
}
