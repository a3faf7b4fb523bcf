//! Whole runs: seeds keep all promises, replay to the letter, survive a death at every step; and what lies lead to is found.

use std::ops::RangeInclusive;

use crablet_simulation::lies::Lie;
use crablet_simulation::manifest::Variety;
use crablet_simulation::run::{Outcome, Settings, dies_at_every_step, run};

/// Within so many seeds it is found what a lie leads to.
const SEEDS_FOR_A_LIE: u64 = 150;

/// Runs, and panics with the end of the trace where a promise is broken.
fn check(settings: Settings) -> Outcome {
    let outcome = run(settings);
    if let Some(violation) = &outcome.violation {
        let traced = run(Settings { traced: true, ..settings });
        let last = traced.trace.len().saturating_sub(60);
        panic!(
            "{settings:?} breaks promise {}: {}\n{}",
            violation.invariant,
            violation.what,
            traced.trace[last..].join("\n")
        );
    }
    outcome
}

/// Every build runs the same seeds, however fast the machine is: what a change breaks, it breaks everywhere. `make sim`
/// runs others.
fn break_no_promise(seeds: RangeInclusive<u64>) {
    for seed in seeds {
        check(Settings::of_seed(seed));
    }
}

#[test]
fn the_first_hundred_seeds_break_no_promise() {
    break_no_promise(1..=100);
}

#[test]
fn the_second_hundred_seeds_break_no_promise() {
    break_no_promise(101..=200);
}

#[test]
fn in_a_cluster_the_first_seeds_break_no_promise() {
    for seed in 1..=30 {
        check(Settings::in_cluster(seed));
    }
}

/// They found a pod that was over between two of its containers, a sidecar that was stopped before what was started and
/// not seen yet, a pod that was over although a call of an agent that died had yet to start a container of it, and a stream of
/// events that the runtime had forgotten.
#[test]
fn seeds_that_once_broke_a_promise_keep_it() {
    // A mirror that came and went while watches were silent.
    check(Settings::in_cluster(81_000_547));
    for seed in [7_000_644, 71_001_454, 73_001_016, 75_002_837] {
        break_no_promise(seed..=seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_run_to_the_letter() {
    for seed in 1..=8 {
        let settings = Settings { traced: true, in_cluster: seed > 4, ..Settings::of_seed(seed) };
        let (one, other) = (run(settings).trace, run(settings).trace);
        for (line, (one, other)) in one.iter().zip(&other).enumerate() {
            assert_eq!(one, other, "seed {seed}, line {line}");
        }
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}

/// Of all steps one in so many is the one to die at; `make sim` takes them all.
const STRIDE: usize = 7;
const STRIDE_IN_CLUSTER: usize = 23;

fn may_die(settings: Settings, variety: Variety) {
    let stride = if settings.in_cluster { STRIDE_IN_CLUSTER } else { STRIDE };
    match dies_at_every_step(settings, variety, stride) {
        Ok(runs) => assert!(runs > 30, "{runs} runs show little"),
        Err(broken) => {
            check(broken.0);
        }
    }
}

#[test]
fn an_agent_may_die_at_any_step_while_pods_come_and_go() {
    may_die(Settings::of_seed(3), Variety::Lasting);
}

#[test]
fn an_agent_may_die_at_any_step_while_pods_of_all_kinds_come_and_go() {
    may_die(Settings::of_seed(11), Variety::Everything);
}

#[test]
fn an_agent_may_die_at_any_step_in_a_cluster() {
    may_die(Settings::in_cluster(3), Variety::Lasting);
}

/// Looks for a seed that finds what a lie leads to.
fn finds(in_cluster: bool, lie: Lie, invariant: u8, words: &str) {
    let mut others = Vec::new();
    for seed in 1..=SEEDS_FOR_A_LIE {
        let outcome = run(Settings { lie: Some(lie), in_cluster, ..Settings::of_seed(seed) });
        match outcome.violation {
            Some(violation) if violation.invariant == invariant && violation.what.contains(words) => return,
            Some(violation) => others.push(violation),
            None => {}
        }
    }
    panic!(
        "no seed up to {SEEDS_FOR_A_LIE} finds that {lie:?} breaks promise {invariant}: {words}; found: {others:#?}"
    );
}

macro_rules! lies {
    ($($name:ident: $lie:ident breaks $invariant:literal: $words:literal;)*) => {
        $(
            #[test]
            fn $name() {
                finds(false, Lie::$lie, $invariant, $words);
            }
        )*
    };
}

lies! {
    containers_that_stop_with_the_agent_are_found: ContainersDiffer breaks 1: "for no reason";
    two_containers_of_one_name_are_found: ContainersAreNotThereYet breaks 2: "beside another one of its name";
    a_pod_that_runs_again_after_its_end_is_found: NoCheckpoints breaks 3: "over";
    a_container_that_is_said_to_be_over_too_early_is_found: StopsAreInstant breaks 11: "shown to have ended";
    a_pod_that_is_said_to_be_over_too_early_is_found: SidecarsGoWithTheMains breaks 4: "shown to be over";
    readiness_that_changes_with_the_agent_is_found: NoStatuses breaks 5: "not ready any more";
    init_containers_that_run_again_are_found: InitsWereNeverThere breaks 6: "was done";
    sidecars_that_stop_too_early_are_found: SidecarsAreMains breaks 7: "which stops first";
    orphans_that_nobody_ends_are_found: PodsAreToCome breaks 8: "nobody wants it";
    pods_of_one_name_that_do_not_wait_are_found: PodsAreOfTheApi breaks 9: "of the same name";
    silence_that_is_taken_for_death_is_found: SilenceIsAnEmptyList breaks 4: "tear down volumes";
    records_that_stay_for_ever_are_found: CheckpointsAreRemoved breaks 12: "checkpoint";
    volumes_that_go_before_their_containers_are_found: VolumesAreKept breaks 4: "tear down volumes";
    users_that_two_pods_have_are_found: NoUsers breaks 13: "with users that";
    a_pod_that_should_not_go_first_is_found: UsageIsTurnedAround breaks 19: "others should go before it";
    a_pod_that_goes_for_nothing_is_found: MemoryIsShort breaks 19: "nothing was short";
    a_node_that_ends_nobody_for_what_it_is_short_of_is_found: NobodyIsMeasured breaks 19: "nobody goes";
    pods_that_end_out_of_order_in_a_shutdown_are_found: NoTimeInShutdowns breaks 21: "which ends before it";
    pods_that_begin_again_in_a_shutdown_are_found: NoShutdownIsUnderWay breaks 21: "because the machine goes down";
}

#[test]
fn statuses_that_the_api_server_does_not_show_are_found() {
    finds(true, Lie::StatusesAreTaken, 10, "and shown as");
}
