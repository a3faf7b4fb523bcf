//! The node, put together: its sources first, so that manifests are read and pods taken in from the start; then, once
//! the runtime is there, the agent that runs them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use crablet_agent::adoption::Adoption;
use crablet_agent::agent::{Agent, Parts};
use crablet_agent::images::Access;
use crablet_agent::iptables;
use crablet_agent::mirrors::ServerMirrors;
use crablet_agent::node_addresses::{self, NoAddresses, NodeAddresses, NodeIps};
use crablet_agent::node_config::{Found, NodeConfig, Sizes, cgroup_driver, kernel_of, node_name};
use crablet_agent::objects::{NoObjects, Objects};
use crablet_agent::shutdown;
use crablet_agent::sizes;
use crablet_agent::sources::{self, Changes, Feed, Sources, SourcesReady, StaticPods, TrustStore};
use crablet_agent::tasks::Tasks;
use crablet_api::GoDuration;
use crablet_api::features::Gate;
use crablet_client::{Chance, Kubeconfig};
use crablet_cluster::memory::Memory;
use crablet_cluster::node_status::Cloud;
use crablet_config::Effective;
use crablet_core::translate::SysctlAllowlist;
use crablet_credentials::{LoadedProviders, ServiceAccounts};
use crablet_cri::Client;
use crablet_cri_api::Version;
use crablet_csi::{PluginRegistry, PluginState, PluginType};
use crablet_host::cgroup;
use crablet_host::checkpoint::{Checkpoints, CheckpointsUntilReboot, DirectoryCheckpoints};
use crablet_host::clock::Clock;
use crablet_host::hotplug::Hotplugs;
use crablet_host::kernel_log::{DEV_KMSG, DevKmsg, KernelLog};
use crablet_host::logind::{Places as LogindPlaces, SystemLogind};
use crablet_host::machine::{
    Machine, OwnLimits, Storage, app_armor_is_on, page_size, selinux_is_on, thermal_throttle_counters,
};
use crablet_host::signals::KernelSignals;
use crablet_host::state_file::FileOnDisk;
use crablet_host::swap;
use crablet_logging::ErrorChain;
use crablet_metrics::{Kind, Registries, Registry};
use crablet_server::{NodeHandles, Numbers, Stage};
use crablet_stats::Stats;
use crablet_volumes::{Attachments, Contents, Csi, HostVolumes, Measuring, Volumes};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};

use crate::image_access;
use crate::join::{Membership, OfNode};
use crate::log_rotation::log_rotation;
use crate::log_sizes::tell_log_sizes;
use crate::numbers::{self, Meter};
use crate::recalled::Recalled;
use crate::swapped_volumes;

/// The largest checkpoint of a pod, or manifest of one that was given to the agent.
const LARGEST_CHECKPOINT: usize = 4 << 20;

/// A node whose sources are at work, and that runs nothing yet.
pub(crate) struct Prepared {
    /// What the servers read of it.
    pub(crate) node: NodeHandles,
    changes: Changes,
    stage: watch::Sender<Stage>,
    /// Where the agent hears what the API server wants, if there is one.
    api: Option<Feed>,
    ready: SourcesReady,
}

/// A node that runs pods.
pub(crate) struct Started {
    pub(crate) node: NodeHandles,
    pub(crate) agent: Agent,
    pub(crate) runtime: Client,
    /// How its API server is asked, if there is one.
    pub(crate) of_cluster: Option<(crablet_client::Client, Chance)>,
}

/// What was found out before anything was bound or written, since it could have refused to start.
pub(crate) struct Checked {
    /// Whom to ask for credentials.
    pub(crate) providers: Option<LoadedProviders>,
    /// What the node is to be reached by.
    pub(crate) node_ips: NodeIps,
}

/// Starts the sources of a node. They stop with the node.
pub(crate) async fn prepare(
    effective: &Effective,
    client: &Client,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<Prepared> {
    let name = node_name(&effective.flags.hostname_override, &host_name());
    let clock = Clock::system();
    let adoption = Adoption::open(Arc::new(client.clone()), keep_in(effective, "adopted")?).await?;
    let pods = StaticPods::new(&name).with_features(&effective.features).with_adoption(adoption);
    let settings = sources::Settings {
        pods,
        pushed: Some(keep_in(effective, "pushed")?),
        has_api: !effective.flags.kubeconfig.is_empty(),
        clock: clock.clone(),
        trust: TrustStore::system(),
    };
    let Sources { changes, problems, owners, push, tasks: source_tasks, ready, api } =
        sources::start(&effective.configuration, settings).await?;
    tasks.spawn(keep(source_tasks, stop.clone()));
    let (stage, seen) = watch::channel(Stage::WaitingFor("its servers".to_owned()));
    let node = NodeHandles {
        name,
        clock,
        problems,
        owners,
        push,
        metrics: Registries::default(),
        numbers: Numbers::default(),
        stage: seen,
        stop: stop.clone(),
    };
    Ok(Prepared { node, changes, stage, api, ready })
}

impl Prepared {
    /// Tells the servers what is waited for.
    pub(crate) fn waits_for(&self, what: &str) {
        self.stage.send_replace(Stage::WaitingFor(what.to_owned()));
    }

    /// Starts the agent on a runtime that is there. It works until `stop`. Who asks it has the client of its API server,
    /// if there is one.
    pub(crate) async fn start(
        self,
        effective: &Effective,
        (checked, recalled): (Checked, Recalled),
        client: Client,
        runtime: &Version,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) -> anyhow::Result<Started> {
        let (version, runtime) = (runtime, client.clone());
        let addresses = NodeAddresses {
            ips: checked.node_ips,
            name: self.node.name.clone(),
            is_external: *effective.flags.cloud_provider == *node_addresses::EXTERNAL,
        };
        let reached_by = addresses.look().await;
        let cloud = addresses.is_external.then(|| cloud(&addresses, reached_by.is_ok()));
        let description = describe(effective, version, &self.node.name, &reached_by).await?;
        let agent_tasks = Tasks::new(stop.clone(), tasks.clone());
        let memory = memory(effective, &agent_tasks).await?;
        let membership = match &self.api {
            Some(_) => Some(Membership::open(
                effective,
                &self.node.name,
                &self.node.metrics.kubelet,
                agent_tasks,
                memory,
            )?),
            None => None,
        };
        let of_cluster = membership.as_ref().map(|membership| (membership.client(), membership.chance()));
        let cluster = membership.as_ref().map(|membership| membership.objects(&self.node.clock));
        let accounts = cluster.clone().map(|cluster| cluster as Arc<dyn ServiceAccounts>);
        let (clock, metrics) = (&self.node.clock, &self.node.metrics.kubelet);
        let access = image_access::access(effective, checked.providers, clock, accounts, metrics).await?;
        let objects: Arc<dyn Objects> = match &cluster {
            Some(cluster) => Arc::clone(cluster) as _,
            None => Arc::new(NoObjects),
        };
        let contents = Arc::clone(&objects) as Arc<dyn Contents>;
        let csi = Csi::open(root(effective), &self.node.name, contents, Attachments::default());
        if effective.features.enabled(Gate::SELinuxMount) {
            csi.label_all();
        }
        let cluster_objects = Arc::clone(&objects);
        let mirrors =
            membership.as_ref().map_or_else(|| watch::Sender::default().subscribe(), Membership::mirrors);
        let shutdown = (!description.shutdown_periods.is_empty()).then(|| shutdown_machine(effective));
        let pods = numbers::Pods::default();
        let ground = Ground {
            recalled,
            access,
            objects,
            mirrors,
            csi: csi.clone(),
            shutdown,
            pods: Arc::clone(&pods),
        };
        let (parts, stats) = parts(effective, client.clone(), &self.node, ground)?;
        let agent = Agent::start(parts, description, self.changes, stop, tasks).await?;
        let _ = pods.set(agent.statuses.clone());
        numbers::answer(&self.node, stats)?;
        let tasks = Tasks::new(stop.clone(), tasks.clone());
        let registry =
            PluginRegistry::new(root(effective)).with_handler(PluginType::Csi, Arc::new(csi.clone()));
        count_plugins(&self.node.metrics.kubelet, registry.plugins());
        tasks.spawn(registry.run());
        tasks.spawn(csi.clone().run());
        let mut drivers = csi.drivers();
        tasks.spawn(async move {
            while drivers.changed().await.is_ok() {
                cluster_objects.storage_may_be_there();
            }
        });
        let (configuration, flags) = (effective.configuration.clone(), effective.flags.clone());
        let features = effective.features;
        let (root_dir, every) = (root(effective).to_owned(), configuration.node_status_report_frequency);
        let hotplugs = Hotplugs::watch().ok();
        tasks.spawn(sizes::keep(agent.facts.clone(), every.to_std(), hotplugs, move || {
            let machine = Machine::read(Path::new("/"))?;
            Ok(Sizes::new(&configuration, &flags, &features, &machine, Storage::of(&root_dir).ok()))
        }));
        let kernel = agent.facts.now().node.status.node_info.kernel_version.to_string();
        let (recorder, name) = (agent.recorder.clone(), self.node.name.clone());
        tasks.spawn(swapped_volumes::tell(recorder, name, kernel, root(effective).to_owned()));
        if !addresses.is_external {
            tasks.spawn(addresses.keep(agent.facts.clone(), reached_by));
        }
        let pod_logs = effective.configuration.pod_logs_dir.to_string();
        tell_log_sizes(&self.node.metrics.kubelet, pod_logs, agent.statuses.clone());
        let clock = self.node.clock.clone();
        let rotation = log_rotation(&effective.configuration, client.clone(), clock, agent.statuses.clone());
        if let Some(rotation) = rotation {
            tasks.spawn(rotation);
        }
        if effective.configuration.make_iptables_util_chains {
            tasks.spawn(iptables::keep_util_chains());
        }
        if let (Some(membership), Some(objects), Some(feed)) = (membership, cluster, self.api) {
            let of_node = OfNode { runtime: Arc::new(client), cloud, csi, objects };
            membership.join(&agent, &self.node, feed, self.ready, of_node);
        }
        self.stage.send_replace(Stage::Running(Box::new(agent.clone())));
        Ok(Started { node: self.node, agent, runtime, of_cluster })
    }
}

/// Has it told which plugins are in the registry's folder, and which of them are registered.
fn count_plugins(metrics: &Registry, plugins: watch::Receiver<BTreeMap<PathBuf, PluginState>>) {
    metrics.collector(move |samples| {
        for (socket, state) in &*plugins.borrow() {
            let socket = socket.display().to_string();
            let mut add = |state: &str| {
                let (name, help) =
                    ("plugin_manager_total_plugins", "[ALPHA] Number of plugins in Plugin Manager");
                let labels = [("socket_path", &*socket), ("state", state)];
                samples.add(name, help, Kind::Gauge, &labels, 1.0);
            };
            add("desired_state_of_world");
            match state {
                PluginState::Registered { .. } => add("actual_state_of_world"),
                PluginState::Pending | PluginState::Refused(_) => {}
            }
        }
    });
}

/// Holds the tasks of the sources until the node stops, then ends them.
async fn keep(mut sources: JoinSet<()>, stop: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = sources.join_next() => {
                if let Err(error) = ended {
                    error!(%error, "A source of pods ended; what it asked for last stays in force");
                }
            }
        }
    }
    sources.shutdown().await;
}

async fn describe(
    effective: &Effective,
    runtime: &Version,
    name: &str,
    reached_by: &Result<Vec<IpAddr>, NoAddresses>,
) -> anyhow::Result<NodeConfig> {
    let configuration = &effective.configuration;
    let machine = Machine::read(Path::new("/")).context("cannot tell what the machine is")?;
    mention_own_limits(&OwnLimits::read(Path::new("/"), &machine));
    let host_name = host_name();
    let cgroups = cgroup::version(Path::new(cgroup::MOUNT_POINT))?;
    let found = Found {
        machine: &machine,
        storage: Storage::of(root(effective)).ok(),
        cgroups,
        runtime,
        host_name: &host_name,
        addresses: reached_by.clone().unwrap_or_default(),
        sysctls: SysctlAllowlist::new(
            kernel_of(&machine.kernel_version),
            &configuration.allowed_unsafe_sysctls,
        )
        .context("allowedUnsafeSysctls")?,
        app_armor: app_armor_is_on(Path::new("/")),
        selinux: selinux_is_on(Path::new("/")),
        swap_controller: swap::can_be_limited(Path::new("/"), cgroups),
        page_size: page_size(),
        masked_paths: thermal_throttle_counters(Path::new("/")),
    };
    let mut config = NodeConfig::new(effective, &found);
    if let Err(error) = reached_by {
        warn!(node = name, %error, "It is not known what the node is reached by");
        config.node.status.addresses = Box::default();
    }
    Ok(config)
}

/// Pods are admitted by what the machine has, as upstream's. Who runs the whole node within a cgroup has less.
fn mention_own_limits(limits: &OwnLimits) {
    let told = "The machine has more than the agent's own cgroup allows for, and pods are admitted by what the machine \
                has; where pods live within that cgroup too, reserve the difference by systemReserved";
    if let Some((bytes, cgroup)) = &limits.memory {
        warn!(cgroup = %cgroup.display(), limit = bytes, resource = "memory", "{told}");
    }
    if let Some((thousandths, cgroup)) = &limits.cpu {
        warn!(cgroup = %cgroup.display(), limit = format!("{thousandths}m"), resource = "cpu", "{told}");
    }
}

/// What a cloud is told of the addresses that the node was started with, if they are its own.
fn cloud(addresses: &NodeAddresses, are_ours: bool) -> Cloud {
    let specified: Vec<String> = addresses.ips.specified().map(|ip| ip.to_string()).collect();
    let provided = Some(specified.join(",")).filter(|provided| are_ours && !provided.is_empty());
    Cloud { provided_ips: provided.map(Into::into) }
}

/// What an agent stands on beside its runtime and its machine.
struct Ground {
    recalled: Recalled,
    access: Access,
    objects: Arc<dyn Objects>,
    mirrors: watch::Receiver<ServerMirrors>,
    csi: Csi,
    shutdown: Option<shutdown::Machine>,
    /// Where it is told which pods there are.
    pods: numbers::Pods,
}

fn parts(
    effective: &Effective,
    client: Client,
    node: &NodeHandles,
    ground: Ground,
) -> anyhow::Result<(Parts, Stats)> {
    let Ground { recalled, access, objects, mirrors, csi, shutdown, pods } = ground;
    let configuration = &effective.configuration;
    let hierarchy = cgroup::Hierarchy::detect(Path::new(crablet_host::mounts::PROC_SELF_MOUNTINFO))
        .context("cannot tell how cgroups are mounted")?;
    let layout = cgroup::Layout::new(&configuration.cgroup_root, cgroup_driver(configuration));
    let contents = Arc::clone(&objects);
    let period = configuration.volume_stats_agg_period;
    let measuring = Measuring {
        period: (period > GoDuration::ZERO).then(|| period.to_std()),
        tells_health: effective.features.enabled(Gate::CSIVolumeHealth),
    };
    let volumes: Arc<dyn Volumes> = Arc::new(
        HostVolumes::new(root(effective), node.clock.clone(), contents)
            .with_csi(csi)
            .counted_in(&node.metrics.kubelet, &measuring)?,
    );
    let stats = numbers::stats(effective, node, client.clone(), Arc::clone(&volumes), pods)?;
    let signals = KernelSignals::new(Path::new("/"), root(effective), hierarchy.clone(), &layout);
    let cgroups = cgroup::HostCgroups::new(hierarchy, layout);
    let parts = Parts {
        runtime: Arc::new(client),
        volumes,
        clock: node.clock.clone(),
        cgroups: match configuration.cgroups_per_qos {
            true => Arc::new(cgroups),
            false => Arc::new(cgroup::OnlyOthers(cgroups)),
        },
        files: recalled.files,
        users: recalled.users,
        checkpoints: keep_pods(effective)?,
        allocations: recalled.allocations,
        objects,
        mirrors,
        access,
        signals: Arc::new(signals),
        kernel_log: kernel_log(),
        usage: Arc::new(Meter::new(stats.clone())),
        image_records: keep_in(effective, "images")?,
        metrics: node.metrics.clone(),
        shutdown,
    };
    Ok((parts, stats))
}

/// What the kernel says, where this process may read it.
fn kernel_log() -> Option<Box<dyn KernelLog>> {
    match DevKmsg::open(Path::new(DEV_KMSG)) {
        Ok(log) => Some(Box::new(log)),
        Err(error) => {
            let error = ErrorChain(&error);
            warn!(path = DEV_KMSG, err = %error, "Cannot read the kernel's log; processes that it ends are not told of");
            None
        }
    }
}

/// Who tells of shutdowns of the machine.
fn shutdown_machine(effective: &Effective) -> shutdown::Machine {
    let bus = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").ok();
    shutdown::Machine {
        logind: Arc::new(SystemLogind::new(LogindPlaces::of_machine(bus.as_deref()))),
        state: Arc::new(FileOnDisk::new(root(effective).join(shutdown::STATE_FILE))),
    }
}

fn root(effective: &Effective) -> &Path {
    Path::new(&*effective.flags.root_dir)
}

fn own_directory(effective: &Effective) -> PathBuf {
    root(effective).join("crablet")
}

/// Where things are kept in a directory that the Go kubelet knows nothing of, and that nobody else can enter:
/// manifests can hold secrets.
fn keep_in(effective: &Effective, name: &str) -> anyhow::Result<Arc<DirectoryCheckpoints>> {
    let directory = own_directory(effective);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    Ok(Arc::new(DirectoryCheckpoints::open(&directory.join(name), LARGEST_CHECKPOINT)?))
}

/// Where the checkpoints of pods are kept: those that nobody needs after a reboot in memory, where there is such a place.
fn keep_pods(effective: &Effective) -> anyhow::Result<Arc<dyn Checkpoints>> {
    const NAME: &str = "pods";
    const MEMORY: &str = "/run/crablet";
    let disk = keep_in(effective, NAME)?;
    // Agents with other root directories have others.
    let whose = effective.flags.root_dir.replace('%', "%25").replace('/', "%2F");
    let memory = Path::new(MEMORY).join(whose).join(NAME);
    match CheckpointsUntilReboot::open(DirectoryCheckpoints::clone(&disk), &memory) {
        Ok(Some(both)) => return Ok(Arc::new(both)),
        Ok(None) => {}
        Err(error) => {
            let error = ErrorChain(&error);
            warn!(path = %memory.display(), err = %error, "Cannot keep checkpoints of pods in memory; all go to disk");
        }
    }
    Ok(disk)
}

/// Where what an API server says is kept, if that is wanted. Where it is not, nothing stays of what was: it would be
/// taken for what the server said last when it is wanted again.
async fn memory(effective: &Effective, tasks: &Tasks) -> anyhow::Result<Option<Memory>> {
    const NAME: &str = "remembered";
    let flags = &effective.flags;
    if flags.start_remembered_pods && !flags.kubeconfig.is_empty() {
        // One that is to be had by bootstrapping is not there yet.
        let path = match Path::new(&*flags.kubeconfig) {
            path if path.exists() || flags.bootstrap_kubeconfig.is_empty() => path,
            _ => Path::new(&*flags.bootstrap_kubeconfig),
        };
        let cluster = Kubeconfig::read(path)?.cluster.known_by()?;
        return Ok(Some(Memory::open(keep_in(effective, NAME)?, &cluster, tasks).await?));
    }
    let directory = own_directory(effective).join(NAME);
    match std::fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove the directory {}", directory.display()))
        }
        Ok(()) | Err(_) => Ok(None),
    }
}

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use crablet_client::Cluster;
    use crablet_config::Flag;

    use super::*;

    #[tokio::test]
    async fn what_an_api_server_says_is_kept_for_nobody_else_and_goes_when_it_is_not_wanted_any_more() {
        let root = tempfile::tempdir().unwrap();
        let open = async |more: &[(&str, &str)]| {
            let root_dir = [("root-dir", root.path().to_str().unwrap())];
            let given: Vec<_> =
                root_dir.iter().chain(more).map(|(name, text)| (Flag::find(name).unwrap(), *text)).collect();
            let effective = crablet_config::load(&given).unwrap();
            let tasks = Tasks::new(CancellationToken::new(), TaskTracker::new());
            memory(&effective, &tasks).await.unwrap().is_some()
        };
        let kept = root.path().join("crablet/remembered");
        assert!(!open(&[]).await);
        assert!(!open(&[("start-remembered-pods", "true")]).await, "nobody says anything");
        let kubeconfig = root.path().join("kubeconfig");
        let cluster = Cluster { server: "https://here".to_owned(), ..Cluster::default() };
        std::fs::write(&kubeconfig, crablet_client::bootstrapped(&cluster, Path::new("/pem"))).unwrap();
        let kubeconfig = ("kubeconfig", kubeconfig.to_str().unwrap());
        assert!(open(&[("start-remembered-pods", "true"), kubeconfig]).await);
        let mode = std::fs::metadata(kept.parent().unwrap()).unwrap().permissions().mode();
        assert_eq!((kept.is_dir(), mode & 0o777), (true, 0o700));
        assert!(!open(&[kubeconfig]).await);
        assert!(!kept.exists());
    }
}
