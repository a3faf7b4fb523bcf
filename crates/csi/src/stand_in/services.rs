//! The services of the stand-in.

use std::future::Future;
use std::sync::Arc;

use prost::Message;
use tonic::{Request, Response, Status, async_trait};

use super::fault::Moment;
use super::recording::Entry;
use super::{Effects, Inner};
use crate::registration::registration_server::Registration;
use crate::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use crate::v1;
use crate::v1::identity_server::Identity;
use crate::v1::node_server::Node;

#[derive(Clone)]
pub(super) struct Services(pub(super) Arc<Inner>);

impl Services {
    /// Writes a call down, lets it take effect, and answers, unless something else is planned.
    async fn answer<Question: Message, Answer: Message>(
        &self,
        call: &'static str,
        request: Request<Question>,
        effect: impl Future<Output = Result<Answer, Status>> + Send,
    ) -> Result<Response<Answer>, Status> {
        let entry = Entry::new(&self.0, call, request.metadata(), request.get_ref());
        let answer = self.act(call, effect).await;
        entry.finish(answer.as_ref());
        answer.map(Response::new)
    }

    async fn act<Answer>(
        &self,
        call: &'static str,
        effect: impl Future<Output = Result<Answer, Status>> + Send,
    ) -> Result<Answer, Status> {
        let method = call.split_once('.').map_or(call, |(_, method)| method);
        let fault = self.0.next_fault(method);
        let trouble =
            |moment| fault.as_ref().filter(|fault| fault.moment == moment).map(|fault| &fault.trouble);
        if let Some(trouble) = trouble(Moment::BeforeEffect) {
            self.0.suffer(trouble).await?;
        }
        let answer = effect.await?;
        if let Some(trouble) = trouble(Moment::AfterEffect) {
            self.0.suffer(trouble).await?;
        }
        Ok(answer)
    }

    fn effects(&self) -> &dyn Effects {
        &*self.0.effects
    }
}

#[async_trait]
impl Registration for Services {
    async fn get_info(&self, request: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        let effect = async {
            let own = self.0.sockets().as_ref().map(|sockets| sockets.driver.display().to_string());
            let settings = self.0.settings();
            Ok(PluginInfo {
                r#type: settings.kind.clone(),
                name: settings.name.clone(),
                endpoint: settings.endpoint.clone().or(own).unwrap_or_default(),
                supported_versions: settings.supported_versions.clone(),
            })
        };
        self.answer("Registration.GetInfo", request, effect).await
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let effect = async { Ok(RegistrationStatusResponse {}) };
        self.answer("Registration.NotifyRegistrationStatus", request, effect).await
    }
}

#[async_trait]
impl Identity for Services {
    async fn get_plugin_info(
        &self,
        request: Request<v1::GetPluginInfoRequest>,
    ) -> Result<Response<v1::GetPluginInfoResponse>, Status> {
        let effect = async {
            let name = self.0.settings().name.clone();
            Ok(v1::GetPluginInfoResponse {
                name,
                vendor_version: "1".to_owned(),
                ..v1::GetPluginInfoResponse::default()
            })
        };
        self.answer("Identity.GetPluginInfo", request, effect).await
    }

    async fn get_plugin_capabilities(
        &self,
        request: Request<v1::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<v1::GetPluginCapabilitiesResponse>, Status> {
        let effect = async { Ok(v1::GetPluginCapabilitiesResponse::default()) };
        self.answer("Identity.GetPluginCapabilities", request, effect).await
    }

    async fn probe(&self, request: Request<v1::ProbeRequest>) -> Result<Response<v1::ProbeResponse>, Status> {
        // An answer without a word means that it is ready.
        let effect = async { Ok(v1::ProbeResponse::default()) };
        self.answer("Identity.Probe", request, effect).await
    }
}

#[async_trait]
impl Node for Services {
    async fn node_get_info(
        &self,
        request: Request<v1::NodeGetInfoRequest>,
    ) -> Result<Response<v1::NodeGetInfoResponse>, Status> {
        let effect = async {
            let settings = self.0.settings();
            Ok(v1::NodeGetInfoResponse {
                node_id: settings.node_id.clone(),
                max_volumes_per_node: settings.max_volumes_per_node,
                accessible_topology: settings.topology.clone().map(|segments| v1::Topology { segments }),
            })
        };
        self.answer("Node.NodeGetInfo", request, effect).await
    }

    async fn node_get_capabilities(
        &self,
        request: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<v1::NodeGetCapabilitiesResponse>, Status> {
        let effect = async {
            let rpc = |capability: &super::Capability| v1::NodeServiceCapability {
                r#type: Some(v1::node_service_capability::Type::Rpc(v1::node_service_capability::Rpc {
                    r#type: (*capability).into(),
                })),
            };
            let capabilities = self.0.settings().capabilities.iter().map(rpc).collect();
            Ok(v1::NodeGetCapabilitiesResponse { capabilities })
        };
        self.answer("Node.NodeGetCapabilities", request, effect).await
    }

    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Result<Response<v1::NodeStageVolumeResponse>, Status> {
        let question = request.get_ref().clone();
        let effect = async {
            self.effects().stage(&question).await?;
            Ok(v1::NodeStageVolumeResponse {})
        };
        self.answer("Node.NodeStageVolume", request, effect).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Result<Response<v1::NodeUnstageVolumeResponse>, Status> {
        let question = request.get_ref().clone();
        let effect = async {
            self.effects().unstage(&question).await?;
            Ok(v1::NodeUnstageVolumeResponse {})
        };
        self.answer("Node.NodeUnstageVolume", request, effect).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Result<Response<v1::NodePublishVolumeResponse>, Status> {
        let question = request.get_ref().clone();
        let effect = async {
            self.effects().publish(&question).await?;
            Ok(v1::NodePublishVolumeResponse {})
        };
        self.answer("Node.NodePublishVolume", request, effect).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<v1::NodeUnpublishVolumeResponse>, Status> {
        let question = request.get_ref().clone();
        let effect = async {
            self.effects().unpublish(&question).await?;
            Ok(v1::NodeUnpublishVolumeResponse {})
        };
        self.answer("Node.NodeUnpublishVolume", request, effect).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<v1::NodeGetVolumeStatsResponse>, Status> {
        let effect = async { Ok(self.0.settings().stats.clone()) };
        self.answer("Node.NodeGetVolumeStats", request, effect).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<v1::NodeExpandVolumeRequest>,
    ) -> Result<Response<v1::NodeExpandVolumeResponse>, Status> {
        let question = request.get_ref().clone();
        let effect = async {
            let capacity_bytes = self.effects().expand(&question).await?;
            Ok(v1::NodeExpandVolumeResponse { capacity_bytes })
        };
        self.answer("Node.NodeExpandVolume", request, effect).await
    }
}
