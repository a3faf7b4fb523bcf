//! Pod sandboxes in plain types.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::malformed::{Malformed, required};
use crate::time::timestamp;
use crate::v1;

/// What names a sandbox. No two that live have the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxMetadata {
    /// The pod's name.
    pub name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's UID.
    pub uid: String,
    /// How many sandboxes the pod had before.
    pub attempt: u32,
}

/// Whether a sandbox can take containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxState {
    /// It can.
    Ready,
    /// It was stopped, or its own process died.
    NotReady,
}

/// Whose network a sandbox is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkNamespace {
    /// Its own.
    Pod,
    /// The host's.
    Node,
}

/// A sandbox in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// The runtime's name for it.
    pub id: String,
    /// What it was made for.
    pub metadata: SandboxMetadata,
    /// Whether it can take containers.
    pub state: SandboxState,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// The labels it was made with.
    pub labels: BTreeMap<String, String>,
    /// The annotations it was made with.
    pub annotations: BTreeMap<String, String>,
    /// The handler that runs it; empty for the default one.
    pub runtime_handler: String,
}

/// A sandbox, seen closely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxStatus {
    /// The runtime's name for it.
    pub id: String,
    /// What it was made for.
    pub metadata: SandboxMetadata,
    /// Whether it can take containers.
    pub state: SandboxState,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// Its addresses, the primary one first; none in the host's network.
    pub ips: Vec<String>,
    pub network: NetworkNamespace,
    /// The labels it was made with.
    pub labels: BTreeMap<String, String>,
    /// The annotations it was made with.
    pub annotations: BTreeMap<String, String>,
    /// The handler that runs it; empty for the default one.
    pub runtime_handler: String,
}

/// Which sandboxes to list: those for which all that is given here holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxFilter {
    /// Its ID, or the beginning of it.
    pub id: Option<String>,
    pub state: Option<SandboxState>,
    pub labels: BTreeMap<String, String>,
}

impl TryFrom<v1::PodSandbox> for Sandbox {
    type Error = Malformed;

    fn try_from(sandbox: v1::PodSandbox) -> Result<Sandbox, Malformed> {
        let state = sandbox.state();
        Ok(Sandbox {
            metadata: required(sandbox.metadata, "PodSandbox", "metadata")?.into(),
            id: sandbox.id,
            state: state.into(),
            created_at: timestamp(sandbox.created_at),
            labels: sandbox.labels,
            annotations: sandbox.annotations,
            runtime_handler: sandbox.runtime_handler,
        })
    }
}

impl TryFrom<v1::PodSandboxStatus> for SandboxStatus {
    type Error = Malformed;

    fn try_from(status: v1::PodSandboxStatus) -> Result<SandboxStatus, Malformed> {
        let state = status.state();
        let network = status
            .linux
            .as_ref()
            .and_then(|linux| linux.namespaces.as_ref())
            .and_then(|namespaces| namespaces.options.as_ref())
            .map_or(v1::NamespaceMode::Pod, v1::NamespaceOption::network);
        Ok(SandboxStatus {
            metadata: required(status.metadata, "PodSandboxStatus", "metadata")?.into(),
            id: status.id,
            state: state.into(),
            created_at: timestamp(status.created_at),
            ips: status.network.map(addresses).unwrap_or_default(),
            network: match network {
                v1::NamespaceMode::Node => NetworkNamespace::Node,
                v1::NamespaceMode::Pod | v1::NamespaceMode::Container | v1::NamespaceMode::Target => {
                    NetworkNamespace::Pod
                }
            },
            labels: status.labels,
            annotations: status.annotations,
            runtime_handler: status.runtime_handler,
        })
    }
}

fn addresses(network: v1::PodSandboxNetworkStatus) -> Vec<String> {
    let additional = network.additional_ips.into_iter().map(|ip| ip.ip);
    std::iter::once(network.ip).chain(additional).filter(|ip| !ip.is_empty()).collect()
}

impl From<v1::PodSandboxMetadata> for SandboxMetadata {
    fn from(metadata: v1::PodSandboxMetadata) -> SandboxMetadata {
        SandboxMetadata {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            attempt: metadata.attempt,
        }
    }
}

impl From<v1::PodSandboxState> for SandboxState {
    fn from(state: v1::PodSandboxState) -> SandboxState {
        match state {
            v1::PodSandboxState::SandboxReady => SandboxState::Ready,
            v1::PodSandboxState::SandboxNotready => SandboxState::NotReady,
        }
    }
}

impl From<SandboxState> for v1::PodSandboxState {
    fn from(state: SandboxState) -> v1::PodSandboxState {
        match state {
            SandboxState::Ready => v1::PodSandboxState::SandboxReady,
            SandboxState::NotReady => v1::PodSandboxState::SandboxNotready,
        }
    }
}

impl From<SandboxFilter> for v1::PodSandboxFilter {
    fn from(filter: SandboxFilter) -> v1::PodSandboxFilter {
        v1::PodSandboxFilter {
            id: filter.id.unwrap_or_default(),
            state: filter
                .state
                .map(|state| v1::PodSandboxStateValue { state: v1::PodSandboxState::from(state).into() }),
            label_selector: filter.labels,
        }
    }
}
