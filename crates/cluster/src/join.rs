//! All of an agent's part in a cluster, put together.

use std::collections::BTreeMap;
use std::sync::Arc;

use crablet_agent::agent::Agent;
use crablet_agent::mirrors::ServerMirrors;
use crablet_agent::sources::{Feed, Owners, SourcesReady};
use crablet_agent::tasks::Tasks;
use crablet_api::core::PodIdentity;
use crablet_api::{FeatureGates, Gate, Text};
use crablet_client::{Chance, Client, Follower, Selection};
use crablet_cri::Runtime;
use crablet_csi::NodeInfo;
use crablet_host::clock::Clock;
use crablet_volumes::Attachments;
use tokio::sync::watch;

use crate::csi_node::CsiNodeKeeper;
use crate::event_writer::EventWriter;
use crate::lease::Heart;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::node::{self, NodeKeeper};
use crate::node_headline::NodeHeadline;
use crate::objects::{ClusterObjects, ObjectTtl};
use crate::pod_source::PodSource;
use crate::runtime_events;
use crate::status_manager::{self, StatusManager};

/// What stands before a node's name in its story, where pods have their namespaces.
const NODE: &str = "node";

/// What is needed to join a cluster, beside an agent.
pub struct Joining {
    pub client: Client,
    /// What waits are spread by.
    pub seed: u64,
    pub clock: Clock,
    pub runtime: Arc<dyn Runtime>,
    /// Where the agent hears what the API server wants.
    pub feed: Feed,
    pub owners: Owners,
    pub ready: SourcesReady,
    pub features: FeatureGates,
    pub node: node::Settings,
    /// What pods refer to.
    pub objects: Arc<ClusterObjects>,
    /// Where it is told for how long what pods refer to may be taken for current.
    pub object_ttl: ObjectTtl,
    /// How long the node counts as alive after a heartbeat.
    pub lease_seconds: i32,
    /// Where what the server says is kept, if it is.
    pub memory: Option<Memory>,
    /// What is said of the node in one sentence.
    pub headline: NodeHeadline,
    /// What the CSI drivers of the node say of it.
    pub csi_drivers: watch::Receiver<BTreeMap<String, NodeInfo>>,
    /// Which volumes are in use, and where it is told which are attached.
    pub attachments: Attachments,
    /// Where it is told what the server has of the node's static pods.
    pub mirrors: watch::Sender<ServerMirrors>,
    /// Where it is counted.
    pub metrics: Metrics,
}

/// Whose story a node's is. Events about it are found by its name too.
pub fn node_identity(name: &str) -> PodIdentity {
    PodIdentity::new(NODE, name, name)
}

/// Starts an agent's part in a cluster. Its tasks end with the agent's.
pub fn join(tasks: &Tasks, agent: &Agent, joining: Joining) {
    let Joining {
        client,
        seed,
        clock,
        runtime,
        feed,
        owners,
        ready,
        features,
        node,
        objects,
        object_ttl,
        lease_seconds,
        memory,
        headline,
        csi_drivers,
        attachments,
        mirrors: told_mirrors,
        metrics,
    } = joining;
    let name: Text = node.name.clone();
    let chance = |part: u64| Chance::new(seed.wrapping_add(part));
    let of_node = Selection { fields: format!("spec.nodeName={name}"), ..Selection::default() };
    let pods = Follower::new(client.clone(), &of_node, chance(1));
    let story = agent.stories.open(&node_identity(&name));
    let mirrors = told_mirrors.subscribe();
    let (stories, told) = (agent.stories.clone(), told_mirrors);
    let source = PodSource::new(pods, feed, clock.clone(), story.clone(), stories, memory.clone(), told);
    metrics.tell_mirrors(mirrors.clone());
    tasks.spawn(runtime_events::tell(agent.observer.clone(), story.clone()));
    let parts = node::Parts {
        client: client.clone(),
        follower: Follower::new(client.clone(), &Selection::named("", &name), chance(2)),
        clock: clock.clone(),
        chance: chance(3),
        facts: agent.facts.clone(),
        readiness: agent.readiness.clone(),
        pressure: agent.pressure.clone(),
        runtime,
        recorder: agent.recorder.clone(),
        attachments,
        pulls: agent.images.changes(),
        object_ttl,
        story,
        headline: headline.clone(),
        memory,
        startup: metrics.startup,
    };
    let events = EventWriter::new(client.clone(), agent.recorder.queue(), name.clone());
    let (keeper, identity) = NodeKeeper::new(parts, node);
    let node_heard = keeper.heard();
    if features.enabled(Gate::PodCertificateRequest) {
        let certificates = objects.issue_certificates(name.clone(), identity.clone(), agent.recorder.clone());
        certificates.count_in(&metrics.registry);
    }
    let heart =
        Heart::new(client.clone(), clock.clone(), name, identity.clone(), lease_seconds).told_of_in(headline);
    let csi_node = CsiNodeKeeper { client: client.clone(), node: identity.clone(), drivers: csi_drivers };
    let statuses = StatusManager::new(status_manager::Parts {
        client,
        clock,
        statuses: agent.statuses.clone(),
        mirrors,
        node: identity,
        owners,
        ready,
        features,
        syncs: metrics.status_syncs,
    });
    tasks.spawn(heart.run());
    tasks.spawn(keeper.run());
    tasks.spawn(source.run(node_heard));
    tasks.spawn(csi_node.run());
    tasks.spawn(statuses.run());
    tasks.spawn(events.run());
}
