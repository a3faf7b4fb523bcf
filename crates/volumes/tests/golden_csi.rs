//! What the Go kubelet asked of a CSI driver, and whether the same is asked when the same happens here: the recordings'
//! objects, a stand-in driver with real mounts, and pods whose volumes are set up and taken away as in the recording.
//!
//! `crates/core/tests/data/golden/csi/README.md` tells how the recordings were made, and what need not be copied. `GOLDEN_DIR`
//! names another folder, whose `csi` has the recordings.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use crablet_api::core::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use crablet_api::storage::{CsiDriver, VolumeAttachment};
use crablet_api::{FeatureGates, Object};
use crablet_core::translate::{NodeContext, NodeFacts, Settings as NodeSettings, Unavailable};
use crablet_csi::stand_in::{Call, Capability, Fault, LocalVolumes, Moment, Settings, StandIn, Trouble};
use crablet_csi::{Code, Driver, Plugin, PluginHandler, PluginRegistry, PluginType, v1};
use crablet_host::clock::Clock;
use crablet_host::loop_device;
use crablet_host::mounts::{MountTable, PROC_SELF_MOUNTINFO, UnmountMode, is_mount_point, unmount};
use crablet_volumes::{
    Attachments, Contents, Csi, HostVolumes, Occurrence, Token, TokenRequest, VolumeEvent, VolumeStats,
    Volumes,
};
use serde_json::{Value as Json, json};
use tokio::task::JoinHandle;

/// How long the driver has that answers too late, instead of the two minutes which no test waits for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What drivers are asked beside what changes something.
const QUESTIONS: [&str; 2] = ["Node.NodeGetCapabilities", "Node.NodeGetVolumeStats"];

/// A recording and the objects in it, and those that have changed since, with every status that a claim had.
struct Recording(Json, Mutex<Changed>);

#[derive(Default)]
struct Changed {
    objects: Vec<Json>,
    claim_statuses: Vec<Json>,
}

impl Recording {
    fn object<T: Object + serde::de::DeserializeOwned>(
        &self,
        is_it: impl Fn(&Json) -> bool,
    ) -> Option<Arc<T>> {
        let changed = self.1.lock().unwrap();
        let found = changed.objects.iter().chain(self.0["objects"].as_array().unwrap());
        let mut found = found.filter(|object| object["kind"] == T::KIND);
        let mut found = found.find(|object| is_it(object))?.clone();
        untimed(&mut found);
        Some(Arc::new(serde_json::from_value(found).unwrap()))
    }

    fn named<T: Object + serde::de::DeserializeOwned>(&self, name: &str) -> Result<Arc<T>, Unavailable> {
        self.object(|object| object["metadata"]["name"] == name).ok_or(Unavailable::NotFound)
    }

    /// Changes the object of a kind, of which there is one.
    fn change(&self, kind: &str, patch: &Json) -> Json {
        let mut changed = self.1.lock().unwrap();
        let recorded = self.0["objects"].as_array().unwrap();
        let recorded = recorded.iter().find(|object| object["kind"] == kind).unwrap();
        let known = changed.objects.iter().position(|object| object["kind"] == kind);
        let mut object = known.map_or(recorded.clone(), |known| changed.objects.remove(known));
        merge(&mut object, patch);
        if kind == "PersistentVolumeClaim" && changed.claim_statuses.last() != Some(&object["status"]) {
            changed.claim_statuses.push(object["status"].clone());
        }
        changed.objects.push(object.clone());
        object
    }

    /// What somebody who resizes pieces of storage, or the claim's owner, does in a step of the recording.
    fn resize(&self, step: &str) {
        match step {
            "PVC request raised to 2Gi" => {
                let requests = json!({"storage": "2Gi"});
                self.change("PersistentVolumeClaim", &json!({"spec": {"resources": {"requests": requests}}}));
                // The recording has the claim as it was in the end.
                let before = json!({"capacity": {"storage": "1Gi"}, "allocatedResources": null});
                self.change("PersistentVolumeClaim", &json!({"status": before}));
            }
            "as external-resizer: PVC status allocatedResources=2Gi, ControllerResizeInProgress" => {
                let words = json!({"storage": "ControllerResizeInProgress"});
                let status =
                    json!({"allocatedResources": {"storage": "2Gi"}, "allocatedResourceStatuses": words});
                self.change("PersistentVolumeClaim", &json!({"status": status}));
            }
            "as external-resizer: PV capacity=2Gi" => {
                self.change("PersistentVolume", &json!({"spec": {"capacity": {"storage": "2Gi"}}}));
            }
            "as external-resizer: PVC status NodeResizePending, condition FileSystemResizePending" => {
                let conditions = &self.0["pvc_statuses"][0]["conditions"];
                let words = json!({"storage": "NodeResizePending"});
                let status = json!({"conditions": conditions, "allocatedResourceStatuses": words});
                self.change("PersistentVolumeClaim", &json!({"status": status}));
            }
            other => panic!("{other}"),
        }
    }

    /// The calls that change something, in order.
    fn calls(&self) -> Vec<Json> {
        let calls = self.0["calls"].as_array().unwrap().iter();
        calls.filter(|call| !QUESTIONS.iter().any(|question| call["call"] == *question)).map(asked).collect()
    }
}

/// A merge patch. Lists are replaced.
fn merge(object: &mut Json, patch: &Json) {
    let (Json::Object(fields), Json::Object(changes)) = (&mut *object, patch) else {
        *object = patch.clone();
        return;
    };
    for (name, change) in changes {
        match change {
            Json::Null => drop(fields.remove(name)),
            change => merge(fields.entry(name).or_insert(json!({})), change),
        }
    }
}

/// Without times, which are placeholders that are none.
fn untimed(object: &mut Json) {
    match object {
        Json::Object(fields) => {
            fields.retain(|_, value| *value != "<time>");
            fields.values_mut().for_each(untimed);
        }
        Json::Array(values) => values.iter_mut().for_each(untimed),
        _ => {}
    }
}

/// What a driver is asked, and whether it did it.
fn asked(call: &Json) -> Json {
    let mut asked = serde_json::json!({"call": call["call"], "request": call["request"]});
    if !call["error"].is_null() {
        asked["error"] = call["error"].clone();
    }
    asked
}

#[async_trait]
impl Contents for Recording {
    async fn config_map(&self, _: &str, _: &str) -> Result<Arc<ConfigMap>, Unavailable> {
        Err(Unavailable::NotFound)
    }

    async fn secret(&self, _: &str, _: &str) -> Result<Arc<Secret>, Unavailable> {
        Err(Unavailable::NotFound)
    }

    async fn claim(&self, _: &str, name: &str) -> Result<Arc<PersistentVolumeClaim>, Unavailable> {
        self.named(name)
    }

    async fn patch_claim_status(
        &self,
        _: &str,
        name: &str,
        patch: String,
    ) -> Result<Arc<PersistentVolumeClaim>, Unavailable> {
        let mut patch: Json = serde_json::from_str(&patch).unwrap();
        assert!(patch["metadata"].as_object_mut().unwrap().contains_key("resourceVersion"));
        self.change("PersistentVolumeClaim", &patch);
        self.named(name)
    }

    async fn persistent_volume(&self, name: &str) -> Result<Arc<PersistentVolume>, Unavailable> {
        self.named(name)
    }

    async fn csi_driver(&self, name: &str) -> Result<Option<Arc<CsiDriver>>, Unavailable> {
        Ok(self.named(name).ok())
    }

    async fn volume_attachment(&self, name: &str) -> Result<Arc<VolumeAttachment>, Unavailable> {
        // Its name is a placeholder, which stands for what the one of this volume must be called.
        let volume: Arc<PersistentVolume> = self.object(|_| true).ok_or(Unavailable::NotFound)?;
        let Json::Object(_) = &self.0 else { return Err(Unavailable::NotFound) };
        assert!(name.starts_with("csi-") && name.len() == 68, "{name} {}", volume.metadata.name);
        self.object(|_| true).ok_or(Unavailable::NotFound)
    }

    async fn secret_of_storage(&self, namespace: &str, name: &str) -> Result<Arc<Secret>, Unavailable> {
        assert_eq!(namespace, "csi-record");
        self.named(name)
    }

    async fn service_account_token(&self, request: &TokenRequest) -> Result<Option<Token>, Unavailable> {
        assert_eq!((&*request.namespace, &*request.service_account), ("csi-record", "default"));
        let number = match &request.audiences[..] {
            [] => 1,
            [audience] => {
                assert_eq!((&**audience, request.expiration_seconds), ("vault", Some(3600)));
                2
            }
            more => panic!("{more:?}"),
        };
        Ok(Some(Token::new(&format!("<token-{number}>")).until("<time>")))
    }
}

/// A node with the driver of a recording.
struct Node {
    root: PathBuf,
    recording: Arc<Recording>,
    driver: StandIn,
    agent: Option<Agent>,
    registrations: usize,
    attachments: Attachments,
    settling: Mutex<BTreeMap<String, JoinHandle<()>>>,
    /// Why volumes were not set up.
    failures: Arc<Mutex<BTreeSet<String>>>,
    _directory: tempfile::TempDir,
}

/// What an agent has of volumes.
struct Agent {
    volumes: Arc<HostVolumes>,
    csi: Csi,
    tasks: Vec<JoinHandle<()>>,
}

/// Gives drivers less time than there is.
struct Impatient(Csi);

#[async_trait]
impl PluginHandler for Impatient {
    async fn register(&self, plugin: Plugin) -> Result<(), String> {
        let driver = Driver::new(&plugin.endpoint).with_timeout(PATIENCE);
        self.0.register_node(&plugin.name, Arc::new(driver)).await
    }

    async fn deregister(&self, name: &str) {
        self.0.deregister(name).await;
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for place in ["plugins", "data"] {
            walk(&self.root.join(place), &mut |path| drop(loop_device::detach(path)));
        }
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        for mount in table.under(&self.root) {
            let _ = unmount(&mount.mount_point, UnmountMode::Detach);
        }
    }
}

impl Node {
    fn new(recording: Recording) -> Node {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let said = &recording.0["driver"];
        let name = said["name"].as_str().unwrap();
        let capability = |word: &Json| Capability::from_str_name(word.as_str().unwrap()).unwrap();
        let settings = Settings {
            capabilities: said["caps"].as_array().unwrap().iter().map(capability).collect(),
            max_volumes_per_node: said["max_volumes"].as_i64().unwrap_or_default(),
            topology: serde_json::from_value(said["topology"].clone()).unwrap(),
            stats: usage(&recording.0),
            node_id: said["node_id"].as_str().unwrap().to_owned(),
            ..Settings::new(name)
        };
        let driver = StandIn::new(settings, Arc::new(LocalVolumes::new(&root.join("data"))));
        for place in ["plugins_registry".to_owned(), format!("plugins/{name}"), "data".to_owned()] {
            fs::create_dir_all(root.join(place)).unwrap();
        }
        let recording = Arc::new(recording);
        Node {
            root,
            recording,
            driver,
            agent: None,
            registrations: 0,
            attachments: Attachments::default(),
            settling: Mutex::default(),
            failures: Arc::default(),
            _directory: directory,
        }
    }

    fn start_driver(&self) {
        let name = self.recording.0["driver"]["name"].as_str().unwrap();
        let registrar = self.root.join(format!("plugins_registry/{name}-reg.sock"));
        self.driver.start(&self.root.join(format!("plugins/{name}/csi.sock")), Some(&registrar)).unwrap();
    }

    async fn start_agent(&mut self) {
        let contents: Arc<dyn Contents> = Arc::clone(&self.recording) as _;
        let csi = Csi::open(&self.root, "<node>", Arc::clone(&contents), self.attachments.clone());
        let volumes = HostVolumes::new(&self.root, Clock::system(), contents).with_csi(csi.clone());
        let handler: Arc<dyn PluginHandler> = match self.recording.0["scenario"].as_str() {
            Some("publish-times-out") => Arc::new(Impatient(csi.clone())),
            _ => Arc::new(csi.clone()),
        };
        let registry = PluginRegistry::new(&self.root).with_handler(PluginType::Csi, handler);
        let tasks = vec![tokio::spawn(registry.run()), tokio::spawn(csi.clone().run())];
        self.agent = Some(Agent { volumes: Arc::new(volumes), csi, tasks });
    }

    /// Waits until the driver was told as often that it is registered as it, or an agent, began.
    async fn until_registered(&mut self) {
        self.registrations += 1;
        let wanted = self.registrations;
        let is_told = |call: &Call| call.call == "Registration.NotifyRegistrationStatus";
        self.driver.until(|calls| calls.iter().filter(|call| is_told(call)).count() == wanted).await;
    }

    fn pod(&self, name: &str) -> Arc<Pod> {
        let mut pod = (*self.recording.named::<Pod>(name).unwrap()).clone();
        // Two pods of a recording have the same placeholder.
        pod.metadata.uid = name.into();
        Arc::new(pod)
    }

    /// Sets a pod's volumes up, as often as it takes, while the recording goes on.
    fn begin(&self, name: &str) {
        let (pod, volumes) = (self.pod(name), Arc::clone(&self.agent.as_ref().unwrap().volumes));
        let failures = Arc::clone(&self.failures);
        let set_up = async move {
            let node = context();
            while let Err(errors) = volumes.set_up(&pod, &node).await {
                failures.lock().unwrap().extend(errors.iter().map(ToString::to_string));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        self.settling.lock().unwrap().insert(name.to_owned(), tokio::spawn(set_up));
    }

    /// Has the volumes of the recording's pod looked at again.
    async fn refresh(&self) {
        let pod = self.pod(&format!("pod-{}", self.recording.0["scenario"].as_str().unwrap()));
        let volumes = &self.agent.as_ref().unwrap().volumes;
        let looks_after = volumes.refresh_after(&pod.metadata.uid).unwrap();
        assert!((60..75).contains(&looks_after.as_secs()), "{looks_after:?}");
        volumes.refresh(&pod, &context()).await.unwrap();
    }

    async fn until_running(&self, name: &str) {
        let settling = self.settling.lock().unwrap().remove(name).unwrap();
        settling.await.unwrap();
    }

    async fn end(&self, name: &str) {
        let settling = self.settling.lock().unwrap().remove(name);
        if let Some(settling) = settling {
            settling.abort();
            let _ = settling.await;
        }
        self.agent.as_ref().unwrap().volumes.tear_down(name).await.unwrap();
    }

    /// What the driver was asked that changes something.
    fn calls(&self) -> Vec<Json> {
        let calls = self.driver.calls().into_iter().filter(|call| !QUESTIONS.contains(&call.call));
        calls
            .map(|call| {
                serde_json::from_str(&self.with_placeholders(&asked(&call.to_json()).to_string())).unwrap()
            })
            .collect()
    }

    /// A text with the recording's placeholders for what differs.
    fn with_placeholders(&self, text: &str) -> String {
        let mut text = text.replace(&self.root.display().to_string(), "<root>");
        for object in self.recording.0["objects"].as_array().unwrap() {
            let (metadata, name) = (&object["metadata"], object["metadata"]["name"].as_str().unwrap());
            match object["kind"].as_str().unwrap() {
                "Pod" => {
                    let placeholder = metadata["uid"].as_str().unwrap();
                    let inline = format!("csi-{}", hash(&format!("{name}vol")));
                    let driver = self.recording.0["driver"]["name"].as_str().unwrap();
                    let attachment = format!("csi-{}", hash(&format!("{inline}{driver}<node>")));
                    text = text.replace(&attachment, "<inline-attachment-id>");
                    text = text.replace(&inline, "<inline-handle>");
                    text = text.replace(&format!("pods/{name}/"), &format!("pods/{placeholder}/"));
                    let volume = name.replacen("pod", "pv", 1);
                    for folder in [format!("publish/{volume}"), format!("{volume}/dev")] {
                        text = text.replace(&format!("{folder}/{name}"), &format!("{folder}/{placeholder}"));
                    }
                    let told = |uid: &str| format!("\"csi.storage.k8s.io/pod.uid\":\"{uid}\"");
                    text = text.replace(&told(name), &told(placeholder));
                }
                "PersistentVolume" => {
                    let source = &object["spec"]["csi"];
                    let (handle, driver) = (source["volumeHandle"].as_str(), source["driver"].as_str());
                    let attachment = hash(&format!("{}{}<node>", handle.unwrap(), driver.unwrap()));
                    text = text.replace(&format!("csi-{attachment}"), "<attachment-id>");
                }
                _ => {}
            }
        }
        text
    }

    /// What is written of volumes, by the path.
    fn volume_data(&self) -> Json {
        let mut found = BTreeMap::new();
        for pattern in ["plugins/kubernetes.io/csi", "pods"] {
            walk(&self.root.join(pattern), &mut |path| {
                if path.ends_with("vol_data.json") {
                    let relative = path.strip_prefix(&self.root).unwrap().display().to_string();
                    let content = fs::read_to_string(path).unwrap();
                    let content: Json = serde_json::from_str(&self.with_placeholders(&content)).unwrap();
                    found.insert(self.with_placeholders(&relative), content);
                }
            });
        }
        serde_json::to_value(found).unwrap()
    }

    /// What there is of volumes, and what is known of them.
    fn look(&self) -> Look {
        let (tree, loop_devices) = self.tree();
        let Some(agent) = &self.agent else { return Look { tree, loop_devices, ..Look::default() } };
        let drivers = agent.csi.drivers();
        let drivers = drivers.borrow();
        let mut drivers = drivers.iter().map(|(name, info)| {
            let topology: Vec<&String> =
                info.accessible_topology.iter().flatten().map(|(key, _)| key).collect();
            json!({
                "name": name, "nodeID": info.node_id, "topologyKeys": topology,
                "allocatable": {"count": info.max_volumes_per_node},
            })
        });
        let csi_node = drivers.next().unwrap_or_default();
        assert_eq!(drivers.next(), None);
        let in_use: Vec<String> =
            self.attachments.in_use().borrow().iter().map(ToString::to_string).collect();
        Look { csi_node, in_use: json!(in_use), mounts: self.mounts(), tree, loop_devices }
    }

    /// What is mounted where for pods, and whether it can be written, as the recordings have it.
    fn mounts(&self) -> BTreeSet<(String, String, String)> {
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        let mounts = table.under(&self.root).into_iter().map(|mount| {
            let root = mount.root.display().to_string();
            let root = match root.rsplit_once("/data/volume-") {
                Some((_, volume)) => format!("<data>/{volume}"),
                None if root.starts_with("/loop") => "/<loop>".to_owned(),
                None => root,
            };
            let path = self.with_placeholders(&mount.mount_point.display().to_string());
            (path, self.with_placeholders(&root), may_be_written(&mount.options))
        });
        mounts.collect()
    }

    /// The directories of volumes with what is in them, as the recordings have it, and what has a loop device.
    fn tree(&self) -> (Vec<String>, Vec<String>) {
        let (mut tree, mut loop_devices) = (Vec::new(), Vec::new());
        let children = |path: PathBuf| {
            let entries = fs::read_dir(path).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        };
        let mut below = children(self.root.join("plugins/kubernetes.io/csi"));
        for pod in children(self.root.join("pods")) {
            below.extend(["volumeDevices", "volumes/kubernetes.io~csi"].map(|folder| pod.join(folder)));
        }
        while let Some(path) = below.pop() {
            let Ok(found) = fs::symlink_metadata(&path) else { continue };
            let mut line = path.display().to_string();
            let is_mounted = !found.is_symlink() && is_mount_point(&path).unwrap();
            if found.is_dir() {
                line.push('/');
                if !is_mounted {
                    below.extend(children(path.clone()));
                }
            } else if found.is_symlink() {
                line = format!("{line} -> {}", fs::read_link(&path).unwrap().display());
            }
            if is_mounted {
                line.push_str(" (mount)");
            }
            tree.push(self.with_placeholders(&line));
            if !found.is_dir() && loop_device::attached(&path).unwrap().is_some() {
                loop_devices.push(self.with_placeholders(&path.display().to_string()));
            }
        }
        tree.sort();
        (tree, loop_devices)
    }

    /// What is mounted, for whomever.
    fn left(&self) -> Vec<PathBuf> {
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        table.under(&self.root).into_iter().map(|mount| mount.mount_point.clone()).collect()
    }
}

/// What the recording's driver says of volumes.
fn usage(recording: &Json) -> v1::NodeGetVolumeStatsResponse {
    let mut calls = recording["calls"].as_array().unwrap().iter();
    let Some(call) = calls.find(|call| call["call"] == "Node.NodeGetVolumeStats") else {
        return v1::NodeGetVolumeStatsResponse::default();
    };
    let number = |value: &Json| value.as_str().unwrap().parse().unwrap();
    let usage = call["answer"]["usage"].as_array().unwrap().iter().map(|usage| v1::VolumeUsage {
        available: number(&usage["available"]),
        total: number(&usage["total"]),
        used: number(&usage["used"]),
        unit: v1::volume_usage::Unit::from_str_name(usage["unit"].as_str().unwrap()).unwrap().into(),
    });
    let message = call["answer"]["volume_condition"]["message"].as_str().unwrap().to_owned();
    v1::NodeGetVolumeStatsResponse {
        usage: usage.collect(),
        volume_condition: Some(v1::VolumeCondition { abnormal: false, message }),
    }
}

fn context() -> NodeContext {
    NodeContext {
        facts: NodeFacts::default(),
        settings: NodeSettings::default(),
        features: FeatureGates::default(),
    }
}

fn walk(directory: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => walk(&path, visit),
            false => visit(&path),
        }
    }
}

fn hash(text: &str) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Tells the driver to fail, as in `{"NodeStageVolume": {"times": 2, "code": "INTERNAL", "message": "no"}}`, or to answer
/// late.
fn tell(driver: &StandIn, words: &str) {
    let told: BTreeMap<String, Json> = serde_json::from_str(words).unwrap();
    for (method, fault) in told {
        if let Some(seconds) = fault["delay"].as_u64() {
            assert_eq!((&fault["when"], &fault["times"]), (&json!("after"), &json!(1)));
            let trouble = Trouble::Delay(Duration::from_secs(seconds));
            driver.plan(&method, Fault { trouble, moment: Moment::AfterEffect, times: Some(1) });
            continue;
        }
        let code = match fault["code"].as_str().unwrap() {
            "INTERNAL" => Code::Internal,
            "UNAVAILABLE" => Code::Unavailable,
            "RESOURCE_EXHAUSTED" => Code::ResourceExhausted,
            "DEADLINE_EXCEEDED" => Code::DeadlineExceeded,
            "ABORTED" => Code::Aborted,
            "INVALID_ARGUMENT" => Code::InvalidArgument,
            "NOT_FOUND" => Code::NotFound,
            "FAILED_PRECONDITION" => Code::FailedPrecondition,
            "ALREADY_EXISTS" => Code::AlreadyExists,
            other => panic!("{other}"),
        };
        let message = fault["message"].as_str().unwrap();
        driver.plan(
            &method,
            match fault["times"].as_u64() {
                Some(times) => Fault::fail(code, message, times as usize),
                None => Fault::always_fail(code, message),
            },
        );
    }
}

/// What there is at some time.
#[derive(Default)]
struct Look {
    csi_node: Json,
    in_use: Json,
    mounts: BTreeSet<(String, String, String)>,
    tree: Vec<String>,
    loop_devices: Vec<String>,
}

fn may_be_written(options: &str) -> String {
    options.split(',').next().unwrap_or_default().to_owned()
}

/// What a replay shows.
struct Replayed {
    /// What the driver was asked.
    said: Vec<Json>,
    /// What was written of volumes when the pods ran.
    written: Json,
    /// What there was when the pods ran, and what there is in the end.
    running: Option<Look>,
    left: Look,
    /// What the recording has while the driver is away, and while something is not attached yet.
    in_between: BTreeMap<&'static str, Look>,
    /// What pods and claims are told, and what statuses claims had.
    events: Vec<VolumeEvent>,
    claim_statuses: Vec<Json>,
    /// What a summary would have of the volumes of the last pod.
    stats: Vec<VolumeStats>,
    /// Why volumes were not set up.
    failures: BTreeSet<String>,
    /// What is still mounted.
    mounts_left: Vec<PathBuf>,
}

async fn replay(recording: Recording) -> Replayed {
    let steps: Vec<String> = recording.0["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["do"].as_str().unwrap().to_owned())
        .collect();
    let (mut node, mut written, mut while_running) = (Node::new(recording), Json::Null, None);
    let mut in_between = BTreeMap::new();
    let (mut running, mut events, mut stats) = (BTreeSet::<String>::new(), Vec::new(), Vec::new());
    let retries = node.recording.0["scenario"] == "register-fails-once";
    node.start_agent().await;
    for step in &steps {
        let words: Vec<&str> = step.split(' ').collect();
        match words[..] {
            // It is asked again by itself, as the README wants it.
            ["driver", "started"] if retries && node.registrations > 0 => node.until_registered().await,
            ["driver", "stopped", ..] if retries => {}
            ["driver", "started", ..] => {
                node.start_driver();
                if node.agent.is_some() {
                    node.until_registered().await;
                }
            }
            ["driver", "killed", ..] => node.driver.kill(),
            ["driver", "stopped", ..] => {
                node.driver.stop();
                let mut drivers = node.agent.as_ref().unwrap().csi.drivers();
                drivers.wait_for(BTreeMap::is_empty).await.unwrap();
                in_between.insert("while_stopped", node.look());
            }
            ["driver", "told:", ..] => tell(&node.driver, step.split_once(": ").unwrap().1),
            ["kubelet", "stopped"] => node.agent = None,
            ["kubelet", "started"] => node.start_agent().await,
            ["node", "ready"] => {
                node.until_registered().await;
                for name in &running {
                    node.begin(name);
                    node.until_running(name).await;
                }
            }
            ["pod", name, "created"] => {
                node.begin(name);
                if node.recording.0["scenario"] == "stage-never-deleted" {
                    node.driver
                        .until(|calls| {
                            calls.iter().filter(|call| call.call.ends_with("StageVolume")).count() >= 7
                        })
                        .await;
                }
            }
            ["pod", name, "running"] => {
                node.until_running(name).await;
                running.insert(name.to_owned());
                events.extend(node.agent.as_ref().unwrap().volumes.take_events(name));
                stats = node.agent.as_ref().unwrap().volumes.stats(name).await;
                written = node.volume_data();
                while_running = Some(node.look());
            }
            ["pod", name, "gone", ..] => {
                running.remove(name);
                if node.agent.is_some() {
                    node.end(name).await;
                }
            }
            ["the", "container", "has", "ended"] => {
                let name = node.recording.0["scenario"].as_str().unwrap().to_owned();
                node.end(&format!("pod-{name}")).await;
            }
            ["VolumeAttachment", "made", ..] => {
                let volume = "kubernetes.io/csi/record.csi.example.com^vol-attach-required";
                let mut in_use = node.attachments.in_use();
                in_use.wait_for(|in_use| in_use.iter().any(|used| *used == *volume)).await.unwrap();
                assert_eq!(node.calls().len(), 3, "nothing is asked before it is attached");
                in_between.insert("not_yet_attached", node.look());
            }
            ["node.status.volumesAttached", ..] => {
                let mut at_server = crablet_api::core::Node::default();
                at_server.status.volumes_in_use =
                    node.attachments.in_use().borrow().iter().cloned().collect();
                at_server.status.volumes_attached =
                    serde_json::from_value(node.recording.0["node"]["volumesAttached"].clone()).unwrap();
                node.attachments.note(&at_server);
            }
            ["PVC", "request", ..] | ["as", "external-resizer:", ..] => node.recording.resize(step),
            ["PVC", "status.capacity=2Gi"] => {
                for name in &running {
                    node.refresh().await;
                    events.extend(node.agent.as_ref().unwrap().volumes.take_events(name));
                }
            }
            ["published", "three", "times"] => {
                for _ in 0..2 {
                    node.refresh().await;
                }
            }
            _ => {}
        }
    }
    // What nobody uses any more is unstaged behind everybody's back.
    let staged = node.root.join("plugins/kubernetes.io/csi");
    let is_empty =
        |driver: PathBuf| fs::read_dir(driver).map_or(true, |mut entries| entries.next().is_none());
    let nothing_is_staged = || {
        let drivers = fs::read_dir(&staged).into_iter().flatten().map(|driver| driver.unwrap().path());
        let (of_devices, drivers): (Vec<_>, Vec<_>) =
            drivers.partition(|driver| driver.ends_with("volumeDevices"));
        let devices = of_devices.iter().flat_map(|place| fs::read_dir(place).unwrap());
        let devices = devices.map(|device| device.unwrap().path());
        let mut left = devices.filter(|device| !device.ends_with("staging") && !device.ends_with("publish"));
        drivers.into_iter().all(is_empty) && left.next().is_none()
    };
    for _ in 0..6000 {
        if nothing_is_staged() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut in_use = node.attachments.in_use();
    in_use.wait_for(|in_use| in_use.is_empty()).await.unwrap();
    assert!(nothing_is_staged(), "it is still staged after half a minute");
    for event in &mut events {
        event.message = node.with_placeholders(&event.message);
    }
    Replayed {
        said: node.calls(),
        written,
        running: while_running,
        left: node.look(),
        in_between,
        events,
        stats,
        claim_statuses: node.recording.1.lock().unwrap().claim_statuses.clone(),
        failures: node.failures.lock().unwrap().clone(),
        mounts_left: node.left(),
    }
}

/// The lines of a list.
fn lines(list: &Json) -> Vec<String> {
    list.as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect()
}

fn is_of_device(line: &str) -> bool {
    line.contains("/volumeDevices/")
}

/// What there is of volumes is what was recorded, but for leftovers that need not be copied.
fn check_look(name: &str, recorded: &Json, look: &Look) {
    assert_eq!(look.csi_node, recorded["csinode"], "{name}");
    assert_eq!(look.in_use, recorded["node"]["volumesInUse"], "{name}");
    let mounts: BTreeSet<_> = recorded["mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| {
            let word = |field: &str| mount[field].as_str().unwrap().to_owned();
            (word("path"), word("root"), may_be_written(&word("options")))
        })
        .collect();
    assert_eq!(look.mounts, mounts, "{name}");
    if recorded["tree"].is_null() {
        return;
    }
    // Others make these for a pod.
    let is_of_pod = |line: &str| line.ends_with("/plugins/") || line.ends_with("/volumes/");
    let is_of_driver = |line: &str| line.starts_with("<root>/plugins/") && !is_of_device(line);
    let is_staged = mounts.iter().any(|(path, ..)| is_of_driver(path));
    let mut expected = lines(&recorded["tree"]);
    expected.retain(|line| !is_of_pod(line) && (is_staged || !is_of_driver(line)));
    assert_eq!(look.tree, expected, "{name}");
}

/// What people are told of volumes, beside failures, is what was recorded: about pods, and about claims.
fn check_events(name: &str, recorded: &Json, events: &[VolumeEvent]) {
    let expected = |about: &str, list: &Json| -> Vec<(String, String)> {
        let list = list.as_array().into_iter().flatten();
        let ours = list.filter(|event| event["object"].as_str().unwrap().starts_with(about));
        let ours = ours.filter(|event| {
            ["FileSystemResizeSuccessful", "SuccessfulMountVolume"]
                .iter()
                .any(|reason| event["reason"] == *reason)
        });
        ours.map(|event| {
            (event["reason"].as_str().unwrap().to_owned(), event["message"].as_str().unwrap().to_owned())
        })
        .collect()
    };
    let word = |what| match what {
        Occurrence::Mapped => "SuccessfulMountVolume",
        Occurrence::OtherGroup => "AlreadyMountedVolume",
        Occurrence::Resized => "FileSystemResizeSuccessful",
        Occurrence::NotResized => "FileSystemResizeFailed",
        Occurrence::Abnormal => "VolumeConditionAbnormal",
        Occurrence::GroupTakesLong => "VolumePermissionChangeInProgress",
    };
    let told = |event: &VolumeEvent| (word(event.what).to_owned(), event.message.clone());
    let of_pod: Vec<_> = events.iter().map(told).collect();
    // What a pod has is not mapped for it again.
    let mut of_recorded = expected("Pod/", &recorded["events"]);
    if name == "kubelet-restart-block" {
        of_recorded.truncate(2);
    }
    assert_eq!(of_pod, of_recorded, "{name}");
    let of_claim: Vec<_> = events.iter().filter(|event| event.claim.is_some()).map(told).collect();
    assert_eq!(of_claim, expected("PersistentVolumeClaim/", &recorded["other_events"]), "{name}");
}

#[tokio::test]
async fn drivers_are_asked_what_was_recorded() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/data/golden");
    let others = std::env::var_os("GOLDEN_DIR").map(PathBuf::from);
    let folder = others.as_ref().unwrap_or(&own).join("csi");
    let (mut compared, mut with_devices) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is_recording = path.extension().is_some_and(|extension| extension == "json");
        if !is_recording {
            continue;
        }
        let recorded: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let recording = Recording(recorded, Mutex::default());
        let mut expected = recording.calls();
        let recorded = recording.0.clone();
        let replayed = replay(recording).await;
        let Replayed {
            mut said,
            written,
            running,
            left,
            in_between,
            mounts_left,
            events,
            failures,
            claim_statuses,
            stats,
        } = replayed;
        if let Some(expected) = recorded["summary_volume"].as_array() {
            let told = stats.iter().map(|found| {
                json!({
                    "time": "<time>", "name": found.name,
                    "pvcRef": {"name": found.claim, "namespace": found.namespace},
                    "availableBytes": found.usage.available, "capacityBytes": found.usage.capacity,
                    "usedBytes": found.usage.used, "inodesFree": found.usage.inodes_free,
                    "inodes": found.usage.inodes, "inodesUsed": found.usage.inodes_used,
                })
            });
            assert_eq!(told.collect::<Vec<_>>(), *expected, "{name}");
            assert_eq!(stats[0].usage.condition, None, "the gate for it is off");
        }
        check_events(&name, &recorded, &events);
        for event in recorded["events"].as_array().unwrap() {
            let message = event["message"].as_str().unwrap();
            assert!(
                event["reason"] != "FailedMount" || failures.contains(message),
                "{name}: {message} in {failures:#?}"
            );
        }
        // What the recorder saw of them is not all.
        let mut seen = claim_statuses.iter();
        for status in recorded["pvc_statuses"].as_array().into_iter().flatten() {
            assert!(seen.any(|seen| seen == status), "{name}: {status} in {claim_statuses:#?}");
        }
        if !written.is_null() {
            assert_eq!(written, recorded["vol_data"], "{name}");
        }
        if let Some(mut running) = running {
            check_look(&name, &recorded, &running);
            if running.tree.iter().any(|line| is_of_device(line)) {
                with_devices += 1;
            }
            if recorded["loop_devices"].is_array() {
                running.loop_devices.retain(|path| path.contains("/dev/"));
                let mut expected = lines(&recorded["loop_devices"]);
                expected.retain(|path| is_of_device(path));
                assert_eq!(running.loop_devices, expected, "{name}");
            }
        }
        for (when, look) in in_between {
            check_look(&name, &recorded[when], &look);
        }
        let may_be_left = match &recorded["left_after"] {
            Json::Null => Vec::new(),
            left => lines(left),
        };
        let too_much = left.tree.iter().find(|line| !may_be_left.contains(line));
        assert_eq!(too_much, None, "{name}: it is left, beside {may_be_left:#?}");
        assert!(left.loop_devices.is_empty(), "{name}: {:#?}", left.loop_devices);
        // A device that is mapped need not be asked for again.
        if name == "kubelet-restart-block" {
            expected.drain(8..10);
        }
        // How often something is tried in vain depends on who looks.
        if name == "stage-never-deleted" {
            expected.truncate(9);
            said.truncate(9);
        }
        for (number, (said, expected)) in said.iter().zip(&expected).enumerate() {
            assert_eq!(said, expected, "{name}, call {number}");
        }
        assert_eq!(said.len(), expected.len(), "{name}: {said:#?}");
        assert!(mounts_left.is_empty(), "{name}: {mounts_left:#?}");
        compared += 1;
    }
    match others {
        None => assert_eq!((compared, with_devices), (24, 2)),
        Some(folder) => assert!(compared > 0, "{} has no recordings", folder.join("csi").display()),
    }
}
