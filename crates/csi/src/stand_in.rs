//! A CSI driver to test with: it serves a registrar and a driver on unix sockets, writes down what it is asked, and
//! fails as it is told to.
//!
//! It runs on threads of its own, as another process would: killed, its connections break and its sockets stay.

mod effects;
mod fault;
mod loop_device;
mod recording;
mod services;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_lenient_authority::LenientAuthority;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnixListenerStream;
pub use tonic::Status;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::registration::registration_server::RegistrationServer;
use crate::v1;
use crate::v1::identity_server::IdentityServer;
use crate::v1::node_server::NodeServer;
pub use crate::v1::node_service_capability::rpc::Type as Capability;
pub use effects::{Effects, LocalVolumes, NoEffects};
use fault::Plan;
pub use fault::{Fault, Moment, Trouble};
pub use recording::{Call, Outcome};
use services::Services;

/// What a stand-in says of itself. It need not be true.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The type that its registrar announces.
    pub kind: String,
    pub name: String,
    /// The endpoint that its registrar announces; where it really listens if not given.
    pub endpoint: Option<String>,
    pub supported_versions: Vec<String>,
    pub node_id: String,
    pub max_volumes_per_node: i64,
    pub topology: Option<BTreeMap<String, String>>,
    pub capabilities: Vec<Capability>,
    pub stats: v1::NodeGetVolumeStatsResponse,
}

impl Settings {
    /// A driver of this name that can do nothing but publish.
    pub fn new(name: &str) -> Settings {
        Settings {
            kind: "CSIPlugin".to_owned(),
            name: name.to_owned(),
            endpoint: None,
            supported_versions: vec!["1.0.0".to_owned()],
            node_id: "node".to_owned(),
            max_volumes_per_node: 0,
            topology: None,
            capabilities: Vec::new(),
            stats: v1::NodeGetVolumeStatsResponse::default(),
        }
    }
}

/// A driver to test with. It dies when it is dropped.
pub struct StandIn(Arc<Inner>);

struct Inner {
    settings: Mutex<Settings>,
    effects: Arc<dyn Effects>,
    plans: Mutex<Vec<Plan>>,
    calls: watch::Sender<Vec<Call>>,
    /// Where it listens, or did before it died.
    sockets: Mutex<Option<Sockets>>,
    /// The threads that it lives on.
    running: Mutex<Option<Runtime>>,
}

#[derive(Clone)]
struct Sockets {
    driver: PathBuf,
    registrar: Option<PathBuf>,
}

impl StandIn {
    pub fn new(settings: Settings, effects: Arc<dyn Effects>) -> StandIn {
        StandIn(Arc::new(Inner {
            settings: Mutex::new(settings),
            effects,
            plans: Mutex::default(),
            calls: watch::Sender::default(),
            sockets: Mutex::default(),
            running: Mutex::default(),
        }))
    }

    /// Serves the driver on a socket, and then its registrar on another, if one is given. Sockets that a life before
    /// this one left are replaced.
    pub fn start(&self, driver: &Path, registrar: Option<&Path>) -> io::Result<()> {
        let sockets = Sockets { driver: driver.to_owned(), registrar: registrar.map(Path::to_owned) };
        *self.0.sockets() = Some(sockets);
        self.start_again()
    }

    /// Starts it again where it was before it died, with new sockets.
    pub fn start_again(&self) -> io::Result<()> {
        self.kill();
        let Some(sockets) = self.0.sockets().clone() else {
            return Err(io::Error::other("it was never started"));
        };
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("csi-stand-in")
            .enable_all()
            .build()?;
        let services = Services(Arc::clone(&self.0));
        let driver =
            Routes::new(NodeServer::new(services.clone())).add_service(IdentityServer::new(services.clone()));
        // First, since whoever sees the registrar's socket calls the driver at once.
        let mut served = serve(&threads, &sockets.driver, driver);
        if let (Ok(()), Some(socket)) = (&served, &sockets.registrar) {
            served = serve(&threads, socket, Routes::new(RegistrationServer::new(services)));
        }
        *self.0.running() = Some(threads);
        served
    }

    /// Ends it at once: connections break, and its sockets stay as files.
    pub fn kill(&self) {
        self.0.kill();
    }

    /// Ends it as one that is asked to: its sockets are gone.
    pub fn stop(&self) {
        if let Some(sockets) = &*self.0.sockets() {
            for socket in [&sockets.driver].into_iter().chain(&sockets.registrar) {
                // One that a test has removed is gone too.
                let _ = std::fs::remove_file(socket);
            }
        }
        self.kill();
    }

    /// Changes what it says of itself.
    pub fn change(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.0.settings());
    }

    /// Plans trouble with a method, such as `NodeStageVolume`. Of several plans for one, the first that is not used up
    /// counts.
    pub fn plan(&self, method: &str, fault: Fault) {
        self.0.plans().push(Plan { method: method.to_owned(), fault });
    }

    /// Takes back all trouble that is planned.
    pub fn forgive(&self) {
        self.0.plans().clear();
    }

    /// What it was asked so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.0.calls.borrow().clone()
    }

    /// Waits until what it was asked is as expected.
    pub async fn until(&self, expected: impl FnMut(&Vec<Call>) -> bool) {
        // The sender is ours, and so alive.
        let _ = self.0.calls.subscribe().wait_for(expected).await;
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Inner {
    fn kill(&self) {
        if let Some(threads) = self.running().take() {
            threads.shutdown_background();
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Runtime>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sockets(&self) -> MutexGuard<'_, Option<Sockets>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plans(&self) -> MutexGuard<'_, Vec<Plan>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(threads: &Runtime, socket: &Path, services: Routes) -> io::Result<()> {
    if let Some(folder) = socket.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let _threads = threads.enter();
    let listener = StdListener::bind(socket)?;
    listener.set_nonblocking(true)?;
    let connections = UnixListenerStream::new(UnixListener::from_std(listener)?)
        .map(|connection| connection.map(LenientAuthority::new));
    threads.spawn(Server::builder().add_routes(services).serve_with_incoming(connections));
    Ok(())
}
