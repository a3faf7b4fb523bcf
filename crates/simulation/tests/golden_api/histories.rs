//! Whether the statuses of objects appear in the order of the recording.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use crate::compare::{Comparison, Problem};

type Histories = BTreeMap<String, Vec<Json>>;

/// Compares what was to be seen of each object. What came and went between two writes of ours may be missing; the last
/// status may not.
pub fn compare_histories(comparison: &mut Comparison<'_>, recorded: &Histories, ours: &Histories) {
    let names: BTreeSet<&String> = recorded.keys().chain(ours.keys()).collect();
    for name in names {
        match (recorded.get(name), ours.get(name)) {
            (Some(recorded), Some(ours)) => compare_history(comparison, recorded, ours),
            (recorded, ours) => {
                let last = |history: Option<&Vec<Json>>| {
                    history.and_then(|history| history.last()).cloned().unwrap_or_default()
                };
                comparison.problem(&format!("statuses of {name}"), &last(recorded), &last(ours));
            }
        }
    }
}

fn compare_history(comparison: &mut Comparison<'_>, recorded: &[Json], ours: &[Json]) {
    let mut left = recorded;
    for status in ours {
        match left.iter().position(|one| one == status) {
            Some(index) => left = &left[index + 1..],
            None => {
                let candidates = if left.is_empty() { &recorded[recorded.len() - 1..] } else { left };
                let nearest = candidates.iter().map(|one| differences("status", one, status));
                let nearest = nearest.min_by_key(Vec::len);
                comparison.problems.extend(nearest.unwrap_or_default());
            }
        }
    }
    let last = |history: &[Json]| history.last().cloned().unwrap_or_default();
    comparison.problems.extend(differences("last status", &last(recorded), &last(ours)));
}

fn differences(place: &str, recorded: &Json, ours: &Json) -> Vec<Problem> {
    let mut comparison = Comparison::with("");
    comparison.compare(place, recorded, ours);
    if comparison.problems.is_empty() && recorded != ours {
        // It is there, but earlier.
        comparison.problem(place, &Json::Null, ours);
    }
    comparison.problems
}
