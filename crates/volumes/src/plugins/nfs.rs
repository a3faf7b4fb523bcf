//! `nfs`: a directory of a server, mounted by the host's own tools.

use async_trait::async_trait;
use crablet_api::core::{NFSVolumeSource, PersistentVolumeSource, VolumeSource};
use crablet_core::translate::MountedVolume;
use crablet_host::mounts;

use crate::claims::mount_options;
use crate::error::PluginError;
use crate::files::make_all;
use crate::places::NFS;
use crate::plugin::{Plugin, Request};
use crate::tools;

/// Volumes of the kind `nfs`.
#[derive(Debug, Clone, Copy)]
pub struct Nfs;

#[async_trait]
impl Plugin for Nfs {
    fn supports(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Nfs(_))
    }

    fn supports_persistent(&self, source: &PersistentVolumeSource) -> bool {
        matches!(source, PersistentVolumeSource::Nfs(_))
    }

    fn refreshes(&self) -> bool {
        false
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let source = match (request.persistent_source(), &*request.source) {
            (Some(PersistentVolumeSource::Nfs(source)), _) | (None, VolumeSource::Nfs(source)) => {
                source.clone()
            }
            _ => return Err(PluginError::NoSource),
        };
        request.blocking(move |request| mount(request, &source)).await
    }
}

fn mount(request: &Request, source: &NFSVolumeSource) -> Result<MountedVolume, PluginError> {
    let target = request.places.volume(request.uid(), NFS, request.spec_name());
    let mounted =
        MountedVolume::Files { host_path: target.display().to_string(), read_only: false, relabel: false };
    make_all(&target, 0o750)?;
    if mounts::is_mount_point(&target).map_err(PluginError::MountTable)? {
        return Ok(mounted);
    }
    let mut options =
        request.claimed.as_ref().map(|claimed| mount_options(&claimed.volume)).unwrap_or_default();
    if request.read_only || source.read_only {
        options.push("ro".to_owned());
    }
    let from = format!("{}:{}", source.server, source.path);
    let mut arguments = vec!["-t".to_owned(), "nfs".to_owned()];
    if !options.is_empty() {
        arguments.extend(["-o".to_owned(), options.join(",")]);
    }
    arguments.extend([from, target.display().to_string()]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    tools::mount(&arguments).inspect_err(|_| {
        // It is only a place to mount something on; the first error is the one to tell.
        let _ = std::fs::remove_dir(&target);
    })?;
    Ok(mounted)
}
