//! Patching objects: the patch is applied to what there is, and the result is an update.

use serde_json::Value;

use super::{Call, Cluster, body};
use crate::answer::Document;
use crate::event_conversion;
use crate::object;
use crate::schema::{self, Expected, PatchError};
use crate::status::Refusal;

impl Cluster {
    pub(super) fn patch(&mut self, call: &mut Call<'_>) -> Result<Document, Refusal> {
        let resource = call.target.resource;
        let media = call.request.content_type.split(';').next().unwrap_or_default().trim();
        if !schema::PATCH_TYPES.contains(&media) {
            return Err(PatchError::UnknownType.refusal());
        }
        let Some(stored) = self.state.get(&call.key()) else {
            return Err(Refusal::not_found(resource, &call.target.name));
        };
        let old = stored.decode();
        // What is patched is what the client sees, which need not be what is kept.
        let seen = event_conversion::seen(resource, &old);
        let api_version = resource.api_version();
        let expected = Expected { schema: resource.schema, api_version: &api_version, kind: resource.kind };
        let validation = body::field_validation(call)?;
        let decoded = schema::apply_patch(&expected, media, &seen, &call.request.body, validation)
            .map_err(|error| error.refusal())?;
        drop(seen);
        call.warnings.extend(decoded.problems);
        let mut new: Value = decoded.object;
        new["apiVersion"] = api_version.as_str().into();
        new["kind"] = resource.kind.into();
        let new = event_conversion::kept(resource, new);
        if object::name(&new) != call.target.name {
            let why = format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                object::name(&new),
                call.target.name
            );
            return Err(Refusal::bad_request(why));
        }
        let updated = self.replace(call, old, new)?;
        self.show_updated(call, updated)
    }
}
