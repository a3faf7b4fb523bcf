//! One request for manifests, in the clear or by TLS.

use std::fmt;
use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crablet_config::Headers;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use hyper::http::response::Parts;
use hyper::{Request, StatusCode, Uri};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::trust::{TrustError, TrustStore, why_not};

/// How long an answer may take, all of it.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest answer that is read.
const LONGEST_ANSWER: usize = 10 << 20;
/// How often a server may send us on.
const MOST_REDIRECTS: usize = 10;

/// Why an address cannot be asked.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UrlError {
    /// It is no address.
    #[error("is not a URL such as http://host:port/path")]
    Malformed,
    /// Its scheme is none that is known.
    #[error("has the scheme {0:?}; accepted are http and https")]
    Scheme(String),
    /// A header cannot be sent. Its value is not shown: it may be a secret.
    #[error(
        "has a header {0:?} that cannot be sent: its name or its value has characters that no header may have"
    )]
    Header(String),
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("cannot be reached: {0}")]
    Connect(io::Error),
    #[error("cannot be asked by TLS: {0}")]
    Trust(TrustError),
    #[error("{0}")]
    Tls(String),
    #[error("broke off: {0}")]
    BrokenOff(Box<dyn std::error::Error + Send + Sync>),
    #[error("answered {0}")]
    Status(StatusCode),
    #[error("gave an answer of more than {LONGEST_ANSWER} bytes")]
    TooLong,
    #[error("did not answer within {}s", DEADLINE.as_secs())]
    Deadline,
    #[error("sent us on to somewhere else more than {MOST_REDIRECTS} times")]
    Redirects,
    #[error("sent us on to an address that {0}")]
    Redirect(UrlError),
}

/// Where to ask, and with which headers.
pub(super) struct Target {
    address: Address,
    headers: HeaderMap,
    trust: TrustStore,
    /// Who makes TLS connections. Nobody is needed before the first, and then they stay: some hundred certificates are
    /// less to keep than to read for every answer.
    connector: OnceCell<TlsConnector>,
}

/// An address without what could be a secret.
#[derive(Clone, PartialEq, Eq)]
struct Address {
    /// Whose certificate it must show, if it is to be asked by TLS.
    secure: Option<ServerName<'static>>,
    host: String,
    port: u16,
    path: String,
    /// What it says of a user and a password, as a header would.
    login: Option<HeaderValue>,
}

impl Target {
    pub(super) fn new(url: &str, headers: &Headers, trust: TrustStore) -> Result<Target, UrlError> {
        let address = Address::parse(url)?;
        let mut map = HeaderMap::new();
        for (name, values) in &headers.0 {
            let bad = || UrlError::Header(name.to_string());
            let header: HeaderName = name.parse().map_err(|_| bad())?;
            for value in values {
                let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
                value.set_sensitive(true);
                map.append(header.clone(), value);
            }
        }
        // This one says whom we ask, and that is in the address.
        map.remove(HOST);
        Ok(Target { address, headers: map, trust, connector: OnceCell::new() })
    }

    /// The address as it may be logged: without a password and without what follows the question mark.
    pub(super) fn shown(&self) -> String {
        self.address.to_string()
    }

    /// What the server says.
    pub(super) async fn get(&self) -> Result<Vec<u8>, FetchError> {
        timeout(DEADLINE, self.follow()).await.unwrap_or(Err(FetchError::Deadline))
    }

    async fn follow(&self) -> Result<Vec<u8>, FetchError> {
        let mut address = self.address.clone();
        for _ in 0..=MOST_REDIRECTS {
            let headers = if self.may_tell(&address) { self.headers.clone() } else { HeaderMap::new() };
            match self.ask(&address, headers).await? {
                Answer::Content(content) => return Ok(content),
                Answer::Elsewhere(location) => {
                    address = address.join(&location).map_err(FetchError::Redirect)?;
                }
            }
        }
        Err(FetchError::Redirects)
    }

    /// What is meant for one server is not told to another, nor in the clear if it is meant for TLS. Behind another port
    /// is the same server if its certificate says so.
    fn may_tell(&self, other: &Address) -> bool {
        let own = &self.address;
        let is_as_safe = other.secure.is_some() || (own.secure.is_none() && own.port == other.port);
        own.host == other.host && is_as_safe
    }

    async fn ask(&self, address: &Address, headers: HeaderMap) -> Result<Answer, FetchError> {
        let request = request(address, headers)?;
        let host = address.bare_host();
        let stream = TcpStream::connect((host, address.port)).await.map_err(FetchError::Connect)?;
        let Some(name) = address.secure.clone() else { return exchange(stream, request).await };
        let connector = self.connector.get_or_try_init(|| self.read_trust()).await?;
        match connector.connect(name, stream).await {
            Ok(stream) => exchange(stream, request).await,
            Err(error) => Err(FetchError::Tls(why_not(host, &error))),
        }
    }

    /// Lets a disk take its time without holding up anybody else.
    async fn read_trust(&self) -> Result<TlsConnector, FetchError> {
        let trust = self.trust.clone();
        let read = tokio::task::spawn_blocking(move || trust.connector()).await;
        read.map_err(|error| FetchError::BrokenOff(error.into()))?.map_err(FetchError::Trust)
    }
}

enum Answer {
    Content(Vec<u8>),
    Elsewhere(String),
}

fn request(address: &Address, mut headers: HeaderMap) -> Result<Request<Bytes>, FetchError> {
    if let Some(login) = &address.login {
        headers.entry(AUTHORIZATION).or_insert_with(|| login.clone());
    }
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static("crablet"));
    let mut request = Request::get(&address.path)
        .header(HOST, address.authority())
        .body(Bytes::new())
        .map_err(|error| FetchError::BrokenOff(error.into()))?;
    request.headers_mut().extend(headers);
    Ok(request)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    request: Request<Bytes>,
) -> Result<Answer, FetchError> {
    // Nothing but content is read.
    let most = |head: &Parts| if head.status == StatusCode::OK { LONGEST_ANSWER + 1 } else { 0 };
    let answer = crablet_http_exchange::exchange(stream, request, most).await;
    let answer = answer.map_err(|error| FetchError::BrokenOff(error.into()))?;
    let status = answer.status();
    if let (true, Some(location)) = (is_redirect(status), answer.headers().get(LOCATION)) {
        return Ok(Answer::Elsewhere(String::from_utf8_lossy(location.as_bytes()).into_owned()));
    }
    match answer.into_body() {
        _ if status != StatusCode::OK => Err(FetchError::Status(status)),
        content if content.len() > LONGEST_ANSWER => Err(FetchError::TooLong),
        content => Ok(Answer::Content(content)),
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    )
}

impl Address {
    fn parse(url: &str) -> Result<Address, UrlError> {
        let uri: Uri = url.parse().map_err(|_| UrlError::Malformed)?;
        let authority = uri.authority().ok_or(UrlError::Malformed)?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => return Err(UrlError::Scheme(other.to_owned())),
            None => return Err(UrlError::Malformed),
        };
        if authority.host().is_empty() {
            return Err(UrlError::Malformed);
        }
        let login = authority.as_str().rsplit_once('@').and_then(|(user, _)| login(user));
        let mut address = Address {
            secure: None,
            host: authority.host().to_owned(),
            port: authority.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            login,
        };
        if is_secure {
            let name = ServerName::try_from(address.bare_host().to_owned());
            address.secure = Some(name.map_err(|_| UrlError::Malformed)?);
        }
        Ok(address)
    }

    /// The address that a server means when it sends us on from here.
    fn join(&self, location: &str) -> Result<Address, UrlError> {
        if location.contains("://") {
            return Address::parse(location);
        }
        if location.starts_with("//") {
            return Address::parse(&format!("{}:{location}", self.scheme()));
        }
        let path = match (location.starts_with('/'), self.path.split('?').next()) {
            (true, _) | (_, None) => location.to_owned(),
            (false, Some(path)) => {
                format!("{}/{location}", path.rsplit_once('/').map_or("", |(folder, _)| folder))
            }
        };
        let _: Uri = path.parse().map_err(|_| UrlError::Malformed)?;
        Ok(Address { path, ..self.clone() })
    }

    fn authority(&self) -> String {
        match (self.port, &self.secure) {
            (80, None) | (443, Some(_)) => self.host.clone(),
            (port, _) => format!("{}:{port}", self.host),
        }
    }

    fn scheme(&self) -> &'static str {
        if self.secure.is_some() { "https" } else { "http" }
    }

    /// The host without the brackets of an IPv6 address.
    fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }
}

fn login(user: &str) -> Option<HeaderValue> {
    let user = percent_encoding::percent_decode_str(user).collect::<Vec<u8>>();
    let user = if user.contains(&b':') { user } else { [user.as_slice(), b":"].concat() };
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(user))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, query) = match self.path.split_once('?') {
            Some((path, _)) => (path, "?<masked>"),
            None => (self.path.as_str(), ""),
        };
        write!(formatter, "{}://{}{path}{query}", self.scheme(), self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, UrlError> {
        Target::new(url, &Headers::default(), TrustStore::system())
    }

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        for (url, shown) in [
            ("http://a", "http://a/"),
            ("http://a:8080/b/c", "http://a:8080/b/c"),
            ("http://user:s3cret@a/b?token=s3cret", "http://a/b?<masked>"),
            ("http://[::1]:81/", "http://[::1]:81/"),
            ("https://user@a:443/b", "https://a/b"),
            ("https://[::1]:80/", "https://[::1]:80/"),
        ] {
            assert_eq!(target(url).ok().unwrap().shown(), shown);
        }
    }

    #[test]
    fn an_address_that_cannot_be_asked_says_why() {
        for (url, error) in [
            ("ftp://a/b", UrlError::Scheme("ftp".into())),
            ("/a/b", UrlError::Malformed),
            ("a", UrlError::Malformed),
            ("", UrlError::Malformed),
            ("http://", UrlError::Malformed),
            ("http://a b/", UrlError::Malformed),
            ("https://a..b/", UrlError::Malformed),
        ] {
            assert_eq!(target(url).err().unwrap(), error, "{url}");
        }
        let headers = Headers([("X-A".into(), vec!["a\nb: s3cret".into()])].into());
        let error = Target::new("http://a", &headers, TrustStore::system()).err().unwrap().to_string();
        assert!(error.contains("X-A") && !error.contains("s3cret"), "{error}");
    }

    #[test]
    fn a_redirect_leads_where_a_browser_would_go() {
        let from = Address::parse("http://u:p@a:81/x/y?z").ok().unwrap();
        for (location, to) in [
            ("http://b/c", "http://b/c"),
            ("/c", "http://a:81/c"),
            ("c", "http://a:81/x/c"),
            ("c?d", "http://a:81/x/c?<masked>"),
            ("https://b/c", "https://b/c"),
            ("//b/c", "http://b/c"),
        ] {
            assert_eq!(from.join(location).ok().unwrap().to_string(), to);
        }
        let secure = Address::parse("https://a:82/x").ok().unwrap();
        assert_eq!(secure.join("//b:82/c").ok().unwrap().to_string(), "https://b:82/c");
        assert!(from.join("http://b/").ok().unwrap().login.is_none());
    }

    #[test]
    fn headers_are_told_to_the_same_host_alone_and_never_less_safely() {
        for (from, to, may) in [
            ("http://a/", "http://a/b", true),
            ("http://a/", "http://a:81/", false),
            ("http://a/", "http://b/", false),
            ("http://a/", "https://a/", true),
            ("http://a/", "https://b/", false),
            ("https://a/", "https://a:444/", true),
            ("https://a/", "http://a/", false),
            ("https://a:80/", "http://a/", false),
        ] {
            let other = Address::parse(to).ok().unwrap();
            assert_eq!(target(from).ok().unwrap().may_tell(&other), may, "{from} {to}");
        }
    }

    #[test]
    fn a_login_is_sent_as_a_header() {
        assert_eq!(login("user:p%40ss").unwrap(), "Basic dXNlcjpwQHNz");
        assert_eq!(login("user").unwrap(), "Basic dXNlcjo=");
    }
}
