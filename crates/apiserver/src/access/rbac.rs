//! Roles and bindings: what the stored rules let somebody do.

use serde::{Deserialize, Serialize};

use super::attributes::{About, Attributes};
use crate::resources::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Resource};
use crate::state::{Key, State};
use crate::status::Refusal;
use crate::who::User;

/// A rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rule {
    pub verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", rename = "nonResourceURLs")]
    pub non_resource_urls: Vec<String>,
}

/// Whom a binding is for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Subject {
    pub kind: String,
    pub name: String,
    pub namespace: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RoleRef {
    pub api_group: String,
    pub kind: String,
    pub name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Binding {
    subjects: Vec<Subject>,
    role_ref: RoleRef,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Role {
    /// Null in a role that gathers its rules and has found none.
    rules: Option<Vec<Rule>>,
}

impl Rule {
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
        if !has(&self.verbs, &attributes.verb) {
            return false;
        }
        match &attributes.about {
            About::Path(path) => self.non_resource_urls.iter().any(|url| covers_path(url, path)),
            About::Object(object) => {
                let combined = object.combined_resource();
                let is_resource = |resource: &String| {
                    let of_all =
                        |subresource: &str| !subresource.is_empty() && subresource == object.subresource;
                    resource == "*"
                        || *resource == *combined
                        || resource.strip_prefix("*/").is_some_and(of_all)
                };
                has(&self.api_groups, &object.group)
                    && self.resources.iter().any(is_resource)
                    && (self.resource_names.is_empty() || self.resource_names.contains(&object.name))
            }
        }
    }
}

/// Whether a path of a rule means another path: itself, or all that begins as it does before a star.
pub(super) fn covers_path(owner: &str, path: &str) -> bool {
    owner == path || (owner.ends_with('*') && path.starts_with(owner.trim_end_matches('*')))
}

/// Goes through the rules that somebody has in a namespace, or in all if it is empty, until one is found that is wanted;
/// what bound them to it, or else what was wrong with bindings on the way.
pub(super) fn find_rule(
    state: &State,
    user: &User,
    namespace: &str,
    mut wanted: impl FnMut(&Rule) -> bool,
) -> Result<String, Vec<Refusal>> {
    let mut errors = Vec::new();
    let mut look = |resource, namespace: &str| {
        for (key, stored) in state.list(resource, Some(namespace)) {
            let Ok(binding) = serde_json::from_slice::<Binding>(&stored.json()) else { continue };
            let applies = |subject: &&Subject| applies_to(user, subject, namespace);
            let Some(subject) = binding.subjects.iter().find(applies) else { continue };
            match rules_of(state, &binding.role_ref, namespace) {
                Ok(rules) if rules.iter().any(&mut wanted) => {
                    return Some(describe(key, &binding.role_ref, subject));
                }
                Ok(_) => {}
                Err(refusal) => errors.push(refusal),
            }
        }
        None
    };
    if let Some(source) = look(&CLUSTER_ROLE_BINDINGS, "") {
        return Ok(source);
    }
    if !namespace.is_empty()
        && let Some(source) = look(&ROLE_BINDINGS, namespace)
    {
        return Ok(source);
    }
    Err(errors)
}

/// All rules that somebody has in a namespace, and what was wrong with bindings on the way.
pub(super) fn rules_for(state: &State, user: &User, namespace: &str) -> (Vec<Rule>, Vec<Refusal>) {
    let mut rules = Vec::new();
    let found = find_rule(state, user, namespace, |rule| {
        rules.push(rule.clone());
        false
    });
    (rules, found.err().unwrap_or_default())
}

/// The rules of a role that a binding names; the binding's namespace is empty if it is for all.
pub(super) fn rules_of(state: &State, role: &RoleRef, namespace: &str) -> Result<Vec<Rule>, Refusal> {
    let (resource, namespace): (&'static Resource, _) = match role.kind.as_str() {
        "Role" => (&ROLES, namespace),
        "ClusterRole" => (&CLUSTER_ROLES, ""),
        other => {
            let why = format!("unsupported role reference kind: {other:?}");
            return Err(Refusal::new(500, "InternalError", why));
        }
    };
    let stored = state.get(&Key::new(resource, namespace, &role.name));
    let Some(stored) = stored else {
        return Err(Refusal::not_found(resource, &role.name));
    };
    let role: Role = serde_json::from_slice(&stored.json()).unwrap_or_default();
    Ok(role.rules.unwrap_or_default())
}

fn applies_to(user: &User, subject: &Subject, namespace: &str) -> bool {
    match subject.kind.as_str() {
        "User" => user.name == subject.name,
        "Group" => user.is_in(&subject.name),
        "ServiceAccount" => {
            let namespace = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
            service_account(&user.name) == Some((namespace, &subject.name))
        }
        _ => false,
    }
}

/// The namespace and name in the name of a service account's user.
pub fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

fn describe(key: &Key, role: &RoleRef, subject: &Subject) -> String {
    let (name, namespace) = (&key.name, &key.namespace);
    let binding = match namespace.is_empty() {
        true => format!("ClusterRoleBinding {:?}", name.as_str()),
        false => format!("RoleBinding {:?}", format!("{name}/{namespace}")),
    };
    let whom = match subject.kind.as_str() {
        "ServiceAccount" => {
            let own = if subject.namespace.is_empty() { namespace } else { subject.namespace.as_str() };
            format!("{}/{own}", subject.name)
        }
        _ => subject.name.clone(),
    };
    format!("{binding} of {} {:?} to {} {whom:?}", role.kind, role.name, subject.kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::access::attributes::ObjectAttributes;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Rule {
        let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
        Rule {
            verbs: owned(verbs),
            api_groups: owned(groups),
            resources: owned(resources),
            resource_names: owned(names),
            non_resource_urls: Vec::new(),
        }
    }

    #[test]
    fn rules_allow_what_upstreams_do() {
        let user = User::new("x", &[]);
        let allows = |rule: &Rule, verb: &str, resource: &str, name: &str| {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let object = ObjectAttributes {
                subresource: subresource.to_owned(),
                ..ObjectAttributes::new("g", resource, "ns", name)
            };
            rule.allows(&Attributes::new(&user, verb, object))
        };
        for (resources, resource, expected) in [
            (&["*"][..], "pods", true),
            (&["*"], "pods/log", true),
            (&["pods"], "pods", true),
            (&["pods"], "pods/log", false),
            (&["pods/log"], "pods", false),
            (&["pods/log"], "pods/log", true),
            (&["*/log"], "pods/log", true),
            (&["*/log"], "pods/slog", false),
            (&["*/log"], "pods", false),
            (&["pods/*"], "pods/log", false),
            (&["nodes", "pods"], "pods", true),
        ] {
            let rule = rule(&["get"], &["g"], resources, &[]);
            assert_eq!(allows(&rule, "get", resource, ""), expected, "{resources:?} {resource}");
        }
        assert!(!allows(&rule(&["list"], &["g"], &["pods"], &[]), "get", "pods", ""));
        assert!(allows(&rule(&["*"], &["*"], &["pods"], &[]), "get", "pods", ""));
        assert!(!allows(&rule(&["*"], &["other"], &["pods"], &[]), "get", "pods", ""));
        let named = rule(&["get"], &["g"], &["pods"], &["a", "b"]);
        assert!(allows(&named, "get", "pods", "b"));
        assert!(!allows(&named, "get", "pods", "c"));
        assert!(!allows(&named, "get", "pods", ""));
    }

    #[test]
    fn a_star_at_the_end_of_a_path_means_all_that_begins_so() {
        for (owner, path, expected) in [
            ("*", "/x", true),
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/ping", false),
            ("/healthz/*", "/healthz/ping", true),
            ("/healthz*", "/healthz", true),
            ("/a*b", "/aab", false),
        ] {
            assert_eq!(covers_path(owner, path), expected, "{owner} {path}");
        }
    }

    fn state() -> State {
        let mut state = State::default();
        let rules = |verb: &str, resource: &str| json!([{"verbs": [verb], "apiGroups": [""], "resources": [resource]}]);
        let role_ref = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        state.put(&CLUSTER_ROLES, json!({"metadata": {"name": "reader"}, "rules": rules("get", "pods")}));
        state.put(
            &ROLES,
            json!({"metadata": {"name": "writer", "namespace": "a"}, "rules": rules("create", "pods")}),
        );
        state.put(
            &CLUSTER_ROLE_BINDINGS,
            json!({
                "metadata": {"name": "everybody"},
                "subjects": [{"kind": "Group", "name": "people"}],
                "roleRef": role_ref("ClusterRole", "reader"),
            }),
        );
        state.put(
            &ROLE_BINDINGS,
            json!({
                "metadata": {"name": "local", "namespace": "a"},
                "subjects": [{"kind": "ServiceAccount", "name": "robot"}, {"kind": "User", "name": "jane"}],
                "roleRef": role_ref("Role", "writer"),
            }),
        );
        state.put(
            &ROLE_BINDINGS,
            json!({
                "metadata": {"name": "reads", "namespace": "b"},
                "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "a"}],
                "roleRef": role_ref("ClusterRole", "reader"),
            }),
        );
        state.put(
            &ROLE_BINDINGS,
            json!({
                "metadata": {"name": "dangling", "namespace": "b"},
                "subjects": [{"kind": "User", "name": "joe"}],
                "roleRef": role_ref("Role", "gone"),
            }),
        );
        state
    }

    #[test]
    fn bindings_give_rules_where_they_hold() {
        let state = state();
        let robot = User::new("system:serviceaccount:a:robot", &[]);
        for (user, verb, namespace, expected) in [
            (
                User::new("jim", &["people"]),
                "get",
                "",
                Some(
                    r#"RBAC: allowed by ClusterRoleBinding "everybody" of ClusterRole "reader" to Group "people""#,
                ),
            ),
            (User::new("jim", &["people"]), "create", "a", None),
            (
                User::new("jane", &[]),
                "create",
                "a",
                Some(r#"RBAC: allowed by RoleBinding "local/a" of Role "writer" to User "jane""#),
            ),
            (User::new("jane", &[]), "create", "b", None),
            (User::new("jane", &[]), "create", "", None),
            (
                robot.clone(),
                "create",
                "a",
                Some(
                    r#"RBAC: allowed by RoleBinding "local/a" of Role "writer" to ServiceAccount "robot/a""#,
                ),
            ),
            (
                robot.clone(),
                "get",
                "b",
                Some(
                    r#"RBAC: allowed by RoleBinding "reads/b" of ClusterRole "reader" to ServiceAccount "robot/a""#,
                ),
            ),
            (robot, "get", "", None),
            (User::new("system:serviceaccount:b:robot", &[]), "create", "a", None),
        ] {
            let attributes = Attributes::new(&user, verb, ObjectAttributes::new("", "pods", namespace, "p"));
            let decision = crate::access::authorize(&state, &attributes);
            assert_eq!(
                decision.allowed.then_some(decision.reason.as_str()),
                expected,
                "{} {verb}",
                user.name
            );
        }
    }

    #[test]
    fn a_binding_to_no_role_is_told() {
        let user = User::new("joe", &[]);
        let attributes = Attributes::new(&user, "get", ObjectAttributes::new("", "pods", "b", ""));
        let decision = crate::access::authorize(&state(), &attributes);
        assert_eq!(
            (decision.allowed, decision.reason.as_str()),
            (false, r#"RBAC: roles.rbac.authorization.k8s.io "gone" not found"#)
        );
    }
}
