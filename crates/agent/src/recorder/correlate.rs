//! Which events are the same, which are similar, and which are too many: upstream's rules and numbers.
//!
//! The same event (object, part, type, reason and message) is one that counts. Similar ones differ in their message
//! alone: from the tenth on within ten minutes they are combined into one whose message is the latest. And about one
//! object there are at most 25 events of a type at once, and one every five minutes after that.
//!
//! Upstream keeps the texts of the last 4,096 of each; here it is digests of them, at an eighth of the memory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crablet_api::Text;
use jiff::Timestamp;
use tokio::time::Instant;

use super::bucket::{Bucket, Rate};
use super::lru::{Key, Lru};
use super::{EventType, Involved};

/// How many events, groups of similar ones and objects are remembered.
const REMEMBERED: usize = 4096;
/// This many different messages make similar events one.
const SIMILAR: usize = 10;
/// A group of similar events begins anew when nothing came for so long.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// How many events there may be about one object.
const PER_OBJECT: Rate = Rate { burst: 25, every: Duration::from_secs(300) };

/// An event as it is recorded.
pub(super) struct Draft<'a> {
    pub(super) involved: &'a Involved,
    pub(super) event_type: EventType,
    pub(super) reason: &'a str,
    pub(super) message: &'a Text,
}

/// An event as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Correlated {
    pub(super) message: Text,
    pub(super) count: u32,
    pub(super) first: Timestamp,
    /// It stands for several similar ones.
    pub(super) is_combined: bool,
    /// There are too many about its object.
    pub(super) is_spam: bool,
}

/// What is remembered of earlier events.
#[derive(Debug)]
pub(super) struct Correlator {
    similar: Lru<Similar>,
    same: Lru<Same>,
    objects: Lru<Bucket>,
}

/// The messages of similar events, the oldest first: one less than makes them too many.
#[derive(Debug)]
struct Similar {
    last: Instant,
    messages: [u32; SIMILAR - 1],
    known: u8,
}

#[derive(Debug)]
struct Same {
    count: u32,
    first: Timestamp,
}

impl Default for Correlator {
    fn default() -> Correlator {
        Correlator {
            similar: Lru::new(REMEMBERED),
            same: Lru::new(REMEMBERED),
            objects: Lru::new(REMEMBERED),
        }
    }
}

impl Correlator {
    /// What becomes of an event at `now`, which is `at` on the clock.
    pub(super) fn correlate(&mut self, draft: &Draft<'_>, now: Instant, at: Timestamp) -> Correlated {
        let Draft { involved, event_type, reason, message } = draft;
        let object = (&involved.object, *event_type);
        let group = digest("similar", &(&object, *reason));

        let similar = self.similar.entry(group, || Similar::new(now));
        let is_combined = similar.is_too_many(message, now);
        let (key, message) = if is_combined {
            (group, format!("(combined from similar events): {message}").into())
        } else {
            (digest("same", &(&object, &involved.field_path, *reason, message)), (*message).clone())
        };

        let same = self.same.entry(key, || Same { count: 0, first: at });
        same.count = same.count.saturating_add(1);

        let bucket = self.objects.entry(digest("object", &object), || Bucket::full(now));
        let is_spam = !bucket.try_take(PER_OBJECT, now);
        Correlated { message, count: same.count, first: same.first, is_combined, is_spam }
    }
}

impl Similar {
    fn new(now: Instant) -> Similar {
        Similar { last: now, messages: [0; SIMILAR - 1], known: 0 }
    }

    /// Takes a message in, and says whether there are too many different ones to keep them apart.
    fn is_too_many(&mut self, message: &str, now: Instant) -> bool {
        if now.duration_since(self.last) > SIMILAR_WITHIN {
            self.known = 0;
        }
        self.last = now;
        let message = digest("message", message) as u32;
        let known = usize::from(self.known);
        if self.messages[..known].contains(&message) {
            return false;
        }
        if let Some(free) = self.messages.get_mut(known) {
            *free = message;
            self.known += 1;
            return false;
        }
        self.messages.rotate_left(1);
        self.messages[SIMILAR - 2] = message;
        true
    }
}

/// A digest with a fixed seed, so that runs replay. Two of 64 bits, because one could be made to collide.
fn digest(domain: &str, value: &(impl Hash + ?Sized)) -> Key {
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        domain.hash(&mut hasher);
        value.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

#[cfg(test)]
mod tests {
    use crablet_api::core::PodIdentity;

    use super::*;
    use crate::recorder::ContainerKind;

    /// Tells events of a pod, at seconds.
    struct Listener {
        correlator: Correlator,
        start: Instant,
        involved: Involved,
    }

    impl Listener {
        fn new() -> Listener {
            Listener {
                correlator: Correlator::default(),
                start: Instant::now(),
                involved: Involved::pod(PodIdentity::new("default", "web", "u1")),
            }
        }

        fn tell(&mut self, seconds: u64, event_type: EventType, reason: &str, message: &str) -> Correlated {
            let message = Text::from(message);
            let draft = Draft { involved: &self.involved, event_type, reason, message: &message };
            let passed = Duration::from_secs(seconds);
            self.correlator.correlate(&draft, self.start + passed, Timestamp::UNIX_EPOCH + passed)
        }

        fn warn(&mut self, seconds: u64, message: &str) -> Correlated {
            self.tell(seconds, EventType::Warning, "Unhealthy", message)
        }
    }

    #[test]
    fn the_same_event_counts_and_keeps_its_first_time() {
        let mut told = Listener::new();
        let counts: Vec<u32> = (0..5).map(|second| told.warn(second, "m").count).collect();
        assert_eq!(counts, [1, 2, 3, 4, 5]);
        assert_eq!(told.warn(9, "m").first, Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn what_differs_in_anything_is_another_event() {
        let mut told = Listener::new();
        told.warn(0, "m");
        assert_eq!(told.warn(0, "n").count, 1);
        assert_eq!(told.tell(0, EventType::Normal, "Unhealthy", "m").count, 1);
        assert_eq!(told.tell(0, EventType::Warning, "Failed", "m").count, 1);
        told.involved = told.involved.in_container(ContainerKind::Main, "c");
        assert_eq!(told.warn(0, "m").count, 1);
        told.involved = Involved::pod(PodIdentity::new("default", "web", "u2"));
        assert_eq!(told.warn(0, "m").count, 1);
    }

    #[test]
    fn from_the_tenth_message_on_similar_events_are_one() {
        let mut told = Listener::new();
        let told: Vec<Correlated> = (0..14).map(|number| told.warn(number, &format!("m{number}"))).collect();
        assert!(told[..9].iter().all(|event| event.count == 1 && !event.is_combined));
        for (number, event) in (9..14).zip(&told[9..]) {
            assert_eq!(&*event.message, format!("(combined from similar events): m{number}"));
            assert_eq!((event.count, event.is_combined), (number - 8, true));
            assert_eq!(event.first, told[9].first);
        }
    }

    #[test]
    fn a_message_that_is_known_is_not_combined_with_others() {
        let mut told = Listener::new();
        (0..9).for_each(|number| _ = told.warn(0, &format!("m{number}")));
        let known = told.warn(0, "m4");
        assert_eq!((&*known.message, known.count, known.is_combined), ("m4", 2, false));
        assert!(told.warn(0, "new").is_combined);
    }

    #[test]
    fn similar_events_are_kept_apart_again_after_ten_quiet_minutes() {
        let mut told = Listener::new();
        (0..10).for_each(|number| _ = told.warn(0, &format!("m{number}")));
        assert!(told.warn(600, "a").is_combined);
        assert!(!told.warn(1201, "b").is_combined);
    }

    #[test]
    fn an_object_has_25_events_of_a_type_and_then_one_every_five_minutes() {
        let mut told = Listener::new();
        let passed = (0..1000).filter(|second| !told.warn(*second, "m").is_spam).collect::<Vec<u64>>();
        assert_eq!(passed[..25], (0..25).collect::<Vec<u64>>());
        assert_eq!(passed[25..], [300, 600, 900]);
        assert!(!told.tell(1000, EventType::Normal, "Killing", "m").is_spam, "the other type has its own");
        assert_eq!(told.warn(1000, "m").count, 1001, "what is held back counts too");
    }

    #[test]
    fn of_many_objects_the_latest_are_remembered() {
        let mut told = Listener::new();
        for number in 0..5000 {
            told.involved = Involved::pod(PodIdentity::new("default", "web", format!("u{number}")));
            told.warn(0, "m");
        }
        assert_eq!(told.warn(1, "m").count, 2);
        told.involved = Involved::pod(PodIdentity::new("default", "web", "u0"));
        assert_eq!(told.warn(1, "m").count, 1);
    }
}
