//! A connection to a plugin's socket, and one call over it with its deadline.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Response, Status};
use tower::service_fn;

use crate::error::{Error, Result};

/// The largest answer that is accepted, as gRPC in Go has it.
pub(crate) const ANSWER_LIMIT: usize = 4 << 20;

/// The longest error that is read, in bytes. An error travels as headers, with much of it escaped.
const LONGEST_ERROR: u32 = 1 << 20;

/// An error that goes into events, statuses and logs is not longer than about this.
const LONGEST_MESSAGE: usize = 4096;

/// What tonic says of an answer over the limit. It has no type of its own for it.
const TOO_LARGE: &str = "Error, decoded message length too large: found ";

/// A unix socket that a plugin listens on. The connection is made by the first call, and again by the first one after
/// it was lost.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    path: PathBuf,
    channel: Channel,
}

impl Connection {
    /// Must be called within a tokio runtime, where the connection will live.
    pub(crate) fn new(path: &Path) -> Connection {
        let target = path.to_owned();
        let connector = service_fn(move |_: Uri| {
            let target = target.clone();
            async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(target).await?)) }
        });
        // The address is what the peer sees as `:authority`; the connector does not use it.
        let channel = Endpoint::from_static("http://localhost")
            .http2_max_header_list_size(LONGEST_ERROR)
            .connect_with_connector_lazy(connector);
        Connection { path: path.to_owned(), channel }
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Asks and waits for the answer, but not for longer than `within`, of which the plugin is told. Dropping the call
    /// tells it to give up.
    pub(crate) async fn call<Question, Answer, Answering>(
        &self,
        within: Duration,
        question: Question,
        ask: impl FnOnce(Request<Question>) -> Answering,
    ) -> Result<Answer>
    where
        Answering: Future<Output = std::result::Result<Response<Answer>, Status>>,
    {
        let mut request = Request::new(question);
        request.set_timeout(within);
        let until = Instant::now() + within;
        match tokio::time::timeout_at(until, ask(request)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            // Both ends know the deadline. Whoever notices first, it is the same thing.
            Ok(Err(_)) if Instant::now() >= until => Err(Error::Deadline { within }),
            Ok(Err(status)) => Err(self.failure(&status)),
            Err(_) => Err(Error::Deadline { within }),
        }
    }

    /// What a failed call means.
    fn failure(&self, status: &Status) -> Error {
        let message = status.message();
        // A status with a source was made on our side of the connection.
        if let Some(source) = status.source() {
            return Error::Unreachable { reason: shortened(&self.in_go_words(source)) };
        }
        match message.strip_prefix(TOO_LARGE) {
            Some(rest) if status.code() == Code::OutOfRange => {
                let found = rest.split(' ').next().unwrap_or_default().into();
                Error::TooLarge { found, limit: ANSWER_LIMIT }
            }
            _ => Error::Answer { code: status.code(), message: shortened(message) },
        }
    }

    fn in_go_words(&self, source: &(dyn std::error::Error + 'static)) -> String {
        let chain = || std::iter::successors(Some(source), |error| (*error).source());
        let io = chain().find_map(|error| error.downcast_ref::<io::Error>());
        let dialling = match io.map(io::Error::kind) {
            Some(io::ErrorKind::NotFound) => "no such file or directory",
            Some(io::ErrorKind::ConnectionRefused) => "connection refused",
            Some(io::ErrorKind::PermissionDenied) => "permission denied",
            Some(io::ErrorKind::NotADirectory) => "not a directory",
            Some(io::ErrorKind::InvalidInput) => "invalid argument",
            Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) => {
                return "error reading from server: EOF".to_owned();
            }
            Some(io::ErrorKind::ConnectionReset) => {
                return "error reading from server: connection reset by peer".to_owned();
            }
            _ => return format!("error reading from server: {}", chain().last().unwrap_or(source)),
        };
        let path = self.path.display();
        format!(
            "connection error: desc = \"transport: Error while dialing: dial unix {path}: connect: {dialling}\""
        )
    }
}

/// What a plugin said, cut in the middle where it is long: it begins with what was tried and ends with the cause.
pub(crate) fn shortened(message: &str) -> String {
    const HALF: usize = LONGEST_MESSAGE / 2;
    if message.len() <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let (head, tail) = (message.floor_char_boundary(HALF), message.ceil_char_boundary(message.len() - HALF));
    format!("{} … ({} bytes left out) … {}", &message[..head], tail - head, &message[tail..])
}
