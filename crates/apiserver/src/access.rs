//! Who may do what.

use crate::cluster::{Call, Cluster};
use crate::request::Request;
use crate::status::Refusal;

/// Whether somebody may do what they ask with an object.
pub(crate) fn check(cluster: &Cluster, call: &Call<'_>) -> Result<(), Refusal> {
    let _ = (cluster, call);
    Ok(())
}

/// Whether somebody may read a path that is no object's.
pub(crate) fn check_path(cluster: &Cluster, request: &Request) -> Result<(), Refusal> {
    let _ = (cluster, request);
    Ok(())
}
