//! A machine with cgroup v2 and systemd's names, whose containers' cgroups are found.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crablet_core::eviction::{FsUsage, PodUsage};
use crablet_cri_api::v1;
use crablet_host::cgroup::CgroupDriver;
use crablet_volumes::{VolumeStats, VolumeUsage};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::world::{MEMORY, World, container, sandbox};

const SLICE: &str = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice";

fn usage(world: &World, path: &str, microseconds: u64, memory: u64) {
    world.cgroup(
        path,
        &[
            ("", "cpu.stat", &format!("usage_usec {microseconds}\nuser_usec 1\nsystem_usec 1\n")),
            ("", "cpu.pressure", "some avg10=1.25 avg60=0.00 avg300=0.00 total=7\n"),
            ("", "cpu.max", "50000 100000\n"),
            ("", "memory.stat", "anon 1\nfile 1\ninactive_file 100\n"),
            ("", "memory.current", &format!("{memory}\n")),
            ("", "memory.max", "1000000\n"),
            ("", "memory.swap.max", "4096\n"),
            ("", "memory.swap.current", "1024\n"),
            ("", "io.stat", "8:16 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n"),
            ("", "pids.current", "3\n"),
            ("", "cgroup.procs", ""),
        ],
    );
}

fn world() -> World {
    let mut world = World::new(CgroupDriver::Systemd, true);
    world.cached_for = Duration::ZERO;
    world.write("proc/1/net/dev", "eth0: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n");
    world.write("proc/4711/net/dev", "eth0: 10 2 0 0 0 0 0 0 20 3 1 0 0 0 0 0\n");
    world.write(
        "proc/meminfo",
        "MemTotal: 24684100 kB\nSwapTotal:        2048 kB\nSwapFree:         2038 kB\n",
    );
    world.cgroup(
        "",
        &[
            ("", "cpu.stat", "usage_usec 1000000\n"),
            ("", "cpu.pressure", ""),
            ("", "memory.stat", "anon 600\nfile 400\ninactive_file 100\n"),
            ("", "io.stat", ""),
            ("", "cgroup.procs", ""),
        ],
    );
    usage(&world, "kubepods.slice", 900, 9_000);
    usage(&world, "kubepods.slice/kubepods-burstable.slice", 900, 9_000);
    usage(&world, SLICE, 900, 9_000);
    usage(&world, &format!("{SLICE}/cri-containerd-c1.scope"), 500, 5_000);
    usage(&world, &format!("{SLICE}/cri-containerd-s1.scope"), 100, 1_000);
    world.cgroup(&format!("{SLICE}/cri-containerd-s1.scope"), &[("", "cgroup.procs", "4711\n")]);
    world.cgroup(&format!("{SLICE}/cri-containerd-c1.scope"), &[("", "cgroup.procs", "4712\n4713\n")]);
    world.runtime.sandboxes.lock().unwrap().push(sandbox("s1", "default", "web", "u-1"));
    let created = 1_794_763_425_000_000_000;
    world.runtime.containers.lock().unwrap().push(container("c1", "s1", "main", created));
    world
}

async fn summary(world: &World) -> Value {
    serde_json::from_slice(&world.stats().summary(false).await.unwrap()).unwrap()
}

#[tokio::test]
async fn containers_are_told_by_their_cgroups_with_pressure_network_and_processes() {
    let world = world();
    let volume = VolumeStats {
        name: "data".into(),
        namespace: "default".into(),
        claim: Some("claim".into()),
        is_local_ephemeral: false,
        usage: VolumeUsage {
            time: Timestamp::from_second(1_794_763_000).unwrap(),
            capacity: 10,
            available: 4,
            used: 6,
            inodes: 3,
            inodes_free: 1,
            inodes_used: 2,
            condition: None,
        },
    };
    let of_the_node =
        VolumeStats { is_local_ephemeral: true, claim: None, name: "tmp".into(), ..volume.clone() };
    *world.volumes.0.lock().unwrap() = vec![of_the_node, volume];
    let told = summary(&world).await;
    let node = &told["node"];
    assert_eq!(node["cpu"]["usageCoreNanoSeconds"], 1_000_000_000);
    assert_eq!(node["memory"]["availableBytes"], MEMORY - 900);
    assert_eq!(node["swap"]["swapUsageBytes"], 10 << 10);
    assert_eq!(node["startTime"], "2026-11-15T15:52:55Z");
    let pod = &told["pods"][0];
    assert_eq!(pod["cpu"]["usageCoreNanoSeconds"], 900_000);
    let main = &pod["containers"][0];
    assert_eq!((&main["name"], &main["cpu"]["usageCoreNanoSeconds"]), (&json!("main"), &json!(500_000)));
    let some = json!({"total": 7, "avg10": 1.25, "avg60": 0, "avg300": 0});
    assert_eq!(main["cpu"]["psi"]["some"], some);
    assert_eq!(
        (&main["memory"]["workingSetBytes"], &main["memory"]["availableBytes"]),
        (&json!(4_900), &json!(995_100))
    );
    assert_eq!(
        main["swap"],
        json!({"time": main["swap"]["time"], "swapAvailableBytes": 3_072, "swapUsageBytes": 1_024})
    );
    assert_eq!(pod["process_stats"], json!({"process_count": 2}));
    assert_eq!(pod["network"]["interfaces"][0]["txErrors"], 1);
    assert_eq!((&pod["network"]["name"], &pod["network"]["rxBytes"]), (&json!("eth0"), &json!(10)));
    assert_eq!(pod["containers"].as_array().unwrap().len(), 1, "the sandbox is no container");
    assert_eq!(pod["volume"][1]["pvcRef"], json!({"name": "claim", "namespace": "default"}));
    assert_eq!((&pod["volume"][0]["name"], &pod["volume"][0]["usedBytes"]), (&json!("tmp"), &json!(6)));
    assert_eq!(
        (&pod["ephemeral-storage"]["usedBytes"], &pod["ephemeral-storage"]["inodesUsed"]),
        (&json!(6), &json!(2))
    );
}

/// What the pod takes on disk: its container 4 MiB of its own and a log, and its `emptyDir` 1 MiB.
fn on_disk(world: &World) {
    let value = |value| Some(v1::UInt64Value { value });
    world.runtime.stats.lock().unwrap().push(v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes { id: "c1".to_owned(), ..Default::default() }),
        writable_layer: Some(v1::FilesystemUsage {
            used_bytes: value(4 << 20),
            inodes_used: value(7),
            ..Default::default()
        }),
        ..Default::default()
    });
    world.write("logs/default_web_u-1/main/0.log", &"x".repeat(100_000));
    let usage = VolumeUsage {
        time: Timestamp::from_second(1_794_763_000).unwrap(),
        capacity: 1 << 30,
        available: 1 << 29,
        used: 1 << 20,
        inodes: 100,
        inodes_free: 90,
        inodes_used: 3,
        condition: None,
    };
    *world.volumes.0.lock().unwrap() = vec![VolumeStats {
        name: "cache".into(),
        namespace: "default".into(),
        claim: None,
        is_local_ephemeral: true,
        usage,
    }];
}

/// What a pod has on disk: its container's own files, its logs, its volume and all of it.
fn told_on_disk(usage: &PodUsage) {
    let [container] = &usage.containers[..] else { panic!("{usage:?}") };
    assert_eq!(&*container.name, "main");
    assert_eq!(container.rootfs, FsUsage { bytes: Some(4 << 20), inodes: Some(7) });
    let logs = container.logs.bytes.unwrap();
    assert!((100_000..200_000).contains(&logs), "{usage:?}");
    assert_eq!(usage.volumes, [("cache".into(), FsUsage { bytes: Some(1 << 20), inodes: Some(3) })]);
    assert_eq!(usage.ephemeral_storage, Some((5 << 20) + logs));
}

#[tokio::test]
async fn who_decides_which_pod_goes_is_told_all_that_pods_use() {
    let world = world();
    on_disk(&world);
    let usages = world.stats().all_usages().await.unwrap();
    assert_eq!(usages.keys().collect::<Vec<_>>(), ["u-1"]);
    let usage = &usages["u-1"];
    assert_eq!((usage.memory, usage.processes), (Some(8_900), Some(2)));
    assert_eq!(usage.containers[0].memory, Some(4_900));
    told_on_disk(usage);
    world.runtime.is_away.store(true, Ordering::Relaxed);
    assert!(world.stats().all_usages().await.is_err(), "nobody is told half of it");
}

#[tokio::test]
async fn what_some_pods_have_on_disk_is_told_of_these_alone() {
    let world = world();
    on_disk(&world);
    let stats = world.stats();
    let of = |uids: &[&str]| uids.iter().map(|uid| (*uid).to_owned()).collect::<BTreeSet<String>>();
    let usages = stats.disk_usages(&of(&["u-1", "gone"])).await.unwrap();
    assert_eq!(usages.keys().collect::<Vec<_>>(), ["u-1"]);
    told_on_disk(&usages["u-1"]);
    let asked = world.runtime.asked_for_stats.load(Ordering::Relaxed);
    assert_eq!(stats.disk_usages(&of(&["gone"])).await.unwrap().len(), 0);
    assert_eq!(world.runtime.asked_for_stats.load(Ordering::Relaxed), asked, "nobody has to be asked");
    world.runtime.is_away.store(true, Ordering::Relaxed);
    assert!(stats.disk_usages(&of(&["u-1"])).await.is_err());
}

#[tokio::test]
async fn two_samples_make_a_rate_and_a_first_one_is_taken_twice() {
    let world = world();
    let stats = world.stats();
    let rate = |told: Vec<u8>| {
        let told: Value = serde_json::from_slice(&told).unwrap();
        told["pods"][0]["containers"][0]["cpu"]["usageNanoCores"].as_u64().unwrap()
    };
    let path = format!("{SLICE}/cri-containerd-c1.scope");
    let mut used = 20_500;
    let asked = tokio::time::Instant::now();
    // It goes on between the two samples of the first who asks.
    let goes_on = async {
        loop {
            usage(&world, &path, used, 5_000);
            used += 100;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let told = tokio::select! {
        biased;
        () = goes_on => unreachable!(),
        told = stats.summary(true) => told,
    };
    let first_took = asked.elapsed();
    let first = rate(told.unwrap());
    assert!((1..1_000_000_000).contains(&first), "{first}");
    let began = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    usage(&world, &path, used + 500_000, 5_000);
    let second = u128::from(rate(stats.summary(true).await.unwrap()));
    // Half a second of a core, and the few steps since the sample before, in the time that it took.
    let least = 500_000_000 * 1_000_000_000 / (began.elapsed() + first_took).as_nanos();
    assert!((least..600_000_000).contains(&second), "{second}, at least {least}");
}

#[tokio::test]
async fn the_page_of_cadvisor_names_containers_and_their_sandbox() {
    let page = world().stats().cadvisor_metrics().await;
    let slice = format!("/{SLICE}");
    let main = format!("id=\"{slice}/cri-containerd-c1.scope\",image=\"example.org/app:1\"");
    let named = "name=\"c1\",namespace=\"default\",pod=\"web\"";
    for expected in [
        format!("container_cpu_usage_seconds_total{{container=\"main\",cpu=\"total\",{main},{named}}} 0.0005 "),
        format!("container_spec_cpu_quota{{container=\"main\",{main},{named}}} 50000\n"),
        format!("container_cpu_cfs_periods_total{{container=\"main\",{main},{named}}} 0 "),
        format!("container_pressure_cpu_waiting_seconds_total{{container=\"main\",{main},{named}}} 7e-06 "),
        format!("container_fs_reads_bytes_total{{container=\"main\",device=\"/dev/sdb\",{main},{named}}} 4096 "),
        format!("container_fs_writes_total{{container=\"main\",device=\"/dev/sdb\",{main},{named}}} 2 "),
        format!("container_blkio_device_usage_total{{container=\"main\",device=\"/dev/sdb\",{main},major=\"8\",minor=\"16\",name=\"c1\",namespace=\"default\",operation=\"Write\",pod=\"web\"}} 8192 "),
        format!("container_processes{{container=\"main\",{main},{named}}} 2 "),
        format!("container_network_transmit_errors_total{{container=\"\",id=\"{slice}/cri-containerd-s1.scope\",image=\"example.org/pause:s1\",interface=\"eth0\",name=\"s1\",namespace=\"default\",pod=\"web\"}} 1 "),
        format!("container_memory_usage_bytes{{container=\"\",id=\"{slice}\",image=\"\",name=\"\",namespace=\"default\",pod=\"web\"}} 9000 "),
        "container_memory_usage_bytes{container=\"\",id=\"/kubepods.slice\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 9000 ".to_owned(),
        "container_memory_usage_bytes{container=\"\",id=\"/kubepods.slice/kubepods-burstable.slice\",image=\"\",".to_owned(),
    ] {
        assert!(page.contains(&expected), "{expected}\n{page}");
    }
    let names: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert!(names.is_sorted(), "{names:#?}");
}

#[tokio::test]
async fn resources_are_told_without_asking_the_runtime_for_stats_and_many_at_once_cost_what_one_does() {
    let mut world = world();
    world.cached_for = Duration::from_secs(60);
    let stats = world.stats();
    let (first, second) = tokio::join!(stats.resource_metrics(), stats.resource_metrics());
    assert_eq!(first, second);
    assert_eq!(world.runtime.listed.load(Ordering::Relaxed), 1);
    assert_eq!(world.runtime.asked_for_stats.load(Ordering::Relaxed), 0);
    assert!(first.contains(
        "container_memory_working_set_bytes{container=\"main\",namespace=\"default\",pod=\"web\"} 4900 "
    ));
    assert!(
        first.contains(
            "container_swap_limit_bytes{container=\"main\",namespace=\"default\",pod=\"web\"} 4096 "
        )
    );
}

#[tokio::test]
async fn what_was_read_for_one_page_serves_those_that_need_no_more_and_not_one_that_needs_more() {
    let mut world = world();
    world.cached_for = Duration::from_secs(3_600);
    let listed = || world.runtime.listed.load(Ordering::Relaxed);
    let stats = world.stats();
    stats.resource_metrics().await;
    assert_eq!(listed(), 1);
    usage(&world, SLICE, 900, 8_000);
    let page = stats.cadvisor_metrics().await;
    assert_eq!(listed(), 1, "the names are those of all there is");
    assert!(page.contains("container_threads{container=\"main\""), "{page}");
    let pod = page
        .lines()
        .find(|line| line.starts_with("container_memory_usage_bytes") && line.contains("podu_1.slice\""));
    assert!(pod.unwrap().contains("} 8000 "), "a page that needs more is read anew: {pod:?}");
    usage(&world, SLICE, 1_900, 19_000);
    let told: Value = serde_json::from_slice(&stats.summary(false).await.unwrap()).unwrap();
    assert_eq!(told["pods"][0]["cpu"]["usageCoreNanoSeconds"], 900_000, "as it was read before");
    assert!(told["pods"][0]["containers"][0]["cpu"]["usageNanoCores"].is_u64());
    stats.summary(true).await.unwrap();
    stats.resource_metrics().await;
    assert_eq!(listed(), 1);
    assert_eq!(
        world.runtime.asked_for_stats.load(Ordering::Relaxed),
        1,
        "only the whole summary asks for them"
    );
    // Without a cache each is read anew.
    world.cached_for = Duration::ZERO;
    let stats = world.stats();
    stats.cadvisor_metrics().await;
    stats.summary(false).await.unwrap();
    assert_eq!(listed(), 3);
}

/// For as long as what was collected is told again, and a little longer.
async fn after_a_moment(world: &World) {
    tokio::time::sleep(world.cached_for * 2).await;
}

#[tokio::test(start_paused = true)]
async fn the_runtime_is_asked_for_names_when_there_is_something_that_it_has_not_named() {
    let mut world = world();
    world.cached_for = Duration::from_secs(1);
    let listed = || world.runtime.listed.load(Ordering::Relaxed);
    let stats = world.stats();
    for _ in 0..2 {
        assert!(stats.cadvisor_metrics().await.contains("name=\"c1\""));
        assert_eq!(listed(), 1);
        after_a_moment(&world).await;
    }
    // One that comes later is named at once.
    let path = format!("{SLICE}/cri-containerd-c2.scope");
    usage(&world, &path, 700, 7_000);
    usage(&world, SLICE, 1_900, 9_000);
    let second = container("c2", "s1", "second", 1_794_763_425_000_000_000);
    world.runtime.containers.lock().unwrap().push(second);
    assert!(stats.cadvisor_metrics().await.contains("container_memory_usage_bytes{container=\"second\""));
    assert_eq!(listed(), 2);
    // While there is one that nobody knows, it is asked for each time.
    usage(&world, &format!("{SLICE}/stranger"), 700, 7_000);
    usage(&world, SLICE, 2_900, 9_000);
    for count in [3, 4] {
        after_a_moment(&world).await;
        stats.cadvisor_metrics().await;
        assert_eq!(listed(), count);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_in_which_nothing_ran_is_not_looked_through_again_until_it_does() {
    let mut world = world();
    world.cached_for = Duration::from_secs(1);
    let stats = world.stats();
    let c1 = format!("{SLICE}/cri-containerd-c1.scope");
    let told = async |name: &str| {
        let page = stats.cadvisor_metrics().await;
        let of_container = format!("{name}{{container=\"main\"");
        let line = page.lines().find(|line| line.starts_with(&of_container));
        line.unwrap_or_else(|| panic!("{name}\n{page}")).split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(told("container_processes").await, "2");
    world.cgroup(&c1, &[("", "cgroup.procs", "4712\n4713\n4714\n"), ("", "pids.current", "9\n")]);
    world.cgroup(&c1, &[("", "memory.current", "6000\n")]);
    after_a_moment(&world).await;
    assert_eq!(told("container_processes").await, "2", "nobody ran, so nobody came");
    assert_eq!(told("container_memory_usage_bytes").await, "6000", "what others change is read");
    usage(&world, SLICE, 901, 9_000);
    after_a_moment(&world).await;
    assert_eq!(told("container_processes").await, "2", "another container's process ran");
    usage(&world, &c1, 501, 5_000);
    usage(&world, SLICE, 902, 9_000);
    world.cgroup(&c1, &[("", "cgroup.procs", "4712\n4713\n4714\n"), ("", "pids.current", "9\n")]);
    after_a_moment(&world).await;
    assert_eq!((&*told("container_processes").await, &*told("container_threads").await), ("3", "9"));
}
