//! The cases on the simulated runtime, on paused time.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use crablet_cri::Client;
use crablet_cri::client::Settings;
use crablet_cri_sim::{self as sim, Image, Simulator};

use crate::cases;
use crate::runner;
use crate::world::{BUSYBOX, DESCRIBED, Host, PAUSE};

#[test]
fn every_case_holds_on_the_simulator() -> Result<()> {
    hold(&sim::Settings::containerd_1_6())
}

#[test]
fn every_case_holds_on_the_simulator_with_the_events_of_cri() -> Result<()> {
    let mut settings = sim::Settings::containerd_1_7();
    settings.capabilities.containerd_events = false;
    hold(&settings)
}

fn hold(settings: &sim::Settings) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut failed = Vec::new();
    for case in runner::chosen(cases::all()) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        failed.extend(runtime.block_on(async {
            let host: Arc<dyn Host> = Arc::new(OnSimulator::new(settings.clone()));
            runner::run(vec![case], 1, &host, directory.path()).await
        }));
    }
    assert!(failed.is_empty(), "these cases failed: {failed:#?}");
    Ok(())
}

struct OnSimulator {
    simulator: Simulator,
    client: Arc<Client>,
}

impl OnSimulator {
    fn new(settings: sim::Settings) -> OnSimulator {
        let described = Image::new(DESCRIBED)
            .user("1000")
            .stop_signal("SIGUSR1")
            .env("GREETING", "hello")
            .entrypoint(["sh", "-c"])
            .cmd(["echo \"$GREETING world\""]);
        let images =
            vec![Image::new(PAUSE).entrypoint(["/pause"]), Image::new(BUSYBOX).cmd(["sh"]), described];
        let sandbox_image = PAUSE.to_owned();
        let settings = sim::Settings { images, sandbox_image, makes_directories: true, ..settings };
        let simulator = Simulator::new(settings);
        let client = Client::in_process("the simulator", simulator.services(), Settings::default());
        OnSimulator { simulator, client: Arc::new(client) }
    }
}

#[async_trait]
impl Host for OnSimulator {
    fn client(&self) -> Arc<Client> {
        self.client.clone()
    }

    fn cgroup_parent(&self) -> String {
        "/crablet-test".to_owned()
    }

    async fn add_image(&self, name: &str, content: &str) -> Result<()> {
        self.simulator.add_image(Image::new(name).content(content).cmd(["sh"]));
        Ok(())
    }

    fn registry(&self) -> String {
        "127.0.0.1:5000".to_owned()
    }

    async fn publish(&self, repository: &str, tag: &str, content: &str) -> Result<()> {
        let name = format!("{}/{repository}:{tag}", self.registry());
        self.simulator.add_to_registry(Image::new(name).content(content).cmd(["sh"]));
        Ok(())
    }

    async fn kill(&self) -> Result<()> {
        self.simulator.die();
        Ok(())
    }

    async fn start_again(&self) -> Result<()> {
        self.simulator.come_back();
        Ok(())
    }
}
