//! Pods by chance.

use std::fmt::Write as _;
use std::sync::Arc;

use crablet_api::core::{
    ContainerResizePolicy, Pod, ResourceRequirements, ResourceResizeRestartPolicy, RestartPolicy,
};
use crablet_api::testing::pod_yaml;
use crablet_api::{FeatureGates, Quantity, default_pod};
use crablet_core::restart::is_sidecar;

use crate::behaviour::{MISSING, PULLED};
use crate::random::Random;

/// Keeps what is drawn for probes and hooks apart.
const PROBES: u64 = 7;

/// What pods of a run may be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variety {
    Everything,
    /// Pods that run for ever when left alone.
    Lasting,
    /// The same, and all of them have claims, where there is storage.
    Claims,
}

/// The volumes of every pod; those that no container mounts are not made.
const VOLUMES: &str = "  volumes: [{name: data, emptyDir: {}}, {name: about, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]\n";

/// A pod by chance.
pub fn pod(random: &mut Random, name: &str, uid: &str, variety: Variety) -> Arc<Pod> {
    let policy = match variety {
        Variety::Everything => random.weighted(&[(50, "Always"), (25, "OnFailure"), (25, "Never")]),
        Variety::Lasting | Variety::Claims => "Always",
    };
    let grace = random.weighted(&[(1, 1), (2, 5), (2, 30)]);
    let mut text = format!(
        "metadata: {{name: {name}, namespace: default, uid: {uid}}}\n\
         spec:\n  restartPolicy: {policy}\n  terminationGracePeriodSeconds: {grace}\n"
    );
    if variety == Variety::Everything && random.percent(8) {
        let _ = writeln!(text, "  activeDeadlineSeconds: {}", random.between(5, 90));
    }
    // Apart from the rest, which is as it was without them.
    let mut extra = Random::new(random.clone().below(u64::MAX), PROBES);
    let inits = random.weighted(&[(4, 0), (3, 1), (2, 2), (1, 3)]);
    if inits > 0 {
        text.push_str("  initContainers:\n");
    }
    for index in 0..inits {
        match random.percent(45) {
            true => sidecar(random, &mut extra, &mut text, index),
            false => init(random, &mut text, index, variety),
        }
    }
    text.push_str("  containers:\n");
    for index in 0..random.weighted(&[(5, 1), (3, 2), (1, 3)]) {
        main(random, &mut extra, &mut text, index, variety);
    }
    text.push_str(VOLUMES);
    if extra.percent(15) {
        text.push_str("  hostUsers: false\n");
    }
    from_text(&text)
}

/// A pod from its text, with defaults.
pub fn from_text(text: &str) -> Arc<Pod> {
    let mut pod = pod_yaml(text);
    default_pod(&mut pod, &FeatureGates::default());
    Arc::new(pod)
}

/// Who in a pod has resources, which can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resourced {
    First,
    /// Each container, sidecars too. The first is restarted for another amount of memory, if it ever is.
    Each,
    /// The pod as a whole, and no container.
    Whole,
}

/// The pod with resources, which can change.
pub fn with_resources(pod: &Pod, whose: Resourced) -> Pod {
    let mut pod = pod.clone();
    let list = |cpu: &str, memory: &str| {
        let amounts = [("cpu", cpu), ("memory", memory)];
        amounts.into_iter().map(|(name, amount)| (name, quantity(amount))).collect()
    };
    let resources = ResourceRequirements {
        requests: list("20m", "10Mi"),
        limits: list("40", "600Gi"),
        ..ResourceRequirements::default()
    };
    let spec = &mut pod.spec;
    match whose {
        Resourced::First => {
            spec.containers.iter_mut().take(1).for_each(|it| it.resources = resources.clone())
        }
        Resourced::Each => {
            let sidecars = spec.init_containers.iter_mut().filter(|container| is_sidecar(container));
            sidecars.chain(&mut spec.containers).for_each(|it| it.resources = resources.clone());
            if let Some(first) = spec.containers.first_mut()
                && spec.restart_policy != Some(RestartPolicy::Never)
            {
                first.resize_policy = ["cpu", "memory"].map(restarts_for_memory).into();
            }
        }
        Resourced::Whole => spec.resources = Some(Box::new(resources)),
    }
    pod
}

fn restarts_for_memory(resource: &str) -> ContainerResizePolicy {
    let restart_policy = match resource {
        "memory" => ResourceResizeRestartPolicy::RestartContainer,
        _ => ResourceResizeRestartPolicy::NotRequired,
    };
    ContainerResizePolicy { resource_name: resource.into(), restart_policy }
}

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_default()
}

fn sidecar(random: &mut Random, extra: &mut Random, text: &mut String, index: usize) {
    let image =
        random.weighted(&[(5, "sim/forever:1"), (2, "sim/stubborn:1"), (1, "sim/exits-1-40:1"), (1, PULLED)]);
    let probes = probes(extra);
    let _ = writeln!(text, "  - {{name: i{index}, image: '{image}', restartPolicy: Always{probes}}}");
}

fn init(random: &mut Random, text: &mut String, index: usize, variety: Variety) {
    let image = match variety {
        Variety::Lasting | Variety::Claims => {
            random.weighted(&[(3, "sim/exits-0-0:1"), (3, "sim/exits-0-3:1")])
        }
        Variety::Everything => random.weighted(&[
            (6, "sim/exits-0-0:1"),
            (6, "sim/exits-0-3:1"),
            (2, "sim/exits-0-60:1"),
            (2, "sim/exits-1-3:1"),
            (1, MISSING),
        ]),
    };
    let _ = writeln!(text, "  - {{name: i{index}, image: '{image}'}}");
}

fn main(random: &mut Random, extra: &mut Random, text: &mut String, index: usize, variety: Variety) {
    let image = match variety {
        Variety::Lasting | Variety::Claims => {
            random.weighted(&[(3, "sim/forever:1"), (2, "sim/stubborn:1"), (1, PULLED)])
        }
        Variety::Everything => random.weighted(&[
            (40, "sim/forever:1"),
            (15, "sim/stubborn:1"),
            (8, "sim/exits-0-0:1"),
            (8, "sim/exits-0-3:1"),
            (8, "sim/exits-0-60:1"),
            (3, "sim/exits-1-0:1"),
            (8, "sim/exits-1-3:1"),
            (5, "sim/exits-1-40:1"),
            (4, MISSING),
            (8, PULLED),
        ]),
    };
    let hook = random.weighted(&[
        (80, ""),
        (8, ", lifecycle: {preStop: {sleep: {seconds: 3}}}"),
        (4, ", lifecycle: {preStop: {sleep: {seconds: 60}}}"),
        (8, ", lifecycle: {preStop: {exec: {command: [sleep, '2']}}}"),
    ]);
    let hook = match hook {
        "" if extra.percent(5) => ", lifecycle: {postStart: {exec: {command: [sleep, '2']}}}",
        hook => hook,
    };
    let mounts = random.weighted(&[
        (60, ""),
        (20, ", volumeMounts: [{name: data, mountPath: /data}]"),
        (10, ", volumeMounts: [{name: data, mountPath: /data, subPath: part}]"),
        (10, ", volumeMounts: [{name: data, mountPath: /data}, {name: about, mountPath: /about}]"),
    ]);
    let probes = probes(extra);
    let _ = writeln!(text, "  - {{name: c{index}, image: '{image}'{hook}{mounts}{probes}}}");
}

/// Probes of a container. All of them succeed sooner or later; what becomes of those that do not is for tests that look
/// closely.
fn probes(random: &mut Random) -> String {
    let mut text = String::new();
    for kind in ["startup", "liveness", "readiness"] {
        if !random.percent(8) {
            continue;
        }
        let command = random.weighted(&[(3, "'true'"), (1, "sleep, '0.3'")]);
        let (delay, period) = (random.weighted(&[(3, 0), (1, 2)]), random.weighted(&[(1, 2), (2, 10)]));
        let _ = write!(
            text,
            ", {kind}Probe: {{exec: {{command: [{command}]}}, initialDelaySeconds: {delay}, periodSeconds: {period}}}"
        );
    }
    text
}
