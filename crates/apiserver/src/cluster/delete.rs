//! Deleting objects: at once, after a grace period, or when the last finalizer has gone.

use jiff::SignedDuration;
use serde_json::Value;

use super::{Call, Cluster};
use crate::admission::{self, Operation};
use crate::answer::Document;
use crate::object;
use crate::rules;
use crate::schema::{self, Encoding};
use crate::selectors::Selection;
use crate::state::Key;
use crate::status::{self, Refusal};

/// What is asked of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) propagation: Option<String>,
}

impl DeleteOptions {
    fn of(call: &Call<'_>) -> Result<DeleteOptions, Refusal> {
        let body = match call.request.body.is_empty() {
            true => Value::Null,
            false => {
                let encoding = super::body::encoding(&call.request.content_type).unwrap_or(Encoding::Json);
                let decoded = schema::decode("meta.DeleteOptions", encoding, &call.request.body);
                decoded.map_err(|error| error.refusal("v1", "DeleteOptions"))?.object
            }
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let grace = call.query.get("gracePeriodSeconds").and_then(|seconds| seconds.parse().ok());
        let propagation = call.query.get("propagationPolicy").map(str::to_owned);
        Ok(DeleteOptions {
            grace: grace.or(body["gracePeriodSeconds"].as_i64()),
            uid: text(&body["preconditions"]["uid"]),
            version: text(&body["preconditions"]["resourceVersion"]),
            propagation: propagation.or(text(&body["propagationPolicy"])),
        })
    }
}

impl Cluster {
    pub(super) fn delete(&mut self, call: &mut Call<'_>) -> Result<Document, Refusal> {
        let options = DeleteOptions::of(call)?;
        let resource = call.target.resource;
        let (object, is_gone) = self.delete_one(call, &options)?;
        if is_gone && rules::of(resource).answers_deletion_with_status() {
            let status = status::success(resource, object::name(&object), object::uid(&object));
            return Ok(Document::json(200, &status));
        }
        self.show(call, 200, object)
    }

    pub(super) fn delete_collection(&mut self, call: &mut Call<'_>) -> Result<Document, Refusal> {
        let options = DeleteOptions::of(call)?;
        let resource = call.target.resource;
        let selection = Selection::of(resource, &call.query)?;
        let namespace = Some(call.target.namespace.clone()).filter(|namespace| !namespace.is_empty());
        let all = self.state.list(resource, namespace.as_deref());
        let wanted = all.filter(|(key, stored)| selection.matches(key, stored));
        let keys: Vec<Key> = wanted.map(|(key, _)| key.clone()).collect();
        let mut deleted = Vec::new();
        for key in keys {
            call.target.namespace = key.namespace.to_string();
            call.target.name = key.name.to_string();
            match self.delete_one(call, &options) {
                Ok((object, _)) => deleted.push(object),
                Err(refusal) if refusal.code == 404 => {}
                Err(refusal) => return Err(refusal),
            }
        }
        let form = super::read::form(call)?;
        let metadata = serde_json::json!({"resourceVersion": self.state.revision().to_string()});
        Ok(Document::json(200, &form.show_list(resource, deleted, metadata, call.now)))
    }

    /// Deletes an object, or begins to; what is left of it, and whether it is gone.
    pub(crate) fn delete_one(
        &mut self,
        call: &mut Call<'_>,
        options: &DeleteOptions,
    ) -> Result<(Value, bool), Refusal> {
        let (resource, key) = (call.target.resource, call.key());
        let Some(stored) = self.state.get(&key) else {
            return Err(Refusal::not_found(resource, &call.target.name));
        };
        let old = stored.decode();
        check_preconditions(call, options, &old)?;
        admission::validate(self, call, Operation::Delete, &old, Some(&old))?;
        let rules = rules::of(resource);
        let mut new = old.clone();
        let grace = rules.grace(&old, options.grace);
        let has_begun = object::is_being_deleted(&old);
        if has_begun {
            // A grace period only shrinks.
            let known = old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            match grace {
                Some(grace) if options.grace.is_some() && grace < known => {
                    set_deletion(&mut new, call, grace)
                }
                _ if known > 0 && grace.is_some() => return Ok((old, false)),
                _ => {}
            }
        } else {
            set_deletion(&mut new, call, grace.unwrap_or(0));
            rules.prepare_deletion(&mut new);
            match options.propagation.as_deref() {
                Some("Foreground") => object::add_finalizer(&mut new, "foregroundDeletion"),
                Some("Orphan") => object::add_finalizer(&mut new, "orphan"),
                Some(_) | None => {}
            }
        }
        if rules.is_deletable(&new) {
            if call.is_dry_run() {
                return Ok((new, true));
            }
            let last = self.state.remove(resource, &key).map(|last| last.decode()).unwrap_or_default();
            return Ok((last, true));
        }
        if call.is_dry_run() || new == old {
            return Ok((new, false));
        }
        if rules.has_generation() {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            new["metadata"]["generation"] = generation.into();
        }
        Ok((self.state.put(resource, new).decode(), false))
    }
}

fn set_deletion(object: &mut Value, call: &Call<'_>, grace: i64) {
    let at = call.now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(call.now);
    object["metadata"]["deletionTimestamp"] = object::time(at);
    object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
}

fn check_preconditions(call: &Call<'_>, options: &DeleteOptions, old: &Value) -> Result<(), Refusal> {
    let (resource, name) = (call.target.resource, call.target.name.as_str());
    for (what, wanted, found) in [
        ("UID", &options.uid, object::uid(old)),
        ("ResourceVersion", &options.version, object::meta(old, "resourceVersion")),
    ] {
        if let Some(wanted) = wanted
            && wanted != found
        {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been deleted and then recreated"
            );
            return Err(Refusal::conflict(resource, name, &why));
        }
    }
    Ok(())
}
