//! What the Go kubelet asked of a CSI driver, and whether the same is asked when the same happens here: the recordings'
//! objects, a stand-in driver with real mounts, and pods whose volumes are set up and taken away as in the recording.
//!
//! `crates/core/tests/data/golden/csi/README.md` tells how the recordings were made, and what need not be copied.

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
use crablet_csi::stand_in::{Call, Capability, Fault, LocalVolumes, Settings, StandIn};
use crablet_csi::{Code, PluginRegistry, PluginType};
use crablet_host::clock::Clock;
use crablet_host::loop_device;
use crablet_host::mounts::{MountTable, PROC_SELF_MOUNTINFO, UnmountMode, is_mount_point, unmount};
use crablet_volumes::{Attachments, Contents, Csi, HostVolumes, Token, TokenRequest, Volumes};
use serde_json::Value as Json;
use tokio::task::JoinHandle;

/// The recordings that are not compared yet, and what they need.
const NOT_YET: &[(&str, &str)] = &[
    ("expand", "expansion"),
    ("expand-at-mount", "expansion"),
    ("publish-times-out", "a deadline of two minutes, which no test waits for"),
    ("register-fails-once", "no volume: the registry's own tests have it"),
];

/// What drivers are asked beside what changes something.
const QUESTIONS: [&str; 2] = ["Node.NodeGetCapabilities", "Node.NodeGetVolumeStats"];

/// A recording and the objects in it.
struct Recording(Json);

impl Recording {
    fn object<T: Object + serde::de::DeserializeOwned>(
        &self,
        is_it: impl Fn(&Json) -> bool,
    ) -> Option<Arc<T>> {
        let found = self.0["objects"].as_array().unwrap().iter();
        let found = found.filter(|object| object["kind"] == T::KIND).find(|object| is_it(object))?;
        let mut found = found.clone();
        untimed(&mut found);
        Some(Arc::new(serde_json::from_value(found).unwrap()))
    }

    fn named<T: Object + serde::de::DeserializeOwned>(&self, name: &str) -> Result<Arc<T>, Unavailable> {
        self.object(|object| object["metadata"]["name"] == name).ok_or(Unavailable::NotFound)
    }

    /// The calls that change something, in order.
    fn calls(&self) -> Vec<Json> {
        let calls = self.0["calls"].as_array().unwrap().iter();
        calls.filter(|call| !QUESTIONS.iter().any(|question| call["call"] == *question)).map(asked).collect()
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
    _directory: tempfile::TempDir,
}

/// What an agent has of volumes.
struct Agent {
    volumes: Arc<HostVolumes>,
    tasks: Vec<JoinHandle<()>>,
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
        let registry = PluginRegistry::new(&self.root).with_handler(PluginType::Csi, Arc::new(csi.clone()));
        let tasks = vec![tokio::spawn(registry.run()), tokio::spawn(csi.run())];
        self.agent = Some(Agent { volumes: Arc::new(volumes), tasks });
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
        let set_up = async move {
            let node = context();
            while volumes.set_up(&pod, &node).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        self.settling.lock().unwrap().insert(name.to_owned(), tokio::spawn(set_up));
    }

    /// Has the volumes of the recording's pod looked at again.
    async fn refresh(&self) {
        let pod = self.pod(&format!("pod-{}", self.recording.0["scenario"].as_str().unwrap()));
        let volumes = &self.agent.as_ref().unwrap().volumes;
        assert_eq!(volumes.refresh_after(&pod.metadata.uid), Some(Duration::from_secs(60)));
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

    /// The directories of devices with what is in them, as the recordings have it, and what has a loop device.
    fn devices(&self) -> (Vec<String>, Vec<String>) {
        let (mut tree, mut loop_devices) = (Vec::new(), Vec::new());
        let mut below = vec![self.root.join("plugins/kubernetes.io/csi/volumeDevices")];
        let pods = fs::read_dir(self.root.join("pods")).into_iter().flatten();
        below.extend(pods.map(|pod| pod.unwrap().path().join("volumeDevices")));
        while let Some(path) = below.pop() {
            let Ok(found) = fs::symlink_metadata(&path) else { continue };
            let mut line = path.display().to_string();
            if found.is_dir() {
                line.push('/');
                below.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else if found.is_symlink() {
                line = format!("{line} -> {}", fs::read_link(&path).unwrap().display());
            } else if is_mount_point(&path).unwrap() {
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

    fn left(&self) -> Vec<PathBuf> {
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        table.under(&self.root).into_iter().map(|mount| mount.mount_point.clone()).collect()
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

/// Tells the driver to fail, as in `{"NodeStageVolume": {"times": 2, "code": "INTERNAL", "message": "no"}}`.
fn tell(driver: &StandIn, words: &str) {
    let told: BTreeMap<String, Json> = serde_json::from_str(words).unwrap();
    for (method, fault) in told {
        let code = match fault["code"].as_str().unwrap() {
            "INTERNAL" => Code::Internal,
            "UNAVAILABLE" => Code::Unavailable,
            other => panic!("{other}"),
        };
        let message = fault["message"].as_str().unwrap();
        driver.plan(
            Box::leak(method.into_boxed_str()),
            match fault["times"].as_u64() {
                Some(times) => Fault::fail(code, message, times as usize),
                None => Fault::always_fail(code, message),
            },
        );
    }
}

/// What a replay shows.
struct Replayed {
    /// What the driver was asked.
    said: Vec<Json>,
    /// What was written of volumes when the pods ran.
    written: Json,
    /// What there was of devices when the pods ran.
    devices: (Vec<String>, Vec<String>),
    /// What is left of devices, and what is mounted.
    devices_left: (Vec<String>, Vec<String>),
    mounts_left: Vec<PathBuf>,
}

async fn replay(recording: Recording) -> Replayed {
    let steps: Vec<String> = recording.0["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["do"].as_str().unwrap().to_owned())
        .collect();
    let (mut node, mut written, mut devices) = (Node::new(recording), Json::Null, Default::default());
    let mut running: BTreeSet<String> = BTreeSet::new();
    node.start_agent().await;
    for step in &steps {
        let words: Vec<&str> = step.split(' ').collect();
        match words[..] {
            ["driver", "started", ..] => {
                node.start_driver();
                if node.agent.is_some() {
                    node.until_registered().await;
                }
            }
            ["driver", "killed", ..] => node.driver.kill(),
            ["driver", "stopped", ..] => node.driver.stop(),
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
                written = node.volume_data();
                devices = node.devices();
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
            }
            ["node.status.volumesAttached", ..] => {
                let mut at_server = crablet_api::core::Node::default();
                at_server.status.volumes_in_use =
                    node.attachments.in_use().borrow().iter().cloned().collect();
                at_server.status.volumes_attached =
                    serde_json::from_value(node.recording.0["node"]["volumesAttached"].clone()).unwrap();
                node.attachments.note(&at_server);
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
    Replayed { said: node.calls(), written, devices, devices_left: node.devices(), mounts_left: node.left() }
}

/// The lines of a list that are about devices.
fn of_devices(lines: &Json) -> Vec<String> {
    let lines = lines.as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned());
    lines.filter(|line| line.contains("/volumeDevices/")).collect()
}

#[tokio::test]
async fn drivers_are_asked_what_was_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/data/golden/csi");
    let (mut compared, mut with_devices) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is_recording = path.extension().is_some_and(|extension| extension == "json");
        if !is_recording || NOT_YET.iter().any(|(not_yet, _)| *not_yet == name) {
            continue;
        }
        let recorded: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let recording = Recording(recorded);
        let mut expected = recording.calls();
        let recorded = recording.0.clone();
        let Replayed { mut said, written, devices, devices_left, mounts_left } = replay(recording).await;
        if !written.is_null() {
            assert_eq!(written, recorded["vol_data"], "{name}");
        }
        let (tree, mut loop_devices) = devices;
        if !tree.is_empty() {
            assert_eq!(tree, of_devices(&recorded["tree"]), "{name}");
            assert_eq!(devices_left.0, of_devices(&recorded["left_after"]), "{name}");
            with_devices += 1;
        }
        if recorded["loop_devices"].is_array() {
            loop_devices.retain(|path| path.contains("/dev/"));
            assert_eq!(loop_devices, of_devices(&recorded["loop_devices"]), "{name}");
        }
        assert!(devices_left.1.is_empty(), "{name}: {:#?}", devices_left.1);
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
    assert!(compared >= 16 && with_devices == 2, "{compared} {with_devices}");
}
