//! `kill -9` of the agent at random moments, while pods start, run and stop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crablet_cri::{Client, Runtime as _};
use crablet_cri_api::{ContainerFilter, ContainerState, SandboxFilter, SandboxState};
use crablet_testkit::eventually;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::sleep;

use crate::world::{OBEDIENT, PATIENCE, World, container, is_ready, of_one};

/// How often it is looked whether something runs twice.
const GLANCE: Duration = Duration::from_millis(100);

#[tokio::test]
async fn ten_kills_of_the_agent_restart_leak_and_double_nothing_on_containerd() {
    kill_again_and_again(5, 10, 1).await;
}

/// The whole of it, for which `make soak` is there.
#[tokio::test]
#[ignore = "takes some minutes"]
async fn soak_fifty_kills_of_the_agent_restart_leak_and_double_nothing_on_containerd() {
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    kill_again_and_again(20, 50, seed).await;
}

/// Kills agents while manifests come, change and go.
async fn kill_again_and_again(pods: usize, kills: usize, seed: u64) {
    println!("SEED={seed}");
    let mut chance = Chance(seed);
    let mut world = World::start().await;
    let witness = Witness::watch(world.client.clone());
    let names: Vec<String> = (0..pods).map(|number| format!("pod-{number}")).collect();
    let mut churn = Churn { last: 0, versions: BTreeMap::new(), ran: BTreeMap::new() };
    for name in &names {
        churn.put(&world, name);
    }
    for _ in 0..kills {
        // A moment here is what the test is about: not a condition that could be awaited.
        sleep(Duration::from_millis(chance.below(1_500))).await;
        for _ in 0..chance.below(3) {
            churn.change(&world, &names[chance.below(names.len() as u64) as usize], &mut chance);
            sleep(Duration::from_millis(chance.below(500))).await;
        }
        let mut agent = world.agent.take().unwrap();
        agent.kill();
        agent.wait().await.unwrap();
        churn.compare(&world).await;
        if chance.below(3) == 0 {
            churn.change(&world, &names[chance.below(names.len() as u64) as usize], &mut chance);
        }
        world.agent = Some(world.node.spawn().await.unwrap());
    }

    world.agent.take().unwrap().kill();
    world.start_agent().await;
    for (name, version) in &churn.versions {
        // The one before it, of another version, is as ready until its containers have stopped.
        let is_of_version = |pod: &Value| pod["metadata"]["labels"]["version"] == format!("v{version}");
        world.awaits(name, "is ready", |pod| is_of_version(pod) && is_ready(pod)).await;
    }
    churn.compare(&world).await;
    churn.compare(&world).await;
    assert_eq!(churn.ran.len(), churn.versions.len(), "every pod that is wanted runs");

    for name in churn.versions.keys() {
        world.node.take(name).unwrap();
    }
    eventually("all pods are gone", PATIENCE, || async {
        let pods = world.node.pods().await.map_err(|error| error.to_string())?;
        if pods.is_empty() { Ok(()) } else { Err(format!("{} pods", pods.len())) }
    })
    .await
    .unwrap();
    witness.assert_nothing_ran_twice();
    world.assert_nothing_is_left().await;
    world.containerd.stop().await.unwrap();
}

/// What is wanted, and what ran of it.
struct Churn {
    /// The latest version of all.
    last: u64,
    /// The version of each manifest that is there.
    versions: BTreeMap<String, u64>,
    /// The containers that were seen running, of pods whose manifests did not change since.
    ran: BTreeMap<String, Vec<(String, String, Option<Timestamp>)>>,
}

impl Churn {
    /// Puts a manifest that there was not before.
    fn put(&mut self, world: &World, name: &str) {
        self.last += 1;
        let metadata = format!("metadata: {{name: {name}, labels: {{version: v{}}}}}", self.last);
        let manifest = format!("apiVersion: v1\nkind: Pod\n{metadata}\nspec:\n{}", spec(self.last));
        world.node.put(name, &manifest).unwrap();
        self.versions.insert(name.to_owned(), self.last);
        self.ran.remove(name);
    }

    /// Takes a manifest away, brings it back, or makes another of it.
    fn change(&mut self, world: &World, name: &str, chance: &mut Chance) {
        if self.versions.contains_key(name) && chance.below(2) == 0 {
            world.node.take(name).unwrap();
            self.versions.remove(name);
            self.ran.remove(name);
        } else {
            self.put(world, name);
        }
    }

    /// What ran before runs still: the same containers, started when they were.
    async fn compare(&mut self, world: &World) {
        for (name, version) in &self.versions {
            // First: what is up now may not have been a moment ago.
            let is_up = is_up(world, name, *version).await;
            let mut runs = world.containers_of(name).await;
            runs.retain(|(name, _, started)| name == "main" && started.is_some());
            match self.ran.get(name) {
                Some(ran) => assert_eq!(&runs, ran, "of pod {name}"),
                None if is_up => drop(self.ran.insert(name.clone(), runs)),
                None => {}
            }
        }
    }
}

/// Whether a pod of this name has a container that runs, and is of this version: one that is to go may still run.
async fn is_up(world: &World, name: &str, version: u64) -> bool {
    let label = ("io.kubernetes.pod.name".to_owned(), format!("{name}-node"));
    let labels = BTreeMap::from([label]);
    let sandboxes = SandboxFilter { labels: labels.clone(), ..SandboxFilter::default() };
    let sandboxes = world.client.list_sandboxes(sandboxes).await.unwrap();
    let version = format!("v{version}");
    let is_current = sandboxes.iter().all(|sandbox| sandbox.labels.get("version") == Some(&version));
    let running =
        ContainerFilter { labels, state: Some(ContainerState::Running), ..ContainerFilter::default() };
    let running = world.client.list_containers(running).await.unwrap();
    is_current && running.iter().any(|container| container.name == "main")
}

/// Specs that differ, by their number.
fn spec(version: u64) -> String {
    let main = format!(": {version}; {OBEDIENT}");
    match version % 3 {
        0 => of_one(&main),
        1 => {
            let init = container("init", "sleep 0.2");
            format!("  initContainers:\n{init}  containers:\n{}", container("main", &main))
        }
        _ => {
            let sidecar = container("sidecar", OBEDIENT);
            let main = container("main", &main);
            format!("  initContainers:\n{sidecar}    restartPolicy: Always\n  containers:\n{main}")
        }
    }
}

/// Who looks all the time whether something runs twice.
struct Witness(Arc<Mutex<Vec<String>>>);

impl Witness {
    fn watch(client: Client) -> Witness {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let witness = Witness(Arc::clone(&seen));
        tokio::spawn(async move {
            loop {
                let twice = running_twice(&client).await;
                seen.lock().unwrap().extend(twice);
                sleep(GLANCE).await;
            }
        });
        witness
    }

    fn assert_nothing_ran_twice(&self) {
        assert_eq!(*self.0.lock().unwrap(), Vec::<String>::new());
    }
}

async fn running_twice(client: &Client) -> Vec<String> {
    let mut live: BTreeMap<String, usize> = BTreeMap::new();
    let running = ContainerFilter { state: Some(ContainerState::Running), ..ContainerFilter::default() };
    for container in client.list_containers(running).await.unwrap_or_default() {
        let key = format!("{} of {:?}", container.name, container.labels.get("io.kubernetes.pod.uid"));
        *live.entry(key).or_default() += 1;
    }
    let ready = SandboxFilter { state: Some(SandboxState::Ready), ..SandboxFilter::default() };
    for sandbox in client.list_sandboxes(ready).await.unwrap_or_default() {
        *live.entry(format!("the sandbox of {}", sandbox.metadata.uid)).or_default() += 1;
    }
    live.into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|(key, count)| format!("{count} times {key}"))
        .collect()
}

/// What follows from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
