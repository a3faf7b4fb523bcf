//! Measures the promises of `SPECIFICATION.md`, writes the figures there, and fails when one is missed.
//!
//! Without arguments it measures everything; with some, what they name (`crablet-bench starts crowd`).
//!
//! - [`promises`]: what is promised, and what measures it.
//! - [`api_server`]: what the API server costs, and how soon it tells of a write; [`api_client`]: its client.
//! - [`by_hand`]: the floor that pods' starts and ends are held against; [`manifest`]: the pod.
//! - [`cgroups`]: where the kernel has what pods use and may use.
//! - [`cluster`]: what a node in a cluster costs, and how soon its pods are ready.
//! - [`counters`]: what a process costs.
//! - [`evictions`]: how soon a pod goes when memory runs short.
//! - [`exits`]: how soon the end of a container is told.
//! - [`followers`]: what the node's port costs who asks much of it.
//! - [`idle`]: what the agent costs when nothing happens.
//! - [`numbers`]: what it costs to tell what pods use.
//! - [`on_simulator`]: an agent with many pods on a simulated runtime.
//! - [`pods`]: what a decoded pod costs.
//! - [`probes`]: what probes cost, and how soon they are heard.
//! - [`relists`]: what the diff of a relist takes.
//! - [`resizes`]: how soon a resize is what the kernel enforces.
//! - [`settled`]: what the agent costs with many pods and nothing to do.
//! - [`starts`]: how long pods take to start and to end.
//! - [`storage`]: what volumes of CSI drivers cost.
//! - [`streams`]: what a stream into a container takes.
//! - [`translation`]: what it takes to tell a runtime what a pod asks for.
//! - [`specification`]: the table in `SPECIFICATION.md`.

mod api_client;
mod api_server;
mod by_hand;
mod cgroups;
mod cluster;
mod counters;
mod evictions;
mod exits;
mod followers;
mod idle;
mod manifest;
mod numbers;
mod on_simulator;
mod pods;
mod probes;
mod promises;
mod relists;
mod resizes;
mod settled;
mod specification;
mod starts;
mod storage;
mod streams;
mod translation;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use promises::{Figure, Measure, PROMISES};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crablet = std::env::current_exe()?.with_file_name("crablet");
    anyhow::ensure!(crablet.exists(), "{} is missing: build it with `make bench`", crablet.display());

    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let [probes::CONNECT, address] = wanted.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        probes::connect(address)?;
    }
    let names: Vec<&str> = Measure::ALL.iter().map(|measure| measure.name()).collect();
    for name in &wanted {
        anyhow::ensure!(names.contains(&name.as_str()), "{name:?} is none of {}", names.join(", "));
    }
    let is_wanted =
        |measure: &&Measure| wanted.is_empty() || wanted.iter().any(|name| name == measure.name());

    let mut missed = false;
    for measure in Measure::ALL.iter().filter(is_wanted) {
        println!("measuring {} ...", measure.description());
        let figures = measure
            .run(&workspace, &crablet)
            .await
            .with_context(|| format!("cannot measure {}", measure.description()))?;
        missed |= report(&figures);
        // What was measured stays, though the next cannot be.
        write(&workspace.join("SPECIFICATION.md"), &figures)?;
    }
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints every figure beside its limit; whether any is over.
fn report(figures: &[Figure]) -> bool {
    let mut missed = false;
    for figure in figures {
        let Some(promise) = PROMISES.iter().find(|promise| promise.id == figure.id) else { continue };
        let verdict = if figure.keeps(promise) { "kept" } else { "MISSED" };
        missed |= !figure.keeps(promise);
        println!(
            "{verdict:>6}  {}: {} (promised: {})",
            promise.text,
            figure.in_words(),
            promise.limit_in_words()
        );
    }
    missed
}

fn write(path: &PathBuf, figures: &[Figure]) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = specification::with_figures(&text, figures)?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
