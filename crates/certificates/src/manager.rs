//! Keeping a certificate valid.
//!
//! ```text
//!          the time has come, or other names are wanted
//!   Held ───────────────────────────────────────────────► asks ──► waits ──► kept, handed over ──► Held
//!                                                          ▲          │
//!                                                          └── rests ◄┘ denied, failed, too long
//! ```

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crablet_api::core::NodeAddress;
use crablet_client::{Chance, Client};
use crablet_host::clock::Clock;
use crablet_x509::KeyPair;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::backoff::Backoff;
use crate::client_certificate::Credentials;
use crate::identity::{Identities, Identity, IdentityError};
use crate::metrics::Renewals;
use crate::progress::{Progress, Stage, told};
use crate::signing_request::{Asking, Naming, RequestError};
use crate::store::{Store, StoreError};
use crate::template::{Signer, Template};

/// How long a request may wait to be signed before another one is made.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// How often it is looked whether the time has come: somebody may set the clock.
const LOOKS_EVERY: Duration = Duration::from_secs(600);

/// Makes a client that shows these credentials, each time that one is needed.
pub type Connect = dyn Fn(Credentials) -> Result<Client, ConnectError> + Send + Sync;
pub type ConnectError = Box<dyn std::error::Error + Send + Sync>;

/// Keeps one certificate valid, for as long as it runs.
pub struct Manager {
    wanted: Wanted,
    rotation: Rotation,
    /// What the certificate was asked for with. A signer may leave things out, and would do so again.
    answered: Option<Template>,
    forced: bool,
}

/// Where the client certificate is until there is one of our own.
#[derive(Clone, Default)]
pub enum ClientFiles {
    #[default]
    None,
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
    /// In PEM. It is replaced at once: kubeadm writes a powerful one into its first node's kubeconfig.
    Data {
        certificate: String,
        key: String,
    },
}

/// What the certificate is to say.
enum Wanted {
    Fixed(Template),
    Serving { node: String, addresses: watch::Receiver<Box<[NodeAddress]>>, allow_dns_only: bool },
}

struct Rotation {
    signer: Signer,
    store: Store,
    clock: Clock,
    chance: Chance,
    latest: watch::Sender<Option<Arc<Identity>>>,
    progress: watch::Sender<Progress>,
    renewals: Option<Renewals>,
}

impl Manager {
    /// The certificate that a node shows to its API server.
    pub fn client(
        directory: &Path,
        node: &str,
        files: ClientFiles,
        clock: Clock,
        chance: Chance,
    ) -> Result<Manager, StoreError> {
        let (files, data) = match files {
            ClientFiles::None => (None, None),
            ClientFiles::Files { certificate, key } => (Some((certificate, key)), None),
            ClientFiles::Data { certificate, key } => (None, Some((certificate, key))),
        };
        let store = Store::open("kubelet-client", directory, files)?;
        let wanted = Wanted::Fixed(Template::of_node(node));
        let manager = Manager::new(Signer::KubeApiserverClientKubelet, store, wanted, clock, chance)?;
        if manager.forced
            && let Some((certificate, key)) = data
        {
            let first = manager.rotation.keep_first(&certificate, &key).map_err(StoreError::New)?;
            manager.rotation.latest.send_replace(Some(Arc::new(first)));
        }
        Ok(manager)
    }

    /// The certificate that a node serves with, for its addresses. While there is none, one from files is used.
    pub fn serving(
        directory: &Path,
        node: &str,
        files: Option<(PathBuf, PathBuf)>,
        addresses: watch::Receiver<Box<[NodeAddress]>>,
        allow_dns_only: bool,
        clock: Clock,
        chance: Chance,
    ) -> Result<Manager, StoreError> {
        let store = Store::open("kubelet-server", directory, files)?;
        let wanted = Wanted::Serving { node: node.to_owned(), addresses, allow_dns_only };
        Manager::new(Signer::KubeletServing, store, wanted, clock, chance)
    }

    fn new(
        signer: Signer,
        store: Store,
        wanted: Wanted,
        clock: Clock,
        chance: Chance,
    ) -> Result<Manager, StoreError> {
        let current = store.current()?.filter(|identity| !identity.has_ended(clock.now()));
        let forced = current.is_none();
        let latest = watch::Sender::new(current.map(Arc::new));
        let progress = watch::Sender::new(Progress::new());
        let rotation = Rotation { signer, store, clock, chance, latest, progress, renewals: None };
        Ok(Manager { wanted, rotation, answered: None, forced })
    }

    /// Has its renewals counted.
    #[must_use]
    pub fn counted_in(mut self, renewals: Renewals) -> Manager {
        self.rotation.renewals = Some(renewals);
        self
    }

    /// The certificate to use now, whenever now is.
    pub fn identities(&self) -> Identities {
        self.rotation.identities()
    }

    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.rotation.progress.subscribe()
    }

    /// Works for as long as it is polled.
    pub async fn run(mut self, connect: &Connect) -> Infallible {
        loop {
            let mut template = self.due().await;
            let mut backoff = Backoff::new();
            loop {
                let outcome = tokio::select! {
                    outcome = self.rotation.rotate(&template, connect) => outcome,
                    () = self.wanted.differs_from(&template) => Err(RequestError::Outdated),
                };
                match outcome {
                    Ok(()) => {
                        self.answered = Some(template);
                        self.forced = false;
                        break;
                    }
                    Err(error) => self.rotation.rest(error, &mut backoff).await,
                }
                match self.wanted.template() {
                    Some(wanted) => template = wanted,
                    None => break,
                }
            }
        }
    }

    /// Waits until another certificate has to be asked for.
    async fn due(&mut self) -> Template {
        let mut renewed_at = None;
        loop {
            let Some(template) = self.wanted.template() else {
                Progress::enter(&self.rotation.progress, Stage::WaitsForAddresses);
                self.wanted.changed().await;
                continue;
            };
            let held = self.rotation.latest.borrow().clone();
            let Some(held) = held.filter(|held| {
                !self.forced && (held.satisfies(&template) || self.answered.as_ref() == Some(&template))
            }) else {
                return template;
            };
            let renewed_at = *renewed_at.get_or_insert_with(|| renewal(&held, &mut self.rotation.chance));
            let rest = renewed_at.duration_since(self.rotation.clock.now());
            if !rest.is_positive() {
                return template;
            }
            Progress::enter(&self.rotation.progress, Stage::Held { ends: held.not_after(), renewed_at });
            let rest = Duration::try_from(rest).unwrap_or(LOOKS_EVERY).min(LOOKS_EVERY);
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                () = self.wanted.changed() => {}
            }
        }
    }
}

/// When a certificate is renewed: at 70 to 90 % of its life, so that not all nodes of a cluster do it at once.
fn renewal(identity: &Identity, chance: &mut Chance) -> Timestamp {
    let (begins, ends) = (identity.leaf().not_before(), identity.leaf().not_after());
    let life = Duration::try_from(ends.duration_since(begins)).unwrap_or_default();
    let after = life.mul_f64(0.7) + chance.below(life.mul_f64(0.2));
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    begins.checked_add(after).unwrap_or(Timestamp::MAX)
}

impl Wanted {
    fn template(&self) -> Option<Template> {
        match self {
            Wanted::Fixed(template) => Some(template.clone()),
            Wanted::Serving { node, addresses, allow_dns_only } => {
                Template::serving(node, &addresses.borrow(), *allow_dns_only)
            }
        }
    }

    async fn changed(&mut self) {
        match self {
            Wanted::Fixed(_) => std::future::pending().await,
            Wanted::Serving { addresses, .. } => {
                if addresses.changed().await.is_err() {
                    std::future::pending().await
                }
            }
        }
    }

    async fn differs_from(&mut self, template: &Template) {
        while self.template().is_none_or(|wanted| wanted == *template) {
            self.changed().await;
        }
    }
}

impl Rotation {
    fn identities(&self) -> Identities {
        Identities::new(self.latest.subscribe(), self.clock.clone())
    }

    fn keep_first(&self, certificate: &str, key: &str) -> Result<Identity, IdentityError> {
        let now = self.clock.now();
        match self.store.update(certificate, key, now) {
            Ok(identity) => Ok(identity),
            Err(StoreError::New(error)) => Err(error),
            Err(error) => {
                warn!(err = told(&error), "Unable to set the cert/key pair to the bootstrap certificate");
                Identity::parse(certificate, key)
            }
        }
    }

    async fn rotate(&mut self, template: &Template, connect: &Connect) -> Result<(), RequestError> {
        let key = KeyPair::generate()?;
        let credentials = match self.identities().current() {
            Some(_) => Credentials::Own,
            None => Credentials::Bootstrap,
        };
        let certificate = Asking {
            client: connect(credentials).map_err(RequestError::Connect)?,
            signer: self.signer,
            template,
            key: &key,
            naming: Naming::Generated,
            patience: PATIENCE,
            clock: &self.clock,
            chance: self.chance.split(),
            progress: &self.progress,
        };
        let certificate = certificate.obtain().await?;
        let identity = self.store.update(&certificate, &key.to_pem()?, self.clock.now())?;
        info!(signer = self.signer.name(), ends = %identity.not_after(), "There is a new certificate");
        let before = self.latest.send_replace(Some(Arc::new(identity)));
        if let (Some(renewals), Some(before)) = (&self.renewals, before) {
            renewals.replaced(self.clock.now().duration_since(before.leaf().not_before()));
        }
        self.progress.send_modify(|progress| progress.trouble = None);
        Ok(())
    }

    async fn rest(&mut self, error: RequestError, backoff: &mut Backoff) {
        if let Some(renewals) = &self.renewals {
            renewals.failed();
        }
        let wait = backoff.next(&mut self.chance);
        rest(error, wait, &self.clock, &self.progress, self.signer).await;
    }
}

/// Tells what went wrong, and waits.
pub(crate) async fn rest(
    error: RequestError,
    wait: Duration,
    clock: &Clock,
    progress: &watch::Sender<Progress>,
    signer: Signer,
) {
    warn!(signer = signer.name(), err = told(&error), again_in = ?wait, "There is no certificate; it is tried again");
    let now = clock.now();
    progress.send_modify(|progress| {
        progress.note(Arc::new(error), now);
        progress.stage = Stage::Rests { until: now.checked_add(wait).unwrap_or(Timestamp::MAX) };
    });
    tokio::time::sleep(wait).await;
}
