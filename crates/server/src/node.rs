//! What the endpoints read of the node.

use crablet_agent::agent::Agent;
use crablet_agent::sources::{Owners, Problems, Push};
use crablet_host::clock::Clock;
use crablet_metrics::Registries;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::numbers::Numbers;

/// What the endpoints read of the node. Clones are the same node.
#[derive(Clone)]
pub struct NodeHandles {
    /// Its name, which the names of its static pods end with.
    pub name: String,
    /// The time.
    pub clock: Clock,
    /// What is wrong with manifests.
    pub problems: Problems,
    /// Who wants which pod.
    pub owners: Owners,
    /// Takes pods in and lets them go.
    pub push: Option<Push>,
    /// What its parts count.
    pub metrics: Registries,
    /// What it and its pods use.
    pub numbers: Numbers,
    /// How far it has come.
    pub stage: watch::Receiver<Stage>,
    /// When it stops, so that nobody waits for an answer any longer.
    pub stop: CancellationToken,
}

/// How far a node has come.
#[derive(Clone)]
pub enum Stage {
    /// It waits for this before it starts any pod.
    WaitingFor(String),
    /// It runs pods.
    Running(Box<Agent>),
}

impl NodeHandles {
    /// The agent, or what it waits for.
    pub(crate) fn agent(&self) -> Result<Agent, String> {
        match &*self.stage.borrow() {
            Stage::WaitingFor(what) => Err(what.clone()),
            Stage::Running(agent) => Ok((**agent).clone()),
        }
    }

    /// The texts by which a pod may be known that a person calls by this one: the name in a manifest lacks the node's.
    pub(crate) fn names(&self, text: &str) -> [String; 2] {
        [text.to_owned(), format!("{text}-{}", self.name.to_lowercase())]
    }
}
