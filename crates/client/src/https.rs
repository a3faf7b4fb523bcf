//! The way to a real server: HTTP/2 over TLS, with requests and watches side by side.
//!
//! ```text
//!   send ─► certificates looked at ─► who one is ─► a place on a connection of the lane ─► answer
//!              (tls)                (authorization)     (connection; made if there is none)
//! ```
//!
//! Connections are made when somebody has to send something and none has a place: none is there, all are full, or those
//! that are there were made with older certificates. Those take nothing new and end when the last answer has.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use crablet_host::clock::Clock;
use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Bytes;
use rustix::net::sockopt;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tracing::debug;

use crate::authorization::{Authorization, AuthorizationError};
use crate::connection::{Bytestream, Chain, Connection, Place, SendError};
use crate::counted::Requests;
use crate::endpoint::{Endpoint, EndpointError};
use crate::kubeconfig::Kubeconfig;
use crate::proxy::{Proxy, ProxyEnvironment, ProxyError};
use crate::tls::{Generation, Tls, TlsError};
use crate::transport::{Body, Lane, Transport, TransportError};

/// How long it may take until a server or a proxy takes a connection, and for a handshake.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);
const HANDSHAKES_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection is silent before the other end is asked for, and how often.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_TRIES: u32 = 3;
/// How many connections there are at most on a lane.
const MOST_CONNECTIONS: usize = 64;
/// How often a request is sent that certainly had no effect.
const MOST_TRIES: usize = 3;

/// The way to a server over the network. Clones are the same one.
#[derive(Clone)]
pub struct Https(Arc<Inner>);

struct Inner {
    server: Endpoint,
    /// The name in the server's certificate.
    name: Option<ServerName<'static>>,
    proxy: Option<Proxy>,
    /// Nothing for a server that speaks without.
    tls: Option<Tls>,
    authorization: Authorization,
    common: Pool,
    heartbeat: Pool,
    /// Where it is counted what it takes to get there, if it is.
    counted: OnceLock<Requests>,
}

/// Why a kubeconfig leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum HttpsError {
    #[error("the URL of the server: {0}")]
    Server(String),
    #[error("the URL of the proxy: {0}")]
    Proxy(String),
    #[error("{0:?} cannot be the name in a server's certificate")]
    Name(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Authorization(#[from] AuthorizationError),
    #[error("a server without TLS cannot be shown a client certificate")]
    NoTls,
}

impl Https {
    /// Reads what the kubeconfig refers to. Nobody is connected to before there is something to send.
    pub fn new(
        config: &Kubeconfig,
        environment: &ProxyEnvironment,
        clock: Clock,
    ) -> Result<Https, HttpsError> {
        let cluster = &config.cluster;
        let server = |error: EndpointError| HttpsError::Server(error.to_string());
        let proxy = |error: EndpointError| HttpsError::Proxy(error.to_string());
        let server = Endpoint::of_server(&cluster.server, config.default_scheme()).map_err(server)?;
        let proxy = match &cluster.proxy_url {
            Some(url) => Some(Proxy::parse(url.expose()).map_err(proxy)?),
            None => environment.to(&server).map_err(proxy)?,
        };
        if proxy.as_ref().is_some_and(|proxy| proxy.endpoint.is_tls()) && !server.is_tls() {
            let why = "a server without TLS is not reached through a proxy with it";
            return Err(HttpsError::Proxy(why.to_owned()));
        }
        let (tls, name, authorization) = match server.is_tls() {
            true => {
                let name = cluster.tls_server_name.as_deref().unwrap_or(&server.host).to_owned();
                let parsed = ServerName::try_from(name.clone()).map_err(|_| HttpsError::Name(name))?;
                let tls = Tls::new(cluster, config.user.client_certificate.as_ref())?;
                (Some(tls), Some(parsed), Authorization::new(config, clock)?)
            }
            // As upstream: who one is, is told to nobody who cannot be known.
            false => (None, None, Authorization::Nothing),
        };
        Ok(Https(Arc::new(Inner {
            server,
            name,
            proxy,
            tls,
            authorization,
            common: Pool::default(),
            heartbeat: Pool::default(),
            counted: OnceLock::new(),
        })))
    }

    /// Where it leads: a name or an address, and a port.
    pub fn host(&self) -> String {
        self.0.server.authority()
    }

    /// Has it counted what it takes to get there; who asks for that first is heard.
    pub fn counted_in(&self, requests: &Requests) {
        let _ = self.0.counted.set(requests.clone());
    }

    /// From now on this certificate, with its key, both in PEM, says who one is. What is under way is not disturbed.
    pub fn set_client_certificate(&self, certificate: &[u8], key: &[u8]) -> Result<(), HttpsError> {
        let tls = self.0.tls.as_ref().ok_or(HttpsError::NoTls)?;
        Ok(tls.set_identity(certificate, key)?)
    }
}

#[async_trait]
impl Transport for Https {
    async fn send(&self, mut request: Request<Bytes>, lane: Lane) -> Result<Response<Body>, TransportError> {
        let inner = &*self.0;
        let url = inner.url(request.uri())?;
        let pool = match lane {
            Lane::Common => &inner.common,
            Lane::Heartbeat => &inner.heartbeat,
        };
        let mut tries = 0;
        loop {
            if let Some(tls) = &inner.tls {
                tls.look().await;
            }
            let authorized = inner.authorization.header(inner.tls.as_ref(), inner.counted.get()).await;
            let authorized = authorized.map_err(TransportError::new)?;
            if let Some(header) = &authorized.header {
                request.headers_mut().insert(AUTHORIZATION, header.clone());
            }
            let place = pool.place(inner).await?;
            tries += 1;
            match place.send(request.clone(), url.clone()).await {
                Ok(answer) => {
                    if answer.status() == StatusCode::UNAUTHORIZED {
                        inner.authorization.refused(&authorized).await;
                    }
                    return Ok(answer);
                }
                Err(SendError::Unsent(error)) if tries < MOST_TRIES => {
                    debug!(err = %error, "A connection ended before a request was sent; another one is used");
                }
                Err(SendError::Unsent(error) | SendError::Failed(error)) => return Err(error),
            }
        }
    }
}

/// The connections of a lane.
#[derive(Default)]
struct Pool {
    connections: Mutex<Vec<Arc<Connection>>>,
    /// Held by who connects, so that not everybody does. When it failed last, and why.
    connecting: tokio::sync::Mutex<Option<(Instant, TransportError)>>,
}

impl Pool {
    async fn place(&self, inner: &Inner) -> Result<Place, TransportError> {
        let arrived = Instant::now();
        if let Some(place) = self.free_place(inner) {
            return Ok(place);
        }
        let mut failed = self.connecting.lock().await;
        if let Some(place) = self.free_place(inner) {
            return Ok(place);
        }
        // Who waited for somebody else's try does not try the same again.
        if let Some((at, error)) = &*failed
            && *at > arrived
        {
            return Err(error.clone());
        }
        if self.lock().len() >= MOST_CONNECTIONS {
            return Err(TransportError::new("all connections are in use"));
        }
        match inner.connect().await {
            Ok(connection) => {
                *failed = None;
                let connection = Arc::new(connection);
                let place = connection.place();
                self.lock().push(connection);
                place.ok_or_else(|| TransportError::new("the server takes no requests"))
            }
            Err(error) => {
                let error = TransportError::new(error);
                *failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// A place on the first connection that has one. Those that are over, outdated or idle beside it are let go of: they
    /// end when the last answer has.
    fn free_place(&self, inner: &Inner) -> Option<Place> {
        let generation = inner.generation_number();
        let mut connections = self.lock();
        connections.retain(|connection| {
            connection.is_open()
                && connection.generation == generation
                && (connection.is_in_use() || !connection.is_doubtful())
        });
        let place = connections.iter().find_map(Connection::place)?;
        connections.retain(|connection| connection.is_in_use());
        Some(place)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error("cannot connect to {address}: {source}")]
    Connect { address: String, source: io::Error },
    #[error("cannot connect to {address} within {} s", CONNECTS_WITHIN.as_secs())]
    ConnectLate { address: String },
    #[error("no TLS with {address}: {source}")]
    Tls { address: String, source: io::Error },
    #[error("no TLS with {address} within {} s", HANDSHAKES_WITHIN.as_secs())]
    TlsLate { address: String },
    #[error("the proxy {proxy} does not connect to {address}: {source}")]
    Proxy { proxy: String, address: String, source: ProxyError },
    #[error("no HTTP with {address}: {why}")]
    Http { address: String, why: String },
    #[error("{0:?} cannot be the name in a proxy's certificate")]
    ProxyName(Box<str>),
}

impl Inner {
    fn generation_number(&self) -> u64 {
        self.tls.as_ref().map_or(0, |tls| tls.current().number)
    }

    fn url(&self, path: &Uri) -> Result<Uri, TransportError> {
        let path = path.path_and_query().map(|path| path.as_str()).unwrap_or("/");
        format!("{}{path}", self.server)
            .parse()
            .map_err(|error: http::uri::InvalidUri| TransportError::new(error))
    }

    async fn connect(&self) -> Result<Connection, ConnectError> {
        let address = self.server.authority();
        let generation = self.tls.as_ref().map(Tls::current);
        let stream = match &self.proxy {
            Some(proxy) => self.dial_through(proxy, generation.as_deref()).await?,
            None => self.dial(&self.server).await?,
        };
        let (stream, is_http2) = match (generation.as_ref(), &self.name) {
            (Some(generation), Some(name)) => {
                let secured = secure(stream, &generation.config, name.clone(), &address).await;
                if let (Err(ConnectError::Tls { .. }), Some(tls)) = (&secured, &self.tls) {
                    tls.doubt();
                }
                secured?
            }
            (Some(_), None) | (None, _) => (stream, false),
        };
        let number = generation.map_or(0, |generation| generation.number);
        let connection = Connection::begin(stream, is_http2, number).await;
        connection.map_err(|error| ConnectError::Http { address, why: Chain(&error).to_string() })
    }

    async fn dial_through(
        &self,
        proxy: &Proxy,
        generation: Option<&Generation>,
    ) -> Result<Box<dyn Bytestream>, ConnectError> {
        let mut stream = self.dial(&proxy.endpoint).await?;
        if proxy.endpoint.is_tls()
            && let Some(generation) = generation
        {
            let mut config = ClientConfig::clone(&generation.config);
            config.alpn_protocols.clear();
            let host = &proxy.endpoint.host;
            let name = ServerName::try_from(host.to_string());
            let name = name.map_err(|_| ConnectError::ProxyName(host.clone()))?;
            (stream, _) = secure(stream, &Arc::new(config), name, &proxy.endpoint.authority()).await?;
        }
        let address = self.server.authority();
        match tokio::time::timeout(CONNECTS_WITHIN, proxy.pass(&mut stream, &self.server)).await {
            Ok(Ok(())) => Ok(stream),
            Ok(Err(source)) => Err(ConnectError::Proxy { proxy: proxy.to_string(), address, source }),
            Err(_) => Err(ConnectError::ConnectLate { address }),
        }
    }

    async fn dial(&self, endpoint: &Endpoint) -> Result<Box<dyn Bytestream>, ConnectError> {
        let address = endpoint.authority();
        let connecting = async {
            let addresses = self.resolve(endpoint).await?;
            TcpStream::connect(&*addresses).await
        };
        match tokio::time::timeout(CONNECTS_WITHIN, connecting).await {
            Ok(Ok(stream)) => {
                tune(&stream);
                Ok(Box::new(stream))
            }
            Ok(Err(source)) => Err(ConnectError::Connect { address, source }),
            Err(_) => Err(ConnectError::ConnectLate { address }),
        }
    }

    /// The addresses of an endpoint. One that is an address itself is not asked for.
    async fn resolve(&self, endpoint: &Endpoint) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = endpoint.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, endpoint.port)]);
        }
        let asked = Instant::now();
        let found = lookup_host((&*endpoint.host, endpoint.port)).await;
        if let Some(counted) = self.counted.get() {
            counted.resolved(&endpoint.host, asked.elapsed());
        }
        Ok(found?.collect())
    }
}

/// What cannot be set does not matter much.
fn tune(stream: &TcpStream) {
    // Requests are small, and nobody wants to wait for the next.
    let _ = stream.set_nodelay(true);
    // HTTP/1.1 has no pings of its own.
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEP_ALIVE);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE);
    let _ = sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE_TRIES);
}

/// The stream within TLS, and whether HTTP/2 is spoken there.
async fn secure(
    stream: Box<dyn Bytestream>,
    config: &Arc<ClientConfig>,
    name: ServerName<'static>,
    address: &str,
) -> Result<(Box<dyn Bytestream>, bool), ConnectError> {
    let address = address.to_owned();
    let connecting = TlsConnector::from(Arc::clone(config)).connect(name, stream);
    match tokio::time::timeout(HANDSHAKES_WITHIN, connecting).await {
        Ok(Ok(stream)) => {
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            Ok((Box::new(stream), is_http2))
        }
        Ok(Err(source)) => Err(ConnectError::Tls { address, source }),
        Err(_) => Err(ConnectError::TlsLate { address }),
    }
}
