//! The calls that give the address of a streaming server, which the agent itself never makes.

use crablet_cri_api::v1;

use crate::client::Client;
use crate::error::Result;

impl Client {
    /// Where a command in a container can be talked to.
    pub async fn exec(&self, request: v1::ExecRequest) -> Result<String> {
        let mut service = self.runtime_service();
        Ok(self.ask("Exec", service.exec(request)).await?.url)
    }

    /// Where the first process of a container can be talked to.
    pub async fn attach(&self, request: v1::AttachRequest) -> Result<String> {
        let mut service = self.runtime_service();
        Ok(self.ask("Attach", service.attach(request)).await?.url)
    }

    /// Where ports of a sandbox can be reached.
    pub async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String> {
        let mut service = self.runtime_service();
        Ok(self.ask("PortForward", service.port_forward(request)).await?.url)
    }
}
