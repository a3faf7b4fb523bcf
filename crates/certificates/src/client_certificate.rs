//! Which way the node comes to its client certificate, by upstream's rules for kubeconfigs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crablet_client::{
    Chance, Client, Https, Kubeconfig, KubeconfigError, Pem, ProxyEnvironment, WriteKubeconfigError,
    write_bootstrapped,
};
use crablet_host::clock::Clock;
use jiff::Timestamp;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::bootstrap::Bootstrap;
use crate::identity::Identity;
use crate::manager::{ClientFiles, ConnectError, Manager};
use crate::progress::{Progress, told};
use crate::store::{LARGEST_FILE, Store, StoreError};
use crate::template::Template;

/// What the configuration says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    pub kubeconfig: PathBuf,
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// `--cert-dir`.
    pub directory: PathBuf,
    pub node: String,
    /// `rotateCertificates`.
    pub rotate: bool,
}

/// Who one is to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// The node, by its certificate.
    Own,
    /// Somebody who may ask for a node's certificate.
    Bootstrap,
}

impl ClientSettings {
    /// What makes clients by these kubeconfigs. They are read each time: certificates and tokens change.
    pub fn connect(
        self,
        environment: ProxyEnvironment,
        clock: Clock,
        user_agent: &str,
    ) -> impl Fn(Credentials) -> Result<Client, ConnectError> + Send + Sync + use<> {
        let user_agent = user_agent.to_owned();
        move |credentials| {
            let kubeconfig = Kubeconfig::read(self.kubeconfig_of(credentials))?;
            let transport = Https::new(&kubeconfig, &environment, clock.clone())?;
            Ok(Client::new(Arc::new(transport), &user_agent))
        }
    }

    /// The kubeconfig with these credentials. kubeadm removes the one for bootstrapping when a node has joined; what is
    /// left is then tried.
    pub fn kubeconfig_of(&self, credentials: Credentials) -> &Path {
        match (credentials, &self.bootstrap_kubeconfig) {
            (Credentials::Bootstrap, Some(path)) if path.exists() => path,
            (Credentials::Bootstrap | Credentials::Own, _) => &self.kubeconfig,
        }
    }
}

/// How the node comes to its client certificate.
pub enum ClientCertificate {
    /// The kubeconfig is used as it is. Whoever wrote it sees to its certificate.
    Given,
    /// There is none: it is asked for, and the kubeconfig is there when there is one.
    Bootstrap(Box<Bootstrap>),
    /// The kubeconfig is there. If it leads to a certificate, that is not to be waited for.
    Rotated(Box<Manager>),
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot look at the kubeconfig {}", path.display())]
    Look { path: PathBuf, source: std::io::Error },
    #[error("unable to load kubeconfig")]
    Kubeconfig(#[source] KubeconfigError),
    #[error("unable to load bootstrap kubeconfig")]
    Bootstrap(#[source] KubeconfigError),
    #[error(transparent)]
    Write(#[from] WriteKubeconfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ClientCertificate {
    /// Looks at what there is. A kubeconfig that is missing or of no use any more is written anew, from the one for
    /// bootstrapping.
    pub fn open(
        settings: &ClientSettings,
        clock: &Clock,
        chance: Chance,
    ) -> Result<ClientCertificate, OpenError> {
        let ClientSettings { kubeconfig, directory, node, .. } = settings;
        let bootstrap = match &settings.bootstrap_kubeconfig {
            Some(bootstrap) if !is_still_valid(kubeconfig, clock.now())? => Some(bootstrap),
            Some(_) | None => None,
        };
        let store = || Store::open("kubelet-client", directory, None);
        let files = match (bootstrap, settings.rotate) {
            (None, false) => return Ok(ClientCertificate::Given),
            (Some(bootstrap), false) => {
                Kubeconfig::read(bootstrap).map_err(OpenError::Bootstrap)?;
                return Ok(ClientCertificate::Bootstrap(Box::new(Bootstrap {
                    store: store()?,
                    directory: directory.clone(),
                    template: Template::of_node(node),
                    kubeconfig: kubeconfig.clone(),
                    bootstrap_kubeconfig: bootstrap.clone(),
                    clock: clock.clone(),
                    chance,
                    progress: watch::Sender::new(Progress::new()),
                })));
            }
            (Some(bootstrap), true) => {
                let cluster = Kubeconfig::read(bootstrap).map_err(OpenError::Bootstrap)?.cluster;
                write_bootstrapped(kubeconfig, &cluster, &store()?.current_path())?;
                info!(kubeconfig = %kubeconfig.display(), "The bootstrap credentials are used to ask for a certificate");
                ClientFiles::None
            }
            (None, true) => client_files(&Kubeconfig::read(kubeconfig).map_err(OpenError::Kubeconfig)?),
        };
        let manager = Manager::client(directory, node, files, clock.clone(), chance)?;
        Ok(ClientCertificate::Rotated(Box::new(manager)))
    }
}

fn client_files(kubeconfig: &Kubeconfig) -> ClientFiles {
    let Some(own) = &kubeconfig.user.client_certificate else { return ClientFiles::None };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match (&own.certificate, &own.key) {
        (Pem::Data(certificate), Pem::Data(key)) => {
            ClientFiles::Data { certificate: text(certificate), key: text(key) }
        }
        (Pem::File(certificate), Pem::File(key)) => {
            ClientFiles::Files { certificate: certificate.clone(), key: key.clone() }
        }
        // Whoever splits the two is not served by upstream either.
        (Pem::Data(_), Pem::File(_)) | (Pem::File(_), Pem::Data(_)) => ClientFiles::None,
    }
}

/// Whether a kubeconfig leads to a certificate of which no part has expired. One that cannot be used is none.
fn is_still_valid(path: &Path, now: Timestamp) -> Result<bool, OpenError> {
    match std::fs::metadata(path) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(OpenError::Look { path: path.to_owned(), source }),
    }
    let why = match Kubeconfig::read(path) {
        Ok(kubeconfig) => match certificate(&kubeconfig) {
            Ok(Some(identity)) if identity.is_whole_at(now) => return Ok(true),
            Ok(Some(identity)) => format!("its certificate has expired on {}", identity.not_after()),
            Ok(None) => "it has no certificate".to_owned(),
            Err(error) => told(&error),
        },
        Err(error) => told(&error),
    };
    warn!(kubeconfig = %path.display(), why, "The kubeconfig is of no use; the one for bootstrapping is used");
    Ok(false)
}

fn certificate(kubeconfig: &Kubeconfig) -> Result<Option<Identity>, StoreError> {
    let Some(own) = &kubeconfig.user.client_certificate else { return Ok(None) };
    let text = |pem: &Pem| match pem {
        Pem::File(path) => crablet_host::files::read_bounded(path, LARGEST_FILE),
        Pem::Data(data) => Ok(data.to_vec()),
    };
    let (certificate, key) = (text(&own.certificate)?, text(&own.key)?);
    let (certificate, key) = (String::from_utf8_lossy(&certificate), String::from_utf8_lossy(&key));
    Identity::parse(&certificate, &key).map(Some).map_err(StoreError::New)
}
