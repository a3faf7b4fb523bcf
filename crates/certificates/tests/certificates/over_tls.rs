//! From a bootstrap token to a node that its certificate speaks for, over TLS.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crablet_api::certificates::CertificateSigningRequest;
use crablet_api::core::{Node, Secret};
use crablet_api::meta::StatusReason;
use crablet_apiserver::server::{Options, Server};
use crablet_certificates::{ClientCertificate, ClientSettings};
use crablet_client::{
    Chance, Client, ClientCertificate as Own, Cluster, Https, Kubeconfig, PatchType, Pem, ProxyEnvironment,
    User,
};
use crablet_host::clock::Clock;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::real::Real;
use crate::world::pending;

const TOKEN: (&str, &str) = ("abcdef", "0123456789abcdef");

#[tokio::test(flavor = "multi_thread")]
async fn a_node_joins_the_embedded_server_with_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        data_dir: directory.path().join("server"),
        bind_address: std::net::Ipv4Addr::LOCALHOST.into(),
        secure_port: 0,
        advertise_address: None,
        serves_pods: false,
        names: Vec::new(),
        kubelet_certificate_authority: None,
        controllers: true,
        node: None,
    };
    let server = Server::start(options, Clock::system()).await.unwrap();
    let admin = Kubeconfig::read(&server.kubeconfig()).unwrap();
    tokio::spawn(server.run(CancellationToken::new()));
    join(directory.path(), &admin, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_joins_a_real_server_with_a_token() {
    let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") else { return };
    let server = tokio::task::block_in_place(|| Real::start(Path::new(&assets), &[]));
    let file = |name: &str| Pem::File(server.path(name));
    let cluster = Cluster {
        server: format!("https://127.0.0.1:{}", server.port),
        certificate_authority: Some(file("ca.crt")),
        ..Cluster::default()
    };
    let own = Own { certificate: file("admin.crt"), key: file("admin.key") };
    let user = User { client_certificate: Some(own), ..User::default() };
    let admin = Kubeconfig { cluster, user, namespace: String::new() };
    join(tempfile::tempdir().unwrap().path(), &admin, Some(&server)).await;
}

fn https(kubeconfig: &Kubeconfig) -> Https {
    Https::new(kubeconfig, &ProxyEnvironment::default(), Clock::system()).unwrap()
}

/// Joins. A server that does not sign by itself is signed for.
async fn join(directory: &Path, admin: &Kubeconfig, unsigning: Option<&Real>) {
    let by_admin = Client::new(Arc::new(https(admin)), "test");
    let mut secret = Secret { r#type: Some("bootstrap.kubernetes.io/token".into()), ..Secret::default() };
    secret.metadata.name = format!("bootstrap-token-{}", TOKEN.0).into();
    secret.metadata.namespace = "kube-system".into();
    for (key, value) in
        [("token-id", TOKEN.0), ("token-secret", TOKEN.1), ("usage-bootstrap-authentication", "true")]
    {
        secret.string_data.insert(key, value.into());
    }
    by_admin.create(&secret).await.unwrap();
    let binding = json!({
        "metadata": {"name": "bootstrappers"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers"}
        ],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    by_admin.post::<Value>(bindings, &binding).await.unwrap();

    let settings = ClientSettings {
        kubeconfig: directory.join("kubelet.conf"),
        bootstrap_kubeconfig: Some(directory.join("bootstrap.conf")),
        directory: directory.join("pki"),
        node: "n1".to_owned(),
        rotate: true,
    };
    let authority = match admin.cluster.certificate_authority.as_ref().unwrap() {
        Pem::File(path) => fs::read(path).unwrap(),
        Pem::Data(data) => data.to_vec(),
    };
    let kubeconfig = json!({
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {
            "server": admin.cluster.server, "certificate-authority-data": STANDARD.encode(authority),
        }}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": format!("{}.{}", TOKEN.0, TOKEN.1)}}],
    });
    fs::write(directory.join("bootstrap.conf"), kubeconfig.to_string()).unwrap();

    let opened = ClientCertificate::open(&settings, &Clock::system(), Chance::new(1)).unwrap();
    let ClientCertificate::Rotated(manager) = opened else { panic!("it is not renewed") };
    let (mut identities, mut progress) = (manager.identities(), manager.progress());
    let connect = settings.clone().connect(ProxyEnvironment::default(), Clock::system(), "test");
    let running = tokio::spawn(async move { manager.run(&connect).await });
    if let Some(server) = unsigning {
        sign(&by_admin, &pending(&mut progress).await, server).await;
    }
    assert!(identities.changed().await);
    running.abort();

    // Once by the files, and once by what is handed over to a client that had no certificate.
    let by_files = Kubeconfig::read(&settings.kubeconfig).unwrap();
    let error = Client::new(Arc::new(https(&by_files)), "test").get::<Node>("", "n1").await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    let handed = https(&Kubeconfig { user: User::default(), ..by_files });
    let node = Client::new(Arc::new(handed.clone()), "test");
    let error = node.get::<Node>("", "n1").await.unwrap_err();
    assert!(error.is_forbidden() || error.reason() == Some(&StatusReason::Unauthorized), "{error}");
    let handing = tokio::spawn(identities.hand_to(handed));
    let known = async {
        while !node.get::<Node>("", "n1").await.unwrap_err().is_not_found() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), known).await.unwrap();
    handing.abort();
}

/// What a controller manager would do.
async fn sign(admin: &Client, name: &str, server: &Real) {
    let approval =
        json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]}});
    let patch = |subresource: &'static str, patch: Value| {
        let patch = serde_json::to_vec(&patch).unwrap();
        admin.patch::<CertificateSigningRequest>("", name, subresource, PatchType::Merge, patch)
    };
    let approved = patch("/approval", approval).await.unwrap();
    fs::write(server.path("node.csr"), &*approved.spec.request).unwrap();
    fs::write(server.path("node.ext"), "extendedKeyUsage=clientAuth").unwrap();
    let arguments = "x509 -req -in node.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out node.crt -days 1 -extfile node.ext";
    let output =
        Command::new("openssl").args(arguments.split(' ')).current_dir(server.path("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let certificate = STANDARD.encode(fs::read(server.path("node.crt")).unwrap());
    patch("/status", json!({"status": {"certificate": certificate}})).await.unwrap();
}
