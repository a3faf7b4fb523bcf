//! The pods that the API server wants on this node, and the mirrors that it has of the node's own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::mirrors::{ByName, Mirrors, ServerMirrors};
use crablet_agent::sources::{CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE, Feed, SourceKind, Wanted};
use crablet_agent::story::{Stories, Teller};
use crablet_api::Text;
use crablet_api::core::{Pod, VolumeSource};
use crablet_client::{Event, Follower};
use crablet_core::translate::{ObjectKind, pod_references};
use crablet_host::clock::Clock;
use crablet_logging::pod_span;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::memory::{Memory, is_referred_to};

/// What is said of where such a pod comes from.
const ORIGIN: &str = "the API server";
/// How long the server has to answer before pods are run from memory.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// How many pods that are left alone are named.
const NAMED: usize = 8;
/// What it is called in stories that the server is away.
const OFFLINE: &str = "offline";

/// Follows the pods of the node.
pub struct PodSource {
    follower: Follower<Pod>,
    feed: Feed,
    mirrors: watch::Sender<ServerMirrors>,
    clock: Clock,
    /// The node's, where it is told who does not answer.
    story: Teller,
    stories: Stories,
    /// Where what the server says is kept, if it is.
    memory: Option<Memory>,
    pods: ByName,
    mirror_pods: ByName,
    lists: u64,
    /// The newest version of a mirror that was told.
    told: Option<u64>,
    origin: Arc<str>,
}

impl PodSource {
    /// One that tells `feed` which pods are wanted, and `mirrors` what the server has of the node's own.
    pub fn new(
        follower: Follower<Pod>,
        feed: Feed,
        clock: Clock,
        story: Teller,
        stories: Stories,
        memory: Option<Memory>,
        mirrors: watch::Sender<ServerMirrors>,
    ) -> PodSource {
        let (pods, mirror_pods, origin) = (ByName::new(), ByName::new(), ORIGIN.into());
        PodSource {
            follower,
            feed,
            mirrors,
            clock,
            story,
            stories,
            memory,
            pods,
            mirror_pods,
            lists: 0,
            told: None,
            origin,
        }
    }

    /// Works until it is dropped. Nothing is said before all pods are known: what is missing in half a list would be
    /// ended. Nor before the server was heard of the node: pods would be turned away by labels that it has and nobody
    /// here knows of. What is remembered may run meanwhile.
    pub async fn run(mut self, mut node_heard: watch::Receiver<bool>) {
        let began = self.clock.now();
        let patience = sleep(ANSWERS_WITHIN);
        tokio::pin!(patience);
        let mut may_remember = self.memory.is_some();
        let mut is_complete = false;
        let mut is_in_trouble = false;
        let mut knows_node = false;
        loop {
            let event = tokio::select! {
                biased;
                event = self.follower.next(), if knows_node => event,
                changed = async { node_heard.wait_for(|heard| *heard).await.is_ok() }, if !knows_node => {
                    if !changed {
                        return;
                    }
                    knows_node = true;
                    continue;
                }
                () = &mut patience, if may_remember => {
                    may_remember = false;
                    self.run_from_memory(began);
                    continue;
                }
            };
            match event {
                Event::All(pods) => {
                    may_remember = false;
                    let count = pods.len();
                    self.take_all(pods);
                    if !is_complete || is_in_trouble {
                        let what = format_args!("the API server has said which pods it wants ({count})");
                        self.story.note("pods", what);
                    }
                    (is_complete, is_in_trouble) = (true, false);
                }
                Event::Set(pod) => {
                    let key = key(&pod);
                    self.note_mirror(&pod);
                    let before = self.pods.get(&key).cloned();
                    self.take(pod, before.clone());
                    self.note(&key, before.as_deref());
                }
                Event::Gone(pod) => {
                    let key = key(&pod);
                    self.note_mirror(&pod);
                    let before = self.pods.get(&key).cloned();
                    self.drop_pod(&pod);
                    self.note(&key, before.as_deref());
                }
                Event::Trouble { error, .. } => {
                    let what = format_args!(
                        "cannot follow the pods of the API server: {error}; those that are known go on"
                    );
                    // Each time is in the story, where they are counted.
                    self.story.warn("pods", what);
                    is_in_trouble = true;
                    continue;
                }
                Event::Resumed => {
                    self.story.note("pods", format_args!("the API server answers again"));
                    is_in_trouble = false;
                    continue;
                }
            }
            if is_complete {
                self.tell();
            }
        }
    }

    /// The server has said what it wants: these, and no others.
    fn take_all(&mut self, pods: Vec<Pod>) {
        self.lists += 1;
        let mut before = std::mem::take(&mut self.pods);
        self.mirror_pods.clear();
        for pod in pods {
            let known = before.get(&key(&pod)).cloned();
            self.take(pod, known);
        }
        let Some(memory) = &self.memory else { return };
        if let Some(since) = memory.away_since() {
            let was_run =
                |pod: &Pod| before.get(&key(pod)).is_some_and(|old| old.metadata.uid == pod.metadata.uid);
            for pod in self.pods.values().filter(|pod| was_run(pod)) {
                let what = format_args!("the API server, away since {since:.0}, answers and wants it");
                self.tell_pod(pod, what);
            }
        }
        for (key, pod) in memory.all_recalled::<Pod>() {
            before.entry(key).or_insert(pod);
        }
        before.retain(|_, pod| is_kept(pod));
        let now = self.pods.iter().filter(|(_, pod)| is_kept(pod));
        memory.keep_all(&before, &now.map(|(key, pod)| (key.clone(), Arc::clone(pod))).collect());
        for (key, gone) in &before {
            if self.pods.get(key).is_none_or(|now| !is_kept(now)) {
                self.forget_references(memory, gone);
            }
        }
        memory.set_away(None);
    }

    /// What the server wants under this name is another, or in another form, than it was before.
    fn note(&self, key: &(Text, Text), before: Option<&Pod>) {
        let Some(memory) = &self.memory else { return };
        let before = before.filter(|pod| is_kept(pod));
        let now = self.pods.get(key).map(|pod| &**pod).filter(|pod| is_kept(pod));
        memory.keep(key, before, now);
        if let (Some(gone), None) = (before, now) {
            self.forget_references(memory, gone);
        }
    }

    /// A pod is not kept any more: neither is what it alone refers to.
    fn forget_references(&self, memory: &Memory, gone: &Pod) {
        let of_kind = |kind: &ObjectKind| match kind {
            ObjectKind::ConfigMap => true,
            ObjectKind::Secret => false,
        };
        for (_, name) in pod_references(gone).into_iter().filter(|(kind, _)| of_kind(kind)) {
            let config_map = (gone.metadata.namespace.clone(), name.into());
            if !is_referred_to(self.pods.values().filter(|pod| is_kept(pod)), &config_map) {
                memory.forget_config_map(&config_map);
            }
        }
    }

    /// The server does not answer: what it wanted when it was last heard runs, but for what may run elsewhere by now, or
    /// needs somebody to say where its volumes are.
    fn run_from_memory(&mut self, since: Timestamp) {
        let Some(memory) = self.memory.clone() else { return };
        let recalled = memory.all_recalled::<Pod>();
        if recalled.is_empty() {
            return;
        }
        memory.set_away(Some(since));
        let mut left = Vec::new();
        for pod in recalled.into_values() {
            match waits_for_server(&pod) {
                Some(why) => left.push(format!("{} {why}", pod.identity())),
                None => {
                    self.tell_pod(
                        &pod,
                        format_args!("is run from memory: the API server has not answered since {since:.0}"),
                    );
                    self.take((*pod).clone(), None);
                }
            }
        }
        let (count, left) = (self.pods.len(), Left(left));
        let what = format_args!(
            "the API server has not answered since {since:.0}; {count} of the pods that it wanted are run from memory{left}"
        );
        self.story.note(OFFLINE, what);
        self.feed.set_remembered(self.wanted());
    }

    fn tell_pod(&self, pod: &Pod, what: fmt::Arguments<'_>) {
        let identity = pod.identity();
        let _span = pod_span(&identity.namespace, &identity.name, &identity.uid).entered();
        self.stories.open(&identity).note(OFFLINE, what);
    }

    /// Takes in a pod that was known so before, if it was. Who holds the one that was known need not hold two that say
    /// the same, nor compare them.
    fn take(&mut self, mut pod: Pod, known: Option<Arc<Pod>>) {
        let key = key(&pod);
        let known = known.filter(|known| known.metadata.uid == pod.metadata.uid);
        let seen = known.as_ref().and_then(|known| known.metadata.annotations.get(CONFIG_SEEN).cloned());
        let (one, other) = match pod.metadata.annotations.get(CONFIG_MIRROR).is_some() {
            true => (&mut self.mirror_pods, &mut self.pods),
            false => {
                let annotations = &mut pod.metadata.annotations;
                annotations.insert(CONFIG_SOURCE, SourceKind::Api.as_str().into());
                let seen = seen.unwrap_or_else(|| format!("{:.9}", self.clock.now()).into());
                annotations.insert(CONFIG_SEEN, seen);
                (&mut self.pods, &mut self.mirror_pods)
            }
        };
        other.remove(&key);
        one.insert(key, known.filter(|known| **known == pod).unwrap_or_else(|| Arc::new(pod)));
    }

    /// One that came and went between two looks is told of by its version alone.
    fn note_mirror(&mut self, pod: &Pod) {
        if pod.metadata.annotations.contains_key(CONFIG_MIRROR) {
            self.told = self.told.max(version(pod));
        }
    }

    fn drop_pod(&mut self, pod: &Pod) {
        let key = key(pod);
        for pods in [&mut self.pods, &mut self.mirror_pods] {
            if pods.get(&key).is_some_and(|known| known.metadata.uid == pod.metadata.uid) {
                pods.remove(&key);
            }
        }
    }

    fn wanted(&self) -> Vec<Wanted> {
        let wanted = |pod: &Arc<Pod>| Wanted { pod: Arc::clone(pod), origin: Arc::clone(&self.origin) };
        self.pods.values().map(wanted).collect()
    }

    fn tell(&self) {
        self.feed.set(self.wanted());
        self.mirrors.send_if_modified(|mirrors| {
            let is_same = mirrors.as_ref().is_some_and(|Mirrors { pods, lists, told }| {
                (*lists, *told) == (self.lists, self.told)
                    && pods.len() == self.mirror_pods.len()
                    && pods.iter().zip(&self.mirror_pods).all(|(one, other)| Arc::ptr_eq(one.1, other.1))
            });
            if !is_same {
                let pods = Arc::new(self.mirror_pods.clone());
                *mirrors = Some(Mirrors { pods, lists: self.lists, told: self.told });
            }
            !is_same
        });
    }
}

/// Whether a pod is kept: not one that is over, or to go.
fn is_kept(pod: &Pod) -> bool {
    !pod.status.is_over() && pod.metadata.deletion_timestamp.is_none()
}

/// Why a pod is not run before the API server answers, if it is not.
fn waits_for_server(pod: &Pod) -> Option<&'static str> {
    let has_claim = || {
        pod.spec.volumes.iter().filter_map(|volume| volume.source.one()).any(|source| {
            matches!(source, VolumeSource::PersistentVolumeClaim(_) | VolumeSource::Ephemeral(_))
        })
    };
    let is_of_set = || pod.metadata.owner_references.iter().any(|owner| owner.kind == "StatefulSet");
    if !is_kept(pod) {
        Some("is to go, or over")
    } else if is_of_set() {
        Some("belongs to a StatefulSet")
    } else {
        has_claim().then_some("has a PersistentVolumeClaim")
    }
}

/// The pods that are left alone, and why.
struct Left(Vec<String>);

impl fmt::Display for Left {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Left(pods) = self;
        if pods.is_empty() {
            return Ok(());
        }
        let named = pods.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        write!(formatter, "; these are left as they are until it answers: {named}")?;
        match pods.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(formatter, " and {more} more"),
        }
    }
}

/// What a version is counted by. One that is no number is not compared: the watch is believed.
pub(crate) fn version(pod: &Pod) -> Option<u64> {
    pod.metadata.resource_version.parse().ok()
}

pub(crate) fn key(pod: &Pod) -> (Text, Text) {
    (pod.metadata.namespace.clone(), pod.metadata.name.clone())
}
