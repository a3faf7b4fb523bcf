//! The documents of discovery, in their shapes: one for each group and version, or all in one.

use serde_json::{Value, json};

use super::kinds::{self, GROUPS, Group, Kind};

/// `/`: which paths there are.
pub(super) fn index() -> Value {
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/apis",
        "/apis/",
        "/healthz",
        "/healthz/ping",
        "/livez",
        "/livez/ping",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/openid/v1/jwks",
        "/readyz",
        "/readyz/ping",
        "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    for group in &GROUPS {
        let root = if group.name.is_empty() { "/api".to_owned() } else { format!("/apis/{}", group.name) };
        paths.extend(group.versions.iter().map(|version| format!("{root}/{version}")));
        paths.push(root);
    }
    paths.sort();
    paths.dedup();
    json!({"paths": paths})
}

/// `/api`
pub(super) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`
pub(super) fn groups(groups: &[Group]) -> Value {
    let groups: Vec<Value> = groups.iter().map(group_alone).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`
pub(super) fn group(group: &Group) -> Value {
    let mut shown = group_alone(group);
    shown["kind"] = "APIGroup".into();
    shown["apiVersion"] = "v1".into();
    shown
}

fn group_alone(group: &Group) -> Value {
    let name = group.name;
    let versions = group.versions.iter();
    let versions: Vec<Value> = versions
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

/// `/api/v1`, `/apis/{group}/{version}`
pub(super) fn resources(group: &str, version: &str) -> Value {
    let resources: Vec<Value> = kinds::of(group, version).iter().map(resource).collect();
    // Long ago the core's was told without a version, and still is.
    match group {
        "" => json!({"kind": "APIResourceList", "groupVersion": version, "resources": resources}),
        group => json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": format!("{group}/{version}"),
            "resources": resources,
        }),
    }
}

fn resource(kind: &Kind) -> Value {
    let mut shown = json!({
        "name": kind.path,
        "singularName": kind.singular,
        "namespaced": kind.is_namespaced,
        "kind": kind.kind,
        "verbs": kind.verbs,
    });
    let mut say = |field: &str, value: Value, is_empty: bool| {
        if !is_empty {
            shown[field] = value;
        }
    };
    say("group", kind.group.into(), kind.group.is_empty());
    say("version", kind.version.into(), kind.version.is_empty());
    say("shortNames", kind.short_names.into(), kind.short_names.is_empty());
    say("categories", kind.categories.into(), kind.categories.is_empty());
    let hash = kind.storage_version_hash.as_deref().unwrap_or_default();
    say("storageVersionHash", hash.into(), hash.is_empty());
    shown
}

/// All groups with their versions and kinds: what `/api` and `/apis` say to who asks for it.
pub(super) fn aggregated(groups: &[Group]) -> Value {
    let groups: Vec<Value> = groups
        .iter()
        .map(|group| {
            let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
            let versions = group.versions.iter();
            let versions: Vec<Value> = versions
                .map(|version| {
                    let resources = aggregated_resources(&kinds::of(group.name, version));
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": groups,
    })
}

/// The kinds, with their parts within them.
fn aggregated_resources(kinds: &[Kind]) -> Vec<Value> {
    let response = |kind: &Kind| json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let whole = kinds.iter().filter(|kind| !kind.path.contains('/'));
    whole
        .map(|kind| {
            let mut shown = json!({
                "resource": kind.path,
                "responseKind": response(kind),
                "scope": if kind.is_namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": kind.singular,
                "verbs": kind.verbs,
            });
            if !kind.short_names.is_empty() {
                shown["shortNames"] = kind.short_names.into();
            }
            if !kind.categories.is_empty() {
                shown["categories"] = kind.categories.into();
            }
            let parts = kinds.iter().filter_map(|part| {
                let name = part.path.strip_prefix(&kind.path)?.strip_prefix('/')?;
                Some(json!({"subresource": name, "responseKind": response(part), "verbs": part.verbs}))
            });
            let parts: Vec<Value> = parts.collect();
            if !parts.is_empty() {
                shown["subresources"] = parts.into();
            }
            shown
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use expect_test::expect;

    use super::*;

    const ALL: &str = "create,delete,deletecollection,get,list,patch,update,watch";

    /// The kinds of a group and version, a line each; all verbs are a star.
    fn lines(group: &str, version: &str) -> String {
        let list = resources(group, version);
        let mut lines = String::new();
        for resource in list["resources"].as_array().unwrap() {
            let text = |field: &str| resource[field].as_str().unwrap_or_default();
            let texts = |field: &str| {
                let texts = resource[field].as_array().into_iter().flatten().filter_map(Value::as_str);
                texts.collect::<Vec<_>>().join(",")
            };
            let scope = if resource["namespaced"] == true { "namespaced" } else { "cluster" };
            let from = [text("group"), text("version"), text("kind")].join("/");
            let line = format!(
                "{} [{}] {scope} {} {} [{}] [{}] {}",
                text("name"),
                text("singularName"),
                from.trim_start_matches('/'),
                texts("verbs").replace(ALL, "*"),
                texts("shortNames"),
                texts("categories"),
                text("storageVersionHash"),
            );
            writeln!(lines, "{}", line.trim_end()).unwrap();
        }
        lines
    }

    #[test]
    fn the_core_tells_of_its_kinds_and_their_parts() {
        expect![[r#"
            bindings [binding] namespaced Binding create [] []
            configmaps [configmap] namespaced ConfigMap * [cm] [] qFsyl6wFWjQ=
            events [event] namespaced Event * [ev] [] r2yiGXH7wu8=
            namespaces [namespace] cluster Namespace create,delete,get,list,patch,update,watch [ns] [] Q3oi5N2YM8M=
            namespaces/finalize [] cluster Namespace update [] []
            namespaces/status [] cluster Namespace get,patch,update [] []
            nodes [node] cluster Node * [no] [] XwShjMxG9Fs=
            nodes/proxy [] cluster NodeProxyOptions create,delete,get,patch,update [] []
            nodes/status [] cluster Node get,patch,update [] []
            persistentvolumeclaims [persistentvolumeclaim] namespaced PersistentVolumeClaim * [pvc] [] QWTyNDq0dC4=
            persistentvolumeclaims/status [] namespaced PersistentVolumeClaim get,patch,update [] []
            persistentvolumes [persistentvolume] cluster PersistentVolume * [pv] [] HN/zwEC+JgM=
            persistentvolumes/status [] cluster PersistentVolume get,patch,update [] []
            pods [pod] namespaced Pod * [po] [all] xPOwRZ+Yhw8=
            pods/attach [] namespaced PodAttachOptions create,get [] []
            pods/binding [] namespaced Binding create [] []
            pods/ephemeralcontainers [] namespaced Pod get,patch,update [] []
            pods/eviction [] namespaced policy/v1/Eviction create [] []
            pods/exec [] namespaced PodExecOptions create,get [] []
            pods/log [] namespaced Pod get [] []
            pods/portforward [] namespaced PodPortForwardOptions create,get [] []
            pods/proxy [] namespaced PodProxyOptions create,delete,get,patch,update [] []
            pods/resize [] namespaced Pod get,patch,update [] []
            pods/status [] namespaced Pod get,patch,update [] []
            secrets [secret] namespaced Secret * [] [] S6u1pOWzb84=
            serviceaccounts [serviceaccount] namespaced ServiceAccount * [sa] [] pbx9ZvyFpBE=
            serviceaccounts/token [] namespaced authentication.k8s.io/v1/TokenRequest create [] []
            services [service] namespaced Service * [svc] [all] 0/CO1lhkEBI=
            services/proxy [] namespaced ServiceProxyOptions create,delete,get,patch,update [] []
            services/status [] namespaced Service get,patch,update [] []
        "#]].assert_eq(&lines("", "v1"));
    }

    #[test]
    fn groups_tell_of_what_is_kept_and_of_what_is_only_answered() {
        let all = GROUPS[1..].iter().flat_map(|group| {
            group
                .versions
                .iter()
                .map(|version| format!("{}/{version}\n{}", group.name, lines(group.name, version)))
        });
        expect![[r#"
            events.k8s.io/v1
            events [event] namespaced Event * [ev] [] r2yiGXH7wu8=
            authentication.k8s.io/v1
            selfsubjectreviews [selfsubjectreview] cluster SelfSubjectReview create [] []
            tokenreviews [tokenreview] cluster TokenReview create [] []
            authorization.k8s.io/v1
            localsubjectaccessreviews [localsubjectaccessreview] namespaced LocalSubjectAccessReview create [] []
            selfsubjectaccessreviews [selfsubjectaccessreview] cluster SelfSubjectAccessReview create [] []
            selfsubjectrulesreviews [selfsubjectrulesreview] cluster SelfSubjectRulesReview create [] []
            subjectaccessreviews [subjectaccessreview] cluster SubjectAccessReview create [] []
            certificates.k8s.io/v1
            certificatesigningrequests [certificatesigningrequest] cluster CertificateSigningRequest * [csr] [] 95fRKMXA+00=
            certificatesigningrequests/approval [] cluster CertificateSigningRequest get,patch,update [] []
            certificatesigningrequests/status [] cluster CertificateSigningRequest get,patch,update [] []
            certificates.k8s.io/v1beta1
            clustertrustbundles [clustertrustbundle] cluster ClusterTrustBundle * [] [] v5yhuVertL4=
            podcertificaterequests [podcertificaterequest] namespaced PodCertificateRequest * [] [] wYA9yXQH8fg=
            podcertificaterequests/status [] namespaced PodCertificateRequest get,patch,update [] []
            rbac.authorization.k8s.io/v1
            clusterrolebindings [clusterrolebinding] cluster ClusterRoleBinding * [] [] 48tpQ8gZHFc=
            clusterroles [clusterrole] cluster ClusterRole * [] [] bYE5ZWDrJ44=
            rolebindings [rolebinding] namespaced RoleBinding * [] [] eGsCzGH6b1g=
            roles [role] namespaced Role * [] [] 7FuwZcIIItM=
            storage.k8s.io/v1
            csidrivers [csidriver] cluster CSIDriver * [] [] hL6j/rwBV5w=
            csinodes [csinode] cluster CSINode * [] [] Pe62DkZtjuo=
            storageclasses [storageclass] cluster StorageClass * [sc] [] K+m6uJwbjGY=
            volumeattachments [volumeattachment] cluster VolumeAttachment * [] [] tJx/ezt6UDU=
            volumeattachments/status [] cluster VolumeAttachment get,patch,update [] []
            scheduling.k8s.io/v1
            priorityclasses [priorityclass] cluster PriorityClass * [pc] [] 1QwjyaZjj3Y=
            coordination.k8s.io/v1
            leases [lease] namespaced Lease * [] [] gqkMMb/YqFM=
            node.k8s.io/v1
            runtimeclasses [runtimeclass] cluster RuntimeClass * [] [] WQTu1GL3T2Q=
            resource.k8s.io/v1
            deviceclasses [deviceclass] cluster DeviceClass * [] [] Yk2PTc1Ybxk=
            resourceclaims [resourceclaim] namespaced ResourceClaim * [] [] wgAZaHcZxUg=
            resourceclaims/status [] namespaced ResourceClaim get,patch,update [] []
            resourceclaimtemplates [resourceclaimtemplate] namespaced ResourceClaimTemplate * [] [] TuzjC49aUfM=
            resourceslices [resourceslice] cluster ResourceSlice * [] [] KsC072WgaEY=
            metrics.k8s.io/v1beta1
            nodes [] cluster NodeMetrics get,list [] []
            pods [] namespaced PodMetrics get,list [] []
        "#]].assert_eq(&all.collect::<String>());
    }

    #[test]
    fn all_in_one_has_the_parts_within_their_kinds() {
        let shown = aggregated(&GROUPS[..1]);
        assert_eq!(shown["items"][0]["metadata"], json!({}));
        let version = &shown["items"][0]["versions"][0];
        assert_eq!((&version["version"], &version["freshness"]), (&json!("v1"), &json!("Current")));
        let kinds = version["resources"].as_array().unwrap();
        let find = |name: &str| kinds.iter().find(|kind| kind["resource"] == name).unwrap();
        assert_eq!(
            find("serviceaccounts"),
            &json!({
                "resource": "serviceaccounts",
                "responseKind": {"group": "", "version": "", "kind": "ServiceAccount"},
                "scope": "Namespaced",
                "singularResource": "serviceaccount",
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
                "shortNames": ["sa"],
                "subresources": [{
                    "subresource": "token",
                    "responseKind": {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"},
                    "verbs": ["create"],
                }],
            })
        );
        assert_eq!(find("pods")["categories"], json!(["all"]));
        assert_eq!(find("nodes")["scope"], "Cluster");
    }

    #[test]
    fn a_group_prefers_its_first_version() {
        let expected = json!({
            "kind": "APIGroup",
            "apiVersion": "v1",
            "name": "certificates.k8s.io",
            "preferredVersion": {"groupVersion": "certificates.k8s.io/v1", "version": "v1"},
            "versions": [
                {"groupVersion": "certificates.k8s.io/v1", "version": "v1"},
                {"groupVersion": "certificates.k8s.io/v1beta1", "version": "v1beta1"},
            ],
        });
        assert_eq!(kinds::group("certificates.k8s.io").map(group), Some(expected));
        assert!(kinds::group("").is_none() && kinds::group("apps").is_none());
    }

    #[test]
    fn the_index_has_every_path_once() {
        let index = index();
        let paths = index["paths"].as_array().unwrap();
        for path in ["/api", "/api/v1", "/apis", "/apis/node.k8s.io", "/apis/node.k8s.io/v1", "/version"] {
            assert_eq!(paths.iter().filter(|known| *known == path).count(), 1, "{path}");
        }
    }
}
