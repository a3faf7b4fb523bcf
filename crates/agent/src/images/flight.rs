//! Pulls under way: one per image, shared by all who wait for it.
//!
//! A flight is a task of its own, so that it does not depend on who happens to wait. A waiter that goes away leaves
//! the others theirs. When the last one has gone, the flight goes on for a short while and is then cancelled: whoever
//! let go just to look again finds it still there, but nobody's image takes neither a slot nor the network from one
//! that a pod waits for.
//!
//! Whoever has other credentials flies alone: what one pod may pull says nothing about another.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_credentials::TrackedCredential;
use crablet_cri::ImagePull;
use crablet_cri_api::{Image, v1};
use crablet_host::clock::Clock;
use jiff::Timestamp;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::info;

use super::access::Access;
use super::error::{ImageUnknown, PullFailure};
use super::service::ImageService;
use crate::recorder::bucket::{Bucket, Rate};

/// How long a pull that nobody waits for goes on.
const ALONE_FOR: Duration = Duration::from_secs(10);

/// A pull that runs or waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pull {
    pub image: String,
    /// Since when it is wanted.
    pub since: Timestamp,
    /// Since when it runs. Nothing, while it waits for others to end.
    pub running_since: Option<Timestamp>,
    /// How many containers wait for it.
    pub waiters: usize,
}

/// An image to pull, and for whom.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) spec: v1::ImageSpec,
    /// The image as the container's spec has it, under which the pull is written down.
    pub(super) image: String,
    pub(super) credentials: Vec<TrackedCredential>,
    /// Only the first one's is told to the runtime, as are the image's annotations.
    pub(super) sandbox: Option<v1::PodSandboxConfig>,
}

/// An image that was pulled.
#[derive(Debug)]
pub(super) struct Pulled {
    pub(super) reference: String,
    /// What the runtime says of it, or why it would not say.
    pub(super) image: Result<Image, ImageUnknown>,
    pub(super) took: Duration,
    /// The credential that did, if one was needed.
    with: Option<TrackedCredential>,
}

/// What became of a pull: the image, or why it could not be pulled.
pub(super) type Outcome = Arc<Result<Pulled, PullFailure>>;

/// All pulls under way. They are cancelled when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Flights {
    tower: Arc<Tower>,
    _cancel: Arc<DropGuard>,
}

struct Tower {
    service: Arc<dyn ImageService>,
    access: Access,
    clock: Clock,
    slots: Option<Semaphore>,
    rate: Option<Rate>,
    closing: CancellationToken,
    board: Mutex<Board>,
    changed: watch::Sender<()>,
}

struct Board {
    flights: BTreeMap<u64, Flight>,
    next: u64,
    landed: u64,
    turns: Bucket,
}

struct Flight {
    spec: v1::ImageSpec,
    credentials: Vec<TrackedCredential>,
    since: Timestamp,
    progress: watch::Sender<Progress>,
    landing: Arc<Notify>,
}

#[derive(Clone)]
enum Progress {
    Queued,
    Running(Timestamp),
    Done(Outcome),
}

impl Flights {
    pub(super) fn new(
        service: Arc<dyn ImageService>,
        access: Access,
        clock: Clock,
        parallel: Option<usize>,
        rate: Option<Rate>,
    ) -> Flights {
        let closing = CancellationToken::new();
        let board =
            Board { flights: BTreeMap::new(), next: 0, landed: 0, turns: Bucket::full(Instant::now()) };
        let tower = Tower {
            service,
            access,
            clock,
            slots: parallel.map(|slots| Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS))),
            rate,
            closing: closing.clone(),
            board: Mutex::new(board),
            changed: watch::Sender::new(()),
        };
        Flights { tower: Arc::new(tower), _cancel: Arc::new(closing.drop_guard()) }
    }

    /// How many pulls have succeeded so far.
    pub(super) fn landed(&self) -> u64 {
        self.tower.board().landed
    }

    /// Joins the pull of an image, or begins it; but begins none if a pull has succeeded since `unless_since`.
    pub(super) fn board(&self, wanted: Wanted, unless_since: Option<u64>) -> Option<Seat> {
        let mut board = self.tower.board();
        let same = board.flights.values().find(|flight| flight.is_for(&wanted));
        if let Some(flight) = same {
            return Some(self.seat(flight.progress.subscribe(), Arc::clone(&flight.landing)));
        }
        if unless_since.is_some_and(|landed| landed != board.landed) {
            return None;
        }
        let (progress, receiver) = watch::channel(Progress::Queued);
        let landing = Arc::new(Notify::new());
        let number = board.next;
        board.next += 1;
        let flight = Flight {
            spec: wanted.spec.clone(),
            credentials: wanted.credentials.clone(),
            since: self.tower.clock.now(),
            progress: progress.clone(),
            landing: Arc::clone(&landing),
        };
        board.flights.insert(number, flight);
        drop(board);
        tokio::spawn(fly(self.tower.clone(), number, progress, Arc::clone(&landing), wanted));
        Some(self.seat(receiver, landing))
    }

    pub(super) fn list(&self) -> Vec<Pull> {
        self.tower.board().flights.values().map(Flight::pull).collect()
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.tower.changed.subscribe()
    }

    fn seat(&self, progress: watch::Receiver<Progress>, landing: Arc<Notify>) -> Seat {
        self.tower.changed.send_replace(());
        Seat { progress: Some(progress), landing, changed: self.tower.changed.clone() }
    }
}

/// A place in a flight, until it is dropped.
pub(super) struct Seat {
    progress: Option<watch::Receiver<Progress>>,
    /// Tells of the arrival, in the order in which people came; a `watch` has an order of its own, and no run would
    /// replay.
    landing: Arc<Notify>,
    changed: watch::Sender<()>,
}

impl Seat {
    /// Waits for what becomes of the pull.
    pub(super) async fn arrival(mut self) -> Outcome {
        while let Some(progress) = &mut self.progress {
            let landing = self.landing.notified();
            if let Progress::Done(outcome) = &*progress.borrow() {
                return outcome.clone();
            }
            tokio::select! {
                biased;
                () = landing => {}
                changed = progress.changed() => if changed.is_err() { break },
            }
        }
        // Its task is gone: the agent stops, or it panicked.
        Arc::new(Err(PullFailure::Abandoned))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // First the place, then the news of it.
        self.progress = None;
        self.changed.send_replace(());
    }
}

impl Flight {
    fn is_for(&self, wanted: &Wanted) -> bool {
        // Whose credentials they are does not matter: who has the same may use the image later on, too.
        let ours = self.credentials.iter().map(|tracked| &tracked.hash);
        self.spec.image == wanted.spec.image
            && self.spec.runtime_handler == wanted.spec.runtime_handler
            && ours.eq(wanted.credentials.iter().map(|tracked| &tracked.hash))
    }

    fn pull(&self) -> Pull {
        let running_since = match &*self.progress.borrow() {
            Progress::Running(since) => Some(*since),
            Progress::Queued | Progress::Done(_) => None,
        };
        let (image, waiters) = (self.spec.image.clone(), self.progress.receiver_count());
        Pull { image, since: self.since, running_since, waiters }
    }
}

/// The task of a flight.
async fn fly(
    tower: Arc<Tower>,
    number: u64,
    progress: watch::Sender<Progress>,
    landing: Arc<Notify>,
    wanted: Wanted,
) {
    let image = wanted.image.clone();
    let _off_the_board = OffTheBoard { tower: &tower, number };
    if let Err(error) = tower.access.begin(&image).await {
        tower.land(number, &progress, Err(error));
        return landing.notify_waiters();
    }
    let mut pull = pin!(tower.pull(wanted, &progress));
    loop {
        tokio::select! {
            biased;
            () = tower.closing.cancelled() => return,
            outcome = &mut pull => {
                let ended = outcome.as_ref().map(|pulled| (pulled.reference.as_str(), pulled.with.as_ref()));
                tower.access.end(&image, ended.map_err(|_| ())).await;
                tower.land(number, &progress, outcome);
                return landing.notify_waiters();
            }
            () = nobody_waits(&progress) => {
                if tower.is_given_up(number, &progress) {
                    tower.access.abandon(&image);
                    info!(image, "Pull cancelled, because nobody waits for it");
                    return;
                }
            }
        }
    }
}

async fn nobody_waits(progress: &watch::Sender<Progress>) {
    progress.closed().await;
    sleep(ALONE_FOR).await;
}

impl Tower {
    async fn pull(&self, wanted: Wanted, progress: &watch::Sender<Progress>) -> Result<Pulled, PullFailure> {
        let _slot = match &self.slots {
            // It is never closed.
            Some(slots) => slots.acquire().await.ok(),
            None => None,
        };
        if let Some(rate) = self.rate {
            let turn = self.board().turns.take(rate, Instant::now());
            sleep_until(turn).await;
        }
        set(progress, Progress::Running(self.clock.now()));
        self.changed.send_replace(());
        let started = Instant::now();
        let (reference, with) = self.try_credentials(&wanted).await?;
        // The pull has done its part either way: who needs to know what the image is asks for a reason then.
        let image = match self.service.status(&wanted.spec).await {
            Ok(image) => image.ok_or(ImageUnknown::NotThere(wanted.image)),
            Err(error) => Err(ImageUnknown::NotTold(error)),
        };
        Ok(Pulled { reference, image, took: started.elapsed(), with })
    }

    /// The reference, and the credential that did.
    async fn try_credentials(
        &self,
        wanted: &Wanted,
    ) -> Result<(String, Option<TrackedCredential>), PullFailure> {
        let with = |auth: Option<v1::AuthConfig>| ImagePull {
            image: wanted.spec.clone(),
            auth,
            sandbox: wanted.sandbox.clone(),
        };
        if wanted.credentials.is_empty() {
            let pulled = self.service.pull(with(None)).await;
            return pulled
                .map(|reference| (reference, None))
                .map_err(|error| PullFailure::Runtime(vec![error]));
        }
        let mut errors = Vec::new();
        for tracked in &wanted.credentials {
            let auth = v1::AuthConfig {
                username: tracked.credential.username.clone(),
                password: tracked.credential.password.clone(),
                ..v1::AuthConfig::default()
            };
            match self.service.pull(with(Some(auth))).await {
                Ok(reference) => return Ok((reference, Some(tracked.clone()))),
                Err(error) => errors.push(error),
            }
        }
        Err(PullFailure::Runtime(errors))
    }

    /// Tells the outcome to all who wait. Nobody can join between that and the flight leaving the board.
    fn land(&self, number: u64, progress: &watch::Sender<Progress>, outcome: Result<Pulled, PullFailure>) {
        let mut board = self.board();
        board.flights.remove(&number);
        board.landed += u64::from(outcome.is_ok());
        set(progress, Progress::Done(Arc::new(outcome)));
    }

    /// Takes a flight off the board if there is still nobody who waits for it.
    fn is_given_up(&self, number: u64, progress: &watch::Sender<Progress>) -> bool {
        let mut board = self.board();
        let is_empty = progress.receiver_count() == 0;
        if is_empty {
            board.flights.remove(&number);
        }
        is_empty
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes it and wakes nobody.
fn set(progress: &watch::Sender<Progress>, now: Progress) {
    progress.send_if_modified(|progress| {
        *progress = now;
        false
    });
}

/// However a flight ends, also by a panic, it leaves the board.
struct OffTheBoard<'a> {
    tower: &'a Tower,
    number: u64,
}

impl Drop for OffTheBoard<'_> {
    fn drop(&mut self) {
        self.tower.board().flights.remove(&self.number);
        self.tower.changed.send_replace(());
    }
}
