//! A kubeconfig: where a server is, whom it is trusted by, and who one is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Identity;

/// The kubeconfig of somebody, for a server at an address such as `https://127.0.0.1:6443`.
pub fn kubeconfig(server: &str, authority: &str, user: &str, identity: &Identity) -> String {
    let encode = |text: &str| STANDARD.encode(text);
    let (authority, certificate, key) =
        (encode(authority), encode(&identity.certificate), encode(&identity.key));
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: kubernetes\n  \
         cluster:\n    \
         certificate-authority-data: {authority}\n    \
         server: {server}\n\
         users:\n\
         - name: {user}\n  \
         user:\n    \
         client-certificate-data: {certificate}\n    \
         client-key-data: {key}\n\
         contexts:\n\
         - name: {user}@kubernetes\n  \
         context:\n    \
         cluster: kubernetes\n    \
         user: {user}\n\
         current-context: {user}@kubernetes\n"
    )
}
