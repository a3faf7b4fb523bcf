//! As whom and with what rights containers run.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::core::{
    AppArmorProfile, AppArmorProfileType, PodFSGroupChangePolicy, PodSELinuxChangePolicy, PodSecurityContext,
    PodSpec, ProcMountType, SeccompProfile, SeccompProfileType, SecurityContext, SupplementalGroupsPolicy,
};
use crate::features::Gate;
use crate::text::Text;

use super::Rules;
use super::error::{Errors, Json, Word};
use super::path::Path;
use super::text;
use super::windows::check_windows_options;

/// The longest path that Linux accepts, without the byte that ends it.
const PATH_LIMIT: usize = 4095;

const SYSCTL_NAME: &str = "must have at most 253 characters and match regex \
    ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

pub(super) fn check_security_context(
    errors: &mut Errors,
    path: &Path<'_>,
    context: Option<&SecurityContext>,
    host_users: bool,
) {
    let Some(context) = context else { return };
    text::check_user_or_group(errors, &path.child("runAsUser"), context.run_as_user);
    text::check_user_or_group(errors, &path.child("runAsGroup"), context.run_as_group);
    match &context.proc_mount {
        None | Some(ProcMountType::Default) => {}
        Some(ProcMountType::Unmasked) => {
            if host_users {
                let detail = "`hostUsers` must be false to use `Unmasked`";
                errors.invalid(&path.child("procMount"), Word("Unmasked"), detail);
            }
        }
        Some(ProcMountType::Other(kind)) => {
            errors.not_supported(&path.child("procMount"), Word(kind), ProcMountType::WORDS);
        }
    }
    check_seccomp(errors, &path.child("seccompProfile"), context.seccomp_profile.as_deref());
    if context.allow_privilege_escalation == Some(false) {
        let contradicts = |errors: &mut Errors, what: &str| {
            let detail = format!("cannot set `allowPrivilegeEscalation` to false and {what}");
            errors.invalid(path, Json::of(&Printed::from(context)), detail);
        };
        if context.privileged == Some(true) {
            contradicts(errors, "`privileged` to true");
        }
        let added = context.capabilities.iter().flat_map(|capabilities| &capabilities.add);
        for _ in added.filter(|capability| capability.as_ref() == "CAP_SYS_ADMIN") {
            contradicts(errors, "`capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    check_windows_options(errors, &path.child("windowsOptions"), context.windows_options.as_deref());
    check_app_armor(errors, &path.child("appArmorProfile"), context.app_armor_profile.as_deref());
}

pub(super) fn check_pod_security_context(
    errors: &mut Errors,
    path: &Path<'_>,
    spec: &PodSpec,
    rules: &Rules<'_>,
) {
    let default = PodSecurityContext::default();
    let context = spec.security_context.as_deref().unwrap_or(&default);
    text::check_user_or_group(errors, &path.child("fsGroup"), context.fs_group);
    text::check_user_or_group(errors, &path.child("runAsUser"), context.run_as_user);
    text::check_user_or_group(errors, &path.child("runAsGroup"), context.run_as_group);
    let groups = path.child("supplementalGroups");
    for (index, group) in context.supplemental_groups.iter().enumerate() {
        text::check_user_or_group(errors, &groups.index(index), Some(*group));
    }
    if spec.host_pid && spec.share_process_namespace == Some(true) {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.child("shareProcessNamespace"), true, detail);
    }
    check_sysctls(errors, &path.child("sysctls"), context, spec);
    if let Some(PodFSGroupChangePolicy::Other(policy)) = &context.fs_group_change_policy {
        let supported = ["Always", "OnRootMismatch"];
        errors.not_supported(&path.child("fsGroupChangePolicy"), Word(policy), &supported);
    }
    check_seccomp(errors, &path.child("seccompProfile"), context.seccomp_profile.as_deref());
    check_windows_options(errors, &path.child("windowsOptions"), context.windows_options.as_deref());
    check_app_armor(errors, &path.child("appArmorProfile"), context.app_armor_profile.as_deref());
    if let Some(SupplementalGroupsPolicy::Other(policy)) = &context.supplemental_groups_policy {
        let supported = SupplementalGroupsPolicy::WORDS;
        errors.not_supported(&path.child("supplementalGroupsPolicy"), Word(policy), supported);
    }
    if let Some(policy) = &context.se_linux_change_policy {
        let supported: &[&str] = if rules.features.enabled(Gate::SELinuxMount) {
            &["MountOption", "Recursive"]
        } else {
            &["Recursive"]
        };
        if !supported.contains(&PodSELinuxChangePolicy::as_str(policy)) {
            errors.not_supported(&path.child("seLinuxChangePolicy"), Word(policy.as_str()), supported);
        }
    }
}

fn check_sysctls(errors: &mut Errors, path: &Path<'_>, context: &PodSecurityContext, spec: &PodSpec) {
    let mut names = BTreeSet::new();
    for (index, sysctl) in context.sysctls.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("name");
        let name = sysctl.name.as_ref();
        if name.is_empty() {
            errors.required(&path, "");
        } else if !text::is_sysctl_name(name) {
            errors.invalid(&path, name, SYSCTL_NAME);
        } else if names.contains(name) {
            errors.duplicate(&path, name);
        }
        match namespace_of(name) {
            Some(Namespace::Net) if spec.host_network => {
                errors.invalid(&path, name, "may not be specified when 'hostNetwork' is true");
            }
            Some(Namespace::Ipc) if spec.host_ipc => {
                errors.invalid(&path, name, "may not be specified when 'hostIPC' is true");
            }
            Some(Namespace::Net | Namespace::Ipc) | None => {}
        }
        names.insert(name);
    }
}

enum Namespace {
    Ipc,
    Net,
}

/// The kernel's namespace that a parameter belongs to, where it belongs to one.
fn namespace_of(sysctl: &str) -> Option<Namespace> {
    const OF_IPC: &[&str] = &[
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    ];
    let dotted = with_dots(sysctl);
    let name = dotted.split('*').next().unwrap_or_default();
    if OF_IPC.contains(&name) || name.starts_with("fs.mqueue.") {
        Some(Namespace::Ipc)
    } else if name.starts_with("net.") {
        Some(Namespace::Net)
    } else {
        None
    }
}

/// A parameter can be written with slashes, and then has dots where others have slashes.
fn with_dots(sysctl: &str) -> String {
    match sysctl.find(['.', '/']) {
        Some(first) if sysctl[first..].starts_with('/') => {
            let swapped = |character| match character {
                '.' => '/',
                '/' => '.',
                other => other,
            };
            sysctl.chars().map(swapped).collect()
        }
        _ => sysctl.to_owned(),
    }
}

fn check_seccomp(errors: &mut Errors, path: &Path<'_>, profile: Option<&SeccompProfile>) {
    let Some(profile) = profile else { return };
    let file = path.child("localhostProfile");
    match profile.r#type.as_str() {
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        "" => errors.required(&path.child("type"), "type is required when seccompProfile is set"),
        other => {
            let supported = ["Localhost", "RuntimeDefault", "Unconfined"];
            errors.not_supported(&path.child("type"), Word(other), &supported);
        }
    }
    match (&profile.r#type, profile.localhost_profile.as_deref()) {
        (SeccompProfileType::Localhost, None) => {
            errors.required(&file, "must be set when seccomp type is Localhost");
        }
        (SeccompProfileType::Localhost, Some(name)) => text::check_descending_path(errors, &file, name),
        (_, None) => {}
        (_, Some(_)) => {
            let detail = "can only be set when seccomp type is Localhost";
            errors.invalid(&file, Json::of(&PrintedProfile::from(profile)), detail);
        }
    }
}

fn check_app_armor(errors: &mut Errors, path: &Path<'_>, profile: Option<&AppArmorProfile>) {
    let Some(profile) = profile else { return };
    let file = path.child("localhostProfile");
    match (&profile.r#type, profile.localhost_profile.as_deref()) {
        (AppArmorProfileType::Localhost, None | Some("")) => {
            errors.required(&file, "must be set when AppArmor type is Localhost");
        }
        (AppArmorProfileType::Localhost, Some(name)) => {
            if name.trim() != name {
                errors.invalid(&file, name, "must not be padded with whitespace");
            }
            if name.len() > PATH_LIMIT {
                errors.too_long(&file, PATH_LIMIT);
            }
        }
        (AppArmorProfileType::RuntimeDefault | AppArmorProfileType::Unconfined, None) => {}
        (AppArmorProfileType::RuntimeDefault | AppArmorProfileType::Unconfined, Some(name)) => {
            errors.invalid(&file, Word(name), "can only be set when AppArmor type is Localhost");
        }
        (AppArmorProfileType::Other(kind), _) if kind.is_empty() => {
            errors.required(&path.child("type"), "type is required when appArmorProfile is set");
        }
        (AppArmorProfileType::Other(kind), _) => {
            let supported = ["Localhost", "RuntimeDefault", "Unconfined"];
            errors.not_supported(&path.child("type"), Word(kind), &supported);
        }
    }
}

/// A security context as upstream prints it: its internal type, with every field.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Printed<'a> {
    capabilities: Option<PrintedCapabilities<'a>>,
    privileged: Option<bool>,
    #[serde(rename = "SELinuxOptions")]
    selinux_options: Option<PrintedSelinux<'a>>,
    windows_options: Option<PrintedWindows<'a>>,
    run_as_user: Option<i64>,
    run_as_group: Option<i64>,
    run_as_non_root: Option<bool>,
    read_only_root_filesystem: Option<bool>,
    allow_privilege_escalation: Option<bool>,
    proc_mount: Option<&'a ProcMountType>,
    seccomp_profile: Option<PrintedProfile<'a>>,
    app_armor_profile: Option<PrintedProfile<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PrintedCapabilities<'a> {
    add: Option<&'a [Text]>,
    drop: Option<&'a [Text]>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PrintedSelinux<'a> {
    user: &'a str,
    role: &'a str,
    r#type: &'a str,
    level: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PrintedWindows<'a> {
    #[serde(rename = "GMSACredentialSpecName")]
    gmsa_credential_spec_name: Option<&'a str>,
    #[serde(rename = "GMSACredentialSpec")]
    gmsa_credential_spec: Option<&'a str>,
    run_as_user_name: Option<&'a str>,
    host_process: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PrintedProfile<'a> {
    r#type: &'a str,
    localhost_profile: Option<&'a str>,
}

impl<'a> From<&'a SecurityContext> for Printed<'a> {
    fn from(context: &'a SecurityContext) -> Printed<'a> {
        let list = |items: &'a [Text]| (!items.is_empty()).then_some(items);
        Printed {
            capabilities: context
                .capabilities
                .as_deref()
                .map(|it| PrintedCapabilities { add: list(&it.add), drop: list(&it.drop) }),
            privileged: context.privileged,
            selinux_options: context.se_linux_options.as_deref().map(|it| PrintedSelinux {
                user: &it.user,
                role: &it.role,
                r#type: &it.r#type,
                level: &it.level,
            }),
            windows_options: context.windows_options.as_deref().map(|it| PrintedWindows {
                gmsa_credential_spec_name: it.gmsa_credential_spec_name.as_deref(),
                gmsa_credential_spec: it.gmsa_credential_spec.as_deref(),
                run_as_user_name: it.run_as_user_name.as_deref(),
                host_process: it.host_process,
            }),
            run_as_user: context.run_as_user,
            run_as_group: context.run_as_group,
            run_as_non_root: context.run_as_non_root,
            read_only_root_filesystem: context.read_only_root_filesystem,
            allow_privilege_escalation: context.allow_privilege_escalation,
            proc_mount: context.proc_mount.as_ref(),
            seccomp_profile: context.seccomp_profile.as_deref().map(PrintedProfile::from),
            app_armor_profile: context.app_armor_profile.as_deref().map(|it| PrintedProfile {
                r#type: it.r#type.as_str(),
                localhost_profile: it.localhost_profile.as_deref(),
            }),
        }
    }
}

impl<'a> From<&'a SeccompProfile> for PrintedProfile<'a> {
    fn from(profile: &'a SeccompProfile) -> PrintedProfile<'a> {
        PrintedProfile {
            r#type: profile.r#type.as_str(),
            localhost_profile: profile.localhost_profile.as_deref(),
        }
    }
}
