//! The first client certificate of a node that does not renew it (`rotateCertificates: false`).
//!
//! The key is kept in a file until there is a certificate, and the request is named after what it asks for: who is
//! restarted while nobody has approved it finds the same request again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crablet_client::{Chance, Kubeconfig, write_bootstrapped};
use crablet_host::clock::Clock;
use crablet_host::files::write_atomically;
use crablet_x509::KeyPair;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::backoff::Backoff;
use crate::client_certificate::Credentials;
use crate::manager::{Connect, rest};
use crate::progress::Progress;
use crate::signing_request::{Asking, Naming, RequestError};
use crate::store::{Store, StoreError, make_directory, read};
use crate::template::{Signer, Template};

/// How long a request may wait to be signed before it is looked at anew.
const PATIENCE: Duration = Duration::from_secs(3600);
const SIGNER: Signer = Signer::KubeApiserverClientKubelet;

/// Asks for one certificate, until there is one.
pub struct Bootstrap {
    pub(crate) store: Store,
    pub(crate) directory: PathBuf,
    pub(crate) template: Template,
    /// What is written when there is a certificate.
    pub(crate) kubeconfig: PathBuf,
    pub(crate) bootstrap_kubeconfig: PathBuf,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
    pub(crate) progress: watch::Sender<Progress>,
}

impl Bootstrap {
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Returns when the kubeconfig is there. Upstream ends when it is refused, to be started again by whoever looks after
    /// it; this goes on by itself.
    pub async fn run(mut self, connect: &Connect) {
        let mut backoff = Backoff::new();
        while let Err(error) = self.attempt(connect).await {
            let wait = backoff.next(&mut self.chance);
            rest(error, wait, &self.clock, &self.progress, SIGNER).await;
        }
        info!(kubeconfig = %self.kubeconfig.display(), "There is a certificate, and a kubeconfig that leads to it");
        self.progress.send_modify(|progress| progress.trouble = None);
    }

    async fn attempt(&mut self, connect: &Connect) -> Result<(), RequestError> {
        let key = self.key()?;
        let asking = Asking {
            client: connect(Credentials::Bootstrap).map_err(RequestError::Connect)?,
            signer: SIGNER,
            template: &self.template,
            key: &key,
            naming: Naming::Digested,
            patience: PATIENCE,
            clock: &self.clock,
            chance: self.chance.split(),
            progress: &self.progress,
        };
        let certificate = asking.obtain().await?;
        self.store.update(&certificate, &key.to_pem()?, self.clock.now())?;
        let temporary = temporary_key(&self.directory);
        if let Err(error) = std::fs::remove_file(&temporary)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            warn!(path = %temporary.display(), err = %error, "Failed cleaning up private key file");
        }
        let cluster = Kubeconfig::read(&self.bootstrap_kubeconfig)?.cluster;
        Ok(write_bootstrapped(&self.kubeconfig, &cluster, &self.store.current_path())?)
    }

    /// The key of the certificate from before, or of the try before, or a new one.
    fn key(&self) -> Result<KeyPair, RequestError> {
        if let Some(current) = self.store.current()?
            && let Ok(key) = KeyPair::parse(current.key())
        {
            return Ok(key);
        }
        let path = temporary_key(&self.directory);
        if let Some(text) = read(&path)? {
            match KeyPair::parse(&text) {
                Ok(key) => return Ok(key),
                Err(error) => {
                    warn!(path = %path.display(), err = %error, "A key cannot be used and is made anew");
                }
            }
        }
        make_directory(&self.directory)?;
        let key = KeyPair::generate()?;
        write_atomically(&path, key.to_pem()?.as_bytes(), 0o600).map_err(StoreError::Write)?;
        Ok(key)
    }
}

fn temporary_key(directory: &Path) -> PathBuf {
    directory.join("kubelet-client.key.tmp")
}
