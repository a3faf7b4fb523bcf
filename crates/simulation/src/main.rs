//! `crablet-sim`: runs seeds until the time is over, so many are done, or one fails, each with and without an API server; or one
//! seed, with its trace.

use std::process::ExitCode;
use std::time::Duration;

use crablet_simulation::manifest::Variety;
use crablet_simulation::run::{Settings, dies_at_every_step, run, somebody_dies_at_every_step_of_storage};
use crablet_simulation::storage::Victim;
use tokio::time::Instant;

const USAGE: &str =
    "usage: crablet-sim [--seed NUMBER [--cluster] | [--seconds NUMBER | --runs NUMBER] [--from SEED]]";

/// After so many seeds it is told how far it is.
const BETWEEN_WORDS: u64 = 100;

/// When enough was run.
#[derive(Clone, Copy)]
enum Enough {
    After(Duration),
    Seeds(u64),
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let mut enough = Enough::After(Duration::from_secs(120));
    let (mut seed, mut first, mut in_cluster) = (None, None, false);
    while let Some(word) = words.next() {
        if word == "--cluster" {
            in_cluster = true;
            continue;
        }
        let value = words.next().and_then(|value| value.parse::<u64>().ok());
        match (word.as_str(), value) {
            ("--seconds", Some(value)) => enough = Enough::After(Duration::from_secs(value)),
            ("--runs", Some(value)) => enough = Enough::Seeds(value),
            ("--seed", Some(value)) => seed = Some(value),
            ("--from", Some(value)) => first = Some(value),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    match seed {
        Some(seed) => traced(Settings { in_cluster, ..Settings::of_seed(seed) }),
        None => many(enough, first.unwrap_or_else(seed_of_the_day)),
    }
}

/// Every day has its own seeds.
fn seed_of_the_day() -> u64 {
    let now = crablet_host::clock::Clock::system().now();
    u64::try_from(now.as_millisecond()).unwrap_or_default()
}

fn traced(settings: Settings) -> ExitCode {
    let seed = settings.seed;
    let outcome = run(Settings { traced: true, ..settings });
    for line in &outcome.trace {
        println!("{line}");
    }
    match &outcome.violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            println!("seed {seed} breaks invariant {}: {}", violation.invariant, violation.what);
            ExitCode::FAILURE
        }
    }
}

fn many(enough: Enough, first: u64) -> ExitCode {
    let began = Instant::now();
    for in_cluster in [false, true] {
        let settings = Settings { in_cluster, ..Settings::of_seed(first) };
        match dies_at_every_step(settings, Variety::Everything, 1) {
            Ok(runs) => {
                let place = if in_cluster { "in a cluster" } else { "alone" };
                println!(
                    "an agent {place} that died at each of its steps in turn, in {runs} runs: no promise broken"
                )
            }
            Err(broken) => return traced(broken.0),
        }
    }
    for victim in [Victim::Agent, Victim::Drivers, Victim::Node] {
        match somebody_dies_at_every_step_of_storage(Settings::in_cluster(first), victim, 1) {
            Ok(runs) => println!(
                "{victim:?} that died at each step of storage in turn, in {runs} runs: no promise broken"
            ),
            Err(broken) => return traced(broken.0),
        }
    }
    let (mut seeds, mut pods, mut faults, mut crashes, mut steps) = (0_u64, 0, 0, 0, 0);
    for seed in first.. {
        let is_enough = match enough {
            Enough::After(time) => seeds > 0 && began.elapsed() > time,
            Enough::Seeds(most) => seeds >= most,
        };
        if is_enough {
            break;
        }
        for settings in [Settings::of_seed(seed), Settings::in_cluster(seed)] {
            let outcome = run(settings);
            if outcome.violation.is_some() {
                let code = traced(settings);
                let cluster = if settings.in_cluster { " CLUSTER=1" } else { "" };
                println!("replay it with: make sim SEED={seed}{cluster}");
                return code;
            }
            pods += outcome.pods;
            faults += outcome.faults;
            crashes += outcome.crashes;
            steps += outcome.steps;
        }
        seeds += 1;
        if seeds.is_multiple_of(BETWEEN_WORDS) {
            println!("{seeds} seeds in {} s", began.elapsed().as_secs());
        }
    }
    println!(
        "{seeds} seeds from {first}, each alone and in a cluster: {pods} pods, {faults} faults, {crashes} agents ended, {steps} steps: no promise broken"
    );
    ExitCode::SUCCESS
}
