//! What is allowed in a pod, but hardly meant.

use std::collections::BTreeMap;

use crablet_api::{dns1123_label_errors, label_value_errors};
use serde_json::Value;

use super::super::metadata::entries;
use super::CONTAINER_LISTS;
use super::qos::quantity;
use crate::object;

const DEPRECATED_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

const DEPRECATED_VOLUMES: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// What is said of labels of nodes that have newer names.
pub(crate) fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => {
            "deprecated since v1.22; use Taints and Tolerations instead"
        }
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}

pub(super) fn of(pod: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let name = object::name(pod);
    let problems = dns1123_label_errors(name);
    if !problems.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
             recommended: [{}]",
            problems.join(" ")
        ));
    }
    let (spec, annotations) = (&pod["spec"], &pod["metadata"]["annotations"]);
    warn_of_labels(&mut warnings, spec);
    for (key, message) in DEPRECATED_ANNOTATIONS {
        if annotations.get(key).is_some() {
            warnings.push(format!("metadata.annotations[{key}]: {message}"));
        }
    }
    warn_of_volumes(&mut warnings, spec);
    warn_of_duplicates(&mut warnings, spec, "hostAliases", "ip");
    warn_of_duplicates(&mut warnings, spec, "imagePullSecrets", "name");
    for (index, secret) in object::list(spec, &["imagePullSecrets"]).iter().enumerate() {
        if secret["name"].as_str().unwrap_or_default().is_empty() {
            warnings.push(format!("spec.imagePullSecrets[{index}].name: invalid empty name \"\""));
        }
    }
    warn_of_fractions(&mut warnings, "spec.overhead", &spec["overhead"]);
    let pod_seccomp = "seccomp.security.alpha.kubernetes.io/pod";
    if spec["securityContext"]["seccompProfile"].is_null() && annotations.get(pod_seccomp).is_some() {
        warnings.push(format!(
            "metadata.annotations[{pod_seccomp}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"
        ));
    }
    for (path, container) in containers(spec) {
        let key = format!(
            "container.seccomp.security.alpha.kubernetes.io/{}",
            container["name"].as_str().unwrap_or_default()
        );
        if container["securityContext"]["seccompProfile"].is_null() && annotations.get(&key).is_some() {
            warnings.push(format!(
                "metadata.annotations[{key}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"
            ));
        }
        for field in ["limits", "requests"] {
            warn_of_fractions(
                &mut warnings,
                &format!("{path}.resources.{field}"),
                &container["resources"][field],
            );
        }
        warn_of_variables(&mut warnings, &path, container);
    }
    warn_of_ports(&mut warnings, spec);
    warn_of_pod_terms(&mut warnings, spec);
    warnings
}

fn containers(spec: &Value) -> impl Iterator<Item = (String, &Value)> {
    CONTAINER_LISTS.into_iter().flat_map(move |list| {
        let all = object::list(spec, &[list]).iter().enumerate();
        all.map(move |(index, container)| (format!("spec.{list}[{index}]"), container))
    })
}

fn warn_of_labels(warnings: &mut Vec<String>, spec: &Value) {
    for (key, _) in entries(&spec["nodeSelector"]) {
        if let Some(message) = deprecated_label(key) {
            warnings.push(format!("spec.nodeSelector[{key}]: {message}"));
        }
    }
    let mut of_term = |path: &str, term: &Value, checks_values: bool| {
        for (index, expression) in object::list(term, &["matchExpressions"]).iter().enumerate() {
            let key = expression["key"].as_str().unwrap_or_default();
            if let Some(message) = deprecated_label(key) {
                warnings.push(format!("{path}.matchExpressions[{index}].key: {key} is {message}"));
            }
            for (place, value) in object::list(expression, &["values"]).iter().enumerate() {
                let value = value.as_str().unwrap_or_default();
                for problem in label_value_errors(value).into_iter().filter(|_| checks_values) {
                    let path = format!("{path}.matchExpressions[{index}].values[{place}]");
                    warnings.push(format!("{path}: {value} is invalid, {problem}"));
                }
            }
        }
    };
    let affinity = &spec["affinity"]["nodeAffinity"];
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in object::list(affinity, &[required, "nodeSelectorTerms"]).iter().enumerate() {
        of_term(&format!("spec.affinity.nodeAffinity.{required}.nodeSelectorTerms[{index}]"), term, false);
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in object::list(affinity, &[preferred]).iter().enumerate() {
        let path = format!("spec.affinity.nodeAffinity.{preferred}[{index}].preference");
        of_term(&path, &term["preference"], true);
    }
    for (index, constraint) in object::list(spec, &["topologySpreadConstraints"]).iter().enumerate() {
        let (path, key) = (
            format!("spec.topologySpreadConstraints[{index}]"),
            constraint["topologyKey"].as_str().unwrap_or_default(),
        );
        if let Some(message) = deprecated_label(key) {
            warnings.push(format!("{path}.topologyKey: {key} is {message}"));
        }
        if constraint["labelSelector"].is_null() {
            warnings.push(format!("{path}.labelSelector: a null labelSelector results in matching no pod"));
        }
    }
}

fn warn_of_volumes(warnings: &mut Vec<String>, spec: &Value) {
    for (index, volume) in object::list(spec, &["volumes"]).iter().enumerate() {
        for (field, message) in DEPRECATED_VOLUMES {
            if volume.get(field).is_some() {
                let field = if field == "storageos" { "storageOS" } else { field };
                warnings.push(format!("spec.volumes[{index}].{field}: {message}"));
            }
        }
    }
    for volume in object::list(spec, &["volumes"]) {
        let name = volume["name"].as_str().unwrap_or_default();
        for (field, described) in [
            ("configMap", format!("ConfigMap {}", volume["configMap"]["name"])),
            ("secret", format!("Secret {}", volume["secret"]["secretName"])),
            ("downwardAPI", "DownwardAPI".to_owned()),
        ] {
            let paths = object::list(volume, &[field, "items"]).iter();
            let paths =
                paths.map(|item| (item["path"].as_str().unwrap_or_default().to_owned(), String::new()));
            warn_of_overlaps(warnings, name, &described, paths.collect());
        }
        if volume["projected"].is_object() {
            let mut paths = Vec::new();
            for source in object::list(volume, &["projected", "sources"]) {
                if source.as_object().is_none_or(serde_json::Map::is_empty) {
                    warnings.push(format!("volume {name:?} (Projected) has no sources provided"));
                }
                paths.extend(projected_paths(source));
            }
            warn_of_overlaps(warnings, name, "Projected", paths);
        }
    }
}

/// The paths that a source of a projected volume writes, and what it is called.
fn projected_paths(source: &Value) -> Vec<(String, String)> {
    let items = |field: &str, described: String| -> Vec<(String, String)> {
        let items = object::list(source, &[field, "items"]).iter();
        items.map(|item| (item["path"].as_str().unwrap_or_default().to_owned(), described.clone())).collect()
    };
    let path = |field: &str, path: &str| source[field][path].as_str().unwrap_or_default().to_owned();
    if source["configMap"].is_object() {
        items("configMap", format!("ConfigMap {}", source["configMap"]["name"]))
    } else if source["secret"].is_object() {
        items("secret", format!("Secret {}", source["secret"]["name"]))
    } else if source["downwardAPI"].is_object() {
        items("downwardAPI", "DownwardAPI".to_owned())
    } else if source["serviceAccountToken"].is_object() {
        vec![(path("serviceAccountToken", "path"), "ServiceAccountToken".to_owned())]
    } else if source["clusterTrustBundle"].is_object() {
        let bundle = &source["clusterTrustBundle"];
        let name = if bundle["name"].is_null() { &bundle["signerName"] } else { &bundle["name"] };
        vec![(path("clusterTrustBundle", "path"), format!("ClusterTrustBundle {name}"))]
    } else {
        let parts = [
            ("certificateChainPath", "PodCertificate chain"),
            ("keyPath", "PodCertificate key"),
            ("credentialBundlePath", "PodCertificate credential bundle"),
        ];
        let parts = parts.into_iter().map(|(field, name)| (path("podCertificate", field), name.to_owned()));
        parts.filter(|(path, _)| !path.is_empty()).collect()
    }
}

fn warn_of_overlaps(warnings: &mut Vec<String>, volume: &str, described: &str, paths: Vec<(String, String)>) {
    let shown = |(path, source): &(String, String)| match source.as_str() {
        "" => format!("{path:?}"),
        source => format!("{path:?} ({source})"),
    };
    let mut known: Vec<(String, String)> = Vec::new();
    for (path, source) in paths {
        let path = path.trim_end_matches('/').to_owned();
        let is_below =
            |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
        let this = (path, source);
        for other in known.iter().filter(|(other, _)| {
            !this.0.is_empty() && (*other == this.0 || is_below(other, &this.0) || is_below(&this.0, other))
        }) {
            warnings.push(format!(
                "volume {volume:?} ({described}): overlapping paths: {} with {}",
                shown(&this),
                shown(other)
            ));
        }
        known.push(this);
    }
}

fn warn_of_duplicates(warnings: &mut Vec<String>, spec: &Value, list: &str, field: &str) {
    let items = object::list(spec, &[list]);
    for (index, item) in items.iter().enumerate() {
        if items.iter().take(index).any(|other| other[field] == item[field]) {
            let value = item[field].as_str().unwrap_or_default();
            warnings.push(format!("spec.{list}[{index}].{field}: duplicate {field} {value:?}"));
        }
    }
}

fn warn_of_fractions(warnings: &mut Vec<String>, path: &str, list: &Value) {
    for name in ["memory", "ephemeral-storage"] {
        if let Some(amount) = quantity(&list[name]).filter(|amount| amount.milli_value() % 1000 != 0) {
            let amount = amount.to_string();
            warnings.push(format!(
                "{path}[{name}]: fractional byte value {amount:?} is invalid, must be an integer"
            ));
        }
    }
}

fn warn_of_variables(warnings: &mut Vec<String>, path: &str, container: &Value) {
    let variables = object::list(container, &["env"]);
    for (index, variable) in variables.iter().enumerate() {
        if !variables.iter().take(index).any(|other| other["name"] == variable["name"]) {
            continue;
        }
        let (name, value) =
            (variable["name"].as_str().unwrap_or_default(), variable["value"].as_str().unwrap_or_default());
        let reference = format!("$({name})");
        if variable["valueFrom"].is_object() || value == reference || !value.contains(&reference) {
            warnings.push(format!(
                "{path}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

fn warn_of_ports(warnings: &mut Vec<String>, spec: &Value) {
    let mut known: BTreeMap<String, Vec<(String, &Value)>> = BTreeMap::new();
    for (path, container) in containers(spec) {
        for (index, port) in object::list(container, &["ports"]).iter().enumerate() {
            let path = format!("{path}.ports[{index}]");
            let host = |port: &Value| port["hostPort"].as_i64().unwrap_or(0);
            let address = |port: &Value| port["hostIP"].as_str().unwrap_or_default().to_owned();
            let key = format!("{}/{}", port["containerPort"], port["protocol"]);
            for (other_path, other) in known.get(&key).into_iter().flatten() {
                if address(port) == address(other) && host(port) == host(other) {
                    warnings.push(format!("{path}: duplicate port definition with {other_path}"));
                } else if host(port) == 0 || host(other) == 0 {
                    warnings.push(format!("{path}: overlapping port definition with {other_path}"));
                } else if host(port) == host(other) && (address(port).is_empty() != address(other).is_empty())
                {
                    warnings.push(format!("{path}: dangerously ambiguous port definition with {other_path}"));
                }
            }
            known.entry(key).or_default().push((path, port));
        }
    }
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    for (path, container) in containers(spec) {
        for (index, port) in object::list(container, &["ports"]).iter().enumerate() {
            let Some(name) = port["name"].as_str().filter(|name| !name.is_empty()) else { continue };
            let path = format!("{path}.ports[{index}]");
            match names.get(name) {
                Some(other) => warnings.push(format!(
                    "{path}: duplicate port name {name:?} with {other}, services and probes that select ports by name \
                     will use {other}"
                )),
                None => drop(names.insert(name, path)),
            }
        }
    }
}

fn warn_of_pod_terms(warnings: &mut Vec<String>, spec: &Value) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (field, inner) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", None),
            ("preferredDuringSchedulingIgnoredDuringExecution", Some("podAffinityTerm")),
        ] {
            for (index, term) in object::list(spec, &["affinity", kind, field]).iter().enumerate() {
                let selector = inner.map_or(&term["labelSelector"], |inner| &term[inner]["labelSelector"]);
                if selector.is_null() {
                    let inner = inner.map(|inner| format!(".{inner}")).unwrap_or_default();
                    warnings.push(format!(
                        "spec.affinity.{kind}.{field}[{index}]{inner}.labelSelector: a null labelSelector results in \
                         matching no pod"
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_hardly_meant_is_said() {
        for (pod, expected) in [
            (json!({"metadata": {"name": "a"}, "spec": {}}), vec![]),
            (
                json!({"metadata": {"name": "a.b"}, "spec": {}}),
                vec![
                    "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]",
                ],
            ),
            (
                json!({"metadata": {"name": "a"}, "spec": {"imagePullSecrets": [{"name": "a"}, {"name": "a"}, {"name": ""}]}}),
                vec![
                    "spec.imagePullSecrets[1].name: duplicate name \"a\"",
                    "spec.imagePullSecrets[2].name: invalid empty name \"\"",
                ],
            ),
            (
                json!({"metadata": {"name": "a"}, "spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}}),
                vec![
                    "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                ],
            ),
            (
                json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "env": [
                    {"name": "a", "value": "1"}, {"name": "a", "value": "$(a)2"}, {"name": "a", "value": "3"}],
                    "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"}]}]}}),
                vec![
                    "spec.containers[0].env[2]: hides previous definition of \"a\", which may be dropped when using apply",
                    "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
                ],
            ),
            (
                json!({"metadata": {"name": "a"}, "spec": {"volumes": [{"name": "v", "configMap": {"name": "c",
                    "items": [{"key": "k", "path": "p"}, {"key": "l", "path": "p/q"}]}}]}}),
                vec!["volume \"v\" (ConfigMap \"c\"): overlapping paths: \"p/q\" with \"p\""],
            ),
        ] {
            assert_eq!(of(&pod), expected, "{pod}");
        }
    }
}
