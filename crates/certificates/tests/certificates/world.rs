//! An API server within the process, a node's directory, and somebody who approves.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use crablet_api::certificates::{
    CertificateSigningRequest, CertificateSigningRequestCondition, RequestConditionType,
};
use crablet_api::meta::ConditionStatus;
use crablet_apiserver::answer::Answer;
use crablet_apiserver::cluster::{Cluster, Settings};
use crablet_apiserver::pki::Pki;
use crablet_apiserver::request;
use crablet_apiserver::state::State;
use crablet_apiserver::watch::{Next, Watch};
use crablet_apiserver::who::User;
use crablet_certificates::{ClientCertificate, ClientSettings, ConnectError, Credentials, Progress, Stage};
use crablet_client::{Body, Chance, Client, Lane, Transport, TransportError};
use crablet_host::clock::Clock;
use futures_util::{StreamExt as _, stream};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response};
use hyper::body::Bytes;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

const SERVER: &str = "https://192.0.2.1:6443";

/// What happens to the node's next request, in place of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// None: it is answered.
    Nothing,
    Lost,
    Code(u16),
}

pub struct World {
    pub directory: TempDir,
    pub clock: Clock,
    server: Arc<Server>,
}

struct Server {
    cluster: Mutex<Cluster>,
    clock: Clock,
    changed: watch::Sender<()>,
    faults: Mutex<VecDeque<Fault>>,
    /// Who asked what.
    heard: Mutex<Vec<String>>,
}

/// The way of somebody to the server.
struct Way {
    server: Arc<Server>,
    user: User,
}

#[async_trait]
impl Transport for Way {
    async fn send(&self, request: Request<Bytes>, _: Lane) -> Result<Response<Body>, TransportError> {
        let header = |name| {
            let value = request.headers().get(name);
            value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let verb = if query.contains("watch=true") { "WATCH" } else { request.method().as_str() };
        self.server.heard.lock().unwrap().push(format!("{} {verb} {path}", self.user.name));
        let is_node = self.user.name != "admin";
        match is_node.then(|| self.server.faults.lock().unwrap().pop_front()).flatten() {
            Some(Fault::Lost) => return Err(TransportError::new("connection reset by peer")),
            Some(Fault::Code(code)) => return Ok(answer(code, b"something went wrong".to_vec())),
            Some(Fault::Nothing) | None => {}
        }
        let asked = request::Request {
            method: request.method().clone(),
            path: path.to_owned(),
            query: query.to_owned(),
            accept: header(ACCEPT),
            content_type: header(CONTENT_TYPE),
            user: self.user.clone(),
            body: request.body().to_vec(),
        };
        let answered = self.server.cluster.lock().unwrap().handle(&asked, self.server.clock.now());
        self.server.changed.send_replace(());
        match answered {
            Answer::Document(document) => Ok(answer(document.code, document.body)),
            Answer::Watch(watch) => Ok(Response::new(self.server.follow(watch))),
            other => panic!("{other:?}"),
        }
    }
}

fn answer(code: u16, body: Vec<u8>) -> Response<Body> {
    let body: Body = stream::once(async { Ok(Bytes::from(body)) }).boxed();
    Response::builder().status(code).body(body).unwrap()
}

impl Server {
    fn follow(self: &Arc<Server>, watch: Box<Watch>) -> Body {
        let changed = self.changed.subscribe();
        let following = (Arc::clone(self), watch, changed);
        stream::unfold(following, |(server, mut watch, mut changed)| async move {
            loop {
                let now = server.clock.now();
                let next = {
                    let cluster = server.cluster.lock().unwrap();
                    watch.next(&cluster.state, cluster.state.revision(), now)
                };
                match next {
                    Next::Line(line) => return Some((Ok(Bytes::from(line)), (server, watch, changed))),
                    Next::End => return None,
                    Next::Wait(until) => {
                        let wait = until.duration_since(now).try_into().unwrap_or_default();
                        let _ = tokio::time::timeout(wait, changed.changed()).await;
                    }
                }
            }
        })
        .boxed()
    }
}

impl World {
    /// A server with its own signer, and a node that has a kubeconfig for bootstrapping.
    pub fn new() -> World {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::simulated("2026-11-16T05:00:00Z".parse().unwrap());
        let pki = Pki::open(&directory.path().join("server"), &Default::default(), clock.now()).unwrap();
        let settings = Settings { signer: Arc::new(pki.keys), ..Settings::default() };
        let mut cluster = Cluster::new(State::default(), settings, 1);
        cluster.tick(clock.now());
        let server = Server {
            cluster: Mutex::new(cluster),
            clock: clock.clone(),
            changed: watch::Sender::new(()),
            faults: Mutex::default(),
            heard: Mutex::default(),
        };
        let world = World { directory, clock, server: Arc::new(server) };
        fs::write(world.path("bootstrap.conf"), bootstrap_kubeconfig()).unwrap();
        world
    }

    /// One in which somebody has to approve each request.
    pub async fn without_approver() -> World {
        let world = World::new();
        let binding =
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/crablet:node-autoapprove-bootstrap";
        world.ask(Method::DELETE, binding, Value::Null).await;
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn settings(&self, rotate: bool) -> ClientSettings {
        ClientSettings {
            kubeconfig: self.path("kubelet.conf"),
            bootstrap_kubeconfig: Some(self.path("bootstrap.conf")),
            directory: self.path("pki"),
            node: "n1".to_owned(),
            rotate,
        }
    }

    pub fn open(&self, rotate: bool) -> ClientCertificate {
        ClientCertificate::open(&self.settings(rotate), &self.clock, Chance::new(7)).unwrap()
    }

    /// What makes the node's clients.
    pub fn connect(&self) -> Box<crablet_certificates::Connect> {
        let server = Arc::clone(&self.server);
        Box::new(move |credentials| -> Result<Client, ConnectError> {
            let user = match credentials {
                Credentials::Own => User::new("system:node:n1", &["system:nodes", "system:authenticated"]),
                Credentials::Bootstrap => {
                    User::new("system:bootstrap:abcdef", &["system:bootstrappers", "system:authenticated"])
                }
            };
            Ok(Client::new(Arc::new(Way { server: Arc::clone(&server), user }), "test"))
        })
    }

    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.server.faults.lock().unwrap().extend(faults);
    }

    /// What was asked, and by whom, since this was asked last.
    pub fn heard(&self) -> Vec<String> {
        let heard = std::mem::take(&mut *self.server.heard.lock().unwrap());
        heard.into_iter().filter(|line| !line.starts_with("admin")).collect()
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        let way = Way { server: Arc::clone(&self.server), user: User::new("admin", &["system:masters"]) };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
        let answer = way.send(request.body(Bytes::from(body)).unwrap(), Lane::Common).await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        let parts: Vec<_> = answer.into_body().map(Result::unwrap).collect().await;
        serde_json::from_slice(&parts.concat()).unwrap()
    }

    pub async fn requests(&self) -> Vec<CertificateSigningRequest> {
        let list = self.ask(Method::GET, &path_of(""), Value::Null).await;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().map(|item| serde_json::from_value(item).unwrap()).collect()
    }

    /// Says something to a request.
    pub async fn say(&self, name: &str, word: RequestConditionType, message: &str) {
        let mut request = self.ask(Method::GET, &path_of(name), Value::Null).await;
        let condition = CertificateSigningRequestCondition {
            r#type: word,
            status: ConditionStatus::True,
            reason: "SomebodySaid".into(),
            message: message.into(),
            ..CertificateSigningRequestCondition::default()
        };
        request["status"]["conditions"] = json!([condition]);
        self.ask(Method::PUT, &format!("{}/approval", path_of(name)), request).await;
    }

    pub async fn approve(&self, name: &str) {
        self.say(name, RequestConditionType::Approved, "").await;
    }

    pub async fn delete(&self, name: &str) {
        self.ask(Method::DELETE, &path_of(name), Value::Null).await;
    }
}

fn path_of(name: &str) -> String {
    let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
    path.trim_end_matches('/').to_owned()
}

fn bootstrap_kubeconfig() -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: k, cluster: {{server: '{SERVER}', certificate-authority-data: Y2E=}}}}]\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         users: [{{name: u, user: {{token: abcdef.0123456789abcdef}}}}]\n"
    )
}

/// Waits until a request waits to be approved; its name.
pub async fn pending(progress: &mut watch::Receiver<Progress>) -> String {
    let waits = |progress: &Progress| matches!(progress.stage, Stage::Pending { .. });
    match &progress.wait_for(waits).await.unwrap().stage {
        Stage::Pending { request, .. } => request.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Waits until it rests; what it says of it.
pub async fn resting(progress: &mut watch::Receiver<Progress>) -> String {
    let rests = |progress: &Progress| matches!(progress.stage, Stage::Rests { .. });
    progress.wait_for(rests).await.unwrap().to_string()
}

pub fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}
