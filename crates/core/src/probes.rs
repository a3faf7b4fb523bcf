//! Probes: what they found, as far as decisions ask; when each is due and what its attempts amount to
//! ([`schedule`]); and what exactly a container is asked ([`target`]).

pub mod schedule;
pub mod target;

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use crablet_api::core::{Container, Probe};

/// What a probe asks about. The order is that in which they matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// Whether a container has started. Until it has, it is asked nothing else.
    Startup,
    /// Whether it is alive; if it is not, it is started anew.
    Liveness,
    /// Whether it is ready for work.
    Readiness,
}

impl ProbeKind {
    /// All of them.
    pub const ALL: [ProbeKind; 3] = [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness];

    /// The probe of this kind that a container has, if it has one.
    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            ProbeKind::Startup => container.startup_probe.as_deref(),
            ProbeKind::Liveness => container.liveness_probe.as_deref(),
            ProbeKind::Readiness => container.readiness_probe.as_deref(),
        }
    }

    /// Upstream's word for it, in events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            ProbeKind::Startup => "Startup",
            ProbeKind::Liveness => "Liveness",
            ProbeKind::Readiness => "Readiness",
        }
    }
}

impl Display for ProbeKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

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
