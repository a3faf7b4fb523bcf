//! What a cluster has from the beginning, and what each namespace has.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crablet_api::{Map, Text};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Controller, is_of};
use crate::access::defaults;
use crate::cluster::Cluster;
use crate::object;
use crate::resources::{
    CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CONFIG_MAPS, NAMESPACES, PRIORITY_CLASSES, SERVICE_ACCOUNTS,
    SERVICES,
};
use crate::state::{Change, ChangeKind, Key};

const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
const ROOT_CA: &str = "kube-root-ca.crt";
const ROOT_CA_DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
/// The first address of the range that services have theirs from.
pub(crate) const KUBERNETES_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub(crate) const KUBERNETES_PORT: u16 = 443;

#[derive(Debug)]
pub(super) struct Bootstrap {
    /// Whether something of what is always there may be missing.
    is_incomplete: bool,
    /// Namespaces that may lack what each has.
    namespaces: BTreeSet<Text>,
    /// Whether roles that gather others' rules may have to do so anew.
    gathers: bool,
}

impl Default for Bootstrap {
    fn default() -> Bootstrap {
        Bootstrap { is_incomplete: true, namespaces: BTreeSet::new(), gathers: true }
    }
}

impl Controller for Bootstrap {
    fn note(&mut self, change: &Change, _now: Timestamp) {
        if is_of(change, &NAMESPACES) {
            self.is_incomplete |= change.kind == ChangeKind::Deleted;
            self.namespaces.insert(change.key.name.clone());
        } else if is_of(change, &CLUSTER_ROLES) {
            self.gathers = true;
        } else if is_of(change, &SERVICES) {
            self.is_incomplete |= change.kind == ChangeKind::Deleted && *change.key.namespace == *"default";
        } else if (is_of(change, &SERVICE_ACCOUNTS) && *change.key.name == *"default")
            || (is_of(change, &CONFIG_MAPS) && *change.key.name == *ROOT_CA)
        {
            self.namespaces.insert(change.key.namespace.clone());
        }
    }

    fn work(&mut self, cluster: &mut Cluster, now: Timestamp) {
        if std::mem::take(&mut self.is_incomplete) {
            complete(cluster, now);
        }
        for namespace in std::mem::take(&mut self.namespaces) {
            if cluster.settings.controllers {
                furnish(cluster, &namespace, now);
            }
        }
        if std::mem::take(&mut self.gathers) {
            gather(cluster);
        }
    }
}

fn complete(cluster: &mut Cluster, now: Timestamp) {
    for namespace in SYSTEM_NAMESPACES {
        if cluster.state.get(&Key::new(&NAMESPACES, "", namespace)).is_none() {
            cluster.create_own(&NAMESPACES, json!({"metadata": {"name": namespace}}), now);
        }
    }
    // Who took a role away had a reason; all of them together are missing only at the first start.
    if cluster.state.get(&Key::new(&CLUSTER_ROLES, "", "cluster-admin")).is_none() {
        for role in defaults::roles() {
            cluster.create_own(&CLUSTER_ROLES, role, now);
        }
        for binding in defaults::bindings() {
            cluster.create_own(&CLUSTER_ROLE_BINDINGS, binding, now);
        }
    }
    for (name, value, description) in [
        (
            "system-node-critical",
            2_000_001_000_i64,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ] {
        if cluster.state.get(&Key::new(&PRIORITY_CLASSES, "", name)).is_none() {
            let class = json!({"metadata": {"name": name}, "value": value, "description": description});
            cluster.create_own(&PRIORITY_CLASSES, class, now);
        }
    }
    if cluster.state.get(&Key::new(&SERVICES, "default", "kubernetes")).is_none() {
        let port = cluster.settings.secure_port;
        let service = json!({
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            "spec": {
                "clusterIP": KUBERNETES_ADDRESS,
                "clusterIPs": [KUBERNETES_ADDRESS],
                "internalTrafficPolicy": "Cluster",
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "ports": [{"name": "https", "port": KUBERNETES_PORT, "protocol": "TCP", "targetPort": port}],
                "sessionAffinity": "None",
                "type": "ClusterIP",
            },
            "status": {"loadBalancer": {}},
        });
        cluster.create_own(&SERVICES, service, now);
    }
}

/// Gives a namespace what each has, as long as it stays.
fn furnish(cluster: &mut Cluster, namespace: &str, now: Timestamp) {
    let Some(own) = cluster.state.read(&NAMESPACES, "", namespace) else { return };
    if object::is_being_deleted(&own) {
        return;
    }
    if cluster.state.get(&Key::new(&SERVICE_ACCOUNTS, namespace, "default")).is_none() {
        let account = json!({"metadata": {"name": "default", "namespace": namespace}});
        cluster.create_own(&SERVICE_ACCOUNTS, account, now);
    }
    if cluster.settings.ca.is_empty() {
        return;
    }
    let data = json!({"ca.crt": cluster.settings.ca});
    let annotations = json!({"kubernetes.io/description": ROOT_CA_DESCRIPTION});
    match cluster.state.read(&CONFIG_MAPS, namespace, ROOT_CA) {
        None => {
            let metadata = json!({"name": ROOT_CA, "namespace": namespace, "annotations": annotations});
            cluster.create_own(&CONFIG_MAPS, json!({"metadata": metadata, "data": data}), now);
        }
        Some(mut map) => {
            let is_described = !map["metadata"]["annotations"]["kubernetes.io/description"].is_null();
            if map["data"] != data || !is_described {
                map["data"] = data;
                map["metadata"]["annotations"] = annotations;
                cluster.update_own(&CONFIG_MAPS, map);
            }
        }
    }
}

/// Lets the cluster roles that gather others' rules have them.
fn gather(cluster: &mut Cluster) {
    let roles: Vec<Value> = cluster.state.read_all(&CLUSTER_ROLES, None).collect();
    for role in &roles {
        let selectors = object::list(role, &["aggregationRule", "clusterRoleSelectors"]);
        if selectors.is_empty() {
            continue;
        }
        let mut rules: Vec<&Value> = Vec::new();
        for selector in selectors {
            let others = roles.iter().filter(|other| object::name(other) != object::name(role));
            for other in others.filter(|other| selects(selector, &object::labels(other))) {
                for rule in object::list(other, &["rules"]) {
                    if !rules.contains(&rule) {
                        rules.push(rule);
                    }
                }
            }
        }
        let is_same = object::list(role, &["rules"]).iter().eq(rules.iter().copied());
        if !is_same {
            let rules: Vec<Value> = rules.into_iter().cloned().collect();
            let mut role = role.clone();
            role["rules"] = rules.into();
            cluster.update_own(&CLUSTER_ROLES, role);
        }
    }
}

/// Whether a label selector that is an object means these labels.
pub(super) fn selects(selector: &Value, labels: &Map<Text>) -> bool {
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let matches = |key: &str, operator: &str, values: &[Value]| {
        let value = labels.get(key).map(Text::as_str);
        let is_in = || value.is_some_and(|value| values.iter().any(|one| one == value));
        match operator {
            "In" => is_in(),
            "NotIn" => !is_in(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    };
    equal.into_iter().all(|(key, value)| matches(key, "In", std::slice::from_ref(value)))
        && object::list(selector, &["matchExpressions"]).iter().all(|expression| {
            let values = object::list(expression, &["values"]);
            matches(object::text(expression, &["key"]), object::text(expression, &["operator"]), values)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Settings;
    use crate::state::State;

    fn cluster() -> Cluster {
        let settings = Settings { ca: "PEM".to_owned(), ..Settings::default() };
        let mut cluster = Cluster::new(State::default(), settings, 1);
        cluster.tick(Timestamp::UNIX_EPOCH);
        cluster
    }

    #[test]
    fn a_new_cluster_has_what_each_has() {
        let cluster = cluster();
        for namespace in SYSTEM_NAMESPACES {
            assert!(cluster.state.read(&NAMESPACES, "", namespace).is_some());
            assert!(cluster.state.read(&SERVICE_ACCOUNTS, namespace, "default").is_some());
            let map = cluster.state.read(&CONFIG_MAPS, namespace, ROOT_CA).unwrap();
            assert_eq!(map["data"]["ca.crt"], "PEM");
        }
        let service = cluster.state.read(&SERVICES, "default", "kubernetes").unwrap();
        assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
        let view = cluster.state.read(&CLUSTER_ROLES, "", "view").unwrap();
        let admin = cluster.state.read(&CLUSTER_ROLES, "", "admin").unwrap();
        assert_eq!(view["rules"].as_array().unwrap().len(), 12);
        for rule in view["rules"].as_array().unwrap() {
            assert!(admin["rules"].as_array().unwrap().contains(rule), "{rule}");
        }
    }

    #[test]
    fn nothing_is_written_when_nothing_has_changed() {
        let mut cluster = cluster();
        let before = cluster.state.revision();
        cluster.tick(Timestamp::UNIX_EPOCH);
        assert_eq!(cluster.state.revision(), before);
        // A new start finds all as it was.
        cluster.controllers = super::super::Controllers::default();
        cluster.tick(Timestamp::UNIX_EPOCH);
        assert_eq!(cluster.state.revision(), before);
    }

    #[test]
    fn what_was_deleted_comes_back_but_roles_do_not() {
        let mut cluster = cluster();
        for (resource, namespace, name) in [
            (&SERVICE_ACCOUNTS, "default", "default"),
            (&CONFIG_MAPS, "kube-system", ROOT_CA),
            (&SERVICES, "default", "kubernetes"),
            (&CLUSTER_ROLES, "", "system:monitoring"),
        ] {
            let key = Key::new(resource, namespace, name);
            cluster.state.remove(resource, &key);
            cluster.tick(Timestamp::UNIX_EPOCH);
            assert_eq!(cluster.state.get(&key).is_some(), *resource != CLUSTER_ROLES, "{name}");
        }
    }

    #[test]
    fn selectors_mean_what_they_say() {
        let labels: Map<Text> = [("a", Text::from("1"))].into_iter().collect();
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}), true),
            (json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}), true),
            (json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}), false),
            (json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}), true),
        ] {
            assert_eq!(selects(&selector, &labels), expected, "{selector}");
        }
    }
}
