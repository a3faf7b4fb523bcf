//! TLS bootstrap: somebody with a token and nothing else becomes a node with a certificate, and registers itself.
//!
//! ```text
//! cargo run --example bootstrap                              a new cluster, which goes with the example
//! cargo run --example bootstrap -- ~/.kube/config            a cluster that is there
//! ```

pub(crate) mod common;

use anyhow::bail;
use common::Cluster;
use crablet_api::core::{Node, Secret};
use crablet_api::meta::DeleteOptions;
use crablet_certificates::{ClientCertificate, ClientSettings};
use crablet_client::{Chance, ProxyEnvironment};
use crablet_host::clock::Clock;

const NODE: &str = "bootstrap-example";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run(&Cluster::of_arguments().await?).await
}

pub(crate) async fn run(cluster: &Cluster) -> anyhow::Result<()> {
    let secret = common::make_token(cluster).await?;
    let directory = cluster.directory.path();
    let settings = ClientSettings {
        kubeconfig: directory.join("kubelet.conf"),
        bootstrap_kubeconfig: Some(common::bootstrap_kubeconfig(cluster)?),
        directory: directory.join("pki"),
        node: NODE.to_owned(),
        rotate: false,
    };

    // The token asks for a certificate of the node; somebody approves and signs that; a kubeconfig leads to it.
    let clock = Clock::system();
    let certificate = ClientCertificate::open(&settings, &clock, Chance::new(1))?;
    let ClientCertificate::Bootstrap(bootstrap) = certificate else {
        bail!("there is a certificate already")
    };
    let mut progress = bootstrap.progress();
    let telling = tokio::spawn(async move {
        while progress.changed().await.is_ok() {
            let now = progress.borrow_and_update().clone();
            println!("the certificate: {now}");
        }
    });
    let kubeconfig = settings.kubeconfig.clone();
    let connect = settings.connect(ProxyEnvironment::of_process(), clock, "crablet-example");
    bootstrap.run(&connect).await;
    telling.await?;
    println!("{} is written", kubeconfig.display());

    // From now on it is the node, and may say so.
    let client = common::client(&kubeconfig)?;
    let mut node = Node::default();
    node.metadata.name = NODE.into();
    let node = client.create(&node).await?;
    println!("registered the node {} ({})", node.metadata.name, node.metadata.uid);

    cluster.admin.delete::<Node>("", NODE, &DeleteOptions::default()).await?;
    let (namespace, name) = (&secret.metadata.namespace, &secret.metadata.name);
    cluster.admin.delete::<Secret>(namespace, name, &DeleteOptions::default()).await?;
    Ok(())
}
