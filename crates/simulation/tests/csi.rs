//! Volumes of CSI drivers, whoever dies: the agent, the drivers or the node, at any step of what is done to them.

use crablet_simulation::run::{Settings, run, somebody_dies_at_every_step_of_storage};
use crablet_simulation::storage::Victim;

/// Of all steps one in so many is the one to die at; `make sim` takes them all.
const STRIDE: usize = 5;

fn may_die(victim: Victim) {
    match somebody_dies_at_every_step_of_storage(Settings::in_cluster(3), victim, STRIDE) {
        Ok(runs) => assert!(runs > 12, "{runs} runs show little"),
        Err(broken) => check(broken.0),
    }
}

/// Runs, and panics with the end of the trace where a promise is broken.
fn check(settings: Settings) {
    let outcome = run(Settings { traced: true, ..settings });
    if let Some(violation) = &outcome.violation {
        let last = outcome.trace.len().saturating_sub(120);
        panic!(
            "{settings:?} breaks promise {}: {}\n{}",
            violation.invariant,
            violation.what,
            outcome.trace[last..].join("\n")
        );
    }
}

#[test]
fn an_agent_may_die_at_any_step_of_staging_publishing_and_back() {
    may_die(Victim::Agent);
}

#[test]
fn drivers_may_die_at_any_step_of_staging_publishing_and_back() {
    may_die(Victim::Drivers);
}

#[test]
fn a_node_may_die_at_any_step_of_staging_publishing_and_back() {
    may_die(Victim::Node);
}
