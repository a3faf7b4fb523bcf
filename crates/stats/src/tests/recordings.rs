//! The recorded machine, made again from its numbers: cgroup v1, one pod of two containers whose own cgroups cAdvisor did
//! not see, so that what the runtime says of them is told.

use std::sync::atomic::Ordering;

use crablet_cri_api::v1;
use crablet_host::cgroup::CgroupDriver;
use serde_json::Value;

use super::world::{World, container, recorded, sandbox};

/// What stands for `<uid>` in the recordings.
const UID: &str = "4e0a7c1e-0b5b-4d33-9c11-0a5c9e1f2b3d";
const POD: &str = "kubepods/burstable/pod4e0a7c1e-0b5b-4d33-9c11-0a5c9e1f2b3d";
const UNLIMITED: &str = "9223372036854771712\n";

fn recorded_world() -> World {
    let world = World::new(CgroupDriver::Cgroupfs, false);
    world.write(
        "proc/1/net/dev",
        "Inter-|   Receive |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets\n\
         lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n\
         ifb0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
         ifb1: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
         eth0: 358265836 13536 0 0 0 0 0 0 787476 10224 0 0 0 0 0 0\n\
         lab0: 0 0 0 0 0 0 0 0 1334 17 0 0 0 0 0 0\n\
         lab1: 43232 637 0 0 0 0 0 0 19884 182 0 0 0 0 0 0\n\
         lab2: 264116 3876 0 0 0 0 0 0 9874 91 0 0 0 0 0 0\n",
    );
    world.cgroup(
        "",
        &[
            ("cpuacct", "cpuacct.usage", "5208272307809\n"),
            ("cpuacct", "cpuacct.stat", "user 405634\nsystem 115192\n"),
            ("cpu", "cpu.shares", "1024\n"),
            ("cpu", "cpu.cfs_period_us", "100000\n"),
            ("cpu", "cpu.cfs_quota_us", "-1\n"),
            ("cpu", "cgroup.procs", ""),
            ("memory", "memory.usage_in_bytes", "1960001536\n"),
            ("memory", "memory.max_usage_in_bytes", "12904435712\n"),
            ("memory", "memory.kmem.usage_in_bytes", "517816320\n"),
            ("memory", "memory.failcnt", "0\n"),
            ("memory", "memory.limit_in_bytes", UNLIMITED),
            ("memory", "memory.soft_limit_in_bytes", UNLIMITED),
            (
                "memory",
                "memory.stat",
                "pgfault 123952\npgmajfault 0\ntotal_cache 1565679616\ntotal_rss 394321920\n\
                 total_mapped_file 383938560\ntotal_inactive_file 669347840\ntotal_active_file 883257344\n",
            ),
            ("blkio", "blkio.throttle.io_serviced", ""),
        ],
    );
    world.cgroup(
        "kubepods",
        &[
            ("cpuacct", "cpuacct.usage", "19148670785\n"),
            ("memory", "memory.usage_in_bytes", "7741440\n"),
            ("memory", "memory.limit_in_bytes", "25276518400\n"),
            ("memory", "memory.memsw.limit_in_bytes", UNLIMITED),
            (
                "memory",
                "memory.stat",
                "pgfault 0\npgmajfault 0\ntotal_rss 503808\ntotal_inactive_file 4096\n",
            ),
            ("blkio", "blkio.throttle.io_serviced", ""),
            ("cpu", "cgroup.procs", ""),
        ],
    );
    world.cgroup(
        POD,
        &[
            ("cpuacct", "cpuacct.usage", "207526131\n"),
            ("cpuacct", "cpuacct.stat", "user 6\nsystem 13\n"),
            ("cpu", "cpu.shares", "20\n"),
            ("cpu", "cpu.cfs_period_us", "100000\n"),
            ("cpu", "cpu.cfs_quota_us", "-1\n"),
            ("cpu", "cgroup.procs", ""),
            ("memory", "memory.usage_in_bytes", "2138112\n"),
            ("memory", "memory.max_usage_in_bytes", "4456448\n"),
            ("memory", "memory.kmem.usage_in_bytes", "811008\n"),
            ("memory", "memory.failcnt", "0\n"),
            ("memory", "memory.limit_in_bytes", UNLIMITED),
            ("memory", "memory.memsw.limit_in_bytes", UNLIMITED),
            ("memory", "memory.soft_limit_in_bytes", UNLIMITED),
            (
                "memory",
                "memory.stat",
                "pgfault 0\npgmajfault 0\ntotal_cache 278528\ntotal_rss 507904\ntotal_mapped_file 73728\n\
                 total_inactive_file 4096\ntotal_active_file 274432\n",
            ),
            ("pids", "pids.current", "5\n"),
            ("pids", "pids.max", "max\n"),
            ("blkio", "blkio.throttle.io_serviced", ""),
        ],
    );
    let logs = format!("logs/server_two_{UID}");
    for file in ["a/0.log", "b/0.log", "b/1.log"] {
        world.write(&format!("{logs}/{file}"), "2026-11-15T17:23:46Z stdout F line\n");
    }
    world.write(&format!("kubelet/pods/{UID}/etc-hosts"), "127.0.0.1 localhost\n");
    let runtime = &world.runtime;
    runtime.sandboxes.lock().unwrap().push(sandbox("s", "server", "two", UID));
    let created = [1_794_763_425_221_385_000, 1_794_763_426_225_034_000];
    for (name, created) in ["a", "b"].into_iter().zip(created) {
        runtime.containers.lock().unwrap().push(container(name, "s", name, created));
    }
    let at = world.path("").display().to_string();
    *runtime.stats.lock().unwrap() = vec![
        stats("a", &at, 168_105_940, [66_080_768, 1_032_192, 1_028_096, 233_472, 11_404, 2], (53_248, 16)),
        stats("b", &at, 11_669_454, [0, 880_640, 880_640, 229_376, 978, 0], (45_056, 14)),
    ];
    world
}

fn stats(id: &str, at: &str, cpu: u64, memory: [u64; 6], layer: (u64, u64)) -> v1::ContainerStats {
    let timestamp = 1_794_763_469_610_000_000;
    let value = |value| Some(v1::UInt64Value { value });
    let [available, usage, working_set, rss, page_faults, major_page_faults] = memory;
    v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes { id: id.to_owned(), ..Default::default() }),
        cpu: Some(v1::CpuUsage {
            timestamp,
            usage_core_nano_seconds: value(cpu),
            usage_nano_cores: value(0),
            psi: None,
        }),
        memory: Some(v1::MemoryUsage {
            timestamp,
            working_set_bytes: value(working_set),
            available_bytes: value(available),
            usage_bytes: value(usage),
            rss_bytes: value(rss),
            page_faults: value(page_faults),
            major_page_faults: value(major_page_faults),
            psi: None,
        }),
        writable_layer: Some(v1::FilesystemUsage {
            timestamp,
            fs_id: Some(v1::FilesystemIdentifier { mountpoint: at.to_owned() }),
            used_bytes: value(layer.0),
            inodes_used: value(layer.1),
        }),
        swap: None,
        io: None,
    }
}

/// Takes out what depends on the moment, and what is of this machine's disk.
fn steady(value: &mut Value, key: &str) {
    const OF_THE_DISK: [&str; 4] = ["availableBytes", "capacityBytes", "inodes", "inodesFree"];
    match value {
        Value::Object(fields) => {
            let is_of_a_disk = fields.contains_key("capacityBytes");
            for (name, value) in fields.iter_mut() {
                let is_of_the_node = key == "fs" && ["usedBytes", "inodesUsed"].contains(&&**name);
                if is_of_a_disk && (OF_THE_DISK.contains(&&**name) || is_of_the_node) {
                    assert!(value.is_u64(), "{name}");
                    *value = "<disk>".into();
                } else if name == "usageNanoCores" {
                    assert!(value.is_u64(), "{name}");
                    *value = "<rate>".into();
                } else if name == "time" || name == "startTime" {
                    let text = value.as_str().unwrap();
                    assert!(text.len() == 20 && text.ends_with('Z'), "{text}");
                    *value = "<time>".into();
                } else {
                    steady(value, name);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| steady(value, key)),
        _ => {}
    }
}

async fn summary(world: &World, only_cpu_and_memory: bool) -> Value {
    let told = String::from_utf8(world.stats().summary(only_cpu_and_memory).await.unwrap()).unwrap();
    serde_json::from_str(&told.replace(UID, "<uid>")).unwrap()
}

#[tokio::test]
async fn the_summary_is_the_recorded_one() {
    let world = recorded_world();
    let mut told = summary(&world, false).await;
    let mut expected: Value = serde_json::from_str(recorded("stats-summary").as_str().unwrap()).unwrap();
    steady(&mut told, "");
    steady(&mut expected, "");
    assert_eq!(told, expected, "{told:#}\n{expected:#}");
    let ephemeral = &told["pods"][0]["ephemeral-storage"];
    assert_eq!((&ephemeral["usedBytes"], &ephemeral["inodesUsed"]), (&114_688.into(), &34.into()));
}

#[tokio::test]
async fn the_summary_of_cpu_and_memory_is_the_recorded_one() {
    let world = recorded_world();
    let mut told = summary(&world, true).await;
    let mut expected: Value = serde_json::from_str(recorded("stats-summary-cpu").as_str().unwrap()).unwrap();
    steady(&mut told, "");
    steady(&mut expected, "");
    assert_eq!(told, expected, "{told:#}\n{expected:#}");
}

/// A line without the time of its sample.
fn without_time(line: &str) -> String {
    let (labels, rest) = line.rsplit_once('}').unwrap_or(("", line));
    let mut words = rest.split(' ');
    let (name, value) = (words.next().unwrap(), words.next().unwrap_or_default());
    let time = words.next().map_or("", |_| " <time>");
    match line.starts_with('#') {
        true => line.to_owned(),
        false => format!("{labels}}}{name} {value}{time}"),
    }
}

#[tokio::test]
async fn the_resource_metrics_are_the_recorded_ones() {
    let world = recorded_world();
    let told = world.stats().resource_metrics().await;
    let expected = recorded("metrics-resource");
    let told: Vec<String> = told.lines().map(without_time).collect();
    let expected: Vec<String> = expected.as_str().unwrap().lines().map(without_time).collect();
    assert_eq!(told, expected);
}

#[tokio::test]
async fn an_error_of_the_runtime_leaves_nothing_but_that_there_was_one_of_the_summary_and_resources() {
    let world = recorded_world();
    world.runtime.is_away.store(true, Ordering::Relaxed);
    let stats = world.stats();
    assert_eq!(
        stats.resource_metrics().await,
        "# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise\n\
         # TYPE resource_scrape_error gauge\nresource_scrape_error 1\n"
    );
    let error = stats.summary(false).await.unwrap_err().to_string();
    let expected =
        "failed to list pod stats: failed to get pod or container map: failed to list all containers: ";
    assert!(error.starts_with(expected), "{error}");
}

/// The samples of a page that are compared, each after what its metric is: those of the root, of the recorded pod and of the
/// machine. Of file systems only the disk is the same, and of values those that are not of the moment.
fn compared(page: &str) -> Vec<String> {
    const OF_THE_MOMENT: [&str; 9] = [
        "container_last_seen",
        "container_start_time_seconds",
        "container_processes",
        "container_file_descriptors",
        "container_sockets",
        "container_fs_inodes_",
        "container_fs_limit_bytes",
        "container_fs_usage_bytes",
        "container_memory_swap_",
    ];
    let mut lines = Vec::new();
    let mut metric: Vec<&str> = Vec::new();
    for line in page.lines() {
        if line.starts_with("# HELP") {
            metric.clear();
        }
        if line.starts_with('#') {
            metric.push(line);
            continue;
        }
        let is_of_the_pod = line.contains("pod<uid>\"");
        let is_of_another = line.starts_with("container_") && !line.contains("id=\"/\"") && !is_of_the_pod;
        let is_of_another_disk = line.contains("device=\"") && !line.contains("device=\"/dev/vda\"");
        if is_of_another || is_of_another_disk {
            continue;
        }
        lines.extend(metric.drain(..).map(str::to_owned));
        let line = without_time(line);
        let is_of_the_moment = OF_THE_MOMENT.iter().any(|name| line.starts_with(name));
        let (labels, value) = line.rsplit_once("} ").unwrap_or((&line, ""));
        let time = if value.ends_with(" <time>") { " <time>" } else { "" };
        lines.push(if is_of_the_moment { format!("{labels}}}{time}") } else { line });
    }
    lines
}

#[tokio::test]
async fn the_page_of_cadvisor_is_the_recorded_one() {
    let world = recorded_world();
    let told = compared(&world.stats().cadvisor_metrics().await.replace(UID, "<uid>"));
    let expected = compared(recorded("metrics-cadvisor").as_str().unwrap());
    let difference = told.iter().zip(&expected).position(|(told, expected)| told != expected);
    let around = difference.map(|at| (&told[at], &expected[at]));
    assert!(told == expected, "{around:#?}, {} of {}", told.len(), expected.len());
    assert!(told.len() > 200);
}
