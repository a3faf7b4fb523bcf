//! Nodes write of themselves and of their pods, and of nothing else.

use serde_json::Value;

use super::references::named_objects;
use super::{Operation, forbidden};
use crate::cluster::{Call, Cluster};
use crate::object;
use crate::resources::{
    CSI_DRIVERS, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, SERVICE_ACCOUNTS, Subresource,
};
use crate::rules::certificates;
use crate::rules::metadata::same;
use crate::status::Refusal;
use crate::who::{NODE_PREFIX, NODES as NODES_GROUP};

const MIRROR: &str = "kubernetes.io/config.mirror";
const LEASES_NAMESPACE: &str = "kube-node-lease";
/// Labels of Kubernetes that a node may set of itself.
const NODE_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// What a node asks for.
struct Ask<'a> {
    cluster: &'a Cluster,
    call: &'a Call<'a>,
    operation: Operation,
    node: &'a str,
    object: &'a Value,
    old: Option<&'a Value>,
}

pub(super) fn check(
    cluster: &Cluster,
    call: &Call<'_>,
    operation: Operation,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Refusal> {
    let user = &call.request.user;
    let Some(node) = user.name.strip_prefix(NODE_PREFIX).filter(|_| user.is_in(NODES_GROUP)) else {
        return Ok(());
    };
    let ask = Ask { cluster, call, operation, node, object, old };
    if node.is_empty() {
        return ask.refuse(format!("could not determine node from user {:?}", user.name));
    }
    match (call.target.resource.group, call.target.resource.plural, call.target.subresource) {
        ("", "pods", None) => ask.pod(),
        ("", "pods", Some(Subresource::Status)) => ask.pod_status(),
        ("", "pods", Some(Subresource::Eviction)) => ask.eviction(),
        ("", "pods", Some(part)) => ask.refuse(format!(
            "unexpected pod subresource {:?}, only 'status' and 'eviction' are allowed",
            part.name()
        )),
        ("", "nodes", _) => ask.node(),
        ("", "persistentvolumeclaims", Some(Subresource::Status)) => ask.claim_status(),
        ("", "persistentvolumeclaims", _) => ask.refuse("may only update PVC status"),
        ("", "serviceaccounts", Some(Subresource::Token)) => ask.token(),
        ("certificates.k8s.io", "podcertificaterequests", _) => ask.pod_certificate(),
        ("coordination.k8s.io", "leases", _) => ask.lease(),
        ("storage.k8s.io", "csinodes", _) if ask.name() != node => {
            ask.refuse("can only access CSINode with the same name as the requesting node")
        }
        ("resource.k8s.io", "resourceslices", _) => ask.slice(),
        ("certificates.k8s.io", "certificatesigningrequests", _) => ask.certificate(),
        _ => Ok(()),
    }
}

impl Ask<'_> {
    fn refuse(&self, why: impl std::fmt::Display) -> Result<(), Refusal> {
        Err(forbidden(self.call, self.object, why))
    }

    /// The name of the object, which on creation only the object says.
    fn name(&self) -> &str {
        match self.operation {
            Operation::Create => object::name(self.object),
            Operation::Update | Operation::Delete => &self.call.target.name,
        }
    }

    fn pod(&self) -> Result<(), Refusal> {
        let node = self.node;
        match self.operation {
            Operation::Create => self.mirror_pod(),
            Operation::Delete => {
                let pod = self.old.unwrap_or(self.object);
                match object::text(pod, &["spec", "nodeName"]) == node {
                    true => Ok(()),
                    false => self.refuse(format!(
                        "node {node:?} can only delete pods with spec.nodeName set to itself"
                    )),
                }
            }
            Operation::Update => self.refuse(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                self.operation.name()
            )),
        }
    }

    fn mirror_pod(&self) -> Result<(), Refusal> {
        let (node, pod) = (self.node, self.object);
        if pod["metadata"]["annotations"].get(MIRROR).is_none() {
            return self.refuse(format!(
                "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
            ));
        }
        if object::text(pod, &["spec", "nodeName"]) != node {
            return self
                .refuse(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
        }
        let owner = match object::list(pod, &["metadata", "ownerReferences"]) {
            [owner] => owner,
            [] => {
                return self.refuse(format!(
                    "node {node:?} can only create pods with an owner reference set to itself"
                ));
            }
            [_, _, ..] => {
                return self.refuse(format!(
                    "node {node:?} can only create pods with a single owner reference set to itself"
                ));
            }
        };
        let text = |field: &str| object::text(owner, &[field]);
        if (text("apiVersion"), text("kind"), text("name")) != ("v1", "Node", node) {
            return self
                .refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
        }
        if owner["controller"] != true {
            return self.refuse(format!(
                "node {node:?} can only create pods with a controller owner reference set to itself"
            ));
        }
        if owner["blockOwnerDeletion"] == true {
            return self
                .refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
        }
        let Some(known) = self.cluster.state.read(&NODES, "", node) else {
            return Err(Refusal::not_found(&NODES, node));
        };
        if text("uid") != object::uid(&known) {
            return self.refuse(format!(
                "node {node} UID mismatch: expected {} got {}",
                text("uid"),
                object::uid(&known)
            ));
        }
        match named_objects(pod) {
            Some(what) => self.refuse(format!("node {node:?} can not create pods that reference {what}")),
            None => Ok(()),
        }
    }

    fn pod_status(&self) -> Result<(), Refusal> {
        let (node, Some(old)) = (self.node, self.old) else {
            return self.refuse(format!("unexpected operation {:?}", self.operation.name()));
        };
        if object::text(old, &["spec", "nodeName"]) != node {
            return self.refuse(format!(
                "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
            ));
        }
        if !same(&self.object["metadata"]["labels"], &old["metadata"]["labels"]) {
            return self.refuse(format!("node {node:?} cannot update labels through pod status"));
        }
        let is_kept = |field: &str| same(&self.object["status"][field], &old["status"][field]);
        if !is_kept("resourceClaimStatuses") {
            return self.refuse(format!("node {node:?} cannot update resource claim statues"));
        }
        if !is_kept("extendedResourceClaimStatus") {
            return self.refuse(format!("node {node:?} cannot update extended resource claim status"));
        }
        Ok(())
    }

    fn eviction(&self) -> Result<(), Refusal> {
        let target = &self.call.target;
        let Some(pod) = self.cluster.state.read(&PODS, &target.namespace, &target.name) else {
            return Err(Refusal::not_found(&PODS, &target.name));
        };
        match object::text(&pod, &["spec", "nodeName"]) == self.node {
            true => Ok(()),
            false => self
                .refuse(format!("node {} can only evict pods with spec.nodeName set to itself", self.node)),
        }
    }

    fn node(&self) -> Result<(), Refusal> {
        let (node, name) = (self.node, self.name());
        if name != node {
            return self.refuse(format!("node {node:?} is not allowed to modify node {name:?}"));
        }
        let (labels, spec) = (&self.object["metadata"]["labels"], &self.object["spec"]);
        match (self.operation, self.old) {
            (Operation::Create, _) => {
                if !spec["configSource"].is_null() {
                    return self.refuse(format!(
                        "node {node:?} is not allowed to create pods with a non-nil configSource"
                    ));
                }
                let labels = forbidden_labels(labels, &Value::Null);
                if !labels.is_empty() {
                    return self.refuse(format!(
                        "node {node:?} is not allowed to set the following labels: {}",
                        labels.join(", ")
                    ));
                }
            }
            (Operation::Update, Some(old)) => {
                let is_new_source =
                    !spec["configSource"].is_null() && spec["configSource"] != old["spec"]["configSource"];
                if is_new_source {
                    return self.refuse(format!(
                        "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                    ));
                }
                if !same(&spec["taints"], &old["spec"]["taints"]) {
                    return self.refuse(format!("node {node:?} is not allowed to modify taints"));
                }
                let owners = |node: &Value| node["metadata"]["ownerReferences"].clone();
                if !same(&owners(self.object), &owners(old)) {
                    return self.refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
                }
                let labels = forbidden_labels(labels, &old["metadata"]["labels"]);
                if !labels.is_empty() {
                    return self.refuse(format!("is not allowed to modify labels: {}", labels.join(", ")));
                }
            }
            (Operation::Update | Operation::Delete, _) => {}
        }
        Ok(())
    }

    fn claim_status(&self) -> Result<(), Refusal> {
        let Some(old) = self.old else {
            return self.refuse(format!("unexpected operation {:?}", self.operation.name()));
        };
        let without_sizes = |claim: &Value| {
            let mut claim = claim.clone();
            object::remove(&mut claim["metadata"], "resourceVersion");
            for field in ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"] {
                object::remove(&mut claim["status"], field);
            }
            claim
        };
        if same(&without_sizes(self.object), &without_sizes(old)) {
            return Ok(());
        }
        self.refuse(format!(
            "node {:?} is not allowed to update fields other than status.quantity and status.conditions: ",
            self.node
        ))
    }

    fn token(&self) -> Result<(), Refusal> {
        if self.operation != Operation::Create {
            return Ok(());
        }
        let reference = &self.object["spec"]["boundObjectRef"];
        let text = |field: &str| object::text(reference, &[field]);
        if (text("apiVersion"), text("kind")) != ("v1", "Pod") || text("name").is_empty() {
            return self.refuse("node requested token not bound to a pod");
        }
        if text("uid").is_empty() {
            return self.refuse("node requested token with a pod binding without a uid");
        }
        let Some(pod) = self.cluster.state.read(&PODS, &self.call.target.namespace, text("name")) else {
            return Err(Refusal::not_found(&PODS, text("name")));
        };
        if text("uid") != object::uid(&pod) {
            return self.refuse(format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The object might have \
                 been deleted and then recreated",
                text("uid")
            ));
        }
        if object::text(&pod, &["spec", "nodeName"]) != self.node {
            return self.refuse("node requested token bound to a pod scheduled on a different node");
        }
        let audience = match object::list(self.object, &["spec", "audiences"]) {
            [] => "",
            [only] => only.as_str().unwrap_or_default(),
            [_, _, ..] => return self.refuse("node may only request 0 or 1 audiences"),
        };
        if self.has_audience(&pod, audience) {
            return Ok(());
        }
        self.refuse(format!(
            "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
            self.call.request.user.name
        ))
    }

    /// Whether a volume of a pod, or its driver, asks for tokens for somebody.
    fn has_audience(&self, pod: &Value, audience: &str) -> bool {
        object::list(pod, &["spec", "volumes"]).iter().any(|volume| {
            let mut sources = object::list(volume, &["projected", "sources"]).iter();
            let is_projected = sources.any(|source| {
                source["serviceAccountToken"].is_object()
                    && object::text(source, &["serviceAccountToken", "audience"]) == audience
            });
            is_projected || self.driver_has_audience(pod, volume, audience)
        })
    }

    fn driver_has_audience(&self, pod: &Value, volume: &Value, audience: &str) -> bool {
        let claim = match volume["persistentVolumeClaim"]["claimName"].as_str() {
            Some(claim) => Some(claim.to_owned()),
            None if volume["ephemeral"].is_object() => {
                Some(format!("{}-{}", object::name(pod), object::text(volume, &["name"])))
            }
            None => None,
        };
        let state = &self.cluster.state;
        let driver = match claim {
            None => object::text(volume, &["csi", "driver"]).to_owned(),
            Some(claim) => {
                let claim = state.read(&PERSISTENT_VOLUME_CLAIMS, object::namespace(pod), &claim);
                let volume = claim.and_then(|claim| {
                    state.read(&PERSISTENT_VOLUMES, "", object::text(&claim, &["spec", "volumeName"]))
                });
                volume
                    .map(|volume| object::text(&volume, &["spec", "csi", "driver"]).to_owned())
                    .unwrap_or_default()
            }
        };
        let driver = state.read(&CSI_DRIVERS, "", &driver).unwrap_or_default();
        let mut requests = object::list(&driver, &["spec", "tokenRequests"]).iter();
        requests.any(|request| object::text(request, &["audience"]) == audience)
    }

    fn pod_certificate(&self) -> Result<(), Refusal> {
        if self.operation != Operation::Create {
            return self.refuse(format!("unexpected operation {}", self.operation.name()));
        }
        let namespace = self.call.target.namespace.as_str();
        let text = |field: &str| object::text(self.object, &["spec", field]);
        let (node, pod_name) = (text("nodeName"), format!("{namespace}/{}", text("podName")));
        if node != self.node {
            return self.refuse(format!(
                "PodCertificateRequest.Spec.NodeName={node:?}, which is not the requesting node {:?}",
                self.node
            ));
        }
        let state = &self.cluster.state;
        let Some(known) = state.read(&NODES, "", node) else {
            return Err(Refusal::internal(format!(
                "while retrieving node {node:?} named in the PodCertificateRequest: node {node:?} not found"
            )));
        };
        if object::uid(&known) != text("nodeUID") {
            return Err(Refusal::internal(format!(
                "PodCertificateRequest for pod {pod_name:?} names node UID {:?}, inconsistent with the running node ({:?})",
                text("nodeUID"),
                object::uid(&known)
            )));
        }
        let Some(pod) = state.read(&PODS, namespace, text("podName")) else {
            return Err(Refusal::internal(format!(
                "while retrieving pod {pod_name:?} named in the PodCertificateRequest: pod {:?} not found",
                text("podName")
            )));
        };
        if object::uid(&pod) != text("podUID") {
            return Err(Refusal::internal(format!(
                "PodCertificateRequest for pod {pod_name:?} contains pod UID ({:?}) which differs from running pod {:?}",
                text("podUID"),
                object::uid(&pod)
            )));
        }
        if object::text(&pod, &["spec", "nodeName"]) != node {
            return self.refuse(format!(
                "pod {pod_name:?} is not running on node {node:?} named in the PodCertificateRequest"
            ));
        }
        if pod["metadata"]["annotations"].get(MIRROR).is_some() {
            return self.refuse(format!("pod {pod_name:?} is a mirror pod"));
        }
        let account = object::text(&pod, &["spec", "serviceAccountName"]);
        if text("serviceAccountName") != account {
            return self.refuse(format!(
                "PodCertificateRequest for pod {pod_name:?} contains serviceAccountName ({:?}) that differs from running \
                 pod ({account:?})",
                text("serviceAccountName")
            ));
        }
        let known = state.read(&SERVICE_ACCOUNTS, namespace, account).unwrap_or_default();
        if object::uid(&known) != text("serviceAccountUID") {
            return Err(Refusal::internal(format!(
                "PodCertificateRequest for pod {pod_name:?} names service account UID {:?}, which differs from the running \
                 service account ({:?})",
                text("serviceAccountUID"),
                object::uid(&known)
            )));
        }
        Ok(())
    }

    fn lease(&self) -> Result<(), Refusal> {
        if self.call.target.namespace != LEASES_NAMESPACE {
            return self
                .refuse(format!("can only access leases in the {LEASES_NAMESPACE:?} system namespace"));
        }
        match self.name() == self.node {
            true => Ok(()),
            false => self.refuse("can only access node lease with the same name as the requesting node"),
        }
    }

    fn slice(&self) -> Result<(), Refusal> {
        let (verb, slice) = match self.operation {
            Operation::Create => ("create", self.object),
            Operation::Delete => ("delete", self.old.unwrap_or(self.object)),
            Operation::Update => return Ok(()),
        };
        match slice["spec"]["nodeName"] == self.node {
            true => Ok(()),
            false => self.refuse(format!(
                "can only {verb} ResourceSlice with the same NodeName as the requesting node"
            )),
        }
    }

    fn certificate(&self) -> Result<(), Refusal> {
        let signers = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];
        let signer = object::text(self.object, &["spec", "signerName"]);
        if self.operation != Operation::Create || !signers.contains(&signer) {
            return Ok(());
        }
        let request = match certificates::requested(self.object) {
            Ok(request) => request,
            Err(error) => return self.refuse(format!("unable to parse csr: {error}")),
        };
        match request.common_name() == format!("{NODE_PREFIX}{}", self.node) {
            true => Ok(()),
            false => self.refuse(format!("can only create a node CSR with CN={NODE_PREFIX}{}", self.node)),
        }
    }
}

/// Labels that a node changes and may not.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let keys = |labels: &Value| -> Vec<String> {
        labels.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    let mut changed: Vec<String> = keys(new);
    changed.extend(keys(old));
    changed.retain(|key| new[key.as_str()] != old[key.as_str()] && is_restricted(key));
    changed.sort_unstable();
    changed.dedup();
    changed
}

fn is_restricted(key: &str) -> bool {
    let domain = key.split_once('/').map(|(domain, _)| domain).unwrap_or_default();
    let is_of = |parent: &str| {
        domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    let is_own = NODE_LABELS.contains(&key) || is_of("kubelet.kubernetes.io") || is_of("node.kubernetes.io");
    is_of("node-restriction.kubernetes.io") || ((is_of("kubernetes.io") || is_of("k8s.io")) && !is_own)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_sets_its_own_labels_alone() {
        for (key, expected) in [
            ("kubernetes.io/hostname", false),
            ("node.kubernetes.io/anything", false),
            ("x.kubelet.kubernetes.io/anything", false),
            ("example.com/anything", false),
            ("plain", false),
            ("node-role.kubernetes.io/control-plane", true),
            ("kubernetes.io/anything", true),
            ("k8s.io/anything", true),
            ("node-restriction.kubernetes.io/x", true),
            ("a.node-restriction.kubernetes.io/x", true),
        ] {
            assert_eq!(is_restricted(key), expected, "{key}");
        }
        let (new, old) =
            (json!({"kubernetes.io/a": "1", "b": "2"}), json!({"kubernetes.io/c": "1", "b": "1"}));
        assert_eq!(forbidden_labels(&new, &old), ["kubernetes.io/a", "kubernetes.io/c"]);
        assert_eq!(forbidden_labels(&new, &new), [""; 0]);
    }
}
