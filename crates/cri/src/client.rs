//! A CRI client: the [`Runtime`](crate::Runtime) that asks a real runtime over its socket, or the simulated one
//! within the process.
//!
//! - [`endpoint`]: which socket is meant.
//! - [`transport`]: how requests get there; a lost connection is made again by the next call.
//! - [`call`]: one call with its deadline, and what its failure means.
//! - [`runtime`]: every operation.
//! - [`refusal`]: what it is that listens, when it is no CRI v1 runtime.
//! - [`streaming`]: where commands and ports can be talked to.
//! - [`hints`]: what the runtime tells of its own accord.

mod call;
mod container_config;
mod diagnosis;
mod endpoint;
mod hints;
mod leftover_task;
mod operations;
mod refusal;
mod runtime;
mod streaming;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use crablet_cri_api::v1::image_service_client::ImageServiceClient;
use crablet_cri_api::v1::runtime_service_client::RuntimeServiceClient;

use crablet_metrics::{RegisterError, Registry};
use tonic::service::Routes;

use crate::client::endpoint::Endpoint;
use crate::client::operations::Operations;
use crate::client::transport::{Service, Transport};
use crate::error::Result;

/// How a client asks.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long an answer may take, where nothing else is said: `--runtime-request-timeout`.
    pub timeout: Duration,
    /// How long a pull may take.
    pub pull_timeout: Duration,
    /// The largest answer that is accepted, in bytes.
    pub answer_limit: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            timeout: Duration::from_secs(120),
            pull_timeout: Duration::from_secs(3600),
            answer_limit: 64 * 1024 * 1024,
        }
    }
}

/// A CRI client. Clones share their connection and what they learned about the runtime.
#[derive(Clone)]
pub struct Client {
    runtime: Arc<Transport>,
    images: Arc<Transport>,
    settings: Arc<Settings>,
}

impl Client {
    /// A client of the runtime that listens on a unix socket: `unix:///path`. Nothing is opened yet; the first call
    /// does that, and so does the first one after the connection was lost.
    ///
    /// The images may be kept by somebody else; usually they are not.
    pub fn new(endpoint: &str, image_endpoint: Option<&str>, settings: Settings) -> Result<Client> {
        let runtime = Arc::new(Transport::socket(Endpoint::parse(endpoint)?));
        let images = match image_endpoint {
            Some(other) if other != endpoint => Arc::new(Transport::socket(Endpoint::parse(other)?)),
            Some(_) | None => Arc::clone(&runtime),
        };
        Ok(Client { runtime, images, settings: Arc::new(settings) })
    }

    /// A client of gRPC services within this process, by the name that errors give them. No socket and no task is
    /// involved: a call runs inside its caller, so that runs on paused time replay.
    pub fn in_process(name: &str, services: Routes, settings: Settings) -> Client {
        let transport = Arc::new(Transport::in_process(name, services));
        Client { runtime: Arc::clone(&transport), images: transport, settings: Arc::new(settings) }
    }

    /// Has the calls of this client and its clones counted.
    pub fn count_in(&self, registry: &Registry) -> std::result::Result<(), RegisterError> {
        let operations = Arc::new(Operations::register(registry)?);
        self.runtime.count(&operations);
        self.images.count(&operations);
        Ok(())
    }

    /// The runtime's service itself, for calls that [`Runtime`](crate::Runtime) lacks.
    pub fn runtime_service(&self) -> RuntimeServiceClient<Service> {
        RuntimeServiceClient::new(self.runtime.service())
            .max_decoding_message_size(self.settings.answer_limit)
    }

    /// The same for its images.
    pub fn image_service(&self) -> ImageServiceClient<Service> {
        ImageServiceClient::new(self.images.service()).max_decoding_message_size(self.settings.answer_limit)
    }
}
