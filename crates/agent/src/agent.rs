//! The agent, put together: who does what on the node, and who tells whom.

use std::sync::Arc;

use crablet_api::Gate;
use crablet_cri::Runtime;
use crablet_cri::observer::{self, Observer};
use crablet_host::cgroup::Cgroups;
use crablet_host::checkpoint::Checkpoints;
use crablet_host::clock::Clock;
use crablet_host::kernel_log::KernelLog;
use crablet_host::signals::Signals;
use crablet_metrics::{RegisterError, Registries};
use crablet_volumes::Volumes;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::{self, Admission};
use crate::allocations::Allocations;
use crate::checkpoints::CheckpointWriter;
use crate::container_gc::{self, ContainerGc};
use crate::eviction::{self, EvictionManager, Pressure, UsageMeter};
use crate::image_gc::{self, ImageGc};
use crate::images::{self, Images};
use crate::metrics::{
    AdmissionMetrics, EvictionMetrics, ImageGcMetrics, ImageMetrics, Metrics, register_pods,
};
use crate::mirrors::{FirstMirrors, ServerMirrors};
use crate::node_cgroups::{NodeCgroups, NotEnforced, Protected};
use crate::node_config::NodeConfig;
use crate::node_facts::{Facts, LiveFacts};
use crate::objects::Objects;
use crate::oom_watcher::{self, OomKills};
use crate::pod_files::PodFiles;
use crate::pods::{Evictor, Pods};
use crate::prober::{self, Prober};
use crate::readiness::Readiness;
use crate::recorder::{Involved, Recorder};
use crate::restored::Restored;
use crate::shared::{Host, NodeTurns, PodLimits, Reports, Shared};
use crate::shutdown::{self, NodeShutdown};
use crate::sources::Changes;
use crate::state_disk::StateDisk;
use crate::statuses::Statuses;
use crate::story::Stories;
use crate::sync_loop::SyncLoop;
use crate::tasks::Tasks;
use crate::turns::Turns;
use crate::users::Users;

/// How many workers look at what the runtime knows at the same time: enough to keep it busy.
const LOOKS_AT_ONCE: usize = 16;

/// How many sandboxes are stopped, and sandboxes and containers removed, at the same time: their networks, mounts and
/// snapshots wait for the disk and the kernel more than for a processor.
const STOPS_AT_ONCE: usize = 64;

/// What an agent works on. A simulated run gives simulated ones.
pub struct Parts {
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// The time.
    pub clock: Clock,
    /// The cgroups of pods.
    pub cgroups: Arc<dyn Cgroups>,
    /// The directories and files of pods.
    pub files: Arc<dyn PodFiles>,
    /// Which users of the node belong to which pod.
    pub users: Users,
    /// The volumes of pods.
    pub volumes: Arc<dyn Volumes>,
    /// Where the checkpoints of pods are.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// What is allocated to pods.
    pub allocations: Allocations,
    /// The cluster's objects that pods refer to.
    pub objects: Arc<dyn Objects>,
    /// What the API server has of the node's static pods.
    pub mirrors: watch::Receiver<ServerMirrors>,
    /// Who may pull and use which images.
    pub access: images::Access,
    /// What is left of what the machine can run short of.
    pub signals: Arc<dyn Signals>,
    /// What the kernel says, if it may be read.
    pub kernel_log: Option<Box<dyn KernelLog>>,
    /// Who knows what pods use.
    pub usage: Arc<dyn UsageMeter>,
    /// Where it is written down when images were used.
    pub image_records: Arc<dyn Checkpoints>,
    /// Where what is counted is registered.
    pub metrics: Registries,
    /// Who tells of shutdowns of the machine, where pods have time then.
    pub shutdown: Option<shutdown::Machine>,
}

/// An agent at work, as others see it.
#[derive(Clone)]
pub struct Agent {
    /// What is known of the node; who learns of something new says it here.
    pub facts: LiveFacts,
    /// Every pod with its latest status.
    pub statuses: Statuses,
    /// What happened to each pod.
    pub stories: Stories,
    /// What the node says of itself while it runs short of something.
    pub pressure: Pressure,
    /// Ends pods that the node cannot keep.
    pub evictor: Evictor,
    /// Who gets images.
    pub images: Images,
    /// Who tells what happens.
    pub recorder: Recorder,
    /// Whether the runtime and its network are ready.
    pub readiness: Readiness,
    /// Where it is learned what happens at the runtime.
    pub observer: watch::Receiver<observer::Status>,
    /// Where the task that owns the pods is asked whether it still goes round.
    pub sync_loop: SyncLoop,
}

/// Why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The cgroups that all pods are below could not be made.
    #[error("cannot make the cgroups of pods")]
    Cgroups(#[from] crablet_host::cgroup::CgroupError),
    /// The system or Kubernetes' own processes could not be held to what is kept for them.
    #[error(transparent)]
    NotEnforced(#[from] NotEnforced),
    /// The checkpoints could not be read.
    #[error("cannot read the checkpoints of pods")]
    Checkpoints(#[from] crablet_host::checkpoint::CheckpointError),
    /// What is counted could not be named.
    #[error("cannot register metrics")]
    Metrics(#[from] RegisterError),
}

impl Agent {
    /// Starts an agent: it works until `stop`. Stopping it touches no pod.
    pub async fn start(
        parts: Parts,
        description: NodeConfig,
        changes: Changes,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Result<Agent, StartError> {
        Agent::start_on(&Tasks::new(stop.clone(), tasks.clone()), parts, description, changes).await
    }

    /// Starts an agent whose tasks all run on `tasks`.
    pub async fn start_on(
        tasks: &Tasks,
        parts: Parts,
        description: NodeConfig,
        changes: Changes,
    ) -> Result<Agent, StartError> {
        let Parts { runtime, clock, cgroups, files, volumes, checkpoints, .. } = parts;
        let Parts { users, allocations, objects, mirrors, access, metrics, .. } = parts;
        let Parts { signals, usage, kernel_log, image_records, shutdown: machine, .. } = parts;
        let stories = Stories::new(clock.clone());
        let recorder = Recorder::new(clock.clone(), stories.clone());
        let (statuses, strangers) = (Statuses::new(), Arc::<Notify>::default());
        let facts = LiveFacts::new(Facts {
            node: description.node,
            translation: description.translation,
            status: description.status,
            held: description.held,
            handlers: None,
        });
        let node_cgroups = NodeCgroups {
            cgroups: Arc::clone(&cgroups),
            protected: match description.cgroups.memory {
                Some(_) => Some(Protected::register(&metrics.kubelet)?),
                None => None,
            },
            settings: description.cgroups,
            facts: facts.clone(),
            recorder: recorder.clone(),
            node: Involved::node(description.name.as_str()),
            statuses: statuses.clone(),
            strangers: Arc::clone(&strangers),
        };
        node_cgroups.make().await?;
        node_cgroups.hold_others().await?;
        let restored = Restored::read(&*checkpoints).await?;

        let pulls = access.records.clone();
        let keeps_records = pulls.is_some();
        let images =
            Images::new(runtime.clone(), access, recorder.clone(), clock.clone(), description.images)
                .counted_in(ImageMetrics::register(&metrics.kubelet)?);
        let (observer, events, observer_status) = Observer::new(runtime.clone());
        let seconds = clock.clone();
        let observer = observer.counted_in(observer::Metrics::register(&metrics.kubelet)?, move || {
            seconds.now().as_millisecond() as f64 / 1e3
        });
        let state_disk = StateDisk::new(recorder.clone(), Involved::node(description.name.as_str()));
        let checkpoint_writer = CheckpointWriter::new(state_disk.watch(checkpoints));
        let prober = Prober::new();
        let probing = prober.clone().run(prober::Parts {
            runtime: runtime.clone(),
            clock: clock.clone(),
            recorder: recorder.clone(),
            metrics: prober::Metrics::new(&metrics.probes)?,
        });
        let shutdown_periods = description.shutdown_periods;
        let node_name = facts.now().node.metadata.name.clone();
        let server_mirrors = mirrors.clone();
        let features = facts.now().translation.features;
        let times_are_told = features.enabled(Gate::GracefulNodeShutdown)
            && features.enabled(Gate::GracefulNodeShutdownBasedOnPodPriority);
        let shutdown_times = match times_are_told {
            true => Some(shutdown::Times::register(&metrics.kubelet)?),
            false => None,
        };
        let pressure = Pressure::default();
        let image_gc = image_gc::Parts {
            node_name: node_name.clone(),
            runtime: runtime.clone(),
            clock: clock.clone(),
            signals: Arc::clone(&signals),
            statuses: statuses.clone(),
            recorder: recorder.clone(),
            kept: state_disk.watch(image_records),
            pulls,
            metrics: ImageGcMetrics::register(&metrics.kubelet)?,
        };
        let (readiness, keep_readiness) = Readiness::watch(runtime.clone(), facts.clone(), clock.clone());
        let gate = admission::Gate {
            facts: facts.clone(),
            pressure: pressure.clone(),
            sysctls: Arc::new(description.sysctls),
            app_armor: description.app_armor,
            exclusive: description.exclusive,
        };
        let node = Arc::new(Shared {
            runtime,
            clock: clock.clone(),
            host: Host { cgroups, files, volumes, users },
            objects,
            images: images.clone(),
            prober,
            turns: NodeTurns {
                starts: Turns::new(description.starts_at_once),
                stops: Turns::new(STOPS_AT_ONCE),
                looks: Turns::new(LOOKS_AT_ONCE),
            },
            reports: Reports { recorder: recorder.clone(), stories, statuses },
            checkpoints: checkpoint_writer.clone(),
            restored,
            first_mirrors: FirstMirrors::new(mirrors),
            admission: Admission::new(gate, clock.clone(), recorder.clone(), allocations.clone())
                .counted_in(AdmissionMetrics::register(&metrics.kubelet)?),
            allocations: allocations.clone(),
            readiness,
            strangers,
            facts,
            limits: PodLimits { restarts: description.restart_limits, pids: description.pod_pids_limit },
            container_gc: ContainerGc::new(description.container_gc),
            image_gc: Arc::new(ImageGc::new(image_gc, description.image_gc)),
            oom_kills: OomKills::default(),
            log_links: Arc::default(),
            metrics: Metrics::register(&metrics.kubelet)?,
        });

        register_pods(&metrics.kubelet, node.reports.statuses.clone(), node.metrics.working.clone());
        let (pods, ends, evictor) = Pods::new(Arc::clone(&node), tasks.clone());
        let eviction = eviction::Parts {
            node_name: node_name.clone(),
            signals,
            meter: usage,
            evictor: evictor.clone(),
            pressure: pressure.clone(),
            metrics: EvictionMetrics::register(&metrics.kubelet)?,
        };
        let eviction = EvictionManager::new(Arc::clone(&node), eviction, description.eviction);
        let agent = Agent {
            pressure,
            facts: node.facts.clone(),
            statuses: node.reports.statuses.clone(),
            stories: node.reports.stories.clone(),
            evictor,
            images: images.clone(),
            recorder: node.reports.recorder.clone(),
            readiness: node.readiness.clone(),
            observer: observer_status,
            sync_loop: pods.sync_loop(),
        };
        let shutdown = machine.filter(|_| !shutdown_periods.is_empty()).map(|machine| {
            let parts = shutdown::Parts {
                name: node_name.clone(),
                clock: node.clock.clone(),
                admission: node.admission.clone(),
                readiness: node.readiness.clone(),
                evictor: agent.evictor.clone(),
                statuses: agent.statuses.clone(),
                mirrors: server_mirrors,
                recorder: agent.recorder.clone(),
            };
            NodeShutdown::begin(shutdown_periods, machine, parts, shutdown_times)
        });
        if keeps_records {
            tasks.spawn(images.resume());
        }
        tasks.spawn(keep_readiness);
        tasks.spawn(node_cgroups.keep(node.admission.clone()));
        tasks.spawn(node.admission.clone().resolve_doubts());
        tasks.spawn(Arc::clone(&node.log_links).run(Arc::clone(&node.host.files)));
        if let Some(log) = kernel_log {
            let evictor = agent.evictor.clone();
            tasks.spawn(oom_watcher::watch(log, node_name.clone(), Arc::clone(&node), evictor));
        }
        tasks.spawn(eviction.run());
        tasks.spawn(Arc::clone(&node.image_gc).run());
        let (node_of_events, recorder) = (Involved::node(node_name), agent.recorder.clone());
        let listing = agent.observer.clone();
        let telling = container_gc::tell_of_failures(listing, node_of_events, recorder, clock.clone());
        // One task: it waits for what the observer says.
        tasks.spawn(async {
            tokio::join!(observer.run(), telling);
        });
        tasks.spawn(checkpoint_writer.run());
        tasks.spawn(allocations.run(state_disk));
        tasks.spawn(probing);
        let all = tasks.clone();
        tasks.spawn(async move {
            // A bus that hangs holds up nobody but pods.
            if let Some(shutdown) = shutdown {
                all.spawn(shutdown.await);
            }
            pods.run(ends, changes, events).await;
        });
        Ok(agent)
    }
}
