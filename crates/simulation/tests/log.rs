//! What the log says of pods.

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
    /// What was said of a pod: messages and fields, without what every line has.
    fn of_pod(&self, name: &str) -> String {
        let all = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let identity = format!(" pod=\"default/{name}\" uid=\"{name}\"");
        let lines = all.lines().filter_map(|line| line.split_once("] "));
        let lines = lines.filter(|(_, said)| said.contains(&identity));
        lines.map(|(_, said)| said.replace(&identity, "") + "\n").collect()
    }
}

#[tokio::test(start_paused = true)]
async fn every_line_about_a_pod_names_it_and_its_uid() {
    let log = Log::default();
    let (subscriber, _handle) =
        crablet_logging::subscriber(crablet_logging::Settings::default(), log.clone());
    let _logging = tracing::subscriber::set_default(subscriber);
    let mut node = Node::start().await;
    let probe = "{exec: {command: ['true']}, periodSeconds: 1}";
    let spec = format!("{{containers: [{{name: c, image: 'sim/forever:1', readinessProbe: {probe}}}]}}");
    node.want("web", &spec).await;
    seconds(20).await;
    node.unwant("web");
    seconds(60).await;
    expect![[r#"
        "Pod is in another phase" phase="Pending"
        "Event occurred" object="node" fieldPath="" kind="Node" type="Warning" reason="MissingClusterDNS" note="kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy." count=1
        "Event occurred" object="default/web" fieldPath="" kind="Pod" type="Warning" reason="MissingClusterDNS" note="pod: \"web_default(web)\". kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy." count=1
        "Made a sandbox" attempt=0 took="48ms"
        "Event occurred" object="default/web" fieldPath="spec.containers{c}" kind="Pod" type="Normal" reason="Pulled" note="Container image \"sim/forever:1\" already present on machine" count=1
        "Event occurred" object="default/web" fieldPath="spec.containers{c}" kind="Pod" type="Normal" reason="Created" note="Container created" count=1
        "Event occurred" object="default/web" fieldPath="spec.containers{c}" kind="Pod" type="Normal" reason="Started" note="Container started" count=1
        "Started a container" container="c" attempt=0 took="36ms"
        "Pod is in another phase" phase="Running"
        "A probe found something else than before" container="c" probe="Readiness" well=true
        "Stopping a pod" cause="its source does not have it any more" grace=30
        "Event occurred" object="default/web" fieldPath="spec.containers{c}" kind="Pod" type="Normal" reason="Killing" note="Stopping container c" count=1
        "Pod has stopped"
        "Pod is gone"
    "#]].assert_eq(&log.of_pod("web"));
}
