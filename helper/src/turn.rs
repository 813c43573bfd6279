//! One request at a time per instance, in the order of arrival; across instances any number.
//!
//! Room: `helper`. A place in the queue is taken when the request is read, before anything waits: pipelined requests on
//! one instance are worked off in the order they were sent.
use bcd_protocol::id::InstanceId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// The queues of all instances that have a request under way.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    tails: Mutex<HashMap<InstanceId, Tail>>,
}

#[derive(Debug)]
struct Tail {
    place: u64,
    ended: oneshot::Receiver<()>,
}

/// A place in an instance's queue. Whoever is behind goes on when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    instance: InstanceId,
    place: u64,
    before: Option<oneshot::Receiver<()>>,
    _ends: oneshot::Sender<()>,
}

impl Turns {
    /// Whether a request on `instance` is under way or waits.
    pub(crate) fn busy(&self, instance: &InstanceId) -> bool {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner).contains_key(instance)
    }

    /// Takes the place behind all others of `instance`.
    pub(crate) fn take(self: &Arc<Self>, instance: &InstanceId) -> Turn {
        let (ends, ended) = oneshot::channel();
        let mut tails = self.tails.lock().unwrap_or_else(PoisonError::into_inner);
        let last = tails.remove(instance);
        let place = last.as_ref().map_or(0, |tail| tail.place.wrapping_add(1));
        tails.insert(instance.clone(), Tail { place, ended });
        let before = last.map(|tail| tail.ended);
        Turn { turns: Arc::clone(self), instance: instance.clone(), place, before, _ends: ends }
    }
}

impl Turn {
    /// Waits until every earlier request on the instance has ended.
    pub(crate) async fn wait(&mut self) {
        if let Some(before) = self.before.take() {
            // An error means that the one before was dropped, which is how it ends.
            let _ended = before.await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut tails = self.turns.tails.lock().unwrap_or_else(PoisonError::into_inner);
        if tails.get(&self.instance).is_some_and(|tail| tail.place == self.place) {
            tails.remove(&self.instance);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> InstanceId {
        InstanceId::parse(text).unwrap()
    }

    #[tokio::test]
    async fn turns_of_one_instance_come_in_the_order_taken() {
        let turns = Arc::new(Turns::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let taken: Vec<_> = (0..5).map(|n| (n, turns.take(&id("a")))).collect();
        // Run in reverse: only the places may decide.
        let tasks: Vec<_> = taken
            .into_iter()
            .rev()
            .map(|(n, mut turn)| {
                let order = Arc::clone(&order);
                tokio::spawn(async move {
                    turn.wait().await;
                    tokio::task::yield_now().await;
                    order.lock().unwrap().push(n);
                    drop(turn);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
        assert!(!turns.busy(&id("a")), "nothing is kept for an idle instance");
    }

    #[tokio::test]
    async fn another_instance_does_not_wait() {
        let turns = Arc::new(Turns::default());
        let _held = turns.take(&id("a"));
        let mut other = turns.take(&id("b"));
        tokio::time::timeout(std::time::Duration::from_secs(1), other.wait()).await.unwrap();
        assert!(turns.busy(&id("a")));
    }

    #[tokio::test]
    async fn the_first_one_ending_late_does_not_free_the_last() {
        let turns = Arc::new(Turns::default());
        let first = turns.take(&id("a"));
        let mut second = turns.take(&id("a"));
        drop(first);
        assert!(turns.busy(&id("a")), "the second still has its place");
        second.wait().await;
        drop(second);
        assert!(!turns.busy(&id("a")));
    }
}
