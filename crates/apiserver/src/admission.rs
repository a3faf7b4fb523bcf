//! What is changed or refused because of other objects, or of who asks: upstream's admission plugins that a node and its
//! pods rely on, in upstream's order.

mod certificates;
mod node_restriction;
mod pods;
mod references;
mod resize;
mod service_account;
mod storage;

use serde_json::{Value, json};

use crate::cluster::{Call, Cluster};
use crate::object;
use crate::resources::{NAMESPACES, NODES, PRIORITY_CLASSES, Subresource};
use crate::state::Key;
use crate::status::Refusal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    /// As upstream's messages have it.
    fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

/// Namespaces that stay.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Changes an object on its way in.
pub(crate) fn mutate(
    cluster: &mut Cluster,
    call: &Call<'_>,
    operation: Operation,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Refusal> {
    check_namespace(cluster, call, operation, object)?;
    let part = call.target.subresource;
    let kind = (call.target.resource.group, call.target.resource.plural, part);
    if kind == ("", "pods", None) && operation == Operation::Create {
        service_account::mutate(cluster, call, object)?;
    }
    node_restriction::check(cluster, call, operation, object, old)?;
    match (kind, operation) {
        (("", "pods", None), Operation::Create) => {
            pods::set_priority(cluster, call, object)?;
            pods::add_tolerations(object);
            pods::set_runtime_class(cluster, call, object)?;
            copy_topology(cluster, object);
        }
        (("", "pods", None), Operation::Update) => {
            pods::keep_priority(object, old);
            pods::add_tolerations(object);
            copy_topology(cluster, object);
        }
        (("", "nodes", None), Operation::Create) => taint_new_node(object),
        (("", "persistentvolumeclaims", None), Operation::Create) => {
            storage::set_default_class(cluster, object);
            object::add_finalizer(object, "kubernetes.io/pvc-protection");
        }
        (("", "persistentvolumes", None), Operation::Create) => {
            object::add_finalizer(object, "kubernetes.io/pv-protection");
        }
        _ => {}
    }
    Ok(())
}

/// Refuses what may not be.
pub(crate) fn validate(
    cluster: &Cluster,
    call: &Call<'_>,
    operation: Operation,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Refusal> {
    if operation == Operation::Delete {
        let is_namespace = call.target.resource.key() == NAMESPACES.key();
        if is_namespace && IMMORTAL.contains(&call.target.name.as_str()) {
            return Err(forbidden(call, object, "this namespace may not be deleted"));
        }
        return node_restriction::check(cluster, call, operation, object, old);
    }
    let kind = (call.target.resource.group, call.target.resource.plural, call.target.subresource);
    match (kind, operation) {
        (("", "pods", None | Some(Subresource::EphemeralContainers | Subresource::Resize)), _) => {
            service_account::validate(cluster, call, operation, object)?;
            match (operation, kind.2) {
                (Operation::Update, None | Some(Subresource::Resize)) => {
                    resize::check(cluster, call, object, old)
                }
                _ => Ok(()),
            }
        }
        (("", "persistentvolumeclaims", None), Operation::Update) => {
            storage::check_resize(cluster, call, object, old)
        }
        (("scheduling.k8s.io", "priorityclasses", None), _) => {
            check_default_priority(cluster, call, operation, object)
        }
        (("certificates.k8s.io", ..), _) => certificates::check(cluster, call, operation, object, old),
        _ => Ok(()),
    }
}

/// What is created about an object that is there: a binding, an eviction, a request for a token.
pub(crate) fn check_part(cluster: &Cluster, call: &Call<'_>, object: &mut Value) -> Result<(), Refusal> {
    check_namespace(cluster, call, Operation::Create, object)?;
    node_restriction::check(cluster, call, Operation::Create, object, None)?;
    let is_binding = call.target.subresource == Some(Subresource::Binding);
    if is_binding && object["target"]["kind"] == "Node" {
        let node = object::text(object, &["target", "name"]).to_owned();
        add_topology(cluster, &node, object);
    }
    Ok(())
}

/// A refusal of an object that is otherwise well.
fn forbidden(call: &Call<'_>, object: &Value, why: impl std::fmt::Display) -> Refusal {
    let names = [call.target.name.as_str(), object::name(object), object::meta(object, "generateName")];
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
    Refusal::forbidden(call.target.resource, name, why)
}

/// Objects are created in namespaces that are there and stay.
fn check_namespace(
    cluster: &Cluster,
    call: &Call<'_>,
    operation: Operation,
    object: &Value,
) -> Result<(), Refusal> {
    if !call.target.resource.is_namespaced() {
        return Ok(());
    }
    let name = call.target.namespace.as_str();
    let Some(namespace) = cluster.state.get(&Key::new(&NAMESPACES, "", name)) else {
        return Err(Refusal::not_found(&NAMESPACES, name));
    };
    if operation != Operation::Create || namespace.decode()["status"]["phase"] != "Terminating" {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {name} because it is being terminated");
    let mut refusal = forbidden(call, object, why);
    if let Some(details) = &mut refusal.details {
        details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {name} is being terminated"),
            "field": "metadata.namespace",
        }]);
    }
    Err(refusal)
}

/// A new node takes no pods before it says that it is ready.
fn taint_new_node(node: &mut Value) {
    let taints = object::list(node, &["spec", "taints"]);
    if taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule") {
        return;
    }
    let mut taints = taints.to_vec();
    taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    if !node["spec"].is_object() {
        node["spec"] = json!({});
    }
    node["spec"]["taints"] = taints.into();
}

/// A pod has the topology labels of its node.
fn copy_topology(cluster: &Cluster, pod: &mut Value) {
    let node = object::text(pod, &["spec", "nodeName"]).to_owned();
    if !node.is_empty() {
        add_topology(cluster, &node, pod);
    }
}

fn add_topology(cluster: &Cluster, node: &str, object: &mut Value) {
    let Some(node) = cluster.state.read(&NODES, "", node) else { return };
    for label in TOPOLOGY_LABELS {
        let Some(value) = node["metadata"]["labels"].get(label) else { continue };
        if !object["metadata"]["labels"].is_object() {
            object["metadata"]["labels"] = json!({});
        }
        object["metadata"]["labels"][label] = value.clone();
    }
}

/// One priority class at most is the default.
fn check_default_priority(
    cluster: &Cluster,
    call: &Call<'_>,
    operation: Operation,
    class: &Value,
) -> Result<(), Refusal> {
    if class["globalDefault"] != true {
        return Ok(());
    }
    match pods::default_priority(cluster) {
        Some(known) if operation == Operation::Create || object::name(&known) != object::name(class) => {
            let why = format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                object::name(&known)
            );
            Err(forbidden(call, class, why))
        }
        Some(_) | None => Ok(()),
    }
}

/// All priority classes, for those who look for the default.
fn priority_classes(cluster: &Cluster) -> impl Iterator<Item = Value> + '_ {
    cluster.state.read_all(&PRIORITY_CLASSES, None)
}
