//! A connection to where a container listens.

use std::fmt::{self, Display, Formatter};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crablet_core::probes::target::Address;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::resolve::{LookupError, Resolver};

/// Why there is no connection, in the words that Go has for it.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// The name stands for no address.
    Lookup {
        /// The name.
        host: String,
        /// Why.
        reason: LookupError,
    },
    /// Nobody answered in time.
    Timeout {
        /// Who was asked; nothing while the name was looked up.
        address: String,
    },
    /// It was refused.
    Refused {
        /// Who refused it.
        address: String,
        /// How.
        error: io::Error,
    },
}

impl ConnectError {
    /// Whether the time was up.
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, ConnectError::Timeout { .. })
    }
}

impl Display for ConnectError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Lookup { host, reason } => write!(f, "dial tcp: lookup {host}: {reason}"),
            ConnectError::Timeout { address } => write!(f, "dial tcp {address}: i/o timeout"),
            ConnectError::Refused { address, error } => {
                write!(f, "dial tcp {address}: connect: {}", in_go_words(error))
            }
        }
    }
}

/// Opens a connection. Upstream lets its close wait for a second (`SO_LINGER`); here that would hold up the probes of
/// all others.
pub(crate) async fn connect(address: &Address, deadline: Instant) -> Result<TcpStream, ConnectError> {
    let timeout = |_| ConnectError::Timeout { address: address.in_url() };
    let mut last = ConnectError::Lookup { host: address.host.clone(), reason: LookupError::NoSuchHost };
    for ip in timeout_at(deadline, addresses(&address.host)).await.map_err(timeout)?? {
        let to = SocketAddr::new(ip, address.port);
        match timeout_at(deadline, TcpStream::connect(to)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = ConnectError::Refused { address: to.to_string(), error },
            Err(_) => return Err(ConnectError::Timeout { address: to.to_string() }),
        }
    }
    Err(last)
}

async fn addresses(host: &str) -> Result<Vec<IpAddr>, ConnectError> {
    if host.is_empty() {
        return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let found = Resolver::of_node().addresses(host).await;
    found.map_err(|reason| ConnectError::Lookup { host: host.to_owned(), reason })
}

pub(crate) fn in_go_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".into(),
        ErrorKind::ConnectionReset => "connection reset by peer".into(),
        ErrorKind::HostUnreachable => "no route to host".into(),
        ErrorKind::NetworkUnreachable => "network is unreachable".into(),
        ErrorKind::TimedOut => "connection timed out".into(),
        ErrorKind::BrokenPipe => "broken pipe".into(),
        ErrorKind::UnexpectedEof => "EOF".into(),
        _ => error.to_string(),
    }
}
