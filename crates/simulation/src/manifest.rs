//! Pods by chance.

use std::fmt::Write as _;
use std::sync::Arc;

use crablet_api::core::Pod;
use crablet_api::testing::pod_yaml;
use crablet_api::{DefaultingFeatures, default_pod};

use crate::behaviour::{MISSING, PULLED};
use crate::random::Random;

/// What pods of a run may be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variety {
    /// Everything.
    Everything,
    /// Pods that run for ever when left alone.
    Lasting,
}

/// The volumes of every pod; those that no container mounts are not made.
const VOLUMES: &str = "  volumes: [{name: data, emptyDir: {}}, {name: about, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]\n";

/// A pod by chance.
pub fn pod(random: &mut Random, name: &str, uid: &str, variety: Variety) -> Arc<Pod> {
    let policy = match variety {
        Variety::Everything => random.weighted(&[(50, "Always"), (25, "OnFailure"), (25, "Never")]),
        Variety::Lasting => "Always",
    };
    let grace = random.weighted(&[(1, 1), (2, 5), (2, 30)]);
    let mut text = format!(
        "metadata: {{name: {name}, namespace: default, uid: {uid}}}\n\
         spec:\n  restartPolicy: {policy}\n  terminationGracePeriodSeconds: {grace}\n"
    );
    if variety == Variety::Everything && random.percent(8) {
        let _ = writeln!(text, "  activeDeadlineSeconds: {}", random.between(5, 90));
    }
    let inits = random.weighted(&[(4, 0), (3, 1), (2, 2), (1, 3)]);
    if inits > 0 {
        text.push_str("  initContainers:\n");
    }
    for index in 0..inits {
        match random.percent(45) {
            true => sidecar(random, &mut text, index),
            false => init(random, &mut text, index, variety),
        }
    }
    text.push_str("  containers:\n");
    for index in 0..random.weighted(&[(5, 1), (3, 2), (1, 3)]) {
        main(random, &mut text, index, variety);
    }
    text.push_str(VOLUMES);
    from_text(&text)
}

/// A pod from its text, with defaults.
pub fn from_text(text: &str) -> Arc<Pod> {
    let mut pod = pod_yaml(text);
    default_pod(&mut pod, &DefaultingFeatures::default());
    Arc::new(pod)
}

fn sidecar(random: &mut Random, text: &mut String, index: usize) {
    let image =
        random.weighted(&[(5, "sim/forever:1"), (2, "sim/stubborn:1"), (1, "sim/exits-1-40:1"), (1, PULLED)]);
    let _ = writeln!(text, "  - {{name: i{index}, image: '{image}', restartPolicy: Always}}");
}

fn init(random: &mut Random, text: &mut String, index: usize, variety: Variety) {
    let image = match variety {
        Variety::Lasting => random.weighted(&[(3, "sim/exits-0-0:1"), (3, "sim/exits-0-3:1")]),
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

fn main(random: &mut Random, text: &mut String, index: usize, variety: Variety) {
    let image = match variety {
        Variety::Lasting => random.weighted(&[(3, "sim/forever:1"), (2, "sim/stubborn:1"), (1, PULLED)]),
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
    let mounts = random.weighted(&[
        (60, ""),
        (20, ", volumeMounts: [{name: data, mountPath: /data}]"),
        (10, ", volumeMounts: [{name: data, mountPath: /data, subPath: part}]"),
        (10, ", volumeMounts: [{name: data, mountPath: /data}, {name: about, mountPath: /about}]"),
    ]);
    let _ = writeln!(text, "  - {{name: c{index}, image: '{image}'{hook}{mounts}}}");
}
