//! What a whole agent makes of static pods that another kubelet ran, on the simulated runtime.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::{Node, seconds};
use crablet_agent::adoption::{Adoption, Candidate};
use crablet_agent::sources::SourceKind;
use crablet_api::Text;
use crablet_api::core::{Pod, PodPhase};
use crablet_host::checkpoint::SimulatedCheckpoints;
use crablet_simulation::manifest::from_text;
use jiff::Timestamp;

/// Static pods in all the states that one can be in.
const PODS: [(&str, &str); 5] = [
    ("runs", "{containers: [{name: c, image: 'sim/forever:1', env: [{name: A, value: b}]}]}"),
    ("done", "{restartPolicy: Never, containers: [{name: c, image: 'sim/exits-0-3:1'}]}"),
    ("done-too", "{restartPolicy: OnFailure, containers: [{name: c, image: 'sim/exits-0-3:1'}]}"),
    ("failed", "{restartPolicy: Never, containers: [{name: c, image: 'sim/exits-1-3:1'}]}"),
    ("loops", "{restartPolicy: Always, containers: [{name: c, image: 'sim/exits-1-3:1'}]}"),
];

/// A pod under a UID.
fn pod(name: &str, uid: &str, spec: &str) -> Arc<Pod> {
    from_text(&format!("metadata: {{name: {name}, namespace: default, uid: {uid}}}\nspec: {spec}\n"))
}

/// A node on which another kubelet ran all of them under UIDs of its own, and left nothing of what it knew.
async fn node() -> Node {
    let mut node = Node::start().await;
    for (name, spec) in PODS {
        let pod = pod(name, &format!("go-{name}"), spec);
        node.world.ledger.want(&pod, SourceKind::File);
        node.world.wanted.entry(SourceKind::File).or_default().insert(name.to_owned(), pod);
    }
    node.world.tell_all();
    seconds(100).await;
    node.world.kill().await;
    node.world.checkpoints = SimulatedCheckpoints::new();
    node
}

/// The UIDs that pods get whose manifests are these.
async fn adopt(
    adoption: &Adoption,
    manifests: &[(&str, &str, &str)],
    modified: Option<Timestamp>,
) -> Vec<Arc<Pod>> {
    let mut pods: Vec<(Arc<Pod>, Text)> =
        manifests.iter().map(|(name, digest, spec)| (pod(name, digest, spec), (*digest).into())).collect();
    let candidates = pods.iter_mut().map(|(pod, digest)| Candidate { pod, digest, modified }).collect();
    adoption.adopt(SourceKind::File, candidates).await;
    pods.into_iter().map(|(pod, _)| pod).collect()
}

fn uids(pods: &[Arc<Pod>]) -> Vec<String> {
    pods.iter().map(|pod| pod.metadata.uid.to_string()).collect()
}

async fn open(node: &Node, store: &SimulatedCheckpoints) -> Adoption {
    Adoption::open(Arc::new(node.world.client()), Arc::new(store.clone())).await.unwrap()
}

/// Later than anything was made.
fn touched() -> Option<Timestamp> {
    Some(Timestamp::MAX)
}

/// The containers of each pod that there ever were, as far as the runtime has them: their IDs and attempts.
fn containers(node: &Node) -> BTreeMap<String, Vec<(u32, String)>> {
    let mut found: BTreeMap<String, Vec<(u32, String)>> = BTreeMap::new();
    for container in node.world.simulator.containers() {
        found.entry(container.pod_uid).or_default().push((container.attempt, container.id));
    }
    found
}

fn sandboxes(node: &Node) -> Vec<(String, String)> {
    node.world.simulator.sandboxes().into_iter().map(|sandbox| (sandbox.metadata.uid, sandbox.id)).collect()
}

#[tokio::test(start_paused = true)]
async fn pods_are_adopted_whatever_their_state_and_what_is_finished_stays_finished() {
    let mut node = node().await;
    let (before, sandboxes_before) = (containers(&node), sandboxes(&node));
    let store = SimulatedCheckpoints::new();
    let digests: Vec<String> = PODS.iter().map(|(name, _)| format!("d{name}")).collect();
    let manifests: Vec<(&str, &str, &str)> =
        PODS.iter().zip(&digests).map(|((name, spec), digest)| (*name, digest.as_str(), *spec)).collect();
    let expected: Vec<String> = PODS.iter().map(|(name, _)| format!("go-{name}")).collect();
    let mut restarts = 0;
    for round in 0..3 {
        // From the second time on, the runtime need not say anything.
        if round > 0 {
            node.world.simulator.die();
        }
        let adoption = open(&node, &store).await;
        let adopted = adopt(&adoption, &manifests, touched()).await;
        node.world.simulator.come_back();
        assert_eq!(uids(&adopted), expected, "round {round}");
        assert_eq!(
            store.content().into_keys().collect::<std::collections::BTreeSet<_>>(),
            expected.iter().cloned().collect()
        );
        let wanted = adopted.into_iter().map(|pod| (pod.metadata.uid.to_string(), pod)).collect();
        node.world.wanted.insert(SourceKind::File, wanted);
        node.world.start(None).await;
        node.world.tell_all();
        seconds(5).await;
        let agent = node.world.agent.as_ref().unwrap().agent.clone();
        let phase = |uid: &str| agent.statuses.get(uid).unwrap().status.phase.clone();
        for (uid, phase_expected) in [
            ("go-runs", PodPhase::Running),
            ("go-done", PodPhase::Succeeded),
            ("go-done-too", PodPhase::Succeeded),
            ("go-failed", PodPhase::Failed),
            ("go-loops", PodPhase::Running),
        ] {
            assert_eq!(phase(uid), Some(phase_expected), "{uid} in round {round}");
        }
        let now = containers(&node);
        for uid in ["go-runs", "go-done", "go-done-too", "go-failed"] {
            assert_eq!(now[uid], before[uid], "{uid} in round {round}");
        }
        // What waits between its restarts goes on to count, in its sandbox.
        let count = node.container("go-loops", "c").restart_count;
        assert!(count >= restarts && count > 1, "{count} after {restarts} in round {round}");
        restarts = count;
        for (uid, id) in sandboxes(&node) {
            assert!(
                sandboxes_before.contains(&(uid.clone(), id)),
                "{uid} got another sandbox in round {round}"
            );
        }
        node.world.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_manifest_makes_another_pod_and_the_record_goes_when_the_runtime_has_nothing_of_it() {
    let mut node = node().await;
    let store = SimulatedCheckpoints::new();
    let (_, spec) = PODS[0];
    let adoption = open(&node, &store).await;
    assert_eq!(uids(&adopt(&adoption, &[("runs", "one", spec)], touched()).await), ["go-runs"]);
    assert_eq!(store.content().len(), 1);
    // While the agent runs: the manifest changes, changes back, and changes again.
    for (digest, expected) in [("two", "two"), ("one", "go-runs"), ("two", "two")] {
        assert_eq!(uids(&adopt(&adoption, &[("runs", digest, spec)], touched()).await), [expected]);
    }
    // While no agent runs, even where nothing could be told from the containers or the file. Nothing of the first pod may
    // have been stopped yet.
    for (digest, expected) in [("two", "two"), ("one", "go-runs"), ("two", "two")] {
        let adoption = open(&node, &store).await;
        assert_eq!(uids(&adopt(&adoption, &[("runs", digest, spec)], None).await), [expected]);
        assert_eq!(store.content().len(), 1);
    }
    // A source that wants it no more.
    adopt(&open(&node, &store).await, &[], None).await;
    assert_eq!(store.content().len(), 1);

    // Its end comes, and is over.
    node.world.wanted.insert(SourceKind::File, BTreeMap::new());
    node.restart().await;
    seconds(60).await;
    assert_eq!(sandboxes(&node), []);
    adopt(&open(&node, &store).await, &[("runs", "two", spec)], None).await;
    assert_eq!(store.content().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_edit_is_not_lost_wherever_the_agent_is_killed_on_the_way() {
    let (_, spec) = PODS[0];
    let edited = spec.replace("name: c, ", "name: c, resources: {limits: {memory: 64Mi}}, ");
    let tell = |node: &mut Node, pods: Vec<Arc<Pod>>| {
        let wanted = pods.into_iter().map(|pod| (pod.metadata.uid.to_string(), pod)).collect();
        node.world.wanted.insert(SourceKind::File, wanted);
        node.world.tell_all();
    };
    for steps in 0..30 {
        let mut node = Node::start().await;
        node.world.ledger.want(&pod("runs", "go-runs", spec), SourceKind::File);
        tell(&mut node, vec![pod("runs", "go-runs", spec)]);
        seconds(10).await;
        node.world.kill().await;
        node.world.checkpoints = SimulatedCheckpoints::new();
        let store = SimulatedCheckpoints::new();
        node.world.start(None).await;
        let adoption = open(&node, &store).await;
        tell(&mut node, adopt(&adoption, &[("runs", "one", spec)], touched()).await);
        seconds(5).await;
        // The manifest is written, and the agent reads it.
        let edited_pods = adopt(&adoption, &[("runs", "two", &edited)], touched()).await;
        let crash = Arc::clone(&node.world.agent.as_ref().unwrap().crash);
        crash.at(crash.steps() + 1 + steps);
        tell(&mut node, edited_pods);
        seconds(2).await;
        node.world.kill().await;
        // The next one.
        node.world.start(None).await;
        let adoption = open(&node, &store).await;
        tell(&mut node, adopt(&adoption, &[("runs", "two", &edited)], touched()).await);
        seconds(100).await;
        let alive = node.world.simulator.containers().into_iter().filter(|container| container.alive);
        assert_eq!(
            alive.map(|container| container.pod_uid).collect::<Vec<_>>(),
            ["two"],
            "after {steps} steps"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_was_changed_is_known_by_what_its_containers_were_made_from() {
    let node = node().await;
    let (_, spec) = PODS[0];
    let made = Timestamp::UNIX_EPOCH;
    for (edited, modified, adopted) in [
        (spec.to_owned(), touched(), true),
        // A probe, a label and such do not show, and need no other containers.
        (spec.replace("{containers", "{terminationGracePeriodSeconds: 7, containers"), touched(), true),
        // What does show counts for more than an old file.
        (spec.replace("value: b", "value: c"), Some(made), false),
        (spec.replace("name: c, ", "name: c, args: [x], "), Some(made), false),
        (spec.replace("name: c, ", "name: c, resources: {limits: {memory: 64Mi}}, "), Some(made), false),
        (spec.replace("name: c, ", "name: c, securityContext: {privileged: true}, "), Some(made), false),
        (spec.replace("name: c, ", "name: d, "), Some(made), false),
        (spec.replace("forever", "stubborn"), Some(made), false),
        // A variable less could have been somebody else's: the file decides.
        (spec.replace("env: [{name: A, value: b}]", ""), Some(made), true),
        (spec.replace("env: [{name: A, value: b}]", ""), touched(), false),
    ] {
        let adoption = open(&node, &SimulatedCheckpoints::new()).await;
        let expected = if adopted { "go-runs" } else { "digest" };
        assert_eq!(
            uids(&adopt(&adoption, &[("runs", "digest", &edited)], modified).await),
            [expected],
            "{edited}"
        );
    }
    // Another name is another pod.
    let adoption = open(&node, &SimulatedCheckpoints::new()).await;
    assert_eq!(uids(&adopt(&adoption, &[("other", "digest", spec)], Some(made)).await), ["digest"]);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_does_not_answer_is_waited_for_and_so_is_the_disk() {
    let node = node().await;
    let store = SimulatedCheckpoints::new();
    node.world.simulator.die();
    store.set_capacity(0);
    let adoption = open(&node, &store).await;
    let (name, spec) = PODS[0];
    let manifests = [(name, "digest", spec)];
    let mut adopting = std::pin::pin!(adopt(&adoption, &manifests, touched()));
    let patience = Duration::from_secs(600);
    assert!(tokio::time::timeout(patience, &mut adopting).await.is_err(), "the runtime is away");
    node.world.simulator.come_back();
    assert!(tokio::time::timeout(patience, &mut adopting).await.is_err(), "nothing can be written");
    store.set_capacity(usize::MAX);
    assert_eq!(uids(&adopting.await), ["go-runs"]);
    assert_eq!(store.content().into_keys().collect::<Vec<_>>(), ["go-runs"]);
}
