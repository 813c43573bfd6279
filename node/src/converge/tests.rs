//! The converger against a host in memory, with the node's real files.
pub(crate) mod world;

use super::actor::Actor;
use crate::api::events::EventKind;
use crate::fault::FaultKind;
use crate::helper::Reach;
use crate::runtime::{DomainState, PauseReason, StopReason};
use crate::status::{InstanceState, Link, Section, SpecSource};
use bcd_protocol::id::DomainUuid;
use bcd_protocol::limits;
use bcd_protocol::reply::FailureKind;
use bcd_protocol::request::Verb;
use posix_acl::{PosixACL, Qualifier};
use std::time::Duration;
use tokio::sync::mpsc;
use world::{IMAGE_BYTES, World, id, quick};

#[tokio::test]
async fn a_new_instance_is_made_defined_shared_and_started_in_this_order_and_once() {
    let world = World::new().await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    // Several passes later nothing was asked again.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(world.asked(), ["libvirt.define a", "libvirt.start a", "libvirt.resume a"]);
    assert!(world.layout.disk(&id("a")).exists() && world.layout.seed(&id("a")).exists());
    let mut events = world.events.subscribe(Some(0));
    let kinds: Vec<_> = std::iter::from_fn(|| events.ready()).map(|e| e.kind).collect();
    assert!(!kinds.contains(&EventKind::StepFailed), "{kinds:?}");
    assert!(kinds.contains(&EventKind::StateChanged) && kinds.contains(&EventKind::StepDone));
}

#[tokio::test]
async fn an_instance_that_left_the_document_is_deleted_with_its_files() {
    let world = World::new().await;
    world.apply(&[("a", "running", ""), ("b", "running", "")]).await;
    world.until_running("a").await;
    world.until_running("b").await;
    world.forget_asked();
    world.apply(&[("b", "running", "")]).await;
    world.until("a gone", |s| s.instances.iter().all(|i| i.id == id("b"))).await;
    assert_eq!(world.asked(), ["libvirt.destroy a", "libvirt.undefine a"]);
    assert!(!world.layout.instance(&id("a")).exists());
    assert!(world.is_running("b"));
}

#[tokio::test]
async fn a_node_that_starts_takes_past_guests_entries_off_the_base_and_no_others() {
    let mut world = World::new().await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    let base = world.layout.images().join(format!("{}.raw", world.sha256));
    let (past, own) = (limits::GUEST_UID_LAST, world.happens(|host| host.records[&id("a")].uid.get()));
    let mut acl = PosixACL::read_acl(&base).expect("an ACL");
    acl.set(Qualifier::User(past), posix_acl::ACL_READ);
    acl.write_acl(&base).expect("written");
    let entry = |uid: u32| PosixACL::read_acl(&base).expect("an ACL").get(Qualifier::User(uid));
    assert!(entry(past).is_some() && entry(own).is_some());
    world.restart_node().await;
    let forgotten = async {
        while entry(past).is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), forgotten).await.expect("past guests forgotten");
    assert!(entry(own).is_some(), "the guest that is there keeps its own");
}

#[tokio::test]
async fn a_stuck_instance_holds_up_no_other() {
    let world = World::new().await;
    world.host.lock().expect("the host").stuck.push((Verb::LibvirtDefine, id("slow")));
    world.apply(&[("slow", "running", ""), ("z", "running", "")]).await;
    world.until_running("z").await;
    let defining =
        |i: &crate::status::InstanceStatus| i.doing.as_ref().is_some_and(|d| d.what == "defining the domain");
    world.until_instance("slow", "being defined", defining).await;
}

#[tokio::test]
async fn an_instance_deleted_while_its_image_is_fetched_gives_the_download_up() {
    let world = World::new().await;
    // Accepts connections and says nothing: the download waits for ever.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("https://127.0.0.1:{}/i", silent.local_addr().expect("an address").port());
    let image = format!("image = {{ url = \"{url}\", sha256 = \"{}\", format = \"raw\" }}", "0".repeat(64));
    world.apply(&[("a", "running", &image)]).await;
    let fetching = |i: &crate::status::InstanceStatus| i.doing.as_ref().is_some_and(|d| d.what.contains("image"));
    world.until_instance("a", "fetching", fetching).await;
    world.apply(&[]).await;
    world.until("a gone", |s| s.instances.is_empty()).await;
    assert!(!world.layout.instance(&id("a")).exists());
    assert_eq!(world.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn the_power_button_is_pressed_again_until_the_guest_obeys() {
    let world = World::new().await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    world.host.lock().expect("the host").obeys_after.insert(id("a"), 3);
    world.forget_asked();
    world.apply(&[("a", "stopped", "")]).await;
    let stopped = |i: &crate::status::InstanceStatus| i.state == InstanceState::Stopped && i.doing.is_none();
    let status = world.until_instance("a", "stopped", stopped).await;
    assert_eq!(world.asked(), vec!["libvirt.shutdown a"; 3]);
    assert_eq!(status.stop_reason, Some(crate::status::StopReason::PoweredOff));
}

#[tokio::test]
async fn a_guest_that_never_obeys_is_ended_at_the_deadline_and_not_before() {
    let world = World::new().await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    world.forget_asked();
    let began = tokio::time::Instant::now();
    world.apply(&[("a", "stopped", "")]).await;
    let stopped = |i: &crate::status::InstanceStatus| i.state == InstanceState::Stopped;
    world.until_instance("a", "stopped", stopped).await;
    assert!(began.elapsed() >= quick().power_off, "{:?}", began.elapsed());
    let asked = world.asked();
    let presses = asked.iter().filter(|a| *a == "libvirt.shutdown a").count();
    assert!(presses >= 3, "{asked:?}");
    assert_eq!(asked.last().map(String::as_str), Some("libvirt.destroy a"));
}

#[tokio::test]
async fn a_deletion_does_not_wait_for_a_guest_that_is_shutting_down() {
    let world = World::with(super::Timing { power_off: Duration::from_secs(3600), ..quick() }).await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    world.apply(&[("a", "stopped", "")]).await;
    world.until_instance("a", "shutting down", |i| i.doing.is_some()).await;
    world.apply(&[]).await;
    world.until("a gone", |s| s.instances.is_empty()).await;
}

#[tokio::test]
async fn an_unreadable_runtime_is_unknown_and_nothing_is_done_until_it_is_back() {
    let world = World::new().await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    world.libvirt(false);
    let unknown = |i: &crate::status::InstanceStatus| i.state == InstanceState::Unknown;
    world.until_instance("a", "unknown", unknown).await;
    world.forget_asked();
    world.apply(&[("a", "stopped", ""), ("b", "running", "")]).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(world.asked(), Vec::<String>::new());
    let status = world.converger.status().borrow().clone();
    assert_eq!(status.unreadable.len(), 1);
    world.libvirt(true);
    world.until_running("b").await;
    world.until_instance("a", "stopped", |i| i.state == InstanceState::Stopped).await;
}

#[tokio::test]
async fn a_definition_that_changed_while_its_guest_ran_is_a_pending_restart_until_the_next_start() {
    let mut world = World::new().await;
    let pending = |i: &crate::status::InstanceStatus| i.runs_with.and_then(|r| Some((r.vcpus?, r.memory_bytes?)));
    world.apply(&[("a", "running", ""), ("b", "running", "")]).await;
    world.until_running("a").await;
    world.until_running("b").await;
    let wider = world.document(&[("a", "running", ""), ("b", "running", "")]);
    let mut wider = wider;
    let changed = wider.instances.iter().cloned().map(|mut i| {
        if i.id == id("a") {
            i.vcpus = bcd_protocol::size::Vcpus::new(3).expect("a few");
        }
        i
    });
    wider.instances = changed.collect::<Vec<_>>().try_into().expect("two");
    world.converger.apply(wider, SpecSource::Api, false).await.expect("accepted");
    let status = world.until_instance("a", "pending", |i| i.vcpus == Some(3) && i.runs_with.is_some()).await;
    assert_eq!(pending(&status), Some((1, 64 << 20)), "what it runs with until then");
    world.restart_node().await;
    let again = world.until_instance("a", "pending after a restart of the node", |i| i.runs_with.is_some()).await;
    assert_eq!(pending(&again), Some((1, 64 << 20)));
    let b = world.until_instance("b", "running", |i| i.state == InstanceState::Running).await;
    assert_eq!(pending(&b), None);
    world.guest("a", DomainState::Stopped(StopReason::GuestShutdown));
    let fresh = |i: &crate::status::InstanceStatus| i.state == InstanceState::Running && i.runs_with.is_none();
    world.until_instance("a", "started anew with three", fresh).await;
}

#[tokio::test]
async fn a_helper_that_answers_before_the_loop_runs_is_seen_by_it() {
    let world = World::new().await;
    let parts = world.parts();
    let helper = parts.helper.clone();
    let (actor, mut status, _documents) = Actor::new(parts, None);
    assert_eq!(status.borrow().helper.state, Link::Unreachable, "nothing was sent yet");
    helper.reach().wait_for(|reach| matches!(reach, Reach::Up { .. })).await.expect("the helper answers");
    let (_commands, inbox) = mpsc::channel(1);
    tokio::spawn(actor.run(inbox));
    let seen = tokio::time::timeout(world::PATIENCE, status.wait_for(|s| s.helper.state == Link::Connected)).await;
    assert!(seen.is_ok(), "the helper is shown as unreachable for good");
}

#[tokio::test]
async fn runtimes_are_shown_with_their_version_also_while_the_helper_is_away() {
    let mut world = World::new().await;
    world.helper_down();
    world.restart_node().await;
    let status = world.until("the loss", |s| s.unreadable.iter().any(|u| u.section == Section::Records)).await;
    let [runtime] = status.runtimes.as_slice() else { panic!("{:?}", status.runtimes) };
    assert_eq!((runtime.driver.as_str(), runtime.version.as_deref()), ("libvirt-kvm", Some("9.1.2")));
}

#[tokio::test]
async fn a_helper_that_dies_and_comes_back_finds_the_work_taken_up() {
    let mut world = World::new().await;
    world.host.lock().expect("the host").stuck.push((Verb::LibvirtDefine, id("a")));
    world.apply(&[("a", "running", "")]).await;
    let defining = |i: &crate::status::InstanceStatus| i.doing.as_ref().is_some_and(|d| d.what.contains("defin"));
    world.until_instance("a", "being defined", defining).await;
    world.helper_down();
    let unavailable =
        |i: &crate::status::InstanceStatus| i.last_error.as_ref().is_some_and(|e| e.kind == FaultKind::Unavailable);
    world.until_instance("a", "unavailable", unavailable).await;
    world.host.lock().expect("the host").stuck.clear();
    world.helper_up();
    world.until_running("a").await;
    let status = world.converger.status().borrow().clone();
    assert_eq!(status.instances[0].last_error, None, "an error of the past is still shown");
}

#[tokio::test]
async fn what_the_document_must_change_is_tried_once_and_again_when_it_changes() {
    let world = World::new().await;
    let small = format!("disk_bytes = {}", IMAGE_BYTES / 2);
    world.apply(&[("a", "running", &small), ("b", "running", "")]).await;
    let failed = |i: &crate::status::InstanceStatus| i.last_error.is_some() && i.doing.is_none();
    let status = world.until_instance("a", "failed", failed).await;
    world.until_running("b").await;
    let error = status.last_error.expect("an error");
    assert_eq!((error.kind, error.times, error.retry_at), (FaultKind::InvalidSpec, 1, None));
    assert!(error.message.contains(&(IMAGE_BYTES / 2).to_string()), "{}", error.message);
    tokio::time::sleep(Duration::from_millis(600)).await;
    let failures = |world: &World| {
        let mut events = world.events.subscribe(Some(0));
        std::iter::from_fn(move || events.ready()).filter(|e| e.kind == EventKind::StepFailed).count()
    };
    assert_eq!(failures(&world), 1);
    world.apply(&[("a", "running", ""), ("b", "running", "")]).await;
    world.until_running("a").await;
}

#[tokio::test]
async fn what_failed_is_tried_at_once_when_the_same_document_is_given_again() {
    let world = World::new().await;
    let small = format!("disk_bytes = {}", IMAGE_BYTES / 2);
    world.host.lock().expect("the host").denies = vec![(id("a"), "bridge-not-listed")];
    let document: &[(&str, &str, &str)] = &[("a", "running", ""), ("b", "running", &small)];
    let first = world.apply(document).await;
    let failed = |i: &crate::status::InstanceStatus| i.last_error.is_some() && i.doing.is_none();
    let denied = world.until_instance("a", "denied", failed).await.last_error.expect("an error");
    let refused = world.until_instance("b", "refused", failed).await.last_error.expect("an error");
    // Ten seconds, with a jitter of a quarter.
    assert!(denied.retry_at.is_some_and(|at| at.0 >= denied.at.0 + 7_400), "by itself it is tried later");
    assert_eq!(refused.retry_at, None, "and this one never");
    world.host.lock().expect("the host").denies.clear();
    let again = world.apply(document).await;
    assert_eq!((again.generation, again.changed), (first.generation, false));
    assert!(again.accepted_at >= denied.at && again.accepted_at >= refused.at);
    tokio::time::timeout(Duration::from_secs(5), world.until_running("a")).await.expect("tried at once");
    let later = |i: &crate::status::InstanceStatus| i.last_error.as_ref().is_some_and(|e| e.at >= again.accepted_at);
    world.until_instance("b", "refused anew, so that whoever waits is told", later).await;
}

#[tokio::test]
async fn a_passing_failure_is_tried_again_and_forgotten_once_it_is_over() {
    let world = World::new().await;
    let fails = (Verb::LibvirtStart, id("a"), FailureKind::ResourcesExhausted, 0);
    world.host.lock().expect("the host").fails = vec![(Verb::LibvirtDefine, id("a"), FailureKind::Refused, 2), fails];
    world.apply(&[("a", "running", "")]).await;
    let failed =
        |times| move |i: &crate::status::InstanceStatus| i.last_error.as_ref().is_some_and(|e| e.times == times);
    let once = world.until_instance("a", "failed once", failed(1)).await;
    assert!(once.last_error.expect("an error").retry_at.is_some());
    world.until_instance("a", "failed twice", failed(2)).await;
    world.until_running("a").await;
    assert_eq!(world.converger.status().borrow().instances[0].last_error, None);
    let defines = world.asked().iter().filter(|a| *a == "libvirt.define a").count();
    assert_eq!(defines, 3);
    // The disk that was made before the first failure was not made anew: its fingerprint was known.
    let mut events = world.events.subscribe(Some(0));
    let made = std::iter::from_fn(|| events.ready())
        .filter(|e| e.kind == EventKind::StepDone && e.message.contains("creating the disk"))
        .count();
    assert_eq!(made, 1);
}

#[tokio::test]
async fn a_guest_that_powers_off_is_started_again_and_held_back_when_it_does_so_at_once() {
    let world = World::new().await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    world.forget_asked();
    let began = tokio::time::Instant::now();
    for _ in 0..2 {
        world.guest("a", DomainState::Stopped(StopReason::GuestShutdown));
        world.until_instance("a", "stopped", |i| i.state == InstanceState::Stopped).await;
        world.until_running("a").await;
    }
    // 1 s and 2 s, less a quarter of jitter.
    assert!(began.elapsed() >= Duration::from_millis(2200), "restarted in {:?}", began.elapsed());
    assert_eq!(world.asked().iter().filter(|a| *a == "libvirt.start a").count(), 2);
}

#[tokio::test]
async fn a_document_that_deletes_most_of_what_runs_is_refused_and_changes_nothing() {
    let world = World::new().await;
    world.apply(&[("a", "running", ""), ("b", "running", "")]).await;
    world.until_running("a").await;
    world.until_running("b").await;
    let report = world.converger.plan(world.document(&[])).await.expect("planned");
    assert!(report.needs_allow_delete);
    assert_eq!(report.deletes_running, 2);
    let fault = world.converger.apply(world.document(&[]), SpecSource::Api, false).await.expect_err("refused");
    assert_eq!(fault.kind(), FaultKind::Denied);
    let status = world.until("the refusal", |s| s.spec.refused.is_some()).await;
    assert_eq!(status.spec.generation, 1);
    assert_eq!(world.converger.spec().borrow().instances.len(), 2);
    // Half of them is allowed.
    world.converger.apply(world.document(&[("a", "running", "")]), SpecSource::Api, false).await.expect("half");
    let status = world.until("b gone", |s| s.instances.len() == 1).await;
    assert_eq!(status.spec.refused, None);
    assert!(world.is_running("a"));
}

#[tokio::test]
async fn without_the_records_a_document_that_may_delete_is_not_accepted() {
    let mut world = World::new().await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    world.helper_down();
    world.until("the loss", |s| !s.unreadable.is_empty()).await;
    let fault = world.converger.apply(world.document(&[]), SpecSource::Api, false).await.expect_err("refused");
    assert_eq!(fault.kind(), FaultKind::Unavailable);
    let more = world.document(&[("a", "running", ""), ("b", "running", "")]);
    world.converger.apply(more, SpecSource::Api, false).await.expect("it deletes nothing");
}

#[tokio::test]
async fn a_restarted_node_goes_on_with_the_document_and_leaves_guests_alone() {
    let mut world = World::new().await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    world.host.lock().expect("the host").stuck.push((Verb::LibvirtDefine, id("b")));
    world.apply(&[("a", "running", ""), ("b", "running", "")]).await;
    let defining = |i: &crate::status::InstanceStatus| i.doing.as_ref().is_some_and(|d| d.what.contains("defin"));
    world.until_instance("b", "being defined", defining).await;
    world.forget_asked();
    world.host.lock().expect("the host").stuck.clear();
    world.restart_node().await;
    world.until_running("b").await;
    world.until_running("a").await;
    assert!(world.asked().iter().all(|a| a.ends_with(" b")), "{:?}", world.asked());
    assert_eq!(world.converger.status().borrow().spec.source, Some(SpecSource::Kept));
}

#[tokio::test]
async fn a_foreign_domain_under_an_instances_name_is_named_and_left_alone() {
    let world = World::new().await;
    world.happens(|host| {
        let foreign = (DomainUuid::from_bytes([9; 16]), DomainState::Running, Some(77));
        host.domains.insert("bcd-a".to_owned(), foreign);
    });
    world.apply(&[("a", "running", ""), ("b", "running", "")]).await;
    world.until_running("b").await;
    let refused = world.until_instance("a", "refused", |i| i.last_error.is_some()).await;
    assert_eq!(refused.last_error.expect("an error").kind, FaultKind::Denied);
    let status = world.converger.status().borrow().clone();
    assert_eq!(status.foreign.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["bcd-a"]);
    assert!(world.asked().iter().all(|a| a.ends_with(" b")), "{:?}", world.asked());
    // Once it is gone the instance is made.
    world.happens(|host| host.domains.remove("bcd-a"));
    world.until_running("a").await;
}

#[tokio::test]
async fn passes_that_find_nothing_new_publish_nothing() {
    let world = World::new().await;
    world.apply(&[("a", "running", ""), ("b", "paused", "")]).await;
    world.until_running("a").await;
    let paused = |i: &crate::status::InstanceStatus| i.state == InstanceState::Paused && i.doing.is_none();
    world.until_instance("b", "paused", paused).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut status = world.converger.status();
    status.mark_unchanged();
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert!(!status.has_changed().expect("alive"));
}

#[tokio::test]
async fn a_paused_and_resumed_instance_is_told_so_once_each() {
    let world = World::new().await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    world.forget_asked();
    world.apply(&[("a", "paused", "")]).await;
    let paused = |i: &crate::status::InstanceStatus| i.state == InstanceState::Paused && i.doing.is_none();
    world.until_instance("a", "paused", paused).await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    assert_eq!(world.asked(), ["libvirt.suspend a", "libvirt.resume a"]);
}

#[tokio::test]
async fn a_crashed_guest_is_ended_and_started_again() {
    let world = World::new().await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    world.forget_asked();
    world.guest("a", DomainState::Paused(PauseReason::Crashed));
    world.until_instance("a", "crashed", |i| i.state == InstanceState::Crashed).await;
    world.until_running("a").await;
    assert_eq!(world.asked(), ["libvirt.destroy a", "libvirt.start a", "libvirt.resume a"]);
}

#[tokio::test]
async fn a_stopping_node_ends_its_tasks_and_touches_no_guest() {
    let world = World::with(super::Timing { power_off: Duration::from_secs(3600), ..quick() }).await;
    world.apply(&[("a", "running", ""), ("b", "running", "")]).await;
    world.until_running("a").await;
    world.until_running("b").await;
    world.apply(&[("a", "running", ""), ("b", "stopped", "")]).await;
    world.until_instance("b", "shutting down", |i| i.doing.is_some()).await;
    let began = tokio::time::Instant::now();
    world.converger.stop().await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(world.is_running("a") && world.is_running("b"));
    assert!(world.converger.apply(world.document(&[]), SpecSource::Api, true).await.is_err());
}

#[tokio::test]
async fn an_instance_that_comes_back_while_it_is_deleted_is_a_new_one() {
    let world = World::new().await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    let uuid = |world: &World| world.converger.status().borrow().instances[0].uuid;
    let first = uuid(&world);
    let marker = world.layout.instance(&id("a")).join("console.head");
    std::fs::write(&marker, "of the first").expect("a file of the first instance");
    world.host.lock().expect("the host").slow.push((Verb::LibvirtDestroy, id("a"), Duration::from_millis(300)));
    world.apply(&[]).await;
    let ending = |i: &crate::status::InstanceStatus| i.doing.as_ref().is_some_and(|d| d.what == "ending");
    world.until_instance("a", "being ended", ending).await;
    world.apply(&[("a", "running", "")]).await;
    world.until_running("a").await;
    assert_ne!(uuid(&world), first);
    assert!(!marker.exists(), "a file of the first instance is in the second one's directory");
}

#[tokio::test]
async fn a_base_image_goes_once_nothing_has_used_it_for_a_while() {
    let world = World::with(super::Timing { image_grace: Duration::from_millis(300), ..quick() }).await;
    let image = world.layout.images().join(format!("{}.raw", world.sha256));
    world.apply(&[("a", "running", ""), ("b", "stopped", "")]).await;
    world.until_running("a").await;
    world.apply(&[("b", "stopped", "")]).await;
    world.until("a gone", |s| s.instances.len() == 1).await;
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert!(image.exists(), "another instance lies on it");
    world.apply(&[]).await;
    world.until("b gone", |s| s.instances.is_empty()).await;
    assert!(image.exists(), "it went at once");
    let gone = async {
        while image.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(world::PATIENCE, gone).await.expect("it stays for ever");
}
