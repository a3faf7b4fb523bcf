//! [`ReviewError`]: why the API server did not say who somebody is, or what he may do.

use std::sync::Arc;

use crablet_client::Error;

/// Why the API server did not say it. It is told to all who wait for the answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ReviewError {
    #[error(transparent)]
    Client(Arc<Error>),
    #[error("the API server did not answer in time")]
    TooLong,
    #[error("the API server is being asked too much already")]
    Busy,
    /// What it says itself.
    #[error("the API server says: {0}")]
    Said(Arc<str>),
}

impl From<Error> for ReviewError {
    fn from(error: Error) -> ReviewError {
        ReviewError::Client(Arc::new(error))
    }
}
