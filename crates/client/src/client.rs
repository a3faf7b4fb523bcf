//! Objects instead of bytes.

use std::sync::Arc;
use std::time::Duration;

use crablet_api::document::Limits;
use crablet_api::meta::{ObjectMeta, PartialObjectMetadata, Status};
use futures_util::StreamExt as _;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response};
use hyper::body::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::counted::Waited;
use crate::error::Error;
use crate::limits::{Limit, Priority};
use crate::resource::Resource;
use crate::transport::{Body, Lane, Transport, TransportError};

/// How long an answer may take, unless somebody says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a server that wants to be left alone for a while is asked again, as client-go.
const MOST_RETRIES: usize = 10;
/// How much of an answer is read: more than the largest object that a server takes.
const LARGEST_ANSWER: usize = 16 << 20;

/// What is to be answered: the object, or its metadata alone. Who does not know of the second form answers in the first,
/// which has that too.
pub(crate) const WHOLE: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

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

    /// What is at a path.
    pub async fn read<A: DeserializeOwned>(&self, path: &str) -> Result<A, Error> {
        self.ask(Method::GET, path, None).await
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

    /// Changes an object as [`Client::patch`] does, for one who knows what it comes to: only the new metadata is told.
    pub async fn patch_for_metadata<T: Resource>(
        &self,
        namespace: &str,
        name: &str,
        subresource: &str,
        kind: PatchType,
        patch: Vec<u8>,
    ) -> Result<ObjectMeta, Error> {
        let path = format!("{}{subresource}", T::path(namespace, name));
        let body = Some((kind.content_type(), patch));
        let answer = self.send(Method::PATCH, &path, body, METADATA).await?;
        let partial: PartialObjectMetadata = crablet_api::from_json(&answer, Limits::API)?;
        Ok(partial.metadata)
    }

    /// Deletes an object. What the server says of it differs from kind to kind, and is of no use.
    pub async fn delete<T: Resource>(
        &self,
        namespace: &str,
        name: &str,
        options: &impl Serialize,
    ) -> Result<(), Error> {
        let body = Some(("application/json", crablet_api::to_json(options)));
        self.send(Method::DELETE, &T::path(namespace, name), body, WHOLE).await.map(drop)
    }

    pub(crate) async fn ask<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> Result<A, Error> {
        let answer = self.send(method, path, body, WHOLE).await?;
        Ok(crablet_api::from_json(&answer, Limits::API)?)
    }

    /// Sends a request, and returns the body of what the server says to it if it is not no. A server that says when to ask
    /// again is asked again then, if that is soon enough.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
        accept: &'static str,
    ) -> Result<Vec<u8>, Error> {
        let body = body.map(|(kind, body)| (kind, Bytes::from(body)));
        let deadline = Instant::now() + self.patience;
        let mut retries = 0..MOST_RETRIES;
        loop {
            let waited = match (&self.limit, self.lane) {
                (Some(limit), Lane::Common) => {
                    let asked = Instant::now();
                    limit.turn(self.priority).await;
                    Some(Waited(asked.elapsed()))
                }
                (Some(_) | None, _) => None,
            };
            let exchange = async {
                let request = self.request(method.clone(), path, body.clone(), accept, waited)?;
                let answer = self.dispatch(request).await?;
                read(answer.into_body()).await
            };
            let done = tokio::time::timeout(self.patience, exchange).await;
            let error = match done.unwrap_or(Err(Error::TimedOut(self.patience))) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // It did nothing, and says when it may do it. Who cannot wait for that decides for itself.
            let again = error.retry_after().filter(|_| error.is_passing()).map(|wait| Instant::now() + wait);
            match again.filter(|again| *again < deadline) {
                Some(again) if retries.next().is_some() => tokio::time::sleep_until(again).await,
                Some(_) | None => return Err(error),
            }
        }
    }

    /// Sends a request, and returns the answer if it is not no. Its body may have no end.
    pub(crate) async fn begin(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Bytes)>,
        accept: &'static str,
    ) -> Result<Response<Body>, Error> {
        let request = self.request(method, path, body, accept, None)?;
        self.dispatch(request).await
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Bytes)>,
        accept: &'static str,
        waited: Option<Waited>,
    ) -> Result<Request<Bytes>, TransportError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, accept)
            .header(USER_AGENT, &*self.user_agent);
        let (request, body) = match body {
            Some((kind, body)) => (request.header(CONTENT_TYPE, kind), body),
            None => (request, Bytes::new()),
        };
        let mut request = request.body(body).map_err(TransportError::new)?;
        if let Some(waited) = waited {
            request.extensions_mut().insert(waited);
        }
        Ok(request)
    }

    async fn dispatch(&self, request: Request<Bytes>) -> Result<Response<Body>, Error> {
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use crablet_api::core::ConfigMap;
    use futures_util::stream;

    use super::*;

    /// A server that says these codes, the last of them for ever, and wants to be left alone for so long.
    struct Server {
        codes: Mutex<Vec<u16>>,
        after: &'static str,
        asked: Mutex<Vec<Bytes>>,
    }

    #[async_trait]
    impl Transport for Server {
        async fn send(&self, request: Request<Bytes>, _: Lane) -> Result<Response<Body>, TransportError> {
            self.asked.lock().unwrap().push(request.into_body());
            let mut codes = self.codes.lock().unwrap();
            let code = if codes.len() > 1 { codes.remove(0) } else { codes[0] };
            let body: Body = Box::pin(stream::iter([Ok(Bytes::from_static(b"{}"))]));
            let mut answer = Response::builder().status(code);
            if code >= 400 && !self.after.is_empty() {
                answer = answer.header(RETRY_AFTER, self.after);
            }
            Ok(answer.body(body).unwrap())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_when_is_asked_again_then_if_that_is_soon_enough() {
        for (codes, after, patience, expected) in [
            (&[429, 503, 200][..], "2", 30, (3, 4, true)),
            (&[429], "1", 30, (11, 10, false)),
            (&[429], "7", 10, (2, 7, false)),
            (&[429], "7", 5, (1, 0, false)),
            (&[500], "", 30, (1, 0, false)),
            (&[409], "2", 30, (1, 0, false)),
        ] {
            let server =
                Arc::new(Server { codes: Mutex::new(codes.to_vec()), after, asked: Mutex::default() });
            let client = Client::new(server.clone(), "test").within(Duration::from_secs(patience));
            let began = Instant::now();
            let answer = client.create(&ConfigMap::default()).await;
            let asked = server.asked.lock().unwrap();
            let told = (asked.len(), began.elapsed().as_secs(), answer.is_ok());
            assert_eq!(told, expected, "{codes:?} {after} {patience}");
            assert!(asked.iter().all(|body| *body == asked[0] && !body.is_empty()));
        }
    }
}
