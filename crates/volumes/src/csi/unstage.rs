//! Unstaging what no pod uses any more, behind everybody's back: the ends of pods do not wait for it.

use std::path::Path;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::{Csi, Staged, forget, lock, needs_attachment, text, vol_data};
use crate::error::PluginError;
use crate::machine::work_on;
use crate::metrics::Operation;

/// The waits between tries to unstage a volume.
const SHORTEST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(122);

/// When something is tried again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    pub(super) at: Instant,
    wait: Duration,
}

impl Retry {
    pub(super) fn now() -> Retry {
        Retry { at: Instant::now(), wait: SHORTEST_WAIT }
    }

    fn later(self) -> Retry {
        Retry { at: Instant::now() + self.wait, wait: (self.wait * 2).min(LONGEST_WAIT) }
    }
}

impl Csi {
    /// Unstages what nobody uses any more, sees through what nobody waits for any more, and asks drivers again what the
    /// node can have, for as long as it is polled.
    pub async fn run(self) {
        let mut under_way = FuturesUnordered::new();
        let open = self.0.left.open();
        let mut left = FuturesUnordered::new();
        let mut drivers = self.drivers();
        let mut found = Box::pin(self.forget_what_is_not_attached());
        let mut is_found = false;
        let mut asked = Box::pin(self.ask_again());
        loop {
            let (due, next) = self.0.uses.take_due();
            for (staged, retry) in due {
                under_way.push(self.unstage(staged, retry));
            }
            left.extend(open.take());
            tokio::select! {
                Some(()) = under_way.next() => {}
                Some(()) = left.next() => {}
                () = &mut asked => {}
                () = &mut found, if !is_found => is_found = true,
                () = self.0.news.notified() => {}
                // A driver that is back is not kept waiting.
                Ok(()) = drivers.changed() => self.0.uses.unstage_now(),
                () = until(next) => {}
            }
        }
    }

    /// What was found on the disk and never had to be attached is not told of.
    async fn forget_what_is_not_attached(&self) {
        for staged in self.0.uses.all() {
            let mut wait = SHORTEST_WAIT;
            loop {
                match self.0.contents.csi_driver(&staged.driver).await {
                    Ok(driver) if !needs_attachment(driver.as_deref()) => {
                        self.0.attachments.uses_no_more(&staged.unique_name());
                    }
                    Ok(_) => {}
                    Err(_) => {
                        tokio::time::sleep(wait).await;
                        wait = (wait * 2).min(LONGEST_WAIT);
                        continue;
                    }
                }
                break;
            }
        }
    }

    async fn unstage(&self, staged: Staged, retry: Retry) {
        let _lane = self.0.staging.enter(&staged.key()).await;
        if self.0.uses.is_used(&staged) {
            return;
        }
        let began = Instant::now();
        let done = self.try_to_unstage(&staged).await;
        self.count(&staged.driver, Operation::UnmountDevice, done.is_ok(), began);
        match done {
            // A pod that came to use it meanwhile waits for the lane.
            Ok(()) => {
                let uses_no_more = || self.0.attachments.uses_no_more(&staged.unique_name());
                self.0.uses.unless_used(&staged, uses_no_more);
            }
            Err(error) => {
                let Staged { driver, handle, .. } = &staged;
                warn!(driver, volume = handle, %error, again_in = ?retry.wait, "Cannot unstage a volume");
                self.0.uses.unstage_again(staged, retry.later());
            }
        }
    }

    async fn try_to_unstage(&self, staged: &Staged) -> Result<(), PluginError> {
        if let Some(name) = &staged.device {
            return self.unstage_device(staged, name).await;
        }
        let directory = self.0.places.csi_staged(&staged.driver, &staged.handle);
        let place = directory.join(vol_data::STAGED);
        // Of what this agent has staged, it is written down.
        if lock(&self.0.staged).remove(staged).is_none() {
            let read = directory.clone();
            let written = work_on(&self.0.machine, move |machine| vol_data::read(machine, &read)).await?;
            if written.is_none() {
                return Ok(());
            }
        }
        let driver = self.driver(&staged.driver)?;
        if driver.capabilities().await?.stage_unstage_volume {
            self.is_mounted_here_alone(&place).await?;
            driver.node.unstage(&staged.handle, &text(&place)).await.map_err(PluginError::Csi)?;
        }
        info!(driver = staged.driver, volume = staged.handle, "Unstaged a volume that no pod uses");
        work_on(&self.0.machine, move |machine| forget(machine, &directory, &place)).await
    }

    /// Fails where something else shows what is staged. The same place elsewhere, since the root directory is mounted
    /// there too, is none.
    async fn is_mounted_here_alone(&self, place: &Path) -> Result<(), PluginError> {
        let mut elsewhere = self.mounted_elsewhere(place).await?;
        let relative = place.strip_prefix(self.0.places.root()).unwrap_or(place);
        elsewhere.retain(|path| !path.ends_with(relative));
        match elsewhere.is_empty() {
            true => Ok(()),
            false => Err(PluginError::StillMounted { place: place.to_owned(), elsewhere }),
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
