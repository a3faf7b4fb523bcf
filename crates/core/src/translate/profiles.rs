//! Seccomp and AppArmor profiles.

use crablet_api::core::{
    AppArmorProfile, AppArmorProfileType, Container, Pod, SeccompProfile, SeccompProfileType,
};
use crablet_cri_api::v1::SecurityProfile;
use crablet_cri_api::v1::security_profile::ProfileType;

use super::node::Settings;
use super::paths::join;
use super::refusal::ContainerRefusal;

/// The annotations by which static pods could name AppArmor profiles before there was a field.
const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const APP_ARMOR_LOCALHOST: &str = "localhost/";

/// The seccomp profile of a container: its own, its pod's, or the one that the node has for those without.
pub(super) fn seccomp(
    pod: &Pod,
    container: &Container,
    settings: &Settings,
) -> Result<SecurityProfile, ContainerRefusal> {
    let own = container.security_context.as_ref().and_then(|context| context.seccomp_profile.as_deref());
    let pods = pod.spec.security_context.as_ref().and_then(|context| context.seccomp_profile.as_deref());
    let Some(SeccompProfile { r#type, localhost_profile }) = own.or(pods) else {
        let fallback = match settings.seccomp_default {
            true => ProfileType::RuntimeDefault,
            false => ProfileType::Unconfined,
        };
        return Ok(profile(fallback, String::new()));
    };
    match r#type {
        SeccompProfileType::RuntimeDefault => Ok(profile(ProfileType::RuntimeDefault, String::new())),
        SeccompProfileType::Localhost => match localhost_profile.as_deref() {
            None | Some("") => Err(ContainerRefusal::SeccompProfile),
            Some(name) => Ok(profile(ProfileType::Localhost, join(&settings.seccomp_profile_root, name))),
        },
        SeccompProfileType::Unconfined | SeccompProfileType::Other(_) => {
            Ok(profile(ProfileType::Unconfined, String::new()))
        }
    }
}

/// Whether a pod can only run where AppArmor is: it, or one of its containers, names a profile other than none.
pub fn needs_app_armor(pod: &Pod) -> bool {
    let spec = &pod.spec;
    let own = spec
        .all_containers()
        .filter_map(|container| container.security_context.as_ref()?.app_armor_profile.as_deref());
    let pods = spec.security_context.as_ref().and_then(|context| context.app_armor_profile.as_deref());
    if pods.into_iter().chain(own).any(|profile| profile.r#type != AppArmorProfileType::Unconfined) {
        return true;
    }
    let annotation = pod.metadata.annotations.iter().find(|(key, _)| key.starts_with(APP_ARMOR_ANNOTATION));
    annotation.is_some_and(|(_, value)| *value != *"unconfined")
}

/// The AppArmor profile of a container, if it has one: its own, the one its pod's annotations name, or its pod's.
/// The text is the same for runtimes that know no other.
pub(super) fn app_armor(
    pod: &Pod,
    container: &Container,
) -> Result<Option<(SecurityProfile, String)>, ContainerRefusal> {
    let own = container.security_context.as_ref().and_then(|context| context.app_armor_profile.as_deref());
    if let Some(own) = own {
        return app_armor_of(own).map(Some);
    }
    let annotation = pod
        .metadata
        .annotations
        .iter()
        .find(|(key, _)| key.strip_prefix(APP_ARMOR_ANNOTATION) == Some(&*container.name));
    if let Some(found) = annotation.and_then(|(_, value)| annotated(value)) {
        return Ok(Some(found));
    }
    let pods = pod.spec.security_context.as_ref().and_then(|context| context.app_armor_profile.as_deref());
    pods.map(app_armor_of).transpose()
}

fn app_armor_of(wanted: &AppArmorProfile) -> Result<(SecurityProfile, String), ContainerRefusal> {
    match &wanted.r#type {
        AppArmorProfileType::RuntimeDefault => Ok(runtime_default()),
        AppArmorProfileType::Unconfined => Ok(unconfined()),
        AppArmorProfileType::Localhost => match &wanted.localhost_profile {
            Some(name) => Ok(localhost(name)),
            None => Err(ContainerRefusal::AppArmorProfileName),
        },
        AppArmorProfileType::Other(word) => Err(ContainerRefusal::AppArmorProfileType(word.to_string())),
    }
}

fn annotated(value: &str) -> Option<(SecurityProfile, String)> {
    match value {
        "runtime/default" => Some(runtime_default()),
        "unconfined" => Some(unconfined()),
        other => other.strip_prefix(APP_ARMOR_LOCALHOST).map(localhost),
    }
}

fn runtime_default() -> (SecurityProfile, String) {
    (profile(ProfileType::RuntimeDefault, String::new()), "runtime/default".to_owned())
}

fn unconfined() -> (SecurityProfile, String) {
    (profile(ProfileType::Unconfined, String::new()), "unconfined".to_owned())
}

fn localhost(name: &str) -> (SecurityProfile, String) {
    (profile(ProfileType::Localhost, name.to_owned()), format!("{APP_ARMOR_LOCALHOST}{name}"))
}

fn profile(kind: ProfileType, localhost_ref: String) -> SecurityProfile {
    SecurityProfile { profile_type: kind as i32, localhost_ref }
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;

    fn made(annotations: &str, pod_context: &str, context: &str) -> Pod {
        pod_yaml(&format!(
            "metadata: {{name: p, annotations: {{{annotations}}}}}\nspec: {{securityContext: {{{pod_context}}},
             containers: [{{name: c, securityContext: {{{context}}}}}]}}"
        ))
    }

    fn seccomp_of(pod: &str, container: &str, default: bool) -> String {
        let pod = made("", pod, container);
        let settings = Settings { seccomp_default: default, ..Settings::default() };
        match seccomp(&pod, &pod.spec.containers[0], &settings) {
            Ok(profile) => format!("{}:{}", profile.profile_type().as_str_name(), profile.localhost_ref),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_container_the_pod_and_the_node_say_what_system_calls_are_allowed() {
        let kind = |kind: &str| format!("seccompProfile: {{type: {kind}}}");
        let file = |name: &str| format!("seccompProfile: {{type: Localhost, localhostProfile: {name}}}");
        assert_eq!(seccomp_of("", "", false), "Unconfined:");
        assert_eq!(seccomp_of("", "", true), "RuntimeDefault:");
        assert_eq!(seccomp_of(&kind("Unconfined"), "", true), "Unconfined:");
        assert_eq!(seccomp_of(&kind("RuntimeDefault"), "", false), "RuntimeDefault:");
        assert_eq!(seccomp_of(&kind("RuntimeDefault"), &kind("Unconfined"), false), "Unconfined:");
        assert_eq!(seccomp_of("", &kind("Odd"), true), "Unconfined:");
        assert_eq!(seccomp_of("", &file("p/a.json"), true), "Localhost:/var/lib/kubelet/seccomp/p/a.json");
        let missing = "localhostProfile must be set if seccompProfile type is Localhost.";
        assert_eq!(seccomp_of("", &kind("Localhost"), true), missing);
        assert_eq!(seccomp_of("", &file("''"), true), missing);
    }

    fn app_armor_text(annotation: &str, pod: &str, container: &str) -> String {
        let key = format!("{APP_ARMOR_ANNOTATION}c: {annotation}");
        let pod = made(if annotation.is_empty() { "" } else { &key }, pod, container);
        match app_armor(&pod, &pod.spec.containers[0]) {
            Ok(None) => "none".to_owned(),
            Ok(Some((profile, old))) => {
                format!("{}:{} {old}", profile.profile_type().as_str_name(), profile.localhost_ref)
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn app_armor_is_asked_of_the_container_the_annotations_and_the_pod() {
        let kind = |kind: &str| format!("appArmorProfile: {{type: {kind}}}");
        assert_eq!(app_armor_text("", "", ""), "none");
        assert_eq!(app_armor_text("", &kind("RuntimeDefault"), ""), "RuntimeDefault: runtime/default");
        assert_eq!(app_armor_text("unconfined", &kind("RuntimeDefault"), ""), "Unconfined: unconfined");
        assert_eq!(app_armor_text("runtime/default", "", ""), "RuntimeDefault: runtime/default");
        assert_eq!(app_armor_text("localhost/x", "", ""), "Localhost:x localhost/x");
        assert_eq!(app_armor_text("odd", &kind("RuntimeDefault"), ""), "RuntimeDefault: runtime/default");
        assert_eq!(app_armor_text("localhost/x", "", &kind("Unconfined")), "Unconfined: unconfined");
        assert_eq!(app_armor_text("", "", &kind("Localhost")), "missing localhost apparmor profile name");
        assert_eq!(app_armor_text("", "", &kind("Odd")), "unknown apparmor profile type: \"Odd\"");
    }

    #[test]
    fn a_profile_other_than_none_needs_app_armor() {
        let profile = |kind: &str| format!("appArmorProfile: {{type: {kind}}}");
        let (some, none) = (&*profile("RuntimeDefault"), &*profile("Unconfined"));
        let annotation = |value: &str| format!("{APP_ARMOR_ANNOTATION}c: {value}");
        for (annotations, pod, container, expected) in [
            ("", "", "", false),
            ("", some, "", true),
            ("", none, "", false),
            ("", "", some, true),
            ("", "", none, false),
            ("", none, some, true),
            (&annotation("localhost/x"), "", "", true),
            (&annotation("unconfined"), "", "", false),
            (&annotation("unconfined"), "", some, true),
            ("other: localhost/x", "", "", false),
        ] {
            let pod = made(annotations, pod, container);
            assert_eq!(needs_app_armor(&pod), expected, "{annotations} {pod:?}");
        }
        let one = |list: &str| format!("spec: {{{list}: [{{name: x, securityContext: {{{some}}}}}]}}");
        assert!(needs_app_armor(&pod_yaml(&one("initContainers"))));
        assert!(needs_app_armor(&pod_yaml(&one("ephemeralContainers"))));
    }
}
