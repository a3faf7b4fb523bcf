//! The names under `/metrics`: each that the Go kubelet has is here too, or it is said why not.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use common::{READY, get, start_on_a_port};
use crablet_cri_sim::Settings;
use crablet_testkit::eventually;

/// What the Go kubelet's metrics are, read off one that had run some hundred pods and off its documentation: type, labels
/// and help, where that was recorded.
const RECORDED: &str = include_str!("data/metrics_recorded.tsv");
/// Why some of them are not here.
const NOT_EXPOSED: &str = include_str!("data/metrics_not_exposed.tsv");

/// A pod that runs.
const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers:
  - {name: web, image: registry.example/web:1}
";

struct Metric<'a> {
    kind: &'a str,
    labels: BTreeSet<&'a str>,
    help: &'a str,
}

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().skip(1).map(|line| line.split('\t').collect())
}

fn recorded() -> BTreeMap<&'static str, Metric<'static>> {
    let metric = |row: Vec<&'static str>| {
        let labels = row[2].split(',').filter(|label| !label.is_empty()).collect();
        (row[0], Metric { kind: row[1], labels, help: row[3] })
    };
    rows(RECORDED).map(metric).collect()
}

/// What a scrape shows: types, labels and help.
fn exposed(text: &str) -> BTreeMap<&str, Metric<'_>> {
    let mut found: BTreeMap<&str, Metric<'_>> = BTreeMap::new();
    let mut help = "";
    let mut last = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap().1;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            last = name;
            found.insert(name, Metric { kind, labels: BTreeSet::new(), help });
        } else if let Some((_, labels)) = line.split_once('{') {
            let labels = labels.split('"').step_by(2).map(|part| part.trim_matches([',', '=', '}', ' ']));
            let labels = labels.filter(|label| !label.is_empty() && *label != "le");
            let labels = labels.filter(|label| !label.starts_with("} "));
            found.get_mut(last).unwrap().labels.extend(labels.filter(|label| label.chars().all(is_of_name)));
        }
    }
    found
}

fn is_of_name(letter: char) -> bool {
    letter == '_' || letter.is_ascii_lowercase()
}

#[test]
fn every_metric_of_the_go_kubelet_is_in_the_program_or_it_is_said_why_not() {
    let missing: BTreeMap<&str, &str> = rows(NOT_EXPOSED).map(|row| (row[0], row[1])).collect();
    let recorded = recorded();
    let sources = sources();
    let is_there = |name: &str| {
        // Some names are put together from a stem and what is counted.
        let stems = [
            ("apiserver_delegated_authn_request", ""),
            ("apiserver_delegated_authz_request", ""),
            ("kubelet_pod_resources_endpoint_", "\""),
        ];
        let made = stems.iter().find_map(|(stem, quote)| Some((name.strip_prefix(stem)?, quote)));
        match made {
            Some((rest, quote)) => sources.contains(&format!("{quote}{rest}")),
            None => sources.contains(&format!("\"{name}\"")),
        }
    };
    for name in recorded.keys() {
        match (is_there(name), missing.get(name)) {
            (true, None) => {}
            (false, Some(why)) => assert!(why.len() > 10, "{name}: {why}"),
            (true, Some(why)) => panic!("{name} is there, though it is said to be missing: {why}"),
            (false, None) => panic!("{name} is missing, and nobody says why"),
        }
    }
    for name in missing.keys() {
        assert!(recorded.contains_key(name), "{name} is not one of the Go kubelet's");
    }
}

/// What the dashboards and alerts of kubernetes-mixin ask of a kubelet. They also ask for `go_goroutines`, which has no
/// meaning here; for `kubelet_evictions`, which is to come; and for some that Kubernetes itself does not have any more.
const ASKED_FOR: [&str; 26] = [
    "kubelet_certificate_manager_client_expiration_renew_errors",
    "kubelet_certificate_manager_client_ttl_seconds",
    "kubelet_certificate_manager_server_ttl_seconds",
    "kubelet_cgroup_manager_duration_seconds",
    "kubelet_node_name",
    "kubelet_pleg_relist_duration_seconds",
    "kubelet_pleg_relist_interval_seconds",
    "kubelet_pod_start_duration_seconds",
    "kubelet_pod_worker_duration_seconds",
    "kubelet_running_containers",
    "kubelet_running_pods",
    "kubelet_runtime_operations_duration_seconds",
    "kubelet_runtime_operations_errors_total",
    "kubelet_runtime_operations_total",
    "kubelet_server_expiration_renew_errors",
    "kubelet_volume_stats_available_bytes",
    "kubelet_volume_stats_capacity_bytes",
    "kubelet_volume_stats_inodes",
    "kubelet_volume_stats_inodes_used",
    "kubernetes_build_info",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "rest_client_request_duration_seconds",
    "rest_client_requests_total",
    "storage_operation_duration_seconds",
    "volume_manager_total_volumes",
];

#[test]
fn what_dashboards_and_alerts_ask_for_is_there() {
    let (recorded, sources) = (recorded(), sources());
    let missing: BTreeSet<&str> = rows(NOT_EXPOSED).map(|row| row[0]).collect();
    for name in ASKED_FOR {
        assert!(recorded.contains_key(name), "{name} is not one of the Go kubelet's");
        assert!(!missing.contains(name) && sources.contains(&format!("\"{name}\"")), "{name}");
    }
}

/// The text of the whole program without this test.
fn sources() -> String {
    fn read(folder: &Path, into: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => read(&path, into),
                Some(extension) if extension == "rs" => into.push_str(&fs::read_to_string(&path).unwrap()),
                _ => {}
            }
        }
    }
    let mut text = String::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for entry in fs::read_dir(crates).unwrap() {
        let source = entry.unwrap().path().join("src");
        if source.is_dir() {
            read(&source, &mut text);
        }
    }
    text
}

#[tokio::test]
async fn what_a_node_with_a_pod_shows_has_the_types_labels_and_help_that_were_recorded() {
    let (node, agent, address) =
        start_on_a_port(|port| format!("address: 127.0.0.1\nreadOnlyPort: {port}\nstaticPodPath: manifests"))
            .await;
    // One that is too old to say who makes cgroups, of which a metric tells.
    let _runtime = node.runtime_with(Settings { pull_anything: true, ..Settings::containerd_1_7() });
    agent.logs(&[READY]).await;
    fs::create_dir_all(node.path("manifests")).unwrap();
    fs::write(node.path("manifests/web.yaml"), PODS).unwrap();
    let text = eventually("a pod runs", common::PATIENCE, || async {
        let (_, text) = get(address, "/metrics").await.unwrap();
        let has = |line: &str| text.lines().any(|found| found == line);
        let runs = has("kubelet_pod_start_duration_seconds_count 1") && has("kubelet_started_pods_total 1");
        if runs { Ok(text) } else { Err(text) }
    })
    .await
    .unwrap();
    let (recorded, exposed) = (recorded(), exposed(&text));
    assert!(exposed.len() > 30, "{:?}", exposed.keys());
    for (name, metric) in &exposed {
        if name.starts_with("crablet_") {
            continue;
        }
        let expected = recorded.get(name).unwrap_or_else(|| panic!("{name} is not one of the Go kubelet's"));
        if expected.kind != "custom" {
            assert_eq!(metric.kind, expected.kind, "{name}");
        }
        assert!(metric.labels.is_subset(&expected.labels), "{name}: {:?}", metric.labels);
        if !expected.help.is_empty() {
            assert_eq!(metric.help, expected.help, "{name}");
        }
    }
    for name in [
        "kubelet_active_pods",
        "kubelet_containers_per_pod_count",
        "kubelet_cri_losing_support",
        "kubelet_desired_pods",
        "kubelet_http_requests_total",
        "kubelet_image_manager_ensure_image_requests_total",
        "kubelet_imagemanager_image_mustpull_checks_total",
        "kubelet_imagemanager_ondisk_pulledrecords",
        "kubelet_metrics_provider",
        "kubelet_node_name",
        "kubelet_pleg_relist_duration_seconds",
        "kubelet_pod_start_duration_seconds",
        "kubelet_run_podsandbox_duration_seconds",
        "kubelet_running_pods",
        "kubelet_runtime_operations_total",
        "kubelet_started_containers_total",
        "kubelet_working_pods",
    ] {
        assert!(exposed.contains_key(name), "{name} in {text}");
    }
    for name in rows(NOT_EXPOSED).map(|row| row[0]) {
        assert!(!exposed.contains_key(name), "{name}");
    }
}
