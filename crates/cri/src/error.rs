//! What can go wrong between the agent and a runtime.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crablet_cri_api::Malformed;
use tonic::Code;

/// What a call gives.
pub type Result<T> = std::result::Result<T, Error>;

/// A call that failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The runtime answered with an error.
    #[error("{method}: {}: {message}", Name(*code))]
    Answer {
        /// The call.
        method: &'static str,
        /// The gRPC code.
        code: Code,
        /// What the runtime said.
        message: String,
    },
    /// The runtime did not answer in time. What was asked for may have happened.
    #[error("{method}: no answer from {endpoint} within {within:?}")]
    Deadline {
        /// The call.
        method: &'static str,
        /// Where the runtime is.
        endpoint: Arc<str>,
        /// How long it was waited for.
        within: Duration,
    },
    /// The runtime could not be reached, or went away during the call.
    #[error("{method}: the container runtime at {endpoint} cannot be reached: {reason}")]
    Unreachable {
        /// The call.
        method: &'static str,
        /// Where the runtime should be.
        endpoint: Arc<str>,
        /// Why it cannot be reached, and what to do.
        reason: String,
    },
    /// The runtime does not have this call.
    #[error("{method}: the container runtime at {endpoint} does not have this call")]
    Unsupported {
        /// The call.
        method: &'static str,
        /// Where the runtime is.
        endpoint: Arc<str>,
    },
    /// What listens there is no CRI v1 runtime.
    #[error("{endpoint} is not a CRI v1 runtime: {reason}")]
    NotCri {
        /// Where it listens.
        endpoint: Arc<str>,
        /// What it is, as far as one can tell, and what to do.
        reason: String,
    },
    /// The answer is larger than is accepted.
    #[error("{method}: the answer of {endpoint} is larger than {limit} bytes: {hint}")]
    TooLarge {
        /// The call.
        method: &'static str,
        /// Where the runtime is.
        endpoint: Arc<str>,
        /// The most that is accepted.
        limit: usize,
        /// What to do.
        hint: &'static str,
    },
    /// The answer makes no sense.
    #[error("{method}")]
    Malformed {
        /// The call.
        method: &'static str,
        /// What is wrong with it.
        #[source]
        source: Malformed,
    },
    /// The endpoint is written in a way that names no unix socket.
    #[error("{endpoint:?} is not the endpoint of a container runtime: expected unix:///path/to/socket")]
    BadEndpoint {
        /// What was given.
        endpoint: String,
    },
    /// The socket's path is longer than the kernel accepts.
    #[error("the path {} is longer than the {limit} bytes that a unix socket can have", path.display())]
    PathTooLong {
        path: PathBuf,
        /// The most that is accepted.
        limit: usize,
    },
}

impl Error {
    /// The code as gRPC has it, also for what never reached the runtime.
    pub fn code(&self) -> Code {
        match self {
            Error::Answer { code, .. } => *code,
            Error::Deadline { .. } => Code::DeadlineExceeded,
            Error::Unreachable { .. } => Code::Unavailable,
            Error::Unsupported { .. } | Error::NotCri { .. } => Code::Unimplemented,
            Error::TooLarge { .. } => Code::ResourceExhausted,
            Error::Malformed { .. } => Code::Internal,
            Error::BadEndpoint { .. } | Error::PathTooLong { .. } => Code::InvalidArgument,
        }
    }

    /// Whether what was asked about is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == Code::NotFound
    }

    /// Whether the runtime has no room for what was asked for.
    pub fn is_exhausted(&self) -> bool {
        self.code() == Code::ResourceExhausted
    }

    /// Whether the runtime lacks the call.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Error::Unsupported { .. })
    }

    /// Whether the runtime is away, so that nothing is known about what it runs.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Error::Unreachable { .. })
    }

    /// The error in the words that a gRPC client in Go has for it, which events and statuses of pods carry.
    pub fn in_go_words(&self) -> String {
        match self {
            Error::Answer { code, message, .. } => {
                format!("rpc error: code = {} desc = {message}", Name(*code))
            }
            Error::Deadline { .. } => {
                "rpc error: code = DeadlineExceeded desc = context deadline exceeded".to_owned()
            }
            Error::Unreachable { reason, .. } => {
                format!("rpc error: code = Unavailable desc = {reason}")
            }
            Error::Unsupported { method, .. } => {
                format!("rpc error: code = Unimplemented desc = method {method} not implemented")
            }
            Error::NotCri { .. }
            | Error::TooLarge { .. }
            | Error::Malformed { .. }
            | Error::BadEndpoint { .. }
            | Error::PathTooLong { .. } => {
                format!("rpc error: code = {} desc = {self}", Name(self.code()))
            }
        }
    }
}

/// A code by the name that Go gives it.
struct Name(Code);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
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
        })
    }
}
