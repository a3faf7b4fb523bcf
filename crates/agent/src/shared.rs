//! What all workers of a node share: its runtime, its disk, and those who own what belongs to several pods.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crablet_core::backoff::Limits;
use crablet_cri::Runtime;
use crablet_host::cgroup::{CgroupError, Cgroups};
use crablet_host::clock::Clock;
use crablet_volumes::Volumes;

use crate::admission::Admission;
use crate::checkpoints::CheckpointWriter;
use crate::container_gc::ContainerGc;
use crate::images::Images;
use crate::node_facts::LiveFacts;
use crate::objects::Objects;
use crate::pod_files::PodFiles;
use crate::prober::Prober;
use crate::readiness::Readiness;
use crate::recorder::Recorder;
use crate::statuses::Statuses;
use crate::story::Stories;
use crate::turns::Turns;
use crate::users::Users;
use crate::worker::Checkpoint;

/// What all workers share.
pub struct Shared {
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
    /// The cluster's objects that pods refer to.
    pub objects: Arc<dyn Objects>,
    /// Who gets images.
    pub images: Images,
    /// Who probes containers.
    pub prober: Prober,
    /// Who says how many sandboxes and containers are made at the same time.
    pub starts: Turns,
    /// Who says how many sandboxes are stopped, and sandboxes and containers removed, at the same time. Containers are
    /// stopped when it is time, however many.
    pub stops: Turns,
    /// Who says how many look at what the runtime knows of their pod at the same time.
    pub looks: Turns,
    /// Who tells what happens to people.
    pub recorder: Recorder,
    /// What happened to each pod.
    pub stories: Stories,
    /// Every pod with its latest status.
    pub statuses: Statuses,
    /// Where the checkpoints of pods are.
    pub checkpoints: CheckpointWriter,
    /// Who decides which pods the node takes.
    pub admission: Admission,
    /// Who says which users of the node are which pod's own.
    pub users: Users,
    /// Whether the runtime and its network are ready.
    pub readiness: Readiness,
    /// What is known of the node, at its newest.
    pub facts: LiveFacts,
    /// The waits before restarts.
    pub restart_limits: Limits,
    /// How many processes a pod may have.
    pub pod_pids_limit: Option<u64>,
    /// Who says which containers that ended are kept.
    pub(crate) container_gc: ContainerGc,
    /// The checkpoints that the agent before left, by UID.
    pub restored: Mutex<BTreeMap<String, Checkpoint>>,
}

impl Shared {
    /// The checkpoint that the agent before left of a pod. It is told once.
    pub(crate) fn take_checkpoint(&self, uid: &str) -> Option<Checkpoint> {
        self.restored().remove(uid)
    }

    /// The UIDs of pods that the agent before wrote something down of, and that nobody asked about yet.
    pub(crate) fn restored_uids(&self) -> Vec<String> {
        self.restored().keys().cloned().collect()
    }

    /// The checkpoints that the agent before left and nobody asked about yet.
    pub(crate) fn restored(&self) -> MutexGuard<'_, BTreeMap<String, Checkpoint>> {
        self.restored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a pod's cgroup, on whichever level it is.
    pub(crate) async fn remove_cgroup(&self, uid: &str) -> Result<(), CgroupError> {
        let pods = self.cgroups.pods().await?;
        for pod in pods.iter().filter(|pod| pod.uid() == uid) {
            self.cgroups.remove_pod(pod).await?;
        }
        Ok(())
    }
}
