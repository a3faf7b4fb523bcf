//! What the Go kubelet asked of the runtime for many pods, and whether we ask for the same.
//!
//! `GOLDEN_DIR` names another folder of recordings. `tests/data/golden/README.md` tells how they were made.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

#[path = "golden/json.rs"]
mod json;
#[path = "golden/node.rs"]
mod node;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crablet_api::core::{Container, Pod, Service};
use crablet_core::labels::{CONFIG_SEEN, CONFIG_SOURCE};
use crablet_core::translate::{
    ContainerInput, ContainerRefusal, Environment, EnvironmentInput, Granted, MountInput, Node, Objects,
    SandboxInput, UserNamespaces, container, sandbox, sub_path,
};
use crablet_cri_api::{ImageUser, v1};
use node::Cluster;
use serde_json::Value as Json;

/// Where we differ on purpose: the recording, where in it, and why.
const DIFFERENCES: &[(&str, &str, &str)] = &[];

#[test]
fn every_recorded_pod_is_asked_for_as_it_was() {
    let directory = directory();
    let cluster = Cluster::read(&read(&directory.join("_objects.json")));
    let node = node::node();
    let mut compared = 0;
    let mut problems = Vec::new();
    for path in recordings(&directory) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let recording = Recording { name: &name, json: read(&path), node: &node, cluster: &cluster };
        compared += recording.compare(&mut problems);
    }
    let unused: Vec<_> = DIFFERENCES
        .iter()
        .filter(|difference| !problems.iter().any(|problem| problem.is(difference)))
        .collect();
    problems.retain(|problem| !DIFFERENCES.iter().any(|difference| problem.is(difference)));
    let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{} differences:\n{}", text.len(), text.join("\n"));
    assert!(compared > 1, "nothing was compared in {}", directory.display());
    if std::env::var_os("GOLDEN_DIR").is_none() {
        assert!(unused.is_empty(), "these differences are none any more: {unused:?}");
    }
    println!("{compared} sandboxes, containers and refusals are as they were recorded");
}

fn directory() -> PathBuf {
    match std::env::var_os("GOLDEN_DIR") {
        Some(directory) => directory.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden"),
    }
}

fn recordings(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with('_'))
        .collect();
    paths.sort();
    paths
}

fn read(path: &Path) -> Json {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Something that is not as it was recorded.
struct Problem {
    recording: String,
    place: String,
    recorded: Json,
    ours: Json,
}

impl Problem {
    fn is(&self, (recording, place, _): &(&str, &str, &str)) -> bool {
        self.recording == *recording && self.place == *place
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Problem { recording, place, recorded, ours } = self;
        write!(formatter, "{recording}: {place}\n    recorded: {recorded}\n    ours:     {ours}")
    }
}

struct Recording<'a> {
    name: &'a str,
    json: Json,
    node: &'a Node,
    cluster: &'a Cluster,
}

impl Recording<'_> {
    /// Compares all that was recorded; the answer is how many things that were.
    fn compare(&self, problems: &mut Vec<Problem>) -> usize {
        let pod = self.pod();
        let mut compared = 0;
        if self.json["sandbox"].is_object() {
            let ours = self.sandbox(&pod);
            self.differences("sandbox", &self.json["sandbox"], &ours, problems);
            compared += 1;
        }
        for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
            let recorded = self.json["containers"][container.name.as_str()].as_array();
            for (index, recorded) in recorded.into_iter().flatten().enumerate() {
                let attempt = recorded["metadata"]["attempt"].as_u64().unwrap_or(0);
                let place = format!("containers.{}[{index}]", container.name);
                match self.container(&pod, container, u32::try_from(attempt).unwrap()) {
                    Ok(ours) => self.differences(&place, recorded, &ours, problems),
                    Err(refusal) => {
                        problems.push(self.problem(&place, recorded, &refusal.to_string().into()))
                    }
                }
                compared += 1;
            }
            if let Some(message) = self.recorded_refusal(container) {
                let place = format!("containers.{} is refused", container.name);
                let ours = match self.container(&pod, container, 0) {
                    Ok(_) => Json::Null,
                    Err(refusal) => refusal.to_string().into(),
                };
                if *message != ours {
                    problems.push(self.problem(&place, message, &ours));
                }
                compared += 1;
            }
        }
        compared
    }

    /// The pod as its source hands it on.
    fn pod(&self) -> Pod {
        let mut pod: Pod = serde_json::from_value(self.json["pod"].clone()).unwrap();
        pod.metadata.annotations.insert(CONFIG_SOURCE, "api".into());
        pod.metadata.annotations.insert(CONFIG_SEEN, "<time>".into());
        pod
    }

    fn sandbox(&self, pod: &Pod) -> Json {
        let made = sandbox(&SandboxInput {
            pod,
            node: self.node,
            attempt: u32::try_from(self.json["sandbox"]["metadata"]["attempt"].as_u64().unwrap_or(0))
                .unwrap(),
            runtime_handler: "",
            users: &UserNamespaces::Unsupported,
            extra_groups: &[],
            exclusive_cpus: false,
        })
        .unwrap_or_else(|refusal| panic!("{}: {refusal}", self.name));
        self.shown("runtime.v1.PodSandboxConfig", &made.config)
    }

    fn container(&self, pod: &Pod, made: &Container, restart_count: u32) -> Result<Json, ContainerRefusal> {
        let ips: [IpAddr; 1] = [match pod.spec.host_network {
            true => node::HOST_IP,
            false => node::POD_IP,
        }
        .parse()
        .unwrap()];
        let services: Vec<&Service> = self.cluster.services.iter().collect();
        let of_namespace = |namespace: &str| namespace == &*pod.metadata.namespace;
        let objects = Objects {
            config_maps: (self.cluster.config_maps.iter())
                .filter(|map| of_namespace(&map.metadata.namespace))
                .map(|map| (map.metadata.name.as_str(), Ok(map)))
                .collect(),
            secrets: (self.cluster.secrets.iter())
                .filter(|secret| of_namespace(&secret.metadata.namespace))
                .map(|secret| (secret.metadata.name.as_str(), Ok(secret)))
                .collect(),
        };
        let environment = Environment::of_container(&EnvironmentInput {
            pod,
            container: made,
            node: self.node,
            pod_ips: &ips,
            services: &services,
            services_read: true,
            objects: &objects,
            files: &[],
            granted: &[],
        })?;
        let volumes = node::volumes(pod);
        let mut sub_paths = BTreeMap::new();
        for (index, mount) in made.volume_mounts.iter().enumerate() {
            if sub_path(mount, &environment)?.is_some() {
                sub_paths.insert(index, node::sub_path(pod, &mount.name, &made.name, index));
            }
        }
        let directory = format!("{}/pods/{}", node::ROOT, pod.metadata.uid);
        let config = container(
            &ContainerInput {
                pod,
                container: made,
                node: self.node,
                restart_count,
                image_ref: "sha256:<id>",
                image_user: Some(&ImageUser::Id(0)),
                mounts: MountInput {
                    volumes: &volumes,
                    sub_paths: &sub_paths,
                    etc_hosts: &format!("{directory}/etc-hosts"),
                    has_address: true,
                    termination_log: Some(&format!("{directory}/containers/{}/<rnd>", made.name)),
                    recursive_read_only: false,
                },
                runtime_handler: "",
                users: &UserNamespaces::Unsupported,
                extra_groups: &[],
                target: None,
                granted: &Granted::default(),
            },
            environment,
        )?;
        let mut json = self.shown("runtime.v1.ContainerConfig", &config);
        // The order of variables is random in the recordings, which therefore have a map.
        if let Some(list) = json["envs"].as_array() {
            let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
            let map = list.iter().map(|one| (text(&one["key"]), Json::from(text(&one["value"]))));
            json["envs"] = Json::Object(map.collect());
        }
        Ok(json)
    }

    fn shown(&self, name: &str, message: &impl prost::Message) -> Json {
        serde_json::from_str(&node::shown(&json::to_json(name, message).to_string())).unwrap()
    }

    /// What the status says of a container that could not be made.
    fn recorded_refusal(&self, container: &Container) -> Option<&Json> {
        ["initContainerStatuses", "containerStatuses"]
            .into_iter()
            .flat_map(|list| self.json["status"][list].as_array().into_iter().flatten())
            .filter(|status| status["name"].as_str() == Some(container.name.as_str()))
            .map(|status| &status["state"]["waiting"])
            .find(|waiting| waiting["reason"] == ContainerRefusal::REASON)
            .map(|waiting| &waiting["message"])
    }

    fn differences(&self, place: &str, recorded: &Json, ours: &Json, problems: &mut Vec<Problem>) {
        match (recorded, ours) {
            (Json::Object(recorded), Json::Object(ours)) => {
                let mut names: Vec<&String> = recorded.keys().chain(ours.keys()).collect();
                names.sort();
                names.dedup();
                for name in names {
                    let get = |fields: &serde_json::Map<String, Json>| {
                        fields.get(name).cloned().unwrap_or_default()
                    };
                    self.differences(&format!("{place}.{name}"), &get(recorded), &get(ours), problems);
                }
            }
            // Go takes the options of a resolver out of a hash map.
            (Json::Array(recorded), Json::Array(ours)) if place.ends_with(".dnsConfig.options") => {
                let sorted = |list: &[Json]| {
                    let mut list: Vec<String> = list.iter().map(ToString::to_string).collect();
                    list.sort();
                    list
                };
                if sorted(recorded) != sorted(ours) {
                    problems.push(self.problem(place, &recorded.clone().into(), &ours.clone().into()));
                }
            }
            (Json::Array(recorded), Json::Array(ours)) if recorded.len() == ours.len() => {
                for (index, (recorded, ours)) in recorded.iter().zip(ours).enumerate() {
                    self.differences(&format!("{place}[{index}]"), recorded, ours, problems);
                }
            }
            (recorded, ours) if recorded == ours => {}
            (recorded, ours) => problems.push(self.problem(place, recorded, ours)),
        }
    }

    fn problem(&self, place: &str, recorded: &Json, ours: &Json) -> Problem {
        Problem {
            recording: self.name.to_owned(),
            place: place.to_owned(),
            recorded: recorded.clone(),
            ours: ours.clone(),
        }
    }
}

#[test]
fn messages_are_shown_as_protobuf_shows_them() {
    let message = v1::LinuxContainerSecurityContext {
        run_as_user: Some(v1::Int64Value { value: 0 }),
        supplemental_groups: vec![7],
        seccomp: Some(v1::SecurityProfile { profile_type: 1, localhost_ref: String::new() }),
        ..v1::LinuxContainerSecurityContext::default()
    };
    assert_eq!(
        json::to_json("runtime.v1.LinuxContainerSecurityContext", &message).to_string(),
        r#"{"runAsUser":{},"seccomp":{"profileType":"Unconfined"},"supplementalGroups":["7"]}"#
    );
}
