//! Our pages as others read them: a Prometheus parser that nobody here wrote, and by the rules of metrics-server.

use std::collections::{BTreeMap, BTreeSet};

use crablet_host::cgroup::CgroupDriver;
use crablet_host::clock::Clock;
use prometheus_parse::{Scrape, Value};

use super::world::{World, container, sandbox};

/// Some pods of two containers each.
fn world() -> World {
    let world = World::new(CgroupDriver::Cgroupfs, true);
    world.write("proc/1/net/dev", "eth0: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n");
    let group = |path: &str, microseconds: u64| {
        world.cgroup(
            path,
            &[
                ("", "cpu.stat", &format!("usage_usec {microseconds}\nuser_usec 7\nsystem_usec 3\n")),
                ("", "cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"),
                ("", "memory.stat", "anon 10\nfile 10\n"),
                ("", "memory.current", "123456789\n"),
                ("", "memory.max", "max\n"),
                ("", "io.stat", "8:16 rbytes=4096 wbytes=8192 rios=1 wios=2\n"),
                ("", "cgroup.procs", ""),
            ],
        );
    };
    group("", 1_234_567);
    group("kubepods", 90);
    for pod in 0..3 {
        let at = format!("kubepods/podu{pod}");
        group(&at, 90);
        world.runtime.sandboxes.lock().unwrap().push(sandbox(
            &format!("s{pod}"),
            "ns",
            &format!("pod\"{pod}"),
            &format!("u{pod}"),
        ));
        for name in ["a", "b"] {
            let id = format!("{name}{pod}");
            group(&format!("{at}/{id}"), 40);
            let created = 1_794_763_425_000_000_000;
            world.runtime.containers.lock().unwrap().push(container(&id, &format!("s{pod}"), name, created));
        }
    }
    world
}

fn parse(page: &str) -> Scrape {
    Scrape::parse(page.lines().map(|line| Ok(line.to_owned()))).unwrap()
}

#[tokio::test]
async fn a_prometheus_parser_reads_every_line() {
    let world = world();
    let stats = world.stats();
    for page in [stats.resource_metrics().await, stats.cadvisor_metrics().await] {
        let scrape = parse(&page);
        let lines = page.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(scrape.samples.len(), lines);
        assert!(lines > 20);
        let mut seen = BTreeSet::new();
        for sample in &scrape.samples {
            assert!(!matches!(sample.value, Value::Untyped(_)), "{sample:?}");
            assert!(scrape.docs.contains_key(&sample.metric), "{} has no help", sample.metric);
            let labels: BTreeMap<_, _> = sample.labels.iter().collect();
            assert!(seen.insert(format!("{} {labels:?}", sample.metric)), "twice: {sample:?}");
        }
        let types = page.lines().filter(|line| line.starts_with("# TYPE")).collect::<Vec<_>>();
        assert_eq!(types.iter().collect::<BTreeSet<_>>().len(), types.len(), "each metric is told of once");
    }
}

/// A container as metrics-server keeps it: it drops a pod of which one container lacks a number.
#[derive(Debug, Default)]
struct Point {
    cpu: Option<(f64, i64)>,
    memory: Option<(f64, i64)>,
    start: Option<f64>,
}

#[tokio::test]
async fn metrics_server_finds_what_it_needs_of_the_node_and_of_every_container() {
    let world = world();
    let page = world.stats().resource_metrics().await;
    let mut node = Point::default();
    let mut containers: BTreeMap<(String, String, String), Point> = BTreeMap::new();
    for sample in parse(&page).samples {
        let value = match sample.value {
            Value::Counter(value) | Value::Gauge(value) => value,
            other => panic!("{other:?}"),
        };
        // Its decoder takes the time of a sample from the line; without one, nothing can be reckoned from two scrapes.
        let time = sample.timestamp.timestamp_millis();
        let label = |name: &str| sample.labels.get(name).unwrap_or_default().to_owned();
        let of = (label("namespace"), label("pod"), label("container"));
        match &*sample.metric {
            "node_cpu_usage_seconds_total" => node.cpu = Some((value, time)),
            "node_memory_working_set_bytes" => node.memory = Some((value, time)),
            "container_cpu_usage_seconds_total" => {
                containers.entry(of).or_default().cpu = Some((value, time))
            }
            "container_memory_working_set_bytes" => {
                containers.entry(of).or_default().memory = Some((value, time));
            }
            "container_start_time_seconds" => containers.entry(of).or_default().start = Some(value),
            _ => {}
        }
    }
    let now = Clock::system().now().as_millisecond();
    let is_told = |sample: Option<(f64, i64)>| {
        sample.is_some_and(|(value, time)| value > 0.0 && (now - 60_000..=now).contains(&time))
    };
    assert!(is_told(node.cpu) && is_told(node.memory), "{node:?}");
    assert_eq!(node.cpu.unwrap().0, 1.234567);
    assert_eq!(containers.len(), 6);
    for (of, point) in &containers {
        assert!(is_told(point.cpu) && is_told(point.memory), "{of:?} {point:?}");
        assert_eq!(point.start, Some(1_794_763_425.0), "{of:?}");
    }
}
