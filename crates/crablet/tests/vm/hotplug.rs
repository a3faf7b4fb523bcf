//! A machine that has other processors and huge pages than when the agent began.

use std::path::Path;

use crablet_host::machine::online_cpus;
use crablet_testkit::eventually;
use serde_json::Value;

use crate::node::{Node, PATIENCE, read, run};

/// Longer than the test waits: what is seen before, the kernel has told.
const FIELDS: &str = "nodeStatusReportFrequency: 1h\n";
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Waits until the node has so many processors and so much in huge pages, and says what all pods weigh then.
async fn has(node: &Node, cpus: usize, huge_pages: &str) -> (Value, u64) {
    let expected = [cpus.to_string(), huge_pages.to_owned()];
    let status = eventually(&format!("{expected:?}: processors and huge pages"), PATIENCE, || async {
        let status = node.status().await?;
        let capacity = &status["capacity"];
        let told =
            ["cpu", "hugepages-2Mi"].map(|name| capacity[name].as_str().unwrap_or_default().to_owned());
        match told == expected {
            true => Ok(status),
            false => Err(capacity.to_string()),
        }
    })
    .await
    .unwrap();
    (status, weight())
}

/// The weight of all pods together.
fn weight() -> u64 {
    read(Path::new("/sys/fs/cgroup/kubepods.slice"), "cpu.weight").unwrap().parse().unwrap()
}

async fn weigh(what: &str, is_so: impl Fn(u64) -> bool) {
    let weighs = || async { if is_so(weight()) { Ok(()) } else { Err(weight().to_string()) } };
    eventually(&format!("all pods together weigh {what}"), PATIENCE, weighs).await.unwrap();
}

fn memory(status: &Value) -> u64 {
    let text = status["allocatable"]["memory"].as_str().unwrap();
    text.strip_suffix("Ki").unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the machine that `make vm` boots"]
async fn a_processor_that_goes_and_comes_back_is_seen_at_once_and_pods_are_weighed_anew() {
    let all = online_cpus(Path::new("/")).unwrap().len();
    if all < 2 {
        println!("skipped: the machine has one processor; make vm VM_PROCESSORS=2");
        return;
    }
    let node = Node::start(FIELDS).await;
    let (before, heavy) = has(&node, all, "0").await;

    run("echo 0 >/sys/devices/system/cpu/cpu1/online").await;
    has(&node, all - 1, "0").await;
    weigh("less", |weight| weight < heavy).await;

    // The kernel does not tell of huge pages: they are seen with the rest.
    run(&format!("echo 8 >{HUGE_PAGES} && echo 1 >/sys/devices/system/cpu/cpu1/online")).await;
    let (after, _) = has(&node, all, "16Mi").await;
    weigh("as before", |weight| weight == heavy).await;
    assert_eq!(
        memory(&before) - memory(&after),
        16 << 10,
        "what is set aside for huge pages is no pod's memory"
    );

    run(&format!("echo 0 >{HUGE_PAGES}")).await;
    node.end().await;
}
