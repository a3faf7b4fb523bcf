//! Nobody grants what they do not have: roles and bindings are compared with the rights of who writes them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::attributes::{Attributes, ObjectAttributes};
use super::rbac::{self, RoleRef, Rule};
use crate::cluster::{Call, Cluster};
use crate::object;
use crate::resources::Resource;
use crate::state::State;
use crate::status::Refusal;
use crate::who::{MASTERS, User};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Who wants to write a role or binding, and where.
struct Writer<'w> {
    state: &'w State,
    user: &'w User,
    /// Empty for what is in none.
    namespace: &'w str,
    /// As the path has it: empty for what is created.
    name: &'w str,
}

impl Cluster {
    /// Refuses a role or binding that gives more than its writer has.
    pub(crate) fn check_escalation(
        &self,
        call: &Call<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Refusal> {
        let writer = Writer {
            state: &self.state,
            user: &call.request.user,
            namespace: &call.target.namespace,
            name: &call.target.name,
        };
        writer.check(call.target.resource, new, old)
    }
}

impl Writer<'_> {
    /// Refuses a role or binding that gives more than its writer has. Other kinds give nothing.
    fn check(&self, resource: &'static Resource, new: &Value, old: Option<&Value>) -> Result<(), Refusal> {
        if resource.group != GROUP || self.user.is_in(MASTERS) {
            return Ok(());
        }
        match resource.plural {
            "clusterroles" | "roles" => {
                if self.may("escalate", resource.plural, self.name)
                    || old.is_some_and(|old| is_for_the_collector(new, old))
                {
                    return Ok(());
                }
                let refuse = |why: String| Refusal::forbidden(resource, object::name(new), why);
                self.confirm(&rules(new)).map_err(refuse)?;
                let gathers = |role: &Value| {
                    !object::list(role, &["aggregationRule", "clusterRoleSelectors"]).is_empty()
                };
                if (gathers(new) || old.is_some_and(gathers)) && self.confirm(&everything()).is_err() {
                    return Err(refuse(
                        "must have cluster-admin privileges to use the aggregationRule".to_owned(),
                    ));
                }
                Ok(())
            }
            "clusterrolebindings" | "rolebindings" => {
                if old.is_some_and(|old| is_for_the_collector(new, old)) {
                    return Ok(());
                }
                let role = RoleRef::deserialize(&new["roleRef"]).unwrap_or_default();
                let roles = match role.kind.as_str() {
                    "ClusterRole" => "clusterroles",
                    "Role" => "roles",
                    _ => "",
                };
                if !roles.is_empty() && self.may("bind", roles, &role.name) {
                    return Ok(());
                }
                let rules = rbac::rules_of(self.state, &role, self.namespace)?;
                self.confirm(&rules).map_err(|why| Refusal::forbidden(resource, object::name(new), why))
            }
            _ => Ok(()),
        }
    }

    fn may(&self, verb: &str, resource: &str, name: &str) -> bool {
        let object = ObjectAttributes::new(GROUP, resource, self.namespace, name);
        super::authorize(self.state, &Attributes::new(self.user, verb, object)).allowed
    }

    /// What is missing, in upstream's words.
    fn confirm(&self, rules: &[Rule]) -> Result<(), String> {
        let (own, errors) = rbac::rules_for(self.state, self.user, self.namespace);
        let missing = uncovered(&own, rules);
        if missing.is_empty() {
            return Ok(());
        }
        let missing: BTreeSet<String> = compact(missing).iter().map(described).collect();
        let missing = missing.into_iter().collect::<Vec<_>>().join("\n");
        let User { name, groups, .. } = self.user;
        let mut message = format!(
            "user {name:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{missing}",
            quoted(groups)
        );
        if !errors.is_empty() {
            message.push_str(&format!("; resolution errors: [{}]", super::aggregate(&errors)));
        }
        Err(message)
    }
}

/// Whether an update changes nothing but what the garbage collector needs.
pub(crate) fn is_for_the_collector(new: &Value, old: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            object::remove(&mut object["metadata"], field);
        }
        object
    };
    without(new) == without(old)
}

fn rules(role: &Value) -> Vec<Rule> {
    Option::deserialize(&role["rules"]).ok().flatten().unwrap_or_default()
}

fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
    ]
}

/// What of the wanted rules no own rule covers, each taken apart to one verb of one thing.
fn uncovered(own: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(taken_apart);
    parts.filter(|part| !own.iter().any(|rule| covers(rule, part))).collect()
}

fn taken_apart(rule: &Rule) -> Vec<Rule> {
    let mut parts = Vec::new();
    let one = |text: &String| vec![text.clone()];
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let part = Rule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    ..Rule::default()
                };
                match rule.resource_names.as_slice() {
                    [] => parts.push(part),
                    names => parts
                        .extend(names.iter().map(|name| Rule { resource_names: one(name), ..part.clone() })),
                }
            }
        }
    }
    for path in &rule.non_resource_urls {
        let verbs = rule.verbs.iter();
        parts.extend(verbs.map(|verb| Rule {
            verbs: one(verb),
            non_resource_urls: one(path),
            ..Rule::default()
        }));
    }
    parts
}

fn covers(own: &Rule, part: &Rule) -> bool {
    let has = |list: &[String], wanted: &[String]| {
        list.iter().any(|one| one == "*") || wanted.iter().all(|one| list.contains(one))
    };
    let has_resource = |resource: &String| {
        let of_all = || resource.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
        own.resources.contains(resource) || of_all().is_some_and(|all| own.resources.contains(&all))
    };
    let has_path = |path: &String| own.non_resource_urls.iter().any(|url| rbac::covers_path(url, path));
    let names = own.resource_names.is_empty()
        || (!part.resource_names.is_empty()
            && part.resource_names.iter().all(|name| own.resource_names.contains(name)));
    has(&own.verbs, &part.verbs)
        && has(&own.api_groups, &part.api_groups)
        && (own.resources.iter().any(|one| one == "*") || part.resources.iter().all(has_resource))
        && part.non_resource_urls.iter().all(has_path)
        && names
}

/// Parts that differ in their verbs alone, put together again.
fn compact(parts: Vec<Rule>) -> Vec<Rule> {
    let mut together: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    let mut compacted = Vec::new();
    for mut part in parts {
        if part.non_resource_urls.is_empty() {
            let verbs = std::mem::take(&mut part.verbs);
            together.entry(part).or_default().extend(verbs);
        } else {
            compacted.push(part);
        }
    }
    compacted.extend(together.into_iter().map(|(rule, verbs)| Rule { verbs, ..rule }));
    compacted
}

fn described(rule: &Rule) -> String {
    let parts = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let parts = parts.into_iter().filter(|(_, list)| !list.is_empty());
    let parts: Vec<String> = parts.map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
    format!("{{{}}}", parts.join(", "))
}

/// `["a" "b"]`, as Go writes lists.
fn quoted(list: &[String]) -> String {
    let list: Vec<String> = list.iter().map(|one| format!("{one:?}")).collect();
    format!("[{}]", list.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES};

    fn state(rules: Value) -> State {
        let mut state = State::default();
        state.put(&CLUSTER_ROLES, json!({"metadata": {"name": "own"}, "rules": rules}));
        state.put(
            &CLUSTER_ROLE_BINDINGS,
            json!({
                "metadata": {"name": "own"},
                "subjects": [{"kind": "User", "name": "jane"}],
                "roleRef": {"kind": "ClusterRole", "name": "own"},
            }),
        );
        state.put(
            &CLUSTER_ROLES,
            json!({"metadata": {"name": "secrets"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]}),
        );
        state
    }

    fn check(state: &State, resource: &'static Resource, new: &Value) -> Result<(), String> {
        let user = User::new("jane", &["people", "system:authenticated"]);
        let writer = Writer { state, user: &user, namespace: "ns", name: "" };
        writer.check(resource, new, None).map_err(|refusal| refusal.message)
    }

    #[test]
    fn a_role_cannot_give_more_than_its_writer_has() {
        let state = state(json!([
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["*"], "apiGroups": [""], "resources": ["*/log"]},
        ]));
        let role = |rules: Value| json!({"metadata": {"name": "new"}, "rules": rules});
        let within = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods", "pods/log"], "resourceNames": ["a"]}]);
        assert_eq!(check(&state, &ROLES, &role(within)), Ok(()));
        let beyond = json!([
            {"verbs": ["get", "delete", "create"], "apiGroups": [""], "resources": ["pods", "nodes"]},
            {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
        ]);
        assert_eq!(
            check(&state, &ROLES, &role(beyond)),
            Err([
                r#"roles.rbac.authorization.k8s.io "new" is forbidden: user "jane" (groups=["people" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:"#,
                r#"{APIGroups:[""], Resources:["nodes"], Verbs:["get" "delete" "create"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete" "create"]}"#,
                r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#,
            ]
            .join("\n"))
        );
    }

    #[test]
    fn who_may_escalate_or_bind_gives_what_they_do_not_have() {
        let rbac = |verb: &str, resource: &str| {
            state(json!([{"verbs": [verb], "apiGroups": [GROUP], "resources": [resource]}]))
        };
        let role = json!({"metadata": {"name": "new"}, "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
        assert_eq!(check(&rbac("escalate", "roles"), &ROLES, &role), Ok(()));
        assert!(check(&rbac("bind", "roles"), &ROLES, &role).is_err());
        let binding = json!({
            "metadata": {"name": "new"},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "secrets"},
        });
        assert_eq!(check(&rbac("bind", "clusterroles"), &ROLE_BINDINGS, &binding), Ok(()));
        let refused = check(&rbac("escalate", "clusterroles"), &ROLE_BINDINGS, &binding).unwrap_err();
        assert!(
            refused.ends_with("\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}"),
            "{refused}"
        );
        let dangling = json!({"metadata": {"name": "new"}, "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "none"}});
        assert_eq!(
            check(&rbac("get", "roles"), &ROLE_BINDINGS, &dangling),
            Err(r#"roles.rbac.authorization.k8s.io "none" not found"#.to_owned())
        );
    }

    #[test]
    fn to_gather_rules_one_must_have_all() {
        let role = json!({"metadata": {"name": "new"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
        let some = state(json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]));
        let refused = check(&some, &CLUSTER_ROLES, &role);
        // All on all objects includes `escalate`.
        assert_eq!(refused, Ok(()));
        let some = state(json!([{"verbs": ["get"], "apiGroups": ["*"], "resources": ["*"]}]));
        assert_eq!(
            check(&some, &CLUSTER_ROLES, &role),
            Err(r#"clusterroles.rbac.authorization.k8s.io "new" is forbidden: must have cluster-admin privileges to use the aggregationRule"#.to_owned())
        );
    }
}
