//! What valid files and flags come to. The invalid ones are tried on the program itself, in its crate.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::fs;
use std::path::{Path, PathBuf};

use crablet_api::Gate;
use crablet_api::document::{Limits, Tree, Value, parse};
use crablet_config::{DEVIATIONS, Effective, FLAGS, Flag, GivenFlag, Kind, load};

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn with_flags(flags: &[(&str, &str)]) -> Effective {
    let given: Vec<GivenFlag<'_>> =
        flags.iter().map(|(name, text)| (Flag::find(name).unwrap(), *text)).collect();
    load(&given).unwrap_or_else(|error| panic!("{error}"))
}

fn with_file(path: &Path) -> Effective {
    with_flags(&[("config", path.to_str().unwrap())])
}

fn tree(text: &str) -> Tree {
    parse("test", text, Limits::MANIFEST).unwrap().0
}

/// `path = value` for each value of a tree, without places.
fn leaves(node: &Tree, path: &str, out: &mut Vec<String>) {
    match &node.value {
        Value::Map(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, field)| leaves(field, &format!("{path}.{name}"), out));
        }
        Value::List(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(index, item)| leaves(item, &format!("{path}[{index}]"), out));
        }
        value => out.push(format!("{path} = {value:?}")),
    }
}

fn leaves_of(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    leaves(&tree(text), "", &mut out);
    out
}

#[test]
fn a_gate_that_changes_nothing_here_is_named() {
    let gate = "LocalStorageCapacityIsolationFSQuotaMonitoring";
    let effective = with_flags(&[("feature-gates", &format!("{gate}=true"))]);
    assert_eq!(effective.not_acted_on, [format!("featureGates.{gate}")]);
}

#[test]
fn an_empty_file_comes_to_the_recorded_defaults_but_for_the_deviations() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubelet.yaml");
    fs::write(&file, HEAD).unwrap();
    let effective = with_file(&file);
    assert_eq!(effective.warnings, Vec::<String>::new());
    assert_eq!(effective.not_acted_on, Vec::<String>::new());

    let recorded =
        leaves_of(&fs::read_to_string(data("kubelet-configuration-defaults-1.36.4.yaml")).unwrap());
    let ours = leaves_of(&effective.to_yaml());
    let only = |left: &[String], right: &[String]| -> Vec<String> {
        left.iter().filter(|leaf| !right.contains(leaf)).cloned().collect()
    };
    assert_eq!(only(&recorded, &ours), [".serializeImagePulls = Bool(true)"]);
    assert_eq!(
        only(&ours, &recorded),
        [".maxParallelImagePulls = Int(5)", ".serializeImagePulls = Bool(false)"]
    );
}

#[test]
fn without_a_file_the_secure_defaults_apply_and_deviations_are_marked() {
    let effective = with_flags(&[]);
    let configuration = &effective.configuration;
    assert!(!configuration.authentication.anonymous.enabled);
    assert!(configuration.authentication.webhook.enabled);
    assert_eq!(configuration.authorization.mode.as_str(), "Webhook");
    assert_eq!(configuration.read_only_port, 0);
    assert!(configuration.eviction_hard.is_empty(), "as upstream: only a file brings thresholds");
    let yaml = effective.to_yaml();
    let marked = yaml.lines().filter(|line| line.contains("# crablet's default; upstream's is ")).count();
    assert_eq!(marked, DEVIATIONS.len(), "{yaml}");
    assert!(yaml.contains("serializeImagePulls: false  # crablet's default; upstream's is true\n"), "{yaml}");
}

#[test]
fn image_pulls_follow_the_configuration_when_it_says_anything() {
    for (fields, serialize, parallel) in [
        ("", false, Some(5)),
        ("serializeImagePulls: true\n", true, None),
        ("serializeImagePulls: false\n", false, None),
        ("maxParallelImagePulls: 1\n", true, Some(1)),
        ("maxParallelImagePulls: 3\n", false, Some(3)),
        ("serializeImagePulls: false\nmaxParallelImagePulls: 2\n", false, Some(2)),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kubelet.yaml");
        fs::write(&file, format!("{HEAD}{fields}")).unwrap();
        let configuration = with_file(&file).configuration;
        let found = (configuration.serialize_image_pulls, configuration.max_parallel_image_pulls);
        assert_eq!(found, (serialize, parallel), "{fields}");
    }
}

#[test]
fn the_file_that_kubeadm_writes_is_accepted_without_a_warning() {
    let effective = with_file(&data("kubeadm-1.36.yaml"));
    assert_eq!(effective.warnings, Vec::<String>::new());
    let configuration = &effective.configuration;
    assert_eq!(configuration.cgroup_driver.as_str(), "systemd");
    assert_eq!(configuration.sync_frequency.to_string(), "1m0s", "a zero stands for the default");
    assert_eq!(configuration.container_runtime_endpoint.as_ref(), "unix:///run/containerd/containerd.sock");
    assert_eq!(configuration.logging.flush_frequency.duration.to_string(), "5s");
}

#[test]
fn a_file_with_every_field_set_round_trips() {
    let directory = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for name in ["maximal.yaml", "maximal-alternatives.yaml"] {
        let effective = with_file(&data(name));
        assert_eq!(effective.warnings, Vec::<String>::new());
        let printed = effective.to_yaml();
        let original = fs::read_to_string(data(name)).unwrap();
        let printed_leaves = leaves_of(&printed);
        let lost: Vec<String> =
            leaves_of(&original).into_iter().filter(|leaf| !printed_leaves.contains(leaf)).collect();
        // The Go kubelet leaves out a false that is the only other value, and so do we.
        let expected: &[&str] = if name == "maximal.yaml" { &[] } else { &[".runOnce = Bool(false)"] };
        assert_eq!(lost, expected);

        let again = directory.path().join("again.yaml");
        fs::write(&again, &printed).unwrap();
        assert_eq!(with_file(&again).configuration, effective.configuration);
        let Value::Map(fields) = tree(&original).value else { panic!("not a mapping") };
        written.extend(fields.into_keys().map(String::from));
    }
    written.sort();
    written.dedup();
    let fields = fs::read_to_string(data("kubelet-configuration-fields-1.36.4.txt")).unwrap();
    assert_eq!(written, fields.lines().collect::<Vec<_>>(), "the files hold every field of the release");
}

#[test]
fn every_value_of_the_maximal_file_differs_from_the_default() {
    let defaults = leaves_of(&with_flags(&[]).to_yaml());
    let same: Vec<String> = leaves_of(&fs::read_to_string(data("maximal.yaml")).unwrap())
        .into_iter()
        .filter(|leaf| defaults.contains(leaf))
        .collect();
    // Fields whose other value excludes something else in the file.
    let expected = [
        r#".apiVersion = Text("kubelet.config.k8s.io/v1beta1")"#,
        ".cgroupsPerQOS = Bool(true)",
        ".enableSystemLogHandler = Bool(true)",
        r#".enforceNodeAllocatable[0] = Text("pods")"#,
        r#".kind = Text("KubeletConfiguration")"#,
        r#".logging.format = Text("text")"#,
        ".mergeDefaultEvictionSettings = Bool(false)",
        ".serializeImagePulls = Bool(false)",
        r#".shutdownGracePeriod = Text("0s")"#,
        r#".shutdownGracePeriodCriticalPods = Text("0s")"#,
    ];
    assert_eq!(same, expected);
}

#[test]
fn drop_ins_are_laid_over_the_file_in_order_and_flags_over_both() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir_all(path("conf.d/30-sub")).unwrap();
    let write = |name: &str, fields: &str| fs::write(path(name), format!("{HEAD}{fields}")).unwrap();
    write(
        "kubelet.yaml",
        "maxPods: 1\npodsPerCore: 1\nevictionSoft: {pid.available: 10%}\nevictionSoftGracePeriod: {pid.available: 1m}\nclusterDNS: [10.0.0.1, 10.0.0.2]\n",
    );
    write(
        "conf.d/10-a.conf",
        "maxPods: 2\nport: 2\nclusterDNS: [10.0.0.3]\nauthentication: {anonymous: {enabled: true}}\n",
    );
    write(
        "conf.d/20-b.conf",
        "maxPods: 3\nevictionHard: {memory.available: 1Gi}\nfeatureGates: {EventedPLEG: true, KubeletSeparateDiskGC: false}\n",
    );
    write("conf.d/30-sub/a.conf", "healthzPort: 7\npodsPerCore: null\n");
    fs::write(path("conf.d/ignored.yaml"), "not: [valid").unwrap();

    let effective = with_flags(&[
        ("config", path("kubelet.yaml").to_str().unwrap()),
        ("config-dir", path("conf.d").to_str().unwrap()),
        ("max-pods", "4"),
        ("feature_gates", "EventedPLEG=false"),
        ("cluster-dns", "10.0.0.4,10.0.0.5"),
        ("cluster-dns", "10.0.0.6"),
    ]);
    let yaml = effective.to_yaml().replace(directory.path().to_str().unwrap(), "DIR");
    for expected in [
        "maxPods: 4  # --max-pods\n",
        "port: 2  # DIR/conf.d/10-a.conf:4\n",
        "    enabled: true  # DIR/conf.d/10-a.conf:6\n",
        "  memory.available: 1Gi  # DIR/conf.d/20-b.conf:4\n",
        "  nodefs.available: 10%\n",
        "  pid.available: 10%  # DIR/kubelet.yaml:5\n",
        "healthzPort: 7  # DIR/conf.d/30-sub/a.conf:3\n",
        "  EventedPLEG: false  # --feature-gates\n  KubeletSeparateDiskGC: false  # DIR/conf.d/20-b.conf:5\n",
        "clusterDNS:  # --cluster-dns\n- 10.0.0.4  # --cluster-dns\n- 10.0.0.5  # --cluster-dns\n- 10.0.0.6  # --cluster-dns\n",
    ] {
        assert!(yaml.contains(expected), "{expected:?} is not in:\n{yaml}");
    }
    assert_eq!(effective.configuration.pods_per_core, 0, "a null takes the value out again");
    assert!(!effective.features.enabled(Gate::EventedPLEG));
}

#[test]
fn unknown_and_duplicated_fields_warn_with_file_line_and_path_and_are_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubelet.yaml");
    fs::write(&file, format!("{HEAD}maxPod: 5\nlogging:\n  colour: red\nmaxPods: 7\nmaxPods: 8\n")).unwrap();
    let effective = with_file(&file);
    let warnings: Vec<String> =
        effective.warnings.iter().map(|w| w.replace(directory.path().to_str().unwrap(), "DIR")).collect();
    assert_eq!(
        warnings,
        [
            "DIR/kubelet.yaml:7: maxPods: is set twice (first on line 6); the last one counts",
            "DIR/kubelet.yaml:5: logging.colour: unknown field",
            "DIR/kubelet.yaml:3: maxPod: unknown field",
        ]
    );
    assert_eq!(effective.configuration.max_pods, 8);
}

#[test]
fn a_threshold_that_is_none_of_its_own_is_said_to_be_of_no_use() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubelet.yaml");
    fs::write(&file, format!("{HEAD}evictionHard:\n  containerfs.available: 10%\n  nodefs.available: 10%\n"))
        .unwrap();
    let warnings = with_file(&file).warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("kubelet.yaml:3: evictionHard: containerfs.available is not used"),
        "{warnings:?}"
    );
}

#[test]
fn the_flag_table_holds_every_flag_of_the_release() {
    let recorded = fs::read_to_string(data("kubelet-flags-1.36.4.tsv")).unwrap();
    let mut expected: Vec<(String, String, bool)> = recorded
        .lines()
        .skip(1)
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            (columns[0].trim_start_matches('-').into(), columns[1].into(), columns[4] == "deprecated")
        })
        .collect();
    // What the Go kubelet has no word for.
    let own = ["keep-kernel-settings", "start-remembered-pods"];
    let mut ours: Vec<(String, String, bool)> = FLAGS
        .iter()
        .filter(|flag| !own.contains(&flag.name))
        .map(|flag| (flag.name.into(), flag.short.map_or_else(String::new, String::from), flag.deprecated))
        .collect();
    expected.sort();
    ours.sort();
    assert_eq!(ours, expected);
}

#[test]
fn every_flag_takes_its_recorded_default_and_changes_nothing_by_it() {
    let recorded = fs::read_to_string(data("kubelet-flags-1.36.4.tsv")).unwrap();
    let untouched = with_flags(&[]);
    // Where our default is another one on purpose, or where upstream's help shows no value that it would take.
    let differ = [
        "anonymous-auth",
        "authentication-token-webhook",
        "authorization-mode",
        "read-only-port",
        "serialize-image-pulls",
        "version",
    ];
    for line in recorded.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let (name, default) = (columns[0].trim_start_matches('-'), columns[3].trim_matches(['[', ']']));
        let flag = Flag::find(name).unwrap();
        if differ.contains(&name) || (default.is_empty() && !matches!(flag.kind, Kind::Text | Kind::Path)) {
            continue;
        }
        if default.is_empty() && ["root-dir"].contains(&name) {
            continue;
        }
        let effective = with_flags(&[(name, default)]);
        assert_eq!(effective.configuration, untouched.configuration, "--{name}={default}");
        assert_eq!(effective.flags, untouched.flags, "--{name}={default}");
    }
}

#[test]
fn flags_are_shown_as_recorded() {
    let recorded = fs::read_to_string(data("flagz.json")).unwrap();
    let recorded: serde_json::Value = serde_json::from_str(&recorded).unwrap();
    let body = recorded["body"].as_str().unwrap();
    let given =
        ["bootstrap-kubeconfig", "cert-dir", "hostname-override", "kubeconfig", "node-ip", "root-dir"];
    // Those are not shown that no help names. Where our default is another one on purpose, it is shown.
    let not_here = ["log-json-info-buffer-size", "log-json-split-stream"];
    let ours = ["keep-kernel-settings=false", "start-remembered-pods=false"];
    let differ = [
        "anonymous-auth=false",
        "authentication-token-webhook=true",
        "authorization-mode=Webhook",
        "read-only-port=0",
        "serialize-image-pulls=false",
    ];
    let mut expected: Vec<String> = Vec::new();
    for line in body.lines().skip(3) {
        let (name, _) = line.split_once('=').unwrap();
        let different = differ.iter().find(|different| different.starts_with(&format!("{name}=")));
        match different {
            _ if given.contains(&name) => expected.push(format!("{name}=given")),
            _ if name == "config" => expected.push("config=".to_owned()),
            Some(different) => expected.push((*different).to_owned()),
            None if !not_here.contains(&name) => expected.push(line.to_owned()),
            None => {}
        }
    }
    expected.extend(ours.map(str::to_owned));
    expected.sort_by_key(|line| line.split('=').next().unwrap().to_owned());
    let flags: Vec<(&str, &str)> = given.iter().map(|name| (*name, "given")).collect();
    let shown = with_flags(&flags).shown_flags;
    let shown: Vec<String> = shown.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(shown, expected);
}

#[test]
fn the_configuration_of_a_node_is_told_as_recorded() {
    let recorded = fs::read_to_string(data("configz.json")).unwrap();
    let recorded: serde_json::Value = serde_json::from_str(&recorded).unwrap();
    // What was recorded stands for an address there.
    let body = recorded["body"].as_str().unwrap().replace("<hostIP>", "10.99.0.1");
    let recorded: serde_json::Value = serde_json::from_str(&body).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubelet.yaml");
    // As that node had it. What it did not set is a default in the answer.
    let fields = "failCgroupV1: false
cgroupRoot: /
containerRuntimeEndpoint: unix:///run/lab-containerd/containerd.sock
rotateCertificates: true
failSwapOn: false
maxPods: 250
address: 10.99.0.1
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: LAB/cp/ca.crt}}
authorization: {mode: Webhook}
readOnlyPort: 0
evictionHard: {memory.available: 100Mi, nodefs.available: '1%', imagefs.available: '1%', nodefs.inodesFree: '1%'}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
serializeImagePulls: false
registryPullQPS: 0
staticPodPath: LAB/NODE/manifests
podLogsDir: LAB/NODE/podlogs
volumePluginDir: LAB/NODE/volume-plugins
tlsCertFile: LAB/NODE/pki/kubelet.crt
tlsPrivateKeyFile: LAB/NODE/pki/kubelet.key
";
    fs::write(&file, format!("{HEAD}{}", fields.replace("LAB", "/lab").replace("NODE", "node"))).unwrap();
    let expected = recorded.to_string().replace("<lab>", "/lab").replace("<node>", "node");
    let expected: serde_json::Value = serde_json::from_str(&expected).unwrap();
    assert_eq!(with_file(&file).to_json(), expected["kubeletconfig"]);
}

#[test]
fn secrets_in_headers_do_not_show_in_debug_output() {
    let effective = with_file(&data("maximal.yaml"));
    assert!(!format!("{:?}", effective.configuration).contains("Bearer"), "{:?}", effective.configuration);
}

#[test]
fn names_that_json_takes_and_yaml_does_not_are_printed_and_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubelet.yaml");
    let long = "k".repeat(1100);
    let text = format!("{HEAD}providerID: \"a\\x7f\\u2028\"\nstaticPodURLHeader:\n  ? {long}\n  : [a]\n");
    fs::write(&file, text).unwrap();
    let effective = with_file(&file);
    fs::write(&file, effective.to_yaml()).unwrap();
    assert_eq!(with_file(&file).configuration, effective.configuration);
}

#[test]
fn a_file_with_many_mistakes_or_unknown_fields_does_not_take_long() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubelet.yaml");
    let fields = |count, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();

    // Looking at each warning for each other one, or decoding once for each mistake, would take minutes.
    fs::write(&file, format!("{HEAD}{}", fields(100_000, &|n| format!("unknown{n}: 1\n")))).unwrap();
    assert_eq!(with_file(&file).warnings.len(), 100_000);

    let mistakes = fields(20_000, &|n| format!("  resource{n}: x\n"));
    fs::write(&file, format!("{HEAD}systemReserved:\n{mistakes}")).unwrap();
    let flag = Flag::find("config").unwrap();
    let problems = load(&[(flag, file.to_str().unwrap())]).unwrap_err().problems;
    assert_eq!(problems.len(), 101);
    assert_eq!(problems[100], format!("{}: has more mistakes than these", file.display()));
}
