//! `nfs`: a directory of a server, mounted by the host's own tools.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::path::Path;

use async_trait::async_trait;
use crablet_api::core::{NFSVolumeSource, PersistentVolumeSource, VolumeSource};
use crablet_core::translate::MountedVolume;
use crablet_host::mounts;

use crate::claims::mount_options;
use crate::error::PluginError;
use crate::files::make_all;
use crate::places::NFS;
use crate::plugin::{Plugin, Request};
use crate::tools::ToolError;

/// What mounts, given its arguments.
type Mount = fn(&[&str]) -> Result<(), ToolError>;

/// Volumes of the kind `nfs`, which the tool `mount` mounts.
#[derive(Debug, Clone, Copy)]
pub struct Nfs(pub(crate) Mount);

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
        let tool = self.0;
        request.blocking(move |request| mount(request, &source, tool)).await
    }
}

fn mount(request: &Request, source: &NFSVolumeSource, tool: Mount) -> Result<MountedVolume, PluginError> {
    let target = request.places.volume(request.uid(), NFS, request.spec_name());
    // What a piece of storage says of itself is not looked at, as upstream.
    let read_only = if request.claimed.is_some() { request.read_only } else { source.read_only };
    let mounted = MountedVolume::Files { host_path: target.display().to_string(), read_only, relabel: false };
    if let Some(plugin) = target.parent() {
        make_all(plugin, 0o750)?;
    }
    // First, since what is mounted there may be on a server that does not answer.
    if mounts::is_mount_point(&target).map_err(PluginError::MountTable)? {
        return Ok(mounted);
    }
    make_all(&target, 0o750)?;
    let mut options =
        request.claimed.as_ref().map(|claimed| mount_options(&claimed.volume)).unwrap_or_default();
    if read_only {
        options.insert("ro".to_owned());
    }
    let arguments = arguments(source, &options, &target);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    tool(&arguments).inspect_err(|_| {
        // It is only a place to mount something on; the first error is the one to tell.
        let _ = std::fs::remove_dir(&target);
    })?;
    Ok(mounted)
}

fn arguments(source: &NFSVolumeSource, options: &BTreeSet<String>, target: &Path) -> Vec<String> {
    let server = match source.server.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{}]", source.server),
        Err(_) => source.server.to_string(),
    };
    let mut arguments = vec!["-t".to_owned(), "nfs".to_owned()];
    if !options.is_empty() {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        arguments.extend(["-o".to_owned(), options.join(",")]);
    }
    arguments.extend([format!("{server}:{}", source.path), target.display().to_string()]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_addresses_of_the_sixth_version_are_in_brackets() {
        for (server, expected) in [
            ("10.0.0.1", "10.0.0.1:/a"),
            ("fd00::1", "[fd00::1]:/a"),
            ("nfs.example.com", "nfs.example.com:/a"),
        ] {
            let source =
                NFSVolumeSource { server: server.into(), path: "/a".into(), ..NFSVolumeSource::default() };
            let options = ["ro", "nolock"].map(str::to_owned).into();
            let arguments = arguments(&source, &options, Path::new("/t"));
            assert_eq!(arguments, ["-t", "nfs", "-o", "nolock,ro", expected, "/t"]);
        }
    }
}
