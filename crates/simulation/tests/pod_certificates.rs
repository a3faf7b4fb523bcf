//! Certificates of pods' own, from a signer of the cluster: projections of the kind `podCertificate`.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use crablet_api::Gate;
use crablet_api::certificates::PodCertificateRequest;
use crablet_api::core::{Pod, PodPhase};
use crablet_api::meta::{DeleteOptions, List};
use crablet_client::{PatchType, Resource as _};
use crablet_simulation::trace::Trace;
use crablet_simulation::world::World;
use crablet_x509::{Authority, Certificate, CertificateRequest, KeyPair, pem};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use common::joined::Cluster;
use common::seconds;

const SOURCE: &str = "projected: {sources: [{podCertificate: {signerName: example.com/signer, keyType: ECDSAP384, \
    maxExpirationSeconds: 7200, credentialBundlePath: both, keyPath: key, certificateChainPath: chain, \
    userAnnotations: {example.com/team: blue}}}]}";

/// A node that asks for certificates, or does not.
async fn cluster(asks: bool) -> Cluster {
    let mut world = World::new(0, Trace::new(false));
    world.features = world.features.with(Gate::PodCertificateRequest, asks);
    let cluster = Cluster::join(world).await;
    cluster.until_ready().await;
    cluster
}

/// All that was asked of signers, the oldest first.
async fn requests(cluster: &Cluster) -> Vec<PodCertificateRequest> {
    let path = PodCertificateRequest::collection("default");
    let list: List<PodCertificateRequest> = cluster.admin.read(&path).await.unwrap();
    let mut items = list.items;
    items.sort_by_key(|request| request.metadata.resource_version.parse::<u64>().unwrap());
    items
}

/// The only request without an answer.
async fn asked(cluster: &Cluster) -> PodCertificateRequest {
    let mut open = requests(cluster).await;
    open.retain(|request| request.status.conditions.is_empty());
    assert_eq!(open.len(), 1, "{open:#?}");
    open.remove(0)
}

async fn answer(cluster: &Cluster, request: &PodCertificateRequest, status: Value) {
    let patch = json!({"status": status}).to_string();
    let (name, kind) = (&request.metadata.name, PatchType::Merge);
    let patched =
        cluster.admin.patch::<PodCertificateRequest>("default", name, "/status", kind, patch.into());
    patched.await.unwrap();
}

fn condition(cluster: &Cluster, kind: &str, message: &str) -> Value {
    let now = format!("{:.0}", cluster.world.clock.now());
    json!([{"type": kind, "status": "True", "reason": "Tested", "message": message, "lastTransitionTime": now}])
}

/// Who signs.
struct Signer(Authority);

impl Signer {
    fn new(cluster: &Cluster) -> Signer {
        let (key, now) = (KeyPair::generate().unwrap(), cluster.world.clock.now());
        Signer(Authority::make(key, "signer", &[], now, SignedDuration::from_hours(1000)).unwrap())
    }

    /// Issues a certificate that lasts for two hours, and is to be renewed after one.
    async fn issue(&self, cluster: &Cluster, request: &PodCertificateRequest) -> Certificate {
        let now = cluster.world.clock.now();
        let text = pem::encode("CERTIFICATE REQUEST", request.spec.stub_pkcs10_request.as_ref().unwrap());
        // Certificates begin five minutes earlier, which is more than the server takes.
        let later = now + SignedDuration::from_secs(60);
        let leaf = self.0.sign_request(&text, &["client auth"], Some(6900), later).unwrap();
        let certificate = Certificate::parse(&leaf).unwrap();
        let time = |at: Timestamp| format!("{at:.0}");
        let status = json!({
            "conditions": condition(cluster, "Issued", "here it is"),
            "certificateChain": format!("a word between\n{leaf}{}", self.0.certificate()),
            "notBefore": time(certificate.not_before()),
            "notAfter": time(certificate.not_after()),
            "beginRefreshAt": time(now + SignedDuration::from_hours(1)),
        });
        answer(cluster, request, status).await;
        certificate
    }
}

fn shown(cluster: &Cluster, pod: &Pod) -> [String; 3] {
    ["both", "key", "chain"].map(|file| cluster.file(pod, "v", file).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_pod_has_a_certificate_of_a_key_made_on_its_node_and_another_when_it_is_time() {
    let cluster = cluster(true).await;
    let signer = Signer::new(&cluster);
    let pod = cluster.create_with_volume("p", SOURCE).await;
    seconds(20).await;
    assert_eq!(cluster.phase("p").await, Some(PodPhase::Pending));
    let waits = "MountVolume.SetUp failed for volume \"v\" : credential bundle is not issued yet";
    assert!(cluster.events("FailedMount").await.contains(&waits.to_owned()));
    let request = asked(&cluster).await;
    let account: Value =
        cluster.admin.read("/api/v1/namespaces/default/serviceaccounts/default").await.unwrap();
    let said = serde_json::to_value(&request).unwrap();
    assert!(request.metadata.name.starts_with("req-"), "{}", request.metadata.name);
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": &*pod.metadata.uid}]);
    assert_eq!(said["metadata"]["ownerReferences"], owner);
    let mut spec = said["spec"].clone();
    assert!(spec.as_object_mut().unwrap().remove("stubPKCS10Request").is_some());
    assert_eq!(
        spec,
        json!({
            "signerName": "example.com/signer",
            "podName": "p",
            "podUID": &*pod.metadata.uid,
            "serviceAccountName": "default",
            "serviceAccountUID": account["metadata"]["uid"],
            "nodeName": "node",
            "nodeUID": &*cluster.node().await.metadata.uid,
            "maxExpirationSeconds": 7200,
            "unverifiedUserAnnotations": {"example.com/team": "blue"},
        })
    );

    let certificate = signer.issue(&cluster, &request).await;
    seconds(10).await;
    assert_eq!(cluster.phase("p").await, Some(PodPhase::Running), "{}", cluster.story("p"));
    let [both, key, chain] = shown(&cluster, &pod);
    assert_eq!(both, format!("{key}{chain}"));
    assert_eq!(pem::blocks(key.as_bytes())[0].label, "PRIVATE KEY");
    assert!(chain.starts_with("-----BEGIN CERTIFICATE-----"), "{chain}");
    assert_eq!(pem::blocks(chain.as_bytes()).len(), 2);
    let proof = CertificateRequest::from_der(request.spec.stub_pkcs10_request.as_ref().unwrap()).unwrap();
    assert!(certificate.key() == proof.key());

    // An hour and up to five minutes.
    seconds(3500).await;
    assert_eq!(requests(&cluster).await.len(), 1);
    seconds(500).await;
    assert_eq!(shown(&cluster, &pod), [both, key.clone(), chain], "until there is another");
    signer.issue(&cluster, &asked(&cluster).await).await;
    seconds(10).await;
    let [_, renewed, _] = shown(&cluster, &pod);
    assert_ne!(renewed, key);
    assert_eq!((cluster.running(), requests(&cluster).await.len()), (1, 2));
    let metrics = cluster.world.agent.as_ref().unwrap().metrics.kubelet.render();
    let told = "kubelet_podcertificate_states{signer_name=\"example.com/signer\",state=\"fresh\"} 1";
    assert!(metrics.contains(told), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn who_is_denied_a_certificate_is_told_so_and_does_not_ask_again() {
    for (kind, how) in [("Denied", "was denied"), ("Failed", "failed")] {
        let cluster = cluster(true).await;
        cluster.create_with_volume("p", SOURCE).await;
        seconds(5).await;
        let request = asked(&cluster).await;
        answer(&cluster, &request, json!({"conditions": condition(&cluster, kind, "not you")})).await;
        seconds(60).await;
        let name = &request.metadata.name;
        let message =
            format!("PodCertificateRequest default/{name} {how}, reason=\"Tested\", message=\"not you\"");
        assert_eq!(cluster.events(kind).await, [message]);
        let word = kind.to_lowercase();
        let waits = format!(
            "MountVolume.SetUp failed for volume \"v\" : PodCertificateRequest was permanently {word}: \
             reason=\"Tested\" message=\"not you\""
        );
        assert!(cluster.events("FailedMount").await.contains(&waits));
        seconds(7200).await;
        assert_eq!(cluster.phase("p").await, Some(PodPhase::Pending));
        assert_eq!(requests(&cluster).await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_no_signer_renews_is_told_of_when_it_is_overdue_and_when_it_ends() {
    let cluster = cluster(true).await;
    let pod = cluster.create_with_volume("p", SOURCE).await;
    seconds(5).await;
    Signer::new(&cluster).issue(&cluster, &asked(&cluster).await).await;
    seconds(60).await;
    let before = shown(&cluster, &pod);
    seconds(3600 + 500).await;
    assert_eq!(cluster.events("CertificateOverdueForRefresh").await, Vec::<String>::new());
    seconds(500).await;
    assert_eq!(cluster.events("CertificateOverdueForRefresh").await, ["PodCertificate refresh overdue"]);
    assert_eq!(cluster.events("CertificateExpired").await, Vec::<String>::new());
    seconds(3000).await;
    assert_eq!(cluster.events("CertificateExpired").await, ["PodCertificate expired"]);
    assert_eq!(shown(&cluster, &pod), before);
    assert_eq!(cluster.running(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_somebody_deleted_is_made_anew_after_some_time() {
    let cluster = cluster(true).await;
    cluster.create_with_volume("p", SOURCE).await;
    seconds(5).await;
    let request = asked(&cluster).await;
    let options = DeleteOptions::default();
    cluster.admin.delete::<PodCertificateRequest>("default", &request.metadata.name, &options).await.unwrap();
    seconds(590).await;
    assert_eq!(requests(&cluster).await.len(), 0, "it could be that it is not seen yet");
    seconds(400).await;
    Signer::new(&cluster).issue(&cluster, &asked(&cluster).await).await;
    seconds(10).await;
    assert_eq!(cluster.phase("p").await, Some(PodPhase::Running), "{}", cluster.story("p"));
}

#[tokio::test(start_paused = true)]
async fn the_next_agent_asks_anew_and_pods_keep_what_they_have_until_then() {
    let mut cluster = cluster(true).await;
    let signer = Signer::new(&cluster);
    let pod = cluster.create_with_volume("p", SOURCE).await;
    seconds(5).await;
    signer.issue(&cluster, &asked(&cluster).await).await;
    seconds(10).await;
    let before = shown(&cluster, &pod);
    cluster.world.kill().await;
    cluster.start_agent().await;
    seconds(60).await;
    assert_eq!(shown(&cluster, &pod), before);
    signer.issue(&cluster, &asked(&cluster).await).await;
    seconds(10).await;
    assert_ne!(shown(&cluster, &pod), before);
    assert_eq!(cluster.running(), 1, "nothing was restarted");
    let written = cluster.world.checkpoints.content().into_values().flatten().collect::<Vec<u8>>();
    let log = cluster.story("p");
    for text in [String::from_utf8_lossy(&written).into_owned(), log] {
        assert!(!text.contains("PRIVATE KEY"), "{text}");
    }
    cluster.delete("p", &DeleteOptions::default()).await;
    seconds(90).await;
    assert_eq!(cluster.pod("p").await, None);
    seconds(7200).await;
    assert_eq!(requests(&cluster).await.iter().filter(|one| one.status.conditions.is_empty()).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_gate_is_closed_asks_nobody() {
    let cluster = cluster(false).await;
    cluster.create_with_volume("p", SOURCE).await;
    seconds(60).await;
    assert_eq!(cluster.phase("p").await, Some(PodPhase::Pending));
    let waits = "MountVolume.SetUp failed for volume \"v\" : unimplemented";
    assert!(cluster.events("FailedMount").await.contains(&waits.to_owned()));
    assert_eq!(requests(&cluster).await.len(), 0);
}
