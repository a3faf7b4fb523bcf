//! What a pod can be told about itself: its fields, and its containers' resources.

use std::net::IpAddr;

use crablet_api::core::{Container, ObjectFieldSelector, Pod, ResourceFieldSelector, ResourceList};
use crablet_api::resource_names::is_huge_pages;
use crablet_api::{Map, Quantity, Text, qualified_name_errors};

use super::go_quote;

/// Why a field or a resource cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DownwardError {
    /// Only version `v1` of a pod has fields that can be told.
    #[error("unsupported pod version: {0}")]
    Version(String),
    /// Only annotations and labels have keys.
    #[error("field label does not support subscript: {0}")]
    Subscript(String),
    /// There is no such field.
    #[error("field label not supported: {0}")]
    Label(String),
    /// The field is known, but not to be told.
    #[error("unsupported fieldPath: {0}")]
    Field(String),
    /// A key that no annotation and no label has.
    #[error("invalid key subscript in {path}: {}", errors.join(";"))]
    Key {
        /// The whole path.
        path: String,
        /// What is wrong with the key.
        errors: Vec<String>,
    },
    /// The node's address is not known.
    #[error("host IP unknown; known addresses: []")]
    HostIp,
    /// There is no such resource.
    #[error("unsupported container resource : {0}")]
    Resource(String),
    /// There is no such container.
    #[error("container {0} not found")]
    Container(String),
}

/// The addresses that a pod can be told.
#[derive(Debug, Clone, Copy)]
pub struct Addresses<'a> {
    /// The pod's, as the runtime lists them.
    pub pod: &'a [IpAddr],
    /// The node's, as its object lists them.
    pub host: &'a [IpAddr],
    /// The node's, as the kubelet was told or found them: the family of the first is preferred.
    pub node: &'a [IpAddr],
}

impl Addresses<'_> {
    /// The pod's first address of each family, the preferred one first.
    pub fn sorted_pod_ips(&self) -> impl Iterator<Item = IpAddr> {
        let prefers_v6 = self.node.first().is_some_and(|ip| ip.to_canonical().is_ipv6());
        let first = |v6: bool| self.pod.iter().map(|ip| ip.to_canonical()).find(|ip| ip.is_ipv6() == v6);
        first(prefers_v6).into_iter().chain(first(!prefers_v6))
    }
}

/// A field of a pod, as text.
pub fn field_value(
    pod: &Pod,
    field: &ObjectFieldSelector,
    addresses: Addresses<'_>,
) -> Result<String, DownwardError> {
    if field.api_version != "v1" {
        return Err(DownwardError::Version(field.api_version.to_string()));
    }
    let path = field.field_path.as_str();
    if let Some((map, key)) = subscripted(path) {
        let (values, errors) = match map {
            "metadata.annotations" => (&pod.metadata.annotations, qualified_name_errors(&key.to_lowercase())),
            "metadata.labels" => (&pod.metadata.labels, qualified_name_errors(key)),
            _ => return Err(DownwardError::Subscript(path.to_owned())),
        };
        if !errors.is_empty() {
            return Err(DownwardError::Key { path: path.to_owned(), errors });
        }
        return Ok(values.get(key).map(ToString::to_string).unwrap_or_default());
    }
    let host = || match addresses.host {
        [] => Err(DownwardError::HostIp),
        known => Ok(known),
    };
    Ok(match path {
        "metadata.annotations" => map_text(&pod.metadata.annotations),
        "metadata.labels" => map_text(&pod.metadata.labels),
        "metadata.name" => pod.metadata.name.to_string(),
        "metadata.namespace" => pod.metadata.namespace.to_string(),
        "metadata.uid" => pod.metadata.uid.to_string(),
        "spec.nodeName" | "spec.host" => pod.spec.node_name.to_string(),
        "spec.serviceAccountName" => pod.spec.service_account_name.to_string(),
        "status.hostIP" => host()?[0].to_canonical().to_string(),
        "status.hostIPs" => joined(host()?.iter().map(|ip| ip.to_canonical())),
        "status.podIP" => addresses.sorted_pod_ips().next().map(|ip| ip.to_string()).unwrap_or_default(),
        "status.podIPs" => joined(addresses.sorted_pod_ips()),
        "spec.restartPolicy" | "spec.schedulerName" | "status.phase" => {
            return Err(DownwardError::Field(path.to_owned()));
        }
        _ => return Err(DownwardError::Label(path.to_owned())),
    })
}

/// A map as lines of `key="value"`, sorted.
pub fn map_text(map: &Map<Text>) -> String {
    map.iter().map(|(key, value)| format!("{key}={}", go_quote(value))).collect::<Vec<_>>().join("\n")
}

/// An amount of one of a container's resources as a whole number of divisors, rounded up. `defaults` are the limits
/// of a container that has none: it may use what the node has.
pub fn resource_value(
    container: &Container,
    selector: &ResourceFieldSelector,
    defaults: Option<&ResourceList>,
) -> Result<String, DownwardError> {
    let unsupported = || DownwardError::Resource(selector.resource.to_string());
    let (list, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let resources = &container.resources;
    let amount = match list {
        "requests" => resources.requests.get(name),
        "limits" => resources.limits.get(name).filter(|limit| !limit.is_zero()).or_else(|| match name {
            "cpu" | "memory" | "ephemeral-storage" => defaults.and_then(|defaults| defaults.get(name)),
            // Huge pages are never shared out twice: who has no limit has none of them.
            _ => None,
        }),
        _ => return Err(unsupported()),
    };
    let scaled: fn(&Quantity) -> i64 = match name {
        "cpu" => Quantity::milli_value,
        "memory" | "ephemeral-storage" => Quantity::value,
        name if is_huge_pages(name) => Quantity::value,
        _ => return Err(unsupported()),
    };
    let one = Quantity::from_value(1);
    let divisor = if selector.divisor.is_zero() { &one } else { &selector.divisor };
    let ratio = amount.map_or(0, scaled) as f64 / scaled(divisor) as f64;
    Ok((ratio.ceil() as i64).to_string())
}

/// What a container without limits may use: what the node has for pods, or what the pod as a whole may.
pub(super) fn default_limits(pod: &Pod, allocatable: &ResourceList, pod_level: bool) -> ResourceList {
    let mut defaults = allocatable.clone();
    if let Some(whole) = pod.spec.resources.as_ref().filter(|_| pod_level) {
        for name in ["cpu", "memory"] {
            if let Some(limit) = whole.limits.get(name).filter(|limit| !limit.is_zero())
                && let Some(default) = defaults.get_mut(name)
            {
                *default = limit.clone();
            }
        }
    }
    defaults
}

/// `path['key']` as its two parts.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

fn joined(ips: impl Iterator<Item = IpAddr>) -> String {
    ips.map(|ip| ip.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;

    fn told(path: &str) -> String {
        let pod = pod_yaml(
            "metadata: {name: p, namespace: ns, uid: u, labels: {app: web, z: 'a\"b'}, annotations: {X/y: v}}\nspec: {nodeName: node, serviceAccountName: sa}",
        );
        let ips: Vec<IpAddr> =
            ["10.0.0.7", "fd00::7", "10.0.0.8"].into_iter().map(|ip| ip.parse().unwrap()).collect();
        let field = ObjectFieldSelector { api_version: "v1".into(), field_path: path.into() };
        let addresses = Addresses { pod: &ips, host: &ips[1..], node: &ips[1..] };
        field_value(&pod, &field, addresses).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn fields_are_told() {
        for (path, expected) in [
            ("metadata.name", "p"),
            ("metadata.namespace", "ns"),
            ("metadata.uid", "u"),
            ("metadata.labels", "app=\"web\"\nz=\"a\\\"b\""),
            ("metadata.labels['app']", "web"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations", "X/y=\"v\""),
            ("metadata.annotations['X/y']", "v"),
            ("spec.nodeName", "node"),
            ("spec.host", "node"),
            ("spec.serviceAccountName", "sa"),
            ("status.hostIP", "fd00::7"),
            ("status.hostIPs", "fd00::7,10.0.0.8"),
            ("status.podIP", "fd00::7"),
            ("status.podIPs", "fd00::7,10.0.0.7"),
        ] {
            assert_eq!(told(path), expected, "{path}");
        }
    }

    #[test]
    fn what_is_no_field_is_refused() {
        assert_eq!(told("spec.restartPolicy"), "unsupported fieldPath: spec.restartPolicy");
        assert_eq!(told("spec.nothing"), "field label not supported: spec.nothing");
        assert_eq!(told("spec.x['y']"), "field label does not support subscript: spec.x['y']");
        assert_eq!(told("['y']"), "field label not supported: ['y']");
        let error = told("metadata.labels['']");
        assert!(
            error.starts_with("invalid key subscript in metadata.labels['']: name part must be non-empty;"),
            "{error}"
        );
        let pod = pod_yaml("metadata: {name: p}");
        let addresses = Addresses { pod: &[], host: &[], node: &[] };
        let ask = |version: &str, path: &str| {
            let field = ObjectFieldSelector { api_version: version.into(), field_path: path.into() };
            field_value(&pod, &field, addresses).unwrap_or_else(|error| error.to_string())
        };
        assert_eq!(ask("v2", "metadata.name"), "unsupported pod version: v2");
        assert_eq!(ask("v1", "status.hostIP"), "host IP unknown; known addresses: []");
        assert_eq!((ask("v1", "status.podIP"), ask("v1", "status.podIPs")), (String::new(), String::new()));
    }

    #[test]
    fn amounts_are_divided_and_rounded_up() {
        let pod = pod_yaml(
            "metadata: {name: p}\nspec: {containers: [{name: c, resources: {
               limits: {cpu: 1500m, hugepages-2Mi: 4Mi}, requests: {cpu: 100m, memory: 65Mi}}}]}",
        );
        let defaults: ResourceList =
            [("cpu", "4"), ("memory", "8Gi"), ("ephemeral-storage", "10Gi"), ("hugepages-1Gi", "1Gi")]
                .into_iter()
                .map(|(name, amount)| (name, amount.parse().unwrap()))
                .collect();
        let told = |resource: &str, divisor: &str| {
            let selector = ResourceFieldSelector {
                resource: resource.into(),
                divisor: divisor.parse().unwrap(),
                ..ResourceFieldSelector::default()
            };
            resource_value(&pod.spec.containers[0], &selector, Some(&defaults))
                .unwrap_or_else(|error| error.to_string())
        };
        for (resource, divisor, expected) in [
            ("limits.cpu", "0", "2"),
            ("limits.cpu", "1", "2"),
            ("limits.cpu", "1m", "1500"),
            ("requests.cpu", "0", "1"),
            ("requests.cpu", "10m", "10"),
            ("requests.memory", "0", "68157440"),
            ("requests.memory", "1Mi", "65"),
            ("requests.memory", "1Gi", "1"),
            ("limits.memory", "1Gi", "8"),
            ("limits.ephemeral-storage", "1Gi", "10"),
            ("requests.ephemeral-storage", "1", "0"),
            ("limits.hugepages-2Mi", "1Mi", "4"),
            ("limits.hugepages-1Gi", "1", "0"),
            ("requests.hugepages-2Mi", "1", "0"),
            ("limits.pods", "1", "unsupported container resource : limits.pods"),
            ("cpu", "1", "unsupported container resource : cpu"),
            ("claims.cpu", "1", "unsupported container resource : claims.cpu"),
        ] {
            assert_eq!(told(resource, divisor), expected, "{resource} / {divisor}");
        }
    }

    #[test]
    fn limits_of_the_whole_pod_come_before_what_the_node_has() {
        let pod = pod_yaml("metadata: {name: p}\nspec: {resources: {limits: {cpu: 2, memory: 0}}}");
        let allocatable: ResourceList = [("cpu", "4"), ("memory", "8Gi")]
            .into_iter()
            .map(|(name, amount)| (name, amount.parse().unwrap()))
            .collect();
        assert_eq!(default_limits(&pod, &allocatable, true)["cpu"], "2".parse().unwrap());
        assert_eq!(default_limits(&pod, &allocatable, true)["memory"], "8Gi".parse().unwrap());
        assert_eq!(default_limits(&pod, &allocatable, false)["cpu"], "4".parse().unwrap());
        let small = pod_yaml("metadata: {name: p}\nspec: {resources: {limits: {memory: 1Gi}}}");
        assert_eq!(default_limits(&small, &allocatable, true)["memory"], "1Gi".parse().unwrap());
    }
}
