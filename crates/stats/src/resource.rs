//! `/metrics/resource`: what metrics-server reads, from the summary with CPU and memory alone.

use crablet_metrics::{Kind, Page, push_label};

use crate::summary::{ContainerStats, PodStats, Summary, Time};

const NANOSECONDS: f64 = 1e9;

/// A sample: the value, and when it was taken if that is told.
type Sample = Option<(f64, Option<Time>)>;
type OfContainer = fn(&ContainerStats) -> Sample;
type OfPod = fn(&PodStats) -> Sample;

const CONTAINERS: [(&str, &str, Kind, OfContainer); 5] = [
    (
        "container_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        Kind::Counter,
        |stats| {
            let cpu = stats.cpu.as_ref()?;
            Some((cpu.usage_core_nano_seconds? as f64 / NANOSECONDS, Some(cpu.time)))
        },
    ),
    (
        "container_memory_working_set_bytes",
        "[STABLE] Current working set of the container in bytes",
        Kind::Gauge,
        |stats| {
            let memory = stats.memory.as_ref()?;
            Some((memory.working_set_bytes? as f64, Some(memory.time)))
        },
    ),
    (
        "container_start_time_seconds",
        "[STABLE] Start time of the container since unix epoch in seconds",
        Kind::Gauge,
        |stats| {
            let start = stats.start_time.filter(|start| start.0.as_second() > 0)?;
            Some((start.0.as_nanosecond() as f64 / NANOSECONDS, None))
        },
    ),
    (
        "container_swap_limit_bytes",
        "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems",
        Kind::Gauge,
        |stats| {
            let swap = stats.swap.as_ref()?;
            let used = swap.swap_usage_bytes.unwrap_or(0);
            Some((swap.swap_available_bytes? as f64 + used as f64, Some(swap.time)))
        },
    ),
    (
        "container_swap_usage_bytes",
        "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        Kind::Gauge,
        |stats| {
            let swap = stats.swap.as_ref()?;
            Some((swap.swap_usage_bytes? as f64, Some(swap.time)))
        },
    ),
];

const PODS: [(&str, &str, Kind, OfPod); 3] = [
    (
        "pod_cpu_usage_seconds_total",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        Kind::Counter,
        |stats| {
            let cpu = stats.cpu.as_ref()?;
            Some((cpu.usage_core_nano_seconds? as f64 / NANOSECONDS, Some(cpu.time)))
        },
    ),
    (
        "pod_memory_working_set_bytes",
        "[STABLE] Current working set of the pod in bytes",
        Kind::Gauge,
        |stats| {
            let memory = stats.memory.as_ref()?;
            Some((memory.working_set_bytes? as f64, Some(memory.time)))
        },
    ),
    (
        "pod_swap_usage_bytes",
        "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        Kind::Gauge,
        |stats| {
            let swap = stats.swap.as_ref()?;
            Some((swap.swap_usage_bytes? as f64, Some(swap.time)))
        },
    ),
];

/// The page. Without a summary it says that there was an error, and nothing else.
pub(crate) fn resource_page(summary: Option<&Summary>) -> String {
    let containers = summary.map_or(0, |summary| summary.pods.iter().map(|pod| pod.containers.len()).sum());
    let mut page = Page::with_capacity(2_048 + containers * 1_024);
    if let Some(summary) = summary {
        // As upstream orders them: by the container's name, then the namespace's, then the pod's.
        let mut of_containers: Vec<(&PodStats, &ContainerStats, String)> = Vec::with_capacity(containers);
        for pod in &summary.pods {
            for container in &pod.containers {
                let mut labels = String::with_capacity(96);
                push_label(&mut labels, "container", &container.name);
                push_label(&mut labels, "namespace", &pod.pod_ref.namespace);
                push_label(&mut labels, "pod", &pod.pod_ref.name);
                of_containers.push((pod, container, labels));
            }
        }
        of_containers.sort_by(|a, b| {
            let key = |(pod, container, _): &(&PodStats, &ContainerStats, String)| {
                (container.name.clone(), pod.pod_ref.namespace.clone(), pod.pod_ref.name.clone())
            };
            key(a).cmp(&key(b))
        });
        // Two pods may have one name for a while: the first counts, a line that comes twice spoils the page.
        of_containers.dedup_by(|(_, _, labels), (_, _, earlier)| labels == earlier);
        for (name, help, kind, value) in CONTAINERS {
            page.family(name, help, kind);
            for (_, container, labels) in &of_containers {
                write(&mut page, labels, value(container));
            }
        }
        node(&mut page, summary);
        let mut of_pods: Vec<(&PodStats, String)> = summary
            .pods
            .iter()
            .map(|pod| {
                let mut labels = String::with_capacity(64);
                push_label(&mut labels, "namespace", &pod.pod_ref.namespace);
                push_label(&mut labels, "pod", &pod.pod_ref.name);
                (pod, labels)
            })
            .collect();
        of_pods.dedup_by(|(_, labels), (_, earlier)| labels == earlier);
        for (name, help, kind, value) in PODS {
            page.family(name, help, kind);
            for (pod, labels) in &of_pods {
                write(&mut page, labels, value(pod));
            }
        }
    }
    let help = "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise";
    page.family("resource_scrape_error", help, Kind::Gauge);
    page.sample(&[], if summary.is_some() { 0.0 } else { 1.0 }, None);
    page.into_text()
}

fn node(page: &mut Page, summary: &Summary) {
    let node = &summary.node;
    let help = "[STABLE] Cumulative cpu time consumed by the node in core-seconds";
    page.family("node_cpu_usage_seconds_total", help, Kind::Counter);
    let cpu = node
        .cpu
        .as_ref()
        .and_then(|cpu| Some((cpu.usage_core_nano_seconds? as f64 / NANOSECONDS, Some(cpu.time))));
    write(page, "", cpu);
    let help = "[STABLE] Current working set of the node in bytes";
    page.family("node_memory_working_set_bytes", help, Kind::Gauge);
    let memory = node.memory.as_ref();
    write(page, "", memory.and_then(|memory| Some((memory.working_set_bytes? as f64, Some(memory.time)))));
    let help = "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems";
    page.family("node_swap_usage_bytes", help, Kind::Gauge);
    let swap = node.swap.as_ref();
    write(page, "", swap.and_then(|swap| Some((swap.swap_usage_bytes? as f64, Some(swap.time)))));
}

fn write(page: &mut Page, labels: &str, sample: Sample) {
    if let Some((value, time)) = sample {
        page.sample(&[labels], value, time.map(Time::milliseconds));
    }
}
