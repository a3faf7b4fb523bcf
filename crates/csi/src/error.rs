//! What can go wrong between a node and a driver.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::Code;

/// What a call gives.
pub type Result<T> = std::result::Result<T, Error>;

/// A call that failed. It is shown in the words that a gRPC client in Go has for it, which events of pods carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The driver answered with an error.
    #[error("rpc error: code = {} desc = {message}", Name(*code))]
    Answer {
        /// The gRPC code.
        code: Code,
        /// What the driver said, cut where it is long.
        message: String,
    },
    /// The driver did not answer in time. What was asked for may have happened.
    #[error("rpc error: code = DeadlineExceeded desc = context deadline exceeded")]
    Deadline {
        /// How long it was waited for.
        within: Duration,
    },
    /// The driver could not be reached, or went away during the call.
    #[error("rpc error: code = Unavailable desc = {reason}")]
    Unreachable {
        /// Why.
        reason: String,
    },
    /// The answer is larger than is accepted.
    #[error(
        "rpc error: code = ResourceExhausted desc = grpc: received message larger than max ({found} vs. {limit})"
    )]
    TooLarge {
        /// How large it is, in bytes, as far as it was told.
        found: Arc<str>,
        /// The most that is accepted.
        limit: usize,
    },
}

impl Error {
    /// The code as gRPC has it, also for what never reached the driver.
    pub fn code(&self) -> Code {
        match self {
            Error::Answer { code, .. } => *code,
            Error::Deadline { .. } => Code::DeadlineExceeded,
            Error::Unreachable { .. } => Code::Unavailable,
            Error::TooLarge { .. } => Code::ResourceExhausted,
        }
    }

    /// The code by the name that Go gives it, which metrics carry.
    pub fn code_name(&self) -> &'static str {
        name(self.code())
    }

    /// Whether the driver has surely ended what it was asked for, without success. After any other error it may still
    /// be at it, or be done: what was asked for is *uncertain* and must be undone even if it was never seen to work.
    pub fn is_final(&self) -> bool {
        match self.code() {
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unavailable
            | Code::ResourceExhausted
            | Code::Aborted => false,
            Code::Ok
            | Code::Unknown
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Internal
            | Code::DataLoss
            | Code::Unauthenticated => true,
        }
    }
}

/// A code by the name that Go gives it.
struct Name(Code);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name(self.0))
    }
}

fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}
