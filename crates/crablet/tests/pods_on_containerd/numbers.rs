//! What the node and its pods use: `/stats/summary`, `/metrics/resource` and `/metrics/cadvisor` of one pod.

use std::collections::BTreeMap;

use crablet_testkit::eventually;
use serde_json::Value;

use crate::world::{PATIENCE, World};

const LIMIT: u64 = 64 << 20;

/// Two containers: one works and is limited, one sleeps.
const SPEC: &str = "  containers:
  - name: busy
    image: crablet.test/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, \"dd if=/dev/zero of=/scratch/file bs=1024 count=100; echo written; while :; do :; done\"]
    resources:
      requests: {cpu: 10m, memory: 16Mi}
      limits: {cpu: 200m, memory: 64Mi}
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  - name: calm
    image: crablet.test/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, \"trap 'exit 0' TERM; while :; do sleep 0.2; done\"]
  volumes: [{name: scratch, emptyDir: {}}]
  terminationGracePeriodSeconds: 1
";

/// The values of a page by name and labels.
fn values(page: &str) -> BTreeMap<&str, f64> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (of, rest) = match line.find('}') {
                Some(end) => line.split_at(end + 1),
                None => line.split_at(line.find(' ').unwrap()),
            };
            (of, rest.split_whitespace().next().unwrap().parse().unwrap())
        })
        .collect()
}

async fn page(world: &World, path: &str) -> String {
    let (code, body) = world.node.get(path).await.unwrap();
    assert_eq!(code, 200, "{path}: {body}");
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pod_uses_is_told_alike_on_all_pages_on_containerd() {
    let mut world = World::start().await;
    world.put("web", SPEC);
    world.awaits_phase("web", "Running").await;
    let summary = eventually("the work shows", PATIENCE, || async {
        let summary: Value = serde_json::from_str(&page(&world, "/stats/summary").await).unwrap();
        let busy = &summary["pods"][0]["containers"][0];
        let written = busy["logs"]["usedBytes"].as_u64() > Some(0);
        let works = busy["cpu"]["usageNanoCores"].as_u64() > Some(20_000_000);
        if works && written { Ok(summary) } else { Err(format!("{summary:#}")) }
    })
    .await
    .unwrap();
    let node = &summary["node"];
    assert_eq!(node["nodeName"], "node");
    let pods: Vec<&Value> = summary["pods"].as_array().unwrap().iter().collect();
    assert_eq!(pods.len(), 1, "{summary:#}");
    let pod = pods[0];
    assert_eq!(
        (&pod["podRef"]["name"], &pod["podRef"]["namespace"]),
        (&"web-node".into(), &"default".into())
    );
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value}"));
    let (busy, calm) = (&pod["containers"][0], &pod["containers"][1]);
    assert_eq!((&busy["name"], &calm["name"]), (&"busy".into(), &"calm".into()));
    // A limit less what is used is what is left; who has no limit has no such number.
    let memory = &busy["memory"];
    assert_eq!(number(&memory["availableBytes"]) + number(&memory["workingSetBytes"]), LIMIT, "{memory}");
    assert!(calm["memory"]["availableBytes"].is_null());
    assert!(
        number(&busy["cpu"]["usageNanoCores"]) < 400_000_000,
        "it is limited to a fifth of a core: {busy:#}"
    );
    // A pod has what its containers have, and its sandbox.
    let of_both = |field: [&str; 2]| number(&busy[field[0]][field[1]]) + number(&calm[field[0]][field[1]]);
    assert!(number(&pod["cpu"]["usageCoreNanoSeconds"]) > 0);
    assert!(number(&pod["memory"]["usageBytes"]) * 11 / 10 > of_both(["memory", "usageBytes"]), "{pod:#}");
    assert!(number(&node["memory"]["workingSetBytes"]) > number(&pod["memory"]["workingSetBytes"]));
    assert_eq!(node["systemContainers"].as_array().unwrap().last().unwrap()["name"], "pods");
    assert_eq!(pod["network"]["name"], "eth0", "{pod:#}");
    assert!(number(&pod["process_stats"]["process_count"]) >= 2, "{pod:#}");
    // What is on disk adds up: containers' own layers and logs, volumes of the node, the hosts file.
    let volumes = pod["volume"].as_array().unwrap();
    let scratch = volumes.iter().find(|volume| volume["name"] == "scratch").unwrap();
    assert!(number(&scratch["usedBytes"]) >= 100 << 10, "{scratch}");
    let of_containers: u64 = [busy, calm]
        .iter()
        .flat_map(|container| [&container["rootfs"], &container["logs"]])
        .map(|fs| fs["usedBytes"].as_u64().unwrap_or(0))
        .sum();
    let ephemeral = number(&pod["ephemeral-storage"]["usedBytes"]);
    assert!(ephemeral >= of_containers + number(&scratch["usedBytes"]), "{pod:#}");
    assert_eq!(node["runtime"]["imageFs"], node["runtime"]["containerFs"]);
    let only: Value =
        serde_json::from_str(&page(&world, "/stats/summary?only_cpu_and_memory=true").await).unwrap();
    assert!(only["node"]["fs"].is_null() && only["pods"][0]["containers"][0]["rootfs"].is_null());
    assert!(number(&only["pods"][0]["containers"][0]["cpu"]["usageCoreNanoSeconds"]) > 0);

    let resource = page(&world, "/metrics/resource").await;
    let resource = values(&resource);
    let cadvisor = page(&world, "/metrics/cadvisor").await;
    let told = values(&cadvisor);
    let of = |name: &str, container: &str| {
        let labels = format!("container=\"{container}\",namespace=\"default\",pod=\"web-node\"");
        resource[&*format!("{name}{{{labels}}}")]
    };
    let in_cadvisor = |name: &str, container: &str| {
        let start = format!("{name}{{container=\"{container}\",");
        let of_pod = |labels: &str| labels.starts_with(&start) && labels.contains("pod=\"web-node\"");
        let found: Vec<f64> = told.iter().filter(|(of, _)| of_pod(of)).map(|(_, value)| *value).collect();
        assert!(!found.is_empty(), "{name} of {container:?}\n{cadvisor}");
        found.into_iter().fold(0.0, f64::max)
    };
    assert_eq!(resource["resource_scrape_error"], 0.0);
    // Counters only grow, and the later page has the later number.
    let counter = "container_cpu_usage_seconds_total";
    let earlier = number(&busy["cpu"]["usageCoreNanoSeconds"]) as f64 / 1e9;
    assert!(earlier <= of(counter, "busy") && of(counter, "busy") <= in_cadvisor(counter, "busy"));
    assert!(of("container_start_time_seconds", "calm") > 1.7e9);
    assert!(of("container_memory_working_set_bytes", "calm") > 0.0);
    assert_eq!(in_cadvisor("container_spec_memory_limit_bytes", "busy"), LIMIT as f64);
    assert_eq!(in_cadvisor("container_spec_memory_limit_bytes", "calm"), 0.0);
    assert_eq!(in_cadvisor("container_spec_cpu_quota", "busy"), 20_000.0);
    assert_eq!(in_cadvisor("container_spec_cpu_shares", "busy"), 10.0);
    assert!(in_cadvisor("container_cpu_cfs_throttled_periods_total", "busy") > 0.0);
    assert!(in_cadvisor("container_processes", "calm") >= 1.0);
    assert!(in_cadvisor("container_network_receive_bytes_total", "") >= 0.0);
    assert!(cadvisor.contains("image=\"crablet.test/busybox:1\""), "{cadvisor}");
    assert_eq!(told["container_scrape_error"], 0.0);
    assert_eq!(told["machine_scrape_error"], 0.0);
    world.node.take("web").unwrap();
    world.awaits_end("web").await;
    let summary: Value = serde_json::from_str(&page(&world, "/stats/summary").await).unwrap();
    assert_eq!(summary["pods"], serde_json::json!([]), "what is gone is not told");
    world.stop_agent().await;
}
