//! The agent of the moment: how it begins in its world, and how it ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::agent::{Agent, Parts};
use crablet_agent::allocations::Allocations;
use crablet_agent::mirrors::ServerMirrors;
use crablet_agent::node_config::NodeConfig;
use crablet_agent::objects::Objects;
use crablet_agent::pod_files::PodFiles as _;
use crablet_agent::shutdown;
use crablet_agent::sources::{
    Feed, FileSource, Owners, PodConfig, Problems, SourceKind, SourcesReady, StaticPods,
};
use crablet_agent::tasks::Tasks;
use crablet_agent::users::Users;
use crablet_client::Chance;
use crablet_cluster::memory::Memory;
use crablet_cluster::objects::{self, ClusterObjects, ObjectTtl};
use crablet_cluster::{Begun, Joining, NodeHeadline, join, node, node_identity};
use crablet_config::ChangeDetectionStrategy;
use crablet_core::user_ids::UserIds;
use crablet_cri::Runtime;
use crablet_host::clock::Clock;
use crablet_metrics::Registries;
use crablet_volumes::{Attachments, Csi};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::crash::Crash;
use crate::description::settings;
use crate::invariants::note_no_shutdown;
use crate::lies::{Lie, LyingCheckpoints, LyingLogind, WatchedStateFiles};
use crate::watched_runtime::WatchedRuntime;
use crate::watched_volumes::WatchedVolumes;
use crate::world::{SOURCES, World};

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
    pub(crate) feeds: BTreeMap<SourceKind, Feed>,
}

/// Why an agent could not begin: for the trace.
type NotBegun = Box<dyn std::error::Error + Send + Sync>;

/// What an agent stands on that ends with it.
struct Ground {
    tasks: Tasks,
    runtime: Arc<dyn Runtime>,
    metrics: Registries,
    memory: Option<Memory>,
    of_cluster: Option<Arc<ClusterObjects>>,
    objects: Arc<dyn Objects>,
    csi: Option<Csi>,
    mirrors: watch::Sender<ServerMirrors>,
}

impl World {
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
        match self.begin(crash).await {
            Ok(incarnation) => {
                let statuses = incarnation.agent.statuses.clone();
                let version = statuses.version();
                let mut state = self.ledger.state();
                state.statuses = Some((statuses, version));
                state.agent_since = Some(Instant::now());
                drop(state);
                self.agent = Some(incarnation);
            }
            // Whoever manages services starts it again.
            Err(error) => self.ledger.trace.note(format_args!("*** it could not: {error}")),
        }
    }

    async fn begin(&self, crash: Arc<Crash>) -> Result<Incarnation, NotBegun> {
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
        let mut node = NodeConfig { container_gc: self.container_gc, ..(self.describe)() };
        if self.lie == Some(Lie::NoTimeInShutdowns) {
            node.shutdown_periods.iter_mut().for_each(|period| period.length = Duration::ZERO);
        }
        let name = node.name.clone();
        let (owners, ready) = (config.owners(), changes.sources_ready());
        let ground = self.ground(&name, &tasks, &crash).await?;
        let agent = Agent::start_on(&tasks, self.parts(&ground).await?, node, changes).await?;
        tasks.spawn(config.run());
        if let (Some(csi), Some(storage)) = (&ground.csi, &self.storage) {
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
        let metrics = ground.metrics.clone();
        if ground.of_cluster.is_some()
            && let Some(feed) = feeds.remove(&SourceKind::Api)
        {
            self.join_cluster(&agent, &name, ground, feed, owners, ready);
        }
        Ok(Incarnation { agent, metrics, crash, tasks, stop, feeds })
    }

    async fn ground(&self, name: &str, tasks: &Tasks, crash: &Arc<Crash>) -> Result<Ground, NotBegun> {
        let memory = match &self.memory {
            Some(disk) => Some(Memory::open(Arc::new(disk.clone()), b"cluster", tasks).await?),
            None => None,
        };
        let of_cluster = self.api_server.as_ref().map(|server| {
            ClusterObjects::new(objects::Parts {
                client: server.node(name),
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
            let csi = storage.open(Arc::clone(&objects) as _, crash, self.lie);
            self.volumes.set_csi(csi.clone());
            csi
        });
        let runtime: Arc<dyn Runtime> = Arc::new(WatchedRuntime::new(
            Arc::new(self.client()),
            self.storage.clone(),
            Arc::clone(&self.ledger),
            self.lie,
        ));
        Ok(Ground {
            tasks: tasks.clone(),
            runtime,
            metrics: Registries::default(),
            memory,
            of_cluster,
            objects,
            csi,
            mirrors: watch::Sender::default(),
        })
    }

    async fn parts(&self, ground: &Ground) -> Result<Parts, NotBegun> {
        let state_files = WatchedStateFiles {
            inner: self.state_files.clone(),
            ledger: Arc::clone(&self.ledger),
            lie: self.lie,
        };
        Ok(Parts {
            runtime: Arc::clone(&ground.runtime),
            clock: self.clock.clone(),
            cgroups: Arc::new(self.cgroups.clone()),
            files: Arc::clone(&self.files) as _,
            users: Users::recall(UserIds::default(), Arc::clone(&self.files) as _).await?,
            volumes: Arc::new(WatchedVolumes::new(
                self.volumes.clone(),
                self.storage.clone(),
                Arc::clone(&self.ledger),
                self.lie,
            )),
            checkpoints: Arc::new(LyingCheckpoints { inner: self.checkpoints.clone(), lie: self.lie }),
            allocations: Allocations::open(Arc::new(state_files)).await?,
            objects: Arc::clone(&ground.objects),
            mirrors: ground.mirrors.subscribe(),
            access: self.access.clone(),
            signals: Arc::new(self.room.clone()),
            kernel_log: Some(Box::new(self.kernel_log.clone())),
            usage: Arc::new(self.room.clone()),
            image_records: Arc::new(self.image_records.clone()),
            metrics: ground.metrics.clone(),
            shutdown: Some(shutdown::Machine {
                logind: Arc::new(LyingLogind { inner: self.logind.clone(), lie: self.lie }),
                state: Arc::new(self.shutdown_state.clone()),
            }),
        })
    }

    fn join_cluster(
        &self,
        agent: &Agent,
        name: &str,
        ground: Ground,
        feed: Feed,
        owners: Owners,
        ready: SourcesReady,
    ) {
        let (Some(server), Some(objects)) = (&self.api_server, ground.of_cluster) else { return };
        let begun = Begun { booted: Some(settings(0).start), started: self.clock.now() };
        let counted = crablet_cluster::Metrics::register(&ground.metrics.kubelet, begun);
        let counted = counted.expect("nobody else counts under these names");
        let joining = Joining {
            client: server.node(name),
            seed: 0,
            clock: self.clock.clone(),
            runtime: ground.runtime,
            feed,
            owners,
            ready,
            features: self.features,
            objects,
            node: node::Settings { name: name.into(), ..self.node.clone() },
            object_ttl: ObjectTtl::default(),
            lease_seconds: 40,
            csi_drivers: ground
                .csi
                .as_ref()
                .map_or_else(|| watch::Sender::default().subscribe(), Csi::drivers),
            attachments: ground.csi.as_ref().map_or_else(Attachments::default, Csi::attachments),
            memory: ground.memory,
            headline: NodeHeadline::new(agent.stories.open(&node_identity(name))),
            mirrors: ground.mirrors,
            metrics: counted,
        };
        join(&ground.tasks, agent, joining);
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
        self.ledger.trace.note("*** the machine begins anew");
        for container in self.simulator.containers() {
            self.simulator.exit_container(&container.id, 255);
        }
        for sandbox in self.simulator.sandboxes() {
            self.simulator.kill_sandbox_process(&sandbox.id);
        }
        self.volumes.reboot();
        self.checkpoints.reboot();
        self.logind.reboot();
        note_no_shutdown(&self.ledger);
        if let Some(storage) = &self.storage {
            storage.reboot();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    fn leave(&self) {
        let mut state = self.ledger.state();
        (state.statuses, state.agent_since) = (None, None);
        if let Some(down) = &mut state.going_down {
            down.groups.clear();
        }
    }
}

/// Lets tasks that were told to end do so. No time passes.
async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}
