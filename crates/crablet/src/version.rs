//! Which version this is.

pub(crate) use crablet_agent::node_config::KUBERNETES;
/// Its major part.
pub(crate) const KUBERNETES_MAJOR: &str = "1";
/// Its minor part.
pub(crate) const KUBERNETES_MINOR: &str = "36";
/// Our own version.
pub(crate) const CRABLET: &str = env!("CARGO_PKG_VERSION");

/// System and architecture, in Go's words as Kubernetes spells them everywhere.
pub(crate) fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("linux/{architecture}")
}

/// What a node's requests are sent by. Audit rules look at its beginning, and by it the API server says who wrote a field:
/// a kubelet, whichever runs.
pub(crate) fn user_agent() -> String {
    format!("kubelet/{KUBERNETES} ({}) crablet/{CRABLET}", platform())
}

/// What `--version` prints; kubeadm reads it.
pub(crate) fn plain() -> String {
    format!("Kubernetes {KUBERNETES}\n")
}

/// What `--version=raw` prints.
pub(crate) fn raw() -> String {
    format!("crablet {CRABLET}\nKubernetes {KUBERNETES}\nplatform {}\n", platform())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_server_takes_a_node_for_a_kubelet() {
        let agent = user_agent();
        // It names who wrote a field by what stands before the first slash.
        assert_eq!(agent.split_once('/').map(|(manager, _)| manager), Some("kubelet"), "{agent}");
        assert!(agent.starts_with("kubelet/v1.36."), "{agent}");
    }
}
