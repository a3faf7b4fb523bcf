//! The examples of a node in a cluster, and the commands of somebody who looks after one, on the embedded API server.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]
#![allow(clippy::duplicate_mod, reason = "each example is a program of its own")]

#[path = "../examples/bootstrap.rs"]
#[allow(dead_code, reason = "a test needs no `main`")]
mod bootstrap;
#[path = "../examples/create_csr.rs"]
#[allow(dead_code, reason = "a test needs no `main`")]
mod create_csr;
#[path = "../examples/lease.rs"]
#[allow(dead_code, reason = "a test needs no `main`")]
mod lease;
#[path = "../examples/token.rs"]
#[allow(dead_code, reason = "a test needs no `main`")]
mod token;

use std::path::Path;
use std::process::Output;

use crablet_api::Bytes;
use crablet_api::certificates::{CertificateSigningRequest, CertificateSigningRequestSpec, KeyUsage};
use crablet_client::Client;
use crablet_x509::{CertificateRequest, KeyPair, Subject};
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn every_example_comes_to_its_end() {
    lease::run(&lease::common::Cluster::embedded().await.unwrap()).await.unwrap();
    token::run(&token::common::Cluster::embedded().await.unwrap()).await.unwrap();
    create_csr::run(&create_csr::common::Cluster::embedded().await.unwrap()).await.unwrap();
    bootstrap::run(&bootstrap::common::Cluster::embedded().await.unwrap()).await.unwrap();
}

async fn csr(kubeconfig: &Path, arguments: &[&str]) -> (bool, String, String) {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let program = env!("CARGO_BIN_EXE_crablet");
    let run = Command::new(program).arg("csr").args(arguments).arg(kubeconfig).output().await.unwrap();
    let Output { status, stdout, stderr } = run;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.success(), text(stdout), text(stderr))
}

async fn request(admin: &Client, name: &str) {
    let key = KeyPair::generate().unwrap();
    let request = CertificateRequest::make(&key, Subject { name, groups: &[] }, &[]).unwrap();
    let spec = CertificateSigningRequestSpec {
        request: Bytes::from(request.as_str()),
        signer_name: "kubernetes.io/kube-apiserver-client".into(),
        usages: Box::new([KeyUsage::DigitalSignature, KeyUsage::ClientAuth]),
        ..CertificateSigningRequestSpec::default()
    };
    let mut object = CertificateSigningRequest { spec, ..CertificateSigningRequest::default() };
    object.metadata.name = name.into();
    admin.create(&object).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_certificates_are_listed_approved_and_denied() {
    let cluster = lease::common::Cluster::embedded().await.unwrap();
    let ask = async |arguments: &[&str]| csr(&cluster.kubeconfig, arguments).await;
    assert_eq!(ask(&["list"]).await.1, "No requests found\n");
    for name in ["one", "two", "three"] {
        request(&cluster.admin, name).await;
    }
    let said = "certificatesigningrequest.certificates.k8s.io/one approved\n";
    assert_eq!(ask(&["approve", "one"]).await, (true, said.to_owned(), String::new()));
    assert!(ask(&["deny", "two"]).await.0);
    let (_, table, _) = ask(&["list"]).await;
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0].join(" "), "NAME AGE SIGNERNAME REQUESTOR REQUESTEDDURATION CONDITION");
    let conditions: Vec<_> = words[1..].iter().map(|row| (row[0], row[row.len() - 1])).collect();
    assert_eq!(conditions, [("one", "Approved,Issued"), ("three", "Pending"), ("two", "Denied")]);
    // What cannot be is said, and what came before it is done.
    let (is_done, stdout, stderr) = ask(&["approve", "three", "two", "none"]).await;
    assert!(!is_done && stdout.lines().count() == 1, "{stdout}");
    assert!(stderr.contains("the request two cannot be approved"), "{stderr}");
    assert_eq!(ask(&["deny", "none"]).await.2, "crablet: there is no request \"none\"\n");
}
