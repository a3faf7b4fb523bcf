//! Health checks, answered as upstream's `healthz` package answers them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, Once};

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use crablet_metrics::{Counter, Family, Gauge, Registry};
use percent_encoding::percent_decode_str;
use tracing::info;

use crate::read_only::metrics;
use crate::respond::{not_found, text};

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Named checks of the agent's health. The first, `ping`, always passes.
#[derive(Clone)]
pub struct Health {
    checks: Vec<(Arc<str>, Check)>,
    results: Results,
}

/// What all checks together found, each time that someone asked: what `/metrics/slis` shows.
#[derive(Clone)]
struct Results {
    registry: Registry,
    counted: Option<(Family<Gauge, 2>, Family<Counter, 3>)>,
    started: Option<Family<Gauge, 0>>,
    /// To find out when the process was started takes a while: that is left until somebody asks.
    find_start: Arc<Once>,
}

impl Results {
    fn new() -> Results {
        let registry = Registry::new();
        let of_one = registry.gauge_family(
            "kubernetes_healthcheck",
            "[STABLE] This metric records the result of a single healthcheck.",
            ["type", "name"],
        );
        let of_all = registry.counter_family(
            "kubernetes_healthchecks_total",
            "[STABLE] This metric records the results of all healthcheck.",
            ["type", "name", "status"],
        );
        let help = "[ALPHA] Start time of the process since unix epoch in seconds.";
        let started = registry.gauge_family("process_start_time_seconds", help, []);
        // Nothing else has these names.
        let (counted, started) = (of_one.ok().zip(of_all.ok()), started.ok());
        Results { registry, counted, started, find_start: Arc::new(Once::new()) }
    }

    fn show_start(&self) {
        self.find_start.call_once(|| {
            if let (Some(started), Some(at)) = (&self.started, crablet_metrics::process_start_time()) {
                started.with([]).set(at);
            }
        });
    }

    fn count(&self, name: &str, has_passed: bool) {
        let Some((last, total)) = &self.counted else { return };
        last.with(["healthz", name]).set(if has_passed { 1.0 } else { 0.0 });
        total.with(["healthz", name, if has_passed { "success" } else { "error" }]).increment();
    }

    fn clear(&self) {
        if let Some((last, total)) = &self.counted {
            last.clear();
            total.clear();
        }
        // Upstream forgets that with the rest.
        self.find_start.call_once(|| {});
        if let Some(started) = &self.started {
            started.clear();
        }
    }
}

impl Health {
    /// Health with the check `ping` alone.
    pub fn new() -> Health {
        Health { checks: Vec::new(), results: Results::new() }.with_check("ping", || Ok(()))
    }

    /// Adds a check. It runs each time that someone asks, so it must not wait for anything; when it fails, it
    /// says why.
    pub fn with_check(
        mut self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Health {
        self.checks.push((name.into(), Arc::new(check)));
        self
    }

    /// Runs every check, and says which failed and why.
    pub fn check(&self) -> Result<(), String> {
        let failed =
            self.checks.iter().filter_map(|(name, check)| Some(format!("{name}: {}", check().err()?)));
        match failed.collect::<Vec<_>>() {
            failed if failed.is_empty() => Ok(()),
            failed => Err(failed.join(", ")),
        }
    }

    /// The answer for all checks together.
    fn answer_all(&self, query: &Query) -> (StatusCode, String) {
        let mut unknown = query.excluded.clone();
        let mut report = String::new();
        let mut reasons = Vec::new();
        for (name, check) in &self.checks {
            if query.excluded.contains(&**name) {
                unknown.remove(&**name);
                push_line(&mut report, format_args!("[+]{name} excluded: ok"));
            } else if let Err(reason) = check() {
                self.results.count(name, false);
                // Anyone may ask, so the reason is for the log alone.
                push_line(&mut report, format_args!("[-]{name} failed: reason withheld"));
                reasons.push(format!("{name}: {reason}"));
            } else {
                self.results.count(name, true);
                push_line(&mut report, format_args!("[+]{name} ok"));
            }
        }
        if !unknown.is_empty() {
            let names: Vec<_> = unknown.iter().map(|name| format!("{name:?}")).collect();
            let names = names.join(",");
            push_line(
                &mut report,
                format_args!("warn: some health checks cannot be excluded: no matches for {names}"),
            );
        }
        if !reasons.is_empty() {
            info!(reasons = reasons.join("; "), "Health check failed");
            push_line(&mut report, format_args!("healthz check failed"));
            return (StatusCode::INTERNAL_SERVER_ERROR, report);
        }
        if !query.verbose {
            return (StatusCode::OK, "ok".to_owned());
        }
        push_line(&mut report, format_args!("healthz check passed"));
        (StatusCode::OK, report)
    }

    /// The answer for one check, if there is one of that name.
    fn answer_one(&self, name: &str) -> Option<(StatusCode, String)> {
        let (_, check) = self.checks.iter().find(|(known, _)| **known == *name)?;
        Some(match check() {
            Ok(()) => (StatusCode::OK, "ok".to_owned()),
            Err(reason) => (StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n")),
        })
    }
}

impl Default for Health {
    fn default() -> Health {
        Health::new()
    }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.checks.iter().map(|(name, _)| name)).finish()
    }
}

/// `/healthz` and `/healthz/<check>`, for the health port.
pub fn healthz_router(health: Health) -> Router {
    health_routes(health).fallback(not_found)
}

pub(crate) fn health_routes(health: Health) -> Router {
    Router::new()
        .route("/healthz", any(all_checks))
        .route("/healthz/{check}", any(one_check))
        .with_state(Arc::new(health))
}

/// `/metrics/slis`: what the checks found so far; `DELETE` forgets it.
pub(crate) fn slis_routes(health: &Health) -> Router {
    Router::new().route("/metrics/slis", any(slis)).with_state(health.results.clone())
}

async fn slis(State(results): State<Results>, method: Method, headers: HeaderMap) -> Response {
    if method == Method::DELETE {
        results.clear();
        return text(StatusCode::OK, "metrics reset\n");
    }
    results.show_start();
    metrics(State(results.registry), headers).await
}

async fn all_checks(State(health): State<Arc<Health>>, RawQuery(query): RawQuery) -> Response {
    let (status, body) = health.answer_all(&Query::parse(query.as_deref().unwrap_or_default()));
    text(status, body)
}

async fn one_check(State(health): State<Arc<Health>>, Path(name): Path<String>) -> Response {
    match health.answer_one(&name) {
        Some((status, body)) => text(status, body),
        None => not_found().await,
    }
}

#[derive(Default)]
struct Query {
    verbose: bool,
    excluded: BTreeSet<String>,
}

impl Query {
    fn parse(text: &str) -> Query {
        let mut query = Query::default();
        for pair in text.split('&') {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("verbose", _) => query.verbose = true,
                ("exclude", name) => {
                    query.excluded.insert(percent_decode_str(name).decode_utf8_lossy().into_owned());
                }
                _ => {}
            }
        }
        query
    }
}

fn push_line(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string fails only if a Display does, and those of strings do not.
    let _ = out.write_fmt(arguments);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Server;

    fn health(sync_loop: Result<(), &'static str>) -> Health {
        Health::new()
            .with_check("log", || Ok(()))
            .with_check("syncloop", move || sync_loop.map_err(str::to_owned))
    }

    async fn get(health: Health, target: &str) -> (u16, String) {
        let server = Server::start(healthz_router(health)).await;
        let answer = server.get(target).await;
        (answer.status, answer.body)
    }

    #[tokio::test]
    async fn all_checks_passing_is_ok() {
        let server = Server::start(healthz_router(health(Ok(())))).await;
        let answer = server.get("/healthz").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
        assert!(answer.head.contains("content-type: text/plain; charset=utf-8\r\n"), "{}", answer.head);
        assert!(answer.head.contains("x-content-type-options: nosniff\r\n"), "{}", answer.head);
    }

    #[tokio::test]
    async fn a_failing_check_lists_all_and_withholds_the_reason() {
        let (status, body) = get(health(Err("stuck on the secret pod")), "/healthz").await;
        assert_eq!(status, 500);
        assert_eq!(
            body,
            "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"
        );
    }

    #[tokio::test]
    async fn verbose_lists_the_checks() {
        let listed = "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n".to_owned();
        assert_eq!(get(health(Ok(())), "/healthz?verbose").await, (200, listed.clone()));
        assert_eq!(get(health(Ok(())), "/healthz?x=1&verbose=false").await, (200, listed));
    }

    #[tokio::test]
    async fn what_checks_found_is_counted_until_it_is_to_be_forgotten() {
        let health = health(Err("stuck"));
        let server = Server::start(healthz_router(health.clone()).merge(slis_routes(&health))).await;
        for _ in 0..2 {
            assert_eq!(server.get("/healthz").await.status, 500);
        }
        let text = server.get("/metrics/slis").await.body;
        for line in [
            "kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1",
            "kubernetes_healthcheck{name=\"syncloop\",type=\"healthz\"} 0",
            "kubernetes_healthchecks_total{name=\"syncloop\",status=\"error\",type=\"healthz\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        let started = text.lines().find_map(|line| line.strip_prefix("process_start_time_seconds "));
        assert!(started.unwrap().parse::<f64>().unwrap() > 1.7e9, "{text}");
        assert!(
            text.contains("# HELP process_start_time_seconds [ALPHA] Start time of the process"),
            "{text}"
        );
        assert_eq!(server.send("DELETE", "/metrics/slis", &[]).await.body, "metrics reset\n");
        assert_eq!(server.get("/metrics/slis").await.body, "");
    }

    #[tokio::test]
    async fn a_check_can_be_excluded() {
        let failing = health(Err("stuck"));
        assert_eq!(get(failing.clone(), "/healthz?exclude=syncloop").await, (200, "ok".to_owned()));
        assert_eq!(
            get(failing, "/healthz?verbose&exclude=sync%6coop&exclude=zeta&exclude=nosuch").await.1,
            "[+]ping ok\n[+]log ok\n[+]syncloop excluded: ok\n\
             warn: some health checks cannot be excluded: no matches for \"nosuch\",\"zeta\"\nhealthz check passed\n"
        );
    }

    #[tokio::test]
    async fn each_check_has_a_path_that_tells_the_reason() {
        assert_eq!(get(health(Ok(())), "/healthz/syncloop").await, (200, "ok".to_owned()));
        assert_eq!(
            get(health(Err("stuck")), "/healthz/syncloop").await,
            (500, "internal server error: stuck\n".to_owned())
        );
        for target in ["/healthz/nosuch", "/healthz/", "/", "/metrics", "/livez"] {
            assert_eq!(
                get(health(Ok(())), target).await,
                (404, "404 page not found\n".to_owned()),
                "{target}"
            );
        }
    }
}
