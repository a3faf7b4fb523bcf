//! What is counted of questions to the API server about those who come, under upstream's names.

use std::time::Duration;

use crablet_client::Error;
use crablet_metrics::{Counter, Family, Histogram, RegisterError, Registry};

const BUCKETS: [f64; 8] = [0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
/// The code of a question that was never answered, and of an answer that was taken.
const NO_ANSWER: &str = "<error>";
const CREATED: &str = "201";

/// Counters of one kind of question.
#[derive(Clone)]
pub(crate) struct ReviewMetrics {
    total: Family<Counter, 1>,
    duration: Family<Histogram, 1>,
}

impl ReviewMetrics {
    /// Of tokens.
    pub(crate) fn authentication(registry: &Registry) -> Result<ReviewMetrics, RegisterError> {
        ReviewMetrics::register(registry, "apiserver_delegated_authn_request")
    }

    /// Of what somebody may.
    pub(crate) fn authorization(registry: &Registry) -> Result<ReviewMetrics, RegisterError> {
        ReviewMetrics::register(registry, "apiserver_delegated_authz_request")
    }

    fn register(registry: &Registry, name: &str) -> Result<ReviewMetrics, RegisterError> {
        Ok(ReviewMetrics {
            total: registry.counter_family(
                &format!("{name}_total"),
                "[ALPHA] Number of HTTP requests partitioned by status code.",
                ["code"],
            )?,
            duration: registry.histogram_family(
                &format!("{name}_duration_seconds"),
                "[ALPHA] Request latency in seconds. Broken down by status code.",
                ["code"],
                &BUCKETS,
            )?,
        })
    }

    pub(crate) fn asked<A>(&self, answer: &Result<A, Error>, took: Duration) {
        let code = match answer {
            Ok(_) => None,
            Err(error) => Some(error.code().map_or_else(|| NO_ANSWER.to_owned(), |code| code.to_string())),
        };
        let code = code.as_deref().unwrap_or(CREATED);
        self.total.with([code]).increment();
        self.duration.with([code]).observe(took.as_secs_f64());
    }
}
