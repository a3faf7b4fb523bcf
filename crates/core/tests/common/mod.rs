//! Pods and what a runtime says of them, in one line each.
//!
//! A pod is `"Never: i s* t? | c d"`: its restart policy, its init containers, its regular ones. `*` makes an init
//! container a sidecar, `?` a sidecar with a startup probe.
//!
//! What a runtime says is `"sandbox#1, sandbox#0 dead, c#1@1 running, c exited 137"`: a name, `#` an attempt, `@` a
//! sandbox, and a state; `changed` instead of `running` is made from another image, `replaced` instead of `exited` was
//! stopped to be started anew. Where no sandbox is named there is
//! one, and it is ready; `none` has none.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::BTreeMap;

use crablet_api::core::{
    ContainerRestartPolicy, Pod, PodStatus, Probe, ResourceList, ResourceRequirements, RestartPolicy,
};
use crablet_api::{FeatureGates, Text};
use crablet_core::backoff::{Limits, Restarts};
use crablet_core::observed;
use crablet_core::plan::{self, Plan, Sandbox, WaitingFor};
use crablet_core::probes::{ContainerProbes, ProbeResult, Probes};
use crablet_core::resize::PodResourceInfo;
use crablet_core::resize::conditions::Conditions;
use crablet_core::status::{Failure, NodeFacts, StartError, StatusInput, pod_status};
use crablet_core::testing::{Described, at, container, observed_in, sandbox};
use jiff::Timestamp;

pub fn pod(line: &str) -> Pod {
    let (policy, rest) = line.split_once(':').expect("a policy, then a colon");
    let (init, main) = rest.split_once('|').unwrap_or(("", rest));
    let mut builder = crablet_api::testing::pod("web").restart(RestartPolicy::from(policy.trim())).grace(30);
    for name in init.split_whitespace() {
        builder = match name.trim_end_matches(['*', '?']) {
            plain if plain == name => builder.init_container(name, "img"),
            plain => builder.sidecar(plain, "img"),
        };
        let probe = name.ends_with('?').then(|| Box::new(Probe::default()));
        builder = builder.with(|pod| {
            let last = pod.spec.init_containers.last_mut().expect("it was added just now");
            last.startup_probe = probe;
        });
    }
    for name in main.split_whitespace() {
        builder = builder.container(name, "img");
    }
    builder.with(|pod| pod.metadata.generation = 1).build()
}

/// What a runtime says, in one line.
pub fn seen(pod: &Pod, line: &str) -> observed::Pod {
    let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
    let mut implied = true;
    for item in line.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        if item == "none" {
            implied = false;
            continue;
        }
        let mut words = item.split_whitespace();
        let (name, in_sandbox) = split_number(words.next().expect("a name"), '@');
        let (name, attempt) = split_number(name, '#');
        let (state, code) = (words.next().unwrap_or("ready"), words.next());
        if name == "sandbox" {
            implied = false;
            sandboxes.push(sandbox(attempt, state == "ready"));
            continue;
        }
        let made = container(name, attempt).in_sandbox(in_sandbox);
        let code = code.map_or(0, |code| code.parse().expect("an exit code"));
        containers.push(match state {
            "created" => made,
            "running" => made.running(),
            "changed" => made.running().annotation("io.kubernetes.container.hash", "0"),
            "exited" => made.exited(code),
            "replaced" => made.exited(code).replaced(),
            "unknown" => made.unknown(),
            other => panic!("no such state: {other}"),
        });
    }
    if implied {
        sandboxes.push(sandbox(0, true));
    }
    observed_in(pod, sandboxes, containers)
}

fn split_number(text: &str, mark: char) -> (&str, u32) {
    text.split_once(mark).map_or((text, 0), |(name, number)| (name, number.parse().expect("a number")))
}

/// All that decisions are made from.
#[derive(Clone)]
pub struct World {
    pub pod: Pod,
    /// What the node granted, where it is not what the pod asks for.
    pub allocated: Option<Pod>,
    pub actuated: PodResourceInfo,
    pub resize_conditions: Conditions,
    pub observed: observed::Pod,
    pub previous: PodStatus,
    pub probes: Probes,
    pub restarts: Restarts,
    pub start_errors: BTreeMap<Text, StartError>,
    pub held_back: BTreeMap<Text, Text>,
    pub finished: bool,
    pub failure: Option<Failure>,
    pub node: NodeFacts,
    pub features: FeatureGates,
    pub now: Timestamp,
}

impl World {
    pub fn new(pod: Pod, observed: &str) -> World {
        World {
            observed: seen(&pod, observed),
            previous: pod.status.clone(),
            pod,
            allocated: None,
            actuated: PodResourceInfo::default(),
            resize_conditions: Conditions::default(),
            probes: Probes::default(),
            restarts: Restarts::new(Limits::default()),
            start_errors: BTreeMap::new(),
            held_back: BTreeMap::new(),
            finished: false,
            failure: None,
            node: NodeFacts {
                host_ips: vec!["192.168.0.1".parse().expect("an address")],
                runtime_name: "containerd".into(),
                ..NodeFacts::default()
            },
            features: FeatureGates::default(),
            now: at(1000),
        }
    }

    /// The time, in seconds after the beginning.
    pub fn at(mut self, seconds: i64) -> World {
        self.now = at(seconds);
        self
    }

    /// What the runtime says next. What was said of the pod until then is remembered.
    pub fn then(mut self, observed: &str) -> World {
        self.previous = self.status();
        self.observed = seen(&self.pod, observed);
        self
    }

    /// What probes found of a container, such as `("c-0", "liveness", "failed")`.
    pub fn probe(mut self, id: &str, kind: &str, result: &str) -> World {
        let probes: &mut ContainerProbes = self.probes.0.entry(id.into()).or_default();
        let result = Some(match result {
            "succeeded" => ProbeResult::Success,
            "failed" => ProbeResult::Failure,
            _ => ProbeResult::Unknown,
        });
        match kind {
            "liveness" => probes.liveness = result,
            "readiness" => probes.readiness = result,
            _ => probes.startup = result,
        }
        self
    }

    /// A container was started again at a moment, after an end a second before.
    pub fn restarted(mut self, name: &str, seconds: i64) -> World {
        let spec = &self.pod.spec;
        let mut all = spec.init_containers.iter().chain(&spec.containers);
        let container = all.find(|container| *container.name == *name).expect("such a container");
        self.restarts.note_start(container, at(seconds - 1), at(seconds));
        self
    }

    /// A container could not be started.
    pub fn start_error(mut self, name: &str, reason: &str, message: &str) -> World {
        self.start_errors.insert(name.into(), StartError::new(reason, message));
        self
    }

    /// A container waits before its restart.
    pub fn held_back(mut self, name: &str, message: &str) -> World {
        self.held_back.insert(name.into(), message.into());
        self
    }

    pub fn status_input(&self) -> StatusInput<'_> {
        StatusInput {
            pod: &self.pod,
            allocated: self.allocated.as_ref().unwrap_or(&self.pod),
            observed: &self.observed,
            previous: &self.previous,
            probes: &self.probes,
            start_errors: &self.start_errors,
            held_back: &self.held_back,
            finished: self.finished,
            failure: self.failure.as_ref(),
            resize_conditions: &self.resize_conditions,
            actuated: &self.actuated,
            pod_cgroup: None,
            recursive_read_only_mounts: Some(false),
            node: &self.node,
            features: &self.features,
            now: self.now,
        }
    }

    pub fn status(&self) -> PodStatus {
        pod_status(&self.status_input())
    }

    pub fn plan(&self) -> Plan {
        let status = self.status();
        plan::plan(&plan::Input {
            pod: &self.pod,
            allocated: self.allocated.as_ref().unwrap_or(&self.pod),
            actuated: &self.actuated,
            observed: &self.observed,
            status: &status,
            probes: &self.probes,
            restarts: &self.restarts,
            features: &self.features,
            now: self.now,
        })
    }

    /// Checks what is planned, in words; see [`in_words`].
    #[track_caller]
    pub fn plans(self, expected: &str) -> World {
        let plan = self.plan();
        assert_eq!(in_words(&plan), expected);
        for start in &plan.start {
            let container = start.container(&self.pod).expect("it is in the pod");
            assert_eq!(container.name, start.name, "a start is of the container that it names");
        }
        self
    }
}

/// A plan in words: `kill c-0, stop sandbox-0, remove i-0, new sandbox 1, update c-0 to …, start c#1, wait for …`.
pub fn in_words(plan: &Plan) -> String {
    let mut words: Vec<String> = plan.kill.iter().map(|kill| format!("kill {}", kill.id)).collect();
    let stop = match &plan.sandbox {
        Sandbox::Keep { .. } => [].as_slice(),
        Sandbox::Create { stop, .. } | Sandbox::End { stop, .. } => stop,
    };
    words.extend(stop.iter().map(|id| format!("stop {id}")));
    words.extend(plan.remove.iter().map(|id| format!("remove {id}")));
    match &plan.sandbox {
        Sandbox::Keep { .. } => {}
        Sandbox::Create { attempt, .. } => words.push(format!("new sandbox {attempt}")),
        Sandbox::End { .. } => words.push("end".into()),
    }
    words.extend(plan.update.iter().map(|update| {
        let amount = |list: &ResourceList, name: &str| list.get(name).map_or("-".into(), ToString::to_string);
        let both = |list: &ResourceList| format!("{}/{}", amount(list, "cpu"), amount(list, "memory"));
        let ResourceRequirements { requests, limits, .. } = &update.resources;
        format!("update {} to {} up to {}", update.id, both(requests), both(limits))
    }));
    words.extend(plan.start.iter().map(|start| format!("start {}#{}", start.name, start.attempt)));
    words.extend(plan.waiting_for.iter().filter_map(|waiting| match waiting {
        WaitingFor::Sandbox { .. } => None,
        WaitingFor::InitContainer { name } => Some(format!("wait for {name}")),
        WaitingFor::SidecarStartup { name } => Some(format!("wait for the start of {name}")),
        WaitingFor::BackOff { name, until, .. } => {
            Some(format!("hold {name} until {}", until.duration_since(at(0)).as_secs()))
        }
        WaitingFor::RestartOfAll => Some("then all over".into()),
    }));
    if words.is_empty() { "nothing".into() } else { words.join(", ") }
}

/// Turns a container of the pod into one with its own restart policy.
pub fn with_policy(mut pod: Pod, name: &str, policy: ContainerRestartPolicy) -> Pod {
    let all = pod.spec.init_containers.iter_mut().chain(&mut pod.spec.containers);
    all.filter(|container| *container.name == *name)
        .for_each(|container| container.restart_policy = Some(policy.clone()));
    pod
}
