//! Why a request did not do what it should.

use std::time::Duration;

use crablet_api::JsonError;
use crablet_api::meta::{CauseType, Status, StatusReason};

use crate::transport::TransportError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody answered, or not to the end. Whether the request had its effect is not known.
    #[error("the API server does not answer: {0}")]
    Transport(#[from] TransportError),
    /// As above.
    #[error("the API server did not answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The server says no.
    #[error("{}", .0.message)]
    Refused(Box<Status>),
    /// The answer is not what was asked for.
    #[error("the API server's answer cannot be read: {0}")]
    Malformed(#[from] JsonError),
    /// The answer is larger than one may be.
    #[error("the API server's answer is larger than {limit} bytes")]
    TooLarge { limit: usize },
    /// A watch was over before it told anything.
    #[error("the API server ended a watch as soon as it had begun")]
    Closed,
}

impl Error {
    /// The server's word for why it says no.
    pub fn reason(&self) -> Option<&StatusReason> {
        match self {
            Error::Refused(status) => status.reason.as_ref(),
            Error::Transport(_)
            | Error::TimedOut(_)
            | Error::Malformed(_)
            | Error::TooLarge { .. }
            | Error::Closed => None,
        }
    }

    /// The code that the server says no with.
    pub fn code(&self) -> Option<i32> {
        match self {
            Error::Refused(status) => Some(status.code),
            Error::Transport(_)
            | Error::TimedOut(_)
            | Error::Malformed(_)
            | Error::TooLarge { .. }
            | Error::Closed => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.reason() == Some(&StatusReason::NotFound)
    }

    pub fn is_already_exists(&self) -> bool {
        self.reason() == Some(&StatusReason::AlreadyExists)
    }

    pub fn is_conflict(&self) -> bool {
        self.reason() == Some(&StatusReason::Conflict)
    }

    /// Whether what was asked for makes an object that cannot be.
    pub fn is_invalid(&self) -> bool {
        self.reason() == Some(&StatusReason::Invalid)
    }

    pub fn is_forbidden(&self) -> bool {
        self.reason() == Some(&StatusReason::Forbidden)
    }

    /// Whether a version that a list or watch was to go on from is not known any more.
    pub fn is_expired(&self) -> bool {
        matches!(self.reason(), Some(StatusReason::Expired | StatusReason::Gone))
    }

    /// Whether a version that was asked for is one that the server has not come to: it was restored from a backup.
    pub(crate) fn is_from_the_future(&self) -> bool {
        let Error::Refused(status) = self else { return false };
        let causes = status.details.as_ref().map(|details| &*details.causes).unwrap_or_default();
        causes.iter().any(|cause| cause.reason == Some(CauseType::ResourceVersionTooLarge))
    }

    /// Whether something is wrong within the server, which it does not say will be better later.
    pub(crate) fn is_internal(&self) -> bool {
        matches!(self, Error::Refused(status) if status.code == 500) && self.retry_after().is_none()
    }

    /// Whether the server does not take such a request, whoever sends it.
    pub(crate) fn is_about_the_request(&self) -> bool {
        let Error::Refused(status) = self else { return false };
        matches!(status.code, 400 | 405 | 406 | 415 | 422 | 501)
    }

    /// Whether the same request may be answered otherwise later, without anybody having done anything about it.
    pub fn is_passing(&self) -> bool {
        match self {
            Error::Transport(_) | Error::TimedOut(_) | Error::Closed => true,
            Error::Refused(status) => status.code == 429 || status.code >= 500,
            Error::Malformed(_) | Error::TooLarge { .. } => false,
        }
    }

    /// How long the server wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        let Error::Refused(status) = self else { return None };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
    }
}
