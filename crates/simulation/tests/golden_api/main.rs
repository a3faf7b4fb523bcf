//! What the Go kubelet said to an API server, and whether the agent says the same when the same happens to it on the
//! embedded one: pods' statuses in their order, events, deletes, mirrors, the node and its lease.
//!
//! `GOLDEN_DIR` names another folder, whose `api` has the recordings. `crates/core/tests/data/golden/api/README.md` tells
//! how they were made; what was done to the node meanwhile says `scenarios`.
//!
//! ```text
//!   recording ──────────────────────────────────► requests ──► Said ─┐
//!   scenario ──► API server ◄──► agent ──► runtime                   ├──► comparison
//!                    └─────────────────────────► requests ──► Said ──┘
//! ```

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod cluster;
#[allow(dead_code, reason = "what else the comparison of configurations needs")]
#[path = "../../../core/tests/golden/compare.rs"]
mod compare;
mod histories;
mod request;
mod said;
mod scenarios;
mod waste;
mod words;

use compare::{Comparison, Problem, are_our_own, directory, read, recordings};
use histories::compare_histories;
use said::Said;
use scenarios::Pace;
use serde_json::Value as Json;

/// Where we differ on purpose: the scenario (`*` for all), where in it, and why. What begins so is meant too.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("*", "status.podIP", "we tell a pod's address as soon as it has one, and not with its first container"),
    ("*", "status.resources.limits", "upstream tells that a cgroup v1 has no limit as a limit of 8 EiB"),
    ("*", "last status.resources.limits", "upstream tells that a cgroup v1 has no limit as a limit of 8 EiB"),
    (
        "crash-loop",
        "status.containerStatuses[0].restartCount",
        "we tell that a restart waits at once, and not at its end",
    ),
    (
        "crash-loop",
        "status.containerStatuses[0].state.waiting",
        "we tell that a restart waits at once, and not at its end",
    ),
    (
        "readiness-flips",
        "events.Pod p spec.containers{c} Unhealthy: Readiness probe errored and resulted in unknown state: rpc error: \
         code = Canceled",
        "our probes go on while a container stops, and theirs are cut off",
    ),
    (
        "static-pod",
        "status.conditions.PodReadyToStartContainers",
        "our mirror is there before its sandbox, theirs after",
    ),
    ("static-pod", "deleted[1].options.preconditions.uid", "we delete no other mirror than the one we mean"),
    (
        "resize",
        "status.resources.requests.memory",
        "the memory that a pod asks for follows what it was given, where upstream tells the first amount for ever",
    ),
    ("start", "deleted", "no resource slices are published yet, so none are taken back"),
];

#[test]
fn what_the_api_server_hears_means_what_was_recorded() {
    let directory = directory().join("api");
    // One of them, for who looks closely.
    let only = std::env::var("SCENARIO").ok();
    let start = Said::from(&request::recorded(&read(&directory.join("start.json"))));
    let mut problems: Vec<Problem> = Vec::new();
    for path in recordings(&directory) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let recorded = Said::from(&request::recorded(&read(&path)));
        for pace in [Pace::AsRecorded, Pace::AtOnce] {
            let ours = Said::from(&scenarios::play(&name, pace));
            let mut found = compared(&name, &recorded, &ours, &start);
            found.iter_mut().for_each(|problem| problem.recording = format!("{name} ({pace:?})"));
            problems.extend(found);
        }
    }
    let is_known = |problem: &Problem, (scenario, place, _): &(&str, &str, &str)| {
        let is_there = *scenario == "*" || problem.recording.split(' ').next() == Some(*scenario);
        is_there && problem.place.starts_with(place)
    };
    let is_unused = |known: &&(&str, &str, &str)| !problems.iter().any(|problem| is_known(problem, known));
    let unused: Vec<_> = DIFFERENCES.iter().filter(is_unused).collect();
    let text: Vec<String> = problems
        .iter()
        .filter(|problem| !DIFFERENCES.iter().any(|known| is_known(problem, known)))
        .map(ToString::to_string)
        .collect();
    assert!(text.is_empty(), "{} differences:\n{}", text.len(), text.join("\n"));
    if are_our_own() && only.is_none() {
        assert!(unused.is_empty(), "these differences are none any more: {unused:?}");
    }
}

/// What is not as it was recorded. What is read may have been read at the start there.
fn compared(name: &str, recorded: &Said, ours: &Said, start: &Said) -> Vec<Problem> {
    let mut comparison = Comparison::with(name);
    for what in &ours.vain {
        comparison.problem("a write that changes nothing", &Json::Null, what);
    }
    for what in &ours.refused {
        comparison.problem("a request that was refused", &Json::Null, what);
    }
    for what in ours.read.iter().filter(|what| !recorded.read.contains(*what) && !start.read.contains(*what))
    {
        comparison.problem("read", &Json::Null, &what.as_str().into());
    }
    if ours.requests > recorded.requests {
        comparison.problem("the number of requests", &recorded.requests.into(), &ours.requests.into());
    }
    compare_histories(&mut comparison, &recorded.statuses, &ours.statuses);
    comparison.compare("created", &recorded.created, &ours.created);
    comparison.compare("deleted", &recorded.deleted, &ours.deleted);
    // Whether one falls into the time of a scenario is a matter of chance.
    if let (Some(recorded), Some(ours)) = (recorded.renewed.first(), ours.renewed.first()) {
        comparison.compare("renewed", recorded, ours);
    }
    comparison.compare("events", &recorded.events, &ours.events);
    for (part, recorded) in &recorded.order {
        let ours = ours.order.get(part).map_or(&[][..], Vec::as_slice);
        let in_both = |one: &&String| recorded.contains(one) && ours.contains(one);
        let order =
            |events: &[String]| events.iter().filter(in_both).cloned().collect::<Vec<String>>().into();
        comparison.compare("order of events", &order(recorded), &order(ours));
    }
    comparison.problems
}
