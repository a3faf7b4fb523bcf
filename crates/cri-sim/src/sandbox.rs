//! A sandbox, and what CRI says of it.

use std::sync::Arc;

use crablet_cri_api::v1;

use super::bell::Ended;

#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    /// What no other sandbox may be called.
    pub(crate) name: String,
    pub(crate) config: Arc<v1::PodSandboxConfig>,
    pub(crate) runtime_handler: String,
    pub(crate) created_at: i64,
    pub(crate) pid: u32,
    /// Whether CRI says that it is ready.
    pub(crate) ready: bool,
    /// Whether its process has ended, which may not be seen in CRI yet.
    pub(crate) ended: bool,
    /// Its address; none on the machine's own network.
    pub(crate) ip: Option<String>,
    pub(crate) network_closed: bool,
    /// When CRI says that it is not ready any more.
    pub(crate) stopped: Ended,
    pub(crate) last_usage: Option<(i64, u64)>,
}

impl Sandbox {
    fn state(&self) -> v1::PodSandboxState {
        match self.ready {
            true => v1::PodSandboxState::SandboxReady,
            false => v1::PodSandboxState::SandboxNotready,
        }
    }

    pub(crate) fn to_list_item(&self) -> v1::PodSandbox {
        v1::PodSandbox {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state().into(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.runtime_handler.clone(),
        }
    }

    pub(crate) fn to_status(&self) -> v1::PodSandboxStatus {
        let asked = namespaces(&self.config);
        let ip = self.ip.as_ref().filter(|_| !self.network_closed);
        v1::PodSandboxStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state().into(),
            created_at: self.created_at,
            network: Some(v1::PodSandboxNetworkStatus {
                ip: ip.cloned().unwrap_or_default(),
                additional_ips: Vec::new(),
            }),
            linux: Some(v1::LinuxPodSandboxStatus {
                namespaces: Some(v1::Namespace {
                    options: Some(v1::NamespaceOption {
                        network: asked.network,
                        pid: asked.pid,
                        ipc: asked.ipc,
                        ..v1::NamespaceOption::default()
                    }),
                }),
            }),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.runtime_handler.clone(),
        }
    }

    /// The users and groups of the node that it has as its own, if it has.
    pub(crate) fn users(&self) -> Option<&v1::UserNamespace> {
        let context = self.config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        context.and_then(|context| own_users(context.namespace_options.as_ref()?))
    }

    pub(crate) fn matches(&self, filter: &v1::PodSandboxFilter) -> bool {
        filter.state.as_ref().is_none_or(|state| state.state == i32::from(self.state()))
            && filter.label_selector.iter().all(|(key, value)| self.config.labels.get(key) == Some(value))
    }
}

/// The namespaces that a sandbox was asked for.
pub(crate) fn namespaces(config: &v1::PodSandboxConfig) -> v1::NamespaceOption {
    let context = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    context.and_then(|context| context.namespace_options.clone()).unwrap_or_default()
}

/// The users and groups of the node that something has as its own, if it has.
pub(crate) fn own_users(namespaces: &v1::NamespaceOption) -> Option<&v1::UserNamespace> {
    namespaces.userns_options.as_ref().filter(|users| users.mode() == v1::NamespaceMode::Pod)
}

/// Whether it has a network of its own.
pub(crate) fn has_network(config: &v1::PodSandboxConfig) -> bool {
    namespaces(config).network() != v1::NamespaceMode::Node
}
