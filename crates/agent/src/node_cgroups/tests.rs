use std::collections::BTreeMap;
use std::io::ErrorKind;

use crablet_api::core::Node;
use crablet_api::testing::pod_yaml;
use crablet_core::translate::{self, SysctlAllowlist};
use crablet_host::cgroup::{Bound, Operation, SimulatedCgroups};
use crablet_host::clock::Clock;
use crablet_host::simulation::Fault;
use tokio::time::advance;

use crablet_host::checkpoint::SimulatedCheckpoints;

use super::*;
use crate::allocations::Allocations;
use crate::mailbox::Mailbox;
use crate::node_facts::{Facts, LiveFacts};
use crate::recorder::EventQueue;
use crate::story::Stories;

struct World {
    cgroups: SimulatedCgroups,
    admission: Admission,
    events: EventQueue,
    owner: NodeCgroups,
}

fn limit(memory: u64) -> Limits {
    Limits { memory: Some(Bound::At(memory)), ..Limits::default() }
}

fn system() -> Other {
    Other {
        whose: Whose::System,
        is_compressible: false,
        cgroup: "/system.slice".to_owned(),
        limits: limit(7),
    }
}

fn world(settings: Settings) -> World {
    let clock = Clock::system();
    let recorder = Recorder::new(clock.clone(), Stories::new(clock));
    let mut node = Node::default();
    for (resource, amount) in [("pods", "10"), ("cpu", "8"), ("memory", "8Gi")] {
        node.status.allocatable.insert(resource, amount.parse().unwrap());
    }
    let facts = Facts { node, translation: translate::NodeContext::default(), ..Facts::default() };
    let allocations = Allocations::new(Arc::new(SimulatedCheckpoints::new()));
    let (facts, sysctls) = (LiveFacts::new(facts), SysctlAllowlist::default());
    let admission = Admission::new(facts, sysctls, false, recorder.clone(), allocations);
    let cgroups = SimulatedCgroups::new();
    let events = recorder.queue();
    let node = Involved::node("n");
    let owner = NodeCgroups {
        cgroups: Arc::new(cgroups.clone()),
        settings,
        recorder,
        node,
        statuses: Statuses::new(),
        strangers: Arc::default(),
    };
    World { cgroups, admission, events, owner }
}

impl World {
    fn enter(&self, uid: &str, resources: &str) {
        let pod = pod_yaml(&format!(
            "metadata: {{name: {uid}, namespace: default, uid: {uid}}}\n\
             spec: {{containers: [{{name: c, resources: {resources}}}]}}"
        ));
        self.admission.enter(&Arc::new(pod), &Mailbox::new(), false);
    }

    fn open(&self) {
        self.admission.take_over(BTreeMap::new());
        self.admission.open();
    }

    fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(event) = self.events.try_next() {
            told.push(format!("{} {}: {}", event.event_type, event.reason, event.message));
        }
        told
    }
}

/// Lets tasks do what they can do now.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

const ENFORCED: &str = "Normal NodeAllocatableEnforced: Updated Node Allocatable limit across pods";

#[tokio::test(start_paused = true)]
async fn pods_are_held_to_what_is_theirs_at_once_and_that_is_told_once() {
    let world = world(Settings { pods: limit(100), ..Settings::default() });
    world.owner.make().await.unwrap();
    let levels = world.cgroups.levels().unwrap();
    assert_eq!(levels.node, Limits::default());
    assert_eq!((levels.best_effort.cpu_shares, levels.burstable.cpu_shares), (Some(2), None));
    let (events, cgroups) = (&world.events, &world.cgroups);
    tokio::spawn(world.owner.keep(world.admission));
    settle().await;
    assert_eq!(cgroups.levels().unwrap().node, limit(100));
    assert_eq!(&*events.try_next().unwrap().message, "Updated Node Allocatable limit across pods");
    advance(2 * BETWEEN_CHECKS).await;
    settle().await;
    assert!(events.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn pods_that_use_more_are_held_to_it_when_they_do_not_any_more() {
    let world = world(Settings { pods: limit(100), ..Settings::default() });
    world.owner.make().await.unwrap();
    world.open();
    for _ in 0..2 {
        world.cgroups.plan(Some(Operation::EnsureLevels), 1, Fault::Fails(ErrorKind::ResourceBusy));
    }
    let mut done = Done { pods: Some(Instant::now()), ..Done::default() };
    for _ in 0..2 {
        let next = world.owner.hold_pods(&mut done).await.unwrap();
        assert_eq!(next - Instant::now(), BETWEEN_ENFORCEMENTS);
        assert_eq!(world.owner.hold_pods(&mut done).await, Some(next), "it is not tried before");
        advance(BETWEEN_ENFORCEMENTS).await;
    }
    assert_eq!(world.owner.hold_pods(&mut done).await, None);
    let failed = "Warning FailedNodeAllocatableEnforcement: Failed to update Node Allocatable Limits \
                  [\"kubepods\"]: cannot write \"a limit\" to /kubepods: resource busy";
    assert_eq!(world.told(), [failed, failed, ENFORCED]);
}

#[tokio::test(start_paused = true)]
async fn burstable_pods_weigh_what_they_ask_for_and_their_memory_is_protected_where_that_is_wanted() {
    for (memory, least, low) in [
        (None, None, None),
        (Some(MemoryReservation::None), Some("0"), Some("0")),
        (Some(MemoryReservation::Tiered), Some("3145728"), Some("1048576")),
    ] {
        let world = world(Settings { memory, ..Settings::default() });
        world.open();
        world.enter("b", "{requests: {cpu: 500m, memory: 1Mi}}");
        world.enter("g", "{limits: {cpu: 1, memory: 2Mi}, requests: {cpu: 1, memory: 2Mi}}");
        world.enter("e", "{}");
        let (cgroups, admission) = (world.cgroups.clone(), world.admission.clone());
        tokio::spawn(world.owner.keep(admission.clone()));
        settle().await;
        let levels = cgroups.levels().unwrap();
        assert_eq!(levels.burstable.cpu_shares, Some(512));
        assert_eq!(levels.node.unified.get("memory.min").map(String::as_str), least, "{memory:?}");
        assert_eq!(levels.burstable.unified.get("memory.low").map(String::as_str), low, "{memory:?}");
        admission.release("b");
        settle().await;
        assert_eq!(cgroups.levels().unwrap().burstable.cpu_shares, Some(2));
    }
}

#[tokio::test(start_paused = true)]
async fn the_system_is_held_to_what_is_kept_for_it_or_the_agent_does_not_start() {
    let world = world(Settings { others: vec![system()], ..Settings::default() });
    let refused = world.owner.hold_others().await.unwrap_err();
    assert_eq!(
        ErrorChain(&refused).to_string(),
        "Failed to enforce System Reserved Cgroup Limits on \"/system.slice\": the cgroup /system.slice does not exist"
    );
    world.cgroups.add_other("/system.slice");
    world.owner.hold_others().await.unwrap();
    assert_eq!(world.cgroups.other("/system.slice"), Some(limit(7)));
}

#[tokio::test(start_paused = true)]
async fn what_somebody_put_wrong_is_put_right_by_the_next_check_and_what_cannot_be_is_told() {
    let world = world(Settings { pods: limit(100), others: vec![system()], ..Settings::default() });
    world.open();
    world.cgroups.add_other("/system.slice");
    let (cgroups, admission) = (world.cgroups.clone(), world.admission.clone());
    tokio::spawn(world.owner.keep(admission));
    settle().await;
    let events = || std::iter::from_fn(|| world.events.try_next()).map(|event| event.message.to_string());
    assert_eq!(
        events().collect::<Vec<_>>(),
        [
            "Updated limits on system reserved cgroup /system.slice",
            "Updated Node Allocatable limit across pods"
        ]
    );
    cgroups.limit_existing("/system.slice", &limit(1)).await.unwrap();
    let wrong = LevelLimits { node: limit(1), ..LevelLimits::default() };
    cgroups.ensure_levels(&wrong).await.unwrap();
    let calls = cgroups.calls().len();
    advance(BETWEEN_CHECKS / 2).await;
    settle().await;
    assert_eq!(cgroups.calls().len(), calls, "nobody wakes for it each minute");
    advance(BETWEEN_CHECKS / 2).await;
    settle().await;
    assert_eq!(cgroups.levels().unwrap().node, limit(100));
    assert_eq!(cgroups.other("/system.slice"), Some(limit(7)));
    assert_eq!(events().count(), 0);

    cgroups.remove_other("/system.slice");
    advance(BETWEEN_CHECKS).await;
    settle().await;
    assert_eq!(
        events().collect::<Vec<_>>(),
        [
            "Failed to enforce System Reserved Cgroup Limits on \"/system.slice\": the cgroup /system.slice does not exist"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_agent_and_the_systems_processes_are_put_where_they_should_be_and_put_back() {
    let settings = Settings {
        of_kubelet: Some("/kubelet".to_owned()),
        of_system: Some("/system".to_owned()),
        ..Settings::default()
    };
    let world = world(settings);
    let cgroups = world.cgroups.clone();
    cgroups.plan(Some(Operation::Enter), 1, Fault::Fails(ErrorKind::PermissionDenied));
    tokio::spawn(world.owner.keep(world.admission));
    settle().await;
    assert_eq!(cgroups.places(), (None, Some("/system".to_owned())), "one that fails holds up no other");
    advance(BETWEEN_CHECKS).await;
    settle().await;
    assert_eq!(cgroups.places(), (Some("/kubelet".to_owned()), Some("/system".to_owned())));
}
