//! The Go kubelet and crablet in each other's place under live pods, again and again: `make swap GO_KUBELET=…`.
//!
//! Whatever happens to a pod is seen from outside: in a watch of the API server, in the runtime, in the mount table, and in
//! what a CSI driver is asked. Crablet must change nothing when it takes over, nor leave anything that makes the Go
//! kubelet change more than it does when it is restarted alone, which is measured first.

mod pods;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crablet_cri::Runtime as _;
use crablet_cri_api::{ContainerFilter, ContainerState, SandboxFilter};
use crablet_csi::stand_in::{Capability, LocalVolumes, Settings, StandIn};
use crablet_testkit::{Daemon, eventually};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::cluster::Server;
use crate::csi::{put, put_claim};
use crate::program::kubectl;
use crate::service::{PODS, ask, awaits_node, create};
use crate::world::{PATIENCE, PROGRAM, World};

use pods::{manifests, pods};

const DRIVER: &str = "stand-in.csi.example.com";
/// For how long one is watched after it took over: more than any probe, relist or status takes to come.
const WATCHED: Duration = Duration::from_secs(15);
/// Pods that have something to do, whoever runs them.
const RESTLESS: [&str; 3] = ["loops", "stops", "pulls"];

/// What is the same for as long as nobody touches a pod.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    uid: String,
    phase: String,
    ready: bool,
    /// Of each container, and how often it was restarted.
    containers: Vec<(String, u64)>,
}

impl Seen {
    fn of(pod: &Value) -> Seen {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let statuses = ["containerStatuses", "initContainerStatuses"];
        let statuses = statuses.iter().filter_map(|list| pod["status"][*list].as_array()).flatten();
        Seen {
            uid: text(&pod["metadata"]["uid"]),
            phase: text(&pod["status"]["phase"]),
            ready: conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"),
            containers: statuses
                .map(|one| (text(&one["containerID"]), one["restartCount"].as_u64().unwrap_or_default()))
                .collect(),
        }
    }
}

/// All that can be seen from outside, at one moment.
#[derive(Debug, Default, PartialEq)]
struct Outside {
    sandboxes: BTreeSet<String>,
    running: BTreeSet<String>,
    /// Mounts in the kubelet's directory, by their place and the kernel's number.
    mounts: BTreeMap<String, String>,
}

/// What happened while one was watched.
#[derive(Debug, Default, Clone, PartialEq)]
struct Happened {
    restarts: Vec<String>,
    flips: Vec<String>,
    /// Mirrors and pods that were replaced, and other phases.
    replaced: Vec<String>,
    sandboxes: Vec<String>,
    remounts: Vec<String>,
    /// What the driver was asked for.
    asked: Vec<String>,
    events: Vec<String>,
}

impl Happened {
    fn counts(&self) -> [usize; 7] {
        let Happened { restarts, flips, replaced, sandboxes, remounts, asked, events } = self;
        [restarts, flips, replaced, sandboxes, remounts, asked, events].map(Vec::len)
    }
}

struct Swap {
    world: World,
    server: Server,
    driver: StandIn,
    kubelet: Option<Daemon>,
    /// What the API server tells of pods, a line each.
    watch: Daemon,
    heard: usize,
    pods: BTreeMap<String, Seen>,
    /// Whether each is ready, as its probes find.
    right: BTreeMap<String, bool>,
    before: Outside,
    events: BTreeMap<(String, String), u64>,
    asked: usize,
    /// How often streams were opened.
    streams: usize,
}

impl Swap {
    fn is_restless(name: &str) -> bool {
        RESTLESS.contains(&name)
    }

    async fn outside(&self) -> Outside {
        let sandboxes = self.world.client.list_sandboxes(SandboxFilter::default()).await.unwrap();
        let containers = self.world.client.list_containers(ContainerFilter::default()).await.unwrap();
        let is_steady = |name: Option<&String>| name.is_some_and(|name| !Swap::is_restless(name));
        let running = containers.into_iter().filter(|container| {
            container.state == ContainerState::Running
                && is_steady(container.labels.get("io.kubernetes.pod.name"))
        });
        let root = self.world.node.root().display().to_string();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ');
            let (number, place) = (fields.next()?, fields.nth(3)?);
            place.starts_with(&root).then(|| (place.to_owned(), number.to_owned()))
        });
        Outside {
            sandboxes: sandboxes.into_iter().map(|sandbox| sandbox.id).collect(),
            running: running.map(|container| container.id).collect(),
            mounts: mounts.collect(),
        }
    }

    async fn said(&self) -> BTreeMap<(String, String), u64> {
        let events =
            ask(&self.server.data, "/api/v1/namespaces/default/events?limit=2000", &[]).await.unwrap();
        let mut said = BTreeMap::new();
        for event in events["items"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = text(&event["involvedObject"]["name"]);
            // Probes that fail go on to.
            let is_probe = event["reason"] == "Unhealthy";
            if event["involvedObject"]["kind"] == "Pod" && !is_probe && !Swap::is_restless(&name) {
                let about = (name, format!("{}: {}", text(&event["reason"]), text(&event["message"])));
                *said.entry(about).or_default() += event["count"].as_u64().unwrap_or(1);
            }
        }
        said
    }

    /// What was asked of the driver for volumes.
    fn asked(&self) -> Vec<String> {
        let calls = self.driver.calls();
        let of_volumes = calls.iter().filter(|call| call.call.ends_with("Volume"));
        of_volumes.map(|call| call.call.to_string()).collect()
    }

    /// Takes what is there now for what is to stay.
    async fn settle(&mut self) {
        self.heard = self.lines().len();
        let pods = ask(&self.server.data, PODS, &[]).await.unwrap();
        let pods = pods["items"].as_array().unwrap().clone();
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
        self.pods = pods.iter().map(|pod| (name(pod), Seen::of(pod))).collect();
        self.before = self.outside().await;
        self.events = self.said().await;
        self.asked = self.asked().len();
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.world.node.path("watch.log")).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// A command and a follower of a log that are under way.
    async fn open_streams(&mut self) -> [Daemon; 2] {
        self.streams += 1;
        let kubeconfig = self.server.data.join("admin.conf").display().to_string();
        let home = self.server.data.display().to_string();
        let mut open = Vec::new();
        let command = ["exec", "plain-1", "--", "sh", "-c", "echo begun; sleep 100"].as_slice();
        for (name, arguments) in [("exec", command), ("logs", &["logs", "--follow", "plain-2"])] {
            let log = self.world.node.path(&format!("{name}-{}.log", self.streams));
            let arguments = ["--kubeconfig", &kubeconfig].into_iter().chain(arguments.iter().copied());
            let stream = Daemon::spawn(&kubectl(), arguments, [("HOME", home.as_str())], &log).await.unwrap();
            eventually("the stream has begun", PATIENCE, || async {
                let said = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
                if said.contains("begun") { Ok(()) } else { Err(said) }
            })
            .await
            .unwrap();
            open.push(stream);
        }
        open.try_into().unwrap_or_else(|_| unreachable!("there are two"))
    }

    /// Ends the kubelet under open streams. They end with it; what they are of does not, which is looked at later.
    async fn end(&mut self, is_killed: bool) {
        let streams = self.open_streams().await;
        let mut kubelet = self.kubelet.take().unwrap();
        if is_killed {
            kubelet.kill()
        } else {
            kubelet.terminate()
        }
        kubelet.wait().await.unwrap();
        for stream in &streams {
            eventually("the stream has ended", PATIENCE, || async {
                stream.exit().map(drop).ok_or_else(|| stream.log_tail())
            })
            .await
            .unwrap();
        }
    }

    /// Has one of them run the node, and watches what happens then.
    async fn watched(&mut self, program: &Path) -> Happened {
        self.kubelet = Some(self.world.node.spawn_as(program).await.unwrap());
        let expected = self.pods.len();
        eventually("it knows all pods", PATIENCE, || async {
            let pods = self.world.node.pods().await.map_err(|error| format!("{error:#}"))?;
            let kubelet = self.kubelet.as_ref().unwrap();
            match pods.len() >= expected {
                true => Ok(()),
                false => Err(format!("{} pods of {expected}\n{}", pods.len(), kubelet.log_tail())),
            }
        })
        .await
        .unwrap();
        tokio::time::sleep(WATCHED).await;
        self.happened().await
    }

    async fn happened(&mut self) -> Happened {
        assert_eq!(self.watch.exit(), None, "the watch goes on");
        let mut happened = Happened::default();
        for line in &self.lines()[self.heard..] {
            let pod = &line["object"];
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if line["type"] == "DELETED" {
                happened.replaced.push(format!("{name} was deleted"));
            }
            let now = Seen::of(pod);
            let Some(before) = self.pods.insert(name.clone(), now.clone()) else {
                happened.replaced.push(format!("{name} is new"));
                continue;
            };
            if (&before.uid, &before.phase) != (&now.uid, &now.phase) && !Swap::is_restless(&name) {
                happened
                    .replaced
                    .push(format!("{name}: {} {} is {} {}", before.uid, before.phase, now.uid, now.phase));
            }
            // What the Go kubelet leaves wrong may be put right.
            let is_right = self.right.get(&name).is_none_or(|right| *right == now.ready);
            if before.ready != now.ready && !is_right && !Swap::is_restless(&name) {
                happened.flips.push(format!("{name} is ready: {}", now.ready));
            }
            if Swap::is_restless(&name) {
                // It may have been restarted; nobody forgets how often.
                for (before, now) in before.containers.iter().zip(&now.containers) {
                    if now.1 < before.1 {
                        happened.restarts.push(format!("{name}: {} of {} restarts", now.1, before.1));
                    }
                }
            } else if before.containers != now.containers {
                happened.restarts.push(format!("{name}: {:?} is {:?}", before.containers, now.containers));
            }
        }
        let now = self.outside().await;
        let differ = |before: &BTreeSet<String>, now: &BTreeSet<String>| -> Vec<String> {
            before.symmetric_difference(now).cloned().collect()
        };
        happened.sandboxes = differ(&self.before.sandboxes, &now.sandboxes);
        happened.restarts.extend(differ(&self.before.running, &now.running));
        let places: BTreeSet<&String> = self.before.mounts.keys().chain(now.mounts.keys()).collect();
        let other =
            places.into_iter().filter(|place| self.before.mounts.get(*place) != now.mounts.get(*place));
        happened.remounts = other.cloned().collect();
        happened.asked = self.asked().split_off(self.asked);
        let said = self.said().await;
        let more = said.iter().filter(|(about, count)| self.events.get(*about) != Some(*count));
        happened.events = more.map(|((name, what), _)| format!("{name}: {what}")).collect();
        self.settle().await;
        happened
    }
}

async fn begin(go: &Path) -> Swap {
    let mut world = World::start().await;
    world.stop_agent().await;
    let server = match std::env::var_os("KUBEBUILDER_ASSETS") {
        Some(assets) => Server::real(&world, Path::new(&assets)).await,
        None => Server::embedded(&world).await,
    };
    world.node.join(&server.kubeconfig().await);
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    world.node.serve(port, &server.data.join("pki/ca.crt"));
    let root = world.node.root();
    let volumes = Arc::new(LocalVolumes::new(&world.node.path("driver")));
    let settings = Settings { capabilities: vec![Capability::StageUnstageVolume], ..Settings::new(DRIVER) };
    let driver = StandIn::new(settings, volumes as _);
    let registrar = root.join("plugins_registry/stand-in-reg.sock");
    driver.start(&root.join("plugins").join(DRIVER).join("csi.sock"), Some(&registrar)).unwrap();

    let file = |name: &str| server.data.join("pki").join(name).display().to_string();
    let watched = format!("{}{PODS}?watch=1&timeoutSeconds=20000", server.url());
    let arguments = [
        "--silent",
        "--no-buffer",
        "--cacert",
        &file("ca.crt"),
        "--cert",
        &file("admin.crt"),
        "--key",
        &file("admin.key"),
        &watched,
    ];
    let log = world.node.path("watch.log");
    let watch = Daemon::spawn(Path::new("curl"), arguments, [], &log).await.unwrap();
    for (name, spec) in manifests() {
        world.put(name, &spec);
    }
    let kubelet = Some(world.node.spawn_as(go).await.unwrap());
    let swap = Swap {
        world,
        server,
        driver,
        kubelet,
        watch,
        heard: 0,
        pods: BTreeMap::new(),
        right: BTreeMap::new(),
        before: Outside::default(),
        events: BTreeMap::new(),
        asked: 0,
        streams: 0,
    };
    awaits_node(&swap.server.data).await;

    let of_driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"attachRequired": false},
    });
    put(&swap.server, "/apis/storage.k8s.io/v1/csidrivers", of_driver).await;
    let source = json!({"csi": {"driver": DRIVER, "volumeHandle": "vol-1"}});
    put_claim(&swap.server, "stored", source).await;
    let of_default = |resource: &str| format!("/api/v1/namespaces/default/{resource}");
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"key": "a"}});
    put(&swap.server, &of_default("configmaps"), map).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"}, "stringData": {"key": "a"},
    });
    put(&swap.server, &of_default("secrets"), secret).await;
    for (name, spec) in pods() {
        create(&swap.server.data, name, spec).await;
    }
    eventually("all pods are as they are to stay", PATIENCE * 3, || async {
        let found = ask(&swap.server.data, PODS, &[]).await?;
        let found = found["items"].as_array().cloned().unwrap_or_default();
        let expected = pods().len() + manifests().len();
        let is_settled = |pod: &Value| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let seen = Seen::of(pod);
            match name {
                "unready" | "starting" => seen.phase == "Running",
                "pulls" => seen.phase == "Pending",
                "loops" => seen.containers.first().is_some_and(|(_, restarts)| *restarts >= 3),
                name if name.contains("done") => seen.phase == "Succeeded",
                name if name.contains("failed") => seen.phase == "Failed",
                _ => seen.ready,
            }
        };
        let open: Vec<&Value> =
            found.iter().filter(|pod| !is_settled(pod)).map(|pod| &pod["metadata"]["name"]).collect();
        if open.is_empty() && found.len() == expected {
            Ok(())
        } else {
            Err(format!("{} of {expected}: {open:?}", found.len()))
        }
    })
    .await
    .unwrap();
    swap.server.delete("stops").await;
    swap
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes half an hour and needs the Go kubelet: make swap GO_KUBELET=…"]
async fn swap_of_the_go_kubelet_and_crablet_under_live_pods_changes_nothing() {
    let go = PathBuf::from(std::env::var_os("GO_KUBELET").expect("GO_KUBELET names the Go kubelet"));
    let swaps: usize = std::env::var("SWAPS").map_or(20, |swaps| swaps.parse().unwrap());
    let mut swap = begin(&go).await;
    tokio::time::sleep(WATCHED).await;
    swap.settle().await;
    swap.right = swap.pods.iter().map(|(name, seen)| (name.clone(), seen.ready)).collect();

    // What it does when it is restarted alone: the most of each.
    let mut alone = [0; 7];
    for is_killed in [false, true] {
        swap.end(is_killed).await;
        let happened = swap.watched(&go).await;
        println!("Go alone, killed {is_killed}: {:?}\n{happened:#?}", happened.counts());
        for (most, count) in alone.iter_mut().zip(happened.counts()) {
            *most = count.max(*most);
        }
    }

    let mut problems = Vec::new();
    for number in 0..swaps {
        let is_killed = number % 2 == 1;
        swap.end(is_killed).await;
        let there = swap.watched(Path::new(PROGRAM)).await;
        println!("{number}: to crablet, killed {is_killed}: {:?}", there.counts());
        if there != Happened::default() {
            problems.push(format!("{number}, to crablet: {there:#?}"));
        }
        swap.end(is_killed).await;
        let back = swap.watched(&go).await;
        println!("{number}: back to Go, killed {is_killed}: {:?}", back.counts());
        if back.counts().iter().zip(alone).any(|(count, most)| *count > most) {
            problems.push(format!("{number}, back to Go, which alone does {alone:?}: {back:#?}"));
        }
    }
    for problem in &problems {
        println!("{problem}");
    }
    assert!(problems.is_empty(), "{} problems in {swaps} swaps there and back", problems.len());
    swap.kubelet.take();
}
