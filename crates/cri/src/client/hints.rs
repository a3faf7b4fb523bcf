//! What a runtime tells of its own accord.

use crablet_cri_api::containerd::events::{ContainerCreate, ContainerDelete, TaskExit, TaskOom, TaskStart};
use crablet_cri_api::containerd::services::events_client::EventsClient;
use crablet_cri_api::containerd::services::{Envelope, SubscribeRequest};
use crablet_cri_api::v1;
use futures_util::stream::{self, BoxStream, Stream, StreamExt as _, TryStreamExt as _};
use prost::Message as _;
use tonic::Status;

use crate::client::Client;
use crate::client::leftover_task::{NAMESPACE, in_namespace};
use crate::error::Result;
use crate::runtime::{Hint, HintKind, HintSource};

/// The topics of containerd that say something about a container's state.
const TOPICS: &[&str] =
    &["/containers/create", "/containers/delete", "/tasks/start", "/tasks/exit", "/tasks/oom"];

impl Client {
    /// Opens the stream as part of it, because runtimes send nothing at all before the first event.
    pub(crate) fn open_hints(&self, source: HintSource) -> BoxStream<'static, Result<Hint>> {
        let client = self.clone();
        match source {
            HintSource::Cri => stream::once(async move { client.cri_hints().await }).try_flatten().boxed(),
            HintSource::Containerd => {
                stream::once(async move { client.containerd_hints().await }).try_flatten().boxed()
            }
        }
    }

    async fn cri_hints(self) -> Result<impl Stream<Item = Result<Hint>>> {
        const METHOD: &str = "GetContainerEvents";
        let mut service = self.runtime_service();
        let events = service.get_container_events(v1::GetEventsRequest {});
        let events = self.runtime.call_if_there(METHOD, self.settings.answer_limit, None, events).await?;
        Ok(events.map(move |event| self.streamed(METHOD, event.map(from_cri))))
    }

    async fn containerd_hints(self) -> Result<impl Stream<Item = Result<Hint>>> {
        const METHOD: &str = "Subscribe";
        let filters =
            TOPICS.iter().map(|topic| format!("namespace==\"{NAMESPACE}\",topic==\"{topic}\"")).collect();
        let request = in_namespace(SubscribeRequest { filters });
        let mut service =
            EventsClient::new(self.runtime.service()).max_decoding_message_size(self.settings.answer_limit);
        let events = service.subscribe(request);
        let events = self.runtime.call_if_there(METHOD, self.settings.answer_limit, None, events).await?;
        Ok(events
            .map(move |envelope| self.streamed(METHOD, envelope.map(|envelope| from_containerd(&envelope))))
            .try_filter_map(|hint| std::future::ready(Ok(hint))))
    }

    fn streamed<T>(&self, method: &'static str, item: std::result::Result<T, Status>) -> Result<T> {
        item.map_err(|status| self.runtime.failure(method, self.settings.answer_limit, status))
    }
}

fn from_cri(event: v1::ContainerEventResponse) -> Hint {
    let kind = match event.container_event_type() {
        v1::ContainerEventType::ContainerCreatedEvent => HintKind::Created,
        v1::ContainerEventType::ContainerStartedEvent => HintKind::Started,
        v1::ContainerEventType::ContainerStoppedEvent => HintKind::Stopped,
        v1::ContainerEventType::ContainerDeletedEvent => HintKind::Removed,
    };
    let at = Some(event.created_at).filter(|at| *at > 0);
    Hint { id: event.container_id, kind, at }
}

/// What an event of containerd says about a container, if it says something: an exec that ends does not.
fn from_containerd(envelope: &Envelope) -> Option<Hint> {
    let event = envelope.event.as_ref()?.value.as_slice();
    let (id, kind) = match envelope.topic.as_str() {
        "/containers/create" => (ContainerCreate::decode(event).ok()?.id, HintKind::Created),
        "/containers/delete" => (ContainerDelete::decode(event).ok()?.id, HintKind::Removed),
        "/tasks/start" => (TaskStart::decode(event).ok()?.container_id, HintKind::Started),
        "/tasks/oom" => (TaskOom::decode(event).ok()?.container_id, HintKind::OutOfMemory),
        "/tasks/exit" => {
            let exit = TaskExit::decode(event).ok()?;
            if exit.id != exit.container_id {
                return None;
            }
            (exit.container_id, HintKind::Stopped)
        }
        _ => return None,
    };
    let at = envelope.timestamp.as_ref().map(|at| at.seconds * 1_000_000_000 + i64::from(at.nanos));
    Some(Hint { id, kind, at })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(topic: &str, event: &impl prost::Message) -> Envelope {
        Envelope {
            topic: topic.to_owned(),
            namespace: NAMESPACE.to_owned(),
            event: Some(prost_types::Any { type_url: String::new(), value: event.encode_to_vec() }),
            timestamp: None,
        }
    }

    #[test]
    fn an_exit_of_the_first_process_is_told_and_that_of_an_exec_is_not() {
        let exit =
            |id: &str| TaskExit { container_id: "c".to_owned(), id: id.to_owned(), ..TaskExit::default() };
        let stopped = Hint { id: "c".to_owned(), kind: HintKind::Stopped, at: None };
        assert_eq!(from_containerd(&envelope("/tasks/exit", &exit("c"))), Some(stopped));
        assert_eq!(from_containerd(&envelope("/tasks/exit", &exit("exec-1"))), None);
    }

    #[test]
    fn running_out_of_memory_is_told() {
        let event = TaskOom { container_id: "c".to_owned() };
        let hint = Hint { id: "c".to_owned(), kind: HintKind::OutOfMemory, at: None };
        assert_eq!(from_containerd(&envelope("/tasks/oom", &event)), Some(hint));
    }

    #[test]
    fn what_happened_has_its_time_where_the_runtime_gives_it() {
        let event = |created_at| {
            from_cri(v1::ContainerEventResponse { created_at, ..v1::ContainerEventResponse::default() })
        };
        assert_eq!(
            (event(1_790_000_000_000_000_007).at, event(0).at),
            (Some(1_790_000_000_000_000_007), None)
        );
        let mut told = envelope("/tasks/oom", &TaskOom { container_id: "c".to_owned() });
        told.timestamp = Some(prost_types::Timestamp { seconds: 3, nanos: 5 });
        assert_eq!(from_containerd(&told).and_then(|hint| hint.at), Some(3_000_000_005));
    }

    #[test]
    fn what_cannot_be_decoded_is_passed_over() {
        let mut garbled = envelope("/tasks/exit", &TaskExit::default());
        garbled.event = Some(prost_types::Any { type_url: String::new(), value: vec![0xff; 3] });
        assert_eq!(from_containerd(&garbled), None);
        assert_eq!(from_containerd(&envelope("/snapshot/prepare", &TaskExit::default())), None);
    }
}
