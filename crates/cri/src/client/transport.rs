//! How requests reach a runtime, and what was learned about it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint as Destination, Uri};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt as _, service_fn};

use crate::client::endpoint::Endpoint;
use crate::client::operations::Operations;

/// The longest error that is read, in bytes. An error travels as headers, twice, with much of it escaped. What is usual
/// for headers, 16 KiB, is less than some runtimes say of a command that failed.
const LONGEST_ERROR: u32 = 1 << 20;

/// What takes a request and gives its response: a connection to a socket, or services in this process.
pub type Service = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, ConnectionError>;

/// A request that got no response. It has a type of its own because futures over a boxed error cannot be shown to be
/// `Send`.
#[derive(Debug, thiserror::Error)]
#[error("no response")]
pub struct ConnectionError(#[source] BoxError);

/// A way to a runtime.
pub(crate) struct Transport {
    /// What errors call it.
    pub(crate) name: Arc<str>,
    /// The socket, where there is one.
    pub(crate) path: Option<PathBuf>,
    service: Service,
    /// How often a connection was made.
    connections: Arc<AtomicU64>,
    /// The calls that the runtime behind a connection does not have.
    lacking: Mutex<(u64, BTreeSet<&'static str>)>,
    /// Where its calls are counted, if anywhere.
    operations: OnceLock<Arc<Operations>>,
}

impl Transport {
    pub(crate) fn socket(endpoint: Endpoint) -> Transport {
        let connections = Arc::new(AtomicU64::new(0));
        let path = endpoint.path().to_owned();
        let channel = connect_lazily(path.clone(), Arc::clone(&connections));
        Transport {
            name: Arc::clone(&endpoint.name),
            path: Some(path),
            service: Service::new(channel.map_err(|error| ConnectionError(error.into()))),
            connections,
            lacking: Mutex::default(),
            operations: OnceLock::new(),
        }
    }

    pub(crate) fn in_process(name: &str, services: Routes) -> Transport {
        Transport {
            name: name.into(),
            path: None,
            service: Service::new(infallible(services.prepare())),
            connections: Arc::default(),
            lacking: Mutex::default(),
            operations: OnceLock::new(),
        }
    }

    pub(crate) fn service(&self) -> Service {
        self.service.clone()
    }

    /// Has calls counted from now on. Who is counted already stays so.
    pub(crate) fn count(&self, operations: &Arc<Operations>) {
        self.operations.get_or_init(|| Arc::clone(operations));
    }

    pub(crate) fn operations(&self) -> Option<&Operations> {
        self.operations.get().map(Arc::as_ref)
    }

    /// Whether the runtime is known not to have a call.
    pub(crate) fn lacks(&self, method: &str) -> bool {
        let known = self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
        known.0 == self.connections.load(Ordering::Relaxed) && known.1.contains(method)
    }

    /// Remembers that the runtime does not have a call, for as long as the connection lasts: the next one may be to a
    /// newer runtime.
    pub(crate) fn remember_lack_of(&self, method: &'static str) {
        let connection = self.connections.load(Ordering::Relaxed);
        let mut known = self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != connection {
            *known = (connection, BTreeSet::new());
        }
        known.1.insert(method);
    }
}

/// A channel that connects when it is first used, and again after its connection was lost.
fn connect_lazily(path: PathBuf, connections: Arc<AtomicU64>) -> Channel {
    let connector = service_fn(move |_: Uri| {
        let (path, connections) = (path.clone(), Arc::clone(&connections));
        async move {
            let stream = UnixStream::connect(path).await?;
            connections.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    // The address is what the peer sees as `:authority`; the connector does not use it. Windows are larger than the
    // protocol's 64 KiB, so that a long list does not wait for a round trip per 64 KiB.
    Destination::from_static("http://localhost")
        .connect_timeout(Duration::from_secs(5))
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .http2_max_header_list_size(LONGEST_ERROR)
        .connect_with_connector_lazy(connector)
}

/// Routing within the process always gives a response.
fn infallible(
    services: Routes,
) -> impl tower::Service<
    http::Request<Body>,
    Response = http::Response<Body>,
    Error = ConnectionError,
    Future: Send + 'static,
> + Clone
+ Send
+ Sync
+ 'static {
    tower::util::MapErr::new(services, |never: std::convert::Infallible| match never {})
}
