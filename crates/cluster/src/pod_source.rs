//! The pods that the API server wants on this node, and the mirrors that it has of the node's own.

use std::collections::BTreeMap;
use std::sync::Arc;

use crablet_agent::sources::{CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE, Feed, SourceKind, Wanted};
use crablet_agent::story::Teller;
use crablet_api::Text;
use crablet_api::core::Pod;
use crablet_client::{Event, Follower};
use crablet_host::clock::Clock;
use tokio::sync::watch;

/// Pods by namespace and name.
pub type ByName = BTreeMap<(Text, Text), Arc<Pod>>;

/// What the API server has of the node's static pods: nothing before its first complete list.
pub type ServerMirrors = Option<Arc<ByName>>;

/// What is said of where such a pod comes from.
const ORIGIN: &str = "the API server";

/// Follows the pods of the node.
pub struct PodSource {
    follower: Follower<Pod>,
    feed: Feed,
    mirrors: watch::Sender<ServerMirrors>,
    clock: Clock,
    /// The node's, where it is told who does not answer.
    story: Teller,
    pods: ByName,
    mirror_pods: ByName,
    origin: Arc<str>,
}

impl PodSource {
    /// One that tells `feed` which pods are wanted, and where its mirrors are told.
    pub fn new(
        follower: Follower<Pod>,
        feed: Feed,
        clock: Clock,
        story: Teller,
    ) -> (PodSource, watch::Receiver<ServerMirrors>) {
        let (mirrors, known) = watch::channel(None);
        let (pods, mirror_pods) = (ByName::new(), ByName::new());
        let source =
            PodSource { follower, feed, mirrors, clock, story, pods, mirror_pods, origin: ORIGIN.into() };
        (source, known)
    }

    /// Works until it is dropped. Nothing is said before all pods are known: what is missing in half a list would be
    /// ended.
    pub async fn run(mut self) {
        let mut is_complete = false;
        let mut is_in_trouble = false;
        loop {
            match self.follower.next().await {
                Event::All(pods) => {
                    let count = pods.len();
                    self.pods.clear();
                    self.mirror_pods.clear();
                    for pod in pods {
                        self.take(pod);
                    }
                    if !is_complete || is_in_trouble {
                        let what = format_args!("the API server has said which pods it wants ({count})");
                        self.story.note("pods", what);
                    }
                    (is_complete, is_in_trouble) = (true, false);
                }
                Event::Set(pod) => self.take(pod),
                Event::Gone(pod) => self.drop_pod(&pod),
                Event::Trouble { error, again_in } => {
                    let what = format_args!(
                        "cannot follow the pods of the API server: {error}; those that are known go on"
                    );
                    // Each time is in the story, where they are counted.
                    self.story.failed("pods", again_in, what);
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

    fn take(&mut self, mut pod: Pod) {
        let key = key(&pod);
        let (one, other) = match pod.metadata.annotations.get(CONFIG_MIRROR).is_some() {
            true => (&mut self.mirror_pods, &mut self.pods),
            false => {
                let annotations = &mut pod.metadata.annotations;
                annotations.insert(CONFIG_SOURCE, SourceKind::Api.as_str().into());
                annotations.insert(CONFIG_SEEN, format!("{:.9}", self.clock.now()).into());
                (&mut self.pods, &mut self.mirror_pods)
            }
        };
        other.remove(&key);
        one.insert(key, Arc::new(pod));
    }

    fn drop_pod(&mut self, pod: &Pod) {
        let key = key(pod);
        for pods in [&mut self.pods, &mut self.mirror_pods] {
            if pods.get(&key).is_some_and(|known| known.metadata.uid == pod.metadata.uid) {
                pods.remove(&key);
            }
        }
    }

    fn tell(&self) {
        let wanted = |pod: &Arc<Pod>| Wanted { pod: Arc::clone(pod), origin: Arc::clone(&self.origin) };
        self.feed.set(self.pods.values().map(wanted).collect());
        self.mirrors.send_if_modified(|mirrors| {
            let is_same = mirrors.as_deref().is_some_and(|known| {
                known.len() == self.mirror_pods.len()
                    && known.iter().zip(&self.mirror_pods).all(|(one, other)| Arc::ptr_eq(one.1, other.1))
            });
            if !is_same {
                *mirrors = Some(Arc::new(self.mirror_pods.clone()));
            }
            !is_same
        });
    }
}

pub(crate) fn key(pod: &Pod) -> (Text, Text) {
    (pod.metadata.namespace.clone(), pod.metadata.name.clone())
}
