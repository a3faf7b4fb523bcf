//! Volumes that are files: `configMap`, `secret`, `downwardAPI` and `projected`.

use std::path::PathBuf;

use crablet_core::translate::MountedVolume;
use tracing::warn;

use super::empty_dir::{self, Medium};
use crate::atomic_writer::{self, Payload};
use crate::error::PluginError;
use crate::nested::make_mount_points;
use crate::ownership::{self, ChangePolicy, Ownership, group_of_pod};
use crate::plugin::Request;

/// What a volume of files shows; None for one of another kind.
#[cfg(any(test, feature = "simulated"))]
pub(crate) async fn collect(
    request: &Request,
    contents: &dyn crate::contents::Contents,
) -> Result<Option<Payload>, PluginError> {
    use crablet_api::core::VolumeSource;

    use super::{config_map, downward_api, projected, secret};
    let payload = match &*request.source {
        VolumeSource::ConfigMap(source) => config_map::collect(request, source, contents).await?,
        VolumeSource::Secret(source) => secret::collect(request, source, contents).await?,
        VolumeSource::Projected(source) => projected::collect(request, source, contents).await?,
        VolumeSource::DownwardApi(source) => downward_api::collect(request, source)?,
        _ => return Ok(None),
    };
    Ok(Some(payload))
}

/// Shows files as a volume, all of a change at once. `plugin` names the plugin in paths. While nobody can tell what they
/// are, or all of them, those stay that are there: a container is not kept from being started by an API server that is
/// away.
pub(super) async fn show(
    request: &Request,
    plugin: &'static str,
    medium: Medium,
    collected: Result<Payload, PluginError>,
) -> Result<MountedVolume, PluginError> {
    let work = move |request: &Request| {
        let directory = request.places.volume(request.uid(), plugin, &request.volume);
        let stays = || atomic_writer::shows_something(&directory);
        match collected {
            Ok(payload) if payload.is_incomplete() && stays() => Ok(directory),
            Ok(payload) => write(request, plugin, &medium, &payload),
            Err(error) if error.is_passing() && stays() => {
                warn!(volume = &*request.volume, err = %error, "Cannot tell what a volume is to show; it shows what it did before");
                Ok(directory)
            }
            Err(error) => Err(error),
        }
    };
    let directory = request.blocking(work).await?;
    Ok(MountedVolume::Files { host_path: directory.display().to_string(), read_only: true, relabel: true })
}

fn write(
    request: &Request,
    plugin: &str,
    medium: &Medium,
    payload: &Payload,
) -> Result<PathBuf, PluginError> {
    let directory = request.places.volume(request.uid(), plugin, &request.volume);
    let wrapped = format!("wrapped_{}", request.volume);
    empty_dir::make(request, &wrapped, &directory, medium, None)?;
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
