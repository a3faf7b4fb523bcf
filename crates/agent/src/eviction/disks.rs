//! How file systems are spread, by where the runtime keeps things.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crablet_core::eviction::{Disks, LONGEST_WAIT, thresholds};
use crablet_host::signals::{FileSystems, Places};
use crablet_logging::ErrorChain;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::EvictionManager;

/// How long the runtime has to tell where it keeps things.
const RUNTIME_TAKES: Duration = Duration::from_secs(2);

/// Why it is not known what is on which disk.
enum Unknown {
    /// Nobody waited for the answer.
    MemoryFirst,
    Because(String),
}

impl Unknown {
    fn because(why: impl std::fmt::Display) -> Unknown {
        Unknown::Because(why.to_string())
    }
}

impl EvictionManager {
    pub(super) fn disks(&self) -> Disks {
        self.disks.unwrap_or(Disks::One)
    }

    /// Finds out how file systems are spread, by where the runtime keeps things. Until that is known, nothing is done for
    /// the sake of a disk. Says whether it was found out now.
    pub(super) async fn find_disks(&mut self) -> bool {
        let Err(due) = self.disks else { return false };
        if Instant::now() < due {
            return false;
        }
        self.disks = Err(Instant::now() + LONGEST_WAIT);
        match self.look_for_disks().await {
            Ok(disks) => {
                info!(?disks, "It is known which file systems there are");
                self.disks = Ok(disks);
                self.monitor.set_thresholds(thresholds(&self.settings.configured, disks));
                true
            }
            Err(Unknown::MemoryFirst) => false,
            Err(Unknown::Because(why)) => {
                // Each time the same would be said, until it is known.
                if !std::mem::replace(&mut self.told_of_disks, true) {
                    warn!(
                        err = why,
                        "It is not known what is on which disk; no pod is ended and no image removed for the sake of one until it is"
                    );
                }
                false
            }
        }
    }

    async fn look_for_disks(&mut self) -> Result<Disks, Unknown> {
        let watch = self.memory_watch();
        let asked = watch.meanwhile(timeout(RUNTIME_TAKES, self.node.runtime.image_file_systems())).await;
        let told = asked.ok_or(Unknown::MemoryFirst)?;
        let told = told.map_err(|_| Unknown::because("the runtime does not answer"))?;
        let told = told.map_err(|error| Unknown::because(ErrorChain(&error)))?;
        let first = |file_systems: &[crablet_cri_api::v1::FilesystemUsage]| {
            let id = file_systems.first()?.fs_id.as_ref()?;
            Some(id.mountpoint.clone().into())
        };
        let images = first(&told.image_filesystems);
        let containers = first(&told.container_filesystems).or_else(|| images.clone());
        self.places = Places { images, containers };
        let found = watch.meanwhile(self.parts.signals.file_systems(&self.places)).await;
        let Some(FileSystems { node, images, containers }) = found.ok_or(Unknown::MemoryFirst)? else {
            let place = |place: &Option<PathBuf>| {
                place.as_deref().map_or("?".into(), Path::to_string_lossy).into_owned()
            };
            let (images, containers) = (place(&self.places.images), place(&self.places.containers));
            return Err(Unknown::Because(format!(
                "the runtime keeps images in {images} and what containers write in {containers}, and one of these is not \
                 here or does not answer"
            )));
        };
        Ok(Disks::new(&node, &images, &containers))
    }
}
