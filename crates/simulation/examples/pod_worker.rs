//! A pod's worker by hand: it waits until the runtime has something newer than what it saw last, looks, and acts.
//!
//! ```text
//! cargo run --example pod_worker
//! ```
//!
//! A container is ended every few seconds. The hint of it wakes the worker, which waits out the back-off and starts the
//! container again; its story is told as it goes on.

mod common;

use std::sync::Arc;
use std::time::Duration;

use crablet_agent::agent::Agent;
use crablet_agent::sources::{PodConfig, Problems, SourceKind, Wanted};
use crablet_cri_sim::Simulator;
use crablet_host::clock::Clock;
use crablet_simulation::manifest::from_text;

const POD: &str = "metadata: {name: worked, namespace: default, uid: worked}\n\
                   spec: {containers: [{name: c, image: 'sim/forever:1'}]}\n";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (mut config, changes) = PodConfig::new(Clock::system(), Problems::default());
    let feed = config.feed(SourceKind::Api);
    tokio::spawn(config.run());
    let (simulator, agent) = common::start_agent(changes).await?;
    feed.set(vec![Wanted { pod: from_text(POD), origin: Arc::from("the example") }]);
    tokio::select! {
        () = end_containers(&simulator) => {}
        () = tell(&agent, &simulator) => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    Ok(())
}

async fn end_containers(simulator: &Simulator) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        for container in simulator.containers() {
            if simulator.exit_container(&container.id, 1) {
                println!("--- container {} is ended", container.name);
            }
        }
    }
}

/// Prints what is new in the story, and the sentence on top of it.
async fn tell(agent: &Agent, simulator: &Simulator) {
    let mut version = agent.statuses.version();
    let mut last = None;
    while version.changed().await.is_ok() {
        let Some(story) = agent.stories.story("worked") else { continue };
        for entry in story.entries.iter().filter(|entry| last.is_none_or(|last| entry.last > last)) {
            println!("    {}: {}", entry.topic, entry.text);
        }
        last = story.entries.last().map(|entry| entry.last).or(last);
        println!("{}", story.summary.sentence(simulator.now()));
    }
}
