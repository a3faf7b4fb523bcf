//! A node that swaps.

use crablet_testkit::eventually;
use serde_json::json;

use crate::node::{Node, PATIENCE, WAITS, container, container_cgroup, pod, read, run};

const SWAP_FILE: &str = "/var/swap";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the machine that `make vm` boots"]
async fn a_burstable_container_has_its_share_of_swap_and_others_have_none() {
    run(&format!(
        "fallocate -l 512M {SWAP_FILE} && chmod 600 {SWAP_FILE} && mkswap {SWAP_FILE} && swapon {SWAP_FILE}"
    ))
    .await;
    let node = Node::start("failSwapOn: false\nmemorySwap: {swapBehavior: LimitedSwap}\n").await;
    let limit = json!({"limits": {"cpu": "100m", "memory": "32Mi"}});
    let request = json!({"requests": {"memory": "64Mi"}, "limits": {"memory": "128Mi"}});
    // It keeps 100 MiB, of which the kernel may have some elsewhere.
    let keeps = "head -c 100m /dev/zero | tail -n 1 | sleep 100000";
    node.create("guaranteed", pod([container("main", WAITS, limit)])).await;
    node.create("besteffort", pod([container("main", WAITS, json!({}))])).await;
    node.create("burstable", pod([container("main", keeps, request)])).await;

    let kilobytes = async |name: &str| {
        run(&format!("awk '/^{name}:/ {{ print $2 }}' /proc/meminfo")).await.parse::<u64>().unwrap() << 10
    };
    let (memory, swap) = (kilobytes("MemTotal").await, kilobytes("SwapTotal").await);
    let share = ((64 << 20) as f64 / memory as f64 * swap as f64) as u64;
    // The kernel counts pages.
    let share = share / 4096 * 4096;
    for (name, expected) in [("guaranteed", 0), ("besteffort", 0), ("burstable", share)] {
        let pod = node.awaits_phase(name, "Running").await;
        let cgroup = container_cgroup(&pod, "main");
        assert_eq!(read(&cgroup, "memory.swap.max").unwrap(), expected.to_string(), "{name}");
    }
    println!(
        "of {} MiB of memory and {} MiB of swap, a request of 64 MiB has {share} bytes of swap",
        memory >> 20,
        swap >> 20
    );

    // Who eats more than its limit swaps as far as it may.
    let pod = node.pod("burstable").await.unwrap();
    let cgroup = container_cgroup(&pod, "main");
    run(&format!("echo {} >{}", 80 << 20, cgroup.join("memory.high").display())).await;
    eventually("some of it is in swap", PATIENCE, || async {
        let used: u64 = read(&cgroup, "memory.swap.current")?.parse().map_err(|error| format!("{error}"))?;
        if used > 0 && used <= share { Ok(()) } else { Err(used.to_string()) }
    })
    .await
    .unwrap();
    node.end().await;
    run(&format!("systemctl stop kubelet && swapoff {SWAP_FILE} && rm {SWAP_FILE}")).await;
}
