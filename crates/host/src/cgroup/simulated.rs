//! Cgroups in memory, for tests of those who use them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use async_trait::async_trait;

use super::{
    CgroupDriver, CgroupError, CgroupName, Cgroups, Ensured, Layout, LevelLimits, Limits, PodCgroup,
};
use crate::simulation::{Fault, Simulated};

/// A kind of call of [`Cgroups`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    EnsureLevels,
    LimitExisting,
    Enter,
    Gather,
    EnsurePod,
    UpdatePod,
    PodLimits,
    PodMemoryUsage,
    PodProcesses,
    RemovePod,
    Pods,
}

/// Cgroups in memory. They do as the kernel's do, fail when told to, and can be looked at. Clones are the same cgroups,
/// so that an agent that starts again finds what the one before it left.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use crablet_host::cgroup::{Cgroups, Limits, Operation, PodCgroup, QosClass, SimulatedCgroups};
/// use crablet_host::simulation::Fault;
///
/// let cgroups = SimulatedCgroups::new();
/// let pod = PodCgroup::new(QosClass::Burstable, "1234").unwrap();
/// cgroups.plan(Some(Operation::EnsurePod), 1, Fault::Fails(std::io::ErrorKind::PermissionDenied));
/// assert!(cgroups.ensure_pod(&pod, &Limits::default()).await.is_err());
/// assert!(cgroups.ensure_pod(&pod, &Limits::default()).await.is_ok());
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct SimulatedCgroups {
    layout: Layout,
    simulated: Simulated<State, Operation>,
}

#[derive(Debug, Default)]
struct State {
    levels: Option<LevelLimits>,
    /// Cgroups that somebody else has made.
    others: BTreeMap<String, Limits>,
    /// Where the agent is, and the processes that stood nowhere.
    entered: Option<String>,
    gathered: Option<String>,
    pods: BTreeMap<PodCgroup, Pod>,
}

#[derive(Debug, Default)]
struct Pod {
    limits: Limits,
    processes: BTreeSet<u32>,
    /// Those that a signal does not end: they wait for a disk that does not answer.
    unkillable: BTreeSet<u32>,
    memory_usage: u64,
}

impl SimulatedCgroups {
    /// A machine without a single pod.
    pub fn new() -> SimulatedCgroups {
        let layout = Layout::new("", CgroupDriver::Cgroupfs);
        SimulatedCgroups { layout, simulated: Simulated::new(State::default()) }
    }

    /// Lets the nth call from now go wrong, counted from 1; of one kind, or of all.
    pub fn plan(&self, operation: Option<Operation>, nth: usize, fault: Fault) {
        self.simulated.plan(operation, nth, fault);
    }

    /// Completes when a planned crash happens.
    pub async fn crashed(&self) {
        self.simulated.crashed().await;
    }

    /// Lets calls return again after a crash. Processes live on: it is the agent that died.
    pub fn restart(&self) {
        self.simulated.restart();
    }

    /// The calls so far, in order.
    pub fn calls(&self) -> Vec<Operation> {
        self.simulated.calls()
    }

    /// What the levels above pods may use, if they were made.
    pub fn levels(&self) -> Option<LevelLimits> {
        self.simulated.state(|state| state.levels.clone())
    }

    /// Makes a cgroup that is not for pods.
    pub fn add_other(&self, cgroup: &str) {
        self.simulated.state(|state| _ = state.others.entry(cgroup.to_owned()).or_default());
    }

    /// Takes a cgroup that is not for pods away.
    pub fn remove_other(&self, cgroup: &str) {
        self.simulated.state(|state| _ = state.others.remove(cgroup));
    }

    /// The cgroups that the agent put itself into, and the processes that stood in none.
    pub fn places(&self) -> (Option<String>, Option<String>) {
        self.simulated.state(|state| (state.entered.clone(), state.gathered.clone()))
    }

    /// What a cgroup that is not for pods may use.
    pub fn other(&self, cgroup: &str) -> Option<Limits> {
        self.simulated.state(|state| state.others.get(cgroup).cloned())
    }

    /// The pods that have a cgroup, with the limits in force.
    pub fn limits(&self) -> BTreeMap<PodCgroup, Limits> {
        let limits = |(pod, it): (&PodCgroup, &Pod)| (pod.clone(), it.limits.clone());
        self.simulated.state(|state| state.pods.iter().map(limits).collect())
    }

    /// Puts a process into a pod's cgroup, which is made if need be. One that is not killable stays when the cgroup is
    /// to be removed.
    pub fn add_process(&self, pod: &PodCgroup, process: u32, killable: bool) {
        self.simulated.state(|state| {
            let pod = state.pods.entry(pod.clone()).or_default();
            pod.processes.insert(process);
            if !killable {
                pod.unkillable.insert(process);
            }
        });
    }

    /// Lets a process end by itself.
    pub fn end_process(&self, pod: &PodCgroup, process: u32) {
        self.simulated.state(|state| {
            if let Some(pod) = state.pods.get_mut(pod) {
                pod.processes.remove(&process);
                pod.unkillable.remove(&process);
            }
        });
    }

    /// Says how much memory a pod uses, if it has a cgroup.
    pub fn set_memory_usage(&self, pod: &PodCgroup, bytes: u64) {
        self.simulated.state(|state| {
            if let Some(pod) = state.pods.get_mut(pod) {
                pod.memory_usage = bytes;
            }
        });
    }

    fn path(&self, pod: &PodCgroup) -> PathBuf {
        self.pod_path(pod).into()
    }
}

impl Default for SimulatedCgroups {
    fn default() -> Self {
        SimulatedCgroups::new()
    }
}

/// The error of a limit that could not be set.
fn not_written(path: PathBuf) -> impl FnOnce(io::Error) -> CgroupError {
    |source| CgroupError::Write { path, value: "a limit".into(), source }
}

/// The error of something that could not be read.
fn not_read(path: PathBuf) -> impl FnOnce(io::Error) -> CgroupError {
    |source| CgroupError::Read { path, source }
}

/// A pod's state, or the error of one that is not there.
fn there(pod: Option<&Pod>, path: PathBuf) -> Result<&Pod, CgroupError> {
    pod.ok_or_else(|| not_read(path)(io::ErrorKind::NotFound.into()))
}

#[async_trait]
impl Cgroups for SimulatedCgroups {
    async fn ensure_levels(&self, limits: &LevelLimits) -> Result<(), CgroupError> {
        let path = self.layout.path(&self.layout.kubepods()).into();
        let effect = |state: &mut State| {
            let before = state.levels.take().unwrap_or_default();
            state.levels = Some(LevelLimits {
                node: before.node.changed_by(&limits.node),
                burstable: before.burstable.changed_by(&limits.burstable),
                best_effort: before.best_effort.changed_by(&limits.best_effort),
            });
            Ok(())
        };
        self.simulated.call(Operation::EnsureLevels, not_written(path), effect).await
    }

    async fn limit_existing(&self, cgroup: &str, limits: &Limits) -> Result<(), CgroupError> {
        let path = PathBuf::from(cgroup);
        let effect = |state: &mut State| match state.others.get_mut(cgroup) {
            Some(other) => {
                *other = other.changed_by(limits);
                Ok(())
            }
            None => Err(CgroupError::Missing { path: path.clone() }),
        };
        self.simulated.call(Operation::LimitExisting, not_written(path.clone()), effect).await
    }

    async fn enter(&self, cgroup: &str) -> Result<(), CgroupError> {
        let effect = |state: &mut State| {
            state.entered = Some(cgroup.to_owned());
            Ok(())
        };
        self.simulated.call(Operation::Enter, not_written(cgroup.into()), effect).await
    }

    async fn gather(&self, cgroup: &str) -> Result<(), CgroupError> {
        let effect = |state: &mut State| {
            state.gathered = Some(cgroup.to_owned());
            Ok(())
        };
        self.simulated.call(Operation::Gather, not_written(cgroup.into()), effect).await
    }

    async fn ensure_pod(&self, pod: &PodCgroup, limits: &Limits) -> Result<Ensured, CgroupError> {
        let failed = |source| CgroupError::Create { path: self.path(pod), source };
        let effect = |state: &mut State| match state.pods.contains_key(pod) {
            true => Ok(Ensured::Existed),
            false => {
                state.pods.insert(pod.clone(), Pod { limits: limits.clone(), ..Pod::default() });
                Ok(Ensured::Created)
            }
        };
        self.simulated.call(Operation::EnsurePod, failed, effect).await
    }

    async fn update_pod(&self, pod: &PodCgroup, limits: &Limits) -> Result<(), CgroupError> {
        let path = self.path(pod);
        let effect = |state: &mut State| match state.pods.get_mut(pod) {
            Some(pod) => {
                pod.limits = pod.limits.changed_by(limits);
                Ok(())
            }
            None => Err(not_written(path.clone())(io::ErrorKind::NotFound.into())),
        };
        self.simulated.call(Operation::UpdatePod, not_written(path.clone()), effect).await
    }

    async fn pod_limits(&self, pod: &PodCgroup) -> Result<Limits, CgroupError> {
        let path = self.path(pod);
        let effect =
            |state: &mut State| there(state.pods.get(pod), path.clone()).map(|pod| pod.limits.clone());
        self.simulated.call(Operation::PodLimits, not_read(path.clone()), effect).await
    }

    async fn pod_memory_usage(&self, pod: &PodCgroup) -> Result<u64, CgroupError> {
        let path = self.path(pod);
        let effect = |state: &mut State| there(state.pods.get(pod), path.clone()).map(|pod| pod.memory_usage);
        self.simulated.call(Operation::PodMemoryUsage, not_read(path.clone()), effect).await
    }

    async fn pod_processes(&self, pod: &PodCgroup) -> Result<Vec<u32>, CgroupError> {
        let effect = |state: &mut State| match state.pods.get(pod) {
            Some(pod) => Ok(pod.processes.iter().copied().collect()),
            None => Ok(Vec::new()),
        };
        self.simulated.call(Operation::PodProcesses, not_read(self.path(pod)), effect).await
    }

    async fn remove_pod(&self, pod: &PodCgroup) -> Result<(), CgroupError> {
        let path = self.path(pod);
        let effect = |state: &mut State| {
            if let Some(there) = state.pods.get_mut(pod) {
                there.processes = there.unkillable.clone();
                if !there.processes.is_empty() {
                    let processes = there.processes.iter().copied().collect();
                    return Err(CgroupError::Busy { path: path.clone(), processes });
                }
                state.pods.remove(pod);
            }
            Ok(())
        };
        let failed = |source| CgroupError::Remove { path: path.clone(), source };
        self.simulated.call(Operation::RemovePod, failed, effect).await
    }

    async fn pods(&self) -> Result<Vec<PodCgroup>, CgroupError> {
        let path = self.layout.path(&self.layout.kubepods()).into();
        let effect = |state: &mut State| Ok(state.pods.keys().cloned().collect());
        self.simulated.call(Operation::Pods, not_read(path), effect).await
    }

    fn pod_path(&self, pod: &PodCgroup) -> String {
        self.layout.path(&self.layout.pod(pod))
    }

    fn kubepods(&self) -> Option<CgroupName> {
        Some(self.layout.kubepods())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bound, QosClass};
    use super::*;

    fn pod(uid: &str) -> PodCgroup {
        PodCgroup::new(QosClass::Burstable, uid).unwrap()
    }

    #[tokio::test]
    async fn a_cgroup_that_is_there_keeps_its_limits_until_they_are_updated() {
        let cgroups = SimulatedCgroups::new();
        let small = Limits { memory: Some(Bound::At(1)), cpu_shares: Some(2), ..Limits::default() };
        let large = Limits { memory: Some(Bound::At(2)), ..Limits::default() };
        assert_eq!(cgroups.ensure_pod(&pod("a"), &small).await.unwrap(), Ensured::Created);
        assert_eq!(cgroups.ensure_pod(&pod("a"), &large).await.unwrap(), Ensured::Existed);
        assert_eq!(cgroups.pod_limits(&pod("a")).await.unwrap(), small);
        cgroups.update_pod(&pod("a"), &large).await.unwrap();
        assert_eq!(cgroups.limits()[&pod("a")], small.changed_by(&large));
        assert!(cgroups.update_pod(&pod("b"), &large).await.is_err());
    }

    #[tokio::test]
    async fn what_cannot_be_killed_keeps_the_cgroup() {
        let cgroups = SimulatedCgroups::new();
        cgroups.add_process(&pod("a"), 7, true);
        cgroups.add_process(&pod("a"), 8, false);
        let error = cgroups.remove_pod(&pod("a")).await.unwrap_err();
        assert!(matches!(error, CgroupError::Busy { ref processes, .. } if *processes == [8]), "{error}");
        assert_eq!(cgroups.pods().await.unwrap(), [pod("a")]);
        cgroups.end_process(&pod("a"), 8);
        cgroups.remove_pod(&pod("a")).await.unwrap();
        cgroups.remove_pod(&pod("a")).await.unwrap();
        assert_eq!(cgroups.pods().await.unwrap(), []);
    }

    #[tokio::test]
    async fn an_agent_that_starts_again_finds_what_the_one_before_left() {
        let cgroups = SimulatedCgroups::new();
        let (pod, limits) = (pod("a"), Limits::default());
        cgroups.plan(Some(Operation::EnsurePod), 1, Fault::CrashAfterEffect);
        tokio::select! {
            biased;
            _ = cgroups.ensure_pod(&pod, &limits) => panic!("returned"),
            () = cgroups.crashed() => {}
        }
        cgroups.restart();
        assert_eq!(cgroups.clone().pods().await.unwrap(), [pod]);
    }
}
