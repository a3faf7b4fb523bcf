//! Directories in a volume that other volumes are mounted on.
//!
//! A container mounts a volume that it cannot write at `/a`, and another at `/a/b`: the runtime could not make `b`.

use std::path::{Path, PathBuf};

use crablet_api::core::{Container, Pod};

use crate::error::PluginError;
use crate::files::make_all;

/// Makes the directories that containers need within a volume for their other mounts.
pub(crate) fn make_mount_points(pod: &Pod, volume: &str, directory: &Path) -> Result<(), PluginError> {
    for container in pod.spec.all_containers() {
        for below in mount_points(container, volume)? {
            let path = directory.join(below);
            make_all(&path, 0o755)?;
        }
    }
    Ok(())
}

/// Where other mounts of a container are below this volume's, and not below each other's.
fn mount_points(container: &Container, volume: &str) -> Result<Vec<PathBuf>, PluginError> {
    let mut all: Vec<PathBuf> =
        container.volume_mounts.iter().map(|mount| clean(&mount.mount_path)).collect();
    all.sort();
    let mut found = Vec::new();
    for own in container.volume_mounts.iter().filter(|mount| mount.name == volume) {
        let own = clean(&own.mount_path);
        if own.starts_with("..") {
            return Err(PluginError::MountPoint(own.display().to_string()));
        }
        let mut nested: Vec<&PathBuf> = Vec::new();
        for other in all.iter().filter(|other| **other != own) {
            let Ok(below) = other.strip_prefix(&own) else { continue };
            if !nested.iter().any(|above| other.starts_with(above)) {
                nested.push(other);
                found.push(below.to_owned());
            }
        }
    }
    Ok(found)
}

/// A path without detours.
fn clean(path: &str) -> PathBuf {
    use std::path::Component;
    let mut clean = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if clean.file_name().is_some() => {
                clean.pop();
            }
            Component::ParentDir if clean.has_root() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) | Component::Normal(_) => {
                clean.push(part);
            }
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;

    fn made(mounts: &str) -> String {
        let pod = pod_yaml(&format!(
            "metadata: {{name: p}}\nspec: {{containers: [{{name: c, volumeMounts: [{mounts}]}}]}}"
        ));
        match mount_points(&pod.spec.containers[0], "v") {
            Ok(found) => found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn mounts_right_below_the_volume_are_found() {
        for (mounts, expected) in [
            ("{name: v, mountPath: /dir}", ""),
            ("{name: v, mountPath: /dir}, {name: w, mountPath: /dir/nested}", "nested"),
            ("{name: v, mountPath: /dir/}, {name: w, mountPath: /dir//a/./b}", "a/b"),
            ("{name: v, mountPath: /dir}, {name: w, mountPath: /dir2/nested}", ""),
            (
                "{name: v, mountPath: /d}, {name: w, mountPath: /d/n}, {name: x, mountPath: /d/n/o}, {name: z, mountPath: /d/n-o}",
                "n n-o",
            ),
            ("{name: v, mountPath: /d}, {name: v, mountPath: /d/n}, {name: x, mountPath: /d/n/o}", "n o"),
            (
                "{name: v, mountPath: ../d}, {name: w, mountPath: ../d/e}",
                "invalid container mount point ../d",
            ),
            ("{name: v, mountPath: /a/../../d}, {name: w, mountPath: /d/e}", "e"),
        ] {
            assert_eq!(made(mounts), expected, "{mounts}");
        }
    }
}
