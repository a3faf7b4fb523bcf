//! [`DeleteOptions`]: how an object is deleted.

use crate::object::object;
use crate::text::Text;

object! {
    /// How an object is deleted.
    pub struct DeleteOptions: "v1" "DeleteOptions" {
        grace_period_seconds: Option<i64> = "gracePeriodSeconds",
        preconditions: Option<Preconditions> = "preconditions",
        propagation_policy: Option<Text> = "propagationPolicy",
    }
}

object! {
    /// What must be so for something to be done.
    pub struct Preconditions {
        uid: Option<Text> = "uid",
        resource_version: Option<Text> = "resourceVersion",
    }
}

impl DeleteOptions {
    /// At once, and no other object than the one of that UID.
    pub fn now(uid: &Text) -> DeleteOptions {
        let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
        DeleteOptions {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteOptions::default()
        }
    }
}
