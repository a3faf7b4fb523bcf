//! How many workers ask the same kind of thing of the runtime at the same time.
//!
//! A runtime that is asked for many sandboxes or containers at once makes each of them later and none of them sooner:
//! its processes get in each other's way. And five hundred workers that all look at once, when an agent starts, need
//! memory for five hundred answers. So they take turns. One that takes long gives its turn away and goes on: a network
//! plugin that hangs, or a slow disk, holds up its own pod and no other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

/// How long a turn is at most.
const LONGEST_TURN: Duration = Duration::from_secs(2);

/// The turns. Clones are the same ones.
#[derive(Debug, Clone)]
pub struct Turns(Arc<Semaphore>);

impl Turns {
    /// So many at the same time.
    pub fn new(at_once: usize) -> Turns {
        Turns(Arc::new(Semaphore::new(at_once.max(1))))
    }

    /// Does something when it is its turn, in the order in which it was asked for. Only then is it made: those who wait
    /// take no room for it.
    pub async fn take<F: Future>(&self, make: impl FnOnce() -> F) -> F::Output {
        // Nobody closes it; if somebody did, there would be no turns to wait for.
        let turn = self.0.acquire().await.ok();
        let mut work = Box::pin(make());
        match tokio::time::timeout(LONGEST_TURN, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                drop(turn);
                work.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_take_turns() {
        let turns = Turns::new(2);
        let began = Instant::now();
        join_all((0..6).map(|_| turns.take(|| sleep(Duration::from_secs(1))))).await;
        assert_eq!(began.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_holds_nobody_up_for_long() {
        let turns = Turns::new(1);
        let began = Instant::now();
        let hangs = turns.take(std::future::pending::<()>);
        let next = turns.take(|| async { began.elapsed() });
        tokio::select! {
            biased;
            () = hangs => panic!("it never ends"),
            waited = next => assert_eq!(waited, LONGEST_TURN),
        }
    }
}
