//! What is counted of a node's part in its cluster, under upstream's names.

use std::time::Duration;

use crablet_agent::mirrors::ServerMirrors;
use crablet_metrics::{Gauge, Histogram, Kind, RegisterError, Registry};
use jiff::Timestamp;
use tokio::sync::watch;

/// The upper bounds of what it takes until a status is told, in seconds.
const STATUS_SYNCS: [f64; 11] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];

/// Counters of a node in a cluster.
pub struct Metrics {
    pub(crate) registry: Registry,
    pub(crate) status_syncs: StatusSyncs,
    pub(crate) startup: NodeStartup,
}

/// Since when there is a node.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    /// When its machine was started, if that is known.
    pub booted: Option<Timestamp>,
    /// When its agent was.
    pub started: Timestamp,
}

impl Metrics {
    pub fn register(registry: &Registry, begun: Begun) -> Result<Metrics, RegisterError> {
        let status_syncs = registry.histogram(
            "kubelet_pod_status_sync_duration_seconds",
            "[ALPHA] Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.",
            &STATUS_SYNCS,
        )?;
        Ok(Metrics {
            registry: registry.clone(),
            status_syncs: StatusSyncs(status_syncs),
            startup: NodeStartup::register(registry, begun)?,
        })
    }

    /// Has it told how many mirrors of the node's pods the server has.
    pub(crate) fn tell_mirrors(&self, mirrors: watch::Receiver<ServerMirrors>) {
        self.registry.collector(move |samples| {
            let name = "kubelet_mirror_pods";
            let help = "[ALPHA] The number of mirror pods the kubelet will try to create (one per admitted static pod)";
            let count = mirrors.borrow().as_ref().map_or(0, |mirrors| mirrors.pods.len());
            samples.add(name, help, Kind::Gauge, &[], count as f64);
        });
    }
}

/// How long it takes until the server has the status of a pod.
pub struct StatusSyncs(Histogram);

impl StatusSyncs {
    /// The server has a status, so long after there was one to tell.
    pub(crate) fn told(&self, after: Duration) {
        self.0.observe(after.as_secs_f64());
    }
}

/// How long it takes until a new node is ready, step by step. A node that the server knew before has had its start.
pub struct NodeStartup {
    begun: Begun,
    /// When it was first tried to register it.
    tried: Option<Timestamp>,
    /// When it was first made there.
    registered: Option<Timestamp>,
    is_ready: bool,
    before_agent: Gauge,
    before_registration: Gauge,
    registration: Gauge,
    after_registration: Gauge,
    total: Gauge,
}

impl NodeStartup {
    fn register(registry: &Registry, begun: Begun) -> Result<NodeStartup, RegisterError> {
        Ok(NodeStartup {
            begun,
            tried: None,
            registered: None,
            is_ready: false,
            before_agent: registry.gauge(
                "kubelet_node_startup_pre_kubelet_duration_seconds",
                "[ALPHA] Duration in seconds of node startup before kubelet starts.",
            )?,
            before_registration: registry.gauge(
                "kubelet_node_startup_pre_registration_duration_seconds",
                "[ALPHA] Duration in seconds of node startup before registration.",
            )?,
            registration: registry.gauge(
                "kubelet_node_startup_registration_duration_seconds",
                "[ALPHA] Duration in seconds of node startup during registration.",
            )?,
            after_registration: registry.gauge(
                "kubelet_node_startup_post_registration_duration_seconds",
                "[ALPHA] Duration in seconds of node startup after registration.",
            )?,
            total: registry.gauge(
                "kubelet_node_startup_duration_seconds",
                "[ALPHA] Duration in seconds of node startup in total.",
            )?,
        })
    }

    /// It is tried to register the node.
    pub(crate) fn tries(&mut self, now: Timestamp) {
        self.tried.get_or_insert(now);
    }

    /// The server did not have the node, and has it now.
    pub(crate) fn is_registered(&mut self, now: Timestamp) {
        let (Some(tried), None) = (self.tried, self.registered) else { return };
        self.registered = Some(now);
        if let Some(booted) = self.begun.booted {
            self.before_agent.set(seconds(booted, self.begun.started));
        }
        self.before_registration.set(seconds(self.begun.started, tried));
        self.registration.set(seconds(tried, now));
    }

    /// The server was told that the node is ready.
    pub(crate) fn is_ready(&mut self, now: Timestamp) {
        let Some(registered) = self.registered.filter(|_| !self.is_ready) else { return };
        self.is_ready = true;
        self.after_registration.set(seconds(registered, now));
        if let Some(booted) = self.begun.booted {
            self.total.set(seconds(booted, now));
        }
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_nodes_start_is_told_step_by_step_and_once() {
        let registry = Registry::new();
        let at = |second: i64| Timestamp::from_second(1_790_000_000 + second).unwrap();
        let begun = Begun { booted: Some(at(0)), started: at(30) };
        let mut startup = NodeStartup::register(&registry, begun).unwrap();
        // One that was there before: nothing begins.
        startup.is_ready(at(31));
        for (tries, second) in [(true, 32), (true, 35), (false, 37), (false, 99)] {
            if tries { startup.tries(at(second)) } else { startup.is_registered(at(second)) }
        }
        startup.is_ready(at(40));
        startup.is_ready(at(100));
        let text = registry.render();
        for (step, seconds) in [
            ("pre_kubelet_", 30),
            ("pre_registration_", 2),
            ("registration_", 5),
            ("post_registration_", 3),
            ("", 40),
        ] {
            let line = format!("kubelet_node_startup_{step}duration_seconds {seconds}");
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
