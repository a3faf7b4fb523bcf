//! `vol_data.json`: what is written of a volume beside the place where it is staged or published, as upstream, so that
//! whoever takes it back knows whom to ask.

use std::io;
use std::path::{Path, PathBuf};

use crablet_api::storage::VolumeLifecycleMode;
use crablet_host::files::{ReadError, TEMPORARY_PREFIX};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::forget;
use crate::error::{PluginError, failed};
use crate::machine::Machine;
use crate::places::{CSI, Places};

const NAME: &str = "vol_data.json";
/// The place beside it where a volume is staged.
pub(super) const STAGED: &str = "globalmount";
/// It is some hundred bytes large.
const LARGEST: usize = 64 << 10;

/// What is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct VolumeData {
    #[serde(skip_serializing_if = "Option::is_none", rename = "attachmentID")]
    pub(super) attachment_id: Option<String>,
    pub(super) driver_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node_name: Option<String>,
    /// The label that it is mounted with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) se_linux_mount_context: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "specVolID")]
    pub(super) spec_vol_id: Option<String>,
    pub(super) volume_handle: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) volume_lifecycle_mode: Option<VolumeLifecycleMode>,
}

impl VolumeData {
    pub(super) fn of_staged(driver: &str, handle: &str) -> VolumeData {
        VolumeData {
            driver_name: driver.to_owned(),
            volume_handle: handle.to_owned(),
            ..VolumeData::default()
        }
    }

    fn names_a_volume(&self) -> bool {
        !self.driver_name.is_empty() && !self.volume_handle.is_empty()
    }
}

/// What is written in a directory, if anything is.
pub(super) fn read(machine: &dyn Machine, directory: &Path) -> Result<Option<VolumeData>, PluginError> {
    let path = directory.join(NAME);
    let bytes = match machine.read(&path, LARGEST) {
        Ok(bytes) => bytes,
        Err(ReadError::Failed { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(PluginError::VolumeData(error.to_string())),
    };
    let wrong = |why: String| PluginError::VolumeData(format!("{}: {why}", path.display()));
    let data: VolumeData = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    match data.names_a_volume() {
        true => Ok(Some(data)),
        false => Err(wrong("it names no driver or no volume".to_owned())),
    }
}

/// Writes it, unless it is there.
pub(super) fn write(machine: &dyn Machine, directory: &Path, data: &VolumeData) -> Result<(), PluginError> {
    if let Ok(Some(there)) = read(machine, directory)
        && there == *data
    {
        return Ok(());
    }
    let written = serde_json::to_vec(data).map_err(|error| PluginError::VolumeData(error.to_string()))?;
    let path = directory.join(NAME);
    machine.write(&path, &written).map_err(|error| PluginError::VolumeData(error.to_string()))
}

/// Removes it, and what an agent left that died while it wrote it.
pub(super) fn remove(machine: &dyn Machine, directory: &Path) -> Result<(), PluginError> {
    let is_temporary = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(TEMPORARY_PREFIX))
    };
    let left = machine.children(directory)?.into_iter().filter(is_temporary);
    for path in left.chain([directory.join(NAME)]) {
        match machine.remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &path)(error).into());
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// What is published to a pod, and where, or why that cannot be read.
pub(super) fn of_pod(
    machine: &dyn Machine,
    places: &Places,
    uid: &str,
) -> Vec<Result<(PathBuf, VolumeData), PluginError>> {
    let directories = match machine.children(&places.volumes(uid).join(CSI)) {
        Ok(directories) => directories.into_iter(),
        Err(error) => return vec![Err(error.into())],
    };
    let found = directories.map(|directory| match read(machine, &directory) {
        Ok(data) => Ok(data.map(|data| (directory, data))),
        Err(error) => match forget_unknown(machine, &directory) {
            true => {
                warn!(%error, "Forgot a volume of which nothing is mounted, since nobody knows whose it is");
                Ok(None)
            }
            false => Err(error),
        },
    });
    found.filter_map(Result::transpose).collect()
}

/// Forgets a volume of which the file says nothing, as after a power cut, if nothing is mounted. Its driver cannot be
/// asked, and upstream does not ask either. Says whether it is forgotten.
fn forget_unknown(machine: &dyn Machine, directory: &Path) -> bool {
    let says_nothing = |bytes: Vec<u8>| {
        !serde_json::from_slice::<VolumeData>(&bytes).is_ok_and(|data| data.names_a_volume())
    };
    // A place that something is mounted on, or is in, stays.
    machine.read(&directory.join(NAME), LARGEST).is_ok_and(says_nothing)
        && forget(machine, directory, &directory.join("mount")).is_ok()
}

/// What is published to all pods, by the pods' UIDs and what upstream calls the volumes.
pub(super) fn of_pods(machine: &dyn Machine, places: &Places) -> Vec<(String, String, VolumeData)> {
    let mut found = Vec::new();
    for pod in listed(machine, &places.root().join("pods")) {
        let Some(uid) = pod.file_name().and_then(|name| name.to_str()) else { continue };
        for directory in listed(machine, &places.volumes(uid).join(CSI)) {
            let Some(name) = directory.file_name().and_then(|name| name.to_str()) else { continue };
            // What is mounted is not unstaged, whoever uses it.
            let Some(data) = readable(machine, &directory) else { continue };
            found.push((uid.to_owned(), name.to_owned(), data));
        }
    }
    found
}

/// What is, or may be, staged. Where nothing is written, an agent died before it asked for anything or after all was
/// taken back: the empty directories that it left go.
pub(super) fn staged(machine: &dyn Machine, places: &Places) -> Vec<VolumeData> {
    let drivers = listed(machine, &places.csi()).into_iter().filter(|path| *path != places.csi_devices());
    let mut found = Vec::new();
    for directory in drivers.flat_map(|driver| listed(machine, &driver)) {
        match read(machine, &directory) {
            Ok(Some(data)) => found.push(data),
            Ok(None) => {
                for place in [directory.join(STAGED), directory] {
                    // What is not empty stays.
                    let _ = machine.remove_directory(&place);
                }
            }
            Err(error) => warn_of(&error),
        }
    }
    found
}

/// What is in a directory, as far as it can be read: what is not known of is not unstaged while it is mounted.
pub(super) fn listed(machine: &dyn Machine, directory: &Path) -> Vec<PathBuf> {
    machine
        .children(directory)
        .inspect_err(|error| warn!(%error, "Cannot tell which CSI volumes there are"))
        .unwrap_or_default()
}

pub(super) fn readable(machine: &dyn Machine, directory: &Path) -> Option<VolumeData> {
    read(machine, directory).inspect_err(warn_of).ok()?
}

fn warn_of(error: &PluginError) {
    warn!(%error, "Cannot tell what a CSI volume is");
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::machine::Host;

    #[test]
    fn a_directory_that_cannot_be_read_is_not_one_without_volumes() {
        let root = tempfile::tempdir().unwrap();
        let places = Places::new(root.path());
        let of_pod = |uid: &str| of_pod(&Host, &places, uid);
        assert!(of_pod("none").is_empty());
        let volumes = places.volumes("uid").join(CSI);
        fs::create_dir_all(volumes.join("pv")).unwrap();
        assert!(of_pod("uid").is_empty(), "nothing is written of it");
        fs::remove_dir_all(&volumes).unwrap();
        fs::write(&volumes, "").unwrap();
        let [Err(error)] = &of_pod("uid")[..] else { panic!("it is not said") };
        assert_eq!(error.to_string(), format!("open {}: not a directory", volumes.display()));
    }
}
