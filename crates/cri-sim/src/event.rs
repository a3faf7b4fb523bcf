//! What happened, as it goes out on the two streams.

use std::sync::Arc;

use crablet_cri_api::containerd::events::{
    ContainerCreate, ContainerDelete, TaskDelete, TaskExit, TaskOom, TaskStart,
};
use crablet_cri_api::containerd::services::Envelope;
use crablet_cri_api::v1;
use jiff::Timestamp;
use prost::Message;
use tokio::sync::broadcast;

use crablet_cri::{HintKind, HintSource};

/// How many events a slow reader may be behind before it loses its stream.
const BACKLOG: usize = 16_384;

/// containerd's namespace of what CRI makes.
const NAMESPACE: &str = "k8s.io";

/// An event on its way.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) kind: HintKind,
    pub(crate) content: Content,
}

/// An event in the form of its stream.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Cri(Arc<v1::ContainerEventResponse>),
    Containerd(Arc<Envelope>),
}

impl Event {
    pub(crate) fn source(&self) -> HintSource {
        match self.content {
            Content::Cri(_) => HintSource::Cri,
            Content::Containerd(_) => HintSource::Containerd,
        }
    }

    pub(crate) fn cri(event: v1::ContainerEventResponse) -> Event {
        let kind = match event.container_event_type() {
            v1::ContainerEventType::ContainerCreatedEvent => HintKind::Created,
            v1::ContainerEventType::ContainerStartedEvent => HintKind::Started,
            v1::ContainerEventType::ContainerStoppedEvent => HintKind::Stopped,
            v1::ContainerEventType::ContainerDeletedEvent => HintKind::Removed,
        };
        Event { kind, content: Content::Cri(Arc::new(event)) }
    }

    pub(crate) fn containerd(happening: Happening<'_>, at: Timestamp) -> Event {
        let wire =
            |at: Timestamp| prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() };
        let (kind, topic, event) = match happening {
            Happening::ContainerCreate { id, image } => (
                HintKind::Created,
                "/containers/create",
                any("ContainerCreate", &ContainerCreate { id: id.to_owned(), image: image.to_owned() }),
            ),
            Happening::ContainerDelete { id } => (
                HintKind::Removed,
                "/containers/delete",
                any("ContainerDelete", &ContainerDelete { id: id.to_owned() }),
            ),
            Happening::TaskStart { id, pid } => (
                HintKind::Started,
                "/tasks/start",
                any("TaskStart", &TaskStart { container_id: id.to_owned(), pid }),
            ),
            Happening::TaskExit { id, exec, pid, code, exited_at } => (
                HintKind::Stopped,
                "/tasks/exit",
                any(
                    "TaskExit",
                    &TaskExit {
                        container_id: id.to_owned(),
                        id: exec.to_owned(),
                        pid,
                        exit_status: code.cast_unsigned(),
                        exited_at: Some(wire(exited_at)),
                    },
                ),
            ),
            Happening::TaskDelete { id, pid, code, exited_at } => (
                HintKind::Stopped,
                "/tasks/delete",
                any(
                    "TaskDelete",
                    &TaskDelete {
                        container_id: id.to_owned(),
                        pid,
                        exit_status: code.cast_unsigned(),
                        exited_at: Some(wire(exited_at)),
                        id: String::new(),
                    },
                ),
            ),
            Happening::TaskOom { id } => (
                HintKind::OutOfMemory,
                "/tasks/oom",
                any("TaskOOM", &TaskOom { container_id: id.to_owned() }),
            ),
        };
        let envelope = Envelope {
            timestamp: Some(wire(at)),
            namespace: NAMESPACE.to_owned(),
            topic: topic.to_owned(),
            event: Some(event),
        };
        Event { kind, content: Content::Containerd(Arc::new(envelope)) }
    }
}

/// What containerd tells.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Happening<'a> {
    ContainerCreate { id: &'a str, image: &'a str },
    ContainerDelete { id: &'a str },
    TaskStart { id: &'a str, pid: u32 },
    TaskExit { id: &'a str, exec: &'a str, pid: u32, code: i32, exited_at: Timestamp },
    TaskDelete { id: &'a str, pid: u32, code: i32, exited_at: Timestamp },
    TaskOom { id: &'a str },
}

/// containerd names the type of an event without a host before it.
fn any(name: &str, event: &impl Message) -> prost_types::Any {
    prost_types::Any { type_url: format!("containerd.events.{name}"), value: event.encode_to_vec() }
}

/// Those who listen.
#[derive(Debug)]
pub(crate) struct Listeners {
    cri: broadcast::Sender<Arc<v1::ContainerEventResponse>>,
    containerd: broadcast::Sender<Arc<Envelope>>,
    /// Events that go out after the next one of their stream.
    held: Vec<Event>,
}

impl Listeners {
    pub(crate) fn new() -> Listeners {
        Listeners {
            cri: broadcast::Sender::new(BACKLOG),
            containerd: broadcast::Sender::new(BACKLOG),
            held: Vec::new(),
        }
    }

    pub(crate) fn cri(&self) -> broadcast::Receiver<Arc<v1::ContainerEventResponse>> {
        self.cri.subscribe()
    }

    pub(crate) fn containerd(&self) -> broadcast::Receiver<Arc<Envelope>> {
        self.containerd.subscribe()
    }

    /// Whether anyone listens to CRI's stream, whose events are dear to make.
    pub(crate) fn hears_cri(&self) -> bool {
        self.cri.receiver_count() > 0
    }

    /// Sends an event, and after it those that waited for it.
    pub(crate) fn send(&mut self, event: &Event) {
        self.deliver(event);
        let source = event.source();
        let (now, later) =
            std::mem::take(&mut self.held).into_iter().partition(|held| held.source() == source);
        self.held = later;
        let now: Vec<Event> = now;
        for event in &now {
            self.deliver(event);
        }
    }

    /// Keeps an event until the next one of its stream has gone out.
    pub(crate) fn hold(&mut self, event: Event) {
        self.held.push(event);
    }

    /// Sends what still waits for a next event.
    pub(crate) fn release(&mut self) {
        for event in std::mem::take(&mut self.held) {
            self.deliver(&event);
        }
    }

    /// Drops what has not gone out: the runtime has died.
    pub(crate) fn forget(&mut self) {
        self.held.clear();
    }

    fn deliver(&self, event: &Event) {
        // Nobody may be listening.
        match &event.content {
            Content::Cri(event) => drop(self.cri.send(Arc::clone(event))),
            Content::Containerd(envelope) => drop(self.containerd.send(Arc::clone(envelope))),
        }
    }
}
