//! What a node may do: what all nodes may, and with the objects that its own pods need.
//!
//! Upstream keeps a graph of what leads to which node. Here the node's pods are looked at when it asks: only those in
//! the namespace of what is asked for, and of those only the ones whose text has its name in it.

use super::Decision;
use super::attributes::{Attributes, ObjectAttributes};
use super::defaults::NODE_RULES;
use super::references::{self, Named};
use crate::object::text;
use crate::resources::{
    PERSISTENT_VOLUMES, POD_CERTIFICATE_REQUESTS, PODS, RESOURCE_SLICES, Resource, VOLUME_ATTACHMENTS,
};
use crate::state::{Key, State, Stored};

/// What a node's request may be; no opinion on what is not about an object that is divided among nodes.
pub(super) fn authorize(state: &State, node: &str, attributes: &Attributes<'_>) -> Decision {
    if node.is_empty() {
        return Decision::no(format!("unknown node for user {:?}", attributes.user.name));
    }
    if let Some(object) = attributes.object() {
        let request = Asked { state, node, verb: &attributes.verb, object };
        let decision = match (object.group.as_str(), object.resource.as_str()) {
            ("", "secrets") => Some(request.read(Named::Secret)),
            ("", "configmaps") => Some(request.read(Named::ConfigMap)),
            ("", "persistentvolumeclaims") if object.subresource == "status" => {
                Some(request.update_claim_status())
            }
            ("", "persistentvolumeclaims") => {
                Some(request.get(|| request.is_named(Named::PersistentVolumeClaim)))
            }
            ("", "persistentvolumes") => Some(request.get(|| request.is_own_volume(&object.name))),
            ("resource.k8s.io", "resourceclaims") => {
                Some(request.get(|| request.is_named(Named::ResourceClaim)))
            }
            ("storage.k8s.io", "volumeattachments") => {
                Some(request.get(|| request.is_own(&VOLUME_ATTACHMENTS)))
            }
            ("", "serviceaccounts") => Some(request.service_account()),
            ("coordination.k8s.io", "leases") => Some(request.lease()),
            ("storage.k8s.io", "csinodes") => Some(request.csi_node()),
            ("resource.k8s.io", "resourceslices") => Some(request.resource_slice()),
            ("", "nodes") => Some(request.node()),
            ("", "pods") => Some(request.pod()),
            ("certificates.k8s.io", "podcertificaterequests") => Some(request.pod_certificate_request()),
            _ => None,
        };
        if let Some(decision) = decision {
            return decision;
        }
    }
    match NODE_RULES.iter().any(|rule| rule.allows(attributes)) {
        true => Decision::yes(""),
        false => Decision::no(""),
    }
}

/// What a node asks for.
struct Asked<'a> {
    state: &'a State,
    node: &'a str,
    verb: &'a str,
    object: &'a ObjectAttributes,
}

impl Asked<'_> {
    fn related(&self, is_related: impl FnOnce() -> bool) -> Decision {
        if self.object.name.is_empty() {
            return Decision::no("No Object name found");
        }
        match is_related() {
            true => Decision::yes(""),
            false => {
                Decision::no(format!("no relationship found between node '{}' and this object", self.node))
            }
        }
    }

    fn get(&self, is_related: impl FnOnce() -> bool) -> Decision {
        if self.verb != "get" {
            return Decision::no("can only get individual resources of this type");
        }
        if !self.object.subresource.is_empty() {
            return Decision::no("cannot get subresource");
        }
        self.related(is_related)
    }

    fn read(&self, what: Named) -> Decision {
        if !matches!(self.verb, "get" | "list" | "watch") {
            return Decision::no("can only read resources of this type");
        }
        if !self.object.subresource.is_empty() {
            return Decision::no("cannot read subresource");
        }
        if self.object.namespace.is_empty() {
            return Decision::no("can only read namespaced object of this type");
        }
        self.related(|| self.is_named(what))
    }

    fn update_claim_status(&self) -> Decision {
        if !matches!(self.verb, "update" | "patch") {
            return Decision::no("can only get/update/patch this type");
        }
        self.related(|| self.is_named(Named::PersistentVolumeClaim))
    }

    fn service_account(&self) -> Decision {
        if self.verb == "get" && self.object.subresource.is_empty() {
            return self.read(Named::ServiceAccount);
        }
        if self.verb != "create" || self.object.name.is_empty() {
            return Decision::no("can only create tokens for individual service accounts");
        }
        if self.object.subresource != "token" {
            return Decision::no("can only create token subresource of serviceaccount");
        }
        self.related(|| self.is_named(Named::ServiceAccount))
    }

    fn lease(&self) -> Decision {
        if !matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") {
            return Decision::no("can only get, create, update, patch, or delete a node lease");
        }
        if self.object.namespace != "kube-node-lease" {
            return Decision::no("can only access leases in the \"kube-node-lease\" system namespace");
        }
        // The name of what is created is in the body; admission looks at it.
        if self.verb != "create" && self.object.name != self.node {
            return Decision::no("can only access node lease with the same name as the requesting node");
        }
        Decision::yes("")
    }

    fn csi_node(&self) -> Decision {
        if !matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") {
            return Decision::no("can only get, create, update, patch, or delete a CSINode");
        }
        if !self.object.subresource.is_empty() {
            return Decision::no("cannot authorize CSINode subresources");
        }
        if self.verb != "create" && self.object.name != self.node {
            return Decision::no("can only access CSINode with the same name as the requesting node");
        }
        Decision::yes("")
    }

    fn resource_slice(&self) -> Decision {
        if !self.object.subresource.is_empty() {
            return Decision::no("cannot authorize ResourceSlice subresources");
        }
        match self.verb {
            "create" => Decision::yes(""),
            "get" | "update" | "patch" | "delete" => self.related(|| self.is_own(&RESOURCE_SLICES)),
            "watch" | "list" | "deletecollection" => self.if_selected(
                "can only list/watch/deletecollection resourceslices with nodeName field selector",
            ),
            _ => Decision::no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn pod_certificate_request(&self) -> Decision {
        if !self.object.subresource.is_empty() {
            return Decision::no("nodes may not access the status subresource of PodCertificateRequests");
        }
        match self.verb {
            "create" => Decision::yes(""),
            "get" => self.related(|| self.is_own(&POD_CERTIFICATE_REQUESTS)),
            "list" | "watch" => {
                self.if_selected("can only list/watch podcertificaterequests with nodeName field selector")
            }
            verb => Decision::no(format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    fn node(&self) -> Decision {
        let (node, name) = (self.node, self.object.name.as_str());
        match (self.object.subresource.as_str(), self.verb) {
            // Admission looks whether it is its own.
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Decision::yes(""),
            ("", "get" | "list" | "watch") if name == node => Decision::yes(""),
            ("", "get" | "list" | "watch") if name.is_empty() => {
                Decision::no(format!("node '{node}' cannot read all nodes, only its own Node object"))
            }
            ("", "get" | "list" | "watch") => {
                Decision::no(format!("node '{node}' cannot read '{name}', only its own Node object"))
            }
            _ => Decision::no(""),
        }
    }

    fn pod(&self) -> Decision {
        let is_own = || self.is_own(&PODS);
        match (self.object.subresource.as_str(), self.verb) {
            ("", "get") => self.get(is_own),
            ("", "list" | "watch") if self.is_selected() => Decision::yes(""),
            ("", "list" | "watch") if !self.object.name.is_empty() => self.related(is_own),
            ("", "list" | "watch") => {
                Decision::no("can only list/watch pods with spec.nodeName field selector")
            }
            // Admission looks whether they are on this node.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Decision::yes("")
            }
            _ => Decision::no(""),
        }
    }

    fn is_selected(&self) -> bool {
        self.object.selects("spec.nodeName", self.node)
    }

    fn if_selected(&self, otherwise: &str) -> Decision {
        if self.is_selected() { Decision::yes("") } else { Decision::no(otherwise) }
    }

    /// Whether the object is the node's by what it says itself.
    fn is_own(&self, resource: &'static Resource) -> bool {
        let ObjectAttributes { namespace, name, .. } = self.object;
        let stored = self.state.get(&Key::new(resource, namespace, name));
        stored.is_some_and(|stored| match indexed_node(stored) {
            Some(node) => node == self.node,
            None => text(&stored.decode(), &["spec", "nodeName"]) == self.node,
        })
    }

    /// Whether a pod of the node names the object.
    fn is_named(&self, what: Named) -> bool {
        let ObjectAttributes { namespace, name, .. } = self.object;
        let by_pod = self.has_pod_that_names(namespace, what, name);
        by_pod || (what == Named::Secret && self.is_of_own_volume(namespace, name))
    }

    fn has_pod_that_names(&self, namespace: &str, what: Named, name: &str) -> bool {
        // A claim of a pod's own is called as the pod and the volume are, which it does not say in one word.
        let is_worth_a_look = |stored: &Stored| what == Named::PersistentVolumeClaim || says(stored, name);
        let pods = self.state.list(&PODS, Some(namespace)).map(|(_, stored)| stored);
        let mut own =
            pods.filter(|stored| indexed_node(stored) == Some(self.node) && is_worth_a_look(stored));
        own.any(|stored| references::pod_names(&stored.decode(), what, name))
    }

    fn is_own_volume(&self, name: &str) -> bool {
        let volume = self.state.read(&PERSISTENT_VOLUMES, "", name);
        volume.is_some_and(|volume| self.is_claimed(&volume))
    }

    fn is_claimed(&self, volume: &serde_json::Value) -> bool {
        let claim = &volume["spec"]["claimRef"];
        let (namespace, name) = (text(claim, &["namespace"]), text(claim, &["name"]));
        !name.is_empty() && self.has_pod_that_names(namespace, Named::PersistentVolumeClaim, name)
    }

    /// Whether a volume that a pod of the node uses needs a secret.
    fn is_of_own_volume(&self, namespace: &str, name: &str) -> bool {
        let volumes = self.state.list(&PERSISTENT_VOLUMES, None).map(|(_, stored)| stored);
        volumes.filter(|stored| says(stored, name)).map(|stored| stored.decode()).any(|volume| {
            references::volume_names_secret(&volume, namespace, name) && self.is_claimed(&volume)
        })
    }
}

fn indexed_node(stored: &Stored) -> Option<&str> {
    let found = stored.fields.iter().find(|(name, _)| *name == "spec.nodeName");
    found.map(|(_, node)| node.as_str())
}

/// Whether a name is in an object's text at all.
fn says(stored: &Stored, name: &str) -> bool {
    let quoted = format!("\"{name}\"");
    std::str::from_utf8(&stored.json()).is_ok_and(|json| json.contains(&quoted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::who::User;

    fn state() -> State {
        let mut state = State::default();
        let pod = |name: &str, node: &str, spec: serde_json::Value| {
            let mut pod = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
            pod["spec"]["nodeName"] = node.into();
            pod
        };
        let uses = json!({
            "serviceAccountName": "robot",
            "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "env-from"}}]}],
            "containers": [{"name": "c", "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "map-env", "key": "k"}}},
            ]}],
            "volumes": [
                {"name": "a", "secret": {"secretName": "volume"}},
                {"name": "b", "projected": {"sources": [{"secret": {"name": "projected"}}, {"configMap": {"name": "map"}}]}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "d", "ephemeral": {"volumeClaimTemplate": {}}},
            ],
            "resourceClaims": [{"name": "x", "resourceClaimName": "device"}, {"name": "y", "resourceClaimTemplateName": "t"}],
        });
        let mut one = pod("one", "n1", uses);
        one["status"] = json!({"resourceClaimStatuses": [{"name": "y", "resourceClaimName": "one-y-abc"}]});
        state.put(&PODS, one);
        state.put(
            &PODS,
            pod("two", "n2", json!({"volumes": [{"name": "a", "secret": {"secretName": "other"}}]})),
        );
        let mut mirror =
            pod("mirror", "n1", json!({"volumes": [{"name": "a", "secret": {"secretName": "mirrored"}}]}));
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        state.put(&PODS, mirror);
        for (name, claim) in [("pv", "claim"), ("pv-other", "elsewhere")] {
            let csi = json!({
                "driver": "d",
                "nodeStageSecretRef": {"name": format!("{name}-stage"), "namespace": "storage"},
                "controllerPublishSecretRef": {"name": format!("{name}-controller"), "namespace": "storage"},
            });
            let spec = json!({"claimRef": {"namespace": "ns", "name": claim}, "csi": csi});
            state.put(&PERSISTENT_VOLUMES, json!({"metadata": {"name": name}, "spec": spec}));
        }
        for node in ["n1", "n2"] {
            let metadata = json!({"name": format!("of-{node}")});
            state.put(&VOLUME_ATTACHMENTS, json!({"metadata": metadata, "spec": {"nodeName": node}}));
            state.put(&RESOURCE_SLICES, json!({"metadata": metadata, "spec": {"nodeName": node}}));
        }
        state
    }

    fn decide(what: &str) -> Decision {
        // verb group resource[/subresource] namespace name [field=value], where - is empty
        let words: Vec<&str> = what.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
        let (resource, subresource) = words[2].split_once('/').unwrap_or((words[2], ""));
        let fields =
            words.get(5).map(|selector| selector.parse::<crablet_api::selector::FieldSelector>().unwrap());
        let object = ObjectAttributes {
            subresource: subresource.to_owned(),
            fields: fields.map(|fields| fields.0.to_vec()).unwrap_or_default(),
            ..ObjectAttributes::new(words[1], resource, words[3], words[4])
        };
        let user = User::new("system:node:n1", &["system:nodes"]);
        authorize(&state(), "n1", &Attributes::new(&user, words[0], object))
    }

    #[test]
    fn a_node_may_do_what_concerns_its_pods() {
        for what in [
            "get - secrets ns pull",
            "get - secrets ns env",
            "list - secrets ns env-from",
            "watch - secrets ns volume",
            "get - secrets ns projected",
            "get - secrets storage pv-stage",
            "get - configmaps ns map",
            "get - configmaps ns map-env",
            "get - persistentvolumeclaims ns claim",
            "get - persistentvolumeclaims ns one-d",
            "patch - persistentvolumeclaims/status ns claim",
            "get - persistentvolumes - pv",
            "get resource.k8s.io resourceclaims ns device",
            "get resource.k8s.io resourceclaims ns one-y-abc",
            "get storage.k8s.io volumeattachments - of-n1",
            "create - serviceaccounts/token ns robot",
            "get - serviceaccounts ns robot",
            "create coordination.k8s.io leases kube-node-lease -",
            "update coordination.k8s.io leases kube-node-lease n1",
            "get storage.k8s.io csinodes - n1",
            "create storage.k8s.io csinodes - -",
            "update resource.k8s.io resourceslices - of-n1",
            "list resource.k8s.io resourceslices - - spec.nodeName=n1",
            "get - nodes - n1",
            "watch - nodes - n1",
            "create - nodes - -",
            "patch - nodes/status - n1",
            "get - pods ns one",
            "list - pods - - spec.nodeName=n1",
            "delete - pods ns one",
            "patch - pods/status ns one",
            "create - pods/eviction ns one",
            "list - services - -",
            "watch node.k8s.io runtimeclasses - -",
            "create certificates.k8s.io certificatesigningrequests - -",
            "list certificates.k8s.io clustertrustbundles - -",
            "create certificates.k8s.io podcertificaterequests ns -",
            "create - events ns -",
            "create authentication.k8s.io tokenreviews - -",
        ] {
            let decision = decide(what);
            assert!(decision.allowed, "{what}: {}", decision.reason);
        }
    }

    #[test]
    fn a_node_may_not_do_what_concerns_others() {
        let unrelated = "no relationship found between node 'n1' and this object";
        for (what, reason) in [
            ("get - secrets ns other", unrelated),
            ("get - secrets ns mirrored", unrelated),
            ("get - secrets ns missing", unrelated),
            ("get - secrets other volume", unrelated),
            ("get - secrets storage pv-other-stage", unrelated),
            ("get - secrets storage pv-controller", unrelated),
            ("list - secrets ns -", "No Object name found"),
            ("list - secrets - volume", "can only read namespaced object of this type"),
            ("update - secrets ns volume", "can only read resources of this type"),
            ("get - persistentvolumes - pv-other", unrelated),
            ("list - persistentvolumes - -", "can only get individual resources of this type"),
            ("get - persistentvolumeclaims/status ns claim", "can only get/update/patch this type"),
            ("get storage.k8s.io volumeattachments - of-n2", unrelated),
            ("create - serviceaccounts/token ns default", unrelated),
            ("create - serviceaccounts ns -", "can only create tokens for individual service accounts"),
            (
                "get coordination.k8s.io leases default n1",
                "can only access leases in the \"kube-node-lease\" system namespace",
            ),
            (
                "get coordination.k8s.io leases kube-node-lease n2",
                "can only access node lease with the same name as the requesting node",
            ),
            (
                "get storage.k8s.io csinodes - n2",
                "can only access CSINode with the same name as the requesting node",
            ),
            ("get resource.k8s.io resourceslices - of-n2", unrelated),
            (
                "list resource.k8s.io resourceslices - - spec.nodeName=n2",
                "can only list/watch/deletecollection resourceslices with nodeName field selector",
            ),
            ("get - nodes - n2", "node 'n1' cannot read 'n2', only its own Node object"),
            ("list - nodes - -", "node 'n1' cannot read all nodes, only its own Node object"),
            ("delete - nodes - n1", ""),
            ("get - pods ns two", unrelated),
            (
                "list - pods - - spec.nodeName!=n1",
                "can only list/watch pods with spec.nodeName field selector",
            ),
            ("update - pods ns one", ""),
            ("create - pods/exec ns one", ""),
            ("delete - services ns x", ""),
            (
                "delete certificates.k8s.io podcertificaterequests ns x",
                "nodes may not delete podcertificaterequests",
            ),
        ] {
            let decision = decide(what);
            assert_eq!((decision.allowed, decision.reason.as_str()), (false, reason), "{what}");
        }
    }
}
