//! What events say of a resize, in upstream's words.

use crablet_api::core::{Container, Pod, ResourceRequirements};
use serde::Serialize;

use super::conditions::Pending;

#[derive(Serialize)]
struct Summary<'p> {
    #[serde(rename = "initContainers", skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Part<'p>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Part<'p>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'p str,
}

#[derive(Serialize)]
struct Part<'p> {
    name: &'p str,
    resources: &'p ResourceRequirements,
}

impl<'p> From<&'p Container> for Part<'p> {
    fn from(container: &'p Container) -> Part<'p> {
        Part { name: &container.name, resources: &container.resources }
    }
}

/// The resources that containers have now were granted.
pub fn started(pod: &Pod, generation: i64) -> String {
    message("Pod resize started", pod, generation, "")
}

/// All containers have what was granted.
pub fn completed(pod: &Pod, generation: i64) -> String {
    message("Pod resize completed", pod, generation, "")
}

/// What was granted could not be given.
pub fn failed(pod: &Pod, generation: i64, error: &str) -> String {
    message("Pod resize error", pod, generation, error)
}

/// What the pod asks for was not granted.
pub fn pending(pod: &Pod, generation: i64, why: &Pending) -> String {
    message(&format!("Pod resize {}", why.reason.as_str()), pod, generation, &why.message)
}

fn message(what: &str, pod: &Pod, generation: i64, error: &str) -> String {
    let summary = Summary {
        init_containers: pod.spec.init_containers.iter().map(Part::from).collect(),
        containers: pod.spec.containers.iter().map(Part::from).collect(),
        generation,
        error,
    };
    format!("{what}: {}", String::from_utf8_lossy(&crablet_api::to_json(&summary)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::conditions::PendingReason;
    use crablet_api::testing::pod_yaml;

    #[test]
    fn a_message_has_the_resources_of_all_containers() {
        let pod = pod_yaml(
            "spec: {initContainers: [{name: i}], containers: [{name: c, resources: {requests: {cpu: 80m, memory: 48Mi}, limits: {cpu: 160m}}}]}",
        );
        let resources = r#"{"limits":{"cpu":"160m"},"requests":{"cpu":"80m","memory":"48Mi"}}"#;
        let parts = format!(
            r#""initContainers":[{{"name":"i","resources":{{}}}}],"containers":[{{"name":"c","resources":{resources}}}],"generation":2"#
        );
        assert_eq!(started(&pod, 2), format!("Pod resize started: {{{parts}}}"));
        assert_eq!(failed(&pod, 2, "no"), format!(r#"Pod resize error: {{{parts},"error":"no"}}"#));
        let why = Pending { reason: PendingReason::Deferred, message: "full".into() };
        assert_eq!(pending(&pod, 2, &why), format!(r#"Pod resize Deferred: {{{parts},"error":"full"}}"#));
    }
}
