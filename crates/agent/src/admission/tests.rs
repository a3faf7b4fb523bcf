use std::time::Duration;

use crablet_api::FeatureGates;
use crablet_api::core::Node;
use crablet_api::testing::pod_yaml;
use crablet_core::resize::PodResourceInfo;
use crablet_core::resize::conditions::PendingReason;
use crablet_core::resize::decision::Exclusive;
use crablet_core::translate::{self, SysctlAllowlist};
use crablet_host::checkpoint::SimulatedCheckpoints;

use super::*;
use crate::eviction::Pressure;
use crate::node_facts::{Facts, LiveFacts};
use crate::story::Stories;

/// A node for two CPUs' worth of pods.
fn admission(app_armor: bool) -> Admission {
    let admission = admission_of(&[("pods", "10"), ("cpu", "2")]);
    Admission { gate: Gate { app_armor, ..admission.gate }, ..admission }
}

/// A node that has so much.
fn admission_of(allocatable: &[(&'static str, &str)]) -> Admission {
    let mut node = Node::default();
    for (resource, amount) in allocatable {
        node.status.allocatable.insert(*resource, amount.parse().unwrap());
    }
    let translation = translate::NodeContext {
        facts: translate::NodeFacts::default(),
        settings: translate::Settings::default(),
        features: FeatureGates::default(),
    };
    let facts = LiveFacts::new(Facts { node, translation, ..Facts::default() });
    let gate = Gate {
        facts,
        pressure: Pressure::default(),
        sysctls: Arc::new(SysctlAllowlist::new(Some((6, 1)), &["kernel.msg*"]).unwrap()),
        app_armor: false,
        exclusive: Exclusive::default(),
    };
    let clock = Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap());
    let recorder = Recorder::new(clock.clone(), Stories::new(clock.clone()));
    Admission::new(gate, clock, recorder, Allocations::new(Arc::new(SimulatedCheckpoints::new())))
}

fn pod(uid: &str, spec: &str) -> Arc<Pod> {
    Arc::new(pod_yaml(&format!(
        "metadata: {{name: {uid}, namespace: default, uid: {uid}}}\nspec: {{containers: [{{name: c}}], {spec}}}"
    )))
}

/// A pod that asks for some CPUs, and was created in some second.
fn asking(uid: &str, cpu: &str, created: i64) -> Arc<Pod> {
    let mut pod = pod_yaml(&format!(
        "metadata: {{name: {uid}, namespace: default, uid: {uid}}}\nspec: {{terminationGracePeriodSeconds: 30, \
         containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}"
    ));
    pod.metadata.creation_timestamp = Some(crablet_api::meta::Time::from_unix_seconds(created));
    Arc::new(pod)
}

fn critical(uid: &str, cpu: &str) -> Arc<Pod> {
    let mut pod = asking(uid, cpu, 0);
    Arc::make_mut(&mut pod).spec.priority = Some(2_000_000_000);
    pod
}

fn enter(admission: &Admission, pod: &Arc<Pod>) -> Mailbox {
    let mailbox = Mailbox::new();
    admission.enter(pod, &mailbox, false);
    mailbox
}

fn verdict(admission: &Admission, uid: &str) -> String {
    match admission.verdict(uid) {
        Verdict::Undecided => "undecided".to_owned(),
        Verdict::Granted { was_there: true } => "taken over".to_owned(),
        Verdict::Granted { was_there: false } => "admitted".to_owned(),
        Verdict::MakesRoom { until } => format!("in {} s", (until - Instant::now()).as_secs()),
        Verdict::Rejected(Rejection { reason, message }) => format!("{reason}: {message}"),
    }
}

fn open(admission: &Admission) {
    admission.take_over(BTreeMap::new());
    admission.open();
    admission.all_heard();
}

fn check(spec: &str, app_armor: bool, expected: &str) {
    let admission = admission(app_armor);
    open(&admission);
    enter(&admission, &pod("u", spec));
    assert_eq!(verdict(&admission, "u"), expected, "{spec}");
}

#[test]
fn a_kernel_parameter_has_to_be_on_the_list() {
    let sysctl = |name: &str| format!("securityContext: {{sysctls: [{{name: {name}, value: '1'}}]}}");
    check(&sysctl("kernel.msgmax"), false, "admitted");
    check(&sysctl("net.ipv4.tcp_syncookies"), false, "admitted");
    let forbidden = "SysctlForbidden: forbidden sysctl: \"kernel.sem\" not allowlisted";
    check(&sysctl("kernel.sem"), false, forbidden);
}

#[test]
fn a_pod_that_names_a_profile_needs_app_armor() {
    let profile = |word: &str| format!("securityContext: {{appArmorProfile: {{type: {word}}}}}");
    let refused = "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host";
    check(&profile("RuntimeDefault"), false, refused);
    check(&profile("RuntimeDefault"), true, "admitted");
    check(&profile("Unconfined"), false, "admitted");
}

const FULL: &str =
    "OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 2000, capacity: 2000";

#[test]
fn what_lives_is_taken_over_first_and_the_rest_is_admitted_by_age() {
    let admission = admission(false);
    // In the order in which sources told of them.
    let young = enter(&admission, &asking("young", "1", 3));
    for pod in [asking("old", "1", 1), asking("middle", "1", 2)] {
        enter(&admission, &pod);
    }
    assert_eq!(verdict(&admission, "old"), "undecided");
    let found = [("runs", Remains::Live), ("late", Remains::Live), ("dead", Remains::Dead)];
    let found = found.map(|(uid, remains)| (uid.to_owned(), remains)).into();
    enter(&admission, &asking("runs", "1", 9));
    admission.take_over(found);
    // Nobody waits for a source to go on with what runs.
    assert_eq!(verdict(&admission, "runs"), "taken over");
    enter(&admission, &asking("dead", "0", 4));
    assert_eq!(
        (verdict(&admission, "old"), verdict(&admission, "dead")),
        ("undecided".into(), "undecided".into())
    );
    admission.open();
    // One that left something dead is asked about when its worker knows that it is not over.
    assert_eq!(verdict(&admission, "old"), "undecided");
    assert!(!young.take().look);
    assert_eq!(verdict(&admission, "dead"), "admitted");
    assert!(young.take().look);
    assert_eq!(verdict(&admission, "old"), "admitted");
    assert_eq!((verdict(&admission, "middle"), verdict(&admission, "young")), (FULL.into(), FULL.into()));
    // A source that speaks late finds what runs taken over all the same.
    enter(&admission, &asking("late", "1", 0));
    assert_eq!(verdict(&admission, "late"), "taken over");
}

/// After a reboot: of two pods that ran only dead parts are left, and a third one never ran.
fn after_a_reboot() -> (Admission, Mailbox) {
    let admission = admission(false);
    let newcomer = enter(&admission, &asking("newcomer", "1", 1));
    for pod in [asking("old", "2", 2), asking("older", "0", 1)] {
        enter(&admission, &pod);
    }
    let found = ["old", "older"].map(|uid| (uid.to_owned(), Remains::Dead)).into();
    admission.take_over(found);
    admission.open();
    (admission, newcomer)
}

#[test]
fn what_ran_before_comes_first_in_whatever_order_workers_ask() {
    let (admission, newcomer) = after_a_reboot();
    assert_eq!(verdict(&admission, "newcomer"), "undecided");
    // The older one has not been found to be over or not.
    assert_eq!(verdict(&admission, "old"), "undecided");
    assert!(!newcomer.take().look);
    assert_eq!(verdict(&admission, "older"), "admitted");
    assert!(newcomer.take().look);
    assert_eq!(
        (verdict(&admission, "old"), verdict(&admission, "newcomer")),
        ("admitted".into(), FULL.into())
    );
}

#[test]
fn nobody_waits_for_what_ran_and_is_over_or_gone_nor_for_a_worker_that_does_not_ask() {
    let (admission, _) = after_a_reboot();
    admission.found_over("older");
    assert_eq!(verdict(&admission, "newcomer"), "undecided");
    admission.release("old");
    assert_eq!(verdict(&admission, "newcomer"), "admitted");
    // What its worker took for over is decided when it asks all the same.
    assert_eq!(verdict(&admission, "older"), "admitted");

    let (admission, newcomer) = after_a_reboot();
    admission.wait_no_longer();
    assert!(newcomer.take().look);
    assert_eq!(verdict(&admission, "newcomer"), "admitted");
    assert!(verdict(&admission, "old").starts_with("OutOfcpu"));
}

#[test]
fn what_burstable_pods_ask_for_is_known_when_it_is_known_who_runs() {
    let admission = admission(false);
    for pod in [asking("a", "500m", 0), asking("b", "250m", 0), pod("best-effort", "")] {
        enter(&admission, &pod);
    }
    assert_eq!(admission.asked(), None);
    open(&admission);
    assert_eq!(admission.asked().unwrap().burstable_milli_cpu, 750);
    admission.wants(&asking("b", "1", 0));
    assert_eq!(admission.asked().unwrap().burstable_milli_cpu, 1500);
    admission.release("a");
    assert_eq!(admission.asked().unwrap().burstable_milli_cpu, 1000);
}

#[test]
fn a_pod_that_is_over_or_that_its_source_removed_counts_no_more() {
    let admission = admission(false);
    open(&admission);
    let over = asking("over", "2", 0);
    admission.enter(&over, &Mailbox::new(), true);
    enter(&admission, &asking("first", "2", 0));
    assert_eq!(verdict(&admission, "first"), "admitted");
    enter(&admission, &asking("second", "1", 0));
    assert_eq!(verdict(&admission, "second"), FULL);
    admission.release("first");
    enter(&admission, &asking("third", "1", 0));
    assert_eq!(verdict(&admission, "third"), "admitted");
    // The verdict stays.
    assert_eq!(verdict(&admission, "second"), FULL);
}

#[test]
fn nobody_is_taken_while_the_machine_is_about_to_be_shut_down() {
    let admission = admission(false);
    let uids = || admission.taken().iter().map(|pod| pod.metadata.uid.to_string()).collect::<Vec<_>>();
    enter(&admission, &asking("lived", "1", 0));
    admission.close();
    admission.take_over(BTreeMap::from([("lived".to_owned(), Remains::Live)]));
    assert_eq!(verdict(&admission, "lived"), "taken over");
    admission.open();
    let refused = "NodeShutdown: Pod was rejected as the node is shutting down.";
    let lived = enter(&admission, &critical("critical", "2"));
    assert_eq!(verdict(&admission, "critical"), refused);
    assert!(lived.take().end.is_none(), "nobody has to make room for it");
    enter(&admission, &asking("large", "9", 0));
    assert!(verdict(&admission, "large").starts_with("OutOfcpu"), "what does not fit anyway is told so");
    assert_eq!(uids(), ["lived"]);
    admission.reopen();
    enter(&admission, &asking("next", "1", 0));
    assert_eq!(verdict(&admission, "next"), "admitted");
    assert_eq!(verdict(&admission, "critical"), refused, "the verdict stays");
    assert_eq!(uids(), ["lived", "next"]);
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_begins_when_others_have_made_room() {
    let admission = admission(false);
    open(&admission);
    let (small, large) =
        (enter(&admission, &asking("small", "500m", 0)), enter(&admission, &asking("large", "1", 0)));
    let critical_box = enter(&admission, &critical("critical", "1"));
    assert_eq!(verdict(&admission, "critical"), "in 45 s");
    // Either would do: the one that asks for less goes.
    assert!(large.take().end.is_none());
    let end = small.take().end.unwrap();
    assert_eq!((end.grace, end.in_words()), (None, "Preempted in order to admit critical pod"));
    // The room is the critical pod's already.
    enter(&admission, &asking("next", "1", 0));
    assert!(verdict(&admission, "next").starts_with("OutOfcpu"));
    critical_box.take();
    admission.release("small");
    assert!(critical_box.take().look);
    assert_eq!(verdict(&admission, "critical"), "admitted");
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_does_not_wait_for_ever() {
    let admission = admission(false);
    open(&admission);
    enter(&admission, &asking("stuck", "2", 0));
    enter(&admission, &critical("critical", "1"));
    tokio::time::sleep(Duration::from_secs(44)).await;
    assert_eq!(verdict(&admission, "critical"), "in 1 s");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(verdict(&admission, "critical"), "admitted");
    // Nobody has to go twice.
    enter(&admission, &critical("another", "1"));
    assert_eq!(verdict(&admission, "another"), "admitted");
}

/// The same pod asks for other CPUs by now: what it has of that, and what is said of it.
fn wants(admission: &Admission, pod: &Arc<Pod>, cpu: &str, generation: i64) -> (String, String) {
    let mut pod = Pod::clone(pod);
    pod.metadata.generation = generation;
    pod.spec.containers[0].resources.requests.insert("cpu", cpu.parse().unwrap());
    let pod = Arc::new(pod);
    admission.wants(&pod);
    has(admission, &pod)
}

fn has(admission: &Admission, pod: &Arc<Pod>) -> (String, String) {
    let Resized { allocated, wish, retry_at, .. } = admission.resized(pod).unwrap();
    assert!(retry_at.is_none_or(|at| at > Instant::now()), "nobody waits for what has passed");
    let wish = match wish {
        Wish::Granted => "granted".to_owned(),
        Wish::Undecided => "undecided".to_owned(),
        Wish::Pending { generation, why, .. } => format!("{generation}: {}", why.message),
    };
    (allocated.spec.containers[0].resources.requests["cpu"].to_string(), wish)
}

/// What the node granted a pod, and what is said of what it asks for by now.
fn answer(cpu: &str, wish: &str) -> (String, String) {
    (cpu.to_owned(), wish.to_owned())
}

fn no_room(generation: i64, requested: u32, used: u32) -> String {
    format!(
        "{generation}: Node didn't have enough resource: cpu, requested: {requested}, used: {used}, capacity: 2000"
    )
}

#[test]
fn no_resize_is_decided_before_all_are_known_that_have_something() {
    let admission = admission(false);
    let (small, large) = (asking("small", "1", 0), asking("large", "1500m", 0));
    let before = PodResourceInfo::of(&asking("small", "500m", 0), &admission.gate.features());
    admission.allocations.set_allocated("small", &before);
    admission.take_over(["small", "large"].map(|uid| (uid.to_owned(), Remains::Live)).into());
    admission.open();
    admission.wait_no_longer();
    enter(&admission, &small);
    assert_eq!(has(&admission, &small), answer("500m", "undecided"));
    let stranger = asking("static", "0", 0);
    enter(&admission, &stranger);
    admission.release("static");
    enter(&admission, &large);
    assert_eq!(has(&admission, &small), answer("500m", "undecided"));
    admission.all_heard();
    assert_eq!(has(&admission, &small), answer("500m", &no_room(0, 1000, 1500)));
}

#[tokio::test(start_paused = true)]
async fn a_resize_waits_for_those_who_make_room_until_their_time_is_over() {
    let admission = admission(false);
    open(&admission);
    let pod = critical("critical", "500m");
    enter(&admission, &pod);
    let stuck = enter(&admission, &asking("stuck", "1500m", 0));
    assert_eq!(wants(&admission, &pod, "1", 2), answer("500m", "undecided"));
    assert!(stuck.take().end.is_some());
    // The room is the critical pod's already.
    enter(&admission, &asking("next", "1500m", 0));
    assert!(verdict(&admission, "next").starts_with("OutOfcpu"));
    tokio::time::sleep(Duration::from_secs(44)).await;
    assert_eq!(has(&admission, &pod), answer("500m", "undecided"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(has(&admission, &pod), answer("1", "granted"));
    let events = admission.recorder.queue();
    let said = std::iter::from_fn(|| events.try_next()).map(|event| event.reason.to_string());
    assert_eq!(said.collect::<Vec<_>>(), ["Preempting", "ExceededGracePeriod"]);
}

#[test]
fn what_a_critical_pod_has_counts_until_less_is_granted_while_others_make_room_for_it() {
    let admission = admission(false);
    open(&admission);
    let pod = critical("critical", "500m");
    enter(&admission, &pod);
    let stuck = enter(&admission, &asking("stuck", "1500m", 0));
    wants(&admission, &pod, "1", 2);
    assert!(stuck.take().end.is_some());
    assert_eq!(wants(&admission, &pod, "100m", 3), answer("500m", "undecided"));
    enter(&admission, &asking("next", "1900m", 0));
    assert!(verdict(&admission, "next").starts_with("OutOfcpu"));
    enter(&admission, &asking("small", "1500m", 0));
    assert_eq!(verdict(&admission, "small"), "admitted");
}

#[test]
fn a_critical_pod_that_waits_for_more_of_one_resource_still_has_what_it_gives_back_of_another() {
    let admission = admission_of(&[("pods", "10"), ("cpu", "2"), ("memory", "2Gi")]);
    open(&admission);
    let of_memory = |mut pod: Arc<Pod>, memory: &str| {
        let resources = &mut Arc::make_mut(&mut pod).spec.containers[0].resources;
        resources.requests.insert("memory", memory.parse().unwrap());
        pod
    };
    enter(&admission, &of_memory(critical("critical", "500m"), "1536Mi"));
    let stuck = enter(&admission, &asking("stuck", "1500m", 0));
    let less_memory = of_memory(critical("critical", "500m"), "512Mi");
    assert_eq!(wants(&admission, &less_memory, "1", 2), answer("500m", "undecided"));
    assert!(stuck.take().end.is_some());
    enter(&admission, &of_memory(asking("next", "0", 0), "1Gi"));
    assert!(verdict(&admission, "next").starts_with("OutOfmemory"));
    enter(&admission, &of_memory(asking("small", "0", 0), "512Mi"));
    assert_eq!(verdict(&admission, "small"), "admitted");
}

#[test]
fn the_room_for_a_resize_is_not_granted_to_the_next_in_line() {
    let admission = admission(false);
    open(&admission);
    let (pod, greedy) = (critical("critical", "500m"), asking("greedy", "500m", 0));
    enter(&admission, &pod);
    enter(&admission, &greedy);
    let victim = enter(&admission, &asking("victim", "1", 0));
    let deferred = wants(&admission, &greedy, "1", 2);
    assert_eq!(deferred, answer("500m", &no_room(2, 1000, 1500)));
    assert_eq!(wants(&admission, &pod, "1", 2), answer("500m", "undecided"));
    let gone = if victim.take().end.is_some() { "victim" } else { "greedy" };
    admission.release(gone);
    assert_eq!(has(&admission, &pod).0, "1");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_longest_is_granted_first() {
    let admission = admission(false);
    open(&admission);
    let (first, second) = (asking("z-first", "0", 0), asking("a-second", "0", 0));
    for pod in [&first, &second, &asking("large", "2", 0)] {
        enter(&admission, pod);
    }
    wants(&admission, &first, "2", 2);
    tokio::time::sleep(Duration::from_secs(5)).await;
    wants(&admission, &second, "2", 2);
    // Another wish, put off for the same reason, waits since the first one.
    wants(&admission, &first, "1500m", 3);
    admission.release("large");
    assert_eq!((has(&admission, &first).0, has(&admission, &second).0), ("1500m".into(), "0".into()));
}

#[test]
fn the_resize_of_a_pod_that_is_decided_late_is_decided_with_it() {
    let admission = admission(false);
    open(&admission);
    let pod = asking("late", "1", 0);
    let before = PodResourceInfo::of(&asking("late", "500m", 0), &admission.gate.features());
    admission.allocations.set_allocated("late", &before);
    admission.enter(&pod, &Mailbox::new(), true);
    assert_eq!(verdict(&admission, "late"), "admitted");
    let resized = admission.resized(&pod).unwrap();
    assert!(Arc::ptr_eq(&resized.allocated, &pod) && resized.granted.is_some());
    assert!(admission.resized(&pod).unwrap().granted.is_none(), "it is told once");
}

#[test]
fn nothing_more_is_granted_while_the_machine_is_about_to_be_shut_down() {
    let admission = admission(false);
    open(&admission);
    let pod = critical("critical", "1");
    enter(&admission, &pod);
    let other = enter(&admission, &asking("other", "1", 0));
    admission.close();
    let refused = answer("1", "2: Pod was rejected as the node is shutting down.");
    assert_eq!(wants(&admission, &pod, "1500m", 2), refused);
    assert!(other.take().end.is_none(), "nobody has to make room for it");
    let Wish::Pending { why, .. } = admission.resized(&pod).unwrap().wish else { panic!("it is granted") };
    assert_eq!(why.reason, PendingReason::Deferred);
}

#[test]
fn what_is_granted_is_told_with_its_generation_though_another_is_asked_for_by_now() {
    let admission = admission(false);
    open(&admission);
    let pod = asking("p", "500m", 0);
    enter(&admission, &pod);
    enter(&admission, &asking("large", "1500m", 0));
    // Nobody asks in between: its worker is busy.
    let wanted = |cpu: &str, generation: i64| {
        let mut pod = asking("p", cpu, 0);
        Arc::make_mut(&mut pod).metadata.generation = generation;
        admission.wants(&pod);
        pod
    };
    wanted("1", 2);
    admission.release("large");
    let last = wanted("9", 3);
    let resized = admission.resized(&last).unwrap();
    assert_eq!(resized.granted.unwrap().metadata.generation, 2);
    let refused = no_room(3, 9000, 0);
    assert_eq!(has(&admission, &last), answer("1", &refused));
    // What is taken back is not granted when there is room for it.
    wanted("500m", 4);
    assert_eq!(has(&admission, &last).0, "500m");
}

#[test]
fn what_a_pod_is_to_have_less_of_is_free_when_its_containers_have_less() {
    let admission = admission(false);
    open(&admission);
    let (shrinks, grows) = (asking("shrinks", "1500m", 0), asking("grows", "500m", 0));
    let mailbox = enter(&admission, &grows);
    enter(&admission, &shrinks);
    wants(&admission, &grows, "1", 2);
    assert_eq!(wants(&admission, &shrinks, "1", 2), answer("1", "granted"));
    assert_eq!(has(&admission, &grows).0, "500m");
    mailbox.take();
    admission.has_what_is_allocated(&asking("shrinks", "1", 0));
    assert!(mailbox.take().look);
    assert_eq!(has(&admission, &grows).0, "1");
}

#[test]
fn what_containers_have_of_one_resize_frees_nothing_of_the_next_one_that_was_granted_meanwhile() {
    let admission = admission(false);
    open(&admission);
    let (shrinks, grows) = (asking("shrinks", "1500m", 0), asking("grows", "500m", 0));
    enter(&admission, &grows);
    enter(&admission, &shrinks);
    wants(&admission, &grows, "1", 2);
    wants(&admission, &shrinks, "1200m", 2);
    // Its worker is about to tell that the containers have 1200m.
    let less = wants(&admission, &shrinks, "1", 3);
    admission.has_what_is_allocated(&asking("shrinks", "1200m", 0));
    assert_eq!((less, has(&admission, &grows).0), (answer("1", "granted"), "500m".into()));
    admission.has_what_is_allocated(&asking("shrinks", "1", 0));
    assert_eq!(has(&admission, &grows).0, "1");
}
