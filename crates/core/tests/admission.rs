//! Whether a node takes a pod.

use crablet_api::core::{Node, Pod};
use crablet_api::document::Limits;
use crablet_api::testing::pod_yaml;
use crablet_api::{FeatureGates, Gate};
use crablet_core::admission::{Failure, Input, Insufficient, admit, failures};
use crablet_core::status::rejected;
use crablet_core::testing::at;

fn node() -> Node {
    let json = r#"{
        "metadata": {"name": "n1", "labels": {"zone": "a", "size": "5", "kubernetes.io/os": "linux"}},
        "spec": {"taints": [
            {"key": "busy", "effect": "NoSchedule"}, {"key": "broken", "value": "yes", "effect": "NoExecute"}]},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "10Gi", "pods": "3",
            "example.com/gpu": "2", "hugepages-2Mi": "8Mi", "attachable-volumes-x": "1", "x.kubernetes.io/y": "1"}}}"#;
    crablet_api::from_json(json.as_bytes(), Limits::MANIFEST).expect("a node")
}

/// A pod with this spec that tolerates the node's taint.
fn pod(spec: &str) -> Pod {
    let mut pod = pod_yaml(&format!("metadata: {{name: web, namespace: default, uid: u}}\nspec: {spec}"));
    if pod.spec.tolerations.is_empty() {
        let tolerating = pod_yaml("spec: {tolerations: [{operator: Exists}]}");
        pod.spec.tolerations = tolerating.spec.tolerations;
    }
    pod
}

/// A pod whose one container asks for this.
fn asking(requests: &str) -> Pod {
    pod(&format!("{{containers: [{{name: c, resources: {{requests: {requests}}}}}]}}"))
}

/// Checks the verdict on a pod on a node where these others are: the reason and the message, or nothing.
#[track_caller]
fn check(pod: &Pod, others: &[&Pod], expected: Option<(&str, &str)>) {
    let node = node();
    let input = Input { pod, node: &node, others, features: &FeatureGates::default() };
    let verdict = admit(&input).err();
    let found = verdict.as_ref().map(|rejection| (&*rejection.reason, &*rejection.message));
    assert_eq!(found, expected);
}

#[test]
fn a_pod_that_fits_is_taken() {
    check(&asking("{}"), &[], None);
    check(&asking("{cpu: 2, memory: 1Gi, ephemeral-storage: 10Gi, example.com/gpu: 2}"), &[], None);
    check(&asking("{cpu: 500m}"), &[&asking("{cpu: 1500m}")], None);
}

#[test]
fn a_pod_that_asks_for_too_much_is_told_what_there_is() {
    for (requests, reason, message) in [
        ("{cpu: 5k}", "OutOfcpu", "cpu, requested: 5000000, used: 100, capacity: 2000"),
        (
            "{memory: 2Gi}",
            "OutOfmemory",
            "memory, requested: 2147483648, used: 1048576, capacity: 1073741824",
        ),
        (
            "{ephemeral-storage: 11Gi}",
            "OutOfephemeral-storage",
            "ephemeral-storage, requested: 11811160064, used: 0, capacity: 10737418240",
        ),
        (
            "{example.com/gpu: 2}",
            "OutOfexample.com/gpu",
            "example.com/gpu, requested: 2, used: 1, capacity: 2",
        ),
        (
            "{hugepages-2Mi: 16Mi}",
            "OutOfhugepages-2Mi",
            "hugepages-2Mi, requested: 16777216, used: 0, capacity: 8388608",
        ),
        (
            "{attachable-volumes-x: 2}",
            "OutOfattachable-volumes-x",
            "attachable-volumes-x, requested: 2, used: 0, capacity: 1",
        ),
        (
            "{x.kubernetes.io/y: 2}",
            "OutOfx.kubernetes.io/y",
            "x.kubernetes.io/y, requested: 2, used: 0, capacity: 1",
        ),
        (
            "{x.kubernetes.io/z: 1}",
            "OutOfx.kubernetes.io/z",
            "x.kubernetes.io/z, requested: 1, used: 0, capacity: 0",
        ),
    ] {
        let other = asking("{cpu: 100m, memory: 1Mi, example.com/gpu: 1}");
        let message = format!("Node didn't have enough resource: {message}");
        check(&asking(requests), &[&other], Some((reason, &message)));
    }
}

#[test]
fn a_full_node_takes_no_pod_even_if_it_asks_for_nothing() {
    let other = asking("{}");
    let message = "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3";
    check(&asking("{}"), &[&other, &other, &other], Some(("OutOfpods", message)));
}

#[test]
fn a_pod_that_asks_for_nothing_is_taken_even_where_others_have_too_much() {
    check(&asking("{}"), &[&asking("{cpu: 5}")], None);
    check(&asking("{cpu: 0}"), &[&asking("{cpu: 5}")], None);
}

#[test]
fn a_resource_that_the_node_does_not_know_is_not_its_business() {
    check(&asking("{example.com/unheard-of: 5}"), &[], None);
    check(&asking("{unheard-of: 5}"), &[], None);
    check(&asking("{requests.example.com/gpu: 5}"), &[], None);
    check(&asking("{example.com/-: 5}"), &[], None);
}

#[test]
fn a_resource_that_a_claim_stands_behind_is_not_the_nodes_business() {
    let refused = |resource: &str, features: &FeatureGates| {
        let mut pod = asking(&format!("{{{resource}: 5}}"));
        let status = r#"{"extendedResourceClaimStatus": {"resourceClaimName": "claim", "requestMappings": [
                {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"},
                {"containerName": "c", "resourceName": "deviceclass.resource.kubernetes.io/gpu", "requestName": "r"},
                {"containerName": "d", "resourceName": "deviceclass.resource.kubernetes.io/nic", "requestName": "r"},
                {"containerName": "c", "resourceName": "cpu", "requestName": "r"}]}}"#;
        pod.status = crablet_api::from_json(status.as_bytes(), Limits::MANIFEST).expect("a status");
        admit(&Input { pod: &pod, node: &node(), others: &[], features }).is_err()
    };
    let on = FeatureGates::default();
    assert!(!refused("example.com/gpu", &on));
    assert!(!refused("deviceclass.resource.kubernetes.io/gpu", &on));
    assert!(refused("deviceclass.resource.kubernetes.io/nic", &on), "the claim is for another container");
    assert!(refused("cpu", &on), "nobody claims CPU");
    let off = on.with(Gate::DRAExtendedResource, false);
    assert!(refused("example.com/gpu", &off));
    assert!(refused("deviceclass.resource.kubernetes.io/gpu", &off));
}

#[test]
fn the_whole_pod_is_counted() {
    let two = "{initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}], \
               containers: [{name: c, resources: {requests: {cpu: 1500m}}}]}";
    let message = "Node didn't have enough resource: cpu, requested: 2500, used: 0, capacity: 2000";
    check(&pod(two), &[], Some(("OutOfcpu", message)));
}

#[test]
fn a_port_of_the_host_has_one_owner() {
    let listening = |ports: &str| pod(&format!("{{containers: [{{name: c, ports: [{ports}]}}]}}"));
    let taken = (
        "NodePorts",
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    );
    for (one, other, clash) in [
        ("{containerPort: 80, hostPort: 80}", "{containerPort: 81, hostPort: 80}", true),
        ("{containerPort: 80, hostPort: 80}", "{containerPort: 80}", false),
        ("{containerPort: 80}", "{containerPort: 80}", false),
        ("{containerPort: 80, hostPort: 80}", "{containerPort: 80, hostPort: 80, protocol: UDP}", false),
        ("{containerPort: 80, hostPort: 80, hostIP: 10.0.0.1}", "{containerPort: 80, hostPort: 80}", true),
        (
            "{containerPort: 80, hostPort: 80, hostIP: 10.0.0.1}",
            "{containerPort: 80, hostPort: 80, hostIP: 10.0.0.2}",
            false,
        ),
        (
            "{containerPort: 80, hostPort: 80, hostIP: 10.0.0.1}",
            "{containerPort: 80, hostPort: 80, hostIP: 10.0.0.1}",
            true,
        ),
    ] {
        check(&listening(one), &[&listening(other)], clash.then_some(taken));
        check(&listening(other), &[&listening(one)], clash.then_some(taken));
    }
}

#[test]
fn ports_of_sidecars_count_and_those_of_other_init_containers_do_not() {
    let init = |policy: &str| {
        pod(&format!(
            "{{initContainers: [{{name: i, {policy} ports: [{{containerPort: 80, hostPort: 80}}]}}], containers: [{{name: c}}]}}"
        ))
    };
    let taken = (
        "NodePorts",
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    );
    let sidecar = init("restartPolicy: Always,");
    check(&sidecar, &[&sidecar], Some(taken));
    check(&init(""), &[&sidecar], None);
    check(&sidecar, &[&init("")], None);
}

#[test]
fn a_pod_chooses_its_nodes() {
    let mismatch =
        ("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector");
    let required = |terms: &str| {
        format!(
            "{{affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: {terms}}}}}}}}}"
        )
    };
    let expression = |expression: &str| required(&format!("[{{matchExpressions: [{expression}]}}]"));
    for (spec, fits) in [
        ("{nodeSelector: {zone: a}}".to_owned(), true),
        ("{nodeSelector: {zone: a, other: x}}".to_owned(), false),
        ("{nodeSelector: {zone: b}}".to_owned(), false),
        (expression("{key: zone, operator: In, values: [a, b]}"), true),
        (expression("{key: zone, operator: NotIn, values: [a, b]}"), false),
        (expression("{key: zone, operator: Exists}"), true),
        (expression("{key: zone, operator: Exists, values: [a]}"), false),
        (expression("{key: zone, operator: DoesNotExist}"), false),
        (expression("{key: size, operator: Gt, values: ['4']}"), true),
        (expression("{key: size, operator: Lt, values: ['4']}"), false),
        (expression("{key: zone, operator: Gt, values: ['4']}"), false),
        (expression("{key: zone, operator: Near, values: [a]}"), false),
        (required("[]"), false),
        (required("[{}]"), false),
        (required("[{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]"), true),
        (required("[{matchFields: [{key: metadata.name, operator: In, values: [n2]}]}]"), false),
        (required("[{matchFields: [{key: metadata.name, operator: In, values: [n1, n2]}]}]"), false),
        (required("[{matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]}]"), false),
        (required("[{matchFields: [{key: metadata.name, operator: NotIn, values: [n2]}]}]"), true),
        (required("[{matchFields: [{key: metadata.uid, operator: In, values: [n1]}]}]"), false),
        (required("[{matchFields: [{key: metadata.name, operator: Exists, values: [n1]}]}]"), false),
        (
            required(
                "[{matchExpressions: [{key: zone, operator: In, values: [b]}], matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]",
            ),
            false,
        ),
        (
            required(
                "[{matchExpressions: [{key: zone, operator: In, values: [a]}], matchFields: [{key: metadata.name, operator: In, values: [n2]}]}]",
            ),
            false,
        ),
        (
            required(
                "[{matchExpressions: [{key: zone, operator: In, values: [b]}]}, {matchExpressions: [{key: zone, operator: In, values: [a]}]}]",
            ),
            true,
        ),
    ] {
        println!("{spec}");
        check(&pod(&spec), &[], (!fits).then_some(mismatch));
    }
}

#[test]
fn a_pod_for_another_node_is_refused() {
    let message = "Predicate NodeName failed: node(s) didn't match the requested node name";
    check(&pod("{nodeName: n2}"), &[], Some(("NodeName", message)));
    check(&pod("{nodeName: n1}"), &[], None);
}

#[test]
fn only_taints_that_drive_pods_away_count_and_not_for_static_pods() {
    let message = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    let mut pod = pod("{tolerations: [{key: busy, operator: Exists}]}");
    check(&pod, &[], Some(("TaintToleration", message)));
    pod.metadata.annotations.insert("kubernetes.io/config.source", "file".into());
    check(&pod, &[], None);
    pod.metadata.annotations.insert("kubernetes.io/config.source", "api".into());
    check(&pod, &[], Some(("TaintToleration", message)));
    let tolerating = pod_yaml("spec: {tolerations: [{key: broken, value: 'yes', effect: NoExecute}]}");
    check(&tolerating, &[], None);
}

#[test]
fn a_pod_for_another_operating_system_is_refused() {
    let message = "Failed to admit pod as the OS field doesn't match node OS";
    check(&pod("{os: {name: windows}}"), &[], Some(("PodOSNotSupported", message)));
    check(&pod("{os: {name: linux}}"), &[], None);
    let mut labelled = pod("{}");
    labelled.metadata.labels.insert("kubernetes.io/os", "windows".into());
    let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
    check(&labelled, &[], Some(("PodOSSelectorNodeLabelDoesNotMatch", message)));
    labelled.metadata.labels.insert("kubernetes.io/os", "linux".into());
    check(&labelled, &[], None);
}

#[test]
fn strict_groups_need_a_runtime_that_can() {
    let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
    let strict = pod("{securityContext: {supplementalGroupsPolicy: Strict}}");
    check(&strict, &[], Some(("SupplementalGroupsPolicyNotSupported", message)));
    check(&pod("{securityContext: {supplementalGroupsPolicy: Merge}}"), &[], None);
    let able = r#"{"metadata": {"name": "n1"}, "status": {"allocatable": {"pods": "3"}, "features": {"supplementalGroupsPolicy": true}}}"#;
    let able: Node = crablet_api::from_json(able.as_bytes(), Limits::MANIFEST).expect("a node");
    let input = Input { pod: &strict, node: &able, others: &[], features: &FeatureGates::default() };
    assert_eq!(admit(&input), Ok(vec![]));
}

#[test]
fn resources_of_the_pod_as_a_whole_need_their_gate() {
    let pod = pod("{resources: {requests: {cpu: 3}}, containers: [{name: c}]}");
    let reason = |pod_level_resources| {
        let features = FeatureGates::default().with(Gate::PodLevelResources, pod_level_resources);
        let input = Input { pod: &pod, node: &node(), others: &[], features: &features };
        admit(&input).expect_err("too much").reason
    };
    assert_eq!((&*reason(true), &*reason(false)), ("OutOfcpu", "PodLevelResourcesNotSupported"));
    let off = FeatureGates::default().with(Gate::PodLevelResources, false);
    assert_eq!(admit(&Input { pod: &asking("{}"), node: &node(), others: &[], features: &off }), Ok(vec![]));
}

#[test]
fn all_that_speaks_against_a_pod_is_told_to_who_can_make_room() {
    let node = node();
    let pod = pod("{nodeName: n2, containers: [{name: c, resources: {requests: {cpu: 3, memory: 2Gi}}}]}");
    let others = [&asking("{cpu: 300m}"), &asking("{cpu: 200m}")];
    let input = Input { pod: &pod, node: &node, others: &others, features: &FeatureGates::default() };
    let failures = failures(&input);
    let [Failure::Insufficient(cpu), Failure::Insufficient(memory), Failure::NodeName] = &*failures else {
        panic!("{failures:?}")
    };
    assert_eq!((cpu.missing(), memory.missing()), (1500, 1 << 30));
    let expected = Insufficient { resource: "cpu".into(), requested: 3000, used: 500, capacity: 2000 };
    assert_eq!(*cpu, expected);
}

/// Checks who makes room for a static pod, or why it is refused all the same.
#[track_caller]
fn check_static(mut pod: Pod, others: &[&Pod], expected: Result<&[&str], &str>) {
    pod.metadata.annotations.insert("kubernetes.io/config.source", "file".into());
    let node = node();
    let input = Input { pod: &pod, node: &node, others, features: &FeatureGates::default() };
    let verdict = admit(&input);
    let found: Result<Vec<&str>, &str> = match &verdict {
        Ok(victims) => Ok(victims.iter().map(|victim| &*victim.metadata.name).collect()),
        Err(rejection) => Err(&rejection.reason),
    };
    assert_eq!(found.as_deref(), expected.as_ref().map(|names| *names));
}

#[test]
fn others_make_room_for_a_critical_pod_that_lacks_nothing_but_resources() {
    let named = |name: &str, mut pod: Pod| {
        pod.metadata.name = name.into();
        pod
    };
    let (small, large) = (named("small", asking("{cpu: 500m}")), named("large", asking("{cpu: 1500m}")));
    check_static(asking("{cpu: 1}"), &[], Ok(&[]));
    check_static(asking("{cpu: 1}"), &[&small, &large], Ok(&["large"]));
    check_static(asking("{cpu: 400m}"), &[&small, &large], Ok(&["small"]));
    check_static(asking("{}"), &[&small, &small, &large], Ok(&["small"]));
    check_static(asking("{cpu: 3}"), &[&small, &large], Err("UnexpectedAdmissionError"));
    // Where something else speaks against it too, nobody has to go.
    let elsewhere = pod("{nodeName: n2, containers: [{name: c, resources: {requests: {cpu: 1}}}]}");
    check_static(elsewhere, &[&small, &large], Err("NodeName"));
    // Nor for a pod that is not critical.
    let message = "Node didn't have enough resource: cpu, requested: 1000, used: 2000, capacity: 2000";
    check(&asking("{cpu: 1}"), &[&small, &large], Some(("OutOfcpu", message)));
}

#[test]
fn the_status_of_a_pod_that_was_refused_says_why() {
    let mut pod = asking("{cpu: 5k}");
    pod.metadata.generation = 3;
    let node = node();
    let input = Input { pod: &pod, node: &node, others: &[], features: &FeatureGates::default() };
    let status = rejected(&pod, &admit(&input).expect_err("too much"), input.features, at(0));
    assert_eq!(
        serde_json::to_string(&status).expect("JSON"),
        "{\"observedGeneration\":3,\"phase\":\"Failed\",\"message\":\"Pod was rejected: Node didn't have enough resource: cpu, requested: \
         5000000, used: 0, capacity: 2000\",\"reason\":\"OutOfcpu\",\"startTime\":\"2027-01-15T08:00:00Z\",\
         \"qosClass\":\"Burstable\"}"
    );
}

#[test]
fn what_a_pod_relies_on_has_to_be_declared() {
    let restarting =
        "restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [1]}}]";
    let in_init = format!("{{initContainers: [{{name: i, {restarting}}}], containers: [{{name: c}}]}}");
    let in_main = format!("{{containers: [{{name: c, {restarting}}}]}}");
    let hidden_users = "{hostNetwork: true, hostUsers: false, containers: [{name: c}]}";
    let both = format!("{{hostNetwork: true, hostUsers: false, containers: [{{name: c, {restarting}}}]}}");
    let (restarts, users) = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport");
    let on = FeatureGates::default();
    let missing = |spec: &str, declared: &[&str], features: &FeatureGates| {
        let mut node = node();
        node.status.declared_features = declared.iter().map(|name| (*name).into()).collect();
        let verdict = admit(&Input { pod: &pod(spec), node: &node, others: &[], features }).map(drop);
        verdict.map_err(|rejection| {
            assert_eq!(rejection.reason, "PodFeatureUnsupported");
            let before = "Pod requires node features that are not available: ";
            rejection.message.strip_prefix(before).expect("upstream's words").to_owned()
        })
    };
    for spec in [&*in_init, &in_main] {
        assert_eq!(missing(spec, &[users], &on), Err(restarts.to_owned()));
        assert_eq!(missing(spec, &[restarts], &on), Ok(()));
    }
    assert_eq!(missing(hidden_users, &[restarts], &on), Err(users.to_owned()));
    assert_eq!(missing(hidden_users, &[users], &on), Ok(()));
    assert_eq!(missing(&both, &[], &on), Err(format!("{restarts}, {users}")));
    assert_eq!(missing(&both, &[], &on.with(Gate::NodeDeclaredFeatures, false)), Ok(()));
    for spec in [
        "{hostNetwork: true, containers: [{name: c}]}",
        "{hostUsers: false, containers: [{name: c}]}",
        "{containers: [{name: c, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}]}",
    ] {
        assert_eq!(missing(spec, &[], &on), Ok(()), "{spec}");
    }
}
