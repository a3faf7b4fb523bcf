//! What outlives agents: the runtime, the disk, the cgroups, the files and the sources; and the agent of the moment.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::images::Access;
use crablet_agent::node_config::NodeConfig;
use crablet_agent::objects::{NoObjects, Objects};
use crablet_agent::pod_files::Simulated;
use crablet_agent::sources::{CONFIG_MIRROR, SourceKind, Wanted};
use crablet_api::FeatureGates;
use crablet_api::core::Pod;
use crablet_cluster::node;
use crablet_core::container_gc::Policy;
use crablet_cri::Client;
use crablet_cri::client::Settings as ClientSettings;
use crablet_cri_sim::{Settings, Simulator};
use crablet_host::cgroup::SimulatedCgroups;
use crablet_host::checkpoint::SimulatedCheckpoints;
use crablet_host::clock::Clock;
use crablet_host::kernel_log::SimulatedKernelLog;
use crablet_host::logind::SimulatedLogind;
use crablet_host::state_file::SimulatedStateFile;
use crablet_volumes::SimulatedVolumes;

pub(crate) use crate::description::NODE;
use crate::description::node_settings;
pub use crate::description::{CPUS, description, settings};
pub use crate::incarnation::Incarnation;
pub use crate::leftovers::Leftovers;

use crate::api_server::ApiServer;
use crate::invariants::{note_no_shutdown, note_shutdown};
use crate::ledger::Ledger;
use crate::lies::{self, Lie};
use crate::room::Room;
use crate::storage::Storage;
use crate::trace::Trace;

/// The sources of a run.
pub(crate) const SOURCES: [SourceKind; 2] = [SourceKind::File, SourceKind::Api];

/// What outlives agents.
pub struct World {
    /// The runtime.
    pub simulator: Simulator,
    /// The disk.
    pub checkpoints: SimulatedCheckpoints,
    /// What is allocated, on disk too.
    pub state_files: SimulatedCheckpoints,
    pub cgroups: SimulatedCgroups,
    pub files: Arc<Simulated>,
    pub volumes: SimulatedVolumes,
    /// What is left of memory, disk and process IDs.
    pub room: Room,
    /// What the kernel says.
    pub kernel_log: SimulatedKernelLog,
    /// When images were used.
    pub image_records: SimulatedCheckpoints,
    /// The API server that agents join, if there is one. Without one the test says what it wants.
    pub api_server: Option<ApiServer>,
    /// What is behind claims, if there is storage.
    pub storage: Option<Arc<Storage>>,
    /// Which gates the next agent has open towards the cluster.
    pub features: FeatureGates,
    /// How the next agent keeps its node.
    pub node: node::Settings,
    /// The disk that the next agents keep on what it says, if they do.
    pub memory: Option<SimulatedCheckpoints>,
    /// The cluster's objects.
    pub objects: Arc<dyn Objects>,
    /// Who may use which images.
    pub access: Access,
    /// What is known.
    pub ledger: Arc<Ledger>,
    /// What sources want.
    pub wanted: BTreeMap<SourceKind, BTreeMap<String, Arc<Pod>>>,
    /// The agent, if there is one.
    pub agent: Option<Incarnation>,
    /// How many containers that ended the next agent keeps.
    pub container_gc: Policy,
    /// What the next agent is told that is not so.
    pub lie: Option<Lie>,
    /// The wall clock of agents. The runtime's is its own.
    pub clock: Clock,
    /// Who tells that the machine is about to be shut down.
    pub logind: SimulatedLogind,
    /// Where it is kept when it was.
    pub shutdown_state: SimulatedStateFile,
    /// What the node is.
    pub describe: Box<dyn Fn() -> NodeConfig + Send + Sync>,
    /// Where the next agent finds the manifests of static pods, if not in what the test wants.
    pub manifests: Option<PathBuf>,
}

impl World {
    /// One without pods and without an agent.
    pub fn new(seed: u64, trace: Trace) -> World {
        World::on(settings(seed), trace)
    }

    /// The same, on a runtime that is like this.
    pub fn on(settings: Settings, trace: Trace) -> World {
        let clock = Clock::simulated(settings.start);
        // One in two kernels tells by itself when memory is short.
        let has_alarms = settings.seed % 4 < 2;
        let simulator = Simulator::new(settings);
        let ledger = Arc::new(Ledger::new(simulator.clone(), trace));
        let room = Room::new(Arc::clone(&ledger));
        room.set_alarms(has_alarms);
        World {
            ledger,
            room,
            kernel_log: SimulatedKernelLog::default(),
            image_records: SimulatedCheckpoints::new(),
            simulator,
            checkpoints: SimulatedCheckpoints::new(),
            state_files: SimulatedCheckpoints::new(),
            cgroups: SimulatedCgroups::new(),
            files: Arc::new(Simulated::new()),
            volumes: SimulatedVolumes::new(),
            api_server: None,
            storage: None,
            features: FeatureGates::default(),
            node: node_settings(),
            memory: None,
            objects: Arc::new(NoObjects),
            access: Access::default(),
            wanted: SOURCES.into_iter().map(|source| (source, BTreeMap::new())).collect(),
            agent: None,
            container_gc: Policy::default(),
            lie: None,
            clock,
            logind: SimulatedLogind::new(),
            shutdown_state: SimulatedStateFile::default(),
            describe: Box::new(description),
            manifests: None,
        }
    }

    /// Puts an API server beside the node, which the next agents join.
    pub fn add_api_server(&mut self) -> ApiServer {
        let server = ApiServer::new(0, self.clock.clone());
        tokio::spawn(server.clone().run());
        self.api_server = Some(server.clone());
        server
    }

    /// Puts storage into the cluster, for the next agents.
    pub fn add_storage(&mut self, seed: u64, server: &ApiServer) -> Arc<Storage> {
        let storage = Arc::new(Storage::new(seed, server, &self.ledger, self.lie));
        self.storage = Some(Arc::clone(&storage));
        storage
    }

    /// A client of the runtime, for the test's own use.
    pub fn client(&self) -> Client {
        let settings = ClientSettings {
            timeout: Duration::from_secs(20),
            pull_timeout: Duration::from_secs(90),
            ..ClientSettings::default()
        };
        Client::in_process("the simulated runtime", self.simulator.services(), settings)
    }

    /// What the API server wants of the node, where there is one, is what it has.
    pub fn refresh(&mut self) {
        let Some(server) = &self.api_server else { return };
        let is_own = |pod: &Pod| !pod.metadata.annotations.contains_key(CONFIG_MIRROR);
        let pods = server.pods().into_iter().filter(is_own);
        let pods = pods.map(|pod| (pod.metadata.uid.to_string(), Arc::new(pod))).collect();
        self.wanted.insert(SourceKind::Api, pods);
    }

    /// A pod uses so much memory.
    pub(crate) fn use_memory(&self, uid: &str, bytes: u64) {
        for pod in self.cgroups.limits().into_keys().filter(|pod| pod.uid() == uid) {
            self.cgroups.set_memory_usage(&pod, bytes);
        }
    }

    /// No pod uses memory that somebody wants to take from it.
    pub(crate) fn free_memory(&self) {
        for pod in self.cgroups.limits().into_keys() {
            self.cgroups.set_memory_usage(&pod, 0);
        }
    }

    /// The machine is about to be shut down.
    pub fn announce_shutdown(&self) {
        self.ledger.trace.note("*** the machine is about to be shut down");
        note_shutdown(&self.ledger);
        self.logind.tell(true);
    }

    /// It is not shut down after all.
    pub fn cancel_shutdown(&self) {
        self.ledger.trace.note("*** the machine stays up");
        self.logind.tell(false);
        note_no_shutdown(&self.ledger);
    }

    /// Says to the agent what a source wants.
    pub fn tell(&self, source: SourceKind) {
        let Some(agent) = &self.agent else { return };
        let pods = lies::told(self.lie, source, &self.wanted).into_iter();
        let wanted = pods.map(|pod| Wanted { pod, origin: "the simulation".into() });
        if let Some(feed) = agent.feeds.get(&source) {
            feed.set(wanted.collect());
        }
    }

    /// Says to the agent what all sources want.
    pub fn tell_all(&self) {
        SOURCES.into_iter().for_each(|source| self.tell(source));
    }
}
