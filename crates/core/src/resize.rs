//! The resources of a pod that is resized in place: three things that are the same most of the time.
//!
//! What a pod *asks for* is its spec. What the node *allocated* to it is a pod with the same containers; whoever grants
//! resources makes it follow the spec, as far as [`decision`] allows. What a container was *actuated* with is what the
//! runtime was last told for it: [`plan`](crate::plan) makes it follow what is allocated. What the runtime says that a
//! container has is for the status alone, and never compared: it is rounded, and others may change it.
//!
//! - [`conditions`]: what the pod's status says of a resize.
//! - [`decision`]: which resizes may be granted at all, and which one first.
//! - [`message`]: what events say of it.
//! - [`sandbox`]: what the runtime is told of the pod as a whole.
//! - [`state_file`]: what is allocated and actuated on disk, as the Go kubelet has it.

pub mod conditions;
pub mod decision;
pub mod message;
pub mod sandbox;
pub mod state_file;

use std::borrow::Cow;
use std::sync::Arc;

use crablet_api::core::{Container, Pod, ResourceList, ResourceRequirements};
use crablet_api::{FeatureGates, Gate, Map};
use crablet_cri_api::ContainerState;
use serde::{Deserialize, Deserializer, Serialize};

use crate::observed;
use crate::qos::{Overhead, PodLevel, pod_requests};
use crate::restart::is_sidecar;

/// Resources of a pod's containers, by their names, and of the pod as a whole: what is allocated, or what they were given
/// last. In JSON it is as upstream's state files have it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodResourceInfo {
    #[serde(rename = "ContainerResources", default, deserialize_with = "null_is_empty")]
    containers: Map<ResourceRequirements>,
    #[serde(rename = "PodLevelResources", default)]
    pod: Option<Box<ResourceRequirements>>,
    /// The most that something of the pod may have while it is being changed, so that it is not known. Upstream passes
    /// over it.
    #[serde(rename = "AtMost", default, skip_serializing_if = "Option::is_none")]
    at_most: Option<Box<PodResourceInfo>>,
}

fn null_is_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl PodResourceInfo {
    /// What a pod asks for, as far as that can change.
    pub fn of(pod: &Pod, features: &FeatureGates) -> PodResourceInfo {
        let containers =
            resizable(pod, features).map(|container| (container.name.clone(), container.resources.clone()));
        let pod = whole(pod, features).cloned().map(Box::new);
        PodResourceInfo { containers: containers.collect(), pod, at_most: None }
    }

    /// What the containers of a pod are given when they are made from it.
    pub fn given_by(pod: &Pod, features: &FeatureGates) -> PodResourceInfo {
        let containers = pod.spec.init_and_regular_containers();
        let given = containers
            .map(|container| (container.name.clone(), effective(pod, container, features).into_owned()));
        let pod = whole(pod, features).cloned().map(Box::new);
        PodResourceInfo { containers: given.collect(), pod, at_most: None }
    }

    /// What a container has, by its name in the pod.
    pub fn get(&self, name: &str) -> Option<&ResourceRequirements> {
        self.containers.get(name)
    }

    /// A container has something.
    pub fn set(&mut self, name: &str, resources: ResourceRequirements) {
        self.containers.insert(name, resources);
    }

    /// What the pod as a whole has.
    pub fn pod_level(&self) -> Option<&ResourceRequirements> {
        self.pod.as_deref()
    }

    /// The pod as a whole has something.
    pub fn set_pod_level(&mut self, resources: Option<ResourceRequirements>) {
        self.pod = resources.map(Box::new);
    }

    /// It is being changed to what is allocated to a pod. Until it is known that nothing has anything else, anything may have
    /// the larger of both.
    pub fn begin_change(&mut self, allocated: &Arc<Pod>, features: &FeatureGates) {
        let had = self.applied_to(allocated, features);
        let mut most = std::mem::take(self);
        let before = most.clone();
        most.raise(&PodResourceInfo::given_by(allocated, features));
        if let Some(whole) = &mut most.pod {
            raise_whole(whole, [allocated, &had]);
        }
        if let Some(at_most) = most.at_most.take() {
            most.raise(&at_most);
        }
        *self = PodResourceInfo { at_most: Some(Box::new(most)), ..before };
    }

    /// What it has is known.
    pub fn end_change(&mut self) {
        self.at_most = None;
    }

    /// Whether something of it may have more than is known.
    pub fn is_changing(&self) -> bool {
        self.at_most.is_some()
    }

    /// The most that anything of it may have.
    pub fn most(mut self) -> PodResourceInfo {
        if let Some(at_most) = self.at_most.take() {
            self.raise(&at_most);
        }
        self
    }

    fn raise(&mut self, least: &PodResourceInfo) {
        for (name, least) in least.containers.iter() {
            let mut resources = self.get(name).cloned().unwrap_or_default();
            raise(&mut resources, least);
            self.set(name, resources);
        }
        if let Some(least) = least.pod_level() {
            raise(self.pod.get_or_insert_default(), least);
        }
    }

    /// What containers were given, without what they have of the pod as a whole: a limit that they have not set.
    pub fn without_whole(mut self, pod: &Pod) -> PodResourceInfo {
        let Some(whole) = &self.pod else { return self };
        for container in pod.spec.init_and_regular_containers() {
            let Some(given) = self.containers.get_mut(&container.name) else { continue };
            for name in Resource::ALL.map(Resource::name) {
                let has_own = container.resources.limits.contains_key(name);
                if !has_own && given.limits.get(name) == whole.limits.get(name) {
                    given.limits.remove(name);
                }
            }
        }
        self
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.pod.is_none()
    }

    /// A pod with these resources instead of what it asks for. It is the same pod where they are no others.
    pub fn applied_to(&self, pod: &Arc<Pod>, features: &FeatureGates) -> Arc<Pod> {
        let differs = |container: &Container| {
            self.get(&container.name).is_some_and(|known| *known != container.resources)
        };
        let whole_differs = features.enabled(Gate::InPlacePodLevelResourcesVerticalScaling)
            && pod.spec.resources.as_deref() != self.pod_level();
        if !whole_differs && !pod.spec.init_and_regular_containers().any(differs) {
            return Arc::clone(pod);
        }
        let mut changed = Pod::clone(pod);
        let spec = &mut changed.spec;
        for container in spec.init_containers.iter_mut().chain(&mut spec.containers) {
            if let Some(known) = self.get(&container.name) {
                container.resources = known.clone();
            }
        }
        if whole_differs {
            spec.resources = self.pod.clone();
        }
        Arc::new(changed)
    }
}

/// What of a pod as a whole can change.
pub fn whole<'p>(pod: &'p Pod, features: &FeatureGates) -> Option<&'p ResourceRequirements> {
    let can_change = features.enabled(Gate::InPlacePodLevelResourcesVerticalScaling);
    pod.spec.resources.as_deref().filter(|_| can_change)
}

/// A pod that still has some of what it had: with the larger of what it asks for, and of what another form of it does.
/// Nothing where it asks for no less.
pub fn still_having(pod: &Pod, had: &Pod) -> Option<Arc<Pod>> {
    let mut larger = pod.clone();
    let mut is_more = false;
    let spec = &mut larger.spec;
    for container in spec.init_containers.iter_mut().chain(&mut spec.containers) {
        if let Some(had) = had.spec.find_container(&container.name) {
            is_more |= raise(&mut container.resources, &had.resources);
        }
    }
    if spec.resources.is_some() || had.spec.resources.is_some() {
        let whole = spec.resources.get_or_insert_default();
        if let Some(had) = &had.spec.resources {
            is_more |= raise(whole, had);
        }
        is_more |= raise_whole(whole, [pod, had]);
    }
    is_more.then(|| Arc::new(larger))
}

/// What the pod as a whole asks for counts in place of what its containers do, so it has to be as much as each of these
/// forms asks for in all: one may leave to its containers what the other does not. Says whether it was less. A limit is
/// raised with it.
fn raise_whole(whole: &mut ResourceRequirements, forms: [&Pod; 2]) -> bool {
    let mut was_lower = false;
    for asked in forms.map(|form| pod_requests(form, PodLevel::Counted, Overhead::Excluded)) {
        for name in Resource::ALL.map(Resource::name) {
            let (Some(request), Some(least)) = (whole.requests.get_mut(name), asked.get(name)) else {
                continue;
            };
            if *request < *least {
                *request = least.clone();
                was_lower = true;
            }
            if let Some(limit) = whole.limits.get_mut(name).filter(|limit| **limit < *least) {
                *limit = least.clone();
            }
        }
    }
    was_lower
}

/// Says whether a request was lower. Limits are raised with it: a guaranteed pod stays one.
fn raise(resources: &mut ResourceRequirements, least: &ResourceRequirements) -> bool {
    let raise = |list: &mut ResourceList, least: &ResourceList| {
        let mut was_lower = false;
        for name in Resource::ALL.map(Resource::name) {
            let Some(least) = least.get(name) else { continue };
            if list.get(name).is_none_or(|amount| amount < least) {
                list.insert(name, least.clone());
                was_lower = true;
            }
        }
        was_lower
    };
    raise(&mut resources.limits, &least.limits);
    raise(&mut resources.requests, &least.requests)
}

/// The containers whose resources may be allocated anew.
pub fn resizable<'p>(pod: &'p Pod, features: &FeatureGates) -> impl Iterator<Item = &'p Container> {
    let all = features.enabled(Gate::InPlacePodVerticalScalingInitContainers);
    let inits = pod.spec.init_containers.iter().filter(move |container| all || is_sidecar(container));
    inits.chain(&pod.spec.containers)
}

/// What a container is given: a limit that it has not set is the one of the pod as a whole.
pub fn effective<'p>(
    pod: &Pod,
    container: &'p Container,
    features: &FeatureGates,
) -> Cow<'p, ResourceRequirements> {
    let mut resources = Cow::Borrowed(&container.resources);
    for name in [Resource::Cpu.name(), Resource::Memory.name()] {
        let limit = whole(pod, features).and_then(|whole| whole.limits.get(name));
        let has_own = resources.limits.get(name).is_some_and(|limit| !limit.is_zero());
        if let Some(limit) = limit.filter(|limit| !limit.is_zero() && !has_own) {
            resources.to_mut().limits.insert(name, limit.clone());
        }
    }
    resources
}

/// Whether the pod as a whole has not got what is allocated to it yet.
pub fn pod_level_differs(allocated: &Pod, actuated: &PodResourceInfo, features: &FeatureGates) -> bool {
    whole(allocated, features)
        .is_some_and(|whole| actuated.pod_level().is_none_or(|actuated| differ(whole, actuated)))
}

fn differ(to: &ResourceRequirements, from: &ResourceRequirements) -> bool {
    Resource::ALL.iter().any(|resource| resource.of(to) != resource.of(from))
}

/// Whether something of a pod has not got what is allocated to it yet: a container that runs, or the pod as a whole. As
/// upstream, an init container that is no sidecar is given what is allocated, and nobody waits for that.
pub fn is_in_progress(
    allocated: &Pod,
    actuated: &PodResourceInfo,
    observed: &observed::Pod,
    features: &FeatureGates,
) -> bool {
    let sidecars = allocated.spec.init_containers.iter().filter(|container| is_sidecar(container));
    let mut running = sidecars.chain(&allocated.spec.containers).filter(|container| {
        observed.latest(&container.name).is_some_and(|latest| latest.state == ContainerState::Running)
    });
    running.any(|container| {
        let wanted = effective(allocated, container, features);
        actuated.get(&container.name).is_some_and(|actuated| differ(&wanted, actuated))
    }) || pod_level_differs(allocated, actuated, features)
}

/// A container with what is allocated to it, given the pod with what the node granted. What that does not know was not
/// granted apart: it gets what it asks for.
pub fn allocated<'p>(granted: &'p Pod, container: &'p Container) -> &'p Container {
    granted.spec.find_container(&container.name).unwrap_or(container)
}

/// What of a container's resources can change while it runs, in whole bytes and thousandths of a CPU; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resizable {
    pub(crate) limit: i64,
    pub(crate) request: i64,
}

impl Resizable {
    pub(crate) fn is_nothing(self) -> bool {
        self == Resizable { limit: 0, request: 0 }
    }
}

/// A resource that can change while a container runs. Memory is changed first, as upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    Memory,
    Cpu,
}

impl Resource {
    pub(crate) const ALL: [Resource; 2] = [Resource::Memory, Resource::Cpu];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Resource::Memory => "memory",
            Resource::Cpu => "cpu",
        }
    }

    pub(crate) fn of(self, resources: &ResourceRequirements) -> Resizable {
        let amount = |list: &ResourceList| {
            list.get(self.name()).map_or(0, |amount| match self {
                Resource::Memory => amount.value(),
                Resource::Cpu => amount.milli_value(),
            })
        };
        Resizable { limit: amount(&resources.limits), request: amount(&resources.requests) }
    }

    /// These resources, with this one as in the others.
    pub(crate) fn taken_from(
        self,
        from: &ResourceRequirements,
        mut resources: ResourceRequirements,
    ) -> ResourceRequirements {
        let take = |to: &mut ResourceList, from: &ResourceList| match from.get(self.name()) {
            Some(amount) => {
                to.insert(self.name(), amount.clone());
            }
            None => {
                to.remove(self.name());
            }
        };
        take(&mut resources.limits, &from.limits);
        take(&mut resources.requests, &from.requests);
        resources
    }
}
