//! Tokens of service accounts, for pods.
//!
//! A token is kept for as long as its pod is registered, in memory alone. When four fifths of its life have passed, or a
//! day, its pod is told; who asks then gets a new one, or the old one for as long as that is valid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crablet_agent::objects::Interests;
use crablet_api::Text;
use crablet_client::{Chance, Client};
use crablet_core::translate::Unavailable;
use crablet_host::clock::Clock;
use crablet_volumes::{Token, TokenRequest};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tracing::warn;

use crate::memory::Memory;
use crate::registry::Registry;

/// No token is shown for longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Tokens are renewed sooner by up to so much, and so not all at once.
const JITTER: Duration = Duration::from_secs(10);
/// How often a pod is told that has not renewed a token, or could not.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// What may stand in a part of a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The tokens of all pods.
pub struct Tokens {
    client: Client,
    clock: Clock,
    chance: Mutex<Chance>,
    interests: Interests,
    /// By the UIDs of the pods.
    pods: Registry<Text, PodTokens>,
    /// There is one more to be renewed some day.
    more: Notify,
    /// Where what the server says is kept, if it is. Tokens are not.
    memory: Option<Memory>,
}

/// The tokens of a pod, for as long as somebody has a hold of this.
#[derive(Default)]
pub struct PodTokens(Mutex<Content>);

#[derive(Default)]
struct Content {
    kept: BTreeMap<TokenRequest, Kept>,
    /// Those that could not be had the last time.
    missing: BTreeSet<TokenRequest>,
    /// Until when the pod is not told again.
    quiet_until: Option<Moment>,
}

struct Kept {
    token: Token,
    renewed_from: Moment,
    valid_until: Moment,
}

/// A moment by both clocks: the wall clock may be set, and the steady one stands still while the machine sleeps.
#[derive(Clone, Copy)]
struct Moment {
    steady: Timestamp,
    wall: Timestamp,
}

impl Moment {
    fn after(clock: &Clock, time: Duration) -> Moment {
        let after = |now: Timestamp| now.checked_add(time).unwrap_or(Timestamp::MAX);
        Moment { steady: after(clock.steady()), wall: after(clock.now()) }
    }

    fn has_come(self, clock: &Clock) -> bool {
        clock.steady() >= self.steady || clock.now() >= self.wall
    }

    fn is_in(self, clock: &Clock) -> Duration {
        Duration::try_from(self.steady.duration_since(clock.steady())).unwrap_or_default()
    }
}

impl Tokens {
    pub fn new(
        client: Client,
        clock: Clock,
        chance: Chance,
        interests: Interests,
        memory: Option<Memory>,
    ) -> Arc<Tokens> {
        let (chance, pods) = (Mutex::new(chance), Registry::new());
        Arc::new(Tokens { client, clock, chance, interests, pods, more: Notify::new(), memory })
    }

    /// Has the tokens of a pod kept for as long as the answer is.
    pub fn register(&self, uid: &str) -> Arc<PodTokens> {
        self.pods.get_or_make(uid.into(), PodTokens::default)
    }

    /// A token that is valid: the one that is kept, or a new one. A pod that is run from memory does without; it is told
    /// when the server answers.
    pub async fn get(&self, request: &TokenRequest) -> Result<Option<Token>, Unavailable> {
        let kept = self.pods.get(&request.pod_uid);
        let (old, is_due, is_valid) = match kept.as_ref().and_then(|kept| kept.find(request)) {
            Some((token, from, until)) => {
                (Some(token), from.has_come(&self.clock), !until.has_come(&self.clock))
            }
            None => (None, true, false),
        };
        if let Some(old) = old.as_ref().filter(|_| !is_due) {
            return Ok(Some(old.clone()));
        }
        let answer = self.ask(request).await;
        if let Some(kept) = &kept {
            self.keep(&mut kept.lock(), request, answer.as_ref().ok());
            self.more.notify_one();
        }
        match answer {
            Ok((token, _)) => Ok(Some(token)),
            Err(error) => match old {
                None if self.memory.as_ref().is_some_and(|memory| memory.away_since().is_some()) => Ok(None),
                None => Err(Unavailable::Other(format!("failed to fetch token: {error}"))),
                Some(_) if !is_valid => Err(Unavailable::Other(format!(
                    "token {:?}/{:?} expired and refresh failed: {error}",
                    request.service_account.as_str(),
                    request.namespace.as_str()
                ))),
                Some(old) => {
                    let (namespace, name) = (&request.namespace, &request.service_account);
                    warn!(%namespace, serviceAccount = %name, pod = %request.pod, err = %error, "Cannot renew a token; the old one is still valid, and it is tried again in a minute");
                    Ok(Some(old))
                }
            },
        }
    }

    /// Takes note of a token and its life, or that there is none.
    fn keep(&self, content: &mut Content, request: &TokenRequest, answer: Option<&(Token, Duration)>) {
        let Some((token, life)) = answer else {
            if request.service_account_uid.is_some() {
                return;
            }
            content.missing.insert(request.clone());
            content.quiet_until = Some(Moment::after(&self.clock, TELL_EVERY));
            return;
        };
        let early = self.chance.lock().unwrap_or_else(PoisonError::into_inner).below(JITTER);
        let renewed_after = (*life - *life / 5).min(LONGEST).saturating_sub(early);
        let kept = Kept {
            token: token.clone(),
            renewed_from: Moment::after(&self.clock, renewed_after),
            valid_until: Moment::after(&self.clock, *life),
        };
        content.missing.remove(request);
        content.kept.insert(request.clone(), kept);
    }

    /// Asks for a token, and says how long it is valid.
    async fn ask(&self, request: &TokenRequest) -> Result<(Token, Duration), crablet_client::Error> {
        let escaped = |text| utf8_percent_encode(text, PLAIN);
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{}/token",
            escaped(&request.namespace),
            escaped(&request.service_account)
        );
        let answer: Answer = self.client.post(&path, &Question::of(request)).await?;
        let seconds = answer.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let life = match (seconds, answer.status.expiration_timestamp) {
            (Some(seconds), _) => Duration::from_secs(seconds),
            (None, Some(end)) => Duration::try_from(end.duration_since(self.clock.now())).unwrap_or_default(),
            (None, None) => LONGEST,
        };
        let token = Token::new(&answer.status.token);
        let token = match answer.status.expiration_timestamp {
            Some(end) => token.until(&format!("{end:.0}")),
            None => token,
        };
        Ok((token, life))
    }

    /// Tells pods when their tokens are to be renewed.
    pub async fn run(self: Arc<Tokens>) {
        let mut away = self.memory.as_ref().map(Memory::away);
        loop {
            let more = self.more.notified();
            let next = self.tell();
            tokio::select! {
                biased;
                () = more => {}
                () = is_back(away.as_mut()) => self.have_missing_told(),
                () = tokio::time::sleep(next.unwrap_or(Duration::MAX)) => {}
            }
        }
    }

    /// Has pods told at once that lack a token.
    fn have_missing_told(&self) {
        for (_, pod) in self.pods.all() {
            let mut content = pod.lock();
            if !content.missing.is_empty() {
                content.quiet_until = None;
            }
        }
    }

    /// Tells pods whose tokens are to be renewed by now; and when to do so again, if there are any tokens. That is a
    /// minute at most: the wall clock may be set meanwhile.
    fn tell(&self) -> Option<Duration> {
        let mut next = None;
        for (uid, pod) in self.pods.all() {
            let mut content = pod.lock();
            let wait = match content.wants_one(&self.clock) {
                true => {
                    if content.quiet_until.is_none_or(|until| until.has_come(&self.clock)) {
                        content.quiet_until = Some(Moment::after(&self.clock, TELL_EVERY));
                        self.interests.token_is_due(&uid);
                    }
                    content.quiet_until.map(|until| until.is_in(&self.clock))
                }
                false => content.shown().map(|kept| kept.renewed_from.is_in(&self.clock)).min(),
            };
            let earliest = next.into_iter().chain(wait).min();
            next = earliest.map(|next| next.min(TELL_EVERY));
        }
        next
    }
}

/// Completes when the server answers after pods were run from memory.
async fn is_back(away: Option<&mut watch::Receiver<Option<Timestamp>>>) {
    if let Some(away) = away {
        while away.changed().await.is_ok() {
            if away.borrow_and_update().is_none() {
                return;
            }
        }
    }
    std::future::pending().await
}

impl Content {
    /// Whether a token is missing or to be renewed.
    fn wants_one(&self, clock: &Clock) -> bool {
        !self.missing.is_empty() || self.shown().any(|kept| kept.renewed_from.has_come(clock))
    }

    /// Those that volumes show. What a credential provider was shown is not needed any more when an image was pulled.
    fn shown(&self) -> impl Iterator<Item = &Kept> {
        let shown = self.kept.iter().filter(|(request, _)| request.service_account_uid.is_none());
        shown.map(|(_, kept)| kept)
    }
}

impl PodTokens {
    fn find(&self, request: &TokenRequest) -> Option<(Token, Moment, Moment)> {
        let content = self.lock();
        let kept = content.kept.get(request)?;
        Some((kept.token.clone(), kept.renewed_from, kept.valid_until))
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `authentication.k8s.io/v1` TokenRequest, so far as it is sent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: QuestionMetadata<'a>,
    spec: QuestionSpec<'a>,
}

#[derive(Serialize)]
struct QuestionMetadata<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QuestionSpec<'a> {
    audiences: Option<&'a [Text]>,
    expiration_seconds: Option<i64>,
    bound_object_ref: BoundObject<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BoundObject<'a> {
    kind: &'static str,
    api_version: &'static str,
    name: &'a str,
    uid: &'a str,
}

impl Question<'_> {
    fn of(request: &TokenRequest) -> Question<'_> {
        Question {
            api_version: "authentication.k8s.io/v1",
            kind: "TokenRequest",
            metadata: QuestionMetadata { uid: request.service_account_uid.as_deref() },
            spec: QuestionSpec {
                audiences: Some(&*request.audiences).filter(|audiences| !audiences.is_empty()),
                expiration_seconds: request.expiration_seconds,
                bound_object_ref: BoundObject {
                    kind: "Pod",
                    api_version: "v1",
                    name: &request.pod,
                    uid: &request.pod_uid,
                },
            },
        }
    }
}

/// The same, so far as it is read. It has no `Debug`.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    spec: AnswerSpec,
    status: AnswerStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerSpec {
    expiration_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerStatus {
    token: String,
    expiration_timestamp: Option<Timestamp>,
}

#[cfg(test)]
mod tests;
