//! The pod resources service, on `<root-dir>/pod-resources/kubelet.sock`: which devices, CPUs and memory of the node
//! containers have for themselves, for agents that watch devices.
//!
//! - [`serve`] runs it on a listener until it is told to stop. It answers from the statuses of the agent.
//! - `lister` has the answers; `limit` turns away who asks more often than a hundred times a second.
//!
//! No container has anything of the node for itself yet: there are neither device plugins nor policies that give out
//! CPUs or memory. So the lists of what containers have are empty, as those of upstream's kubelet are with the policies
//! `none`.

mod limit;
mod lister;
mod metrics;

/// The messages and services.
pub mod proto {
    #[allow(missing_docs, clippy::all, clippy::pedantic, reason = "made from the protocol's statement")]
    pub mod v1 {
        tonic::include_proto!("v1");
    }
    #[allow(missing_docs, clippy::all, clippy::pedantic, reason = "made from the protocol's statement")]
    pub mod v1alpha1 {
        tonic::include_proto!("v1alpha1");
    }
}

use crablet_agent::statuses::Statuses;
use crablet_lenient_authority::LenientAuthority;
use crablet_metrics::{RegisterError, Registry};
use tokio::net::UnixListener;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::service::{InterceptorLayer, Routes};
use tonic::transport::Server;

use limit::Limit;
use lister::Lister;
use proto::v1::pod_resources_lister_server::PodResourcesListerServer;
use proto::v1alpha1::pod_resources_lister_server::PodResourcesListerServer as V1Alpha1Server;

/// The folder below the root directory, and the socket in it.
pub const FOLDER: &str = "pod-resources";
pub const SOCKET: &str = "kubelet.sock";

/// How many requests of one connection are answered at a time.
const MOST_STREAMS: u32 = 100;

/// What it answers from.
pub struct PodResources {
    pub statuses: Statuses,
    /// Whether pods that are over are left out (`KubeletPodResourcesListUseActivePods`).
    pub only_active: bool,
}

impl PodResources {
    /// Serves on a listener until `stop`.
    pub fn serve(
        self,
        listener: UnixListener,
        registry: &Registry,
        stop: CancellationToken,
    ) -> Result<impl Future<Output = Result<(), tonic::transport::Error>> + use<>, RegisterError> {
        let lister = Lister::new(self, metrics::Metrics::register(registry)?);
        let limit = Limit::new();
        let services = Routes::new(PodResourcesListerServer::new(lister.clone()))
            .add_service(V1Alpha1Server::new(lister));
        // Who dials a socket by its path may call it by that path too.
        let connections =
            UnixListenerStream::new(listener).map(|connection| connection.map(LenientAuthority::new));
        Ok(Server::builder()
            .max_concurrent_streams(MOST_STREAMS)
            .layer(InterceptorLayer::new(move |request| limit.admit(request)))
            .add_routes(services)
            .serve_with_incoming_shutdown(connections, stop.cancelled_owned()))
    }
}
