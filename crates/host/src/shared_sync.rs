//! One sync for many changes.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

/// Which changes of something are on disk. A sync serves every change that was made before it began; those that are made
/// meanwhile share the next one.
#[derive(Debug, Default)]
pub(crate) struct SharedSync {
    made: AtomicU64,
    synced: Mutex<u64>,
}

impl SharedSync {
    /// To be called after a change: returns when that is on disk. `sync` is used if no other has served it meanwhile.
    pub(crate) async fn sync<E, F: Future<Output = Result<(), E>>>(
        &self,
        sync: impl FnOnce() -> F,
    ) -> Result<(), E> {
        let change = self.made.fetch_add(1, Ordering::SeqCst) + 1;
        let mut synced = self.synced.lock().await;
        if *synced < change {
            let made = self.made.load(Ordering::SeqCst);
            sync().await?;
            *synced = made;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use futures_util::future::join_all;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_that_wait_at_the_same_time_share_a_sync_that_began_after_them() {
        let (shared, syncs, on_disk) = (SharedSync::default(), Cell::new(0), Cell::new(0));
        let made = Cell::new(0);
        let sync = || async {
            syncs.set(syncs.get() + 1);
            let there = made.get();
            sleep(Duration::from_secs(1)).await;
            on_disk.set(there);
            Ok::<(), ()>(())
        };
        let changes = (0..50_u64).map(|number| {
            let (shared, sync, made, on_disk) = (&shared, &sync, &made, &on_disk);
            async move {
                sleep(Duration::from_millis(10 * number)).await;
                made.set(number + 1);
                shared.sync(sync).await.unwrap();
                assert!(on_disk.get() > number, "{number} was told of too early");
            }
        });
        join_all(changes).await;
        assert_eq!(syncs.get(), 2, "that of the first, and one for all who came meanwhile");
    }

    #[tokio::test]
    async fn a_sync_that_failed_serves_nobody() {
        let shared = SharedSync::default();
        assert!(shared.sync(|| async { Err(()) }).await.is_err());
        let synced = Cell::new(false);
        let second = shared.sync(|| async {
            synced.set(true);
            Ok::<(), ()>(())
        });
        second.await.unwrap();
        assert!(synced.get());
    }
}
