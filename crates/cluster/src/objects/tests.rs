use crablet_api::testing::pod_yaml;
use crablet_credentials::{ServiceAccounts, WantedToken};
use crablet_host::checkpoint::SimulatedCheckpoints;
use jiff::Timestamp;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::testing::Server;

const SERVICES: &str = "/api/v1/services";
const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

fn objects(server: &Server, strategy: ChangeDetectionStrategy) -> Arc<ClusterObjects> {
    objects_with(server, strategy, ObjectTtl::default())
}

fn objects_with(server: &Server, strategy: ChangeDetectionStrategy, ttl: ObjectTtl) -> Arc<ClusterObjects> {
    objects_that_remember(server, strategy, ttl, None)
}

fn objects_that_remember(
    server: &Server,
    strategy: ChangeDetectionStrategy,
    ttl: ObjectTtl,
    memory: Option<Memory>,
) -> Arc<ClusterObjects> {
    ClusterObjects::new(Parts {
        client: server.client(),
        clock: Clock::simulated(Timestamp::UNIX_EPOCH),
        chance: Chance::new(1),
        tasks: Tasks::new(CancellationToken::new(), TaskTracker::new()),
        strategy,
        sync_frequency: Duration::from_secs(60),
        ttl,
        memory,
    })
}

fn pod(name: &str, volume: &str) -> Pod {
    pod_yaml(&format!(
        "metadata: {{name: {name}, namespace: ns, uid: {name}}}\nspec: {{volumes: [{{name: v, {volume}}}]}}"
    ))
}

fn map(name: &str) -> String {
    format!("/api/v1/namespaces/ns/configmaps/{name}")
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn value(got: Result<Arc<ConfigMap>, Unavailable>) -> Result<String, Unavailable> {
    got.map(|map| map.data.get("k").map(ToString::to_string).unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn pods_share_one_watch_of_an_object_which_ends_with_the_last_of_them() {
    let server = Server::default();
    server.put(&map("one"), json!({"data": {"k": "v"}}));
    let objects = objects(&server, ChangeDetectionStrategy::Watch);
    let not_registered = Unavailable::Other("object \"ns\"/\"one\" not registered".to_owned());
    assert_eq!(value(objects.config_map("ns", "one").await), Err(not_registered.clone()));
    let (first, second) = (Mailbox::new(), Mailbox::new());
    let one = objects.register_pod(&pod("a", "configMap: {name: one}"), &first);
    let two = objects.register_pod(&pod("b", "configMap: {name: one}"), &second);
    assert_eq!(value(objects.config_map("ns", "one").await), Ok("v".to_owned()));
    seconds(1).await;
    assert_eq!(server.watched(), [map("one"), SERVICES.to_owned()]);
    assert!(!first.take().objects, "nothing changed");
    server.put(&map("one"), json!({"data": {"k": "w"}}));
    seconds(1).await;
    assert!(first.take().objects && second.take().objects);
    assert_eq!(value(objects.config_map("ns", "one").await), Ok("w".to_owned()));
    // What pods cannot see.
    server.put(&map("one"), json!({"data": {"k": "w"}, "metadata": {"labels": {"a": "b"}}}));
    seconds(1).await;
    assert!(!first.take().objects);
    drop(one);
    seconds(1).await;
    server.delete(&map("one"));
    seconds(1).await;
    assert!(!first.take().objects && second.take().objects);
    assert_eq!(value(objects.config_map("ns", "one").await), Err(Unavailable::NotFound));
    drop(two);
    seconds(1).await;
    assert_eq!(server.watched(), [SERVICES]);
    assert_eq!(value(objects.config_map("ns", "one").await), Err(not_registered));
}

#[tokio::test(start_paused = true)]
async fn an_immutable_object_is_read_once() {
    let server = Server::default();
    let secret = "/api/v1/namespaces/ns/secrets/one";
    server.put(secret, json!({"data": {"k": "dg=="}, "immutable": true}));
    let objects = objects(&server, ChangeDetectionStrategy::Watch);
    let mailbox = Mailbox::new();
    let _interest = objects.register_pod(&pod("a", "secret: {secretName: one}"), &mailbox);
    assert_eq!(&*objects.secret("ns", "one").await.unwrap().data["k"], b"v");
    seconds(10_000).await;
    assert_eq!(server.watched(), [SERVICES]);
    assert!(objects.secret("ns", "one").await.is_ok());
    let asked = server.asked();
    assert_eq!(asked.iter().filter(|asked| asked.contains("secrets")).count(), 1, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn with_the_server_away_what_is_known_stays_known_and_pods_are_told_when_it_is_back() {
    let server = Server::default();
    server.put(&map("one"), json!({"data": {"k": "v"}}));
    server.set_away(true);
    let objects = objects(&server, ChangeDetectionStrategy::Watch);
    let mailbox = Mailbox::new();
    let _interest = objects.register_pod(&pod("a", "configMap: {name: one}"), &mailbox);
    assert_eq!(objects.services().map(|all| all.len()), None);
    let words = "failed to sync configmap cache: timed out waiting for the condition: \
                 the API server does not answer: connection refused";
    assert_eq!(value(objects.config_map("ns", "one").await), Err(Unavailable::Other(words.to_owned())));
    seconds(600).await;
    assert!(!mailbox.take().objects);
    server.set_away(false);
    seconds(61).await;
    assert!(mailbox.take().objects, "it asked and got no answer");
    assert_eq!(value(objects.config_map("ns", "one").await), Ok("v".to_owned()));
    server.set_away(true);
    seconds(600).await;
    assert_eq!(value(objects.config_map("ns", "one").await), Ok("v".to_owned()));
    assert_eq!(objects.services().map(|all| all.len()), Some(0));
    server.put(&map("one"), json!({"data": {"k": "w"}}));
    server.set_away(false);
    seconds(61).await;
    assert!(mailbox.take().objects);
    assert_eq!(value(objects.config_map("ns", "one").await), Ok("w".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_is_given_until_the_server_has_told_of_it() {
    let (server, disk) = (Server::default(), SimulatedCheckpoints::new());
    server.put(&map("one"), json!({"data": {"k": "v"}}));
    server.put(&format!("{SERVICES}/s"), json!({"spec": {"clusterIP": "10.0.0.1"}}));
    let strategy = ChangeDetectionStrategy::Watch;
    for kept in ["v", "w"] {
        let tasks = Tasks::new(CancellationToken::new(), TaskTracker::new());
        let memory = Memory::open(Arc::new(disk.clone()), b"cluster", &tasks).await.unwrap();
        let pod = pod("a", "configMap: {name: one}");
        memory.keep(&("ns".into(), "a".into()), None, Some(&pod));
        let objects = objects_that_remember(&server, strategy.clone(), ObjectTtl::default(), Some(memory));
        let mailbox = Mailbox::new();
        let _interest = objects.register_pod(&pod, &mailbox);
        if kept == "w" {
            // Pods are not run from memory, and yet this one's object was asked for in vain.
            assert_eq!(value(objects.config_map("ns", "one").await), Ok("v".to_owned()));
            assert_eq!(objects.services().map(|all| all.len()), Some(1));
            server.put(&map("one"), json!({"data": {"k": "w"}}));
            server.set_away(false);
            seconds(61).await;
            assert!(mailbox.take().objects, "it has another now");
        }
        assert_eq!(value(objects.config_map("ns", "one").await), Ok(kept.to_owned()));
        seconds(1).await;
        server.set_away(true);
    }
}

#[tokio::test(start_paused = true)]
async fn objects_are_asked_for_where_the_strategy_says_so() {
    let gets = |server: &Server| {
        server.asked().iter().filter(|asked| **asked == format!("GET {}", map("one"))).count()
    };
    for (strategy, at_once, in_a_minute) in
        [(ChangeDetectionStrategy::Get, 3, 1), (ChangeDetectionStrategy::Cache, 1, 1)]
    {
        let server = Server::default();
        server.put(&map("one"), json!({"data": {"k": "v"}}));
        let objects = objects(&server, strategy);
        let mailbox = Mailbox::new();
        let interest = objects.register_pod(&pod("a", "configMap: {name: one}"), &mailbox);
        for _ in 0..3 {
            assert_eq!(value(objects.config_map("ns", "one").await), Ok("v".to_owned()));
        }
        assert_eq!(gets(&server), at_once);
        server.put(&map("one"), json!({"data": {"k": "w"}}));
        seconds(100).await;
        assert!(mailbox.take().objects);
        assert_eq!(value(objects.config_map("ns", "one").await), Ok("w".to_owned()));
        assert_eq!(gets(&server), in_a_minute);
        // A pod that is new sees what is there now.
        server.put(&map("one"), json!({"data": {"k": "x"}}));
        let _other = objects.register_pod(&pod("b", "configMap: {name: one}"), &Mailbox::new());
        assert_eq!(value(objects.config_map("ns", "one").await), Ok("x".to_owned()));
        server.set_away(true);
        seconds(100).await;
        assert_eq!(value(objects.config_map("ns", "one").await), Ok("x".to_owned()));
        server.set_away(false);
        server.delete(&map("one"));
        seconds(100).await;
        assert_eq!(value(objects.config_map("ns", "one").await), Err(Unavailable::NotFound));
        drop(interest);
        assert_eq!(server.watched(), [SERVICES]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_node_says_for_how_long_objects_are_current() {
    let (server, ttl) = (Server::default(), ObjectTtl::default());
    server.put(&map("one"), json!({"data": {"k": "v"}}));
    let objects = objects_with(&server, ChangeDetectionStrategy::Cache, ttl.clone());
    let _interest = objects.register_pod(&pod("a", "configMap: {name: one}"), &Mailbox::new());
    assert_eq!(value(objects.config_map("ns", "one").await), Ok("v".to_owned()));
    server.put(&map("one"), json!({"data": {"k": "w"}}));
    for (says, after, expected) in
        [(Some(300), 200, "v"), (Some(300), 150, "w"), (None, 30, "w"), (Some(0), 0, "w")]
    {
        ttl.set(says.map(Duration::from_secs));
        seconds(after).await;
        assert_eq!(value(objects.config_map("ns", "one").await), Ok(expected.to_owned()), "{says:?}");
    }
    server.put(&map("one"), json!({"data": {"k": "x"}}));
    assert_eq!(value(objects.config_map("ns", "one").await), Ok("x".to_owned()), "not for a moment");
    ttl.set(None);
    server.put(&map("one"), json!({"data": {"k": "y"}}));
    seconds(59).await;
    assert_eq!(value(objects.config_map("ns", "one").await), Ok("x".to_owned()));
    seconds(2).await;
    assert_eq!(value(objects.config_map("ns", "one").await), Ok("y".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn services_are_followed_from_the_start_and_runtime_classes_from_when_a_pod_names_one() {
    let server = Server::default();
    server.put("/api/v1/services/web", json!({"spec": {"clusterIP": "10.0.0.1"}}));
    server.put(&format!("{CLASSES}/isolated"), json!({"handler": "kata"}));
    let objects = objects(&server, ChangeDetectionStrategy::Watch);
    assert!(objects.services().is_none());
    seconds(1).await;
    let names = |objects: &ClusterObjects| {
        let all = objects.services().unwrap().into_iter();
        all.map(|service| service.metadata.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!((names(&objects), server.watched()), (vec!["web".to_owned()], vec![SERVICES.to_owned()]));
    server.put("/api/v1/services/db", json!({}));
    seconds(1).await;
    assert_eq!(names(&objects), ["db", "web"]);
    server.delete("/api/v1/services/web");
    seconds(1).await;
    assert_eq!(names(&objects), ["db"]);
    assert_eq!(*objects.runtime_class("isolated").await.unwrap().handler, *"kata");
    assert_eq!(objects.runtime_class("other").await.unwrap_err(), Unavailable::NotFound);
    assert_eq!(server.watched(), [SERVICES, CLASSES]);
}

#[tokio::test(start_paused = true)]
async fn a_credential_provider_gets_a_token_of_the_very_service_account_which_nobody_renews() {
    let server = Server::default();
    server.set_life(600);
    let path = "/api/v1/namespaces/ns/serviceaccounts/robot";
    server.put(path, json!({"metadata": {"uid": "sa-1", "annotations": {"role": "puller"}}}));
    let objects = objects(&server, ChangeDetectionStrategy::Watch);
    let account = ServiceAccounts::get(&*objects, "ns", "robot").await.unwrap();
    assert_eq!((&*account.uid, &*account.annotations["role"]), ("sa-1", "puller"));
    let gone = ServiceAccounts::get(&*objects, "ns", "nobody").await.unwrap_err();
    assert!(gone.to_string().contains("not found"), "{gone}");

    let (pod, mailbox) = (pod("a", "configMap: {name: one}"), Mailbox::new());
    let _interest = objects.register_pod(&pod, &mailbox);
    let identity = pod.identity();
    let wanted = WantedToken {
        pod: &identity,
        service_account: "robot",
        service_account_uid: "sa-1",
        audience: "registry",
    };
    assert_eq!(objects.token(wanted).await.unwrap(), "token 1");
    assert_eq!(objects.token(wanted).await.unwrap(), "token 1", "it is still good");
    let asked = &server.posted()[0];
    assert_eq!(
        (&asked["metadata"]["uid"], &asked["spec"]["audiences"][0]),
        (&json!("sa-1"), &json!("registry"))
    );
    assert_eq!(asked["spec"]["boundObjectRef"]["uid"], *identity.uid);
    mailbox.take();
    seconds(3600).await;
    assert!(!mailbox.take().objects, "the pod has nothing to renew");
    assert_eq!(objects.token(wanted).await.unwrap(), "token 2");
}

#[tokio::test(start_paused = true)]
async fn whom_to_trust_is_shown_where_the_gate_is_on_and_told_when_it_changes() {
    let server = Server::default();
    let bundles = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
    let text = |bytes: &[u8]| crablet_x509::pem::encode("CERTIFICATE", bytes);
    server.put(&format!("{bundles}/roots"), json!({"spec": {"trustBundle": text(b"one")}}));
    let objects = objects(&server, ChangeDetectionStrategy::Watch);
    let source = "projected: {sources: [{clusterTrustBundle: {name: roots, path: p}}]}";
    let mailbox = Mailbox::new();
    let _interest = objects.register_pod(&pod("a", source), &mailbox).unwrap();
    let wanted = ClusterTrustBundleProjection { name: Some("roots".into()), ..Default::default() };
    assert_eq!(objects.trust_anchors(&wanted).await, Err(Unavailable::NoClient));
    assert!(!server.watched().contains(&bundles.to_owned()));
    objects.show_trust_bundles();
    assert_eq!(objects.trust_anchors(&wanted).await, Ok(text(b"one")));
    seconds(1).await;
    mailbox.take();
    server.put(&format!("{bundles}/roots"), json!({"spec": {"trustBundle": text(b"two")}}));
    seconds(1).await;
    assert!(mailbox.take().objects);
    assert_eq!(objects.trust_anchors(&wanted).await, Ok(text(b"two")));
}
