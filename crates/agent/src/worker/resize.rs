//! Resources that change while a pod runs: granted by the node, then given to its containers.

use std::borrow::Cow;
use std::sync::Arc;

use crablet_api::core::{Container, Pod};
use crablet_api::meta::Time;
use crablet_api::{FeatureGates, Gate};
use crablet_core::plan::Update;
use crablet_core::pod_cgroup::PodResources;
use crablet_core::resize::conditions::{Conditions, PendingReason};
use crablet_core::resize::decision::undeclared;
use crablet_core::resize::{self, PodResourceInfo, message, sandbox};
use crablet_core::status;
use crablet_core::translate::{container_resources, go_quote, overhead_resources, pod_description};
use crablet_cri::Error;
use crablet_cri_api::{ContainerState, v1};
use crablet_host::cgroup::{Bound, CgroupError, CpuBandwidth, Limits, shares_of_weight, weight_of_shares};
use crablet_host::checkpoint::CheckpointError;
use tokio::time::Instant;

use crate::admission::{Resized, Wish};
use crate::metrics::CgroupChange;
use crate::recorder::reason;
use crate::shared::Shared;
use crate::story::State;
use crate::worker::Worker;
use crate::worker::retry::What;
use crate::worker::runtime_config::PodCgroupError;

/// What the node granted of what a pod asks for, and what was given of it.
pub(super) struct Allocation {
    /// The pod with the resources that the node granted: what containers get. Shared with what is wanted where it is no
    /// other.
    pub(super) pod: Arc<Pod>,
    /// What containers, and the pod as a whole, were given last, where it is not what is allocated.
    given: Option<Box<PodResourceInfo>>,
    pub(super) cgroup: CgroupState,
    /// Whether the runtime may not know what the pod as a whole is to have.
    pub(super) sandbox_is_behind: bool,
    pub(super) conditions: Conditions,
    /// What was granted, in the form in which it was asked for, and was not told yet: it may not be on disk.
    granted: Option<Arc<Pod>>,
    /// When to ask again for what was not granted.
    pub(super) retry_at: Option<Instant>,
}

/// Whether the pod's cgroup has what is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupState {
    /// It had when it was made, by this agent or another, and nobody was giving it anything else since, as far as is known.
    Unknown,
    Fits,
    /// Something else was granted since.
    Behind,
}

impl Allocation {
    /// What the node granted a pod before, and nothing given yet.
    pub(super) fn new(node: &Shared, pod: &Arc<Pod>) -> Allocation {
        let granted = node.admission.allocated(&pod.metadata.uid);
        Allocation {
            pod: granted.unwrap_or_else(|| Arc::clone(pod)),
            given: None,
            cgroup: CgroupState::Unknown,
            sandbox_is_behind: false,
            conditions: Conditions::default(),
            granted: None,
            retry_at: None,
        }
    }

    /// What containers, and the pod as a whole, were given last.
    pub(super) fn actuated(&self, features: &FeatureGates) -> Cow<'_, PodResourceInfo> {
        match &self.given {
            Some(given) => Cow::Borrowed(&**given),
            None => Cow::Owned(PodResourceInfo::given_by(&self.pod, features)),
        }
    }

    /// They were given something.
    fn give(&mut self, features: &FeatureGates, change: impl FnOnce(&mut PodResourceInfo)) {
        let mut given = self.actuated(features).into_owned();
        change(&mut given);
        self.given = (given != PodResourceInfo::given_by(&self.pod, features)).then(|| Box::new(given));
    }

    /// Something else is allocated from now on. What was given stays as it was.
    fn follow(&mut self, pod: Arc<Pod>, features: &FeatureGates) {
        let given = self.actuated(features).into_owned();
        self.pod = pod;
        self.given = (given != PodResourceInfo::given_by(&self.pod, features)).then(|| Box::new(given));
    }
}

/// Why a pod has not got its new resources: in upstream's words, which its condition and an event carry.
#[derive(Debug, thiserror::Error)]
enum ResizeError {
    #[error("its cgroup: {0}")]
    Cgroup(#[from] PodCgroupError),
    #[error("{}", error.in_go_words())]
    Container { name: String, error: Error },
    #[error(transparent)]
    Disk(#[from] NotWritten),
    #[error(
        "failed to notify runtime for UpdatePodSandboxResources (resource={resource}); resize rejected: \
         updatePodSandboxResources failed for sanboxID {}: {}",
        go_quote(id),
        error.in_go_words()
    )]
    Sandbox { resource: &'static str, id: String, error: Error },
    #[error("cannot decrease memory limits: {0}")]
    MemoryInUse(String),
    #[error("unable to read memory usage for pod {}", go_quote(pod))]
    MemoryUsage { pod: String, source: MemoryUsageError },
}

/// Why it is not known how much memory something uses.
#[derive(Debug, thiserror::Error)]
enum MemoryUsageError {
    #[error(transparent)]
    Pod(#[from] CgroupError),
    #[error("container {name}: {source}")]
    Container { name: String, source: Error },
}

impl ResizeError {
    /// With what the condition does not say.
    fn in_full(&self) -> String {
        match self {
            ResizeError::Container { name, error } => format!("container {name}: {error}"),
            ResizeError::MemoryUsage { source, .. } => format!("{self}: {source}"),
            ResizeError::Cgroup(_)
            | ResizeError::Disk(_)
            | ResizeError::Sandbox { .. }
            | ResizeError::MemoryInUse(_) => self.to_string(),
        }
    }
}

/// What is allocated to a pod, or was given to it, is not on disk: nothing may stand on it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot write down what is allocated to it: {0}")]
pub(super) struct NotWritten(Arc<CheckpointError>);

impl Worker {
    /// Goes on from what the agent before wrote down.
    pub(super) fn recall_allocation(&mut self) {
        self.allocation.conditions = Conditions::of(&self.status);
        if let Some(known) = self.node.allocations.actuated(&self.owner.uid) {
            let features = self.features();
            self.allocation.give(&features, |given| *given = known);
        }
        if self.allocation.conditions.is_in_progress() {
            self.allocation.cgroup = CgroupState::Behind;
        }
        let features = self.features();
        let actuated = self.allocation.actuated(&features);
        let had = actuated.applied_to(&self.allocation.pod, &features);
        self.allocation.sandbox_is_behind = self.allocation.conditions.is_in_progress()
            || actuated.is_changing()
            || self.is_for_sandbox(&had, &self.allocation.pod);
    }

    /// Whether the runtime has to be told when a pod has what the other form of it has.
    fn is_for_sandbox(&self, before: &Pod, after: &Pod) -> bool {
        self.cgroup_of(before) != self.cgroup_of(after)
    }

    /// The pod is wanted in another form.
    pub(super) fn note_wish(&self, pod: &Pod) {
        let features = self.features();
        self.node.metrics.resizes.asked(&self.pod, pod, &features);
        let missing: Vec<_> = undeclared(&self.pod, pod, &features).into_iter().map(Gate::name).collect();
        if !missing.is_empty() {
            let message =
                format!("Pod requires node features that are not available: {}", missing.join(", "));
            self.warn_pod(reason::FAILED_NODE_DECLARED_FEATURES_CHECK, &message);
        }
    }

    /// Has the node grant what the pod asks for by now. What it grants is on disk before anything stands on it.
    pub(super) async fn allocate(&mut self) {
        let features = self.features();
        self.know_what_was_given(&features);
        let Some(resized) = self.node.admission.resized(&self.pod) else {
            // It counts no more, since it ends.
            self.keep_allocation(&features);
            self.allocation.retry_at = None;
            return;
        };
        let Resized { allocated, granted, wish, still_counts, retry_at } = resized;
        self.allocation.retry_at = retry_at;
        if granted.is_some() {
            self.allocation.granted = granted;
        }
        if self.allocation.granted.is_some()
            && let Err(error) = self.write_allocations().await
        {
            self.story.headline(State::Blocked, format_args!("it cannot be resized: {error}"));
            self.keep_allocation(&features);
            self.allocation.retry_at = Some(self.retries.failed(What::Resize));
            return;
        }
        if !Arc::ptr_eq(&self.allocation.pod, &allocated) {
            self.allocation.sandbox_is_behind |= self.is_for_sandbox(&self.allocation.pod, &allocated);
            self.allocation.follow(allocated, &features);
        }
        let actuated = self.allocation.actuated(&features);
        if resize::pod_level_differs(&self.allocation.pod, &actuated, &features) {
            self.allocation.cgroup = CgroupState::Behind;
        }
        self.tell_grant(&wish);
        if self.tell_progress() {
            if self.allocation.actuated(&features).is_changing() {
                // It came about by the way, as by a container's start.
                self.allocation.give(&features, PodResourceInfo::end_change);
                self.note_actuated();
            }
            if still_counts {
                self.node.admission.has_what_is_allocated(&self.allocation.pod);
            }
        }
    }

    /// The pod has what it had, in whatever form it is wanted by now.
    fn keep_allocation(&mut self, features: &FeatureGates) {
        let had = PodResourceInfo::of(&self.allocation.pod, features);
        self.allocation.pod = had.applied_to(&self.pod, features);
    }

    fn time(&self) -> Time {
        Time::from(self.node.clock.now())
    }

    /// Says whether what the pod asks for was granted. It may ask for something else by now.
    fn tell_grant(&mut self, wish: &Wish) {
        let now = self.time();
        if let Some(granted) = self.allocation.granted.take() {
            let generation = granted.metadata.generation;
            self.retries.release(&What::Resize);
            self.allocation.cgroup = CgroupState::Behind;
            self.allocation.conditions.start(generation, now);
            self.say(None, reason::RESIZE_STARTED, &message::started(&granted, generation));
        }
        match wish {
            Wish::Pending { wanted, generation, why } => {
                if self.allocation.conditions.wait(why, *generation, now) {
                    let reason = match why.reason {
                        PendingReason::Deferred => reason::RESIZE_DEFERRED,
                        PendingReason::Infeasible => reason::RESIZE_INFEASIBLE,
                    };
                    self.warn_pod(reason, &message::pending(wanted, *generation, why));
                }
            }
            Wish::Undecided => {}
            Wish::Granted => self.allocation.conditions.wait_no_longer(),
        }
    }

    /// Says whether everything has what is allocated, and what became of it.
    fn tell_progress(&mut self) -> bool {
        let (features, allocation) = (self.features(), &self.allocation);
        let goes_on = allocation.cgroup == CgroupState::Behind || {
            let actuated = allocation.actuated(&features);
            resize::is_in_progress(&allocation.pod, &actuated, &self.observed, &features)
        };
        if goes_on {
            // An agent may have died before it told that it goes on.
            self.allocation.cgroup = match self.allocation.cgroup {
                CgroupState::Unknown | CgroupState::Behind => CgroupState::Behind,
                CgroupState::Fits => CgroupState::Fits,
            };
            let now = self.time();
            self.allocation.conditions.go_on(self.pod.metadata.generation, now);
        } else if let Some(generation) = self.allocation.conditions.finish() {
            let message = message::completed(&self.allocation.pod, generation);
            self.say(None, reason::RESIZE_COMPLETED, &message);
        }
        !goes_on
    }

    /// Containers whose resources no agent wrote down have what was allocated until now.
    fn know_what_was_given(&mut self, features: &FeatureGates) {
        let (pod, observed) = (Arc::clone(&self.allocation.pod), Arc::clone(&self.observed));
        let running = observed.containers().iter().filter(|run| run.state == ContainerState::Running);
        for container in running.filter_map(|run| pod.spec.find_container(&run.name)) {
            let given = self.allocation.given.as_ref();
            if given.is_some_and(|given| given.get(&container.name).is_none()) {
                let resources = resize::effective(&pod, container, features).into_owned();
                self.allocation.give(features, |given| given.set(&container.name, resources));
            }
        }
    }

    fn features(&self) -> FeatureGates {
        self.node.facts.now().translation.features
    }

    /// The pod's cgroup has what is allocated.
    pub(super) fn note_cgroup(&mut self) {
        let features = self.features();
        self.allocation.cgroup = CgroupState::Fits;
        let whole = resize::whole(&self.allocation.pod, &features).cloned();
        self.allocation.give(&features, |given| given.set_pod_level(whole));
    }

    /// What the pod's cgroup has, from what was given.
    pub(super) fn pod_cgroup(&self, actuated: &PodResourceInfo) -> status::PodCgroup {
        let had = actuated.applied_to(&self.allocation.pod, &self.features());
        let (resources, period) = self.cgroup_of(&had);
        status::PodCgroup::new(&resources, period)
    }

    /// Has it written down what was given.
    pub(super) fn note_actuated(&self) {
        let actuated = self.allocation.actuated(&self.features());
        self.node.allocations.set_actuated(&self.owner.uid, &actuated);
    }

    /// A container is about to be made from what is allocated to it. That is on disk when this returns.
    pub(super) async fn note_given(&mut self, container: &Container) -> Result<(), NotWritten> {
        let features = self.features();
        let resources = resize::effective(&self.allocation.pod, container, &features).into_owned();
        self.allocation.give(&features, |given| given.set(&container.name, resources));
        self.note_actuated();
        self.write_allocations().await
    }

    /// Waits until what was granted, and what was given, is on disk.
    async fn write_allocations(&mut self) -> Result<(), NotWritten> {
        let (node, began) = (Arc::clone(&self.node), Instant::now());
        let written = self.see_through(node.allocations.written()).await.map_err(NotWritten);
        written.inspect_err(|error| self.story.failed("disk", began.elapsed(), format_args!("{error}")))
    }

    /// A container of the pod, with the resources that are allocated to it.
    pub(super) fn with_allocated(&self, container: &Container) -> Container {
        let resources = resize::allocated(&self.allocation.pod, container).resources.clone();
        Container { resources, ..container.clone() }
    }

    /// Sees to it that the pod's cgroup has room for what is allocated by now, before a container is started in it. It
    /// shrinks when it is known that everybody fits.
    pub(super) async fn fit_cgroup(&mut self) -> Result<(), PodCgroupError> {
        match self.allocation.cgroup {
            // The runtime would make one that somebody removed, and without limits.
            CgroupState::Fits => self.keep_cgroup().await,
            CgroupState::Unknown => self.make_cgroup().await,
            CgroupState::Behind => {
                self.keep_cgroup().await?;
                self.grow_cgroup().await
            }
        }
    }

    /// Whether something but containers has to follow what was granted.
    pub(super) fn is_behind(&self) -> bool {
        self.allocation.cgroup == CgroupState::Behind
    }

    /// Gives containers other resources, and the pod as a whole. What fails is tried again a while later, and the answer
    /// is when: the order matters.
    pub(super) async fn resize(&mut self, updates: &[Update]) -> Option<Instant> {
        if let Some(until) = self.retries.held(&What::Resize) {
            return Some(until);
        }
        let began = Instant::now();
        let resized = self.try_to_resize(updates).await;
        self.node.metrics.resizes.done(resized.is_ok(), began.elapsed());
        match resized {
            Ok(()) => {
                self.retries.worked(&What::Resize);
                self.story.step("resize", began.elapsed(), format_args!("gave containers other resources"));
                None
            }
            Err(error) => {
                self.story.failed("resize", began.elapsed(), format_args!("{}", error.in_full()));
                let (generation, now, error) = (self.pod.metadata.generation, self.time(), error.to_string());
                if let Some(generation) = self.allocation.conditions.fail(&error, generation, now) {
                    let message = message::failed(&self.allocation.pod, generation, &error);
                    self.warn_pod(reason::RESIZE_ERROR, &message);
                }
                self.show(self.make_status(false));
                Some(self.retries.failed(What::Resize))
            }
        }
    }

    /// The pod's cgroup grows before its containers do and shrinks after them: they always fit into it. The runtime is told
    /// just before either, and may refuse.
    async fn try_to_resize(&mut self, updates: &[Update]) -> Result<(), ResizeError> {
        self.allocation.cgroup = CgroupState::Behind;
        self.keep_cgroup().await?;
        let current = self.current_limits().await?;
        self.check_memory(updates, &current).await?;
        let larger = larger_of(&current, &self.cgroup_limits());
        let is_told = self.tell_larger(&current, &larger).await?;
        let grown = self.begin_resize(updates, &larger).await;
        if grown.is_err() && is_told {
            self.tell_again(&current).await;
        }
        grown?;
        for update in updates {
            let Some(container) = self.pod.spec.find_container(&update.name) else { continue };
            let container = Container { resources: update.resources.clone(), ..container.clone() };
            let facts = self.node.facts.now();
            let linux = container_resources(&self.allocation.pod, &container, &facts.translation, false);
            let request = v1::UpdateContainerResourcesRequest {
                container_id: update.id.clone(),
                linux: Some(linux),
                ..v1::UpdateContainerResourcesRequest::default()
            };
            let (node, features) = (Arc::clone(&self.node), self.features());
            // A call that fails may have worked.
            self.allocation.give(&features, |given| {
                let known = given.get(&update.name).cloned().unwrap_or_default();
                given.set(&update.name, update.under_way(known));
            });
            let result = self.see_through(node.runtime.update_container_resources(request)).await;
            result.map_err(|error| ResizeError::Container { name: update.name.to_string(), error })?;
            self.allocation.give(&features, |given| given.set(&update.name, container.resources));
        }
        let is_told = self.tell_wanted(&larger, is_told).await?;
        let made = self.make_cgroup().await;
        if made.is_err() && is_told {
            self.tell_again(&larger).await;
        }
        made?;
        self.allocation.sandbox_is_behind = false;
        let features = self.features();
        self.allocation.give(&features, PodResourceInfo::end_change);
        // Nobody else remembers: the runtime rounds, and does not know how much memory was asked for.
        self.note_actuated();
        Ok(())
    }

    /// Writes down what is being changed, and has the pod's cgroup grow. Nothing has changed before.
    async fn begin_resize(&mut self, updates: &[Update], larger: &Limits) -> Result<(), ResizeError> {
        self.note_under_way(updates).await?;
        Ok(self.write_larger(larger).await?)
    }

    /// Memory that is in use cannot be taken away: version 1 of cgroups refuses, and version 2 has a process killed.
    async fn check_memory(&mut self, updates: &[Update], current: &Limits) -> Result<(), ResizeError> {
        let mut refused = Vec::new();
        if let Some((wanted, used)) = self.too_little_for_pod(current).await? {
            refused
                .push(format!("attempting to set pod memory limit ({wanted}) below current usage ({used})"));
        }
        for update in updates {
            let Some(wanted) = update.less_memory.map(i64::unsigned_abs) else { continue };
            let node = Arc::clone(&self.node);
            let used = self.see_through(node.runtime.container_memory(&update.id)).await;
            let name = update.name.to_string();
            let used = used
                .map_err(|source| self.memory_usage_unknown(MemoryUsageError::Container { name, source }))?;
            refused.extend(too_little(&update.name, wanted, used));
        }
        match refused.as_slice() {
            [] => Ok(()),
            [one] => Err(ResizeError::MemoryInUse(one.clone())),
            all => Err(ResizeError::MemoryInUse(format!("[{}]", all.join(", ")))),
        }
    }

    /// Writes down that it is not known what is being changed, until all of it is: what is asked for may change back, and
    /// an agent that comes then would take it for what was given. It gives it again. The most that it may be counts.
    async fn note_under_way(&mut self, updates: &[Update]) -> Result<(), ResizeError> {
        let features = self.features();
        let allocated = Arc::clone(&self.allocation.pod);
        self.allocation.give(&features, |given| given.begin_change(&allocated, &features));
        let mut known = self.allocation.actuated(&features).into_owned();
        for update in updates {
            let resources = known.get(&update.name).cloned().unwrap_or_default();
            known.set(&update.name, update.under_way(resources));
        }
        known.set_pod_level(None);
        self.node.allocations.set_actuated(&self.owner.uid, &known);
        Ok(self.write_allocations().await?)
    }

    /// Tells the runtime what the pod's cgroup has while its containers change, where that is more than it has now. Says
    /// whether it was told.
    async fn tell_larger(&mut self, current: &Limits, larger: &Limits) -> Result<bool, ResizeError> {
        let Some(resource) = grows(current, larger).filter(|_| self.allocation.sandbox_is_behind) else {
            return Ok(false);
        };
        let resources = as_told(larger, self.cgroup_of(&self.allocation.pod).0);
        self.tell_sandbox(resource, &resources).await?;
        Ok(true)
    }

    /// Tells the runtime what the pod as a whole has from now on, where it was not told that already. Says whether it was
    /// told.
    async fn tell_wanted(&mut self, larger: &Limits, is_larger_told: bool) -> Result<bool, ResizeError> {
        let wanted = self.cgroup_of(&self.allocation.pod).0;
        let told = as_told(larger, wanted.clone());
        if !self.allocation.sandbox_is_behind || (is_larger_told && told == wanted) {
            return Ok(false);
        }
        let resource = if told.memory == wanted.memory { "cpu" } else { "memory" };
        self.tell_sandbox(resource, &wanted).await?;
        Ok(true)
    }

    /// Tells the runtime that the pod's cgroup stayed as it is.
    async fn tell_again(&mut self, current: &Limits) {
        let resources = as_told(current, self.cgroup_of(&self.allocation.pod).0);
        let began = Instant::now();
        if let Err(error) = self.tell_sandbox("memory", &resources).await {
            let what =
                format_args!("the runtime does not know that the pod's cgroup stayed as it was: {error}");
            self.story.failed("resize", began.elapsed(), what);
        }
    }

    async fn tell_sandbox(
        &mut self,
        resource: &'static str,
        resources: &PodResources,
    ) -> Result<(), ResizeError> {
        let Some(sandbox) = self.observed.active_sandbox() else { return Ok(()) };
        let (facts, pod) = (self.node.facts.now(), &self.allocation.pod);
        let period = facts.translation.settings.cpu_cfs_quota_period;
        let id = sandbox.id.clone();
        let request = v1::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: id.clone(),
            overhead: Some(overhead_resources(pod, &facts.translation)),
            resources: Some(sandbox::limits(resources, period, &pod.spec.overhead)),
        };
        let node = Arc::clone(&self.node);
        let told = self.see_through(node.runtime.update_sandbox_resources(request)).await;
        told.map_err(|error| ResizeError::Sandbox { resource, id, error })
    }

    /// What the pod's cgroup is to have of memory, and what is used, where that is more.
    async fn too_little_for_pod(&mut self, current: &Limits) -> Result<Option<(u64, u64)>, ResizeError> {
        let Some(Bound::At(wanted)) = self.cgroup_limits().memory else { return Ok(None) };
        let (cgroup, node) = (self.cgroup().map_err(PodCgroupError::from)?, Arc::clone(&self.node));
        let shrinks = match current.memory {
            Some(Bound::At(current)) => wanted < current,
            Some(Bound::Unlimited) | None => true,
        };
        if !shrinks {
            return Ok(None);
        }
        let used = self.see_through(node.host.cgroups.pod_memory_usage(&cgroup)).await;
        let used = used.map_err(|error| self.memory_usage_unknown(error.into()))?;
        Ok((used >= wanted).then_some((wanted, used)))
    }

    fn memory_usage_unknown(&self, source: MemoryUsageError) -> ResizeError {
        ResizeError::MemoryUsage { pod: pod_description(&self.pod), source }
    }

    async fn current_limits(&mut self) -> Result<Limits, PodCgroupError> {
        let (cgroup, node) = (self.cgroup()?, Arc::clone(&self.node));
        Ok(self.see_through(node.host.cgroups.pod_limits(&cgroup)).await?)
    }

    async fn grow_cgroup(&mut self) -> Result<(), PodCgroupError> {
        let larger = larger_of(&self.current_limits().await?, &self.cgroup_limits());
        self.write_larger(&larger).await
    }

    async fn write_larger(&mut self, larger: &Limits) -> Result<(), PodCgroupError> {
        let (cgroup, node) = (self.cgroup()?, Arc::clone(&self.node));
        let write = async {
            let begun = Instant::now();
            let written = node.host.cgroups.update_pod(&cgroup, larger).await;
            node.metrics.changed_cgroup(CgroupChange::Update, begun.elapsed());
            written
        };
        Ok(self.see_through(write).await?)
    }
}

/// What speaks against so much memory for a container: it uses that, or it is not known how much it uses.
fn too_little(container: &str, wanted: u64, used: Option<u64>) -> Option<String> {
    let name = go_quote(container);
    match used {
        Some(used) if used >= wanted => Some(format!(
            "attempting to set container {name} memory limit ({wanted}) below current usage ({used})"
        )),
        Some(_) => None,
        None => Some(format!("missing container {name} memory usage")),
    }
}

/// What can be resized, each as large as in either. What has no limit yet gets one afterwards.
fn larger_of(current: &Limits, wanted: &Limits) -> Limits {
    let cpu_bandwidth = match (current.cpu_bandwidth, wanted.cpu_bandwidth) {
        (Some(current), Some(wanted)) => {
            Some(CpuBandwidth { quota: current.quota.max(wanted.quota), period: wanted.period })
        }
        (Some(_) | None, _) => None,
    };
    let memory = current.memory.zip(wanted.memory).map(|(current, wanted)| current.max(wanted));
    Limits {
        cpu_shares: current.cpu_shares.max(wanted.cpu_shares),
        cpu_bandwidth,
        memory,
        ..Limits::default()
    }
}

/// Which resource a cgroup gets more of, if it does: memory where it is more than one, which upstream changes first.
fn grows(current: &Limits, larger: &Limits) -> Option<&'static str> {
    let is_more = |(current, larger): (Bound, Bound)| larger > current;
    if current.memory.zip(larger.memory).is_some_and(is_more) {
        return Some("memory");
    }
    let quotas = current.cpu_bandwidth.zip(larger.cpu_bandwidth);
    let is_longer = quotas.is_some_and(|(current, larger)| is_more((current.quota, larger.quota)));
    // A cgroup does not tell the same shares as were written, but those of its weight.
    let shares = current.cpu_shares.zip(larger.cpu_shares);
    let weighs_more =
        shares.is_some_and(|(current, larger)| shares_of_weight(weight_of_shares(larger)) > current);
    (is_longer || weighs_more).then_some("cpu")
}

/// Limits of a pod's cgroup in the form in which the runtime is told of them. What they do not say is as it is wanted.
fn as_told(limits: &Limits, wanted: PodResources) -> PodResources {
    let amount = |bound| match bound {
        Bound::At(amount) => Some(amount),
        Bound::Unlimited => None,
    };
    let quota = |bound| amount(bound).map_or(-1, |quota| i64::try_from(quota).unwrap_or(i64::MAX));
    PodResources {
        cpu_shares: limits.cpu_shares.unwrap_or(wanted.cpu_shares),
        cpu_quota: match limits.cpu_bandwidth {
            Some(bandwidth) => Some(quota(bandwidth.quota)),
            None => wanted.cpu_quota,
        },
        memory: limits.memory.map_or(wanted.memory, amount),
        ..wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_not_taken_from_a_container_that_uses_it_or_may() {
        let said = |used| too_little("c", 5, used).unwrap_or_default();
        let in_use = "attempting to set container \"c\" memory limit (5) below current usage (5)";
        assert_eq!([Some(4), Some(5), None].map(said), ["", in_use, "missing container \"c\" memory usage"]);
    }

    fn limits(shares: u64, quota: Bound, memory: Option<Bound>) -> Limits {
        Limits {
            cpu_shares: Some(shares),
            cpu_bandwidth: Some(CpuBandwidth { quota, period: 100_000 }),
            memory,
            ..Limits::default()
        }
    }

    #[test]
    fn the_runtime_is_told_before_of_what_grows_and_of_nothing_that_the_kernel_rounded() {
        let (small, large) = (Bound::At(1), Bound::At(2));
        let current = limits(998, small, Some(small));
        for (shares, quota, memory, expected) in [
            (1024, small, small, None),
            (1124, small, small, Some("cpu")),
            (998, large, small, Some("cpu")),
            (998, large, large, Some("memory")),
            (998, Bound::Unlimited, small, Some("cpu")),
        ] {
            let larger = limits(shares, quota, Some(memory));
            assert_eq!(grows(&current, &larger), expected, "{larger:?}");
        }
        assert_eq!(grows(&Limits::default(), &current), None, "nothing is known of it");
    }

    #[test]
    fn what_is_not_limited_is_not_told_and_what_is_not_known_is_told_as_it_is_wanted() {
        let wanted =
            PodResources { cpu_shares: 7, cpu_quota: Some(8), memory: Some(9), ..PodResources::default() };
        assert_eq!(as_told(&Limits::default(), wanted.clone()), wanted);
        let told = as_told(&limits(2, Bound::Unlimited, Some(Bound::Unlimited)), wanted.clone());
        assert_eq!((told.cpu_shares, told.cpu_quota, told.memory), (2, Some(-1), None));
        let told = as_told(&limits(2, Bound::At(3), Some(Bound::At(4))), wanted);
        assert_eq!((told.cpu_shares, told.cpu_quota, told.memory), (2, Some(3), Some(4)));
    }

    #[test]
    fn a_cgroup_grows_where_more_is_wanted_and_shrinks_nowhere() {
        let (small, large) = (Bound::At(1), Bound::At(2));
        let current = limits(50, large, Some(small));
        assert_eq!(larger_of(&current, &limits(80, small, Some(large))), limits(80, large, Some(large)));
        assert_eq!(
            larger_of(&current, &limits(20, Bound::Unlimited, None)),
            limits(50, Bound::Unlimited, None)
        );
    }
}
