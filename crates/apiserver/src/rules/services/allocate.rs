//! Addresses and node ports: which are taken, and which comes next.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crablet_api::validate::Errors;
use serde_json::{Value, json};

use super::{NONE, is_headless, uses_addresses, uses_node_ports};
use crate::object;
use crate::resources::SERVICES;
use crate::state::State;

/// 10.96.0.0/16, as kubeadm has it. The lowest addresses are for those who name them.
const NETWORK: u32 = u32::from_be_bytes([10, 96, 0, 0]);
const ADDRESSES: u32 = 1 << 16;
const FIRST_ADDRESS: u32 = 257;
const PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;
const FIRST_PORT: i64 = 30_086;

/// Gives a service the addresses and ports that it needs and did not name.
pub(super) fn allocate(service: &mut Value, state: &State) {
    let key = (object::namespace(service).to_owned(), object::name(service).to_owned());
    let spec = &mut service["spec"];
    if !uses_addresses(spec) {
        return;
    }
    if spec["ipFamilyPolicy"].is_null() {
        spec["ipFamilyPolicy"] = "SingleStack".into();
    }
    if spec["ipFamilies"].is_null() {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if object::list(spec, &["clusterIPs"]).is_empty() && object::text(spec, &["clusterIP"]).is_empty() {
        let taken = taken_addresses(state, &key);
        let free = (FIRST_ADDRESS..ADDRESSES - 1).map(|offset| Ipv4Addr::from(NETWORK + offset));
        let mut free = free.map(|address| address.to_string()).filter(|address| !taken.contains(address));
        if let Some(address) = free.next() {
            spec["clusterIP"] = address.as_str().into();
            spec["clusterIPs"] = vec![address].into();
        }
    }
    if uses_node_ports(spec) {
        let mut taken = taken_ports(state, &key);
        let named = object::list(spec, &["ports"]).iter().filter_map(|port| port["nodePort"].as_i64());
        taken.extend(named);
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if port["nodePort"].as_i64().unwrap_or(0) != 0 {
                continue;
            }
            let mut free = (FIRST_PORT..=*PORTS.end()).chain(*PORTS.start()..FIRST_PORT);
            if let Some(number) = free.find(|number| !taken.contains(number)) {
                taken.insert(number);
                port["nodePort"] = number.into();
            }
        }
    }
}

/// What is wrong with the addresses and ports that a service names.
pub(super) fn check(errors: &mut Errors, service: &Value, old: Option<&Value>, state: &State) {
    let key = (object::namespace(service).to_owned(), object::name(service).to_owned());
    let spec = &service["spec"];
    let is_kept = |path: &[&str]| old.is_some_and(|old| object::at(old, path) == object::at(service, path));
    if uses_addresses(spec) && !is_headless(spec) && !is_kept(&["spec", "clusterIPs"]) {
        let taken = taken_addresses(state, &key);
        for address in object::list(spec, &["clusterIPs"]).iter().filter_map(Value::as_str) {
            let offset = address.parse::<Ipv4Addr>().map(|address| u32::from(address).wrapping_sub(NETWORK));
            let why = match offset {
                Ok(offset) if (1..ADDRESSES - 1).contains(&offset) => match taken.contains(address) {
                    true => "provided IP is already allocated".to_owned(),
                    false => continue,
                },
                Ok(offset) if offset < ADDRESSES => format!(
                    "the provided IP ({address}) is not in the valid range. The range of valid IPs is 10.96.0.0/16"
                ),
                Ok(_) | Err(_) => "the provided network does not match the current range".to_owned(),
            };
            let detail = format!("failed to allocate IP {address}: {why}");
            errors.invalid("spec.clusterIPs", &spec["clusterIPs"], detail);
        }
    }
    if uses_node_ports(spec) {
        let taken = taken_ports(state, &key);
        for (index, port) in object::list(spec, &["ports"]).iter().enumerate() {
            let Some(number) = port["nodePort"].as_i64() else { continue };
            let path = format!("spec.ports[{index}].nodePort");
            if !PORTS.contains(&number) {
                let detail =
                    "provided port is not in the valid range. The range of valid ports is 30000-32767";
                errors.invalid(path, number, detail);
            } else if taken.contains(&number) {
                errors.invalid(path, number, "provided port is already allocated");
            }
        }
    }
}

fn taken_addresses(state: &State, but: &(String, String)) -> BTreeSet<String> {
    let others = others(state, but);
    let addresses = others.flat_map(|service| object::list(&service, &["spec", "clusterIPs"]).to_vec());
    let addresses = addresses.filter_map(|address| address.as_str().map(str::to_owned));
    addresses.filter(|address| address != NONE).collect()
}

fn taken_ports(state: &State, but: &(String, String)) -> BTreeSet<i64> {
    let others = others(state, but);
    let ports = others.flat_map(|service| object::list(&service, &["spec", "ports"]).to_vec());
    ports.filter_map(|port| port["nodePort"].as_i64()).collect()
}

fn others<'s>(state: &'s State, but: &'s (String, String)) -> impl Iterator<Item = Value> + 's {
    let all = state.list(&SERVICES, None);
    let others = all.filter(|(key, _)| (&*key.namespace, &*key.name) != (but.0.as_str(), but.1.as_str()));
    others.map(|(_, stored)| stored.decode())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, spec: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    }

    #[test]
    fn each_service_gets_an_address_of_its_own() {
        let mut state = State::default();
        let mut given = Vec::new();
        for name in ["a", "b", "c"] {
            let mut service = service(name, json!({"type": "NodePort", "ports": [{"port": 80}]}));
            allocate(&mut service, &state);
            given.push((
                service["spec"]["clusterIP"].clone(),
                service["spec"]["ports"][0]["nodePort"].clone(),
            ));
            state.put(&SERVICES, service);
        }
        assert_eq!(
            given,
            [
                (json!("10.96.1.1"), json!(30086)),
                (json!("10.96.1.2"), json!(30087)),
                (json!("10.96.1.3"), json!(30088)),
            ]
        );
        let lines = |spec: Value| {
            let mut errors = Errors::default();
            check(&mut errors, &service("d", spec), None, &state);
            errors.into_list().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            lines(json!({"type": "ClusterIP", "clusterIPs": ["10.96.1.1"]})),
            [
                r#"spec.clusterIPs: Invalid value: ["10.96.1.1"]: failed to allocate IP 10.96.1.1: provided IP is already allocated"#
            ]
        );
        assert_eq!(
            lines(json!({"type": "ClusterIP", "clusterIPs": ["10.0.0.1"]})),
            [
                r#"spec.clusterIPs: Invalid value: ["10.0.0.1"]: failed to allocate IP 10.0.0.1: the provided network does not match the current range"#
            ]
        );
        assert_eq!(
            lines(
                json!({"type": "NodePort", "clusterIPs": ["10.96.1.9"], "ports": [{"nodePort": 30086}, {"nodePort": 80}]})
            ),
            [
                "spec.ports[0].nodePort: Invalid value: 30086: provided port is already allocated",
                "spec.ports[1].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
            ]
        );
    }
}
