//! A router on a real socket, and a client that shows exactly what it answers; and nodes to serve.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use crablet_agent::agent::Agent;
use crablet_agent::images::Images;
use crablet_agent::node_facts::{Facts, LiveFacts};
use crablet_agent::pods::Evictor;
use crablet_agent::readiness::Readiness;
use crablet_agent::recorder::Recorder;
use crablet_agent::sources::{PodConfig, Problems};
use crablet_agent::statuses::{Reported, Statuses};
use crablet_agent::story::Stories;
use crablet_api::core::{Pod, PodPhase, PodStatus};
use crablet_host::clock::Clock;
use crablet_metrics::Registries;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::node::{NodeHandles, Stage};
use crate::numbers::Numbers;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Server(SocketAddr);

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Server {
    pub(crate) async fn start(router: Router) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        tokio::spawn(crate::serve(listener, router, std::future::pending()));
        Server(address)
    }

    /// The same where protocols can be switched.
    pub(crate) async fn start_with_upgrades(router: Router) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = hyper_util::service::TowerToHyperService::new(router.clone());
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(hyper_util::rt::TokioIo::new(stream), service);
                tokio::spawn(connection.with_upgrades());
            }
        });
        Server(address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.send("GET", target, &[]).await
    }

    pub(crate) async fn send(&self, method: &str, target: &str, headers: &[&str]) -> Answer {
        let mut stream = TcpStream::connect(self.0).await.expect("the server listens");
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let request =
            format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.expect("the server reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("the server answers");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let status = head[9..12].parse().expect("a status");
        Answer { status, head: format!("{head}\r\n"), body: body.to_owned() }
    }
}

/// A node called `node` that has no runtime yet.
pub(crate) fn waiting_node(awaited: &str) -> NodeHandles {
    let clock = Clock::simulated("2026-11-15T03:46:00Z".parse().expect("a time"));
    let problems = Problems::new();
    let (config, _) = PodConfig::new(clock.clone(), problems.clone());
    NodeHandles {
        name: "node".to_owned(),
        clock,
        problems,
        owners: config.owners(),
        push: None,
        metrics: Registries::default(),
        numbers: Numbers::default(),
        stage: watch::channel(Stage::WaitingFor(awaited.to_owned())).1,
        stop: CancellationToken::new(),
    }
}

/// A node that runs, and its agent, which does nothing by itself.
pub(crate) fn running_node() -> (NodeHandles, Agent) {
    let mut node = waiting_node("");
    let stories = Stories::new(node.clock.clone());
    let recorder = Recorder::new(node.clock.clone(), stories.clone());
    let client = crablet_cri::Client::new("unix:///nonexistent.sock", None, Default::default());
    let runtime = Arc::new(client.expect("an endpoint"));
    let facts = LiveFacts::new(Facts::default());
    // Nobody asks the runtime.
    let (readiness, _) = Readiness::watch(Arc::clone(&runtime) as _, facts.clone(), node.clock.clone());
    let agent = Agent {
        facts,
        readiness,
        pressure: Default::default(),
        evictor: Evictor::new().0,
        statuses: Statuses::new(),
        images: Images::new(
            runtime,
            Default::default(),
            recorder.clone(),
            node.clock.clone(),
            Default::default(),
        ),
        stories,
        recorder,
        observer: watch::channel(Default::default()).1,
        sync_loop: Default::default(),
    };
    node.stage = watch::channel(Stage::Running(Box::new(agent.clone()))).1;
    (node, agent)
}

/// A pod that runs.
pub(crate) fn view(namespace: &str, name: &str, uid: &str) -> Reported {
    let mut pod = Pod::default();
    pod.metadata.namespace = namespace.into();
    pod.metadata.name = name.into();
    pod.metadata.uid = uid.into();
    let status = PodStatus { phase: Some(PodPhase::Running), ..PodStatus::default() };
    Reported::new(Arc::new(pod), Arc::new(status))
}
