//! What probes found, as far as decisions ask.

use std::collections::BTreeMap;

/// What a probe found last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeResult {
    /// The container is well.
    Success,
    /// The container is not well, as often as it takes to believe it.
    Failure,
    /// The probe runs, and has not found out yet.
    Unknown,
}

/// What the probes of one container found last. A probe that the container does not have, or that has not begun,
/// found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContainerProbes {
    /// Whether it is alive.
    pub liveness: Option<ProbeResult>,
    /// Whether it is ready.
    pub readiness: Option<ProbeResult>,
    /// Whether it has started.
    pub startup: Option<ProbeResult>,
}

/// What probes found last, by the runtime's name for each container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Probes(pub BTreeMap<String, ContainerProbes>);

impl Probes {
    /// What the probes of a container found.
    pub fn of(&self, container_id: &str) -> ContainerProbes {
        self.0.get(container_id).copied().unwrap_or_default()
    }
}
