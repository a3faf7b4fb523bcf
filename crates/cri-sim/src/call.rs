//! The calls that a runtime has, and the record of those that were made.

use crablet_cri_api::v1;
use tokio::time::Instant;

macro_rules! methods {
    ($($name:ident),* $(,)?) => {
        /// A call of the runtime's interface.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Method {
            $($name,)*
        }

        impl Method {
            /// All of them.
            pub const ALL: &[Method] = &[$(Method::$name),*];

            /// Its name on the wire.
            pub fn name(self) -> &'static str {
                match self {
                    $(Method::$name => stringify!($name),)*
                }
            }

            pub fn named(name: &str) -> Option<Method> {
                Method::ALL.iter().copied().find(|method| method.name() == name)
            }
        }
    };
}

methods!(
    Version,
    Status,
    RuntimeConfig,
    UpdateRuntimeConfig,
    RunPodSandbox,
    StopPodSandbox,
    RemovePodSandbox,
    PodSandboxStatus,
    ListPodSandbox,
    StreamPodSandboxes,
    UpdatePodSandboxResources,
    PodSandboxStats,
    ListPodSandboxStats,
    StreamPodSandboxStats,
    PortForward,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    ListContainers,
    StreamContainers,
    ContainerStatus,
    UpdateContainerResources,
    ReopenContainerLog,
    CheckpointContainer,
    ExecSync,
    Exec,
    Attach,
    ContainerStats,
    ListContainerStats,
    StreamContainerStats,
    ListMetricDescriptors,
    ListPodSandboxMetrics,
    StreamPodSandboxMetrics,
    GetContainerEvents,
    ListImages,
    StreamImages,
    ImageStatus,
    PullImage,
    RemoveImage,
    ImageFsInfo,
    Subscribe,
);

/// A call that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Which.
    pub method: Method,
    /// What it was about: an ID as it was given, the name of an image, `namespace/pod` for a sandbox to be run,
    /// `namespace/pod/container` for a container to be made; empty where it is about everything.
    pub subject: String,
    /// When it came in.
    pub at: Instant,
}

/// Something that was asked to be made, or to have other resources, whether it could be or not.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    Sandbox(v1::PodSandboxConfig),
    Container(v1::ContainerConfig),
    SandboxResources(v1::UpdatePodSandboxResourcesRequest),
}
