//! How soon a pod is evicted that eats memory all at once, where the kernel tells of that: with version 1 of cgroups. Once
//! the node's own memory runs short, and once that of all pods together.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use crablet_testkit::{Containerd, Image, eventually};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::cgroups::{is_v1, kubepods, tree};
use crate::cluster::{Cluster, NODE, PODS, is_true};
use crate::promises::Figure;

const RUNS: usize = 7;
/// So much more than must be left is there before a pod eats, and so much it eats.
const TO_SPARE: u64 = 1 << 30;
const EATEN: u64 = 2_000 << 20;
/// How often it is looked whether something is so.
const GLANCE: Duration = Duration::from_millis(1);
/// What nothing here takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn measure(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    if !is_v1()? {
        println!(
            "    not measured: with version 2 of cgroups the kernel does not tell that memory runs short"
        );
        return Ok(Vec::new());
    }
    let containerd = Containerd::start().await?;
    containerd.import(&Image::pause()?).await?;
    containerd.import(&Image::busybox()?).await?;
    let mut ways = Vec::new();
    for shortage in [Shortage::of_node()?, Shortage::of_pods(&containerd.cgroup())?] {
        let runs = shortage.evictions(crablet, &containerd).await?;
        ways.push((shortage.whose, Figure { id: "evict-begun", runs, beside: None }));
    }
    containerd.stop().await?;
    // Both are promised: the slower one is the figure.
    ways.sort_by(|(_, one), (_, other)| one.median().total_cmp(&other.median()));
    let (slower, figure) = ways.pop().context("nothing was measured")?;
    let others = ways.iter().map(|(whose, figure)| format!(", {:.2} of {whose}", figure.median()));
    let beside = format!("of {slower}{}", others.collect::<String>());
    Ok(vec![Figure { beside: Some(beside), ..figure }])
}

/// Memory that comes to run short.
struct Shortage {
    whose: &'static str,
    /// The cgroup that counts it.
    cgroup: PathBuf,
    capacity: u64,
    /// How much must be left.
    threshold: u64,
    /// What the agent is configured with.
    fields: String,
}

impl Shortage {
    fn of_node() -> anyhow::Result<Shortage> {
        let mut shortage = Shortage {
            whose: "the node's memory",
            cgroup: tree("memory")?,
            capacity: memory_total()?,
            threshold: 0,
            fields: String::new(),
        };
        let available = shortage.available()?;
        ensure!(available > 2 * EATEN, "{available} bytes of memory are left, which is too little to eat of");
        shortage.threshold = available - TO_SPARE;
        shortage.fields = hard(shortage.threshold);
        Ok(shortage)
    }

    /// Pods that may have less than the machine has.
    fn of_pods(cgroup: &str) -> anyhow::Result<Shortage> {
        let (threshold, capacity) = (EATEN, EATEN + TO_SPARE);
        let reserved = memory_total()?.checked_sub(capacity).context("the machine has too little memory")?;
        Ok(Shortage {
            whose: "that of all pods",
            cgroup: kubepods("memory", cgroup)?,
            capacity,
            threshold,
            fields: format!("{}\nsystemReserved: {{memory: \"{reserved}\"}}", hard(threshold)),
        })
    }

    /// How long each of several evictions takes to begin, in milliseconds.
    async fn evictions(&self, crablet: &Path, containerd: &Containerd) -> anyhow::Result<Vec<f64>> {
        // What is over is over.
        let fields = format!("{}\nevictionPressureTransitionPeriod: 1s", self.fields);
        let (endpoint, cgroup) = (containerd.endpoint(), containerd.cgroup());
        let mut cluster = Cluster::with_fields(crablet, &endpoint, &cgroup, &fields).await?;
        let (agent, _) = cluster.start().await?;
        let mut runs = Vec::new();
        // The first warms up what all stand on.
        for run in 0..=RUNS {
            eventually("nothing is short", PATIENCE, || self.is_over(&cluster)).await?;
            let name = format!("eats-{run}");
            let took = self.eviction(&mut cluster, &name).await?;
            println!("    {} runs short: {took:.1?} until {name} is evicted", self.whose);
            if run > 0 {
                runs.push(took.as_secs_f64() * 1000.0);
            }
            cluster.delete_pods(&[name]).await?;
        }
        cluster.end(agent).await?;
        Ok(runs)
    }

    /// From the last look that found enough memory to the agent's saying that it evicts the pod.
    async fn eviction(&self, cluster: &mut Cluster, name: &str) -> anyhow::Result<Duration> {
        cluster.connect().await?;
        cluster.connection.create(PODS, eater(name).to_string()).await?;
        let crossed = timeout(PATIENCE, self.crossed()).await;
        let crossed = crossed.with_context(|| format!("the pod does not eat:\n{}", cluster.node.log()))??;
        let evicted = async {
            while !is_evicted(&cluster.node.log(), name) {
                sleep(GLANCE).await;
            }
        };
        timeout(PATIENCE, evicted).await.with_context(|| format!("nobody goes:\n{}", cluster.node.log()))?;
        Ok(crossed.elapsed())
    }

    /// Waits until less is left than must be, and says when that was not so yet.
    async fn crossed(&self) -> anyhow::Result<Instant> {
        let mut enough = Instant::now();
        ensure!(self.available()? >= self.threshold, "it runs short before the pod eats");
        loop {
            let looked = Instant::now();
            if self.available()? < self.threshold {
                return Ok(enough);
            }
            enough = looked;
            sleep(GLANCE).await;
        }
    }

    /// Whether enough is left, and the node says so.
    async fn is_over(&self, cluster: &Cluster) -> anyhow::Result<()> {
        let node = cluster.server.access.connect().await?.get(NODE).await?;
        ensure!(!is_true(&serde_json::from_slice(&node)?, "MemoryPressure"), "the node is under pressure");
        let available = self.available()?;
        ensure!(available > self.threshold + TO_SPARE / 2, "{available} bytes of {} are left", self.whose);
        Ok(())
    }

    /// As upstream counts: what the kernel could take back at any time is available.
    fn available(&self) -> anyhow::Result<u64> {
        let read = |name: &str| {
            let path = self.cgroup.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let usage: u64 = read("memory.usage_in_bytes")?.trim().parse()?;
        let inactive = number(&read("memory.stat")?, "total_inactive_file")?;
        Ok(self.capacity.saturating_sub(usage.saturating_sub(inactive)))
    }
}

fn hard(threshold: u64) -> String {
    format!("evictionHard: {{memory.available: \"{threshold}\"}}")
}

/// A pod that takes all of it within a second, once its start is over, and keeps it: nobody reads what it writes.
fn eater(name: &str) -> Value {
    let eats = format!("sleep 1; dd if=/dev/zero bs={EATEN} count=1 | sleep 100000");
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": {
        "nodeName": "node", "containers": [{
            "name": "main", "image": "crablet.test/busybox:1", "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", eats],
        }],
    }})
}

fn is_evicted(log: &str, name: &str) -> bool {
    let pod = format!("default/{name}\"");
    log.lines().any(|line| line.contains("Evicting a pod") && line.contains(&pod))
}

fn memory_total() -> anyhow::Result<u64> {
    Ok(number(&fs::read_to_string("/proc/meminfo")?, "MemTotal:")? << 10)
}

/// The number that follows a word at the beginning of a line.
fn number(text: &str, name: &str) -> anyhow::Result<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    let mut line =
        lines.find(|words| words.clone().next() == Some(name)).with_context(|| format!("no {name}"))?;
    Ok(line.nth(1).with_context(|| format!("{name} is empty"))?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eviction_is_known_by_its_line_and_its_pod() {
        let line =
            "W1119 05:53:15.123456 7 eviction.rs:1] \"Evicting a pod\" pod=\"default/eats-1\" grace=\"1s\"";
        assert!(is_evicted(line, "eats-1"));
        assert!(!is_evicted(line, "eats"));
        assert!(!is_evicted(&line.replace("Evicting", "Admitting"), "eats-1"));
    }

    #[test]
    fn numbers_are_found_by_whole_words() {
        let text = "inactive_file 7\ntotal_inactive_file 100\nMemTotal:  1048576 kB\n";
        assert_eq!(number(text, "total_inactive_file").unwrap(), 100);
        assert_eq!(number(text, "MemTotal:").unwrap(), 1_048_576);
        assert!(number(text, "inactive").is_err());
    }
}
