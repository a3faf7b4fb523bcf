//! What the agent costs when nothing happens.

use std::path::Path;
use std::time::Duration;

use crablet_testkit::{Daemon, eventually, unmount_below};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::sleep;

use crate::counters::Counters;
use crate::promises::Figure;

/// How often the agent is started and watched.
const RUNS: usize = 3;
/// How long it is watched: long enough for anything that wakes every ten seconds to show.
const WATCHED: Duration = Duration::from_secs(30);

pub(crate) async fn measure(crablet: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut figures =
        ["idle-rss", "idle-wakes", "idle-cpu"].map(|id| Figure { id, runs: Vec::new(), beside: None });
    for _ in 0..RUNS {
        let seen = watch(crablet).await?;
        for (figure, value) in figures.iter_mut().zip([seen.rss_mib, seen.wakes_a_second, seen.millicores]) {
            figure.runs.push(value);
        }
    }
    Ok(figures.into())
}

struct Seen {
    rss_mib: f64,
    wakes_a_second: f64,
    millicores: f64,
}

/// Starts an agent on a runtime that only listens, lets it settle, and watches it.
async fn watch(crablet: &Path) -> anyhow::Result<Seen> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name);
    let _runtime = UnixListener::bind(path("runtime.sock"))?;
    let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let arguments = [
        format!("--root-dir={}", path("root").display()),
        format!("--container-runtime-endpoint=unix://{}", path("runtime.sock").display()),
        format!("--healthz-port={port}"),
        "--fail-cgroupv1=false".into(),
        "--fail-swap-on=false".into(),
        "--make-iptables-util-chains=false".into(),
    ];
    let mut agent = Daemon::spawn(crablet, arguments, [] as [(&str, &str); 0], &path("log")).await?;
    eventually("the agent to answer health checks", Duration::from_secs(30), || async {
        TcpStream::connect(("127.0.0.1", port)).await.map(|_| ())
    })
    .await?;

    let process = agent.pid();
    let before = Counters::read(process)?;
    // This is the measurement itself: the time in which nothing should happen.
    sleep(WATCHED).await;
    let after = Counters::read(process)?;
    agent.terminate();
    agent.wait().await?;
    unmount_below(directory.path());
    let seconds = WATCHED.as_secs_f64();
    Ok(Seen {
        rss_mib: after.rss_kib / 1024.0,
        wakes_a_second: after.wakes_since(&before) / seconds,
        millicores: (after.cpu_ticks - before.cpu_ticks) * 10.0 / seconds,
    })
}
