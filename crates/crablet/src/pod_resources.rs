//! The socket of the pod resources service.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use anyhow::Context;
use crablet_agent::statuses::Statuses;
use crablet_agent::tasks::Tasks;
use crablet_api::features::Gate;
use crablet_config::Effective;
use crablet_logging::ErrorChain;
use crablet_metrics::Registry;
use crablet_pod_resources::{FOLDER, PodResources, SOCKET};
use crablet_server::bind_admin_socket;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

/// Serves it until `stop`, for the agent's own user alone, as upstream.
pub(crate) async fn start(
    effective: &Effective,
    statuses: Statuses,
    metrics: &Registry,
    stop: &CancellationToken,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let folder = Path::new(&*effective.flags.root_dir).join(FOLDER);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(&folder)
        .with_context(|| format!("cannot make the directory {}", folder.display()))?;
    let socket = folder.join(SOCKET);
    let listener = bind_admin_socket(&socket).await?;
    let only_active = effective.features.enabled(Gate::KubeletPodResourcesListUseActivePods);
    let serve = PodResources { statuses, only_active }.serve(listener, metrics, stop.clone())?;
    debug!(endpoint = %socket.display(), "Serving the pod resources API");
    tasks.spawn(async move {
        if let Err(error) = serve.await {
            error!(err = %ErrorChain(&error), "The pod resources API is served no more");
        }
    });
    Ok(())
}
