//! The roles and bindings that a cluster begins with: `default_roles.txt`.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::rbac::Rule;

const TEXT: &str = include_str!("default_roles.txt");

/// The rules that all nodes have, as far as objects are not theirs alone.
pub(super) static NODE_RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let lines = TEXT.lines().skip_while(|line| *line != "role system:node").skip(1);
    lines.take_while(|line| line.starts_with(' ')).map(rule).collect()
});

/// The cluster roles.
pub(crate) fn roles() -> Vec<Value> {
    let mut roles: Vec<Value> = Vec::new();
    for line in TEXT.lines() {
        if let Some(words) = line.strip_prefix("role ") {
            roles.push(role(words));
        } else if line.starts_with(' ')
            && let Some(role) = roles.last_mut()
        {
            let rule = serde_json::to_value(rule(line)).unwrap_or_default();
            match role["rules"].as_array_mut() {
                Some(rules) => rules.push(rule),
                None => role["rules"] = json!([rule]),
            }
        }
    }
    roles
}

/// The bindings to them.
pub(crate) fn bindings() -> Vec<Value> {
    TEXT.lines().filter_map(|line| line.strip_prefix("binding ")).map(binding).collect()
}

fn role(words: &str) -> Value {
    let mut words = words.split(' ');
    let mut role = json!({
        "kind": "ClusterRole",
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": metadata(words.next().unwrap_or_default()),
        "rules": null,
    });
    for word in words {
        match word.split_once('=') {
            Some(("label", label)) => role["metadata"]["labels"][label] = "true".into(),
            Some(("aggregate", label)) => {
                let labels = Map::from_iter([(label.to_owned(), "true".into())]);
                role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
            }
            _ => {}
        }
    }
    role
}

fn binding(words: &str) -> Value {
    let mut words = words.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (name, role) = (word(), word());
    let subjects: Vec<Value> = words.map(subject).collect();
    let mut binding = json!({
        "kind": "ClusterRoleBinding",
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": metadata(name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    });
    if !subjects.is_empty() {
        binding["subjects"] = subjects.into();
    }
    binding
}

fn subject(word: &str) -> Value {
    let (kind, name) = word.split_once(':').unwrap_or_default();
    match (kind, name.split_once('/')) {
        ("ServiceAccount", Some((namespace, name))) => {
            json!({"kind": kind, "name": name, "namespace": namespace})
        }
        _ => json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}),
    }
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

fn rule(line: &str) -> Rule {
    let mut parts = line.split('|').map(|part| part.split_whitespace().map(str::to_owned));
    let mut part = || parts.next().map(Iterator::collect::<Vec<String>>);
    let (verbs, second) = (part().unwrap_or_default(), part().unwrap_or_default());
    let Some(resources) = part() else {
        return Rule { verbs, non_resource_urls: second, ..Rule::default() };
    };
    let groups = second.into_iter().map(|group| if group == "core" { String::new() } else { group });
    Rule {
        verbs,
        api_groups: groups.collect(),
        resources,
        resource_names: part().unwrap_or_default(),
        non_resource_urls: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_what_is_meant() {
        let (roles, bindings) = (roles(), bindings());
        assert_eq!((roles.len(), bindings.len()), (32, 16));
        let find = |name: &str| roles.iter().find(|role| role["metadata"]["name"] == name).unwrap();
        assert_eq!(
            find("cluster-admin")["rules"],
            json!([
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ])
        );
        assert_eq!(
            find("system:certificates.k8s.io:kubelet-serving-approver")["rules"][0]["resourceNames"],
            json!(["kubernetes.io/kubelet-serving"])
        );
        assert_eq!(find("view")["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"], "true");
        assert_eq!(find("view")["rules"], Value::Null);
        assert_eq!(find("system:node")["rules"], json!(*NODE_RULES));
        for binding in &bindings {
            find(binding["roleRef"]["name"].as_str().unwrap());
        }
        let dns = bindings.iter().find(|binding| binding["metadata"]["name"] == "system:kube-dns").unwrap();
        assert_eq!(
            dns["subjects"],
            json!([{"kind": "ServiceAccount", "name": "kube-dns", "namespace": "kube-system"}])
        );
    }
}
