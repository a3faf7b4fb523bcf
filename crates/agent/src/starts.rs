//! How many sandboxes and containers are made at the same time.
//!
//! A runtime that is asked for many at once makes each of them later and none of them sooner: its processes get in
//! each other's way. So they take turns. One that takes long gives its turn away and goes on: a network plugin that
//! hangs, or a slow disk, holds up its own pod and no other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

/// How long a turn is at most.
const LONGEST_TURN: Duration = Duration::from_secs(2);

/// The turns. Clones are the same ones.
#[derive(Debug, Clone)]
pub struct Starts(Arc<Semaphore>);

impl Starts {
    /// So many at the same time.
    pub fn new(at_once: usize) -> Starts {
        Starts(Arc::new(Semaphore::new(at_once.max(1))))
    }

    /// Does something when it is its turn, in the order in which it was asked for.
    pub async fn take_turn<T>(&self, start: impl Future<Output = T>) -> T {
        // Nobody closes it; if somebody did, there would be no turns to wait for.
        let turn = self.0.acquire().await.ok();
        let mut start = std::pin::pin!(start);
        match tokio::time::timeout(LONGEST_TURN, &mut start).await {
            Ok(done) => done,
            Err(_) => {
                drop(turn);
                start.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn those_who_start_take_turns() {
        let starts = Starts::new(2);
        let began = Instant::now();
        // A sleep counts from when it is made: it is made when its turn has come.
        join_all(
            (0..6).map(|_| starts.take_turn(async { tokio::time::sleep(Duration::from_secs(1)).await })),
        )
        .await;
        assert_eq!(began.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_holds_nobody_up_for_long() {
        let starts = Starts::new(1);
        let began = Instant::now();
        let hangs = starts.take_turn(std::future::pending::<()>());
        let next = starts.take_turn(async { began.elapsed() });
        tokio::select! {
            biased;
            () = hangs => panic!("it never ends"),
            waited = next => assert_eq!(waited, LONGEST_TURN),
        }
    }
}
