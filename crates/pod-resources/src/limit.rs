//! How often somebody may ask: as upstream, a hundred times a second, and ten times at once.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;
use tonic::{Request, Status};

const PER_SECOND: f64 = 100.0;
const BURST: f64 = 10.0;

/// A bucket that fills with time and from which each request takes. Clones share it.
#[derive(Clone)]
pub(crate) struct Limit(Arc<Mutex<Bucket>>);

struct Bucket {
    tokens: f64,
    filled_at: Instant,
}

impl Limit {
    pub(crate) fn new() -> Limit {
        Limit(Arc::new(Mutex::new(Bucket { tokens: BURST, filled_at: Instant::now() })))
    }

    /// Lets a request pass, or says that there were too many.
    pub(crate) fn admit(&self, request: Request<()>) -> Result<Request<()>, Status> {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let since = now.duration_since(bucket.filled_at).as_secs_f64();
        bucket.tokens = (bucket.tokens + since * PER_SECOND).min(BURST);
        bucket.filled_at = now;
        if bucket.tokens < 1.0 {
            return Err(Status::resource_exhausted("rejected by rate limit"));
        }
        bucket.tokens -= 1.0;
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ten_at_once_and_then_one_each_hundredth_of_a_second() {
        let limit = Limit::new();
        let admitted = |tries: usize| (0..tries).filter(|_| limit.admit(Request::new(())).is_ok()).count();
        assert_eq!(admitted(50), 10);
        tokio::time::advance(Duration::from_millis(25)).await;
        assert_eq!(admitted(50), 2);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(admitted(50), 10);
    }
}
