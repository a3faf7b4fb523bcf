//! A recorded pod, run by the agent on the node of the recordings.

use std::sync::Arc;
use std::time::Duration;

use crablet_agent::agent::{Agent, Parts};
use crablet_agent::allocations::Allocations;
use crablet_agent::images::Access;
use crablet_agent::node_config::NodeConfig;
use crablet_agent::pod_files::{OnDisk, Places};
use crablet_agent::recorder::{Event, EventQueue};
use crablet_agent::sources::{PodConfig, Problems, SourceKind, Wanted};
use crablet_agent::users::Users;
use crablet_api::core::{Node, Pod, PodStatus, ResourceList};
use crablet_api::{FeatureGates, Gate};
use crablet_core::status::{self, to_publish};
use crablet_core::translate::SysctlAllowlist;
use crablet_core::user_ids::UserIds;
use crablet_credentials::{PullRecords, VerificationPolicy};
use crablet_cri::Client;
use crablet_cri::client::Settings;
use crablet_cri_sim::{Asked, Simulator};
use crablet_host::cgroup::SimulatedCgroups;
use crablet_host::checkpoint::SimulatedCheckpoints;
use crablet_host::clock::Clock;
use crablet_host::signals::SimulatedSignals;
use crablet_metrics::Registries;
use crablet_simulation::ledger::Ledger;
use crablet_simulation::room::Room;
use crablet_simulation::trace::Trace;
use crablet_simulation::world::description;
use crablet_volumes::{Contents, HostVolumes, Volumes};
use serde_json::{Map, Value as Json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::compare::with_variables_as_a_map;
use crate::json::to_json;
use crate::node::{self, Cluster, HOST_IP};
use crate::recording::{Programs, Recording, shown_event, sort_events};
use crate::words::{Directories, NODE, UID, as_recorded, text_as_recorded};

/// Recordings were made after 16 seconds or so. Before the first of these a pod may be on its way; after the second
/// it would have been recorded in another state.
const FROM: Duration = Duration::from_secs(5);
const UNTIL: Duration = Duration::from_secs(40);
/// How often the pod is looked at.
const STEP: Duration = Duration::from_millis(100);

/// What was to be seen of a pod at some time, in the form of the recordings.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    pub sandbox: Json,
    pub containers: Json,
    pub status: Json,
    pub events: Json,
}

/// Runs a pod and gives the moments of its life from when it could have been recorded on.
pub fn live(recording: &Recording, cluster: &Arc<Cluster>, programs: Programs) -> Vec<Moment> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(Life::of(recording, cluster, programs))
}

struct Life {
    simulator: Simulator,
    agent: Agent,
    events: EventQueue,
    heard: Vec<Arc<Event>>,
    directories: Directories,
}

impl Life {
    async fn of(recording: &Recording, cluster: &Arc<Cluster>, programs: Programs) -> Vec<Moment> {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        let places = Places { root: place("root"), logs: place("logs"), links: place("links") };
        let directories =
            Directories { root: places.root.display().to_string(), logs: places.logs.display().to_string() };
        for path in [&places.root, &places.logs, &places.links] {
            std::fs::create_dir_all(path).unwrap();
        }
        std::fs::write(places.root.join("resolv.conf"), node::RESOLV_CONF).unwrap();
        let simulator = Simulator::new(recording.runtime());
        recording.faults().into_iter().for_each(|fault| simulator.inject(fault));
        let clock = Clock::simulated(simulator.now());
        let contents: Arc<dyn Contents> = Arc::clone(cluster) as _;
        let volumes: Arc<dyn Volumes> = Arc::new(HostVolumes::new(&places.root, clock.clone(), contents));
        let files = Arc::new(OnDisk::new(places));
        let parts = Parts {
            runtime: Arc::new(Client::in_process("the simulator", simulator.services(), Settings::default())),
            clock: clock.clone(),
            cgroups: Arc::new(SimulatedCgroups::new()),
            users: Users::recall(UserIds::default(), Arc::clone(&files) as _).await.unwrap(),
            files,
            volumes: Arc::clone(&volumes),
            checkpoints: Arc::new(SimulatedCheckpoints::new()),
            allocations: Allocations::new(Arc::new(SimulatedCheckpoints::new())),
            objects: Arc::clone(cluster) as _,
            mirrors: tokio::sync::watch::Sender::default().subscribe(),
            access: Access { records: Some(records(&clock).await), ..Access::default() },
            // There is room for all.
            signals: Arc::new(SimulatedSignals::new()),
            kernel_log: None,
            usage: Arc::new(Room::new(Arc::new(Ledger::new(simulator.clone(), Trace::new(false))))),
            image_records: Arc::new(SimulatedCheckpoints::new()),
            metrics: Registries::default(),
            shutdown: None,
        };
        let (mut config, changes) = PodConfig::new(clock.clone(), Problems::default());
        let feed = config.feed(SourceKind::Api);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let description = recorded_node(&directories);
        let agent = Agent::start(parts, description, changes, &stop, &tasks).await.unwrap();
        tasks.spawn(config.run());
        let mut life =
            Life { events: agent.recorder.queue(), heard: Vec::new(), simulator, agent, directories };

        let neighbour = recording.neighbour().map(Arc::new);
        let tell = |pod: Option<&Pod>| {
            let pods = neighbour.iter().cloned().chain(pod.map(|pod| Arc::new(pod.clone())));
            feed.set(pods.map(|pod| Wanted { pod, origin: "the recording".into() }).collect());
        };
        tell(None);
        tokio::time::sleep(STEP).await;
        let mut pod = recording.pod(programs, clock.now());
        tell(Some(&pod));
        let mut moments: Vec<Moment> = Vec::new();
        let (began, mut changed) = (tokio::time::Instant::now(), true);
        while began.elapsed() < UNTIL {
            tokio::time::sleep(STEP).await;
            let status = life.published(&pod, &clock);
            if status != pod.status {
                pod.status = status;
                tell(Some(&pod));
                changed = true;
            }
            changed |= life.hear();
            if changed && began.elapsed() >= FROM {
                moments.push(life.moment(&pod));
                changed = false;
            }
        }
        stop.cancel();
        for uid in neighbour.iter().map(|pod| &*pod.metadata.uid).chain([UID]) {
            volumes.tear_down(uid).await.unwrap();
        }
        moments
    }

    /// What is written to the API server, as it shows it from then on: quantities, for one, in their usual form.
    fn published(&self, pod: &Pod, clock: &Clock) -> PodStatus {
        let Some(view) = self.agent.statuses.get(UID) else { return pod.status.clone() };
        let lives = self.simulator.containers().iter().any(|container| container.alive);
        let status = to_publish(pod, &view.status, lives, &features(), clock.now());
        serde_json::from_str(&serde_json::to_string(&status).unwrap()).unwrap()
    }

    fn moment(&self, pod: &Pod) -> Moment {
        let mut moment = Moment {
            sandbox: Json::Null,
            containers: Json::Object(Map::new()),
            status: as_recorded(&serde_json::to_value(&pod.status).unwrap(), &self.directories),
            events: Json::Null,
        };
        for asked in self.simulator.asked() {
            match asked {
                Asked::Sandbox(config) => {
                    if config.metadata.as_ref().is_some_and(|metadata| metadata.uid == UID) {
                        moment.sandbox = self.shown("runtime.v1.PodSandboxConfig", &config);
                    }
                }
                Asked::Container(config) => {
                    let name = config.metadata.as_ref().unwrap().name.clone();
                    if config.labels.values().all(|value| value != UID) {
                        continue;
                    }
                    let shown = with_variables_as_a_map(self.shown("runtime.v1.ContainerConfig", &config));
                    let list = moment.containers.as_object_mut().unwrap().entry(name);
                    let list = list.or_insert_with(|| Json::Array(Vec::new())).as_array_mut().unwrap();
                    if list.last() != Some(&shown) {
                        list.push(shown);
                    }
                }
                Asked::SandboxResources(_) => {}
            }
        }
        moment.events = self.events();
        moment
    }

    /// Takes in new events, and says whether there were any.
    fn hear(&mut self) -> bool {
        let before = self.heard.len();
        while let Some(event) = self.events.try_next() {
            let is_it = |heard: &Arc<Event>| {
                (&heard.involved, &heard.reason, &heard.message)
                    == (&event.involved, &event.reason, &event.message)
            };
            if **event.involved.uid() == *UID && !self.heard.iter().any(is_it) {
                self.heard.push(event);
            }
        }
        self.heard.len() > before
    }

    fn events(&self) -> Json {
        let mut events: Vec<Json> = (self.heard.iter())
            .map(|event| {
                let message = text_as_recorded(&event.message, &self.directories);
                shown_event(event.event_type.as_str(), &event.reason, &message)
            })
            .collect();
        sort_events(&mut events);
        events.into()
    }

    fn shown(&self, name: &str, message: &impl prost::Message) -> Json {
        let mut json = as_recorded(&to_json(name, message), &self.directories);
        if let Some(annotations) = json["annotations"].as_object_mut() {
            annotations.retain(|name, _| !name.starts_with(crablet_cri_sim::Program::ANNOTATION));
        }
        json
    }
}

/// Who pulled which images: nobody, since they were there before.
async fn records(clock: &Clock) -> Arc<PullRecords> {
    let store = || Arc::new(SimulatedCheckpoints::new());
    Arc::new(
        PullRecords::open(VerificationPolicy::new(None, []), clock.clone(), store(), store()).await.unwrap(),
    )
}

/// The recordings are of Kubernetes 1.35, where one feature was still off.
fn features() -> FeatureGates {
    FeatureGates::default().with(Gate::InPlacePodLevelResourcesVerticalScaling, false)
}

/// The node that the recordings were made on.
fn recorded_node(directories: &Directories) -> NodeConfig {
    let mut translation = node::node();
    translation.features = features();
    translation.settings.pod_logs_directory.clone_from(&directories.logs);
    translation.settings.seccomp_profile_root = format!("{}/seccomp", directories.root);
    translation.settings.resolv_conf = format!("{}/resolv.conf", directories.root);
    let mut node = Node::default();
    node.metadata.name = NODE.into();
    node.metadata.labels.insert("kubernetes.io/hostname", NODE.into());
    node.metadata.labels.insert("kubernetes.io/os", "linux".into());
    let mut capacity: ResourceList = translation.facts.allocatable.clone();
    for (name, amount) in [("pods", "250"), ("ephemeral-storage", "100Gi")] {
        capacity.insert(name, amount.parse().unwrap());
    }
    node.status.capacity = capacity.clone();
    node.status.allocatable = capacity;
    NodeConfig {
        name: NODE.to_owned(),
        node,
        sysctls: SysctlAllowlist::new(Some((6, 1)), &[] as &[&str]).unwrap(),
        translation,
        status: status::NodeFacts {
            host_ips: vec![HOST_IP.parse().unwrap()],
            runtime_name: "containerd".into(),
            ..status::NodeFacts::default()
        },
        ..description()
    }
}
