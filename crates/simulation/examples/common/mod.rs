//! An agent on the simulated runtime, in real time, and what an example prints of it.

use std::sync::Arc;
use std::time::Duration;

use crablet_agent::agent::{Agent, Parts};
use crablet_agent::allocations::Allocations;
use crablet_agent::images::Access;
use crablet_agent::objects::NoObjects;
use crablet_agent::pod_files;
use crablet_agent::sources::Changes;
use crablet_agent::statuses::Statuses;
use crablet_agent::users::Users;
use crablet_core::user_ids::UserIds;
use crablet_cri::{Client, client};
use crablet_cri_sim::{Settings, Simulator};
use crablet_host::cgroup::SimulatedCgroups;
use crablet_host::checkpoint::SimulatedCheckpoints;
use crablet_host::clock::Clock;
use crablet_metrics::Registries;
use crablet_simulation::behaviour::{PRESENT, image};
use crablet_simulation::ledger::Ledger;
use crablet_simulation::room::Room;
use crablet_simulation::trace::Trace;
use crablet_simulation::world::description;
use crablet_volumes::SimulatedVolumes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Starts an agent that takes its pods from `changes`. It works for as long as the example does.
pub async fn start_agent(changes: Changes) -> anyhow::Result<(Simulator, Agent)> {
    let base = Settings::containerd_1_6();
    let images = base.images.iter().cloned().chain(PRESENT.iter().map(|name| image(name))).collect();
    let simulator = Simulator::new(Settings { images, ..base });
    let room = Room::new(Arc::new(Ledger::new(simulator.clone(), Trace::new(false))));
    let files = Arc::new(pod_files::Simulated::new());
    let parts = Parts {
        runtime: Arc::new(Client::in_process(
            "the simulator",
            simulator.services(),
            client::Settings::default(),
        )),
        // The runtime's own time: a wait before a restart counts from what the runtime says.
        clock: Clock::simulated(simulator.now()),
        cgroups: Arc::new(SimulatedCgroups::new()),
        files: Arc::clone(&files) as _,
        users: Users::recall(UserIds::default(), Arc::clone(&files) as _).await?,
        volumes: Arc::new(SimulatedVolumes::new()),
        checkpoints: Arc::new(SimulatedCheckpoints::new()),
        allocations: Allocations::new(Arc::new(SimulatedCheckpoints::new())),
        objects: Arc::new(NoObjects),
        mirrors: tokio::sync::watch::Sender::default().subscribe(),
        access: Access::default(),
        signals: Arc::new(room.clone()),
        kernel_log: None,
        usage: Arc::new(room),
        image_records: Arc::new(SimulatedCheckpoints::new()),
        metrics: Registries::default(),
        shutdown: None,
    };
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let agent = Agent::start(parts, description(), changes, &stop, &tasks).await?;
    Ok((simulator, agent))
}

/// Prints every pod whenever one of them changes.
#[allow(dead_code, reason = "not every example prints this")]
pub async fn print_pods(statuses: Statuses) {
    let mut version = statuses.version();
    while version.changed().await.is_ok() {
        for view in statuses.list() {
            let (metadata, status) = (&view.pod.metadata, &view.status);
            let phase = status.phase.as_ref().map_or("?", |phase| phase.as_str());
            let restarts: i32 =
                status.container_statuses.iter().map(|container| container.restart_count).sum();
            println!("pod   {}/{}: {phase}, {restarts} restarts", metadata.namespace, metadata.name);
        }
        // One line a second is what a person reads.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Prints events as they come.
#[allow(dead_code, reason = "not every example prints this")]
pub async fn print_events(agent: &Agent) {
    let events = agent.recorder.queue();
    loop {
        let event = events.next().await;
        println!("event {} {}: {}", event.involved, event.reason, event.message);
    }
}
