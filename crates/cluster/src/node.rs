//! The node's object at the API server: made or taken over when the agent begins, then kept as the node is, and followed
//! for what others say of it.

use std::sync::Arc;
use std::time::Duration;

use crablet_agent::eviction::Pressure;
use crablet_agent::node_config;
use crablet_agent::node_facts::{LiveFacts, READ_WITHIN, Read};
use crablet_agent::readiness::{NotReady, Readiness, Ready};
use crablet_agent::recorder::{EventType, Involved, Recorder, reason};
use crablet_agent::story::{State, Teller};
use crablet_api::core::{ContainerImage, Node, NodeCondition, NodeConditionType};
use crablet_api::meta::{ConditionStatus, ObjectMeta, OwnerReference, Time};
use crablet_api::{Taint, Text, patch};
use crablet_client::{Chance, Client, Error, Event, Follower, PatchType};
use crablet_cri::Runtime;
use crablet_host::clock::Clock;
use crablet_volumes::Attachments;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

use crate::csi_node::ensure_csi_node;
use crate::memory::{Kept as _, Memory};
use crate::metrics::NodeStartup;
use crate::node_headline::NodeHeadline;
use crate::node_registration::{taken_over, uninitialized};
use crate::node_status::{self, Cloud, Input};
use crate::objects::ObjectTtl;
use crate::pod_cidrs::PodCidrs;
use crate::retry::Backoff;
use crate::runtime_patience::RuntimePatience;

/// The waits between tries to register, as upstream.
const SHORTEST_REGISTERING: Duration = Duration::from_millis(100);
const LONGEST_REGISTERING: Duration = Duration::from_secs(7);
/// The waits after a status that could not be written.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Says for how many seconds config maps and secrets that were read may be taken for current.
const OBJECT_TTL: &str = "node.alpha.kubernetes.io/ttl";
/// When it is looked which images there are after one was pulled: more may be on their way.
const IMAGES_SETTLE_WITHIN: Duration = Duration::from_secs(10);
/// What nodes with the old cgroups say of themselves.
const CGROUP_V1: &str = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a \
                                    future release. Please migrate to cgroup v2. More information at \
                                    https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1";

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
#[derive(Clone)]
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
    /// Whether pods may be told how much of the disk they may use, for which it must be known how much there is.
    pub isolates_local_storage: bool,
    /// The cloud whose controllers look after the node, if there is one.
    pub cloud: Option<Cloud>,
}

pub struct Parts {
    pub client: Client,
    pub follower: Follower<Node>,
    pub clock: Clock,
    /// What reports are spread by.
    pub chance: Chance,
    pub facts: LiveFacts,
    pub readiness: Readiness,
    pub pressure: Pressure,
    pub runtime: Arc<dyn Runtime>,
    pub recorder: Recorder,
    /// Which volumes are in use, and where it is told which are attached.
    pub attachments: Attachments,
    /// Tells when there may be other images.
    pub pulls: watch::Receiver<()>,
    /// Where it is told for how long objects may be taken for current.
    pub object_ttl: ObjectTtl,
    /// Where it is told how far the node is.
    pub story: Teller,
    pub headline: NodeHeadline,
    /// Where what the server says is kept, if it is.
    pub memory: Option<Memory>,
    /// Where it is counted how long the start of a new node takes.
    pub startup: NodeStartup,
}

/// Keeps the node's object.
pub struct NodeKeeper {
    parts: Parts,
    settings: Settings,
    identity: watch::Sender<Option<Identity>>,
    /// Who wants to know what the server has now.
    reads: mpsc::Receiver<Read>,
    /// Whether the server has said what it has of the node, if anything.
    heard: watch::Sender<bool>,
    /// What the server has.
    at_server: Option<Node>,
    /// What is kept of that.
    kept: Option<Node>,
    images: Vec<ContainerImage>,
    /// The UID of the node that it is written down for, for CSI, that it is there.
    csi_node_of: Option<Text>,
    is_unschedulable: bool,
    has_told_of_reboot: bool,
    pod_cidrs: PodCidrs,
    /// What the node is called, labelled and annotated with by itself.
    own: ObjectMeta,
    runtime: RuntimePatience,
}

impl NodeKeeper {
    /// One, and where it is told who the node is once it is registered.
    pub fn new(parts: Parts, settings: Settings) -> (NodeKeeper, watch::Receiver<Option<Identity>>) {
        let (identity, known) = watch::channel(None);
        let own = parts.facts.now().node.metadata.clone();
        // Pods that are run from memory are admitted by what others said of the node.
        let recalled = parts.memory.as_ref().and_then(|memory| memory.recalled::<Node>("", &settings.name));
        if let Some(node) = recalled {
            parts.facts.change(|ours| {
                ours.metadata.labels = node.metadata.labels.clone();
                ours.spec.taints = node.spec.taints.clone();
            });
        }
        parts.readiness.is_told(false);
        let keeper = NodeKeeper {
            runtime: RuntimePatience::new(parts.readiness.now()),
            has_told_of_reboot: false,
            pod_cidrs: PodCidrs::default(),
            own,
            heard: watch::Sender::new(false),
            reads: parts.facts.reads(),
            parts,
            settings,
            identity,
            at_server: None,
            kept: None,
            images: Vec::new(),
            csi_node_of: None,
            is_unschedulable: false,
        };
        (keeper, known)
    }

    /// Tells whether the server has said what it has of the node. Pods are admitted by that.
    pub fn heard(&self) -> watch::Receiver<bool> {
        self.heard.subscribe()
    }

    /// Works until it is dropped.
    pub async fn run(mut self) {
        self.event(EventType::Normal, reason::STARTING, "Starting kubelet.");
        if !self.parts.facts.now().translation.facts.cgroup_v2 {
            self.event(EventType::Warning, reason::CGROUP_V1, CGROUP_V1);
        }
        self.look_at_runtime().await;
        // What is known at once is not told twice.
        let unknown =
            Ready { runtime: Err(NotReady::NotAsked), network: Err(NotReady::NotAsked), shuts_down: false };
        let _ = timeout(SHORTEST_REGISTERING, self.parts.readiness.other_than(&unknown)).await;
        if self.settings.registers {
            self.register().await;
        }
        self.keep().await;
    }

    async fn register(&mut self) {
        self.parts.startup.tries(self.parts.clock.now());
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
                    let again = Instant::now() + backoff.after(&error);
                    self.cannot_register(&error, began.elapsed());
                    // Somebody else may make the object.
                    while let Ok(event) = timeout_at(again, self.parts.follower.next()).await {
                        self.hear(event);
                    }
                }
            }
        }
    }

    fn cannot_register(&self, error: &Error, took: Duration) {
        let what = format_args!("cannot be registered with the API server: {error}");
        self.parts.story.failed("register", took, what);
        self.parts.headline.node_is(State::Blocked, what);
    }

    async fn try_to_register(&mut self) -> Result<Node, Error> {
        let new = self.new_node();
        let created = self.parts.client.create(&new).await;
        if created.as_ref().err().is_none_or(Error::is_already_exists) {
            self.tell_events(&Node::default(), &new);
        }
        match created {
            Ok(node) => {
                self.parts.startup.is_registered(self.parts.clock.now());
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
    fn new_node(&mut self) -> Node {
        let mut node = Node { metadata: self.own.clone(), ..Node::default() };
        let mut taints = self.settings.taints.clone();
        if self.settings.cloud.is_some() {
            taints.push(uninitialized());
        }
        node.spec.taints = taints.into();
        node.spec.provider_id = self.settings.provider_id.clone();
        self.with_status(&node)
    }

    fn with_status(&mut self, node: &Node) -> Node {
        let (facts, ready) = (self.parts.facts.now(), self.runtime.told(self.parts.readiness.now()));
        let storage = if self.csi_node_of.is_some() { Ok(()) } else { Err("CSINode is not yet initialized") };
        let now = Time::from(self.parts.clock.now());
        node_status::with_status(
            node,
            &Input {
                facts: &facts,
                labels: &self.own.labels,
                ready: &ready,
                pressure: &self.parts.pressure.now(),
                storage,
                isolates_local_storage: self.settings.isolates_local_storage,
                images: &self.images,
                volumes_in_use: self.parts.attachments.in_use().borrow().iter().cloned().collect(),
                cloud: self.settings.cloud.as_ref(),
                now,
            },
        )
    }

    /// Keeps what the server has of the node as the node is: at once when something changes, and now and then in any
    /// case.
    async fn keep(&mut self) {
        let mut facts = self.parts.facts.subscribe();
        let mut volumes = self.parts.attachments.in_use();
        let mut pressure = self.parts.pressure.subscribe();
        let mut backoff = Backoff::new(SHORTEST_WAIT, LONGEST_WAIT);
        let mut report_due = Instant::now();
        let mut look_due = Some(Instant::now());
        let mut images_due = None;
        loop {
            let readiness = self.parts.readiness.clone();
            let ready = readiness.now();
            let due = [look_due, self.runtime.ends()].into_iter().flatten().fold(report_due, Instant::min);
            tokio::select! {
                biased;
                event = self.parts.follower.next() => self.hear(event),
                Some(read) = self.reads.recv() => {
                    self.read().await;
                    drop(read);
                }
                Ok(()) = facts.changed() => look_due = Some(Instant::now()),
                Ok(()) = volumes.changed() => look_due = Some(Instant::now()),
                Ok(()) = pressure.changed() => look_due = Some(Instant::now()),
                () = readiness.other_than(&ready) => {
                    // One that is back may be another.
                    if ready.runtime.is_err() && readiness.now().runtime.is_ok() {
                        self.look_at_runtime().await;
                    }
                    look_due = Some(Instant::now());
                }
                Ok(()) = self.parts.pulls.changed() => {
                    images_due = images_due.or(Some(Instant::now() + IMAGES_SETTLE_WITHIN));
                    continue;
                }
                () = sleep_until(images_due.unwrap_or(report_due)), if images_due.is_some() => {
                    images_due = None;
                    self.look_at_images().await;
                }
                () = sleep_until(due) => {
                    let now = Instant::now();
                    let is_report = report_due <= now;
                    if is_report {
                        self.look_at_runtime().await;
                    }
                    match self.bring_up_to_date(is_report).await {
                        Ok(has_written) => {
                            backoff.reset();
                            look_due = self.pod_cidrs.again_at();
                            self.tell_how_it_is();
                            // What changed on many nodes at once is not told by all of them at once ever after.
                            if is_report {
                                report_due = now + self.settings.report_every;
                            } else if has_written {
                                let every = self.settings.report_every;
                                report_due = now + every / 2 + self.parts.chance.below(every);
                            }
                        }
                        Err(error) => {
                            let wait = backoff.after(&error);
                            let what = format_args!("cannot tell the API server how it is: {error}");
                            self.parts.story.failed("status", now.elapsed(), what);
                            self.parts.headline.node_is(State::Unready, what);
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

    /// Finds out what the server has now, of which its watch may not have told yet.
    async fn read(&mut self) {
        match timeout(READ_WITHIN, self.parts.client.get::<Node>("", &self.settings.name)).await {
            Ok(Ok(node)) => self.take(node),
            Ok(Err(error)) => debug!(%error, "Cannot read the node's object at the API server"),
            Err(_) => debug!("The API server does not say how it has the node's object"),
        }
    }

    /// Writes what has changed, or all that tells the time where a report is due. Says whether anything was written.
    async fn bring_up_to_date(&mut self, is_report: bool) -> Result<bool, Error> {
        let Some(old) = self.at_server.clone() else { return Ok(false) };
        self.pod_cidrs.tell(&*self.parts.runtime, old.spec.pod_cidrs.join(",")).await;
        self.ensure_csi_node(&old).await?;
        let shuts_down = self.parts.readiness.now().shuts_down;
        let new = self.with_status(&old);
        if !is_report && !node_status::differs(&old, &new) {
            self.parts.readiness.is_told(shuts_down);
            return Ok(false);
        }
        let node = self.write(&old, &new).await?;
        self.parts.readiness.is_told(shuts_down);
        self.tell_events(&old, &new);
        if ready(&node).is_some_and(|ready| ready.status == ConditionStatus::True) {
            self.parts.startup.is_ready(self.parts.clock.now());
        }
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
        if self.csi_node_of.as_ref() != Some(&node.metadata.uid) {
            ensure_csi_node(&self.parts.client, &identity(node)).await?;
            self.csi_node_of = Some(node.metadata.uid.clone());
        }
        Ok(())
    }

    fn hear(&mut self, event: Event<Node>) {
        match event {
            Event::All(nodes) => {
                match nodes.into_iter().next() {
                    // Whatever its version is: the server may have been restored from a backup.
                    Some(node) => {
                        self.at_server = None;
                        self.take(node);
                    }
                    None => self.is_gone(),
                }
                self.has_heard();
            }
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
            if self.settings.cloud.is_some() && !node.status.addresses.is_empty() {
                ours.status.addresses = node.status.addresses.clone();
            }
        });
        let seconds = node.metadata.annotations.get(OBJECT_TTL).and_then(|text| text.parse().ok());
        self.parts.object_ttl.set(seconds.map(Duration::from_secs));
        if self.is_unschedulable != node.spec.unschedulable {
            self.is_unschedulable = node.spec.unschedulable;
            self.status_event(if node.spec.unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" });
        }
        // What belongs to a node that goes would go with it.
        let is_going = node.metadata.deletion_timestamp.is_some();
        self.is_known_as((!is_going).then(|| identity(&node)));
        self.parts.attachments.note(&node);
        self.at_server = Some(node);
        self.has_heard();
    }

    fn has_heard(&self) {
        self.heard.send_if_modified(|heard| !std::mem::replace(heard, true));
    }

    fn is_known_as(&self, identity: Option<Identity>) {
        self.identity.send_if_modified(|known| {
            let is_other = *known != identity;
            *known = identity;
            is_other
        });
    }

    fn is_gone(&mut self) {
        self.is_known_as(None);
        if self.at_server.take().is_some() {
            let what = format_args!(
                "somebody deleted its object at the API server, which stays so until the agent starts again"
            );
            self.parts.story.warn("node", what);
            self.parts.headline.node_is(State::Blocked, what);
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
            self.parts.story.warn("register", what);
        }
    }

    fn tell_how_it_is(&self) {
        let Some(node) = &self.at_server else { return };
        let headline = &self.parts.headline;
        match ready(node) {
            Some(ready) if ready.status == ConditionStatus::True => {
                headline.node_is(State::Running, format_args!("it is ready"));
            }
            Some(ready) => headline.node_is(State::Unready, format_args!("{}", ready.message)),
            None => {}
        }
    }

    /// Finds out which runtime there is, and which images it has.
    async fn look_at_runtime(&mut self) {
        if let Ok(version) = self.parts.runtime.version().await {
            let name = node_config::runtime_version(&version);
            self.parts.facts.change(|node| node.status.node_info.container_runtime_version = name);
        }
        self.look_at_images().await;
    }

    async fn look_at_images(&mut self) {
        match self.parts.runtime.list_images().await {
            Ok(found) => self.images = node_status::images(&found, self.settings.most_images),
            Err(error) => warn!(%error, "Cannot tell which images the node has"),
        }
    }

    fn tell_events(&mut self, old: &Node, new: &Node) {
        if !self.has_told_of_reboot
            && let Some(boot) = node_status::rebooted(old, new)
        {
            self.has_told_of_reboot = true;
            let message = format!("Node {} has been rebooted, boot id: {boot}", self.settings.name);
            self.event(EventType::Warning, reason::REBOOTED, &message);
        }
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

fn ready(node: &Node) -> Option<&NodeCondition> {
    node.status.conditions.iter().find(|condition| condition.r#type == NodeConditionType::Ready)
}

fn identity(node: &Node) -> Identity {
    Identity { name: node.metadata.name.clone(), uid: node.metadata.uid.clone() }
}
