//! A node in a cluster: the agent, a real containerd, and an API server, which is the embedded one, and a real one too where
//! `KUBEBUILDER_ASSETS` names kube-apiserver and etcd.

use std::path::{Path, PathBuf};

use crablet_testkit::{Daemon, eventually};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::real::Real;
use crate::service::{PODS, ask, awaits_node, awaits_phase, create, with_curl};
use crate::world::{OBEDIENT, PATIENCE, PROGRAM, World, container, container_status};

/// An API server, whatever it is made of.
pub(crate) struct Server {
    /// `admin.conf`, and in `pki` the certificates and keys of `ca` and `admin`.
    pub(crate) data: PathBuf,
    process: u32,
    embedded: Option<Daemon>,
    _real: Option<Real>,
}

impl Server {
    pub(crate) async fn embedded(world: &World) -> Server {
        let data = world.node.path("api");
        let arguments =
            ["apiserver".to_owned(), "--secure-port=0".to_owned(), format!("--data-dir={}", data.display())];
        let log = world.node.path("apiserver.log");
        let server =
            Daemon::spawn(Path::new(PROGRAM), arguments, [] as [(&str, &str); 0], &log).await.unwrap();
        eventually("the API server answers", PATIENCE, || ask(&data, "/api/v1/namespaces/default", &[]))
            .await
            .unwrap();
        let process = u32::try_from(server.pid()).unwrap();
        Server { data, process, embedded: Some(server), _real: None }
    }

    /// A kube-apiserver alone: what controllers make is made by hand.
    pub(crate) async fn real(world: &World, assets: &Path) -> Server {
        let server = tokio::task::block_in_place(|| Real::start(assets, &[]));
        let data = world.node.path("api");
        std::fs::create_dir_all(data.join("pki")).unwrap();
        for name in ["ca.crt", "ca.key", "admin.crt", "admin.key"] {
            std::fs::copy(server.path(name), data.join("pki").join(name)).unwrap();
        }
        let address = format!("server: https://127.0.0.1:{}\n", server.port);
        std::fs::write(data.join("admin.conf"), address).unwrap();
        let process = server.process();
        let server = Server { data, process, embedded: None, _real: Some(server) };
        let authority = std::fs::read_to_string(server.data.join("pki/ca.crt")).unwrap();
        for (resource, object) in [
            ("serviceaccounts", json!({"kind": "ServiceAccount", "metadata": {"name": "default"}})),
            (
                "configmaps",
                json!({"kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": authority}}),
            ),
        ] {
            let mut object = object;
            object["apiVersion"] = "v1".into();
            let path = format!("/api/v1/namespaces/default/{resource}");
            let request = ["--header", "Content-Type: application/json", "--data", &object.to_string()];
            ask(&server.data, &path, &request).await.unwrap();
        }
        server
    }

    /// The one of a node that is a whole cluster.
    pub(crate) fn within(data: &Path) -> Server {
        Server { data: data.to_owned(), process: 0, embedded: None, _real: None }
    }

    /// Whether somebody binds claims.
    pub(crate) fn has_controllers(&self) -> bool {
        self.embedded.is_some()
    }

    pub(crate) fn url(&self) -> String {
        let kubeconfig = std::fs::read_to_string(self.data.join("admin.conf")).unwrap();
        let server = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: "));
        server.unwrap().to_owned()
    }

    /// A kubeconfig by which a node is itself, and nobody else.
    pub(crate) async fn kubeconfig(&self) -> PathBuf {
        let script = "openssl req -newkey rsa:2048 -nodes -keyout node.key -out node.csr -subj /O=system:nodes/CN=system:node:node && \
             printf extendedKeyUsage=clientAuth > node.ext && \
             openssl x509 -req -in node.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out node.crt -days 10 -extfile node.ext";
        let made = Command::new("sh")
            .args(["-c", script])
            .current_dir(self.data.join("pki"))
            .output()
            .await
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let file = |name: &str| self.data.join("pki").join(name).display().to_string();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {
                "server": self.url(), "certificate-authority": file("ca.crt"),
            }}],
            "users": [{"name": "u", "user": {
                "client-certificate": file("node.crt"), "client-key": file("node.key"),
            }}],
        });
        let path = self.data.join("node.conf");
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        path
    }

    /// Stops the server where it is, or lets it go on.
    async fn signal(&self, signal: &str) {
        let kill = Command::new("kill").args([signal, &self.process.to_string()]).status().await.unwrap();
        assert!(kill.success());
    }

    pub(crate) async fn pod(&self, name: &str) -> Result<Value, String> {
        ask(&self.data, &format!("{PODS}/{name}"), &[]).await
    }

    pub(crate) async fn delete(&self, name: &str) {
        ask(&self.data, &format!("{PODS}/{name}"), &["--request", "DELETE"]).await.unwrap();
    }

    async fn awaits(&self, what: &str, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        eventually(what, PATIENCE, || async {
            let pod = self.pod(name).await?;
            if is_so(&pod) { Ok(pod) } else { Err(format!("{pod:#}")) }
        })
        .await
        .unwrap()
    }

    pub(crate) async fn awaits_end(&self, name: &str) {
        eventually(&format!("{name} is gone"), PATIENCE, || async {
            match self.pod(name).await {
                Ok(pod) => Err(format!("{:#}", pod["status"])),
                Err(_) => Ok(()),
            }
        })
        .await
        .unwrap();
    }
}

/// On the node, whose processes it shares the network with.
fn on_node(command: &str) -> Value {
    let mut spec = with_curl(command);
    spec["nodeName"] = "node".into();
    spec["hostNetwork"] = true.into();
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_live_in_the_cluster_of_theembedded_server_on_containerd() {
    let world = World::start().await;
    let server = Server::embedded(&world).await;
    pods_live(world, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_live_in_the_cluster_of_a_real_server_on_containerd() {
    let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") else { return };
    let world = World::start().await;
    let server = Server::real(&world, Path::new(&assets)).await;
    pods_live(world, server).await;
}

async fn pods_live(mut world: World, server: Server) {
    world.stop_agent().await;
    world.node.join(&server.kubeconfig().await);
    world.start_agent().await;
    awaits_node(&server.data).await;
    let data = &server.data;

    // A client within a pod, with the token that every pod has.
    let whoami = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let command = format!(
        "cd /var/run/secrets/kubernetes.io/serviceaccount && \
         curl -sS --cacert ca.crt -H \"Authorization: Bearer $(cat token)\" \
         -H 'Content-Type: application/json' --data '{whoami}' \
         {}/apis/authentication.k8s.io/v1/selfsubjectreviews > /dev/termination-log",
        server.url()
    );
    create(data, "client", on_node(&command)).await;
    let agent = world.agent.as_ref().unwrap();
    let pod = awaits_phase(data, agent, "client", &["Succeeded", "Failed"]).await;
    let said = container_status(&pod, "main")["state"]["terminated"]["message"].as_str().unwrap_or_default();
    let review: Value = serde_json::from_str(said).unwrap_or_else(|_| panic!("{pod:#}"));
    assert_eq!(review["status"]["userInfo"]["username"], "system:serviceaccount:default:default");
    server.delete("client").await;
    server.awaits_end("client").await;

    // A static pod, whose mirror others may delete without touching it.
    let spec = format!(
        "  terminationGracePeriodSeconds: 1\n  hostNetwork: true\n  containers:\n{}",
        container("main", OBEDIENT)
    );
    world.put("static", &spec);
    let is_running = |pod: &Value| pod["status"]["phase"] == "Running";
    let mirror = server.awaits("the mirror shows its pod", "static-node", is_running).await;
    assert_eq!(mirror["metadata"]["ownerReferences"][0]["kind"], "Node");
    let containers = world.containers_of("static").await;
    server.delete("static-node").await;
    let uid = &mirror["metadata"]["uid"];
    let is_new = |pod: &Value| pod["metadata"]["uid"] != *uid && is_running(pod);
    server.awaits("another mirror is there", "static-node", is_new).await;
    assert_eq!(world.containers_of("static").await, containers);

    // What happens while the server hangs is told when it goes on.
    create(data, "crashes", {
        let mut spec = on_node("sleep 3; exit 3");
        spec["restartPolicy"] = "OnFailure".into();
        spec
    })
    .await;
    server.awaits("it runs", "crashes", is_running).await;
    server.signal("-STOP").await;
    eventually("its container is started again", PATIENCE, || async {
        let pods = world.node.pods().await.map_err(|error| error.to_string())?;
        let pod = pods.iter().find(|pod| pod["metadata"]["name"] == "crashes").ok_or("no such pod")?;
        let count = container_status(pod, "main")["restartCount"].as_u64().unwrap_or_default();
        if count > 0 { Ok(()) } else { Err(format!("{count} restarts")) }
    })
    .await
    .unwrap();
    server.signal("-CONT").await;
    let restarts = |pod: &Value| container_status(pod, "main")["restartCount"].as_u64() > Some(0);
    server.awaits("its restart is told", "crashes", restarts).await;

    // An agent that is stopped and started again restarts nothing, and hears of what was deleted meanwhile.
    create(data, "steady", on_node(OBEDIENT)).await;
    let steady = server.awaits("it runs", "steady", is_running).await;
    create(data, "unwanted", on_node(OBEDIENT)).await;
    server.awaits("it runs", "unwanted", is_running).await;
    world.stop_agent().await;
    server.delete("unwanted").await;
    world.start_agent().await;
    server.awaits_end("unwanted").await;
    create(data, "next", on_node(OBEDIENT)).await;
    server.awaits("it runs", "next", is_running).await;
    let id = |pod: &Value| container_status(pod, "main")["containerID"].clone();
    assert_eq!(id(&server.pod("steady").await.unwrap()), id(&steady));
    assert_eq!(world.containers_of("static").await, containers);

    for name in ["steady", "next", "crashes"] {
        server.delete(name).await;
    }
    for name in ["steady", "next", "crashes"] {
        server.awaits_end(name).await;
    }
    world.node.take("static").unwrap();
    server.awaits_end("static-node").await;
    world.stop_agent().await;
}
