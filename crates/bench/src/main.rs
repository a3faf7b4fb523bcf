//! Measures the promises of `SPECIFICATION.md`, writes the figures there, and fails when one is missed.
//!
//! - [`promises`]: what is promised, and what measures it.
//! - [`exits`]: how soon the end of a container is told.
//! - [`idle`]: what the agent costs when nothing happens.
//! - [`pods`]: what a decoded pod costs.
//! - [`relists`]: what the diff of a relist takes.
//! - [`specification`]: the table in `SPECIFICATION.md`.

mod exits;
mod idle;
mod pods;
mod promises;
mod relists;
mod specification;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use promises::{Figure, PROMISES};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crablet = std::env::current_exe()?.with_file_name("crablet");
    anyhow::ensure!(crablet.exists(), "{} is missing: build it with `make bench`", crablet.display());

    let mut figures = Vec::new();
    for measure in promises::Measure::ALL {
        println!("measuring {} ...", measure.description());
        let measured = measure
            .run(&workspace, &crablet)
            .await
            .with_context(|| format!("cannot measure {}", measure.description()))?;
        figures.extend(measured);
    }
    let missed = report(&figures);
    write(&workspace.join("SPECIFICATION.md"), &figures)?;
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
