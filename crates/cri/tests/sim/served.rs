//! The simulated runtime on a socket.

use std::path::PathBuf;

use crablet_cri::sim::{Settings, Simulator, serve};
use crablet_cri_api::v1;
use crablet_cri_api::v1::runtime_service_client::RuntimeServiceClient;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tonic::Code;
use tonic::transport::{Endpoint, Uri};
use tower::service_fn;

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
