//! What a container asks for and may use at most.

use crate::Quantity;
use crate::map::Map;
use crate::object::object;
use crate::text::Text;

/// Amounts of resources, by their names.
pub type ResourceList = Map<Quantity>;

object! {
    /// What a container, or a whole pod, asks for and may use at most.
    pub struct ResourceRequirements {
        limits: ResourceList = "limits",
        requests: ResourceList = "requests",
        claims: Box<[ResourceClaim]> = "claims",
    }
}

object! {
    /// One of the pod's resource claims.
    pub struct ResourceClaim {
        name: Text = "name" always,
        request: Text = "request",
    }
}
