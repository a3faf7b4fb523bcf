//! What outlives agents: the runtime, the disk, the cgroups, the files and the sources; and the agent of the moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::agent::{Agent, Parts};
use crablet_agent::images::{self, Access};
use crablet_agent::node_cgroups;
use crablet_agent::node_config::NodeConfig;
use crablet_agent::objects::{NoObjects, Objects};
use crablet_agent::pod_files::{PodFiles as _, Simulated};
use crablet_agent::shutdown;
use crablet_agent::sources::{
    CONFIG_MIRROR, Feed, FileSource, PodConfig, Problems, SourceKind, StaticPods, Wanted,
};
use crablet_agent::tasks::Tasks;
use crablet_api::FeatureGates;
use crablet_api::core::{Node, Pod, ResourceList};
use crablet_client::Chance;
use crablet_cluster::memory::Memory;
use crablet_cluster::node_status::Cloud;
use crablet_cluster::objects::{self, ClusterObjects, ObjectTtl};
use crablet_cluster::{Begun, Joining, join, node};
use crablet_config::ChangeDetectionStrategy;
use crablet_core::container_gc::Policy;
use crablet_core::resize::decision::Exclusive;
use crablet_core::translate;
use crablet_core::user_ids::UserIds;
use crablet_core::{backoff, image_gc, status};
use crablet_cri::client::Settings as ClientSettings;
use crablet_cri::{Client, Runtime};
use crablet_cri_sim::{Capabilities, Latencies, Latency, Method, Settings, Simulator};
use crablet_host::cgroup::{Bound, Limits, SimulatedCgroups};
use crablet_host::checkpoint::SimulatedCheckpoints;
use crablet_host::clock::Clock;
use crablet_host::kernel_log::SimulatedKernelLog;
use crablet_host::logind::SimulatedLogind;
use crablet_host::state_file::SimulatedStateFile;
use crablet_metrics::Registries;
use crablet_volumes::{Attachments, SimulatedVolumes};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api_server::ApiServer;
use crate::behaviour::{PRESENT, PULLED, image};
use crate::crash::Crash;
use crate::ledger::Ledger;
use crate::lies::{self, Lie, LyingCheckpoints, WatchedStateFiles};
use crate::room::{self, Room};
use crate::storage::Storage;
use crate::trace::Trace;
use crate::watched_runtime::WatchedRuntime;
use crate::watched_volumes::WatchedVolumes;

/// The CPUs of the node.
pub const CPUS: i64 = 64;

/// The sources of a run.
const SOURCES: [SourceKind; 2] = [SourceKind::File, SourceKind::Api];

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
    /// The cloud whose controllers look after the next agent's node, if there is one.
    pub cloud: Option<Cloud>,
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

/// An agent that runs.
pub struct Incarnation {
    /// What others see of it.
    pub agent: Agent,
    /// What it counts.
    pub metrics: Registries,
    /// How it dies.
    pub crash: Arc<Crash>,
    pub tasks: Tasks,
    stop: CancellationToken,
    feeds: BTreeMap<SourceKind, Feed>,
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
            cloud: None,
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

    /// Starts an agent, which dies at a step of its life if one is given. Sources speak when they are told to.
    pub async fn start(&mut self, dies_at: Option<u64>) {
        self.ledger.trace.note("*** an agent starts");
        // Another process: what was steady time to the one before is nothing to it.
        self.clock = Clock::simulated(self.clock.now());
        self.room.set_lie(self.lie);
        let crash = Arc::new(Crash::new(Arc::clone(&self.ledger)));
        if let Some(step) = dies_at {
            crash.at(step);
        }
        let stop = CancellationToken::new();
        let tasks = Tasks::new(stop.clone(), TaskTracker::new()).watched_by(crash.clone());
        let (mut config, changes) = PodConfig::new(self.clock.clone(), Problems::default());
        let mut feeds: BTreeMap<SourceKind, Feed> =
            SOURCES.into_iter().map(|source| (source, config.feed(source))).collect();
        match self.lie {
            Some(Lie::PodsAreToCome) => {
                feeds.insert(SourceKind::Url, config.feed(SourceKind::Url));
            }
            Some(Lie::NoUsers) => {
                for uid in self.files.uids() {
                    let _ = self.files.remove_users(&uid).await;
                }
            }
            _ => {}
        }
        let node = NodeConfig { container_gc: self.container_gc, ..(self.describe)() };
        let name = node.name.clone();
        let metrics = Registries::default();
        let runtime: Arc<dyn Runtime> = Arc::new(WatchedRuntime::new(
            Arc::new(self.client()),
            self.storage.clone(),
            Arc::clone(&self.ledger),
            self.lie,
        ));
        let (owners, ready) = (config.owners(), changes.sources_ready());
        let memory = match &self.memory {
            Some(disk) => match Memory::open(Arc::new(disk.clone()), b"cluster", &tasks).await {
                Ok(memory) => Some(memory),
                // Whoever manages services starts it again.
                Err(error) => return self.ledger.trace.note(format_args!("*** it could not: {error}")),
            },
            None => None,
        };
        let of_cluster = self.api_server.as_ref().map(|server| {
            ClusterObjects::new(objects::Parts {
                client: server.node(&name),
                clock: self.clock.clone(),
                chance: Chance::new(1),
                tasks: tasks.clone(),
                strategy: ChangeDetectionStrategy::Watch,
                sync_frequency: Duration::from_secs(60),
                ttl: ObjectTtl::default(),
                memory: memory.clone(),
            })
        });
        let objects: Arc<dyn Objects> = match &of_cluster {
            Some(of_cluster) => Arc::clone(of_cluster) as _,
            None => Arc::clone(&self.objects),
        };
        self.volumes.set_contents(Arc::clone(&objects) as _);
        let csi = self.storage.as_ref().map(|storage| {
            let csi = storage.open(Arc::clone(&objects) as _, &crash, self.lie);
            self.volumes.set_csi(csi.clone());
            csi
        });
        let mirrors = tokio::sync::watch::Sender::default();
        let known_mirrors = mirrors.subscribe();
        let parts = Parts {
            runtime: Arc::clone(&runtime),
            clock: self.clock.clone(),
            cgroups: Arc::new(self.cgroups.clone()),
            files: Arc::clone(&self.files) as _,
            volumes: Arc::new(WatchedVolumes::new(
                self.volumes.clone(),
                self.storage.clone(),
                Arc::clone(&self.ledger),
                self.lie,
            )),
            checkpoints: Arc::new(LyingCheckpoints { inner: self.checkpoints.clone(), lie: self.lie }),
            state_files: Arc::new(WatchedStateFiles {
                inner: self.state_files.clone(),
                ledger: Arc::clone(&self.ledger),
                lie: self.lie,
            }),
            objects,
            mirrors: known_mirrors,
            access: self.access.clone(),
            signals: Arc::new(self.room.clone()),
            kernel_log: Some(Box::new(self.kernel_log.clone())),
            usage: Arc::new(self.room.clone()),
            image_records: Arc::new(self.image_records.clone()),
            metrics: metrics.clone(),
            shutdown: Some(shutdown::Machine {
                logind: Arc::new(self.logind.clone()),
                state: Arc::new(self.shutdown_state.clone()),
            }),
        };
        match Agent::start_on(&tasks, parts, node, changes).await {
            Ok(agent) => {
                tasks.spawn(config.run());
                if let (Some(csi), Some(storage)) = (&csi, &self.storage) {
                    tasks.spawn(csi.clone().run());
                    tasks.spawn(storage.registry(csi.clone()));
                }
                if let Some(path) = &self.manifests
                    && let Some(feed) = feeds.remove(&SourceKind::File)
                {
                    let (pods, period) = (StaticPods::new(&name), Duration::from_secs(20));
                    let source = FileSource::new(path, period, pods, Problems::default(), self.clock.clone());
                    tasks.spawn(source.run(feed));
                }
                if let (Some(server), Some(objects)) = (&self.api_server, of_cluster)
                    && let Some(feed) = feeds.remove(&SourceKind::Api)
                {
                    let begun = Begun { booted: Some(settings(0).start), started: self.clock.now() };
                    let counted = crablet_cluster::Metrics::register(&metrics.kubelet, begun);
                    let counted = counted.expect("nobody else counts under these names");
                    let joining = Joining {
                        client: server.node(&name),
                        seed: 0,
                        clock: self.clock.clone(),
                        runtime,
                        feed,
                        owners,
                        ready,
                        features: self.features,
                        objects,
                        node: node::Settings { cloud: self.cloud.clone(), ..node_settings(&name) },
                        object_ttl: ObjectTtl::default(),
                        lease_seconds: 40,
                        csi_drivers: csi.as_ref().map_or_else(
                            || tokio::sync::watch::Sender::default().subscribe(),
                            crablet_volumes::Csi::drivers,
                        ),
                        attachments: csi
                            .as_ref()
                            .map_or_else(Attachments::default, crablet_volumes::Csi::attachments),
                        memory,
                        mirrors,
                        metrics: counted,
                    };
                    join(&tasks, &agent, joining);
                }
                let version = agent.statuses.version();
                self.ledger.state().statuses = Some((agent.statuses.clone(), version));
                self.agent = Some(Incarnation { agent, metrics, crash, tasks, stop, feeds });
            }
            // Whoever manages services starts it again.
            Err(error) => self.ledger.trace.note(format_args!("*** it could not: {error}")),
        }
    }

    /// Stops the agent as its manager would.
    pub async fn stop(&mut self) {
        self.ledger.trace.note("*** the agent is stopped");
        if let Some(agent) = self.agent.take() {
            self.leave();
            agent.stop.cancel();
            settle().await;
        }
    }

    /// Ends the agent where it is.
    pub async fn kill(&mut self) {
        if let Some(agent) = self.agent.take() {
            self.leave();
            agent.crash.now();
            agent.stop.cancel();
            settle().await;
        }
    }

    /// Ends the agent and all that runs, as a machine does that starts again. What is left is dead, and what was in
    /// memory is gone.
    pub async fn reboot(&mut self) {
        self.kill().await;
        for container in self.simulator.containers() {
            self.simulator.exit_container(&container.id, 255);
        }
        for sandbox in self.simulator.sandboxes() {
            self.simulator.kill_sandbox_process(&sandbox.id);
        }
        self.volumes.reboot();
        self.logind.reboot();
        if let Some(storage) = &self.storage {
            storage.machine.reboot();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    fn leave(&self) {
        self.ledger.state().statuses = None;
    }

    /// What the API server wants of the node, where there is one, is what it has.
    pub fn refresh(&mut self) {
        let Some(server) = &self.api_server else { return };
        let is_own = |pod: &Pod| !pod.metadata.annotations.contains_key(CONFIG_MIRROR);
        let pods = server.pods().into_iter().filter(is_own);
        let pods = pods.map(|pod| (pod.metadata.uid.to_string(), Arc::new(pod))).collect();
        self.wanted.insert(SourceKind::Api, pods);
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

    /// Everything that is there of any pod.
    pub fn leftovers(&self) -> Leftovers {
        Leftovers {
            sandboxes: self.simulator.sandboxes().into_iter().map(|sandbox| sandbox.metadata.uid).collect(),
            containers: self.simulator.containers().into_iter().map(|container| container.pod_uid).collect(),
            cgroups: self.cgroups.limits().keys().map(|pod| pod.uid().to_owned()).collect(),
            directories: self.files.uids().into_iter().collect(),
            links: self.files.links().into_values().collect(),
            volumes: {
                let of_drivers = self.storage.iter().flat_map(|storage| storage.pods());
                self.volumes.pods().into_keys().chain(of_drivers).collect()
            },
            checkpoints: self.checkpoints.content().into_keys().collect(),
        }
    }
}

/// The UIDs that something is left of.
#[derive(Debug, Default)]
pub struct Leftovers {
    sandboxes: BTreeSet<String>,
    containers: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    directories: BTreeSet<String>,
    links: BTreeSet<String>,
    volumes: BTreeSet<String>,
    checkpoints: BTreeSet<String>,
}

impl Leftovers {
    /// What is left of one.
    pub fn of(&self, uid: &str) -> Vec<&'static str> {
        let Leftovers { sandboxes, containers, cgroups, directories, links, volumes, checkpoints } = self;
        [
            (sandboxes, "sandbox"),
            (containers, "container"),
            (cgroups, "cgroup"),
            (directories, "directory"),
            (links, "link to a log"),
            (volumes, "volumes"),
            (checkpoints, "checkpoint"),
        ]
        .into_iter()
        .filter_map(|(uids, what)| uids.contains(uid).then_some(what))
        .collect()
    }

    /// All of them.
    pub fn uids(&self) -> impl Iterator<Item = &String> {
        let Leftovers { sandboxes, containers, cgroups, directories, links, volumes, checkpoints } = self;
        let on_host = cgroups.iter().chain(directories).chain(links).chain(volumes).chain(checkpoints);
        sandboxes.iter().chain(containers).chain(on_host)
    }
}

/// Lets tasks that were told to end do so. No time passes.
async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// What the runtime of a seed is like.
pub fn settings(seed: u64) -> Settings {
    let millis = Duration::from_millis;
    let quick = Latency::Uniform(millis(1), millis(5));
    let slow = Latency::Tailed { least: millis(5), most: millis(60), worst: millis(3000), probability: 0.05 };
    // One in three runtimes is an old one, and one in three has no events at all.
    let base = match seed % 3 {
        0 => Settings::containerd_1_6(),
        1 => Settings::containerd_1_7(),
        _ => Settings::default(),
    };
    let capabilities = Capabilities { handlers_in_status: true, user_namespaces: true, ..base.capabilities };
    Settings {
        seed,
        capabilities,
        // Nobody could pull them again.
        images: base
            .images
            .iter()
            .cloned()
            .chain(PRESENT.iter().map(|name| image(name)))
            .map(crablet_cri_sim::Image::pinned)
            .collect(),
        registry: vec![image(PULLED)],
        latencies: Latencies::all(quick)
            .with(Method::RunPodSandbox, slow)
            .with(Method::CreateContainer, slow)
            .with(Method::StartContainer, slow)
            .with(Method::PullImage, Latency::Uniform(millis(100), millis(20_000))),
        exit_lag: if seed.is_multiple_of(2) { millis(20) } else { Duration::ZERO },
        remembered_calls: 10_000,
        remembered_asked: 1_000,
        ..base
    }
}

/// What the node is called.
pub(crate) const NODE: &str = "node";

fn node_settings(name: &str) -> node::Settings {
    node::Settings {
        name: name.into(),
        registers: true,
        taints: Vec::new(),
        provider_id: "".into(),
        report_every: Duration::from_secs(300),
        most_images: 50,
        isolates_local_storage: true,
        cloud: None,
    }
}

/// The node that agents run on.
pub fn description() -> NodeConfig {
    let address = std::net::IpAddr::from([10, 0, 0, 1]);
    let mut node = Node::default();
    node.metadata.name = NODE.into();
    let mut capacity = ResourceList::default();
    for (name, amount) in [("cpu", CPUS), ("memory", 1 << 40), ("pods", 110), ("ephemeral-storage", 1 << 40)]
    {
        capacity.insert(name, crablet_api::Quantity::from_value(amount));
    }
    node.status.capacity = capacity.clone();
    node.status.allocatable = capacity.clone();
    NodeConfig {
        name: NODE.to_owned(),
        node,
        translation: translate::NodeContext {
            facts: translate::NodeFacts {
                host_ips: vec![address],
                node_ips: vec![address],
                allocatable: capacity,
                memory_capacity: 1 << 40,
                ..translate::NodeFacts::default()
            },
            settings: translate::Settings::default(),
            features: FeatureGates::default(),
        },
        sysctls: translate::SysctlAllowlist::default(),
        app_armor: false,
        status: status::NodeFacts {
            host_ips: vec![address],
            runtime_name: "simulated".into(),
            ..status::NodeFacts::default()
        },
        user_ids: UserIds::default(),
        restart_limits: backoff::Limits::default(),
        pod_pids_limit: None,
        exclusive: Exclusive::default(),
        cgroups: node_cgroups::Settings {
            pods: Limits { memory: Some(Bound::At(1 << 40)), ..Limits::default() },
            ..node_cgroups::Settings::default()
        },
        starts_at_once: 4,
        container_gc: Policy::default(),
        images: images::Settings::default(),
        shutdown_periods: Vec::new(),
        eviction: room::eviction(),
        // Off.
        image_gc: image_gc::Policy {
            high_threshold_percent: 100,
            low_threshold_percent: 80,
            min_age: jiff::SignedDuration::from_mins(2),
            max_age: None,
        },
    }
}
