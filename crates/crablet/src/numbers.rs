//! What the node and its pods use, put together from the configuration: where it is read, and whom it asks.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use async_trait::async_trait;
use crablet_agent::eviction::UsageMeter;
use crablet_agent::node_config::cgroup_driver;
use crablet_agent::statuses::Statuses;
use crablet_config::Effective;
use crablet_core::eviction::{Resource, Usages};
use crablet_cri::Client;
use crablet_host::cgroup::{Hierarchy, Layout};
use crablet_host::machine::Machine;
use crablet_host::mounts::PROC_SELF_MOUNTINFO;
use crablet_logging::ErrorChain;
use crablet_metrics::{RegisterError, Registry};
use crablet_server::NodeHandles;
use crablet_stats::{CACHED_FOR, Parts, Settings, Stats, StatsError};
use crablet_volumes::Volumes;
use tracing::warn;

/// The pods of an agent that may not have begun yet.
pub(crate) type Pods = Arc<OnceLock<Statuses>>;

/// Who reads what the node uses. The names of images come from `pods`, as soon as there are any.
pub(crate) fn stats(
    effective: &Effective,
    node: &NodeHandles,
    runtime: Client,
    volumes: Arc<dyn Volumes>,
    pods: Pods,
) -> anyhow::Result<Stats> {
    let configuration = &effective.configuration;
    let settings = Settings {
        root: PathBuf::from("/"),
        node_name: node.name.clone(),
        root_dir: PathBuf::from(&*effective.flags.root_dir),
        pod_logs_dir: PathBuf::from(&*configuration.pod_logs_dir),
        hierarchy: Hierarchy::detect(Path::new(PROC_SELF_MOUNTINFO))
            .context("cannot tell how cgroups are mounted")?,
        layout: Layout::new(&configuration.cgroup_root, cgroup_driver(configuration)),
        machine: Machine::read(Path::new("/")).context("cannot tell what the machine is")?,
        kubelet_cgroup: configuration.kubelet_cgroups.to_string(),
        runtime_cgroup: effective.flags.runtime_cgroups.to_string(),
        system_cgroup: configuration.system_cgroups.to_string(),
        cached_for: CACHED_FOR,
    };
    let parts = Parts {
        runtime: Arc::new(runtime),
        volumes: Arc::new(volumes),
        clock: node.clock.clone(),
        images: Arc::new(move || pods.get().map(images).unwrap_or_default()),
    };
    Stats::new(settings, parts).context("cgroups of CPU and memory are not mounted")
}

/// Has the node's numbers answered from now on.
pub(crate) fn answer(node: &NodeHandles, stats: Stats) -> Result<(), RegisterError> {
    tell_provider(&node.metrics.kubelet)?;
    node.numbers.answered_by(stats);
    Ok(())
}

/// Tells the agent what its pods use.
pub(crate) struct Meter {
    stats: Stats,
    memory: Told,
    all: Told,
    on_disk: Told,
}

/// Whether people know that something cannot be told: they would read the same every ten seconds.
#[derive(Default)]
struct Told(AtomicBool);

impl Meter {
    pub(crate) fn new(stats: Stats) -> Meter {
        Meter { stats, memory: Told::default(), all: Told::default(), on_disk: Told::default() }
    }
}

impl Told {
    fn or_say(&self, usages: Result<Usages, StatsError>) -> Option<Usages> {
        let was_told = self.0.swap(usages.is_err(), Ordering::Relaxed);
        if let Err(error) = &usages
            && !was_told
        {
            warn!(err = %ErrorChain(error), "Cannot tell what pods use; trying on");
        }
        usages.ok()
    }
}

#[async_trait]
impl UsageMeter for Meter {
    async fn of_all(&self, resource: Resource) -> Option<Usages> {
        match resource {
            Resource::Memory => self.memory.or_say(self.stats.memory_usages().await),
            Resource::EphemeralStorage | Resource::Inodes | Resource::Pids => {
                self.all.or_say(self.stats.all_usages().await)
            }
        }
    }

    async fn on_disk(&self, uids: &BTreeSet<String>) -> Option<Usages> {
        self.on_disk.or_say(self.stats.disk_usages(uids).await)
    }
}

/// Has it told where the numbers of containers come from: they are read from their cgroups, as upstream's cAdvisor does.
fn tell_provider(metrics: &Registry) -> Result<(), RegisterError> {
    let name = "kubelet_metrics_provider";
    let help = "[ALPHA] Metrics provider used by kubelet to collect container stats. Values can be 'cadvisor' and 'cri'";
    metrics.gauge_family(name, help, ["provider"])?.with(["cadvisor"]).set(1.0);
    Ok(())
}

/// The images of containers as their pods' statuses name them, by the runtime's names for the containers.
fn images(statuses: &Statuses) -> HashMap<String, String> {
    let mut images = HashMap::new();
    for pod in statuses.list() {
        let status = &pod.status;
        let containers = status.container_statuses.iter().chain(&status.init_container_statuses);
        for container in containers.chain(&status.ephemeral_container_statuses) {
            if let Some((_, id)) = container.container_id.split_once("://") {
                images.insert(id.to_owned(), container.image.to_string());
            }
        }
    }
    images
}
