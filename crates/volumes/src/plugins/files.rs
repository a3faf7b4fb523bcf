//! Volumes that are files in memory: `downwardAPI`, `projected` and their like.

use std::path::PathBuf;

use crablet_core::translate::MountedVolume;

use super::empty_dir::{self, Medium};
use crate::atomic_writer::{self, Payload};
use crate::error::PluginError;
use crate::nested::make_mount_points;
use crate::ownership::{self, ChangePolicy, Ownership, group_of_pod};
use crate::plugin::Request;

/// Shows files as a volume, all of a change at once. `plugin` names the plugin in paths.
pub async fn show(
    request: &Request,
    plugin: &'static str,
    payload: Payload,
) -> Result<MountedVolume, PluginError> {
    let directory = request.blocking(move |request| write(request, plugin, &payload)).await?;
    Ok(MountedVolume::Files { host_path: directory.display().to_string(), read_only: true, relabel: true })
}

fn write(request: &Request, plugin: &str, payload: &Payload) -> Result<PathBuf, PluginError> {
    let directory = request.places.volume(request.uid(), plugin, &request.volume);
    let wrapped = format!("wrapped_{}", request.volume);
    empty_dir::make(request, &wrapped, &directory, &Medium::Memory, None)?;
    make_mount_points(&request.pod, &request.volume, &directory)?;
    let own = || match group_of_pod(&request.pod) {
        // All of it and not only the new files: the first time, there is more that is new.
        Some(group) => {
            let policy = ChangePolicy::Always;
            ownership::apply(&directory, Ownership { group, read_only: true, policy })
        }
        None => Ok(()),
    };
    atomic_writer::write(&directory, payload, request.clock.now(), own)?;
    Ok(directory)
}
