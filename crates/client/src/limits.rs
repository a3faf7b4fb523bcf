//! How many requests a second there may be: `kubeAPIQPS` and `kubeAPIBurst`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// What client-go takes where nothing is said.
const DEFAULT_RATE: f64 = 5.0;
const DEFAULT_BURST: u32 = 10;

/// Who goes first where not all can go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// What others wait for, such as statuses.
    #[default]
    High,
    /// What nobody waits for, such as events: it goes when nothing else wants to.
    Low,
}

/// A bucket that fills with so many tokens a second; each request takes one. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Limit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rate: f64,
    burst: f64,
    bucket: Mutex<Bucket>,
    /// Who comes first goes first, among its like.
    high: tokio::sync::Mutex<()>,
    low: tokio::sync::Mutex<()>,
    high_waiting: AtomicUsize,
    none_waiting: Notify,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Limit {
    /// So many requests a second, and so many at once. client-go's defaults stand for 0; less than that is no limit.
    pub fn new(requests_per_second: f64, burst: u32) -> Option<Limit> {
        if requests_per_second < 0.0 {
            return None;
        }
        let rate = if requests_per_second == 0.0 { DEFAULT_RATE } else { requests_per_second };
        let burst = f64::from(if burst == 0 { DEFAULT_BURST } else { burst });
        Some(Limit(Arc::new(Shared {
            rate,
            burst,
            bucket: Mutex::new(Bucket { tokens: burst, filled: Instant::now() }),
            high: tokio::sync::Mutex::default(),
            low: tokio::sync::Mutex::default(),
            high_waiting: AtomicUsize::new(0),
            none_waiting: Notify::new(),
        })))
    }

    /// Waits until a request may be sent.
    pub async fn turn(&self, priority: Priority) {
        let shared = &*self.0;
        match priority {
            Priority::High => {
                let _waiting = Waiting::begin(shared);
                let _first = shared.high.lock().await;
                while let Err(wait) = shared.take() {
                    tokio::time::sleep(wait).await;
                }
            }
            Priority::Low => {
                let _first = shared.low.lock().await;
                loop {
                    let none_waiting = shared.none_waiting.notified();
                    if shared.high_waiting.load(Ordering::SeqCst) > 0 {
                        none_waiting.await;
                        continue;
                    }
                    match shared.take() {
                        Ok(()) => return,
                        Err(wait) => tokio::time::sleep(wait).await,
                    }
                }
            }
        }
    }
}

impl Shared {
    /// Takes a token, or says how long it takes until there is one.
    fn take(&self) -> Result<(), Duration> {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let gained = now.duration_since(bucket.filled).as_secs_f64() * self.rate;
        bucket.tokens = (bucket.tokens + gained).min(self.burst);
        bucket.filled = now;
        // What is lost in reckoning does not count.
        if bucket.tokens > 1.0 - 1e-6 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - bucket.tokens) / self.rate).max(Duration::from_millis(1)))
    }
}

/// Counts somebody of high priority for as long as it waits.
struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn begin(shared: &'a Shared) -> Waiting<'a> {
        shared.high_waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.0.high_waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none_waiting.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of these gets its turn, all asking at once.
    async fn turns(limit: &Limit, asking: &[Priority]) -> Vec<(Priority, Duration)> {
        let began = Instant::now();
        let order = Mutex::new(Vec::new());
        let turn = |priority: Priority| {
            let order = &order;
            async move {
                limit.turn(priority).await;
                order.lock().unwrap().push((priority, began.elapsed()));
            }
        };
        futures_util::future::join_all(asking.iter().map(|priority| turn(*priority))).await;
        order.into_inner().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let limit = Limit::new(10.0, 3).unwrap();
        let times: Vec<_> =
            turns(&limit, &[Priority::High; 6]).await.iter().map(|(_, at)| at.as_millis()).collect();
        assert_eq!(times[..3], [0, 0, 0]);
        for (time, expected) in times[3..].iter().zip([100, 200, 300]) {
            assert!(time.abs_diff(expected) <= 5, "{times:?}");
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let times = turns(&limit, &[Priority::High; 4]).await;
        assert_eq!(
            times.iter().filter(|(_, at)| at.is_zero()).count(),
            3,
            "no more is saved up than a burst"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn statuses_go_before_events() {
        let limit = Limit::new(10.0, 1).unwrap();
        let asking =
            [Priority::Low, Priority::Low, Priority::Low, Priority::High, Priority::High, Priority::High];
        let order: Vec<_> = turns(&limit, &asking).await.into_iter().map(|(priority, _)| priority).collect();
        // The first event was there before anybody else.
        let expected =
            [Priority::Low, Priority::High, Priority::High, Priority::High, Priority::Low, Priority::Low];
        assert_eq!(order, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_who_gives_up_waiting_holds_up_nobody() {
        let limit = Limit::new(1.0, 1).unwrap();
        limit.turn(Priority::High).await;
        let gave_up = tokio::time::timeout(Duration::from_millis(10), limit.turn(Priority::High)).await;
        assert!(gave_up.is_err());
        tokio::time::timeout(Duration::from_secs(2), limit.turn(Priority::Low)).await.unwrap();
    }

    #[test]
    fn a_negative_rate_is_no_limit() {
        assert!(Limit::new(-1.0, 10).is_none());
    }
}
