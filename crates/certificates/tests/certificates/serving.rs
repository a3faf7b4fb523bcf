//! Serving certificates that the cluster signs.

use crablet_api::core::{NodeAddress, NodeAddressType};
use crablet_certificates::{Manager, Renewals, Stage};
use crablet_client::Chance;
use crablet_metrics::Registry;
use crablet_x509::AlternativeName;
use tokio::sync::watch;

use crate::world::{World, mode, pending};

fn addresses(of: &[(NodeAddressType, &str)]) -> Box<[NodeAddress]> {
    of.iter()
        .map(|(kind, address)| NodeAddress { r#type: kind.clone(), address: (*address).into() })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_serving_certificate_follows_the_nodes_addresses() {
    use NodeAddressType::{Hostname, InternalIp};
    let world = World::new();
    let node_addresses = watch::Sender::new(addresses(&[(Hostname, "n1")]));
    let open = |node_addresses: &watch::Sender<_>| {
        let (receiver, clock) = (node_addresses.subscribe(), world.clock.clone());
        Manager::serving(&world.path("pki"), "n1", None, receiver, false, clock, Chance::new(3)).unwrap()
    };
    let registry = Registry::new();
    let manager = open(&node_addresses).counted_in(Renewals::of_serving(&registry).unwrap());
    let (mut identities, mut progress, connect) = (manager.identities(), manager.progress(), world.connect());
    let own = move |_| connect(crablet_certificates::Credentials::Own);
    let running = tokio::spawn(async move { manager.run(&own).await });
    progress.wait_for(|progress| progress.stage == Stage::WaitsForAddresses).await.unwrap();

    node_addresses.send_replace(addresses(&[(InternalIp, "192.0.2.1"), (Hostname, "n1")]));
    let first = pending(&mut progress).await;
    // They change while somebody is waited for: that request is of no use.
    node_addresses.send_replace(addresses(&[(InternalIp, "192.0.2.2"), (Hostname, "n1")]));
    progress.wait_for(|progress| matches!(progress.stage, Stage::Rests { .. })).await.unwrap();
    let second = pending(&mut progress).await;
    assert_ne!(first, second);
    world.approve(&second).await;
    assert!(identities.changed().await);
    let names = |names: &[&str]| names.iter().map(|name| AlternativeName::of(name)).collect::<Vec<_>>();
    assert!(identities.current().unwrap().leaf().has_exactly(&names(&["n1", "192.0.2.2"])));
    let request =
        world.requests().await.into_iter().find(|request| *request.metadata.name == *second).unwrap();
    assert_eq!(&*request.spec.signer_name, "kubernetes.io/kubelet-serving");
    let usages: Vec<&str> = request.spec.usages.iter().map(|usage| usage.as_str()).collect();
    assert_eq!(usages, ["digital signature", "server auth"]);
    assert_eq!(mode(&world.path("pki/kubelet-server-current.pem")), 0o600);

    // One less needs no other certificate, one more does. The one from before is served until then.
    node_addresses.send_replace(addresses(&[(InternalIp, "192.0.2.2")]));
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(world.requests().await.len(), 2);
    node_addresses.send_replace(addresses(&[(InternalIp, "192.0.2.2"), (InternalIp, "2001:db8::1")]));
    let third = pending(&mut progress).await;
    assert!(identities.current().is_some());
    world.approve(&third).await;
    assert!(identities.changed().await);
    assert!(identities.current().unwrap().leaf().has_exactly(&names(&["192.0.2.2", "2001:db8::1"])));
    let text = registry.render();
    for line in [
        // The request that was of no use, and the certificate that was replaced.
        "kubelet_server_expiration_renew_errors 1",
        "kubelet_certificate_manager_server_rotation_seconds_count 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    running.abort();
    // The next start has it.
    assert!(open(&node_addresses).identities().current().unwrap().leaf().has_all(&names(&["2001:db8::1"])));
}
