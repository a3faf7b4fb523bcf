//! One socket for as long as it is there.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::info;

use super::claims::{Claim, Claims};
use super::folder::Identity;
use super::plugin::Invalid;
use super::{Plugin, PluginHandler, PluginState, PluginType, States};
use crate::connection::{ANSWER_LIMIT, Connection, shortened};
use crate::error::Error;
use crate::registration::registration_client::RegistrationClient;
use crate::registration::{InfoRequest, PluginInfo, RegistrationStatus};

/// How long a plugin has to say who it is.
const INFO_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it has to hear how its registration went.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait before a registration is tried again, at first and at most.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(122));

/// Who registers plugins.
pub(super) struct Registrar {
    pub(super) root: PathBuf,
    pub(super) handlers: BTreeMap<PluginType, Arc<dyn PluginHandler>>,
    pub(super) claims: Claims,
    pub(super) states: States,
}

/// Why a plugin is not registered, in upstream's words.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(
        "RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {}, err: {error}",
        socket.display()
    )]
    Info { socket: PathBuf, error: Error },
    #[error("RegisterPlugin error -- {0}")]
    Invalid(Invalid),
    #[error("RegisterPlugin error -- plugin registration failed with err: {0}")]
    Handler(String),
    #[error(
        "RegisterPlugin error -- failed to send registration status at socket {}, err: {error}",
        socket.display()
    )]
    Notify { socket: PathBuf, error: Error },
}

impl Failure {
    /// Whether it wants a name that another has.
    fn is_taken(&self) -> bool {
        match self {
            Failure::Invalid(invalid) => invalid.is_taken(),
            Failure::Info { .. } | Failure::Handler(_) | Failure::Notify { .. } => false,
        }
    }
}

impl Registrar {
    /// Keeps the plugin at a socket registered for as long as the socket is there, and gives back its path.
    pub(super) async fn attend(
        self: Arc<Registrar>,
        path: PathBuf,
        mut present: watch::Receiver<Option<Identity>>,
    ) -> PathBuf {
        let mut wait = WAITS.0;
        self.states.set(&path, PluginState::Pending);
        while present.has_changed().is_ok() && present.borrow_and_update().is_some() {
            let mut claim = None;
            let failure = tokio::select! {
                biased;
                _ = present.changed() => None,
                Err(failure) = self.stay_registered(&path, &mut claim) => Some(failure),
            };
            // Out of the above, so that nothing cuts it off.
            if let Some(claim) = claim {
                self.deregister(&claim).await;
            }
            let Some(failure) = failure else {
                wait = WAITS.0;
                self.states.set(&path, PluginState::Pending);
                continue;
            };
            self.states.set(&path, PluginState::Refused(failure.to_string()));
            tokio::select! {
                _ = present.changed() => {
                    wait = WAITS.0;
                    self.states.set(&path, PluginState::Pending);
                }
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(WAITS.1),
                // The name that it wants may be free now.
                () = self.claims.released(), if failure.is_taken() => {}
            }
        }
        self.states.remove(&path);
        path
    }

    /// Registers a plugin, and never ends where that succeeds. Its name is claimed before anybody is told of it: who
    /// drops this knows by the claim that there may be something to undo.
    async fn stay_registered(&self, path: &Path, claim: &mut Option<Claim>) -> Result<Infallible, Failure> {
        let registration = Registration { socket: path, connection: Connection::new(path) };
        let info = registration.info().await?;
        let (plugin, handler) = match self.accept(info, path, claim).await {
            Ok(accepted) => accepted,
            Err(invalid) => return Err(registration.refuse(Failure::Invalid(invalid)).await),
        };
        let registered = PluginState::Registered { kind: plugin.kind, name: plugin.name.clone() };
        info!(name = %plugin.name, endpoint = %plugin.endpoint.display(), "Register new plugin");
        if let Err(error) = handler.register(plugin).await {
            *claim = None;
            return Err(registration.refuse(Failure::Handler(shortened(&error))).await);
        }
        if let Some(claim) = claim {
            claim.hold();
        }
        registration.notify(RegistrationStatus { plugin_registered: true, error: String::new() }).await?;
        self.states.set(path, registered);
        drop(registration);
        std::future::pending().await
    }

    /// Checks what a plugin says of itself, and takes its name.
    async fn accept(
        &self,
        info: PluginInfo,
        path: &Path,
        claim: &mut Option<Claim>,
    ) -> Result<(Plugin, Arc<dyn PluginHandler>), Invalid> {
        let plugin = Plugin::new(info, path)?;
        let Some(handler) = self.handlers.get(&plugin.kind) else {
            return Err(Invalid::Type { kind: plugin.kind.to_string(), socket: path.to_owned() });
        };
        let root = self.root.clone();
        let checked = tokio::task::spawn_blocking(move || plugin.check_endpoint(&root).map(|()| plugin));
        let plugin = match checked.await {
            Ok(checked) => checked?,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is being shut down.
                Err(_) => std::future::pending().await,
            },
        };
        let taken = self.claims.take(plugin.kind, &plugin.name, path, plugin.version.as_ref());
        *claim = Some(taken.map_err(|holder| plugin.taken(holder))?);
        Ok((plugin, Arc::clone(handler)))
    }

    /// What somebody else has taken over stays.
    async fn deregister(&self, claim: &Claim) {
        if !claim.is_held() {
            return;
        }
        info!(name = claim.name(), "Deregister plugin");
        if let Some(handler) = self.handlers.get(&claim.kind()) {
            handler.deregister(claim.name()).await;
        }
    }
}

/// The service behind a socket.
struct Registration<'a> {
    socket: &'a Path,
    connection: Connection,
}

impl Registration<'_> {
    fn client(&self) -> RegistrationClient<tonic::transport::Channel> {
        RegistrationClient::new(self.connection.channel()).max_decoding_message_size(ANSWER_LIMIT)
    }

    async fn info(&self) -> Result<PluginInfo, Failure> {
        let mut client = self.client();
        let ask = |request| async move { client.get_info(request).await };
        let answer = self.connection.call(INFO_TIMEOUT, InfoRequest::default(), ask).await;
        answer.map_err(|error| Failure::Info { socket: self.socket.to_owned(), error })
    }

    async fn notify(&self, status: RegistrationStatus) -> Result<(), Failure> {
        let mut client = self.client();
        let ask = |request| async move { client.notify_registration_status(request).await };
        let answer = self.connection.call(NOTIFY_TIMEOUT, status, ask).await;
        answer.map(|_| ()).map_err(|error| Failure::Notify { socket: self.socket.to_owned(), error })
    }

    /// Tells the plugin why it is not registered. What is wrong stays that, whether it hears it or not.
    async fn refuse(&self, failure: Failure) -> Failure {
        let error = shortened(&failure.to_string());
        let _ = self.notify(RegistrationStatus { plugin_registered: false, error }).await;
        failure
    }
}
