//! Which pod goes first when the node runs short, case by case.
//!
//! A pod is written in a line: its name, what it asks for (`memory=100Mi`, `storage=1Gi`; `whole=1Gi` as a pod; `overhead=…`)
//! and its `priority`, and behind a `:` what it uses (`memory=…`, `root=…`, `logs=…`, `volume=…`, `pids=…`). Behind a `?`
//! nothing is known of it. Its one volume is an `emptyDir`, unless it says `volume-is=…`.

use crablet_api::core::Pod;
use crablet_api::testing::pod_yaml;
use crablet_api::{Quantity, Text};
use crablet_core::eviction::{ContainerUsage, Disks, FsUsage, PodUsage, Signal, Usages, rank};
use crablet_core::qos::PodLevel;

/// The value of a word such as `memory=1Gi`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn amount(text: &str, name: &str) -> Option<u64> {
    value(text, name).map(|value| {
        let quantity: Quantity = value.parse().expect("a quantity");
        u64::try_from(quantity.value()).expect("no negative amount")
    })
}

fn pod(line: &str) -> (Pod, Option<PodUsage>) {
    let is_known = !line.contains('?');
    let (asks, uses) = line.split_once([':', '?']).expect("what it asks for, and what it uses");
    let name = asks.split_whitespace().next().expect("a name");
    let list = |names: &[(&str, &str)]| {
        let entries =
            names.iter().filter_map(|(word, resource)| Some(format!("{resource}: {}", value(asks, word)?)));
        format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
    };
    let requests = list(&[("memory", "memory"), ("storage", "ephemeral-storage"), ("cpu", "cpu")]);
    let source = match value(asks, "volume-is") {
        None => "emptyDir: {}",
        Some("memory") => "emptyDir: {medium: Memory}",
        Some("hostPath") => "hostPath: {path: /x}",
        Some("configMap") => "configMap: {name: x}",
        Some("secret") => "secret: {secretName: x}",
        Some("claim") => "persistentVolumeClaim: {claimName: x}",
        Some(other) => panic!("{other}"),
    };
    let mut spec = format!(
        "{{containers: [{{name: c, resources: {{requests: {requests}}}}}], volumes: [{{name: v, {source}}}]"
    );
    for (word, field) in [
        ("overhead", "overhead: {memory: "),
        ("init", "initContainers: [{name: i, resources: {requests: {memory: "),
    ] {
        if let Some(amount) = value(asks, word) {
            let closing = if word == "overhead" { "}" } else { "}}}]" };
            spec.push_str(&format!(", {field}{amount}{closing}"));
        }
    }
    if let Some(whole) = value(asks, "whole") {
        spec.push_str(&format!(", resources: {{requests: {{memory: {whole}}}}}"));
    }
    if let Some(whole) = value(asks, "whole-cpu") {
        spec.push_str(&format!(", resources: {{requests: {{cpu: {whole}}}}}"));
    }
    if let Some(priority) = value(asks, "priority") {
        spec.push_str(&format!(", priority: {priority}"));
    }
    spec.push('}');
    let pod = pod_yaml(&format!("metadata: {{name: {name}, uid: {name}}}\nspec: {spec}"));
    // What a pod takes of the disk is the same number in bytes and in inodes: who asks for either knows which.
    let fs = |word| FsUsage { bytes: amount(uses, word), inodes: amount(uses, word) };
    let usage = PodUsage {
        memory: amount(uses, "memory"),
        processes: amount(uses, "pids"),
        containers: vec![ContainerUsage {
            name: "c".into(),
            memory: amount(uses, "memory"),
            rootfs: fs("root"),
            logs: fs("logs"),
        }],
        volumes: vec![(Text::from("v"), fs("volume"))],
        ephemeral_storage: None,
    };
    (pod, is_known.then_some(usage))
}

/// Checks the order in which these go, whichever order they are in before. The lines are in the order expected.
#[track_caller]
fn check_at(signal: Signal, disks: Disks, level: PodLevel, lines: &[&str]) {
    let pods: Vec<(Pod, Option<PodUsage>)> = lines.iter().map(|line| pod(line)).collect();
    let usages: Usages =
        pods.iter().filter_map(|(pod, usage)| Some((pod.metadata.uid.to_string(), usage.clone()?))).collect();
    let expected: Vec<&str> = pods.iter().map(|(pod, _)| &*pod.metadata.name).collect();
    for turn in 0..pods.len() {
        for is_reversed in [false, true] {
            let mut ranked: Vec<&Pod> = pods.iter().map(|(pod, _)| pod).collect();
            ranked.rotate_left(turn);
            if is_reversed {
                ranked.reverse();
            }
            rank(&mut ranked, signal, disks, &usages, level);
            let found: Vec<&str> = ranked.iter().map(|pod| &*pod.metadata.name).collect();
            assert_eq!(found, expected, "for {}", signal.as_str());
        }
    }
}

#[track_caller]
fn check(signal: Signal, disks: Disks, lines: &[&str]) {
    check_at(signal, disks, PodLevel::Counted, lines);
}

const MEMORY: [Signal; 2] = [Signal::MemoryAvailable, Signal::AllocatableMemoryAvailable];
const NODE: [Signal; 2] = [Signal::NodeFsAvailable, Signal::NodeFsInodesFree];
const IMAGES: [Signal; 2] = [Signal::ImageFsAvailable, Signal::ImageFsInodesFree];
const CONTAINERS: [Signal; 2] = [Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree];

#[test]
fn for_memory() {
    let cases: &[(&str, &[&str])] = &[
        (
            "who uses more than it asked for, whatever its priority",
            &[
                "above priority=1 memory=100Mi : memory=101Mi",
                "below priority=-1 memory=200Mi : memory=199Mi",
            ],
        ),
        (
            "exactly as much as was asked for is not more",
            &["a memory=100Mi : memory=101Mi", "b memory=100Mi : memory=100Mi"],
        ),
        (
            "then the lower priority",
            &[
                "low priority=-134 : memory=1Mi",
                "medium priority=1 : memory=500Mi",
                "high priority=12534 : memory=900Mi",
            ],
        ),
        (
            "no priority is that of zero",
            &["low priority=-1 : memory=1Mi", "none : memory=1Mi", "high priority=1 : memory=900Mi"],
        ),
        (
            "then what is used beyond what was asked for",
            &[
                "burstable-high memory=100Mi : memory=800Mi",
                "best-effort-high : memory=500Mi",
                "best-effort-low : memory=300Mi",
                "burstable-low memory=100Mi : memory=300Mi",
                "guaranteed-high memory=1Gi : memory=800Mi",
                "guaranteed-low memory=1Gi : memory=200Mi",
            ],
        ),
        (
            "all three",
            &[
                "above-low-high priority=-1 : memory=500Mi",
                "above-low-low priority=-1 : memory=50Mi",
                "above-high-high priority=1 memory=100Mi : memory=600Mi",
                "above-high-low priority=1 memory=100Mi : memory=150Mi",
                "below-low-high priority=-1 memory=1Gi : memory=800Mi",
                "below-low-low priority=-1 memory=1Gi : memory=200Mi",
                "below-high-high priority=1 memory=1Gi : memory=800Mi",
                "below-high-low priority=1 memory=1Gi : memory=200Mi",
            ],
        ),
        (
            "nothing is known of one: it is the first, also before those of lower priority",
            &[
                "unknown priority=9 memory=1Gi ?",
                "above priority=-9 : memory=9Gi",
                "below memory=9Gi : memory=1Mi",
            ],
        ),
        ("of two that nothing is known of, the lower priority", &["low priority=1 ?", "high priority=2 ?"]),
        (
            "its memory is not known: it counts as none",
            &["a : memory=1", "b memory=1Mi : pids=1", "c memory=2Mi : pids=1"],
        ),
        ("who asks for nothing and uses nothing is within", &["a : memory=1", "b priority=-5 : memory=0"]),
        (
            "what init containers ask for at most counts",
            &["plain memory=100Mi : memory=200Mi", "init memory=100Mi init=300Mi : memory=250Mi"],
        ),
        (
            "what running the pod takes counts where it asks for something",
            &["none overhead=200Mi : memory=101Mi", "some memory=100Mi overhead=100Mi : memory=150Mi"],
        ),
        (
            "a pod as a whole",
            &[
                "above whole=100Mi memory=50Mi : memory=150Mi",
                "within whole=200Mi memory=50Mi : memory=150Mi",
            ],
        ),
        (
            "a pod that says something else as a whole asks for no memory",
            &["whole whole-cpu=1 memory=1Gi : memory=100Mi", "plain memory=1Gi : memory=900Mi"],
        ),
        (
            "disk and processes do not matter",
            &["a : memory=2Mi", "b : memory=1Mi root=9Gi logs=9Gi volume=9Gi pids=999"],
        ),
    ];
    for (what, lines) in cases {
        println!("{what}");
        for signal in MEMORY {
            check(signal, Disks::One, lines);
            check(signal, Disks::Split, lines);
        }
    }
    let lines = ["containers whole=200Mi memory=50Mi : memory=60Mi", "plain memory=100Mi : memory=90Mi"];
    check_at(Signal::MemoryAvailable, Disks::One, PodLevel::Ignored, &lines);
}

#[test]
fn for_process_ids() {
    let cases: &[(&str, &[&str])] = &[
        (
            "the lower priority, then who has more",
            &[
                "low-high priority=-1 : pids=20",
                "low-low priority=-1 : pids=6",
                "high-high priority=1 : pids=20",
                "high-low priority=1 : pids=5",
            ],
        ),
        ("nothing asked for matters", &["a memory=9Gi : pids=7 memory=1Mi", "b : pids=6 memory=9Gi"]),
        (
            "nothing is known of one: the first of its priority",
            &["low priority=-1 : pids=1", "unknown ?", "known : pids=900"],
        ),
        ("how many it has is not known: none", &["some : pids=1", "none : memory=1Gi"]),
        ("very many", &["a : pids=4294967296", "b : pids=2147483648", "c : pids=1"]),
    ];
    for (what, lines) in cases {
        println!("{what}");
        check(Signal::PidAvailable, Disks::One, lines);
    }
}

#[test]
fn for_disk() {
    let cases: &[(&str, &[&str])] = &[
        (
            "who takes more than it asked for, whatever its priority",
            &[
                "above priority=1 storage=100Mi : root=90Mi logs=11Mi volume=0",
                "below priority=-1 storage=200Mi : root=100Mi logs=99Mi volume=0",
            ],
        ),
        (
            "what is taken beyond what was asked for",
            &[
                "best-effort-high : root=50Mi logs=100Mi volume=150Mi",
                "burstable-high storage=100Mi : root=150Mi logs=150Mi volume=50Mi",
                "best-effort-low : root=25Mi logs=25Mi volume=50Mi",
                "burstable-low storage=100Mi : root=25Mi logs=35Mi volume=50Mi",
                "guaranteed-high storage=400Mi : root=225Mi logs=100Mi volume=50Mi",
                "guaranteed-low storage=400Mi : root=25Mi logs=45Mi volume=50Mi",
            ],
        ),
        (
            "all three",
            &[
                "above-low-high priority=-1 : root=200Mi logs=100Mi volume=200Mi",
                "above-low-low priority=-1 : root=10Mi logs=10Mi volume=30Mi",
                "above-high-high priority=1 storage=100Mi : root=200Mi logs=150Mi volume=250Mi",
                "above-high-low priority=1 storage=100Mi : root=90Mi logs=50Mi volume=10Mi",
                "below-low-high priority=-1 storage=1Gi : root=500Mi logs=200Mi volume=100Mi",
                "below-low-low priority=-1 storage=1Gi : root=50Mi logs=100Mi volume=50Mi",
                "below-high-high priority=1 storage=1Gi : root=250Mi logs=500Mi volume=50Mi",
                "below-high-low priority=1 storage=1Gi : root=100Mi logs=60Mi volume=40Mi",
            ],
        ),
        ("nothing is known of one", &["unknown priority=9 storage=9Gi ?", "known priority=-9 : root=9Gi"]),
        ("memory and processes do not matter", &["a : root=2Mi", "b : root=1Mi memory=9Gi pids=99"]),
        ("a volume in memory is not on disk", &["disk : volume=1Mi", "memory volume-is=memory : volume=9Gi"]),
        ("a directory of the node is", &["host volume-is=hostPath : volume=2Mi", "empty : volume=1Mi"]),
        ("so is a config map", &["config volume-is=configMap : volume=2Mi", "empty : volume=1Mi"]),
        ("a secret is not", &["empty : volume=1Mi", "secret volume-is=secret : volume=9Gi"]),
        ("a claim is not", &["empty : volume=1Mi", "claim volume-is=claim : volume=9Gi"]),
        (
            "a pod as a whole cannot ask for any",
            &["whole whole=1Gi storage=9Gi : root=2Mi", "plain storage=9Gi : root=8Gi"],
        ),
    ];
    for (what, lines) in cases {
        println!("{what}");
        for signal in [Signal::NodeFsAvailable, Signal::ImageFsAvailable, Signal::ContainerFsAvailable] {
            check(signal, Disks::One, lines);
        }
        check(Signal::NodeFsAvailable, Disks::Split, lines);
        check(Signal::ContainerFsAvailable, Disks::Split, lines);
    }
}

#[test]
fn for_inodes() {
    let cases: &[(&str, &[&str])] = &[
        (
            "who has most",
            &[
                "high : root=200000 logs=150000 volume=50000",
                "medium : root=100000 logs=150000 volume=50000",
                "low : root=50000 logs=100000 volume=50000",
            ],
        ),
        (
            "the lower priority first",
            &[
                "low-high priority=-1 : root=50000 logs=100000 volume=250000",
                "low-low priority=-1 : root=60000 logs=30000 volume=10000",
                "high-high priority=1 : root=150000 logs=150000 volume=50000",
                "high-low priority=1 : root=10000 logs=40000 volume=100000",
            ],
        ),
        (
            "nobody asks for any, so who has some has too many",
            &["some priority=5 storage=9Gi : root=1", "none priority=-5 : root=0"],
        ),
        // A quirk of upstream's: bytes that were asked for are taken from inodes.
        ("who asked for bytes goes later", &["plain : root=10", "asking storage=1Ki : root=1000"]),
    ];
    for (what, lines) in cases {
        println!("{what}");
        for signal in [Signal::NodeFsInodesFree, Signal::ImageFsInodesFree, Signal::ContainerFsInodesFree] {
            check(signal, Disks::One, lines);
        }
    }
}

/// Which parts of a pod count is what differs: each of three has most of one part.
#[test]
fn by_what_is_on_the_file_system_that_runs_full() {
    let (root, logs, volume) = (
        "root : root=9000 logs=10 volume=1",
        "logs : root=1 logs=8000 volume=10",
        "volume : root=10 logs=1 volume=7000",
    );
    for signal in NODE.into_iter().chain(IMAGES).chain(CONTAINERS) {
        check(signal, Disks::One, &[root, logs, volume]);
    }
    for signal in NODE {
        check(signal, Disks::SeparateImages, &[logs, volume, root]);
        check(signal, Disks::Split, &[root, logs, volume]);
    }
    for signal in IMAGES.into_iter().chain(CONTAINERS) {
        check(signal, Disks::SeparateImages, &[root, volume, logs]);
    }
    for signal in CONTAINERS {
        check(signal, Disks::Split, &[root, logs, volume]);
    }
    // Images are nobody's: priority is all that is left to go by.
    for signal in IMAGES {
        check(
            signal,
            Disks::Split,
            &[
                "low priority=-1 : root=1 logs=1 volume=1",
                "high priority=1 : root=9000 logs=9000 volume=9000",
            ],
        );
    }
}

#[test]
fn pods_that_do_not_differ_stay_in_their_order() {
    let pods: Vec<(Pod, Option<PodUsage>)> =
        ["a : memory=5", "b : memory=5", "c : memory=5"].iter().map(|line| pod(line)).collect();
    let usages: Usages =
        pods.iter().filter_map(|(pod, usage)| Some((pod.metadata.uid.to_string(), usage.clone()?))).collect();
    let mut ranked: Vec<&Pod> = pods.iter().rev().map(|(pod, _)| pod).collect();
    rank(&mut ranked, Signal::MemoryAvailable, Disks::One, &usages, PodLevel::Counted);
    let found: Vec<&str> = ranked.iter().map(|pod| &*pod.metadata.name).collect();
    assert_eq!(found, ["c", "b", "a"]);
}
