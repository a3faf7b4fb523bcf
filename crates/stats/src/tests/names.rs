//! Under which names cgroups are told: with a runtime that is away, with pods of one name, on disks of all kinds.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crablet_cri_api::{ContainerState, SandboxState, v1};
use crablet_host::cgroup::CgroupDriver;
use serde_json::{Value, json};

use super::world::{World, container, sandbox};
use crate::stats::Stats;

const CREATED: i128 = 1_794_763_425_000_000_000;

fn group(world: &World, path: &str, more: &[(&str, &str, &str)]) {
    let files = [
        ("", "cpu.stat", "usage_usec 1000\n"),
        ("", "memory.stat", "anon 1\nfile 1\n"),
        ("", "memory.current", "9000\n"),
        ("", "cgroup.procs", ""),
    ];
    world.cgroup(path, &files);
    world.cgroup(path, more);
}

/// One pod of one container and its sandbox.
fn world() -> World {
    let world = World::new(CgroupDriver::Cgroupfs, true);
    for path in ["", "kubepods", "kubepods/podu1", "kubepods/podu1/s1", "kubepods/podu1/c1"] {
        group(&world, path, &[]);
    }
    world.runtime.sandboxes.lock().unwrap().push(sandbox("s1", "default", "web", "u1"));
    world.runtime.containers.lock().unwrap().push(container("c1", "s1", "main", CREATED));
    world
}

fn has(page: &str, line: &str) {
    assert!(page.lines().any(|told| told.starts_with(line)), "{line}\n{page}");
}

fn has_not(page: &str, text: &str) {
    assert!(!page.contains(text), "{text}\n{page}");
}

const MAIN: &str = "container_memory_usage_bytes{container=\"main\",id=\"/kubepods/podu1/c1\",\
                    image=\"example.org/app:1\",name=\"c1\",namespace=\"default\",pod=\"web\"} 9000 ";
const SANDBOX: &str = "container_memory_usage_bytes{container=\"\",id=\"/kubepods/podu1/s1\",\
                       image=\"example.org/pause:s1\",name=\"s1\",namespace=\"default\",pod=\"web\"} 9000 ";

#[tokio::test]
async fn a_sandbox_has_its_image_which_the_runtime_is_asked_for_once() {
    let world = world();
    let asked = || world.runtime.asked_for_images.load(Ordering::Relaxed);
    let stats = world.stats();
    stats.resource_metrics().await;
    assert_eq!(asked(), 0, "only the page of cAdvisor shows it");
    for _ in 0..2 {
        has(&stats.cadvisor_metrics().await, SANDBOX);
        assert_eq!(asked(), 1);
    }
    // What was forgotten with its sandbox is asked for anew.
    let listed = std::mem::take(&mut *world.runtime.sandboxes.lock().unwrap());
    stats.cadvisor_metrics().await;
    *world.runtime.sandboxes.lock().unwrap() = listed;
    has(&stats.cadvisor_metrics().await, SANDBOX);
    assert_eq!(asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn while_the_runtime_is_away_cgroups_are_told_under_the_names_that_they_had() {
    let world = world();
    let runtime = &world.runtime;
    let stats = world.stats();
    runtime.is_away.store(true, Ordering::Relaxed);
    let unnamed = stats.cadvisor_metrics().await;
    has(&unnamed, "container_memory_usage_bytes{container=\"\",id=\"/\",");
    let nobody = "image=\"\",name=\"\",namespace=\"\",pod=\"\"} 9000 ";
    has(
        &unnamed,
        &format!("container_memory_usage_bytes{{container=\"\",id=\"/kubepods/podu1/c1\",{nobody}"),
    );
    has(&unnamed, "container_scrape_error 0");
    runtime.is_away.store(false, Ordering::Relaxed);
    has(&stats.cadvisor_metrics().await, MAIN);
    for state in [&runtime.is_away, &runtime.hangs] {
        state.store(true, Ordering::Relaxed);
        // One who cannot do without it keeps nobody waiting who can.
        let summary = tokio::spawn({
            let stats = stats.clone();
            async move { stats.summary(false).await }
        });
        tokio::task::yield_now().await;
        let asked = tokio::time::Instant::now();
        let page = stats.cadvisor_metrics().await;
        assert!(asked.elapsed() <= Duration::from_secs(4), "{:?}", asked.elapsed());
        has(&page, MAIN);
        has(&page, SANDBOX);
        summary.abort();
    }
}

#[tokio::test]
async fn names_that_were_remembered_serve_nobody_who_needs_those_of_now() {
    let mut world = world();
    world.cached_for = Duration::from_secs(3_600);
    let stats = world.stats();
    world.runtime.is_away.store(true, Ordering::Relaxed);
    has(&stats.cadvisor_metrics().await, "container_scrape_error 0");
    assert!(stats.summary(true).await.is_err());
    world.runtime.is_away.store(false, Ordering::Relaxed);
    assert!(stats.summary(true).await.is_ok());
}

#[tokio::test]
async fn what_does_not_run_any_more_has_its_name_while_its_cgroup_is_there() {
    let world = world();
    group(&world, "kubepods/podu1/c0", &[]);
    for path in ["kubepods/podu0", "kubepods/podu0/s0", "kubepods/podu0/c9"] {
        group(&world, path, &[]);
    }
    let mut ended = container("c0", "s1", "first", CREATED);
    ended.state = ContainerState::Exited;
    let mut earlier = sandbox("s0", "default", "web", "u0");
    earlier.state = SandboxState::NotReady;
    world.runtime.sandboxes.lock().unwrap().push(earlier);
    world.runtime.containers.lock().unwrap().extend([ended, container("c9", "s0", "main", CREATED)]);
    let stats = world.stats();
    let page = stats.cadvisor_metrics().await;
    let named = "namespace=\"default\",pod=\"web\"} 9000 ";
    for (container, id, image, name) in [
        ("first", "podu1/c0", "sha256:c0", "c0"),
        ("main", "podu0/c9", "sha256:c9", "c9"),
        ("", "podu0/s0", "example.org/pause:s0", "s0"),
        ("", "podu0", "", ""),
    ] {
        let labels =
            format!("container=\"{container}\",id=\"/kubepods/{id}\",image=\"{image}\",name=\"{name}\"");
        has(&page, &format!("container_memory_usage_bytes{{{labels},{named}"));
    }
    let told: Value = serde_json::from_slice(&stats.summary(false).await.unwrap()).unwrap();
    let pods = told["pods"].as_array().unwrap();
    assert_eq!((pods.len(), &pods[0]["podRef"]["uid"]), (1, &json!("u1")));
    assert_eq!(pods[0]["containers"].as_array().unwrap().len(), 1, "only what runs: {told}");
}

#[tokio::test]
async fn two_pods_of_one_name_make_no_line_twice() {
    let world = world();
    for path in ["kubepods/podu2", "kubepods/podu2/s2", "kubepods/podu2/c2"] {
        group(&world, path, &[]);
    }
    world.runtime.sandboxes.lock().unwrap().push(sandbox("s2", "default", "web", "u2"));
    world.runtime.containers.lock().unwrap().push(container("c2", "s2", "main", CREATED));
    let page = world.stats().resource_metrics().await;
    let mut lines: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
    lines.iter_mut().for_each(|line| *line = line.split_once(' ').unwrap().0);
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), all, "{page}");
    has(&page, "pod_memory_working_set_bytes{namespace=\"default\",pod=\"web\"} ");
}

#[tokio::test]
async fn who_watches_a_container_of_crio_is_no_container() {
    let world = world();
    for name in ["crio-c7", "crio-conmon-c7"] {
        group(&world, &format!("kubepods/podu1/{name}"), &[]);
    }
    world.runtime.containers.lock().unwrap().push(container("c7", "s1", "side", CREATED));
    let page = world.stats().cadvisor_metrics().await;
    has(&page, "container_memory_usage_bytes{container=\"side\",id=\"/kubepods/podu1/crio-c7\",");
    has_not(&page, "conmon");
}

#[tokio::test]
async fn a_cgroup_began_when_its_files_did_however_often_it_changed_since() {
    let world = world();
    let set = |path: &Path, second: u64| {
        let time = std::time::UNIX_EPOCH + Duration::from_secs(second);
        std::fs::File::open(path).unwrap().set_modified(time).unwrap();
    };
    let began = 1_794_760_000;
    let at = world.path("cgroup/kubepods/podu1");
    world.cgroup("kubepods/podu1", &[("", "cgroup.events", "populated 1\n")]);
    set(&at.join("cgroup.events"), began);
    set(&at, began + 500);
    let stats = world.stats();
    let expected = "container_start_time_seconds{container=\"\",id=\"/kubepods/podu1\",image=\"\",name=\"\",\
                    namespace=\"default\",pod=\"web\"} 1.79476e+09";
    has(&stats.cadvisor_metrics().await, expected);
    // It is remembered for as long as the directory is the same.
    std::fs::remove_file(at.join("cgroup.events")).unwrap();
    set(&at, began + 900);
    has(&stats.cadvisor_metrics().await, expected);
}

#[tokio::test]
async fn a_pod_of_which_nothing_is_known_is_not_told_and_one_without_a_cgroup_has_the_time_of_its_io() {
    let world = World::new(CgroupDriver::Cgroupfs, true);
    group(&world, "", &[]);
    for (sandbox_id, uid, id) in [("s1", "u1", "c1"), ("s2", "u2", "c2")] {
        world.runtime.sandboxes.lock().unwrap().push(sandbox(sandbox_id, "default", uid, uid));
        world.runtime.containers.lock().unwrap().push(container(id, sandbox_id, "main", CREATED));
    }
    world.runtime.stats.lock().unwrap().push(v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes { id: "c1".to_owned(), ..Default::default() }),
        ..Default::default()
    });
    let told: Value = serde_json::from_slice(&world.stats().summary(false).await.unwrap()).unwrap();
    let pods = told["pods"].as_array().unwrap();
    assert_eq!((pods.len(), &pods[0]["podRef"]["uid"]), (1, &json!("u1")), "{told}");
    let container = &pods[0]["containers"][0];
    assert_eq!(pods[0]["io"], json!({"time": container["io"]["time"]}));
    assert_eq!(container["rootfs"], json!({"time": null}), "it has no layer to write to");
}

#[tokio::test]
async fn the_machines_memory_is_that_of_now() {
    let world = world();
    let stats = world.stats();
    for kilobytes in [1_000_u64, 2_000] {
        let text = format!("MemTotal: {kilobytes} kB\nSwapTotal: 8 kB\nSwapFree: 4 kB\n");
        world.write("proc/meminfo", &text);
        let page = stats.cadvisor_metrics().await;
        let bytes = format!("{}", kilobytes * 1_024);
        has(
            &page,
            &format!(
                "container_spec_memory_limit_bytes{{container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"}} {}",
                short(&bytes)
            ),
        );
        let machine = "boot_id=\"<bootID>\",machine_id=\"<machineID>\",system_uuid=\"<systemUUID>\"";
        has(&page, &format!("machine_memory_bytes{{{machine}}} {}", short(&bytes)));
        has(&page, &format!("machine_swap_bytes{{{machine}}} 8192"));
    }
}

#[tokio::test]
async fn the_machines_processors_are_those_of_now() {
    let world = world();
    let stats = world.stats();
    let machine = "boot_id=\"<bootID>\",machine_id=\"<machineID>\",system_uuid=\"<systemUUID>\"";
    let check = async |online: &str, [cores, physical_cores, sockets]: [u32; 3]| {
        world.write("sys/devices/system/cpu/online", online);
        let page = stats.cadvisor_metrics().await;
        has(&page, &format!("machine_cpu_cores{{{machine}}} {cores}"));
        has(&page, &format!("machine_cpu_physical_cores{{{machine}}} {physical_cores}"));
        has(&page, &format!("machine_cpu_sockets{{{machine}}} {sockets}"));
    };
    let plug = |processor: u32, socket: &str, core: &str| {
        let topology = format!("sys/devices/system/cpu/cpu{processor}/topology");
        world.write(&format!("{topology}/physical_package_id"), socket);
        world.write(&format!("{topology}/core_id"), core);
    };
    check("0-1\n", [2, 2, 1]).await;
    plug(2, "1\n", "0\n");
    plug(3, "1\n", "1\n");
    check("0-3\n", [4, 4, 2]).await;
    // One that is offline has no topology.
    std::fs::remove_dir_all(world.path("sys/devices/system/cpu/cpu3/topology")).unwrap();
    check("0-2\n", [3, 3, 2]).await;
}

/// As Go writes a number of at least seven digits.
fn short(digits: &str) -> String {
    match digits.len() {
        7 => format!("{}.{}e+06", &digits[..1], digits[1..].trim_end_matches('0')),
        _ => digits.to_owned(),
    }
}

#[tokio::test]
async fn disks_have_the_names_that_upstream_gives_them() {
    let world = world();
    world.write("sys/dev/block/254:0/uevent", "DEVNAME=vda\n");
    world.write("sys/dev/block/253:0/uevent", "DEVNAME=dm-0\n");
    for minor in [0, 1, 2] {
        world.write(&format!("sys/dev/block/7:{minor}/uevent"), &format!("DEVNAME=loop{minor}\n"));
    }
    let here = world.path("").display().to_string();
    world.write(
        "proc/self/mountinfo",
        &format!(
            "20 1 254:0 / / rw - ext4 /dev/vda rw\n21 20 253:0 / {here} rw - ext4 /dev/mapper/vg-data rw\n\
             22 20 7:2 / {here} rw - squashfs /dev/loop2 rw\n"
        ),
    );
    let io = "254:0 rbytes=10 wbytes=20 rios=3 wios=4\n253:0 rbytes=11 wbytes=21 rios=5 wios=6\n\
              7:0 rbytes=12 wbytes=0 rios=1 wios=0\n7:1 rbytes=13 wbytes=0 rios=1 wios=0\n\
              7:2 rbytes=14 wbytes=0 rios=1 wios=0\n";
    for path in ["", "kubepods"] {
        world.cgroup(path, &[("", "io.stat", io)]);
    }
    let page = world.stats().cadvisor_metrics().await;
    let rest = "image=\"\",name=\"\",namespace=\"\",pod=\"\"}";
    for (metric, device, id, value) in [
        ("reads_bytes_total", "/dev/vda", "/", 10),
        ("writes_bytes_total", "/dev/vda", "/", 20),
        // What the cgroup counts comes before what the disk does.
        ("reads_total", "/dev/vda", "/", 3),
        ("writes_total", "/dev/mapper/vg-data", "/", 6),
        ("reads_bytes_total", "/dev/mapper/vg-data", "/", 11),
        ("reads_bytes_total", "/dev/loop2", "/", 14),
        ("reads_bytes_total", "", "/", 12),
        ("reads_bytes_total", "/dev/dm-0", "/kubepods", 11),
        ("reads_bytes_total", "", "/kubepods", 12),
        ("sector_reads_total", "/dev/vda", "/", 17_534_570),
    ] {
        let value = short(&value.to_string());
        let value = if value.len() > 7 { String::new() } else { format!("{value} ") };
        has(
            &page,
            &format!("container_fs_{metric}{{container=\"\",device=\"{device}\",id=\"{id}\",{rest} {value}"),
        );
    }
    for metric in ["container_fs_reads_total", "container_fs_reads_bytes_total"] {
        let told = page.lines().filter(|line| line.starts_with(metric) && line.contains("id=\"/\""));
        assert_eq!(told.count(), 4, "each device once\n{page}");
    }
    for minor in [0, 1] {
        let numbers = format!("major=\"7\",minor=\"{minor}\"");
        let told =
            page.lines().filter(|line| line.contains("device=\"\",id=\"/\"") && line.contains(&numbers));
        assert_eq!(told.count(), 2, "{numbers}: read and written\n{page}");
    }
}

/// The memory of pods, by UID, and of how many of their containers it is known by name.
async fn memory(stats: &Stats) -> Vec<(String, Option<u64>, usize)> {
    let usages = stats.memory_usages().await.unwrap();
    usages.into_iter().map(|(uid, usage)| (uid, usage.memory, usage.containers.len())).collect()
}

#[tokio::test(start_paused = true)]
async fn the_memory_of_a_pod_is_known_whatever_the_runtime_calls_its_containers() {
    let world = world();
    let stats = world.stats();
    let known = |uid: &str, names| (uid.to_owned(), Some(9000), names);
    assert_eq!(memory(&stats).await, [known("u1", 1)]);
    // One that came since the runtime answered last, and one whose container is another by now.
    std::fs::remove_dir_all(world.path("cgroup/kubepods/podu1/c1")).unwrap();
    for path in ["kubepods/podu1/c2", "kubepods/podu2", "kubepods/podu2/c9"] {
        group(&world, path, &[]);
    }
    world.runtime.counts_slowly.store(true, Ordering::Relaxed);
    let began = tokio::time::Instant::now();
    assert_eq!(memory(&stats).await, [known("u1", 0), known("u2", 0)]);
    assert!(began.elapsed() <= Duration::from_secs(4), "{:?}", began.elapsed());
    world.runtime.hangs.store(true, Ordering::Relaxed);
    assert_eq!(memory(&stats).await, [known("u1", 0), known("u2", 0)]);
    assert_eq!(memory(&world.stats()).await, [known("u1", 0), known("u2", 0)], "nothing was ever listed");
    std::fs::remove_dir_all(world.path("cgroup/kubepods")).unwrap();
    assert!(stats.memory_usages().await.is_err(), "nobody knows anything");
}
