//! What a client wants of a connection, as its headers say.

use http::HeaderMap;
use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

/// exec and attach, of which a client can close one channel and keep the others.
pub(crate) const V5: &str = "v5.channel.k8s.io";
/// Before the name of a protocol in SPDY that a WebSocket carries.
pub(crate) const TUNNEL: &str = "SPDY/3.1+";
const KUBERNETES: &str = ".k8s.io";

/// Whether another protocol is wanted on this connection.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let mut connection = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    connection.any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

/// Whether it is a WebSocket.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    is_upgrade(headers) && upgrade.is_some_and(|value| value.trim().eq_ignore_ascii_case("websocket"))
}

/// Whether it is a WebSocket in the protocol that runtimes do not speak.
pub fn is_v5(headers: &HeaderMap) -> bool {
    is_websocket(headers) && protocols(headers).any(|protocol| protocol == V5)
}

/// Whether it is a WebSocket that carries SPDY.
pub fn is_tunnel(headers: &HeaderMap) -> bool {
    is_websocket(headers) && tunnelled(headers).next().is_some()
}

/// The protocols in SPDY that a WebSocket is to carry.
pub(crate) fn tunnelled(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    protocols(headers).filter_map(|protocol| {
        protocol.strip_prefix(TUNNEL).filter(|protocol| protocol.ends_with(KUBERNETES))
    })
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn what_is_wanted_is_read_from_the_headers() {
        let plain = headers(&[("upgrade", "websocket")]);
        assert!(!is_upgrade(&plain) && !is_websocket(&plain));
        let spdy = headers(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]);
        assert!(is_upgrade(&spdy) && !is_websocket(&spdy) && !is_v5(&spdy) && !is_tunnel(&spdy));
        let socket = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        let v4 = headers(&[&socket[..], &[("sec-websocket-protocol", "v4.channel.k8s.io")]].concat());
        assert!(is_websocket(&v4) && !is_v5(&v4));
        let v5 = "v5.channel.k8s.io, v4.channel.k8s.io";
        assert!(is_v5(&headers(&[&socket[..], &[("sec-websocket-protocol", v5)]].concat())));
        let tunnel = "SPDY/3.1+portforward.k8s.io,SPDY/3.1+other";
        let tunnel = headers(&[&socket[..], &[("sec-websocket-protocol", tunnel)]].concat());
        assert_eq!(tunnelled(&tunnel).collect::<Vec<_>>(), ["portforward.k8s.io"]);
        assert!(is_tunnel(&tunnel) && !is_v5(&tunnel));
    }
}
