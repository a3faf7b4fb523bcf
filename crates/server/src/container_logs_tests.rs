//! The recorded answers, and what no recording shows.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use axum::http::Request;
use crablet_agent::agent::Agent;
use crablet_api::document::Limits;
use crablet_cri::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use super::*;
use crate::testing::running_node;

/// Containers whose logs are in one directory, by their IDs.
struct InDirectory(PathBuf);

#[async_trait]
impl LogRuntime for InDirectory {
    async fn log_path(&self, id: &str) -> Result<PathBuf, Error> {
        match id {
            "lost" => Err(Error::BadEndpoint { endpoint: String::new() }),
            id => Ok(self.0.join(id)),
        }
    }

    async fn reopen_container_log(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }
}

struct World {
    directory: tempfile::TempDir,
    agent: Agent,
    watcher: LogWatcher,
    router: Router,
}

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"two","namespace":"server","uid":"u"},
    "spec":{"initContainers":[{"name":"i"}],"containers":[{"name":"a"},{"name":"b"},{"name":"new"}]},
    "status":{
        "initContainerStatuses":[{"name":"i","state":{"terminated":{"containerID":"containerd://i0"}}}],
        "containerStatuses":[
            {"name":"a","containerID":"containerd://a0","state":{"running":{}}},
            {"name":"b","containerID":"containerd://b1","state":{"running":{}},
             "lastState":{"terminated":{"containerID":"containerd://b0"}}}
        ]}}"#;

fn show(agent: &Agent, pod: &str) {
    let pod: Pod = crablet_api::from_json(pod.as_bytes(), Limits::API).unwrap();
    let status = Arc::new(pod.status.clone());
    agent.statuses.show(Reported::new(Arc::new(pod), status));
}

impl World {
    fn new(split_streams: bool) -> World {
        let (node, agent) = running_node();
        show(&agent, POD);
        let directory = tempfile::tempdir().unwrap();
        let watcher = LogWatcher::default();
        let runtime = Arc::new(InDirectory(directory.path().to_owned()));
        let logs = ContainerLogs { node, runtime, watcher: watcher.clone(), split_streams };
        World { directory, agent, watcher, router: container_logs_router(logs) }
    }

    fn write(&self, id: &str, log: &str) {
        fs::write(self.directory.path().join(id), log).unwrap();
    }

    fn append(&self, id: &str, log: &str) {
        let file = fs::OpenOptions::new().append(true).open(self.directory.path().join(id));
        file.unwrap().write_all(log.as_bytes()).unwrap();
    }

    async fn ask(&self, path: &str) -> Response {
        let request = Request::get(path).body(Body::empty()).unwrap();
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let response = self.ask(path).await;
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

/// What the containers of the recorded pod wrote.
fn write_recorded(world: &World) {
    let mut log = String::new();
    for stream in ["out", "err"] {
        for number in 1..=20 {
            let time = match (stream, number) {
                ("err", 19) => "271849160",
                ("err", 20) => "271850692",
                _ => "271800000",
            };
            log += &format!("2026-11-15T17:23:45.{time}Z std{stream} F {stream} {number}\n");
        }
    }
    world.write("a0", &log);
    world.write("b0", "2026-11-15T17:23:40.1Z stdout F from b\n");
    world.write("b1", "2026-11-15T17:23:46.1Z stdout F from b\n");
    world.write("i0", "2026-11-15T17:23:39.1Z stdout F init done\n");
}

#[tokio::test]
async fn recorded_answers_are_given_again() {
    let world = World::new(false);
    write_recorded(&world);
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/data/golden");
    let golden = std::env::var_os("GOLDEN_DIR").map_or(own, PathBuf::from);
    let mut compared = 0;
    for entry in fs::read_dir(golden.join("server/answers")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("log-") {
            continue;
        }
        let recorded: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let response = world.ask(recorded["path"].as_str().unwrap()).await;
        assert_eq!(u64::from(response.status().as_u16()), recorded["status"], "{name}");
        if let Some(kind) = recorded["headers"].get("Content-Type") {
            assert_eq!(response.headers()["content-type"], kind.as_str().unwrap(), "{name}");
        }
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(String::from_utf8(body.to_vec()).unwrap(), recorded["body"], "{name}");
        compared += 1;
    }
    assert!(compared >= 20, "{compared}");
}

#[tokio::test]
async fn one_stream_alone_is_given_where_the_gate_is_open() {
    let world = World::new(true);
    write_recorded(&world);
    let (status, body) = world.get("/containerLogs/server/two/a?stream=Stderr").await;
    assert_eq!((status, body.starts_with("err 1\nerr 2\n")), (200, true));
    let (status, body) = world.get("/containerLogs/server/two/a?stream=Stdout").await;
    assert_eq!((status, body.ends_with("out 19\nout 20\n")), (200, true));
}

#[tokio::test]
async fn what_goes_wrong_late_is_told_in_the_answer_as_upstream_does() {
    let world = World::new(true);
    let missing = |id: &str| {
        let path = world.directory.path().join(id);
        let path = path.display();
        format!(
            "failed to try resolving symlinks in path \"{path}\": lstat {path}: no such file or directory"
        )
    };
    assert_eq!(world.get("/containerLogs/server/two/a").await, (200, missing("a0")));
    assert_eq!(world.get("/containerLogs/server/two/a?stream=Stderr").await, (400, missing("a0")));
    show(&world.agent, &POD.replace("a0", "lost"));
    let lost = "unable to retrieve container logs for containerd://lost".to_owned();
    assert_eq!(world.get("/containerLogs/server/two/a").await, (200, lost.clone()));
    assert_eq!(world.get("/containerLogs/server/two/a?stream=Stderr").await, (400, lost));
}

#[tokio::test]
async fn no_segment_of_the_path_leads_anywhere_else() {
    let world = World::new(false);
    write_recorded(&world);
    for out in ["..", "%2e%2e", "..%2F..%2Fetc", "%2Fetc%2Fpasswd", "two%2F..%2Ftwo", "a%00", "."] {
        for path in [
            format!("/containerLogs/{out}/two/a"),
            format!("/containerLogs/server/{out}/a"),
            format!("/containerLogs/server/two/{out}"),
        ] {
            let (status, body) = world.get(&path).await;
            assert_eq!(status, 404, "{path}: {body}");
        }
    }
}

#[test]
fn which_container_is_meant_is_decided_from_the_status_as_upstream_decides() {
    let cases = [
        (r#""state":{"running":{}},"containerID":"c://1""#, false, "1"),
        (r#""state":{"terminated":{"containerID":"c://1"}}"#, false, "1"),
        (r#""state":{"terminated":{}},"lastState":{"terminated":{"containerID":"c://0"}}"#, false, "0"),
        (r#""state":{"terminated":{}}"#, false, r#"container "a" in pod "p" is terminated"#),
        (
            r#""state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"containerID":"c://0"}}"#,
            false,
            "0",
        ),
        (
            r#""state":{"waiting":{}},"lastState":{"terminated":{}}"#,
            false,
            r#"container "a" in pod "p" is terminated"#,
        ),
        (
            r#""state":{"waiting":{"reason":"ErrImagePull"}}"#,
            false,
            r#"container "a" in pod "p" is waiting to start: image can't be pulled"#,
        ),
        (
            r#""state":{"waiting":{"reason":"ImagePullBackOff"}}"#,
            false,
            r#"container "a" in pod "p" is waiting to start: trying and failing to pull image"#,
        ),
        (
            r#""state":{"waiting":{"reason":"ContainerCreating"}}"#,
            false,
            r#"container "a" in pod "p" is waiting to start: ContainerCreating"#,
        ),
        (r#""ready":false"#, false, r#"container "a" in pod "p" is waiting to start - no logs yet"#),
        (r#""state":{"running":{}}"#, true, r#"previous terminated container "a" in pod "p" not found"#),
        (r#""lastState":{"terminated":{"containerID":"c://0"}}"#, true, "0"),
    ];
    for (status, previous, expected) in cases {
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","status":{{"ephemeralContainerStatuses":[{{"name":"a",{status}}}]}}}}"#
        );
        let pod: Pod = crablet_api::from_json(json.as_bytes(), Limits::API).unwrap();
        let found = match log_of(&pod.status, "p", "a", previous) {
            Ok(id) => id.id.to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{status}");
    }
    let nothing = log_of(&PodStatus::default(), "p", "a", false).unwrap_err().to_string();
    assert_eq!(nothing, r#"container "a" in pod "p" is not available"#);
}

#[tokio::test]
async fn a_log_is_followed_until_its_container_has_ended() {
    let world = World::new(false);
    write_recorded(&world);
    let response = world.ask("/containerLogs/server/two/b?follow=true").await;
    let mut body = response.into_body().into_data_stream();
    assert_eq!(body.next().await.unwrap().unwrap(), "from b\n");
    let (more, ()) = tokio::join!(body.next(), async {
        world.append("b1", "2026-11-15T17:23:47Z stdout F more\n");
    });
    assert_eq!(more.unwrap().unwrap(), "more\n");
    let (end, ()) = tokio::join!(body.next(), async {
        show(&world.agent, &POD.replace("containerd://b1", "containerd://b2"));
    });
    assert!(end.is_none());
}

#[tokio::test]
async fn followers_that_go_away_leave_nothing_behind() {
    let world = World::new(false);
    write_recorded(&world);
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (before, tasks_before) = (descriptors(), tasks());
    let mut bodies = Vec::new();
    for _ in 0..200 {
        let response = world.ask("/containerLogs/server/two/b?follow=true").await;
        let mut body = response.into_body().into_data_stream();
        assert_eq!(body.next().await.unwrap().unwrap(), "from b\n");
        // It has nothing more to say, and waits.
        let waits = tokio::time::timeout(Duration::from_millis(1), body.next()).await;
        assert!(waits.is_err());
        bodies.push(body);
    }
    drop(bodies);
    assert_eq!(world.watcher.watched(), 0);
    // The task that read the kernel's events goes when it gets its turn, and the threads that read files give up theirs.
    while (descriptors(), tasks()) != (before, tasks_before) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_is_followed_for_no_longer() {
    let world = World::new(false);
    write_recorded(&world);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(crate::serve(listener, world.router.clone(), std::future::pending()));
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = "GET /containerLogs/server/two/b?follow=true HTTP/1.1\r\nHost: x\r\n\r\n";
        client.write_all(request.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"from b\n\r\n") {
            assert_ne!(client.read_buf(&mut read).await.unwrap(), 0);
        }
        clients.push(client);
    }
    while world.watcher.watched() == 0 {
        tokio::task::yield_now().await;
    }
    drop(clients);
    while world.watcher.watched() != 0 {
        tokio::task::yield_now().await;
    }
}
