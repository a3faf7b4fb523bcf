//! The resources that containers, and pods as a whole, have.

use crablet_api::core::{
    Container, ContainerStatus, PodPhase, PodStatus, ResourceList, ResourceRequirements,
};
use crablet_api::{Quantity, QuantityFormat};
use crablet_cri_api::{ContainerState, v1};

use super::StatusInput;
use crate::observed;
use crate::pod_cgroup::PodResources;
use crate::qos::{self, Overhead, PodLevel};
use crate::resize::allocated;

/// The kernel knows no lower weight of CPU: below it, what was granted is told instead.
const MIN_SHARES: i64 = 2;
/// The kernel knows no lower limit of CPU, in thousandths.
const MIN_CPU_LIMIT: i64 = 10;

/// What a pod's cgroup says, in the API's terms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodCgroup {
    /// The CPU it asks for.
    pub cpu_request: Option<Quantity>,
    /// The CPU it may use at most.
    pub cpu_limit: Option<Quantity>,
    /// The memory it may use at most.
    pub memory_limit: Option<Quantity>,
}

impl PodCgroup {
    /// That of a cgroup which has these, with a period of so many microseconds.
    pub fn new(resources: &PodResources, period: i64) -> PodCgroup {
        let Actual { cpu_request, cpu_limit, memory_limit, .. } =
            Actual::from_runtime(&v1::LinuxContainerResources {
                cpu_shares: i64::try_from(resources.cpu_shares).unwrap_or(i64::MAX),
                cpu_quota: resources.cpu_quota.unwrap_or_default(),
                cpu_period: period,
                memory_limit_in_bytes: resources
                    .memory
                    .map_or(0, |memory| memory.try_into().unwrap_or(i64::MAX)),
                ..v1::LinuxContainerResources::default()
            });
        PodCgroup { cpu_request, cpu_limit, memory_limit }
    }
}

/// What a container really has.
#[derive(Default)]
struct Actual {
    cpu_request: Option<Quantity>,
    cpu_limit: Option<Quantity>,
    memory_request: Option<Quantity>,
    memory_limit: Option<Quantity>,
}

/// Fills in the resources of a container that the runtime knows. `previous` is its status before, where it is of the
/// same container.
pub(super) fn fill(
    input: &StatusInput,
    container: &Container,
    run: &observed::Container,
    previous: Option<&ContainerStatus>,
    status: &mut ContainerStatus,
) {
    let allocated = &allocated(input.allocated, container).resources;
    let mut resources = allocated.clone();
    if run.state == ContainerState::Running {
        let actual = Actual::of(input, run);
        let ran = |status: &&ContainerStatus| super::transition::is_running(status);
        let before = previous.filter(ran).and_then(|previous| previous.resources.as_deref());
        let old = |list: fn(&ResourceRequirements) -> &ResourceList| before.map(list);
        if !resources.limits.is_empty() {
            let limits = &mut resources.limits;
            let old = old(|resources| &resources.limits);
            set_cpu(limits, actual.cpu_limit.as_ref(), MIN_CPU_LIMIT, old);
            set(limits, "memory", actual.memory_limit.as_ref(), old);
        }
        if !resources.requests.is_empty() {
            let requests = &mut resources.requests;
            let old = old(|resources| &resources.requests);
            set_cpu(requests, actual.cpu_request.as_ref(), MIN_SHARES, old);
            set(requests, "memory", actual.memory_request.as_ref(), old);
        }
    }
    status.resources = Some(Box::new(resources));
    status.allocated_resources = allocated.requests.clone();
}

impl Actual {
    /// What the runtime tells, and what it does not tell from what the container was given last.
    fn of(input: &StatusInput, run: &observed::Container) -> Actual {
        let actuated = input.actuated.get(&run.name);
        let given = |list: fn(&ResourceRequirements) -> &ResourceList, name: &str| {
            actuated.and_then(|actuated| list(actuated).get(name)).filter(|amount| !amount.is_zero()).cloned()
        };
        let memory_request = given(|resources| &resources.requests, "memory");
        match run.resources.as_ref().and_then(|resources| resources.linux.as_ref()).map(Actual::from_runtime)
        {
            Some(told) if told.is_known() => Actual { memory_request, ..told },
            Some(_) | None => Actual {
                cpu_request: given(|resources| &resources.requests, "cpu"),
                cpu_limit: given(|resources| &resources.limits, "cpu"),
                memory_request,
                memory_limit: given(|resources| &resources.limits, "memory"),
            },
        }
    }

    fn from_runtime(linux: &v1::LinuxContainerResources) -> Actual {
        let milli = |amount: Option<i64>| amount.filter(|amount| *amount > 0).map(Quantity::from_milli);
        let limit = (linux.cpu_period > 0 && linux.cpu_quota > 0)
            .then(|| linux.cpu_quota.saturating_mul(1000) / linux.cpu_period);
        let shares = linux.cpu_shares;
        let request = (shares >= MIN_SHARES).then(|| shares.saturating_mul(1000).saturating_add(1023) / 1024);
        let memory = Some(linux.memory_limit_in_bytes).filter(|bytes| *bytes > 0);
        Actual {
            cpu_request: milli(request),
            cpu_limit: milli(limit),
            memory_request: None,
            memory_limit: memory
                .map(|bytes| Quantity::from_value(bytes).with_format(QuantityFormat::BinarySi)),
        }
    }

    fn is_known(&self) -> bool {
        self.cpu_request.is_some() || self.cpu_limit.is_some() || self.memory_limit.is_some()
    }
}

/// Tells an amount of CPU, unless both it and what was granted are so small that the kernel cannot tell them apart.
fn set_cpu(list: &mut ResourceList, actual: Option<&Quantity>, least: i64, old: Option<&ResourceList>) {
    let granted = list.get("cpu").map_or(0, Quantity::milli_value);
    match actual {
        Some(actual) if actual.milli_value() <= least && granted <= least => {}
        actual => set(list, "cpu", actual, old),
    }
}

/// Tells what there is; where that is not known, what was told before.
fn set(list: &mut ResourceList, name: &str, actual: Option<&Quantity>, old: Option<&ResourceList>) {
    if let Some(amount) = actual.or_else(|| old.and_then(|old| old.get(name))) {
        list.insert(name, amount.clone());
    }
}

/// Fills in the resources of the pod as a whole.
pub(super) fn fill_pod_level(input: &StatusInput, status: &mut PodStatus) {
    let pod = input.allocated;
    let level = PodLevel::from(input.features);
    let requests = qos::pod_requests(pod, level, Overhead::Included);
    status.allocated_resources = requests.clone();
    let mut resources = pod.spec.resources.as_deref().cloned().unwrap_or_default();
    if input.pod.status.phase != Some(PodPhase::Running) {
        resources.requests = requests;
        resources.limits = qos::pod_limits(pod, level, Overhead::Included);
        status.resources = Some(Box::new(resources));
        return;
    }

    let before = &input.previous;
    let old = before.resources.as_deref().filter(|_| before.phase == Some(PodPhase::Running));
    let (old_requests, old_limits) = (old.map(|old| &old.requests), old.map(|old| &old.limits));
    let cgroup = input.pod_cgroup.cloned().unwrap_or_default();
    set_cpu(&mut resources.requests, cgroup.cpu_request.as_ref(), MIN_SHARES, old_requests);
    let given = memory_request_given(input, level, &requests);
    if let Some(memory) = requests.get("memory").filter(|_| !resources.requests.contains_key("memory")) {
        resources.requests.insert("memory", memory.clone());
    }
    set(&mut resources.requests, "memory", given.as_ref(), old_requests);
    set_cpu(&mut resources.limits, cgroup.cpu_limit.as_ref(), MIN_CPU_LIMIT, old_limits);
    set(&mut resources.limits, "memory", cgroup.memory_limit.as_ref(), old_limits);
    status.resources = Some(Box::new(resources));
}

/// The request for memory that a pod was given: as it is made for the whole, or by its containers together. Nothing where
/// that is not known, as while it changes. (Upstream goes on to tell what it told first, whatever the pod is given later.)
fn memory_request_given(input: &StatusInput, level: PodLevel, allocated: &ResourceList) -> Option<Quantity> {
    let (pod, actuated) = (input.allocated, input.actuated);
    let of_whole = pod.spec.resources.as_deref().filter(|_| level == PodLevel::Counted);
    if of_whole.is_some_and(|whole| whole.requests.contains_key("memory")) {
        return actuated.pod_level().and_then(|whole| whole.requests.get("memory")).cloned();
    }
    let request = |resources: &ResourceRequirements| resources.requests.get("memory").cloned();
    let given = |container: &Container| actuated.get(&container.name).map(request);
    let amounts = || {
        let containers = pod.spec.init_and_regular_containers();
        containers.filter_map(|container| Some((given(container)?, request(&container.resources))))
    };
    if amounts().any(|(given, allocated)| given.is_none() && allocated.is_some()) {
        return None;
    }
    if amounts().all(|(given, allocated)| given == allocated) {
        return allocated.get("memory").cloned();
    }
    let mut had = pod.clone();
    let spec = &mut had.spec;
    for container in spec.init_containers.iter_mut().chain(&mut spec.containers) {
        if let Some(Some(given)) = given(container) {
            container.resources.requests.insert("memory", given);
        }
    }
    qos::pod_requests(&had, level, Overhead::Included).get("memory").cloned()
}
