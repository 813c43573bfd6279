//! Tests of who comes in, and who makes room.
use super::*;
use crate::log::captured;

fn place(pid: i32, greeted: bool, last: u64) -> Arc<Place> {
    let place = Place::new(Peer { uid: 990, pid }, GREETING, Instant::now());
    place.greeted.store(greeted, Ordering::Relaxed);
    place.last.store(last, Ordering::Relaxed);
    Arc::new(place)
}

#[test]
fn one_that_has_not_greeted_goes_first() {
    let places = [place(1, true, 0), place(1, true, 1), place(2, false, 9)];
    assert_eq!(victim(&places, 50), Some(2), "although its process holds fewer and it spoke last");
}

#[test]
fn the_process_that_holds_most_gives_one_up() {
    let places = [place(7, true, 0), place(3, true, 5), place(3, true, 6)];
    assert_eq!(victim(&places, 50), Some(1), "the longest silent of process 3");
    let ungreeted = [place(7, false, 0), place(3, false, 6), place(3, false, 5)];
    assert_eq!(victim(&ungreeted, 50), Some(2));
}

#[test]
fn among_equals_the_longest_silent_goes() {
    let places = [place(1, true, 30), place(2, true, 10), place(3, true, 20)];
    assert_eq!(victim(&places, 50), Some(1));
}

#[test]
fn a_process_that_takes_more_than_its_share_makes_room_before_a_newcomer_that_has_not_greeted_yet() {
    let mut places: Vec<_> = (0..SHARE).map(|n| place(7, true, 10 + u64::try_from(n).unwrap())).collect();
    places.push(place(1, false, 90));
    places.push(place(2, true, 0));
    assert_eq!(victim(&places, 2), Some(SHARE), "a full share is no flood: the one that has not greeted goes");
    assert_eq!(victim(&places, 7), Some(0), "one more is: the longest silent of its own");
    places.push(place(7, false, 99));
    assert_eq!(victim(&places, 1), Some(SHARE + 2), "of a flood, those that have not greeted go first");
}

#[test]
fn nobody_goes_while_there_is_room() {
    let places = Places::default();
    for n in 0..limits::CONNECTIONS {
        assert!(places.add(place(i32::try_from(n).unwrap(), true, 1)).is_none());
    }
    assert_eq!(places.0.lock().unwrap().len(), limits::CONNECTIONS);
    assert!(places.add(place(99, false, 2)).is_some());
    let left = places.0.lock().unwrap();
    assert_eq!(left.len(), limits::CONNECTIONS, "one went, one came");
    assert!(left.iter().any(|place| place.peer.pid == 99), "the newcomer is in");
}

#[tokio::test]
async fn a_session_that_panics_gives_its_place_back() {
    let places = Arc::new(Places::default());
    let place = place(1, true, 0);
    assert!(places.add(Arc::clone(&place)).is_none());
    let taken = Taken { places: Arc::clone(&places), place };
    let session = tokio::spawn(async move {
        let _taken = taken;
        panic!("a mistake");
    });
    assert!(session.await.unwrap_err().is_panic());
    assert!(places.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_evicted_session_hears_of_it_even_when_it_was_not_waiting() {
    let place = place(1, false, 0);
    place.evicted.notify_one();
    tokio::time::timeout(Duration::from_secs(1), place.evicted()).await.unwrap();
}

#[test]
fn a_stranger_costs_no_place_and_drives_nobody_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let own = nix::unistd::geteuid().as_raw();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rate = Rate::new(3, "strangers of this test");
    let text = captured(|| {
        runtime.block_on(async {
            let mut door = Door::Listener(UnixSeqpacketListener::bind(&path).unwrap());
            let places = Places::default();
            for (node_uid, let_in_of_many) in [(own, limits::CONNECTIONS), (own.wrapping_add(1), 0)] {
                let mut crowd = Vec::new();
                for _ in 0..AT_ONCE / 2 {
                    crowd.push(UnixSeqpacket::connect(&path).await.unwrap());
                }
                let first = door.accept().await.unwrap();
                let newcomers = let_in(&mut door, node_uid, &places, Instant::now(), &rate, first).await;
                assert_eq!(newcomers.len(), let_in_of_many);
                let left: Vec<_> = places.0.lock().unwrap().clone();
                assert_eq!(left.len(), limits::CONNECTIONS, "those of the node's user are still there");
                if let_in_of_many == 0 {
                    for stranger in crowd {
                        assert_eq!(stranger.recv(&mut [0; 8]).await.unwrap().bytes_read(), 0, "it is closed");
                    }
                }
            }
        });
    });
    assert_eq!(text.matches("hung up on").count(), 3, "{text}");
    assert_eq!(text.matches("a flood: ").count(), 1, "{text}");
}

#[tokio::test]
async fn whoever_comes_behind_as_many_as_are_let_in_at_once_waits_for_the_next_turn() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let nobody = nix::unistd::geteuid().as_raw().wrapping_add(1);
    let mut door = Door::Listener(UnixSeqpacketListener::bind_with_backlog(&path, 4 * 128).unwrap());
    let (places, rate) = (Places::default(), Rate::new(3, "strangers of this test"));
    let mut crowd = Vec::new();
    for _ in 0..AT_ONCE + 50 {
        crowd.push(UnixSeqpacket::connect(&path).await.unwrap());
    }
    let first = door.accept().await.unwrap();
    // A task may do so much at once; now it has all of it.
    tokio::task::yield_now().await;
    assert!(let_in(&mut door, nobody, &places, Instant::now(), &rate, first).await.is_empty());
    assert_eq!(
        closed(&crowd),
        AT_ONCE,
        "those that were let in were strangers; one that was taken and dropped is one more"
    );
    tokio::task::yield_now().await;
    let second = door.accept().await.unwrap();
    assert!(let_in(&mut door, nobody, &places, Instant::now(), &rate, second).await.is_empty());
    assert_eq!(closed(&crowd), crowd.len());
}

/// How many of the other ends are closed.
fn closed(crowd: &[UnixSeqpacket]) -> usize {
    let ended = |socket: &&UnixSeqpacket| {
        nix::sys::socket::recv(socket.as_raw_fd(), &mut [0; 1], nix::sys::socket::MsgFlags::MSG_DONTWAIT) == Ok(0)
    };
    crowd.iter().filter(ended).count()
}
