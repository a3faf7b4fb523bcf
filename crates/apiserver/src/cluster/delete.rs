//! Deleting objects: at once, after a grace period, or when the last finalizer has gone.

use crablet_api::validate::{Errors, Word};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Call, Cluster};
use crate::admission::{self, Operation};
use crate::answer::Document;
use crate::object;
use crate::request::Query;
use crate::rules::{self, Rules};
use crate::schema::{self, DecodeError, Encoding, Expected};
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
    pub(crate) is_dry_run: bool,
}

impl DeleteOptions {
    /// What the body says, or the query where there is no body.
    fn of(call: &Call<'_>) -> Result<DeleteOptions, Refusal> {
        let options = match call.request.body.is_empty() {
            true => options_in_query(&call.query)?,
            false => {
                let encoding = super::body::encoding(&call.request.content_type).unwrap_or(Encoding::Json);
                let expected =
                    Expected { schema: "meta.DeleteOptions", api_version: "v1", kind: "DeleteOptions" };
                schema::decode(&expected, encoding, &call.request.body)
                    .map_err(DecodeError::bare_refusal)?
                    .object
            }
        };
        check_options(&options)?;
        Ok(DeleteOptions::in_object(&options))
    }

    /// The options as an object says them.
    pub(crate) fn in_object(options: &Value) -> DeleteOptions {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        // So it was said before there were three ways.
        let orphan = options["orphanDependents"].as_bool().map(|orphan| match orphan {
            true => "Orphan".to_owned(),
            false => "Background".to_owned(),
        });
        DeleteOptions {
            grace: options["gracePeriodSeconds"].as_i64(),
            uid: text(&options["preconditions"]["uid"]),
            version: text(&options["preconditions"]["resourceVersion"]),
            propagation: text(&options["propagationPolicy"]).or(orphan),
            is_dry_run: !object::list(options, &["dryRun"]).is_empty(),
        }
    }
}

fn options_in_query(query: &Query) -> Result<Value, Refusal> {
    let mut options = json!({});
    if let Some(grace) = query.number("gracePeriodSeconds")? {
        options["gracePeriodSeconds"] = grace.into();
    }
    if let Some(propagation) = query.get("propagationPolicy") {
        options["propagationPolicy"] = propagation.into();
    }
    if query.get("orphanDependents").is_some() {
        options["orphanDependents"] = query.flag("orphanDependents").into();
    }
    options["dryRun"] = query.all("dryRun").filter(|value| !value.is_empty()).collect();
    Ok(options)
}

fn check_options(options: &Value) -> Result<(), Refusal> {
    let mut errors = Errors::default();
    if let Some(policy) = options["propagationPolicy"].as_str() {
        if !options["orphanDependents"].is_null() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.invalid("propagationPolicy", Word(policy), detail);
        }
        if !["Foreground", "Background", "Orphan"].contains(&policy) {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            errors.not_supported("propagationPolicy", Word(policy), &supported);
        }
    }
    if object::list(options, &["dryRun"]).iter().any(|said| said != "All") {
        errors.not_supported("dryRun", &options["dryRun"], &["All"]);
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Refusal::invalid_kind("meta.k8s.io", "DeleteOptions", "", &errors.into_list())),
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
        let asked = options.grace.map(|grace| if grace < 0 { 1 } else { grace });
        let (is_graceful, grace) = match begin(&mut new, rules, asked, call) {
            Begun::Already => return Ok((old, false)),
            Begun::AtOnce => (false, 0),
            Begun::Gracefully(grace) => (true, grace),
        };
        match options.propagation.as_deref() {
            Some("Foreground") => object::add_finalizer(&mut new, "foregroundDeletion"),
            Some("Orphan") => object::add_finalizer(&mut new, "orphan"),
            Some(_) | None => {}
        }
        let is_held = !object::finalizers(&new).is_empty() || rules.is_held(&new);
        if !is_graceful && is_held {
            mark(&mut new, call);
            rules.prepare_deletion(&mut new);
        }
        // What ends gracefully is seen to do so, even where that takes no time.
        let new = match (is_graceful || is_held) && new != old && !options.is_dry_run {
            true => self.state.put(resource, new).decode(),
            false => new,
        };
        if is_held || grace > 0 {
            return Ok((new, false));
        }
        if options.is_dry_run {
            return Ok((new, true));
        }
        let last = self.state.remove(resource, &key).map(|last| last.decode()).unwrap_or_default();
        Ok((last, true))
    }
}

/// How a deletion goes on.
enum Begun {
    /// It has begun, and nothing was asked that would hasten it.
    Already,
    /// The kind knows no grace, or none is left.
    AtOnce,
    /// After so many seconds.
    Gracefully(i64),
}

/// Sets when an object is to go, for kinds that end gracefully. A period only shrinks.
fn begin(object: &mut Value, rules: &dyn Rules, asked: Option<i64>, call: &Call<'_>) -> Begun {
    let Some(grace) = rules.grace(object, asked) else { return Begun::AtOnce };
    if !object::is_being_deleted(object) {
        let ends = call.now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(call.now);
        set_deletion(object, ends, grace);
        count_generation(object);
        return Begun::Gracefully(grace);
    }
    let known = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if known == 0 {
        return Begun::AtOnce;
    }
    let Some(asked) = asked.filter(|asked| *asked < known) else { return Begun::Already };
    // It began when it began; what has passed of the shorter period is not given again.
    let ends = object::meta(object, "deletionTimestamp").parse::<Timestamp>().unwrap_or(call.now);
    let ends = ends.checked_sub(SignedDuration::from_secs(known - asked)).unwrap_or(call.now);
    let (ends, asked) = match ends < call.now {
        true => (call.now, asked.min(1)),
        false => (ends, asked),
    };
    set_deletion(object, ends, asked);
    Begun::Gracefully(asked)
}

/// Says that an object is to go as soon as nothing holds it any more.
fn mark(object: &mut Value, call: &Call<'_>) {
    let ends = object::meta(object, "deletionTimestamp").parse::<Timestamp>().ok();
    if ends.is_none() {
        count_generation(object);
    }
    let ends = ends.filter(|ends| *ends <= call.now).unwrap_or(call.now);
    set_deletion(object, ends, 0);
}

fn set_deletion(object: &mut Value, ends: Timestamp, grace: i64) {
    object["metadata"]["deletionTimestamp"] = object::time(ends);
    object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
}

/// That it is to go is a change of what is wanted, too.
fn count_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|generation| *generation > 0) {
        object["metadata"]["generation"] = (generation + 1).into();
    }
}

pub(super) fn check_preconditions(
    call: &Call<'_>,
    options: &DeleteOptions,
    old: &Value,
) -> Result<(), Refusal> {
    let (resource, name) = (call.target.resource, call.target.name.as_str());
    for (what, wanted, found, how) in [
        ("UID", &options.uid, object::uid(old), "deleted and then recreated"),
        ("ResourceVersion", &options.version, object::meta(old, "resourceVersion"), "modified"),
    ] {
        let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != found) else { continue };
        // Upstream names the kind here, not the resource.
        let kind = resource.kind;
        let qualified =
            if resource.group.is_empty() { kind.to_owned() } else { format!("{kind}.{}", resource.group) };
        let mut refusal = Refusal::conflict(resource, name, "");
        refusal.message = format!(
            "Operation cannot be fulfilled on {qualified} {name:?}: the {what} in the precondition ({wanted}) does not match \
             the {what} in record ({found}). The object might have been {how}"
        );
        if let Some(details) = &mut refusal.details {
            details["kind"] = kind.into();
        }
        return Err(refusal);
    }
    Ok(())
}
