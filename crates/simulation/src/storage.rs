//! The storage of a cluster and a node: claims and what is behind them, CSI drivers, and the machine that they mount on.
//!
//! ```text
//!   agent ── Csi ──stage, publish, …──► SimulatedDriver ──mounts──┐
//!             └──files, is it mounted?──────────────────────► SimulatedMachine
//! ```
//!
//! The agent's part is the real one. Before each thing that it does to a file, and before and after each effect of a
//! driver, is a step at which [`Deaths`] may end the agent, the drivers or the node.

mod deaths;
mod driver;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crablet_api::core::{Pod, Volume, VolumeMount, VolumeSource};
use crablet_csi::PluginHandler as _;
use crablet_volumes::{Attachments, Contents, Csi, Places, SimulatedMachine, used_volumes};
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::crash::Crash;
use crate::invariants::check_touched;
use crate::ledger::Ledger;
use crate::lies::Lie;
use crate::random::Random;
use crate::world::NODE;
pub use deaths::{Deaths, Victim};
pub use driver::{SimulatedDriver, Trouble};

const ROOT: &str = "/var/lib/kubelet";
const CSI: &str = "kubernetes.io~csi";

/// What kinds of drivers there are.
const DRIVERS: [Kind; 3] = [
    Kind { name: "staging.csi.example.com", stages: true, attach_required: false },
    Kind { name: "attached.csi.example.com", stages: true, attach_required: true },
    Kind { name: "plain.csi.example.com", stages: false, attach_required: false },
];

/// The claims in the cluster, each with the driver of the volume behind it.
const CLAIMS: [(&str, Kind); 4] =
    [("a", DRIVERS[0]), ("b", DRIVERS[0]), ("c", DRIVERS[1]), ("d", DRIVERS[2])];

/// What a driver is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    name: &'static str,
    stages: bool,
    attach_required: bool,
}

/// The storage of a run. It outlives agents.
pub struct Storage {
    pub machine: SimulatedMachine,
    pub drivers: Vec<SimulatedDriver>,
    pub deaths: Arc<Deaths>,
    places: Places,
}

impl Storage {
    /// That of a cluster which has none yet.
    pub fn new(seed: u64, server: &ApiServer, ledger: &Arc<Ledger>, lie: Option<Lie>) -> Storage {
        let machine = SimulatedMachine::default();
        machine.make(Path::new(ROOT));
        let deaths = Arc::new(Deaths::new(Arc::clone(ledger)));
        let drivers: Vec<SimulatedDriver> = (0..)
            .zip(DRIVERS)
            .map(|(index, kind)| {
                let random = Random::new(seed, 20 + index);
                SimulatedDriver::new(
                    kind,
                    random,
                    machine.clone(),
                    server.clone(),
                    Arc::clone(&deaths),
                    Arc::clone(ledger),
                    lie,
                )
            })
            .collect();
        deaths.set_drivers(drivers.iter().map(SimulatedDriver::process).collect());
        // The volumes of one that says nothing of itself the server attaches.
        for kind in DRIVERS.iter().filter(|kind| !kind.attach_required) {
            let spec = json!({"attachRequired": false, "volumeLifecycleModes": ["Persistent", "Ephemeral"]});
            create(
                server,
                "/apis/storage.k8s.io/v1/csidrivers",
                json!({"metadata": {"name": kind.name}, "spec": spec}),
            );
        }
        for (claim, driver) in CLAIMS {
            let (capacity, modes) = (json!({"storage": "1Gi"}), json!(["ReadWriteMany"]));
            let volume = json!({
                "metadata": {"name": volume_of(claim)},
                "spec": {
                    "capacity": capacity, "accessModes": modes, "storageClassName": "",
                    "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": claim},
                    "csi": {"driver": driver.name, "volumeHandle": handle_of(claim)},
                },
            });
            create(server, "/api/v1/persistentvolumes", volume);
            let claim = json!({
                "metadata": {"name": claim},
                "spec": {
                    "accessModes": modes, "resources": {"requests": capacity}, "storageClassName": "",
                    "volumeName": volume_of(claim),
                },
            });
            create(server, "/api/v1/namespaces/default/persistentvolumeclaims", claim);
        }
        Storage { machine, drivers, deaths, places: Places::new(ROOT) }
    }

    /// The machine begins anew, and what drivers were about to do is never done.
    pub fn reboot(&self) {
        for driver in self.drivers.iter().filter(|driver| driver.process().borrow().is_up) {
            driver.die();
            driver.come_back();
        }
        self.machine.reboot();
    }

    /// What asks drivers, for an agent that begins.
    pub fn open(&self, contents: Arc<dyn Contents>, crash: &Arc<Crash>, lie: Option<Lie>) -> Csi {
        if lie == Some(Lie::NoVolumesOfDrivers) {
            let pods = Path::new(ROOT).join("pods");
            let written =
                self.machine.below(&pods).into_iter().filter(|path| path.ends_with("vol_data.json"));
            written.for_each(|path| self.machine.remove_place(&path));
            self.machine.hide_others();
        }
        self.deaths.set_agent(crash);
        let machine = Arc::new(self.machine.clone());
        machine.forget_agent();
        let csi = Csi::open_on(machine, Path::new(ROOT), NODE, contents, Attachments::default());
        let deaths = Arc::clone(&self.deaths);
        self.machine.set_agent(move || deaths.agent_may_go_on());
        csi
    }

    /// Tells an agent of drivers as they come and go, for as long as it is polled.
    pub fn registry(&self, csi: Csi) -> impl Future<Output = ()> + Send + 'static {
        let all = self.drivers.iter().map(|driver| register(csi.clone(), driver.clone())).collect::<Vec<_>>();
        async { drop(join_all(all).await) }
    }

    /// Removes what is left of a pod whose volumes were taken away. Nothing of it may be mounted.
    pub(crate) fn remove_pod(&self, ledger: &Ledger, uid: &str) {
        check_touched(ledger, self);
        let pod = self.places.pod(uid);
        if let Some(place) = self.machine.mounts().into_keys().find(|place| place.starts_with(&pod)) {
            let what = format!("the volumes of {uid} are taken away, and one is at {}", place.display());
            return ledger.broken(&mut ledger.state(), 17, what);
        }
        self.machine.below(&pod).iter().for_each(|path| self.machine.remove_place(path));
        self.machine.remove_place(&pod);
    }

    /// The pods of which something is on the disk.
    pub fn pods(&self) -> BTreeSet<String> {
        let pods = Path::new(ROOT).join("pods");
        let below = self.machine.below(&pods).into_iter();
        let name = |path: PathBuf| Some(path.strip_prefix(&pods).ok()?.iter().next()?.to_str()?.to_owned());
        below.filter_map(name).collect()
    }

    /// What is written of volumes that are, or may be, staged.
    pub(crate) fn staged(&self) -> Vec<PathBuf> {
        let mut left = self.machine.below(&self.places.csi());
        left.retain(|path| path.strip_prefix(self.places.csi()).is_ok_and(|rest| rest.iter().count() > 1));
        left
    }

    /// Where the volumes of these pods must be mounted, each with what it is called by its driver.
    pub(crate) fn wanted<'a>(&self, pods: impl Iterator<Item = &'a Pod>) -> BTreeMap<PathBuf, String> {
        let mut wanted = BTreeMap::new();
        for pod in pods {
            for (target, claim) in self.targets(pod) {
                let Some((name, driver)) =
                    CLAIMS.into_iter().find(|(name, _)| claim.as_deref() == Some(*name))
                else {
                    // What the driver calls an inline volume is nobody's business.
                    wanted.insert(target, String::new());
                    continue;
                };
                if driver.stages {
                    let staged = self.places.csi_staged(driver.name, &handle_of(name)).join("globalmount");
                    wanted.insert(staged, handle_of(name));
                }
                wanted.insert(target, handle_of(name));
            }
        }
        wanted
    }

    /// Where the volumes of a pod are published that drivers have, each with its claim, if it has one.
    pub(crate) fn targets(&self, pod: &Pod) -> Vec<(PathBuf, Option<String>)> {
        let used = used_volumes(pod);
        let of_drivers = pod.spec.volumes.iter().filter(|volume| used.contains(volume.name.as_str()));
        let place = |name: &str| self.places.volume(&pod.metadata.uid, CSI, name).join("mount");
        let target = |volume: &Volume| match volume.source.one()? {
            VolumeSource::PersistentVolumeClaim(source) => {
                Some((place(&volume_of(&source.claim_name)), Some(source.claim_name.to_string())))
            }
            VolumeSource::Csi(_) => Some((place(&volume.name), None)),
            _ => None,
        };
        of_drivers.filter_map(target).collect()
    }
}

/// Has a pod use volumes of drivers by chance.
pub(crate) fn with_claims(pod: &Pod, random: &mut Random) -> Pod {
    let mut pod = pod.clone();
    let claims = random.weighted(&[(3, 1), (2, 2), (1, 3)]);
    let mut chosen = BTreeSet::new();
    for _ in 0..claims {
        chosen.insert(random.weighted(&[(3, "a"), (2, "b"), (3, "c"), (1, "d"), (1, "inline")]));
    }
    let volume = |name: &&str| match *name {
        "inline" => json!({"name": "inline", "csi": {"driver": DRIVERS[2].name}}),
        claim => json!({"name": format!("claim-{claim}"), "persistentVolumeClaim": {"claimName": claim}}),
    };
    let volumes = chosen.iter().map(|name| read::<Volume>(volume(name))).collect::<Vec<_>>();
    if let Some(container) = pod.spec.containers.first_mut() {
        let mounts = volumes.iter().map(|volume| {
            read::<VolumeMount>(json!({"name": volume.name, "mountPath": format!("/{}", volume.name)}))
        });
        container.volume_mounts = container.volume_mounts.iter().cloned().chain(mounts).collect();
    }
    pod.spec.volumes = pod.spec.volumes.iter().cloned().chain(volumes).collect();
    pod
}

fn volume_of(claim: &str) -> String {
    format!("volume-{claim}")
}

fn handle_of(claim: &str) -> String {
    format!("handle/of/../{claim}")
}

async fn register(csi: Csi, driver: SimulatedDriver) {
    let mut process = driver.process().subscribe();
    let mut known = None;
    loop {
        let now = *process.borrow_and_update();
        if now.is_up && known != Some(now.generation) {
            match csi.register_node(driver.name(), Arc::new(driver.clone())).await {
                Ok(()) => known = Some(now.generation),
                Err(_) => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
            }
            continue;
        }
        if !now.is_up && !now.has_socket && known.take().is_some() {
            csi.deregister(driver.name()).await;
        }
        // The sender is the driver's own, which is here.
        let _ = process.changed().await;
    }
}

fn create(server: &ApiServer, path: &str, object: Value) {
    let (code, body) = server.ask(Method::POST, path, "application/json", object.to_string().into_bytes());
    assert!(code < 300, "{}", String::from_utf8_lossy(&body));
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap_or_else(|error| panic!("what was just written is read: {error}"))
}
