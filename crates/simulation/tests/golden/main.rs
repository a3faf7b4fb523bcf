//! Pods as the Go kubelet ran them, and whether they come out the same when the whole agent runs them: what it asks of
//! the runtime, the statuses and the events.
//!
//! `GOLDEN_DIR` names another folder of recordings. `crates/core/tests/data/golden/README.md` tells how they were made.
//!
//! ```text
//!   Recording ──► the runtime as it was (images, programs, what failed) ──► Simulator ◄──┐
//!       │    └──► the pod, by a source that behaves as an API server ────────────► Agent ┘
//!       │                                                                            │
//!       └────────────────────► Comparison ◄── Moments: what was asked, status, events┘
//! ```

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

#[path = "../../../core/tests/golden/compare.rs"]
mod compare;
#[path = "../../../core/tests/golden/json.rs"]
mod json;
mod life;
#[allow(dead_code, reason = "what else the comparison of configurations alone needs")]
#[path = "../../../core/tests/golden/node.rs"]
mod node;
mod objects;
mod recording;
mod words;

use std::sync::Arc;

use compare::{Comparison, Problem, read};
use life::{Moment, live};
use node::Cluster;
use recording::{Programs, Recording};

/// Where we differ on purpose, five times at most: the recording, where in it, and why.
const DIFFERENCES: &[(&str, &str, &str)] = &[];

#[test]
fn golden_pods_come_out_as_they_were_recorded() {
    let directory = compare::directory();
    let cluster = Arc::new(Cluster::read(&read(&directory.join("_objects.json"))));
    let recordings: Vec<Recording> =
        compare::recordings(&directory).iter().map(|path| Recording::read(path)).collect();
    assert!(!recordings.is_empty(), "nothing was recorded in {}", directory.display());
    let mut problems: Vec<Problem> =
        recordings.iter().flat_map(|recording| problems(recording, &cluster)).collect();

    let unused: Vec<_> = DIFFERENCES
        .iter()
        .filter(|difference| !problems.iter().any(|problem| problem.is(difference)))
        .collect();
    problems.retain(|problem| !DIFFERENCES.iter().any(|difference| problem.is(difference)));
    let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{} differences:\n{}", text.len(), text.join("\n"));
    if compare::are_our_own() {
        assert!(unused.is_empty(), "these differences are none any more: {unused:?}");
    }
}

/// What is not as it was recorded, at the moment of the pod's life that is most like the recording.
fn problems(recording: &Recording, cluster: &Arc<Cluster>) -> Vec<Problem> {
    let problems = nearest(recording, &live(recording, cluster, Programs::Own));
    if problems.is_empty() {
        return problems;
    }
    // What the simulator's small shell cannot run does what the recording says that it did.
    let others = nearest(recording, &live(recording, cluster, Programs::AsRecorded));
    if others.len() < problems.len() { others } else { problems }
}

/// The recordings were made after some time, which need not be the same for an agent that acts sooner. A pod that is
/// left alone has come to rest by then, or repeats itself.
fn nearest(recording: &Recording, moments: &[Moment]) -> Vec<Problem> {
    moments.iter().map(|moment| compared(recording, moment)).min_by_key(Vec::len).unwrap()
}

fn compared(recording: &Recording, moment: &Moment) -> Vec<Problem> {
    let mut comparison = Comparison::with(&recording.name);
    comparison.compare("sandbox", &recording.json["sandbox"], &moment.sandbox);
    comparison.compare("containers", &recording.containers(), &moment.containers);
    comparison.compare("status", &recording.json["status"], &moment.status);
    comparison.compare("events", &recording.events(), &moment.events);
    comparison.problems
}
