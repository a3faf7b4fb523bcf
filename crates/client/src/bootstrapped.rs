//! The kubeconfig of a node that has got its certificate.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crablet_api::document::{self, Place, Tree, Value};
use crablet_host::files::{WriteError, write_atomically};

use crate::kubeconfig::{Cluster, Pem};

/// Why a kubeconfig was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteKubeconfigError {
    #[error("cannot make the directory {}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The text of a kubeconfig whose user has a certificate and a key in one file, as the Go kubelet writes it when it has
/// got a certificate. It loses the server's other name and the proxy, without which nobody would find the server: these
/// stay.
pub fn bootstrapped(cluster: &Cluster, pem: &Path) -> String {
    let mut of_cluster = vec![("server", text(&cluster.server))];
    match &cluster.certificate_authority {
        Some(Pem::File(path)) => of_cluster.push(("certificate-authority", text(&path.to_string_lossy()))),
        Some(Pem::Data(data)) => of_cluster.push(("certificate-authority-data", base64(data))),
        None => {}
    }
    if let Some(name) = &cluster.tls_server_name {
        of_cluster.push(("tls-server-name", text(name)));
    }
    if cluster.insecure_skip_tls_verify {
        of_cluster.push(("insecure-skip-tls-verify", tree(Value::Bool(true))));
    }
    if let Some(url) = &cluster.proxy_url {
        of_cluster.push(("proxy-url", text(url.expose())));
    }
    let pem = || text(&pem.to_string_lossy());
    let user = map(vec![("client-certificate", pem()), ("client-key", pem())]);
    let context = map(vec![
        ("cluster", text("default-cluster")),
        ("namespace", text("default")),
        ("user", text("default-auth")),
    ]);
    let named = |name: &str, what: &'static str, value: Tree| {
        tree(Value::List(vec![map(vec![("name", text(name)), (what, value)])]))
    };
    let config = map(vec![
        ("apiVersion", text("v1")),
        ("kind", text("Config")),
        ("clusters", named("default-cluster", "cluster", map(of_cluster))),
        ("contexts", named("default-context", "context", context)),
        ("current-context", text("default-context")),
        ("users", named("default-auth", "user", user)),
    ]);
    document::write_yaml(&config, &|_| None)
}

/// Writes such a kubeconfig, for its owner alone, so that nobody ever sees a half of it.
pub fn write_bootstrapped(path: &Path, cluster: &Cluster, pem: &Path) -> Result<(), WriteKubeconfigError> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .map_err(|source| WriteKubeconfigError::Directory { path: directory.to_owned(), source })?;
    }
    Ok(write_atomically(path, bootstrapped(cluster, pem).as_bytes(), 0o600)?)
}

fn tree(value: Value) -> Tree {
    Tree { value, place: Place { source: "".into(), line: 0 } }
}

fn text(text: &str) -> Tree {
    tree(Value::Text(text.into()))
}

fn base64(bytes: &[u8]) -> Tree {
    text(&STANDARD.encode(bytes))
}

fn map(fields: Vec<(&str, Tree)>) -> Tree {
    tree(Value::Map(fields.into_iter().map(|(name, value)| (name.into(), value)).collect()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::kubeconfig::Kubeconfig;

    #[test]
    fn a_kubeconfig_is_written_as_the_go_kubelet_writes_it_and_can_be_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/kubelet.conf");
        let pem = Path::new("/var/lib/kubelet/pki/kubelet-client-current.pem");
        let cluster = Cluster {
            server: "https://192.0.2.1:6443".to_owned(),
            certificate_authority: Some(Pem::Data("ca".into())),
            ..Cluster::default()
        };
        write_bootstrapped(&path, &cluster, pem).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: Y2E=\n    server: https://192.0.2.1:6443\n  name: default-cluster\ncontexts:\n- context:\n    cluster: default-cluster\n    namespace: default\n    user: default-auth\n  name: default-context\ncurrent-context: default-context\nkind: Config\nusers:\n- name: default-auth\n  user:\n    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem\n"
        );
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read = Kubeconfig::read(&path).unwrap();
        assert_eq!(read.cluster, cluster);
        assert_eq!(read.user.client_certificate.unwrap().key, Pem::File(pem.to_owned()));
        let cluster = Cluster {
            tls_server_name: Some("k".to_owned()),
            proxy_url: Some("http://proxy".into()),
            certificate_authority: None,
            insecure_skip_tls_verify: true,
            ..cluster
        };
        write_bootstrapped(&path, &cluster, pem).unwrap();
        assert_eq!(Kubeconfig::read(&path).unwrap().cluster, cluster);
    }
}
