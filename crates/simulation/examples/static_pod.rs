//! Static pods by hand: a directory is watched for manifests, and their pods run on the simulated runtime.
//!
//! ```text
//! cargo run --example static_pod -- /tmp/manifests
//! ```
//!
//! Put a manifest into the directory, edit it, take it away: what happens to its pod is printed.

mod common;

use std::path::PathBuf;

use anyhow::Context as _;
use crablet_agent::sources::{self, StaticPods, TrustStore};
use crablet_config::KubeletConfiguration;
use crablet_host::clock::Clock;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory =
        std::env::args_os().nth(1).map(PathBuf::from).context("give a directory for manifests")?;
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let configuration = KubeletConfiguration {
        static_pod_path: directory.to_string_lossy().into(),
        ..KubeletConfiguration::default()
    };
    let settings = sources::Settings {
        pods: StaticPods::new("node"),
        pushed: None,
        has_api: false,
        clock: Clock::system(),
        trust: TrustStore::system(),
    };
    let sources = sources::start(&configuration, settings).await?;
    let (_simulator, agent) = common::start_agent(sources.changes).await?;
    println!("manifests go to {}", directory.display());
    println!(
        "images that are there: sim/forever:1, sim/exits-0-3:1 (ends with 0 after 3 s), sim/exits-1-3:1"
    );
    tokio::select! {
        () = common::print_pods(agent.statuses.clone()) => {}
        () = common::print_events(&agent) => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    Ok(())
}
