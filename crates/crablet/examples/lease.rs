//! How a node says that it is alive: its lease is renewed, and everybody sees when it was last.
//!
//! ```text
//! cargo run --example lease                                  a new cluster, which goes with the example
//! cargo run --example lease -- ~/.kube/config                a cluster that is there
//! ```

pub(crate) mod common;

use common::Cluster;
use crablet_api::coordination::Lease;
use crablet_api::core::Node;
use crablet_api::meta::DeleteOptions;
use crablet_client::{Chance, Event, Follower, Selection};
use crablet_cluster::lease::Heart;
use crablet_cluster::node::Identity;
use crablet_host::clock::Clock;
use tokio::sync::watch;

const NODE: &str = "lease-example";
/// It is renewed four times within its life.
const LASTS_SECONDS: i32 = 2;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run(&Cluster::of_arguments().await?).await
}

pub(crate) async fn run(cluster: &Cluster) -> anyhow::Result<()> {
    let mut node = Node::default();
    node.metadata.name = NODE.into();
    let node = cluster.admin.create(&node).await?;
    println!("made the node {NODE}");

    // The lease belongs to the node, and goes with it.
    let identity = Identity { name: node.metadata.name.clone(), uid: node.metadata.uid.clone() };
    let (_sender, identity) = watch::channel(Some(identity));
    let heart = Heart::new(cluster.admin.clone(), Clock::system(), NODE.into(), identity, LASTS_SECONDS);
    let beating = tokio::spawn(heart.run());

    let selection = Selection::named("kube-node-lease", NODE);
    let mut leases: Follower<Lease> = Follower::new(cluster.admin.clone(), &selection, Chance::new(1));
    let mut beats = 0;
    while beats < 4 {
        let seen = match leases.next().await {
            Event::All(all) => all.into_iter().next(),
            Event::Set(lease) => Some(lease),
            Event::Gone(_) | Event::Trouble { .. } | Event::Resumed => None,
        };
        if let Some(lease) = seen {
            let spec = serde_json::to_string(&lease.spec)?;
            println!("the lease says {spec}");
            beats += 1;
        }
    }
    beating.abort();
    cluster.admin.delete::<Node>("", NODE, &DeleteOptions::default()).await?;
    println!("deleted the node; nobody renews its lease any more");
    Ok(())
}
