//! The reasons of events: upstream's words, because people and programs look for them.
//!
//! Admission has reasons of its own (`OutOfcpu`, `NodeAffinity`, …), which are those of the pod's status.

/// A container was made.
pub const CREATED: &str = "Created";
/// A container was started.
pub const STARTED: &str = "Started";
/// A container, an image or a directory of a pod could not be made, pulled or started.
pub const FAILED: &str = "Failed";
/// A container is stopped.
pub const KILLING: &str = "Killing";
/// A pod makes room for a more important one.
pub const PREEMPTING: &str = "Preempting";
/// A restart or a pull waits, because the last one failed.
pub const BACK_OFF: &str = "BackOff";
/// The runtime did not stop a container within its grace period.
pub const EXCEEDED_GRACE_PERIOD: &str = "ExceededGracePeriod";
/// A pod could not be stopped.
pub const FAILED_KILL_POD: &str = "FailedKillPod";
/// The cgroups of a pod could not be made.
pub const FAILED_CREATE_POD_CONTAINER: &str = "FailedCreatePodContainer";
/// A pod waits for the node's network.
pub const NETWORK_NOT_READY: &str = "NetworkNotReady";
/// New resources do not fit now.
pub const RESIZE_DEFERRED: &str = "ResizeDeferred";
/// New resources never fit on this node.
pub const RESIZE_INFEASIBLE: &str = "ResizeInfeasible";
/// New resources are in force.
pub const RESIZE_COMPLETED: &str = "ResizeCompleted";
/// New resources are being put in force.
pub const RESIZE_STARTED: &str = "ResizeStarted";
/// New resources could not be put in force.
pub const RESIZE_ERROR: &str = "ResizeError";
/// A pod needs a feature that the node does not have.
pub const FAILED_NODE_DECLARED_FEATURES_CHECK: &str = "FailedNodeDeclaredFeaturesCheck";
/// An image is being pulled.
pub const PULLING: &str = "Pulling";
/// An image was pulled, or is there already.
pub const PULLED: &str = "Pulled";
/// The runtime could not say whether an image is there, or its name is invalid.
pub const INSPECT_FAILED: &str = "InspectFailed";
/// An image is not there, and may not be pulled.
pub const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
/// The node is ready.
pub const NODE_READY: &str = "NodeReady";
/// The node is not ready.
pub const NODE_NOT_READY: &str = "NodeNotReady";
/// Pods may be placed on the node.
pub const NODE_SCHEDULABLE: &str = "NodeSchedulable";
/// No pods may be placed on the node.
pub const NODE_NOT_SCHEDULABLE: &str = "NodeNotSchedulable";
/// The agent starts.
pub const STARTING: &str = "Starting";
/// The agent could not be set up.
pub const KUBELET_SETUP_FAILED: &str = "KubeletSetupFailed";
/// A volume could not be attached.
pub const FAILED_ATTACH_VOLUME: &str = "FailedAttachVolume";
/// A volume could not be mounted.
pub const FAILED_MOUNT: &str = "FailedMount";
/// A volume could not be resized.
pub const VOLUME_RESIZE_FAILED: &str = "VolumeResizeFailed";
/// A volume was resized.
pub const VOLUME_RESIZE_SUCCESSFUL: &str = "VolumeResizeSuccessful";
/// A file system could not be resized.
pub const FILE_SYSTEM_RESIZE_FAILED: &str = "FileSystemResizeFailed";
/// The permissions of a volume are being changed, which takes long.
pub const VOLUME_PERMISSION_CHANGE_IN_PROGRESS: &str = "VolumePermissionChangeInProgress";
/// A file system was resized.
pub const FILE_SYSTEM_RESIZE_SUCCESSFUL: &str = "FileSystemResizeSuccessful";
/// A block volume could not be mapped.
pub const FAILED_MAP_VOLUME: &str = "FailedMapVolume";
/// A volume is mounted already.
pub const ALREADY_MOUNTED_VOLUME: &str = "AlreadyMountedVolume";
/// A volume was attached.
pub const SUCCESSFUL_ATTACH_VOLUME: &str = "SuccessfulAttachVolume";
/// A volume was mounted.
pub const SUCCESSFUL_MOUNT_VOLUME: &str = "SuccessfulMountVolume";
/// The node was started anew.
pub const REBOOTED: &str = "Rebooted";
/// The node is shutting down.
pub const SHUTDOWN: &str = "Shutdown";
/// Dead containers could not be removed.
pub const CONTAINER_GC_FAILED: &str = "ContainerGCFailed";
/// Unused images could not be removed.
pub const IMAGE_GC_FAILED: &str = "ImageGCFailed";
/// A secret that a pod names for pulls could not be had.
pub const FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET: &str = "FailedToRetrieveImagePullSecret";
/// What pods may use in all could not be limited.
pub const FAILED_NODE_ALLOCATABLE_ENFORCEMENT: &str = "FailedNodeAllocatableEnforcement";
/// What pods may use in all is limited.
pub const NODE_ALLOCATABLE_ENFORCED: &str = "NodeAllocatableEnforced";
/// A pod's sandbox is made anew.
pub const SANDBOX_CHANGED: &str = "SandboxChanged";
/// A pod's sandbox could not be made.
pub const FAILED_CREATE_POD_SANDBOX: &str = "FailedCreatePodSandBox";
/// The runtime could not say how a sandbox is.
pub const FAILED_POD_SANDBOX_STATUS: &str = "FailedPodSandBoxStatus";
/// A volume has another file system than it should.
pub const FAILED_MOUNT_ON_FILESYSTEM_MISMATCH: &str = "FailedMountOnFilesystemMismatch";
/// A pod's devices could not be prepared.
pub const FAILED_PREPARE_DYNAMIC_RESOURCES: &str = "FailedPrepareDynamicResources";
/// Volumes that should stay in memory may be swapped out.
pub const POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK: &str = "PossibleMemoryBackedVolumesOnDisk";
/// The node uses cgroup v1.
pub const CGROUP_V1: &str = "CgroupV1";
/// An image has an invalid ID.
pub const INVALID_IMAGE_ID: &str = "InvalidImageID";
/// The size of the disk of images is unknown.
pub const INVALID_DISK_CAPACITY: &str = "InvalidDiskCapacity";
/// Not enough disk could be freed.
pub const FREE_DISK_SPACE_FAILED: &str = "FreeDiskSpaceFailed";
/// A probe failed.
pub const UNHEALTHY: &str = "Unhealthy";
/// A probe succeeded with a warning.
pub const PROBE_WARNING: &str = "ProbeWarning";
/// A pod could not be brought to what it should be.
pub const FAILED_SYNC: &str = "FailedSync";
/// A manifest is invalid.
pub const FAILED_VALIDATION: &str = "FailedValidation";
/// A hook after a start failed.
pub const FAILED_POST_START_HOOK: &str = "FailedPostStartHook";
/// A hook before a stop failed.
pub const FAILED_PRE_STOP_HOOK: &str = "FailedPreStopHook";
/// What was to be asked by HTTPS for a hook does not speak it, and was asked by HTTP.
pub const LIFECYCLE_HTTP_FALLBACK: &str = "LifecycleHTTPFallback";
/// A pod was active for longer than it may.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
