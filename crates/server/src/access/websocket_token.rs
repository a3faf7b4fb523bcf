//! A token that comes as one of the protocols that a WebSocket client speaks: browsers can set no other header.

use axum::http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use axum::http::{HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// There is such a protocol, and it is none that can be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The token, if there is one. Another protocol must stand beside it, which can be agreed upon.
pub(super) fn websocket_token(headers: &HeaderMap) -> Result<Option<String>, Malformed> {
    if !is_websocket(headers) {
        return Ok(None);
    }
    let mut tokens = protocols(headers).filter_map(|protocol| protocol.strip_prefix(PREFIX));
    let (Some(token), None) = (tokens.next(), tokens.next()) else {
        return match protocols(headers).any(|protocol| protocol.starts_with(PREFIX)) {
            true => Err(Malformed),
            false => Ok(None),
        };
    };
    let decoded = URL_SAFE_NO_PAD.decode(token).map_err(|_| Malformed)?;
    let token = String::from_utf8(decoded).map_err(|_| Malformed)?;
    match token.is_empty() || others(headers).next().is_some() {
        true => Ok(Some(token).filter(|token| !token.is_empty())),
        false => Err(Malformed),
    }
}

/// Takes the token away: nobody behind the guard needs it.
pub(super) fn without_token(headers: &mut HeaderMap) {
    if !protocols(headers).any(|protocol| protocol.starts_with(PREFIX)) {
        return;
    }
    let others = others(headers).collect::<Vec<_>>().join(",");
    match HeaderValue::from_str(&others) {
        Ok(others) => _ = headers.insert(SEC_WEBSOCKET_PROTOCOL, others),
        Err(_) => _ = headers.remove(SEC_WEBSOCKET_PROTOCOL),
    }
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let has = |name, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(word))
    };
    has(UPGRADE, "websocket") && has(CONNECTION, "upgrade")
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

fn others(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    protocols(headers).filter(|protocol| !protocol.starts_with(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(protocols: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        for protocol in protocols {
            headers.append(SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
        }
        headers
    }

    /// What upstream's own tests of this say.
    #[test]
    fn a_token_is_one_protocol_among_others() {
        let token = format!("{PREFIX}dG9rZW4");
        for (protocols, expected, left) in [
            (&[&*token, "p"][..], Ok(Some("token")), "p"),
            (&["dummy, dummy2", &format!("dummy3,{token}")], Ok(Some("token")), "dummy,dummy2,dummy3"),
            (&[&*token], Err(Malformed), ""),
            (&[&*token, &*token, "p"], Err(Malformed), "p"),
            (&[&*format!("{PREFIX}dG9rZW4="), "p"], Err(Malformed), "p"),
            (&[&*format!("{PREFIX}gIA"), "p"], Err(Malformed), "p"),
            (&[PREFIX, "p"], Ok(None), "p"),
            (&["p"], Ok(None), "p"),
            (&[], Ok(None), ""),
        ] {
            let mut headers = headers(protocols);
            let found = websocket_token(&headers);
            assert_eq!(
                found.as_ref().map(Option::as_deref).map_err(|_| Malformed),
                expected,
                "{protocols:?}"
            );
            without_token(&mut headers);
            assert_eq!(super::protocols(&headers).collect::<Vec<_>>().join(","), left, "{protocols:?}");
        }
    }

    #[test]
    fn without_an_upgrade_it_is_no_token() {
        let mut headers = headers(&[&format!("{PREFIX}dG9rZW4"), "p"]);
        headers.remove(UPGRADE);
        assert_eq!(websocket_token(&headers), Ok(None));
    }
}
