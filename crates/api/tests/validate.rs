//! Invalid pods and what is said of each, from `data/invalid`; and valid ones, of which nothing is said.
//!
//! A case of `data/invalid` changes a valid pod: each line `path: value` sets a field (`*c` is a container, `~`
//! removes), and each line after `=>` is a message. `static` asks whether it can be a static pod, `with` and
//! `without` change a feature gate, and `<a*64>` stands for 64 times `a`.

use crablet_api::core::Pod;
use crablet_api::document::{Limits, Node, Value, decode, parse};
use crablet_api::validate::{FieldError, ValidationFeatures, validate_pod, validate_static_pod};
use proptest::prelude::*;

const CASES: &[(&str, &str)] = &[
    ("containers.txt", include_str!("data/invalid/containers.txt")),
    ("environment.txt", include_str!("data/invalid/environment.txt")),
    ("metadata.txt", include_str!("data/invalid/metadata.txt")),
    ("probes.txt", include_str!("data/invalid/probes.txt")),
    ("resources.txt", include_str!("data/invalid/resources.txt")),
    ("security.txt", include_str!("data/invalid/security.txt")),
    ("spec.txt", include_str!("data/invalid/spec.txt")),
    ("static.txt", include_str!("data/invalid/static.txt")),
    ("volumes.txt", include_str!("data/invalid/volumes.txt")),
];

/// A pod with all its defaults, and a container for use in the cases.
const BASE: &str = "\
container: &c
  name: c
  image: busybox
  imagePullPolicy: IfNotPresent
  terminationMessagePath: /dev/termination-log
  terminationMessagePolicy: File
pod:
  metadata:
    name: web
    namespace: default
  spec:
    containers:
    - *c
    dnsPolicy: ClusterFirst
    enableServiceLinks: true
    restartPolicy: Always
    schedulerName: default-scheduler
    securityContext: {}
    terminationGracePeriodSeconds: 30
";

#[derive(Default)]
pub(crate) struct Case<'a> {
    pub(crate) title: &'a str,
    pub(crate) is_static: bool,
    pub(crate) gates: Vec<(&'a str, bool)>,
    pub(crate) edits: Vec<(&'a str, String)>,
    pub(crate) messages: Vec<String>,
}

pub(crate) fn cases() -> Vec<Case<'static>> {
    CASES.iter().flat_map(|(_, text)| text.split("\n\n").map(read_case)).collect()
}

pub(crate) fn read_case(text: &str) -> Case<'_> {
    let mut case = Case::default();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            case.title = title;
        } else if let Some(message) = line.strip_prefix("=> ") {
            case.messages.push(expanded(message));
        } else if let Some(gate) = line.strip_prefix("with ") {
            case.gates.push((gate, true));
        } else if let Some(gate) = line.strip_prefix("without ") {
            case.gates.push((gate, false));
        } else if line == "static" {
            case.is_static = true;
        } else {
            let (path, value) = line.split_once(": ").unwrap_or_else(|| panic!("no edit: {line}"));
            case.edits.push((path, expanded(value)));
        }
    }
    case
}

/// The text with `<a*3>` written out as `aaa`.
fn expanded(text: &str) -> String {
    let mut parts = text.split('<');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let repeated = part.split_once('>').and_then(|(inside, rest)| {
            let (unit, times) = inside.rsplit_once('*')?;
            Some(unit.repeat(times.parse().ok()?) + rest)
        });
        whole.push_str(&repeated.unwrap_or_else(|| format!("<{part}")));
    }
    whole
}

impl Case<'_> {
    /// The pod as a document.
    pub(crate) fn document(&self) -> Node {
        let mut pod = field_of(tree(BASE), "pod");
        for (path, value) in &self.edits {
            let (container, _) = BASE.split_once("pod:").unwrap();
            let value = field_of(tree(&format!("{container}value: {value}\n")), "value");
            *target(&mut pod, path) = value;
        }
        pod
    }

    fn features(&self) -> ValidationFeatures {
        let mut features = ValidationFeatures::default();
        for (gate, on) in &self.gates {
            let field = match *gate {
                "ContainerRestartRules" => &mut features.container_restart_rules,
                "EnvFiles" => &mut features.env_files,
                "MatchLabelKeysInPodTopologySpreadSelectorMerge" => {
                    &mut features.match_label_keys_selector_merge
                }
                "PodDeletionCost" => &mut features.pod_deletion_cost,
                "PodLevelResources" => &mut features.pod_level_resources,
                "PreventStaticPodAPIReferences" => &mut features.prevent_static_pod_api_references,
                "RestartAllContainersOnContainerExits" => {
                    &mut features.restart_all_containers_on_container_exits
                }
                "SELinuxMount" => &mut features.selinux_mount,
                "StrictIPCIDRValidation" => &mut features.strict_ip_cidr_validation,
                "TaintTolerationComparisonOperators" => &mut features.taint_toleration_comparison_operators,
                "UserNamespacesHostNetworkSupport" => &mut features.user_namespaces_host_network_support,
                other => panic!("no such gate: {other}"),
            };
            *field = *on;
        }
        features
    }

    /// What is said of the pod.
    pub(crate) fn errors(&self) -> Vec<FieldError> {
        let (document, features) = (self.document(), self.features());
        let (pod, unknown) =
            decode::<Pod>(&document).unwrap_or_else(|error| panic!("{}: {error}", self.title));
        assert_eq!(unknown, [], "{}", self.title);
        if self.is_static { validate_static_pod(&pod, &features) } else { validate_pod(&pod, &features) }
    }
}

fn tree(text: &str) -> Node {
    parse("pod.yaml", text, Limits::MANIFEST).unwrap_or_else(|error| panic!("{error}: {text}")).0
}

fn field_of(node: Node, name: &str) -> Node {
    let Value::Map(mut fields) = node.value else { panic!("not a mapping") };
    fields.remove(name).unwrap_or_else(|| panic!("no {name}"))
}

/// The node at the end of a path, made where it is missing.
fn target<'a>(root: &'a mut Node, path: &str) -> &'a mut Node {
    path.split('.').fold(root, |node, part| {
        let (name, index) = match part.strip_suffix(']').and_then(|part| part.split_once('[')) {
            Some((name, index)) => (name, Some(index.parse::<usize>().unwrap())),
            None => (part, None),
        };
        let place = node.place.clone();
        let Value::Map(fields) = &mut node.value else { panic!("{path}: {name} is not in a mapping") };
        let node = fields.entry(name.into()).or_insert(Node { value: Value::Map([].into()), place });
        let Some(index) = index else { return node };
        let Value::List(items) = &mut node.value else { panic!("{path}: {name} is not a list") };
        &mut items[index]
    })
}

#[test]
fn every_invalid_pod_is_told_all_that_is_wrong_with_it() {
    let cases = cases();
    assert!(cases.len() >= 250, "{} cases", cases.len());
    let mut failures = Vec::new();
    for case in &cases {
        let messages: Vec<String> = case.errors().iter().map(FieldError::to_string).collect();
        assert!(!case.messages.is_empty(), "{}: nothing is expected", case.title);
        if messages != case.messages {
            failures.push(format!("{}\nexpected {:#?}\nfound {messages:#?}", case.title, case.messages));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn the_pod_that_the_cases_change_is_valid() {
    let case = Case::default();
    assert_eq!(case.errors(), []);
    assert_eq!(Case { is_static: true, ..case }.errors(), []);
}

#[test]
fn pods_that_the_api_server_accepted_are_valid() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/golden");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if !path.extension().is_some_and(|extension| extension == "json")
            || path.file_name().is_some_and(|name| name == "_objects.json")
        {
            continue;
        }
        // The recorded pods have marks for what differs from run to run.
        let text =
            std::fs::read_to_string(&path).unwrap().replace("<node>", "node").replace("<rnd>", "abcde");
        let pod = field_of(tree(&text), "pod");
        let (pod, _) = decode::<Pod>(&pod).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        assert_eq!(validate_pod(&pod, &ValidationFeatures::default()), [], "{path:?}");
        count += 1;
    }
    assert!(count >= 50, "{count} pods");
}

#[test]
fn a_problem_leads_to_its_line() {
    let text = "\
metadata:
  name: web
  namespace: default
spec:
  terminationGracePeriodSeconds: 30
  dnsPolicy: ClusterFirst
  restartPolicy: Always
  containers:
  - name: a
    image: b
    imagePullPolicy: Never
    terminationMessagePolicy: File
    ports:
    - containerPort: 0
      protocol: TCP
    resources:
      requests:
        cpu: -1
  - image: c
    imagePullPolicy: Never
    terminationMessagePolicy: File
    volumeMounts:
    - name: v
      mountPath: /v
      subPath: ..
  volumes:
  - name: v
    hostPath:
      path: /v
      type: Hole
";
    let document = parse("web.yaml", text, Limits::MANIFEST).unwrap().0;
    let (pod, _) = decode::<Pod>(&document).unwrap();
    let errors = validate_pod(&pod, &ValidationFeatures::default());
    let lines: Vec<String> = errors.iter().map(|error| error.located(&document).to_string()).collect();
    assert_eq!(
        lines,
        [
            "web.yaml:30: spec.volumes[0].hostPath.type: Unsupported value: \"Hole\": supported values: \"\", \
             \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \
             \"Socket\"",
            "web.yaml:14: spec.containers[0].ports[0].containerPort: Required value",
            "web.yaml:18: spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than \
             or equal to 0",
            "web.yaml:19: spec.containers[1].name: Required value",
            "web.yaml:23: spec.containers[1].volumeMounts[0].name: Not found: \"v\"",
            "web.yaml:22: spec.containers[1].volumeMounts.subPath: Invalid value: \"..\": must not contain '..'",
        ]
    );
}

/// Values that stand for the odd ones of each kind.
fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        prop_oneof![any::<i64>(), -2..300_i64].prop_map(|number| Value::Int(number.into())),
        "[-a-zA-Z0-9_./:'\\[\\]é\u{0}]{0,12}".prop_map(|text| Value::Text(text.into())),
        Just(Value::List(vec![])),
        Just(Value::Map([].into())),
    ]
}

/// All nodes below a node, itself included.
fn count(node: &Node) -> usize {
    let below: usize = match &node.value {
        Value::List(items) => items.iter().map(count).sum(),
        Value::Map(fields) => fields.values().map(count).sum(),
        _ => 0,
    };
    1 + below
}

/// Replaces the value of one of the nodes below a node; the answer is whether it was found.
fn replace(node: &mut Node, index: &mut usize, value: &Value) -> bool {
    if *index == 0 {
        node.value = value.clone();
        return true;
    }
    *index -= 1;
    match &mut node.value {
        Value::List(items) => items.iter_mut().any(|item| replace(item, index, value)),
        Value::Map(fields) => fields.values_mut().any(|field| replace(field, index, value)),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_pod_makes_validation_panic(
        case in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_value()), 1..6),
    ) {
        let cases = cases();
        let mut document = cases[case.index(cases.len())].document();
        for (place, value) in changes {
            let mut index = place.index(count(&document));
            replace(&mut document, &mut index, &value);
        }
        if let Ok((pod, _)) = decode::<Pod>(&document) {
            let features = ValidationFeatures::default();
            let errors = validate_pod(&pod, &features);
            let of_static = validate_static_pod(&pod, &features);
            for error in errors.iter().chain(&of_static) {
                prop_assert!(!error.path.is_empty());
                let _ = error.located(&document).to_string();
            }
        }
    }
}
