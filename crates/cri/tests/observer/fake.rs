//! A runtime that does as it is told: what it answers, how late, and what it hints at are each set by the test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use crablet_cri::{Error, Hint, HintKind, HintSource, ImagePull, Result, Runtime};
use crablet_cri_api::{
    CgroupDriver, Container, ContainerFilter, ContainerState, ContainerStatus, ExecOutput, Image,
    NetworkNamespace, RuntimeStatus, Sandbox, SandboxFilter, SandboxMetadata, SandboxState, SandboxStatus,
    Version, v1,
};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

/// When what is hinted happened, in nanoseconds since 1970.
pub const HINTED_AT: i64 = 1_790_000_000_000_000_000;
/// The pod that everything belongs to, unless it is nobody's.
pub const POD: &str = "pod-1";

#[derive(Default)]
pub struct Fake(Mutex<World>);

#[derive(Default)]
struct World {
    things: BTreeMap<String, Thing>,
    streams: BTreeMap<HintSource, mpsc::Sender<Result<Hint>>>,
    /// Streams that are open, and that nothing is said on.
    forgotten: Vec<mpsc::Sender<Result<Hint>>>,
    lacks: Vec<HintSource>,
    fails: Vec<HintSource>,
    is_away: bool,
    status_fails: bool,
    list_delay: Duration,
    calls: Vec<String>,
}

#[derive(Clone)]
struct Thing {
    state: State,
    /// What status reads say until then.
    before: Option<(Option<State>, Instant)>,
    status_delay: Duration,
    labels: BTreeMap<String, String>,
    reason: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Container(ContainerState),
    Sandbox(SandboxState),
}

impl Fake {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// A container of the pod.
    pub fn container(&self, id: &str, state: ContainerState) {
        self.put(id, State::Container(state));
    }

    /// A sandbox of the pod.
    pub fn sandbox(&self, id: &str, state: SandboxState) {
        self.put(id, State::Sandbox(state));
    }

    fn put(&self, id: &str, state: State) {
        let mut world = self.world();
        match world.things.get_mut(id) {
            Some(thing) => thing.state = state,
            None => {
                let labels = BTreeMap::from([("io.kubernetes.pod.uid".to_owned(), POD.to_owned())]);
                let thing =
                    Thing { state, before: None, status_delay: Duration::ZERO, labels, reason: "Error" };
                world.things.insert(id.to_owned(), thing);
            }
        }
    }

    /// Makes it nobody's.
    pub fn disown(&self, id: &str) {
        self.world().things.get_mut(id).unwrap().labels.clear();
    }

    pub fn remove(&self, id: &str) {
        self.world().things.remove(id);
    }

    /// Moves a container on, but status reads and lists say for some time what they said before.
    pub fn container_late(&self, id: &str, state: ContainerState, late: Duration) {
        let old = self.world().things.get(id).map(|thing| thing.state);
        self.container(id, state);
        self.world().things.get_mut(id).unwrap().before = Some((old, Instant::now() + late));
    }

    pub fn sandbox_late(&self, id: &str, state: SandboxState, late: Duration) {
        self.sandbox(id, state);
        self.world().things.get_mut(id).unwrap().before = Some((None, Instant::now() + late));
    }

    /// Why a container ended, when it does.
    pub fn reason(&self, id: &str, reason: &'static str) {
        self.world().things.get_mut(id).unwrap().reason = reason;
    }

    /// How long a status read of it takes.
    pub fn status_delay(&self, id: &str, delay: Duration) {
        self.world().things.get_mut(id).unwrap().status_delay = delay;
    }

    /// Whether status reads are answered by an error.
    pub fn status_fails(&self, fails: bool) {
        self.world().status_fails = fails;
    }

    /// How long a list takes; it says what held when it was asked for.
    pub fn list_delay(&self, delay: Duration) {
        self.world().list_delay = delay;
    }

    /// Does not have this stream.
    pub fn lacks(&self, source: HintSource) {
        self.world().lacks.push(source);
    }

    /// Has this stream, and fails on it while `fails` holds.
    pub fn fails(&self, source: HintSource, fails: bool) {
        let mut world = self.world();
        world.fails.retain(|other| *other != source);
        if fails {
            world.fails.push(source);
        }
    }

    /// Hints on whatever streams are open, of what happened at [`HINTED_AT`].
    pub fn hint(&self, id: &str, kind: HintKind) {
        for sender in self.world().streams.values() {
            // Nobody listens to a stream that was given up.
            let _ = sender.try_send(Ok(Hint { id: id.to_owned(), kind, at: Some(HINTED_AT) }));
        }
    }

    pub fn break_streams(&self) {
        for (_, sender) in std::mem::take(&mut self.world().streams) {
            let _ = sender.try_send(Err(unreachable("GetContainerEvents")));
        }
    }

    /// Says nothing any more on the streams that are open, and does not end them either.
    pub fn forget_streams(&self) {
        let mut world = self.world();
        let streams = std::mem::take(&mut world.streams);
        world.forgotten.extend(streams.into_values());
    }

    /// Goes away, and all streams with it, or comes back.
    pub fn away(&self, is_away: bool) {
        self.world().is_away = is_away;
        if is_away {
            self.break_streams();
        }
    }

    /// What was called so far, and forgets it.
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.world().calls)
    }

    /// How often this was called since [`Fake::calls`].
    pub fn count(&self, call: &str) -> usize {
        self.world().calls.iter().filter(|other| *other == call).count()
    }

    fn call(&self, call: String) -> Result<()> {
        let mut world = self.world();
        world.calls.push(call);
        if world.is_away { Err(unreachable("a call")) } else { Ok(()) }
    }

    async fn thing(&self, id: &str) -> Result<(Thing, State)> {
        if self.world().status_fails {
            return Err(failure(Code::Internal));
        }
        let delay = self.world().things.get(id).map(|thing| thing.status_delay).unwrap_or_default();
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let thing = self.world().things.get(id).cloned().ok_or_else(not_found)?;
        let state = thing.seen().ok_or_else(not_found)?;
        Ok((thing, state))
    }

    /// What there is when this is called, given after a while.
    async fn list(&self) -> Vec<(String, Thing, State)> {
        let (things, delay) = {
            let world = self.world();
            let things: Vec<_> = world
                .things
                .iter()
                .filter_map(|(id, thing)| Some((id.clone(), thing.clone(), thing.seen()?)))
                .collect();
            (things, world.list_delay)
        };
        if !delay.is_zero() {
            sleep(delay).await;
        }
        things
    }
}

impl Thing {
    fn seen(&self) -> Option<State> {
        match self.before {
            Some((old, until)) if Instant::now() < until => old,
            Some(_) | None => Some(self.state),
        }
    }
}

fn not_found() -> Error {
    failure(Code::NotFound)
}

fn failure(code: Code) -> Error {
    Error::Answer { method: "ContainerStatus", code, message: "as the test wants it".to_owned() }
}

fn unreachable(method: &'static str) -> Error {
    Error::Unreachable { method, endpoint: Arc::from("fake"), reason: "it is away".to_owned() }
}

/// What the observer has no business with.
fn unused<T>() -> Result<T> {
    panic!("the observer only looks")
}

#[async_trait]
impl Runtime for Fake {
    async fn sandbox_status(&self, id: &str) -> Result<SandboxStatus> {
        self.call(format!("sandbox {id}"))?;
        let (thing, State::Sandbox(state)) = self.thing(id).await? else { return Err(not_found()) };
        Ok(SandboxStatus {
            id: id.to_owned(),
            metadata: SandboxMetadata::default(),
            state,
            created_at: None,
            ips: Vec::new(),
            network: NetworkNamespace::Pod,
            labels: thing.labels,
            annotations: BTreeMap::new(),
            runtime_handler: String::new(),
        })
    }

    async fn list_sandboxes(&self, _filter: SandboxFilter) -> Result<Vec<Sandbox>> {
        self.call("list sandboxes".to_owned())?;
        let sandbox = |(id, thing, state): (String, Thing, State)| {
            let State::Sandbox(state) = state else { return None };
            Some(Sandbox {
                id,
                metadata: SandboxMetadata::default(),
                state,
                created_at: None,
                labels: thing.labels,
                annotations: BTreeMap::new(),
                runtime_handler: String::new(),
            })
        };
        Ok(self.list().await.into_iter().filter_map(sandbox).collect())
    }

    async fn container_config(&self, _id: &str) -> Result<Option<v1::ContainerConfig>> {
        Ok(None)
    }

    async fn container_status(&self, id: &str) -> Result<ContainerStatus> {
        self.call(format!("container {id}"))?;
        let (thing, State::Container(state)) = self.thing(id).await? else { return Err(not_found()) };
        let has_ended = state == ContainerState::Exited;
        Ok(ContainerStatus {
            id: id.to_owned(),
            name: "main".to_owned(),
            attempt: 0,
            state,
            created_at: None,
            started_at: None,
            finished_at: None,
            exit_code: if has_ended { 3 } else { 0 },
            image: String::new(),
            image_ref: String::new(),
            image_id: String::new(),
            reason: if has_ended { thing.reason.to_owned() } else { String::new() },
            message: String::new(),
            labels: thing.labels,
            annotations: BTreeMap::new(),
            mounts: Vec::new(),
            log_path: String::new(),
            resources: None,
            user: None,
            stop_signal: v1::Signal::RuntimeDefault,
        })
    }

    async fn list_containers(&self, _filter: ContainerFilter) -> Result<Vec<Container>> {
        self.call("list containers".to_owned())?;
        let container = |(id, thing, state): (String, Thing, State)| {
            let State::Container(state) = state else { return None };
            Some(Container {
                id,
                sandbox_id: "sandbox".to_owned(),
                name: "main".to_owned(),
                attempt: 0,
                image: String::new(),
                image_ref: String::new(),
                image_id: String::new(),
                state,
                created_at: None,
                labels: thing.labels,
                annotations: BTreeMap::new(),
            })
        };
        Ok(self.list().await.into_iter().filter_map(container).collect())
    }

    fn hints(&self, source: HintSource) -> BoxStream<'static, Result<Hint>> {
        let called = self.call(format!("hints {source:?}"));
        let mut world = self.world();
        let refusal = if world.lacks.contains(&source) {
            let method = match source {
                HintSource::Cri => "GetContainerEvents",
                HintSource::Containerd => "Subscribe",
            };
            Some(Error::Unsupported { method, endpoint: Arc::from("fake") })
        } else if world.fails.contains(&source) {
            Some(unreachable("hints"))
        } else {
            called.err()
        };
        if let Some(refusal) = refusal {
            return stream::once(async { Err(refusal) }).boxed();
        }
        let (sender, receiver) = mpsc::channel(100_000);
        world.streams.insert(source, sender);
        ReceiverStream::new(receiver).boxed()
    }

    async fn version(&self) -> Result<Version> {
        unused()
    }
    async fn status(&self) -> Result<RuntimeStatus> {
        unused()
    }
    async fn update_pod_cidr(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn cgroup_driver(&self) -> Result<CgroupDriver> {
        unused()
    }
    async fn run_sandbox(&self, _: &v1::PodSandboxConfig, _: &str) -> Result<String> {
        unused()
    }
    async fn stop_sandbox(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn remove_sandbox(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn create_container(
        &self,
        _: &str,
        _: &v1::ContainerConfig,
        _: &v1::PodSandboxConfig,
    ) -> Result<String> {
        unused()
    }
    async fn start_container(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn stop_container(&self, _: &str, _: Duration) -> Result<()> {
        unused()
    }
    async fn remove_container(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn update_container_resources(&self, _: v1::UpdateContainerResourcesRequest) -> Result<()> {
        unused()
    }
    async fn update_sandbox_resources(&self, _: v1::UpdatePodSandboxResourcesRequest) -> Result<()> {
        unused()
    }
    async fn container_memory(&self, _: &str) -> Result<Option<u64>> {
        unused()
    }
    async fn reopen_container_log(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn exec_sync(&self, _: &str, _: &[String], _: Option<Duration>) -> Result<ExecOutput> {
        unused()
    }
    async fn list_images(&self) -> Result<Vec<Image>> {
        unused()
    }
    async fn image_status(&self, _: &v1::ImageSpec) -> Result<Option<Image>> {
        unused()
    }
    async fn pull_image(&self, _: ImagePull) -> Result<String> {
        unused()
    }
    async fn remove_image(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn image_file_systems(&self) -> Result<v1::ImageFsInfoResponse> {
        unused()
    }
    async fn sandbox_image(&self, _: &str) -> Result<Option<String>> {
        unused()
    }
}
