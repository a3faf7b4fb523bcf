//! What one is told when there is no CRI v1 runtime behind an endpoint.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use crablet_cri::client::Settings;
use crablet_cri::{Client, Runtime as _};
use crablet_cri_api::v1;
use expect_test::{Expect, expect};
use rustix::fs::Uid;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// A directory for the socket, and its path in it.
fn place() -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = format!("unix://{}", directory.path().join("cri.sock").display());
    (directory, endpoint)
}

fn listen(directory: &TempDir) -> UnixListener {
    UnixListener::bind(directory.path().join("cri.sock")).unwrap()
}

/// Asks for the version, and compares what is said, with the directory's name taken out.
async fn check(directory: &TempDir, endpoint: &str, settings: Settings, expected: Expect) {
    let client = Client::new(endpoint, None, settings).unwrap();
    let error = client.version().await.unwrap_err();
    expected.assert_eq(&error.to_string().replace(&directory.path().display().to_string(), "<dir>"));
}

fn impatient() -> Settings {
    Settings { timeout: Duration::from_millis(200), ..Settings::default() }
}

fn serve(listener: UnixListener, routes: Routes) {
    let incoming = UnixListenerStream::new(listener);
    tokio::spawn(tonic::transport::Server::builder().add_routes(routes).serve_with_incoming(incoming));
}

/// A gRPC server with one method, which gives this answer.
fn with_one_method<Answer>(path: &'static str, answer: Answer) -> Routes
where
    Answer: prost::Message + Default + Clone + Send + Sync + 'static,
{
    let handler = move |request: axum::extract::Request| {
        let answer = answer.clone();
        async move {
            let codec = tonic_prost::ProstCodec::<Answer, v1::VersionRequest>::default();
            let method = tower::service_fn(move |_: Request<v1::VersionRequest>| {
                let answer = answer.clone();
                async move { Ok::<_, Status>(Response::new(answer)) }
            });
            tonic::server::Grpc::new(codec).unary(method, request).await
        }
    };
    Routes::from(Routes::default().into_axum_router().route(path, axum::routing::post(handler)))
}

#[tokio::test]
async fn a_socket_that_is_missing() {
    let (directory, endpoint) = place();
    check(
        &directory,
        &endpoint,
        Settings::default(),
        expect![[r#"Version: the container runtime at unix://<dir>/cri.sock cannot be reached: there is no such socket; is the runtime running, and is this where it listens (--container-runtime-endpoint, or containerRuntimeEndpoint in the configuration)?"#]],
    )
    .await;
}

#[tokio::test]
async fn a_path_that_is_not_a_socket() {
    let (directory, endpoint) = place();
    std::fs::write(directory.path().join("cri.sock"), "").unwrap();
    check(&directory, &endpoint, Settings::default(), expect!["Version: the container runtime at unix://<dir>/cri.sock cannot be reached: the path is not a socket; set --container-runtime-endpoint to the socket of the runtime"]).await;
}

#[tokio::test]
async fn a_socket_that_nobody_listens_on() {
    let (directory, endpoint) = place();
    drop(listen(&directory));
    check(&directory, &endpoint, Settings::default(), expect!["Version: the container runtime at unix://<dir>/cri.sock cannot be reached: nobody listens on the socket; start the runtime"]).await;
}

#[tokio::test]
async fn a_socket_that_one_may_not_open() {
    let (directory, endpoint) = place();
    let _listener = listen(&directory);
    allow(directory.path(), 0o755);
    allow(&directory.path().join("cri.sock"), 0o600);
    // Credentials belong to a thread on Linux, and the whole test runs on this one.
    let nobody = Uid::from_raw(65534);
    rustix::thread::set_thread_res_uid(nobody, nobody, Uid::ROOT).unwrap();
    check(&directory, &endpoint, Settings::default(), expect!["Version: the container runtime at unix://<dir>/cri.sock cannot be reached: permission to open the socket is denied; run as root, or as a user who may open it"]).await;
    rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).unwrap();
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_server_that_accepts_and_never_answers() {
    let (directory, endpoint) = place();
    let _listener = listen(&directory);
    check(
        &directory,
        &endpoint,
        impatient(),
        expect!["Version: no answer from unix://<dir>/cri.sock within 200ms"],
    )
    .await;
}

#[tokio::test]
async fn a_server_that_hangs_up() {
    let (directory, endpoint) = place();
    let listener = listen(&directory);
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    // Whether the pipe breaks or the connection is reset is a matter of chance.
    let client = Client::new(&endpoint, None, Settings::default()).unwrap();
    let error = client.version().await.unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains(&endpoint), "{error}");
}

#[tokio::test]
async fn a_server_of_an_older_http() {
    let (directory, endpoint) = place();
    let listener = listen(&directory);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 24];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            // Hanging up with what is unread would be a reset, which may overtake the answer.
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
    });
    check(&directory, &endpoint, Settings::default(), expect!["unix://<dir>/cri.sock is not a CRI v1 runtime: it does not speak HTTP/2; set --container-runtime-endpoint to the socket of the runtime"]).await;
}

#[tokio::test]
async fn a_grpc_server_that_is_not_cri() {
    let (directory, endpoint) = place();
    serve(listen(&directory), with_one_method("/something.Else/Version", v1::VersionResponse::default()));
    check(&directory, &endpoint, Settings::default(), expect![[r#"unix://<dir>/cri.sock is not a CRI v1 runtime: it is a gRPC server without runtime.v1.RuntimeService; enable the runtime's CRI (containerd: take "cri" out of disabled_plugins), or set --container-runtime-endpoint to the right socket"#]]).await;
}

#[tokio::test]
async fn a_web_server_that_speaks_http_2() {
    let (directory, endpoint) = place();
    let hello = axum::routing::any(|| async { "hello" });
    serve(listen(&directory), Routes::from(Routes::default().into_axum_router().fallback(hello)));
    check(&directory, &endpoint, Settings::default(), expect!["unix://<dir>/cri.sock is not a CRI v1 runtime: it does not speak gRPC (protocol error: received message with invalid compression flag: 104 (valid flags are 0 and 1) while receiving response with status: 200 OK); set --container-runtime-endpoint to the socket of the runtime"]).await;
}

#[tokio::test]
async fn a_runtime_that_speaks_only_the_version_before() {
    let (directory, endpoint) = place();
    let old = with_one_method("/runtime.v1alpha2.RuntimeService/Version", v1::VersionResponse::default());
    serve(listen(&directory), old);
    check(&directory, &endpoint, Settings::default(), expect!["unix://<dir>/cri.sock is not a CRI v1 runtime: it speaks only v1alpha2; upgrade the runtime (containerd has v1 from 1.6 on)"]).await;
}

#[tokio::test]
async fn an_answer_over_the_limit() {
    let (directory, endpoint) = place();
    let long = v1::VersionResponse { runtime_name: "x".repeat(10_000), ..v1::VersionResponse::default() };
    serve(listen(&directory), with_one_method("/runtime.v1.RuntimeService/Version", long));
    let settings = Settings { answer_limit: 1000, ..Settings::default() };
    check(&directory, &endpoint, settings, expect!["Version: the answer of unix://<dir>/cri.sock is larger than 1000 bytes: remove exited containers and unused images, so that the lists get shorter"]).await;
}

#[tokio::test]
async fn an_answer_that_makes_no_sense() {
    let (directory, endpoint) = place();
    let status = v1::ContainerStatusResponse {
        status: Some(v1::ContainerStatus::default()),
        ..v1::ContainerStatusResponse::default()
    };
    serve(listen(&directory), with_one_method("/runtime.v1.RuntimeService/ContainerStatus", status));
    let client = Client::new(&endpoint, None, Settings::default()).unwrap();
    let error = anyhow::Error::from(client.container_status("c").await.unwrap_err());
    expect![[r#"ContainerStatus: the runtime's answer has no metadata in its ContainerStatus"#]]
        .assert_eq(&format!("{error:#}"));
}
