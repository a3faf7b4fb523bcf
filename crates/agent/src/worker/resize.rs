//! Resources that change while a pod runs: granted by the node, then given to its containers.
//!
//! - here: what the node granted, and what is told and written down of it.
//! - `steps`: giving it to the containers, and to the pod as a whole.
//! - `sandbox`: what the runtime is told of the pod as a whole.
//! - `limits`: those of the pod's cgroup meanwhile.

mod limits;
mod sandbox;
mod steps;

use std::borrow::Cow;
use std::sync::Arc;

use crablet_api::core::{Container, Pod};
use crablet_api::meta::Time;
use crablet_api::{FeatureGates, Gate};
use crablet_core::resize::conditions::{Conditions, PendingReason};
use crablet_core::resize::decision::undeclared;
use crablet_core::resize::{self, PodResourceInfo, message};
use crablet_core::status;
use crablet_cri_api::ContainerState;
use crablet_host::checkpoint::CheckpointError;
use tokio::time::Instant;

use crate::admission::{Resized, Wish};
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
}
