//! The agent, from its first check to its last goodbye.
//!
//! Everything that can refuse to start does so before anything is bound: the configuration, the machine, the lock, what
//! agents before this one wrote down. Only what the runtime says of itself comes later, and what is found in the cgroups
//! that are made for it. Then the sources of pods start, the ports are bound, the runtime is awaited, and the agent runs
//! until it is told to stop. Stopping never touches a pod.

use std::path::Path;

use anyhow::Context;
use crablet_agent::node_addresses::NodeIps;
use crablet_agent::tasks::Tasks;
use crablet_api::Gate;
use crablet_config::{Effective, KubeletConfiguration, LogFormat};
use crablet_core::user_ids::UserIds;
use crablet_host::{machine, sub_ids};
use crablet_logging::{ErrorChain, Format, Handle, Settings, VModule};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::await_runtime::{await_runtime, cgroup_driver, client};
use crate::command_line::GivenFlags;
use crate::exit::Failure;
use crate::image_access;
use crate::kernel_tunables;
use crate::machine_check::MACHINE;
use crate::node::{self, Checked};
use crate::node_port;
use crate::pod_resources;
use crate::recalled::recall;
use crate::root_directory::{self, hold_lock_file, share_mounts};
use crate::servers;
use crate::service_manager;
use crate::tidying::stay_small;
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
    let user_ids = user_ids(&effective)?;
    let checked =
        Checked { providers: image_access::providers(&effective)?, node_ips: node_ips(&effective)? };
    let _lock = root_directory::hold(&effective.flags.root_dir)?;
    let score = effective.configuration.oom_score_adj;
    if let Err(error) = machine::set_oom_score(Path::new("/"), score) {
        info!(score, err = %ErrorChain(&error), "Failed to apply oomScoreAdj");
    }
    share_mounts(&effective.flags.root_dir);
    runtime(workers)?.block_on(agent(effective, checked, user_ids, logging, other))
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

/// Everything that needs a running runtime.
async fn agent(
    mut effective: Effective,
    checked: Checked,
    user_ids: UserIds,
    logging: Handle,
    other: impl AsyncFnOnce(&CancellationToken, &TaskTracker) -> anyhow::Result<()>,
) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    tasks.spawn(watch_for_signals(stop.clone())?);

    let life = async {
        hold_lock_file(&effective.flags, &stop, &tasks).await?;
        let recalled = recall(&effective, user_ids).await?;
        other(&stop, &tasks).await?;
        let client = client(&effective.configuration)?;
        let prepared = node::prepare(&effective, &client, &stop, &tasks).await?;
        let health = servers::health(&effective, &logging, &prepared.node);
        client.count_in(&prepared.node.metrics.kubelet).context("cannot register metrics")?;
        servers::start(&effective, &logging, &health, &prepared.node, &stop, &tasks).await?;
        let endpoint = &effective.configuration.container_runtime_endpoint;
        let version = await_runtime(&client, endpoint, |awaited| prepared.waits_for(awaited)).await;
        let (configured, metrics) = (&effective.configuration.cgroup_driver, &prepared.node.metrics.kubelet);
        let driver = cgroup_driver(&client, configured, metrics).await?;
        effective.configuration.cgroup_driver = driver;
        kernel_tunables::set_up(&effective, Path::new(MACHINE.root))?;
        let started =
            prepared.start(&effective, (checked, recalled), client, &version, &stop, &tasks).await?;
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
