//! What pods use, for who has to decide which of them goes. It is read there and then, and told to nobody else.

use std::collections::BTreeSet;
use std::sync::Arc;

use crablet_core::eviction::{ContainerUsage, FsUsage, PodUsage, Usages};
use crablet_logging::ErrorChain;
use futures_util::future::try_join_all;
use tokio::time::timeout;
use tracing::debug;

use super::{Answer, Stats, StatsError};
use crate::cgroup::{Depth, Memory};
use crate::lister::{Names, PATIENCE};
use crate::runtime::Listing;
use crate::summarize::summarize;
use crate::summary::{FsStats, PodStats};
use crate::view::View;

/// Of no more pods than this the runtime is asked one by one how much they wrote.
const FEW: usize = 8;

impl Stats {
    /// The memory that pods have. The kernel tells it: a runtime that hangs because memory is short holds nobody up. It
    /// knows what a container is called, and not what its pod uses.
    pub async fn memory_usages(&self) -> Result<Usages, StatsError> {
        let (listing, names) = self.0.lister.list_or_remember().await;
        let (_, walk) = self.walk_now(Depth::CpuAndMemory, Arc::clone(&listing)).await?;
        let mut view = View::new(walk, listing, names);
        if names == Names::Told && view.lacks_some() {
            match timeout(PATIENCE, self.ask_runtime(&mut view)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    debug!(err = %ErrorChain(&error), "Containers without cgroups are left out")
                }
                Err(_) => {
                    debug!("Containers without cgroups are left out: the runtime does not tell in time")
                }
            }
        }
        let mut usages = self.usages(&view);
        for (uid, pod) in &view.walk.snapshot.pods {
            let memory = pod.group.sample.memory.as_ref().map(Memory::working_set);
            usages.entry(uid.clone()).or_insert_with(|| PodUsage { memory, ..PodUsage::default() });
        }
        // Where pods have no cgroups, only the runtime knows.
        match usages.is_empty() {
            true => Err(StatsError::NoUsages),
            false => Ok(usages),
        }
    }

    /// All that pods use.
    pub async fn all_usages(&self) -> Result<Usages, StatsError> {
        let (_, view) = self.collect_now(Answer::Summary).await?;
        Ok(self.usages(&view))
    }

    /// What these pods have on disk.
    pub async fn disk_usages(&self, uids: &BTreeSet<String>) -> Result<Usages, StatsError> {
        let all = self.0.lister.list().await?;
        let pods: Vec<_> = all.pods.iter().filter(|pod| uids.contains(&pod.uid)).cloned().collect();
        if pods.is_empty() {
            return Ok(Usages::new());
        }
        let listing = Arc::new(Listing { pods, past: Vec::new() });
        let (_, walk) = self.walk_now(Depth::CpuAndMemory, Arc::clone(&listing)).await?;
        let mut view = View::new(walk, Arc::clone(&listing), Names::Told);
        match listing.pods.len() <= FEW {
            true => {
                let runtime = &self.0.parts.runtime;
                let of_each = listing.pods.iter().map(|pod| runtime.container_stats(Some(&pod.sandbox)));
                let stats = try_join_all(of_each).await.map_err(StatsError::ContainerStats)?;
                self.take_runtime_stats(&mut view, stats.into_iter().flatten());
            }
            false => self.ask_runtime(&mut view).await?,
        }
        let (whole, storage) = tokio::join!(self.whole(&view), self.storage(&view));
        let mut whole = whole?;
        whole.storage = storage?;
        view.whole = Some(whole);
        Ok(self.usages(&view))
    }

    fn usages(&self, view: &View) -> Usages {
        let summary = summarize(view, &self.0.about);
        summary.pods.into_iter().map(|pod| (pod.pod_ref.uid.clone(), usage(pod))).collect()
    }
}

fn usage(pod: PodStats) -> PodUsage {
    let containers = pod.containers.into_iter().map(|container| ContainerUsage {
        name: container.name.into(),
        memory: container.memory.and_then(|memory| memory.working_set_bytes),
        rootfs: container.rootfs.as_ref().map(fs).unwrap_or_default(),
        logs: container.logs.as_ref().map(fs).unwrap_or_default(),
    });
    PodUsage {
        memory: pod.memory.and_then(|memory| memory.working_set_bytes),
        processes: pod.process_stats.map(|processes| processes.process_count),
        containers: containers.collect(),
        volumes: pod.volume.into_iter().map(|volume| (volume.name.into(), fs(&volume.fs))).collect(),
        ephemeral_storage: pod.ephemeral_storage.and_then(|storage| storage.used_bytes),
    }
}

fn fs(stats: &FsStats) -> FsUsage {
    FsUsage { bytes: stats.used_bytes, inodes: stats.inodes_used }
}
