//! What was done to the node while it was recorded.

use std::time::Duration;

use crate::cluster::{Cluster, IMAGE};
use crate::request::{self, Request};
use crate::words::NODE;

pub use crate::cluster::Pace;

/// Runs until it is asked to stop.
const OBEDIENT: &str = "sh, -c, \"trap 'exit 0' TERM; while :; do sleep 0.1; done\"";
/// Runs until it is killed.
const STUBBORN: &str = "sh, -c, \"trap '' TERM; while :; do sleep 0.1; done\"";
/// Ready, not ready for some seconds, and ready again.
const FLIPPING: &str = "sh, -c, \"touch /tmp/r; sleep 6; rm /tmp/r; sleep 6; touch /tmp/r; sleep 1000\"";
/// Takes its time to stop, and then does not say that all went well.
const SLOW_TO_STOP: &str = "sh, -c, \"trap 'sleep 3; exit 7' TERM; while :; do sleep 0.1; done\"";

const NEVER: &str = "  restartPolicy: Never\n";
const ONE_SECOND: &str = "  terminationGracePeriodSeconds: 1\n";

/// Does what was done, and gives what the node said to the API server meanwhile.
pub fn play(scenario: &str, pace: Pace) -> Vec<Request> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let mut cluster = Cluster::new(pace).await;
        if scenario != "start" {
            cluster.start().await;
            seconds(15).await;
            cluster.server.take_asked();
        }
        act(scenario, &mut cluster).await;
        request::ours(&cluster.server.take_asked())
    })
}

async fn act(scenario: &str, cluster: &mut Cluster) {
    match scenario {
        "simple" => {
            cluster.create(&pod(OBEDIENT, "")).await;
            seconds(3).await;
            cluster.delete("p", Some(1)).await;
        }
        "start" => {
            cluster.bootstrap().await;
            cluster.start().await;
            seconds(15).await;
        }
        "succeeds" => cluster.create(&pod("sh, -c, sleep 1", NEVER)).await,
        "fails" => cluster.create(&pod("sh, -c, sleep 1; exit 3", NEVER)).await,
        "crash-loop" => {
            cluster.create(&pod("sh, -c, exit 1", ONE_SECOND)).await;
            seconds(40).await;
            cluster.delete("p", None).await;
        }
        "init-and-sidecar" => {
            let sidecar = format!("{}, restartPolicy: Always}}", container("s", OBEDIENT));
            let init = format!("{}}}", container("i", "sh, -c, sleep 1"));
            let spec = format!("{ONE_SECOND}  initContainers:\n  - {init}\n  - {sidecar}\n");
            cluster.create(&pod(OBEDIENT, &spec)).await;
            seconds(4).await;
            cluster.delete("p", None).await;
        }
        "readiness-flips" => {
            let probe =
                "readinessProbe: {exec: {command: [cat, /tmp/r]}, periodSeconds: 1, failureThreshold: 1}";
            cluster.create(&pod_with(FLIPPING, probe, "  terminationGracePeriodSeconds: 2\n")).await;
            // Not at the moment of a probe.
            tokio::time::sleep(Duration::from_millis(18_300)).await;
            cluster.delete("p", None).await;
        }
        "rejected-resources" => {
            cluster.create(&pod_with(OBEDIENT, "resources: {requests: {cpu: 900}}", "")).await;
        }
        "rejected-affinity" => {
            cluster.create(&pod(OBEDIENT, "  nodeSelector: {never: there}\n")).await;
        }
        "image-missing" => {
            let image = "{name: c, image: 'example.com/none:1', imagePullPolicy: Never}";
            let spec =
                format!("  automountServiceAccountToken: false\n{ONE_SECOND}  containers:\n  - {image}\n");
            cluster.create(&spec).await;
            seconds(15).await;
            cluster.delete("p", None).await;
        }
        "volumes" => {
            cluster.put_config_map("cm", "one").await;
            cluster.put_secret("sec", "one").await;
            let volumes = "  volumes:\n  - {name: cm, configMap: {name: cm}}\n  - {name: sec, secret: {secretName: sec}}\n";
            let mounts = "volumeMounts: [{name: cm, mountPath: /cm}, {name: sec, mountPath: /sec}]";
            let spec = pod_with(OBEDIENT, mounts, &format!("{ONE_SECOND}{volumes}"));
            cluster.create(&spec.replace(NO_TOKEN, "")).await;
            seconds(5).await;
            cluster.put_config_map("cm", "two").await;
            seconds(15).await;
            cluster.delete("p", None).await;
        }
        "volume-missing" => {
            let volumes = format!("{ONE_SECOND}  volumes:\n  - {{name: cm, configMap: {{name: never}}}}\n");
            cluster.create(&pod_with(OBEDIENT, "volumeMounts: [{name: cm, mountPath: /cm}]", &volumes)).await;
            seconds(20).await;
            cluster.delete("p", None).await;
        }
        "graceful-delete" => {
            let hook = "lifecycle: {preStop: {exec: {command: [sleep, '1']}}}";
            cluster.create(&pod_with(SLOW_TO_STOP, hook, "  terminationGracePeriodSeconds: 10\n")).await;
            seconds(1).await;
            cluster.delete("p", None).await;
        }
        "force-delete" => {
            cluster.create(&pod(STUBBORN, "")).await;
            seconds(1).await;
            cluster.delete("p", Some(0)).await;
        }
        "ephemeral-container" => {
            cluster.create(&pod(OBEDIENT, ONE_SECOND)).await;
            seconds(1).await;
            let container = format!(
                r#"{{"name": "dbg", "image": "{IMAGE}", "imagePullPolicy": "IfNotPresent", "command": ["sleep", "4"]}}"#
            );
            let patch = format!(r#"{{"spec": {{"ephemeralContainers": [{container}]}}}}"#);
            cluster.patch("/ephemeralcontainers", &patch).await;
            seconds(8).await;
            cluster.delete("p", None).await;
        }
        "resize" => {
            let resources =
                "resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}";
            cluster.create(&pod_with(OBEDIENT, resources, ONE_SECOND)).await;
            seconds(3).await;
            cluster.resize(r#"{"requests": {"cpu": "80m", "memory": "48Mi"}, "limits": {"cpu": "160m", "memory": "96Mi"}}"#).await.unwrap();
            seconds(5).await;
            // No node would have as much, which the API server finds.
            let refused = cluster.resize(r#"{"requests": {"cpu": "900"}, "limits": {"cpu": "900"}}"#).await;
            refused.unwrap_err();
            seconds(10).await;
            cluster.delete("p", None).await;
        }
        "static-pod" => {
            let spec = format!("{ONE_SECOND}  containers:\n  - {}}}\n", container("c", OBEDIENT));
            cluster.write_manifest("{}", &spec);
            seconds(4).await;
            cluster.delete(&format!("st-{NODE}"), None).await;
            seconds(6).await;
            cluster.write_manifest("{changed: 'yes'}", &spec);
            // The Go kubelet waits for ten seconds and more before it starts what takes another's place. It was removed
            // before that, so here it is removed while the other stops.
            tokio::time::sleep(Duration::from_millis(50)).await;
            cluster.remove_manifest();
            seconds(10).await;
        }
        "idle-minute" => {
            cluster.create(&pod(OBEDIENT, ONE_SECOND)).await;
            seconds(60).await;
            cluster.delete("p", None).await;
        }
        other => panic!("nobody knows what was done in {other}"),
    }
    seconds(8).await;
}

const NO_TOKEN: &str = "  automountServiceAccountToken: false\n";

/// A pod with one container, and what else its spec says.
fn pod(command: &str, spec: &str) -> String {
    format!("{NO_TOKEN}{spec}  containers:\n  - {}}}\n", container("c", command))
}

/// The same, and what else its container has.
fn pod_with(command: &str, more: &str, spec: &str) -> String {
    format!("{NO_TOKEN}{spec}  containers:\n  - {}, {more}}}\n", container("c", command))
}

/// A container, to which more can be added before its end.
fn container(name: &str, command: &str) -> String {
    format!("{{name: {name}, image: '{IMAGE}', imagePullPolicy: IfNotPresent, command: [{command}]")
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
