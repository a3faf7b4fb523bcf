//! Where a server is, or a proxy.

use std::fmt;
use std::net::IpAddr;

use http::Uri;

/// A server by its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Such as `https`, in small letters.
    pub(crate) scheme: Box<str>,
    /// A name or an address, without brackets.
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
    /// What all paths begin with; without a slash at its end.
    pub(crate) prefix: Box<str>,
}

/// Why a URL is none. It does not say what was there instead: that may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("expected a URL such as https://192.0.2.1:6443")]
    Malformed,
    #[error("expected a URL that begins with one of: {0}")]
    Scheme(&'static str),
    #[error("a user or a password has no place in this URL")]
    User,
}

impl Endpoint {
    /// A server's URL. client-go takes one without a scheme, which is then `default_scheme`.
    pub(crate) fn of_server(url: &str, default_scheme: &str) -> Result<Endpoint, EndpointError> {
        let uri = parse(url, default_scheme)?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(EndpointError::User);
        }
        let endpoint = Endpoint::of(&uri, &[("https", 443), ("http", 80)]);
        endpoint.ok_or(EndpointError::Scheme("https, http"))
    }

    /// Where a URI leads, if it has one of these schemes.
    pub(crate) fn of(uri: &Uri, schemes: &[(&str, u16)]) -> Option<Endpoint> {
        let scheme = uri.scheme_str()?.to_lowercase();
        let (_, default_port) = schemes.iter().find(|(known, _)| *known == scheme)?;
        let host = uri.host()?.trim_matches(['[', ']']);
        Some(Endpoint {
            scheme: scheme.into(),
            host: host.into(),
            port: uri.port_u16().unwrap_or(*default_port),
            prefix: uri.path().trim_end_matches('/').into(),
        })
    }

    pub(crate) fn is_tls(&self) -> bool {
        &*self.scheme == "https"
    }

    /// Host and port, as in a URL.
    pub(crate) fn authority(&self) -> String {
        match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(_)) => format!("[{}]:{}", self.host, self.port),
            Ok(IpAddr::V4(_)) | Err(_) => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}{}", self.scheme, self.authority(), self.prefix)
    }
}

pub(crate) fn parse(url: &str, default_scheme: &str) -> Result<Uri, EndpointError> {
    let with_scheme = match url.contains("://") {
        true => url.to_owned(),
        false => format!("{default_scheme}://{url}"),
    };
    let uri: Uri = with_scheme.parse().map_err(|_| EndpointError::Malformed)?;
    let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
    let place = authority.rsplit('@').next().unwrap_or_default();
    // What is no port is not found to be wrong before somebody asks for it.
    let port = uri.host().filter(|host| !host.is_empty()).and_then(|host| place.strip_prefix(host));
    let is_whole = match port {
        Some("") => true,
        Some(port) => port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok()),
        None => false,
    };
    match is_whole && uri.query().is_none() {
        true => Ok(uri),
        false => Err(EndpointError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_by_its_url() {
        for (url, expected) in [
            ("https://192.0.2.1:6443", Ok("https://192.0.2.1:6443")),
            ("HTTPS://Example.com/", Ok("https://Example.com:443")),
            (
                "https://[2001:db8::1]:6443/k8s/clusters/c-1/",
                Ok("https://[2001:db8::1]:6443/k8s/clusters/c-1"),
            ),
            ("http://localhost", Ok("http://localhost:80")),
            ("example.com:6443", Ok("https://example.com:6443")),
            ("example.com/prefix", Ok("https://example.com:443/prefix")),
            ("unix:///run/x", Err(EndpointError::Malformed)),
            ("ftp://a", Err(EndpointError::Scheme("https, http"))),
            ("https://me:hunter2@a", Err(EndpointError::User)),
            ("https://a:port", Err(EndpointError::Malformed)),
            ("", Err(EndpointError::Malformed)),
        ] {
            let endpoint = Endpoint::of_server(url, "https").map(|endpoint| endpoint.to_string());
            assert_eq!(endpoint, expected.map(str::to_owned), "{url}");
        }
    }
}
