//! A task for each watch: it goes ahead of its client by two chunks and no more, and ends when the client has taken
//! nothing for a while.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use super::api::Api;
use super::body::Body;
use crate::watch::Watch;

/// How long a client may take nothing although there is something.
const PATIENCE: Duration = Duration::from_secs(60);

/// The body of a watch.
pub(super) fn body(
    api: Arc<Api>,
    watch: Box<Watch>,
    stop: &CancellationToken,
    permit: OwnedSemaphorePermit,
) -> Body {
    let (chunks, taken) = mpsc::channel(1);
    let stop = stop.clone();
    tokio::spawn(async move {
        let _ = stop.run_until_cancelled(feed(&api, watch, &chunks)).await;
    });
    Body::watch(taken, permit)
}

async fn feed(api: &Api, mut watch: Box<Watch>, chunks: &mpsc::Sender<Bytes>) {
    let mut progress = api.subscribe();
    loop {
        let lines = tokio::select! {
            lines = api.next_lines(&mut watch, &mut progress) => lines,
            () = chunks.closed() => return,
        };
        let Some(lines) = lines else { return };
        match tokio::time::timeout(PATIENCE, chunks.send(lines.into())).await {
            Ok(Ok(())) => {}
            // It went away, or it does not read.
            Ok(Err(_)) | Err(_) => return,
        }
    }
}
