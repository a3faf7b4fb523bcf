//! Hooks of a whole agent, on the simulated runtime.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use common::{Node, seconds};
use crablet_api::OneOf;
use crablet_api::core::ContainerState;
use crablet_cri_sim::{Fault, Image, Method};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tonic::Code;

fn pod(hooks: &str) -> String {
    format!(
        "{{terminationGracePeriodSeconds: 30, containers: [{{name: c, image: 'sim/forever:1', lifecycle: {{{hooks}}}}}]}}"
    )
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_hook_after_the_start_fails_is_stopped_and_started_anew() {
    let mut node = Node::start().await;
    node.want("p", &pod("postStart: {exec: {command: [sh, -c, 'echo hunter2; exit 3']}}")).await;
    seconds(5).await;
    assert!(node.said("c", "FailedPostStartHook", "PostStartHook failed"));
    assert!(node.said("c", "Killing", "FailedPostStartHook"));
    seconds(60).await;
    let status = node.container("p", "c");
    assert!(status.restart_count > 0, "{status:?}");
    // What it wrote is told to nobody.
    assert!(!node.all_said().contains("hunter2"));
    assert!(!format!("{status:?}").contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn a_hook_with_a_very_long_error_ends() {
    let mut node = Node::start().await;
    let fault = Fault::on(Method::ExecSync).always().fail(Code::Unknown, "x".repeat(100 << 10));
    node.world.simulator.inject(fault);
    node.want("p", &pod("postStart: {exec: {command: [reload]}}")).await;
    seconds(60).await;
    assert!(node.said("c", "FailedPostStartHook", "PostStartHook failed"), "{}", node.all_said());
    let status = node.container("p", "c");
    assert!(status.restart_count > 0, "{status:?}");
    assert!(format!("{status:?}").len() < 20_000, "what is shown is short");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_goes_away_during_a_hook_ends_no_container() {
    let mut node = Node::start().await;
    node.want("p", &pod("postStart: {exec: {command: [sleep, '20']}}")).await;
    seconds(10).await;
    let before = node.world.simulator.containers();
    node.world.simulator.die();
    seconds(5).await;
    node.world.simulator.come_back();
    seconds(10).await;
    assert!(!node.is_ready("p"), "the hook is run once more, from its start");
    seconds(15).await;
    assert!(node.is_ready("p"));
    let after = node.world.simulator.containers();
    assert_eq!((after.len(), &after[0].id), (1, &before[0].id));
    assert!(!node.all_said().contains("FailedPostStartHook"));
}

#[tokio::test(start_paused = true)]
async fn the_next_container_waits_for_the_hook_after_the_start_of_the_one_before() {
    let mut node = Node::start().await;
    let hook = "lifecycle: {postStart: {sleep: {seconds: 20}}}";
    let first = format!("{{name: a, image: 'sim/forever:1', {hook}}}");
    node.want("p", &format!("{{containers: [{first}, {{name: b, image: 'sim/forever:1'}}]}}")).await;
    seconds(15).await;
    assert_eq!(node.live(), ["a"]);
    seconds(15).await;
    assert_eq!(node.live(), ["a", "b"]);
    assert!(node.is_ready("p"));
}

#[tokio::test(start_paused = true)]
async fn an_end_does_not_wait_for_a_hook_after_a_start() {
    let mut node = Node::start().await;
    node.want("p", &pod("postStart: {exec: {command: [sleep, infinity]}}")).await;
    seconds(10).await;
    assert_eq!(node.live(), ["c"]);
    node.unwant("p");
    seconds(10).await;
    assert!(node.live().is_empty());
    assert!(node.find_container("p", "c").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_not_alive_has_its_hook_before_the_stop_within_its_grace_period() {
    let mut node = Node::start().await;
    let probe =
        "livenessProbe: {exec: {command: ['false']}, periodSeconds: 1, terminationGracePeriodSeconds: 5}";
    let hook = "lifecycle: {preStop: {sleep: {seconds: 20}}}";
    node.want("p", &format!("{{containers: [{{name: c, image: 'sim/forever:1', {probe}, {hook}}}]}}")).await;
    seconds(5).await;
    assert!(node.said("c", "Killing", "Container c failed liveness probe, will be restarted"));
    assert_eq!((node.container("p", "c").restart_count, node.live().len()), (0, 1), "its hook runs");
    seconds(6).await;
    assert_eq!(node.container("p", "c").restart_count, 1);
}

#[tokio::test(start_paused = true)]
async fn a_hook_before_the_stop_that_takes_too_long_runs_on_until_its_container_ends() {
    let mut node = Node::start().await;
    node.world.simulator.add_image(Image::new("shell:1").cmd(["sh"]));
    let probe =
        "livenessProbe: {exec: {command: ['false']}, periodSeconds: 1, terminationGracePeriodSeconds: 5}";
    let command = "command: [sh, -c, 'trap \"exit 3\" USR1; while :; do sleep 1; done']";
    let hook = "lifecycle: {preStop: {exec: {command: [sh, -c, 'sleep 6; kill -USR1 1']}}}";
    node.want("p", &format!("{{containers: [{{name: c, image: 'shell:1', {command}, {probe}, {hook}}}]}}"))
        .await;
    seconds(12).await;
    assert!(node.said("c", "FailedPreStopHook", "PreStopHook failed"), "{}", node.all_said());
    let status = node.container("p", "c");
    // The runtime would have ended it by force a second later.
    assert!(
        matches!(&status.last_state, OneOf::One(ContainerState::Terminated(ended)) if ended.exit_code == 3),
        "{status:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_waits_no_longer_for_a_hook_than_it_has() {
    let mut node = Node::start().await;
    let hook = "lifecycle: {preStop: {exec: {command: [sleep, infinity]}}}";
    let container = format!("{{name: c, image: 'sim/forever:1', {hook}}}");
    node.want("p", &format!("{{terminationGracePeriodSeconds: 5, containers: [{container}]}}")).await;
    seconds(5).await;
    node.unwant("p");
    seconds(4).await;
    assert_eq!(node.live(), ["c"], "its hook runs");
    seconds(5).await;
    assert!(node.live().is_empty(), "{}", node.all_said());
    assert!(node.said("c", "FailedPreStopHook", "PreStopHook failed"));
}

#[tokio::test(start_paused = true)]
async fn a_hook_before_the_stop_that_fails_is_told_and_changes_nothing() {
    let mut node = Node::start().await;
    node.want("p", &pod("preStop: {exec: {command: [sh, -c, 'echo hunter2; exit 1']}}")).await;
    seconds(5).await;
    node.unwant("p");
    seconds(10).await;
    assert!(node.live().is_empty());
    assert!(node.said("c", "FailedPreStopHook", "PreStopHook failed"));
    assert!(!node.all_said().contains("hunter2"));
}

/// Whoever listens there, and the first line of each request that it gets.
async fn listener(answer: &'static str) -> (u16, tokio::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let length = stream.read(&mut buffer).await.unwrap_or_default();
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = sender.send(text).await;
        }
    });
    (port, receiver)
}

#[tokio::test]
async fn a_hook_may_be_a_request_and_any_answer_will_do() {
    let (port, mut requests) = listener("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n").await;
    let mut node = Node::start().await;
    let get = |path: &str| format!("httpGet: {{host: 127.0.0.1, port: {port}, path: {path}}}");
    let hooks = format!("postStart: {{{}}}, preStop: {{{}}}", get("/up"), get("/down"));
    node.want("p", &pod(&hooks)).await;
    let up = requests.recv().await.unwrap();
    assert!(
        up.starts_with("GET /up HTTP/1.1\r\n") && up.contains("User-Agent: kube-lifecycle/1.36\r\n"),
        "{up}"
    );
    while node.find_container("p", "c").is_none_or(|status| !status.ready) {
        tokio::task::yield_now().await;
    }
    assert!(matches!(node.container("p", "c").state.one(), Some(ContainerState::Running(_))));
    node.unwant("p");
    let down = requests.recv().await.unwrap();
    assert!(down.starts_with("GET /down HTTP/1.1\r\n"), "{down}");
    while !node.live().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(!node.said("c", "FailedPreStopHook", "PreStopHook failed"));
}

#[tokio::test]
async fn a_hook_by_https_is_made_by_http_where_that_is_what_is_spoken() {
    let (port, mut requests) = listener("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
    let mut node = Node::start().await;
    let header = "httpHeaders: [{name: Authorization, value: hunter2}]";
    let get = format!("httpGet: {{host: 127.0.0.1, port: {port}, scheme: HTTPS, {header}}}");
    node.want("p", &pod(&format!("postStart: {{{get}}}"))).await;
    assert!(!requests.recv().await.unwrap().starts_with("GET"));
    let plain = requests.recv().await.unwrap();
    assert!(plain.starts_with("GET / ") && !plain.contains("hunter2"), "{plain}");
    let message = format!(
        "request to HTTPS lifecycle hook 127.0.0.1:{port} got HTTP response, retry with HTTP succeeded"
    );
    while !node.said("", "LifecycleHTTPFallback", &message) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_the_runtime_lost_does_not_outlive_its_container() {
    let mut node = Node::start().await;
    node.world.simulator.inject(Fault::on(Method::ExecSync).times_out_before_effect());
    node.want("p", &pod("postStart: {exec: {command: ['true']}}")).await;
    seconds(5).await;
    let first = node.world.simulator.containers().into_iter().find(|container| container.alive).unwrap();
    assert!(node.world.simulator.exit_container(&first.id, 137));
    seconds(60).await;
    assert_eq!(node.live(), ["c"], "another has taken its place");
}
