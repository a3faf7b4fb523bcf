//! What is changed or refused because of other objects.

use serde_json::Value;

use crate::cluster::{Call, Cluster};
use crate::status::Refusal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

/// Changes an object on its way in.
pub(crate) fn mutate(
    cluster: &Cluster,
    call: &Call<'_>,
    operation: Operation,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Refusal> {
    let _ = (cluster, call, operation, object, old);
    Ok(())
}

/// Refuses what may not be.
pub(crate) fn validate(
    cluster: &Cluster,
    call: &Call<'_>,
    operation: Operation,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Refusal> {
    let _ = (cluster, call, operation, object, old);
    Ok(())
}
