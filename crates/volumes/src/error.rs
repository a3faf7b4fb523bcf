//! What goes wrong with volumes, in upstream's words.

mod in_events;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crablet_core::translate::{DownwardError, ObjectKind, Unavailable};
use crablet_host::mounts::MountError;

use crate::atomic_writer::PayloadError;
use crate::claims::ClaimError;
use crate::contents::NoCertificate;
use crate::expand::{ExpandError, Moment};
use crate::refused::driver_for;
use crate::tools::ToolError;
pub use in_events::FailureKind;

/// A volume that could not be set up. What this displays is the message of upstream's event `FailedMount`.
#[derive(Debug, thiserror::Error)]
#[error("{}", in_events::told(self).1)]
pub struct VolumeError {
    /// The volume's name in the pod.
    pub volume: String,
    /// What upstream calls it: the name of what its claim leads to, or its own.
    pub spec_name: String,
    /// What was wrong.
    pub cause: PluginError,
}

/// Why a plugin could not set up a volume.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// No plugin is there for this kind.
    #[error("volumes of the kind {kind} are not supported yet")]
    Kind { kind: &'static str },
    /// A CSI driver is there for this kind.
    #[error("volumes of the kind {kind} are not supported: use a CSI driver instead, such as {driver}")]
    Refused { kind: &'static str, driver: &'static str },
    /// Upstream has turned this kind off.
    #[error(
        "git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`"
    )]
    GitRepo,
    /// A volume without a source, with several, or with one of a newer API.
    #[error("no volume plugin matched")]
    NoSource,
    /// Its claim leads nowhere.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// What is looked at before anything is done says that it cannot be done.
    #[error("{why}")]
    Check { check: &'static str, why: &'static str },
    /// A local volume is not there, or not of a kind that can be mounted.
    #[error(transparent)]
    LocalPath(#[from] LocalPathError),
    /// The path of a local volume leads back up.
    #[error("invalid path: {0} must not contain '..'")]
    LocalBacksteps(String),
    /// The device of a local volume was not mounted on the node.
    #[error(
        "local: failed to mount device {} at {} (fstype: {format}), error {cause}",
        device.display(), place.display()
    )]
    LocalDevice { device: PathBuf, place: PathBuf, format: String, cause: Box<ToolError> },
    /// The host's own tool could not do it.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// No driver of this name is on the node.
    #[error(
        "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name {0} not found in the list of registered CSI drivers"
    )]
    NoDriver(String),
    /// Another pod has the volume, and no two may.
    #[error("volume uses the ReadWriteOncePod access mode and is already in use by another pod")]
    InUse,
    /// It is still staged as another pod had it.
    #[error(
        "waiting for unmount of volume \"{0}\", because it is already mounted to a different pod with a different SELinux label"
    )]
    OtherLabel(String),
    /// The pod's containers would each need another one.
    #[error("multiple SELinux labels found: {0}")]
    Labels(String),
    /// The node does not say which labels files have.
    #[error("failed to construct SELinux label: {0}")]
    NoLabel(#[source] io::Error),
    /// A driver could not do it.
    #[error(transparent)]
    Csi(crablet_csi::Error),
    /// It was not staged.
    #[error("{}", of_staging(.0))]
    MountDevice(Box<PluginError>),
    /// Its files were not given to the pod's group.
    #[error("applyFSGroup failed for vol {handle}: {cause}")]
    Group { handle: String, cause: Box<PluginError> },
    /// The tokens that its driver wants cannot be had. The word is upstream's.
    #[error("kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes: {0}")]
    Tokens(Box<PluginError>),
    /// A driver does not say that it can do this.
    #[error("{driver} does not support {what}")]
    NotSupported { driver: String, what: &'static str },
    /// It was not made larger.
    #[error("{cause}")]
    Expand { moment: Moment, cause: ExpandError },
    /// Nobody has attached the volume to the node.
    #[error(
        "volume {0} has not been added to the list of VolumesInUse in the node's volume status, or is not attached"
    )]
    NotAttached(String),
    /// Nobody can attach the volume to the node, which has as many as it can have.
    #[error("volume {0} is not attached, since the node has reached its volume attachment limit")]
    AttachmentLimit(String),
    /// A step on the way to a pod's device failed.
    #[error("{}", of_device(step, cause))]
    Map { step: &'static str, cause: Box<PluginError> },
    /// What should be a device is none.
    #[error("{} is not a block device", .0.display())]
    NotDevice(PathBuf),
    /// A loop device was not made or not taken away.
    #[error("{}", errno_text(.0))]
    LoopDevice(io::Error),
    /// Something is left where a driver has taken a volume back.
    #[error("{0}")]
    Left(String),
    /// What is to be unstaged is mounted elsewhere.
    #[error("the device mount path {} is still mounted by other references {elsewhere:?}", place.display())]
    StillMounted { place: PathBuf, elsewhere: Vec<PathBuf> },
    /// The volume is not attached to the node.
    #[error("{0}")]
    Attachment(String),
    /// What the cluster knows of a driver cannot be had.
    #[error("kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: {0}")]
    CsiDriverObject(String),
    /// A driver has no such volumes.
    #[error("kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: {0}")]
    CsiMode(String),
    /// A secret that storage refers to cannot be had.
    #[error("{0}")]
    CsiSecret(String),
    /// What is written of a volume cannot be read or written.
    #[error("kubernetes.io/csi: failed to save or load volume info data: {0}")]
    VolumeData(String),
    /// A name that would lead out of the pod's directory.
    #[error("{name:?} cannot be the name of a directory")]
    Name { name: String },
    /// A path of the node leads back up.
    #[error("invalid HostPath `{0}`: must not contain '..'")]
    HostPathBacksteps(String),
    /// A path of the node is not what it should be.
    #[error("hostPath type check failed: {path} is not {wanted}")]
    HostPathType { path: String, wanted: &'static str },
    /// Nobody knows what the path should be.
    #[error("{0} is an invalid volume type")]
    HostPathUnknownType(String),
    /// Nobody knows what to keep an empty directory on.
    #[error("unknown storage medium \"{0}\"")]
    Medium(String),
    /// No container asks for pages of this size.
    #[error("medium {0}: hugePages storage requested, but there is no resource request for huge pages")]
    NoHugePages(String),
    /// Containers ask for pages of several sizes, and the volume does not say which it means.
    #[error("medium: {0} can't be used if container requests multiple huge page sizes")]
    SeveralHugePages(String),
    /// The size of huge pages is not a number.
    #[error("{0} is not a size of huge pages")]
    HugePageSize(String),
    /// Pages of another size are mounted there.
    #[error("pod {uid}: mounted dir {} pagesize '{mounted}' and requested medium size '{wanted}' differ", directory.display())]
    OtherHugePages { uid: String, directory: PathBuf, mounted: String, wanted: String },
    /// Another file system is mounted where the volume should be.
    #[error("{} is a mount point of {file_system}, not of {wanted}", directory.display())]
    OtherMount { directory: PathBuf, file_system: String, wanted: &'static str },
    /// Files have no mode.
    #[error("no defaultMode used, not even the default value for it")]
    NoDefaultMode,
    /// What the pod asks to be told of itself cannot be told.
    #[error("{}", aggregate(texts(self)))]
    Downward(Vec<DownwardError>),
    /// A config map or a secret cannot be had.
    #[error("{}", no_object(*kind, name, why))]
    Object { kind: ObjectKind, name: String, why: Unavailable },
    /// A config map or a secret has no such key.
    #[error("{} key: {key}", no_key(*kind))]
    NoKey { kind: ObjectKind, key: String },
    /// A token cannot be had.
    #[error("{}", no_token(.0))]
    Token(Unavailable),
    /// Nobody can say whom to trust.
    #[error("{}", no_trust_anchors(name.as_deref(), why))]
    TrustAnchors { name: Option<String>, why: Unavailable },
    /// A certificate of the pod cannot be had.
    #[error(transparent)]
    Certificate(NoCertificate),
    /// There is no API server that has what a projected volume shows.
    #[error("cannot setup projected volume {volume} because kube client is not configured")]
    NoClient { volume: String },
    /// Sources of a projected volume cannot be had.
    #[error("{}", aggregate(texts(self)))]
    Sources(Vec<PluginError>),
    /// A file's path leads elsewhere.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// A container mounts the volume outside of its own root.
    #[error("invalid container mount point {0}")]
    MountPoint(String),
    /// Something could not be mounted.
    #[error("{}: {}", .0, cause_of(.0))]
    Mount(#[from] MountError),
    /// A call on a file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The mount table could not be read.
    #[error("error listing mount points: {}", errno_text(.0))]
    MountTable(#[source] io::Error),
    /// It took too long. The work goes on and the next try finds what it did.
    #[error("timed out after {}s, the work on it continues", .0.as_secs())]
    TimedOut(Duration),
    /// Work on the pod's volumes that began earlier has not ended.
    #[error("earlier work on the pod's volumes has not ended for {}s", .0.as_secs())]
    Busy(Duration),
    /// The work ended by a panic.
    #[error("the work on it ended by a panic")]
    Panicked,
}

/// What is wrong with the path of a local volume.
#[derive(Debug, thiserror::Error)]
pub enum LocalPathError {
    #[error("local volume source is nil or local path is not set")]
    Empty,
    #[error("path {:?} does not exist", .0.display().to_string())]
    NotThere(PathBuf),
    /// It could not be looked at.
    #[error(transparent)]
    File(#[from] FileError),
    #[error("only directory and block device are supported")]
    Kind,
}

impl PluginError {
    /// The error for a kind that no plugin is there for.
    pub(crate) fn of_kind(kind: &'static str) -> PluginError {
        match driver_for(kind) {
            Some(driver) => PluginError::Refused { kind, driver },
            None if kind == "gitRepo" => PluginError::GitRepo,
            None => PluginError::Kind { kind },
        }
    }

    /// Whether nobody knows volumes of the kind.
    pub(crate) fn is_of_kind(&self) -> bool {
        matches!(
            self,
            PluginError::Kind { .. }
                | PluginError::Refused { .. }
                | PluginError::GitRepo
                | PluginError::NoSource
        )
    }

    /// Whether it is only not known for now what is to be shown.
    pub(crate) fn is_passing(&self) -> bool {
        let passes = |why: &Unavailable| matches!(why, Unavailable::Other(_));
        if let PluginError::Object { why, .. }
        | PluginError::Token(why)
        | PluginError::TrustAnchors { why, .. } = self
        {
            return passes(why);
        }
        if let PluginError::Certificate(why) = self {
            return matches!(why, NoCertificate::NotYet(_));
        }
        matches!(self, PluginError::Sources(errors) if errors.iter().all(PluginError::is_passing))
    }
}

#[cfg(any(test, feature = "simulated"))]
impl VolumeError {
    /// Of a volume that is called as in the pod.
    pub(crate) fn new(volume: &str, cause: PluginError) -> VolumeError {
        VolumeError { volume: volume.to_owned(), spec_name: volume.to_owned(), cause }
    }
}

fn of_staging(cause: &PluginError) -> String {
    match cause {
        PluginError::NoDriver(name) => format!(
            "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: \
             driver name {name} not found in the list of registered CSI drivers"
        ),
        cause => cause.to_string(),
    }
}

fn of_device(step: &str, cause: &PluginError) -> String {
    match cause {
        PluginError::NoDriver(name) => format!(
            "kubernetes.io/csi: blockMapper.{step} failed to get CSI client: \
             driver name {name} not found in the list of registered CSI drivers"
        ),
        cause => cause.to_string(),
    }
}

/// A call on a file that failed, in Go's words: `mkdir /a/b: not a directory`.
#[derive(Debug, thiserror::Error)]
#[error("{call} {}: {}", path.display(), errno_text(source))]
pub struct FileError {
    /// What was tried: `mkdir`, `open`.
    pub call: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why it failed.
    pub source: io::Error,
}

/// For `map_err`: the call and the path that an error belongs to.
pub(crate) fn failed<E: Into<io::Error>>(call: &'static str, path: &Path) -> impl FnOnce(E) -> FileError {
    move |error| FileError { call, path: path.to_owned(), source: error.into() }
}

/// A sub path that is not there for a container. The message says nothing of the node's files, which are not the
/// user's to know; the source does, for the log.
#[derive(Debug, thiserror::Error)]
pub enum SubPathError {
    /// It was missing and could not be made.
    #[error("failed to create subPath directory for volumeMount \"{mount}\" of container \"{container}\"")]
    NotCreated {
        /// The mount's volume.
        mount: String,
        container: String,
        /// What went wrong.
        source: SubPathCause,
    },
    /// It could not be opened within its volume, or not be mounted.
    #[error("failed to prepare subPath for volumeMount \"{mount}\" of container \"{container}\"")]
    NotPrepared {
        /// The mount's volume.
        mount: String,
        container: String,
        /// What went wrong.
        source: SubPathCause,
    },
}

/// What went wrong with a sub path, for the log alone.
#[derive(Debug, thiserror::Error)]
pub enum SubPathCause {
    /// A symbolic link leads out of the volume, or a directory became one while we looked.
    #[error("{path:?} leads out of the volume {}", volume.display())]
    Outside { path: String, volume: PathBuf },
    /// A name that would lead out of the pod's directory.
    #[error("{0:?} cannot be the name of a directory")]
    Name(String),
    /// A call on a file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// It was not mounted.
    #[error("{}: {}", .0, cause_of(.0))]
    Mount(#[from] MountError),
    /// It took too long.
    #[error("timed out after {}s, the work on it continues", .0.as_secs())]
    TimedOut(Duration),
    /// The work ended by a panic.
    #[error("the work on it ended by a panic")]
    Panicked,
    /// A planned fault of the simulation.
    #[error("{}", errno_text(.0))]
    Simulated(io::Error),
}

/// A pod's volumes that are not yet taken away. Trying again goes on from where it stopped.
#[derive(Debug, thiserror::Error)]
pub enum TearDownError {
    /// The UID is not a name that a directory can have.
    #[error("{0:?} cannot be the name of a directory")]
    Uid(String),
    /// A mount stays, since something uses it.
    #[error("{}: {}", .0, cause_of(.0))]
    Unmount(#[from] MountError),
    /// The mount table could not be read.
    #[error("error listing mount points: {}", errno_text(.0))]
    MountTable(#[source] io::Error),
    /// Something was mounted again, or came to light.
    #[error("{} is still a mount point", .0.display())]
    StillMounted(PathBuf),
    /// The directory of a plugin that we do not know holds something.
    #[error("{} is not empty, and its content is not known to be the pod's", .0.display())]
    Foreign(PathBuf),
    /// Something could not be removed.
    #[error(transparent)]
    File(#[from] FileError),
    /// It took too long: a file system does not answer. The work goes on.
    #[error("timed out after {}s, the work on it continues", .0.as_secs())]
    TimedOut(Duration),
    /// A device could not be taken from the pod.
    #[error(transparent)]
    Device(Box<PluginError>),
    /// A driver could not take a volume back.
    #[error("{0}")]
    Csi(String),
    /// The work ended by a panic.
    #[error("the work on it ended by a panic")]
    Panicked,
}

fn no_object(kind: ObjectKind, name: &str, why: &Unavailable) -> String {
    match why {
        Unavailable::NotFound => format!("{} \"{name}\" not found", kind.lower()),
        Unavailable::NoClient => "not supported due to running kubelet in standalone mode".to_owned(),
        Unavailable::Other(why) => why.clone(),
    }
}

fn no_key(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::ConfigMap => "configmap references non-existent config",
        ObjectKind::Secret => "references non-existent secret",
    }
}

fn no_token(why: &Unavailable) -> String {
    match why {
        Unavailable::NotFound => "failed to fetch token: not found".to_owned(),
        Unavailable::NoClient => "cannot use TokenManager when kubelet is in standalone mode".to_owned(),
        Unavailable::Other(why) => why.clone(),
    }
}

fn no_trust_anchors(name: Option<&str>, why: &Unavailable) -> String {
    match (why, name) {
        (Unavailable::NotFound, Some(name)) => format!(
            "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io {name:?} not found"
        ),
        (Unavailable::NotFound, None) => {
            "combination of signerName and labelSelector matched zero ClusterTrustBundles".to_owned()
        }
        (Unavailable::NoClient, _) => {
            "ClusterTrustBundle projection is not supported in static kubelet mode".to_owned()
        }
        (Unavailable::Other(why), _) => why.clone(),
    }
}

/// What several errors in one say, each for itself.
fn texts(error: &PluginError) -> Vec<String> {
    if let PluginError::Downward(errors) = error {
        errors.iter().map(ToString::to_string).collect()
    } else if let PluginError::Sources(errors) = error {
        errors.iter().flat_map(texts).collect()
    } else {
        vec![error.to_string()]
    }
}

/// Several errors as Go joins them: one stands for itself, and none is said twice.
fn aggregate(all: Vec<String>) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in all {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

fn cause_of(error: &MountError) -> String {
    match error {
        MountError::Tmpfs { source, .. }
        | MountError::HugePages { source, .. }
        | MountError::Bind { source, .. }
        | MountError::Share { source, .. }
        | MountError::ReadOnly { source, .. }
        | MountError::Unmount { source, .. } => errno_text(source),
    }
}

/// What the kernel said, as Go writes it: small and without the number.
pub(crate) fn errno_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_upstreams_events() {
        let said = |cause| VolumeError::new("v", cause).to_string();
        let file = FileError {
            call: "mkdir",
            path: "/a/b".into(),
            source: io::Error::from_raw_os_error(rustix::io::Errno::NOTDIR.raw_os_error()),
        };
        assert_eq!(
            said(file.into()),
            "MountVolume.SetUp failed for volume \"v\" : mkdir /a/b: not a directory"
        );
        let one = || DownwardError::Field("spec.x".to_owned());
        assert_eq!(PluginError::Downward(vec![one(), one()]).to_string(), "unsupported fieldPath: spec.x");
        let two = PluginError::Downward(vec![one(), DownwardError::Container("c".to_owned())]);
        assert_eq!(two.to_string(), "[unsupported fieldPath: spec.x, container c not found]");
    }
}
