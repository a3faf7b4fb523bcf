//! Service accounts.

use serde_json::{Value, json};

use super::{Context, Rules};
use crate::object;
use crate::resources::Subresource;

pub struct ServiceAccounts;

const MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

impl Rules for ServiceAccounts {
    fn prepare_create(&self, account: &mut Value, _context: &Context<'_>) {
        keep_names_of_secrets(account);
    }

    fn prepare_update(
        &self,
        new: &mut Value,
        _old: &Value,
        _part: Option<Subresource>,
        _context: &Context<'_>,
    ) {
        keep_names_of_secrets(new);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let has = |account: &Value| account["metadata"]["annotations"].get(MOUNTABLE_SECRETS).is_some();
        if !has(new) || old.is_some_and(has) {
            return Vec::new();
        }
        vec![format!(
            "metadata.annotations[{MOUNTABLE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to isolate access \
             to mounted secrets"
        )]
    }

    fn answers_deletion_with_status(&self) -> bool {
        false
    }
}

fn keep_names_of_secrets(account: &mut Value) {
    for secret in account.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        *secret = json!({"name": object::text(secret, &["name"])});
    }
}
