//! Rows of the core's kinds.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::printer::{Column, Printer, age, count, labels, name, text, text_or, texts};
use crate::object;

pub(super) static CONFIG_MAPS: Printer =
    Printer::new(&[Column::NAME, Column::text("Data"), Column::AGE], |map, now| {
        let data = count(map, &["data"]) + count(map, &["binaryData"]);
        vec![name(map), data.into(), age(map, now)]
    });

pub(super) static SECRETS: Printer =
    Printer::new(&[Column::NAME, Column::text("Type"), Column::text("Data"), Column::AGE], |secret, now| {
        vec![name(secret), text(secret, &["type"]), count(secret, &["data"]).into(), age(secret, now)]
    });

pub(super) static NAMESPACES: Printer =
    Printer::new(&[Column::NAME, Column::text("Status"), Column::AGE], |namespace, now| {
        vec![name(namespace), text(namespace, &["status", "phase"]), age(namespace, now)]
    });

pub(super) static NODES: Printer = Printer::new(
    &[
        Column::NAME,
        Column::text("Status"),
        Column::text("Roles"),
        Column::AGE,
        Column::text("Version"),
        Column::text("Internal-IP").wide(),
        Column::text("External-IP").wide(),
        Column::text("OS-Image").wide(),
        Column::text("Kernel-Version").wide(),
        Column::text("Container-Runtime").wide(),
    ],
    node,
);

fn node(node: &Value, now: Timestamp) -> Vec<Value> {
    let info = |field: &str| text_or(node, &["status", "nodeInfo", field], "<unknown>");
    let kernel = match object::text(node, &["status", "nodeInfo", "architecture"]) {
        "" => info("kernelVersion"),
        architecture => {
            format!("{} ({architecture})", info("kernelVersion").as_str().unwrap_or_default()).into()
        }
    };
    vec![
        name(node),
        node_status(node).into(),
        node_roles(node).into(),
        age(node, now),
        text(node, &["status", "nodeInfo", "kubeletVersion"]),
        node_address(node, "InternalIP"),
        node_address(node, "ExternalIP"),
        info("osImage"),
        kernel,
        info("containerRuntimeVersion"),
    ]
}

fn node_status(node: &Value) -> String {
    let conditions = object::list(node, &["status", "conditions"]);
    // Where a node says it twice, the last counts.
    let ready = conditions.iter().rev().find(|condition| condition["type"] == "Ready");
    let status = match ready {
        None => "Unknown",
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
    };
    match node["spec"]["unschedulable"] == true {
        true => format!("{status},SchedulingDisabled"),
        false => status.to_owned(),
    }
}

fn node_roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    match roles.is_empty() {
        true => "<none>".to_owned(),
        false => roles.into_iter().collect::<Vec<_>>().join(","),
    }
}

fn node_address(node: &Value, r#type: &str) -> Value {
    let mut addresses = object::list(node, &["status", "addresses"]).iter();
    let address = addresses.find(|address| address["type"] == r#type);
    address.map_or_else(|| "<none>".into(), |address| text(address, &["address"]))
}

pub(super) static SERVICES: Printer = Printer::new(
    &[
        Column::NAME,
        Column::text("Type"),
        Column::text("Cluster-IP"),
        Column::text("External-IP"),
        Column::text("Port(s)"),
        Column::AGE,
        Column::text("Selector").wide(),
    ],
    |service, now| {
        let cluster_ips = texts(service, &["spec", "clusterIPs"]);
        vec![
            name(service),
            text(service, &["spec", "type"]),
            cluster_ips.first().copied().unwrap_or("<none>").into(),
            external_address(service).into(),
            ports(service).into(),
            age(service, now),
            labels(service, &["spec", "selector"]),
        ]
    },
);

fn external_address(service: &Value) -> String {
    let said = texts(service, &["spec", "externalIPs"]);
    let or = |addresses: Vec<&str>, otherwise: &str| match addresses.is_empty() {
        true => otherwise.to_owned(),
        false => addresses.join(","),
    };
    match object::text(service, &["spec", "type"]) {
        "ClusterIP" | "NodePort" => or(said, "<none>"),
        "LoadBalancer" => {
            let ingress = object::list(service, &["status", "loadBalancer", "ingress"]).iter();
            let given = ingress.map(|ingress| match object::text(ingress, &["ip"]) {
                "" => object::text(ingress, &["hostname"]),
                ip => ip,
            });
            let given: BTreeSet<&str> = given.filter(|address| !address.is_empty()).collect();
            or(given.into_iter().chain(said).collect(), "<pending>")
        }
        "ExternalName" => object::text(service, &["spec", "externalName"]).to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn ports(service: &Value) -> String {
    let ports = object::list(service, &["spec", "ports"]).iter();
    let ports: Vec<String> = ports
        .map(|port| {
            let number = |field: &str| port[field].as_i64().unwrap_or(0);
            let (own, protocol) = (number("port"), object::text(port, &["protocol"]));
            match number("nodePort") {
                node if node > 0 => format!("{own}:{node}/{protocol}"),
                _ => format!("{own}/{protocol}"),
            }
        })
        .collect();
    match ports.is_empty() {
        true => "<none>".to_owned(),
        false => ports.join(","),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::printer::check::{check, days_ago};
    use super::*;

    #[test]
    fn config_maps_secrets_and_namespaces_are_counted_and_named() {
        let metadata = json!({"name": "a", "creationTimestamp": days_ago(3)});
        check(&CONFIG_MAPS, json!({"metadata": metadata}), json!(["a", 0, "3d"]));
        check(
            &CONFIG_MAPS,
            json!({"metadata": metadata, "data": {"b": "", "c": ""}, "binaryData": {"d": ""}}),
            json!(["a", 3, "3d"]),
        );
        check(
            &SECRETS,
            json!({"metadata": metadata, "type": "kubernetes.io/tls", "data": {"b": "", "c": ""}}),
            json!(["a", "kubernetes.io/tls", 2, "3d"]),
        );
        check(
            &NAMESPACES,
            json!({"metadata": metadata, "status": {"phase": "Active"}}),
            json!(["a", "Active", "3d"]),
        );
    }

    #[test]
    fn a_node_is_ready_or_not_and_may_be_closed() {
        let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
        for (conditions, unschedulable, expected) in [
            (ready("True"), false, "Ready"),
            (ready("True"), true, "Ready,SchedulingDisabled"),
            (ready("False"), false, "NotReady"),
            (ready("Unknown"), true, "NotReady,SchedulingDisabled"),
            (
                json!([{"type": "Ready", "status": "False"}, {"type": "Ready", "status": "True"}]),
                false,
                "Ready",
            ),
            (json!([{"type": "InvalidValue", "status": "True"}]), false, "Unknown"),
            (json!([{}]), true, "Unknown,SchedulingDisabled"),
        ] {
            let node =
                json!({"spec": {"unschedulable": unschedulable}, "status": {"conditions": conditions}});
            assert_eq!(node_status(&node), expected, "{conditions}");
        }
    }

    #[test]
    fn the_roles_of_a_node_are_sorted() {
        for (labels, expected) in [
            (json!({}), "<none>"),
            (json!({"kubernetes.io/role": "node"}), "node"),
            (json!({"kubernetes.io/role": "", "node-role.kubernetes.io/": "x"}), "<none>"),
            (
                json!({
                    "node-role.kubernetes.io/master": "",
                    "node-role.kubernetes.io/control-plane": "",
                    "node-role.kubernetes.io/proxy": "",
                    "kubernetes.io/role": "node",
                }),
                "control-plane,master,node,proxy",
            ),
        ] {
            assert_eq!(node_roles(&json!({"metadata": {"labels": labels}})), expected);
        }
    }

    #[test]
    fn wide_columns_say_what_a_node_is() {
        check(
            &NODES,
            json!({
                "metadata": {"name": "n1", "creationTimestamp": days_ago(1)},
                "status": {
                    "nodeInfo": {
                        "kubeletVersion": "v1.36.4",
                        "osImage": "Debian",
                        "kernelVersion": "6.1",
                        "containerRuntimeVersion": "containerd://2.1",
                        "architecture": "amd64",
                    },
                    "addresses": [
                        {"type": "Hostname", "address": "n1"},
                        {"type": "InternalIP", "address": "10.0.0.1"},
                        {"type": "InternalIP", "address": "10.0.0.2"},
                        {"type": "ExternalIP", "address": "1.2.3.4"},
                    ],
                },
            }),
            json!([
                "n1",
                "Unknown",
                "<none>",
                "24h",
                "v1.36.4",
                "10.0.0.1",
                "1.2.3.4",
                "Debian",
                "6.1 (amd64)",
                "containerd://2.1",
            ]),
        );
        check(
            &NODES,
            json!({"metadata": {"name": "n1"}}),
            json!([
                "n1",
                "Unknown",
                "<none>",
                "<unknown>",
                "",
                "<none>",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>",
            ]),
        );
    }

    #[test]
    fn a_service_says_where_it_can_be_reached() {
        let two = json!([{"ip": "2.3.4.5", "hostname": "a"}, {"ip": "3.4.5.6"}]);
        let (one, both) = (json!(["80.11.12.10"]), json!(["80.11.12.10", "80.11.12.11"]));
        for (r#type, external, ingress, expected) in [
            ("ClusterIP", json!([]), json!([]), "<none>"),
            ("ClusterIP", one.clone(), json!([]), "80.11.12.10"),
            ("NodePort", both.clone(), json!([]), "80.11.12.10,80.11.12.11"),
            ("LoadBalancer", json!([]), json!([]), "<pending>"),
            ("LoadBalancer", json!([]), two.clone(), "2.3.4.5,3.4.5.6"),
            ("LoadBalancer", one.clone(), json!([]), "80.11.12.10"),
            ("LoadBalancer", both.clone(), two.clone(), "2.3.4.5,3.4.5.6,80.11.12.10,80.11.12.11"),
            ("LoadBalancer", json!([]), json!([{"hostname": "b"}, {"hostname": "a"}]), "a,b"),
            ("ExternalName", json!([]), json!([]), "my.database.example.com"),
            ("Other", json!([]), json!([]), "<unknown>"),
        ] {
            let service = json!({
                "spec": {"type": r#type, "externalIPs": external, "externalName": "my.database.example.com"},
                "status": {"loadBalancer": {"ingress": ingress}},
            });
            assert_eq!(external_address(&service), expected, "{service}");
        }
        check(
            &SERVICES,
            json!({
                "metadata": {"name": "s"},
                "spec": {
                    "type": "NodePort",
                    "clusterIPs": ["10.9.8.7", "fd00::7"],
                    "ports": [{"port": 80, "protocol": "TCP"}, {"port": 8888, "nodePort": 30999, "protocol": "UDP"}],
                    "selector": {"foo": "bar", "a": "b"},
                },
            }),
            json!([
                "s",
                "NodePort",
                "10.9.8.7",
                "<none>",
                "80/TCP,8888:30999/UDP",
                "<unknown>",
                "a=b,foo=bar"
            ]),
        );
        check(
            &SERVICES,
            json!({"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "x"}}),
            json!(["s", "ExternalName", "<none>", "x", "<none>", "<unknown>", "<none>"]),
        );
    }
}
