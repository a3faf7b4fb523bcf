//! The observer on the simulated runtime, through the client, with what goes wrong by chance.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_cri::observer::{Event, EventKind, Observer, Source};
use crablet_cri::{Client, Runtime, client};
use crablet_cri_api::v1;
use crablet_cri_sim::{Capabilities, Chaos, Settings, Simulator};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::{CONTAINERD, CRI};

const SECOND: Duration = Duration::from_secs(1);

fn client_of(simulator: &Simulator) -> Client {
    let settings = client::Settings { timeout: 5 * SECOND, ..client::Settings::default() };
    Client::in_process("simulator", simulator.services(), settings)
}

/// A runtime with no stream of events at all.
fn without_streams() -> Settings {
    let capabilities =
        Capabilities { cri_events: false, containerd_events: false, ..Capabilities::containerd_1_6() };
    Settings { capabilities, ..Settings::default() }
}

/// Runs a pod with containers that run until something ends them, and gives their IDs.
pub(crate) async fn run_pod(client: &Client, name: &str, containers: usize) -> (String, Vec<String>) {
    let labels = BTreeMap::from([("io.kubernetes.pod.uid".to_owned(), name.to_owned())]);
    let metadata =
        v1::PodSandboxMetadata { name: name.to_owned(), uid: name.to_owned(), ..Default::default() };
    let pod = v1::PodSandboxConfig { metadata: Some(metadata), labels: labels.clone(), ..Default::default() };
    let sandbox_id = client.run_sandbox(&pod, "").await.unwrap();
    let mut ids = Vec::new();
    for number in 0..containers {
        let container = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: format!("c{number}"), attempt: 0 }),
            image: Some(v1::ImageSpec { image: "crablet.test/busybox:1".to_owned(), ..Default::default() }),
            command: ["sh", "-c", "while true; do sleep 1000; done"].map(str::to_owned).into(),
            labels: labels.clone(),
            ..Default::default()
        };
        let id = client.create_container(&sandbox_id, &container, &pod).await.unwrap();
        client.start_container(&id).await.unwrap();
        ids.push(id);
    }
    (sandbox_id, ids)
}

/// What was told of each ID so far, by name, and the codes of exits.
#[derive(Default)]
struct Told {
    kinds: BTreeMap<String, Vec<&'static str>>,
    exits: BTreeMap<String, (i32, bool)>,
    /// All of it, in order.
    all: Vec<String>,
}

impl Told {
    /// Takes what comes until nothing does for a while.
    async fn take(&mut self, events: &mut mpsc::Receiver<Event>, quiet: Duration) {
        while let Ok(event) = timeout(quiet, events.recv()).await {
            let event = event.expect("the observer runs");
            self.all.push(format!("{} {}", event.id, event.kind));
            self.kinds.entry(event.id.to_string()).or_default().push(event.kind.name());
            if let EventKind::ContainerDied(Some(exit)) = event.kind {
                self.exits.insert(event.id.to_string(), (exit.exit_code, exit.out_of_memory));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_life_is_told_by_each_source() {
    let sources = [
        (Settings::containerd_1_7(), CRI),
        (Settings::containerd_1_6(), CONTAINERD),
        (without_streams(), Source::Relist),
    ];
    for (settings, source) in sources {
        let simulator = Simulator::new(Settings { exit_lag: Duration::from_millis(30), ..settings });
        let client = client_of(&simulator);
        let (observer, mut events, status) = Observer::new(Arc::new(client.clone()));
        tokio::spawn(observer.run());
        sleep(2 * SECOND).await;
        assert_eq!(status.borrow().source, source);

        let mut told = Told::default();
        let (sandbox_id, ids) = run_pod(&client, "pod", 2).await;
        told.take(&mut events, 5 * SECOND).await;
        simulator.exit_container(&ids[0], 7);
        simulator.oom(&ids[1]);
        told.take(&mut events, 5 * SECOND).await;
        client.stop_sandbox(&sandbox_id).await.unwrap();
        told.take(&mut events, 5 * SECOND).await;
        client.remove_sandbox(&sandbox_id).await.unwrap();
        told.take(&mut events, 100 * SECOND).await;

        let life = ["ContainerStarted", "ContainerDied", "ContainerRemoved"];
        assert_eq!(told.kinds[&ids[0]], life, "by {source}");
        assert_eq!(told.kinds[&ids[1]], life, "by {source}");
        assert_eq!(
            told.kinds[&sandbox_id],
            ["SandboxStarted", "SandboxStopped", "SandboxRemoved"],
            "by {source}"
        );
        assert_eq!(told.exits, BTreeMap::from([(ids[0].clone(), (7, false)), (ids[1].clone(), (137, true))]));
    }
}

/// Runs pods while things go wrong, ends most of their containers, and checks what was told. Gives all of it, in order.
async fn run_with_chaos(seed: u64) -> Vec<String> {
    let settings = match seed % 3 {
        0 => Settings::containerd_1_7(),
        1 => Settings::containerd_1_6(),
        _ => without_streams(),
    };
    let simulator = Simulator::new(Settings { seed, exit_lag: Duration::from_millis(30), ..settings });
    let client = client_of(&simulator);
    let (observer, mut events, _status) = Observer::new(Arc::new(client.clone()));
    tokio::spawn(observer.run());
    let mut pods = Vec::new();
    for number in 0..3 {
        pods.push(run_pod(&client, &format!("pod-{number}"), 4).await);
    }
    let mut told = Told::default();
    told.take(&mut events, 5 * SECOND).await;
    simulator.set_chaos(Chaos {
        call_fails: 0.2,
        call_times_out_before_effect: 0.05,
        event_is_lost: 0.2,
        event_is_doubled: 0.2,
        event_is_late: 0.3,
        event_delay: 2 * SECOND,
        ..Chaos::default()
    });

    let mut expected = BTreeMap::new();
    for (number, id) in pods.iter().flat_map(|(_, ids)| &ids[..3]).enumerate() {
        match (number as u64 + seed) % 4 {
            0 => simulator.end_streams(),
            1 => simulator.die(),
            _ => {}
        }
        let code = number as i32 + 1;
        assert!(simulator.exit_container(id, code));
        expected.insert(id.clone(), (code, false));
        told.take(&mut events, Duration::from_millis(700 * (seed % 5))).await;
        simulator.come_back();
    }
    told.take(&mut events, 400 * SECOND).await;
    assert_eq!(told.exits, expected, "seed {seed}");
    for (_, ids) in &pods {
        for id in &ids[..3] {
            assert_eq!(told.kinds[id], ["ContainerStarted", "ContainerDied"], "seed {seed}");
        }
        assert_eq!(told.kinds[&ids[3]], ["ContainerStarted"], "seed {seed}: it lives");
    }
    told.all
}

#[tokio::test(start_paused = true)]
async fn whatever_goes_wrong_each_exit_is_told_once() {
    for seed in 0..30 {
        run_with_chaos(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_tells_the_same() {
    for seed in 0..6 {
        assert_eq!(run_with_chaos(seed).await, run_with_chaos(seed).await, "seed {seed}");
    }
}
