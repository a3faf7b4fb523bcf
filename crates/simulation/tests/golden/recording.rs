//! A recording: the pod, and what the runtime did.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use crablet_api::core::Pod;
use crablet_api::meta::Time;
use crablet_api::testing::pod_yaml;
use crablet_api::{FeatureGates, default_pod};
use crablet_cri_sim::{Fault, Image, Method, Program, Settings};
use jiff::Timestamp;
use serde_json::Value as Json;
use tonic::Code;

use crate::compare::read;
use crate::words::{POD_NETWORK, with_stand_ins, without_durations};

/// Why a container waits for its image.
const IMAGE_REASONS: &[&str] = &[
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];

/// What was recorded of a pod.
pub struct Recording {
    pub name: String,
    pub json: Json,
}

/// What containers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Programs {
    /// What their commands say, as far as the simulator can run them.
    Own,
    /// What the recorded status says that they did.
    AsRecorded,
}

impl Recording {
    pub fn read(path: &Path) -> Recording {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        Recording { name, json: read(path) }
    }

    /// The pod as an API server has it when it was just bound to its node.
    pub fn pod(&self, programs: Programs, now: Timestamp) -> Pod {
        let mut json: Json = serde_json::from_str(&with_stand_ins(&self.json["pod"].to_string())).unwrap();
        if self.message("Unhealthy", "").is_none() {
            answer_probes(&mut json["spec"]);
        }
        let mut pod: Pod = serde_json::from_value(json).unwrap();
        pod.metadata.generation = 1;
        pod.metadata.creation_timestamp = Some(Time::from(now));
        pod.status = serde_json::from_value(serde_json::json!({
            "phase": "Pending", "qosClass": self.json["status"]["qosClass"],
        }))
        .unwrap();
        if programs == Programs::AsRecorded {
            for status in self.container_statuses() {
                let annotation = format!("{}.{}", Program::ANNOTATION, status["name"].as_str().unwrap());
                pod.metadata.annotations.insert(annotation, program(status).into());
            }
        }
        pod
    }

    /// A pod that used what the recorded pod was refused for want of.
    pub fn neighbour(&self) -> Option<Pod> {
        let message = self.json["status"]["message"].as_str()?;
        let (_, shortage) = message.split_once("Node didn't have enough resource: ")?;
        let (resource, _) = shortage.split_once(',')?;
        let (_, used) = shortage.split_once("used: ")?;
        let (used, _) = used.split_once(',')?;
        let unit = if resource == "cpu" { "m" } else { "" };
        let mut pod = pod_yaml(&format!(
            "metadata: {{name: neighbour, namespace: golden, uid: neighbour}}\nspec: {{containers: [{{name: c, image: \
             'pause:1', resources: {{requests: {{{resource}: '{used}{unit}'}}}}}}]}}"
        ));
        default_pod(&mut pod, &FeatureGates::default());
        Some(pod)
    }

    /// The runtime as it was on the node.
    pub fn runtime(&self) -> Settings {
        let pod = &self.json["pod"]["spec"];
        let containers = ["initContainers", "containers"].into_iter().flat_map(|list| items(&pod[list]));
        let images: BTreeSet<&str> = containers.filter_map(|container| container["image"].as_str()).collect();
        let (pulled, present): (Vec<&str>, Vec<&str>) = images
            .into_iter()
            .filter(|image| !self.is_missing(image))
            .partition(|image| self.is_pulled(image));
        let base = Settings::containerd_1_6();
        Settings {
            images: base.images.iter().cloned().chain(present.iter().map(|name| self.image(name))).collect(),
            registry: pulled.iter().map(|name| self.image(name)).collect(),
            pod_network: POD_NETWORK,
            remembered_asked: 1000,
            ..base
        }
    }

    fn image(&self, name: &str) -> Image {
        let image = match name.contains("pause") {
            true => Image::new(name).entrypoint(["/pause"]),
            false => Image::new(name).cmd(["sh"]),
        };
        let size = self.message("Pulled", &format!("pulled image \"{name}\"")).and_then(|message| {
            let (_, size) = message.split_once("Image size: ")?;
            size.split(' ').next()?.parse().ok()
        });
        let image = image.size(size.unwrap_or(1 << 20));
        let is_start_error = |state: &Json| state["terminated"]["reason"] == "StartError";
        let fails = |status: &Json| is_start_error(&status["state"]) || is_start_error(&status["lastState"]);
        if self.container_statuses().any(fails) { image } else { image.running_anything() }
    }

    fn is_missing(&self, image: &str) -> bool {
        self.container_statuses().any(|status| {
            let reason = status["state"]["waiting"]["reason"].as_str();
            status["image"] == image && reason.is_some_and(|reason| IMAGE_REASONS.contains(&reason))
        })
    }

    fn is_pulled(&self, image: &str) -> bool {
        self.message("Pulling", &format!("\"{image}\"")).is_some()
    }

    /// What the runtime answered with errors.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for status in self.container_statuses() {
            let (name, waiting) = (status["name"].as_str().unwrap(), &status["state"]["waiting"]);
            let message = waiting["message"].as_str().unwrap_or_default();
            let message = with_an_id(message);
            match waiting["reason"].as_str() {
                Some("CreateContainerError") => {
                    let about = format!("/{}/{name}", self.json["pod"]["metadata"]["name"].as_str().unwrap());
                    let fault = Fault::on(Method::CreateContainer).about(about).always();
                    faults.push(fault.fail(Code::Unknown, message));
                }
                Some("RunContainerError") => {
                    faults.push(Fault::on(Method::StartContainer).always().fail(Code::Unknown, message));
                }
                Some("PostStartHookError") if message.contains("command timed out") => {
                    let fault = Fault::on(Method::ExecSync).always();
                    faults.push(fault.fail(Code::DeadlineExceeded, "the command did not end in time"));
                }
                _ => {}
            }
        }
        // What the kubelet does not call an error of the runtime's, it found out by itself.
        let sandbox = self.message("FailedCreatePodSandBox", "rpc error: ");
        if let Some((code, message)) = sandbox.map(rpc_error) {
            faults.push(Fault::on(Method::RunPodSandbox).always().fail(code, message));
        }
        let pull = self.message("Failed", "Failed to pull image ");
        if let Some((_, error)) = pull.and_then(|message| message.split_once("\": ")) {
            let (code, message) = rpc_error(error);
            faults.push(Fault::on(Method::PullImage).always().fail(code, message));
        }
        faults
    }

    /// The configurations that containers were asked for with; what was asked for again counts once, as how often
    /// something is tried again is a matter of timing.
    pub fn containers(&self) -> Json {
        let lists = self.json["containers"].as_object().into_iter().flatten();
        Json::Object(
            lists
                .map(|(name, list)| {
                    let mut list = items(list).cloned().collect::<Vec<_>>();
                    list.dedup();
                    (name.clone(), list.into())
                })
                .collect(),
        )
    }

    /// The events. Those that only differ in an ID are one, as how often they come is a matter of timing too.
    pub fn events(&self) -> Json {
        let mut events: Vec<Json> = items(&self.json["events"])
            .map(|event| {
                let text = |name: &str| event[name].as_str().unwrap_or_default();
                shown_event(text("type"), text("reason"), text("message"))
            })
            .collect();
        sort_events(&mut events);
        events.into()
    }

    fn container_statuses(&self) -> impl Iterator<Item = &Json> {
        let status = &self.json["status"];
        ["initContainerStatuses", "containerStatuses"].into_iter().flat_map(|list| items(&status[list]))
    }

    fn message(&self, reason: &str, part: &str) -> Option<&str> {
        items(&self.json["events"])
            .filter(|event| event["reason"] == reason)
            .filter_map(|event| event["message"].as_str())
            .find(|message| message.contains(part))
    }
}

/// Nobody listens in simulated containers: probes by the network that went well are made to run a program that does.
fn answer_probes(spec: &mut Json) {
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
                let Some(probe) = container.get_mut(probe).and_then(Json::as_object_mut) else { continue };
                let before = probe.len();
                probe.retain(|field, _| !["httpGet", "tcpSocket", "grpc"].contains(&field.as_str()));
                if probe.len() < before {
                    probe.insert("exec".to_owned(), serde_json::json!({"command": ["true"]}));
                }
            }
        }
    }
}

/// An event as it is compared.
pub fn shown_event(kind: &str, reason: &str, message: &str) -> Json {
    serde_json::json!({"type": kind, "reason": reason, "message": without_durations(message)})
}

/// In an order of their own, and those that only differ in an ID once.
pub fn sort_events(events: &mut Vec<Json>) {
    events.sort_by_key(ToString::to_string);
    events.dedup_by(|one, other| one == other && one.to_string().contains("<id>"));
}

fn items(list: &Json) -> impl Iterator<Item = &Json> {
    list.as_array().into_iter().flatten()
}

/// What a container did, by its status.
fn program(status: &Json) -> String {
    let mut program = String::new();
    let ended = |state: &str| status[state]["terminated"]["exitCode"].as_i64();
    match (ended("state"), ended("lastState")) {
        // A signal ended it.
        (Some(code), _) | (None, Some(code)) if code > 128 => program.push_str("term=ignore"),
        (Some(code), _) => write!(program, "exit={code},after=100ms").unwrap(),
        (None, Some(code)) => write!(program, "exit={code},after=1s").unwrap(),
        (None, None) => program.push_str("forever"),
    }
    program
}

/// An error of the runtime's in Go's words, which leave out that its code is unknown in some places.
fn rpc_error(message: &str) -> (Code, String) {
    let (code, description) = match message.split_once("rpc error: code = ") {
        Some((_, error)) => error.split_once(" desc = ").unwrap(),
        None => ("Unknown", message),
    };
    let code = (0..17).map(Code::from_i32).find(|known| format!("{known:?}") == code).unwrap();
    (code, with_an_id(description))
}

fn with_an_id(text: &str) -> String {
    with_stand_ins(text).replace("<id>", &"0123456789abcdef".repeat(4))
}
