//! What agents before this one wrote down, without which none may go on: what is torn or contradicts itself keeps an agent
//! from starting.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use crablet_agent::allocations::{Allocations, LARGEST_STATE_FILE, STATE_FILES};
use crablet_agent::pod_files::{OnDisk, Places};
use crablet_agent::users::Users;
use crablet_config::Effective;
use crablet_core::user_ids::UserIds;
use crablet_host::checkpoint::DirectoryCheckpoints;

/// What was written down, and the directories of pods, where some of it is.
pub(crate) struct Recalled {
    pub(crate) files: Arc<OnDisk>,
    /// Which users of the node belong to which pod.
    pub(crate) users: Users,
    /// What is allocated to pods.
    pub(crate) allocations: Allocations,
}

/// Reads it. Nobody else may work with the root directory by then.
pub(crate) async fn recall(effective: &Effective, user_ids: UserIds) -> anyhow::Result<Recalled> {
    let root = Path::new(&*effective.flags.root_dir);
    let files = Arc::new(OnDisk::new(Places {
        root: root.to_owned(),
        logs: PathBuf::from(&*effective.configuration.pod_logs_dir),
        links: PathBuf::from(crablet_core::translate::CONTAINER_LOGS_DIRECTORY),
    }));
    let users = Users::recall(user_ids, Arc::clone(&files) as _)
        .await
        .context("cannot tell which users of the node belong to which pod")?;
    let state_files = DirectoryCheckpoints::among_others(root, &STATE_FILES, LARGEST_STATE_FILE);
    let allocations =
        Allocations::open(Arc::new(state_files)).await.context("cannot tell what is allocated to pods")?;
    Ok(Recalled { files, users, allocations })
}
