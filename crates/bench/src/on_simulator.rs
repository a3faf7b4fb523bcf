//! An agent with pods on a simulated runtime in another process.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use crablet_testkit::{Daemon, Node, eventually};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use crate::manifest::IMAGE;

/// What no number of pods here takes to start.
const PATIENCE: Duration = Duration::from_secs(600);

/// A simulated runtime in a process of its own. Dropping it ends it.
pub(crate) struct SimulatedRuntime {
    pub(crate) endpoint: String,
    _daemon: Daemon,
    _directory: TempDir,
}

impl SimulatedRuntime {
    pub(crate) async fn start(crablet: &Path) -> anyhow::Result<SimulatedRuntime> {
        let directory = tempfile::tempdir()?;
        let socket = directory.path().join("runtime.sock");
        let endpoint = format!("unix://{}", socket.display());
        let arguments = ["--listen", &endpoint, "--image", IMAGE];
        let program = crablet.with_file_name("crablet-sim-runtime");
        let daemon = Daemon::spawn(&program, arguments, [], &directory.path().join("runtime.log")).await?;
        eventually("the simulated runtime listens", PATIENCE, || UnixStream::connect(&socket)).await?;
        Ok(SimulatedRuntime { endpoint, _daemon: daemon, _directory: directory })
    }
}

/// The runtime, the node and its agent. Dropping it ends all of them.
pub(crate) struct OnSimulator {
    pub(crate) agent: Daemon,
    pub(crate) node: Node,
    _runtime: SimulatedRuntime,
}

impl OnSimulator {
    /// Starts an agent with these manifests, by name, and waits until all pods run.
    pub(crate) async fn start(
        crablet: &Path,
        manifests: impl ExactSizeIterator<Item = (String, String)>,
    ) -> anyhow::Result<OnSimulator> {
        let runtime = SimulatedRuntime::start(crablet).await?;
        let cgroup = format!("/crablet-bench-{}", std::process::id());
        let pods = manifests.len();
        let fields = format!("maxPods: {}\nregistryPullQPS: 0", pods + 1);
        let mut node = Node::new(crablet, &runtime.endpoint, &cgroup, &fields)?;
        for (name, manifest) in manifests {
            node.put(&name, &manifest)?;
        }
        let began = Instant::now();
        let agent = node.start().await?;
        loop {
            let (_, text) = node.get("/pods").await?;
            let running = text.matches("\"phase\":\"Running\"").count();
            if running == pods {
                break;
            }
            if began.elapsed() > PATIENCE {
                bail!("{running} of {pods} pods run:\n{}", agent.log_tail());
            }
            sleep(Duration::from_millis(500)).await;
        }
        println!("    {pods} pods run after {:.1?}", began.elapsed());
        Ok(OnSimulator { agent, node, _runtime: runtime })
    }

    /// Ends the agent.
    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        self.agent.terminate();
        self.agent.wait().await?;
        Ok(())
    }
}
