//! The story of each pod: what was decided and done, when, why, and how long it took. `crablet explain` tells it.
//!
//! A pod's worker opens the story and gets a [`Teller`] to tell it with: a headline (what the pod is and why, the
//! answer to "why is my pod not running"), notes on decisions, and steps with their duration. What is told is said
//! once: the teller puts notes and steps into the log, too, and the event recorder, which has the log's and the API
//! server's share of events, adds the pod's to its story. A [`Story`] is a copy to read, as text ([`Story::explain`]) or as JSON.
//!
//! Everything is bounded: a story by entries and bytes, where what is told again is merged with what was told before
//! and the oldest entry goes first; and the stories of pods that are gone by their number. A story must not hold a
//! secret: leaving it out is up to whoever tells it.

mod explain;
mod headline;
mod ring;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_api::Text;
use crablet_api::core::PodIdentity;
use crablet_host::clock::Clock;
use jiff::Timestamp;
use tracing::{info, warn};

pub use explain::{Story, Summary, since};
pub use headline::{Headline, State};
pub use ring::Entry;

use ring::Ring;
pub(crate) use ring::Telling;

/// How many pods that are gone are remembered.
const GONE: usize = 64;

/// The stories of all pods, and of the last ones that are gone. Clones show the same.
#[derive(Debug, Clone)]
pub struct Stories {
    clock: Clock,
    shelf: Arc<Mutex<Shelf>>,
}

#[derive(Debug, Default)]
struct Shelf {
    live: BTreeMap<Text, Arc<Mutex<Book>>>,
    /// The one that went last is last.
    gone: VecDeque<Arc<Mutex<Book>>>,
}

/// What has been told of a pod.
#[derive(Debug)]
struct Book {
    pod: PodIdentity,
    headline: Headline,
    gone: Option<Timestamp>,
    ring: Ring,
}

impl Stories {
    /// No stories yet. The clock says when things happen.
    pub fn new(clock: Clock) -> Stories {
        Stories { clock, shelf: Arc::default() }
    }

    /// Opens the story of a pod, or goes on with the one that there is.
    pub fn open(&self, pod: &PodIdentity) -> Teller {
        let mut shelf = self.shelf();
        let told = match shelf.live.get(&pod.uid) {
            Some(told) => told.clone(),
            None => {
                let returned = shelf.take_back(&pod.uid);
                let told = returned.unwrap_or_else(|| Arc::new(Mutex::new(self.begin(pod))));
                shelf.live.insert(pod.uid.clone(), told.clone());
                told
            }
        };
        Teller { clock: self.clock.clone(), told }
    }

    /// Puts the story of a pod that is gone aside. It is kept for a while, for those who ask why the pod vanished.
    pub fn close(&self, uid: &str) {
        let mut shelf = self.shelf();
        let Some(told) = shelf.live.remove(uid) else { return };
        lock(&told).gone = Some(self.clock.now());
        if shelf.gone.len() >= GONE {
            shelf.gone.pop_front();
        }
        shelf.gone.push_back(told);
    }

    /// The story of a pod by its UID, also of one that went not long ago.
    pub fn story(&self, uid: &str) -> Option<Story> {
        self.find(uid).into_iter().find(|story| story.summary.pod.uid == uid)
    }

    /// The stories of the pods that one could mean: by UID, by `namespace/name`, or by name in any namespace. Those
    /// that are gone come last, the latest of them first.
    pub fn find(&self, pod: &str) -> Vec<Story> {
        self.shelf()
            .all()
            .filter_map(|told| {
                let told = lock(told);
                told.is_meant_by(pod).then(|| told.story())
            })
            .collect()
    }

    /// Every pod with its headline, in the same order.
    pub fn summaries(&self) -> Vec<Summary> {
        self.shelf().all().map(|told| lock(told).summary()).collect()
    }

    /// Adds an event to the story of the pod it is about, if that has one.
    pub(crate) fn event(&self, uid: &str, telling: Telling<'_>) {
        let told = self.shelf().live.get(uid).cloned();
        if let Some(told) = told {
            lock(&told).ring.tell(telling, self.clock.now());
        }
    }

    fn begin(&self, pod: &PodIdentity) -> Book {
        Book {
            pod: pod.clone(),
            headline: Headline::first(self.clock.now()),
            gone: None,
            ring: Ring::default(),
        }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        lock(&self.shelf)
    }
}

impl Shelf {
    fn take_back(&mut self, uid: &str) -> Option<Arc<Mutex<Book>>> {
        let place = self.gone.iter().position(|told| lock(told).pod.uid == uid)?;
        let told = self.gone.remove(place)?;
        lock(&told).gone = None;
        Some(told)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Mutex<Book>>> {
        self.live.values().chain(self.gone.iter().rev())
    }
}

impl Book {
    fn is_meant_by(&self, text: &str) -> bool {
        let PodIdentity { namespace, name, uid } = &self.pod;
        match text.split_once('/') {
            Some((wanted, name_in_it)) => *namespace == *wanted && *name == *name_in_it,
            None => *uid == *text || *name == *text,
        }
    }

    fn summary(&self) -> Summary {
        Summary { pod: self.pod.clone(), headline: self.headline.clone(), gone: self.gone }
    }

    fn story(&self) -> Story {
        Story { summary: self.summary(), entries: self.ring.entries(), forgotten: self.ring.forgotten() }
    }
}

/// Tells the story of one pod, and the log: whoever tells is in the pod's span, which names it there. Clones tell the
/// same one.
#[derive(Debug, Clone)]
pub struct Teller {
    clock: Clock,
    told: Arc<Mutex<Book>>,
}

impl Teller {
    /// Says what the pod is, and why or what it waits for. The words follow the state's own (see [`State`]). Saying
    /// the same again changes nothing and allocates nothing, so that a worker can say it whenever it looked.
    pub fn headline(&self, state: State, because: fmt::Arguments<'_>) {
        let mut told = lock(&self.told);
        if !told.headline.says(state, because) {
            told.headline = Headline::new(state, because, self.clock.now());
        }
    }

    /// Notes a decision: a topic of a word or two, and the reason in a few more.
    pub fn note(&self, topic: &str, text: fmt::Arguments<'_>) {
        self.tell(Telling { topic, text, took: None, is_warning: false, is_combined: false });
    }

    /// Notes a reason for concern.
    pub fn warn(&self, topic: &str, text: fmt::Arguments<'_>) {
        self.tell(Telling { topic, text, took: None, is_warning: true, is_combined: false });
    }

    /// Notes a step that is done, and how long it took.
    pub fn step(&self, topic: &str, took: Duration, text: fmt::Arguments<'_>) {
        self.tell(Telling { topic, text, took: Some(took), is_warning: false, is_combined: false });
    }

    /// Notes a step that failed, after how long.
    pub fn failed(&self, topic: &str, took: Duration, text: fmt::Arguments<'_>) {
        self.tell(Telling { topic, text, took: Some(took), is_warning: true, is_combined: false });
    }

    /// Notes what the log has from whoever found it out.
    pub fn note_logged(&self, topic: &str, text: fmt::Arguments<'_>) {
        let telling = Telling { topic, text, took: None, is_warning: false, is_combined: false };
        lock(&self.told).ring.tell(telling, self.clock.now());
    }

    /// The story as it stands.
    pub fn story(&self) -> Story {
        lock(&self.told).story()
    }

    fn tell(&self, telling: Telling<'_>) {
        log(&telling);
        lock(&self.told).ring.tell(telling, self.clock.now());
    }
}

fn log(telling: &Telling<'_>) {
    let Telling { topic, text, took, is_warning, is_combined: _ } = telling;
    let took = took.map(tracing::field::debug);
    match is_warning {
        false => info!(took, "{topic}: {text}"),
        true => warn!(took, "{topic}: {text}"),
    }
}

/// A panic while telling leaves at worst an entry half told.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stories() -> Stories {
        Stories::new(Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap()))
    }

    fn texts(story: &Story) -> Vec<String> {
        story.entries.iter().map(|entry| format!("{}: {}", entry.topic, entry.text)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_story_is_found_by_uid_by_name_and_by_namespace_and_name() {
        let stories = stories();
        let _one = stories.open(&PodIdentity::new("default", "web", "u1"));
        let _other = stories.open(&PodIdentity::new("kube-system", "web", "u2"));
        let found = |text| {
            stories.find(text).iter().map(|story| story.summary.pod.uid.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(found("u1"), ["u1"]);
        assert_eq!(found("web"), ["u1", "u2"]);
        assert_eq!(found("kube-system/web"), ["u2"]);
        assert_eq!(found("kube-system/u2"), [""; 0]);
        assert_eq!(stories.story("u2").unwrap().summary.pod.namespace, "kube-system");
        assert!(stories.story("web").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_pods_that_are_gone_are_remembered() {
        let stories = stories();
        for number in 0..70 {
            let teller = stories.open(&PodIdentity::new("default", "web", format!("u{number}")));
            teller.note("Removed", format_args!("its manifest went"));
            stories.close(&format!("u{number}"));
        }
        let gone = stories.find("web");
        assert_eq!(gone.len(), GONE);
        assert_eq!((&*gone[0].summary.pod.uid, &*gone[63].summary.pod.uid), ("u69", "u6"));
        assert!(gone.iter().all(|story| story.summary.gone.is_some()));
        assert_eq!(texts(&gone[0]), ["Removed: its manifest went"]);
        assert_eq!(stories.summaries().len(), GONE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_comes_back_goes_on_with_its_story() {
        let stories = stories();
        let teller = stories.open(&PodIdentity::new("default", "web", "u1"));
        teller.note("Admitted", format_args!("it fits"));
        stories.close("u1");
        let again = stories.open(&PodIdentity::new("default", "web", "u1"));
        again.note("Admitted", format_args!("it still fits"));
        let story = stories.story("u1").unwrap();
        assert_eq!(texts(&story), ["Admitted: it fits", "Admitted: it still fits"]);
        assert_eq!(story.summary.gone, None);
        assert_eq!(stories.find("web").len(), 1);
        stories.open(&PodIdentity::new("default", "web", "u1")).note("Same", format_args!("story"));
        assert_eq!(again.story().entries.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_headline_that_stays_the_same_keeps_its_time() {
        let stories = stories();
        let teller = stories.open(&PodIdentity::new("default", "web", "u1"));
        let say = |image| teller.headline(State::Waiting, format_args!("image {image:?}"));
        say("a");
        let since = teller.story().summary.headline.since;
        tokio::time::advance(Duration::from_secs(5)).await;
        say("a");
        assert_eq!(teller.story().summary.headline.since, since);
        say("b");
        assert_eq!(teller.story().summary.headline.since, since + jiff::SignedDuration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn events_of_pods_without_a_story_leave_none_behind() {
        let stories = stories();
        let text = format_args!("x");
        let telling = Telling { topic: "Killing", text, took: None, is_warning: false, is_combined: false };
        stories.event("unknown", telling);
        stories.close("unknown");
        assert_eq!(stories.summaries(), []);
    }
}
