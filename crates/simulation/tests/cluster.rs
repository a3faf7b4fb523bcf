//! The agent and an API server, and what lies between them.

use std::time::Duration;

use crablet_api::coordination::Lease;
use crablet_api::core::{Node, NodeConditionType, Pod, PodPhase};
use crablet_api::meta::{ConditionStatus, DeleteOptions};
use crablet_client::Client;
use crablet_simulation::api_server::{ApiServer, Trouble};
use crablet_simulation::trace::Trace;
use crablet_simulation::world::World;

/// A node that has joined a cluster.
struct Cluster {
    world: World,
    server: ApiServer,
    admin: Client,
}

impl Cluster {
    async fn start() -> Cluster {
        let mut world = World::new(0, Trace::new(false));
        let server = ApiServer::new(0, world.clock.clone());
        tokio::spawn(server.clone().run());
        world.api_server = Some(server.clone());
        world.start(None).await;
        world.tell_all();
        let cluster = Cluster { world, admin: server.admin(), server };
        cluster.until_ready().await;
        cluster
    }

    async fn until_ready(&self) {
        eventually("the node is ready", async || self.node_is(ConditionStatus::True).await).await;
    }

    async fn node_is(&self, status: ConditionStatus) -> bool {
        let Ok(node) = self.admin.get::<Node>("", "node").await else { return false };
        let ready = node.status.conditions.iter().find(|known| known.r#type == NodeConditionType::Ready);
        ready.is_some_and(|ready| ready.status == status)
    }

    async fn create(&self, name: &str, spec: &str) -> Pod {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}}, spec: {spec}}}"
        );
        let (pod, _) = crablet_api::from_manifest::<Pod>(name, &text).unwrap();
        self.admin.create(&pod).await.unwrap()
    }

    async fn pod(&self, name: &str) -> Option<Pod> {
        self.admin.get::<Pod>("default", name).await.ok()
    }

    async fn until_phase(&self, name: &str, phase: PodPhase) -> Pod {
        for _ in 0..1200 {
            if let Some(pod) = self.pod(name).await.filter(|pod| pod.status.phase == Some(phase.clone())) {
                return pod;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let stories = self.world.agent.as_ref().map(|agent| agent.agent.stories.find(name));
        panic!("within two minutes not: {name} is {phase:?}\n{stories:#?}");
    }

    fn running(&self) -> usize {
        self.world.simulator.containers().iter().filter(|container| container.alive).count()
    }
}

async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..1200 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("within two minutes not: {what}");
}

const FOREVER: &str = "{terminationGracePeriodSeconds: 1, containers: [{name: c, image: 'sim/forever:1'}]}";

#[tokio::test(start_paused = true)]
async fn a_node_joins_and_says_that_it_is_alive() {
    let cluster = Cluster::start().await;
    let node = cluster.admin.get::<Node>("", "node").await.unwrap();
    let lease = async || cluster.admin.get::<Lease>("kube-node-lease", "node").await.ok();
    eventually("it has a lease", async || lease().await.is_some()).await;
    let first = lease().await.unwrap();
    assert_eq!(first.metadata.owner_references[0].uid, node.metadata.uid);
    assert_eq!(first.spec.holder_identity.as_deref(), Some("node"));
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(lease().await.unwrap().spec.renew_time > first.spec.renew_time);
    // At rest a minute needs six renewals, and watches that begin anew.
    cluster.server.take_asked();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked: Vec<String> = cluster.server.take_asked().into_iter().map(|asked| asked.path).collect();
    assert!(asked.len() <= 8, "{asked:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_runs_is_deleted_and_gone() {
    let cluster = Cluster::start().await;
    cluster.create("web", FOREVER).await;
    let pod = cluster.until_phase("web", PodPhase::Running).await;
    assert_eq!(pod.status.container_statuses.len(), 1);
    assert!(!pod.status.pod_ip.is_empty());
    assert_eq!(cluster.running(), 1);
    let options = DeleteOptions::default();
    cluster.admin.delete::<Pod>("default", "web", &options).await.unwrap();
    eventually("it is gone", async || cluster.pod("web").await.is_none()).await;
    assert_eq!(cluster.running(), 0);
    eventually("nothing is left", async || cluster.world.simulator.sandboxes().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_over_says_so_and_stays() {
    let cluster = Cluster::start().await;
    let spec = "{restartPolicy: Never, containers: [{name: c, image: 'sim/exits-0-3:1'}]}";
    cluster.create("job", spec).await;
    cluster.until_phase("job", PodPhase::Succeeded).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.pod("job").await.unwrap().status.phase, Some(PodPhase::Succeeded));
    assert_eq!(cluster.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_happens_while_the_server_is_away_is_told_when_it_is_back() {
    for trouble in [Trouble::Refused, Trouble::Hangs, Trouble::AnswersAreLost, Trouble::Says(500, None)] {
        let cluster = Cluster::start().await;
        cluster.create("web", FOREVER).await;
        cluster.until_phase("web", PodPhase::Running).await;
        cluster.server.set_trouble(Some(trouble));
        tokio::time::sleep(Duration::from_secs(5)).await;
        let container = cluster.world.simulator.containers()[0].id.clone();
        cluster.world.simulator.exit_container(&container, 3);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(cluster.running(), 1, "{trouble:?}: what runs is restarted without the server");
        cluster.server.set_trouble(None);
        eventually("the restart is told", async || {
            let pod = cluster.pod("web").await.unwrap();
            pod.status.container_statuses[0].restart_count == 1
        })
        .await;
        cluster.until_ready().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_again_restarts_nothing_and_goes_on() {
    let mut cluster = Cluster::start().await;
    cluster.create("web", FOREVER).await;
    cluster.create("old", FOREVER).await;
    cluster.until_phase("web", PodPhase::Running).await;
    cluster.until_phase("old", PodPhase::Running).await;
    cluster.world.kill().await;
    // One is force-deleted while nobody looks.
    let uid = cluster.pod("old").await.unwrap().metadata.uid;
    cluster.admin.delete::<Pod>("default", "old", &DeleteOptions::now(&uid)).await.unwrap();
    // Nothing is ended before the server was heard.
    cluster.server.set_trouble(Some(Trouble::Refused));
    cluster.world.start(None).await;
    cluster.world.tell_all();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(cluster.running(), 2);
    cluster.server.set_trouble(None);
    eventually("what nobody wants is gone", async || cluster.running() == 1).await;
    let pod = cluster.until_phase("web", PodPhase::Running).await;
    assert_eq!(pod.status.container_statuses[0].restart_count, 0);
    eventually("nothing else is left", async || cluster.world.simulator.containers().len() == 1).await;
}
