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
use crablet_api::core::Secret;
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

async fn crablet(command: &str, kubeconfig: &Path, arguments: &[&str]) -> (bool, String, String) {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let program = env!("CARGO_BIN_EXE_crablet");
    let run = Command::new(program).arg(command).args(arguments).arg(kubeconfig).output().await.unwrap();
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
    let ask = async |arguments: &[&str]| crablet("csr", &cluster.kubeconfig, arguments).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_made_listed_and_deleted() {
    let cluster = lease::common::Cluster::embedded().await.unwrap();
    let ask = async |arguments: &[&str]| crablet("token", &cluster.kubeconfig, arguments).await;
    let head = ["ID", "TTL", "EXPIRES", "DESCRIPTION"];
    let list = async || {
        let (is_done, table, stderr) = ask(&["list"]).await;
        assert!(is_done, "{stderr}");
        let mut rows: Vec<Vec<String>> =
            table.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
        assert_eq!(rows.remove(0), head);
        rows
    };
    let before = list().await;
    // What is no token is not listed.
    let mut other = Secret::default();
    (other.metadata.namespace, other.metadata.name) = ("kube-system".into(), "other".into());
    cluster.admin.create(&other).await.unwrap();
    let (is_done, one, stderr) = ask(&["create", "--description", "for one"]).await;
    assert!(is_done, "{stderr}");
    let (_, other, _) = ask(&["create", "--ttl=0"]).await;
    let id = |token: &str| token.split_once('.').unwrap().0.to_owned();
    let (one_id, other_id) = (id(&one), id(&other));

    let rows = list().await;
    assert_eq!(rows.len(), before.len() + 2, "{rows:?}");
    let row = |id: &str| rows.iter().find(|row| row[0] == id).unwrap_or_else(|| panic!("{id}: {rows:?}"));
    assert_eq!(row(&other_id)[1..], ["<forever>", "<never>"]);
    let [_, left, expires, description @ ..] = &row(&one_id)[..] else { panic!("{rows:?}") };
    assert!(["23h", "24h"].contains(&left.as_str()), "{left}");
    assert!(expires.parse::<jiff::Timestamp>().is_ok(), "{expires}");
    assert_eq!(description, ["for", "one"]);

    // By its name, or whole.
    for (token, id) in [(one.trim(), &one_id), (other_id.as_str(), &other_id)] {
        assert_eq!(ask(&["delete", token]).await, (true, format!("token {id} deleted\n"), String::new()));
        let (is_done, _, stderr) = ask(&["delete", token]).await;
        assert_eq!((is_done, stderr), (false, format!("crablet: there is no token {id}\n")));
    }
    assert_eq!(list().await.len(), before.len());
}
