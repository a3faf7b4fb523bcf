//! [`PodConfig`]: joins the words of all sources into one stream of changes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_api::Text;
use crablet_host::clock::Clock;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::changes::Message;
use super::feed::Inbox;
use super::problems::{Consequence, Found};
use super::storage::{Merged, Storage};
use super::{Changes, Feed, Problems, SourceKind, Wanted};
use crate::pod_span::pod_span;

/// How many changes may wait for the one who acts on them.
const WAITING_CHANGES: usize = 64;
/// Under what name clashes within a source are kept among its problems.
const CLASHES: &str = "(clashes)";

/// Joins the words of all sources into one stream of changes.
pub struct PodConfig {
    inbox: Arc<Inbox>,
    configured: BTreeSet<SourceKind>,
    storage: Arc<Mutex<Storage>>,
    messages: mpsc::Sender<Message>,
    problems: Problems,
    clock: Clock,
}

impl PodConfig {
    /// One without sources yet, and where its changes come out.
    pub fn new(clock: Clock, problems: Problems) -> (PodConfig, Changes) {
        let (messages, changes) = Changes::channel(WAITING_CHANGES);
        let config = PodConfig {
            inbox: Arc::default(),
            configured: BTreeSet::new(),
            storage: Arc::default(),
            messages,
            problems,
            clock,
        };
        (config, changes)
    }

    /// Adds a source. All of them are waited for before the sources are ready.
    pub fn feed(&mut self, kind: SourceKind) -> Feed {
        self.configured.insert(kind);
        self.inbox.feed(kind)
    }

    /// A handle that knows who wants which pod.
    pub fn owners(&self) -> Owners {
        Owners(self.storage.clone())
    }

    /// Works until nobody takes the changes any more, or all sources have ended.
    pub async fn run(self) {
        let mut silent = self.configured.clone();
        let mut is_ready = false;
        loop {
            if silent.is_empty() && !is_ready {
                is_ready = true;
                if self.messages.send(Message::Ready).await.is_err() {
                    return;
                }
            }
            let Some((source, word)) = self.inbox.next().await else { return };
            let mut changes = Vec::new();
            if !word.ended.is_empty() {
                let goes_on = |wanted: &&Wanted| !word.ended.contains(&wanted.pod.metadata.uid);
                changes = self.merge(source, word.pods.iter().filter(goes_on).cloned().collect()).changes;
            }
            changes.extend(self.merge(source, word.pods).changes);
            for change in changes {
                if self.messages.send(Message::Change(change)).await.is_err() {
                    return;
                }
            }
            if !word.is_remembered {
                silent.remove(&source);
            }
        }
    }

    fn merge(&self, source: SourceKind, pods: Vec<Wanted>) -> Merged {
        let now = format!("{:.9}", self.clock.now());
        debug!(%source, pods = pods.len(), "Setting pods for source");
        let merged = lock(&self.storage).merge(source, pods, &now);
        let problems = merged.refused.iter().map(|refused| Found {
            origin: refused.origin.to_string(),
            line: 0,
            message: refused.why.clone(),
        });
        self.problems.set(source, CLASHES, Consequence::Ignored, problems.collect());
        self.mention_shared_names(source, &merged);
        merged
    }

    /// Two sources that want a pod of the same name is no error: one of the pods will wait for the other to be gone.
    /// But it is hardly what somebody meant.
    fn mention_shared_names(&self, source: SourceKind, merged: &Merged) {
        let storage = lock(&self.storage);
        for change in &merged.changes {
            let super::Change::Add(pod) = change else { continue };
            let metadata = &pod.metadata;
            let is_other = |kind: SourceKind| kind != source && kind.is_static() == source.is_static();
            let other = storage.owners(&metadata.namespace, &metadata.name, is_other).next();
            if let Some((kind, wanted)) = other {
                let _span = pod_span(&pod.identity()).entered();
                warn!(
                    %source, other_source = %kind, other = %wanted.origin,
                    "Two sources want a pod of this name; the one that came later waits until the other is gone"
                );
            }
        }
    }
}

/// Knows who wants which pod.
#[derive(Clone)]
pub struct Owners(Arc<Mutex<Storage>>);

/// Who wants a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// What kind of source it is.
    pub source: SourceKind,
    /// The file or the address that asks for it.
    pub origin: Arc<str>,
    /// The UID of the pod that it wants.
    pub uid: Text,
}

impl Owners {
    /// Who wants a pod of that name.
    pub fn of(&self, namespace: &str, name: &str) -> Vec<Owner> {
        let storage = lock(&self.0);
        let owner = |(source, wanted): (SourceKind, &Wanted)| Owner {
            source,
            origin: wanted.origin.clone(),
            uid: wanted.pod.metadata.uid.clone(),
        };
        storage.owners(namespace, name, |_| true).map(owner).collect()
    }
}

fn lock(storage: &Mutex<Storage>) -> MutexGuard<'_, Storage> {
    storage.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::testing::pod;
    use std::time::Duration;
    use tokio::time::timeout;

    fn wanted(name: &str) -> Wanted {
        Wanted { pod: Arc::new(pod(name).build()), origin: format!("the file of {name}").into() }
    }

    fn config() -> (PodConfig, Changes) {
        PodConfig::new(Clock::simulated("2026-11-15T03:46:00.5Z".parse().unwrap()), Problems::new())
    }

    async fn next(changes: &mut Changes) -> String {
        timeout(Duration::from_secs(5), changes.next())
            .await
            .unwrap()
            .map_or("end".into(), |it| format!("{it:?}"))
    }

    async fn nothing(changes: &mut Changes) {
        let waited = timeout(Duration::from_secs(5), changes.next()).await;
        assert!(waited.is_err(), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn sources_are_ready_when_all_were_heard_and_what_they_said_was_taken() {
        let (mut config, mut changes) = config();
        let (file, url) = (config.feed(SourceKind::File), config.feed(SourceKind::Url));
        let ready = changes.sources_ready();
        tokio::spawn(config.run());
        file.set(vec![]);
        nothing(&mut changes).await;
        assert!(!ready.is_ready());
        url.set(vec![wanted("a"), wanted("b")]);
        assert_eq!(next(&mut changes).await, "ADD default/a(uid-a)");
        assert!(!ready.is_ready());
        assert_eq!(next(&mut changes).await, "ADD default/b(uid-b)");
        // It is in somebody's hands, but they have not come back from it.
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!ready.is_ready());
        nothing(&mut changes).await;
        assert!(ready.is_ready());
        let mut waiting = ready.clone();
        timeout(Duration::from_secs(5), waiting.ready()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_its_source_had_not_in_between_begins_anew_though_nobody_looked_then() {
        let (mut config, mut changes) = config();
        let file = config.feed(SourceKind::File);
        tokio::spawn(config.run());
        file.set(vec![wanted("a"), wanted("b")]);
        assert_eq!(next(&mut changes).await, "ADD default/a(uid-a)");
        assert_eq!(next(&mut changes).await, "ADD default/b(uid-b)");
        file.set_anew(vec![wanted("b"), wanted("a")], BTreeSet::from(["uid-b".into(), "uid-gone".into()]));
        // What was not heard yet is not forgotten by what comes after it.
        file.set(vec![wanted("a"), wanted("b")]);
        assert_eq!(next(&mut changes).await, "REMOVE default/b(uid-b)");
        assert_eq!(next(&mut changes).await, "ADD default/b(uid-b)");
        nothing(&mut changes).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_is_not_heard_by_what_is_remembered_of_it() {
        let (mut config, mut changes) = config();
        let api = config.feed(SourceKind::Api);
        let ready = changes.sources_ready();
        tokio::spawn(config.run());
        api.set_remembered(vec![wanted("a"), wanted("b")]);
        assert_eq!(next(&mut changes).await, "ADD default/a(uid-a)");
        assert_eq!(next(&mut changes).await, "ADD default/b(uid-b)");
        nothing(&mut changes).await;
        assert!(!ready.is_ready());
        api.set(vec![wanted("b")]);
        assert_eq!(next(&mut changes).await, "REMOVE default/a(uid-a)");
        nothing(&mut changes).await;
        assert!(ready.is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_without_sources_is_ready() {
        let (config, mut changes) = config();
        let ready = changes.sources_ready();
        tokio::spawn(config.run());
        assert_eq!(next(&mut changes).await, "end");
        assert!(ready.is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_word_of_a_source_counts() {
        let (mut config, mut changes) = config();
        let api = config.feed(SourceKind::Api);
        api.set(vec![wanted("a")]);
        api.set(vec![wanted("b")]);
        tokio::spawn(config.run());
        assert_eq!(next(&mut changes).await, "ADD default/b(uid-b)");
        nothing(&mut changes).await;
        api.set(vec![]);
        assert_eq!(next(&mut changes).await, "REMOVE default/b(uid-b)");
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_ends_leaves_its_pods() {
        let (mut config, mut changes) = config();
        let (file, api) = (config.feed(SourceKind::File), config.feed(SourceKind::Api));
        let running = tokio::spawn(config.run());
        file.set(vec![wanted("a")]);
        drop(file);
        assert_eq!(next(&mut changes).await, "ADD default/a(uid-a)");
        nothing(&mut changes).await;
        drop(api);
        assert_eq!(next(&mut changes).await, "end");
        running.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn more_changes_than_are_held_wait_for_their_reader() {
        let (mut config, mut changes) = config();
        let api = config.feed(SourceKind::Api);
        let running = tokio::spawn(config.run());
        api.set((0..WAITING_CHANGES * 3).map(|index| wanted(&format!("p{index:04}"))).collect());
        for index in 0..WAITING_CHANGES * 3 {
            assert_eq!(next(&mut changes).await, format!("ADD default/p{index:04}(uid-p{index:04})"));
        }
        // And when it does not come back, nobody waits for it.
        api.set(vec![]);
        drop(changes);
        running.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_known_who_wants_a_pod_and_clashes_are_problems() {
        let (mut config, mut changes) = config();
        let file = config.feed(SourceKind::File);
        let (owners, problems) = (config.owners(), config.problems.clone());
        tokio::spawn(config.run());
        file.set(vec![wanted("a"), wanted("a")]);
        assert_eq!(next(&mut changes).await, "ADD default/a(uid-a)");
        assert_eq!(
            owners.of("default", "a"),
            [Owner { source: SourceKind::File, origin: "the file of a".into(), uid: "uid-a".into() }]
        );
        assert_eq!(owners.of("other", "a"), []);
        assert_eq!(
            problems.list()[0].to_string(),
            "the file of a: Error validating pod a_default(uid-a) from file due to duplicate pod name \"a\", ignoring"
        );
        file.set(vec![]);
        assert_eq!(next(&mut changes).await, "REMOVE default/a(uid-a)");
        assert_eq!((owners.of("default", "a"), problems.list()), (vec![], vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_a_pod_is_first_seen_is_written_as_upstream_writes_it() {
        let (mut config, mut changes) = config();
        let file = config.feed(SourceKind::File);
        tokio::spawn(config.run());
        file.set(vec![wanted("a")]);
        let change = changes.next().await.unwrap();
        let seen = &change.pod().metadata.annotations[super::super::CONFIG_SEEN];
        assert_eq!(*seen, "2026-11-15T03:46:00.500000000Z");
    }
}
