//! A server in this process.

use std::path::Path;

use crablet_apiserver::server::{Options, Server};
use crablet_host::clock::Clock;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::Client;

pub struct Running {
    pub directory: TempDir,
    pub address: std::net::SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

pub fn options(data_dir: &Path) -> Options {
    Options {
        data_dir: data_dir.to_owned(),
        bind_address: std::net::Ipv4Addr::LOCALHOST.into(),
        secure_port: 0,
        advertise_address: None,
        serves_pods: false,
        names: Vec::new(),
        kubelet_certificate_authority: None,
        controllers: true,
        node: None,
    }
}

impl Running {
    pub async fn start() -> Running {
        Running::start_in(tempfile::tempdir().unwrap()).await
    }

    pub async fn start_in(directory: TempDir) -> Running {
        let server = Server::start(options(directory.path()), Clock::system()).await.unwrap();
        let (address, stop) = (server.address(), CancellationToken::new());
        let task = tokio::spawn(server.run(stop.clone()));
        Running { directory, address, stop, task }
    }

    pub async fn stop(self) -> TempDir {
        self.stop.cancel();
        self.task.await.unwrap();
        self.directory
    }

    pub fn begin_to_stop(&self) {
        self.stop.cancel();
    }

    /// Somebody without credentials.
    pub fn anybody(&self) -> Client {
        Client::new(self.address, &self.directory.path().join("pki"))
    }

    pub fn admin(&self) -> Client {
        self.anybody().with_certificate(&self.directory.path().join("pki"), "admin")
    }
}

pub fn config_map(name: &str, data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": data}})
}

pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
