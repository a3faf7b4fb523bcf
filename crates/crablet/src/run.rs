//! The agent, from its first check to its last goodbye.
//!
//! Everything that can refuse to start does so before anything is bound or written: the configuration, the machine,
//! the lock. Only what the runtime says of itself comes later. Then the sources of pods start, the ports are bound, the runtime is awaited, and the agent runs until it is
//! told to stop. Stopping never touches a pod.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use crablet_agent::node_addresses::NodeIps;
use crablet_agent::node_config;
use crablet_agent::tasks::Tasks;
use crablet_api::{CpuSet, Gate};
use crablet_config::{Effective, KubeletConfiguration, LogFormat};
use crablet_core::user_ids::UserIds;
use crablet_host::lock::{Lock, LockError};
use crablet_host::mounts::make_shared;
use crablet_host::{cgroup, machine, program_pages, sub_ids, swap};
use crablet_logging::{ErrorChain, Format, Handle, Settings, VModule};
use crablet_metrics::BuildInfo;
use crablet_server::{
    Health, NodeHandles, admin_router, bind_admin_socket, healthz_router, read_only_router, serve,
};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, error, info, warn};

use crate::agent_client::admin_socket;
use crate::await_runtime::{await_runtime, cgroup_driver, client};
use crate::command_line::GivenFlags;
use crate::exit::Failure;
use crate::image_access;
use crate::node::{self, Checked};
use crate::node_port;
use crate::pod_resources;
use crate::service_manager;
use crate::version;

/// Threads that run the agent's tasks. It waits more than it computes, and one thread that wakes another for each step of
/// a pod costs more than the step.
const WORKERS: usize = 1;
/// Threads that run the tasks of an API server, at the most.
const MOST_WORKERS: usize = 4;

/// Runs the agent until it is told to stop.
pub(crate) fn run(flags: &GivenFlags) -> Result<(), Failure> {
    run_on(flags, WORKERS, async |_, _| Ok(()))
}

/// Runs the agent until it is told to stop, in the same process as something that starts before it and stops with it.
pub(crate) fn run_beside(
    flags: &GivenFlags,
    other: impl AsyncFnOnce(&CancellationToken, &TaskTracker) -> anyhow::Result<()>,
) -> Result<(), Failure> {
    run_on(flags, workers_of_server(), other)
}

fn run_on(
    flags: &GivenFlags,
    workers: usize,
    other: impl AsyncFnOnce(&CancellationToken, &TaskTracker) -> anyhow::Result<()>,
) -> Result<(), Failure> {
    let effective =
        crablet_config::load(&flags.as_given()).map_err(|error| Failure::Configuration(error.problems))?;
    refuse_tracing(&effective.configuration)?;
    let logging = start_logging(&effective.configuration)?;
    greet(&effective);
    MACHINE.check(&effective)?;
    let checked = Checked {
        providers: image_access::providers(&effective)?,
        user_ids: user_ids(&effective)?,
        node_ips: node_ips(&effective)?,
    };
    let _lock = hold_root_directory(&effective.flags.root_dir)?;
    let score = effective.configuration.oom_score_adj;
    if let Err(error) = machine::set_oom_score(Path::new("/"), score) {
        info!(score, err = %ErrorChain(&error), "Failed to apply oomScoreAdj");
    }
    share_mounts(&effective.flags.root_dir);
    runtime(workers)?.block_on(agent(effective, checked, logging, other))
}

/// Traces are not sent by this program. Who asks for them is told so, rather than left to wait for them.
fn refuse_tracing(configuration: &KubeletConfiguration) -> Result<(), Failure> {
    match configuration.tracing {
        None => Ok(()),
        Some(_) => Err(Failure::Configuration(vec![
            "tracing: this kubelet sends no traces; leave the field out to run without them. What it did and how long \
             it took is told by `crablet explain` and by /metrics"
                .to_owned(),
        ])),
    }
}

/// What the flags say that the node is reached by.
fn node_ips(effective: &Effective) -> Result<NodeIps, Failure> {
    let flags = &effective.flags;
    let ips = NodeIps::parse(&flags.node_ip, &flags.cloud_provider).map_err(|error| {
        Failure::Configuration(vec![format!("bad --node-ip {:?}: {error}", flags.node_ip)])
    })?;
    if !ips.not_understood.is_empty() {
        let words = ips.not_understood.join(", ");
        warn!(words, "Could not parse some node IP(s), ignoring them");
    }
    Ok(ips)
}

/// How many threads run the tasks of an API server, which has many clients at once.
pub(crate) fn workers_of_server() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MOST_WORKERS)
}

/// What tasks run on.
pub(crate) fn runtime(workers: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_name("crablet")
        .enable_all()
        .build()
        .context("cannot start threads")
}

fn start_logging(configuration: &KubeletConfiguration) -> anyhow::Result<Handle> {
    let logging = &configuration.logging;
    let format = match logging.format {
        LogFormat::Json => Format::Json,
        LogFormat::Text | LogFormat::Other(_) => Format::Text,
    };
    let vmodule =
        VModule::new(logging.vmodule.iter().map(|item| (item.file_pattern.as_ref(), item.verbosity)))?;
    Ok(crablet_logging::init(Settings {
        format,
        verbosity: logging.verbosity,
        vmodule,
        ..Settings::default()
    })?)
}

fn greet(effective: &Effective) {
    info!(version = version::CRABLET, kubernetes = version::KUBERNETES, "Starting crablet");
    for warning in &effective.warnings {
        warn!(warning, "Doubtful configuration");
    }
    if !effective.not_acted_on.is_empty() {
        let fields = effective.not_acted_on.join(", ");
        warn!(fields, "These settings are accepted, but this version does not act on them yet");
    }
}

/// Where the machine tells about itself.
struct Machine<'a> {
    cgroups: &'a str,
    swaps: &'a str,
    /// The directory below which the kernel tells of processors and memory.
    root: &'a str,
}

const MACHINE: Machine<'static> =
    Machine { cgroups: cgroup::MOUNT_POINT, swaps: swap::PROC_SWAPS, root: "/" };

impl Machine<'_> {
    /// Refuses a machine that the configuration does not want to run on.
    fn check(&self, effective: &Effective) -> Result<(), Failure> {
        let configuration = &effective.configuration;
        let version = cgroup::version(Path::new(self.cgroups))
            .context("cannot tell which version of cgroups the machine has")?;
        if version == cgroup::Version::V1 {
            if configuration.fail_cgroup_v1 {
                return Err(Failure::CgroupV1);
            }
            if configuration.single_process_oom_kill == Some(false) {
                let message = "invalid configuration: singleProcessOOMKill must not be explicitly set to false when \
                               using cgroup v1";
                return Err(Failure::Configuration(vec![message.into()]));
            }
        }
        if configuration.fail_swap_on {
            let areas =
                swap::areas(Path::new(self.swaps)).context("cannot tell whether the machine swaps")?;
            if !areas.is_empty() {
                return Err(Failure::SwapOn(areas));
            }
        }
        self.check_reserved(effective)
    }

    /// Refuses to keep more from pods than the machine has.
    fn check_reserved(&self, effective: &Effective) -> Result<(), Failure> {
        let (configuration, root) = (&effective.configuration, Path::new(self.root));
        if &*configuration.system_cgroups == "/" {
            let message = "systemCgroups (--system-cgroups): the system's cgroup cannot be root (\"/\")";
            return Err(Failure::Configuration(vec![message.to_owned()]));
        }
        let cpus = &configuration.reserved_system_cpus.value;
        let online = machine::online_cpus(root).context("cannot tell which CPUs the machine has")?;
        if !cpus.iter().all(|cpu| online.contains(&cpu)) {
            let online = CpuSet::from_iter(online);
            return Err(Failure::Configuration(vec![format!(
                "reservedSystemCPUs (--reserved-cpus): {cpus} is not a subset of online-cpus: {online}"
            )]));
        }
        let machine = machine::Machine::read(root).context("cannot tell what the machine is")?;
        // The root directory may be yet to be made.
        let mut places = Path::new(&*effective.flags.root_dir).ancestors();
        let storage = places.find_map(|place| machine::Storage::of(place).ok());
        let capacity = node_config::capacity(configuration, &machine, storage);
        let reserved = node_config::reserved(&effective.configuration, &effective.flags, &capacity);
        let over = reserved.over(&node_config::internal_capacity(&capacity, &machine));
        match over.is_empty() {
            true => Ok(()),
            false => Err(Failure::Configuration(
                over.iter().map(|over| format!("invalid Node Allocatable configuration. {over}")).collect(),
            )),
        }
    }
}

/// The users of the machine that pods may have as their own: those that are set aside for the user that kubelets are
/// known by, if there is one.
fn user_ids(effective: &Effective) -> anyhow::Result<UserIds> {
    const WHOSE: &str = "kubelet";
    let configuration = &effective.configuration;
    let ids_per_pod = configuration.user_namespaces.as_ref().and_then(|namespaces| namespaces.ids_per_pod);
    let ids_per_pod = match ids_per_pod {
        None => UserIds::USUAL_IDS_PER_POD,
        Some(ids) => u32::try_from(ids).context("validation lets only such numbers of IDs pass")?,
    };
    let set_aside = sub_ids::of_user(WHOSE, None)
        .context("cannot tell which user IDs are set aside for pods")?
        .map(|ids| (ids.first, ids.count));
    let max_pods = u32::try_from(configuration.max_pods).unwrap_or_default();
    UserIds::new(set_aside, ids_per_pod, max_pods).context("cannot give pods users of their own")
}

/// Makes the root directory and takes it for ourselves. The lock goes when the process does, however it does.
fn hold_root_directory(root_dir: &str) -> Result<Lock, Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let path = Path::new(root_dir);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(path)
        .with_context(|| format!("cannot make the root directory {root_dir}"))?;
    Lock::try_acquire(&path.join("crablet.lock")).map_err(|error| match error {
        LockError::Held { .. } => Failure::RootDirectoryHeld { root_dir: root_dir.into(), source: error },
        LockError::Failed { .. } => Failure::Other(error.into()),
    })
}

/// What a driver in a pod mounts below the root directory is seen by other pods, and it sees what the agent mounts there.
/// Pods that do not ask for that do without it.
fn share_mounts(root_dir: &str) {
    if let Err(error) = make_shared(Path::new(root_dir)) {
        let error = ErrorChain(&error);
        warn!(%error, "Pods that share mounts below the root directory with the node, as drivers do, cannot run");
    }
}

/// Everything that needs a running runtime.
async fn agent(
    mut effective: Effective,
    checked: Checked,
    logging: Handle,
    other: impl AsyncFnOnce(&CancellationToken, &TaskTracker) -> anyhow::Result<()>,
) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    tasks.spawn(watch_for_signals(stop.clone())?);

    let life = async {
        hold_lock_file(&effective.flags, &stop, &tasks).await?;
        other(&stop, &tasks).await?;
        let health = health(&logging);
        let client = client(&effective.configuration)?;
        let prepared = node::prepare(&effective, &client, &stop, &tasks).await?;
        client.count_in(&prepared.node.metrics.kubelet).context("cannot register metrics")?;
        start_servers(&effective, &logging, &health, &prepared.node, &stop, &tasks).await?;
        let endpoint = &effective.configuration.container_runtime_endpoint;
        let version = await_runtime(&client, endpoint, |awaited| prepared.waits_for(awaited)).await;
        let (configured, metrics) = (&effective.configuration.cgroup_driver, &prepared.node.metrics.kubelet);
        let driver = cgroup_driver(&client, configured, metrics).await?;
        effective.configuration.cgroup_driver = driver;
        let started = prepared.start(&effective, checked, client, &version, &stop, &tasks).await?;
        let agent_tasks = Tasks::new(stop.clone(), tasks.clone());
        let (statuses, metrics) = (started.agent.statuses.clone(), started.node.metrics.kubelet.clone());
        pod_resources::start(&effective, statuses, &metrics, &stop, &agent_tasks).await?;
        let parts = node_port::Parts { effective: &effective, logging: &logging, health: &health, started };
        node_port::start(parts, &stop, &agent_tasks, &tasks).await?;
        service_manager::ready();
        info!("Crablet is running");
        tasks.spawn(stay_small(stop.clone()));
        if effective.features.enabled(Gate::SystemdWatchdog) {
            service_manager::watchdog(move || health.check()).await;
        }
        std::future::pending::<()>().await;
        Ok::<(), Failure>(())
    };
    let result = tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        result = life => result,
    };

    service_manager::stopping();
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    if result.is_ok() {
        info!("Crablet has stopped; pods keep running");
    }
    result
}

/// How long after the start, and how often from then on, code that is not needed any more is let go of.
const FIRST_TIDYING: Duration = Duration::from_secs(60);
const TIDYING: Duration = Duration::from_secs(120);

/// Lets go of code that was needed to start, and of what seldom happens, now and then.
async fn stay_small(stop: CancellationToken) {
    let mut next = FIRST_TIDYING;
    while stop.run_until_cancelled(tokio::time::sleep(next)).await.is_some() {
        next = TIDYING;
        match program_pages::let_go() {
            Ok(bytes) => debug!(bytes, "Let go of the pages of the program"),
            Err(error) => warn!(err = %ErrorChain(&error), "Cannot let go of the pages of the program"),
        }
    }
}

/// Stops the process on SIGTERM or SIGINT.
pub(crate) fn watch_for_signals(stop: CancellationToken) -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => info!("Stopping on SIGTERM"),
            _ = interrupt.recv() => info!("Stopping on SIGINT"),
            () = stop.cancelled() => {}
        }
        stop.cancel();
    })
}

/// The lock of `--lock-file`, where one is wanted; with `--exit-on-lock-contention` somebody else's wish for it
/// stops the agent.
async fn hold_lock_file(
    flags: &crablet_config::KubeletFlags,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    if flags.lock_file.is_empty() {
        return Ok(());
    }
    let path = Path::new(flags.lock_file.as_ref());
    let lock = Lock::acquire(path, |holder| {
        info!(path = %path.display(), holder, "Waiting for the file lock");
        service_manager::waiting("waiting for the file lock");
    })
    .await?;
    let exit_on_contention = flags.exit_on_lock_contention;
    let stop = stop.clone();
    tasks.spawn(async move {
        tokio::select! {
            contended = lock.contended(), if exit_on_contention => match contended {
                Ok(()) => {
                    info!("Stopping: somebody else wants the file lock");
                    stop.cancel();
                }
                Err(error) => {
                    error!(err = %ErrorChain(&error), "Stopping: cannot watch the file lock");
                    stop.cancel();
                }
            },
            () = stop.cancelled() => {}
        }
        drop(lock);
    });
    Ok(())
}

fn health(logging: &Handle) -> Health {
    let logging = logging.clone();
    Health::new().with_check("log", move || logging.check())
}

async fn start_servers(
    effective: &Effective,
    logging: &Handle,
    health: &Health,
    node: &NodeHandles,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    let configuration = &effective.configuration;
    let start = |router, listener| tasks.spawn(serve(listener, router, stop.clone().cancelled_owned()));

    let socket = admin_socket(Path::new(effective.flags.root_dir.as_ref()));
    let listener = bind_admin_socket(&socket).await?;
    let router = admin_router(health.clone(), logging.clone(), &effective.to_json(), node.clone());
    tasks.spawn(serve(listener, router, stop.clone().cancelled_owned()));

    if configuration.read_only_port != 0 || (configuration.enable_server && configuration.port != 0) {
        register_metrics(effective, node)?;
    }
    if let Some(listener) =
        bind(configuration.healthz_bind_address, configuration.healthz_port, "health checks").await?
    {
        start(healthz_router(health.clone()), listener);
    }
    if let Some(listener) =
        bind(configuration.address, configuration.read_only_port, "the read-only API").await?
    {
        start(read_only_router(health.clone(), node.clone())?, listener);
    }
    Ok(())
}

/// Binds a port, unless it is 0, which means none.
pub(crate) async fn bind(address: IpAddr, port: i32, purpose: &str) -> anyhow::Result<Option<TcpListener>> {
    let port = u16::try_from(port).context("validation lets only ports pass")?;
    if port == 0 {
        return Ok(None);
    }
    let address = SocketAddr::new(address, port);
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} for {purpose}"))?;
    info!(%address, purpose, "Listening");
    Ok(Some(listener))
}

/// What is known of the process itself. It takes room, so it is there only where somebody can ask for it.
fn register_metrics(effective: &Effective, node: &NodeHandles) -> anyhow::Result<()> {
    let registry = &node.metrics.kubelet;
    crablet_metrics::register_process_metrics(registry);
    crablet_metrics::register_process_start_time(&node.metrics.probes);
    let help = "[ALPHA] The node's name. The count is always 1.";
    registry.gauge_family("kubelet_node_name", help, ["node"])?.with([&node.name]).set(1.0);
    let version =
        cgroup::version(Path::new(MACHINE.cgroups)).context("cannot tell the version of cgroups")?;
    let version = if version == cgroup::Version::V1 { 1.0 } else { 2.0 };
    registry.gauge("kubelet_cgroup_version", "[ALPHA] cgroup version on the hosts.")?.set(version);
    let platform = version::platform();
    let build = BuildInfo {
        compiler: "rustc",
        git_version: version::KUBERNETES,
        major: version::KUBERNETES_MAJOR,
        minor: version::KUBERNETES_MINOR,
        platform: &platform,
        ..BuildInfo::default()
    };
    crablet_metrics::register_build_info(registry, &build)?;
    let features =
        Gate::all().map(|gate| (gate.name(), gate.stage().name(), effective.features.enabled(gate)));
    crablet_metrics::register_features(registry, features)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a start with flags on a machine with cgroup v1 and these swap areas, two processors and a gibibyte
    /// of memory.
    fn start(areas: &str, flags: &[(&str, &str)]) -> String {
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = directory.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("swaps", &format!("Filename Type Size Used Priority\n{areas}"));
        write("sys/devices/system/cpu/online", "0,2\n");
        write("proc/meminfo", "MemTotal: 1048576 kB\n");
        write("proc/sys/kernel/pid_max", "32768\n");
        let swaps = directory.path().join("swaps");
        let root = directory.path().to_str().unwrap();
        let machine = Machine { cgroups: "/proc", swaps: swaps.to_str().unwrap(), root };
        let root_dir = directory.path().join("root/yet/to/be/made");
        let usual = [
            ("fail-cgroupv1", "false"),
            ("root-dir", root_dir.to_str().unwrap()),
            ("eviction-hard", "memory.available<100Mi"),
        ];
        let given: Vec<_> = usual
            .iter()
            .chain(flags)
            .map(|(name, text)| (crablet_config::Flag::find(name).unwrap(), *text))
            .collect();
        let effective = crablet_config::load(&given).unwrap();
        match machine.check(&effective) {
            Ok(()) => "starts".into(),
            Err(failure) => format!("{} {failure}", failure.code()),
        }
    }

    #[test]
    fn a_machine_that_the_configuration_does_not_want_is_refused_with_a_code_of_its_own() {
        let swap = "/dev/sda2 partition 1 0 -2\n/swap file 1 0 -3\n";
        assert_eq!(start("", &[]), "starts");
        assert_eq!(start(swap, &[("fail-swap-on", "false")]), "starts");
        let refused = start(swap, &[]);
        assert!(refused.starts_with("5 running with swap on is not supported"), "{refused}");
        assert!(refused.ends_with("in use: /dev/sda2, /swap"), "{refused}");
        let refused = start("", &[("fail-cgroupv1", "true")]);
        assert!(
            refused.starts_with("4 kubelet is configured to not run on a host using cgroup v1"),
            "{refused}"
        );
    }

    #[test]
    fn cpus_that_are_not_there_cannot_be_kept_for_the_system() {
        assert_eq!(start("", &[("reserved-cpus", "0")]), "starts");
        assert_eq!(start("", &[("reserved-cpus", "0,2")]), "starts", "all of them can");
        let expected = "2 reservedSystemCPUs (--reserved-cpus): 0-1 is not a subset of online-cpus: 0,2";
        assert_eq!(start("", &[("reserved-cpus", "0-1")]), expected);
    }

    #[test]
    fn the_systems_processes_are_not_gathered_where_they_are() {
        let root = [("system-cgroups", "/"), ("cgroup-root", "/")];
        let expected = "2 systemCgroups (--system-cgroups): the system's cgroup cannot be root (\"/\")";
        assert_eq!(start("", &root), expected);
    }

    #[test]
    fn more_than_there_is_cannot_be_kept_from_pods() {
        let fits = [("kube-reserved", "memory=400Mi,pid=1000"), ("system-reserved", "cpu=2,memory=500Mi")];
        assert_eq!(start("", &fits), "starts");
        let too_much =
            [("kube-reserved", "memory=600Mi,pid=30000"), ("system-reserved", "cpu=3,memory=500Mi,pid=3000")];
        let why = |resource: &str, reserved: &str, capacity: &str| {
            format!(
                "invalid Node Allocatable configuration. Resource \"{resource}\" has a reservation of {reserved} but \
                 capacity of {capacity}. Expected capacity >= reservation."
            )
        };
        // Hard eviction leaves 100 MiB free.
        let problems = [why("cpu", "3", "2"), why("memory", "1200Mi", "1Gi"), why("pid", "33k", "32768")];
        assert_eq!(start("", &too_much), format!("2 {}", problems.join("; ")));
        // Whole CPUs replace amounts of CPU.
        let replaced = [("kube-reserved", "cpu=3"), ("system-reserved", "cpu=3"), ("reserved-cpus", "0")];
        assert_eq!(start("", &replaced), "starts");
        // What eviction leaves free may be for pods all the same.
        let all = [("kube-reserved", "memory=1Gi")];
        assert!(start("", &all).starts_with("2 "), "{}", start("", &all));
        let ignored = [all[0], ("experimental-allocatable-ignore-eviction", "true")];
        assert_eq!(start("", &ignored), "starts");
    }
}
