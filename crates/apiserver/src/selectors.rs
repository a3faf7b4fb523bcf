//! Which objects are meant: label and field selectors of lists and watches.

use crablet_api::Text;
use crablet_api::selector::{FieldSelector, FieldTerm, Selector};
use serde_json::Value;

use crate::object;
use crate::request::Query;
use crate::resources::Resource;
use crate::state::{Key, Stored};
use crate::status::Refusal;

#[derive(Clone, Debug, Default)]
pub struct Selection {
    labels: Selector,
    fields: FieldSelector,
}

impl Selection {
    /// What a query asks for.
    pub fn of(resource: &'static Resource, query: &Query) -> Result<Selection, Refusal> {
        let labels = query.text("labelSelector");
        let labels: Selector = labels.parse().map_err(|error| Refusal::bad_request(format!("{error}")))?;
        let mut fields: FieldSelector =
            query.text("fieldSelector").parse().map_err(|error| Refusal::bad_request(format!("{error}")))?;
        let known = indexed_paths(resource);
        for term in &mut fields.0 {
            let field = &*term.field;
            let own = known.iter().find(|(name, _)| *name == field);
            let is_known = field == "metadata.name"
                || (field == "metadata.namespace" && resource.is_namespaced())
                || own.is_some();
            if !is_known {
                return Err(Refusal::bad_request(match known.is_empty() {
                    true => format!(
                        "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    ),
                    false => format!("field label not supported: {field}"),
                }));
            }
            // What is kept beside an object has the names that it is kept by.
            if let Some((_, path)) = own
                && resource.storage() != resource
                && let Some((kept, _)) =
                    indexed_paths(resource.storage()).iter().find(|(_, kept)| kept == path)
            {
                term.field = (*kept).into();
            }
        }
        Ok(Selection { labels, fields })
    }

    /// The same of one object alone.
    pub fn and_name(mut self, name: &str) -> Selection {
        let name = FieldTerm { field: "metadata.name".into(), equal: true, value: name.into() };
        self.fields.0 = self.fields.0.iter().cloned().chain([name]).collect();
        self
    }

    pub fn is_everything(&self) -> bool {
        self.labels.0.is_empty() && self.fields.0.is_empty()
    }

    pub fn matches(&self, key: &Key, stored: &Stored) -> bool {
        self.labels.matches(&stored.labels)
            && self.fields.matches(|field| match field {
                "metadata.name" => &key.name,
                "metadata.namespace" => &key.namespace,
                field => stored
                    .fields
                    .iter()
                    .find(|(name, _)| *name == field)
                    .map(|(_, value)| value.as_str())
                    .unwrap_or_default(),
            })
    }
}

/// What can be selected by beside name and namespace, and where in the object it is.
type Indexed = (&'static str, &'static [&'static str]);

fn indexed_paths(resource: &Resource) -> &'static [Indexed] {
    match (resource.group, resource.plural) {
        ("", "pods") => &[
            ("spec.nodeName", &["spec", "nodeName"]),
            ("spec.restartPolicy", &["spec", "restartPolicy"]),
            ("spec.schedulerName", &["spec", "schedulerName"]),
            ("spec.serviceAccountName", &["spec", "serviceAccountName"]),
            ("spec.hostNetwork", &["spec", "hostNetwork"]),
            ("status.phase", &["status", "phase"]),
            ("status.podIP", &["status", "podIP"]),
            ("status.podIPs", &["status", "podIP"]),
            ("status.nominatedNodeName", &["status", "nominatedNodeName"]),
        ],
        ("", "nodes") => &[("spec.unschedulable", &["spec", "unschedulable"])],
        ("", "namespaces") => &[("status.phase", &["status", "phase"])],
        ("", "secrets") => &[("type", &["type"])],
        ("", "services") => &[("spec.clusterIP", &["spec", "clusterIP"]), ("spec.type", &["spec", "type"])],
        ("", "events") => &[
            ("involvedObject.kind", &["involvedObject", "kind"]),
            ("involvedObject.namespace", &["involvedObject", "namespace"]),
            ("involvedObject.name", &["involvedObject", "name"]),
            ("involvedObject.uid", &["involvedObject", "uid"]),
            ("involvedObject.apiVersion", &["involvedObject", "apiVersion"]),
            ("involvedObject.resourceVersion", &["involvedObject", "resourceVersion"]),
            ("involvedObject.fieldPath", &["involvedObject", "fieldPath"]),
            ("reason", &["reason"]),
            ("reportingComponent", &["reportingComponent"]),
            ("source", &["source", "component"]),
            ("type", &["type"]),
        ],
        ("events.k8s.io", "events") => &[
            ("regarding.kind", &["involvedObject", "kind"]),
            ("regarding.namespace", &["involvedObject", "namespace"]),
            ("regarding.name", &["involvedObject", "name"]),
            ("regarding.uid", &["involvedObject", "uid"]),
            ("regarding.apiVersion", &["involvedObject", "apiVersion"]),
            ("regarding.resourceVersion", &["involvedObject", "resourceVersion"]),
            ("regarding.fieldPath", &["involvedObject", "fieldPath"]),
            ("reason", &["reason"]),
            ("reportingController", &["reportingComponent"]),
            ("type", &["type"]),
        ],
        ("certificates.k8s.io", "certificatesigningrequests") => {
            &[("spec.signerName", &["spec", "signerName"])]
        }
        ("certificates.k8s.io", "clustertrustbundles") => &[("spec.signerName", &["spec", "signerName"])],
        ("certificates.k8s.io", "podcertificaterequests") => &[
            ("spec.signerName", &["spec", "signerName"]),
            ("spec.podName", &["spec", "podName"]),
            ("spec.nodeName", &["spec", "nodeName"]),
        ],
        ("resource.k8s.io", "resourceslices") => {
            &[("spec.nodeName", &["spec", "nodeName"]), ("spec.driver", &["spec", "driver"])]
        }
        _ => &[],
    }
}

/// What is kept beside an object, so that selecting need not decode it.
pub(crate) fn indexed_fields(resource: &Resource, object: &Value) -> Box<[(&'static str, Text)]> {
    let paths = indexed_paths(resource).iter();
    paths
        .map(|(name, path)| {
            let value = match object::at(object, path) {
                Value::String(text) => text.as_str().into(),
                Value::Bool(flag) => flag.to_string().as_str().into(),
                Value::Number(number) => number.to_string().as_str().into(),
                Value::Null if matches!(*name, "spec.hostNetwork" | "spec.unschedulable") => "false".into(),
                Value::Null | Value::Array(_) | Value::Object(_) => Text::default(),
            };
            // Who tells an event is its source, whichever of the two it says.
            let is_unsaid_source = value.is_empty() && path == &["source", "component"];
            let value = match is_unsaid_source {
                true => object::text(object, &["reportingComponent"]).into(),
                false => value,
            };
            (*name, value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::{EVENTS, NEW_EVENTS};
    use crate::state::State;

    #[test]
    fn events_are_selected_by_the_names_of_either_group() {
        let mut state = State::default();
        let event = json!({
            "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "p"},
            "reason": "Started",
            "source": {},
            "reportingComponent": "kubelet",
        });
        state.put(&NEW_EVENTS, event);
        let select = |resource: &'static Resource, fields: &str| {
            let selection = Selection::of(resource, &Query::parse(&format!("fieldSelector={fields}")))?;
            Ok::<_, Refusal>(
                state.list(resource, None).filter(|(key, stored)| selection.matches(key, stored)).count(),
            )
        };
        for (resource, fields, expected) in [
            (&EVENTS, "involvedObject.name=p,reason=Started", Some(1)),
            (&EVENTS, "involvedObject.name=q", Some(0)),
            (&EVENTS, "reportingComponent=kubelet,source=kubelet", Some(1)),
            (&EVENTS, "regarding.name=p", None),
            (&NEW_EVENTS, "regarding.name=p,reason=Started,metadata.name=e", Some(1)),
            (&NEW_EVENTS, "regarding.kind!=Pod", Some(0)),
            (&NEW_EVENTS, "reportingController=kubelet", Some(1)),
            (&NEW_EVENTS, "involvedObject.name=p", None),
            (&NEW_EVENTS, "source=kubelet", None),
        ] {
            let found = select(resource, fields);
            let message = format!("field label not supported: {}", fields.split('=').next().unwrap());
            assert_eq!(found, expected.ok_or_else(|| Refusal::bad_request(message)), "{fields}");
        }
    }
}
