//! Volumes of CSI drivers, whoever dies: the agent, the drivers or the node, at any step of what is done to them.

use std::collections::BTreeMap;
use std::time::Duration;

use crablet_csi::{Node as _, StageVolume};
use crablet_simulation::ledger::Violation;
use crablet_simulation::lies::Lie;
use crablet_simulation::run::{Settings, run, somebody_dies_at_every_step_of_storage};
use crablet_simulation::storage::{Trouble, Victim};
use crablet_simulation::trace::Trace;
use crablet_simulation::world::World;
use tokio::task::JoinHandle;

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

#[tokio::test(start_paused = true)]
async fn what_a_driver_hangs_in_is_never_done_when_the_machine_begins_anew() {
    let mut world = World::new(0, Trace::new(false));
    let server = world.add_api_server();
    let storage = world.add_storage(0, &server);
    let driver = storage.drivers[0].clone();
    driver.set_trouble(Some(Trouble::Hangs));
    // By chance one or the other does not hang.
    let asked = (0..10).map(|volume| {
        let volume = StageVolume {
            volume_id: format!("volume-{volume}"),
            staging_target_path: format!("/var/lib/kubelet/{volume}"),
            ..StageVolume::default()
        };
        let driver = driver.clone();
        tokio::spawn(async move { driver.stage(volume).await })
    });
    let asked: Vec<_> = asked.collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(asked.iter().any(|asked| !asked.is_finished()), "nothing hangs");
    world.reboot().await;
    driver.set_trouble(None);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(asked.iter().all(JoinHandle::is_finished));
    assert_eq!(storage.machine.mounts(), BTreeMap::new());
}

/// While an agent dies at any step of storage, it is found what a lie leads to.
fn finds(lie: Lie, invariant: u8, words: &str) {
    let settings = Settings { lie: Some(lie), ..Settings::in_cluster(3) };
    let found =
        somebody_dies_at_every_step_of_storage(settings, Victim::Agent, STRIDE).map_err(|broken| broken.1);
    let is_it = |found: &Violation| found.invariant == invariant && found.what.contains(words);
    assert!(
        found.as_ref().is_err_and(is_it),
        "{lie:?} breaks promise {invariant}: {words}; found: {found:?}"
    );
}

#[test]
fn volumes_that_are_published_before_they_are_staged_are_found() {
    finds(Lie::VolumesAreStaged, 16, "before it is staged");
}

#[test]
fn volumes_that_are_unstaged_while_a_pod_uses_them_are_found() {
    finds(Lie::NoVolumesOfDrivers, 17, "is unstaged while it is published");
}

#[test]
fn volumes_that_stay_published_are_found() {
    finds(Lie::VolumesAreUnpublished, 17, "are taken away, and one is at");
}

#[test]
fn volumes_that_stay_staged_are_found() {
    finds(Lie::VolumesAreUnstaged, 17, "globalmount is mounted, and nobody wants it");
}

#[test]
fn data_that_is_touched_across_a_mount_is_found() {
    finds(Lie::MountsAreAbove, 18, "which is in a volume");
}
