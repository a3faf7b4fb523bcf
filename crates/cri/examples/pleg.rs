//! Watch the observer at work: a few pods on the simulated runtime, their events as they come, and a page to stop a
//! container.
//!
//! ```text
//! cargo run -p crablet-cri --example pleg
//! curl http://localhost:8080/
//! curl -X POST http://localhost:8080/stop/ID
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{Html, Redirect};
use axum::routing::{get, post};
use crablet_cri::observer::{Event, Observer, Source, Status};
use crablet_cri::{Client, Runtime, client};
use crablet_cri_api::{ContainerFilter, ContainerState, v1};
use crablet_cri_sim::{Settings, Simulator};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

const PODS: [(&str, &[&str]); 3] =
    [("web", &["nginx", "logs"]), ("database", &["postgres"]), ("job", &["worker"])];

/// How long a container has to stop when asked.
const GRACE: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let address = address(std::env::args().skip(1))?;
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; choose another address with --listen ADDR"))?;

    let simulator = Simulator::new(Settings::containerd_1_6());
    let client = Client::in_process("the simulator", simulator.services(), client::Settings::default());
    let (observer, events, status) = Observer::new(Arc::new(client.clone()));
    tokio::spawn(observer.run());
    let printing = tokio::spawn(print(events, status));
    for (pod, containers) in PODS {
        run_pod(&client, pod, containers).await?;
    }

    println!("stop a container at http://{address}/; end this with Ctrl-C");
    let pages = Router::new().route("/", get(list)).route("/stop/{id}", post(stop)).with_state(client);
    tokio::select! {
        served = axum::serve(listener, pages).into_future() => served.context("cannot serve the page"),
        printed = printing => printed.context("the observer ended"),
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for Ctrl-C"),
    }
}

/// `--listen ADDR`, on this machine alone: whoever reaches the page can stop containers.
fn address(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<SocketAddr> {
    let address = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => "127.0.0.1:8080".to_owned(),
        (Some("--listen"), Some(address)) => address,
        (Some("--listen"), None) => bail!("--listen needs an address, such as 127.0.0.1:8081"),
        (Some(other), _) => bail!("{other:?} is not known; there is only --listen ADDR"),
    };
    let parsed: SocketAddr = address
        .replace("localhost", "127.0.0.1")
        .parse()
        .with_context(|| format!("{address:?} is not an address and a port, such as 127.0.0.1:8081"))?;
    ensure!(parsed.ip().is_loopback(), "{parsed} is not on the loopback interface, such as 127.0.0.1:8081");
    Ok(parsed)
}

async fn print(mut events: mpsc::Receiver<Event>, mut status: watch::Receiver<Status>) {
    let mut source = None;
    loop {
        tokio::select! {
            biased;
            event = events.recv() => match event {
                Some(Event { pod_uid, id, kind }) => println!("{kind}  {pod_uid}  {id}"),
                None => return,
            },
            Ok(()) = status.changed() => {
                let status = status.borrow_and_update().clone();
                let is_decided = status.source != Source::Relist || !status.why_not_better.is_empty();
                if is_decided && source.replace(status.source) != Some(status.source) {
                    println!("events come from {}", status.source);
                    for reason in status.why_not_better {
                        println!("  and not from a better source: {reason}");
                    }
                }
            }
        }
    }
}

async fn run_pod(client: &Client, name: &str, containers: &[&str]) -> anyhow::Result<()> {
    let labels = BTreeMap::from([
        ("io.kubernetes.pod.name".to_owned(), name.to_owned()),
        ("io.kubernetes.pod.uid".to_owned(), format!("{name}-uid")),
    ]);
    let pod = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.to_owned(),
            namespace: "default".to_owned(),
            uid: format!("{name}-uid"),
            attempt: 0,
        }),
        labels: labels.clone(),
        ..v1::PodSandboxConfig::default()
    };
    let sandbox_id = client.run_sandbox(&pod, "").await?;
    for name in containers {
        let container = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: (*name).to_owned(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: "crablet.test/busybox:1".to_owned(), ..Default::default() }),
            command: ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1; done"]
                .map(str::to_owned)
                .into(),
            labels: labels.clone(),
            ..v1::ContainerConfig::default()
        };
        let id = client.create_container(&sandbox_id, &container, &pod).await?;
        client.start_container(&id).await?;
    }
    Ok(())
}

type Failure = (StatusCode, String);

fn failure(error: &crablet_cri::Error) -> Failure {
    let code = if error.is_not_found() { StatusCode::NOT_FOUND } else { StatusCode::BAD_GATEWAY };
    (code, format!("{error}\n"))
}

/// The page: every container, and a button to stop it.
async fn list(State(client): State<Client>) -> Result<Html<String>, Failure> {
    let containers = client.list_containers(ContainerFilter::default()).await;
    let mut rows = String::new();
    for container in containers.map_err(|error| failure(&error))? {
        let (id, name, state) = (&container.id, &container.name, container.state);
        let pod = container.labels.get("io.kubernetes.pod.name").map_or("", String::as_str);
        let button = match state {
            ContainerState::Running => {
                format!("<form method=post action=/stop/{id}><button>stop</button></form>")
            }
            ContainerState::Created | ContainerState::Exited | ContainerState::Unknown => String::new(),
        };
        // Writing to a string does not fail.
        let _ = writeln!(rows, "<tr><td>{pod}<td>{name}<td>{state:?}<td><code>{id}</code><td>{button}");
    }
    Ok(Html(format!(
        "<!doctype html><meta charset=utf-8><title>Containers</title><h1>Containers</h1>\n\
         <p>Stop one, and see <code>ContainerDied</code> where this was started.\n\
         <table><tr><th>pod<th>container<th>state<th>ID<th>\n{rows}</table>\n"
    )))
}

/// Stops a container, and goes back to the page.
async fn stop(State(client): State<Client>, Path(id): Path<String>) -> Result<Redirect, Failure> {
    client.stop_container(&id, GRACE).await.map_err(|error| failure(&error))?;
    Ok(Redirect::to("/"))
}
