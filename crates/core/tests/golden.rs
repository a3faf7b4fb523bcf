//! What the Go kubelet asked of the runtime for many pods, and whether we ask for the same.
//!
//! `GOLDEN_DIR` names another folder of recordings. `tests/data/golden/README.md` tells how they were made.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

#[allow(dead_code, reason = "what else the whole agent's comparison needs")]
#[path = "golden/compare.rs"]
mod compare;
#[path = "golden/json.rs"]
mod json;
#[path = "golden/node.rs"]
mod node;

use std::collections::BTreeMap;
use std::net::IpAddr;

use compare::{Comparison, read, with_variables_as_a_map};
use crablet_api::core::{Container, Pod, Service};
use crablet_core::labels::{CONFIG_SEEN, CONFIG_SOURCE};
use crablet_core::translate::{
    ContainerInput, ContainerRefusal, Environment, EnvironmentInput, Granted, MountInput, NodeContext,
    Objects, SandboxInput, UserNamespaces, container, sandbox, sub_path,
};
use crablet_cri_api::{ImageUser, v1};
use node::Cluster;
use serde_json::Value as Json;

#[test]
fn every_recorded_pod_is_asked_for_as_it_was() {
    let directory = compare::directory();
    let cluster = Cluster::read(&read(&directory.join("_objects.json")));
    let node = node::node();
    let mut compared = 0;
    let mut problems = Vec::new();
    for path in compare::recordings(&directory) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let recording =
            Recording { name: &name, json: with_uid(&read(&path)), node: &node, cluster: &cluster };
        let mut comparison = Comparison::with(&name);
        compared += recording.compare(&mut comparison);
        problems.append(&mut comparison.problems);
    }
    let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{} differences:\n{}", text.len(), text.join("\n"));
    assert!(compared > 1, "nothing was compared in {}", directory.display());
    println!("{compared} sandboxes, containers and refusals are as they were recorded");
}

/// Recordings say `<uid>`, which names no control group.
fn with_uid(recording: &Json) -> Json {
    serde_json::from_str(&recording.to_string().replace("<uid>", "0-uid")).unwrap()
}

struct Recording<'a> {
    name: &'a str,
    json: Json,
    node: &'a NodeContext,
    cluster: &'a Cluster,
}

impl Recording<'_> {
    /// Compares all that was recorded; the answer is how many things that were.
    fn compare(&self, comparison: &mut Comparison<'_>) -> usize {
        let pod = self.pod();
        let mut compared = 0;
        if self.json["sandbox"].is_object() {
            let ours = self.sandbox(&pod);
            comparison.compare("sandbox", &self.json["sandbox"], &ours);
            compared += 1;
        }
        for container in pod.spec.init_containers.iter().chain(&pod.spec.containers) {
            let recorded = self.json["containers"][container.name.as_str()].as_array();
            for (index, recorded) in recorded.into_iter().flatten().enumerate() {
                let attempt = recorded["metadata"]["attempt"].as_u64().unwrap_or(0);
                let place = format!("containers.{}[{index}]", container.name);
                match self.container(&pod, container, u32::try_from(attempt).unwrap()) {
                    Ok(ours) => comparison.compare(&place, recorded, &ours),
                    Err(refusal) => comparison.problem(&place, recorded, &refusal.to_string().into()),
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
                    comparison.problem(&place, message, &ours);
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
            resolver: &node::resolver(),
            runtime_handler: "",
            users: &UserNamespaces::Unsupported,
            extra_groups: &[],
            exclusive_cpus: false,
        })
        .unwrap_or_else(|refusal| panic!("{}: {refusal}", self.name));
        self.shown("runtime.v1.PodSandboxConfig", &made.config)
    }

    fn container(&self, pod: &Pod, made: &Container, restart_count: u32) -> Result<Json, ContainerRefusal> {
        let own: [IpAddr; 1] = [node::POD_IP.parse().unwrap()];
        // Of the node's addresses a runtime knows nothing.
        let ips: &[IpAddr] = if pod.spec.host_network { &[] } else { &own };
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
            pod_ips: ips,
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
        Ok(with_variables_as_a_map(self.shown("runtime.v1.ContainerConfig", &config)))
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
