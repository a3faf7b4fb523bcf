//! Who asks: by the certificate that a connection has shown, or by a token that the API server knows.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use crablet_api::reviews::TokenReview;
use crablet_client::Client;
use crablet_metrics::Histogram;
use crablet_x509::{ClientAuthorities, ClientAuthoritiesError, ClientCertificateError};
use jiff::Timestamp;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::error::ReviewError;
use super::metrics::{ReviewMetrics, TokenMetrics};
use super::retry::with_retries;
use super::reviews::Reviews;
use super::user::User;
use super::websocket_token::websocket_token;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// The certificates that a connection has shown, its own first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown(pub(crate) Arc<[CertificateDer<'static>]>);

/// Whose signatures on client certificates count. Clones are the same, and all see it when they are replaced.
#[derive(Clone, Debug, Default)]
pub struct Authorities(Arc<RwLock<Option<Arc<ClientAuthorities>>>>);

impl Authorities {
    /// These count from now on, which are given in PEM.
    pub fn set(&self, pem: &[u8]) -> Result<(), ClientAuthoritiesError> {
        let authorities = ClientAuthorities::of(pem, &Arc::new(aws_lc_rs::default_provider()))?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(authorities));
        Ok(())
    }

    fn get(&self) -> Option<Arc<ClientAuthorities>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why somebody is turned away.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unauthenticated {
    #[error(transparent)]
    Certificate(#[from] ClientCertificateError),
    #[error("the API server does not know the token")]
    UnknownToken,
    #[error("the API server does not say whose token it is: {0}")]
    NotReviewed(ReviewError),
    #[error("the token among the WebSocket protocols is malformed")]
    MalformedToken,
    #[error("nothing tells who it is")]
    Nobody,
}

/// Finds out who asks.
pub(crate) struct Authentication {
    pub(crate) authorities: Authorities,
    /// Who is asked about tokens, if anybody.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) allows_anonymous: bool,
    /// How long the certificates last that are shown.
    pub(crate) lifetimes: Histogram,
}

impl Authentication {
    pub(crate) async fn user(
        &self,
        shown: &Shown,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<User, Unauthenticated> {
        let certificate = self.authorities.get().map(|authorities| authorities.check(&shown.0, now));
        let refused = match certificate {
            Some(Ok(certificate)) => {
                if let Some(certificate) = &certificate {
                    let left = certificate.not_after().duration_since(now);
                    self.lifetimes.observe(left.as_secs_f64());
                }
                match certificate.as_ref().and_then(User::of_certificate) {
                    Some(user) => return Ok(user),
                    None => None,
                }
            }
            Some(Err(error)) => Some(Unauthenticated::Certificate(error)),
            None => None,
        };
        if let Some(tokens) = &self.tokens {
            if let Some(token) = bearer_token(headers) {
                return tokens.user(token).await;
            }
            if let Some(token) = websocket_token(headers).map_err(|_| Unauthenticated::MalformedToken)? {
                return tokens.user(&token).await;
            }
        }
        match refused {
            Some(error) => Err(error),
            None if self.allows_anonymous => Ok(User::anonymous()),
            None => Err(Unauthenticated::Nobody),
        }
    }
}

/// Asks the API server whose tokens are.
pub(crate) struct Tokens {
    client: Client,
    /// By the digest of a token: what was said is remembered, the token is not.
    reviews: Reviews<[u8; 32], Option<User>>,
    lasts: Duration,
    metrics: (ReviewMetrics, TokenMetrics),
}

impl Tokens {
    pub(crate) fn new(client: Client, lasts: Duration, metrics: (ReviewMetrics, TokenMetrics)) -> Tokens {
        Tokens { client, reviews: Reviews::new(), lasts, metrics }
    }

    async fn user(&self, token: &str) -> Result<User, Unauthenticated> {
        let key = Sha256::digest(token.as_bytes()).into();
        let (begun, mut is_hit) = (Instant::now(), true);
        let ask = || {
            is_hit = false;
            review(self.client.clone(), token.to_owned(), self.metrics.clone())
        };
        let known = self.reviews.get(key, |_| self.lasts, ask).await;
        self.metrics.1.looked_up(is_hit, begun.elapsed());
        match known {
            Ok(Some(user)) => Ok(user),
            Ok(None) => Err(Unauthenticated::UnknownToken),
            Err(error) => Err(Unauthenticated::NotReviewed(error)),
        }
    }
}

async fn review(
    client: Client,
    token: String,
    (requests, tokens): (ReviewMetrics, TokenMetrics),
) -> Result<Option<User>, ReviewError> {
    let _fetching = tokens.fetching();
    let question =
        json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": token}});
    let review = with_retries(Some(&requests), || client.post(TOKEN_REVIEWS, &question)).await;
    tokens.fetched(review.is_ok());
    let review: TokenReview = review?;
    let status = review.status;
    match status.authenticated {
        true => Ok(Some(User::of_review(status.user))),
        // Not remembered, as upstream: the server may have had a passing trouble, or not know the account yet.
        false if !status.error.is_empty() => Err(ReviewError::Said((&*status.error).into())),
        false => Ok(None),
    }
}

/// The token that a request shows, read as upstream reads it.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let (kind, token) = value.split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (kind.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_what_stands_after_the_word_bearer() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("  Bearer abc  ", Some("abc")),
            ("Bearer abc def", Some("abc")),
            ("Bearer  abc", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(bearer_token(&headers), expected, "{value}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }
}
