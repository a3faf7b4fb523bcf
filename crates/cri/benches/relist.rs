//! What the diff of a relist takes, with 10,000 containers in the simulated runtime: what it answers is encoded, decoded,
//! and then measured. Prints a line for each figure, `name<TAB>value<TAB>limit`, and fails when one is over its limit.

#![allow(clippy::unwrap_used, reason = "nobody but a developer runs this")]

#[path = "../tests/relist_allocations/crowd.rs"]
mod crowd;

use std::process::ExitCode;

use crowd::Crowd;

const CHANGES: usize = 10;
const RUNS: usize = 50;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut crowd = Crowd::gather().await;
    let (mut unchanged, mut changed) = (Vec::new(), Vec::new());
    // The most that any relist allocated.
    let (mut for_nothing, mut for_changes) = (0, 0);
    for _ in 0..RUNS {
        let diff = crowd.relist().await;
        assert!(diff.found.events.is_empty() && diff.found.exited.is_empty());
        unchanged.push(diff.milliseconds);
        for_nothing = for_nothing.max(diff.allocations);

        crowd.end(CHANGES);
        let diff = crowd.relist().await;
        assert_eq!(diff.found.exited.len(), CHANGES);
        changed.push(diff.milliseconds);
        for_changes = for_changes.max(diff.allocations);
        crowd.read(&diff.found.exited).await;
    }
    let figures = [
        ("relist_unchanged_milliseconds", median(&mut unchanged), 10.0),
        ("relist_changed_milliseconds", median(&mut changed), 10.0),
        ("relist_unchanged_allocations", for_nothing as f64, 0.0),
        ("relist_changed_allocations", for_changes as f64, CHANGES as f64),
    ];
    let mut code = ExitCode::SUCCESS;
    for (name, value, limit) in figures {
        println!("{name}\t{value:.3}\t{limit}");
        if value > limit {
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
