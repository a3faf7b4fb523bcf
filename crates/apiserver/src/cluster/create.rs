//! Creating objects.

use crablet_api::validate::Errors;
use serde_json::Value;

use super::{Call, Cluster, body};
use crate::admission::{self, Operation};
use crate::answer::Document;
use crate::object;
use crate::rules;
use crate::status::Refusal;

/// How often another name is tried where a generated one is taken.
const NAME_TRIES: usize = 8;

impl Cluster {
    pub(super) fn create(&mut self, call: &mut Call<'_>) -> Result<Document, Refusal> {
        let object = body::object(call)?;
        let created = self.create_object(call, object)?;
        self.show(call, 201, created)
    }

    /// Creates an object of the target's kind, as far as the rules let it.
    pub(crate) fn create_object(&mut self, call: &mut Call<'_>, mut object: Value) -> Result<Value, Refusal> {
        let resource = call.target.resource;
        self.settle_namespace(call, &mut object)?;
        let generates = object::name(&object).is_empty() && !object::meta(&object, "generateName").is_empty();
        for turn in 0..NAME_TRIES {
            let mut object = object.clone();
            if generates {
                let base = object::meta(&object, "generateName");
                // A name has 63 letters, and five are the suffix.
                let base: String = base.chars().take(58).collect();
                object["metadata"]["name"] = format!("{base}{}", self.chance.suffix()).into();
            }
            match self.create_named(call, object) {
                Err(refusal) if refusal.reason == "AlreadyExists" && generates && turn + 1 < NAME_TRIES => {}
                answer => return answer,
            }
        }
        Err(Refusal::already_exists(resource, object::meta(&object, "generateName")))
    }

    fn create_named(&mut self, call: &mut Call<'_>, mut object: Value) -> Result<Value, Refusal> {
        let resource = call.target.resource;
        let rules = rules::of(resource);
        object["metadata"]["uid"] = self.chance.uid().into();
        object["metadata"]["creationTimestamp"] = object::time(call.now);
        for field in [
            "resourceVersion",
            "selfLink",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
        ] {
            if field == "resourceVersion" && !object::meta(&object, field).is_empty() {
                let why = "resourceVersion should not be set on objects to be created";
                return Err(Refusal::new(500, "", why));
            }
            object::remove(&mut object["metadata"], field);
        }
        rules.default(&mut object, None);
        admission::mutate(self, call, Operation::Create, &mut object, None)?;
        self.check_escalation(call, &object, None)?;
        let context = self.context(call);
        rules.prepare_create(&mut object, &context);
        if rules.has_generation() {
            object["metadata"]["generation"] = 1.into();
        }
        let mut errors = Errors::default();
        rules.validate_metadata(&mut errors, resource, &object);
        rules.validate_create(&mut errors, &object, &context);
        if !errors.is_empty() {
            return Err(Refusal::invalid(resource.storage(), object::name(&object), &errors.into_list()));
        }
        call.warnings.extend(rules.warnings(&object, None));
        admission::validate(self, call, Operation::Create, &object, None)?;
        let key = crate::state::Key::new(resource, object::namespace(&object), object::name(&object));
        if self.state.get(&key).is_some() {
            return Err(Refusal::already_exists(resource, object::name(&object)));
        }
        if call.is_dry_run() {
            return Ok(object);
        }
        let stored = self.state.put(resource, object);
        Ok(stored.decode())
    }

    /// The namespace of an object is the path's.
    fn settle_namespace(&self, call: &Call<'_>, object: &mut Value) -> Result<(), Refusal> {
        let (said, wanted) = (object::namespace(object), call.target.namespace.as_str());
        if !call.target.resource.is_namespaced() {
            if !said.is_empty() {
                return Err(Refusal::bad_request("namespace may not be set on cluster-scoped resources"));
            }
            return Ok(());
        }
        if wanted.is_empty() {
            return Err(Refusal::bad_request("an empty namespace may not be set during creation"));
        }
        if !said.is_empty() && said != wanted {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        object["metadata"]["namespace"] = wanted.into();
        Ok(())
    }
}
