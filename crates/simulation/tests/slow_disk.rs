//! A disk that is slow for one pod: what is written of it takes a second each, and no other pod waits.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::time::Duration;

use common::{Node, seconds};
use crablet_cri_sim::{Latencies, Latency, Settings};
use crablet_simulation::world::settings;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// One that ends when it is told to, ready only when its probe says so.
fn spec(container: &str) -> String {
    format!(
        "{{hostUsers: false, terminationGracePeriodSeconds: 5, containers: [{{name: {container}, image: 'sim/forever:1', \
         readinessProbe: {{exec: {{command: ['true']}}, periodSeconds: 1}}}}]}}"
    )
}

async fn node() -> Node {
    let latencies = Latencies::all(Latency::Fixed(Duration::from_millis(10)));
    Node::start_on(Settings { latencies, exit_lag: Duration::ZERO, ..settings(2) }).await
}

/// Waits until what is shown of pods is like this.
async fn until(node: &Node, is_so: impl Fn(&Node) -> bool) {
    let mut version = node.world.agent.as_ref().unwrap().agent.statuses.version();
    while !is_so(node) {
        version.changed().await.unwrap();
    }
}

fn is_shown(node: &Node, pod: &str) -> bool {
    node.world.agent.as_ref().unwrap().agent.statuses.get(pod).is_some()
}

fn is_ready(node: &Node, pod: &str) -> bool {
    is_shown(node, pod) && node.is_ready(pod)
}

/// How long a pod takes to be ready, and, once it is not wanted any more, to be gone. What happens to others happens half
/// a second before.
async fn life(node: &mut Node, slow: bool) -> [Duration; 2] {
    if slow {
        node.want("slow", &spec("slow")).await;
    }
    tokio::time::sleep(SECOND / 2).await;
    let began = Instant::now();
    node.want("other", &spec("other")).await;
    until(node, |node| is_ready(node, "other")).await;
    let started = began.elapsed();
    if slow {
        assert!(!is_ready(node, "slow"), "it is held up by its own files");
        until(node, |node| is_ready(node, "slow")).await;
        assert!(began.elapsed() >= 5 * SECOND);
        node.unwant("slow");
    }
    tokio::time::sleep(SECOND / 2).await;
    let began = Instant::now();
    node.unwant("other");
    until(node, |node| !is_shown(node, "other")).await;
    let stopped = began.elapsed();
    if slow {
        assert!(is_shown(node, "slow"));
        until(node, |node| !is_shown(node, "slow")).await;
        assert!(began.elapsed() >= 5 * SECOND);
    }
    assert_eq!(node.world.leftovers().uids().count(), 0);
    [started, stopped]
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_writes_take_a_second_each_holds_up_no_other() {
    let alone = life(&mut node().await, false).await;
    let mut node = node().await;
    node.world.checkpoints.slow_down("slow", SECOND);
    node.world.files.slow_down("slow", SECOND);
    assert_eq!(life(&mut node, true).await, alone);
    assert!(alone.iter().all(|took| *took < 5 * SECOND), "{alone:?}");
    seconds(100).await;
    assert_eq!(node.world.leftovers().uids().count(), 0);
}
