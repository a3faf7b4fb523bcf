//! A node in this process: a private containerd, and an agent that gets its pods from the test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::agent::{Agent, Parts};
use crablet_agent::allocations::Allocations;
use crablet_agent::eviction::UsageMeter;
use crablet_agent::images::Access;
use crablet_agent::node_config::{Found, NodeConfig};
use crablet_agent::pod_files::{OnDisk, Places, PodFiles as _};
use crablet_agent::sources::{Feed, PodConfig, Problems, SourceKind, Wanted};
use crablet_agent::users::Users;
use crablet_api::core::{Pod, PodStatus};
use crablet_config::Flag;
use crablet_core::eviction::{Resource, Usages};
use crablet_core::translate::SysctlAllowlist;
use crablet_core::user_ids::UserIds;
use crablet_cri::client::Settings;
use crablet_cri::{Client, Runtime as _};
use crablet_cri_api::{ContainerFilter, SandboxFilter};
use crablet_host::cgroup::{CgroupDriver, Hierarchy, HostCgroups, Layout, MOUNT_POINT, version};
use crablet_host::checkpoint::DirectoryCheckpoints;
use crablet_host::clock::Clock;
use crablet_host::machine::{Machine, Storage, page_size, thermal_throttle_counters};
use crablet_host::mounts::{MountTable, PROC_SELF_MOUNTINFO};
use crablet_host::signals::KernelSignals;
use crablet_host::swap;
use crablet_metrics::Registries;
use crablet_testkit::{Containerd, Image, eventually};
use crablet_volumes::HostVolumes;
use jiff::Timestamp;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The node's name.
pub(crate) const NAME: &str = "node";

/// A command in a container takes less.
const LONGEST_COMMAND: Duration = Duration::from_secs(60);

/// Nobody asks what pods use: there is room for all.
struct Unmeasured;

#[async_trait::async_trait]
impl UsageMeter for Unmeasured {
    async fn of_all(&self, _: Resource) -> Option<Usages> {
        None
    }

    async fn on_disk(&self, _: &BTreeSet<String>) -> Option<Usages> {
        None
    }
}

/// A node with its agent.
pub(crate) struct Node {
    pub(crate) agent: Agent,
    feed: Feed,
    client: Client,
    places: Places,
    address: IpAddr,
    clock: Clock,
    stop: CancellationToken,
    // What it stands on goes last.
    ground: crablet_testkit::Node,
    _containerd: Containerd,
}

impl Node {
    /// One as the recordings were made on, with the images that they use.
    pub(crate) async fn start() -> Node {
        let containerd = Containerd::start().await.unwrap();
        for image in [
            Image::pause().unwrap(),
            Image::pause().unwrap().named("registry.k8s.io/pause:3.10"),
            Image::busybox().unwrap().named("docker.io/library/busybox:latest"),
        ] {
            containerd.import(&image).await.unwrap();
        }
        let fields =
            "clusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\nmaxPods: 250\nresolvConf: resolv.conf";
        let ground = crablet_testkit::Node::new(
            Path::new("none"),
            &containerd.endpoint(),
            &containerd.cgroup(),
            fields,
        )
        .unwrap();
        std::fs::write(ground.path("resolv.conf"), "nameserver 10.255.255.53\n").unwrap();
        // Where mounts are taken away first, should a test fail.
        let root = containerd.directory("root").unwrap();
        let places = Places { root, logs: ground.logs(), links: ground.path("links") };
        let client = Client::new(&containerd.endpoint(), None, Settings::default()).unwrap();
        let address = gateway(&containerd.subnet());
        let clock = Clock::system();
        let description = describe(&ground, &places.root, &client, address).await;
        let hierarchy = Hierarchy::detect(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        let layout = Layout::new(&containerd.cgroup(), CgroupDriver::Cgroupfs);
        let signals = Arc::new(KernelSignals::new(Path::new("/"), &places.root, hierarchy.clone(), &layout));
        let cluster = crate::cluster::cluster();
        let parts = Parts {
            runtime: Arc::new(client.clone()),
            clock: clock.clone(),
            cgroups: Arc::new(HostCgroups::new(hierarchy, layout)),
            users: Users::recall(UserIds::default(), Arc::new(OnDisk::new(places.clone()))).await.unwrap(),
            files: Arc::new(OnDisk::new(places.clone())),
            volumes: Arc::new(HostVolumes::new(&places.root, clock.clone(), cluster.clone())),
            checkpoints: Arc::new(DirectoryCheckpoints::open(&ground.path("checkpoints"), 4 << 20).unwrap()),
            allocations: Allocations::new(Arc::new(
                DirectoryCheckpoints::open(&ground.path("state"), 4 << 20).unwrap(),
            )),
            objects: cluster,
            mirrors: tokio::sync::watch::Sender::default().subscribe(),
            access: Access::default(),
            signals,
            kernel_log: None,
            usage: Arc::new(Unmeasured),
            image_records: Arc::new(DirectoryCheckpoints::open(&ground.path("images"), 4 << 20).unwrap()),
            metrics: Registries::default(),
            shutdown: None,
        };
        let (mut config, changes) = PodConfig::new(clock.clone(), Problems::default());
        let feed = config.feed(SourceKind::Api);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let agent = Agent::start(parts, description, changes, &stop, &tasks).await.unwrap();
        tokio::spawn(config.run());
        Node { agent, feed, client, places, address, clock, stop, ground, _containerd: containerd }
    }

    /// These pods are wanted from now on, and no others.
    pub(crate) fn want(&mut self, pods: Vec<Arc<Pod>>) {
        let origin: Arc<str> = "the test".into();
        self.feed.set(pods.into_iter().map(|pod| Wanted { pod, origin: Arc::clone(&origin) }).collect());
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// What a script prints in a container.
    pub(crate) async fn run(&self, id: &str, script: &str) -> String {
        let command = ["sh", "-c", script].map(str::to_owned);
        match self.client.exec_sync(id, &command, Some(LONGEST_COMMAND)).await {
            Ok(output) => {
                let text = [output.stdout, output.stderr].concat();
                String::from_utf8_lossy(&text).trim_end().to_owned()
            }
            Err(error) => format!("{error}"),
        }
    }

    /// What somebody gets who asks a port of the node, while a container serves an answer at its port 80.
    pub(crate) async fn ask(&self, id: &str, port: u16, answer: &str) -> String {
        let serve = format!("echo {answer} | nc -l -p 80");
        let asked = eventually("the port answers", LONGEST_COMMAND, || async {
            let mut stream = TcpStream::connect(SocketAddr::new(self.address, port))
                .await
                .map_err(|error| error.to_string())?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await.map_err(|error| error.to_string())?;
            Ok::<_, String>(text.trim().to_owned())
        });
        let (_, asked) = tokio::join!(self.run(id, &serve), asked);
        asked.unwrap_or_else(|error| error.to_string())
    }

    /// What a container's first run wrote.
    pub(crate) fn log(&self, pod: &Pod, container: &str) -> String {
        let path = self.places.pod_logs(&pod.identity()).join(container).join("0.log");
        let log = std::fs::read_to_string(path).unwrap_or_default();
        // Each line has its time, its stream and a tag before it.
        let lines = log.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Whether this was told of a pod.
    pub(crate) fn has_event(&self, pod: &Pod, message: &str) -> bool {
        let story = self.agent.stories.story(&pod.metadata.uid);
        story.is_some_and(|story| story.entries.iter().any(|entry| entry.text.contains(message)))
    }

    /// What is different on each node and of each pod, filled in.
    pub(crate) fn filled_in(&self, text: &str, pod: &Pod, status: &PodStatus) -> String {
        let own =
            |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap().display().to_string();
        [
            ("<uid>", pod.metadata.uid.to_string()),
            ("<node>", NAME.to_owned()),
            ("<podIP>", status.pod_ip.to_string()),
            ("<hostIP>", self.address.to_string()),
            ("<host>", std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()),
            ("<host's net>", own("net")),
            ("<host's pid>", own("pid")),
            ("<host's ipc>", own("ipc")),
            ("<host's capabilities>", own_capabilities()),
            ("<cpus>", std::thread::available_parallelism().unwrap().to_string()),
            ("<root>", self.places.root.display().to_string()),
        ]
        .into_iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(name, &value))
    }

    /// Nothing is left of any pod: in the runtime, in cgroups, on disk, and mounted.
    pub(crate) async fn assert_nothing_is_left(&self) {
        assert_eq!(self.client.list_sandboxes(SandboxFilter::default()).await.unwrap(), []);
        assert_eq!(self.client.list_containers(ContainerFilter::default()).await.unwrap(), []);
        assert_eq!(self.ground.pod_cgroups().unwrap(), Vec::<std::path::PathBuf>::new());
        let files = OnDisk::new(self.places.clone());
        assert_eq!(files.pods().await.unwrap(), Vec::<String>::new());
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        let mounted: Vec<_> = table.under(&self.places.root).iter().map(|mount| &mount.mount_point).collect();
        assert!(mounted.is_empty(), "{mounted:?}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn describe(
    ground: &crablet_testkit::Node,
    root: &Path,
    client: &Client,
    address: IpAddr,
) -> NodeConfig {
    let config = ground.path("kubelet.yaml");
    let given = [
        (Flag::find("config").unwrap(), config.to_str().unwrap()),
        (Flag::find("root-dir").unwrap(), root.to_str().unwrap()),
        (Flag::find("hostname-override").unwrap(), NAME),
    ];
    let effective = crablet_config::load(&given).unwrap();
    NodeConfig::new(
        &effective,
        &Found {
            machine: &Machine::read(Path::new("/")).unwrap(),
            storage: Storage::of(root).ok(),
            cgroups: version(Path::new(MOUNT_POINT)).unwrap(),
            runtime: &client.version().await.unwrap(),
            host_name: NAME,
            addresses: vec![address],
            sysctls: SysctlAllowlist::new(Some((6, 1)), &[] as &[&str]).unwrap(),
            app_armor: false,
            selinux: false,
            swap_controller: swap::can_be_limited(Path::new("/"), version(Path::new(MOUNT_POINT)).unwrap()),
            page_size: page_size(),
            masked_paths: thermal_throttle_counters(Path::new("/")),
        },
    )
}

/// What this process may do, and containerd with it.
fn own_capabilities() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap().to_owned()
}

/// The first address of a subnet, which is the bridge's.
fn gateway(subnet: &str) -> IpAddr {
    let (network, _) = subnet.split_once('/').unwrap();
    let (start, _) = network.rsplit_once('.').unwrap();
    format!("{start}.1").parse().unwrap()
}

/// The recorded pods by name. Each has a UID of its own.
pub(crate) fn recordings() -> BTreeMap<String, Arc<Pod>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/data/golden");
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_some_and(|extension| extension == "json") && !name.starts_with('_') {
            let json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let uid = format!("00000000-0000-4000-8000-{:012}", found.len());
            found.insert(name, crate::pod(&json, &uid));
        }
    }
    found
}
