//! Following the objects of a kind: what there is, and then each change.
//!
//! ```text
//!             all (watch-list; list where the server cannot)
//!   Unknown ─────────────────────────────────────────────► Watching ──┐ closed: resumed from
//!      ▲                                                      │       │ the last version
//!      │ the version is gone, or nobody can tell              ▼       │
//!      └────────────────────────────────────────────────── Known ◄────┘
//! ```
//!
//! Where client-go resumes after a lost connection, everything is asked for anew: it is one request as well, at a version
//! that must not be older, and so a server that was restored from a backup is found out.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use crablet_api::Text;
use crablet_api::document::Limits;
use crablet_api::meta::{List, ObjectMeta, WatchEvent};
use futures_util::{Stream, StreamExt as _, stream};
use http::Method;
use tokio::time::Instant;
use tracing::debug;

use crate::backoff::Backoff;
use crate::client::{Client, WHOLE};
use crate::error::Error;
use crate::lines::Lines;
use crate::resource::{Resource, escaped};
use crablet_host::chance::Chance;

/// Servers end watches after so long, and up to twice as long: not all at once. This is client-go's.
const WATCH_LASTS: Duration = Duration::from_secs(300);
/// The same for a watch of one object, of which a node has many.
const WATCH_OF_ONE_LASTS: Duration = Duration::from_secs(1800);
/// By how much a server may be late with that.
const MAY_BE_LATE: Duration = Duration::from_secs(30);
/// How long a server may take to begin, and between two of the objects that are there at first.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// A watch that ends sooner than this is not begun anew at once.
const SHORT: Duration = Duration::from_secs(1);
/// In this time a server has sent a bookmark, which it does each minute.
const BOOKMARKED_WITHIN: Duration = Duration::from_secs(150);
/// Objects are asked for in pages of so many, where they do not stream.
const PAGE: usize = 100;
/// The largest event. Objects of a few hundred kilobytes are large already.
const LARGEST_EVENT: Limits = Limits { bytes: 8 << 20, ..Limits::API };
/// What marks the bookmark behind the objects that were there when a watch began.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Which objects are followed. What is empty restricts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub namespace: String,
    /// Such as `spec.nodeName=n1`.
    pub fields: String,
    pub labels: String,
}

impl Selection {
    /// One object, by its name.
    pub fn named(namespace: &str, name: &str) -> Selection {
        let fields = format!("metadata.name={name}");
        Selection { namespace: namespace.to_owned(), fields, labels: String::new() }
    }

    fn is_of_one(&self) -> bool {
        self.fields.starts_with("metadata.name=")
    }

    /// As a part of a query.
    fn query(&self) -> String {
        let part = |name: &str, value: &str| match value {
            "" => String::new(),
            value => format!("&{name}={}", escaped(value)),
        };
        part("fieldSelector", &self.fields) + &part("labelSelector", &self.labels)
    }
}

/// What is learned of the objects that are followed.
#[derive(Debug)]
pub enum Event<T> {
    /// All objects that there are, by namespace and name. What is not among them is gone. This comes first, and again
    /// whenever changes may have been missed.
    All(Vec<T>),
    /// An object is new or has changed.
    Set(T),
    /// An object is gone, or not selected any more; this is how it was last.
    Gone(T),
    /// The server does not answer, or says no. It is asked again, whatever it said.
    Trouble { error: Error, again_in: Duration },
    /// After trouble: the server answers again, and no change was missed.
    Resumed,
}

/// Follows objects for as long as somebody asks what is next.
pub struct Follower<T>(Pin<Box<dyn Stream<Item = Event<T>> + Send>>);

impl<T: Resource> Follower<T> {
    pub fn new(client: Client, selection: &Selection, chance: Chance) -> Follower<T> {
        let following = Following {
            client,
            collection: T::collection(&selection.namespace),
            watch_lasts: if selection.is_of_one() { WATCH_OF_ONE_LASTS } else { WATCH_LASTS },
            selectors: selection.query(),
            chance,
            backoff: Backoff::new(),
            stage: Stage::Unknown,
            version: Text::default(),
            by_list: false,
            in_trouble: false,
            rests_until: None,
            kind: PhantomData,
        };
        Follower(Box::pin(events(following)))
    }

    /// What is learned next. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Event<T> {
        match self.0.next().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }
}

/// What is under way lives in the stream, and goes on where it was when somebody asks again.
fn events<T: Resource>(following: Following<T>) -> impl Stream<Item = Event<T>> + Send {
    stream::unfold(following, |mut following| async move {
        let event = following.next().await;
        Some((event, following))
    })
}

struct Following<T> {
    client: Client,
    collection: String,
    watch_lasts: Duration,
    selectors: String,
    chance: Chance,
    backoff: Backoff,
    stage: Stage,
    /// All was told up to here; nothing yet if it is empty.
    version: Text,
    /// Whether all is asked for by a list, since it cannot be had by a watch.
    by_list: bool,
    in_trouble: bool,
    rests_until: Option<Instant>,
    kind: PhantomData<fn() -> T>,
}

enum Stage {
    /// What there is now is not known.
    Unknown,
    /// It is known up to a version, and nobody is telling more.
    Known,
    Watching(Box<Watch>),
}

struct Watch {
    lines: Lines,
    began: Instant,
    /// When the server should have ended it.
    ends: Instant,
    /// Whether it told anything, be it a bookmark.
    told: bool,
}

impl<T: Resource> Following<T> {
    async fn next(&mut self) -> Event<T> {
        loop {
            if let Some(until) = self.rests_until.take() {
                tokio::time::sleep_until(until).await;
            }
            let event = match std::mem::replace(&mut self.stage, Stage::Unknown) {
                // Boxed, so that one at rest takes little room.
                Stage::Unknown => Box::pin(self.learn_all()).await,
                Stage::Known => Box::pin(self.resume()).await,
                Stage::Watching(watch) => self.listen(watch).await,
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    async fn learn_all(&mut self) -> Option<Event<T>> {
        let learned = match self.by_list {
            true => self.list().await.map(|all| (all, Stage::Known)),
            false => self.watch_list().await.map(|(all, watch)| (all, Stage::Watching(watch))),
        };
        let error = match learned {
            Ok((all, stage)) => {
                self.stage = stage;
                (self.by_list, self.in_trouble) = (false, false);
                return Some(Event::All(all));
            }
            Err(error) => error,
        };
        if (error.is_expired() || error.is_from_the_future()) && !self.version.is_empty() {
            debug!(collection = self.collection, version = %self.version, err = %error, "The server does not have the version; it is asked for its newest");
            self.version = Text::default();
            return None;
        }
        // A server over an old etcd says that something is wrong within it.
        if !self.by_list && (error.is_about_the_request() || error.is_internal()) {
            debug!(collection = self.collection, err = %error, "The server cannot stream what there is; it is asked for a list");
            self.by_list = true;
            return None;
        }
        // A server that knows nothing of streams that begin with what there is never says that the beginning is over.
        self.by_list = !self.by_list && matches!(error, Error::TimedOut(_));
        Some(self.trouble(error))
    }

    /// Watches from the last version on.
    async fn resume(&mut self) -> Option<Event<T>> {
        let query = format!("&resourceVersion={}", escaped(&self.version));
        match self.watch(&query).await {
            Ok(watch) => {
                self.stage = Stage::Watching(watch);
                std::mem::take(&mut self.in_trouble).then_some(Event::Resumed)
            }
            Err(error) => self.broken(error),
        }
    }

    async fn listen(&mut self, mut watch: Box<Watch>) -> Option<Event<T>> {
        let event = match tokio::time::timeout_at(watch.ends + MAY_BE_LATE, watch.next::<T>()).await {
            Ok(Ok(Some(event))) => event,
            Ok(Ok(None)) => return self.closed(&watch),
            Ok(Err(Error::Transport(error))) => {
                debug!(collection = self.collection, err = %error, "A watch broke");
                self.rest_if_short(&watch);
                return None;
            }
            Ok(Err(error)) => return self.broken(error),
            Err(_) => {
                debug!(collection = self.collection, "A watch was not ended in time");
                return None;
            }
        };
        let event = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.advance(object.metadata()).then_some(Event::Set(object))
            }
            WatchEvent::Deleted(object) => self.advance(object.metadata()).then_some(Event::Gone(object)),
            WatchEvent::Bookmark(metadata) => {
                if self.advance(&metadata) {
                    self.stage = Stage::Watching(watch);
                }
                return None;
            }
            WatchEvent::Error(status) => return self.broken(Error::Refused(status)),
            WatchEvent::Other(word) => {
                debug!(collection = self.collection, r#type = word, "An unknown event is passed over");
                self.stage = Stage::Watching(watch);
                return None;
            }
        };
        if event.is_some() {
            self.stage = Stage::Watching(watch);
        }
        event
    }

    /// Takes note of a version. One that is older than the last is that of a server which lost what it told before: what
    /// there is now is not known then.
    fn advance(&mut self, metadata: &ObjectMeta) -> bool {
        let number = |version: &Text| version.parse::<u64>().ok();
        let went_back = match (number(&metadata.resource_version), number(&self.version)) {
            (Some(new), Some(last)) => new < last,
            (None, _) | (_, None) => false,
        };
        if went_back {
            self.version = Text::default();
        } else if !metadata.resource_version.is_empty() {
            self.version = metadata.resource_version.clone();
        }
        !went_back
    }

    fn closed(&mut self, watch: &Watch) -> Option<Event<T>> {
        let lasted = watch.began.elapsed();
        // One that never said a word may be from a version that is yet to come.
        if watch.told || lasted < BOOKMARKED_WITHIN {
            self.stage = Stage::Known;
        }
        if lasted < SHORT && !watch.told {
            return Some(self.trouble(Error::Closed));
        }
        self.rest_if_short(watch);
        None
    }

    /// What follows from an error of a watch.
    fn broken(&mut self, error: Error) -> Option<Event<T>> {
        if error.is_expired() || error.is_from_the_future() {
            debug!(collection = self.collection, err = %error, "A watch cannot be resumed; all is asked for anew");
            self.rest();
            return None;
        }
        if matches!(error, Error::Refused(_)) && error.is_passing() {
            self.stage = Stage::Known;
        }
        Some(self.trouble(error))
    }

    fn trouble(&mut self, error: Error) -> Event<T> {
        self.in_trouble = true;
        let delay = self.backoff.next(&mut self.chance).max(error.retry_after().unwrap_or_default());
        self.rests_until = Some(Instant::now() + delay);
        Event::Trouble { error, again_in: delay }
    }

    fn rest(&mut self) {
        self.rests_until = Some(Instant::now() + self.backoff.next(&mut self.chance));
    }

    fn rest_if_short(&mut self, watch: &Watch) {
        if watch.began.elapsed() < SHORT {
            self.rest();
        }
    }

    /// All that there is, by a watch that begins with it.
    async fn watch_list(&mut self) -> Result<(Vec<T>, Box<Watch>), Error> {
        let query = format!(
            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={}",
            escaped(&self.version)
        );
        let mut watch = self.watch(&query).await?;
        let mut all = BTreeMap::new();
        loop {
            let event = tokio::time::timeout(ANSWERS_WITHIN, watch.next::<T>()).await;
            match event.unwrap_or(Err(Error::TimedOut(ANSWERS_WITHIN)))?.ok_or(Error::Closed)? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    all.insert(key(object.metadata()), object);
                }
                WatchEvent::Deleted(object) => {
                    all.remove(&key(object.metadata()));
                }
                WatchEvent::Bookmark(metadata)
                    if metadata.annotations.get(INITIAL_EVENTS_END).is_some_and(|end| *end == "true") =>
                {
                    self.version = metadata.resource_version;
                    return Ok((all.into_values().collect(), watch));
                }
                WatchEvent::Bookmark(_) | WatchEvent::Other(_) => {}
                WatchEvent::Error(status) => return Err(Error::Refused(status)),
            }
        }
    }

    /// All that there is, page by page.
    async fn list(&mut self) -> Result<Vec<T>, Error> {
        let (mut all, mut go_on) = (Vec::new(), String::new());
        loop {
            let path = format!("{}?limit={PAGE}{go_on}{}", self.collection, self.selectors);
            let page: List<T> = self.client.ask(Method::GET, &path, None).await?;
            all.extend(page.items);
            if page.metadata.r#continue.is_empty() {
                self.version = page.metadata.resource_version;
                return Ok(all);
            }
            go_on = format!("&continue={}", escaped(&page.metadata.r#continue));
        }
    }

    async fn watch(&mut self, query: &str) -> Result<Box<Watch>, Error> {
        let lasts = self.watch_lasts + self.chance.below(self.watch_lasts);
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={}{query}{}",
            self.collection,
            lasts.as_secs(),
            self.selectors
        );
        let began = Instant::now();
        let answer =
            tokio::time::timeout(ANSWERS_WITHIN, self.client.begin(Method::GET, &path, None, WHOLE)).await;
        let answer = answer.unwrap_or(Err(Error::TimedOut(ANSWERS_WITHIN)))?;
        let lines = Lines::of(answer.into_body(), LARGEST_EVENT.bytes);
        Ok(Box::new(Watch { lines, began, ends: began + lasts, told: false }))
    }
}

impl Watch {
    async fn next<T: Resource>(&mut self) -> Result<Option<WatchEvent<T>>, Error> {
        let Some(line) = self.lines.next().await? else { return Ok(None) };
        self.told = true;
        Ok(Some(crablet_api::from_json(&line, LARGEST_EVENT)?))
    }
}

fn key(metadata: &ObjectMeta) -> (Text, Text) {
    (metadata.namespace.clone(), metadata.name.clone())
}

#[cfg(test)]
mod tests;
