//! Asking nodes what they use. What each said last is kept, so that the next answer can tell what was used since.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use http_body_util::{BodyExt, Limited};
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::api::Api;
use super::proxy;
use crate::answer::Document;
use crate::status::Refusal;
use crate::usage::{Sample, UsageQuery};

/// How long a node is asked until it has looked at itself once more, and how often. The Go kubelet looks about every ten
/// seconds.
const LOOKS_WITHIN: Duration = Duration::from_secs(15);
const ASKED_EVERY: Duration = Duration::from_millis(500);
/// What was said longer ago tells little of now.
const LATELY: SignedDuration = SignedDuration::from_secs(120);
const LARGEST: usize = 16 << 20;

/// What nodes said last, and when.
#[derive(Default)]
pub(super) struct Said(Mutex<BTreeMap<String, (Timestamp, Sample)>>);

impl Said {
    fn lately(&self, node: &str, now: Timestamp) -> Option<Sample> {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.get(node).filter(|(at, _)| now.duration_since(*at) < LATELY).map(|(_, sample)| sample.clone())
    }

    fn keep(&self, node: &str, now: Timestamp, sample: Sample) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, (at, _)| now.duration_since(*at) < LATELY);
        said.insert(node.to_owned(), (now, sample));
    }
}

pub(super) async fn respond(api: &Api, asked: &UsageQuery) -> Result<Document, Refusal> {
    let two = join_all(asked.nodes.iter().map(|node| async move { (node, two_samples(api, node).await) }));
    let mut said = BTreeMap::new();
    for (node, two) in two.await {
        match two {
            Ok(two) => {
                said.insert(node.clone(), two);
            }
            // What is asked about others can be answered all the same.
            Err(refusal) => warn!(node, err = refusal.message, "A node does not say what it uses"),
        }
    }
    api.with(|cluster, now| cluster.show_usage(asked, &said, now))
}

/// What a node said before, and what it says now.
async fn two_samples(api: &Api, node: &str) -> Result<(Sample, Sample), Refusal> {
    let before = match api.said.lately(node, api.clock().now()) {
        Some(before) => before,
        None => ask(api, node).await?,
    };
    let until = Instant::now() + LOOKS_WITHIN;
    loop {
        let after = ask(api, node).await?;
        if after.is_newer_than(&before) {
            api.said.keep(node, api.clock().now(), after.clone());
            return Ok((before, after));
        }
        if Instant::now() >= until {
            return Ok((before, after));
        }
        sleep(ASKED_EVERY).await;
    }
}

async fn ask(api: &Api, node: &str) -> Result<Sample, Refusal> {
    let answered = proxy::get(api, node, "/metrics/resource").await?;
    if !answered.status().is_success() {
        return Err(Refusal::internal(format!("the node answers {}", answered.status())));
    }
    let body = Limited::new(answered.into_body(), LARGEST).collect().await.map_err(Refusal::internal)?;
    Ok(Sample::parse(&String::from_utf8_lossy(&body.to_bytes()), api.clock().now()))
}
