//! Roles and bindings.

use crablet_api::dns1123_subdomain_errors;
use crablet_api::meta::LabelSelector;
use crablet_api::validate::{self, Errors};
use serde::Deserialize as _;
use serde_json::Value;

use super::checks::check_name;
use super::metadata;
use super::{Context, NameForm, Rules, Update, diff};
use crate::object;
use crate::resources::{Resource, Subresource};

pub struct Roles;
pub struct Bindings;

const GROUP: &str = "rbac.authorization.k8s.io";

impl Rules for Roles {
    fn name_form(&self) -> NameForm {
        NameForm::PathSegment
    }

    fn validate_create(&self, errors: &mut Errors, role: &Value, context: &Context<'_>) {
        check_role(errors, context.resource, role);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, .. } = *update;
        metadata::check(errors, update.resource, NameForm::PathSegment, new);
        check_role(errors, update.resource, new);
        metadata::check_update(errors, update);
    }

    fn creates_on_update(&self) -> bool {
        true
    }
}

impl Rules for Bindings {
    fn name_form(&self) -> NameForm {
        NameForm::PathSegment
    }

    fn default(&self, binding: &mut Value, _part: Option<Subresource>) {
        if binding["roleRef"].is_object() {
            object::fill_text(&mut binding["roleRef"], "apiGroup", GROUP);
        }
        for subject in binding.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
                object::fill_text(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate_create(&self, errors: &mut Errors, binding: &Value, context: &Context<'_>) {
        check_binding(errors, context.resource, binding);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        let Update { new, old, .. } = *update;
        metadata::check(errors, update.resource, NameForm::PathSegment, new);
        check_binding(errors, update.resource, new);
        metadata::check_update(errors, update);
        if new["roleRef"] != old["roleRef"] {
            let shown = diff::shown("rbac.RoleRef", &new["roleRef"]);
            errors.invalid("roleRef", shown, "cannot change roleRef");
        }
    }

    fn creates_on_update(&self) -> bool {
        true
    }
}

fn check_role(errors: &mut Errors, resource: &Resource, role: &Value) {
    for (index, rule) in object::list(role, &["rules"]).iter().enumerate() {
        let path = format!("rules[{index}]");
        let has = |field: &str| !object::list(rule, &[field]).is_empty();
        if !has("verbs") {
            errors.required(format_args!("{path}.verbs"), "verbs must contain at least one value");
        }
        if has("nonResourceURLs") {
            let urls = &rule["nonResourceURLs"];
            let path = format!("{path}.nonResourceURLs");
            if resource.is_namespaced() {
                errors.invalid(&path, urls, "namespaced rules cannot apply to non-resource URLs");
            }
            if has("apiGroups") || has("resources") || has("resourceNames") {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                errors.invalid(&path, urls, detail);
            }
            continue;
        }
        if !has("apiGroups") {
            let detail = "resource rules must supply at least one api group";
            errors.required(format_args!("{path}.apiGroups"), detail);
        }
        if !has("resources") {
            let detail = "resource rules must supply at least one resource";
            errors.required(format_args!("{path}.resources"), detail);
        }
    }
    if role["aggregationRule"].is_object() {
        let path = "aggregationRule.clusterRoleSelectors";
        let selectors = object::list(role, &["aggregationRule", "clusterRoleSelectors"]);
        if selectors.is_empty() {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.required(path, detail);
        }
        for (index, selector) in selectors.iter().enumerate() {
            if let Ok(selector) = LabelSelector::deserialize(selector) {
                validate::validate_label_selector(errors, &format!("{path}[{index}]"), &selector);
            }
        }
    }
}

fn check_binding(errors: &mut Errors, resource: &Resource, binding: &Value) {
    let text = |field: &str| object::text(binding, &["roleRef", field]);
    if text("apiGroup") != GROUP {
        errors.not_supported("roleRef.apiGroup", text("apiGroup"), &[GROUP]);
    }
    let kinds: &[&str] = if resource.is_namespaced() { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text("kind")) {
        errors.not_supported("roleRef.kind", text("kind"), kinds);
    }
    let problems = |name: &str| metadata::name_errors(NameForm::PathSegment, name, false);
    check_name(errors, "roleRef.name", text("name"), problems);
    for (index, subject) in object::list(binding, &["subjects"]).iter().enumerate() {
        check_subject(errors, &format!("subjects[{index}]"), subject, resource.is_namespaced());
    }
}

fn check_subject(errors: &mut Errors, path: &str, subject: &Value, is_namespaced: bool) {
    let text = |field: &str| object::text(subject, &[field]);
    let (name, group) = (text("name"), text("apiGroup"));
    if name.is_empty() {
        errors.required(format_args!("{path}.name"), "");
    }
    match text("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.invalid_each(format_args!("{path}.name"), name, dns1123_subdomain_errors(name));
            }
            if !group.is_empty() {
                errors.not_supported(format_args!("{path}.apiGroup"), group, &[""]);
            }
            if !is_namespaced && text("namespace").is_empty() {
                errors.required(format_args!("{path}.namespace"), "");
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.not_supported(format_args!("{path}.apiGroup"), group, &[GROUP]);
            }
        }
        kind => {
            errors.not_supported(format_args!("{path}.kind"), kind, &["ServiceAccount", "User", "Group"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::checks::lines;
    use super::*;
    use crate::resources::{CLUSTER_ROLE_BINDINGS, ROLES};

    #[test]
    fn rules_say_what_may_be_done_with_what() {
        let role = json!({"rules": [{"verbs": []}, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]});
        assert_eq!(
            lines(|errors| check_role(errors, &ROLES, &role)),
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
                r#"rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs"#,
            ]
        );
    }

    #[test]
    fn bindings_get_the_group_that_their_subjects_are_of() {
        let mut binding = json!({"roleRef": {"kind": "Role", "name": "a"},
            "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]});
        Bindings.default(&mut binding, None);
        assert_eq!(
            lines(|errors| check_binding(errors, &CLUSTER_ROLE_BINDINGS, &binding)),
            [
                r#"roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole""#,
                "subjects[1].namespace: Required value",
            ]
        );
    }
}
