//! The servers that answer before there is a runtime: health, administration, and the read-only API.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use crablet_api::Gate;
use crablet_config::Effective;
use crablet_host::cgroup;
use crablet_logging::Handle;
use crablet_metrics::BuildInfo;
use crablet_server::{
    Health, NodeHandles, Stage, admin_router, bind_admin_socket, healthz_router, read_only_router, serve,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::agent_client::admin_socket;
use crate::machine_check::MACHINE;
use crate::version;

/// How long the task that owns the pods may be without an answer, or twice the time between its syncs where that is more.
const SYNC_LOOP_PATIENCE: Duration = Duration::from_secs(300);

/// How the agent is, as far as its servers are asked.
pub(crate) fn health(effective: &Effective, logging: &Handle, node: &NodeHandles) -> Health {
    let (logging, stage) = (logging.clone(), node.stage.clone());
    let longest = SYNC_LOOP_PATIENCE.max(effective.configuration.sync_frequency.to_std() * 2);
    Health::new().with_check("log", move || logging.check()).with_check("syncloop", move || {
        match &*stage.borrow() {
            // What it waits for may take as long as it likes.
            Stage::WaitingFor(_) => Ok(()),
            Stage::Running(agent) => agent.sync_loop.check(longest).map_err(|stuck| stuck.to_string()),
        }
    })
}

/// Binds the ports of those who are asked without a runtime, and the administration socket.
pub(crate) async fn start(
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
