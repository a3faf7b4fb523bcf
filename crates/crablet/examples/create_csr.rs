//! A certificate by hand: a key and a request, an object for it, somebody's yes, and what the signer makes of it.
//!
//! ```text
//! cargo run --example create_csr                             a new cluster, which goes with the example
//! cargo run --example create_csr -- ~/.kube/config           a cluster that is there
//! ```

pub(crate) mod common;

use anyhow::bail;
use common::Cluster;
use crablet_api::Bytes;
use crablet_api::certificates::{CertificateSigningRequest, CertificateSigningRequestSpec, KeyUsage};
use crablet_api::meta::DeleteOptions;
use crablet_client::{Chance, Event, Follower, PatchType, Selection};
use crablet_x509::{Certificate, CertificateRequest, KeyPair, Subject};
use serde_json::json;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run(&Cluster::of_arguments().await?).await
}

pub(crate) async fn run(cluster: &Cluster) -> anyhow::Result<()> {
    // 1. A key that nobody else sees, and a request that says whom it is for.
    let key = KeyPair::generate()?;
    let request = CertificateRequest::make(&key, Subject { name: "jane", groups: &["readers"] }, &[])?;
    println!("{request}");

    // 2. An object that holds the request.
    let mut object = CertificateSigningRequest {
        spec: CertificateSigningRequestSpec {
            request: Bytes::from(request.as_str()),
            signer_name: "kubernetes.io/kube-apiserver-client".into(),
            usages: Box::new([KeyUsage::DigitalSignature, KeyUsage::ClientAuth]),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    };
    object.metadata.generate_name = "example-".into();
    let object = cluster.admin.create(&object).await?;
    let name = &object.metadata.name;
    println!("made the certificate signing request {name}; it waits for somebody to approve it");

    // 3. Somebody says yes, as `crablet csr approve` or `kubectl certificate approve` do.
    let yes =
        json!({"type": "Approved", "status": "True", "reason": "Example", "message": "It is an example."});
    let patch = json!({"status": {"conditions": [yes]}}).to_string().into_bytes();
    let kind = PatchType::StrategicMerge;
    cluster.admin.patch::<CertificateSigningRequest>("", name, "/approval", kind, patch).await?;
    println!("approved it");

    // 4. The signer has signed it.
    let certificate = signed(cluster, name).await?;
    let read = Certificate::parse(&certificate)?;
    println!("{certificate}");
    println!("it is for {} of {:?}, until {}", read.common_name(), read.organizations(), read.not_after());
    cluster.admin.delete::<CertificateSigningRequest>("", name, &DeleteOptions::default()).await?;
    Ok(())
}

async fn signed(cluster: &Cluster, name: &str) -> anyhow::Result<String> {
    let selection = Selection::named("", name);
    let mut requests =
        Follower::<CertificateSigningRequest>::new(cluster.admin.clone(), &selection, Chance::new(1));
    loop {
        let request = match requests.next().await {
            Event::All(all) => all.into_iter().next(),
            Event::Set(request) => Some(request),
            Event::Gone(_) => bail!("somebody deleted it"),
            Event::Trouble { .. } | Event::Resumed => None,
        };
        let certificate = request.and_then(|request| request.status.certificate);
        if let Some(certificate) = certificate.filter(|certificate| !certificate.is_empty()) {
            return Ok(String::from_utf8(certificate.to_vec())?);
        }
    }
}
