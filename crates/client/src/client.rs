//! Objects instead of bytes.

use std::sync::Arc;
use std::time::Duration;

use crablet_api::document::Limits;
use crablet_api::meta::Status;
use futures_util::StreamExt as _;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response};
use hyper::body::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::limits::{Limit, Priority};
use crate::resource::Resource;
use crate::transport::{Body, Lane, Transport, TransportError};

/// How long an answer may take, unless somebody says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much of an answer is read: more than the largest object that a server takes.
const LARGEST_ANSWER: usize = 16 << 20;

/// A client of one API server. Clones are the same one.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    user_agent: Arc<str>,
    lane: Lane,
    patience: Duration,
    limit: Option<Limit>,
    priority: Priority,
}

/// How a patch is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    StrategicMerge,
}

impl PatchType {
    fn content_type(self) -> &'static str {
        match self {
            PatchType::Json => "application/json-patch+json",
            PatchType::Merge => "application/merge-patch+json",
            PatchType::StrategicMerge => "application/strategic-merge-patch+json",
        }
    }
}

impl Client {
    pub fn new(transport: Arc<dyn Transport>, user_agent: &str) -> Client {
        Client {
            transport,
            user_agent: user_agent.into(),
            lane: Lane::Common,
            patience: PATIENCE,
            limit: None,
            priority: Priority::High,
        }
    }

    /// A client whose requests travel on another lane.
    #[must_use]
    pub fn on(self, lane: Lane) -> Client {
        Client { lane, ..self }
    }

    /// A client whose requests may take so long.
    #[must_use]
    pub fn within(self, patience: Duration) -> Client {
        Client { patience, ..self }
    }

    /// A client that waits for its turn, among all that share the limit. Watches and heartbeats do not.
    #[must_use]
    pub fn with_limit(self, limit: Option<Limit>) -> Client {
        Client { limit, ..self }
    }

    /// A client whose requests go before or after others where there is a limit.
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Client {
        Client { priority, ..self }
    }

    pub async fn get<T: Resource>(&self, namespace: &str, name: &str) -> Result<T, Error> {
        self.ask(Method::GET, &T::path(namespace, name), None).await
    }

    /// Creates an object, in the namespace that it names.
    pub async fn create<T: Resource>(&self, object: &T) -> Result<T, Error> {
        self.post(&T::collection(&object.metadata().namespace), object).await
    }

    /// Sends an object to a path, such as that of a subresource.
    pub async fn post<A: DeserializeOwned>(&self, path: &str, object: &impl Serialize) -> Result<A, Error> {
        self.ask(Method::POST, path, Some(("application/json", crablet_api::to_json(object)))).await
    }

    /// Puts an object in place of the one of that name.
    pub async fn replace<T: Resource>(&self, object: &T) -> Result<T, Error> {
        let path = T::path(&object.metadata().namespace, &object.metadata().name);
        self.ask(Method::PUT, &path, Some(("application/json", crablet_api::to_json(object)))).await
    }

    /// Changes an object, or a subresource of it such as `/status`.
    pub async fn patch<T: Resource>(
        &self,
        namespace: &str,
        name: &str,
        subresource: &str,
        kind: PatchType,
        patch: Vec<u8>,
    ) -> Result<T, Error> {
        let path = format!("{}{subresource}", T::path(namespace, name));
        self.ask(Method::PATCH, &path, Some((kind.content_type(), patch))).await
    }

    /// Deletes an object. What the server says of it differs from kind to kind, and is of no use.
    pub async fn delete<T: Resource>(
        &self,
        namespace: &str,
        name: &str,
        options: &impl Serialize,
    ) -> Result<(), Error> {
        let body = Some(("application/json", crablet_api::to_json(options)));
        self.send(Method::DELETE, &T::path(namespace, name), body).await.map(drop)
    }

    pub(crate) async fn ask<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> Result<A, Error> {
        let answer = self.send(method, path, body).await?;
        Ok(crablet_api::from_json(&answer, Limits::API)?)
    }

    /// Sends a request, and returns the body of what the server says to it if it is not no.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> Result<Vec<u8>, Error> {
        if let (Some(limit), Lane::Common) = (&self.limit, self.lane) {
            limit.turn(self.priority).await;
        }
        let exchange = async {
            let answer = self.begin(method, path, body).await?;
            read(answer.into_body()).await
        };
        let done = tokio::time::timeout(self.patience, exchange).await;
        done.unwrap_or(Err(Error::TimedOut(self.patience)))
    }

    /// Sends a request, and returns the answer if it is not no. Its body may have no end.
    pub(crate) async fn begin(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> Result<Response<Body>, Error> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, &*self.user_agent);
        let (request, body) = match body {
            Some((kind, body)) => (request.header(CONTENT_TYPE, kind), body),
            None => (request, Vec::new()),
        };
        let request = request.body(Bytes::from(body)).map_err(TransportError::new)?;
        let answer = self.transport.send(request, self.lane).await?;
        match answer.status().is_success() {
            true => Ok(answer),
            false => Err(refusal(answer).await),
        }
    }
}

/// What the server says no with. Who answers in its place, such as a proxy, says less.
async fn refusal(answer: Response<Body>) -> Error {
    let code = answer.status();
    let retry_after = answer.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
    let body = match read(answer.into_body()).await {
        Ok(body) => body,
        Err(error) => return error,
    };
    let mut status: Status = crablet_api::from_json(&body, Limits::API).unwrap_or_default();
    if status.code == 0 {
        status.code = i32::from(code.as_u16());
    }
    if status.message.is_empty() {
        status.message = format!("the server answers {code}").into();
    }
    if let Some(seconds) = retry_after {
        status.details.get_or_insert_default().retry_after_seconds = seconds;
    }
    Error::Refused(Box::new(status))
}

async fn read(mut body: Body) -> Result<Vec<u8>, Error> {
    let mut all = Vec::new();
    while let Some(part) = body.next().await {
        let part = part?;
        if all.len() + part.len() > LARGEST_ANSWER {
            return Err(Error::TooLarge { limit: LARGEST_ANSWER });
        }
        all.extend_from_slice(&part);
    }
    Ok(all)
}
