//! Replacing objects, and parts of them.

use std::sync::Arc;

use crablet_api::validate::{ErrorKind, Errors, FieldError};
use serde_json::Value;

use super::{Call, Cluster, body, read};
use crate::admission::{self, Operation};
use crate::answer::Document;
use crate::object;
use crate::request::Verb;
use crate::resources::Subresource;
use crate::rules::{self, Update};
use crate::state::Stored;
use crate::status::Refusal;

/// What became of an update.
pub(crate) enum Updated {
    Written(Arc<Stored>),
    /// It changes nothing, or is not to.
    Unwritten(Value),
}

impl Cluster {
    pub(super) fn update(&mut self, call: &mut Call<'_>) -> Result<Document, Refusal> {
        let object = body::object(call)?;
        let name = object::name(&object);
        if name.is_empty() {
            return Err(Refusal::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                call.target.name
            )));
        }
        if name != call.target.name {
            return Err(Refusal::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                call.target.name
            )));
        }
        let namespace = object::namespace(&object);
        if !namespace.is_empty() && namespace != call.target.namespace {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let resource = call.target.resource;
        let Some(stored) = self.state.get(&call.key()) else {
            if !rules::of(resource).creates_on_update() || call.target.subresource.is_some() {
                return Err(Refusal::not_found(resource, &call.target.name));
            }
            let created = self.create_object(call, object)?;
            return self.show(call, 201, created);
        };
        let old = stored.decode();
        let updated = self.replace(call, old, object, None)?;
        self.show_updated(call, updated)
    }

    /// What was written is JSON already, and most want it as it is.
    pub(super) fn show_updated(&self, call: &Call<'_>, updated: Updated) -> Result<Document, Refusal> {
        match updated {
            Updated::Written(stored) if read::form(call)?.is_stored_as_is(call.target.resource) => {
                Ok(Document::encoded(200, stored.json().into_owned()))
            }
            Updated::Written(stored) => self.show(call, 200, stored.decode()),
            Updated::Unwritten(object) => self.show(call, 200, object),
        }
    }

    /// Puts a new object, or the part of it that the subresource is, in the old one's place. Where the JSON of the spec is
    /// given, it stays as it is, and the objects have only a part of it.
    pub(crate) fn replace(
        &mut self,
        call: &mut Call<'_>,
        old: Value,
        mut new: Value,
        spec: Option<&[u8]>,
    ) -> Result<Updated, Refusal> {
        let resource = call.target.resource;
        let (rules, name) = (rules::of(resource), call.target.name.clone());
        new["metadata"]["name"] = name.as_str().into();
        if resource.is_namespaced() {
            new["metadata"]["namespace"] = call.target.namespace.as_str().into();
        }
        self.check_preconditions(call, &old, &new)?;
        rules.default(&mut new, call.target.subresource);
        keep_what_is_the_servers(&mut new, &old);
        admission::mutate(self, call, Operation::Update, &mut new, Some(&old))?;
        let context = self.context(call);
        rules.prepare_update(&mut new, &old, call.target.subresource, &context);
        self.check_escalation(call, &new, Some(&old))?;
        let mut errors = Errors::default();
        rules::metadata::check_any_update(&mut errors, resource, &new, &old);
        let part = call.target.subresource;
        let update = Update { resource, state: &self.state, new: &new, old: &old, part, now: call.now };
        rules.validate_update(&mut errors, &update);
        if !errors.is_empty() {
            return Err(Refusal::invalid(resource.storage(), &name, &errors.into_list()));
        }
        call.warnings.extend(rules.warnings(&new, Some(&old)));
        admission::validate(self, call, Operation::Update, &new, Some(&old))?;
        let is_spec_changed = rules.has_generation()
            && call.target.subresource != Some(Subresource::Status)
            && rules.generation_parts(&new) != rules.generation_parts(&old);
        if is_spec_changed {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            new["metadata"]["generation"] = generation.into();
        }
        if new == old || call.is_dry_run() {
            if let Some(spec) = spec {
                // It was encoded by us.
                new["spec"] = serde_json::from_slice(spec).unwrap_or_default();
            }
            return Ok(Updated::Unwritten(new));
        }
        // The last finalizer of an object that is to go has gone.
        if object::is_being_deleted(&new) && rules.is_deletable(&new) {
            let key = call.key();
            self.state.put_with_spec(resource, new, spec);
            let last = self.state.remove(resource, &key);
            return Ok(last.map_or(Updated::Unwritten(Value::Null), Updated::Written));
        }
        Ok(Updated::Written(self.state.put_with_spec(resource, new, spec)))
    }

    fn check_preconditions(&self, call: &Call<'_>, old: &Value, new: &Value) -> Result<(), Refusal> {
        let (resource, name) = (call.target.resource, call.target.name.as_str());
        let uid = object::uid(new);
        // A patch is of whatever is there; that it changes the UID is for validation to say.
        if call.verb == Verb::Update && !uid.is_empty() && uid != object::uid(old) {
            return Err(wrong_uid(call, uid, object::uid(old)));
        }
        let version = object::meta(new, "resourceVersion");
        if version.is_empty() {
            return match rules::of(resource).updates_unconditionally() {
                true => Ok(()),
                false => Err(must_be_specified(resource, name)),
            };
        }
        match version == object::meta(old, "resourceVersion") {
            true => Ok(()),
            false => Err(Refusal::outdated(resource, name)),
        }
    }
}

/// Upstream's store is who finds it, and says where it keeps the object.
fn wrong_uid(call: &Call<'_>, wanted: &str, found: &str) -> Refusal {
    let target = &call.target;
    let directory = match target.resource.plural {
        "nodes" => "minions",
        "services" => "services/specs",
        plural => plural,
    };
    let key = [directory, &target.namespace, &target.name].join("/").replace("//", "/");
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
         failed: UID in precondition: {wanted}, UID in object meta: {found}"
    );
    Refusal::conflict(target.resource, &target.name, &why)
}

fn must_be_specified(resource: &crate::resources::Resource, name: &str) -> Refusal {
    let error = FieldError {
        path: "metadata.resourceVersion".to_owned(),
        kind: ErrorKind::Invalid,
        value: Some("0".to_owned()),
        detail: "must be specified for an update".to_owned(),
    };
    // Upstream names the resource here, not the kind.
    Refusal::invalid_kind(resource.group, resource.plural, name, &[error])
}

/// What an update cannot change, whatever it says.
fn keep_what_is_the_servers(new: &mut Value, old: &Value) {
    if object::uid(new).is_empty() {
        new["metadata"]["uid"] = old["metadata"]["uid"].clone();
    }
    for field in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "selfLink",
        "resourceVersion",
    ] {
        let kept = old["metadata"][field].clone();
        if kept.is_null() {
            object::remove(&mut new["metadata"], field);
        } else {
            new["metadata"][field] = kept;
        }
    }
}
