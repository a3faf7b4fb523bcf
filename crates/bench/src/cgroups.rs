//! Where cgroups are.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use crablet_host::cgroup::Hierarchy;
use crablet_host::mounts::PROC_SELF_MOUNTINFO;

/// The cgroup of all pods on a node whose cgroups are below this one, where a controller has it.
pub(crate) fn kubepods(controller: &str, cgroup: &str) -> anyhow::Result<PathBuf> {
    Ok(tree(controller)?.join(cgroup.trim_start_matches('/')).join("kubepods"))
}

/// The tree that a controller has.
pub(crate) fn tree(controller: &str) -> anyhow::Result<PathBuf> {
    match hierarchy()? {
        Hierarchy::V2 { mount } => Ok(mount),
        Hierarchy::V1(mounts) => {
            mounts.controllers.get(controller).cloned().with_context(|| format!("no tree of {controller}"))
        }
    }
}

/// Whether the kernel tells by itself how much memory is used, which it does in the first version.
pub(crate) fn is_v1() -> anyhow::Result<bool> {
    Ok(matches!(hierarchy()?, Hierarchy::V1(_)))
}

fn hierarchy() -> anyhow::Result<Hierarchy> {
    Ok(Hierarchy::detect(Path::new(PROC_SELF_MOUNTINFO))?)
}
