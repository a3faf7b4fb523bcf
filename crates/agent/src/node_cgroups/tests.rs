use std::collections::BTreeMap;
use std::io::ErrorKind;

use crablet_api::core::Node;
use crablet_api::testing::pod_yaml;
use crablet_core::resize::decision::Exclusive;
use crablet_core::translate::{self, SysctlAllowlist};
use crablet_host::cgroup::{Bound, OnlyOthers, Operation, SimulatedCgroups};
use crablet_host::clock::Clock;
use crablet_host::machine::Machine;
use crablet_host::simulation::Fault;
use tokio::time::advance;

use crablet_host::checkpoint::SimulatedCheckpoints;

use super::*;
use crate::admission::Gate;
use crate::allocations::Allocations;
use crate::eviction::Pressure;
use crate::mailbox::Mailbox;
use crate::node_config::Sizes;
use crate::node_facts::{Facts, LiveFacts};
use crate::recorder::EventQueue;
use crate::statuses::Reported;
use crate::story::Stories;

struct World {
    cgroups: SimulatedCgroups,
    admission: Admission,
    events: EventQueue,
    owner: NodeCgroups,
    registry: Registry,
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
    held(Limits::default(), settings)
}

/// A node whose pods are held to limits.
fn held(held: Limits, settings: Settings) -> World {
    let clock = Clock::system();
    let recorder = Recorder::new(clock.clone(), Stories::new(clock.clone()));
    let mut node = Node::default();
    for (resource, amount) in [("pods", "10"), ("cpu", "8"), ("memory", "8Gi")] {
        node.status.allocatable.insert(resource, amount.parse().unwrap());
    }
    let facts = Facts { node, translation: translate::NodeContext::default(), held, ..Facts::default() };
    let allocations = Allocations::new(Arc::new(SimulatedCheckpoints::new()));
    let facts = LiveFacts::new(facts);
    let gate = Gate {
        facts: facts.clone(),
        pressure: Pressure::default(),
        sysctls: Arc::new(SysctlAllowlist::default()),
        app_armor: false,
        exclusive: Exclusive::default(),
    };
    let admission = Admission::new(gate, clock, recorder.clone(), allocations);
    let (cgroups, registry) = (SimulatedCgroups::new(), Registry::default());
    let events = recorder.queue();
    let node = Involved::node("n");
    let owner = NodeCgroups {
        cgroups: Arc::new(cgroups.clone()),
        settings,
        facts,
        recorder,
        node,
        statuses: Statuses::new(),
        strangers: Arc::default(),
        protected: Some(Protected::register(&registry).unwrap()),
    };
    World { cgroups, admission, events, owner, registry }
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

    /// A pod `u` whose container runs, in no cgroup yet.
    fn run_a_pod(&self) {
        let pod = pod_yaml(
            "metadata: {name: p, uid: u}\nspec: {containers: [{name: c}]}\n\
             status: {containerStatuses: [{name: c, state: {running: {}}}]}",
        );
        let status = Arc::new(pod.status.clone());
        self.owner.statuses.show(Reported::new(Arc::new(pod), status));
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
    let cpus = Some("0-3".to_owned());
    let all = Limits { cpus: cpus.clone(), ..limit(100) };
    let world = held(all.clone(), Settings::default());
    world.owner.make().await.unwrap();
    let levels = world.cgroups.levels().unwrap();
    assert_eq!(levels.node, Limits { cpus, ..Limits::default() }, "systemd must know of them from the start");
    assert_eq!((levels.best_effort.cpu_shares, levels.burstable.cpu_shares), (Some(2), None));
    let (events, cgroups) = (&world.events, &world.cgroups);
    tokio::spawn(world.owner.keep(world.admission));
    settle().await;
    assert_eq!(cgroups.levels().unwrap().node, all);
    assert_eq!(&*events.try_next().unwrap().message, "Updated Node Allocatable limit across pods");
    advance(2 * BETWEEN_CHECKS).await;
    settle().await;
    assert!(events.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_the_machine_gets_while_it_runs_is_for_pods_at_once() {
    let flags = [("kube-reserved", "memory=1Gi"), ("cgroup-driver", "systemd")];
    let flags = flags.map(|(name, value)| (crablet_config::Flag::find(name).unwrap(), value));
    let effective = crablet_config::load(&flags).unwrap();
    let sizes = |cpus: u32, gigabytes: u64, pages: u64| {
        let machine = Machine {
            cpus,
            online_cpus: (0..cpus).collect(),
            memory: gigabytes << 30,
            huge_pages: BTreeMap::from([(2 << 20, pages)]),
            processes: None,
            ..Machine::read(std::path::Path::new("/")).unwrap()
        };
        let (configuration, flags) = (&effective.configuration, &effective.flags);
        Sizes::new(configuration, flags, &effective.features, &machine, None)
    };
    let world = held(sizes(2, 4, 0).held, Settings::default());
    let (cgroups, facts) = (world.cgroups.clone(), world.owner.facts.clone());
    tokio::spawn(world.owner.keep(world.admission));
    settle().await;
    let held = |cpus: &str, shares: u64, gigabytes: u64| Limits {
        cpu_shares: Some(shares),
        cpus: Some(cpus.to_owned()),
        huge_pages: HugePages::Unlimited,
        ..limit(gigabytes << 30)
    };
    assert_eq!(cgroups.levels().unwrap().node, held("0-1", 2048, 3));
    for (more, expected) in [
        (sizes(2, 8, 0), held("0-1", 2048, 7)),
        (sizes(4, 8, 512), held("0-3", 4096, 7)),
        (sizes(2, 4, 0), held("0-1", 2048, 3)),
    ] {
        facts.measure(&more);
        settle().await;
        assert_eq!(cgroups.levels().unwrap().node, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn classes_that_cannot_have_what_is_theirs_are_tried_less_and_less_often() {
    let world = world(Settings::default());
    world.open();
    for nth in 1..=12 {
        world.cgroups.plan(Some(Operation::EnsureLevels), nth, Fault::Fails(ErrorKind::ResourceBusy));
    }
    let mut done = Done::default();
    let mut waits = Vec::new();
    while let Some(again) = world.owner.serve_classes(world.admission.asked().unwrap(), &mut done).await {
        waits.push((again - Instant::now()).as_secs());
        tokio::time::sleep_until(again).await;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60]);
    assert!(done.trouble.is_none());
}

#[tokio::test(start_paused = true)]
async fn pods_that_use_more_are_held_to_it_when_they_do_not_any_more() {
    let world = held(limit(100), Settings::default());
    world.owner.make().await.unwrap();
    world.open();
    for _ in 0..2 {
        world.cgroups.plan(Some(Operation::EnsureLevels), 1, Fault::Fails(ErrorKind::ResourceBusy));
    }
    let mut done = Done { due: Some(Instant::now()), ..Done::default() };
    let kubepods = world.cgroups.kubepods().unwrap();
    for _ in 0..2 {
        let next = world.owner.hold_pods(&kubepods, &mut done).await.unwrap();
        assert_eq!(next - Instant::now(), BETWEEN_ENFORCEMENTS);
        assert_eq!(world.owner.hold_pods(&kubepods, &mut done).await, Some(next), "it is not tried before");
        advance(BETWEEN_ENFORCEMENTS).await;
    }
    assert_eq!(world.owner.hold_pods(&kubepods, &mut done).await, None);
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
        let gauges = world.registry.render();
        let is_protected = memory == Some(MemoryReservation::Tiered);
        for (gauge, bytes) in [("min", "2.097152e+06"), ("low", "1.048576e+06")] {
            let bytes = if is_protected { bytes } else { "0" };
            let line = format!("kubelet_memory_qos_node_memory_{gauge}_bytes {bytes}\n");
            assert!(gauges.contains(&line), "{gauges}");
        }
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
    let world = held(limit(100), Settings { others: vec![system()], ..Settings::default() });
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
async fn a_pod_that_runs_outside_the_tree_at_two_checks_is_told_of_once() {
    let world = world(Settings::default());
    world.run_a_pod();
    let mut done = Done::default();
    for expected in [0, 1, 1] {
        world.owner.check(&mut done).await;
        assert_eq!(done.told_astray.len(), expected);
    }
    let cgroup = PodCgroup::new(crablet_host::cgroup::QosClass::BestEffort, "u").unwrap();
    world.cgroups.ensure_pod(&cgroup, &Limits::default()).await.unwrap();
    world.owner.check(&mut done).await;
    assert!(done.astray.is_empty() && done.told_astray.is_empty());
}

#[tokio::test(start_paused = true)]
async fn where_pods_have_no_cgroups_nobody_looks_for_them_or_tells_of_them() {
    let mut world = held(limit(100), Settings { others: vec![system()], ..Settings::default() });
    world.owner.cgroups = Arc::new(OnlyOthers(world.cgroups.clone()));
    world.cgroups.add_other("/system.slice");
    world.open();
    world.run_a_pod();
    let mut done = Done::default();
    for _ in 0..2 {
        world.owner.check(&mut done).await;
    }
    assert!(done.astray.is_empty() && done.told_astray.is_empty(), "it runs where the runtime put it");
    let (events, cgroups) = (&world.events, &world.cgroups);
    tokio::spawn(world.owner.keep(world.admission));
    for _ in 0..7 {
        settle().await;
        advance(Duration::from_secs(100)).await;
    }
    settle().await;
    let told: Vec<_> =
        std::iter::from_fn(|| events.try_next()).map(|event| event.message.to_string()).collect();
    assert_eq!(told, ["Updated limits on system reserved cgroup /system.slice"]);
    assert!(cgroups.levels().is_none());
    assert_eq!(cgroups.other("/system.slice"), Some(limit(7)), "others are held as ever");
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
