//! What is promised, and what measures it.

use std::path::Path;

use crate::{
    api_server, cluster, evictions, exits, followers, idle, numbers, pods, probes, relists, resizes, settled,
    starts, storage, streams, translation,
};

/// A promise about a figure.
pub(crate) struct Promise {
    /// What figures refer to it by.
    pub(crate) id: &'static str,
    /// What is promised.
    pub(crate) text: &'static str,
    /// The most that is allowed.
    pub(crate) limit: f64,
    /// The unit of the figure.
    pub(crate) unit: &'static str,
}

/// A figure that was measured: the median of several runs, and how far apart they were.
pub(crate) struct Figure {
    /// The promise it is about.
    pub(crate) id: &'static str,
    /// What each run gave.
    pub(crate) runs: Vec<f64>,
    /// What somebody else's takes, in the same run.
    pub(crate) beside: Option<String>,
}

/// Something that gives figures.
#[derive(Clone, Copy)]
pub(crate) enum Measure {
    /// The agent, up and doing nothing.
    Idle,
    /// Decoded pods.
    Pods,
    /// Relists of the simulated runtime.
    Relists,
    /// Exits on a real runtime.
    Exits,
    /// One pod's start and end on a real runtime.
    Starts,
    /// The start and the end of many pods on a real runtime.
    Crowd,
    /// The agent with many pods and nothing to do.
    Settled,
    /// The same with very many pods.
    ManySettled,
    /// The same with fewer pods on a real runtime, and the node's resources looked after.
    FewSettled,
    /// A pod's translation to CRI.
    Translation,
    Probes,
    ApiServer,
    /// A node in a cluster that has nothing to do.
    ClusterRest,
    /// A node in a cluster whose pods change all the time.
    ClusterChanges,
    /// The pods of a node in a cluster, on a real runtime.
    Cluster,
    /// Volumes of CSI drivers.
    Storage,
    /// Commands in containers, by way of the node.
    Streams,
    /// What pods use, told to who asks.
    Numbers,
    /// Those who ask much of the node's port.
    Followers,
    /// Evictions on a real runtime, when memory runs short.
    Evictions,
    /// Resizes on a real runtime.
    Resizes,
}

const fn promise(id: &'static str, text: &'static str, limit: f64, unit: &'static str) -> Promise {
    Promise { id, text, limit, unit }
}

/// Every figure that is promised.
pub(crate) const PROMISES: &[Promise] = &[
    promise("idle-rss", "resident memory of the agent without pods", 25.0, "MiB"),
    promise("idle-wakes", "wake-ups of the agent without pods, over all its threads", 0.2, "a second"),
    promise("idle-cpu", "CPU of the agent without pods", 1.0, "millicores"),
    promise(
        "pod-heap",
        "live heap of a pod (2 containers, 8 variables each, 3 volumes, probes, status)",
        10.0,
        "kB",
    ),
    promise("pod-decode", "decoding that pod from JSON", 60.0, "µs"),
    promise("pods-rss", "growth of resident memory by 500 such pods", 6.0, "MB"),
    promise(
        "exit-seen",
        "an exit is seen and agreed by CRI, containerd 1.6, p99 of 200, against 50 ms or what containerd itself takes",
        1.25,
        "times",
    ),
    promise("relist-diff", "diff of a relist of 10,000 containers", 10.0, "ms"),
    promise("pod-start", "manifest written to Running, against the same CRI calls by hand", 1.25, "times"),
    promise("pod-stop", "deleted to gone from the runtime, against the same CRI calls by hand", 1.5, "times"),
    promise("pods-start-50", "50 pods at once, against the best parallelism by hand", 1.15, "times"),
    promise(
        "pods-stop-50",
        "the end of 50 pods at once, against the best parallelism by hand",
        1.15,
        "times",
    ),
    promise("settled-500-cpu", "CPU with 500 settled pods and events", 5.0, "millicores"),
    promise("settled-500-rss", "resident memory with 500 settled pods", 25.0, "MiB"),
    promise("settled-500-wakes", "voluntary context switches with 500 settled pods", 5.0, "a second"),
    promise("settled-5000-cpu", "CPU with 5,000 settled pods and events", 50.0, "millicores"),
    promise("settled-5000-rss", "resident memory with 5,000 settled pods", 250.0, "MiB"),
    promise("settled-5000-wakes", "voluntary context switches with 5,000 settled pods", 50.0, "a second"),
    promise(
        "settled-200-cpu",
        "CPU with 200 settled pods on containerd, with eviction, image garbage and cgroups looked after",
        1.0,
        "millicores",
    ),
    promise("settled-200-wakes", "voluntary context switches with those pods", 2.0, "a second"),
    promise("translate", "translating one pod to CRI", 50.0, "µs"),
    promise("probes-tcp", "1,000 TCP probes a second, against a bare connect loop", 2.0, "times"),
    promise("probes-exec", "500 exec probes that take 200 ms each second, behind", 1.0, "periods"),
    promise("api-start", "first start of the API server until it is ready", 300.0, "ms"),
    promise("api-rss", "resident memory of the API server without pods", 20.0, "MiB"),
    promise("api-pods-rss", "what 10,000 pods add to it", 60.0, "MiB"),
    promise(
        "api-event",
        "a write is heard of by 10 watchers of 1,000 pods, p99, without fsync, against an echo over TLS",
        5.0,
        "times",
    ),
    promise("api-patch", "CPU of a patch of a pod's status: 5,000 a second of one core", 200.0, "µs"),
    promise("api-unread", "memory of a watch that nobody reads", 1.0, "MiB"),
    promise("join-ready", "from the agent's start until its node is ready at the API server", 500.0, "ms"),
    promise("join-requests", "requests of a node with 100 pods at rest", 8.0, "a minute"),
    promise("join-rss", "resident memory of the agent with 100 pods of a cluster", 20.0, "MiB"),
    promise("join-cpu", "CPU of the agent with 100 pods of a cluster at rest", 1.0, "millicores"),
    promise(
        "join-changes",
        "10,000 status changes a minute, without the probes that find them",
        5.0,
        "% of a core",
    ),
    promise(
        "join-start",
        "a pod created to Ready at the API server, less 20 ms, against the same CRI calls by hand",
        1.25,
        "times",
    ),
    promise(
        "join-volumes",
        "volumes of a pod with a token, a config map and a secret, p50 of 50, less the token's request",
        15.0,
        "ms",
    ),
    promise(
        "join-start-100",
        "100 pods of a cluster at once, against the best parallelism by hand",
        1.15,
        "times",
    ),
    promise("readiness", "a readiness result is in /pods", 10.0, "ms"),
    promise(
        "csi-mount",
        "staging and publishing a volume of a CSI driver, p50 of 50, less what the driver takes",
        10.0,
        "ms",
    ),
    promise(
        "csi-wakes",
        "voluntary context switches with 200 pods of a cluster with 5 such volumes each, at rest",
        5.0,
        "a second",
    ),
    promise("csi-rss", "resident memory of each of those volumes, without the program itself", 4.0, "kB"),
    promise("csi-end", "the end of those pods at once, against the same pods without volumes", 1.1, "times"),
    promise(
        "exec-trip",
        "exec of a command that does nothing, 100 ms after the one before, against the runtime's own",
        1.2,
        "times",
    ),
    promise("exec-trip-v5", "that exec in WebSocket v5, which the node translates", 1.2, "times"),
    promise("exec-cat", "512 MiB through exec, against a proxy that does nothing but TLS", 1.25, "times"),
    promise("exec-cat-v5", "those bytes in WebSocket v5, which the node translates", 1.25, "times"),
    promise(
        "numbers-container",
        "CPU of /metrics/cadvisor and /stats/summary for each container of 100 pods of two, read anew but for limits",
        300.0,
        "µs",
    ),
    promise(
        "numbers-scrape",
        "CPU of the agent with those pods, asked for all five pages each 15 s",
        3.0,
        "millicores",
    ),
    promise(
        "follow-lost",
        "lines that 100 followers of a log miss, at 10,000 lines a second for 10 s",
        0.0,
        "lines",
    ),
    promise(
        "asked-rss",
        "growth of resident memory with 100 pods by all pages, commands, logs and followers, when nobody asks any more",
        3.0,
        "MiB",
    ),
    promise(
        "evict-begun",
        "from a memory threshold crossed, by a pod that eats all at once, to the eviction begun, cgroup v1",
        100.0,
        "ms",
    ),
    promise(
        "resize-applied",
        "a resize is what the kernel enforces, after the API server's answer, less what the runtime takes",
        50.0,
        "ms",
    ),
];

impl Measure {
    /// Everything there is to measure.
    pub(crate) const ALL: &[Measure] = &[
        Measure::Idle,
        Measure::Pods,
        Measure::Relists,
        Measure::Exits,
        Measure::Starts,
        Measure::Crowd,
        Measure::Settled,
        Measure::ManySettled,
        Measure::FewSettled,
        Measure::Translation,
        Measure::Probes,
        Measure::ApiServer,
        Measure::ClusterRest,
        Measure::ClusterChanges,
        Measure::Cluster,
        Measure::Storage,
        Measure::Streams,
        Measure::Numbers,
        Measure::Followers,
        Measure::Evictions,
        Measure::Resizes,
    ];

    /// What it is called on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Measure::Idle => "idle",
            Measure::Pods => "pods",
            Measure::Relists => "relists",
            Measure::Exits => "exits",
            Measure::Starts => "starts",
            Measure::Crowd => "crowd",
            Measure::Settled => "settled",
            Measure::ManySettled => "many-settled",
            Measure::FewSettled => "few-settled",
            Measure::Translation => "translation",
            Measure::Probes => "probes",
            Measure::ApiServer => "apiserver",
            Measure::ClusterRest => "cluster-rest",
            Measure::ClusterChanges => "cluster-changes",
            Measure::Cluster => "cluster",
            Measure::Storage => "storage",
            Measure::Streams => "streams",
            Measure::Numbers => "numbers",
            Measure::Followers => "followers",
            Measure::Evictions => "evictions",
            Measure::Resizes => "resizes",
        }
    }

    pub(crate) fn description(self) -> &'static str {
        match self {
            Measure::Idle => "the idle agent",
            Measure::Pods => "decoded pods",
            Measure::Relists => "relists",
            Measure::Exits => "exits",
            Measure::Starts => "a pod's start and end",
            Measure::Crowd => "the start and the end of 50 pods",
            Measure::Settled => "500 settled pods",
            Measure::ManySettled => "5,000 settled pods",
            Measure::FewSettled => "200 settled pods on containerd",
            Measure::Translation => "the translation of a pod",
            Measure::Probes => "probes",
            Measure::ApiServer => "the API server",
            Measure::ClusterRest => "a node in a cluster at rest",
            Measure::ClusterChanges => "a node in a cluster whose pods change",
            Measure::Cluster => "pods of a cluster",
            Measure::Storage => "volumes of CSI drivers",
            Measure::Streams => "commands in containers",
            Measure::Numbers => "what it costs to tell what pods use",
            Measure::Followers => "the followers of a log, and what the node's port keeps",
            Measure::Evictions => "evictions",
            Measure::Resizes => "resizes",
        }
    }

    pub(crate) async fn run(self, workspace: &Path, crablet: &Path) -> anyhow::Result<Vec<Figure>> {
        match self {
            Measure::Idle => idle::measure(crablet).await,
            Measure::Pods => pods::measure(workspace).await,
            Measure::Relists => relists::measure(workspace).await,
            Measure::Exits => exits::measure().await,
            Measure::Starts => starts::measure_one(crablet).await,
            Measure::Crowd => starts::measure_crowd(crablet).await,
            Measure::Settled => settled::measure(crablet).await,
            Measure::ManySettled => settled::measure_many(crablet).await,
            Measure::FewSettled => settled::measure_few(crablet).await,
            Measure::Translation => translation::measure(),
            Measure::Probes => probes::measure(crablet).await,
            Measure::ApiServer => api_server::measure(crablet).await,
            Measure::ClusterRest => cluster::at_rest(crablet).await,
            Measure::ClusterChanges => Ok(vec![cluster::changes(crablet).await?]),
            Measure::Cluster => cluster::on_containerd(crablet).await,
            Measure::Storage => storage::measure(crablet).await,
            Measure::Streams => streams::measure(crablet).await,
            Measure::Numbers => numbers::measure(crablet).await,
            Measure::Followers => followers::measure(crablet).await,
            Measure::Evictions => evictions::measure(crablet).await,
            Measure::Resizes => resizes::measure(crablet).await,
        }
    }
}

impl Promise {
    pub(crate) fn limit_in_words(&self) -> String {
        format!("at most {} {}", self.limit, self.unit)
    }
}

impl Figure {
    pub(crate) fn median(&self) -> f64 {
        let mut runs = self.runs.clone();
        runs.sort_by(f64::total_cmp);
        runs.get(runs.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Not a number keeps no promise.
    pub(crate) fn keeps(&self, promise: &Promise) -> bool {
        self.median() <= promise.limit
    }

    pub(crate) fn in_words(&self) -> String {
        let least = self.runs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let unit = PROMISES.iter().find(|promise| promise.id == self.id).map_or("", |promise| promise.unit);
        let median = self.median();
        let spread = match self.runs.len() {
            1 => String::new(),
            runs => format!(" ({least:.2} to {most:.2} in {runs} runs)"),
        };
        let beside = self.beside.as_ref().map_or_else(String::new, |beside| format!("; {beside}"));
        format!("{median:.2} {unit}{spread}{beside}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_decides_and_no_runs_keep_no_promise() {
        let promise = promise("idle-rss", "x", 2.0, "MiB");
        let figure = |runs: &[f64]| Figure { id: "idle-rss", runs: runs.to_vec(), beside: None };
        assert!(figure(&[1.0, 2.0, 9.0]).keeps(&promise));
        assert!(!figure(&[1.0, 2.1, 9.0]).keeps(&promise));
        assert!(!figure(&[]).keeps(&promise));
    }
}
