//! The pods under which kubelets are swapped.

use serde_json::{Value, json};

use crate::world::{OBEDIENT, container};

/// A container in a shell, with more fields.
fn main_container(script: &str, more: Value) -> Value {
    let mut container = json!({
        "name": "main", "image": "crablet.test/busybox:1", "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
    });
    container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    container
}

fn pod(containers: Value, more: Value) -> Value {
    let mut spec = json!({"nodeName": "node", "terminationGracePeriodSeconds": 1, "dnsPolicy": "Default", "containers": containers});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

fn steady(container: Value) -> Value {
    pod(json!([main_container(OBEDIENT, container)]), json!({}))
}

fn exec(command: &str, period: u32) -> Value {
    json!({"exec": {"command": [command]}, "periodSeconds": period, "failureThreshold": 1})
}

fn with_volume(source: Value, mount: Value) -> Value {
    let mut volume = json!({"name": "v"});
    volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    let mut mounted = json!({"name": "v", "mountPath": "/data"});
    mounted.as_object_mut().unwrap().extend(mount.as_object().unwrap().clone());
    pod(json!([main_container(OBEDIENT, json!({"volumeMounts": [mounted]}))]), json!({"volumes": [volume]}))
}

/// Pods of every kind.
pub(super) fn pods() -> Vec<(&'static str, Value)> {
    let never = json!({"restartPolicy": "Never"});
    let limits = json!({"cpu": "50m", "memory": "32Mi"});
    let patient = json!({"exec": {"command": ["false"]}, "periodSeconds": 2, "failureThreshold": 100_000});
    let sidecar = json!({
        "name": "side", "image": "crablet.test/busybox:1", "imagePullPolicy": "Never", "restartPolicy": "Always",
        "command": ["/bin/sh", "-c", OBEDIENT], "readinessProbe": exec("true", 30),
    });
    let init = json!({
        "name": "first", "image": "crablet.test/busybox:1", "imagePullPolicy": "Never", "command": ["true"],
    });
    vec![
        ("plain-1", steady(json!({}))),
        ("plain-2", pod(json!([main_container(&format!("echo begun; {OBEDIENT}"), json!({}))]), json!({}))),
        ("host-network", pod(json!([main_container(OBEDIENT, json!({}))]), json!({"hostNetwork": true}))),
        ("guaranteed", steady(json!({"resources": {"limits": limits}}))),
        ("burstable", steady(json!({"resources": {"requests": limits}}))),
        ("ready", steady(json!({"readinessProbe": exec("true", 2)}))),
        ("rarely-asked", steady(json!({"readinessProbe": exec("true", 30)}))),
        ("unready", steady(json!({"readinessProbe": exec("false", 2)}))),
        ("starting", steady(json!({"startupProbe": patient}))),
        (
            "has-started",
            steady(json!({"startupProbe": exec("true", 30), "readinessProbe": exec("true", 30)})),
        ),
        ("alive", steady(json!({"livenessProbe": exec("true", 1)}))),
        ("side", pod(json!([main_container(OBEDIENT, json!({}))]), json!({"initContainers": [sidecar]}))),
        ("init", pod(json!([main_container(OBEDIENT, json!({}))]), json!({"initContainers": [init]}))),
        ("config", with_volume(json!({"configMap": {"name": "map"}}), json!({}))),
        ("config-part", with_volume(json!({"configMap": {"name": "map"}}), json!({"subPath": "key"}))),
        ("secret", with_volume(json!({"secret": {"secretName": "secret"}}), json!({}))),
        (
            "projected",
            with_volume(
                json!({"projected": {"sources": [
                    {"configMap": {"name": "map"}}, {"serviceAccountToken": {"path": "token"}},
                    {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                ]}}),
                json!({}),
            ),
        ),
        ("empty", with_volume(json!({"emptyDir": {}}), json!({}))),
        ("empty-part", with_volume(json!({"emptyDir": {}}), json!({"subPath": "a/b"}))),
        ("memory", with_volume(json!({"emptyDir": {"medium": "Memory"}}), json!({}))),
        ("host-path", with_volume(json!({"hostPath": {"path": "/tmp"}}), json!({}))),
        ("csi", with_volume(json!({"persistentVolumeClaim": {"claimName": "stored"}}), json!({}))),
        ("done", pod(json!([main_container("exit 0", json!({}))]), never.clone())),
        ("failed", pod(json!([main_container("exit 3", json!({}))]), never)),
        (
            "done-at-last",
            pod(json!([main_container("exit 0", json!({}))]), json!({"restartPolicy": "OnFailure"})),
        ),
        ("loops", pod(json!([main_container("sleep 1; exit 1", json!({}))]), json!({}))),
        ("pulls", pod(json!([{"name": "main", "image": "127.0.0.1:9/none:1"}]), json!({}))),
        (
            "stops",
            pod(
                json!([main_container("trap '' TERM; while :; do sleep 1; done", json!({}))]),
                json!({"terminationGracePeriodSeconds": 7200}),
            ),
        ),
    ]
}

/// Manifests of static pods.
pub(super) fn manifests() -> Vec<(&'static str, String)> {
    let one = |more: &str, script: &str| {
        format!(
            "  terminationGracePeriodSeconds: 1\n  dnsPolicy: Default\n{more}  containers:\n{}",
            container("main", script)
        )
    };
    let probe = |period: u32| {
        format!("    readinessProbe: {{exec: {{command: ['true']}}, periodSeconds: {period}}}\n")
    };
    vec![
        ("st-plain", one("", OBEDIENT)),
        ("st-ready", one("", OBEDIENT) + &probe(2)),
        ("st-rarely-asked", one("", OBEDIENT) + &probe(30)),
        ("st-done", one("  restartPolicy: Never\n", "exit 0")),
        ("st-failed", one("  restartPolicy: Never\n", "exit 3")),
    ]
}
