//! [`UrlSource`]: pods from what a web server gives.

mod fetch;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use crablet_api::Text;
use crablet_api::core::Pod;
use crablet_config::Headers;
use crablet_host::clock::Clock;
use sha2::{Digest, Sha256};
use tokio::time::{MissedTickBehavior, interval};
use tracing::info;

use super::compare::mark;
use super::identity::Origin;
use super::manifest::{Made, read_pods};
use super::problems::{Consequence, Found};
use super::{Feed, Problems, SourceKind, StaticPods, Wanted};
use fetch::Target;
pub use fetch::UrlError;
pub use trust::TrustStore;

use crate::adoption::Candidate;

/// The shortest time between two requests.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);
/// Under what name its problems are kept.
const KEY: &str = "";

/// Pods from what a web server gives: a pod, or a list of them. While the server gives nothing that makes sense, its
/// last answer that did stays in force.
pub struct UrlSource {
    target: Target,
    period: Duration,
    pods: StaticPods,
    problems: Problems,
    clock: Clock,
}

impl UrlSource {
    /// A source that asks `url` every `period`, with these headers. By TLS it asks those whom `trust` vouches for.
    pub fn new(
        url: &str,
        headers: &Headers,
        period: Duration,
        pods: StaticPods,
        problems: Problems,
        clock: Clock,
        trust: TrustStore,
    ) -> Result<UrlSource, UrlError> {
        let target = Target::new(url, headers, trust)?;
        Ok(UrlSource { target, period: period.max(SHORTEST_PERIOD), pods, problems, clock })
    }

    /// Works for as long as it is polled.
    pub async fn run(self, feed: Feed) {
        let url: Arc<str> = self.target.shown().into();
        info!(%url, "Watching URL for manifests of pods");
        let mut ticks = interval(self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Last::default();
        loop {
            ticks.tick().await;
            let answer = match self.target.get().await {
                Ok(answer) => answer,
                Err(error) => {
                    self.tell(&last, vec![found(&url, error.to_string())]);
                    continue;
                }
            };
            if answer.is_empty() {
                // A server that has nothing to say has been heard. It does not say that what it asked for is to stop:
                // that would be an empty list.
                if !last.was_heard {
                    last.was_heard = true;
                    feed.set(vec![]);
                }
                self.tell(
                    &last,
                    vec![found(&url, "gave an empty answer; no pods are an empty PodList".to_owned())],
                );
                continue;
            }
            let digest: [u8; 32] = Sha256::digest(&answer).into();
            if last.digest != Some(digest) {
                last.digest = Some(digest);
                last.verdict = match self.read(&url, &answer) {
                    Ok((made, remarks)) => {
                        (last.was_heard, last.was_good) = (true, true);
                        feed.set(self.wanted(&url, made).await);
                        Verdict::Good(remarks)
                    }
                    Err(found) => Verdict::Bad(found),
                };
            }
            self.tell_verdict(&last);
        }
    }

    fn read(&self, url: &Arc<str>, answer: &[u8]) -> Result<(Vec<Made>, Vec<Found>), Vec<Found>> {
        read_pods(&self.pods, Origin { source: SourceKind::Url, place: url }, answer)
    }

    async fn wanted(&self, url: &Arc<str>, made: Vec<Made>) -> Vec<Wanted> {
        let now = format!("{:.9}", self.clock.now());
        let mut pods: Vec<(Arc<Pod>, Option<Text>)> = made
            .into_iter()
            .map(|mut made| {
                mark(&mut made.pod, SourceKind::Url, &now);
                let ours = made.has_our_uid().then_some(made.digest);
                (Arc::new(made.pod), ours)
            })
            .collect();
        let candidates = pods
            .iter_mut()
            .filter_map(|(pod, digest)| Some(Candidate { pod, digest: digest.as_ref()?, modified: None }));
        self.pods.adopt(SourceKind::Url, candidates.collect()).await;
        pods.into_iter().map(|(pod, _)| Wanted { pod, origin: url.clone() }).collect()
    }

    fn tell_verdict(&self, last: &Last) {
        match &last.verdict {
            Verdict::Good(remarks) => {
                self.problems.set(SourceKind::Url, KEY, Consequence::Noted, remarks.clone());
            }
            Verdict::Bad(found) => self.tell(last, found.clone()),
        }
    }

    fn tell(&self, last: &Last, found: Vec<Found>) {
        let consequence = if last.was_good { Consequence::LastGoodKept } else { Consequence::Ignored };
        self.problems.set(SourceKind::Url, KEY, consequence, found);
    }
}

/// What the server last said.
#[derive(Default)]
struct Last {
    digest: Option<[u8; 32]>,
    verdict: Verdict,
    was_heard: bool,
    /// Whether there is an answer in force.
    was_good: bool,
}

/// What became of it.
enum Verdict {
    Good(Vec<Found>),
    Bad(Vec<Found>),
}

impl Default for Verdict {
    fn default() -> Verdict {
        Verdict::Good(Vec::new())
    }
}

fn found(url: &str, message: String) -> Found {
    Found { origin: url.to_owned(), line: 0, message }
}
