//! Asking a running agent something, over its admin socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::header::HOST;
use axum::http::{Method, Request, StatusCode};
use hyper::body::Bytes;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long an agent may take to answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest answer that is read.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// Sends a request to the agent behind an admin socket, and returns the status and text of its answer.
pub async fn request(
    socket: &Path,
    method: Method,
    path: &str,
    body: &str,
) -> Result<(StatusCode, String), RequestError> {
    request_within(DEADLINE, socket, method, path, body).await
}

/// Why an agent gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Nothing listens on the socket.
    #[error(
        "no agent is running with root directory {} (nothing listens on {}); --root-dir names another one",
        folder(.0).display(), .0.display()
    )]
    NotRunning(PathBuf),
    /// The socket belongs to someone else.
    #[error("not allowed to open {}: only the user that the agent runs as may", .0.display())]
    NotAllowed(PathBuf),
    /// The socket cannot be opened for another reason.
    #[error("cannot open {}", socket.display())]
    Connect {
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path is not one that can be asked for.
    #[error("{0:?} is not a path that can be asked for")]
    Path(String),
    /// The exchange broke off.
    #[error("the agent broke off while it was asked for {path}")]
    BrokenOff {
        /// What was asked for.
        path: String,
        /// How it broke off.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer is longer than any should be.
    #[error("the agent's answer to {0} is longer than {MAX_ANSWER} bytes")]
    TooLong(String),
    /// The answer did not come in time.
    #[error("the agent did not answer within {}s when it was asked for {path}", deadline.as_secs_f64())]
    Deadline {
        /// What was asked for.
        path: String,
        /// How long was waited.
        deadline: Duration,
    },
}

/// The same with another time that the agent may take.
pub async fn request_within(
    deadline: Duration,
    socket: &Path,
    method: Method,
    path: &str,
    body: &str,
) -> Result<(StatusCode, String), RequestError> {
    timeout(deadline, exchange(socket, method, path, body))
        .await
        .unwrap_or_else(|_| Err(RequestError::Deadline { path: path.to_owned(), deadline }))
}

async fn exchange(
    socket: &Path,
    method: Method,
    path: &str,
    body: &str,
) -> Result<(StatusCode, String), RequestError> {
    let broken_off = |source| RequestError::BrokenOff { path: path.to_owned(), source };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost")
        .body(Bytes::copy_from_slice(body.as_bytes()))
        .map_err(|_| RequestError::Path(path.to_owned()))?;

    let stream = UnixStream::connect(socket).await.map_err(|error| connect_error(socket, error))?;
    let answer = crablet_http_exchange::exchange(stream, request, |_| MAX_ANSWER + 1).await;
    let answer = answer.map_err(|error| broken_off(error.into()))?;
    if answer.body().len() > MAX_ANSWER {
        return Err(RequestError::TooLong(path.to_owned()));
    }
    Ok((answer.status(), String::from_utf8_lossy(answer.body()).into_owned()))
}

fn connect_error(socket: &Path, source: io::Error) -> RequestError {
    let socket = socket.to_owned();
    match source.kind() {
        // A socket without a listener is what a killed agent leaves behind.
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => RequestError::NotRunning(socket),
        io::ErrorKind::PermissionDenied => RequestError::NotAllowed(socket),
        _ => RequestError::Connect { socket, source },
    }
}

fn folder(socket: &Path) -> &Path {
    socket.parent().unwrap_or(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bind_admin_socket, serve};
    use axum::Router;
    use axum::routing::get;

    async fn ask(socket: &Path, path: &str) -> Result<(StatusCode, String), RequestError> {
        request(socket, Method::GET, path, "").await
    }

    #[tokio::test]
    async fn no_agent_is_told_from_no_permission() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("admin.sock");
        let message = format!(
            "no agent is running with root directory {} (nothing listens on {}); --root-dir names another one",
            folder.path().display(),
            socket.display()
        );
        assert_eq!(ask(&socket, "/").await.unwrap_err().to_string(), message);
        drop(bind_admin_socket(&socket).await.unwrap());
        assert_eq!(ask(&socket, "/").await.unwrap_err().to_string(), message);
        let denied = connect_error(&socket, io::ErrorKind::PermissionDenied.into());
        assert!(denied.to_string().starts_with("not allowed to open "));
    }

    #[tokio::test]
    async fn an_agent_that_does_not_answer_is_given_up_on() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("admin.sock");
        let _silent = bind_admin_socket(&socket).await.unwrap();
        let deadline = Duration::from_millis(50);
        let error = request_within(deadline, &socket, Method::GET, "/configz", "").await.unwrap_err();
        assert_eq!(error.to_string(), "the agent did not answer within 0.05s when it was asked for /configz");
    }

    #[tokio::test]
    async fn an_answer_is_read_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("admin.sock");
        let router = Router::new()
            .route("/fits", get(|| async { "x".repeat(MAX_ANSWER) }))
            .route("/huge", get(|| async { "x".repeat(MAX_ANSWER + 1) }));
        let listener = bind_admin_socket(&socket).await.unwrap();
        tokio::spawn(serve(listener, router, std::future::pending()));
        assert_eq!(ask(&socket, "/fits").await.unwrap().1.len(), MAX_ANSWER);
        assert!(matches!(ask(&socket, "/huge").await, Err(RequestError::TooLong(_))));
        assert!(matches!(ask(&socket, "a path").await, Err(RequestError::Path(_))));
    }

    #[tokio::test]
    async fn an_agent_that_dies_meanwhile_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("admin.sock");
        let listener = bind_admin_socket(&socket).await.unwrap();
        let (answer, _) = tokio::join!(ask(&socket, "/configz"), async { drop(listener.accept().await) });
        assert!(matches!(answer, Err(RequestError::BrokenOff { .. })));
    }
}
