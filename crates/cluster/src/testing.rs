//! An API server in few words.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use crablet_client::{Body, Client, Lane, Transport, TransportError};
use http::{Request, Response, StatusCode};
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// A server with objects by their paths. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    watches: Vec<Watch>,
    /// Method and path of what was asked.
    requests: Vec<String>,
    /// What was posted.
    posted: Vec<Value>,
    is_away: bool,
    /// How long a token is valid.
    life: i64,
}

struct Watch {
    collection: String,
    name: Option<String>,
    sender: mpsc::Sender<Bytes>,
}

impl Server {
    pub(crate) fn client(&self) -> Client {
        Client::new(Arc::new(self.clone()), "test")
    }

    /// Puts an object there, or another in its place.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let mut state = self.0.lock().unwrap();
        state.version += 1;
        let (collection, name) = path.rsplit_once('/').unwrap();
        let namespace =
            collection.split_once("/namespaces/").map(|(_, rest)| rest.split('/').next().unwrap());
        object["metadata"]["name"] = name.into();
        object["metadata"]["namespace"] = namespace.unwrap_or_default().into();
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        let before = state.objects.insert(path.to_owned(), object.clone());
        state.tell(path, if before.is_some() { "MODIFIED" } else { "ADDED" }, &object);
    }

    pub(crate) fn delete(&self, path: &str) {
        let mut state = self.0.lock().unwrap();
        state.version += 1;
        let mut object = state.objects.remove(path).unwrap();
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.tell(path, "DELETED", &object);
    }

    /// Lets the server not answer, and breaks what is under way.
    pub(crate) fn set_away(&self, is_away: bool) {
        let mut state = self.0.lock().unwrap();
        state.is_away = is_away;
        state.watches.clear();
    }

    /// Says how many seconds tokens are valid from now on.
    pub(crate) fn set_life(&self, seconds: i64) {
        self.0.lock().unwrap().life = seconds;
    }

    /// The paths that are watched.
    pub(crate) fn watched(&self) -> Vec<String> {
        let mut state = self.0.lock().unwrap();
        state.watches.retain(|watch| !watch.sender.is_closed());
        let path = |watch: &Watch| match &watch.name {
            Some(name) => format!("{}/{name}", watch.collection),
            None => watch.collection.clone(),
        };
        let mut all: Vec<String> = state.watches.iter().map(path).collect();
        all.sort();
        all
    }

    /// What was asked since the last time.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().requests)
    }

    pub(crate) fn posted(&self) -> Vec<Value> {
        self.0.lock().unwrap().posted.clone()
    }
}

impl State {
    fn tell(&mut self, path: &str, kind: &str, object: &Value) {
        let (collection, name) = path.rsplit_once('/').unwrap();
        for watch in &self.watches {
            if watch.collection == collection && watch.name.as_deref().is_none_or(|wanted| wanted == name) {
                let _ = watch.sender.try_send(line(kind, object));
            }
        }
    }

    fn watch(&mut self, collection: &str, name: Option<&str>) -> Response<Body> {
        let (sender, receiver) = mpsc::channel(64);
        for (path, object) in &self.objects {
            let (of, named) = path.rsplit_once('/').unwrap();
            if of == collection && name.is_none_or(|name| name == named) {
                sender.try_send(line("ADDED", object)).unwrap();
            }
        }
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        let metadata = json!({"resourceVersion": self.version.to_string(), "annotations": annotations});
        sender.try_send(line("BOOKMARK", &json!({"metadata": metadata}))).unwrap();
        let name = name.map(str::to_owned);
        self.watches.push(Watch { collection: collection.to_owned(), name, sender });
        let body = futures_util::stream::unfold(receiver, |mut receiver| async move {
            Some((Ok(receiver.recv().await?), receiver))
        });
        Response::new(Box::pin(body))
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
}

fn answer(code: StatusCode, object: &Value) -> Response<Body> {
    let body = Bytes::from(object.to_string());
    let body: Body = Box::pin(futures_util::stream::iter([Ok(body)]));
    Response::builder().status(code).body(body).unwrap()
}

#[async_trait]
impl Transport for Server {
    async fn send(&self, request: Request<Bytes>, _: Lane) -> Result<Response<Body>, TransportError> {
        let mut state = self.0.lock().unwrap();
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let verb = if query.contains("watch=true") { "WATCH" } else { request.method().as_str() };
        state.requests.push(format!("{verb} {path}"));
        if state.is_away {
            return Err(TransportError::new("connection refused"));
        }
        if verb == "WATCH" {
            let name = query.split('&').find_map(|part| part.strip_prefix("fieldSelector=metadata.name%3D"));
            return Ok(state.watch(path, name));
        }
        if verb == "POST" {
            let mut object: Value = serde_json::from_slice(request.body()).unwrap();
            state.posted.push(object.clone());
            object["spec"]["expirationSeconds"] = state.life.into();
            object["status"] = json!({"token": format!("token {}", state.posted.len()), "expirationTimestamp": "2026-01-01T00:00:00Z"});
            return Ok(answer(StatusCode::CREATED, &object));
        }
        Ok(match state.objects.get(path) {
            Some(object) => answer(StatusCode::OK, object),
            None => {
                let (_, name) = path.rsplit_once('/').unwrap();
                let message = format!("configmaps \"{name}\" not found");
                answer(
                    StatusCode::NOT_FOUND,
                    &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message,
                            "reason": "NotFound", "code": 404}),
                )
            }
        })
    }
}
