//! What all workers of a node share: its runtime, its disk, and those who own what belongs to several pods.

use std::sync::Arc;

use crablet_core::backoff::Limits;
use crablet_cri::Runtime;
use crablet_host::cgroup::{CgroupError, Cgroups};
use crablet_host::clock::Clock;
use crablet_volumes::Volumes;
use tokio::sync::Notify;

use crate::admission::Admission;
use crate::allocations::Allocations;
use crate::checkpoints::CheckpointWriter;
use crate::container_gc::ContainerGc;
use crate::image_gc::ImageGc;
use crate::images::Images;
use crate::log_links::LogLinks;
use crate::metrics::Metrics;
use crate::mirrors::FirstMirrors;
use crate::node_facts::LiveFacts;
use crate::objects::Objects;
use crate::oom_watcher::OomKills;
use crate::pod_files::PodFiles;
use crate::prober::Prober;
use crate::readiness::Readiness;
use crate::recorder::Recorder;
use crate::restored::Restored;
use crate::statuses::Statuses;
use crate::story::Stories;
use crate::turns::Turns;
use crate::users::Users;

/// What all workers share.
pub struct Shared {
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// The time.
    pub clock: Clock,
    /// What pods have on the machine beside what the runtime makes.
    pub host: Host,
    /// The cluster's objects that pods refer to.
    pub objects: Arc<dyn Objects>,
    /// Who gets images.
    pub images: Images,
    /// Who probes containers.
    pub prober: Prober,
    /// Who says how many do the same thing at the same time.
    pub turns: NodeTurns,
    /// Where others learn of pods.
    pub reports: Reports,
    /// Where the checkpoints of pods are.
    pub checkpoints: CheckpointWriter,
    /// The checkpoints that the agent before left.
    pub restored: Restored,
    /// What the API server showed of static pods when the agent began.
    pub(crate) first_mirrors: FirstMirrors,
    /// Who decides which pods the node takes, and which resources they get.
    pub admission: Admission,
    /// Where that is written down, with what pods were given.
    pub(crate) allocations: Allocations,
    /// Whether the runtime and its network are ready.
    pub readiness: Readiness,
    /// Told when something on the node belongs to no pod that is known.
    pub(crate) strangers: Arc<Notify>,
    /// What is known of the node, at its newest.
    pub facts: LiveFacts,
    /// What every pod is held to.
    pub limits: PodLimits,
    /// Who says which containers that ended are kept.
    pub(crate) container_gc: ContainerGc,
    /// Who removes images that nobody uses.
    pub(crate) image_gc: Arc<ImageGc>,
    /// Which containers ran out of memory.
    pub(crate) oom_kills: OomKills,
    /// Who removes the links to logs that are left of pods.
    pub(crate) log_links: Arc<LogLinks>,
    /// Where what happens to pods is counted.
    pub(crate) metrics: Metrics,
}

/// What pods have on the machine beside what the runtime makes.
pub struct Host {
    pub cgroups: Arc<dyn Cgroups>,
    /// Their directories and files.
    pub files: Arc<dyn PodFiles>,
    pub volumes: Arc<dyn Volumes>,
    /// Who says which users of the node are which pod's own.
    pub users: Users,
}

impl Host {
    /// Removes a pod's cgroup, on whichever level it is.
    pub(crate) async fn remove_cgroup(&self, uid: &str) -> Result<(), CgroupError> {
        let pods = self.cgroups.pods().await?;
        for pod in pods.iter().filter(|pod| pod.uid() == uid) {
            self.cgroups.remove_pod(pod).await?;
        }
        Ok(())
    }
}

/// Who says how many do the same thing at the same time.
pub struct NodeTurns {
    /// Making sandboxes and containers.
    pub starts: Turns,
    /// Stopping sandboxes, and removing sandboxes and containers. Containers are stopped when it is time, however many.
    pub stops: Turns,
    /// Looking at what the runtime knows of a pod.
    pub looks: Turns,
}

/// Where others learn of pods.
pub struct Reports {
    /// Who tells what happens to people.
    pub recorder: Recorder,
    /// What happened to each pod.
    pub stories: Stories,
    /// Every pod with its latest status.
    pub statuses: Statuses,
}

/// What every pod is held to.
pub struct PodLimits {
    /// The waits before restarts.
    pub restarts: Limits,
    /// How many processes a pod may have.
    pub pids: Option<u64>,
}
