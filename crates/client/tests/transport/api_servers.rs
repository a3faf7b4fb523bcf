//! With an admin's kubeconfig.

use std::path::Path;
use std::sync::Arc;

use crablet_api::Text;
use crablet_api::core::ConfigMap;
use crablet_apiserver::server::{Options, Server};
use crablet_client::{
    Chance, Client, ClientCertificate, Cluster, Event, Follower, Kubeconfig, Lane, Limit, PatchType, Pem,
    Priority, Selection, User,
};
use crablet_host::clock::Clock;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::https;
use crate::real::Real;

struct Running {
    directory: TempDir,
    stop: CancellationToken,
    task: JoinHandle<()>,
    kubeconfig: Kubeconfig,
    port: u16,
}

impl Running {
    async fn start() -> Running {
        Running::start_in(tempfile::tempdir().unwrap(), 0).await
    }

    async fn start_in(directory: TempDir, port: u16) -> Running {
        let server = Server::start(options(directory.path(), port), Clock::system()).await.unwrap();
        let (stop, port) = (CancellationToken::new(), server.address().port());
        let kubeconfig = Kubeconfig::read(&server.kubeconfig()).unwrap();
        let task = tokio::spawn(server.run(stop.clone()));
        Running { directory, stop, task, kubeconfig, port }
    }

    /// Stops it, and starts another one in its place.
    async fn restart(self) -> Running {
        self.restart_without(&[]).await
    }

    /// The same, without some of the files that keys and certificates are in: it makes others.
    async fn restart_without(self, files: &[&str]) -> Running {
        self.stop.cancel();
        self.task.await.unwrap();
        for name in files {
            std::fs::remove_file(self.directory.path().join("pki").join(name)).unwrap();
        }
        Running::start_in(self.directory, self.port).await
    }

    fn client(&self) -> Client {
        Client::new(Arc::new(https(&self.kubeconfig)), "test")
    }
}

fn options(data_dir: &Path, secure_port: u16) -> Options {
    Options {
        data_dir: data_dir.to_owned(),
        bind_address: std::net::Ipv4Addr::LOCALHOST.into(),
        secure_port,
        advertise_address: None,
        serves_pods: false,
        names: Vec::new(),
        kubelet_certificate_authority: None,
        controllers: true,
        node: None,
    }
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = name.into();
    object.metadata.namespace = "default".into();
    object.metadata.labels.insert("of", Text::from("test"));
    object.data.insert("key", Text::from(value));
    object
}

fn ours() -> Selection {
    Selection { namespace: "default".to_owned(), labels: "of=test".to_owned(), ..Selection::default() }
}

async fn next(follower: &mut Follower<ConfigMap>) -> String {
    let told = |object: &ConfigMap| {
        let value = object.data.get("key").map(ToString::to_string).unwrap_or_default();
        format!("{}={value}", object.metadata.name)
    };
    match follower.next().await {
        Event::All(all) => format!("all {}", all.iter().map(told).collect::<Vec<_>>().join(" ")),
        Event::Set(object) => format!("set {}", told(&object)),
        Event::Gone(object) => format!("gone {}", told(&object)),
        Event::Trouble { error, .. } => format!("trouble: {error}"),
        Event::Resumed => "resumed".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_made_read_changed_followed_and_deleted_over_tls() {
    let server = Running::start().await;
    live_a_life(server.client()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_made_read_changed_followed_and_deleted_on_a_real_server() {
    let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") else { return };
    let server = tokio::task::block_in_place(|| Real::start(Path::new(&assets), &[]));
    let file = |name: &str| Pem::File(server.path(name));
    let cluster = Cluster {
        server: format!("https://127.0.0.1:{}", server.port),
        certificate_authority: Some(file("ca.crt")),
        ..Cluster::default()
    };
    let own = ClientCertificate { certificate: file("admin.crt"), key: file("admin.key") };
    let user = User { client_certificate: Some(own), ..User::default() };
    let config = Kubeconfig { cluster, user, namespace: String::new() };
    live_a_life(Client::new(Arc::new(https(&config)), "test")).await;
}

async fn live_a_life(client: Client) {
    let client = client.with_limit(Limit::new(50.0, 100));
    client.create(&config_map("a", "1")).await.unwrap();
    let error = client.create(&config_map("a", "1")).await.unwrap_err();
    assert!(error.is_already_exists(), "{error}");
    let mut follower = Follower::<ConfigMap>::new(client.clone(), &ours(), Chance::new(1));
    assert_eq!(next(&mut follower).await, "all a=1");

    let events = client.clone().with_priority(Priority::Low).on(Lane::Heartbeat);
    events.create(&config_map("b", "1")).await.unwrap();
    let patch = br#"{"data":{"key":"2"}}"#.to_vec();
    let patched: ConfigMap =
        client.patch("default", "b", "", PatchType::StrategicMerge, patch).await.unwrap();
    assert_eq!(patched.data.get("key").unwrap(), "2");
    let read: ConfigMap = client.get("default", "b").await.unwrap();
    assert_eq!(read.metadata.resource_version, patched.metadata.resource_version);
    let mut stale = read.clone();
    stale.metadata.resource_version = "1".into();
    assert!(client.replace(&stale).await.unwrap_err().is_conflict());
    client.delete::<ConfigMap>("default", "a", &serde_json::json!({})).await.unwrap();
    assert!(client.get::<ConfigMap>("default", "a").await.unwrap_err().is_not_found());
    for expected in ["set b=1", "set b=2", "gone a=1"] {
        assert_eq!(next(&mut follower).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_is_followed_on_and_nothing_is_missed() {
    let server = Running::start().await;
    let client = server.client();
    client.create(&config_map("a", "1")).await.unwrap();
    let mut follower = Follower::<ConfigMap>::new(client.clone(), &ours(), Chance::new(1));
    assert_eq!(next(&mut follower).await, "all a=1");
    let server = server.restart().await;
    // Another client, so that the one that follows has to find out by itself.
    server.client().create(&config_map("b", "1")).await.unwrap();
    let mut told = Vec::new();
    while !told.iter().any(|event: &String| event.contains("b=1")) {
        told.push(next(&mut follower).await);
    }
    assert!(told == ["set b=1"] || told == ["all a=1 b=1"], "no trouble comes of it: {told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_with_a_new_certificate_or_a_new_authority_is_followed_on() {
    let mut server = Running::start().await;
    let pki = server.directory.path().join("pki");
    let file = |name: &str| Pem::File(pki.join(name));
    let mut config = server.kubeconfig.clone();
    config.cluster.certificate_authority = Some(file("ca.crt"));
    let own = ClientCertificate { certificate: file("admin.crt"), key: file("admin.key") };
    config.user = User { client_certificate: Some(own), ..User::default() };
    let client = Client::new(Arc::new(https(&config)), "test");
    let mut follower = Follower::<ConfigMap>::new(client.clone(), &ours(), Chance::new(1));
    assert_eq!(next(&mut follower).await, "all ");
    let serving = ["apiserver.crt", "apiserver.key"];
    let authority = ["ca.crt", "ca.key", "admin.crt", "admin.key"];
    for (name, files) in [("a", &serving[..]), ("b", &authority[..])] {
        let before = std::fs::read(pki.join("apiserver.crt")).unwrap();
        server = server.restart_without(files).await;
        assert_ne!(std::fs::read(pki.join("apiserver.crt")).unwrap(), before);
        server.client().create(&config_map(name, "1")).await.unwrap();
        while !next(&mut follower).await.contains(&format!("{name}=1")) {}
        client.get::<ConfigMap>("default", name).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_object_is_followed_by_its_name() {
    let server = Running::start().await;
    let client = server.client();
    client.create(&config_map("a", "1")).await.unwrap();
    let selection = Selection::named("default", "b");
    let mut follower = Follower::<ConfigMap>::new(client.clone(), &selection, Chance::new(1));
    assert_eq!(next(&mut follower).await, "all ");
    client.create(&config_map("c", "1")).await.unwrap();
    client.create(&config_map("b", "1")).await.unwrap();
    assert_eq!(next(&mut follower).await, "set b=1");
}
