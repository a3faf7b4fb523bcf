//! Tables of transitions, and properties: whatever the order of answers, each transition is told once.

use std::collections::BTreeMap;

use crablet_cri_api::{NetworkNamespace, SandboxMetadata, v1};
use proptest::prelude::*;

use super::*;

fn labels() -> Labels {
    BTreeMap::from([(POD_UID.to_owned(), "pod".to_owned())])
}

fn container(id: &str, state: ContainerState) -> Container {
    Container {
        id: id.to_owned(),
        sandbox_id: "s".to_owned(),
        name: "main".to_owned(),
        attempt: 0,
        image: String::new(),
        image_ref: String::new(),
        image_id: String::new(),
        state,
        created_at: None,
        labels: labels(),
        annotations: BTreeMap::new(),
    }
}

fn container_status(id: &str, state: ContainerState) -> ContainerStatus {
    ContainerStatus {
        id: id.to_owned(),
        name: "main".to_owned(),
        attempt: 0,
        state,
        created_at: None,
        started_at: None,
        finished_at: None,
        exit_code: 3,
        image: String::new(),
        image_ref: String::new(),
        image_id: String::new(),
        reason: "Error".to_owned(),
        message: String::new(),
        labels: labels(),
        annotations: BTreeMap::new(),
        mounts: Vec::new(),
        log_path: String::new(),
        resources: None,
        user: None,
        stop_signal: v1::Signal::RuntimeDefault,
    }
}

fn sandbox(id: &str, state: SandboxState) -> Sandbox {
    Sandbox {
        id: id.to_owned(),
        metadata: SandboxMetadata::default(),
        state,
        created_at: None,
        labels: labels(),
        annotations: BTreeMap::new(),
        runtime_handler: String::new(),
    }
}

fn sandbox_status(id: &str, state: SandboxState) -> SandboxStatus {
    SandboxStatus {
        id: id.to_owned(),
        metadata: SandboxMetadata::default(),
        state,
        created_at: None,
        ips: Vec::new(),
        network: NetworkNamespace::Pod,
        labels: labels(),
        annotations: BTreeMap::new(),
        runtime_handler: String::new(),
    }
}

impl Table {
    fn relist_now(&mut self, sandboxes: &[Sandbox], containers: &[Container]) -> Vec<String> {
        let began = self.begin();
        let mut found = Found::default();
        self.relist(began, sandboxes, containers, &mut found);
        self.end(began);
        words(&found)
    }

    fn read_now(&mut self, id: &str, state: ContainerState) -> Vec<String> {
        let began = self.begin();
        self.answer(began, id, state)
    }

    fn answer(&mut self, began: Moment, id: &str, state: ContainerState) -> Vec<String> {
        let mut found = Found::default();
        self.read_container(began, &container_status(id, state), false, &mut found);
        self.end(began);
        words(&found)
    }
}

fn words(found: &Found) -> Vec<String> {
    let events = found.events.iter().map(|event| format!("{} {}", event.id, event.kind.name()));
    events.chain(found.exited.iter().map(|id| format!("read {id}"))).collect()
}

/// What a relist tells of a container in one state and then in another; `None` is: not there.
fn relisted(old: Option<ContainerState>, new: Option<ContainerState>) -> String {
    let mut table = Table::default();
    let list = |state: Option<ContainerState>| state.map(|state| container("c", state)).into_iter().collect();
    let (old, new): (Vec<Container>, Vec<Container>) = (list(old), list(new));
    for id in table.relist_now(&[], &old).iter().filter_map(|word| word.strip_prefix("read ")) {
        table.read_now(id, ContainerState::Exited);
    }
    table.relist_now(&[], &new).join(", ")
}

#[test]
fn a_relist_tells_what_upstream_tells() {
    use ContainerState::{Created, Exited, Running, Unknown};
    let expected = [
        (None, Some(Created), ""),
        (None, Some(Running), "c ContainerStarted"),
        (None, Some(Exited), "read c"),
        (None, Some(Unknown), "c ContainerChanged"),
        (Some(Created), Some(Created), ""),
        (Some(Created), Some(Running), "c ContainerStarted"),
        (Some(Created), Some(Exited), "read c"),
        (Some(Created), Some(Unknown), "c ContainerChanged"),
        (Some(Created), None, "c ContainerDied, c ContainerRemoved"),
        (Some(Running), Some(Created), ""),
        (Some(Running), Some(Running), ""),
        (Some(Running), Some(Exited), "read c"),
        (Some(Running), Some(Unknown), "c ContainerChanged"),
        (Some(Running), None, "c ContainerDied, c ContainerRemoved"),
        (Some(Exited), Some(Running), ""),
        (Some(Exited), Some(Exited), ""),
        (Some(Exited), Some(Unknown), ""),
        (Some(Exited), None, "c ContainerRemoved"),
        (Some(Unknown), Some(Created), ""),
        (Some(Unknown), Some(Running), "c ContainerStarted"),
        (Some(Unknown), Some(Exited), "read c"),
        (Some(Unknown), Some(Unknown), ""),
        (Some(Unknown), None, "c ContainerDied, c ContainerRemoved"),
    ];
    for (old, new, told) in expected {
        assert_eq!(relisted(old, new), told, "{old:?} to {new:?}");
    }
}

#[test]
fn a_sandbox_starts_stops_and_is_removed_after_its_containers() {
    let mut table = Table::default();
    let running = [container("a", ContainerState::Running)];
    assert_eq!(
        table.relist_now(&[sandbox("s", SandboxState::Ready)], &running),
        ["s SandboxStarted", "a ContainerStarted"]
    );
    assert_eq!(table.relist_now(&[sandbox("s", SandboxState::NotReady)], &running), ["s SandboxStopped"]);
    assert_eq!(table.relist_now(&[], &[]), ["a ContainerDied", "a ContainerRemoved", "s SandboxRemoved"]);
}

#[test]
fn what_carries_no_pod_is_not_ours() {
    let mut table = Table::default();
    let foreign = Container { labels: BTreeMap::new(), ..container("c", ContainerState::Running) };
    assert!(table.relist_now(&[], &[foreign]).is_empty());
    let began = table.begin();
    let status = ContainerStatus { labels: BTreeMap::new(), ..container_status("c", ContainerState::Exited) };
    assert!(!table.read_container(began, &status, false, &mut Found::default()));
    assert!(!table.is_known("c"));
}

#[test]
fn a_list_that_was_asked_for_before_an_end_was_read_does_not_undo_it() {
    let mut table = Table::default();
    table.read_now("c", ContainerState::Running);
    let began = table.begin();
    assert_eq!(table.read_now("c", ContainerState::Exited), ["c ContainerDied"]);
    let mut found = Found::default();
    table.relist(began, &[], &[container("c", ContainerState::Running)], &mut found);
    table.end(began);
    assert!(words(&found).is_empty());
    assert_eq!(table.state("c"), Some(State::Container(ContainerState::Exited)));
}

#[test]
fn a_list_that_was_asked_for_before_something_was_made_does_not_remove_it() {
    let mut table = Table::default();
    let began = table.begin();
    table.read_now("c", ContainerState::Running);
    let mut found = Found::default();
    table.relist(began, &[], &[], &mut found);
    table.end(began);
    assert!(words(&found).is_empty());
    assert!(table.is_known("c"));
}

#[test]
fn what_is_gone_does_not_come_back_by_an_older_list() {
    let mut table = Table::default();
    table.read_now("c", ContainerState::Running);
    let began = table.begin();
    let read = table.begin();
    let mut found = Found::default();
    assert!(table.read_absent(read, "c", false, &mut found));
    table.end(read);
    assert_eq!(words(&found), ["c ContainerDied", "c ContainerRemoved"]);
    let mut found = Found::default();
    table.relist(began, &[], &[container("c", ContainerState::Running)], &mut found);
    table.end(began);
    assert!(words(&found).is_empty());
    assert!(table.gone.is_empty(), "what no read can bring back is forgotten");
}

#[test]
fn what_was_never_seen_and_is_removed_is_not_made_by_an_older_list() {
    let mut table = Table::default();
    let began = table.begin();
    let read = table.begin();
    assert!(table.read_absent(read, "c", true, &mut Found::default()));
    table.end(read);
    let mut found = Found::default();
    table.relist(began, &[], &[container("c", ContainerState::Running)], &mut found);
    assert!(words(&found).is_empty());
}

#[test]
fn a_pods_containers_share_its_uid_with_the_sandbox() {
    let mut table = Table::default();
    table.relist_now(&[sandbox("s", SandboxState::Ready)], &[container("c", ContainerState::Running)]);
    assert!(Arc::ptr_eq(&table.entries["s"].pod_uid, &table.entries["c"].pod_uid));
}

#[test]
fn running_out_of_memory_is_told_each_time_in_life_and_once_after_death() {
    let mut table = Table::default();
    let mut found = Found::default();
    table.read_now("c", ContainerState::Running);
    table.out_of_memory("c", &mut found);
    table.out_of_memory("c", &mut found);
    assert_eq!(words(&found), ["c ContainerOutOfMemory", "c ContainerOutOfMemory"]);
    table.read_now("c", ContainerState::Exited);
    let mut found = Found::default();
    table.out_of_memory("c", &mut found);
    assert!(words(&found).is_empty(), "the exit carried it");

    table.read_now("d", ContainerState::Exited);
    table.out_of_memory("d", &mut found);
    table.out_of_memory("d", &mut found);
    assert_eq!(words(&found), ["d ContainerOutOfMemory"]);
}

/// How far something is in its life; the world only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    NotYet,
    Created,
    Running,
    Exited,
    Gone,
}

const STAGES: [Stage; 5] = [Stage::NotYet, Stage::Created, Stage::Running, Stage::Exited, Stage::Gone];
const IDS: [&str; 4] = ["c0", "c1", "c2", "s"];

/// A read: asked for, answered by the runtime from what holds then, and delivered, each at its own time.
#[derive(Debug, Clone)]
struct InFlight {
    began: Moment,
    /// Which ID; all of them in a relist.
    id: Option<usize>,
    answer: Option<[Stage; IDS.len()]>,
}

#[derive(Debug, Clone)]
enum Step {
    Move(usize),
    AskList,
    Ask(usize),
    Answer(usize),
    Deliver(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..IDS.len()).prop_map(Step::Move),
        1 => Just(Step::AskList),
        2 => (0..IDS.len()).prop_map(Step::Ask),
        3 => (0..8_usize).prop_map(Step::Answer),
        3 => (0..8_usize).prop_map(Step::Deliver),
    ];
    prop::collection::vec(step, 0..120)
}

/// What was told of one ID, as the furthest stage of each event.
fn stage_of(kind: &EventKind) -> Stage {
    match kind {
        EventKind::ContainerStarted | EventKind::SandboxStarted => Stage::Running,
        EventKind::ContainerDied(_) | EventKind::SandboxStopped => Stage::Exited,
        EventKind::ContainerRemoved | EventKind::SandboxRemoved => Stage::Gone,
        EventKind::ContainerChanged | EventKind::ContainerOutOfMemory => Stage::NotYet,
    }
}

fn container_state(stage: Stage) -> Option<ContainerState> {
    match stage {
        Stage::NotYet | Stage::Gone => None,
        Stage::Created => Some(ContainerState::Created),
        Stage::Running => Some(ContainerState::Running),
        Stage::Exited => Some(ContainerState::Exited),
    }
}

/// A sandbox is there once it is ready.
fn sandbox_state(stage: Stage) -> Option<SandboxState> {
    match stage {
        Stage::NotYet | Stage::Created | Stage::Gone => None,
        Stage::Running => Some(SandboxState::Ready),
        Stage::Exited => Some(SandboxState::NotReady),
    }
}

fn deliver(table: &mut Table, began: Moment, id: Option<usize>, world: &[Stage; IDS.len()]) -> Found {
    let mut found = Found::default();
    match id {
        None => {
            let sandboxes: Vec<Sandbox> =
                sandbox_state(world[3]).map(|state| sandbox("s", state)).into_iter().collect();
            let containers: Vec<Container> = (0..3)
                .filter_map(|index| Some(container(IDS[index], container_state(world[index])?)))
                .collect();
            table.relist(began, &sandboxes, &containers, &mut found);
        }
        Some(3) => match sandbox_state(world[3]) {
            Some(state) => drop(table.read_sandbox(began, &sandbox_status("s", state), &mut found)),
            None => drop(table.read_absent(began, "s", false, &mut found)),
        },
        Some(index) => match container_state(world[index]) {
            Some(state) => {
                table.read_container(began, &container_status(IDS[index], state), false, &mut found);
            }
            None => drop(table.read_absent(began, IDS[index], false, &mut found)),
        },
    }
    table.end(began);
    found
}

proptest! {
    /// Reads are asked for, answered and delivered in any order. Then: nothing is told that did not happen, nothing
    /// twice, nothing out of order, and once all is over, whatever was told to live was told to end.
    #[test]
    fn each_transition_is_told_once_and_in_order_whatever_the_order_of_answers(steps in steps()) {
        let mut table = Table::default();
        let mut world = [Stage::NotYet; IDS.len()];
        let mut told: [Vec<Stage>; IDS.len()] = Default::default();
        let mut in_flight: Vec<InFlight> = Vec::new();
        let take = |found: Found, world: &[Stage; IDS.len()], told: &mut [Vec<Stage>; IDS.len()]| {
            for event in found.events {
                let index = IDS.iter().position(|id| **id == *event.id).unwrap();
                let stage = stage_of(&event.kind);
                assert!(stage <= world[index], "{event:?} is told, but it is {:?}", world[index]);
                assert!(told[index].last().is_none_or(|last| *last < stage), "{event:?} after {:?}", told[index]);
                told[index].push(stage);
            }
        };
        for step in steps {
            match step {
                Step::Move(index) => {
                    let next = STAGES.iter().find(|stage| **stage > world[index]);
                    world[index] = *next.unwrap_or(&Stage::Gone);
                }
                Step::AskList if in_flight.iter().any(|read| read.id.is_none()) => {}
                Step::AskList => {
                    in_flight.push(InFlight { began: table.begin(), id: None, answer: None });
                }
                Step::Ask(index) => {
                    in_flight.push(InFlight { began: table.begin(), id: Some(index), answer: None });
                }
                Step::Answer(number) => {
                    if let Some(read) = in_flight.get_mut(number) {
                        read.answer.get_or_insert(world);
                    }
                }
                Step::Deliver(number) => {
                    if in_flight.get(number).is_some_and(|read| read.answer.is_some()) {
                        let read = in_flight.remove(number);
                        let answer = read.answer.unwrap();
                        take(deliver(&mut table, read.began, read.id, &answer), &world, &mut told);
                    }
                }
            }
        }
        for read in in_flight {
            take(deliver(&mut table, read.began, read.id, &read.answer.unwrap_or(world)), &world, &mut told);
        }
        // A last look at everything, and at what it says has ended.
        for index in [None, Some(0), Some(1), Some(2), Some(3)] {
            let began = table.begin();
            take(deliver(&mut table, began, index, &world), &world, &mut told);
        }
        for index in 0..IDS.len() {
            let known = table.is_known(IDS[index]);
            let is_there = container_state(world[index]).is_some() && (index < 3 || world[index] > Stage::Created);
            prop_assert_eq!(known, is_there, "{} is {:?}", IDS[index], world[index]);
            if let Some(last) = told[index].last() {
                prop_assert_eq!(*last, world[index], "{} was told {:?}", IDS[index], &told[index]);
                prop_assert!(*last < Stage::Exited || told[index].contains(&Stage::Exited));
            } else {
                prop_assert!(world[index] <= Stage::Created || world[index] == Stage::Gone);
            }
        }
        prop_assert!(table.reading.is_empty() && table.gone.is_empty());
    }
}
