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
/// Something of a pod that ends could not be stopped.
pub const FAILED_TO_KILL_POD: &str = "FailedKillPod";
/// A pod makes room for a more important one.
pub const PREEMPTING: &str = "Preempting";
/// A restart or a pull waits, because the last one failed.
pub const BACK_OFF: &str = "BackOff";
/// The runtime did not stop a container within its grace period.
pub const EXCEEDED_GRACE_PERIOD: &str = "ExceededGracePeriod";
/// The cgroups of a pod could not be made.
pub const FAILED_CREATE_POD_CONTAINER: &str = "FailedCreatePodContainer";
/// A pod waits for the node's network.
pub const NETWORK_NOT_READY: &str = "NetworkNotReady";
/// An image is being pulled.
pub const PULLING: &str = "Pulling";
/// An image was pulled, or is there already.
pub const PULLED: &str = "Pulled";
/// The runtime could not say whether an image is there, or its name is invalid.
pub const INSPECT_FAILED: &str = "InspectFailed";
/// An image is not there, and may not be pulled.
pub const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
/// The agent starts.
pub const STARTING: &str = "Starting";
/// The machine runs anew.
pub const REBOOTED: &str = "Rebooted";
/// The machine is about to be shut down, or not any more.
pub const NODE_SHUTDOWN: &str = "NodeShutdown";
/// The machine has the old cgroups.
pub const CGROUP_V1: &str = "CgroupV1";
/// A cgroup of the node is held to what is its.
pub const NODE_ALLOCATABLE_ENFORCED: &str = "NodeAllocatableEnforced";
/// A cgroup of the node could not be held to what is its.
pub const FAILED_NODE_ALLOCATABLE_ENFORCEMENT: &str = "FailedNodeAllocatableEnforcement";
/// A volume could not be mounted.
pub const FAILED_MOUNT: &str = "FailedMount";
/// A volume could not be given to a pod as a device.
pub const FAILED_MAP_VOLUME: &str = "FailedMapVolume";
/// A volume is there.
pub const SUCCESSFUL_MOUNT_VOLUME: &str = "SuccessfulMountVolume";
/// Another pod has a volume in another way than this one wants it.
pub const ALREADY_MOUNTED_VOLUME: &str = "AlreadyMountedVolume";
/// A volume that a pod uses could not be made larger.
pub const VOLUME_RESIZE_FAILED: &str = "VolumeResizeFailed";
/// A volume's files have more room.
pub const FILE_SYSTEM_RESIZE_SUCCESSFUL: &str = "FileSystemResizeSuccessful";
/// A volume's files do not get more room.
pub const FILE_SYSTEM_RESIZE_FAILED: &str = "FileSystemResizeFailed";
/// A secret that a pod names for pulls could not be had.
pub const FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET: &str = "FailedToRetrieveImagePullSecret";
/// A signer does not issue a certificate for a pod.
pub const CERTIFICATE_DENIED: &str = "Denied";
/// A signer could not issue a certificate for a pod.
pub const CERTIFICATE_FAILED: &str = "Failed";
/// A certificate of a pod should have been renewed ten minutes ago.
pub const CERTIFICATE_OVERDUE_FOR_REFRESH: &str = "CertificateOverdueForRefresh";
/// A certificate of a pod is worth nothing any more.
pub const CERTIFICATE_EXPIRED: &str = "CertificateExpired";
/// A pod's sandbox is made anew.
pub const SANDBOX_CHANGED: &str = "SandboxChanged";
/// A pod's sandbox could not be made.
pub const FAILED_CREATE_POD_SANDBOX: &str = "FailedCreatePodSandBox";
/// A probe failed.
pub const UNHEALTHY: &str = "Unhealthy";
/// A probe succeeded with a warning.
pub const PROBE_WARNING: &str = "ProbeWarning";
/// A hook after a start failed.
pub const FAILED_POST_START_HOOK: &str = "FailedPostStartHook";
/// A hook before a stop failed.
pub const FAILED_PRE_STOP_HOOK: &str = "FailedPreStopHook";
/// A server answered the HTTPS request of a hook in HTTP, and was asked again by HTTP.
pub const LIFECYCLE_HTTP_FALLBACK: &str = "LifecycleHTTPFallback";
/// A pod was active for longer than it may.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// It takes long to give a volume's files to the pod's group.
pub const VOLUME_PERMISSION_CHANGE_IN_PROGRESS: &str = "VolumePermissionChangeInProgress";
/// A pod's new resources were granted.
pub const RESIZE_STARTED: &str = "ResizeStarted";
/// A pod has its new resources.
pub const RESIZE_COMPLETED: &str = "ResizeCompleted";
/// A pod could not be given its new resources.
pub const RESIZE_ERROR: &str = "ResizeError";
/// A pod was changed like this node does not say that it can do.
pub const FAILED_NODE_DECLARED_FEATURES_CHECK: &str = "FailedNodeDeclaredFeaturesCheck";
/// There is no room for a pod's new resources.
pub const RESIZE_DEFERRED: &str = "ResizeDeferred";
/// A pod can never have its new resources here.
pub const RESIZE_INFEASIBLE: &str = "ResizeInfeasible";
pub const VOLUME_CONDITION_ABNORMAL: &str = "VolumeConditionAbnormal";
pub const VOLUME_ATTACHMENT_LIMIT_EXCEEDED: &str = "VolumeAttachmentLimitExceeded";
/// The node ran short of something, and lets go of what it can.
pub const EVICTION_THRESHOLD_MET: &str = "EvictionThresholdMet";
/// A pod has to go, because the node runs short of something or it takes more than it may.
pub const EVICTED: &str = crablet_core::eviction::REASON;
/// The runtime could not be listed, so that it was not known which containers are over.
pub const CONTAINER_GC_FAILED: &str = "ContainerGCFailed";
/// Images that nobody uses could not be removed, several times in a row.
pub const IMAGE_GC_FAILED: &str = "ImageGCFailed";
/// Removing images that nobody uses did not free as much as it should.
pub const FREE_DISK_SPACE_FAILED: &str = "FreeDiskSpaceFailed";
/// The file system that images are on holds nothing.
pub const INVALID_DISK_CAPACITY: &str = "InvalidDiskCapacity";
/// What the node has to remember could not be written down.
pub const FAILED_SYNC: &str = "FailedSync";
/// The kernel ended a process because the whole machine ran out of memory.
pub const SYSTEM_OOM: &str = "SystemOOM";
