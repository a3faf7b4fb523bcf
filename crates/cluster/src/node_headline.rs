//! What is said of the node in one sentence. Several tasks know a part of why it is as it is; what keeps it from the API
//! server comes first.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crablet_agent::story::{State, Teller};

/// The headline of the node's story. Clones are the same.
#[derive(Debug, Clone)]
pub struct NodeHeadline {
    story: Teller,
    reasons: Arc<Mutex<Reasons>>,
}

#[derive(Debug)]
struct Reasons {
    /// How far the certificate is without which nobody can be asked.
    certificate: Option<String>,
    /// Why the node's lease is not renewed.
    lease: Option<String>,
    /// How the node is by what the API server was told last, or why it could not be told.
    node: (State, String),
}

impl NodeHeadline {
    /// That of this story, of a node that the API server does not know yet.
    pub fn new(story: Teller) -> NodeHeadline {
        let node = (State::Waiting, "the API server to know it".to_owned());
        let reasons = Reasons { certificate: None, lease: None, node };
        let headline = NodeHeadline { story, reasons: Arc::new(Mutex::new(reasons)) };
        headline.change(|_| {});
        headline
    }

    /// How far the certificate is that is waited for; nothing once there is one.
    pub fn waits_for_certificate(&self, progress: Option<String>) {
        self.change(|reasons| reasons.certificate = progress);
    }

    /// Why the node's lease is not renewed; nothing while it is.
    pub(crate) fn lease_is_not_renewed(&self, why: Option<String>) {
        self.change(|reasons| reasons.lease = why);
    }

    /// How the node is.
    pub(crate) fn node_is(&self, state: State, because: fmt::Arguments<'_>) {
        self.change(|reasons| reasons.node = (state, because.to_string()));
    }

    fn change(&self, change: impl FnOnce(&mut Reasons)) {
        // A panic meanwhile leaves what was said before.
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut reasons);
        match &*reasons {
            Reasons { certificate: Some(progress), .. } => {
                self.story.headline(State::Waiting, format_args!("its certificate: {progress}"));
            }
            Reasons { lease: Some(why), .. } => self.story.headline(State::Unready, format_args!("{why}")),
            Reasons { node: (state, because), .. } => {
                self.story.headline(*state, format_args!("{because}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crablet_agent::story::Stories;
    use crablet_host::clock::Clock;

    use super::*;
    use crate::node_identity;

    #[tokio::test(start_paused = true)]
    async fn what_keeps_it_from_the_api_server_comes_first() {
        let story =
            Stories::new(Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap())).open(&node_identity("n"));
        let headline = NodeHeadline::new(story.clone());
        let says = |expected: &str| assert_eq!(story.story().summary.headline.to_string(), expected);
        says("is not running yet: it waits for the API server to know it");
        headline.waits_for_certificate(Some("nobody has approved it".to_owned()));
        headline.node_is(State::Blocked, format_args!("cannot be registered: no answer within 30 s"));
        says("is not running yet: it waits for its certificate: nobody has approved it");
        headline.waits_for_certificate(None);
        says("is not running: cannot be registered: no answer within 30 s");
        headline.node_is(State::Running, format_args!("it is ready"));
        headline.lease_is_not_renewed(Some("nobody answers".to_owned()));
        says("runs but is not ready: nobody answers");
        headline.lease_is_not_renewed(None);
        says("runs: it is ready");
    }
}
