//! How a client certificate is renewed.

use std::convert::Infallible;

use crablet_certificates::{ClientCertificate, Identities, Manager, Progress, Renewals, Stage};
use crablet_metrics::Registry;
use jiff::SignedDuration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::world::{Fault, World};

struct Running {
    identities: Identities,
    progress: watch::Receiver<Progress>,
    task: JoinHandle<Infallible>,
    metrics: Registry,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn start(world: &World) -> Running {
    let ClientCertificate::Rotated(manager) = world.open(true) else { panic!("it is not renewed") };
    let metrics = Registry::new();
    let manager = Manager::counted_in(*manager, Renewals::of_client(&metrics).unwrap());
    let (identities, progress, connect) = (manager.identities(), manager.progress(), world.connect());
    let task = tokio::spawn(async move { manager.run(&connect).await });
    Running { identities, progress, task, metrics }
}

async fn held(progress: &mut watch::Receiver<Progress>) -> (jiff::Timestamp, jiff::Timestamp) {
    let held = progress.wait_for(|progress| matches!(progress.stage, Stage::Held { .. })).await.unwrap();
    match held.stage {
        Stage::Held { ends, renewed_at } => (ends, renewed_at),
        ref other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_renewed_by_itself_at_70_to_90_percent_of_its_life() {
    let world = World::new();
    let mut node = start(&world);
    assert!(node.identities.changed().await);
    let mut certificates = vec![node.identities.current().unwrap()];
    world.heard();
    for _ in 0..2 {
        let (ends, renewed_at) = held(&mut node.progress).await;
        let last = certificates.last().unwrap();
        assert_eq!(ends, last.not_after());
        assert!(node.identities.changed().await);
        let life = ends.duration_since(last.leaf().not_before()).as_secs_f64();
        let lived = world.clock.now().duration_since(last.leaf().not_before()).as_secs_f64() / life;
        assert!((0.7..0.9).contains(&lived), "{lived}");
        assert!(world.clock.now().duration_since(renewed_at) < SignedDuration::from_mins(1));
        let new = node.identities.current().unwrap();
        assert_ne!(new.key(), last.key());
        certificates.push(new);
    }
    let heard = world.heard();
    assert_eq!(heard.len(), 4, "{heard:?}");
    assert!(heard.iter().all(|line| line.starts_with("system:node:n1 ")), "{heard:?}");
    // The next start has the newest.
    let again = start(&world);
    assert_eq!(again.identities.current().unwrap().certificate(), certificates[2].certificate());
}

#[tokio::test(start_paused = true)]
async fn each_try_that_leads_to_nothing_counts() {
    let world = World::new();
    world.fail([Fault::Lost, Fault::Code(403), Fault::Nothing]);
    let mut node = start(&world);
    assert!(node.identities.changed().await);
    let text = node.metrics.render();
    let errors = "kubelet_certificate_manager_client_expiration_renew_errors 2";
    assert!(text.lines().any(|line| line == errors), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_forward_is_noticed() {
    let world = World::new();
    let mut node = start(&world);
    assert!(node.identities.changed().await);
    held(&mut node.progress).await;
    let before = tokio::time::Instant::now();
    world.clock.set_by(340 * 24 * 3600);
    assert!(node.identities.changed().await);
    assert!(before.elapsed().as_secs() <= 600);
}

#[tokio::test(start_paused = true)]
async fn one_that_ends_while_the_server_is_away_is_replaced_with_the_bootstrap_credentials() {
    let world = World::new();
    let mut node = start(&world);
    assert!(node.identities.changed().await);
    let (ends, _) = held(&mut node.progress).await;
    world.clock.set_by((ends.duration_since(world.clock.now()).as_secs()) - 700);
    // Until some time after its end.
    world.fail([Fault::Lost; 40]);
    world.heard();
    let ended = |node: &Running| node.identities.current().is_none();
    let mut seen_ended = false;
    loop {
        tokio::select! {
            changed = node.identities.changed() => {
                assert!(changed);
                break;
            }
            () = tokio::time::sleep(std::time::Duration::from_secs(10)) => seen_ended |= ended(&node),
        }
    }
    assert!(seen_ended);
    assert!(node.identities.current().is_some());
    let heard = world.heard();
    assert!(heard[0].starts_with("system:node:n1 POST"), "{heard:?}");
    assert!(heard.last().unwrap().starts_with("system:bootstrap:abcdef WATCH"), "{heard:?}");
}
