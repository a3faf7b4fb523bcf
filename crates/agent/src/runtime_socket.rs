//! Waiting for the container runtime to be there.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// The longest pause between two tries: how late a runtime that came up is noticed, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a wait that goes on is mentioned in the log.
const MENTION_EVERY: Duration = Duration::from_secs(30);

/// The path of the socket that an endpoint names: `unix:///path`, or the path itself.
pub fn path(endpoint: &str) -> PathBuf {
    PathBuf::from(endpoint.strip_prefix("unix://").unwrap_or(endpoint))
}

/// Waits until the runtime accepts connections on its socket. `waiting` is told why it does not yet, each time the
/// reason changes and from time to time while it lasts.
pub async fn wait(socket: &Path, mut waiting: impl FnMut(&Reason)) {
    let mut pause = Duration::from_millis(50);
    let mut mentioned: Option<(Reason, Instant)> = None;
    loop {
        let reason = match UnixStream::connect(socket).await {
            Ok(_) => {
                info!(socket = %socket.display(), "Container runtime is there");
                return;
            }
            Err(error) => Reason::from(&error),
        };
        let is_news =
            mentioned.as_ref().is_none_or(|(last, when)| *last != reason || when.elapsed() >= MENTION_EVERY);
        if is_news {
            warn!(socket = %socket.display(), %reason, "Waiting for the container runtime");
            waiting(&reason);
            mentioned = Some((reason, Instant::now()));
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Why a runtime cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// There is no such socket.
    Missing,
    /// There is a socket, and nobody listens on it.
    NobodyListens,
    /// We may not open it.
    NotPermitted,
    /// The path is something else.
    Other(String),
}

impl From<&io::Error> for Reason {
    fn from(error: &io::Error) -> Reason {
        match error.kind() {
            io::ErrorKind::NotFound => Reason::Missing,
            io::ErrorKind::ConnectionRefused => Reason::NobodyListens,
            io::ErrorKind::PermissionDenied => Reason::NotPermitted,
            _ => Reason::Other(error.to_string()),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Missing => "the socket does not exist",
            Reason::NobodyListens => "nobody listens on the socket",
            Reason::NotPermitted => "permission to open the socket is denied",
            Reason::Other(error) => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn it_says_why_it_waits_and_goes_on_when_the_runtime_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("runtime.sock");
        let (tell, mut told) = mpsc::channel(8);
        let waiter = {
            let socket = socket.clone();
            tokio::spawn(async move { wait(&socket, |reason| tell.try_send(reason.clone()).unwrap()).await })
        };
        assert_eq!(told.recv().await, Some(Reason::Missing));
        std::fs::write(&socket, "").unwrap();
        assert_eq!(told.recv().await, Some(Reason::NobodyListens));
        std::fs::remove_file(&socket).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        tokio::time::timeout(Duration::from_secs(20), waiter).await.unwrap().unwrap();
    }

    #[test]
    fn an_endpoint_names_its_socket_with_or_without_the_scheme() {
        assert_eq!(path("unix:///run/x.sock"), Path::new("/run/x.sock"));
        assert_eq!(path("/run/x.sock"), Path::new("/run/x.sock"));
    }
}
