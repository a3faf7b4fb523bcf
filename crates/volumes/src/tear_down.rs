//! Taking a pod's volumes away.
//!
//! What is mounted is not remembered but read from the kernel's table, so that it does not matter who mounted it, or
//! whether the agent died meanwhile. Every step can be repeated.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crablet_host::mounts::{self, Mount, MountError, MountTable, UnmountMode, Unmounted};
use tracing::warn;

use crate::beneath::Method;
use crate::error::{TearDownError, failed};
use crate::places::{CSI, OWN_CONTENT, Places, is_one_name};
use crate::plugins::local;
use crate::remove_tree::remove_tree;

/// How often the table is read again when something was mounted while we unmounted.
const ROUNDS: usize = 4;

/// How many places of a pod are looked at one by one. Where there are more, the table tells what is mounted on them.
const FEW_PLACES: usize = 128;

/// When a server has had the time to answer.
const FORCED_AFTER: Duration = Duration::from_secs(60);

/// Unmounts the parts of volumes that a pod's containers had.
pub(crate) fn unmount_sub_paths(places: &Places, uid: &str) -> Result<(), TearDownError> {
    if !is_one_name(uid) {
        return Err(TearDownError::Uid(uid.to_owned()));
    }
    match resolved(&places.sub_paths(uid))? {
        Some(directory) => unmount_all(&directory, None, read_table),
        None => Ok(()),
    }
}

/// What of a pod's volumes is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    /// What drivers still have to take back stays.
    AllButCsi,
}

/// Unmounts everything in a pod's directory and removes its volumes.
pub(crate) fn tear_down(places: &Places, uid: &str, part: Part, method: Method) -> Result<(), TearDownError> {
    if !is_one_name(uid) {
        return Err(TearDownError::Uid(uid.to_owned()));
    }
    // First, since an empty directory that is half removed is not ready.
    remove_tree(&places.plugins(uid).join(crate::places::EMPTY_DIR), method)?;
    let Some(pod) = resolved(&places.pod(uid))? else { return Ok(()) };
    local::tear_down_devices(places, uid).map_err(|error| TearDownError::Device(Box::new(error)))?;
    let kept = match part {
        Part::All => None,
        Part::AllButCsi => Some(pod.join("volumes").join(CSI)),
    };
    unmount_all(&pod, kept.as_deref(), read_table)?;
    remove_tree(&places.sub_paths(uid), method)?;
    remove_volumes(&places.volumes(uid), part, method)?;
    if part == Part::AllButCsi {
        return Ok(());
    }
    for left in [places.plugins(uid), places.volumes(uid)] {
        remove_empty(&left)?;
    }
    Ok(())
}

/// The pod's directory as the mount table has it. The root directory may be behind a link.
fn resolved(pod: &Path) -> Result<Option<PathBuf>, TearDownError> {
    match mounts::resolved(pod) {
        Ok(pod) => Ok(Some(pod)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("lstat", pod)(error).into()),
    }
}

/// Unmounts what is mounted in a directory, but for what is kept, deepest first. A mount that is busy does not keep the
/// others.
fn unmount_all(
    directory: &Path,
    kept: Option<&Path>,
    read_table: impl Fn() -> Result<Arc<MountTable>, TearDownError>,
) -> Result<(), TearDownError> {
    let is_to_go = |mount: &&Mount| kept.is_none_or(|kept| !mount.mount_point.starts_with(kept));
    for _ in 0..ROUNDS {
        // With many pods the table is long, and of most of them nothing is mounted by now.
        if mounts::is_free_of_mounts(directory, FEW_PLACES) {
            return Ok(());
        }
        let table = read_table()?;
        let mounted: Vec<&Mount> = table.under(directory).into_iter().filter(is_to_go).collect();
        if mounted.is_empty() {
            return Ok(());
        }
        let mut first_error = None;
        for mount in mounted {
            if let Err(error) = unmount(mount) {
                first_error.get_or_insert(error);
            }
        }
        if let Some(error) = first_error {
            return Err(error.into());
        }
    }
    match read_table()?.under(directory).into_iter().find(is_to_go) {
        Some(mount) => Err(TearDownError::StillMounted(mount.mount_point.clone())),
        None => Ok(()),
    }
}

/// Unmounts something. What waits for a server that does not answer is given up after a while, as upstream.
fn unmount(mount: &Mount) -> Result<Unmounted, MountError> {
    let by = |mode| mounts::unmount(&mount.mount_point, mode);
    match &*mount.file_system {
        "nfs" | "nfs4" => unless_it_takes(
            FORCED_AFTER,
            || by(UnmountMode::Plain),
            || {
                warn!(mount = %mount.mount_point.display(), "Unmounting by force, since the server does not answer");
                // Who waits tells what comes of it.
                let _ = by(UnmountMode::Force);
            },
        ),
        _ => by(UnmountMode::Plain),
    }
}

/// Does something, and something else beside it when it takes long.
fn unless_it_takes<T>(long: Duration, work: impl FnOnce() -> T, help: impl FnOnce() + Send) -> T {
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            if is_done.recv_timeout(long) == Err(RecvTimeoutError::Timeout) {
                help();
            }
        });
        let result = work();
        drop(done);
        result
    })
}

fn read_table() -> Result<Arc<MountTable>, TearDownError> {
    MountTable::shared().map_err(TearDownError::MountTable)
}

fn remove_volumes(volumes: &Path, part: Part, method: Method) -> Result<(), TearDownError> {
    for plugin in children(volumes)? {
        if part == Part::AllButCsi && plugin.ends_with(CSI) {
            continue;
        }
        let own =
            plugin.file_name().and_then(|name| name.to_str()).is_some_and(|name| OWN_CONTENT.contains(&name));
        for volume in children(&plugin)? {
            match own {
                true => remove_tree(&volume, method)?,
                // Something was mounted here. If it is not empty now, what it holds may be on the server or disk that
                // was mounted and that we do not see is mounted.
                false => remove_empty(&volume)?,
            }
        }
        remove_empty(&plugin)?;
    }
    Ok(())
}

fn children(directory: &Path) -> Result<Vec<PathBuf>, TearDownError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed("open", directory))?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed("readdirent", directory)));
    Ok(paths.collect::<Result<Vec<_>, _>>()?)
}

fn remove_empty(directory: &Path) -> Result<(), TearDownError> {
    match fs::remove_dir(directory) {
        Ok(()) => Ok(()),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            io::ErrorKind::DirectoryNotEmpty => Err(TearDownError::Foreign(directory.to_owned())),
            io::ErrorKind::ResourceBusy => Err(TearDownError::StillMounted(directory.to_owned())),
            _ => Err(failed("remove", directory)(error).into()),
        },
    }
}

#[cfg(test)]
mod tests;
