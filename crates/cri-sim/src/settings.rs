//! What a simulated runtime is like.

use std::time::Duration;

use crablet_cri_api::CgroupDriver;
use jiff::Timestamp;

use super::fault::Chaos;
use super::image::Image;
use super::latency::Latencies;

/// What a simulated runtime is like. The default is quick, never fails, and has every call of CRI 1.36; in what it
/// answers it follows containerd 1.6.20.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What all chance follows from.
    pub seed: u64,
    /// The wall-clock time at the start. It then moves with tokio's time.
    pub start: Timestamp,
    /// The calls and streams that it has.
    pub capabilities: Capabilities,
    /// What stopping a container or a sandbox that is not there gives.
    pub stopping_the_missing: StoppingTheMissing,
    /// The images that it has from the start.
    pub images: Vec<Image>,
    /// The images that it can pull.
    pub registry: Vec<Image>,
    /// Whether an image that is not in the registry can be pulled all the same.
    pub pull_anything: bool,
    /// The image of sandboxes: without it, and when it cannot be pulled, no sandbox starts.
    pub sandbox_image: String,
    /// Where it says that images, and what containers write, are. Nothing is kept there.
    pub file_system: String,
    /// Whether it makes directories of this machine that are to be mounted and are not there, as runtimes do.
    pub makes_directories: bool,
    /// The names of runtime handlers, the default first.
    pub runtime_handlers: Vec<String>,
    /// Who makes the cgroups of containers.
    pub cgroup_driver: CgroupDriver,
    /// The first three numbers of pods' addresses: `10.88.0` gives `10.88.0.2` and on, then those of `10.88.1`.
    pub pod_network: [u8; 3],
    /// Where the streaming server of `Exec`, `Attach` and `PortForward` is, such as `http://127.0.0.1:1234`. The
    /// simulator has none of its own: without this, these calls say so.
    pub streaming_server: Option<String>,
    /// How long calls take.
    pub latencies: Latencies,
    /// How long after a container's exit CRI still says that it runs. Events of the exit are sent at once: containerd
    /// does so, and a client must cope.
    pub exit_lag: Duration,
    /// Faults by chance.
    pub chaos: Chaos,
    /// How many calls are remembered for [`Simulator::calls`](super::Simulator::calls).
    pub remembered_calls: usize,
    /// How many sandboxes and containers that were asked for are remembered for
    /// [`Simulator::asked`](super::Simulator::asked).
    pub remembered_asked: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 1,
            start: Timestamp::constant(1_790_000_000, 0),
            capabilities: Capabilities::all(),
            stopping_the_missing: StoppingTheMissing::Fails,
            images: vec![Image::new(PAUSE).entrypoint(["/pause"]), Image::new(BUSYBOX).cmd(["sh"])],
            registry: Vec::new(),
            pull_anything: false,
            sandbox_image: PAUSE.to_owned(),
            file_system: "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs".to_owned(),
            makes_directories: false,
            runtime_handlers: vec!["runc".to_owned()],
            cgroup_driver: CgroupDriver::Cgroupfs,
            pod_network: [10, 88, 0],
            streaming_server: None,
            latencies: Latencies::default(),
            exit_lag: Duration::ZERO,
            chaos: Chaos::default(),
            remembered_calls: 100_000,
            remembered_asked: 0,
        }
    }
}

const PAUSE: &str = "crablet.test/pause:1";
const BUSYBOX: &str = "crablet.test/busybox:1";

impl Settings {
    /// As containerd 1.6.20 is: without CRI's container events, `RuntimeConfig`, streamed lists and sandbox metrics.
    pub fn containerd_1_6() -> Settings {
        Settings { capabilities: Capabilities::containerd_1_6(), ..Settings::default() }
    }

    /// As containerd 1.7 is: with CRI's container events; stopping what is not there succeeds.
    pub fn containerd_1_7() -> Settings {
        Settings {
            capabilities: Capabilities::containerd_1_7(),
            stopping_the_missing: StoppingTheMissing::Succeeds,
            ..Settings::default()
        }
    }
}

/// The calls and streams that a runtime has. A call that it lacks is answered with `Unimplemented`, in containerd's
/// words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// `GetContainerEvents`; and statuses of containers in the status of their sandbox.
    pub cri_events: bool,
    /// containerd's own event stream.
    pub containerd_events: bool,
    /// `RuntimeConfig`.
    pub runtime_config: bool,
    /// `StreamContainers`, `StreamPodSandboxes`, `StreamImages` and the others.
    pub streamed_lists: bool,
    /// `PodSandboxStats` and `ListPodSandboxStats`.
    pub sandbox_stats: bool,
    /// `ListMetricDescriptors` and `ListPodSandboxMetrics`.
    pub sandbox_metrics: bool,
    /// `UpdatePodSandboxResources`.
    pub sandbox_resources: bool,
    /// `CheckpointContainer`.
    pub checkpoints: bool,
    /// Runtime handlers and features in `Status`.
    pub handlers_in_status: bool,
    /// User namespaces, with every handler.
    pub user_namespaces: bool,
    /// Mounts that are read-only all the way down, with the default handler.
    pub recursive_read_only_mounts: bool,
    /// Mounts of images.
    pub image_volumes: bool,
    /// A choice of whether a container joins the groups of its image.
    pub supplemental_groups_policy: bool,
}

impl Capabilities {
    /// Everything.
    pub fn all() -> Capabilities {
        Capabilities {
            cri_events: true,
            containerd_events: true,
            runtime_config: true,
            streamed_lists: true,
            sandbox_stats: true,
            sandbox_metrics: true,
            sandbox_resources: true,
            checkpoints: true,
            handlers_in_status: true,
            user_namespaces: true,
            recursive_read_only_mounts: true,
            image_volumes: true,
            supplemental_groups_policy: true,
        }
    }

    pub fn containerd_1_6() -> Capabilities {
        Capabilities {
            cri_events: false,
            containerd_events: true,
            runtime_config: false,
            streamed_lists: false,
            sandbox_stats: true,
            sandbox_metrics: false,
            sandbox_resources: false,
            checkpoints: false,
            handlers_in_status: false,
            user_namespaces: false,
            recursive_read_only_mounts: false,
            image_volumes: false,
            supplemental_groups_policy: false,
        }
    }

    pub fn containerd_1_7() -> Capabilities {
        Capabilities { cri_events: true, ..Capabilities::containerd_1_6() }
    }
}

/// What stopping a container or a sandbox that is not there gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoppingTheMissing {
    /// `NotFound`, as with containerd 1.6.
    Fails,
    /// Success, as with containerd 1.7 and on.
    Succeeds,
}
