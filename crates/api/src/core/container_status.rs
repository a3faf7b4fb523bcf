//! [`ContainerStatus`]: what became of a container.

use crate::meta::Time;
use crate::object::{object, words};
use crate::one_of::{OneOf, one_of};
use crate::text::Text;

use super::{RecursiveReadOnlyMode, ResourceList, ResourceRequirements, Signal};

object! {
    /// What became of a container.
    pub struct ContainerStatus {
        name: Text = "name" always,
        state: OneOf<ContainerState> = "state",
        last_state: OneOf<ContainerState> = "lastState",
        ready: bool = "ready" always,
        restart_count: i32 = "restartCount" always,
        image: Text = "image" always,
        image_id: Text = "imageID" always,
        container_id: Text = "containerID",
        started: Option<bool> = "started",
        allocated_resources: ResourceList = "allocatedResources",
        resources: Option<Box<ResourceRequirements>> = "resources",
        volume_mounts: Box<[VolumeMountStatus]> = "volumeMounts",
        user: Option<Box<ContainerUser>> = "user",
        allocated_resources_status: Box<[ResourceStatus]> = "allocatedResourcesStatus",
        stop_signal: Option<Signal> = "stopSignal",
    }
}

one_of! {
    /// Whether a container waits, runs or has ended.
    pub enum ContainerState {
        Waiting(ContainerStateWaiting) = "waiting",
        Running(ContainerStateRunning) = "running",
        Terminated(ContainerStateTerminated) = "terminated",
    }
}

object! {
    /// A container that has not started.
    pub struct ContainerStateWaiting {
        reason: Text = "reason",
        message: Text = "message",
    }
}

object! {
    /// A container that runs.
    pub struct ContainerStateRunning {
        started_at: Option<Time> = "startedAt" always,
    }
}

object! {
    /// A container that has ended.
    pub struct ContainerStateTerminated {
        exit_code: i32 = "exitCode" always,
        signal: i32 = "signal",
        reason: Text = "reason",
        message: Text = "message",
        started_at: Option<Time> = "startedAt" always,
        finished_at: Option<Time> = "finishedAt" always,
        container_id: Text = "containerID",
    }
}

object! {
    /// How a volume is mounted in a container.
    pub struct VolumeMountStatus {
        name: Text = "name" always,
        mount_path: Text = "mountPath" always,
        read_only: bool = "readOnly",
        recursive_read_only: Option<RecursiveReadOnlyMode> = "recursiveReadOnly",
        volume_status: Option<Box<VolumeStatus>> = "volumeStatus",
    }
}

object! {
    /// What a volume holds.
    pub struct VolumeStatus {
        image: Option<Box<ImageVolumeStatus>> = "image",
    }
}

object! {
    /// Which image a volume holds.
    pub struct ImageVolumeStatus {
        image_ref: Text = "imageRef",
    }
}

object! {
    /// As whom a container's first process runs.
    pub struct ContainerUser {
        linux: Option<Box<LinuxContainerUser>> = "linux",
    }
}

object! {
    /// As whom a container's first process runs, on Linux.
    pub struct LinuxContainerUser {
        uid: i64 = "uid" always,
        gid: i64 = "gid" always,
        supplemental_groups: Box<[i64]> = "supplementalGroups",
    }
}

object! {
    /// How well the devices of a resource are.
    pub struct ResourceStatus {
        name: Text = "name" always,
        resources: Box<[ResourceHealth]> = "resources",
    }
}

object! {
    /// How well one device is.
    pub struct ResourceHealth {
        resource_id: Text = "resourceID" always,
        health: Option<ResourceHealthStatus> = "health" word,
        message: Option<Text> = "message",
    }
}

words! {
    /// Whether a device is well.
    pub enum ResourceHealthStatus {
        Healthy = "Healthy",
        Unhealthy = "Unhealthy",
        Unknown = "Unknown",
    }
}
