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

/// What `--version` prints; kubeadm reads it.
pub(crate) fn plain() -> String {
    format!("Kubernetes {KUBERNETES}\n")
}

/// What `--version=raw` prints.
pub(crate) fn raw() -> String {
    format!("crablet {CRABLET}\nKubernetes {KUBERNETES}\nplatform {}\n", platform())
}
