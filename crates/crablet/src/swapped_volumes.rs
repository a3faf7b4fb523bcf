//! Whether what pods keep in memory, such as secrets, may get to a disk all the same.

use std::path::{Path, PathBuf};

use crablet_agent::node_config::kernel_of;
use crablet_agent::recorder::{EventType, Involved, Recorder};
use crablet_host::kernel_tunables::in_user_namespace;
use crablet_host::mounts::{Tmpfs, UnmountMode, mount_tmpfs, unmount};
use crablet_host::swap;

const REASON: &str = "PossibleMemoryBackedVolumesOnDisk";
const MESSAGE: &str = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be \
                       swapped to disk and should no longer be considered secure.";

/// The first kernel that can keep files in memory out of swap.
const FIRST: (u32, u32) = (6, 4);

/// Tells of it, if it is so.
pub(crate) async fn tell(recorder: Recorder, node: String, kernel: String, root_dir: PathBuf) {
    let may_be_swapped = move || {
        let swaps = swap::areas(Path::new(swap::PROC_SWAPS)).is_ok_and(|areas| !areas.is_empty());
        swaps
            && !can_be_kept_out(kernel_of(&kernel), in_user_namespace(Path::new("/")), || {
                is_accepted(&root_dir)
            })
    };
    if let Ok(true) = tokio::task::spawn_blocking(may_be_swapped).await {
        recorder.event(&Involved::node(&node), EventType::Warning, REASON, MESSAGE);
    }
}

/// Whether files in memory can be kept out of swap: never from a user namespace. A kernel that is older on its face may
/// have been taught it, and is tried.
fn can_be_kept_out(
    kernel: Option<(u32, u32)>,
    in_user_namespace: bool,
    is_accepted: impl FnOnce() -> bool,
) -> bool {
    !in_user_namespace && (kernel.is_some_and(|kernel| kernel >= FIRST) || is_accepted())
}

fn is_accepted(root_dir: &Path) -> bool {
    let directory = root_dir.join("tmpfs-noswap-test");
    let tmpfs = Tmpfs { size: None, mode: None, no_swap: true };
    let accepted = std::fs::create_dir_all(&directory).is_ok() && mount_tmpfs(&directory, tmpfs).is_ok();
    if accepted {
        let _ = unmount(&directory, UnmountMode::Plain);
    }
    let _ = std::fs::remove_dir(&directory);
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_kernels_keep_files_in_memory_out_of_swap_and_old_ones_where_they_were_taught() {
        for (kernel, in_user_namespace, is_accepted, expected) in [
            (Some((6, 4)), false, false, true),
            (Some((7, 0)), false, false, true),
            (Some((6, 3)), false, false, false),
            (Some((5, 14)), false, true, true),
            (None, false, false, false),
            (Some((6, 12)), true, true, false),
        ] {
            assert_eq!(can_be_kept_out(kernel, in_user_namespace, || is_accepted), expected, "{kernel:?}");
        }
    }
}
