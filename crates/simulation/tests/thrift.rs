//! What a crowd of pods costs the runtime: nothing is asked of it twice.

use std::collections::BTreeMap;
use std::time::Duration;

use crablet_agent::sources::SourceKind;
use crablet_cri_sim::Method;
use crablet_host::checkpoint::Operation;
use crablet_simulation::manifest::from_text;
use crablet_simulation::trace::Trace;
use crablet_simulation::world::World;

const PODS: usize = 50;

/// How often each sandbox or container was the subject of a call.
fn asked(world: &World, method: Method) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for call in world.simulator.calls().into_iter().filter(|call| call.method == method) {
        *times.entry(call.subject).or_default() += 1;
    }
    times
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_and_go_at_once_are_made_stopped_and_removed_once_each() {
    let mut world = World::new(0, Trace::new(false));
    world.start(None).await;
    for number in 0..PODS {
        let pod = from_text(&format!(
            "metadata: {{name: p{number}, namespace: default, uid: uid-{number}}}
spec: {{containers: [{{name: c, image: 'sim/forever:1'}}]}}
"
        ));
        world.ledger.want(&pod, SourceKind::Api);
        world.wanted.entry(SourceKind::Api).or_default().insert(pod.metadata.uid.to_string(), pod);
    }
    world.tell_all();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let running = world.simulator.containers().iter().filter(|container| container.alive).count();
    assert_eq!(running, PODS);
    assert!(!world.checkpoints.calls().contains(&Operation::Save), "a start relies on no sync");

    let lists = || world.simulator.count_calls(Method::ListContainers);
    let (before, written) = (lists(), world.checkpoints.calls().len());
    world.wanted.entry(SourceKind::Api).or_default().clear();
    world.tell_all();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(world.simulator.sandboxes().len(), 0);
    // One look before the first stop, one that finds all containers stopped, and one before the removal; and the
    // relist now and then.
    let looks = lists() - before;
    assert!(looks <= PODS * 3 + 5, "{looks}");
    // Nothing of a pod that goes has to outlive a power cut: no sync of its own beside the runtime's.
    let on_disk = &world.checkpoints.calls()[written..];
    let times = |operation| on_disk.iter().filter(|call| **call == operation).count();
    assert_eq!((times(Operation::Save), times(Operation::Remove)), (0, PODS));
    assert!(times(Operation::SaveUnsynced) >= PODS, "an agent that dies meanwhile goes on with the ends");
    let calls = [
        Method::RunPodSandbox,
        Method::CreateContainer,
        Method::StartContainer,
        Method::StopContainer,
        Method::StopPodSandbox,
        Method::RemoveContainer,
        Method::RemovePodSandbox,
    ];
    for method in calls {
        let times = asked(&world, method);
        assert_eq!(times.len(), PODS, "{method:?}");
        assert!(times.values().all(|times| *times == 1), "{method:?}: {times:?}");
    }
}
