//! Variables that tell a container where services are.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crablet_api::core::Service;

/// The variables for the services that a pod in `namespace` sees: those of its namespace, if it wants links, and
/// always the API server's.
pub(super) fn variables(services: &[&Service], namespace: &str, links: bool) -> BTreeMap<String, String> {
    let mut seen: BTreeMap<&str, &Service> = BTreeMap::new();
    for service in services.iter().filter(|service| has_address(service)) {
        let name = service.metadata.name.as_str();
        if service.metadata.namespace == "default" && name == "kubernetes" {
            seen.entry(name).or_insert(service);
        } else if links && service.metadata.namespace == namespace {
            seen.insert(name, service);
        }
    }
    let mut variables = BTreeMap::new();
    for service in seen.values() {
        add(&mut variables, service);
    }
    variables
}

fn has_address(service: &Service) -> bool {
    !matches!(service.spec.cluster_ip.as_str(), "" | "None")
}

/// The names are those that Docker once gave linked containers.
fn add(variables: &mut BTreeMap<String, String>, service: &Service) {
    let prefix = variable_name(&service.metadata.name);
    let address = service.spec.cluster_ip.as_str();
    let Some(first) = service.spec.ports.first() else { return };
    variables.insert(format!("{prefix}_SERVICE_HOST"), address.to_owned());
    variables.insert(format!("{prefix}_SERVICE_PORT"), first.port.to_string());
    for port in service.spec.ports.iter().filter(|port| !port.name.is_empty()) {
        variables
            .insert(format!("{prefix}_SERVICE_PORT_{}", variable_name(&port.name)), port.port.to_string());
    }
    let host =
        if address.contains(':') { Cow::Owned(format!("[{address}]")) } else { Cow::Borrowed(address) };
    for (index, port) in service.spec.ports.iter().enumerate() {
        let protocol = port.protocol.as_ref().map_or("TCP", |protocol| protocol.as_str());
        let lower = protocol.to_lowercase();
        let url = format!("{lower}://{host}:{}", port.port);
        let prefix_of_port = format!("{prefix}_PORT_{}_{}", port.port, protocol.to_uppercase());
        if index == 0 {
            variables.insert(format!("{prefix}_PORT"), url.clone());
        }
        variables.insert(format!("{prefix_of_port}_PROTO"), lower);
        variables.insert(format!("{prefix_of_port}_PORT"), port.port.to_string());
        variables.insert(format!("{prefix_of_port}_ADDR"), address.to_owned());
        variables.insert(prefix_of_port, url);
    }
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(namespace: &str, name: &str, address: &str, ports: &str) -> Service {
        let json = format!(
            r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}"}},"spec":{{"clusterIP":"{address}","ports":[{ports}]}}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    fn names(services: &[Service], namespace: &str, links: bool) -> String {
        let services: Vec<&Service> = services.iter().collect();
        variables(&services, namespace, links)
            .iter()
            .filter_map(|(name, value)| {
                name.strip_suffix("_SERVICE_HOST").map(|name| format!("{name}={value}"))
            })
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn a_service_has_a_host_ports_and_links() {
        let db =
            service("ns", "my-db", "fd00::7", r#"{"port":53,"protocol":"UDP","name":"dns-x"},{"port":80}"#);
        let all: Vec<String> =
            variables(&[&db], "ns", true).iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            all,
            [
                "MY_DB_PORT=udp://[fd00::7]:53",
                "MY_DB_PORT_53_UDP=udp://[fd00::7]:53",
                "MY_DB_PORT_53_UDP_ADDR=fd00::7",
                "MY_DB_PORT_53_UDP_PORT=53",
                "MY_DB_PORT_53_UDP_PROTO=udp",
                "MY_DB_PORT_80_TCP=tcp://[fd00::7]:80",
                "MY_DB_PORT_80_TCP_ADDR=fd00::7",
                "MY_DB_PORT_80_TCP_PORT=80",
                "MY_DB_PORT_80_TCP_PROTO=tcp",
                "MY_DB_SERVICE_HOST=fd00::7",
                "MY_DB_SERVICE_PORT=53",
                "MY_DB_SERVICE_PORT_DNS_X=53",
            ]
        );
    }

    #[test]
    fn a_pod_sees_its_namespace_and_always_the_api_server() {
        let services = [
            service("default", "kubernetes", "10.0.0.1", r#"{"port":443}"#),
            service("default", "other", "10.0.0.2", r#"{"port":1}"#),
            service("ns", "a", "10.0.0.3", r#"{"port":1}"#),
            service("ns", "headless", "None", r#"{"port":1}"#),
            service("ns", "external", "", r#"{"port":1}"#),
            service("ns", "portless", "10.0.0.4", ""),
        ];
        assert_eq!(names(&services, "ns", true), "A=10.0.0.3 KUBERNETES=10.0.0.1");
        assert_eq!(names(&services, "ns", false), "KUBERNETES=10.0.0.1");
        assert_eq!(names(&services, "default", true), "KUBERNETES=10.0.0.1 OTHER=10.0.0.2");
    }

    #[test]
    fn a_service_of_the_namespace_can_stand_for_the_api_server() {
        let master = service("default", "kubernetes", "10.0.0.1", r#"{"port":443}"#);
        let own = service("ns", "kubernetes", "10.0.0.9", r#"{"port":443}"#);
        for both in [[master.clone(), own.clone()], [own, master]] {
            assert_eq!(names(&both, "ns", true), "KUBERNETES=10.0.0.9");
            assert_eq!(names(&both, "ns", false), "KUBERNETES=10.0.0.1");
        }
    }
}
