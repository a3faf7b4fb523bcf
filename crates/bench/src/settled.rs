//! What an agent costs that has many pods and nothing to do for them, on a simulated runtime in another process.

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use crate::counters::Counters;
use crate::manifest::pod;
use crate::on_simulator::OnSimulator;
use crate::promises::Figure;

const RUNS: usize = 5;
const PODS: usize = 500;
/// What is promised of so many pods is ten times what is promised of [`PODS`].
const MANY_PODS: usize = 5_000;
/// How long it is watched.
const WATCHED: Duration = Duration::from_secs(60);
/// How long it has for what follows the last pod's start: checkpoints, the relist after the hints, and the end of threads
/// that have nothing more to do.
const SETTLING: Duration = Duration::from_secs(15);

pub(crate) async fn measure(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    measure_pods(crablet, PODS, RUNS, ["settled-500-cpu", "settled-500-rss", "settled-500-wakes"]).await
}

/// The same with ten times the pods.
pub(crate) async fn measure_many(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    measure_pods(crablet, MANY_PODS, 1, ["settled-5000-cpu", "settled-5000-rss", "settled-5000-wakes"]).await
}

async fn measure_pods(
    crablet: &Path,
    pods: usize,
    runs: usize,
    ids: [&'static str; 3],
) -> anyhow::Result<Vec<Figure>> {
    let mut figures = ids.map(|id| Figure { id, runs: Vec::new(), beside: None });
    for _ in 0..runs {
        let seen = watch(crablet, pods).await?;
        for (figure, value) in figures.iter_mut().zip([seen.millicores, seen.rss_mib, seen.wakes_a_second]) {
            figure.runs.push(value);
        }
    }
    Ok(figures.into())
}

struct Seen {
    millicores: f64,
    rss_mib: f64,
    wakes_a_second: f64,
}

async fn watch(crablet: &Path, pods: usize) -> anyhow::Result<Seen> {
    let manifests = (0..pods).map(|number| (format!("pod-{number}"), pod(&format!("pod-{number}"))));
    let on_simulator = OnSimulator::start(crablet, manifests).await?;
    let agent = on_simulator.agent.pid();
    // These are the measurement itself: the time in which nothing should happen.
    sleep(SETTLING).await;
    let before = Counters::read(agent)?;
    sleep(WATCHED).await;
    let after = Counters::read(agent)?;
    on_simulator.end().await?;
    let seconds = WATCHED.as_secs_f64();
    Ok(Seen {
        millicores: (after.cpu_ticks - before.cpu_ticks) * 10.0 / seconds,
        rss_mib: after.rss_kib / 1024.0,
        wakes_a_second: after.wakes_since(&before) / seconds,
    })
}
