//! The one cluster behind its lock, and the store beneath it.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use crablet_host::clock::Clock;
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::proxy::NodeClient;
use super::usage::Said;
use crate::answer::Answer;
use crate::authentication::{Authenticated, ClientCertificates, TokenError};
use crate::chance::Chance;
use crate::cluster::Cluster;
use crate::persistence::{Committer, Progress, StoreFailed};
use crate::request::Request;
use crate::watch::{Next, Watch};

/// Requests at a time, watches and what goes to the node aside.
const MOST_REQUESTS: usize = 400;
/// Watches, and what goes to the node.
const MOST_LONG_RUNNING: usize = 4_000;
/// What bodies of requests may take at a time, in units.
pub(super) const BODY_UNIT: usize = 64 << 10;
const MOST_BODY_UNITS: usize = 1_024;

/// Nobody waits longer without another look at the clock, which may have been set.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// How much of a watch is taken at a time.
const CHUNK: usize = 32 << 10;

pub(super) struct Api {
    cluster: Mutex<Cluster>,
    committer: Committer,
    /// When the controllers have something to do even if nothing is asked.
    next_tick: watch::Sender<Option<Timestamp>>,
    clock: Clock,
    pub(super) certificates: Arc<ClientCertificates>,
    nodes: RwLock<Arc<NodeClient>>,
    audit_ids: Mutex<Chance>,
    pub(super) said: Said,
    pub(super) requests: Arc<Semaphore>,
    pub(super) long_running: Arc<Semaphore>,
    pub(super) bodies: Arc<Semaphore>,
}

impl Api {
    pub(super) fn new(
        cluster: Cluster,
        committer: Committer,
        clock: Clock,
        certificates: Arc<ClientCertificates>,
        nodes: NodeClient,
    ) -> Api {
        Api {
            cluster: Mutex::new(cluster),
            committer,
            next_tick: watch::Sender::new(None),
            clock,
            certificates,
            nodes: RwLock::new(Arc::new(nodes)),
            said: Said::default(),
            audit_ids: Mutex::new(Chance::new(super::tls::random())),
            requests: Arc::new(Semaphore::new(MOST_REQUESTS)),
            long_running: Arc::new(Semaphore::new(MOST_LONG_RUNNING)),
            bodies: Arc::new(Semaphore::new(MOST_BODY_UNITS)),
        }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn audit_id(&self) -> String {
        self.audit_ids.lock().unwrap_or_else(PoisonError::into_inner).uid()
    }

    pub(super) fn nodes(&self) -> Arc<NodeClient> {
        Arc::clone(&self.nodes.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_nodes(&self, nodes: NodeClient) {
        *self.nodes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(nodes);
    }

    /// Does something to the cluster. What was written goes to the store in its order, because the lock is still held.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Cluster, Timestamp) -> T) -> T {
        // If somebody panicked, the request is lost; what it had written by then is whole objects.
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut cluster, self.clock.now());
        self.committer.enqueue(cluster.state.take_unwritten());
        let next = cluster.next_tick();
        self.next_tick.send_if_modified(|known| std::mem::replace(known, next) != next);
        result
    }

    pub(super) fn authenticate_token(&self, token: &str) -> Result<Authenticated, TokenError> {
        self.with(|cluster, now| cluster.authenticate_token(token, &[], now))
    }

    /// The answer to a request, when all that it may tell of is on disk.
    pub(super) async fn handle(&self, request: &Request) -> Result<Answer, StoreFailed> {
        self.committer.check()?;
        let (answer, revision) =
            self.with(|cluster, now| (cluster.handle(request, now), cluster.state.revision()));
        self.committer.wait_for(revision).await?;
        Ok(answer)
    }

    pub(super) fn check_store(&self) -> Result<(), StoreFailed> {
        self.committer.check()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Progress> {
        self.committer.subscribe()
    }

    /// The next lines of a watch, once there are some; none when it is over.
    pub(super) async fn next_lines(
        &self,
        watch: &mut Watch,
        progress: &mut watch::Receiver<Progress>,
    ) -> Option<Vec<u8>> {
        loop {
            let durable = match &*progress.borrow_and_update() {
                Progress::UpTo(durable) => *durable,
                Progress::Failed(_) => return None,
            };
            let (lines, until) = self.with(|cluster, now| {
                let mut lines = Vec::new();
                while lines.len() < CHUNK {
                    match watch.next(&cluster.state, durable, now) {
                        Next::Line(line) if lines.is_empty() => lines = line,
                        Next::Line(line) => lines.extend_from_slice(&line),
                        Next::Wait(until) => return (lines, Some(until)),
                        Next::End => return (lines, None),
                    }
                }
                (lines, Some(now))
            });
            if !lines.is_empty() {
                return Some(lines);
            }
            tokio::select! {
                changed = progress.changed() => changed.ok()?,
                () = self.sleep_until(until?) => {}
            }
        }
    }

    async fn sleep_until(&self, until: Timestamp) {
        let left = until.duration_since(self.clock.now());
        let left = Duration::try_from(left).unwrap_or_default();
        tokio::time::sleep(left.clamp(SHORTEST_WAIT, LONGEST_WAIT)).await;
    }
}

/// Lets the controllers look whenever their time has come. What a request changes they look at together with it.
pub(super) async fn run_controllers(api: Arc<Api>, stop: CancellationToken) {
    let mut next_tick = api.next_tick.subscribe();
    while api.check_store().is_ok() {
        api.with(|cluster, now| cluster.tick(now));
        let next = next_tick.borrow_and_update().unwrap_or(Timestamp::MAX);
        tokio::select! {
            () = stop.cancelled() => return,
            changed = next_tick.changed() => if changed.is_err() { return },
            () = api.sleep_until(next) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::answer::Document;
    use crate::cluster::Settings;
    use crate::persistence::Store;
    use crate::persistence::simulated_disk::SimulatedDisk;
    use crate::pki::Pki;
    use crate::resources::CONFIG_MAPS;
    use crate::state::State;
    use crate::who::User;

    fn api(disk: &SimulatedDisk) -> Api {
        let clock = Clock::system();
        let directory = tempfile::tempdir().unwrap();
        let pki = Pki::open(directory.path(), &Default::default(), clock.now()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let authority = pki.keys.authority().certificate();
        let certificates = ClientCertificates::of(authority, &provider).unwrap();
        let nodes = NodeClient::new(&pki.kubelet_client, None, provider).unwrap();
        let (store, restored) = Store::open_on(disk.clone(), disk.journal()).unwrap();
        let committer = Committer::start(store, restored.revision).unwrap();
        let cluster = Cluster::new(State::default(), Settings::default(), 1);
        Api::new(cluster, committer, clock, Arc::new(certificates), nodes)
    }

    fn write(api: &Api, name: &str) -> u64 {
        api.with(|cluster, _| {
            cluster.state.put(&CONFIG_MAPS, json!({"metadata": {"name": name, "namespace": "default"}}));
            cluster.state.revision()
        })
    }

    fn request(path: &str) -> Request {
        Request {
            method: http::Method::GET,
            path: path.to_owned(),
            query: String::new(),
            accept: String::new(),
            content_type: String::new(),
            user: User::new("admin", &["system:masters"]),
            body: Vec::new(),
        }
    }

    fn is_ready<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
        future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn neither_reads_nor_watches_show_what_is_not_on_disk() {
        let disk = SimulatedDisk::default();
        let api = api(&disk);
        let release = disk.hold_syncs();
        write(&api, "a");
        let get = request("/api/v1/namespaces/default/configmaps/a");
        let mut read = Box::pin(api.handle(&get));
        let mut watch = Request { query: "watch=true".to_owned(), ..request("/api/v1/configmaps") };
        watch.user = get.user.clone();
        let mut watch = Box::pin(api.handle(&watch));
        let gone = request("/api/v1/namespaces/default/configmaps/b");
        let mut missing = Box::pin(api.handle(&gone));
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert!(!is_ready(read.as_mut()) && !is_ready(watch.as_mut()) && !is_ready(missing.as_mut()));
        }
        drop(release);
        let Answer::Document(Document { code, .. }) = read.await.unwrap() else { panic!() };
        assert_eq!(code, 200);
        let Answer::Watch(mut watch) = watch.await.unwrap() else { panic!() };
        let mut progress = api.subscribe();
        let first = api.next_lines(&mut watch, &mut progress).await.unwrap();
        assert!(String::from_utf8(first).unwrap().starts_with("{\"type\":\"ADDED\""));
        let release = disk.hold_syncs();
        write(&api, "b");
        let mut next = Box::pin(api.next_lines(&mut watch, &mut progress));
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert!(!is_ready(next.as_mut()));
        }
        drop(release);
        assert!(String::from_utf8(next.await.unwrap()).unwrap().contains("\"name\":\"b\""));
    }

    #[tokio::test]
    async fn nothing_is_answered_by_a_store_that_failed() {
        let disk = SimulatedDisk::default();
        let api = api(&disk);
        disk.die_now();
        write(&api, "a");
        let get = request("/api/v1/namespaces/default/configmaps/a");
        let failed = api.handle(&get).await.unwrap_err();
        assert!(failed.to_string().starts_with("the store failed, and nothing is served until"), "{failed}");
        assert!(api.handle(&request("/readyz")).await.is_err());
        assert!(api.check_store().is_err());
    }
}
