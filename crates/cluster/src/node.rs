//! The node's object at the API server: made or taken over when the agent begins, then kept as the node is, and followed
//! for what others say of it.

use std::sync::Arc;
use std::time::Duration;

use crablet_agent::node_facts::LiveFacts;
use crablet_agent::readiness::Readiness;
use crablet_agent::recorder::{EventType, Involved, Recorder, reason};
use crablet_agent::story::{State, Teller};
use crablet_api::core::{ContainerImage, Node, NodeConditionType, NodeSpec};
use crablet_api::meta::{ConditionStatus, ObjectMeta, OwnerReference, Time};
use crablet_api::resource_names::is_huge_pages;
use crablet_api::storage::{CsiNode, CsiNodeSpec};
use crablet_api::{Taint, Text, patch};
use crablet_client::{Client, Error, Event, Follower, PatchType};
use crablet_cri::Runtime;
use crablet_host::clock::Clock;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use crate::memory::{Kept as _, Memory};
use crate::node_status::{self, Input};
use crate::retry::Backoff;

/// The waits between tries to register, as upstream.
const SHORTEST_REGISTERING: Duration = Duration::from_millis(100);
const LONGEST_REGISTERING: Duration = Duration::from_secs(7);
/// The waits after a status that could not be written.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Says that volumes are attached by a controller.
const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// The labels that are put right on a node that was there before, as upstream.
const DEFAULT_LABELS: [&str; 5] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// The plugins whose volumes CSI drivers serve now; schedulers ask for them.
const MIGRATED_PLUGINS: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,\
                                kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,\
                                kubernetes.io/vsphere-volume";
const MIGRATED_ANNOTATION: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// The node as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub name: Text,
    pub uid: Text,
}

/// That something belongs to the node, and goes with it.
pub fn node_owner(node: &Identity) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node.name.clone(),
        uid: node.uid.clone(),
        ..OwnerReference::default()
    }
}

/// How the node is kept.
pub struct Settings {
    pub name: Text,
    /// Whether the object is made if it is not there.
    pub registers: bool,
    pub taints: Vec<Taint>,
    pub provider_id: Text,
    /// How often the status is written though nothing has changed.
    pub report_every: Duration,
    /// How many images are told of; a negative number means all.
    pub most_images: i32,
}

pub struct Parts {
    pub client: Client,
    pub follower: Follower<Node>,
    pub clock: Clock,
    pub facts: LiveFacts,
    pub readiness: Readiness,
    pub runtime: Arc<dyn Runtime>,
    pub recorder: Recorder,
    /// Where it is told how far the node is.
    pub story: Teller,
    /// Where what the server says is kept, if it is.
    pub memory: Option<Memory>,
}

/// Keeps the node's object.
pub struct NodeKeeper {
    parts: Parts,
    settings: Settings,
    identity: watch::Sender<Option<Identity>>,
    /// What the node is registered as: what others say of it is not ours to say.
    own: (ObjectMeta, NodeSpec),
    /// What the server has.
    at_server: Option<Node>,
    /// What is kept of that.
    kept: Option<Node>,
    images: Vec<ContainerImage>,
    /// Whether it is written down for CSI that the node is there.
    has_csi_node: bool,
    is_unschedulable: bool,
}

impl NodeKeeper {
    /// One, and where it is told who the node is once it is registered.
    pub fn new(parts: Parts, settings: Settings) -> (NodeKeeper, watch::Receiver<Option<Identity>>) {
        let (identity, known) = watch::channel(None);
        let facts = parts.facts.now();
        let own = (facts.node.metadata.clone(), facts.node.spec.clone());
        // Pods that are run from memory are admitted by what others said of the node.
        let recalled = parts.memory.as_ref().and_then(|memory| memory.recalled::<Node>("", &settings.name));
        if let Some(node) = recalled {
            parts.facts.change(|ours| {
                ours.metadata.labels = node.metadata.labels.clone();
                ours.spec.taints = node.spec.taints.clone();
            });
        }
        let keeper = NodeKeeper {
            parts,
            settings,
            identity,
            own,
            at_server: None,
            kept: None,
            images: Vec::new(),
            has_csi_node: false,
            is_unschedulable: false,
        };
        (keeper, known)
    }

    /// Works until it is dropped.
    pub async fn run(mut self) {
        self.event(EventType::Normal, reason::STARTING, "Starting kubelet.");
        self.look_at_images().await;
        self.parts.story.headline(State::Waiting, format_args!("the API server to know it"));
        if self.settings.registers {
            self.register().await;
        }
        self.keep().await;
    }

    async fn register(&mut self) {
        let mut backoff = Backoff::new(SHORTEST_REGISTERING, LONGEST_REGISTERING);
        loop {
            let began = Instant::now();
            match self.try_to_register().await {
                Ok(node) => {
                    self.parts.story.step(
                        "register",
                        began.elapsed(),
                        format_args!("registered with the API server"),
                    );
                    self.take(node);
                    return;
                }
                Err(error) => {
                    let wait = backoff.after(&error);
                    self.cannot_register(&error, began.elapsed());
                    sleep(wait).await;
                }
            }
        }
    }

    fn cannot_register(&self, error: &Error, took: Duration) {
        let what = format_args!("cannot be registered with the API server: {error}");
        self.parts.story.failed("register", took, what);
        self.parts.story.headline(State::Blocked, what);
    }

    async fn try_to_register(&mut self) -> Result<Node, Error> {
        let new = self.new_node();
        match self.parts.client.create(&new).await {
            Ok(node) => {
                self.tell_events(&Node::default(), &node);
                return Ok(node);
            }
            Err(error) if error.is_already_exists() || error.is_forbidden() => {}
            Err(error) => return Err(error),
        }
        let found = self.parts.client.get::<Node>("", &self.settings.name).await?;
        info!(node = %self.settings.name, "Node was previously registered");
        self.mention_another_machine(&found, &new);
        let wanted = taken_over(&found, &new);
        if wanted == found {
            return Ok(found);
        }
        self.write(&found, &wanted).await
    }

    /// The node as it is made where it is not there.
    fn new_node(&self) -> Node {
        let (metadata, spec) = self.own.clone();
        let mut node = Node { metadata, spec, status: Default::default() };
        node.spec.taints = self.settings.taints.clone().into();
        node.spec.provider_id = self.settings.provider_id.clone();
        self.with_status(&node)
    }

    fn with_status(&self, node: &Node) -> Node {
        let (facts, ready) = (self.parts.facts.now(), self.parts.readiness.now());
        let storage = if self.has_csi_node { Ok(()) } else { Err("CSINode is not yet initialized") };
        let now = Time::from(self.parts.clock.now());
        node_status::with_status(
            node,
            &Input { facts: &facts, ready: &ready, storage, images: &self.images, now },
        )
    }

    /// Keeps what the server has of the node as the node is: at once when something changes, and now and then in any
    /// case.
    async fn keep(&mut self) {
        let mut facts = self.parts.facts.subscribe();
        let mut backoff = Backoff::new(SHORTEST_WAIT, LONGEST_WAIT);
        let mut report_due = Instant::now();
        let mut look_due = Some(Instant::now());
        loop {
            let readiness = self.parts.readiness.clone();
            let ready = readiness.now();
            tokio::select! {
                biased;
                event = self.parts.follower.next() => self.hear(event),
                Ok(()) = facts.changed() => look_due = Some(Instant::now()),
                () = readiness.other_than(&ready) => look_due = Some(Instant::now()),
                () = sleep_until(look_due.unwrap_or(report_due).min(report_due)) => {
                    let now = Instant::now();
                    let is_report = report_due <= now;
                    if is_report {
                        self.look_at_images().await;
                    }
                    look_due = None;
                    match self.bring_up_to_date(is_report).await {
                        Ok(has_written) => {
                            backoff.reset();
                            self.tell_how_it_is();
                            if has_written || is_report {
                                report_due = now + self.settings.report_every;
                            }
                        }
                        Err(error) => {
                            let wait = backoff.after(&error);
                            let what = format_args!("cannot tell the API server how it is: {error}");
                            self.parts.story.failed("status", now.elapsed(), what);
                            self.parts.story.headline(State::Unready, what);
                            look_due = Some(now + wait);
                            report_due = report_due.max(now + wait);
                        }
                    }
                    continue;
                }
            }
            // What others did to the object may have to be undone, or is what was waited for.
            look_due = look_due.or(Some(Instant::now()));
        }
    }

    /// Writes what has changed, or all that tells the time where a report is due. Says whether anything was written.
    async fn bring_up_to_date(&mut self, is_report: bool) -> Result<bool, Error> {
        let Some(old) = self.at_server.clone() else { return Ok(false) };
        self.ensure_csi_node(&old).await?;
        let new = self.with_status(&old);
        if !is_report && !node_status::differs(&old, &new) {
            return Ok(false);
        }
        let node = self.write(&old, &new).await?;
        self.tell_events(&old, &new);
        self.take(node);
        Ok(true)
    }

    async fn write(&mut self, old: &Node, new: &Node) -> Result<Node, Error> {
        let patch = patch::node_status(old, new).to_json();
        let kind = PatchType::StrategicMerge;
        self.parts.client.patch("", &self.settings.name, "/status", kind, patch).await
    }

    /// The node is known to those who look for CSI drivers, if only as one without any.
    async fn ensure_csi_node(&mut self, node: &Node) -> Result<(), Error> {
        if self.has_csi_node {
            return Ok(());
        }
        let mut object = CsiNode { spec: CsiNodeSpec::default(), ..CsiNode::default() };
        object.metadata.name = self.settings.name.clone();
        object.metadata.annotations.insert(MIGRATED_ANNOTATION, MIGRATED_PLUGINS.into());
        object.metadata.owner_references = Box::new([node_owner(&identity(node))]);
        match self.parts.client.create(&object).await {
            Ok(_) => {}
            Err(error) if error.is_already_exists() => {}
            Err(error) => return Err(error),
        }
        self.has_csi_node = true;
        Ok(())
    }

    fn hear(&mut self, event: Event<Node>) {
        match event {
            Event::All(nodes) => match nodes.into_iter().next() {
                // Whatever its version is: the server may have been restored from a backup.
                Some(node) => {
                    self.at_server = None;
                    self.take(node);
                }
                None if self.at_server.is_some() => self.is_gone(),
                None => {}
            },
            Event::Set(node) => self.take(node),
            Event::Gone(_) => self.is_gone(),
            Event::Trouble { error, .. } => {
                debug!(%error, "Cannot follow the node's object at the API server");
            }
            Event::Resumed => {}
        }
    }

    /// Takes in how the server has the node, unless something newer is known.
    fn take(&mut self, node: Node) {
        let version = |node: &Node| node.metadata.resource_version.parse::<u64>().ok();
        let is_older = self
            .at_server
            .as_ref()
            .is_some_and(|known| known.metadata.uid == node.metadata.uid && version(&node) < version(known));
        if is_older {
            return;
        }
        if let Some(memory) = &self.parts.memory {
            let key = (Text::default(), self.settings.name.clone());
            let recalled = memory.recalled::<Node>("", &key.1);
            memory.keep(&key, self.kept.as_ref().or(recalled.as_deref()), Some(&node));
            self.kept = Some(node.kept());
        }
        self.parts.facts.change(|ours| {
            ours.metadata.uid = node.metadata.uid.clone();
            ours.metadata.labels = node.metadata.labels.clone();
            ours.metadata.annotations = node.metadata.annotations.clone();
            ours.spec = node.spec.clone();
        });
        if self.is_unschedulable != node.spec.unschedulable {
            self.is_unschedulable = node.spec.unschedulable;
            self.status_event(if node.spec.unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" });
        }
        let identity = identity(&node);
        self.identity.send_if_modified(|known| {
            let is_other = known.as_ref() != Some(&identity);
            if is_other {
                *known = Some(identity);
            }
            is_other
        });
        self.at_server = Some(node);
    }

    fn is_gone(&mut self) {
        if self.at_server.take().is_some() {
            let what = format_args!(
                "somebody deleted its object at the API server, which stays so until the agent starts again"
            );
            self.parts.story.failed("node", Duration::ZERO, what);
            self.parts.story.headline(State::Blocked, what);
        }
    }

    /// Two machines that take turns at being one node are a mistake that is hard to see.
    fn mention_another_machine(&self, found: &Node, new: &Node) {
        let machine = |node: &Node| node.status.node_info.machine_id.clone();
        let (theirs, ours) = (machine(found), machine(new));
        if !theirs.is_empty() && theirs != ours {
            let what = format_args!(
                "the API server has a node of this name on another machine (machine ID {theirs}, here it is {ours}); \
                 two nodes must not have one name"
            );
            self.parts.story.failed("register", Duration::ZERO, what);
        }
    }

    fn tell_how_it_is(&self) {
        let Some(node) = &self.at_server else { return };
        let mut conditions = node.status.conditions.iter();
        let ready = conditions.find(|condition| condition.r#type == NodeConditionType::Ready);
        let story = &self.parts.story;
        match ready {
            Some(ready) if ready.status == ConditionStatus::True => {
                story.headline(State::Running, format_args!("it is ready"));
            }
            Some(ready) => story.headline(State::Unready, format_args!("{}", ready.message)),
            None => {}
        }
    }

    async fn look_at_images(&mut self) {
        match self.parts.runtime.list_images().await {
            Ok(found) => self.images = node_status::images(&found, self.settings.most_images),
            Err(error) => warn!(%error, "Cannot tell which images the node has"),
        }
    }

    fn tell_events(&self, old: &Node, new: &Node) {
        for event in node_status::events(old, new) {
            self.status_event(event);
        }
    }

    fn status_event(&self, word: &str) {
        let message = format!("Node {} status is now: {word}", self.settings.name);
        self.event(EventType::Normal, word, &message);
    }

    fn event(&self, event_type: EventType, reason: &str, message: &str) {
        let node = Involved::node(self.settings.name.clone());
        self.parts.recorder.event(&node, event_type, reason, message);
    }
}

fn identity(node: &Node) -> Identity {
    Identity { name: node.metadata.name.clone(), uid: node.metadata.uid.clone() }
}

/// A node that was there before, with what an agent puts right when it begins.
fn taken_over(found: &Node, new: &Node) -> Node {
    let mut node = found.clone();
    match new.metadata.annotations.get(ATTACH_DETACH) {
        Some(value) => drop(node.metadata.annotations.insert(ATTACH_DETACH, value.clone())),
        None => drop(node.metadata.annotations.remove(ATTACH_DETACH)),
    }
    for label in DEFAULT_LABELS {
        if let Some(value) = new.metadata.labels.get(label) {
            node.metadata.labels.insert(label, value.clone());
        }
    }
    let ours = [
        (&mut node.status.capacity, &new.status.capacity),
        (&mut node.status.allocatable, &new.status.allocatable),
    ];
    for (known, now) in ours {
        let gone: Vec<Text> = known
            .iter()
            .map(|(name, _)| name)
            .filter(|name| is_huge_pages(name) && now.get(name).is_none())
            .map(Text::from)
            .collect();
        for name in gone {
            known.remove(&name);
        }
        for (name, quantity) in now.iter().filter(|(name, _)| is_huge_pages(name)) {
            known.insert(name, quantity.clone());
        }
    }
    node
}
