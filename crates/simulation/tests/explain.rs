//! What `crablet explain` says first, in situations that people ask about: the cause, in one sentence.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::sources::SourceKind;
use crablet_api::core::Pod;
use crablet_cri_sim::{Fault, Method};
use crablet_simulation::manifest::from_text;
use crablet_simulation::trace::Trace;
use crablet_simulation::world::World;
use crablet_volumes::Trouble;
use expect_test::{Expect, expect};
use tonic::Code;

/// A node with a runtime, and an agent that was just started.
async fn node() -> World {
    let mut world = World::new(0, Trace::new(false));
    world.start(None).await;
    world
}

fn pod(name: &str, spec: &str) -> Arc<Pod> {
    from_text(&format!("metadata: {{name: {name}, namespace: default, uid: {name}-uid}}\nspec: {spec}\n"))
}

fn want(world: &mut World, pod: Arc<Pod>) {
    world.ledger.want(&pod, SourceKind::File);
    world.wanted.entry(SourceKind::File).or_default().insert(pod.metadata.uid.to_string(), pod);
    world.tell_all();
}

fn unwant(world: &mut World, uid: &str) {
    world.wanted.entry(SourceKind::File).or_default().remove(uid);
    world.tell_all();
}

/// Lets time pass, and compares the sentence on the pod.
async fn check(world: &World, seconds: u64, name: &str, expected: Expect) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let agent = &world.agent.as_ref().expect("the agent was started").agent;
    let stories = agent.stories.find(name);
    let sentence = stories.first().map(|story| story.summary.sentence(world.simulator.now()));
    let sentence = sentence.unwrap_or_else(|| "nothing is known of it".to_owned());
    // For how long it has been so is not the point here.
    let cause = sentence.rsplit_once(" (for ").map_or(&*sentence, |(cause, _)| cause);
    expected.assert_eq(cause);
}

/// The same for a pod that was wanted when the agent was started.
async fn check_pod(spec: &str, seconds: u64, expected: Expect) {
    let mut world = node().await;
    want(&mut world, pod("p", spec));
    check(&world, seconds, "p", expected).await;
}

#[tokio::test(start_paused = true)]
async fn it_runs() {
    check_pod("{containers: [{name: c, image: 'sim/forever:1'}]}", 5, expect!["default/p runs"]).await;
}

#[tokio::test(start_paused = true)]
async fn its_image_is_missing_and_may_not_be_pulled() {
    let spec = "{containers: [{name: c, image: 'sim/missing:1', imagePullPolicy: Never}]}";
    check_pod(spec, 20, expect![[r#"default/p is not running: container c: ErrImageNeverPull: Container image "sim/missing:1" is not present with pull policy of Never"#]]).await;
}

#[tokio::test(start_paused = true)]
async fn its_image_cannot_be_pulled() {
    check_pod(
        "{containers: [{name: c, image: 'sim/missing:1'}]}",
        2,
        expect!["default/p is not running yet: it waits for image sim/missing:1 of container c"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn its_image_could_not_be_pulled_and_waits_for_the_next_try() {
    check_pod(
        "{containers: [{name: c, image: 'sim/missing:1'}]}",
        200,
        expect![[r#"default/p is not running: container c: ImagePullBackOff: Back-off pulling image "sim/missing:1": ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/sim/missing:1": failed to resolve reference "docker.io/sim/missing:1": docker.io/sim/missing:1: not found"#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn its_image_has_no_name() {
    check_pod("{containers: [{name: c, image: 'NOT A NAME'}]}", 2, expect![[r#"default/p is not running: container c: InvalidImageName: Failed to apply default image tag "NOT A NAME": couldn't parse image name "NOT A NAME": invalid reference format: repository name (library/NOT A NAME) must be lowercase"#]]).await;
}

#[tokio::test(start_paused = true)]
async fn it_crashes_again_and_again() {
    check_pod("{containers: [{name: c, image: 'sim/exits-1-0:1'}]}", 30, expect!["default/p is not running: container c: CrashLoopBackOff: back-off 20s restarting failed container=c pod=p_default(p-uid)"]).await;
}

#[tokio::test(start_paused = true)]
async fn it_refers_to_a_config_map_that_nobody_has() {
    let env = "[{name: A, valueFrom: {configMapKeyRef: {name: settings, key: a}}}]";
    let spec = format!("{{containers: [{{name: c, image: 'sim/forever:1', env: {env}}}]}}");
    check_pod(&spec, 2, expect!["default/p is not running: container c: CreateContainerConfigError: couldn't get configMap default/settings, no kubeClient defined"]).await;
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_an_init_container() {
    let init = "[{name: first, image: 'sim/exits-0-60:1'}]";
    let spec = format!("{{initContainers: {init}, containers: [{{name: c, image: 'sim/forever:1'}}]}}");
    check_pod(&spec, 5, expect!["default/p is not running yet: it waits for init container first to finish"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_init_container_fails_again_and_again() {
    let init = "[{name: first, image: 'sim/exits-1-3:1'}]";
    let spec = format!("{{initContainers: {init}, containers: [{{name: c, image: 'sim/forever:1'}}]}}");
    check_pod(&spec, 30, expect!["default/p is not running: container first: CrashLoopBackOff: back-off 20s restarting failed container=first pod=p_default(p-uid)"]).await;
}

#[tokio::test(start_paused = true)]
async fn its_sandbox_cannot_be_made() {
    let mut world = node().await;
    let fault = Fault::on(Method::RunPodSandbox).always().fail(Code::Unknown, "failed to set up its network");
    world.simulator.inject(fault);
    want(&mut world, pod("p", "{containers: [{name: c, image: 'sim/forever:1'}]}"));
    check(&world, 5, "p", expect!["default/p is not running: its sandbox cannot be made: Failed to create pod sandbox: rpc error: code = Unknown desc = failed to set up its network"]).await;
}

/// A pod that mounts a volume of this kind.
fn with_volume(source: &str) -> String {
    format!(
        "{{containers: [{{name: c, image: 'sim/forever:1', volumeMounts: [{{name: data, mountPath: /d}}]}}], \
         volumes: [{{name: data, {source}}}]}}"
    )
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_it_cannot_be_set_up() {
    let mut world = node().await;
    world.volumes.set_trouble(Some(Trouble::Fail(ErrorKind::HostUnreachable)));
    want(&mut world, pod("p", &with_volume("emptyDir: {}")));
    check(&world, 5, "p", expect!["default/p is not running yet: it waits for volume data: mkdir /var/lib/kubelet/pods/p-uid/volumes/data: host unreachable"]).await;
    world.volumes.set_trouble(None);
    check(&world, 11, "p", expect!["default/p runs"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_it_hangs() {
    let mut world = node().await;
    world.volumes.set_trouble(Some(Trouble::Hang));
    want(&mut world, pod("p", &with_volume("emptyDir: {}")));
    check(&world, 5, "p", expect!["default/p is not running yet: it waits for its volumes (data)"]).await;
    check(&world, 125, "p", expect!["default/p is not running yet: it waits for volume data: timed out after 123s, the work on it continues"]).await;
    // It holds up nothing but itself: neither another pod nor its own end.
    want(&mut world, pod("other", "{containers: [{name: c, image: 'sim/forever:1'}]}"));
    check(&world, 5, "other", expect!["default/other runs"]).await;
    unwant(&mut world, "p-uid");
    check(&world, 5, "p-uid", expect!["default/p went 4.9s ago; the last word on it was: it is being stopped: what it left behind is being removed."]).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_it_is_of_a_kind_that_nobody_knows() {
    let spec = with_volume("nfs: {server: s, path: /}");
    check_pod(&spec, 5, expect!["default/p is not running yet: it waits for volume data: volumes of the kind nfs are not supported yet"]).await;
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_the_network() {
    let mut world = node().await;
    world.simulator.set_network_ready(Err(("NetworkPluginNotReady", "cni plugin not initialized")));
    tokio::time::sleep(Duration::from_secs(15)).await;
    want(&mut world, pod("p", "{containers: [{name: c, image: 'sim/forever:1'}]}"));
    check(&world, 5, "p", expect!["default/p is not running yet: it waits for the network: network is not ready: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_runtime_is_away() {
    let mut world = node().await;
    world.simulator.die();
    want(&mut world, pod("p", "{containers: [{name: c, image: 'sim/forever:1'}]}"));
    check(&world, 5, "p", expect!["default/p is not running: the container runtime does not answer: StreamPodSandboxes: the container runtime at the simulated runtime cannot be reached: the simulated runtime is not there"]).await;
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_an_earlier_pod_of_its_name() {
    let mut world = node().await;
    let spec = "{terminationGracePeriodSeconds: 60, containers: [{name: c, image: 'sim/stubborn:1'}]}";
    want(&mut world, pod("p", spec));
    tokio::time::sleep(Duration::from_secs(5)).await;
    unwant(&mut world, "p-uid");
    let later = from_text(&format!("metadata: {{name: p, namespace: default, uid: later}}\nspec: {spec}\n"));
    want(&mut world, later);
    check(&world, 5, "later", expect!["default/p is not running yet: it waits for an earlier pod of the same name to be gone (UID p-uid)"]).await;
    check(&world, 0, "p-uid", expect!["default/p is being stopped: container c has 60 s to stop"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_node_does_not_take_it() {
    let spec = "{containers: [{name: c, image: 'sim/forever:1', resources: {requests: {cpu: 1000}}}]}";
    check_pod(spec, 2, expect!["default/p has failed: UnexpectedAdmissionError: Pod was rejected: Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 936000), ]"]).await;
}

#[tokio::test(start_paused = true)]
async fn its_deadline_has_passed() {
    let spec = "{activeDeadlineSeconds: 10, containers: [{name: c, image: 'sim/forever:1'}]}";
    check_pod(spec, 30, expect!["default/p has failed: DeadlineExceeded: Pod was active on the node longer than the specified deadline"]).await;
}

#[tokio::test(start_paused = true)]
async fn it_has_done_its_work() {
    let spec = "{restartPolicy: Never, containers: [{name: c, image: 'sim/exits-0-3:1'}]}";
    check_pod(spec, 20, expect!["default/p has finished"]).await;
}

#[tokio::test(start_paused = true)]
async fn it_has_failed() {
    let spec = "{restartPolicy: Never, containers: [{name: c, image: 'sim/exits-1-3:1'}]}";
    check_pod(spec, 20, expect!["default/p has failed: container c ended with 1 (Error)"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_container_of_it_cannot_be_made() {
    let mut world = node().await;
    world
        .simulator
        .inject(Fault::on(Method::CreateContainer).always().fail(Code::Unknown, "no space left on device"));
    want(&mut world, pod("p", "{containers: [{name: c, image: 'sim/forever:1'}]}"));
    check(
        &world,
        5,
        "p",
        expect!["default/p is not running: container c: CreateContainerError: no space left on device"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_a_probe() {
    let probe = "readinessProbe: {exec: {command: ['false']}}";
    let spec = format!("{{containers: [{{name: c, image: 'sim/forever:1', {probe}}}]}}");
    let expected = expect![
        "default/p runs but is not ready: container c is not ready: it waits for its readiness probe to succeed"
    ];
    check_pod(&spec, 20, expected).await;
    let startup = probe.replace("readiness", "startup");
    let spec = format!("{{containers: [{{name: c, image: 'sim/forever:1', {startup}}}]}}");
    let expected = expect![
        "default/p runs but is not ready: container c is not ready: it waits for its startup probe to succeed"
    ];
    check_pod(&spec, 15, expected).await;
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_a_hook() {
    let hook = "lifecycle: {postStart: {sleep: {seconds: 100}}}";
    let spec = format!("{{containers: [{{name: c, image: 'sim/forever:1', {hook}}}]}}");
    let expected = expect![
        "default/p is not running yet: it waits for the hook after the start of container c to be done"
    ];
    check_pod(&spec, 20, expected).await;
}
