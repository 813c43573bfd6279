//! The log's numbering, its ring and its readers.
use super::*;
use std::time::Duration;

fn filled(kept: usize, count: u64) -> EventLog {
    let log = EventLog::with_room_for(kept);
    for n in 1..=count {
        assert_eq!(log.push(EventKind::StepDone, None, format!("event {n}")), n);
    }
    log
}

fn drain(reader: &mut Subscription) -> Vec<u64> {
    std::iter::from_fn(|| reader.ready()).map(|e| e.seq).collect()
}

#[test]
fn a_reader_from_a_number_gets_what_follows_and_nothing_twice() {
    let log = filled(8, 5);
    let mut reader = log.subscribe(Some(2));
    assert_eq!(drain(&mut reader), [3, 4, 5]);
    assert_eq!(drain(&mut reader), [0_u64; 0]);
    log.push(EventKind::StepDone, None, "later");
    assert_eq!(drain(&mut reader), [6]);
}

#[test]
fn a_reader_from_now_sees_no_history() {
    let log = filled(8, 5);
    let mut reader = log.subscribe(None);
    assert!(reader.ready().is_none());
    log.push(EventKind::StepDone, None, "later");
    assert_eq!(drain(&mut reader), [6]);
}

#[test]
fn a_reader_is_told_how_many_the_ring_dropped_and_then_goes_on() {
    let log = filled(3, 10);
    let mut reader = log.subscribe(Some(2));
    let missed = reader.ready().expect("a note first");
    assert_eq!((missed.kind, missed.seq), (EventKind::Missed, 7));
    assert!(missed.message.starts_with("5 events"), "{}", missed.message);
    assert_eq!(drain(&mut reader), [8, 9, 10]);
}

#[test]
fn a_number_from_before_a_restart_replays_all_there_is() {
    let log = filled(8, 3);
    assert_eq!(drain(&mut log.subscribe(Some(900))), [1, 2, 3]);
}

#[tokio::test]
async fn a_waiting_reader_wakes_for_an_event_pushed_meanwhile() {
    let log = filled(8, 1);
    let mut reader = log.subscribe(None);
    let waiting = tokio::spawn(async move { reader.next().await.seq });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    log.push(EventKind::StateChanged, None, "now");
    let seq = tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("woken").expect("joined");
    assert_eq!(seq, 2);
}
