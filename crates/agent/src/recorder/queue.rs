//! A bounded queue of events for one reader. Whoever records never waits for it: when it is full, the oldest goes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::Event;

/// The events that one reader has yet to read.
#[derive(Debug)]
pub struct EventQueue(Arc<Queue>);

#[derive(Debug)]
pub(super) struct Queue {
    capacity: usize,
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Arc<Event>>,
    dropped: u64,
}

impl EventQueue {
    /// How many events wait at most, as upstream.
    pub const CAPACITY: usize = 1000;

    pub(super) fn new(capacity: usize) -> (EventQueue, Weak<Queue>) {
        let queue = Arc::new(Queue { capacity, waiting: Mutex::default(), arrived: Notify::new() });
        let theirs = Arc::downgrade(&queue);
        (EventQueue(queue), theirs)
    }

    /// The next event, as soon as there is one. Dropping the future loses nothing.
    pub async fn next(&self) -> Arc<Event> {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            self.0.arrived.notified().await;
        }
    }

    /// The next event, if there is one already.
    pub fn try_next(&self) -> Option<Arc<Event>> {
        self.0.lock().events.pop_front()
    }

    /// How many events were dropped because nobody read them in time.
    pub fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }
}

impl Queue {
    pub(super) fn push(&self, event: Arc<Event>) {
        let mut waiting = self.lock();
        if waiting.events.len() >= self.capacity {
            waiting.events.pop_front();
            waiting.dropped += 1;
        }
        waiting.events.push_back(event);
        drop(waiting);
        self.arrived.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::{EventType, Involved};
    use jiff::Timestamp;

    fn event(count: u32) -> Arc<Event> {
        Arc::new(Event {
            involved: Involved::node("n1"),
            event_type: EventType::Normal,
            reason: "Starting".into(),
            message: "Starting kubelet.".into(),
            annotations: Default::default(),
            count,
            first: Timestamp::UNIX_EPOCH,
            last: Timestamp::UNIX_EPOCH,
        })
    }

    #[tokio::test]
    async fn a_full_queue_drops_its_oldest_and_counts_it() {
        let (queue, theirs) = EventQueue::new(3);
        let theirs = theirs.upgrade().unwrap();
        (0..5).for_each(|number| theirs.push(event(number)));
        assert_eq!(queue.dropped(), 2);
        let mut read = Vec::new();
        while let Some(event) = queue.try_next() {
            read.push(event.count);
        }
        assert_eq!(read, [2, 3, 4]);
    }

    #[tokio::test]
    async fn a_reader_is_woken_by_an_event() {
        let (queue, theirs) = EventQueue::new(3);
        let reader = tokio::spawn(async move { queue.next().await.count });
        tokio::task::yield_now().await;
        theirs.upgrade().unwrap().push(event(9));
        assert_eq!(reader.await.unwrap(), 9);
    }
}
