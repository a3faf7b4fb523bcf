//! How far a certificate is, for people.

use std::fmt;
use std::sync::Arc;

use crablet_api::Text;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::signing_request::RequestError;

/// How far it is, and what stands in the way.
#[derive(Clone, Debug)]
pub struct Progress {
    pub stage: Stage,
    /// What went wrong since there was a certificate last.
    pub trouble: Option<Trouble>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing was done yet.
    Begun,
    /// Nobody can be asked yet: the node's addresses are not known.
    WaitsForAddresses,
    /// There is one; the next is asked for at that time.
    Held { ends: Timestamp, renewed_at: Timestamp },
    /// There is a key, and the server is being told of it.
    Asks { since: Timestamp },
    /// Nobody has approved the request yet.
    Pending { request: Text, since: Timestamp },
    /// The request is approved, and nobody has signed it yet.
    Approved { request: Text, since: Timestamp },
    /// It is tried again then.
    Rests { until: Timestamp },
}

/// What went wrong last.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// When it began to go wrong.
    pub since: Timestamp,
    /// How often.
    pub times: u32,
    pub error: Arc<RequestError>,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress { stage: Stage::Begun, trouble: None }
    }

    /// Tells whoever listens, if it is news.
    pub(crate) fn enter(told: &watch::Sender<Progress>, stage: Stage) {
        told.send_if_modified(|progress| {
            let is_new = progress.stage != stage;
            progress.stage = stage;
            is_new
        });
    }

    pub(crate) fn note(&mut self, error: Arc<RequestError>, now: Timestamp) {
        let (since, times) = self.trouble.as_ref().map_or((now, 0), |trouble| (trouble.since, trouble.times));
        self.trouble = Some(Trouble { since, times: times.saturating_add(1), error });
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stage {
            Stage::Begun => formatter.write_str("no certificate was asked for yet")?,
            Stage::WaitsForAddresses => formatter.write_str("the node's addresses are waited for")?,
            Stage::Held { ends, renewed_at } => {
                write!(formatter, "valid until {ends:.0}, renewed at {renewed_at:.0}")?;
            }
            Stage::Asks { since } => write!(formatter, "asking the API server since {since:.0}")?,
            Stage::Pending { request, since } => write!(
                formatter,
                "the request {request} waits since {since:.0} for somebody to approve it \
                 (kubectl certificate approve {request})"
            )?,
            Stage::Approved { request, since } => {
                write!(
                    formatter,
                    "the request {request} is approved and waits since {since:.0} to be signed"
                )?;
            }
            Stage::Rests { until } => write!(formatter, "tried again at {until:.0}")?,
        }
        match &self.trouble {
            Some(trouble) => write!(formatter, "; {} (since {:.0})", told(&*trouble.error), trouble.since),
            None => Ok(()),
        }
    }
}

/// An error with its causes.
pub(crate) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
