//! Pods whose resources change while they run.

mod common;

use std::sync::Arc;

use common::World;
use crablet_api::FeatureGates;
use crablet_api::core::{Pod, PodPhase, ResourceRequirements, RestartPolicy};
use crablet_api::document::Limits;
use crablet_api::testing::pod_yaml;
use crablet_core::qos::{Overhead, PodLevel, pod_requests};
use crablet_core::resize::{PodResourceInfo, is_in_progress, state_file, still_having};
use proptest::collection::vec;
use proptest::prelude::*;

/// A pod whose containers have these resources, each with what else is said of it.
fn pod(containers: &[(&str, &str, &str)]) -> Pod {
    let list: Vec<String> = containers
        .iter()
        .map(|(name, resources, more)| format!("{{name: {name}, image: img, resources: {resources}{more}}}"))
        .collect();
    pod_yaml(&format!(
        "metadata: {{name: web, namespace: default, uid: uid-web}}\n\
         spec: {{restartPolicy: Never, containers: [{}]}}",
        list.join(", ")
    ))
}

/// Resources in few words: CPU and memory asked for, and up to what.
fn of(cpu: &str, memory: &str, cpu_limit: &str, memory_limit: &str) -> String {
    format!(
        "{{requests: {{cpu: {cpu}, memory: {memory}}}, limits: {{cpu: {cpu_limit}, memory: {memory_limit}}}}}"
    )
}

/// All containers run with what they asked for in the one pod, and ask for what is in the other by now, which was
/// granted.
fn resized(before: &Pod, after: Pod) -> World {
    let names: Vec<String> =
        before.spec.containers.iter().map(|container| format!("{} running", container.name)).collect();
    let mut world = World::new(after, &names.join(", "));
    for container in &before.spec.containers {
        world.actuated.set(&container.name, container.resources.clone());
    }
    world
}

/// One container changes from the one to the other.
#[track_caller]
fn check(before: &str, after: &str, more: &str, expected: &str) {
    resized(&pod(&[("c", before, more)]), pod(&[("c", after, more)])).plans(expected);
}

#[test]
fn a_container_that_runs_is_given_what_was_granted() {
    let small = of("50m", "32Mi", "100m", "64Mi");
    check(&small, &small, "", "nothing");
    check(&small, &of("80m", "32Mi", "100m", "64Mi"), "", "update c-0 to 80m/32Mi up to 100m/64Mi");
    check(&small, &of("50m", "48Mi", "100m", "64Mi"), "", "update c-0 to 50m/48Mi up to 100m/64Mi");
    // The same amounts in other words.
    check(&small, &of("0.05", "32768Ki", "100m", "64Mi"), "", "nothing");
    // Memory first, with the CPU as it was.
    check(
        &small,
        &of("80m", "48Mi", "160m", "96Mi"),
        "",
        "update c-0 to 50m/48Mi up to 100m/96Mi, update c-0 to 80m/48Mi up to 160m/96Mi",
    );
    check(
        "{requests: {cpu: 50m}}",
        "{requests: {cpu: 50m}, limits: {cpu: 1}}",
        "",
        "update c-0 to 50m/- up to 1/-",
    );
    // Other resources cannot change while a container runs.
    check("{requests: {ephemeral-storage: 1Gi}}", "{requests: {ephemeral-storage: 2Gi}}", "", "nothing");
}

#[test]
fn what_shrinks_goes_before_what_grows() {
    let (small, large) = (of("50m", "32Mi", "100m", "64Mi"), of("80m", "48Mi", "160m", "96Mi"));
    let before = pod(&[("a", &small, ""), ("b", &large, "")]);
    resized(&before, pod(&[("a", &large, ""), ("b", &small, "")])).plans(
        "update b-0 to 80m/32Mi up to 160m/64Mi, update a-0 to 50m/48Mi up to 100m/96Mi, \
         update b-0 to 50m/32Mi up to 100m/64Mi, update a-0 to 80m/48Mi up to 160m/96Mi",
    );
}

#[test]
fn what_is_not_known_since_an_agent_died_is_told_as_it_is_allocated() {
    let large = of("80m", "48Mi", "160m", "96Mi");
    let mut world = World::new(pod(&[("c", &large, "")]), "c running");
    world.actuated.set("c", ResourceRequirements::default());
    world.plans("update c-0 to 80m/48Mi up to 160m/96Mi, update c-0 to 80m/48Mi up to 160m/96Mi");
}

#[test]
fn what_is_asked_for_and_not_granted_changes_nothing() {
    let (small, large) = (of("50m", "32Mi", "100m", "64Mi"), of("80m", "48Mi", "160m", "96Mi"));
    let before = pod(&[("c", &small, "")]);
    let mut world = resized(&before, pod(&[("c", &large, "")]));
    world.allocated = Some(before.clone());
    let status = |world: &World| {
        let status = &world.status().container_statuses[0];
        let json = serde_json::to_string(&(&status.allocated_resources, &status.resources));
        json.expect("JSON")
    };
    let resources = |cpu: &str, memory: &str, cpu_limit: &str, memory_limit: &str| {
        format!(
            r#"{{"limits":{{"cpu":"{cpu_limit}","memory":"{memory_limit}"}},"requests":{{"cpu":"{cpu}","memory":"{memory}"}}}}"#
        )
    };
    let has = resources("50m", "32Mi", "100m", "64Mi");
    assert_eq!(status(&world), format!(r#"[{{"cpu":"50m","memory":"32Mi"}},{has}]"#));
    let mut world = world.plans("nothing");
    // Granted: allocated at once, and the container has it when the runtime was told.
    world.allocated = None;
    assert_eq!(status(&world), format!(r#"[{{"cpu":"80m","memory":"48Mi"}},{has}]"#));
    let updates = world.plan().update;
    for update in updates {
        world.actuated.set(&update.name, update.resources);
    }
    let has = resources("80m", "48Mi", "160m", "96Mi");
    assert_eq!(status(&world), format!(r#"[{{"cpu":"80m","memory":"48Mi"}},{has}]"#));
    world.plans("nothing");
}

#[test]
fn a_container_that_asks_for_it_is_restarted_whatever_its_policy() {
    let (small, large) = (of("50m", "32Mi", "100m", "64Mi"), of("80m", "48Mi", "160m", "96Mi"));
    let restarts = |resource: &str| {
        format!(", resizePolicy: [{{resourceName: {resource}, restartPolicy: RestartContainer}}]")
    };
    check(&small, &large, &restarts("cpu"), "kill c-0, start c#1");
    check(&small, &large, &restarts("memory"), "kill c-0, start c#1");
    let more_cpu = of("80m", "32Mi", "100m", "64Mi");
    check(&small, &more_cpu, &restarts("cpu"), "kill c-0, start c#1");
    check(&small, &more_cpu, &restarts("memory"), "update c-0 to 80m/32Mi up to 100m/64Mi");
    let with = |resources: &str| pod(&[("c", resources, &restarts("cpu"))]);
    let kill = resized(&with(&small), with(&large)).plan().kill.remove(0);
    assert_eq!((&*kill.message, kill.starts_anew), ("Container c resize requires restart", true));
}

#[test]
fn a_crash_loop_waits_also_while_a_resize_is_not_granted() {
    let of_memory = |memory: &str| {
        let mut pod = pod(&[("c", &of("50m", memory, "100m", "64Mi"), "")]);
        pod.spec.restart_policy = Some(RestartPolicy::Always);
        pod
    };
    // It was started as what it was granted.
    let mut world = World::new(of_memory("32Mi"), "c#1 exited 1, c#0 exited 1").restarted("c", 101).at(112);
    world.allocated = Some(world.pod.clone());
    world.pod = of_memory("48Mi");
    let mut world = world.plans("hold c until 121");
    // What is granted is another container, and starts over.
    world.allocated = None;
    world.plans("start c#2");
}

#[test]
fn the_memory_that_a_pod_as_a_whole_asks_for_follows_what_it_was_given() {
    let check = |pod: fn(&str) -> Pod| {
        let mut world = World::new(pod("32Mi"), "c running");
        world.pod.status.phase = Some(PodPhase::Running);
        world.actuated = PodResourceInfo::given_by(&pod("64Mi"), &world.features);
        let mut told = Vec::new();
        for given in [None, Some(PodResourceInfo::given_by(&world.pod, &world.features))] {
            world.actuated = given.unwrap_or(world.actuated);
            world.previous = world.status();
            told.push(world.previous.resources.as_ref().expect("resources").requests["memory"].to_string());
        }
        assert_eq!(told, ["64Mi", "32Mi"]);
    };
    check(|memory| pod(&[("c", &of("50m", memory, "100m", "64Mi"), ""), ("d", "{}", "")]));
    check(|memory| {
        pod_yaml(&format!(
            "spec: {{resources: {{requests: {{memory: {memory}}}}}, containers: [{{name: c, image: img}}]}}"
        ))
    });
}

#[test]
fn what_a_pod_still_has_is_the_larger_of_both_forms() {
    let form = |cpu: &str, memory: &str| pod(&[("c", &of(cpu, memory, "2", "2Gi"), ""), ("d", "{}", "")]);
    let still = |to: (&str, &str), from: (&str, &str)| {
        let larger = still_having(&form(to.0, to.1), &form(from.0, from.1))?;
        let requests = &larger.spec.containers[0].resources.requests;
        Some((requests["cpu"].to_string(), requests["memory"].to_string()))
    };
    assert_eq!(still(("1", "1Gi"), ("1", "1Gi")), None);
    assert_eq!(still(("2", "1Gi"), ("1", "1Gi")), None, "it only grows");
    assert_eq!(still(("2", "1Gi"), ("1", "2Gi")), Some(("2".into(), "2Gi".into())));
}

/// A pod of two containers with so much memory each, and with these resources as a whole.
fn pod_with_whole(memory: &str, whole: &str) -> Arc<Pod> {
    let own = format!("resources: {{requests: {{cpu: 100m, memory: {memory}}}}}");
    Arc::new(pod_yaml(&format!(
        "metadata: {{name: web, namespace: default, uid: uid-web}}\n\
         spec: {{resources: {whole}, containers: [{{name: c, {own}}}, {{name: d, {own}}}]}}"
    )))
}

/// What a pod asks for of memory in all, and up to what it may use it as a whole.
fn memory_in_all(pod: &Pod) -> (String, Option<String>) {
    let requests = pod_requests(pod, PodLevel::Counted, Overhead::Excluded);
    let limits = pod.spec.resources.as_ref().map(|whole| &whole.limits);
    let limit = limits.and_then(|limits| limits.get("memory"));
    (requests["memory"].to_string(), limit.map(ToString::to_string))
}

#[test]
fn what_containers_asked_for_counts_until_the_pod_as_a_whole_has_less() {
    let whole = |cpu: &str, memory: &str| {
        let list = format!("{{cpu: {cpu}, memory: {memory}}}");
        format!("{{requests: {list}, limits: {list}}}")
    };
    let cpu_alone = "{requests: {cpu: 1}, limits: {cpu: 1}}";
    let features = FeatureGates::default();
    for (to, from, expected) in [
        (pod_with_whole("1Gi", &whole("1", "2Gi")), pod_with_whole("2Gi", "{}"), "4Gi"),
        (pod_with_whole("1Gi", &whole("1", "2Gi")), pod_with_whole("2Gi", cpu_alone), "4Gi"),
        (pod_with_whole("2Gi", cpu_alone), pod_with_whole("1Gi", &whole("1", "2Gi")), "4Gi"),
        (pod_with_whole("1Gi", &whole("1", "6Gi")), pod_with_whole("2Gi", "{}"), "6Gi"),
        (pod_with_whole("1Gi", &whole("1", "2Gi")), pod_with_whole("1Gi", "{}"), "2Gi"),
    ] {
        let what = format!("{:?} from {:?}", to.spec.resources, from.spec.resources);
        let counted = |had: &Pod| memory_in_all(&still_having(&to, had).unwrap_or_else(|| Arc::clone(&to)));
        let expected = (expected.to_owned(), Some(expected.to_owned()));
        assert_eq!(counted(&from), expected, "{what}");
        // An agent dies while that is being given.
        let mut actuated = PodResourceInfo::given_by(&from, &features);
        actuated.begin_change(&to, &features);
        actuated.set_pod_level(None);
        assert_eq!(counted(&actuated.most().applied_to(&to, &features)), expected, "{what}");
    }
}

#[test]
fn what_containers_have_of_the_pod_as_a_whole_is_not_what_they_asked_for() {
    let pod = pod_yaml(
        "spec: {resources: {limits: {cpu: 1, memory: 1Gi}}, \
         containers: [{name: c}, {name: d, resources: {limits: {cpu: 1}}}]}",
    );
    let features = FeatureGates::default();
    let given = PodResourceInfo::given_by(&pod, &features);
    assert_eq!(given.without_whole(&pod), PodResourceInfo::of(&pod, &features));
}

#[test]
fn only_what_runs_is_resized_and_only_where_it_is_known_what_it_was_given() {
    let (small, large) = (of("50m", "32Mi", "100m", "64Mi"), of("80m", "48Mi", "160m", "96Mi"));
    let (before, after) = (pod(&[("c", &small, "")]), pod(&[("c", &large, "")]));
    World::new(after.clone(), "c running").plans("nothing");
    let mut ended = resized(&before, after);
    ended.observed = common::seen(&ended.pod, "c exited 0");
    ended.plans("stop sandbox-0, end");
}

#[test]
fn init_containers_and_sidecars_are_resized_too() {
    let with = |cpu: &str| {
        let resources = format!("resources: {{requests: {{cpu: {cpu}}}}}");
        pod_yaml(&format!(
            "metadata: {{name: web, namespace: default, uid: uid-web}}\n\
             spec: {{initContainers: [{{name: s, image: img, restartPolicy: Always, {resources}}}, \
             {{name: i, image: img, {resources}}}], containers: [{{name: c, image: img, {resources}}}]}}"
        ))
    };
    let mut world = World::new(with("2"), "s running, i running");
    for (name, container) in [("s", 0), ("i", 1)] {
        world.actuated.set(name, with("1").spec.init_containers[container].resources.clone());
    }
    world.plans("update s-0 to 2/- up to -/-, update i-0 to 2/- up to -/-, wait for i");
}

/// Resources by chance: what is asked for, and how much more may be used.
fn any_resources() -> impl Strategy<Value = String> {
    (1..5_u32, 1..5_u32, 0..4_u32, 0..4_u32).prop_map(|(cpu, memory, more_cpu, more_memory)| {
        let (cpu_limit, memory_limit) = (cpu + more_cpu, memory + more_memory);
        of(
            &format!("{cpu}0m"),
            &format!("{memory}0Mi"),
            &format!("{cpu_limit}0m"),
            &format!("{memory_limit}0Mi"),
        )
    })
}

fn any_pods() -> impl Strategy<Value = (Vec<String>, Vec<String>, Vec<String>)> {
    let of = |count| vec(any_resources(), count);
    (1..4_usize).prop_flat_map(move |count| (of(count), of(count), of(count)))
}

/// How far an agent comes with a resize.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// So many updates, or fewer where there are no more.
    After(usize),
    Done,
}

fn any_cut() -> impl Strategy<Value = Cut> {
    prop_oneof![(0..7_usize).prop_map(Cut::After), Just(Cut::Done)]
}

/// An agent gives containers what is planned, as far as it comes, and writes down what the next one knows of it.
fn give(world: &mut World, has: &mut PodResourceInfo, cut: Cut) -> Result<(), TestCaseError> {
    let mut updates = world.plan().update;
    let allocated = PodResourceInfo::given_by(&world.pod, &world.features);
    world.actuated.begin_change(&Arc::new(world.pod.clone()), &world.features);
    for update in &updates {
        let known = world.actuated.get(&update.name).cloned().unwrap_or_default();
        world.actuated.set(&update.name, update.under_way(known));
    }
    let goes_on = match cut {
        Cut::After(count) => {
            updates.truncate(count);
            true
        }
        Cut::Done => false,
    };
    for update in updates {
        prop_assert!(update.resources.requests.contains_key("cpu"), "it would have next to none");
        has.set(&update.name, update.resources);
    }
    if !goes_on {
        world.actuated = allocated;
    }
    let counted = world.actuated.clone().most();
    for container in &world.pod.spec.containers {
        let amounts = |of: &PodResourceInfo| {
            let requests = &of.get(&container.name).expect("it is known").requests;
            ["cpu", "memory"].map(|name| requests[name].milli_value())
        };
        let (counted, has) = (amounts(&counted), amounts(has));
        prop_assert!(counted[0] >= has[0] && counted[1] >= has[1], "{counted:?} count, and it has {has:?}");
    }
    Ok(())
}

fn pod_of(resources: &[String]) -> Pod {
    let names = ["a", "b", "c"];
    let containers: Vec<(&str, &str, &str)> =
        names.iter().zip(resources).map(|(name, resources)| (*name, resources.as_str(), "")).collect();
    pod(&containers)
}

proptest! {
    /// An agent may die before it does anything, amid it, and when all is done, and the pod may be wanted in another form
    /// at any of these. What the node counts is never less than a container has.
    #[test]
    fn what_is_allocated_last_is_given_in_the_end_wherever_agents_are_cut_off(
        (before, first, last) in any_pods(),
        cuts in vec(any_cut(), 0..4),
        cuts_of_last in vec(any_cut(), 0..4),
    ) {
        let [before, first, last] = [before, first, last].map(|resources| pod_of(&resources));
        let mut world = resized(&before, first.clone());
        let mut has = PodResourceInfo::of(&before, &world.features);
        for (wanted, cuts) in [(&first, cuts), (&last, cuts_of_last)] {
            world.pod = wanted.clone();
            for cut in cuts {
                give(&mut world, &mut has, cut)?;
            }
        }
        let plan = world.plan();
        prop_assert!(plan.kill.is_empty() && plan.start.is_empty());
        prop_assert!(plan.update.len() <= 2 * last.spec.containers.len());
        give(&mut world, &mut has, Cut::Done)?;
        prop_assert!(world.plan().update.is_empty());
        let features = &world.features;
        prop_assert!(!is_in_progress(&last, &world.actuated, &world.observed, features));
        prop_assert_eq!(&world.actuated, &PodResourceInfo::of(&last, features));
        prop_assert_eq!(&has, &world.actuated);
    }

    /// What is written down for another agent says the same.
    #[test]
    fn a_pod_with_what_it_had_is_itself_again((before, after, _) in any_pods()) {
        let (before, after) = (pod_of(&before), Arc::new(pod_of(&after)));
        let features = FeatureGates::default();
        let had = PodResourceInfo::of(&before, &features);
        let entry = state_file::entry(&had);
        let file = state_file::encode([("uid", &*entry)].into_iter());
        let read = state_file::decode(&file, Limits::API).expect("a state file").entries.remove("uid");
        prop_assert_eq!(read.as_ref(), Some(&had));
        prop_assert_eq!(&*had.applied_to(&after, &features), &before);
        let same = PodResourceInfo::of(&after, &features).applied_to(&after, &features);
        prop_assert!(Arc::ptr_eq(&same, &after));
    }
}
