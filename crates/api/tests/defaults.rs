//! What is filled in where a pod does not say: beside what a real API server filled in, and rule by rule.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::fs;
use std::path::{Path, PathBuf};

use crablet_api::core::Pod;
use crablet_api::document::{self, Limits};
use crablet_api::{FeatureGates, Gate, default_pod, from_manifest};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

/// What a pod gains on its way through an API server beside its defaults. It is taken out of the recorded pods, and
/// only where it is exactly this.
fn added_by_others() -> [(&'static str, &'static str, Value); 10] {
    let not_ready = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let unreachable = json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let token_mount = json!({
        "name": "kube-api-access-<rnd>",
        "readOnly": true,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    });
    let token_volume = json!({"name": "kube-api-access-<rnd>", "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}});
    [
        // Who adds it, where, and what.
        ("the registry, when a pod is created", "/metadata/uid", json!("<uid>")),
        ("the scheduler", "/spec/nodeName", json!("<node>")),
        ("admission: Priority", "/spec/priority", json!(0)),
        ("admission: Priority", "/spec/preemptionPolicy", json!("PreemptLowerPriority")),
        ("admission: ServiceAccount", "/spec/serviceAccountName", json!("default")),
        ("admission: ServiceAccount", "/spec/serviceAccount", json!("default")),
        ("admission: ServiceAccount", "/spec/volumes/-", token_volume),
        ("admission: ServiceAccount", "/spec/containers/0/volumeMounts/-", token_mount),
        ("admission: DefaultTolerationSeconds", "/spec/tolerations/-", unreachable),
        ("admission: DefaultTolerationSeconds", "/spec/tolerations/-", not_ready),
    ]
}

/// Takes a value out where it is exactly this one; `-` is the last element of a list, and an empty list goes with it.
fn take_out(object: &mut Value, pointer: &str, expected: &Value) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    if name != "-" {
        let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut) else { return };
        if fields.get(name) == Some(expected) {
            fields.remove(name);
        }
        return;
    }
    let Some(list) = object.pointer_mut(parent).and_then(Value::as_array_mut) else { return };
    if list.last() == Some(expected) {
        list.pop();
        let emptied = list.is_empty();
        if emptied {
            take_out(object, parent, &json!([]));
        }
    }
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden")
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The pods as they were sent to the API server, by their names.
fn raw_pods() -> Vec<(String, Value)> {
    let files = fs::read_dir(golden().join("raw")).unwrap().map(|entry| entry.unwrap().path());
    let mut pods: Vec<_> = files
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), read(&path)))
        .filter(|(_, object)| object["kind"] == "Pod")
        .collect();
    pods.sort_by(|(one, _), (other, _)| one.cmp(other));
    pods
}

fn json_of(pod: &Pod) -> Value {
    serde_json::to_value(pod).unwrap()
}

#[test]
fn defaults_are_those_of_a_real_api_server() {
    let raw_pods = raw_pods();
    assert!(raw_pods.len() > 60, "found {}", raw_pods.len());
    for (name, raw) in raw_pods {
        let mut expected = read(&golden().join(&name))["pod"].take();
        for (_, pointer, value) in added_by_others() {
            take_out(&mut expected, pointer, &value);
        }
        let mut pod: Pod = serde_json::from_value(raw).unwrap();
        default_pod(&mut pod, &FeatureGates::default());
        let ours = json_of(&pod);
        similar(&name, &expected["metadata"], &ours["metadata"]);
        similar(&name, &expected["spec"], &ours["spec"]);
    }
}

/// A difference is easier to find with a line for each value.
fn similar(name: &str, expected: &Value, ours: &Value) {
    if expected != ours {
        panic!("{name}: expected\n{expected:#}\nfound\n{ours:#}");
    }
}

#[test]
fn everything_in_the_table_of_additions_happens() {
    let recorded: Vec<_> =
        raw_pods().iter().map(|(name, _)| read(&golden().join(name))["pod"].take()).collect();
    let mut remaining = recorded.clone();
    for (who, pointer, value) in added_by_others() {
        let before = remaining.clone();
        remaining.iter_mut().for_each(|pod| take_out(pod, pointer, &value));
        assert_ne!(before, remaining, "{who} never adds {pointer}");
    }
}

/// Whether such pods get such values. A line is `fields -> fields`: some of a pod before, and some of it after,
/// where `null` is a field that stays absent.
fn check_pods(table: &str) {
    for (before, after) in lines(table) {
        check(before, after, FeatureGates::default(), &|pod| pod);
    }
}

/// As [`check_pods`], for the fields of a spec.
fn check_specs(table: &str) {
    for (before, after) in lines(table) {
        check(&format!("spec: {{{before}}}"), after, FeatureGates::default(), &|pod| &pod["spec"]);
    }
}

/// As [`check_pods`], for the fields of a container of each of the kinds.
fn check_containers(kinds: &[&str], table: &str) {
    for (before, after) in lines(table) {
        for kind in kinds {
            let pod = format!("spec: {{{kind}: [{{{before}}}]}}");
            check(&pod, after, FeatureGates::default(), &|pod| &pod["spec"][kind][0]);
        }
    }
}

/// As [`check_pods`], for the fields of a volume.
fn check_volumes(table: &str) {
    for (before, after) in lines(table) {
        let pod = format!("spec: {{volumes: [{{{before}}}]}}");
        check(&pod, after, FeatureGates::default(), &|pod| &pod["spec"]["volumes"][0]);
    }
}

const MAIN_AND_INIT: &[&str] = &["containers", "initContainers"];
const ALL_KINDS: &[&str] = &["containers", "initContainers", "ephemeralContainers"];

fn lines(table: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = table.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| line.split_once("->").unwrap_or_else(|| panic!("no arrow in {line}")))
}

fn check(before: &str, after: &str, features: FeatureGates, part: &dyn Fn(&Value) -> &Value) {
    let manifest = format!("{{apiVersion: v1, kind: Pod, {before}}}");
    let (mut pod, _) = from_manifest::<Pod>("test", &manifest).unwrap();
    default_pod(&mut pod, &features);
    let pod = json_of(&pod);
    let (tree, _) = document::parse("test", &format!("{{{after}}}"), Limits::MANIFEST).unwrap();
    let (expected, _) = document::decode::<Map<String, Value>>(&tree).unwrap();
    for (field, expected) in expected {
        assert_eq!(part(&pod)[&field], expected, "{field} of {before}");
    }
}

#[test]
fn a_spec_gets_what_every_pod_has() {
    check_specs(
        "
        -> restartPolicy: Always, dnsPolicy: ClusterFirst, schedulerName: default-scheduler
        -> terminationGracePeriodSeconds: 30, enableServiceLinks: true, securityContext: {}
        restartPolicy: '', dnsPolicy: null, schedulerName: '' -> restartPolicy: Always, dnsPolicy: ClusterFirst
        restartPolicy: Never -> restartPolicy: Never
        dnsPolicy: None -> dnsPolicy: None
        dnsPolicy: Unheard -> dnsPolicy: Unheard
        schedulerName: mine -> schedulerName: mine
        enableServiceLinks: false -> enableServiceLinks: false
        securityContext: {runAsUser: 0} -> securityContext: {runAsUser: 0}
        terminationGracePeriodSeconds: 0 -> terminationGracePeriodSeconds: 0
        ",
    );
}

#[test]
fn what_has_no_default_stays_as_it_is() {
    check_specs(
        "
        -> hostUsers: null, shareProcessNamespace: null, automountServiceAccountToken: null, resources: null
        -> serviceAccountName: null, serviceAccount: null, nodeName: null, priority: null, tolerations: null
        tolerations: [{key: a}] -> tolerations: [{key: a}]
        ",
    );
    check_containers(
        ALL_KINDS,
        "
        -> securityContext: null
        securityContext: {} -> securityContext: {}
        volumeMounts: [{name: v, mountPath: /v}] -> volumeMounts: [{name: v, mountPath: /v}]
        ",
    );
    check_pods("-> status: {}");
}

#[test]
fn a_negative_grace_period_is_one_second() {
    check_specs("terminationGracePeriodSeconds: -5 -> terminationGracePeriodSeconds: 1");
}

#[test]
fn the_service_account_has_one_name_under_two() {
    check_specs(
        "
        serviceAccount: old -> serviceAccount: old, serviceAccountName: old
        serviceAccountName: new -> serviceAccount: new, serviceAccountName: new
        serviceAccount: old, serviceAccountName: new -> serviceAccount: new, serviceAccountName: new
        ",
    );
}

#[test]
fn annotations_that_init_containers_once_were_in_are_dropped() {
    check_pods(
        "
        metadata: {annotations: {a: b, pod.beta.kubernetes.io/init-containers: x}} -> metadata: {annotations: {a: b}}
        metadata: {annotations: {pod.alpha.kubernetes.io/init-containers: x}} -> metadata: {}
        metadata: {annotations: {pod.beta.kubernetes.io/init-container-statuses: x}} -> metadata: {}
        metadata: {annotations: {pod.alpha.kubernetes.io/init-container-statuses: x}} -> metadata: {}
        ",
    );
}

#[test]
fn a_container_gets_what_every_container_has() {
    check_containers(
        ALL_KINDS,
        "
        -> terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, resources: {}
        terminationMessagePolicy: '' -> terminationMessagePolicy: File
        terminationMessagePath: /x -> terminationMessagePath: /x
        terminationMessagePolicy: FallbackToLogsOnError -> terminationMessagePolicy: FallbackToLogsOnError
        ",
    );
}

#[test]
fn images_that_move_are_always_pulled() {
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let always = ["a", "a:latest", "r.io:5000/a", "r.io:5000/a/b:latest", &format!("a:latest@{digest}")];
    let if_not_present = ["a:1", "r:5000", "r.io:5000/a:1", &format!("a@{digest}"), "", "Not A Reference"];
    for (policy, images) in [("Always", &always[..]), ("IfNotPresent", &if_not_present)] {
        for image in images {
            check_containers(ALL_KINDS, &format!("image: '{image}' -> imagePullPolicy: {policy}"));
            let volume =
                format!("{{reference: '{image}', pullPolicy: {policy}}}").replace("reference: '', ", "");
            check_volumes(&format!("image: {{reference: '{image}'}} -> image: {volume}"));
        }
    }
    check_containers(ALL_KINDS, "image: a, imagePullPolicy: Never -> imagePullPolicy: Never");
    check_volumes("image: {reference: a, pullPolicy: Never} -> image: {reference: a, pullPolicy: Never}");
}

#[test]
fn ports_are_tcp_and_on_the_nodes_network_the_nodes() {
    check_containers(
        ALL_KINDS,
        "
        ports: [{containerPort: 80}] -> ports: [{containerPort: 80, protocol: TCP}]
        ports: [{containerPort: 80, protocol: UDP}] -> ports: [{containerPort: 80, protocol: UDP}]
        ",
    );
    for (kind, host_port) in [("containers", 80), ("initContainers", 80), ("ephemeralContainers", 0)] {
        let ports = "{containerPort: 80, protocol: UDP}, {containerPort: 81, protocol: UDP, hostPort: 8081}";
        let expected =
            ports.replacen("UDP", &format!("UDP, hostPort: {host_port}"), 1).replace(", hostPort: 0", "");
        check_specs(&format!(
            "hostNetwork: true, {kind}: [{{name: c, ports: [{ports}], image: 'a:1'}}] -> {kind}: [{{name: c, ports: \
             [{expected}], image: 'a:1', imagePullPolicy: IfNotPresent, resources: {{}}, terminationMessagePath: \
             /dev/termination-log, terminationMessagePolicy: File}}]"
        ));
    }
}

#[test]
fn variables_from_fields_are_of_the_first_version() {
    check_containers(
        ALL_KINDS,
        "
        env: [{name: A, valueFrom: {fieldRef: {fieldPath: f}}}] \
            -> env: [{name: A, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: f}}}]
        env: [{name: A, valueFrom: {fieldRef: {apiVersion: v2, fieldPath: f}}}] \
            -> env: [{name: A, valueFrom: {fieldRef: {apiVersion: v2, fieldPath: f}}}]
        env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}] \
            -> env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k, optional: false}}}]
        env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}] \
            -> env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]
        ",
    );
}

#[test]
fn probes_get_their_numbers_and_actions() {
    let table = "
        probe: {} -> probe: {NUMBERS}
        probe: {timeoutSeconds: 0, periodSeconds: 0, successThreshold: 0, failureThreshold: 0} -> probe: {NUMBERS}
        probe: {OTHERS} -> probe: {OTHERS}
        probe: {OTHERS, httpGet: {port: 80}} -> probe: {OTHERS, httpGet: {port: 80, path: /, scheme: HTTP}}
        probe: {OTHERS, httpGet: {port: x, path: p, scheme: HTTPS}} \
            -> probe: {OTHERS, httpGet: {port: x, path: p, scheme: HTTPS}}
        probe: {OTHERS, grpc: {port: 1}} -> probe: {OTHERS, grpc: {port: 1, service: ''}}
        probe: {OTHERS, grpc: {port: 1, service: s}} -> probe: {OTHERS, grpc: {port: 1, service: s}}
        probe: {OTHERS, tcpSocket: {port: 1}} -> probe: {OTHERS, tcpSocket: {port: 1}}
        probe: {OTHERS, httpGet: {port: 1}, grpc: {port: 2}} \
            -> probe: {OTHERS, httpGet: {port: 1, path: /, scheme: HTTP}, grpc: {port: 2, service: ''}}
        "
    .replace("NUMBERS", "timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3")
    .replace("OTHERS", "timeoutSeconds: 2, periodSeconds: 3, successThreshold: 4, failureThreshold: -6");
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        check_containers(ALL_KINDS, &table.replace("probe", probe));
    }
}

#[test]
fn lifecycle_handlers_ask_for_the_root_over_http() {
    for place in ["postStart", "preStop"] {
        let table = "
            lifecycle: {place: {httpGet: {port: 1}}} -> lifecycle: {place: {httpGet: {port: 1, path: /, scheme: HTTP}}}
            lifecycle: {place: {sleep: {seconds: 1}}} -> lifecycle: {place: {sleep: {seconds: 1}}}
            lifecycle: {place: {exec: {command: [a]}}} -> lifecycle: {place: {exec: {command: [a]}}}
            ";
        check_containers(ALL_KINDS, &table.replace("place", place));
    }
}

#[test]
fn volumes_get_what_their_source_has() {
    check_volumes(
        "
        -> emptyDir: {}
        emptyDir: null -> emptyDir: {}
        emptyDir: {medium: Memory} -> emptyDir: {medium: Memory}
        hostPath: {path: /x} -> hostPath: {path: /x, type: ''}, emptyDir: null
        hostPath: {path: /x, type: File} -> hostPath: {path: /x, type: File}
        secret: {secretName: s} -> secret: {secretName: s, defaultMode: 420}
        secret: {defaultMode: 0} -> secret: {defaultMode: 0}
        configMap: {name: m} -> configMap: {name: m, defaultMode: 420}
        configMap: {defaultMode: 256} -> configMap: {defaultMode: 256}
        downwardAPI: {items: [{path: p, fieldRef: {fieldPath: f}}]} \
            -> downwardAPI: {defaultMode: 420, items: [{path: p, fieldRef: {apiVersion: v1, fieldPath: f}}]}
        downwardAPI: {defaultMode: 0} -> downwardAPI: {defaultMode: 0}
        hostPath: {path: /x}, secret: {} -> hostPath: {path: /x, type: ''}, secret: {defaultMode: 420}
        nfs: {server: s, path: /p} -> nfs: {server: s, path: /p}
        persistentVolumeClaim: {claimName: c} -> persistentVolumeClaim: {claimName: c}
        csi: {driver: d} -> csi: {driver: d}
        ephemeral: {} -> ephemeral: {}
        ephemeral: {volumeClaimTemplate: {spec: {volumeMode: Block}}} \
            -> ephemeral: {volumeClaimTemplate: {metadata: {}, spec: {volumeMode: Block, resources: {}}}}
        ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 1u}, limits: {storage: 1.0001}}}}} \
            -> ephemeral: {volumeClaimTemplate: {metadata: {}, spec: {volumeMode: Filesystem, \
                resources: {requests: {storage: 1m}, limits: {storage: 1001m}}}}}
        ",
    );
}

#[test]
fn projected_volumes_get_what_their_sources_have() {
    check_volumes(
        "
        projected: {} -> projected: {sources: [], defaultMode: 420}
        projected: {defaultMode: 0} -> projected: {sources: [], defaultMode: 0}
        projected: {defaultMode: 1, sources: [{serviceAccountToken: {path: t}}]} \
            -> projected: {defaultMode: 1, sources: [{serviceAccountToken: {path: t, expirationSeconds: 3600}}]}
        projected: {defaultMode: 1, sources: [{serviceAccountToken: {path: t, expirationSeconds: 600}}]} \
            -> projected: {defaultMode: 1, sources: [{serviceAccountToken: {path: t, expirationSeconds: 600}}]}
        projected: {defaultMode: 1, sources: [{downwardAPI: {items: [{path: p, fieldRef: {fieldPath: f}}]}}]} \
            -> projected: {defaultMode: 1, sources: \
                [{downwardAPI: {items: [{path: p, fieldRef: {apiVersion: v1, fieldPath: f}}]}}]}
        projected: {defaultMode: 1, sources: [{secret: {name: s}}, {configMap: {name: m}}]} \
            -> projected: {defaultMode: 1, sources: [{secret: {name: s}}, {configMap: {name: m}}]}
        projected: {defaultMode: 1, sources: [{podCertificate: {signerName: s}}, {clusterTrustBundle: {path: p}}]} \
            -> projected: {defaultMode: 1, sources: \
                [{podCertificate: {signerName: s}}, {clusterTrustBundle: {path: p}}]}
        ",
    );
}

#[test]
fn volumes_of_storage_systems_get_what_these_have() {
    check_volumes(
        "
        iscsi: {targetPortal: t, iqn: i, lun: 0} \
            -> iscsi: {targetPortal: t, iqn: i, lun: 0, iscsiInterface: default}
        rbd: {monitors: [m], image: i} \
            -> rbd: {monitors: [m], image: i, pool: rbd, user: admin, keyring: /etc/ceph/keyring}
        rbd: {monitors: [m], image: i, pool: p, user: u, keyring: k} \
            -> rbd: {monitors: [m], image: i, pool: p, user: u, keyring: k}
        azureDisk: {diskName: d, diskURI: u} \
            -> azureDisk: {diskName: d, diskURI: u, cachingMode: ReadWrite, fsType: ext4, readOnly: false, kind: Shared}
        azureDisk: {diskName: d, diskURI: u, cachingMode: None, fsType: '', readOnly: true, kind: Managed} \
            -> azureDisk: {diskName: d, diskURI: u, cachingMode: None, fsType: '', readOnly: true, kind: Managed}
        scaleIO: {gateway: g, system: s, secretRef: {}} \
            -> scaleIO: {gateway: g, system: s, secretRef: {}, storageMode: ThinProvisioned, fsType: xfs}
        ",
    );
}

#[test]
fn a_container_asks_for_what_it_may_use() {
    check_containers(
        MAIN_AND_INIT,
        "
        resources: {limits: {cpu: 1, a.b/c: 2}} \
            -> resources: {limits: {cpu: '1', a.b/c: '2'}, requests: {cpu: '1', a.b/c: '2'}}
        resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 0}} \
            -> resources: {limits: {cpu: '1', memory: 1Gi}, requests: {cpu: '0', memory: 1Gi}}
        resources: {requests: {cpu: 1}} -> resources: {requests: {cpu: '1'}}
        resources: {limits: {}} -> resources: {}
        resources: {limits: {cpu: 1u}} -> resources: {limits: {cpu: 1m}, requests: {cpu: 1m}}
        ",
    );
    check_containers(
        &["ephemeralContainers"],
        "resources: {limits: {cpu: 1}} -> resources: {limits: {cpu: '1'}}",
    );
}

#[test]
fn amounts_are_rounded_up_to_thousandths() {
    check_containers(
        ALL_KINDS,
        "
        resources: {requests: {cpu: 1.0001, memory: 1.5, storage: '1.234'}} \
            -> resources: {requests: {cpu: 1001m, memory: 1500m, storage: '1.234'}}
        resources: {requests: {cpu: 1n, memory: -1.0001}} -> resources: {requests: {cpu: 1m, memory: -1001m}}
        ",
    );
    check_specs(
        "
        overhead: {cpu: 100u} -> overhead: {cpu: 1m}
        resources: {requests: {cpu: 100u}} -> resources: {requests: {cpu: 1m}}
        ",
    );
    check_pods(
        "
        status: {allocatedResources: {cpu: 1u}} -> status: {allocatedResources: {cpu: 1m}}
        status: {resources: {limits: {cpu: 1u}}} -> status: {resources: {limits: {cpu: 1m}}}
        ",
    );
    for kind in ALL_KINDS.iter().map(|kind| kind.replace("ontainers", "ontainerStatuses")) {
        let resources = "allocatedResources: {cpu: 1u}, resources: {limits: {cpu: 1u}, requests: {cpu: 1u}}";
        let rest = "name: c, image: i, imageID: i, ready: true, restartCount: 0, state: {}, lastState: {}";
        check_pods(&format!(
            "status: {{{kind}: [{{{rest}, {resources}}}]}} -> status: {{{kind}: [{{{rest}, {}}}]}}",
            resources.replace("1u", "1m"),
        ));
    }
}

#[test]
fn a_pod_asks_for_what_its_containers_ask_for_or_else_for_its_limit() {
    let table = "
        containers: TWO, resources: {} -> resources: {}
        containers: TWO, resources: {limits: {cpu: 4, memory: 1Gi}} \
            -> resources: {limits: {cpu: '4', memory: 1Gi}, requests: {cpu: 1500m, memory: 1Gi}}
        containers: TWO, resources: {limits: {cpu: 4}, requests: {cpu: 3}} \
            -> resources: {limits: {cpu: '4'}, requests: {cpu: '3'}}
        containers: TWO, resources: {requests: {memory: 1}} -> resources: {requests: {memory: '1'}}
        resources: {limits: {cpu: 4}} -> resources: {limits: {cpu: '4'}, requests: {cpu: '4'}}
        containers: OTHER, resources: {limits: {cpu: 1, ephemeral-storage: 2}} \
            -> resources: {limits: {cpu: '1', ephemeral-storage: '2'}, requests: {cpu: '1', memory: '1'}}
        "
    .replace("TWO", "[{resources: {requests: {cpu: 1}}}, {resources: {limits: {cpu: 500m}}}]")
    .replace("OTHER", "[{resources: {requests: {memory: 1, ephemeral-storage: 1, a.b/c: 1}}}]");
    check_specs(&table);
}

#[test]
fn the_pods_sum_is_of_exact_amounts() {
    let half = "{resources: {requests: {cpu: 500u}}}";
    check_specs(&format!(
        "containers: [{half}, {half}], resources: {{limits: {{memory: 1}}}} \
         -> resources: {{limits: {{memory: '1'}}, requests: {{cpu: 1m, memory: '1'}}}}"
    ));
}

#[test]
fn init_containers_count_where_they_need_more_and_sidecars_always() {
    let init = |cpu| json!({"resources": {"requests": {"cpu": cpu}}});
    let sidecar = |cpu| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
    for (init_containers, cpu) in [
        (json!([init(1)]), 2),
        (json!([init(3), init(1)]), 3),
        (json!([sidecar(1)]), 3),
        (json!([sidecar(1), init(3)]), 4),
        (json!([init(3), sidecar(1)]), 3),
        (json!([sidecar(1), sidecar(2), init(3)]), 6),
        (json!([sidecar(1), init(4), sidecar(2)]), 5),
    ] {
        check_specs(&format!(
            "initContainers: {init_containers}, containers: [{{resources: {{requests: {{cpu: 2}}}}}}], \
             resources: {{limits: {{cpu: 9}}}} -> resources: {{limits: {{cpu: '9'}}, requests: {{cpu: '{cpu}'}}}}"
        ));
    }
}

#[test]
fn a_pod_may_use_the_huge_pages_of_its_containers() {
    let table = "
        CONTAINERS, resources: {} -> resources: {}
        CONTAINERS, resources: {requests: {cpu: 2}} -> resources: \
            {limits: {hugepages-2Mi: 4Mi}, requests: {cpu: '2', hugepages-2Mi: 4Mi, memory: 1Mi}}
        CONTAINERS, resources: {limits: {hugepages-2Mi: 8Mi}} -> resources: \
            {limits: {hugepages-2Mi: 8Mi}, requests: {cpu: '1', hugepages-2Mi: 8Mi, memory: 1Mi}}
        CONTAINERS, resources: {requests: {hugepages-2Mi: 2Mi}} -> resources: {requests: {hugepages-2Mi: 2Mi}}
        ";
    let containers = "containers: [{resources: {limits: {hugepages-2Mi: 4Mi, memory: 1Mi, cpu: 1}}}]";
    check_specs(&table.replace("CONTAINERS", containers));
}

#[test]
fn without_their_gate_the_resources_of_the_pod_are_only_rounded() {
    check(
        "spec: {resources: {limits: {cpu: 1u}}, containers: [{resources: {limits: {hugepages-2Mi: 4Mi}}}]}",
        "resources: {limits: {cpu: 1m}}",
        FeatureGates::default().with(Gate::PodLevelResources, false),
        &|pod| &pod["spec"],
    );
}

/// What pods are made of: the parts of the recorded ones, and parts that the rules above are about.
struct Parts {
    specs: Vec<Value>,
    containers: Vec<Value>,
    volumes: Vec<Value>,
}

fn parts() -> Parts {
    let mut parts = Parts {
        specs: vec![
            json!({"terminationGracePeriodSeconds": -1, "serviceAccount": "a"}),
            json!({"resources": {"limits": {"cpu": "10.00001"}}, "overhead": {"cpu": "1n"}}),
            json!({"resources": {"requests": {"memory": "1.5Gi"}}, "hostNetwork": true}),
        ],
        containers: vec![
            json!({"restartPolicy": "Always", "resources": {"limits": {"cpu": "1.00001", "hugepages-2Mi": "2Mi"}}}),
            json!({"resources": {"requests": {"cpu": "0.3", "memory": "0.1"}, "limits": {"memory": "1e9"}}}),
            json!({"ports": [{"containerPort": 80}], "livenessProbe": {"grpc": {"port": 1}}}),
            json!({"lifecycle": {"preStop": {"httpGet": {"port": "x"}}}, "image": "r:5000/a"}),
        ],
        volumes: vec![
            json!({}),
            json!({"hostPath": {"path": "/"}, "rbd": {}}),
            json!({"azureDisk": {}}),
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1u"}}}}}}),
            json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {}]}}),
        ],
    };
    for (_, mut pod) in raw_pods() {
        let mut spec = pod["spec"].take();
        let fields = spec.as_object_mut().unwrap();
        let mut take = |name| match fields.remove(name) {
            Some(Value::Array(elements)) => elements,
            Some(_) | None => Vec::new(),
        };
        parts.containers.extend(take("containers"));
        parts.containers.extend(take("initContainers"));
        parts.volumes.extend(take("volumes"));
        parts.specs.push(spec);
    }
    parts
}

fn any_pod() -> impl Strategy<Value = Pod> {
    let Parts { specs, containers, volumes } = parts();
    let some = |elements: &[Value]| subsequence(elements.to_vec(), 0..4);
    (select(specs), some(&containers), some(&containers), some(&containers), some(&volumes)).prop_map(
        |(spec, main, init, ephemeral, volumes)| {
            let lists = [main, init, ephemeral, volumes].map(Value::Array);
            let names = ["containers", "initContainers", "ephemeralContainers", "volumes"];
            let mut fields: Map<_, _> = names.map(str::to_owned).into_iter().zip(lists).collect();
            fields.extend(spec.as_object().unwrap().clone());
            serde_json::from_value(json!({"spec": fields})).unwrap()
        },
    )
}

proptest! {
    #[test]
    fn what_has_its_defaults_does_not_change_any_more(mut pod in any_pod(), pod_level_resources: bool) {
        let features = FeatureGates::default().with(Gate::PodLevelResources, pod_level_resources);
        default_pod(&mut pod, &features);
        let once = pod.clone();
        default_pod(&mut pod, &features);
        // Equal amounts may be spelled differently, so that the texts are compared too.
        prop_assert_eq!(json_of(&pod), json_of(&once));
        prop_assert_eq!(pod, once);
    }
}
