//! A bootstrap token: what somebody is who has one, and what that may do.
//!
//! ```text
//! cargo run --example token                                  a new cluster, which goes with the example
//! cargo run --example token -- ~/.kube/config                a cluster that is there
//! ```

pub(crate) mod common;

use anyhow::Context as _;
use common::Cluster;
use crablet_api::core::{Pod, Secret};
use crablet_api::meta::DeleteOptions;
use crablet_client::Resource as _;
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run(&Cluster::of_arguments().await?).await
}

pub(crate) async fn run(cluster: &Cluster) -> anyhow::Result<()> {
    let secret = common::make_token(cluster).await?;
    let client = common::client(&common::bootstrap_kubeconfig(cluster)?)?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let me: Value = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await?;
    println!("who has the token is {}", me["status"]["userInfo"]["username"]);
    println!("and is in the groups {}", me["status"]["userInfo"]["groups"]);
    for (verb, group, resource) in
        [("create", "certificates.k8s.io", "certificatesigningrequests"), ("list", "", "pods")]
    {
        let attributes = json!({"verb": verb, "group": group, "resource": resource});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                            "spec": {"resourceAttributes": attributes}});
        let may: Value =
            client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await?;
        println!("may it {verb} {resource}? {}", may["status"]["allowed"]);
    }
    let refused = client.read::<Value>(&Pod::collection("default")).await;
    println!("asked for pods, the server says: {}", refused.err().context("it should not see pods")?);
    let (namespace, name) = (&secret.metadata.namespace, &secret.metadata.name);
    cluster.admin.delete::<Secret>(namespace, name, &DeleteOptions::default()).await?;
    Ok(())
}
