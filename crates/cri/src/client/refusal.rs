//! What it is that listens, when it is no CRI v1 runtime.

use crablet_cri_api::v1;
use tonic::Code;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;

use crate::client::Client;
use crate::error::Error;

/// The version of CRI that came before, and that nobody speaks any more.
const OLD_VERSION: &str = "/runtime.v1alpha2.RuntimeService/Version";

impl Client {
    /// Whether a failed `Version` means that this is no CRI v1 runtime, and what it is then.
    pub(crate) async fn explain_refusal(&self, error: Error) -> Error {
        let reason = match &error {
            Error::Unsupported { .. } if self.speaks_the_old_version().await => {
                "it speaks only v1alpha2; upgrade the runtime (containerd has v1 from 1.6 on)".to_owned()
            }
            Error::Unsupported { .. } => {
                "it is a gRPC server without runtime.v1.RuntimeService; enable the runtime's CRI (containerd: take \
                 \"cri\" out of disabled_plugins), or set --container-runtime-endpoint to the right socket"
                    .to_owned()
            }
            // Our own side gives these to an answer that is not gRPC's.
            Error::Answer { code: Code::Internal | Code::Unknown, message, .. }
                if message.contains("compression flag") || message.contains("grpc-status") =>
            {
                format!("it does not speak gRPC ({message}); set --container-runtime-endpoint to the socket of the runtime")
            }
            Error::Answer { .. }
            | Error::Deadline { .. }
            | Error::Unreachable { .. }
            | Error::NotCri { .. }
            | Error::TooLarge { .. }
            | Error::Malformed { .. }
            | Error::BadEndpoint { .. }
            | Error::PathTooLong { .. } => return error,
        };
        Error::NotCri { endpoint: self.runtime.name.clone(), reason }
    }

    async fn speaks_the_old_version(&self) -> bool {
        let mut service = Grpc::new(self.runtime.service());
        let call = async {
            service.ready().await.ok()?;
            let codec = tonic_prost::ProstCodec::<v1::VersionRequest, v1::VersionResponse>::default();
            let request = tonic::Request::new(v1::VersionRequest::default());
            service.unary(request, PathAndQuery::from_static(OLD_VERSION), codec).await.ok()
        };
        matches!(tokio::time::timeout(self.settings.timeout, call).await, Ok(Some(_)))
    }
}
