//! The node's API on its main port, for those whom the cluster's API server allows it.

use std::path::Path;

use crablet_testkit::eventually;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::cluster::Server;
use crate::service::{ask, awaits_node};
use crate::world::{OBEDIENT, PATIENCE, World, container};

/// What curl is answered: the code and the body.
async fn curl(url: &str, arguments: &[&str]) -> (u16, String) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--insecure", "--write-out", "\n%{http_code}"]).args(arguments);
    let output = curl.arg(url).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, code) = text.rsplit_once('\n').unwrap();
    (code.parse().unwrap(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_answers_those_who_may_ask_on_containerd() {
    let mut world = World::start().await;
    let server = Server::embedded(&world).await;
    the_node_answers(&mut world, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_asks_a_real_server_who_may_ask_on_containerd() {
    let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") else { return };
    let mut world = World::start().await;
    let server = Server::real(&world, Path::new(&assets)).await;
    the_node_answers(&mut world, &server).await;
}

async fn the_node_answers(world: &mut World, server: &Server) {
    world.stop_agent().await;
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    world.node.join(&server.kubeconfig().await);
    world.node.serve(port, &server.data.join("pki/ca.crt"));
    world.start_agent().await;
    awaits_node(&server.data).await;
    let command = format!("echo one; echo two; {OBEDIENT}");
    world.put("web", &format!("  hostNetwork: true\n  containers:\n{}", container("main", &command)));
    let file = |name: &str| server.data.join("pki").join(name).display().to_string();
    let (certificate, key) = (file("admin.crt"), file("admin.key"));
    let admin = ["--cert", &certificate, "--key", &key];
    let url = |path: &str| format!("https://127.0.0.1:{port}{path}");
    eventually("the pod is shown", PATIENCE, || async {
        let (code, body) = curl(&url("/pods"), &admin).await;
        if code == 200 && body.contains("\"web-node\"") { Ok(()) } else { Err(format!("{code} {body}")) }
    })
    .await
    .unwrap();
    for version in ["--http1.1", "--http2"] {
        let arguments = [&admin[..], &[version]].concat();
        for path in ["/healthz", "/healthz/syncloop"] {
            assert_eq!(curl(&url(path), &arguments).await, (200, "ok".to_owned()), "{version} {path}");
        }
    }
    // What a container wrote, from the node itself and by way of the API server.
    eventually("the log is there", PATIENCE, || async {
        let (code, body) = curl(&url("/containerLogs/default/web-node/main?tailLines=1"), &admin).await;
        if (code, body.as_str()) == (200, "two\n") { Ok(()) } else { Err(format!("{code} {body}")) }
    })
    .await
    .unwrap();
    if server.has_controllers() {
        let (address, path) = (server.url(), "/api/v1/namespaces/default/pods/web-node/log");
        assert_eq!(curl(&format!("{address}{path}"), &admin).await, (200, "one\ntwo\n".to_owned()));
    }
    assert_eq!(curl(&url("/pods"), &[]).await, (401, "Unauthorized".to_owned()));
    assert_eq!(curl(&url("/nothing"), &[]).await, (404, "404 page not found\n".to_owned()));

    // A service account has no right but those that it was given.
    let question =
        json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}}).to_string();
    let request = ["--header", "Content-Type: application/json", "--data", &question];
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = eventually("a token is given", PATIENCE, || ask(&server.data, path, &request)).await.unwrap();
    let header = format!("Authorization: Bearer {}", token["status"]["token"].as_str().unwrap());
    let account = ["--header", &header];
    let forbidden = "Forbidden (user=system:serviceaccount:default:default, verb=get, resource=nodes, subresource(s)=[metrics])\n";
    assert_eq!(curl(&url("/metrics"), &account).await, (403, forbidden.to_owned()));
    let rules = json!([{"apiGroups": [""], "resources": ["nodes/pods"], "verbs": ["get"]}]);
    let meta = json!({"name": "pods-of-nodes"});
    let group = "rbac.authorization.k8s.io";
    for (resource, object) in [
        ("clusterroles", json!({"kind": "ClusterRole", "metadata": meta, "rules": rules})),
        (
            "clusterrolebindings",
            json!({
                "kind": "ClusterRoleBinding", "metadata": meta,
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "pods-of-nodes"},
                "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
            }),
        ),
    ] {
        let mut object = object;
        object["apiVersion"] = format!("{group}/v1").into();
        let request = ["--header", "Content-Type: application/json", "--data", &object.to_string()];
        ask(&server.data, &format!("/apis/{group}/v1/{resource}"), &request).await.unwrap();
    }
    assert_eq!(curl(&url("/pods"), &account).await.0, 200);
    let (code, body) = curl(&url("/pods"), &["--header", &format!("{header}x")]).await;
    assert_eq!((code, body.as_str()), (401, "Unauthorized"));
    world.stop_agent().await;
}
