//! The handle of a simulated runtime: what tests do to it and see of it.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crablet_cri_api::containerd::services::events_server::EventsServer;
use crablet_cri_api::v1::image_service_server::ImageServiceServer;
use crablet_cri_api::v1::runtime_service_server::RuntimeServiceServer;
use crablet_cri_api::{ContainerState, v1};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tonic::service::Routes;

use super::bell::{Bell, Listener};
use super::call::{Asked, Call, Method};
use super::fault::{Chaos, Fault};
use super::image::Image;
use super::settings::Settings;
use super::world::World;

/// The largest message that is read or sent, in bytes, as with containerd.
const LARGEST_MESSAGE: usize = 16 << 20;

/// A simulated runtime. Clones are handles of the same one; it ends when the last is dropped.
#[derive(Debug, Clone)]
pub struct Simulator {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    world: Mutex<World>,
    /// When something is to happen next.
    next_timer: watch::Sender<Option<Instant>>,
    /// How many times the runtime has died.
    deaths: Arc<Bell>,
    /// How many times streams were ended.
    endings: Arc<Bell>,
}

/// A sandbox, as a test sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxView {
    pub id: String,
    /// Whose it is.
    pub metadata: v1::PodSandboxMetadata,
    /// Whether CRI says that it is ready.
    pub ready: bool,
    /// The users and groups of the node that it has as its own, if it has.
    pub users: Vec<v1::IdMapping>,
}

/// A container, as a test sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerView {
    pub id: String,
    pub sandbox_id: String,
    pub pod_uid: String,
    /// Its name in the pod.
    pub name: String,
    /// Which of its incarnations it is.
    pub attempt: u32,
    /// Its state, as CRI says.
    pub state: ContainerState,
    /// Whether its process lives, whatever CRI says.
    pub alive: bool,
    /// What it exited with, if it has.
    pub exit_code: i32,
    /// Its share of the CPU.
    pub cpu_shares: i64,
}

impl Simulator {
    /// A simulated runtime. Must be called within a tokio runtime: one task of it wakes what sleeps in containers, and
    /// ends with the last handle.
    pub fn new(settings: Settings) -> Simulator {
        let next_timer = watch::Sender::new(None);
        let changes = next_timer.subscribe();
        let inner = Arc::new(Inner {
            world: Mutex::new(World::new(settings)),
            next_timer,
            deaths: Arc::default(),
            endings: Arc::default(),
        });
        tokio::spawn(wake(Arc::downgrade(&inner), changes));
        Simulator { inner }
    }

    /// CRI's runtime service, for a server or for a client in this process.
    pub fn runtime_service(&self) -> RuntimeServiceServer<Simulator> {
        RuntimeServiceServer::new(self.clone())
            .max_decoding_message_size(LARGEST_MESSAGE)
            .max_encoding_message_size(LARGEST_MESSAGE)
    }

    /// CRI's image service.
    pub fn image_service(&self) -> ImageServiceServer<Simulator> {
        ImageServiceServer::new(self.clone())
            .max_decoding_message_size(LARGEST_MESSAGE)
            .max_encoding_message_size(LARGEST_MESSAGE)
    }

    /// containerd's event service.
    pub fn events_service(&self) -> EventsServer<Simulator> {
        EventsServer::new(self.clone())
    }

    /// All services as one, for a server or for a client in this process.
    pub fn services(&self) -> Routes {
        Routes::new(self.runtime_service())
            .add_service(self.image_service())
            .add_service(self.events_service())
    }

    /// Has something go wrong from now on.
    pub fn inject(&self, fault: Fault) {
        self.with(|world, _| world.faults.add(fault));
    }

    /// Has nothing go wrong from now on, by plan or by chance.
    pub fn clear_faults(&self) {
        self.with(|world, _| world.faults.clear());
    }

    /// Changes what goes wrong by chance.
    pub fn set_chaos(&self, chaos: Chaos) {
        self.with(|world, _| world.faults.chaos = chaos);
    }

    /// The runtime dies: every call and stream fails with `Unavailable`; on a socket, connections break instead, and
    /// new ones are closed at once. Containers live on, as they do with shims of their own.
    pub fn die(&self) {
        self.with(|world, _| {
            world.die();
            // Before anybody can see that it is dead: a connection must break before such an answer passes.
            self.inner.deaths.ring();
        });
    }

    /// The runtime comes back, and knows what happened meanwhile.
    pub fn come_back(&self) {
        self.with(|world, _| world.alive = true);
    }

    /// Ends all streams, as a runtime that shuts down does.
    pub fn end_streams(&self) {
        self.inner.endings.ring();
    }

    /// Says whether the runtime is ready, and if not, why: a reason and a message.
    pub fn set_runtime_ready(&self, ready: Result<(), (&str, &str)>) {
        self.with(|world, _| world.conditions.runtime_not_ready = owned(ready));
    }

    /// Says whether the runtime's network is ready, and if not, why: a reason and a message. Without it, no sandbox
    /// that needs a network can be run.
    pub fn set_network_ready(&self, ready: Result<(), (&str, &str)>) {
        self.with(|world, _| world.conditions.network_not_ready = owned(ready));
    }

    /// Has a container's process exit. Gives whether it ran.
    pub fn exit_container(&self, id: &str, code: i32) -> bool {
        self.with(|world, now| world.find_container(id).is_ok_and(|id| world.exit(&id, code, now)))
    }

    /// Has the kernel kill a container's process for want of memory. Gives whether it ran.
    pub fn oom(&self, id: &str) -> bool {
        self.with(|world, now| world.find_container(id).is_ok_and(|id| world.out_of_memory(&id, now)))
    }

    /// Kills the process of a sandbox: it is not ready any more. Gives whether it ran.
    pub fn kill_sandbox_process(&self, id: &str) -> bool {
        self.with(|world, now| world.find_sandbox(id).is_ok_and(|id| world.kill_sandbox(&id, now)))
    }

    /// Adds an image as if it had been imported. One whose name makes no sense is not added.
    pub fn add_image(&self, image: Image) {
        self.with(|world, _| world.images.import(image));
    }

    /// Adds an image that can be pulled.
    pub fn add_to_registry(&self, image: Image) {
        self.with(|world, _| world.settings.registry.push(image));
    }

    /// The wall-clock time of the simulated runtime.
    pub fn now(&self) -> Timestamp {
        self.with(|world, now| world.clock.timestamp(now))
    }

    /// The calls that were made, oldest first: as many as are remembered. Those made while the runtime was dead never
    /// reached it.
    pub fn calls(&self) -> Vec<Call> {
        self.with(|world, _| world.calls.iter().cloned().collect())
    }

    /// How many calls of a method are remembered.
    pub fn count_calls(&self, method: Method) -> usize {
        self.with(|world, _| world.calls.iter().filter(|call| call.method == method).count())
    }

    /// The sandboxes and containers that were asked for, and what sandboxes were to have since, oldest first: as many as are
    /// remembered, which is none unless the settings say so.
    pub fn asked(&self) -> Vec<Asked> {
        self.with(|world, _| world.asked.iter().cloned().collect())
    }

    /// Forgets the calls that were made.
    pub fn forget_calls(&self) {
        self.with(|world, _| world.calls.clear());
    }

    /// All sandboxes, by ID.
    pub fn sandboxes(&self) -> Vec<SandboxView> {
        self.with(|world, _| {
            let sandboxes = world.sandboxes.values();
            sandboxes
                .map(|sandbox| SandboxView {
                    id: sandbox.id.clone(),
                    metadata: sandbox.config.metadata.clone().unwrap_or_default(),
                    ready: sandbox.ready,
                    users: sandbox.users().map(|users| users.uids.clone()).unwrap_or_default(),
                })
                .collect()
        })
    }

    /// All containers, by ID.
    pub fn containers(&self) -> Vec<ContainerView> {
        self.with(|world, _| {
            let containers = world.containers.values();
            containers
                .map(|container| {
                    let metadata = container.config.metadata.clone().unwrap_or_default();
                    let sandbox = world.sandboxes.get(&container.sandbox_id);
                    let pod = sandbox.and_then(|sandbox| sandbox.config.metadata.as_ref());
                    ContainerView {
                        id: container.id.clone(),
                        sandbox_id: container.sandbox_id.clone(),
                        pod_uid: pod.map(|pod| pod.uid.clone()).unwrap_or_default(),
                        name: metadata.name,
                        attempt: metadata.attempt,
                        state: match container.state() {
                            v1::ContainerState::ContainerCreated => ContainerState::Created,
                            v1::ContainerState::ContainerRunning => ContainerState::Running,
                            v1::ContainerState::ContainerExited => ContainerState::Exited,
                            v1::ContainerState::ContainerUnknown => ContainerState::Unknown,
                        },
                        alive: container
                            .process
                            .as_ref()
                            .is_some_and(|process| process.machine.exited().is_none()),
                        exit_code: container.exit_code,
                        cpu_shares: container.resources.cpu_shares,
                    }
                })
                .collect()
        })
    }

    /// How many containers there are.
    pub fn container_count(&self) -> usize {
        self.with(|world, _| world.containers.len())
    }

    /// Whether an image of this name is there.
    pub fn has_image(&self, name: &str) -> bool {
        self.with(|world, _| world.resolve(name, String::new()).is_ok())
    }

    /// How many images are there.
    pub fn image_count(&self) -> usize {
        self.with(|world, _| world.images.all().count())
    }

    /// Acts on the state, after all has happened that is due.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut World, Instant) -> T) -> T {
        let now = Instant::now();
        let mut world = self.inner.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.advance(now);
        let result = act(&mut world, now);
        let next = world.next_timer();
        drop(world);
        self.inner.next_timer.send_if_modified(|timer| std::mem::replace(timer, next) != next);
        result
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.with(|world, _| world.alive)
    }

    pub(crate) fn deaths(&self) -> Listener {
        self.inner.deaths.listen()
    }

    pub(crate) fn endings(&self) -> Listener {
        self.inner.endings.listen()
    }
}

fn owned(ready: Result<(), (&str, &str)>) -> Option<(String, String)> {
    ready.err().map(|(reason, message)| (reason.to_owned(), message.to_owned()))
}

/// Lets things happen when they are due, until the simulator is gone. Calls do so too: this is for when none come.
async fn wake(inner: Weak<Inner>, mut next: watch::Receiver<Option<Instant>>) {
    loop {
        let due = *next.borrow_and_update();
        let timer = async {
            match due {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = next.changed() => if changed.is_err() { return },
            () = timer => match inner.upgrade() {
                Some(inner) => Simulator { inner }.with(|_, _| ()),
                None => return,
            },
        }
    }
}
