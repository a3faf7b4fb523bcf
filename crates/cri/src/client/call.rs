//! One call with its deadline, and what its failure means.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Response, Status};

use crate::client::diagnosis::{Diagnosis, diagnose};
use crate::client::transport::Transport;
use crate::error::{Error, Result};

/// What tonic says of an answer over the limit. It has no type of its own for it.
const TOO_LARGE: &str = "Error, decoded message length too large";

/// An error that goes into events, statuses and logs is not longer than about this.
const LONGEST_MESSAGE: usize = 4096;

/// What a runtime said, cut in the middle where it is long: it begins with what was tried and ends with the cause.
fn shortened(message: &str) -> String {
    const HALF: usize = LONGEST_MESSAGE / 2;
    if message.len() <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let (head, tail) = (message.floor_char_boundary(HALF), message.ceil_char_boundary(message.len() - HALF));
    format!("{} … ({} bytes left out) … {}", &message[..head], tail - head, &message[tail..])
}

impl Transport {
    /// Waits for the answer to a call, but not for longer than `within`. Dropping the call tells the runtime to give
    /// it up.
    pub(crate) async fn call<T>(
        &self,
        method: &'static str,
        limit: usize,
        within: Option<Duration>,
        call: impl Future<Output = std::result::Result<Response<T>, Status>>,
    ) -> Result<T> {
        let begun = Instant::now();
        let answer = match within {
            None => Ok(call.await),
            Some(within) => tokio::time::timeout(within, call).await.map_err(|_| Error::Deadline {
                method,
                endpoint: self.name.clone(),
                within,
            }),
        };
        let answer = answer.and_then(|answer| {
            answer.map(Response::into_inner).map_err(|status| self.failure(method, limit, status))
        });
        if let Some(operations) = self.operations() {
            operations.ended(method, begun.elapsed(), answer.is_err());
        }
        answer
    }

    /// A call that older runtimes lack: one that is known to is not asked again.
    pub(crate) async fn call_if_there<T>(
        &self,
        method: &'static str,
        limit: usize,
        within: Option<Duration>,
        call: impl Future<Output = std::result::Result<Response<T>, Status>>,
    ) -> Result<T> {
        if self.lacks(method) {
            return Err(Error::Unsupported { method, endpoint: self.name.clone() });
        }
        let answer = self.call(method, limit, within, call).await;
        if answer.as_ref().is_err_and(Error::is_unsupported) {
            self.remember_lack_of(method);
        }
        answer
    }

    /// What a failed call means.
    pub(crate) fn failure(&self, method: &'static str, limit: usize, status: Status) -> Error {
        let endpoint = self.name.clone();
        match diagnose(&status, self.path.as_deref()) {
            Some(Diagnosis::Unreachable(reason)) => return Error::Unreachable { method, endpoint, reason },
            Some(Diagnosis::NotHttp2) => {
                let reason =
                    "it does not speak HTTP/2; set --container-runtime-endpoint to the socket of the runtime";
                return Error::NotCri { endpoint, reason: reason.to_owned() };
            }
            Some(Diagnosis::NoAnswer(reason)) => {
                return Error::Answer { method, code: Code::Internal, message: reason };
            }
            None => {}
        }
        match status.code() {
            Code::Unimplemented => Error::Unsupported { method, endpoint },
            // Within the process there is no connection to lose: services that are away say so themselves.
            Code::Unavailable if self.path.is_none() => {
                Error::Unreachable { method, endpoint, reason: status.message().to_owned() }
            }
            Code::OutOfRange if status.message().starts_with(TOO_LARGE) => Error::TooLarge {
                method,
                endpoint,
                limit,
                hint: "remove exited containers and unused images, so that the lists get shorter",
            },
            code => Error::Answer { method, code, message: shortened(status.message()) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_keeps_its_beginning_and_its_end() {
        let whole = "ä".repeat(LONGEST_MESSAGE / 2);
        assert_eq!(shortened(&whole), whole);
        let long = format!("exec failed: {}: no such file", "ä".repeat(50_000));
        let cut = shortened(&long);
        assert!(cut.len() < LONGEST_MESSAGE + 64, "{}", cut.len());
        assert!(cut.starts_with("exec failed: ää") && cut.ends_with("ää: no such file"), "{cut}");
        assert!(cut.contains("bytes left out"), "{cut}");
    }
}
