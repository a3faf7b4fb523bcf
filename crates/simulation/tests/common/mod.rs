//! A node with one agent, in few words.

#![allow(dead_code, reason = "not every test asks everything")]

pub mod cluster;
pub mod joined;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::recorder::EventQueue;
use crablet_agent::sources::SourceKind;
use crablet_agent::statuses::Reported;
use crablet_api::core::{ContainerStatus, Pod, PodConditionType};
use crablet_api::meta::{ConditionStatus, Time};
use crablet_cri::Runtime as _;
use crablet_cri_sim::Settings;
use crablet_simulation::manifest::from_text;
use crablet_simulation::trace::Trace;
use crablet_simulation::world::{World, settings};

/// A simulated node.
pub struct Node {
    /// All of it.
    pub world: World,
    events: EventQueue,
    /// What was said, and how often.
    said: BTreeMap<(String, String, String), u32>,
}

/// Lets time pass.
pub async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

impl Node {
    /// With an agent that was just started.
    pub async fn start() -> Node {
        Node::start_on(settings(0)).await
    }

    /// The same, on a runtime that is like this.
    pub async fn start_on(runtime: Settings) -> Node {
        let mut world = World::on(runtime, Trace::new(false));
        world.start(None).await;
        let events = world.agent.as_ref().unwrap().agent.recorder.queue();
        Node { world, events, said: BTreeMap::new() }
    }

    /// With an agent that was just started, in a cluster.
    pub async fn start_in(cluster: &cluster::Cluster, runtime: Settings) -> Node {
        let mut node = Node::start_on(runtime).await;
        node.world.objects = Arc::new(cluster.clone());
        node.restart().await;
        node
    }

    /// Kills the agent and starts another.
    pub async fn restart(&mut self) {
        self.world.kill().await;
        self.world.start(None).await;
        self.events = self.world.agent.as_ref().unwrap().agent.recorder.queue();
        self.world.tell_all();
    }

    /// Wants a pod, whose UID is its name.
    pub async fn want(&mut self, name: &str, spec: &str) {
        self.want_from(SourceKind::File, name, spec);
    }

    /// The same from another source. The API's pods can change while they run.
    pub fn want_from(&mut self, source: SourceKind, name: &str, spec: &str) {
        let pod = from_text(&format!(
            "metadata: {{name: {name}, namespace: default, uid: {name}}}\nspec: {spec}\n"
        ));
        self.world.ledger.want(&pod, source);
        self.world.wanted.entry(source).or_default().insert(name.to_owned(), pod);
        self.world.tell_all();
    }

    /// Does not want it any more.
    pub fn unwant(&mut self, name: &str) {
        self.world.wanted.entry(SourceKind::File).or_default().remove(name);
        if let Some(life) = self.world.ledger.state().lives.get_mut(name) {
            life.wanted = false;
        }
        self.world.tell_all();
    }

    /// Wants a pod at the API server, whose UID is its name.
    pub fn create(&mut self, name: &str, spec: &str) {
        let pod = from_text(&format!(
            "metadata: {{name: {name}, namespace: default, uid: {name}}}\nspec: {spec}\n"
        ));
        self.world.ledger.want(&pod, SourceKind::Api);
        self.world.wanted.entry(SourceKind::Api).or_default().insert(name.to_owned(), pod);
        self.world.tell_all();
    }

    /// Changes a pod at the API server.
    pub fn edit(&mut self, name: &str, edit: impl FnOnce(&mut Pod)) {
        let pods = self.world.wanted.entry(SourceKind::Api).or_default();
        edit(Arc::make_mut(pods.get_mut(name).expect("the API server has the pod")));
        self.world.tell_all();
    }

    /// Deletes a pod at the API server, which has it until it is forgotten.
    pub fn delete(&mut self, name: &str, grace: i64) {
        let now = self.world.simulator.now();
        self.edit(name, |pod| {
            pod.metadata.deletion_timestamp = Some(Time::from(now));
            pod.metadata.deletion_grace_period_seconds = Some(grace);
        });
    }

    /// The API server does not have a pod any more.
    pub fn forget(&mut self, name: &str) {
        self.world.wanted.entry(SourceKind::Api).or_default().remove(name);
        self.world.tell_all();
    }

    /// What is shown of a pod, if something is.
    pub fn shown(&self, name: &str) -> Option<Reported> {
        self.world.agent.as_ref().unwrap().agent.statuses.get(name)
    }

    /// The status of a container.
    pub fn container(&self, pod: &str, name: &str) -> ContainerStatus {
        self.find_container(pod, name).expect("the container has a status")
    }

    /// The status of a container, if it has one.
    pub fn find_container(&self, pod: &str, name: &str) -> Option<ContainerStatus> {
        let view = self.world.agent.as_ref()?.agent.statuses.get(pod)?;
        let mut all = view.status.init_container_statuses.iter().chain(&view.status.container_statuses);
        all.find(|status| *status.name == *name).cloned()
    }

    /// Whether a pod is ready.
    pub fn is_ready(&self, pod: &str) -> bool {
        let view = self.world.agent.as_ref().unwrap().agent.statuses.get(pod).unwrap();
        view.status.conditions.iter().any(|condition| {
            condition.r#type == PodConditionType::Ready && condition.status == ConditionStatus::True
        })
    }

    /// The names of the containers that run.
    pub fn live(&self) -> Vec<String> {
        let alive = self.world.simulator.containers().into_iter().filter(|container| container.alive);
        let mut names: Vec<String> = alive.map(|container| container.name).collect();
        names.sort();
        names
    }

    /// The promise that was broken, if one was.
    pub fn broken(&self) -> Option<String> {
        self.world.ledger.state().violation.as_ref().map(|violation| violation.what.clone())
    }

    /// Runs a command in the container of a name.
    pub async fn run(&self, name: &str, command: &[&str]) {
        let mut containers = self.world.simulator.containers().into_iter();
        let container = containers.find(|container| container.alive && container.name == name).unwrap();
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let output = self.world.client().exec_sync(&container.id, &command, None).await.unwrap();
        assert_eq!(output.exit_code, 0, "{command:?}");
    }

    /// Whether an event said this of a container.
    pub fn said(&mut self, container: &str, reason: &str, message: &str) -> bool {
        self.times_said(container, reason, message) > 0
    }

    /// How often this agent said it.
    pub fn times_said(&mut self, container: &str, reason: &str, message: &str) -> u32 {
        while let Some(event) = self.events.try_next() {
            let about = event.involved.container().unwrap_or_default().to_owned();
            self.said.insert((about, event.reason.to_string(), event.message.to_string()), event.count);
        }
        let what = (container.to_owned(), reason.to_owned(), message.to_owned());
        self.said.get(&what).copied().unwrap_or_default()
    }

    /// Everything that was said.
    pub fn all_said(&mut self) -> String {
        self.said("", "", "");
        format!("{:#?}", self.said)
    }

    /// The metrics of probes.
    pub fn probe_metrics(&self) -> String {
        self.world.agent.as_ref().unwrap().metrics.probes.render()
    }

    /// How many attempts there were of a kind with a result.
    pub fn probe_count(&self, kind: &str, result: &str) -> u64 {
        let metrics = self.probe_metrics();
        let lines = metrics.lines().filter(|line| {
            line.starts_with("prober_probe_total{")
                && line.contains(&format!("\"{kind}\""))
                && line.contains(&format!("\"{result}\""))
        });
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}
