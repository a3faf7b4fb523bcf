//! Namespaces: they end when all in them has gone.

use crablet_api::qualified_name_errors;
use crablet_api::validate::{Errors, Word};
use serde_json::{Value, json};

use super::metadata::{self, check_standard_finalizer};
use super::{Context, NameForm, Rules, Update, keep_other_parts};
use crate::object;
use crate::resources::Subresource;

pub struct Namespaces;

/// What holds a namespace until it is empty.
pub(crate) const FINALIZER: &str = "kubernetes";
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Rules for Namespaces {
    fn name_form(&self) -> NameForm {
        NameForm::Label
    }

    fn default(&self, namespace: &mut Value, _part: Option<Subresource>) {
        let name = object::name(namespace).to_owned();
        if name.is_empty() {
            return;
        }
        object::holder(&mut namespace["metadata"], "labels")[NAME_LABEL] = name.into();
    }

    fn prepare_create(&self, namespace: &mut Value, _context: &Context<'_>) {
        namespace["status"] = json!({"phase": "Active"});
        let finalizers = object::list(namespace, &["spec", "finalizers"]);
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            let mut finalizers = finalizers.to_vec();
            finalizers.push(FINALIZER.into());
            object::holder(namespace, "spec")["finalizers"] = finalizers.into();
        }
    }

    fn validate_create(&self, errors: &mut Errors, namespace: &Value, _context: &Context<'_>) {
        check_finalizers(errors, namespace, false);
    }

    fn prepare_update(
        &self,
        new: &mut Value,
        old: &Value,
        part: Option<Subresource>,
        _context: &Context<'_>,
    ) {
        keep_other_parts(new, old, part);
        if part.is_none() {
            new["spec"] = old["spec"].clone();
        }
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, part, .. } = *update;
        match part {
            Some(Subresource::Status) => {
                metadata::check_update(errors, update);
                let phase = object::text(new, &["status", "phase"]);
                let (wanted, is) = if object::is_being_deleted(new) {
                    ("Terminating", "not empty")
                } else {
                    ("Active", "empty")
                };
                if phase != wanted {
                    let detail = format!("may only be '{wanted}' if `deletionTimestamp` is {is}");
                    errors.invalid("status.Phase", Word(phase), detail);
                }
            }
            Some(Subresource::Finalize) => {
                metadata::check_update(errors, update);
                check_finalizers(errors, new, true);
            }
            Some(_) | None => {
                metadata::check(errors, update.resource, NameForm::Label, new);
                check_finalizers(errors, new, false);
                metadata::check_update(errors, update);
            }
        }
    }

    fn prepare_deletion(&self, namespace: &mut Value) {
        object::remove(&mut namespace["metadata"], "deletionGracePeriodSeconds");
        namespace["status"]["phase"] = "Terminating".into();
    }

    fn is_held(&self, namespace: &Value) -> bool {
        !object::list(namespace, &["spec", "finalizers"]).is_empty()
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

fn check_finalizers(errors: &mut Errors, namespace: &Value, with_index: bool) {
    for (index, finalizer) in object::list(namespace, &["spec", "finalizers"]).iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        let path = match with_index {
            true => format!("spec.finalizers[{index}]"),
            false => "spec.finalizers".to_owned(),
        };
        errors.invalid_each(&path, name, qualified_name_errors(name));
        check_standard_finalizer(errors, &path, name);
    }
}
