//! The watched file, with a real directory and a converger on a host in memory; and what the service answers of such a one.
use super::{service, watch};
use crate::api::service::{ApplyOptions, Document, NodeService, PlanReport};
use crate::console::{ConsoleOpener, Consoles};
use crate::converge::tests::world::{PATIENCE, World};
use crate::fault::{Fault, FaultKind};
use crate::helper::Helper;
use crate::plan::Phase;
use crate::spec::Format;
use crate::status::{NodeStatus, SpecSource};
use bcd_protocol::id::InstanceId;
use futures_util::future::BoxFuture;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Longer than it takes to see a change and put it in force, shorter than the look now and then.
const MOMENT: Duration = Duration::from_millis(1500);

struct Watched {
    world: World,
    file: PathBuf,
    task: JoinHandle<()>,
}

impl Watched {
    async fn new() -> Self {
        let world = World::new().await;
        let directory = world.dir.path().join("etc");
        fs::create_dir(&directory).expect("a directory");
        let file = directory.join("node.toml");
        let task = follow(&world, &file, false);
        Self { world, file, task }
    }

    /// Replaces the file as careful writers do.
    fn put(&self, text: &str) {
        let part = self.file.with_extension("part");
        fs::write(&part, text).expect("written");
        fs::rename(&part, &self.file).expect("renamed");
    }

    fn generation(&self) -> u64 {
        self.world.converger.status().borrow().spec.generation
    }

    async fn until(&self, what: &str, want: impl Fn(&NodeStatus) -> bool) {
        self.world.until(what, want).await;
    }

    async fn restart(&mut self) {
        self.task.abort();
        self.world.restart_node().await;
        self.task = follow(&self.world, &self.file, true);
    }
}

fn follow(world: &World, file: &std::path::Path, kept: bool) -> JoinHandle<()> {
    let memory = world.layout.node().join("file.sha256");
    tokio::spawn(watch::follow(file.to_owned(), world.converger.clone(), memory, kept))
}

fn toml(ids: &[&str], world: &World) -> String {
    ids.iter()
        .map(|id| {
            format!(
                "[[instances]]\nid = \"{id}\"\nallocation = \"a1\"\nruntime = \"libvirt-kvm\"\nhostname = \"h\"\nvcpus = 1\n\
                 memory_bytes = 67108864\ndisk_bytes = 8388608\n\
                 image = {{ url = \"https://localhost:9/i\", sha256 = \"{}\", format = \"raw\" }}\n",
                world.sha256
            )
        })
        .collect()
}

#[tokio::test]
async fn a_file_that_comes_later_and_changes_by_rename_or_in_place_is_put_in_force() {
    let watched = Watched::new().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(watched.generation(), 0);
    assert_eq!(watched.world.converger.status().borrow().spec.refused, None, "a file to come is no fault");
    watched.put(&toml(&["a"], &watched.world));
    watched.until("the first", |s| s.spec.generation == 1).await;
    watched.put(&toml(&["a", "b"], &watched.world));
    watched.until("the second", |s| s.spec.generation == 2).await;
    fs::write(&watched.file, toml(&["a", "b", "c"], &watched.world)).expect("written in place");
    watched.until("the third", |s| s.spec.generation == 3).await;
    let source = watched.world.converger.status().borrow().spec.source.clone();
    assert_eq!(source, Some(SpecSource::File { path: watched.file.display().to_string() }));
    watched.world.until_running("c").await;
}

#[tokio::test]
async fn a_bad_file_names_its_line_and_a_vanished_one_nothing_and_neither_changes_anything() {
    let watched = Watched::new().await;
    watched.put(&toml(&["a"], &watched.world));
    watched.until("the first", |s| s.spec.generation == 1).await;
    watched.world.until_running("a").await;
    watched.put(&format!("{}nonsense = 1\n", toml(&["a"], &watched.world)));
    watched.until("the refusal", |s| s.spec.refused.is_some()).await;
    let refused = watched.world.converger.status().borrow().spec.refused.clone().expect("refused");
    assert_eq!(refused.kind, FaultKind::InvalidSpec);
    assert!(refused.message.contains("node.toml:") && refused.message.contains("nonsense"), "{}", refused.message);
    fs::remove_file(&watched.file).expect("removed");
    tokio::time::sleep(MOMENT).await;
    assert_eq!(watched.generation(), 1);
    assert!(watched.world.is_running("a"));
    watched.put(&toml(&["a", "b"], &watched.world));
    watched.until("the next good one", |s| s.spec.generation == 2 && s.spec.refused.is_none()).await;
}

#[tokio::test]
async fn a_fifo_or_a_directory_in_its_place_holds_nothing_up() {
    let watched = Watched::new().await;
    nix::unistd::mkfifo(&watched.file, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    watched.until("the refusal", |s| s.spec.refused.is_some()).await;
    fs::remove_file(&watched.file).expect("removed");
    watched.put(&toml(&["a"], &watched.world));
    watched.until("the document", |s| s.spec.generation == 1).await;
}

#[tokio::test]
async fn a_file_that_did_not_change_does_not_undo_what_was_applied_after_it() {
    let mut watched = Watched::new().await;
    watched.put(&toml(&["a"], &watched.world));
    watched.until("the file", |s| s.spec.generation == 1).await;
    watched.world.until_running("a").await;
    watched.world.apply(&[("a", "running", ""), ("b", "running", "")]).await;
    watched.world.until_running("b").await;
    watched.restart().await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!(watched.world.converger.spec().borrow().instances.len(), 2);
    assert!(watched.world.is_running("b"));
    watched.put(&toml(&["a", "b", "c"], &watched.world));
    watched.world.until_running("c").await;
}

#[tokio::test]
async fn a_file_whose_deletions_cannot_be_counted_yet_waits_for_the_helper() {
    let mut watched = Watched::new().await;
    watched.world.helper_down();
    watched.until("the loss", |s| !s.unreadable.is_empty()).await;
    watched.put(&toml(&["a"], &watched.world));
    watched.until("the refusal", |s| s.spec.refused.is_some()).await;
    assert_eq!(watched.generation(), 0);
    watched.world.helper_up();
    tokio::time::timeout(PATIENCE, watched.world.until_running("a")).await.expect("taken up by itself");
}

#[tokio::test]
async fn what_is_known_to_be_away_is_not_waited_for_and_asked_for_no_more_than_a_few_times() {
    let world = World::new().await;
    let node = service(&world, 8);
    world.until("a look at the host", |s| s.unreadable.is_empty() && s.helper.version.is_some()).await;
    world.libvirt(false);
    world.until("the loss", |s| !s.unreadable.is_empty()).await;
    let text = toml(&["a"], &world);
    let looks = || world.host.lock().expect("the host").looks;
    let before = looks();
    let began = Instant::now();
    node.apply(document(&text), ApplyOptions::default()).await.expect("it deletes nothing");
    let (took, asked) = (began.elapsed(), looks() - before);
    assert!(took < Duration::from_secs(4), "waited {took:?} for a libvirt that was lost just now");
    assert!(asked < 25, "{asked} looks in {took:?}");

    let began = Instant::now();
    node.apply(document(&text), ApplyOptions::default()).await.expect("the same again");
    assert!(began.elapsed() < Duration::from_secs(1), "waited {:?} for one that has been away", began.elapsed());

    world.libvirt(true);
    world.until_running("a").await;
}

struct NoConsole;

impl ConsoleOpener for NoConsole {
    fn open<'a>(&'a self, _: &'a InstanceId) -> BoxFuture<'a, Result<OwnedFd, Fault>> {
        Box::pin(async { Err(Fault::new(FaultKind::Unavailable, "not in this test")) })
    }
}

/// The service of a world, whose helper may have `most` instances.
fn service(world: &World, most: u32) -> service::Node {
    let helper = Helper::connect(&world.dir.path().join("helper.sock"), nix::unistd::getuid().as_raw());
    let consoles = Consoles::new(&world.layout, Arc::new(NoConsole));
    service::Node::new(world.converger.clone(), world.events.clone(), consoles, helper, most)
}

async fn plan(node: &service::Node, text: &str) -> PlanReport {
    node.plan(document(text)).await.expect("a plan")
}

fn document(text: &str) -> Document {
    Document { name: "node.toml".to_owned(), format: Format::Toml, text: text.to_owned() }
}

/// Instances that the plan refuses, with their words.
fn refused(report: &PlanReport) -> Vec<(&str, &str)> {
    let refused = report.plan.changes.iter().filter_map(|c| Some((c.instance.as_str(), c.refusal.as_ref()?)));
    refused.map(|(id, refusal)| (id, refusal.message.as_str())).collect()
}

#[tokio::test]
async fn a_plan_shows_what_the_helper_would_deny_and_apply_answers_the_same() {
    let mut world = World::new().await;
    let node = service(&world, 8);
    let text = toml(&["a", "b", "c"], &world);
    world.until("a look at the host", |s| s.unreadable.is_empty() && s.helper.version.is_some()).await;
    world.happens(|host| host.denies.push((InstanceId::parse("b").expect("an id"), "bridge-not-listed")));
    let report = plan(&node, &text).await;
    assert_eq!(refused(&report), [("b", "the test denies it (bridge-not-listed)")]);
    assert_eq!(report.unchecked, None);
    let b = report.plan.changes.iter().find(|c| c.instance.as_str() == "b").expect("b");
    assert_eq!((b.phase, b.steps.len()), (Phase::Held, 0));
    assert_eq!(report.plan.changes.iter().filter(|c| !c.steps.is_empty()).count(), 2);

    let applied = node.apply(document(&text), ApplyOptions::default()).await.expect("accepted");
    assert_eq!(applied.plan, report);
    world.until_running("a").await;
    world.until_running("c").await;
    let few = service(&world, 2);
    let words = "the document has more instances than the 2 that helper.max_instances allows: remove some or raise it \
                 (max-instances)";
    world.happens(|host| host.denies.clear());
    let more = plan(&few, &toml(&["a", "c", "d"], &world)).await;
    assert_eq!(refused(&more), [("d", words)]);
    let exchanged = plan(&few, &toml(&["a", "d"], &world)).await;
    assert_eq!(refused(&exchanged), [], "one that leaves the document makes room");

    world.helper_down();
    world.until("the loss", |s| !s.unreadable.is_empty()).await;
    let blind = plan(&node, &text).await;
    assert_eq!(blind.unchecked.as_deref(), Some("the helper does not answer"));
}
