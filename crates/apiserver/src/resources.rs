//! The kinds that are served, one line each. What a kind has beyond that is said where it belongs: its fields in
//! `schema/`, its rules in `rules`, its columns in `table`.

use crate::request::Verb;

/// A kind of objects at its place in the API.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// The API group; empty for the core.
    pub group: &'static str,
    pub version: &'static str,
    /// The name in paths, such as `pods`.
    pub plural: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    /// What `kubectl` takes for the plural as well.
    pub short_names: &'static [&'static str],
    pub scope: Scope,
    /// What its fields are, as `schema` names it.
    pub schema: &'static str,
    pub subresources: &'static [Subresource],
    /// Whether `kubectl get all` shows it.
    pub in_all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// A part of an object with a path, rules and rights of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subresource {
    Approval,
    Attach,
    Binding,
    EphemeralContainers,
    Eviction,
    Exec,
    Finalize,
    Log,
    PortForward,
    Proxy,
    Resize,
    Status,
    Token,
}

impl Subresource {
    /// Its name in paths.
    pub fn name(self) -> &'static str {
        match self {
            Subresource::Approval => "approval",
            Subresource::Attach => "attach",
            Subresource::Binding => "binding",
            Subresource::EphemeralContainers => "ephemeralcontainers",
            Subresource::Eviction => "eviction",
            Subresource::Exec => "exec",
            Subresource::Finalize => "finalize",
            Subresource::Log => "log",
            Subresource::PortForward => "portforward",
            Subresource::Proxy => "proxy",
            Subresource::Resize => "resize",
            Subresource::Status => "status",
            Subresource::Token => "token",
        }
    }
}

impl Subresource {
    /// What can be done with it.
    pub fn verbs(self) -> &'static [Verb] {
        match self {
            Subresource::Attach | Subresource::Exec | Subresource::PortForward => &[Verb::Create, Verb::Get],
            Subresource::Binding | Subresource::Eviction | Subresource::Token => &[Verb::Create],
            Subresource::Finalize => &[Verb::Update],
            Subresource::Log => &[Verb::Get],
            Subresource::Proxy => &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
            Subresource::Approval
            | Subresource::EphemeralContainers
            | Subresource::Resize
            | Subresource::Status => &[Verb::Get, Verb::Patch, Verb::Update],
        }
    }
}

impl Resource {
    /// What can be done with its objects.
    pub fn verbs(&self) -> &'static [Verb] {
        const ALL: [Verb; 8] = [
            Verb::Create,
            Verb::Delete,
            Verb::DeleteCollection,
            Verb::Get,
            Verb::List,
            Verb::Patch,
            Verb::Update,
            Verb::Watch,
        ];
        match (self.group, self.plural) {
            ("", "bindings") | ("authentication.k8s.io" | "authorization.k8s.io", _) => &[Verb::Create],
            ("metrics.k8s.io", _) => &[Verb::Get, Verb::List],
            ("", "namespaces") => {
                &[Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch]
            }
            _ => &ALL,
        }
    }

    /// `v1`, `apps/v1`: what its objects say in `apiVersion`.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `pods`, `leases.coordination.k8s.io`: what messages call it.
    pub fn qualified_name(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }

    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub fn has(&self, subresource: Subresource) -> bool {
        self.subresources.contains(&subresource)
    }

    /// The resource of a group, version and plural name.
    pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
        RESOURCES.iter().chain(&REVIEWS).chain(&METRICS).copied().find(|resource| {
            resource.group == group && resource.version == version && resource.plural == plural
        })
    }

    /// Whether its objects are made from what nodes say, and never kept.
    pub fn is_usage(&self) -> bool {
        self.group == METRICS_GROUP.0
    }

    /// Whether its objects are questions, answered when they are created and never kept.
    pub fn is_review(&self) -> bool {
        matches!(self.group, "authentication.k8s.io" | "authorization.k8s.io")
    }

    /// The one that keeps the objects: `events` of both groups are the same objects.
    pub fn storage(&self) -> &Resource {
        match (self.group, self.plural) {
            ("events.k8s.io", "events") => &EVENTS,
            _ => self,
        }
    }
}

const fn resource(
    group_version: (&'static str, &'static str),
    names: (&'static str, &'static str, &'static str),
    short_names: &'static [&'static str],
    scope: Scope,
    schema: &'static str,
    subresources: &'static [Subresource],
) -> Resource {
    let (group, version) = group_version;
    let (plural, singular, kind) = names;
    Resource {
        group,
        version,
        plural,
        singular,
        kind,
        short_names,
        scope,
        schema,
        subresources,
        in_all: false,
    }
}

const AUTHENTICATION: (&str, &str) = ("authentication.k8s.io", "v1");
const AUTHORIZATION: (&str, &str) = ("authorization.k8s.io", "v1");
const CORE: (&str, &str) = ("", "v1");
const METRICS_GROUP: (&str, &str) = ("metrics.k8s.io", "v1beta1");
const EVENTS_GROUP: (&str, &str) = ("events.k8s.io", "v1");
const CERTIFICATES: (&str, &str) = ("certificates.k8s.io", "v1");
const CERTIFICATES_BETA: (&str, &str) = ("certificates.k8s.io", "v1beta1");
const COORDINATION: (&str, &str) = ("coordination.k8s.io", "v1");
const NODE: (&str, &str) = ("node.k8s.io", "v1");
const RBAC: (&str, &str) = ("rbac.authorization.k8s.io", "v1");
const RESOURCE: (&str, &str) = ("resource.k8s.io", "v1");
const SCHEDULING: (&str, &str) = ("scheduling.k8s.io", "v1");
const STORAGE: (&str, &str) = ("storage.k8s.io", "v1");

use Scope::{Cluster, Namespaced};
use Subresource::Status;

pub static BINDINGS: Resource =
    resource(CORE, ("bindings", "binding", "Binding"), &[], Namespaced, "core.Binding", &[]);
pub static CONFIG_MAPS: Resource =
    resource(CORE, ("configmaps", "configmap", "ConfigMap"), &["cm"], Namespaced, "core.ConfigMap", &[]);
pub static EVENTS: Resource =
    resource(CORE, ("events", "event", "Event"), &["ev"], Namespaced, "core.Event", &[]);
pub static NAMESPACES: Resource = resource(
    CORE,
    ("namespaces", "namespace", "Namespace"),
    &["ns"],
    Cluster,
    "core.Namespace",
    &[Subresource::Finalize, Status],
);
pub static NODES: Resource =
    resource(CORE, ("nodes", "node", "Node"), &["no"], Cluster, "core.Node", &[Subresource::Proxy, Status]);
pub static PERSISTENT_VOLUME_CLAIMS: Resource = resource(
    CORE,
    ("persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim"),
    &["pvc"],
    Namespaced,
    "core.PersistentVolumeClaim",
    &[Status],
);
pub static PERSISTENT_VOLUMES: Resource = resource(
    CORE,
    ("persistentvolumes", "persistentvolume", "PersistentVolume"),
    &["pv"],
    Cluster,
    "core.PersistentVolume",
    &[Status],
);
pub static PODS: Resource = Resource {
    in_all: true,
    ..resource(
        CORE,
        ("pods", "pod", "Pod"),
        &["po"],
        Namespaced,
        "core.Pod",
        &[
            Subresource::Attach,
            Subresource::Binding,
            Subresource::EphemeralContainers,
            Subresource::Eviction,
            Subresource::Exec,
            Subresource::Log,
            Subresource::PortForward,
            Subresource::Proxy,
            Subresource::Resize,
            Status,
        ],
    )
};
pub static SECRETS: Resource =
    resource(CORE, ("secrets", "secret", "Secret"), &[], Namespaced, "core.Secret", &[]);
pub static SERVICE_ACCOUNTS: Resource = resource(
    CORE,
    ("serviceaccounts", "serviceaccount", "ServiceAccount"),
    &["sa"],
    Namespaced,
    "core.ServiceAccount",
    &[Subresource::Token],
);
pub static SERVICES: Resource = Resource {
    in_all: true,
    ..resource(
        CORE,
        ("services", "service", "Service"),
        &["svc"],
        Namespaced,
        "core.Service",
        &[Subresource::Proxy, Status],
    )
};
pub static NEW_EVENTS: Resource =
    resource(EVENTS_GROUP, ("events", "event", "Event"), &["ev"], Namespaced, "events.Event", &[]);
pub static CERTIFICATE_SIGNING_REQUESTS: Resource = resource(
    CERTIFICATES,
    ("certificatesigningrequests", "certificatesigningrequest", "CertificateSigningRequest"),
    &["csr"],
    Cluster,
    "certificates.CertificateSigningRequest",
    &[Subresource::Approval, Status],
);
pub static CLUSTER_TRUST_BUNDLES: Resource = resource(
    CERTIFICATES_BETA,
    ("clustertrustbundles", "clustertrustbundle", "ClusterTrustBundle"),
    &[],
    Cluster,
    "certificates.v1beta1.ClusterTrustBundle",
    &[],
);
pub static POD_CERTIFICATE_REQUESTS: Resource = resource(
    CERTIFICATES_BETA,
    ("podcertificaterequests", "podcertificaterequest", "PodCertificateRequest"),
    &[],
    Namespaced,
    "certificates.v1beta1.PodCertificateRequest",
    &[Status],
);
pub static LEASES: Resource =
    resource(COORDINATION, ("leases", "lease", "Lease"), &[], Namespaced, "coordination.Lease", &[]);
pub static RUNTIME_CLASSES: Resource = resource(
    NODE,
    ("runtimeclasses", "runtimeclass", "RuntimeClass"),
    &[],
    Cluster,
    "node.RuntimeClass",
    &[],
);
pub static CLUSTER_ROLE_BINDINGS: Resource = resource(
    RBAC,
    ("clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding"),
    &[],
    Cluster,
    "rbac.ClusterRoleBinding",
    &[],
);
pub static CLUSTER_ROLES: Resource =
    resource(RBAC, ("clusterroles", "clusterrole", "ClusterRole"), &[], Cluster, "rbac.ClusterRole", &[]);
pub static ROLE_BINDINGS: Resource =
    resource(RBAC, ("rolebindings", "rolebinding", "RoleBinding"), &[], Namespaced, "rbac.RoleBinding", &[]);
pub static ROLES: Resource = resource(RBAC, ("roles", "role", "Role"), &[], Namespaced, "rbac.Role", &[]);
pub static DEVICE_CLASSES: Resource = resource(
    RESOURCE,
    ("deviceclasses", "deviceclass", "DeviceClass"),
    &[],
    Cluster,
    "resource.DeviceClass",
    &[],
);
pub static RESOURCE_CLAIMS: Resource = resource(
    RESOURCE,
    ("resourceclaims", "resourceclaim", "ResourceClaim"),
    &[],
    Namespaced,
    "resource.ResourceClaim",
    &[Status],
);
pub static RESOURCE_CLAIM_TEMPLATES: Resource = resource(
    RESOURCE,
    ("resourceclaimtemplates", "resourceclaimtemplate", "ResourceClaimTemplate"),
    &[],
    Namespaced,
    "resource.ResourceClaimTemplate",
    &[],
);
pub static RESOURCE_SLICES: Resource = resource(
    RESOURCE,
    ("resourceslices", "resourceslice", "ResourceSlice"),
    &[],
    Cluster,
    "resource.ResourceSlice",
    &[],
);
pub static PRIORITY_CLASSES: Resource = resource(
    SCHEDULING,
    ("priorityclasses", "priorityclass", "PriorityClass"),
    &["pc"],
    Cluster,
    "scheduling.PriorityClass",
    &[],
);
pub static CSI_DRIVERS: Resource =
    resource(STORAGE, ("csidrivers", "csidriver", "CSIDriver"), &[], Cluster, "storage.CSIDriver", &[]);
pub static CSI_NODES: Resource =
    resource(STORAGE, ("csinodes", "csinode", "CSINode"), &[], Cluster, "storage.CSINode", &[]);
pub static STORAGE_CLASSES: Resource = resource(
    STORAGE,
    ("storageclasses", "storageclass", "StorageClass"),
    &["sc"],
    Cluster,
    "storage.StorageClass",
    &[],
);
pub static VOLUME_ATTACHMENTS: Resource = resource(
    STORAGE,
    ("volumeattachments", "volumeattachment", "VolumeAttachment"),
    &[],
    Cluster,
    "storage.VolumeAttachment",
    &[Status],
);

/// All of them, in the order of discovery.
pub static RESOURCES: [&Resource; 30] = [
    &BINDINGS,
    &CONFIG_MAPS,
    &EVENTS,
    &NAMESPACES,
    &NODES,
    &PERSISTENT_VOLUME_CLAIMS,
    &PERSISTENT_VOLUMES,
    &PODS,
    &SECRETS,
    &SERVICE_ACCOUNTS,
    &SERVICES,
    &NEW_EVENTS,
    &CERTIFICATE_SIGNING_REQUESTS,
    &CLUSTER_TRUST_BUNDLES,
    &POD_CERTIFICATE_REQUESTS,
    &LEASES,
    &RUNTIME_CLASSES,
    &CLUSTER_ROLE_BINDINGS,
    &CLUSTER_ROLES,
    &ROLE_BINDINGS,
    &ROLES,
    &DEVICE_CLASSES,
    &RESOURCE_CLAIMS,
    &RESOURCE_CLAIM_TEMPLATES,
    &RESOURCE_SLICES,
    &PRIORITY_CLASSES,
    &CSI_DRIVERS,
    &CSI_NODES,
    &STORAGE_CLASSES,
    &VOLUME_ATTACHMENTS,
];

const fn review(
    group_version: (&'static str, &'static str),
    names: (&'static str, &'static str, &'static str),
    scope: Scope,
    schema: &'static str,
) -> Resource {
    resource(group_version, names, &[], scope, schema, &[])
}

/// What is made from what nodes say, and never kept.
pub static METRICS: [&Resource; 2] = [&METRICS_OF_NODES, &METRICS_OF_PODS];
pub static METRICS_OF_NODES: Resource =
    resource(METRICS_GROUP, ("nodes", "", "NodeMetrics"), &[], Cluster, "core.Node", &[]);
pub static METRICS_OF_PODS: Resource =
    resource(METRICS_GROUP, ("pods", "", "PodMetrics"), &[], Namespaced, "core.Pod", &[]);

/// What can only be created, and is never kept: questions. In the order of discovery.
pub static REVIEWS: [&Resource; 6] = [
    &review(
        AUTHENTICATION,
        ("selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview"),
        Cluster,
        "authentication.SelfSubjectReview",
    ),
    &review(
        AUTHENTICATION,
        ("tokenreviews", "tokenreview", "TokenReview"),
        Cluster,
        "authentication.TokenReview",
    ),
    &review(
        AUTHORIZATION,
        ("localsubjectaccessreviews", "localsubjectaccessreview", "LocalSubjectAccessReview"),
        Namespaced,
        "authorization.LocalSubjectAccessReview",
    ),
    &review(
        AUTHORIZATION,
        ("selfsubjectaccessreviews", "selfsubjectaccessreview", "SelfSubjectAccessReview"),
        Cluster,
        "authorization.SelfSubjectAccessReview",
    ),
    &review(
        AUTHORIZATION,
        ("selfsubjectrulesreviews", "selfsubjectrulesreview", "SelfSubjectRulesReview"),
        Cluster,
        "authorization.SelfSubjectRulesReview",
    ),
    &review(
        AUTHORIZATION,
        ("subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview"),
        Cluster,
        "authorization.SubjectAccessReview",
    ),
];
