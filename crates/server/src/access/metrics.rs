//! What is counted of questions to the API server about those who come, under upstream's names.

use std::time::Duration;

use crablet_client::Error;
use crablet_metrics::{Counter, DEFAULT_BUCKETS, Family, Gauge, Histogram, RegisterError, Registry};

const BUCKETS: [f64; 8] = [0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
/// The code of a question that was never answered, and of an answer that was taken.
const NO_ANSWER: &str = "<error>";
const CREATED: &str = "201";

/// How long the certificates last that clients show.
pub(crate) fn lifetimes(registry: &Registry) -> Result<Histogram, RegisterError> {
    const HOUR: f64 = 3600.0;
    const DAY: f64 = 24.0 * HOUR;
    let bounds = [
        0.0,
        HOUR / 2.0,
        HOUR,
        2.0 * HOUR,
        6.0 * HOUR,
        12.0 * HOUR,
        DAY,
        2.0 * DAY,
        4.0 * DAY,
        7.0 * DAY,
        30.0 * DAY,
        90.0 * DAY,
        180.0 * DAY,
        360.0 * DAY,
    ];
    registry.histogram(
        "apiserver_client_certificate_expiration_seconds",
        "[ALPHA] Distribution of the remaining lifetime on the certificate used to authenticate a request.",
        &bounds,
    )
}

/// Counters of tokens, and whether it was known whose they are.
#[derive(Clone)]
pub(crate) struct TokenMetrics {
    total: Family<Counter, 1>,
    duration: Family<Histogram, 1>,
    fetches: Family<Counter, 1>,
    active: Family<Gauge, 1>,
}

impl TokenMetrics {
    pub(crate) fn register(registry: &Registry) -> Result<TokenMetrics, RegisterError> {
        // Upstream's have no more help than this.
        let help = "[ALPHA] ";
        let labels = ["status"];
        Ok(TokenMetrics {
            total: registry.counter_family("authentication_token_cache_request_total", help, labels)?,
            duration: registry.histogram_family(
                "authentication_token_cache_request_duration_seconds",
                help,
                labels,
                &DEFAULT_BUCKETS,
            )?,
            fetches: registry.counter_family("authentication_token_cache_fetch_total", help, labels)?,
            active: registry.gauge_family("authentication_token_cache_active_fetch_count", help, labels)?,
        })
    }

    pub(crate) fn looked_up(&self, is_hit: bool, took: Duration) {
        let status = if is_hit { "hit" } else { "miss" };
        self.total.with([status]).increment();
        self.duration.with([status]).observe(took.as_secs_f64());
    }

    /// Somebody is asked about a token, until this is dropped.
    pub(crate) fn fetching(&self) -> Fetching {
        let active = self.active.with(["in_flight"]);
        active.add(1.0);
        Fetching(active)
    }

    pub(crate) fn fetched(&self, has_answer: bool) {
        self.fetches.with([if has_answer { "ok" } else { "error" }]).increment();
    }
}

pub(crate) struct Fetching(Gauge);

impl Drop for Fetching {
    fn drop(&mut self) {
        self.0.add(-1.0);
    }
}

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
