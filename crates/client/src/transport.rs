//! The seam between what is said to an API server and how it gets there.

use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::Stream;
use http::{Request, Response};
use hyper::body::Bytes;

/// How requests get to an API server.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends a request, whose URI is a path with a query, and returns when the head of the answer is there. Who drops the
    /// future or the body takes the request back.
    async fn send(&self, request: Request<Bytes>, lane: Lane) -> Result<Response<Body>, TransportError>;
}

/// A body as it comes in.
pub type Body = Pin<Box<dyn Stream<Item = Result<Bytes, TransportError>> + Send>>;

/// What a request travels with. What is on one lane does not wait for what is on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Most of them.
    Common,
    /// What says that the node is alive.
    Heartbeat,
}

/// Why there is no answer, or not all of it. Whether the request had its effect is not known.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TransportError(Arc<dyn StdError + Send + Sync>);

impl TransportError {
    pub fn new(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> TransportError {
        TransportError(Arc::from(cause.into()))
    }
}
