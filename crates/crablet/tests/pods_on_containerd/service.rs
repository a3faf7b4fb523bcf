//! The API server as pods find it.

use std::path::Path;

use crablet_testkit::{Daemon, eventually};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::world::{PATIENCE, PROGRAM, World, container_status};

/// Asks the API server as the admin whose certificate is in its data directory.
async fn ask(data: &Path, path: &str, arguments: &[&str]) -> Result<Value, String> {
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

#[tokio::test]
async fn a_client_in_a_pod_finds_the_api_server_and_is_its_service_account_on_containerd() {
    let world = World::start().await;
    let data = world.node.path("apiserver");
    let arguments =
        ["apiserver", "--secure-port=0", "--serve-pods", "--data-dir"].map(Into::into).into_iter();
    let mut server = Daemon::spawn(
        Path::new(PROGRAM),
        arguments.chain([data.clone().into_os_string()]),
        [] as [(&str, &str); 0],
        &world.node.path("apiserver.log"),
    )
    .await
    .unwrap();
    let service = eventually("the API server has the service", PATIENCE, || {
        ask(&data, "/api/v1/namespaces/default/services/kubernetes", &[])
    });
    let service = service.await.unwrap();
    let (host, port) = (&service["spec"]["clusterIP"], &service["spec"]["ports"][0]["port"]);
    let token = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let body = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}});
    let request = ["--header", "Content-Type: application/json", "--data", &body.to_string()];
    let issued = eventually("the service account is there", PATIENCE, || ask(&data, token, &request));
    let token = issued.await.unwrap()["status"]["token"].as_str().unwrap().to_owned();

    // What a pod is given of its account; and this machine's curl with all it needs, since the image has none.
    let given = world.node.path("given");
    std::fs::create_dir(&given).unwrap();
    std::fs::write(given.join("token"), token).unwrap();
    std::fs::copy(data.join("pki/ca.crt"), given.join("ca.crt")).unwrap();
    let whoami = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let command = format!(
        "curl -sS --cacert /given/ca.crt -H \"Authorization: Bearer $(cat /given/token)\" \
         -H 'Content-Type: application/json' --data '{whoami}' \
         https://{}:{port}/apis/authentication.k8s.io/v1/selfsubjectreviews > /dev/termination-log",
        host.as_str().unwrap()
    );
    let mounts = ["/usr", "/lib", "/lib64"].map(|path| (path.to_owned(), path)).into_iter();
    let mounts: Vec<_> = mounts.chain([(given.display().to_string(), "/given")]).collect();
    let spec = json!({
        "restartPolicy": "Never",
        "containers": [{
            "name": "main", "image": "crablet.test/busybox:1", "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", command],
            "volumeMounts": mounts.iter().enumerate().map(|(number, (_, path))| {
                json!({"name": format!("v{number}"), "mountPath": path, "readOnly": true})
            }).collect::<Vec<_>>(),
        }],
        "volumes": mounts.iter().enumerate().map(|(number, (path, _))| {
            json!({"name": format!("v{number}"), "hostPath": {"path": path}})
        }).collect::<Vec<_>>(),
    });
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"}, "spec": spec});
    world.node.put("client", &pod.to_string()).unwrap();
    let over = |pod: &Value| pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed";
    let pod = world.awaits("client", "is over", over).await;
    let said = container_status(&pod, "main")["state"]["terminated"]["message"].as_str().unwrap().to_owned();
    let review: Value =
        serde_json::from_str(&said).unwrap_or_else(|_| panic!("{pod:#}\n{}", server.log_tail()));
    assert_eq!(review["status"]["userInfo"]["username"], "system:serviceaccount:default:default");
    server.terminate();
    assert!(server.wait().await.unwrap().success());
}
