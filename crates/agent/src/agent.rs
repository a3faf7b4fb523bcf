//! The agent, put together: who does what on the node, and who tells whom.

use std::sync::Arc;

use crablet_cri::Runtime;
use crablet_cri::observer::{self, Observer, Status};
use crablet_host::cgroup::Cgroups;
use crablet_host::checkpoint::Checkpoints;
use crablet_host::clock::Clock;
use crablet_metrics::{RegisterError, Registries};
use crablet_volumes::Volumes;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Admission;
use crate::checkpoints::CheckpointWriter;
use crate::container_gc::ContainerGc;
use crate::images::{self, Images};
use crate::metrics::{AdmissionMetrics, ImageMetrics, Metrics, register_pods};
use crate::node_config::NodeConfig;
use crate::node_facts::{Facts, LiveFacts};
use crate::objects::Objects;
use crate::pod_files::PodFiles;
use crate::pods::{Evictor, Pods};
use crate::prober::{self, Prober};
use crate::qos_cgroups;
use crate::readiness::Readiness;
use crate::recorder::Recorder;
use crate::restored::Restored;
use crate::shared::{Host, NodeTurns, PodLimits, Reports, Shared};
use crate::sources::Changes;
use crate::statuses::Statuses;
use crate::story::Stories;
use crate::tasks::Tasks;
use crate::turns::Turns;
use crate::users::{Users, UsersError};

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
    /// The volumes of pods.
    pub volumes: Arc<dyn Volumes>,
    /// Where the checkpoints of pods are.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// The cluster's objects that pods refer to.
    pub objects: Arc<dyn Objects>,
    /// Who may pull and use which images.
    pub access: images::Access,
    /// Where what is counted is registered.
    pub metrics: Registries,
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
    /// Ends pods that the node cannot keep.
    pub evictor: Evictor,
    /// Who gets images.
    pub images: Images,
    /// Who tells what happens.
    pub recorder: Recorder,
    /// Whether the runtime and its network are ready.
    pub readiness: Readiness,
    /// How the observer of the runtime is.
    pub observer: watch::Receiver<Status>,
}

/// Why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The cgroups that all pods are below could not be made.
    #[error("cannot make the cgroups of pods")]
    Cgroups(#[from] crablet_host::cgroup::CgroupError),
    /// The checkpoints could not be read.
    #[error("cannot read the checkpoints of pods")]
    Checkpoints(#[from] crablet_host::checkpoint::CheckpointError),
    /// It could not be found out which users of the node belong to which pod.
    #[error("cannot tell which users of the node belong to which pod")]
    Users(#[from] UsersError),
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
        let Parts { runtime, clock, cgroups, files, volumes, checkpoints, objects, access, metrics } = parts;
        let users = Users::recall(description.user_ids, Arc::clone(&files)).await?;
        qos_cgroups::ensure(&*cgroups, None).await?;
        let restored = Restored::read(&*checkpoints).await?;

        let stories = Stories::new(clock.clone());
        let recorder = Recorder::new(clock.clone(), stories.clone());
        let keeps_records = access.records.is_some();
        let images =
            Images::new(runtime.clone(), access, recorder.clone(), clock.clone(), description.images)
                .counted_in(ImageMetrics::register(&metrics.kubelet)?);
        let (observer, events, observer_status) = Observer::new(runtime.clone());
        let seconds = clock.clone();
        let observer = observer.counted_in(observer::Metrics::register(&metrics.kubelet)?, move || {
            seconds.now().as_millisecond() as f64 / 1e3
        });
        let checkpoint_writer = CheckpointWriter::new(checkpoints);
        let statuses = Statuses::new();
        let prober = Prober::new();
        let probing = prober.clone().run(prober::Parts {
            runtime: runtime.clone(),
            clock: clock.clone(),
            recorder: recorder.clone(),
            metrics: prober::Metrics::new(&metrics.probes)?,
        });
        let facts = LiveFacts::new(Facts {
            node: description.node,
            translation: description.translation,
            status: description.status,
            handlers: None,
        });
        let (readiness, keep_readiness) = Readiness::watch(runtime.clone(), facts.clone());
        let node = Arc::new(Shared {
            runtime,
            clock,
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
            admission: Admission::new(facts.clone(), description.sysctls, description.app_armor, recorder)
                .counted_in(AdmissionMetrics::register(&metrics.kubelet)?),
            readiness,
            facts,
            limits: PodLimits { restarts: description.restart_limits, pids: description.pod_pids_limit },
            container_gc: ContainerGc::new(description.container_gc),
            metrics: Metrics::register(&metrics.kubelet)?,
        });

        register_pods(&metrics.kubelet, node.reports.statuses.clone(), node.metrics.working.clone());
        let (pods, ends, evictor) = Pods::new(Arc::clone(&node), tasks.clone());
        let agent = Agent {
            facts: node.facts.clone(),
            statuses: node.reports.statuses.clone(),
            stories: node.reports.stories.clone(),
            evictor,
            images: images.clone(),
            recorder: node.reports.recorder.clone(),
            readiness: node.readiness.clone(),
            observer: observer_status,
        };
        if keeps_records {
            tasks.spawn(images.resume());
        }
        tasks.spawn(keep_readiness);
        let cgroups = Arc::clone(&node.host.cgroups);
        tasks.spawn(qos_cgroups::keep_burstable_shares(node.admission.clone(), cgroups));
        tasks.spawn(observer.run());
        tasks.spawn(checkpoint_writer.run());
        tasks.spawn(probing);
        tasks.spawn(pods.run(ends, changes, events));
        Ok(agent)
    }
}
