//! The event recorder: what happens to pods, told to people in upstream's words.
//!
//! ```text
//!   workers, images, probes ──► Recorder ──► correlator: counts, combines, holds back floods
//!                                               ├──► the pod's story   (all of it, merged there)
//!                                               ├──► the log           (what is not held back)
//!                                               └──► queues            (what is not held back; the oldest is dropped)
//! ```
//!
//! A message goes to logs and to API servers: **it must not hold a secret**. Nothing is taken out of it here; whoever
//! words a message leaves secrets out.

pub(crate) mod bucket;
mod correlate;
mod involved;
mod lru;
mod queue;
pub mod reason;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crablet_api::core::Pod;
use crablet_api::{Map, Text};
use crablet_host::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use tracing::{info, warn};

pub use involved::{ContainerKind, Involved, InvolvedObject};
pub use queue::EventQueue;

use crate::pod_span::pod_span;
use crate::story::{Stories, Telling};
use correlate::{Correlated, Correlator, Draft};
use queue::Queue;

/// What events of one moment are moved apart by.
const NANOSECOND: SignedDuration = SignedDuration::from_nanos(1);

/// How many events are kept for the first who writes them: an agent that begins has something to tell before it has
/// somebody to tell it to.
const EARLY_EVENTS: usize = 16;

/// How long a message is at most; runtimes have been seen to answer with whole logs.
const LONGEST_MESSAGE: usize = 4096;

/// Whether an event is a reason for concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// It is not.
    Normal,
    /// It is.
    Warning,
}

impl EventType {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that happened, as it stands after it was counted and combined with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What it happened to.
    pub involved: Involved,
    /// Whether it is a reason for concern.
    pub event_type: EventType,
    /// What happened, in a word (see [`reason`]).
    pub reason: Text,
    /// What happened, in a sentence.
    pub message: Text,
    /// What programs are told beside that.
    pub annotations: Map<Text>,
    /// How often it has happened.
    pub count: u32,
    /// When it happened first. An event that is told again has the same first time, which makes its name.
    pub first: Timestamp,
    /// When it happened last.
    pub last: Timestamp,
}

/// Records events. Clones record into the same places.
#[derive(Clone)]
pub struct Recorder {
    clock: Clock,
    stories: Stories,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    correlator: Correlator,
    queues: Vec<Weak<Queue>>,
    early: Early,
    held_back: u64,
    /// When something happened last.
    latest: Option<Timestamp>,
}

/// What was told while nobody wrote it yet.
enum Early {
    Kept(Vec<Arc<Event>>),
    /// It was handed over.
    Written,
}

impl Default for Early {
    fn default() -> Early {
        Early::Kept(Vec::new())
    }
}

impl Shared {
    /// Gives an event to those who write them, or keeps it for the first who will.
    fn push(&mut self, event: &Arc<Event>) {
        self.queues.retain(|queue| queue.strong_count() > 0);
        for queue in self.queues.iter().filter_map(Weak::upgrade) {
            queue.push(Arc::clone(event));
        }
        if let Early::Kept(early) = &mut self.early
            && early.len() < EARLY_EVENTS
        {
            early.push(Arc::clone(event));
        }
    }

    /// The moment of an event: its first one makes its name, so that no two have the same.
    fn moment(&mut self, now: Timestamp) -> Timestamp {
        let after = self.latest.filter(|latest| *latest == now || is_just_before(now, *latest));
        let moment = after.and_then(|latest| latest.checked_add(NANOSECOND).ok()).unwrap_or(now);
        self.latest = Some(moment);
        moment
    }
}

/// Whether a moment is behind another by no more than what events of one moment were moved apart.
fn is_just_before(now: Timestamp, latest: Timestamp) -> bool {
    let ahead = latest.duration_since(now);
    ahead.is_positive() && ahead < SignedDuration::from_millis(1)
}

impl Recorder {
    /// A recorder that takes the time from `clock` and tells events to `stories`.
    pub fn new(clock: Clock, stories: Stories) -> Recorder {
        Recorder { clock, stories, shared: Arc::default() }
    }

    /// Records that something happened. Never waits. The message must not hold a secret.
    pub fn event(&self, involved: &Involved, event_type: EventType, reason: &str, message: impl Into<Text>) {
        self.annotated_event(involved, Map::default(), event_type, reason, message);
    }

    /// Records that a pod was told to go, and has not stopped in its time.
    pub(crate) fn exceeded_grace_period(&self, pod: &Pod) {
        let _span = pod_span(&pod.identity()).entered();
        let message = "Container runtime did not kill the pod within specified grace period.";
        let involved = Involved::version_of(pod);
        self.event(&involved, EventType::Warning, reason::EXCEEDED_GRACE_PERIOD, message);
    }

    /// Records that something happened, with something that programs are told beside it.
    pub fn annotated_event(
        &self,
        involved: &Involved,
        annotations: Map<Text>,
        event_type: EventType,
        reason: &str,
        message: impl Into<Text>,
    ) {
        let message = bounded(message.into());
        let draft = Draft { involved, event_type, reason, message: &message };
        let now = Instant::now();
        let (correlated, event) = {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            let at = shared.moment(self.clock.now());
            let correlated = shared.correlator.correlate(&draft, now, at);
            let event = Arc::new(Event {
                involved: involved.clone(),
                event_type,
                reason: reason.into(),
                message: correlated.message.clone(),
                annotations,
                count: correlated.count,
                first: correlated.first,
                last: at,
            });
            match correlated.is_spam {
                true => shared.held_back += 1,
                // At once, so that whoever takes a queue next finds it there.
                false => shared.push(&event),
            }
            (correlated, event)
        };
        self.tell(&draft, &correlated);
        if !correlated.is_spam {
            log(&event);
        }
    }

    /// A queue of the events from now on, for whoever writes them to an API server; the first one begins with what was
    /// told before it. It ends when it is dropped.
    pub fn queue(&self) -> EventQueue {
        let (queue, theirs) = EventQueue::new(EventQueue::CAPACITY);
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Early::Kept(early), Some(queue)) =
            (std::mem::replace(&mut shared.early, Early::Written), theirs.upgrade())
        {
            early.into_iter().for_each(|event| queue.push(event));
        }
        shared.queues.push(theirs);
        queue
    }

    /// How many events were held back because there were too many about one object.
    pub fn held_back(&self) -> u64 {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).held_back
    }

    fn tell(&self, draft: &Draft<'_>, correlated: &Correlated) {
        let (container, message) = (draft.involved.container(), &correlated.message);
        let (about, colon) = container.map_or(("", ""), |container| (container, ": "));
        let telling = Telling {
            topic: draft.reason,
            text: format_args!("{about}{colon}{message}"),
            took: None,
            is_warning: draft.event_type == EventType::Warning,
            is_combined: correlated.is_combined,
        };
        self.stories.event(draft.involved.uid(), telling);
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

/// One line per event, with the fields that upstream's line has. (`message` is what a log line calls its own.)
fn log(event: &Event) {
    let Event { involved, event_type, reason, message, count, .. } = event;
    let (kind, field_path) = (involved.kind(), &*involved.field_path);
    match event_type {
        EventType::Normal => {
            info!(object = %involved, fieldPath = field_path, kind, "type" = %event_type, %reason, note = %message, count, "Event occurred")
        }
        EventType::Warning => {
            warn!(object = %involved, fieldPath = field_path, kind, "type" = %event_type, %reason, note = %message, count, "Event occurred")
        }
    }
}

fn bounded(message: Text) -> Text {
    if message.len() <= LONGEST_MESSAGE {
        return message;
    }
    format!("{}…", &message[..message.floor_char_boundary(LONGEST_MESSAGE)]).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crablet_api::core::PodIdentity;

    use super::*;

    fn recorder() -> (Recorder, Stories) {
        let clock = Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap());
        let stories = Stories::new(clock.clone());
        (Recorder::new(clock, stories.clone()), stories)
    }

    fn pod() -> Involved {
        Involved::pod(PodIdentity::new("default", "web", "u1"))
    }

    #[tokio::test(start_paused = true)]
    async fn events_of_one_moment_have_names_of_their_own() {
        let (recorder, _) = recorder();
        let queue = recorder.queue();
        for message in ["one", "two", "three", "one"] {
            recorder.event(&pod(), EventType::Warning, reason::FAILED_MOUNT, message);
        }
        let mut firsts = Vec::new();
        while let Some(event) = queue.try_next() {
            firsts.push(event.first);
        }
        assert_eq!(firsts.len(), 4);
        assert_eq!(firsts[3], firsts[0], "it is told again");
        firsts.truncate(3);
        firsts.dedup();
        assert_eq!(firsts.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_reaches_the_story_and_the_queue() {
        let (recorder, stories) = recorder();
        stories.open(&PodIdentity::new("default", "web", "u1"));
        let queue = recorder.queue();
        let container = pod().in_container(ContainerKind::Main, "c");
        recorder.event(&container, EventType::Normal, reason::PULLED, "Container image \"x\" is there");
        tokio::time::advance(Duration::from_secs(1)).await;
        recorder.event(&pod(), EventType::Warning, reason::FAILED_MOUNT, "no such volume");
        tokio::time::advance(Duration::from_secs(7)).await;
        recorder.event(&pod(), EventType::Warning, reason::FAILED_MOUNT, "no such volume");

        let story = stories.story("u1").unwrap();
        let texts: Vec<String> = story
            .entries
            .iter()
            .map(|entry| format!("{} {} x{}", entry.topic, entry.text, entry.count))
            .collect();
        assert_eq!(texts, ["Pulled c: Container image \"x\" is there x1", "FailedMount no such volume x2"]);
        assert!(!story.entries[0].is_warning && story.entries[1].is_warning);

        let first = queue.next().await;
        assert_eq!(&*first.involved.field_path, "spec.containers{c}");
        queue.next().await;
        let last = queue.next().await;
        assert_eq!((last.count, last.event_type), (2, EventType::Warning));
        assert_eq!(last.last.duration_since(last.first), jiff::SignedDuration::from_secs(7));
        assert!(queue.try_next().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_held_back_from_the_queue_but_counted_in_the_story() {
        let (recorder, stories) = recorder();
        stories.open(&PodIdentity::new("default", "web", "u1"));
        let queue = recorder.queue();
        for _ in 0..100 {
            recorder.event(&pod(), EventType::Warning, reason::UNHEALTHY, "the probe failed");
        }
        let mut queued = 0;
        while queue.try_next().is_some() {
            queued += 1;
        }
        assert_eq!((queued, recorder.held_back()), (25, 75));
        assert_eq!(stories.story("u1").unwrap().entries[0].count, 100);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_queue_begins_with_what_was_told_before_it_and_the_next_does_not() {
        let (recorder, _) = recorder();
        recorder.event(&Involved::node("n"), EventType::Normal, reason::STARTING, "Starting kubelet.");
        let first = recorder.queue();
        assert_eq!(&*first.next().await.message, "Starting kubelet.");
        assert!(recorder.queue().try_next().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_is_dropped_is_forgotten() {
        let (recorder, _) = recorder();
        drop(recorder.queue());
        recorder.event(&pod(), EventType::Normal, reason::KILLING, "Stopping container c");
        assert!(recorder.shared.lock().unwrap().queues.is_empty());
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        let text = bounded("ü".repeat(4000).into());
        assert_eq!(text.len(), LONGEST_MESSAGE + '…'.len_utf8());
    }
}
