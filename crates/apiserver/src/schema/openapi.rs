//! OpenAPI, made from the schema and the resources when it is asked for: what `kubectl explain` shows, what `kubectl
//! apply` merges by, and where `kubectl` looks whether the server validates fields itself. Without descriptions.

mod definitions;
pub mod protobuf;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};

use super::PATCH_TYPES;
use crate::request::Verb;
use crate::resources::{RESOURCES, Resource, Subresource};
use definitions::{Definitions, Reference};

/// The two forms of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V2,
    V3,
}

const MEDIA: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// What is at a path under `/openapi`; none if nothing is.
pub fn document(path: &str) -> Option<Value> {
    match path.trim_end_matches('/').strip_prefix("/openapi/")? {
        "v2" => Some(v2()),
        "v3" => Some(v3_index()),
        path => {
            let mut parts = path.strip_prefix("v3/")?.split('/');
            let (group, version) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
                (Some("api"), Some(version), None, None) => ("", version),
                (Some("apis"), Some(group), Some(version), None) => (group, version),
                _ => return None,
            };
            v3(group, version)
        }
    }
}

/// The definitions of all groups, as protobuf.
pub fn v2_protobuf() -> Vec<u8> {
    let mut definitions = Definitions::new(Version::V2);
    paths(Version::V2, RESOURCES.iter().copied(), &mut definitions);
    protobuf::document("Kubernetes", "v1.36.4", &definitions.finish())
}

/// All groups in one document.
pub fn v2() -> Value {
    let mut definitions = Definitions::new(Version::V2);
    let paths = paths(Version::V2, RESOURCES.iter().copied(), &mut definitions);
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.4"},
        "paths": paths,
        "definitions": definitions.finish(),
    })
}

/// The document of a version of a group; none if it is not served.
pub fn v3(group: &str, version: &str) -> Option<Value> {
    let is_there = |resource: &&'static Resource| resource.group == group && resource.version == version;
    if !RESOURCES.iter().any(is_there) {
        return None;
    }
    let mut definitions = Definitions::new(Version::V3);
    let paths = paths(Version::V3, RESOURCES.iter().copied().filter(is_there), &mut definitions);
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": definitions.finish()},
    }))
}

/// Where the documents of the groups are. Clients keep them as long as their address is the same.
pub fn v3_index() -> Value {
    let hash = hash();
    let mut paths = Map::new();
    for resource in RESOURCES {
        let root = root(resource);
        let root = root.trim_start_matches('/');
        paths
            .entry(root)
            .or_insert_with(|| json!({"serverRelativeURL": format!("/openapi/v3/{root}?hash={hash}")}));
    }
    json!({"paths": paths})
}

/// Changes with what the documents are made from.
pub(crate) fn hash() -> String {
    let mut hasher = Sha512::new();
    super::types::texts().for_each(|text| hasher.update(text));
    hasher.update(format!("{RESOURCES:?}"));
    hexadecimal(&hasher.finalize())
}

/// A name that a document has as long as it stays the same.
pub(crate) fn digest(document: &[u8]) -> String {
    hexadecimal(&Sha512::digest(document))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

fn root(resource: &Resource) -> String {
    match resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    }
}

fn paths(
    version: Version,
    resources: impl Iterator<Item = &'static Resource>,
    definitions: &mut Definitions,
) -> BTreeMap<String, Value> {
    let mut paths = BTreeMap::new();
    for resource in resources {
        let root = root(resource);
        let plural = resource.plural;
        let kind = Kind { group: resource.group, version: resource.version, kind: resource.kind };
        let object = definitions.add(resource.schema);
        let whole = Operations { version, kind, object, resource };
        let collection = match resource.is_namespaced() {
            true => format!("{root}/namespaces/{{namespace}}/{plural}"),
            false => format!("{root}/{plural}"),
        };
        if is_only_created(resource) {
            paths.insert(collection, whole.item(&[("post", "post")], false));
            continue;
        }
        let list = definitions.add_list(resource);
        let listed = Operations { object: list, ..whole };
        if resource.is_namespaced() {
            paths.insert(format!("{root}/{plural}"), listed.item(&[("get", "list")], false));
        }
        let mut all = whole.item(&[("post", "post")], false);
        if resource.verbs().contains(&Verb::DeleteCollection) {
            all["delete"] = whole.operation("delete", "deletecollection");
        }
        all["get"] = listed.operation("get", "list");
        paths.insert(collection.clone(), all);
        let verbs = [("get", "get"), ("put", "put"), ("patch", "patch"), ("delete", "delete")];
        paths.insert(format!("{collection}/{{name}}"), whole.item(&verbs, true));
        for subresource in resource.subresources {
            let path = format!("{collection}/{{name}}/{}", subresource.name());
            if let Some(item) = whole.subresource(*subresource, definitions) {
                paths.insert(path, item);
            }
        }
    }
    paths
}

/// What is asked and answered at once, and not kept.
fn is_only_created(resource: &Resource) -> bool {
    !resource.verbs().contains(&Verb::Get)
}

#[derive(Clone, Copy)]
struct Kind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
}

impl Kind {
    fn value(self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

/// What can be done with objects of a kind.
#[derive(Clone, Copy)]
struct Operations {
    version: Version,
    kind: Kind,
    object: Reference,
    resource: &'static Resource,
}

impl Operations {
    /// What is at a path: methods with what they mean.
    fn item(self, verbs: &[(&str, &str)], is_named: bool) -> Value {
        let mut item = Map::new();
        for (method, action) in verbs {
            item.insert((*method).to_owned(), self.operation(method, action));
        }
        let mut parameters = Vec::new();
        if is_named {
            parameters.push(self.parameter("path", "name", "string"));
        }
        if self.resource.is_namespaced() {
            parameters.push(self.parameter("path", "namespace", "string"));
        }
        parameters.push(self.parameter("query", "pretty", "string"));
        item.insert("parameters".to_owned(), parameters.into());
        Value::Object(item)
    }

    fn subresource(self, subresource: Subresource, definitions: &mut Definitions) -> Option<Value> {
        let own =
            |group, kind, object| Operations { kind: Kind { group, version: "v1", kind }, object, ..self };
        let parts = [("get", "get"), ("put", "put"), ("patch", "patch")];
        match subresource {
            Subresource::Approval
            | Subresource::EphemeralContainers
            | Subresource::Resize
            | Subresource::Status => Some(self.item(&parts, true)),
            Subresource::Finalize => Some(self.item(&[("put", "put")], true)),
            Subresource::Log => Some(self.item(&[("get", "get")], true)),
            Subresource::Binding => {
                let object = definitions.add("core.Binding");
                Some(own("", "Binding", object).item(&[("post", "post")], true))
            }
            Subresource::Eviction => {
                let object = definitions.add("policy.Eviction");
                Some(own("policy", "Eviction", object).item(&[("post", "post")], true))
            }
            Subresource::Token => {
                let object = definitions.add("authentication.TokenRequest");
                Some(own("authentication.k8s.io", "TokenRequest", object).item(&[("post", "post")], true))
            }
            // Connections, of which nobody asks what they look like.
            Subresource::Attach | Subresource::Exec | Subresource::PortForward | Subresource::Proxy => None,
        }
    }

    fn operation(self, method: &str, action: &str) -> Value {
        let mut parameters: Vec<Value> = query_parameters(action)
            .iter()
            .map(|(name, type_)| self.parameter("query", name, type_))
            .collect();
        let mut operation = json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self.kind.value(),
        });
        let sent = match action {
            "post" | "put" => Some(self.object),
            "patch" => Some(Reference::PATCH),
            "delete" | "deletecollection" => Some(Reference::DELETE_OPTIONS),
            _ => None,
        };
        let received = match action {
            "delete" | "deletecollection" => Reference::STATUS,
            _ => self.object,
        };
        let codes: &[(&str, &str)] = match method {
            "post" | "put" | "patch" => &[("200", "OK"), ("201", "Created")],
            _ => &[("200", "OK")],
        };
        let schema = |reference: Reference| json!({"$ref": reference.path(self.version)});
        let mut responses = json!({"401": {"description": "Unauthorized"}});
        match self.version {
            Version::V2 => {
                if let Some(sent) = sent {
                    parameters.push(json!({
                        "name": "body",
                        "in": "body",
                        "required": !action.starts_with("delete"),
                        "schema": schema(sent),
                    }));
                }
                operation["consumes"] = if action == "patch" { json!(PATCH_TYPES) } else { json!(["*/*"]) };
                operation["produces"] = json!(MEDIA);
                for (code, description) in codes {
                    responses[code] = json!({"description": description, "schema": schema(received)});
                }
            }
            Version::V3 => {
                let content = |media: &[&str], reference| {
                    let entries =
                        media.iter().map(|media| ((*media).to_owned(), json!({"schema": schema(reference)})));
                    Value::Object(entries.collect())
                };
                if let Some(sent) = sent {
                    let media: &[&str] = if action == "patch" { &PATCH_TYPES } else { &["*/*"] };
                    operation["requestBody"] = json!({"content": content(media, sent)});
                    if !action.starts_with("delete") {
                        operation["requestBody"]["required"] = true.into();
                    }
                }
                for (code, description) in codes {
                    responses[code] =
                        json!({"description": description, "content": content(&MEDIA, received)});
                }
            }
        }
        operation["parameters"] = parameters.into();
        operation["responses"] = responses;
        operation
    }

    fn parameter(self, place: &str, name: &str, type_: &str) -> Value {
        let mut parameter = json!({"name": name, "in": place});
        if place == "path" {
            parameter["required"] = true.into();
        }
        match self.version {
            Version::V2 => {
                parameter["type"] = type_.into();
                parameter["uniqueItems"] = true.into();
            }
            Version::V3 => parameter["schema"] = json!({"type": type_, "uniqueItems": true}),
        }
        parameter
    }
}

/// What can be said in the query.
fn query_parameters(action: &str) -> &'static [(&'static str, &'static str)] {
    match action {
        "post" | "put" => &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")],
        "patch" => &[
            ("dryRun", "string"),
            ("fieldManager", "string"),
            ("fieldValidation", "string"),
            ("force", "boolean"),
        ],
        "delete" => &[
            ("dryRun", "string"),
            ("gracePeriodSeconds", "integer"),
            ("orphanDependents", "boolean"),
            ("propagationPolicy", "string"),
        ],
        "list" => &[
            ("allowWatchBookmarks", "boolean"),
            ("continue", "string"),
            ("fieldSelector", "string"),
            ("labelSelector", "string"),
            ("limit", "integer"),
            ("resourceVersion", "string"),
            ("resourceVersionMatch", "string"),
            ("sendInitialEvents", "boolean"),
            ("timeoutSeconds", "integer"),
            ("watch", "boolean"),
        ],
        "deletecollection" => &[
            ("continue", "string"),
            ("dryRun", "string"),
            ("fieldSelector", "string"),
            ("gracePeriodSeconds", "integer"),
            ("labelSelector", "string"),
            ("limit", "integer"),
            ("propagationPolicy", "string"),
            ("resourceVersion", "string"),
        ],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All `$ref`s of a document.
    fn references<'d>(value: &'d Value, found: &mut Vec<&'d str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_group_has_a_document_and_every_reference_leads_somewhere() {
        let index = v3_index();
        let mut documents = vec![document("/openapi/v2").unwrap()];
        for (path, entry) in index["paths"].as_object().unwrap() {
            let url = entry["serverRelativeURL"].as_str().unwrap();
            let (url, hash) = url.split_once("?hash=").unwrap();
            assert_eq!((url, hash.len()), (format!("/openapi/v3/{path}").as_str(), 128));
            documents.push(document(url).unwrap());
        }
        assert!(documents.len() > 10, "{index}");
        for document in documents {
            let mut found = Vec::new();
            references(&document, &mut found);
            assert!(!found.is_empty());
            for reference in found {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
        }
        for path in ["/openapi/v3/apis/apps/v1", "/openapi/v3/api", "/openapi/v4", "/openapi/v3/api/v1/x"] {
            assert!(document(path).is_none(), "{path}");
        }
    }

    #[test]
    fn every_resource_says_that_fields_are_validated_where_kubectl_looks() {
        let v2 = v2();
        for resource in RESOURCES {
            if is_only_created(resource) {
                continue;
            }
            for document in [&v3(resource.group, resource.version).unwrap(), &v2] {
                let kind =
                    json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
                let paths = document["paths"].as_object().unwrap();
                let patches = paths.values().filter_map(|path| path.get("patch"));
                let ours: Vec<&Value> =
                    patches.filter(|patch| patch["x-kubernetes-group-version-kind"] == kind).collect();
                assert!(!ours.is_empty(), "{}", resource.plural);
                for patch in ours {
                    let names: Vec<&Value> = patch["parameters"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|parameter| &parameter["name"])
                        .collect();
                    for name in ["fieldValidation", "dryRun"] {
                        assert!(names.contains(&&json!(name)), "{}: {name}", resource.plural);
                    }
                }
            }
        }
    }

    #[test]
    fn definitions_are_as_upstream_has_them() {
        let document = v3("", "v1").unwrap();
        let definition = |name: &str| document.pointer(&format!("/components/schemas/{name}")).unwrap();
        let pod = definition("io.k8s.api.core.v1.Pod");
        assert_eq!(
            pod["x-kubernetes-group-version-kind"],
            json!([{"group": "", "version": "v1", "kind": "Pod"}])
        );
        assert_eq!(
            pod["properties"]["spec"],
            json!({"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.PodSpec"}]})
        );
        assert_eq!(pod["properties"]["kind"], json!({"type": "string"}));
        let spec = definition("io.k8s.api.core.v1.PodSpec");
        assert_eq!(spec["required"], json!(["containers"]));
        assert_eq!(
            spec["properties"]["containers"],
            json!({"type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}]},
                "x-kubernetes-patch-merge-key": "name", "x-kubernetes-patch-strategy": "merge"})
        );
        assert_eq!(
            spec["properties"]["restartPolicy"],
            json!({"type": "string", "enum": ["Always", "Never", "OnFailure"]})
        );
        let volume = definition("io.k8s.api.core.v1.Volume");
        assert!(
            volume["properties"]["hostPath"]["allOf"].is_array() && volume["required"] == json!(["name"])
        );
        assert_eq!(
            definition("io.k8s.apimachinery.pkg.api.resource.Quantity"),
            &json!({"oneOf": [{"type": "string"}, {"type": "number"}]})
        );
        let secret = &definition("io.k8s.api.core.v1.Secret")["properties"]["data"];
        assert_eq!(
            secret,
            &json!({"type": "object", "additionalProperties": {"type": "string", "format": "byte"}})
        );
        let v2 = v2();
        assert_eq!(
            v2["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["spec"],
            json!({"$ref": "#/definitions/io.k8s.api.core.v1.PodSpec"})
        );
    }
}
