//! Leases: who lives, and who leads.

use crablet_api::validate::{Errors, Word};
use serde_json::Value;

use super::metadata;
use super::{Context, Rules, Update};
use crate::object;

pub struct Leases;

impl Rules for Leases {
    fn validate_create(&self, errors: &mut Errors, lease: &Value, _context: &Context<'_>) {
        check(errors, &lease["spec"]);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, .. } = *update;
        metadata::check_update(errors, update);
        check(errors, &new["spec"]);
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn updates_unconditionally(&self) -> bool {
        false
    }
}

fn check(errors: &mut Errors, spec: &Value) {
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|seconds| *seconds <= 0) {
        errors.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0");
    }
    if let Some(count) = spec["leaseTransitions"].as_i64().filter(|count| *count < 0) {
        errors.invalid("spec.leaseTransitions", count, "must be greater than or equal to 0");
    }
    let strategy = object::text(spec, &["strategy"]);
    if !strategy.is_empty() && strategy != "OldestEmulationVersion" && !strategy.contains('/') {
        errors.not_supported("spec.strategy", Word(strategy), &["OldestEmulationVersion"]);
    }
    if strategy.is_empty() && !object::text(spec, &["preferredHolder"]).is_empty() {
        errors.forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined");
    }
}
