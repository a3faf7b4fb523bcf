//! The pods of a node by hand: they are fed through a channel, as an API server's watch would feed them, and listed at
//! `/pods` with their status.
//!
//! ```text
//! cargo run --example pod_manager
//! curl http://localhost:8080/pods
//! ```

mod common;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use crablet_agent::sources::{Feed, PodConfig, Problems, SourceKind, Wanted};
use crablet_agent::statuses::Statuses;
use crablet_host::clock::Clock;
use crablet_simulation::manifest::from_text;
use tokio::net::TcpListener;

const PORT: u16 = 8080;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))
        .await
        .with_context(|| format!("cannot listen on port {PORT} of this machine"))?;
    let (mut config, changes) = PodConfig::new(Clock::system(), Problems::default());
    let feed = config.feed(SourceKind::Api);
    tokio::spawn(config.run());
    let (_simulator, agent) = common::start_agent(changes).await?;
    println!("pods come and go; they are listed at http://localhost:{PORT}/pods");

    let statuses = agent.statuses.clone();
    let pages = Router::new()
        .route("/pods", get(async move || ([(CONTENT_TYPE, "application/json")], list(&statuses))));
    tokio::select! {
        served = axum::serve(listener, pages).into_future() => served?,
        () = feed_pods(&feed) => {}
        () = common::print_pods(agent.statuses) => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    Ok(())
}

/// Wants one pod more every few seconds, and then begins anew.
async fn feed_pods(feed: &Feed) {
    loop {
        for count in 0..=3 {
            let pods = (0..count).map(|number| Wanted {
                pod: from_text(&format!(
                    "metadata: {{name: p{number}, namespace: default, uid: p{number}}}\n\
                     spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: c, image: 'sim/forever:1'}}]}}\n"
                )),
                origin: Arc::from("the example"),
            });
            feed.set(pods.collect());
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }
}

fn list(statuses: &Statuses) -> Vec<u8> {
    let items: Vec<_> = statuses.list().iter().map(crablet_agent::statuses::Reported::whole).collect();
    crablet_api::to_json(
        &serde_json::json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items }),
    )
}
