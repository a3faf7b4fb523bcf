//! Cgroups that somebody else makes, changes and takes away, under an agent on the simulated runtime.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use common::{Node, seconds};
use crablet_host::cgroup::{Bound, Cgroups as _, LevelLimits, Limits, PodCgroup, QosClass};

const SPEC: &str = "{containers: [{name: c, image: 'sim/forever:1', resources: {limits: {memory: 64Mi}}}]}";

/// A little more than it takes until everything is looked after.
const CHECK: u64 = 310;

#[tokio::test(start_paused = true)]
async fn a_container_that_starts_again_finds_the_limits_of_its_pod_also_when_somebody_removed_them() {
    let mut node = Node::start().await;
    node.want("p", SPEC).await;
    seconds(5).await;
    let (pod, limits) = node.world.cgroups.limits().into_iter().next().unwrap();
    assert_eq!(limits.memory, Some(Bound::At(64 << 20)));
    let id = node.container("p", "c").container_id.split_once("://").unwrap().1.to_owned();
    node.world.cgroups.remove_pod(&pod).await.unwrap();
    node.world.simulator.exit_container(&id, 1);
    seconds(30).await;
    assert_ne!(node.container("p", "c").container_id.split_once("://").unwrap().1, id);
    assert_eq!(node.world.cgroups.limits().into_iter().next(), Some((pod, limits)));
}

#[tokio::test(start_paused = true)]
async fn a_cgroup_of_no_pod_is_removed_at_the_start_and_when_it_is_seen() {
    let mut node = Node::start().await;
    node.want("p", SPEC).await;
    seconds(5).await;
    let ours = node.world.cgroups.pods().await.unwrap();
    let orphan = PodCgroup::new(QosClass::Burstable, "orphan").unwrap();
    node.world.cgroups.ensure_pod(&orphan, &Limits::default()).await.unwrap();
    seconds(60).await;
    assert_eq!(node.world.cgroups.pods().await.unwrap().len(), 2);
    seconds(CHECK).await;
    assert_eq!(node.world.cgroups.pods().await.unwrap(), ours);

    node.world.cgroups.ensure_pod(&orphan, &Limits::default()).await.unwrap();
    node.restart().await;
    seconds(10).await;
    assert_eq!(node.world.cgroups.pods().await.unwrap(), ours);
}

#[tokio::test(start_paused = true)]
async fn pods_together_are_held_to_what_is_theirs_again_by_the_next_look() {
    let node = Node::start().await;
    seconds(5).await;
    let right = node.world.cgroups.levels().unwrap();
    assert!(right.node.memory.is_some());
    let wrong = Limits { memory: Some(Bound::At(1)), ..Limits::default() };
    node.world.cgroups.ensure_levels(&LevelLimits { node: wrong, ..LevelLimits::default() }).await.unwrap();
    assert_ne!(node.world.cgroups.levels().unwrap(), right);
    seconds(CHECK).await;
    assert_eq!(node.world.cgroups.levels().unwrap(), right);
}
