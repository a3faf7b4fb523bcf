//! Lives of pods.

use std::time::Duration;

use crablet_cri::Runtime as _;
use crablet_testkit::eventually;
use serde_json::Value;
use tokio::time::Instant;

use crate::world::{Ear, OBEDIENT, PATIENCE, World, container, container_status, is_ready, of_one, without};

#[tokio::test]
async fn pods_run_finish_fail_and_say_why_on_containerd() {
    let world = World::start().await;
    world.put("runs", &of_one(OBEDIENT));
    let two = format!(
        "  initContainers:\n{}{}  containers:\n{}",
        container("first", "sleep 0.2"),
        container("second", "sleep 0.2"),
        container("main", OBEDIENT)
    );
    world.put("init", &two);
    world.put("done", &format!("  restartPolicy: Never\n{}", of_one("exit 0")));
    world.put(
        "failed",
        &format!("  restartPolicy: Never\n{}", of_one("echo last words > /dev/termination-log; exit 3")),
    );
    world.put("done-on-failure", &format!("  restartPolicy: OnFailure\n{}", of_one("exit 0")));
    world.put("crashes", &of_one("echo why > /dev/termination-log; exit 1"));
    world.put("no-image", &of_one(OBEDIENT).replace("busybox:1", "absent:1"));
    world.put("no-command", &of_one("").replace("/bin/sh", "/bin/absent"));
    world.put("deadline", &format!("  activeDeadlineSeconds: 2\n{}", of_one(OBEDIENT)));
    let with_sidecar = format!(
        "  restartPolicy: Never\n  initContainers:\n{}    restartPolicy: Always\n  containers:\n{}",
        container("sidecar", OBEDIENT),
        container("main", "sleep 0.5")
    );
    world.put("sidecar", &with_sidecar);
    world.node.put("broken", "apiVersion: v1\nkind: Pod\nmetadata: {name: broken\n").unwrap();

    let pod = world.awaits("runs", "is ready", is_ready).await;
    let containers = world.containers_of("runs").await;
    let id = container_status(&pod, "main")["containerID"].as_str().unwrap();
    assert_eq!(id, format!("containerd://{}", containers[0].1));
    assert!(pod["status"]["podIP"].as_str().unwrap().starts_with("10."), "{pod}");

    world.awaits("init", "is ready", is_ready).await;
    let mut times = Vec::new();
    for name in ["first", "second", "main"] {
        let containers = world.containers_of("init").await;
        let (_, id, _) = containers.iter().find(|(other, ..)| other == name).unwrap();
        let status = world.client.container_status(id).await.unwrap();
        times.extend([status.started_at, status.finished_at]);
    }
    assert!(times[..5].is_sorted() && times[..5].iter().all(Option::is_some), "{times:?}");

    world.awaits_phase("done", "Succeeded").await;
    world.awaits_phase("done-on-failure", "Succeeded").await;
    let pod = world.awaits_phase("failed", "Failed").await;
    let terminated = &container_status(&pod, "main")["state"]["terminated"];
    assert_eq!((&terminated["exitCode"], &terminated["message"]), (&3.into(), &"last words\n".into()));

    let in_back_off = |pod: &Value| {
        container_status(pod, "main")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
            && container_status(pod, "main")["restartCount"].as_u64() >= Some(1)
    };
    let pod = world.awaits("crashes", "waits before its next restart", in_back_off).await;
    assert_eq!(container_status(&pod, "main")["lastState"]["terminated"]["message"], "why\n");
    assert_eq!(pod["status"]["phase"], "Running");

    let waits_for = |reason: &'static str| {
        move |pod: &Value| container_status(pod, "main")["state"]["waiting"]["reason"] == reason
    };
    world.awaits("no-image", "waits for its image", waits_for("ErrImageNeverPull")).await;
    let is_refused =
        |pod: &Value| ["RunContainerError", "CrashLoopBackOff"].iter().any(|reason| waits_for(reason)(pod));
    world.awaits("no-command", "cannot run its command", is_refused).await;

    let pod = world.awaits_phase("deadline", "Failed").await;
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");

    let pod = world.awaits_phase("sidecar", "Succeeded").await;
    let finished = |name: &str| container_status(&pod, name)["state"]["terminated"]["finishedAt"].to_string();
    assert!(finished("sidecar") >= finished("main"), "{pod:#}");

    let complaint = world.node.manifest("broken").display().to_string();
    eventually("the broken manifest is named in the log", PATIENCE, || async {
        let log = world.node.log();
        if log.contains(&complaint) { Ok(()) } else { Err(log) }
    })
    .await
    .unwrap();
    assert!(is_ready(&world.node.pod("runs").await.unwrap().unwrap()));

    world.take_all().await;
    world.assert_nothing_is_left().await;
    world.containerd.stop().await.unwrap();
}

#[tokio::test]
async fn what_a_container_wrote_before_its_restart_can_be_read_on_containerd() {
    let mut world = World::start().await;
    let script =
        format!("if [ -e /kept/ran ]; then echo second; {OBEDIENT}; fi; touch /kept/ran; echo first; exit 1");
    let mounts =
        "    volumeMounts: [{name: kept, mountPath: /kept}]\n  volumes: [{name: kept, emptyDir: {}}]\n";
    world.put("restarts", &format!("{}{mounts}", of_one(&script)));
    let runs_again =
        |pod: &Value| is_ready(pod) && container_status(pod, "main")["restartCount"].as_u64() == Some(1);
    world.awaits("restarts", "runs again", runs_again).await;
    assert_eq!(world.prints("logs", &["restarts"]).await, "second\n");
    assert_eq!(world.prints("logs", &["--previous", "restarts"]).await, "first\n");
    world.stop_agent().await;
    world.start_agent().await;
    world.awaits("restarts", "is shown by the next agent", runs_again).await;
    assert_eq!(world.prints("logs", &["--previous", "restarts"]).await, "first\n");
    world.take_all().await;
    world.assert_nothing_is_left().await;
    world.containerd.stop().await.unwrap();
}

#[tokio::test]
async fn pods_stop_in_their_order_and_within_their_time_on_containerd() {
    let world = World::start().await;
    let ear = Ear::open().await;
    let last_word = |word: &str, takes: &str| {
        format!("trap 'sleep {takes}; {}; exit 0' TERM; while :; do sleep 0.05; done", ear.say(word))
    };
    let in_host_network = "  hostNetwork: true\n";
    let ordered = format!(
        "{in_host_network}  initContainers:\n{}    restartPolicy: Always\n{}    restartPolicy: Always\n  containers:\n{}",
        container("one", &last_word("sidecar-one", "0")),
        container("two", &last_word("sidecar-two", "0")),
        container("main", &last_word("main", "0.5")),
    );
    world.put("ordered", &ordered);
    let hook = format!(
        "{in_host_network}{}    lifecycle: {{preStop: {{exec: {{command: [/bin/sh, -c, \"{}\"]}}}}}}\n",
        of_one(&last_word("after-hook", "0")),
        ear.say("hook"),
    );
    world.put("hook", &hook);
    world.put(
        "deaf",
        &format!(
            "  terminationGracePeriodSeconds: 3\n{}",
            of_one("trap '' TERM; while :; do sleep 0.05; done")
        ),
    );
    world.put("obedient", &of_one(OBEDIENT));
    let version = |number: usize| {
        let script = format!(
            "trap 'sleep 0.5; {}; exit 0' TERM; {}; while :; do sleep 0.05; done",
            ear.say(&format!("end-{number}")),
            ear.say(&format!("begin-{number}"))
        );
        format!("{in_host_network}{}", of_one(&script))
    };
    world.put("edited", &version(1));
    for name in ["ordered", "hook", "deaf", "obedient", "edited"] {
        world.awaits(name, "is ready", is_ready).await;
    }
    let first = world.node.pod("edited").await.unwrap().unwrap();

    ear.hears("begin-1").await;
    world.put("edited", &version(2));
    let (obedient, deaf) = (Instant::now(), Instant::now());
    for name in ["ordered", "hook", "obedient", "deaf"] {
        world.node.take(name).unwrap();
    }
    world.awaits_end("obedient").await;
    let obedient = obedient.elapsed();
    assert!(obedient < Duration::from_secs(20), "it had 30 s and needed none, and took {obedient:?}");
    world.awaits_end("deaf").await;
    let deaf = deaf.elapsed();
    assert!(deaf >= Duration::from_secs(3), "it was killed after {deaf:?}, and had 3 s");
    world.awaits_end("ordered").await;
    world.awaits_end("hook").await;
    let order = ear.order(&["main", "sidecar-two", "sidecar-one"]);
    assert!(order.is_sorted() && order.iter().all(Option::is_some), "{:?}", ear.heard());
    let order = ear.order(&["hook", "after-hook"]);
    assert!(order.is_sorted() && order.iter().all(Option::is_some), "{:?}", ear.heard());

    ear.hears("begin-2").await;
    let order = ear.order(&["begin-1", "end-1", "begin-2"]);
    assert!(order.is_sorted() && order.iter().all(Option::is_some), "{:?}", ear.heard());
    let second = world.awaits("edited", "is ready", is_ready).await;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    world.node.take("edited").unwrap();
    world.awaits_end("edited").await;
    world.assert_nothing_is_left().await;
    world.containerd.stop().await.unwrap();
}

#[tokio::test]
async fn pods_outlive_the_agent_and_containerd_on_containerd() {
    let mut world = World::start().await;
    world.put("stays", &of_one(OBEDIENT));
    let with_init = format!(
        "  initContainers:\n{}  containers:\n{}",
        container("init", "exit 0"),
        container("main", OBEDIENT)
    );
    world.put("stays-after-init", &with_init);
    world.put("done", &format!("  restartPolicy: Never\n{}", of_one("exit 0")));
    world.put("orphan", &of_one(OBEDIENT));
    for name in ["stays", "stays-after-init", "orphan"] {
        world.awaits(name, "is ready", is_ready).await;
    }
    world.awaits_phase("done", "Succeeded").await;
    let before = world.pods_and_containers().await;

    world.stop_agent().await;
    world.node.take("orphan").unwrap();
    world.start_agent().await;
    world.awaits_end("orphan").await;
    world.awaits_phase("done", "Succeeded").await;
    assert_eq!(world.pods_and_containers().await, without(&before, "orphan"));

    world.agent.take().unwrap().kill();
    world.start_agent().await;
    // Each is shown when its own worker has looked.
    for name in ["stays", "stays-after-init"] {
        world.awaits(name, "is ready", is_ready).await;
    }
    world.awaits_phase("done", "Succeeded").await;
    assert_eq!(world.pods_and_containers().await, without(&before, "orphan"));

    world.containerd.restart().await.unwrap();
    // The agent works with the one that was started again: that shows when a pod is made.
    world.put("later", &of_one(OBEDIENT));
    world.awaits("later", "is ready", is_ready).await;
    world.node.take("later").unwrap();
    world.awaits_end("later").await;
    assert_eq!(world.pods_and_containers().await, without(&before, "orphan"));

    for name in ["stays", "stays-after-init", "done"] {
        world.node.take(name).unwrap();
        world.awaits_end(name).await;
    }
    world.assert_nothing_is_left().await;
    world.containerd.stop().await.unwrap();
}
