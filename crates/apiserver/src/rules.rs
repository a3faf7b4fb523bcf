//! What a kind has of its own: defaults, what a client cannot set, validation, how it is deleted. A kind without
//! anything of its own has [`Plain`] rules.

mod accounts;
pub(crate) mod certificates;
mod checks;
pub(crate) mod classes;
mod configuration;
mod devices;
mod diff;
mod events;
mod leases;
pub mod metadata;
pub(crate) mod namespaces;
mod nodes;
pub(crate) mod pods;
mod rbac;
mod services;
mod storage;
mod volumes;

use crablet_api::validate::Errors;
use jiff::Timestamp;
use serde_json::Value;

use crate::object;
use crate::resources::{Resource, Subresource};
use crate::state::State;
use crate::state::excerpt::Wanted;
use crate::who::User;

/// What rules may look at beside the object.
pub struct Context<'c> {
    pub resource: &'static Resource,
    pub state: &'c State,
    pub now: Timestamp,
    pub user: &'c User,
}

/// An update of an object, or of a part of it.
pub struct Update<'u> {
    pub resource: &'static Resource,
    pub state: &'u State,
    pub new: &'u Value,
    pub old: &'u Value,
    pub part: Option<Subresource>,
    pub now: Timestamp,
}

/// What the names of a kind look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameForm {
    /// `a-b.c`
    Subdomain,
    /// `a-b`
    Label,
    /// `a-b`, and a letter first.
    Dns1035Label,
    /// Nothing that a path could not have as one part: roles and bindings.
    PathSegment,
}

/// Rules of a kind. All are for objects that were decoded by the schema.
pub trait Rules: Sync {
    fn name_form(&self) -> NameForm {
        NameForm::Subdomain
    }

    /// Says what is wrong with the metadata of an object that is to be created.
    fn validate_metadata(&self, errors: &mut Errors, resource: &Resource, object: &Value) {
        metadata::check(errors, resource, self.name_form(), object);
    }

    /// Fills in what was left out. Only a part of what an update of a part says is ever used.
    fn default(&self, _object: &mut Value, _part: Option<Subresource>) {}

    /// Takes away what a client cannot set on creation, and sets what the server does.
    fn prepare_create(&self, _object: &mut Value, _context: &Context<'_>) {}

    fn validate_create(&self, _errors: &mut Errors, _object: &Value, _context: &Context<'_>) {}

    /// Takes back what an update of the object, or of its part, cannot change.
    fn prepare_update(
        &self,
        new: &mut Value,
        old: &Value,
        part: Option<Subresource>,
        _context: &Context<'_>,
    ) {
        keep_other_parts(new, old, part);
    }

    fn validate_update(&self, errors: &mut Errors, update: &Update<'_>) {
        metadata::check_update(errors, update);
    }

    /// What of an object is looked at where only its status changes, and by selectors: the rest of its spec is then not
    /// even decoded. None if it is all.
    fn looked_at_for_status(&self) -> Option<&'static Wanted> {
        None
    }

    /// What `kubectl` prints as a warning.
    fn warnings(&self, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Whether `metadata.generation` counts changes of what is wanted.
    fn has_generation(&self) -> bool {
        false
    }

    /// What counts for that.
    fn generation_parts<'o>(&self, object: &'o Value) -> &'o Value {
        &object["spec"]
    }

    /// Whether an update may leave out the version it is based on.
    fn updates_unconditionally(&self) -> bool {
        true
    }

    /// Whether an update of what is not there creates it.
    fn creates_on_update(&self) -> bool {
        false
    }

    /// The grace period of a deletion, given the one that was asked for; none if the kind has none.
    fn grace(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// What else happens to an object whose deletion begins.
    fn prepare_deletion(&self, _object: &mut Value) {}

    /// What holds an object beside its metadata's finalizers.
    fn is_held(&self, _object: &Value) -> bool {
        false
    }

    /// Whether an object that is being deleted can go.
    fn is_deletable(&self, object: &Value) -> bool {
        object::finalizers(object).is_empty()
            && !self.is_held(object)
            && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
    }

    /// Whether a deletion is answered by a `Status` and not by what was deleted.
    fn answers_deletion_with_status(&self) -> bool {
        true
    }
}

/// The rules of a kind.
pub fn of(resource: &'static Resource) -> &'static dyn Rules {
    match (resource.group, resource.plural) {
        ("", "pods") => &pods::Pods,
        ("", "configmaps") => &configuration::ConfigMaps,
        ("", "events") => &events::Events,
        ("", "namespaces") => &namespaces::Namespaces,
        ("", "nodes") => &nodes::Nodes,
        ("", "persistentvolumeclaims") => &volumes::Claims,
        ("", "persistentvolumes") => &volumes::Volumes,
        ("", "secrets") => &configuration::Secrets,
        ("", "serviceaccounts") => &accounts::ServiceAccounts,
        ("", "services") => &services::Services,
        ("certificates.k8s.io", "certificatesigningrequests") => &certificates::SigningRequests,
        ("certificates.k8s.io", "clustertrustbundles") => &certificates::TrustBundles,
        ("certificates.k8s.io", "podcertificaterequests") => &certificates::PodRequests,
        ("coordination.k8s.io", "leases") => &leases::Leases,
        ("events.k8s.io", "events") => &events::NewEvents,
        ("node.k8s.io", "runtimeclasses") => &classes::RuntimeClasses,
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => &rbac::Roles,
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => &rbac::Bindings,
        ("resource.k8s.io", "deviceclasses") => &devices::Classes,
        ("resource.k8s.io", "resourceclaims") => &devices::Claims,
        ("resource.k8s.io", "resourceclaimtemplates") => &devices::Templates,
        ("resource.k8s.io", "resourceslices") => &devices::Slices,
        ("scheduling.k8s.io", "priorityclasses") => &classes::PriorityClasses,
        ("storage.k8s.io", "csidrivers") => &storage::Drivers,
        ("storage.k8s.io", "csinodes") => &storage::NodeDrivers,
        ("storage.k8s.io", "storageclasses") => &storage::StorageClasses,
        ("storage.k8s.io", "volumeattachments") => &storage::Attachments,
        _ => &Plain,
    }
}

/// No rules but those that all kinds have.
pub struct Plain;

impl Rules for Plain {}

/// An update of the status changes nothing else, not even labels.
fn keep_all_but_status(new: &mut Value, old: &Value, part: Option<Subresource>) {
    match part {
        Some(Subresource::Status) => {
            let status = new["status"].take();
            new.clone_from(old);
            new["status"] = status;
        }
        Some(_) | None => keep_other_parts(new, old, part),
    }
}

/// An update of the object leaves its status alone, and one of the status all but the status.
pub(crate) fn keep_other_parts(new: &mut Value, old: &Value, part: Option<Subresource>) {
    match part {
        Some(Subresource::Status) => {
            let is_of_status = |member: &str| matches!(member, "metadata" | "status");
            keep_members(new, old, is_of_status);
            // Owners and labels can be changed with a status as well, as upstream lets a node do it.
            let is_changeable = |field: &str| {
                ["uid", "labels", "annotations", "finalizers", "ownerReferences"].contains(&field)
            };
            keep_members(&mut new["metadata"], &old["metadata"], is_changeable);
        }
        Some(_) | None => match old.get("status") {
            Some(status) => new["status"] = status.clone(),
            None => drop(object::remove(new, "status")),
        },
    }
}

/// Takes back all members but some.
fn keep_members(new: &mut Value, old: &Value, is_changeable: impl Fn(&str) -> bool) {
    let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) else { return };
    new.retain(|name, _| is_changeable(name) || old.contains_key(name));
    for (name, value) in old.iter().filter(|(name, _)| !is_changeable(name)) {
        if new.get(name) != Some(value) {
            new.insert(name.clone(), value.clone());
        }
    }
}
