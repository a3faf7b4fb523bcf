//! What the log says of pods.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use common::{Node, seconds};
use expect_test::expect;

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// What was said of a pod: messages and fields, without what every line has, and how long things took.
    fn of_pod(&self, name: &str) -> String {
        let all = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let identity = format!(" pod=\"default/{name}\" uid=\"{name}\"");
        let lines = all.lines().filter_map(|line| line.split_once("] "));
        let lines = lines.filter(|(_, said)| said.contains(&identity));
        let said = lines.map(|(_, said)| said.replace(&identity, ""));
        said.map(|said| said.split(" took=").next().unwrap_or_default().to_owned() + "\n").collect()
    }
}

/// Has all that is logged from now on kept, until the guard is dropped.
fn keep_log() -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let (subscriber, _handle) =
        crablet_logging::subscriber(crablet_logging::Settings::default(), log.clone());
    (log, tracing::subscriber::set_default(subscriber))
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_a_pod_is_logged_once_and_every_line_names_the_pod() {
    let (log, _logging) = keep_log();
    let mut node = Node::start().await;
    let probe = "{exec: {command: ['true']}, periodSeconds: 1}";
    let spec = format!(
        "{{dnsPolicy: Default, containers: [{{name: c, image: 'sim/forever:1', readinessProbe: {probe}}}]}}"
    );
    node.want("web", &spec).await;
    seconds(20).await;
    node.unwant("web");
    seconds(60).await;
    expect![[r#"
        "Pod is in another phase" phase="Pending"
        "sandbox: made sandbox 0"
        "Event occurred" object="default/web" fieldPath="spec.containers{c}" kind="Pod" type="Normal" reason="Pulled" note="Container image \"sim/forever:1\" already present on machine" count=1
        "Event occurred" object="default/web" fieldPath="spec.containers{c}" kind="Pod" type="Normal" reason="Created" note="Container created" count=1
        "Event occurred" object="default/web" fieldPath="spec.containers{c}" kind="Pod" type="Normal" reason="Started" note="Container started" count=1
        "start: started container c, attempt 0"
        "Pod is in another phase" phase="Running"
        "A probe found something else than before" container="c" probe="Readiness" well=true
        "stop: its source does not have it any more (within 30 s)"
        "Event occurred" object="default/web" fieldPath="spec.containers{c}" kind="Pod" type="Normal" reason="Killing" note="Stopping container c" count=1
        "stop: stopped container c"
        "sandbox: stopped the sandbox"
        "stop: all containers have stopped"
        "remove: nothing of it is left"
    "#]].assert_eq(&log.of_pod("web"));
}

#[tokio::test(start_paused = true)]
async fn what_goes_wrong_with_a_pod_is_logged_once() {
    let (log, _logging) = keep_log();
    let mut node = Node::start().await;
    node.want("big", "{containers: [{name: c, image: 'sim/forever:1', resources: {requests: {cpu: 1k}}}]}")
        .await;
    let hook = "{postStart: {exec: {command: ['false']}}}";
    let spec = "dnsPolicy: Default, restartPolicy: Never, containers: [{name: c, image: 'sim/forever:1', lifecycle: ";
    node.want("hook", &format!("{{{spec}{hook}}}]}}")).await;
    node.want(
        "pull",
        "{dnsPolicy: Default, containers: [{name: c, image: 'sim/missing:1', imagePullPolicy: Never}]}",
    )
    .await;
    seconds(1).await;
    expect![[r#"
        "Event occurred" object="default/big" fieldPath="" kind="Pod" type="Warning" reason="UnexpectedAdmissionError" note="Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 936000), ]" count=1
        "Pod is in another phase" phase="Failed"
    "#]]
    .assert_eq(&log.of_pod("big"));
    expect![[r#"
        "Pod is in another phase" phase="Pending"
        "sandbox: made sandbox 0"
        "Event occurred" object="default/hook" fieldPath="spec.containers{c}" kind="Pod" type="Normal" reason="Pulled" note="Container image \"sim/forever:1\" already present on machine" count=1
        "Event occurred" object="default/hook" fieldPath="spec.containers{c}" kind="Pod" type="Normal" reason="Created" note="Container created" count=1
        "Event occurred" object="default/hook" fieldPath="spec.containers{c}" kind="Pod" type="Normal" reason="Started" note="Container started" count=1
        "Event occurred" object="default/hook" fieldPath="spec.containers{c}" kind="Pod" type="Warning" reason="FailedPostStartHook" note="PostStartHook failed" count=1
        "Event occurred" object="default/hook" fieldPath="spec.containers{c}" kind="Pod" type="Normal" reason="Killing" note="FailedPostStartHook" count=1
        "stop: stopped container c: FailedPostStartHook"
        "stop: its phase is terminal"
        "sandbox: stopped the sandbox"
        "Pod is in another phase" phase="Failed"
        "stop: all containers have stopped"
    "#]]
    .assert_eq(&log.of_pod("hook"));
    expect![[r#"
        "Pod is in another phase" phase="Pending"
        "sandbox: made sandbox 0"
        "Event occurred" object="default/pull" fieldPath="spec.containers{c}" kind="Pod" type="Warning" reason="ErrImageNeverPull" note="Container image \"sim/missing:1\" is not present with pull policy of Never" count=1
        "Event occurred" object="default/pull" fieldPath="spec.containers{c}" kind="Pod" type="Warning" reason="Failed" note="Error: ErrImageNeverPull" count=1
    "#]]
    .assert_eq(&log.of_pod("pull"));
}
