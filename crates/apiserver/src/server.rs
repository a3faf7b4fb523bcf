//! The API over HTTPS.
//!
//! - [`Server::start`] opens the store and the keys, and binds the port; [`Server::run`] serves until told to stop.
//! - `connection`: TLS, HTTP/1.1 and HTTP/2, and what bounds them; `respond`: from a request to a response; `body`: what
//!   goes over the wire; `watching`: a task for each watch; `proxy`: what the node answers;
//!   `usage`: what nodes say of what they use.
//! - `api`: the one cluster behind its lock, and the store beneath it. A task lets the controllers look when
//!   their time has come.

mod api;
mod body;
mod connection;
mod proxy;
mod respond;
mod tls;
mod usage;
mod watching;
mod write_timeout;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crablet_host::clock::Clock;
use crablet_host::files::{WriteError, read_bounded, write_atomically};
use crablet_host::lock::{Lock, LockError};
use crablet_host::loopback::LoopbackAddress;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::authentication::ClientCertificates;
use crate::cluster::{Cluster, Settings};
use crate::controllers::{KUBERNETES_ADDRESS, KUBERNETES_PORT};
use crate::persistence::{Committer, Store, StoreError};
use crate::pki::{self, Pki, PkiError};

use api::Api;
use proxy::NodeClient;
use tls::ServingCertificate;

/// How often certificates are looked at.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(12 * 3600);
/// How long requests may take to come to their end when the server stops.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// What a server is to be like.
#[derive(Clone, Debug)]
pub struct Options {
    pub data_dir: PathBuf,
    pub bind_address: IpAddr,
    /// 0 for any.
    pub secure_port: u16,
    /// Where pods and nodes reach the server; the address that it binds to if none is given.
    pub advertise_address: Option<IpAddr>,
    /// Whether the address of the service `default/kubernetes` is put on this machine and served too: pods find the server
    /// there without anybody who forwards connections to services.
    pub serves_pods: bool,
    /// Further names and addresses in the certificate.
    pub names: Vec<String>,
    /// The certificates, in PEM, that the nodes' serving certificates must be signed by; without, any are taken.
    pub kubelet_certificate_authority: Option<PathBuf>,
    /// See [`Settings::controllers`].
    pub controllers: bool,
    /// The node of this machine: it gets a kubeconfig too.
    pub node: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("another API server is running with the data directory {}; stop it, or choose another", data_dir.display())]
    Held { data_dir: PathBuf, source: LockError },
    #[error(transparent)]
    Lock(LockError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot start the store's thread")]
    Thread(#[source] std::io::Error),
    /// Both commands that start one have the flag.
    #[error("cannot listen on {address}; choose another port with --secure-port")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(
        "cannot put {KUBERNETES_ADDRESS}, at which pods find the server, on the loopback interface (this takes root)"
    )]
    ServiceAddress { source: std::io::Error },
    #[error("cannot use the certificates")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Certificates(#[from] crablet_x509::ClientAuthoritiesError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    KubeletAuthority(#[from] crablet_host::files::ReadError),
}

pub struct Server {
    api: Arc<Api>,
    listener: TcpListener,
    address: SocketAddr,
    for_pods: Option<ForPods>,
    acceptor: tokio_rustls::TlsAcceptor,
    files: Files,
    serving: Arc<ServingCertificate>,
    _lock: Lock,
}

/// Where pods find the server.
struct ForPods {
    listener: TcpListener,
    _address: LoopbackAddress,
}

impl ForPods {
    async fn bind() -> Result<ForPods, StartError> {
        let added = LoopbackAddress::add(KUBERNETES_ADDRESS);
        let _address = added.map_err(|source| StartError::ServiceAddress { source })?;
        let address = SocketAddr::from((KUBERNETES_ADDRESS, KUBERNETES_PORT));
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| StartError::Listen { address, source })?;
        Ok(ForPods { listener, _address })
    }
}

/// What is kept beside the store.
#[derive(Clone, Debug)]
struct Files {
    data_dir: PathBuf,
    names: BTreeSet<String>,
    /// Where the admin reaches the server.
    url: String,
    kubelet_authority: Option<Vec<u8>>,
    /// The node of this machine.
    node: Option<String>,
}

impl Files {
    fn kubeconfig(&self) -> PathBuf {
        self.data_dir.join("admin.conf")
    }

    fn node_kubeconfig(&self) -> PathBuf {
        self.data_dir.join("node.conf")
    }

    /// Reads or makes the certificates and keys, and the admin's kubeconfig.
    fn open(&self, clock: &Clock) -> Result<Pki, StartError> {
        let directory = self.data_dir.join("pki");
        let pki = Pki::open(&directory, &self.names, clock.now())?;
        let authority = pki.keys.authority().certificate();
        let admin = pki::kubeconfig(&self.url, authority, "kubernetes-admin", &pki.admin);
        keep(&self.kubeconfig(), &admin)?;
        if let Some(name) = &self.node {
            let node = pki.node(&directory, name, clock.now())?;
            let user = format!("system:node:{name}");
            keep(&self.node_kubeconfig(), &pki::kubeconfig(&self.url, authority, &user, &node))?;
        }
        Ok(pki)
    }
}

/// Writes a file that is ours alone, unless it says that already.
fn keep(path: &Path, text: &str) -> Result<(), StartError> {
    let is_the_same = read_bounded(path, 1 << 20).is_ok_and(|found| found == text.as_bytes());
    if !is_the_same {
        write_atomically(path, text.as_bytes(), 0o600)?;
    }
    Ok(())
}

impl Server {
    /// Opens what is there, or begins a new cluster, and binds the port.
    pub async fn start(options: Options, clock: Clock) -> Result<Server, StartError> {
        let Options { data_dir, bind_address, secure_port, advertise_address, names, .. } = options;
        pki::make_directory(&data_dir)?;
        let lock = hold(&data_dir)?;
        let address = SocketAddr::new(bind_address, secure_port);
        let listen = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let for_pods = if options.serves_pods { Some(ForPods::bind().await?) } else { None };
        let advertised = advertise_address.unwrap_or(bind_address);
        let host = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        let mut serves = pki::serving_names(&host, &[bind_address, advertised]);
        serves.extend(names);
        let kubelet_authority = match &options.kubelet_certificate_authority {
            Some(path) => Some(read_bounded(path, 1 << 20)?),
            None => None,
        };
        let reached = if bind_address.is_unspecified() { loopback_of(bind_address) } else { bind_address };
        let url = format!("https://{}", SocketAddr::new(reached, address.port()));
        let files = Files { data_dir, names: serves, url, kubelet_authority, node: options.node };
        let pki = files.open(&clock)?;
        let (store, restored) = Store::open(&files.data_dir.join("store.redb"))?;
        let committer = Committer::start(store, restored.revision).map_err(StartError::Thread)?;

        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let authority = pki.keys.authority().certificate().to_owned();
        let certificates = Arc::new(ClientCertificates::of(&authority, &provider)?);
        let serving = Arc::new(ServingCertificate::new(&pki.serving, &provider)?);
        let acceptor = tls::acceptor(Arc::clone(&serving), &certificates, &provider)?;
        let nodes = NodeClient::new(&pki.kubelet_client, files.kubelet_authority.as_deref(), provider)?;
        let settings = Settings {
            ca: authority,
            address: SocketAddr::new(advertised, address.port()).to_string(),
            secure_port: address.port(),
            signer: Arc::new(pki.keys),
            controllers: options.controllers,
            ..Settings::default()
        };
        let cluster = Cluster::new(restored.into_state(), settings, tls::random());
        let api = Arc::new(Api::new(cluster, committer, clock, certificates, nodes));
        // What every cluster has is there before anybody asks.
        api.with(|cluster, now| cluster.tick(now));
        Ok(Server { api, listener, address, for_pods, acceptor, files, serving, _lock: lock })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the admin's kubeconfig is.
    pub fn kubeconfig(&self) -> PathBuf {
        self.files.kubeconfig()
    }

    /// Where the kubeconfig of the node of this machine is, if it was asked for.
    pub fn node_kubeconfig(&self) -> PathBuf {
        self.files.node_kubeconfig()
    }

    /// Where the admin reaches the server.
    pub fn url(&self) -> &str {
        &self.files.url
    }

    /// Serves until told to stop. All that was acknowledged is on disk in any case.
    pub async fn run(self, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        tasks.spawn(api::run_controllers(Arc::clone(&self.api), stop.clone()));
        tasks.spawn(renew_certificates(
            Arc::clone(&self.api),
            self.files.clone(),
            Arc::clone(&self.serving),
            stop.clone(),
        ));
        let accept = |listener| connection::accept(listener, &self.acceptor, &self.api, &tasks, &stop);
        let for_pods = async {
            if let Some(for_pods) = &self.for_pods {
                accept(&for_pods.listener).await;
            }
        };
        tokio::join!(accept(&self.listener), for_pods);
        drop((self.listener, self.for_pods));
        tasks.close();
        if tokio::time::timeout(STOPS_WITHIN, tasks.wait()).await.is_err() {
            warn!(connections = tasks.len(), "Some connections had to be cut off");
        }
    }
}

fn hold(data_dir: &Path) -> Result<Lock, StartError> {
    Lock::try_acquire(&data_dir.join("apiserver.lock")).map_err(|error| match error {
        LockError::Held { .. } => StartError::Held { data_dir: data_dir.to_owned(), source: error },
        LockError::Failed { .. } => StartError::Lock(error),
    })
}

fn loopback_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    }
}

/// Makes certificates anew whose end is near.
async fn renew_certificates(
    api: Arc<Api>,
    files: Files,
    serving: Arc<ServingCertificate>,
    stop: CancellationToken,
) {
    while stop.run_until_cancelled(tokio::time::sleep(CERTIFICATES_EVERY)).await.is_some() {
        let renewed = tokio::task::block_in_place(|| {
            let pki = files.open(api.clock())?;
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            serving.set(&pki.serving, &provider)?;
            let nodes = NodeClient::new(&pki.kubelet_client, files.kubelet_authority.as_deref(), provider)?;
            Ok::<NodeClient, StartError>(nodes)
        });
        match renewed {
            Ok(nodes) => api.set_nodes(nodes),
            Err(error) => warn!(err = %error, "Certificates cannot be looked at; this is tried again later"),
        }
    }
    info!("Stopped looking at certificates");
}
