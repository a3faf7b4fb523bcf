//! What it costs the agent to tell what 100 pods of two containers use, and the Go kubelet where the variable `GO_KUBELET`
//! names its binary.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use crablet_testkit::{Containerd, Daemon, Image, Node, eventually};
use tokio::time::{Instant, sleep, sleep_until};

use crate::cgroups::tree;
use crate::counters::Counters;
use crate::manifest::pod_of_two;
use crate::promises::Figure;

const PODS: usize = 100;
const CONTAINERS: f64 = 200.0;
/// How often both pages are asked for in a run, and how many runs there are.
const ROUNDS: usize = 10;
const RUNS: usize = 3;
/// For longer than anything that was collected is told again: every answer is a new one.
const APART: Duration = Duration::from_millis(1_100);
/// A scraper asks for all pages this often, so many times in a run.
const SCRAPE_EVERY: Duration = Duration::from_secs(15);
const SCRAPES: u32 = 4;
const PAGES: [&str; 5] =
    ["/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/stats/summary"];
const PATIENCE: Duration = Duration::from_secs(300);
/// The Go kubelet needs this to run without an API server.
const ALONE: &str = "authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}";
const TICK: Duration = Duration::from_millis(10);

/// What is measured beside, where it is at hand: upstream's kubelet of the same version.
const GO_KUBELET: &str = "GO_KUBELET";

pub(crate) async fn measure(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    let ours = Costs::of(crablet).await?;
    let theirs = match std::env::var_os(GO_KUBELET) {
        Some(kubelet) => Some(Costs::of(Path::new(&kubelet)).await?),
        None => None,
    };
    let mut container = Figure { id: "numbers-container", runs: ours.per_container, beside: None };
    let mut beside = format!("{} bytes a scrape", ours.bytes);
    if let Some(theirs) = theirs {
        let per_container = Figure { id: "", runs: theirs.per_container, beside: None }.median();
        container.beside = Some(format!("the Go kubelet: {per_container:.0}"));
        beside = format!("{beside}; the Go kubelet: {:.1}", theirs.millicores);
    }
    let scrape = Figure { id: "numbers-scrape", runs: vec![ours.millicores], beside: Some(beside) };
    Ok(vec![container, scrape])
}

/// What it costs an agent.
struct Costs {
    /// Both large pages, in microseconds a container.
    per_container: Vec<f64>,
    /// All pages, as often as a scraper asks.
    millicores: f64,
    bytes: usize,
}

impl Costs {
    async fn of(agent: &Path) -> anyhow::Result<Costs> {
        let containerd = Containerd::start().await?;
        set_apart(&containerd)?;
        containerd.import(&Image::pause()?).await?;
        let mut node = Node::new(agent, &containerd.endpoint(), &containerd.cgroup(), ALONE)?;
        for number in 0..PODS {
            let name = format!("pod-{number}");
            node.put(&name, &pod_of_two(&name))?;
        }
        let mut agent = node.spawn().await?;
        all_run(&node, &agent, PODS).await?;
        // What comes after a start, and the first samples.
        sleep(Duration::from_secs(5)).await;
        let bytes = ask(&node, &PAGES).await?;
        println!("    all pages: {bytes} bytes");
        let mut per_container = Vec::new();
        for _ in 0..RUNS {
            let took = cpu_of(&agent, async {
                for _ in 0..ROUNDS {
                    for page in ["/metrics/cadvisor", "/stats/summary"] {
                        sleep(APART).await;
                        ask(&node, &[page]).await?;
                    }
                }
                Ok(())
            })
            .await?;
            per_container.push(took.as_secs_f64() * 1e6 / (ROUNDS as f64 * CONTAINERS));
        }
        let began = Instant::now();
        let took = cpu_of(&agent, async {
            for scrape in 1..=SCRAPES {
                ask(&node, &PAGES).await?;
                sleep_until(began + SCRAPE_EVERY * scrape).await;
            }
            Ok(())
        })
        .await?;
        let millicores = took.as_secs_f64() * 1e3 / (SCRAPE_EVERY * SCRAPES).as_secs_f64();
        agent.terminate();
        agent.wait().await?;
        containerd.stop().await?;
        Ok(Costs { per_container, millicores, bytes })
    }
}

/// Waits until so many pods run.
pub(crate) async fn all_run(node: &Node, agent: &Daemon, pods: usize) -> anyhow::Result<()> {
    eventually("all pods run", PATIENCE, || async {
        let known = node.pods().await.map_err(|error| format!("{error:#}\n{}", agent.log_tail()))?;
        let running = known.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        if running == pods { Ok(()) } else { Err(format!("{running} of {pods}")) }
    })
    .await
}

/// Has a runtime, and the shims that it starts, in a cgroup of their own, as a service manager has it. The node's root
/// counts the descriptors of what is in no other.
fn set_apart(containerd: &Containerd) -> anyhow::Result<()> {
    let pid = containerd.pid().context("the runtime runs")?;
    let cgroup = tree("cpu")?.join(containerd.cgroup().trim_start_matches('/')).join("runtime");
    std::fs::create_dir_all(&cgroup)?;
    std::fs::write(cgroup.join("cgroup.procs"), pid.to_string())?;
    Ok(())
}

/// Asks for pages; how many bytes they have.
async fn ask(node: &Node, pages: &[&str]) -> anyhow::Result<usize> {
    let mut bytes = 0;
    for page in pages {
        let (code, body) = node.get(page).await?;
        ensure!(code == 200, "{page}: {code} {body}");
        bytes += body.len();
    }
    Ok(bytes)
}

/// The CPU time that the agent took while something was done.
async fn cpu_of(agent: &Daemon, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<Duration> {
    let before = Counters::read(agent.pid())?;
    work.await?;
    let after = Counters::read(agent.pid())?;
    Ok(TICK.mul_f64(after.cpu_ticks - before.cpu_ticks))
}
