//! Why a pod or a container is not made: upstream's words, since people search for them.

use super::dns::ResolvConfError;
use super::downward::DownwardError;
use super::hostname::HostNameError;
use super::namespaces::UserNamespaceError;
use super::runtime_class::RuntimeClassError;
use super::{go_quote, pod_description};
use crablet_api::core::Pod;
use crablet_cgroup_names::NameError;

/// Why a pod has no sandbox. A pod's sandbox fails with [`SandboxRefusal::REASON`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SandboxRefusal {
    /// It cannot be called anything.
    #[error(transparent)]
    HostName(#[from] HostNameError),
    /// It cannot have the users that it asks for.
    #[error(transparent)]
    UserNamespace(#[from] UserNamespaceError),
    /// Nobody knows which handler is to run it.
    #[error(transparent)]
    RuntimeClass(#[from] RuntimeClassError),
    /// It names a policy for its groups that nobody knows.
    #[error(transparent)]
    Groups(#[from] UnsupportedGroupsPolicy),
    /// Nobody knows how it is to resolve names.
    #[error(transparent)]
    Resolver(#[from] ResolvConfError),
    /// Its control group cannot be called anything.
    #[error(transparent)]
    Cgroup(#[from] NameError),
}

impl SandboxRefusal {
    /// Why its containers wait, in one word.
    pub const REASON: &'static str = "CreatePodSandboxError";

    /// What is said of the pod.
    pub fn message(&self, pod: &Pod) -> String {
        format!("Failed to generate sandbox config for pod {}: {self}", go_quote(&pod_description(pod)))
    }
}

/// A pod names a policy for its groups that nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unsupported supplementalGroupsPolicy: {0}")]
pub struct UnsupportedGroupsPolicy(pub String);

/// Why a container is not made. It waits with [`ContainerRefusal::REASON`] and the text of this as its message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContainerRefusal {
    /// Its pod cannot be called anything.
    #[error(transparent)]
    HostName(#[from] HostNameError),
    /// Its pod cannot have the users that it asks for.
    #[error(transparent)]
    UserNamespace(#[from] UserNamespaceError),
    /// Its pod names a policy for its groups that nobody knows.
    #[error(transparent)]
    Groups(#[from] UnsupportedGroupsPolicy),
    /// A field or a resource that a variable refers to cannot be told.
    #[error(transparent)]
    Downward(#[from] DownwardError),

    /// Nobody said whether services become variables.
    #[error("nil pod.spec.enableServiceLinks encountered, cannot construct envvars")]
    NoServiceLinks,
    /// The services are not known yet.
    #[error("services have not yet been read at least once, cannot construct envvars")]
    ServicesNotRead,
    /// A config map or a secret is not there.
    #[error("{kind} {} not found", go_quote(name), kind = kind.lower())]
    NotFound {
        /// What it would be.
        kind: ObjectKind,
        name: String,
    },
    /// There is no API server to ask.
    #[error("couldn't get {kind} {namespace}/{name}, no kubeClient defined", kind = kind.camel())]
    NoClient {
        /// What it would be.
        kind: ObjectKind,
        namespace: String,
        name: String,
    },
    /// A config map or a secret could not be had.
    #[error("{0}")]
    Unavailable(String),
    /// A config map or a secret has no such key.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}", kind = kind.title())]
    NoKey {
        key: String,
        /// Where it should be.
        kind: ObjectKind,
        namespace: String,
        name: String,
    },
    /// The volume that holds a file of variables is not there.
    #[error("cannot find the volume {} referenced by FileKeyRef", go_quote(.0))]
    NoEnvVolume(String),
    /// A file of variables cannot be read.
    #[error("couldn't parse env file")]
    EnvFile,
    /// A file of variables has no such key.
    #[error("environment variable key {} not found in file {}", go_quote(key), go_quote(file))]
    NoEnvKey {
        key: String,
        /// The path of the file on the node.
        file: String,
    },

    /// A volume is not there, or not mounted.
    #[error("cannot find volume {} to mount into container {}", go_quote(volume), go_quote(container))]
    NoVolume { volume: String, container: String },
    /// A volume is not there, or not a device.
    #[error("cannot find volume {} to pass into container {}", go_quote(volume), go_quote(container))]
    NoDevice { volume: String, container: String },
    /// A device's path in the container must begin at the root.
    #[error("error DevicePath `{0}` must be an absolute path")]
    RelativeDevicePath(String),
    /// Variables in a sub path that have no value.
    #[error("missing value for {}", .0.join(", "))]
    SubPathVariables(Vec<String>),
    /// A sub path begins at the root.
    #[error("error SubPath `{0}` must not be an absolute path")]
    AbsoluteSubPath(String),
    /// A sub path leads out of its volume.
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    SubPathBacksteps(String),
    /// A sub path could not be prepared. What went wrong would tell of the node's files.
    #[error(
        "failed to prepare subPath for volumeMount {} of container {}",
        go_quote(mount),
        go_quote(container)
    )]
    SubPathNotPrepared { mount: String, container: String },
    /// Nobody knows this kind of mount propagation.
    #[error("invalid MountPropagation mode: {}", go_quote(.0))]
    MountPropagation(String),
    /// A mount cannot be read-only all the way down.
    #[error("failed to resolve recursive read-only mode: {0}")]
    RecursiveReadOnly(RecursiveReadOnlyError),
    /// The feature is off.
    #[error("recursive read-only mount needs feature gate \"RecursiveReadOnlyMounts\" to be enabled")]
    RecursiveReadOnlyDisabled,

    /// The container whose processes it is to see is not there.
    #[error("unable to find target container {0}")]
    NoTarget(String),
    /// The runtime does not say which user its image runs as.
    #[error("{0}")]
    ImageUserUnknown(String),
    /// It must not be root and asks to be.
    #[error("container's runAsUser breaks non-root policy (pod: {}, container: {container})", go_quote(pod))]
    RunAsUserIsRoot { pod: String, container: String },
    /// It must not be root and its image names a user whose number is not known.
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: \
         {}, container: {container})",
        go_quote(pod)
    )]
    ImageUserIsNotANumber { user: String, pod: String, container: String },
    /// It must not be root and its image is.
    #[error(
        "container has runAsNonRoot and image will run as root (pod: {}, container: {container})",
        go_quote(pod)
    )]
    ImageRunsAsRoot { pod: String, container: String },
    /// It must not be root and its image names a user that cannot be.
    #[error(
        "container has runAsNonRoot and image has an invalid user id ({user}). (Must be 1-(2147483647)): must be \
         between 0 and 2147483647, inclusive (pod: {}, container: {container})",
        go_quote(pod)
    )]
    ImageUserIsInvalid { user: i64, pod: String, container: String },
    /// A seccomp profile of the node has no name.
    #[error("localhostProfile must be set if seccompProfile type is Localhost.")]
    SeccompProfile,
    /// An AppArmor profile of the node has no name.
    #[error("missing localhost apparmor profile name")]
    AppArmorProfileName,
    /// Nobody knows this kind of AppArmor profile.
    #[error("unknown apparmor profile type: {}", go_quote(.0))]
    AppArmorProfileType(String),
}

impl ContainerRefusal {
    /// Why the container waits, in one word.
    pub const REASON: &'static str = "CreateContainerConfigError";
}

/// Why a mount cannot be read-only all the way down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecursiveReadOnlyError {
    #[error("volume {} requested recursive read-only mode, but it is not read-only", go_quote(.0))]
    NotReadOnly(String),
    /// It lets mounts through.
    #[error(
        "volume {} requested recursive read-only mode, but it is not compatible with propagation {}",
        go_quote(volume),
        go_quote(propagation)
    )]
    Propagation {
        volume: String,
        /// How it lets them through.
        propagation: String,
    },
    /// The runtime cannot.
    #[error("volume {} requested recursive read-only mode, but it is not supported by the runtime", go_quote(.0))]
    Unsupported(String),
    /// Nobody knows this mode.
    #[error("unknown recursive read-only mode {}", go_quote(.0))]
    Mode(String),
}

/// What variables and files come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    ConfigMap,
    Secret,
}

impl ObjectKind {
    /// As upstream calls it where it is not there.
    pub fn lower(self) -> &'static str {
        match self {
            ObjectKind::ConfigMap => "configmap",
            ObjectKind::Secret => "secret",
        }
    }

    fn camel(self) -> &'static str {
        match self {
            ObjectKind::ConfigMap => "configMap",
            ObjectKind::Secret => "secret",
        }
    }

    fn title(self) -> &'static str {
        match self {
            ObjectKind::ConfigMap => "ConfigMap",
            ObjectKind::Secret => "Secret",
        }
    }
}
