//! A registry of images on this machine, for pulls that succeed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use crablet_testkit::Image;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A registry without TLS, which runtimes accept from the loopback address. It ends when it is dropped.
pub struct Registry {
    /// Its host and port, as names of images begin with it.
    pub host: String,
    content: Arc<Mutex<Content>>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Content {
    /// The digests of manifests, by repository and tag.
    tags: BTreeMap<(String, String), String>,
    blobs: BTreeMap<String, Vec<u8>>,
}

impl Registry {
    pub async fn start() -> Result<Registry> {
        let content = Arc::new(Mutex::new(Content::default()));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let host = listener.local_addr()?.to_string();
        let routes = axum::Router::new().route("/v2/{*path}", get(answer)).with_state(Arc::clone(&content));
        let server = tokio::spawn(async move {
            // It serves until it is aborted.
            let _ = axum::serve(listener, routes).await;
        });
        Ok(Registry { host, content, server })
    }

    /// Has a tag of a repository be this image from now on.
    pub fn publish(&self, repository: &str, tag: &str, image: &Image) -> Result<()> {
        let (manifest, blobs) = image.blobs()?;
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        content.tags.insert((repository.to_owned(), tag.to_owned()), manifest);
        content.blobs.extend(blobs);
        Ok(())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// `<repository>/manifests/<tag or digest>` and `<repository>/blobs/<digest>`.
async fn answer(State(content): State<Arc<Mutex<Content>>>, Path(path): Path<String>) -> Response {
    let content = content.lock().unwrap_or_else(PoisonError::into_inner);
    let found = if let Some((repository, reference)) = path.split_once("/manifests/") {
        let key = (repository.to_owned(), reference.to_owned());
        let digest = content.tags.get(&key).map_or(reference, String::as_str);
        content.blobs.get(digest).map(|blob| (MANIFEST, digest, blob))
    } else {
        let digest = path.split_once("/blobs/").map_or("", |(_, digest)| digest);
        content.blobs.get(digest).map(|blob| ("application/octet-stream", digest, blob))
    };
    match found {
        Some((kind, digest, blob)) => {
            let headers = [(header::CONTENT_TYPE, kind)];
            ([("docker-content-digest", digest.to_owned())], headers, blob.clone()).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
