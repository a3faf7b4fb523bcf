//! What only the node can answer: the request goes on to it as it is, and what it says comes back. Where protocols are
//! switched (exec, attach, port-forward), bytes are passed on in both directions.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crablet_host::keep_alive::keep_alive;
use crablet_x509::AnyServer;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ClientConfig, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsConnector;
use tracing::debug;

use super::api::Api;
use super::body::Body;
use crate::answer::Proxy;
use crate::object;
use crate::pki::Identity;
use crate::resources::NODES;
use crate::status::Refusal;

const CONNECTS_WITHIN: Duration = Duration::from_secs(10);
/// How long a node may take to answer what we ask for ourselves.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// How much of what a node says of a failure is passed on, as upstream.
const LONGEST_MESSAGE: usize = 50_000;
const KUBELET_PORT: u16 = 10_250;
const LOGS: &str = "/containerLogs/";

/// Which addresses of a node are tried: the first of the first kind that there is.
const ADDRESS_TYPES: [&str; 3] = ["InternalIP", "ExternalIP", "Hostname"];

/// What is about one connection alone, and who one is.
const NOT_PASSED_ON: [HeaderName; 8] = [
    header::AUTHORIZATION,
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
];

/// How we speak to nodes.
pub(super) struct NodeClient {
    connector: TlsConnector,
}

impl NodeClient {
    pub(super) fn new(
        identity: &Identity,
        authority: Option<&[u8]>,
        provider: Arc<CryptoProvider>,
    ) -> Result<NodeClient, rustls::Error> {
        let (chain, key) = super::tls::parts(identity)?;
        let verifier: Arc<dyn ServerCertVerifier> = match authority {
            // A node's own certificate is mostly signed by itself, and nobody could tell it from another's.
            None => Arc::new(AnyServer::new(Arc::clone(&provider))),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                let certificates = CertificateDer::pem_slice_iter(authority).filter_map(Result::ok);
                roots.add_parsable_certificates(certificates);
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                    .build()
                    .map_err(|error| rustls::Error::General(error.to_string()))?
            }
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(chain, key)?;
        Ok(NodeClient { connector: TlsConnector::from(Arc::new(config)) })
    }

    async fn connect(
        &self,
        address: &NodeAddress,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
        let name = ServerName::try_from(address.host.clone()).map_err(|error| error.to_string())?;
        let connecting = async {
            let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
            // Keys are typed one by one.
            let _ = stream.set_nodelay(true);
            keep_alive(&stream)?;
            self.connector.connect(name, stream).await
        };
        match tokio::time::timeout(CONNECTS_WITHIN, connecting).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(dial_error(address, &error)),
            Err(_) => Err(format!("dial tcp {address}: i/o timeout")),
        }
    }
}

/// In Go's words, which people look for.
fn dial_error(address: &NodeAddress, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => format!("dial tcp {address}: connect: connection refused"),
        std::io::ErrorKind::HostUnreachable => format!("dial tcp {address}: connect: no route to host"),
        std::io::ErrorKind::NetworkUnreachable => {
            format!("dial tcp {address}: connect: network is unreachable")
        }
        _ => format!("dial tcp {address}: {error}"),
    }
}

/// Where a node's server is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeAddress {
    host: String,
    port: u16,
}

impl std::fmt::Display for NodeAddress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.parse::<IpAddr>() {
            Ok(address) => write!(formatter, "{}", SocketAddr::new(address, self.port)),
            Err(_) => write!(formatter, "{}:{}", self.host, self.port),
        }
    }
}

fn address_of(node: &Value) -> Result<NodeAddress, Refusal> {
    let addresses = object::list(node, &["status", "addresses"]);
    let of_type = |kind: &&str| addresses.iter().find(|address| address["type"] == **kind);
    let Some(host) = ADDRESS_TYPES.iter().find_map(of_type).and_then(|address| address["address"].as_str())
    else {
        let known = addresses.iter().map(|address| {
            format!("{{{} {}}}", object::text(address, &["type"]), object::text(address, &["address"]))
        });
        let known = known.collect::<Vec<_>>().join(" ");
        return Err(unknown(format!("no preferred addresses found; known addresses: [{known}]")));
    };
    let port = &node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
    let port = port.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
    Ok(NodeAddress { host: host.to_owned(), port: port.unwrap_or(KUBELET_PORT) })
}

/// A failure without a reason of the API.
fn unknown(message: String) -> Refusal {
    Refusal::new(500, "", message)
}

pub(super) fn is_upgrade(request: &Request<Incoming>) -> bool {
    let connection = request.headers().get_all(header::CONNECTION).iter();
    let mut words = connection.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    request.headers().contains_key(header::UPGRADE)
        && words.any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
}

/// Asks a node something for ourselves.
pub(super) async fn get(api: &Api, node: &str, path: &str) -> Result<Response<Incoming>, Refusal> {
    let found = api.with(|cluster, _| cluster.state.read(&NODES, "", node));
    let address = address_of(&found.ok_or_else(|| Refusal::not_found(&NODES, node))?)?;
    let asking = async {
        let stream = api.nodes().connect(&address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        let request =
            Request::get(path).header(header::HOST, address.to_string()).body(Full::<Bytes>::default());
        sender
            .send_request(request.map_err(|error| error.to_string())?)
            .await
            .map_err(|error| error.to_string())
    };
    let answered = tokio::time::timeout(ANSWERS_WITHIN, asking).await;
    answered.unwrap_or_else(|_| Err("it does not answer".to_owned())).map_err(unknown)
}

/// Asks the node, and passes on what it says.
pub(super) async fn respond(
    api: &Api,
    target: &Proxy,
    mut request: Request<Incoming>,
    body: Vec<u8>,
    place: OwnedSemaphorePermit,
) -> Result<Response<Body>, Refusal> {
    let node = api.with(|cluster, _| cluster.state.read(&NODES, "", &target.node));
    let node = node.ok_or_else(|| Refusal::not_found(&NODES, &target.node))?;
    let address = address_of(&node)?;
    let is_upgrade = is_upgrade(&request);
    let is_log = target.is_log;
    let failed = |why: String| match (is_upgrade, is_log) {
        (true, _) => unknown(format!("error dialing backend: {why}")),
        (false, true) => unknown(format!("Get \"https://{address}{}\": {why}", target.path)),
        (false, false) => {
            Refusal::new(503, "ServiceUnavailable", format!("error trying to reach service: {why}"))
        }
    };
    let stream = api.nodes().connect(&address).await.map_err(&failed)?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| failed(error.to_string()))?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            debug!(err = %error, "A connection to a node ended badly");
        }
    });
    let client = is_upgrade.then(|| hyper::upgrade::on(&mut request));
    let asked =
        for_the_node(&request, &target.path, &address, body).map_err(|error| failed(error.to_string()))?;
    let mut answered = sender.send_request(asked).await.map_err(|error| failed(error.to_string()))?;
    if answered.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(client) = client
    {
        let node = hyper::upgrade::on(&mut answered);
        tokio::spawn(async move {
            let _place = place;
            let (Ok(client), Ok(node)) = (client.await, node.await) else { return };
            let (mut client, mut node) = (TokioIo::new(client), TokioIo::new(node));
            // Either side may go away at any time.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut node).await;
        });
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = answered.headers().clone();
        return Ok(response);
    }
    if is_log && !matches!(answered.status().as_u16(), 200..=206) {
        return Err(log_refusal(&target.path, answered).await);
    }
    let (parts, incoming) = answered.into_parts();
    let mut response = Response::new(Body::node(incoming, place));
    *response.status_mut() = parts.status;
    *response.headers_mut() = passed_on(&parts.headers, false);
    Ok(response)
}

fn for_the_node(
    request: &Request<Incoming>,
    path: &str,
    address: &NodeAddress,
    body: Vec<u8>,
) -> Result<Request<Full<Bytes>>, http::Error> {
    let mut asked = Request::builder().method(request.method()).uri(path).body(Full::from(body))?;
    *asked.headers_mut() = passed_on(request.headers(), is_upgrade(request));
    asked.headers_mut().insert(header::HOST, HeaderValue::from_str(&address.to_string())?);
    Ok(asked)
}

fn passed_on(headers: &HeaderMap, is_upgrade: bool) -> HeaderMap {
    let is_meant = |name: &HeaderName| {
        !NOT_PASSED_ON.contains(name)
            && !name.as_str().starts_with("impersonate-")
            && (is_upgrade || (*name != header::CONNECTION && *name != header::UPGRADE))
    };
    let meant = headers.iter().filter(|(name, _)| is_meant(name));
    meant.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What a node says of logs that it cannot show, as upstream words it.
async fn log_refusal(path: &str, answered: Response<Incoming>) -> Refusal {
    let code = answered.status().as_u16();
    let said = match Limited::new(answered.into_body(), LONGEST_MESSAGE).collect().await {
        Ok(collected) => String::from_utf8_lossy(&collected.to_bytes()).into_owned(),
        Err(error) => return Refusal::internal(error),
    };
    let pod = path.strip_prefix(LOGS).and_then(|rest| rest.split('/').nth(1)).unwrap_or_default();
    let generic = |reason, message: &str| {
        let mut refusal = Refusal::new(code, reason, format!("{message} ( pods/log {pod})"));
        refusal.details = Some(serde_json::json!({"name": pod, "kind": "pods/log"}));
        refusal
    };
    match code {
        500 => Refusal::internal(said),
        400 => Refusal::bad_request(said),
        404 => generic("NotFound", "the server could not find the requested resource"),
        401 => generic("Unauthorized", "the server has asked for the client to provide credentials"),
        403 => generic("Forbidden", &said),
        405 => generic("MethodNotAllowed", "the server does not allow this method on the requested resource"),
        503 => generic("ServiceUnavailable", "the server is currently unable to handle the request"),
        code if code > 500 => generic(
            "InternalError",
            &format!("an error on the server ({said:?}) has prevented the request from succeeding"),
        ),
        code => generic(
            "",
            &format!("the server responded with the status code {code} but did not return more information"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_found_by_its_addresses_and_port() {
        let address = |kind: &str, address: &str| json!({"type": kind, "address": address});
        for (addresses, port, expected) in [
            (
                vec![address("Hostname", "n1"), address("InternalIP", "10.0.0.1")],
                json!(10350),
                Ok("10.0.0.1:10350"),
            ),
            (vec![address("Hostname", "n1")], Value::Null, Ok("n1:10250")),
            (vec![address("InternalIP", "2001:db8::1")], json!(0), Ok("[2001:db8::1]:10250")),
            (vec![], json!(1), Err("no preferred addresses found; known addresses: []")),
            (
                vec![address("InternalDNS", "n1.local")],
                json!(70000),
                Err("no preferred addresses found; known addresses: [{InternalDNS n1.local}]"),
            ),
        ] {
            let endpoint = json!({"kubeletEndpoint": {"Port": port}});
            let node = json!({"status": {"addresses": addresses, "daemonEndpoints": endpoint}});
            let found =
                address_of(&node).map(|address| address.to_string()).map_err(|refusal| refusal.message);
            assert_eq!(found.as_deref().map_err(String::as_str), expected);
        }
    }
}
