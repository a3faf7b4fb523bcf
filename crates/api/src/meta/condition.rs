//! [`Condition`]: one aspect of an object's state.

use crate::meta::Time;
use crate::object::{object, words};
use crate::text::Text;

object! {
    /// One aspect of an object's state, as most kinds have it.
    pub struct Condition {
        r#type: Text = "type" always,
        status: ConditionStatus = "status" always,
        observed_generation: i64 = "observedGeneration",
        last_transition_time: Option<Time> = "lastTransitionTime" always,
        reason: Text = "reason" always,
        message: Text = "message" always,
    }
}

words! {
    /// Whether a condition holds.
    pub enum ConditionStatus {
        True = "True",
        False = "False",
        Unknown = "Unknown",
    }
}
