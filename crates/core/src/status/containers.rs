//! The statuses of a pod's containers.

use crablet_api::core::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, ContainerUser, LinuxContainerUser, MountPropagationMode, PodStatus,
    RecursiveReadOnlyMode, Signal, VolumeMount, VolumeMountStatus,
};
use crablet_api::meta::Time;
use crablet_api::{Gate, OneOf, Text};
use crablet_cri_api::{ContainerState as Seen, v1};
use jiff::Timestamp;

use super::{StatusInput, resources};
use crate::plan::Role;
use crate::{observed, restart};

/// The reason of a container that waits before its restart.
const CRASH_LOOP: &str = "CrashLoopBackOff";
/// The reason of a container that was removed because the whole pod begins again.
pub(super) const RESTARTING_ALL: &str = "RestartingAllContainers";
/// The reason where nobody knows how a container ended.
pub(super) const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
/// What is said of a container that is not there when its pod has ended.
pub(super) const NOT_LOCATED: &str = "The container could not be located when the pod was terminated";
/// The exit code where nobody knows how a container ended.
pub(super) const UNKNOWN_EXIT_CODE: i32 = 137;

pub(super) fn fill(input: &StatusInput, status: &mut PodStatus) {
    let (spec, previous) = (&input.pod.spec, input.previous);
    let restarting = input.features.enabled(Gate::RestartAllContainersOnContainerExits)
        && restart::all_are_to_restart(input.pod, input.observed, previous);
    let make = |role, container: &Container, previous: &[ContainerStatus]| {
        let previous = previous.iter().find(|previous| previous.name == container.name);
        Maker { input, role, container, previous, restarting }.make()
    };
    let sorted = |mut statuses: Vec<ContainerStatus>| {
        statuses.sort_by(|a, b| a.name.cmp(&b.name));
        statuses.into()
    };
    let main = |container| make(Role::Main, container, &previous.container_statuses);
    status.container_statuses = sorted(spec.containers.iter().map(main).collect());
    let init = |container| make(Role::Init, container, &previous.init_container_statuses);
    status.init_container_statuses = spec.init_containers.iter().map(init).collect();
    let ephemeral = spec
        .ephemeral_containers
        .iter()
        .map(|ephemeral| make(Role::Ephemeral, &ephemeral.container, &previous.ephemeral_container_statuses));
    status.ephemeral_container_statuses = sorted(ephemeral.collect());
}

/// Makes the status of one container.
struct Maker<'a> {
    input: &'a StatusInput<'a>,
    role: Role,
    container: &'a Container,
    previous: Option<&'a ContainerStatus>,
    /// Whether the whole pod is restarted in place.
    restarting: bool,
}

impl Maker<'_> {
    fn make(&self) -> ContainerStatus {
        let mut runs = self.input.observed.named(&self.container.name);
        let mut status = match (runs.next(), runs.next()) {
            (Some(latest), None) => self.of_run(latest),
            (Some(latest), Some(before)) => {
                ContainerStatus { last_state: self.of_run(before).state, ..self.of_run(latest) }
            }
            (None, _) => self.of_memory(),
        };
        self.hold_back(&mut status);
        status
    }

    /// The status of a container that the runtime does not know, or not any more.
    fn of_memory(&self) -> ContainerStatus {
        let mut status = self.waiting();
        let Some(previous) = self.previous else { return status };
        match previous.state.one() {
            Some(ContainerState::Terminated(_)) => status = previous.clone(),
            Some(ContainerState::Running(_) | ContainerState::Waiting(_)) | None => {
                status.restart_count = previous.restart_count;
                status.last_state = previous.last_state.clone();
            }
        }
        let was_waiting = matches!(previous.state.one(), Some(ContainerState::Waiting(_)));
        if self.restarting && !was_waiting {
            let message = "The container is removed because RestartAllContainers in place";
            status.state = waiting(RESTARTING_ALL, message);
            status.last_state = ended(RESTARTING_ALL, message, UNKNOWN_EXIT_CODE);
            status.restart_count = previous.restart_count + 1;
            status.container_id = Text::default();
        } else if matches!(previous.state.one(), Some(ContainerState::Running(_)))
            && !is_ended(&status.last_state)
        {
            // It ran, and so it ended: it must not look as if it had never been started.
            let message = "The container could not be located when the pod was deleted.  The container used to be Running";
            status.last_state = ended(STATUS_UNKNOWN, message, UNKNOWN_EXIT_CODE);
            status.restart_count += i32::from(self.input.pod.metadata.deletion_timestamp.is_none());
        }
        status
    }

    /// The status of a container that was never started.
    fn waiting(&self) -> ContainerStatus {
        let has_init_containers = !self.input.pod.spec.init_containers.is_empty();
        let reason = if has_init_containers { "PodInitializing" } else { "ContainerCreating" };
        ContainerStatus {
            name: self.container.name.clone(),
            image: self.container.image.clone(),
            state: waiting(reason, ""),
            volume_mounts: self.container.volume_mounts.iter().map(|mount| self.mount(mount)).collect(),
            ..ContainerStatus::default()
        }
    }

    fn of_run(&self, run: &observed::Container) -> ContainerStatus {
        let id: Text = format!("{}://{}", self.input.node.runtime_name, run.id).into();
        let mut status = ContainerStatus {
            name: self.container.name.clone(),
            restart_count: i32::try_from(run.restart_count()).unwrap_or(i32::MAX),
            image: run.image.as_str().into(),
            image_id: run.image_ref.as_str().into(),
            container_id: id.clone(),
            user: user(run.user.as_ref()),
            ..ContainerStatus::default()
        };
        // What is mounted where is known from the first status on.
        status.volume_mounts = match self.previous {
            Some(previous) if previous.volume_mounts.iter().all(is_told) => previous.volume_mounts.clone(),
            Some(_) | None => self.container.volume_mounts.iter().map(|mount| self.mount(mount)).collect(),
        };
        self.remember(&mut status);
        match (run.state, self.previous) {
            (Seen::Running, previous) => {
                let running = ContainerStateRunning { started_at: Some(time(run.started_at)) };
                status.state = ContainerState::from(running).into();
                if let Some(previous) = previous.filter(|previous| {
                    self.input.features.enabled(Gate::RestartAllContainersOnContainerExits)
                        && is_ended(&previous.state)
                        && previous.restart_count >= i32::try_from(run.restart_count()).unwrap_or(i32::MAX)
                }) {
                    status.restart_count = previous.restart_count + 1;
                }
            }
            (Seen::Exited, _) => {
                let terminated = ContainerStateTerminated {
                    exit_code: run.exit_code,
                    reason: run.reason.as_str().into(),
                    message: run.message.as_str().into(),
                    started_at: Some(time(run.started_at)),
                    finished_at: Some(time(run.finished_at)),
                    container_id: id,
                    ..ContainerStateTerminated::default()
                };
                status.state = ContainerState::from(terminated).into();
            }
            (Seen::Unknown, Some(previous))
                if matches!(previous.state.one(), Some(ContainerState::Running(_))) =>
            {
                let reason = if self.restarting { RESTARTING_ALL } else { STATUS_UNKNOWN };
                status.state = ended(reason, NOT_LOCATED, UNKNOWN_EXIT_CODE);
                status.restart_count = previous.restart_count + 1;
            }
            (Seen::Created | Seen::Unknown, _) => status.state = waiting("", ""),
        }
        let previous = self.previous.filter(|previous| previous.container_id == status.container_id);
        resources::fill(self.input, self.container, run, previous, &mut status);
        if self.input.features.enabled(Gate::ContainerStopSignals) {
            status.stop_signal = stop_signal(run.stop_signal);
        }
        status
    }

    /// Takes over what the runtime cannot know after a restart of the whole pod: it removes containers.
    fn remember(&self, status: &mut ContainerStatus) {
        let Some(previous) =
            self.previous.filter(|_| self.input.features.enabled(Gate::RestartAllContainersOnContainerExits))
        else {
            return;
        };
        status.restart_count = status.restart_count.max(previous.restart_count);
        if previous.container_id != status.container_id && is_ended(&previous.state) {
            status.last_state = previous.state.clone();
        } else if is_ended(&previous.last_state) {
            status.last_state = previous.last_state.clone();
        }
    }

    /// Whether a container that ended is not started again by its pod's policy.
    fn ends_for_good(&self, run: &observed::Container) -> bool {
        let StatusInput { pod, features, .. } = *self.input;
        run.state == Seen::Exited
            && !restart::restarts_after_exit(self.container, &pod.spec, run.exit_code, features)
    }

    /// Says why a container that is to be started has not been.
    fn hold_back(&self, status: &mut ContainerStatus) {
        let latest = self.input.observed.latest(&self.container.name);
        if self.role == Role::Init {
            if latest.is_some_and(|latest| latest.succeeded()) {
                return;
            }
            let is_waiting = matches!(status.state.one(), Some(ContainerState::Waiting(_)));
            let has_initialized = self.input.observed.has_any_regular_container(&self.input.pod.spec);
            let forgotten = latest.is_none() && !self.restarting && !restart::is_sidecar(self.container);
            if forgotten && has_initialized && is_waiting {
                let message = "Unable to get init container status from container runtime and pod has been \
                               initialized, treat it as exited normally";
                status.state = ended("Completed", message, 0);
                return;
            }
        }
        let StatusInput { pod, observed, features, start_errors, held_back, .. } = *self.input;
        if !restart::is_to_be_started(self.container, pod, observed, features) {
            return;
        }
        let name = &self.container.name;
        let why = match (start_errors.get(name), held_back.get(name)) {
            (Some(error), _) => waiting(&error.reason, &error.message),
            (None, Some(message)) => waiting(CRASH_LOOP, message),
            // An API server takes no other state after an end that is the last by the pod's policy.
            (None, None) if latest.is_some_and(|latest| self.ends_for_good(latest)) => self.waiting().state,
            (None, None) => return,
        };
        if is_ended(&status.state) {
            status.last_state = std::mem::take(&mut status.state);
        }
        status.state = why;
    }

    fn mount(&self, mount: &VolumeMount) -> VolumeMountStatus {
        let recursive = match &mount.recursive_read_only {
            _ if !mount.read_only => None,
            Some(RecursiveReadOnlyMode::IfPossible | RecursiveReadOnlyMode::Enabled) if is_private(mount) => {
                match self.input.recursive_read_only_mounts {
                    Some(true) => Some(RecursiveReadOnlyMode::Enabled),
                    Some(false) => Some(RecursiveReadOnlyMode::Disabled),
                    None => self.recursive_before(mount),
                }
            }
            Some(_) | None => Some(RecursiveReadOnlyMode::Disabled),
        };
        VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only,
            recursive_read_only: recursive,
            volume_status: None,
        }
    }

    fn recursive_before(&self, mount: &VolumeMount) -> Option<RecursiveReadOnlyMode> {
        let mut before = self.previous?.volume_mounts.iter();
        before.find(|before| before.mount_path == mount.mount_path)?.recursive_read_only.clone()
    }
}

/// Whether it was known what can be said of a mount.
fn is_told(mount: &VolumeMountStatus) -> bool {
    !mount.read_only || mount.recursive_read_only.is_some()
}

fn is_private(mount: &VolumeMount) -> bool {
    match &mount.mount_propagation {
        None | Some(MountPropagationMode::None) => true,
        Some(
            MountPropagationMode::HostToContainer
            | MountPropagationMode::Bidirectional
            | MountPropagationMode::Other(_),
        ) => false,
    }
}

pub(super) fn is_ended(state: &OneOf<ContainerState>) -> bool {
    matches!(state.one(), Some(ContainerState::Terminated(_)))
}

pub(super) fn ended(reason: &str, message: &str, exit_code: i32) -> OneOf<ContainerState> {
    let terminated = ContainerStateTerminated {
        exit_code,
        reason: reason.into(),
        message: message.into(),
        ..ContainerStateTerminated::default()
    };
    ContainerState::from(terminated).into()
}

fn waiting(reason: &str, message: &str) -> OneOf<ContainerState> {
    let waiting = ContainerStateWaiting { reason: reason.into(), message: message.into() };
    ContainerState::from(waiting).into()
}

/// A runtime that knows no time says 1970, and so do we.
fn time(moment: Option<Timestamp>) -> Time {
    moment.unwrap_or(Timestamp::UNIX_EPOCH).into()
}

fn user(user: Option<&v1::ContainerUser>) -> Option<Box<ContainerUser>> {
    let linux = user?.linux.as_ref().map(|linux| {
        Box::new(LinuxContainerUser {
            uid: linux.uid,
            gid: linux.gid,
            supplemental_groups: linux.supplemental_groups.as_slice().into(),
        })
    });
    Some(Box::new(ContainerUser { linux }))
}

/// `SIGRTMINPLUS1` is `SIGRTMIN+1` to Kubernetes.
fn stop_signal(signal: v1::Signal) -> Option<Signal> {
    if signal == v1::Signal::RuntimeDefault {
        return None;
    }
    let name = signal.as_str_name().replace("PLUS", "+").replace("MINUS", "-");
    Some(Signal::from(name.as_str()))
}
