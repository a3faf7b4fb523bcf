//! Which groups, versions and kinds are served, as discovery tells of them.

use base64::Engine as _;
use sha2::{Digest as _, Sha256};

use crate::resources::{METRICS, RESOURCES, REVIEWS, Resource, Subresource};

pub(super) struct Group {
    pub(super) name: &'static str,
    /// The preferred one first.
    pub(super) versions: &'static [&'static str],
}

/// The core, and then the groups in the order of upstream's priorities.
pub(super) static GROUPS: [Group; 12] = [
    Group { name: "", versions: &["v1"] },
    Group { name: "events.k8s.io", versions: &["v1"] },
    Group { name: "authentication.k8s.io", versions: &["v1"] },
    Group { name: "authorization.k8s.io", versions: &["v1"] },
    Group { name: "certificates.k8s.io", versions: &["v1", "v1beta1"] },
    Group { name: "rbac.authorization.k8s.io", versions: &["v1"] },
    Group { name: "storage.k8s.io", versions: &["v1"] },
    Group { name: "scheduling.k8s.io", versions: &["v1"] },
    Group { name: "coordination.k8s.io", versions: &["v1"] },
    Group { name: "node.k8s.io", versions: &["v1"] },
    Group { name: "resource.k8s.io", versions: &["v1"] },
    Group { name: "metrics.k8s.io", versions: &["v1beta1"] },
];

/// A group other than the core.
pub(super) fn group(name: &str) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.name == name && !name.is_empty())
}

/// A kind or a part of one, at its path.
#[derive(Debug, Default)]
pub(super) struct Kind {
    /// `pods`, `pods/log`
    pub(super) path: String,
    pub(super) singular: &'static str,
    pub(super) is_namespaced: bool,
    /// The group and version of the kind, where they are not those of the path.
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: String,
    pub(super) verbs: Vec<&'static str>,
    pub(super) short_names: &'static [&'static str],
    pub(super) categories: &'static [&'static str],
    pub(super) storage_version_hash: Option<String>,
}

/// All of a group and version, in their order.
pub(super) fn of(group: &str, version: &str) -> Vec<Kind> {
    let served = RESOURCES.iter().chain(&REVIEWS).chain(&METRICS);
    let mut kinds: Vec<Kind> = served
        .filter(|known| known.group == group && known.version == version)
        .flat_map(|resource| {
            let parts = resource.subresources.iter().map(|part| of_part(resource, *part));
            std::iter::once(of_resource(resource)).chain(parts)
        })
        .collect();
    kinds.sort_by(|one, other| one.path.cmp(&other.path));
    kinds
}

fn of_resource(resource: &'static Resource) -> Kind {
    let is_kept = resource.verbs().contains(&crate::request::Verb::Get) && !resource.is_usage();
    Kind {
        path: resource.plural.to_owned(),
        singular: resource.singular,
        is_namespaced: resource.is_namespaced(),
        kind: resource.kind.to_owned(),
        verbs: resource.verbs().iter().map(|verb| verb.name()).collect(),
        short_names: resource.short_names,
        categories: if resource.in_all { &["all"] } else { &[] },
        storage_version_hash: is_kept.then(|| storage_version_hash(resource.storage())),
        ..Kind::default()
    }
}

fn of_part(resource: &'static Resource, part: Subresource) -> Kind {
    let own = |kind: &str| ("", "", kind.to_owned());
    let (group, version, kind) = match part {
        Subresource::Attach => own("PodAttachOptions"),
        Subresource::Binding => own("Binding"),
        Subresource::Eviction => ("policy", "v1", "Eviction".to_owned()),
        Subresource::Exec => own("PodExecOptions"),
        Subresource::PortForward => own("PodPortForwardOptions"),
        Subresource::Proxy => own(&format!("{}ProxyOptions", resource.kind)),
        Subresource::Token => ("authentication.k8s.io", "v1", "TokenRequest".to_owned()),
        Subresource::Approval
        | Subresource::EphemeralContainers
        | Subresource::Finalize
        | Subresource::Log
        | Subresource::Resize
        | Subresource::Status => own(resource.kind),
    };
    Kind {
        path: format!("{}/{}", resource.plural, part.name()),
        is_namespaced: resource.is_namespaced(),
        group,
        version,
        kind,
        verbs: part.verbs().iter().map(|verb| verb.name()).collect(),
        ..Kind::default()
    }
}

/// By which clients see that objects are kept in another version than before.
fn storage_version_hash(resource: &Resource) -> String {
    let kept = format!("{}/{}/{}", resource.group, resource.version, resource.kind);
    let digest = Sha256::digest(kept);
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_in_a_group_that_is_told_of() {
        for resource in RESOURCES {
            let mut groups = GROUPS.iter();
            let group = groups.find(|group| group.name == resource.group);
            assert!(group.is_some_and(|group| group.versions.contains(&resource.version)), "{resource:?}");
        }
        for group in &GROUPS {
            for version in group.versions {
                assert!(!of(group.name, version).is_empty(), "{} {version}", group.name);
            }
        }
    }
}
