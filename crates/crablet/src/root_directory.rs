//! The root directory, and whose it is.

use std::path::Path;

use anyhow::Context;
use crablet_host::lock::{Lock, LockError};
use crablet_host::mounts::make_shared;
use crablet_logging::ErrorChain;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use crate::exit::Failure;
use crate::service_manager;

/// Makes the root directory and takes it for ourselves. The lock goes when the process does, however it does.
pub(crate) fn hold(root_dir: &str) -> Result<Lock, Failure> {
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
pub(crate) fn share_mounts(root_dir: &str) {
    if let Err(error) = make_shared(Path::new(root_dir)) {
        let error = ErrorChain(&error);
        warn!(%error, "Pods that share mounts below the root directory with the node, as drivers do, cannot run");
    }
}

/// The lock of `--lock-file`, where one is wanted; with `--exit-on-lock-contention` somebody else's wish for it
/// stops the agent.
pub(crate) async fn hold_lock_file(
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
