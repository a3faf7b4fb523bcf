//! Evicting pods: a deletion that says why. Nothing here budgets disruptions.

use serde_json::json;

use super::super::delete::DeleteOptions;
use super::super::{Call, Cluster, body};
use super::{created, set_condition};
use crate::admission;
use crate::answer::Document;
use crate::object;
use crate::resources::PODS;
use crate::schema::Expected;
use crate::status::Refusal;

impl Cluster {
    pub(super) fn evict_pod(&mut self, call: &mut Call<'_>) -> Result<Document, Refusal> {
        let mut eviction = body::of_type(
            call,
            &Expected { schema: "policy.Eviction", api_version: "policy/v1", kind: "Eviction" },
        )?;
        let namespace = object::namespace(&eviction);
        if !namespace.is_empty() && namespace != call.target.namespace {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if object::name(&eviction) != call.target.name {
            return Err(Refusal::bad_request("name in URL does not match name in Eviction object"));
        }
        admission::check_part(self, call, &mut eviction)?;
        let options = DeleteOptions::in_object(&eviction["deleteOptions"]);
        let Some(mut pod) = self.state.read(&PODS, &call.target.namespace, &call.target.name) else {
            return Err(Refusal::not_found(&PODS, &call.target.name));
        };
        super::super::delete::check_preconditions(call, &options, &pod)?;
        if call.is_dry_run() || options.is_dry_run {
            return Ok(created());
        }
        let condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": null,
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        });
        let before = pod.clone();
        set_condition(&mut pod, condition, call);
        if pod != before {
            self.state.put(&PODS, pod);
        }
        // The version is another now, for we are who changed it.
        let options = DeleteOptions { version: None, ..options };
        self.delete_one(call, &options)?;
        Ok(created())
    }
}
