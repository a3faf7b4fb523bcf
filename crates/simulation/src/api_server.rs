//! An API server within the process, and what lies between it and those who ask it: which breaks when told to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use crablet_api::Text;
use crablet_api::core::Pod;
use crablet_api::document::Limits;
use crablet_apiserver::answer::Answer;
use crablet_apiserver::cluster::{Cluster, Settings};
use crablet_apiserver::request;
use crablet_apiserver::resources::{RESOURCES, Resource};
use crablet_apiserver::state::State;
use crablet_apiserver::watch::{Next, Watch};
use crablet_apiserver::who::{MASTERS, NODE_PREFIX, NODES, User};
use crablet_client::{Body, Client, Lane, Transport, TransportError};
use crablet_host::clock::Clock;
use futures_util::stream;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response};
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;

use crate::invariants;

/// An API server. Clones are the same one.
#[derive(Clone)]
pub struct ApiServer(Arc<Inner>);

struct Inner {
    cluster: Mutex<Cluster>,
    clock: Clock,
    news: Notify,
    line: Mutex<Line>,
}

/// Pods in a list.
#[derive(Deserialize)]
struct PodList {
    items: Vec<Pod>,
}

/// How requests get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Nobody listens.
    Refused,
    /// Nobody answers.
    Hangs,
    /// What was asked for is done, but nobody hears of it.
    AnswersAreLost,
    /// Everything is answered with this code, and a wish to be left alone for so many seconds.
    Says(u16, Option<u32>),
}

#[derive(Default)]
struct Line {
    trouble: Option<Trouble>,
    /// Watches that began before the latest of these end.
    generation: u64,
    /// Whether watches tell nothing.
    is_silent: bool,
    /// Whether nothing comes of statuses that nodes tell.
    takes_no_statuses: bool,
    /// What was asked, in order.
    asked: Vec<Asked>,
    /// The latest status of each pod that nodes told of, by UID.
    told: BTreeMap<Text, Pod>,
    /// A status that is older than one before it.
    older: Option<String>,
}

/// A request that came in.
#[derive(Debug, Clone)]
pub struct Asked {
    pub who: String,
    pub method: Method,
    pub path: String,
    pub body: Vec<u8>,
    /// What it was answered with, if the server heard of it.
    pub code: Option<u16>,
}

impl ApiServer {
    /// One without nodes and pods.
    pub fn new(seed: u64, clock: Clock) -> ApiServer {
        let mut cluster = Cluster::new(State::default(), settings(), seed);
        cluster.tick(clock.now());
        ApiServer(Arc::new(Inner {
            cluster: Mutex::new(cluster),
            clock,
            news: Notify::new(),
            line: Mutex::default(),
        }))
    }

    /// Lets controllers do what time has come for, for ever.
    pub async fn run(self) {
        loop {
            let news = self.0.news.notified();
            let next = self.cluster().next_tick();
            let wait = next.map(|next| self.0.clock.now().duration_until(next).unsigned_abs());
            tokio::select! {
                biased;
                () = news => continue,
                () = tokio::time::sleep(wait.unwrap_or(Duration::from_secs(3600))) => {}
            }
            self.cluster().tick(self.0.clock.now());
            self.0.news.notify_waiters();
        }
    }

    /// A client of somebody who may do everything. What lies between never breaks for it.
    pub fn admin(&self) -> Client {
        Client::new(Arc::new(Door { server: self.clone(), user: administrator(), breaks: false }), "test")
    }

    /// A client of a node.
    pub fn node(&self, name: &str) -> Client {
        self.user(User::new(&format!("{NODE_PREFIX}{name}"), &[NODES, "system:authenticated"]))
    }

    /// A client of somebody who has nothing but a bootstrap token.
    pub fn bootstrapper(&self) -> Client {
        let groups = ["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"];
        self.user(User::new("system:bootstrap:abcdef", &[groups[0], groups[1], "system:authenticated"]))
    }

    fn user(&self, user: User) -> Client {
        Client::new(Arc::new(Door { server: self.clone(), user, breaks: true }), "crablet")
    }

    /// Lets what lies between the server and nodes be in trouble, or in order again.
    pub fn set_trouble(&self, trouble: Option<Trouble>) {
        self.line().trouble = trouble;
        self.0.news.notify_waiters();
    }

    /// Ends all watches of nodes that are under way.
    pub fn close_watches(&self) {
        self.line().generation += 1;
        self.0.news.notify_waiters();
    }

    /// Lets watches of nodes tell nothing, or what there is to tell.
    pub fn silence_watches(&self, is_silent: bool) {
        self.line().is_silent = is_silent;
        self.0.news.notify_waiters();
    }

    /// Says of the status of a pod that it was taken, from now on, and does not take it.
    pub fn take_no_statuses(&self) {
        self.line().takes_no_statuses = true;
    }

    /// All objects, as they are now.
    pub fn backup(&self) -> Backup {
        let cluster = self.cluster();
        let kinds = RESOURCES.into_iter().filter(|resource| std::ptr::eq(resource.storage(), *resource));
        let objects = kinds.flat_map(|resource| {
            cluster.state.read_all(resource, None).map(move |object| (resource, object))
        });
        Backup(objects.collect())
    }

    /// Puts another server in its place, which has what this one had then, and counts versions from there.
    pub fn restore(&self, backup: Backup) {
        let mut state = State::default();
        for (resource, object) in backup.0 {
            state.put(resource, object);
        }
        *self.cluster() = Cluster::new(state, settings(), 1);
        self.close_watches();
    }

    /// What nodes asked since this was asked last.
    pub fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.line().asked)
    }

    /// Does as an administrator asks; the code and the body of the answer. Nobody else does anything meanwhile.
    pub fn ask(&self, method: Method, path: &str, content_type: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, content_type);
        let Ok(request) = request.body(Bytes::from(body)) else { return (400, Vec::new()) };
        match self.handle(&request, &administrator()) {
            Answer::Document(document) => (document.code, document.body),
            Answer::Watch(_) | Answer::Proxy(_) | Answer::Usage(_) => (400, Vec::new()),
        }
    }

    /// The pods of all nodes.
    pub fn pods(&self) -> Vec<Pod> {
        let (_, body) = self.ask(Method::GET, "/api/v1/pods", "", Vec::new());
        let list: Result<PodList, _> = crablet_api::from_json(&body, Limits::API);
        list.map(|list| list.items).unwrap_or_default()
    }

    /// What is wrong with a status that a node told of, if one is older than one that it told of before.
    pub fn take_older(&self) -> Option<String> {
        self.line().older.take()
    }

    /// Takes note of what a node told of a pod.
    fn told(&self, answer: &Answer) {
        let Answer::Document(document) = answer else { return };
        let Ok(pod) = crablet_api::from_json::<Pod>(&document.body, Limits::API) else { return };
        let mut line = self.line();
        let uid = pod.metadata.uid.clone();
        if let Some(before) = line.told.insert(uid, pod.clone())
            && let Some(what) = invariants::older(&before, &pod)
        {
            line.older.get_or_insert(what);
        }
    }

    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.0.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is as `found` finds it.
    async fn until<T>(&self, mut found: impl FnMut(&Line) -> Option<T>) -> T {
        loop {
            let news = self.0.news.notified();
            if let Some(found) = found(&self.line()) {
                return found;
            }
            news.await;
        }
    }

    fn handle(&self, request: &Request<Bytes>, user: &User) -> Answer {
        let header = |name| {
            let value = request.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let request = request::Request {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            accept: header(ACCEPT),
            content_type: header(CONTENT_TYPE),
            user: user.clone(),
            body: request.body().to_vec(),
        };
        let answer = self.cluster().handle(&request, self.0.clock.now());
        self.0.news.notify_waiters();
        answer
    }
}

fn administrator() -> User {
    User::new("admin", &[MASTERS, "system:authenticated"])
}

/// What an API server had at some time.
pub struct Backup(Vec<(&'static Resource, Value)>);

fn settings() -> Settings {
    // Pods mount what they know the server by.
    Settings { ca: "a certificate".to_owned(), ..Settings::default() }
}

/// Where somebody's requests come in.
struct Door {
    server: ApiServer,
    user: User,
    breaks: bool,
}

#[async_trait]
impl Transport for Door {
    async fn send(&self, mut request: Request<Bytes>, _: Lane) -> Result<Response<Body>, TransportError> {
        let server = &self.server;
        let mut is_lost = false;
        if self.breaks {
            let trouble = {
                let mut line = server.line();
                line.asked.push(Asked {
                    who: self.user.name.clone(),
                    method: request.method().clone(),
                    path: request.uri().to_string(),
                    body: request.body().to_vec(),
                    code: None,
                });
                line.trouble
            };
            match trouble {
                None => {}
                Some(Trouble::Refused) => return Err(TransportError::new("connection refused")),
                Some(Trouble::Hangs) => {
                    server.until(|line| (line.trouble != Some(Trouble::Hangs)).then_some(())).await;
                    return Err(TransportError::new("connection reset by peer"));
                }
                Some(Trouble::AnswersAreLost) => is_lost = true,
                Some(Trouble::Says(code, retry_after)) => return said(code, retry_after),
            }
        }
        let path = request.uri().path();
        let is_status = path.contains("/pods/") && path.ends_with("/status");
        if self.breaks && is_status && server.line().takes_no_statuses {
            *request.method_mut() = Method::GET;
        }
        let answer = server.handle(&request, &self.user);
        if self.breaks && is_status {
            server.told(&answer);
        }
        if self.breaks
            && let Some(asked) = server.line().asked.last_mut()
        {
            asked.code = Some(match &answer {
                Answer::Document(document) => document.code,
                Answer::Watch(_) | Answer::Proxy(_) | Answer::Usage(_) => 200,
            });
        }
        if is_lost {
            return Err(TransportError::new("connection reset by peer"));
        }
        match answer {
            Answer::Document(document) => {
                let mut response = Response::builder().status(document.code);
                if let Some(seconds) = document.retry_after {
                    response = response.header(RETRY_AFTER, seconds);
                }
                response.body(whole(document.body)).map_err(TransportError::new)
            }
            Answer::Watch(watch) => {
                let generation = self.breaks.then(|| server.line().generation);
                let body = follow(server.clone(), watch, generation);
                Response::builder().status(200).body(body).map_err(TransportError::new)
            }
            Answer::Proxy(_) | Answer::Usage(_) => Err(TransportError::new("nodes are not asked here")),
        }
    }
}

fn said(code: u16, retry_after: Option<u32>) -> Result<Response<Body>, TransportError> {
    let mut response = Response::builder().status(code);
    if let Some(seconds) = retry_after {
        response = response.header(RETRY_AFTER, seconds);
    }
    let reason = match code {
        403 => "Forbidden",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"as the test wants","reason":"{reason}","code":{code}}}"#
    );
    response.body(whole(body.into_bytes())).map_err(TransportError::new)
}

fn whole(body: Vec<u8>) -> Body {
    Box::pin(stream::iter([Ok(Bytes::from(body))]))
}

/// What a watch tells. Of those that can break, the generation is known in which it began.
fn follow(server: ApiServer, watch: Box<Watch>, generation: Option<u64>) -> Body {
    Box::pin(stream::unfold((server, watch), move |(server, mut watch)| async move {
        loop {
            let news = server.0.news.notified();
            let is_silent = {
                let line = server.line();
                if generation.is_some_and(|generation| generation != line.generation) {
                    return None;
                }
                generation.is_some() && (line.is_silent || line.trouble.is_some())
            };
            if is_silent {
                news.await;
                continue;
            }
            let next = {
                let cluster = server.cluster();
                watch.next(&cluster.state, u64::MAX, server.0.clock.now())
            };
            match next {
                Next::Line(line) => {
                    drop(news);
                    return Some((Ok(Bytes::from(line)), (server, watch)));
                }
                Next::End => return None,
                Next::Wait(until) => {
                    let wait = server.0.clock.now().duration_until(until).unsigned_abs();
                    tokio::select! {
                        biased;
                        () = news => {}
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
    }))
}
