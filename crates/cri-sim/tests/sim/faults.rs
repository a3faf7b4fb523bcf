//! What goes wrong on command, and by chance.

use std::time::Duration;

use crablet_cri_api::{ContainerState, v1};
use crablet_cri_sim::{Chaos, Fault, Latencies, Latency, Method, Settings, Simulator};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::support::{Pod, runtime, status};

#[tokio::test(start_paused = true)]
async fn a_call_fails_when_it_was_told_to() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    simulator.inject(Fault::on(Method::StartContainer).nth(2).fail(Code::Unknown, "no luck"));
    let first = pod.create("first", &["sleep", "1000"]).await;
    let second = pod.create("second", &["sleep", "1000"]).await;
    pod.start(&first).await.unwrap();
    let error = pod.start(&second).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Unknown, "no luck"));
    assert_eq!(status(&simulator, &second).await.state(), v1::ContainerState::ContainerCreated);
    pod.start(&second).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_may_have_its_effect_and_no_answer() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    let id = pod.create("main", &["sleep", "1000"]).await;
    let second = Duration::from_secs(1);
    simulator.inject(Fault::on(Method::StartContainer).times_out_before_effect());
    timeout(second, pod.start(&id)).await.unwrap_err();
    assert_eq!(status(&simulator, &id).await.state(), v1::ContainerState::ContainerCreated);
    simulator.inject(Fault::on(Method::StartContainer).about(&id[..10]).times_out_after_effect());
    timeout(second, pod.start(&id)).await.unwrap_err();
    assert_eq!(status(&simulator, &id).await.state(), v1::ContainerState::ContainerRunning);
    simulator.inject(
        Fault::on(Method::CreateContainer).about("/web/x").fails_after_effect(Code::Internal, "lost"),
    );
    let error = pod.create_with(Pod::container("x", &["true"])).await.unwrap_err();
    assert_eq!(error.message(), "lost");
    assert_eq!(simulator.container_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn containers_outlive_the_runtime() {
    let simulator = Simulator::new(Settings::default());
    let pod = Pod::run(&simulator, "web").await;
    let id = pod.run_container("main", &["sh", "-c", "sleep 5; exit 3"]).await;
    let (stopped, ()) = tokio::join!(pod.stop_container("nope", 0), async { simulator.die() });
    assert_eq!(stopped.unwrap_err().code(), Code::NotFound);
    assert_eq!(pod.start(&id).await.unwrap_err().code(), Code::Unavailable);
    sleep(Duration::from_secs(10)).await;
    simulator.come_back();
    let ended = status(&simulator, &id).await;
    assert_eq!((ended.exit_code, ended.finished_at - ended.started_at), (3, 5_000_000_000));
    // A call that was under way fails.
    let id = pod.run_container("other", &["sh", "-c", "trap '' TERM; sleep 1000"]).await;
    let die = async {
        sleep(Duration::from_secs(1)).await;
        simulator.die();
    };
    let (stopped, ()) = tokio::join!(pod.stop_container(&id, 30), die);
    assert_eq!(stopped.unwrap_err().code(), Code::Unavailable);
    simulator.come_back();
    simulator.inject(Fault::on(Method::RemoveContainer).kills_the_runtime_after_effect());
    assert_eq!(pod.remove_container(&id).await.unwrap_err().code(), Code::Unavailable);
    simulator.come_back();
    assert_eq!(simulator.container_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_take_as_long_as_was_said() {
    let latencies = Latencies::all(Latency::Fixed(Duration::from_millis(5)))
        .with(Method::RunPodSandbox, Latency::Fixed(Duration::from_millis(300)));
    let simulator = Simulator::new(Settings { latencies, ..Settings::default() });
    let before = Instant::now();
    let pod = Pod::run(&simulator, "web").await;
    assert_eq!(before.elapsed(), Duration::from_millis(300));
    pod.status().await;
    assert_eq!(before.elapsed(), Duration::from_millis(305));
    simulator.inject(Fault::on(Method::PodSandboxStatus).takes(Duration::from_secs(2)));
    pod.status().await;
    assert_eq!(before.elapsed(), Duration::from_millis(2310));
}

#[tokio::test(start_paused = true)]
async fn calls_are_recorded() {
    let simulator = Simulator::new(Settings { remembered_calls: 3, ..Settings::default() });
    let pod = Pod::run(&simulator, "web").await;
    let id = pod.create("main", &["true"]).await;
    pod.start(&id).await.unwrap();
    let calls: Vec<(Method, String)> =
        simulator.calls().into_iter().map(|call| (call.method, call.subject)).collect();
    assert_eq!(
        calls,
        [
            (Method::RunPodSandbox, "default/web".to_owned()),
            (Method::CreateContainer, "default/web/main".to_owned()),
            (Method::StartContainer, id.clone()),
        ]
    );
    status(&simulator, &id).await;
    assert_eq!(simulator.calls().len(), 3);
    assert_eq!(simulator.count_calls(Method::RunPodSandbox), 0);
    simulator.forget_calls();
    assert!(simulator.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_runtime_says_that_it_is_not_ready() {
    let simulator = Simulator::new(Settings::default());
    simulator.set_runtime_ready(Err(("Broken", "by the test")));
    let request = v1::StatusRequest { verbose: false };
    let answer = runtime(&simulator).status(request).await.unwrap().into_inner();
    let conditions = answer.status.unwrap().conditions;
    assert_eq!((conditions[0].status, conditions[0].reason.as_str()), (false, "Broken"));
    assert!(conditions[1].status);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_run() {
    async fn run(seed: u64) -> (Vec<String>, Duration) {
        let chaos = Chaos { call_fails: 0.2, ..Chaos::default() };
        let latencies = Latencies::all(Latency::Uniform(Duration::ZERO, Duration::from_millis(50)));
        let simulator = Simulator::new(Settings { seed, chaos, latencies, ..Settings::default() });
        let before = Instant::now();
        let mut told = Vec::new();
        for number in 0..20 {
            match Pod::run_with(&simulator, Pod::config(&format!("pod-{number}"))).await {
                Err(error) => told.push(error.to_string()),
                Ok(pod) => match pod.create_with(Pod::container("main", &["true"])).await {
                    Err(error) => told.push(error.to_string()),
                    Ok(id) => told.push(format!("{id} {:?}", pod.start(&id).await.err())),
                },
            }
        }
        let ended = simulator.containers().into_iter().filter(|one| one.state == ContainerState::Exited);
        told.push(ended.count().to_string());
        (told, before.elapsed())
    }
    assert_eq!(run(5).await, run(5).await);
    assert_ne!(run(5).await, run(6).await);
}
