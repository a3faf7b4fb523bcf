//! One list of cases, run on a real containerd and on the simulated runtime.
//!
//! A case asks a runtime and gives what it expects to have been told: a transcript of every answer, with IDs, times and
//! addresses taken out. No case knows on which runtime it is, so the simulator is right when all of them hold on both.
//!
//! - [`cases`]: the list. A new case is a function in one of its modules and a line in that module's `cases!`.
//! - [`world`]: what a case is given: the runtime, and everything it needs to ask it.
//! - [`listener`]: how it hears what the runtime tells.
//! - [`services`]: the calls that the agent does not make.
//! - [`transcript`]: how answers are written down.
//! - [`containerd`], [`simulator`]: where the runtime comes from, and how it is killed.
//! - [`registry`]: where a real runtime pulls images from.
//!
//! Expectations are recorded on containerd:
//! `UPDATE_EXPECT=1 cargo test -p crablet-cri --test conformance on_containerd -- --test-threads 1`.
//! `CRABLET_CASE=<part of a name>` runs only the cases with that part in their name.

mod cases;
mod containerd;
mod listener;
mod registry;
mod runner;
mod services;
mod simulator;
mod transcript;
mod world;

use std::collections::BTreeSet;

#[test]
fn there_are_many_cases_and_no_two_share_a_name() {
    let names: Vec<&str> = cases::all().iter().map(|case| case.name).collect();
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(unique.len(), names.len());
    assert!(names.len() >= 80, "{}", names.len());
}
