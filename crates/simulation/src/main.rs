//! `crablet-sim`: runs seeds until the time is over or one fails; or one seed, with its trace.

use std::process::ExitCode;
use std::time::Duration;

use crablet_simulation::manifest::Variety;
use crablet_simulation::run::{Outcome, Settings, dies_at_every_step, run};
use tokio::time::Instant;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (mut seconds, mut seed, mut first) = (120, None, None);
    while let Some(word) = words.next() {
        let value = words.next().and_then(|value| value.parse::<u64>().ok());
        match (word.as_str(), value) {
            ("--seconds", Some(value)) => seconds = value,
            ("--seed", Some(value)) => seed = Some(value),
            ("--from", Some(value)) => first = Some(value),
            _ => {
                eprintln!("usage: crablet-sim [--seed NUMBER | --seconds NUMBER --from SEED]");
                return ExitCode::from(2);
            }
        }
    }
    match seed {
        Some(seed) => one(seed),
        None => many(Duration::from_secs(seconds), first.unwrap_or_else(seed_of_the_day)),
    }
}

/// Every day has its own seeds.
fn seed_of_the_day() -> u64 {
    let now = crablet_host::clock::Clock::system().now();
    u64::try_from(now.as_millisecond()).unwrap_or_default()
}

fn one(seed: u64) -> ExitCode {
    traced(Settings::of_seed(seed))
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

fn many(time: Duration, first: u64) -> ExitCode {
    let began = Instant::now();
    match dies_at_every_step(first, Variety::Everything, 1) {
        Ok(runs) => {
            println!("an agent that died at each of its steps in turn, in {runs} runs: no promise broken")
        }
        Err(broken) => return traced(broken.0),
    }
    let (mut seeds, mut pods, mut faults, mut crashes, mut steps) = (0_u64, 0, 0, 0, 0);
    for seed in first.. {
        let Outcome { violation, .. } = {
            let outcome = run(Settings::of_seed(seed));
            seeds += 1;
            pods += outcome.pods;
            faults += outcome.faults;
            crashes += outcome.crashes;
            steps += outcome.steps;
            outcome
        };
        if violation.is_some() {
            let code = one(seed);
            println!("replay it with: make sim SEED={seed}");
            return code;
        }
        if began.elapsed() > time {
            break;
        }
    }
    println!(
        "{seeds} seeds from {first}: {pods} pods, {faults} faults, {crashes} agents ended, {steps} steps: no promise broken"
    );
    ExitCode::SUCCESS
}
