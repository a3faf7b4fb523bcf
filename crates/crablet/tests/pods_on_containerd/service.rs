//! A whole cluster in one process, and the API server as pods find it.

use std::path::Path;

use crablet_testkit::{Daemon, eventually};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::world::{OBEDIENT, PATIENCE, PROGRAM, World, container_status};

/// Asks the API server as the admin whose certificate is in its data directory.
pub(crate) async fn ask(data: &Path, path: &str, arguments: &[&str]) -> Result<Value, String> {
    let kubeconfig = std::fs::read_to_string(data.join("admin.conf")).map_err(|error| error.to_string())?;
    let server = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: "));
    let file = |name: &str| data.join("pki").join(name).display().to_string();
    let (authority, certificate, key) = (file("ca.crt"), file("admin.crt"), file("admin.key"));
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail-with-body"]);
    curl.args(["--cacert", &authority, "--cert", &certificate, "--key", &key]).args(arguments);
    let output = curl.arg(format!("{}{path}", server.unwrap_or_default())).output().await;
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("{output:?}"));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

/// What a container is to run with this machine's curl, since the image has none.
pub(crate) fn with_curl(command: &str) -> Value {
    let mounts = ["/usr", "/lib", "/lib64"].iter().enumerate();
    let mounts: Vec<(String, &str)> = mounts.map(|(number, path)| (format!("v{number}"), *path)).collect();
    json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "main", "image": "crablet.test/busybox:1", "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", command],
            "volumeMounts": mounts.iter().map(|(name, path)| {
                json!({"name": name, "mountPath": path, "readOnly": true})
            }).collect::<Vec<_>>(),
        }],
        "volumes": mounts.iter().map(|(name, path)| {
            json!({"name": name, "hostPath": {"path": path}})
        }).collect::<Vec<_>>(),
    })
}

/// A whole cluster in one process, on a node's containerd.
pub(crate) async fn solo(world: &World, data: &Path) -> Daemon {
    let endpoint = world.containerd.endpoint();
    let arguments = [
        "solo".to_owned(),
        "--secure-port=0".to_owned(),
        "--node-name=node".to_owned(),
        format!("--data-dir={}", data.display()),
        format!("--root-dir={}", world.node.root().display()),
        format!("--container-runtime-endpoint={endpoint}"),
    ];
    let log = world.node.path("solo.log");
    Daemon::spawn(Path::new(PROGRAM), arguments, [] as [(&str, &str); 0], &log).await.unwrap()
}

pub(crate) async fn create(data: &Path, name: &str, spec: Value) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    let request = ["--header", "Content-Type: application/json", "--data", &pod.to_string()];
    // A pod is refused until its service account is there.
    let created = eventually("the pod is created", PATIENCE, || ask(data, PODS, &request));
    created.await.unwrap();
}

pub(crate) async fn awaits_phase(data: &Path, server: &Daemon, name: &str, phases: &[&str]) -> Value {
    let path = format!("{PODS}/{name}");
    let what = format!("pod {name} is {phases:?}");
    let pod = eventually(&what, PATIENCE, || async {
        let pod = ask(data, &path, &[]).await?;
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        if phases.contains(&phase) { Ok(pod) } else { Err(format!("{:#}", pod["status"])) }
    });
    pod.await.unwrap_or_else(|error| panic!("{error:#}\n{}", server.log_tail()))
}

pub(crate) async fn awaits_node(data: &Path) {
    eventually("the node is ready", PATIENCE, || async {
        let node = ask(data, "/api/v1/nodes/node", &[]).await?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        if conditions.iter().any(is_ready) { Ok(()) } else { Err(format!("{conditions:#?}")) }
    })
    .await
    .unwrap();
}

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn one_process_is_a_cluster_whose_pods_are_clients_of_it_on_containerd() {
    let mut world = World::start().await;
    world.stop_agent().await;
    let data = world.node.path("solo");
    std::fs::create_dir(&data).unwrap();
    std::fs::copy(world.node.path("kubelet.yaml"), data.join("kubelet.yaml")).unwrap();
    let api = data.join("apiserver");
    let mut server = solo(&world, &data).await;
    awaits_node(&api).await;

    // As every pod it has a token, and knows where the server is.
    let whoami = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let command = format!(
        "cd /var/run/secrets/kubernetes.io/serviceaccount && \
         curl -sS --cacert ca.crt -H \"Authorization: Bearer $(cat token)\" \
         -H 'Content-Type: application/json' --data '{whoami}' \
         https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/apis/authentication.k8s.io/v1/selfsubjectreviews \
         > /dev/termination-log"
    );
    create(&api, "client", with_curl(&command)).await;
    let pod = awaits_phase(&api, &server, "client", &["Succeeded", "Failed"]).await;
    let said = container_status(&pod, "main")["state"]["terminated"]["message"].as_str().unwrap_or_default();
    let review: Value =
        serde_json::from_str(said).unwrap_or_else(|_| panic!("{pod:#}\n{}", server.log_tail()));
    assert_eq!(review["status"]["userInfo"]["username"], "system:serviceaccount:default:default");
    let pods = &review["status"]["userInfo"]["extra"]["authentication.kubernetes.io/pod-name"];
    assert_eq!(*pods, json!(["client"]), "its token is bound to it");

    // Stopped and started again, it restarts nothing.
    create(&api, "steady", with_curl(OBEDIENT)).await;
    let before = awaits_phase(&api, &server, "steady", &["Running"]).await;
    server.terminate();
    assert!(server.wait().await.unwrap().success());
    let mut server = solo(&world, &data).await;
    create(&api, "next", with_curl(OBEDIENT)).await;
    awaits_phase(&api, &server, "next", &["Running"]).await;
    let after = awaits_phase(&api, &server, "steady", &["Running"]).await;
    let container = |pod: &Value| container_status(pod, "main")["containerID"].clone();
    assert_eq!(
        (container(&before), &before["metadata"]["uid"]),
        (container(&after), &after["metadata"]["uid"])
    );

    for name in ["client", "steady", "next"] {
        ask(&api, &format!("{PODS}/{name}"), &["--request", "DELETE"]).await.unwrap();
    }
    eventually("all pods are gone", PATIENCE, || async {
        let pods = ask(&api, PODS, &[]).await?;
        let left = pods["items"].as_array().map_or(0, Vec::len);
        if left == 0 { Ok(()) } else { Err(format!("{left} pods")) }
    })
    .await
    .unwrap();
    server.terminate();
    assert!(server.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_node_joins_with_a_bootstrap_token_and_asks_for_its_certificate_on_containerd() {
    let mut world = World::start().await;
    world.stop_agent().await;
    let data = world.node.path("api");
    let arguments =
        ["apiserver".to_owned(), "--secure-port=0".to_owned(), format!("--data-dir={}", data.display())];
    let none = [] as [(&str, &str); 0];
    let log = world.node.path("apiserver.log");
    let mut server = Daemon::spawn(Path::new(PROGRAM), arguments, none, &log).await.unwrap();
    let token = eventually("there is a token", PATIENCE, || async {
        let kubeconfig = format!("--kubeconfig={}", data.join("admin.conf").display());
        let made = Command::new(PROGRAM).args(["token", "create", &kubeconfig]).output().await.unwrap();
        match made.status.success() {
            true => Ok(String::from_utf8(made.stdout).unwrap().trim().to_owned()),
            false => Err(format!("{made:?}")),
        }
    })
    .await
    .unwrap();

    let admin = std::fs::read_to_string(data.join("admin.conf")).unwrap();
    let url = admin.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
    let bootstrap = world.node.path("bootstrap.conf");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: x, contexts: [{{name: x, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: '{url}', certificate-authority: {}}}}}], \
         users: [{{name: u, user: {{token: {token}}}}}]}}",
        data.join("pki/ca.crt").display()
    );
    std::fs::write(&bootstrap, text).unwrap();
    for rotates in [true, false] {
        let directory = world.node.path(&format!("pki-{rotates}"));
        let kubeconfig = world.node.path(&format!("kubelet-{rotates}.conf"));
        let arguments = [
            format!("--config={}", world.node.path("kubelet.yaml").display()),
            format!("--root-dir={}", world.node.root().display()),
            format!("--cert-dir={}", directory.display()),
            format!("--bootstrap-kubeconfig={}", bootstrap.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--hostname-override=node".to_owned(),
            format!("--rotate-certificates={rotates}"),
            "--keep-kernel-settings".to_owned(),
        ];
        let log = world.node.path(&format!("agent-{rotates}.log"));
        let mut agent = Daemon::spawn(Path::new(PROGRAM), arguments, none, &log).await.unwrap();
        awaits_node(&data).await;
        assert!(directory.join("kubelet-client-current.pem").exists());
        assert!(std::fs::read_to_string(&kubeconfig).unwrap().contains("kubelet-client-current.pem"));
        agent.terminate();
        assert!(agent.wait().await.unwrap().success());
        ask(&data, "/api/v1/nodes/node", &["--request", "DELETE"]).await.unwrap();
    }
    server.terminate();
    assert!(server.wait().await.unwrap().success());
}
