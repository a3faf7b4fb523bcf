//! The observer on a runtime that does as it is told, and on the simulated one, on paused time; and on the simulated one
//! behind a socket.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod fake;
mod hints;
mod served;
mod simulated;
mod sources;

use std::sync::Arc;
use std::time::Duration;

use crablet_cri::HintSource;
use crablet_cri::observer::{Event, Observer, Source, Status};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use fake::Fake;

const CRI: Source = Source::Stream(HintSource::Cri);
const CONTAINERD: Source = Source::Stream(HintSource::Containerd);

/// An observer that runs, and its only reader.
struct Observed {
    fake: Arc<Fake>,
    events: mpsc::Receiver<Event>,
    status: watch::Receiver<Status>,
}

/// An observer from its start.
fn observe(fake: Arc<Fake>) -> Observed {
    let (observer, events, status) = Observer::new(Arc::clone(&fake) as Arc<dyn crablet_cri::Runtime>);
    tokio::spawn(observer.run());
    Observed { fake, events, status }
}

/// An observer that has its best source, and has relisted since.
async fn settled(fake: Arc<Fake>) -> Observed {
    let mut observed = observe(fake);
    observed.quiet_for(Duration::from_millis(500)).await;
    observed.fake.calls();
    observed
}

impl Observed {
    /// The next event, as its kind and what it is about.
    async fn next(&mut self) -> String {
        let event = timeout(Duration::from_secs(600), self.events.recv()).await;
        in_words(&event.expect("an event within ten minutes").expect("the observer runs"))
    }

    /// The next event, and how long it took to come.
    async fn next_after(&mut self) -> (String, Duration) {
        let began = Instant::now();
        let event = self.next().await;
        (event, began.elapsed())
    }

    async fn quiet_for(&mut self, time: Duration) {
        if let Ok(event) = timeout(time, self.events.recv()).await {
            panic!("{} came", event.map_or("the end".to_owned(), |event| in_words(&event)));
        }
    }

    async fn until_source(&mut self, source: Source) {
        let waited =
            timeout(Duration::from_secs(600), self.status.wait_for(|status| status.source == source));
        waited.await.expect("the source within ten minutes").expect("the observer runs");
    }
}

fn in_words(event: &Event) -> String {
    assert_eq!(&*event.pod_uid, fake::POD);
    format!("{}: {}", event.id, event.kind)
}
