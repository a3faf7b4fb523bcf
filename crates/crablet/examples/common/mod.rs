//! The cluster of an example: that of the kubeconfig that is given, or a new one with an API server of its own.

#![allow(dead_code, reason = "not every example uses all of it")]

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use crablet_api::core::{Secret, SecretType};
use crablet_apiserver::server::{Options, Server};
use crablet_client::{Client, Https, Kubeconfig, Pem, ProxyEnvironment};
use crablet_host::clock::Clock;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

/// What every token is: a public part, and one that only those know who may use it. A real one is drawn by lot.
const ID: &str = "e7a3p1";
const SECRET: &str = "0123456789abcdef";

/// A cluster, until it is dropped.
pub(crate) struct Cluster {
    /// Somebody who may do everything.
    pub(crate) admin: Client,
    /// By whose kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    /// Where an example may write.
    pub(crate) directory: TempDir,
    _server: Option<DropGuard>,
}

impl Cluster {
    /// The one of the program's argument, or else a new one.
    pub(crate) async fn of_arguments() -> anyhow::Result<Cluster> {
        match std::env::args_os().nth(1) {
            Some(kubeconfig) => Cluster::open(kubeconfig.into(), None),
            None => Cluster::embedded().await,
        }
    }

    /// A new one, with an API server in this process.
    pub(crate) async fn embedded() -> anyhow::Result<Cluster> {
        let directory = TempDir::new().context("cannot make a directory")?;
        let options = Options {
            data_dir: directory.path().join("apiserver"),
            bind_address: Ipv4Addr::LOCALHOST.into(),
            secure_port: 0,
            advertise_address: None,
            serves_pods: false,
            names: Vec::new(),
            kubelet_certificate_authority: None,
            controllers: true,
            node: None,
        };
        let server = Server::start(options, Clock::system()).await?;
        println!("an API server is at {}", server.url());
        let (kubeconfig, stop) = (server.kubeconfig(), CancellationToken::new());
        tokio::spawn(server.run(stop.clone()));
        let cluster = Cluster::open(kubeconfig, Some(stop.drop_guard()))?;
        Ok(Cluster { directory, ..cluster })
    }

    fn open(kubeconfig: PathBuf, server: Option<DropGuard>) -> anyhow::Result<Cluster> {
        let directory = TempDir::new().context("cannot make a directory")?;
        Ok(Cluster { admin: client(&kubeconfig)?, kubeconfig, directory, _server: server })
    }
}

/// A client by a kubeconfig.
pub(crate) fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let transport =
        Https::new(&Kubeconfig::read(kubeconfig)?, &ProxyEnvironment::of_process(), Clock::system())?;
    Ok(Client::new(Arc::new(transport), "crablet-example"))
}

/// A token is a secret of this form.
pub(crate) async fn make_token(cluster: &Cluster) -> anyhow::Result<Secret> {
    let kind = SecretType::Other("bootstrap.kubernetes.io/token".into());
    let mut secret = Secret { r#type: Some(kind), ..Secret::default() };
    secret.metadata.name = format!("bootstrap-token-{ID}").into();
    secret.metadata.namespace = "kube-system".into();
    for (key, value) in [
        ("token-id", ID),
        ("token-secret", SECRET),
        ("usage-bootstrap-authentication", "true"),
        ("auth-extra-groups", "system:bootstrappers:kubeadm:default-node-token"),
    ] {
        secret.data.insert(key, value.into());
    }
    let secret = cluster.admin.create(&secret).await?;
    println!("made the token {ID}.{SECRET}");
    Ok(secret)
}

/// The admin's kubeconfig, with the token in the place of the admin.
pub(crate) fn bootstrap_kubeconfig(cluster: &Cluster) -> anyhow::Result<PathBuf> {
    let admin = Kubeconfig::read(&cluster.kubeconfig)?;
    let authority = cluster.directory.path().join("ca.crt");
    std::fs::write(&authority, authority_of(&admin)?)?;
    let path = cluster.directory.path().join("bootstrap.conf");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": admin.cluster.server, "certificate-authority": authority}}],
        "users": [{"name": "u", "user": {"token": format!("{ID}.{SECRET}")}}],
    });
    std::fs::write(&path, text.to_string())?;
    Ok(path)
}

fn authority_of(kubeconfig: &Kubeconfig) -> anyhow::Result<Vec<u8>> {
    match &kubeconfig.cluster.certificate_authority {
        Some(Pem::Data(data)) => Ok(data.to_vec()),
        Some(Pem::File(path)) => Ok(std::fs::read(path)?),
        None => anyhow::bail!("the kubeconfig names no certificate authority"),
    }
}
