//! Proxies on the way to a server: which one, and how to get through it.

use std::fmt;
use std::io;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::endpoint::{Endpoint, EndpointError, parse};
use crate::secret::Secret;

/// How much a proxy may say before it lets somebody through.
const LONGEST_HEAD: usize = 16 << 10;

/// What the environment says of proxies, as `HTTPS_PROXY` and its kin.
#[derive(Clone, Debug, Default)]
pub struct ProxyEnvironment {
    pub https_proxy: Option<Secret>,
    pub http_proxy: Option<Secret>,
    pub no_proxy: String,
}

impl ProxyEnvironment {
    /// What the environment of this process says.
    pub fn of_process() -> ProxyEnvironment {
        let variable = |name: &str| {
            let values = [name.to_uppercase(), name.to_lowercase()];
            values.iter().filter_map(|name| std::env::var(name).ok()).find(|value| !value.is_empty())
        };
        ProxyEnvironment {
            https_proxy: variable("https_proxy").map(Secret::from),
            http_proxy: variable("http_proxy").map(Secret::from),
            no_proxy: variable("no_proxy").unwrap_or_default(),
        }
    }

    /// The proxy to a server, if there is to be one.
    pub(crate) fn to(&self, server: &Endpoint) -> Result<Option<Proxy>, EndpointError> {
        let url = if server.is_tls() { &self.https_proxy } else { &self.http_proxy };
        match url {
            Some(url) if !self.excepts(server) => Proxy::parse(url.expose()).map(Some),
            Some(_) | None => Ok(None),
        }
    }

    /// By Go's rules.
    fn excepts(&self, server: &Endpoint) -> bool {
        let host = server.host.to_lowercase();
        let address: Option<IpAddr> = host.parse().ok();
        if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
            return true;
        }
        self.no_proxy.split([',', ' ']).map(|rule| rule.trim().to_lowercase()).any(|rule| {
            if rule == "*" {
                return true;
            }
            if let (Some(address), Some((network, bits))) = (address, rule.split_once('/')) {
                return is_within(address, network, bits);
            }
            let (name, port) = match rule.parse::<IpAddr>() {
                Ok(_) => (rule.as_str(), None),
                Err(_) => match rule.rsplit_once(':') {
                    Some((name, port)) => (name.trim_matches(['[', ']']), Some(port)),
                    None => (rule.as_str(), None),
                },
            };
            if name.is_empty() || port.is_some_and(|port| port.parse() != Ok(server.port)) {
                return false;
            }
            if let Some(address) = address {
                return name.parse() == Ok(address);
            }
            match name.strip_prefix('*').unwrap_or(name).strip_prefix('.') {
                Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
                None => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
            }
        })
    }
}

/// Whether an address begins with as many bits as a network does.
fn is_within(address: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    let differing = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => (address.to_bits() ^ network.to_bits()).leading_zeros(),
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.to_bits() ^ network.to_bits()).leading_zeros(),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    differing >= bits
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) endpoint: Endpoint,
    user: Option<(String, Secret)>,
}

/// Without the password.
impl fmt::Display for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(formatter)
    }
}

/// Why a proxy does not let us through.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it says {0}")]
    Refused(String),
    #[error("what it says is not of its protocol")]
    Malformed,
}

impl Proxy {
    pub(crate) fn parse(url: &str) -> Result<Proxy, EndpointError> {
        let uri = parse(url, "http")?;
        let endpoint =
            Endpoint::of(&uri, &[("http", 80), ("https", 443), ("socks5", 1080), ("socks5h", 1080)])
                .ok_or(EndpointError::Scheme("http, https, socks5, socks5h"))?;
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let user = authority.rsplit_once('@').map(|(user, _)| {
            let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            (decoded(name), Secret::from(decoded(password)))
        });
        Ok(Proxy { endpoint, user })
    }

    /// Asks it, over a connection to it, for one to a server.
    pub(crate) async fn pass<S>(&self, stream: &mut S, server: &Endpoint) -> Result<(), ProxyError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match self.endpoint.scheme.starts_with("socks") {
            true => self.pass_socks(stream, server).await,
            false => self.pass_http(stream, server).await,
        }
    }

    async fn pass_http<S>(&self, stream: &mut S, server: &Endpoint) -> Result<(), ProxyError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let authority = server.authority();
        let authorization = self.user.as_ref().map(|(name, password)| {
            let user = STANDARD.encode(format!("{name}:{}", password.expose()));
            format!("Proxy-Authorization: Basic {user}\r\n")
        });
        let request = format!(
            "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{}\r\n",
            authorization.unwrap_or_default()
        );
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        let mut head = Vec::new();
        // Byte by byte, since what comes after the head is the server's.
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == LONGEST_HEAD {
                return Err(ProxyError::Malformed);
            }
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head);
        let status = head.lines().next().unwrap_or_default();
        match status.split_once(' ') {
            Some((version, status)) if version.starts_with("HTTP/1.") => match status.starts_with("200") {
                true => Ok(()),
                false => Err(ProxyError::Refused(status.chars().take(100).collect())),
            },
            Some(_) | None => Err(ProxyError::Malformed),
        }
    }

    async fn pass_socks<S>(&self, stream: &mut S, server: &Endpoint) -> Result<(), ProxyError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        const VERSION: u8 = 5;
        const NO_PROOF: u8 = 0;
        const PASSWORD: u8 = 2;
        let text = |text: &str| match u8::try_from(text.len()) {
            Ok(length) => Ok([&[length], text.as_bytes()].concat()),
            Err(_) => Err(ProxyError::Refused("nothing: a name or password is too long for it".to_owned())),
        };
        let offered = if self.user.is_some() { PASSWORD } else { NO_PROOF };
        stream.write_all(&[VERSION, 1, offered]).await?;
        stream.flush().await?;
        let mut chosen = [0; 2];
        stream.read_exact(&mut chosen).await?;
        if chosen != [VERSION, offered] {
            return Err(ProxyError::Refused("that it needs to know who asks, in another way".to_owned()));
        }
        if let Some((name, password)) = &self.user {
            let proof = [&[1][..], &text(name)?, &text(password.expose())?].concat();
            stream.write_all(&proof).await?;
            stream.flush().await?;
            let mut taken = [0; 2];
            stream.read_exact(&mut taken).await?;
            if taken[1] != 0 {
                return Err(ProxyError::Refused("that the user or the password is wrong".to_owned()));
            }
        }
        // The name goes as it is: the proxy looks it up.
        const CONNECT_TO_NAME: [u8; 4] = [VERSION, 1, 0, 3];
        let request = [&CONNECT_TO_NAME[..], &text(&server.host)?, &server.port.to_be_bytes()].concat();
        stream.write_all(&request).await?;
        stream.flush().await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        if answer[0] != VERSION {
            return Err(ProxyError::Malformed);
        }
        if answer[1] != 0 {
            return Err(ProxyError::Refused(format!("no, with the code {}", answer[1])));
        }
        let address = match answer[3] {
            1 => 4,
            3 => usize::from(stream.read_u8().await?),
            4 => 16,
            _ => return Err(ProxyError::Malformed),
        };
        let mut bound = vec![0; address + 2];
        stream.read_exact(&mut bound).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    fn server(url: &str) -> Endpoint {
        Endpoint::of_server(url, "https").unwrap()
    }

    #[test]
    fn some_servers_are_not_behind_the_proxy() {
        let rules =
            "example.com, .inner.org,192.0.2.0/24,198.51.100.7,*.star.net,ports.com:6443,2001:db8::/32";
        let environment = ProxyEnvironment {
            https_proxy: Some("proxy:3128".into()),
            http_proxy: None,
            no_proxy: rules.to_owned(),
        };
        for (url, expected) in [
            ("https://elsewhere.com", true),
            ("https://example.com:6443", false),
            ("https://a.Example.com", false),
            ("https://badexample.com", true),
            ("https://inner.org", true),
            ("https://a.inner.org", false),
            ("https://192.0.2.200:6443", false),
            ("https://192.0.3.1", true),
            ("https://198.51.100.7", false),
            ("https://a.star.net", false),
            ("https://ports.com:6443", false),
            ("https://ports.com:443", true),
            ("https://[2001:db8:1::1]:6443", false),
            ("https://[2001:db9::1]:6443", true),
            ("https://localhost:6443", false),
            ("https://127.0.0.1:6443", false),
            ("http://elsewhere.com", false),
        ] {
            assert_eq!(environment.to(&server(url)).unwrap().is_some(), expected, "{url}");
        }
        let everything = ProxyEnvironment { no_proxy: "*".to_owned(), ..environment };
        assert!(everything.to(&server("https://elsewhere.com")).unwrap().is_none());
    }

    /// What somebody says to a proxy that answers with this.
    async fn pass(url: &str, answers: &[&[u8]]) -> (Result<(), String>, Vec<u8>) {
        let proxy = Proxy::parse(url).unwrap();
        let (mut ours, mut theirs) = duplex(1 << 16);
        theirs.write_all(&answers.concat()).await.unwrap();
        let passed = proxy.pass(&mut ours, &server("https://k.example:6443")).await;
        drop(ours);
        let mut said = Vec::new();
        theirs.read_to_end(&mut said).await.unwrap();
        (passed.map_err(|error| error.to_string()), said)
    }

    #[tokio::test]
    async fn an_http_proxy_is_asked_to_connect() {
        let (passed, said) = pass("http://me:p%40ss@proxy", &[b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"]).await;
        assert_eq!(passed, Ok(()));
        assert_eq!(
            String::from_utf8(said).unwrap(),
            "CONNECT k.example:6443 HTTP/1.1\r\nHost: k.example:6443\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n"
        );
        let (passed, _) =
            pass("http://proxy", &[b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"]).await;
        assert_eq!(passed, Err("it says 407 Proxy Authentication Required".to_owned()));
        let (passed, _) = pass("http://proxy", &[b"220 mail ESMTP\r\n\r\n"]).await;
        assert_eq!(passed, Err("what it says is not of its protocol".to_owned()));
    }

    #[tokio::test]
    async fn a_socks_proxy_is_asked_to_connect() {
        let bound = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let (passed, said) = pass("socks5://proxy", &[&[5, 0], &bound]).await;
        assert_eq!(passed, Ok(()));
        let request = [&[5, 1, 0, 5, 1, 0, 3, 9][..], b"k.example", &6443_u16.to_be_bytes()].concat();
        assert_eq!(said, request);
        let (passed, said) = pass("socks5h://me:hunter2@proxy", &[&[5, 2], &[1, 0], &bound]).await;
        assert_eq!(passed, Ok(()));
        assert!(said.starts_with(b"\x05\x01\x02\x01\x02me\x07hunter2\x05\x01\x00\x03"));
        let (passed, _) = pass("socks5://proxy", &[&[5, 0], &[5, 4, 0, 1]]).await;
        assert_eq!(passed, Err("it says no, with the code 4".to_owned()));
    }
}
