//! Static pods that another kubelet ran, so that nothing restarts when crablet takes its place.
//!
//! The Go kubelet makes a static pod's UID from a dump of its own types, which nobody should reproduce. A pod that is in
//! the runtime is recognised by what it is instead: its source and its name, and what its containers were made from,
//! where the runtime tells; and last of all by a manifest that has not changed since something of it was made. Whether
//! it runs does not matter: one that is over is to stay over.
//!
//! What was adopted is written down before anybody acts on it: from then on the UID belongs to that very manifest (by
//! our own digest of it), and the runtime is not asked again. Another manifest makes another pod. The record stays for as
//! long as the runtime has something of the pod: without it, an agent that is killed while that ends would take it for
//! the other manifest's.
//!
//! A source is compared with the runtime when it first speaks. Whatever it does not want then is told to end, and what
//! it wants later is new.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crablet_api::Text;
use crablet_api::core::Pod;
use crablet_api::document::Limits;
use crablet_core::adoption::{Fit, fit};
use crablet_core::{hash, labels};
use crablet_cri::{Error, Runtime};
use crablet_cri_api::{Container, ContainerFilter, ContainerState, Sandbox, SandboxFilter, SandboxState};
use crablet_host::checkpoint::{CheckpointError, Checkpoints};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tracing::{Instrument as _, Span, info, warn};

use crate::sources::{CONFIG_HASH, CONFIG_SOURCE, SourceKind, uid_error};

/// The wait after the runtime or the disk failed.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// Who knows which static pods were adopted. Clones know the same.
#[derive(Clone)]
pub struct Adoption(Arc<Inner>);

struct Inner {
    runtime: Arc<dyn Runtime>,
    store: Arc<dyn Checkpoints>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    records: BTreeMap<Key, Record>,
    /// The sources that were compared with the runtime.
    compared: BTreeSet<SourceKind>,
}

/// Whose record it is: the word of its source, its namespace and its name.
type Key = (String, String, String);

/// What is written down of a pod that was adopted, under its UID.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    source: String,
    namespace: String,
    name: String,
    #[serde(skip)]
    uid: String,
    /// Our own digest of the manifest that it belongs to.
    manifest: String,
}

/// A static pod with our own UID, which is the digest of its manifest: it may be there already under another one.
pub struct Candidate<'a> {
    /// The pod, with its defaults.
    pub pod: &'a mut Arc<Pod>,
    /// The digest of its manifest.
    pub digest: &'a Text,
    /// When its manifest was last changed, where that is known.
    pub modified: Option<Timestamp>,
}

impl Candidate<'_> {
    fn key(&self, source: SourceKind) -> Key {
        let metadata = &self.pod.metadata;
        (source.as_str().to_owned(), metadata.namespace.to_string(), metadata.name.to_string())
    }

    fn take(&mut self, uid: &str) {
        if self.pod.metadata.uid != *uid {
            let pod = Arc::make_mut(self.pod);
            pod.metadata.uid = uid.into();
            pod.metadata.annotations.insert(CONFIG_HASH, uid.into());
        }
    }
}

impl Adoption {
    /// Goes on from what was written down.
    pub async fn open(
        runtime: Arc<dyn Runtime>,
        store: Arc<dyn Checkpoints>,
    ) -> Result<Adoption, CheckpointError> {
        let loaded = store.load_all().await?;
        for error in &loaded.unreadable {
            warn!(%error, "Cannot read the record of a static pod that was adopted; it is compared anew");
        }
        let mut records = BTreeMap::new();
        for (uid, bytes) in loaded.checkpoints {
            match crablet_api::from_json::<Record>(&bytes, Limits::API) {
                Ok(mut record) => {
                    record.uid = uid;
                    records.insert(record.key(), record);
                }
                Err(error) => {
                    warn!(uid, %error, "Cannot understand the record of a static pod that was adopted; it is compared anew");
                }
            }
        }
        let state = Mutex::new(State { records, compared: BTreeSet::new() });
        Ok(Adoption(Arc::new(Inner { runtime, store, state })))
    }

    /// Gives pods the UIDs that they are known by. These are all that a source wants now. Where the runtime has to be
    /// asked, it is waited for: nothing can start before.
    pub async fn adopt(&self, source: SourceKind, mut candidates: Vec<Candidate<'_>>) {
        let mut state = self.0.state.lock().await;
        if state.compared.insert(source) {
            self.compare(&mut state, source, &candidates).await;
        }
        for candidate in &mut candidates {
            if let Some(uid) = state.uid(source, candidate) {
                candidate.take(&uid);
            }
        }
    }

    /// Compares what a source first wants with what the runtime has. What was written down of pods that the runtime has
    /// no more is forgotten, unless they are wanted.
    async fn compare(&self, state: &mut State, source: SourceKind, candidates: &[Candidate<'_>]) {
        let unknown: Vec<&Candidate<'_>> =
            candidates.iter().filter(|candidate| state.uid(source, candidate).is_none()).collect();
        if unknown.is_empty() && state.unwanted(source, candidates).is_empty() {
            return;
        }
        let Found { adopted, uids } = self.find(source, &unknown, &state.records).await;
        for record in adopted {
            let span = record.span();
            self.write_down(state, record).instrument(span).await;
        }
        for record in state.unwanted(source, candidates) {
            if !uids.contains(&record.uid) {
                state.records.remove(&record.key());
                self.remove(&record).instrument(record.span()).await;
            }
        }
    }

    /// What the runtime has of these, in whatever state. Asks until it answers.
    async fn find(
        &self,
        source: SourceKind,
        candidates: &[&Candidate<'_>],
        records: &BTreeMap<Key, Record>,
    ) -> Found {
        let mut was_silent = false;
        loop {
            match self.try_to_find(source, candidates, records).await {
                Ok(found) => return found,
                Err(error) => {
                    if !std::mem::replace(&mut was_silent, true) {
                        warn!(
                            %source, pods = candidates.len(), %error,
                            "Cannot tell whether static pods are there already; they wait for the container runtime"
                        );
                    }
                    tokio::time::sleep(BETWEEN_TRIES).await;
                }
            }
        }
    }

    async fn try_to_find(
        &self,
        source: SourceKind,
        candidates: &[&Candidate<'_>],
        records: &BTreeMap<Key, Record>,
    ) -> Result<Found, Error> {
        let runtime = &*self.0.runtime;
        let sandboxes = runtime.list_sandboxes(SandboxFilter::default()).await?;
        let containers = runtime.list_containers(ContainerFilter::default()).await?;
        let there = of_source(source, &sandboxes, &containers);
        let mut adopted = Vec::new();
        for candidate in candidates {
            let key = candidate.key(source);
            let name = (key.1.as_str(), key.2.as_str());
            let Some(known) = there.get(&name) else { continue };
            // It was adopted from another manifest: nobody else has been here since.
            let is_outdated = records.get(&key).is_some_and(|record| record.uid == known.uid);
            let is_ours = *known.uid == **candidate.digest;
            if is_outdated
                || is_ours
                || uid_error(known.uid).is_some()
                || !self.fits(candidate, known).await?
            {
                continue;
            }
            let (source, namespace, name) = key.clone();
            let (uid, manifest) = (known.uid.to_owned(), candidate.digest.to_string());
            adopted.push(Record { source, namespace, name, uid, manifest });
        }
        let uids = sandboxes.iter().map(|sandbox| sandbox.metadata.uid.clone()).collect();
        Ok(Found { adopted, uids })
    }

    /// Whether what is there was made from the manifest.
    async fn fits(&self, candidate: &Candidate<'_>, known: &Known<'_>) -> Result<bool, Error> {
        // A sandbox alone says nothing.
        let mut whole = if known.containers.is_empty() { Fit::CannotTell } else { Fit::Fits };
        for container in known.containers.values() {
            let Some(wanted) = candidate.pod.spec.find_container(&container.name) else { return Ok(false) };
            let hash = container.annotations.get(labels::CONTAINER_HASH);
            if hash.is_some_and(|hash| *hash != hash::container_hash(wanted)) {
                return Ok(false);
            }
            let one = match self.0.runtime.container_config(&container.id).await {
                Ok(Some(config)) => fit(candidate.pod, wanted, &config),
                Ok(None) => Fit::CannotTell,
                // It was removed just now.
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            };
            whole = whole.max(one);
        }
        Ok(match whole {
            Fit::Fits => true,
            Fit::CannotTell => {
                candidate.modified.zip(known.made).is_none_or(|(modified, made)| modified <= made)
            }
            Fit::Differs => false,
        })
    }

    /// Tries until it is written: nobody acts on a UID that the next agent would not know.
    async fn write_down(&self, state: &mut State, record: Record) {
        info!(source = record.source, "Adopting a static pod that another kubelet ran");
        while let Err(error) = self.0.store.save(&record.uid, &crablet_api::to_json(&record)).await {
            warn!(%error, "Cannot write down that a static pod was adopted; trying again");
            tokio::time::sleep(BETWEEN_TRIES).await;
        }
        let before = state.records.insert(record.key(), record.clone());
        if let Some(before) = before.filter(|before| before.uid != record.uid) {
            self.remove(&before).instrument(before.span()).await;
        }
    }

    async fn remove(&self, record: &Record) {
        if let Err(error) = self.0.store.remove(&record.uid).await {
            // The next agent finds that it is gone, and tries again.
            warn!(%error, "Cannot remove the record of a static pod that was adopted");
        }
    }
}

impl State {
    /// The UID that a pod was adopted under, if it was, and from this very manifest.
    fn uid(&self, source: SourceKind, candidate: &Candidate<'_>) -> Option<String> {
        let record = self.records.get(&candidate.key(source))?;
        (record.manifest == **candidate.digest).then(|| record.uid.clone())
    }

    /// The records of pods that a source wants no more, or wants from another manifest.
    fn unwanted(&self, source: SourceKind, candidates: &[Candidate<'_>]) -> Vec<Record> {
        let is_wanted = |record: &Record| {
            let mut candidates = candidates.iter();
            candidates.any(|candidate| self.uid(source, candidate).as_ref() == Some(&record.uid))
        };
        let of_source = self.records.values().filter(|record| record.source == source.as_str());
        of_source.filter(|record| !is_wanted(record)).cloned().collect()
    }
}

/// What the runtime has.
struct Found {
    /// Pods that are what a source wants.
    adopted: Vec<Record>,
    /// All pods that it has something of.
    uids: BTreeSet<String>,
}

impl Record {
    fn key(&self) -> Key {
        (self.source.clone(), self.namespace.clone(), self.name.clone())
    }

    fn span(&self) -> Span {
        crablet_logging::pod_span(&self.namespace, &self.name, &self.uid)
    }
}

/// A static pod that the runtime has something of.
struct Known<'a> {
    uid: &'a str,
    lives: bool,
    /// When the latest part of it was made.
    made: Option<Timestamp>,
    /// The latest container of each name.
    containers: BTreeMap<&'a str, &'a Container>,
}

/// The pods of a source that the runtime has something of, by namespace and name. Of several of one name it is the one
/// that lives, or else the latest.
fn of_source<'a>(
    source: SourceKind,
    sandboxes: &'a [Sandbox],
    containers: &'a [Container],
) -> BTreeMap<(&'a str, &'a str), Known<'a>> {
    let mut by_uid: BTreeMap<&str, ((&str, &str), Known<'_>)> = BTreeMap::new();
    let is_of_source = |sandbox: &&Sandbox| {
        sandbox.annotations.get(CONFIG_SOURCE).is_some_and(|word| *word == source.as_str())
    };
    for sandbox in sandboxes.iter().filter(is_of_source) {
        let metadata = &sandbox.metadata;
        let name = (metadata.namespace.as_str(), metadata.name.as_str());
        let new = Known { uid: &metadata.uid, lives: false, made: None, containers: BTreeMap::new() };
        let (_, known) = by_uid.entry(&metadata.uid).or_insert((name, new));
        known.lives |= sandbox.state == SandboxState::Ready;
        known.made = known.made.max(sandbox.created_at);
    }
    for container in containers {
        let uid = container.labels.get(labels::POD_UID).map(String::as_str).unwrap_or_default();
        let Some((_, known)) = by_uid.get_mut(uid) else { continue };
        known.lives |= container.state != ContainerState::Exited;
        known.made = known.made.max(container.created_at);
        let latest = known.containers.entry(&container.name).or_insert(container);
        if (latest.attempt, latest.created_at) < (container.attempt, container.created_at) {
            *latest = container;
        }
    }
    let mut found: BTreeMap<(&str, &str), Known<'_>> = BTreeMap::new();
    for (name, known) in by_uid.into_values() {
        let is_better =
            found.get(&name).is_none_or(|other| (other.lives, other.made) < (known.lives, known.made));
        if is_better {
            found.insert(name, known);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_cri_api::SandboxMetadata;

    /// A sandbox of a pod called `web-node`, made in some second.
    fn sandbox(uid: &str, source: &str, state: SandboxState, made: i64) -> Sandbox {
        Sandbox {
            id: format!("sandbox of {uid} of {made}"),
            metadata: SandboxMetadata {
                name: "web-node".into(),
                namespace: "default".into(),
                uid: uid.into(),
                attempt: 0,
            },
            state,
            created_at: Some(Timestamp::from_second(made).unwrap()),
            labels: BTreeMap::new(),
            annotations: BTreeMap::from([(CONFIG_SOURCE.into(), source.into())]),
            runtime_handler: String::new(),
        }
    }

    fn container(uid: &str, name: &str, attempt: u32, state: ContainerState, made: i64) -> Container {
        Container {
            id: format!("{name} {attempt}"),
            sandbox_id: String::new(),
            name: name.into(),
            attempt,
            image: String::new(),
            image_ref: String::new(),
            image_id: String::new(),
            state,
            created_at: Some(Timestamp::from_second(made).unwrap()),
            labels: BTreeMap::from([(labels::POD_UID.into(), uid.into())]),
            annotations: BTreeMap::new(),
        }
    }

    #[track_caller]
    fn check(sandboxes: &[Sandbox], containers: &[Container], expected: Option<(&str, i64)>) {
        let found = of_source(SourceKind::File, sandboxes, containers);
        let known = found.get(&("default", "web-node"));
        assert_eq!(known.map(|known| (known.uid, known.made.unwrap().as_second())), expected);
    }

    #[test]
    fn of_several_pods_of_a_name_the_one_that_lives_counts_or_the_latest() {
        let (ready, not_ready) = (SandboxState::Ready, SandboxState::NotReady);
        check(&[], &[], None);
        check(&[sandbox("a", "file", not_ready, 5)], &[], Some(("a", 5)));
        // Another source's pod is not this one's to take.
        check(&[sandbox("a", "api", ready, 5), sandbox("b", "http", ready, 5)], &[], None);
        let two = [sandbox("a", "file", not_ready, 5), sandbox("b", "file", not_ready, 7)];
        check(&two, &[], Some(("b", 7)));
        // What is made last says when it was last known to be wanted.
        check(&two, &[container("a", "c", 1, ContainerState::Exited, 9)], Some(("a", 9)));
        check(&two, &[container("a", "c", 1, ContainerState::Running, 6)], Some(("a", 6)));
        check(&[sandbox("a", "file", ready, 5), sandbox("b", "file", not_ready, 7)], &[], Some(("a", 5)));
    }

    #[test]
    fn the_latest_container_of_each_name_is_compared() {
        let exited = ContainerState::Exited;
        let containers = [
            container("a", "c", 2, exited, 8),
            container("a", "c", 1, exited, 7),
            container("a", "d", 0, exited, 7),
            container("other", "e", 0, exited, 7),
        ];
        let sandboxes = [sandbox("a", "file", SandboxState::NotReady, 5)];
        let found = of_source(SourceKind::File, &sandboxes, &containers);
        let known = &found[&("default", "web-node")];
        let ids: Vec<&str> = known.containers.values().map(|container| &*container.id).collect();
        assert_eq!(ids, ["c 2", "d 0"]);
    }
}
