//! A node whose pods have no cgroups of their own (`cgroupsPerQOS: false`).

use async_trait::async_trait;

use super::{CgroupError, CgroupName, Cgroups, Ensured, LevelLimits, Limits, PodCgroup};

/// The cgroups of such a node: those of the system and of Kubernetes' processes are as ever. The runtime puts containers
/// where it likes, so that nothing is made, limited or removed for pods.
pub struct OnlyOthers<C>(pub C);

#[async_trait]
impl<C: Cgroups> Cgroups for OnlyOthers<C> {
    async fn ensure_levels(&self, _: &LevelLimits) -> Result<(), CgroupError> {
        Ok(())
    }

    async fn limit_existing(&self, cgroup: &str, limits: &Limits) -> Result<(), CgroupError> {
        self.0.limit_existing(cgroup, limits).await
    }

    async fn enter(&self, cgroup: &str) -> Result<(), CgroupError> {
        self.0.enter(cgroup).await
    }

    async fn gather(&self, cgroup: &str) -> Result<(), CgroupError> {
        self.0.gather(cgroup).await
    }

    async fn ensure_pod(&self, _: &PodCgroup, _: &Limits) -> Result<Ensured, CgroupError> {
        Ok(Ensured::Existed)
    }

    async fn update_pod(&self, _: &PodCgroup, _: &Limits) -> Result<(), CgroupError> {
        Ok(())
    }

    async fn pod_limits(&self, _: &PodCgroup) -> Result<Limits, CgroupError> {
        Ok(Limits::default())
    }

    async fn pod_memory_usage(&self, _: &PodCgroup) -> Result<u64, CgroupError> {
        Ok(0)
    }

    async fn pod_processes(&self, _: &PodCgroup) -> Result<Vec<u32>, CgroupError> {
        Ok(Vec::new())
    }

    async fn remove_pod(&self, _: &PodCgroup) -> Result<(), CgroupError> {
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<PodCgroup>, CgroupError> {
        Ok(Vec::new())
    }

    fn pod_path(&self, _: &PodCgroup) -> String {
        String::new()
    }

    fn kubepods(&self) -> Option<CgroupName> {
        None
    }
}
