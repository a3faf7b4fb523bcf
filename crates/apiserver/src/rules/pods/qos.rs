//! The class of a pod, which follows from its requests and limits.

use std::collections::BTreeMap;

use crablet_api::Quantity;
use serde_json::Value;

use crate::object;

const COUNTED: [&str; 2] = ["cpu", "memory"];

pub(crate) fn class(spec: &Value) -> &'static str {
    let (mut requests, mut limits) = (BTreeMap::new(), BTreeMap::new());
    let mut is_guaranteed = true;
    if spec["resources"].is_object() {
        let resources = &spec["resources"];
        add(&mut requests, &resources["requests"]);
        let has_limits = resources["limits"].as_object().is_some_and(|limits| !limits.is_empty());
        if add(&mut limits, &resources["limits"]) < COUNTED.len() && has_limits {
            is_guaranteed = false;
        }
    } else {
        let of = |list| object::list(spec, &[list]).iter();
        for container in of("containers").chain(of("initContainers")) {
            add(&mut requests, &container["resources"]["requests"]);
            if add(&mut limits, &container["resources"]["limits"]) < COUNTED.len() {
                is_guaranteed = false;
            }
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    if is_guaranteed && requests == limits { "Guaranteed" } else { "Burstable" }
}

/// Adds the positive amounts of what counts, and tells how many there were.
fn add(sums: &mut BTreeMap<&'static str, Quantity>, list: &Value) -> usize {
    let mut found = 0;
    for name in COUNTED {
        let Some(amount) = quantity(&list[name]).filter(|amount| amount.sign() > 0) else { continue };
        found += 1;
        *sums.entry(name).or_default() += &amount;
    }
    found
}

/// An amount as objects have it.
pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_class_follows_from_requests_and_limits() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        for (spec, expected) in [
            (json!({"containers": [{"name": "a"}]}), "BestEffort"),
            (json!({"containers": [{"resources": {"requests": both, "limits": both}}]}), "Guaranteed"),
            (
                json!({"containers": [{"resources": {"requests": {"cpu": "1000m", "memory": "1Gi"}, "limits": both}}]}),
                "Guaranteed",
            ),
            (json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}), "Burstable"),
            (json!({"containers": [{"resources": {"requests": both, "limits": both}}, {}]}), "Burstable"),
            (json!({"containers": [{"resources": {"requests": {"example.com/x": "1"}}}]}), "BestEffort"),
            (json!({"resources": {"requests": both, "limits": both}, "containers": [{}]}), "Guaranteed"),
            (
                json!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}, "containers": [{}]}),
                "Burstable",
            ),
        ] {
            assert_eq!(class(&spec), expected, "{spec}");
        }
    }
}
