//! The node's own servers, and the sockets of others.

use crablet_api::{FeatureGates, Gate};

use super::{Check, one_of};
use crate::kubelet_configuration::*;
use crate::words::*;

impl Check {
    pub(super) fn servers(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        if !(1..=65535).contains(&c.port) {
            let message = format!("port (--port) {} must be between 1 and 65535, inclusive", c.port);
            self.invalid(&["port"], message);
        }
        if !(0..=65535).contains(&c.read_only_port) {
            let message = format!(
                "readOnlyPort (--read-only-port) {} must be between 0 and 65535, inclusive",
                c.read_only_port
            );
            self.invalid(&["readOnlyPort"], message);
        }
        if !(0..=65535).contains(&c.healthz_port) {
            let message = format!(
                "healthzPort (--healthz-port) {} must be between 0 and 65535, inclusive",
                c.healthz_port
            );
            self.invalid(&["healthzPort"], message);
        }
        if c.server_tls_bootstrap && !gates.enabled(Gate::RotateKubeletServerCertificate) {
            let message = "serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate";
            self.invalid(&["serverTLSBootstrap"], message.into());
        }
        if let AuthorizationMode::Other(other) = &c.authorization.mode {
            let message = format!(
                "authorization.mode (--authorization-mode): unknown authorization mode {other:?}; {} is accepted",
                one_of(AuthorizationMode::WORDS)
            );
            self.fail(&["authorization", "mode"], message);
        }
        if !c.tls_min_version.is_empty() && !TLS_VERSIONS.contains(&c.tls_min_version.as_ref()) {
            let message = format!(
                "tlsMinVersion (--tls-min-version): unknown tls version {:?}; {} is accepted",
                c.tls_min_version,
                one_of(TLS_VERSIONS)
            );
            self.fail(&["tlsMinVersion"], message);
        }
        if c.tls_cert_file.is_empty() != c.tls_private_key_file.is_empty() {
            let message = "tlsCertFile (--tls-cert-file) and tlsPrivateKeyFile (--tls-private-key-file) go together: \
                           only one is set";
            self.invalid_pair(&["tlsCertFile"], &["tlsPrivateKeyFile"], message.into());
        }
        if c.enable_system_log_query && !gates.enabled(Gate::NodeLogQuery) {
            let message = "NodeLogQuery feature gate is required for enableSystemLogQuery";
            self.invalid(&["enableSystemLogQuery"], message.into());
        }
        if c.enable_system_log_query && !c.enable_system_log_handler {
            let message = "enableSystemLogHandler is required for enableSystemLogQuery";
            self.invalid(&["enableSystemLogQuery"], message.into());
        }
        for (path, endpoint) in [
            (&["containerRuntimeEndpoint"] as &[&str], &c.container_runtime_endpoint),
            (&["imageServiceEndpoint"], &c.image_service_endpoint),
        ] {
            let socket = endpoint.strip_prefix("unix://").or(endpoint.starts_with('/').then_some(endpoint));
            match socket {
                _ if endpoint.is_empty() && path[0] == "imageServiceEndpoint" => {}
                _ if endpoint.is_empty() => {
                    self.invalid(path, "the containerRuntimeEndpoint was not specified or empty".into());
                }
                Some(socket) if socket.starts_with('/') => {}
                Some(_) | None => {
                    let message = format!(
                        "{} {endpoint:?} must be a unix socket such as \"unix:///run/x.sock\"",
                        path[0]
                    );
                    self.invalid(path, message);
                }
            }
        }
        if !["", "1.35"].contains(&c.show_hidden_metrics_for_version.as_ref()) {
            let message = format!(
                "showHiddenMetricsForVersion {:?} must be omitted or have the value \"1.35\". Only the previous minor \
                 version is allowed",
                c.show_hidden_metrics_for_version
            );
            self.fail(&["showHiddenMetricsForVersion"], message);
        }
    }
}

/// The words for versions of TLS.
const TLS_VERSIONS: &[&str] = &["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];
