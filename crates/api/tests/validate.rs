//! Invalid pods and what is said of each, from `data/invalid`; and valid ones, of which nothing is said.
//!
//! A case of `data/invalid` changes a valid pod: each line `path: value` sets a field (`*c` is a container, `~`
//! removes), and each line after `=>` is a message. `static` asks whether it can be a static pod, `with` and
//! `without` change a feature gate, and `<a*64>` stands for 64 times `a`.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use crablet_api::core::Pod;
use crablet_api::document::{Limits, Tree, Value, decode, parse};
use crablet_api::validate::{FieldError, static_pod_from_manifest, validate_pod, validate_static_pod};
use crablet_api::{FeatureGates, Gate, default_pod};
use proptest::prelude::*;

const CASES: &[&str] = &[
    include_str!("data/invalid/containers.txt"),
    include_str!("data/invalid/environment.txt"),
    include_str!("data/invalid/metadata.txt"),
    include_str!("data/invalid/probes.txt"),
    include_str!("data/invalid/resources.txt"),
    include_str!("data/invalid/security.txt"),
    include_str!("data/invalid/spec.txt"),
    include_str!("data/invalid/static.txt"),
    include_str!("data/invalid/volumes.txt"),
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

/// A pod that is invalid, and what is said of it.
#[derive(Default)]
struct Case<'a> {
    title: &'a str,
    is_static: bool,
    gates: Vec<(&'a str, bool)>,
    edits: Vec<(&'a str, String)>,
    messages: Vec<String>,
}

fn cases() -> Vec<Case<'static>> {
    CASES.iter().flat_map(|text| text.split("\n\n").map(read_case)).collect()
}

fn read_case(text: &str) -> Case<'_> {
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
    fn document(&self) -> Tree {
        let mut pod = field_of(tree(BASE), "pod");
        for (path, value) in &self.edits {
            let (container, _) = BASE.split_once("pod:").unwrap();
            let value = field_of(tree(&format!("{container}value: {value}\n")), "value");
            *target(&mut pod, path) = value;
        }
        pod
    }

    fn features(&self) -> FeatureGates {
        self.gates.iter().fold(FeatureGates::default(), |features, (gate, on)| {
            let gate = Gate::from_name(gate).unwrap_or_else(|| panic!("no such gate: {gate}"));
            features.with(gate, *on)
        })
    }

    /// What is said of the pod.
    fn errors(&self) -> Vec<FieldError> {
        let (document, features) = (self.document(), self.features());
        let (pod, unknown) =
            decode::<Pod>(&document).unwrap_or_else(|error| panic!("{}: {error}", self.title));
        assert_eq!(unknown, [], "{}", self.title);
        if self.is_static { validate_static_pod(&pod, &features) } else { validate_pod(&pod, &features) }
    }
}

fn tree(text: &str) -> Tree {
    parse("pod.yaml", text, Limits::MANIFEST).unwrap_or_else(|error| panic!("{error}: {text}")).0
}

fn field_of(node: Tree, name: &str) -> Tree {
    let Value::Map(mut fields) = node.value else { panic!("not a mapping") };
    fields.remove(name).unwrap_or_else(|| panic!("no {name}"))
}

/// The node at the end of a path, made where it is missing.
fn target<'a>(root: &'a mut Tree, path: &str) -> &'a mut Tree {
    path.split('.').fold(root, |node, part| {
        let (name, index) = match part.strip_suffix(']').and_then(|part| part.split_once('[')) {
            Some((name, index)) => (name, Some(index.parse::<usize>().unwrap())),
            None => (part, None),
        };
        let place = node.place.clone();
        let Value::Map(fields) = &mut node.value else { panic!("{path}: {name} is not in a mapping") };
        let node = fields.entry(name.into()).or_insert(Tree { value: Value::Map([].into()), place });
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
    let features = FeatureGates::default();
    let accepted = golden("").into_iter().map(|(name, recorded)| (name, field_of(recorded, "pod")));
    for (name, pod) in accepted.chain(golden("/raw")) {
        let (mut pod, _) = decode::<Pod>(&pod).unwrap_or_else(|error| panic!("{name}: {error}"));
        default_pod(&mut pod, &features);
        // Admission gives every pod an account before it is validated.
        pod.spec.service_account_name = "default".into();
        assert_eq!(validate_pod(&pod, &features), [], "{name}");
    }
}

/// The recorded pods, with something for each mark that stands for what differs from run to run.
fn golden(below: &str) -> Vec<(String, Tree)> {
    let directory = format!("{}/tests/data/golden{below}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let pods: Vec<(String, Tree)> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter(|path| path.file_name().is_some_and(|name| name != "_objects.json"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path.display().to_string(), tree(&text.replace("<node>", "node").replace("<rnd>", "abcde")))
        })
        .collect();
    assert!(pods.len() >= 50, "{} pods", pods.len());
    pods
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
    let errors = validate_pod(&pod, &FeatureGates::default());
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

#[test]
fn a_manifest_is_told_all_that_is_wrong_with_it_line_by_line() {
    let text = "\
apiVersion: v1
kind: Pod
metadata:
  labels:
    app: web server
spec:
  hostNetwork: true
  containers:
  - name: web
    image: nginx
    ports:
    - containerPort: 80
    env:
    - name: TOKEN
      valueFrom:
        secretKeyRef:
          name: token
          key: value
  - name: web
    image: busybox
";
    let prepare = |pod: &mut Pod| {
        pod.metadata.name = format!("{}-node", pod.metadata.name).into();
        pod.metadata.namespace = "default".into();
        pod.spec.node_name = "node".into();
    };
    let read = |text: &str| {
        let features = FeatureGates::default();
        static_pod_from_manifest("web.yaml", text, &features, prepare)
    };
    assert_eq!(
        read(text).unwrap_err().to_string(),
        "\
web.yaml:3: metadata.name: Required value: name is needed for the pod
web.yaml:4: metadata.labels: Invalid value: \"web server\": a valid label must be an empty string or consist of \
alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
web.yaml:16: spec.containers[0].env[0].valueFrom.secretKeyRef: Forbidden: static pods may not reference secrets
web.yaml:19: spec.containers[1].name: Duplicate value: \"web\""
    );
    let fixed = text.replace("  labels:\n    app: web server", "  name: web");
    let fixed = fixed.replace(
        "valueFrom:\n        secretKeyRef:\n          name: token\n          key: value",
        "value: x",
    );
    let (pod, remarks) =
        read(&fixed.replace("- name: web\n    image: busybox", "- name: log\n    image: busybox")).unwrap();
    assert_eq!((pod.metadata.name.as_ref(), pod.spec.containers[0].ports[0].host_port), ("web-node", 80));
    assert_eq!(remarks, []);
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
fn count(node: &Tree) -> usize {
    let below: usize = match &node.value {
        Value::List(items) => items.iter().map(count).sum(),
        Value::Map(fields) => fields.values().map(count).sum(),
        _ => 0,
    };
    1 + below
}

/// Replaces the value of one of the nodes below a node; the answer is whether it was found.
fn replace(node: &mut Tree, index: &mut usize, value: &Value) -> bool {
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
            let features = FeatureGates::default();
            let errors = validate_pod(&pod, &features);
            let of_static = validate_static_pod(&pod, &features);
            for error in errors.iter().chain(&of_static) {
                prop_assert!(!error.path.is_empty());
                let _ = error.located(&document).to_string();
            }
        }
    }
}
