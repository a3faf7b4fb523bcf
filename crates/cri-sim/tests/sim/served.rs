//! The simulated runtime on a socket.

use std::path::{Path, PathBuf};

use crablet_cri::{Client, HintSource, Runtime as _, client};
use crablet_cri_api::v1;
use crablet_cri_api::v1::runtime_service_client::RuntimeServiceClient;
use crablet_cri_sim::{Fault, Method, Settings, Simulator, serve};
use futures_util::StreamExt as _;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tonic::Code;
use tonic::transport::{Endpoint, Uri};
use tower::service_fn;

use crate::support::Pod;

#[tokio::test]
async fn a_client_on_a_socket_gets_answers_until_the_server_stops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sim.sock");
    let simulator = Simulator::new(Settings::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let listener = UnixListener::bind(&path).unwrap();
    let serving = tokio::spawn(serve(simulator.clone(), listener, async {
        let _ = stopped.await;
    }));
    let channel = connect(path.clone()).await;
    let mut client = RuntimeServiceClient::new(channel);
    let answer = client.version(v1::VersionRequest::default()).await.unwrap().into_inner();
    assert_eq!((answer.runtime_name.as_str(), answer.runtime_api_version.as_str()), ("crablet-sim", "v1"));
    let mut events = client.get_container_events(v1::GetEventsRequest {}).await.unwrap().into_inner();
    stop.send(()).unwrap();
    assert_eq!(events.message().await.unwrap_err().code(), Code::Unavailable);
    serving.await.unwrap().unwrap();
    UnixStream::connect(&path).await.unwrap_err();
    // The simulator is still there.
    assert_eq!(simulator.container_count(), 0);
}

async fn connect(path: PathBuf) -> tonic::transport::Channel {
    let connector = service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(hyper_util::rt::TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await.unwrap()
}

/// A simulator on a socket, for as long as the test runs.
fn served(settings: Settings) -> (TempDir, PathBuf, Simulator) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sim.sock");
    let simulator = Simulator::new(settings);
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(serve(simulator.clone(), listener, std::future::pending()));
    (directory, path, simulator)
}

fn client_of(path: &Path) -> Client {
    Client::new(&format!("unix://{}", path.display()), None, client::Settings::default()).unwrap()
}

// On a socket, our client calls a runtime unreachable only when its connection broke or none could be made. What the
// runtime answers, `Unavailable` too, is an answer.

#[tokio::test]
async fn an_error_is_an_answer_however_long_it_is() {
    let (_directory, path, simulator) = served(Settings::default());
    let client = client_of(&path);
    for kibibytes in [1, 17, 100, 900, 5_000] {
        let message = "x".repeat(kibibytes << 10);
        simulator.inject(Fault::on(Method::ExecSync).fail(Code::Unknown, message));
        let error = client.exec_sync("c", &["true".to_owned()], None).await.unwrap_err();
        assert!(matches!(error, crablet_cri::Error::Answer { .. }), "{kibibytes} KiB: {error}");
        assert!(error.to_string().len() < 5_000, "{kibibytes} KiB: {}", error.to_string().len());
        assert_eq!(error.code(), if kibibytes < 1_000 { Code::Unknown } else { Code::Internal });
        client.version().await.unwrap();
    }
}

#[tokio::test]
async fn a_call_under_way_breaks_with_the_runtime_and_the_client_connects_again_when_it_is_back() {
    let (_directory, path, simulator) = served(Settings::default());
    let client = client_of(&path);
    client.version().await.unwrap();
    let deaths = [
        Fault::on(Method::Status).kills_the_runtime_before_effect(),
        Fault::on(Method::Status).kills_the_runtime_after_effect(),
    ];
    for death in deaths {
        simulator.inject(death);
        let (first, second) = (client.status().await.unwrap_err(), client.version().await.unwrap_err());
        assert!(first.is_unreachable(), "under way: {first}");
        assert!(second.is_unreachable(), "while it is away: {second}");
        simulator.come_back();
        client.version().await.unwrap();
    }
    let calls: Vec<&str> = simulator.calls().iter().map(|call| call.method.name()).collect();
    assert_eq!(calls, ["Version", "Status", "Version", "Status", "Version"], "the rest never reached it");
}

#[tokio::test]
async fn every_connection_of_a_runtime_that_dies_is_closed_and_none_is_taken_until_it_is_back() {
    let (_directory, path, simulator) = served(Settings::default());
    let mut idle = UnixStream::connect(&path).await.unwrap();
    let client = client_of(&path);
    let mut hints = client.hints(HintSource::Cri);
    // A stream says nothing before the first event.
    let made = async {
        while simulator.count_calls(Method::GetContainerEvents) == 0 {
            tokio::task::yield_now().await;
        }
        client.run_sandbox(&Pod::config("pod"), "").await.unwrap()
    };
    let (hint, _) = tokio::join!(hints.next(), made);
    hint.unwrap().unwrap();

    // Even a death that nobody had the time to see.
    simulator.die();
    simulator.come_back();
    let error = loop {
        if let Err(error) = hints.next().await.unwrap() {
            break error;
        }
    };
    assert!(error.is_unreachable(), "{error}");
    until_closed(&mut idle).await;
    client.version().await.unwrap();

    simulator.die();
    until_closed(&mut UnixStream::connect(&path).await.unwrap()).await;
    until_closed(&mut UnixStream::connect(&path).await.unwrap()).await;
    let error = client.version().await.unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    simulator.come_back();
    client.version().await.unwrap();
}

async fn until_closed(connection: &mut UnixStream) {
    // The server may have begun to talk.
    connection.read_to_end(&mut Vec::new()).await.unwrap();
}

#[tokio::test]
async fn a_runtime_without_events_is_asked_for_them_once_a_connection() {
    let (_directory, path, simulator) = served(Settings::containerd_1_6());
    let client = client_of(&path);
    for connection in 1..=2 {
        for _ in 0..3 {
            let refusal = client.hints(HintSource::Cri).next().await.unwrap().unwrap_err();
            assert!(refusal.is_unsupported(), "{refusal}");
        }
        assert_eq!(simulator.count_calls(Method::GetContainerEvents), connection);
        // The one that comes back may be a newer one.
        simulator.die();
        client.version().await.unwrap_err();
        simulator.come_back();
        client.version().await.unwrap();
    }
}
