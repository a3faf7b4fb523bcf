//! Running cases, and saying which failed.

use std::env;
use std::path::Path;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};

use crate::cases::Case;
use crate::world::{Host, World};

/// Only the cases with this in their name are run.
const CHOICE: &str = "CRABLET_CASE";

/// The cases that were asked for.
pub fn chosen(cases: Vec<Case>) -> Vec<Case> {
    match env::var(CHOICE) {
        Ok(part) => cases.into_iter().filter(|case| case.name.contains(&part)).collect(),
        Err(_) => cases,
    }
}

/// Runs cases on one host, so many at a time, and gives the names of those that failed.
pub async fn run(
    cases: Vec<Case>,
    at_once: usize,
    host: &Arc<dyn Host>,
    directory: &Path,
) -> Vec<&'static str> {
    let runs = cases.into_iter().map(|case| {
        let world = World::new(case.name, Arc::clone(host), &directory.join(case.name));
        async move { (case.name, run_one(case, Arc::new(world)).await) }
    });
    stream::iter(runs)
        .buffer_unordered(at_once)
        .filter_map(async |(name, held)| (!held).then_some(name))
        .collect()
        .await
}

/// Runs a case and cleans up after it. A panic is told by the thread that it is in, with the line.
async fn run_one(case: Case, world: Arc<World>) -> bool {
    let task = tokio::spawn({
        let world = Arc::clone(&world);
        async move {
            let expected = (case.run)(&world).await;
            (expected, world.transcript())
        }
    });
    let outcome = task.await;
    let cleaned = world.clean_up().await;
    let compared = async move {
        let (expected, transcript) = outcome?;
        cleaned?;
        tokio::spawn(async move { expected.assert_eq(&transcript) }).await?;
        anyhow::Ok(())
    };
    match compared.await {
        Ok(()) => true,
        Err(error) => {
            eprintln!("\n{} failed: {error:#}", case.name);
            false
        }
    }
}
