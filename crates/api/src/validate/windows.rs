//! What only Windows pods may have, and what they may not. This agent runs none, but tells as upstream does.

use crate::core::{OSName, PodSpec, WindowsSecurityContextOptions};
use crate::names::dns1123_subdomain_errors;

use super::containers::all_containers;
use super::error::{Errors, Word};
use super::path::Path;

const CREDENTIAL_SPEC_LIMIT: usize = 64 * 1024;
const DOMAIN_LIMIT: usize = 256;
const USER_LIMIT: usize = 104;

pub(super) fn check_windows_options(
    errors: &mut Errors,
    path: &Path<'_>,
    options: Option<&WindowsSecurityContextOptions>,
) {
    let Some(options) = options else { return };
    if let Some(name) = options.gmsa_credential_spec_name.as_deref() {
        for problem in dns1123_subdomain_errors(name) {
            errors.invalid(&path.child("gmsaCredentialSpecName"), Word(name), problem);
        }
    }
    if let Some(spec) = options.gmsa_credential_spec.as_deref() {
        let path = path.child("gmsaCredentialSpec");
        if spec.is_empty() {
            errors.invalid(&path, Word(spec), "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > CREDENTIAL_SPEC_LIMIT {
            errors.invalid(&path, Word(spec), "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if let Some(name) = options.run_as_user_name.as_deref() {
        for problem in user_name_errors(name) {
            errors.invalid(&path.child("runAsUserName"), Word(name), problem);
        }
    }
}

/// What is wrong with `USER` or `DOMAIN\USER`.
fn user_name_errors(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string".to_owned()];
    }
    if name.bytes().any(|byte| byte.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters".to_owned()];
    }
    let (domain, user) = match name.split_once('\\') {
        Some((_, user)) if user.contains('\\') => {
            return vec!["runAsUserName cannot contain more than one backslash".to_owned()];
        }
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    let mut problems = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= DOMAIN_LIMIT {
            problems.push(format!("runAsUserName's Domain length must be under {DOMAIN_LIMIT} characters"));
        }
        if !is_netbios_name(domain) && !is_domain_name(domain) {
            problems.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format".to_owned());
        }
    }
    if user.is_empty() {
        problems.push("runAsUserName's User cannot be empty".to_owned());
    } else if user.len() > USER_LIMIT {
        problems.push(format!("runAsUserName's User length must not be longer than {USER_LIMIT} characters"));
    }
    if !user.is_empty() && user.chars().all(|character| matches!(character, '.' | ' ')) {
        problems.push("runAsUserName's User cannot contain only periods or spaces".to_owned());
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        problems.push(
            r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#.to_owned(),
        );
    }
    problems
}

fn is_netbios_name(name: &str) -> bool {
    let refused = ['\\', '/', ':', '*', '?', '"', '<', '>', '|'];
    (1..=15).contains(&name.chars().count()) && !name.starts_with('.') && !name.contains(refused)
}

fn is_domain_name(name: &str) -> bool {
    name.split('.').all(|label| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let ends = !label.starts_with('-') && !label.ends_with('-');
        (1..=63).contains(&label.len()) && ends && label.bytes().all(known)
    })
}

/// Checks that either all containers are processes of the host or none is.
pub(super) fn check_host_processes(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec) {
    let pod_options = spec.security_context.as_deref().and_then(|it| it.windows_options.as_deref());
    let of_pod = pod_options.and_then(|options| options.host_process);
    let (mut containers, mut host_processes) = (0, 0);
    for (list, index, container) in all_containers(spec) {
        let options = container.security_context.as_deref().and_then(|it| it.windows_options.as_deref());
        let of_container = options.and_then(|options| options.host_process);
        if let (Some(pod), Some(container)) = (of_pod, of_container)
            && pod != container
        {
            let list = path.child(list);
            let container_path = list.index(index);
            let context = container_path.child("securityContext");
            let options = context.child("windowsOptions");
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.invalid(&options.child("hostProcess"), container, detail);
        }
        containers += 1;
        host_processes += i32::from(of_container.or(of_pod) == Some(true));
    }
    if host_processes == 0 {
        return;
    }
    if host_processes != containers {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, "", detail);
    }
    if !spec.host_network {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&path.child("hostNetwork"), false, detail);
    }
}

/// Checks that a pod says nothing that its operating system does not know.
pub(super) fn check_operating_system(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec) {
    let Some(os) = &spec.os else { return };
    let os_path = path.child("os");
    match &os.name {
        OSName::Linux => check_linux(errors, path, spec),
        OSName::Windows => check_windows(errors, path, spec),
        OSName::Other(name) if name.is_empty() => errors.required(&os_path.child("name"), ""),
        OSName::Other(name) => errors.not_supported(&os_path, Word(name), &["linux", "windows"]),
    }
}

fn check_linux(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec) {
    const DETAIL: &str = "windows options cannot be set for a linux pod";
    let context = path.child("securityContext");
    if spec.security_context.as_deref().is_some_and(|it| it.windows_options.is_some()) {
        errors.forbidden(&context.child("windowsOptions"), DETAIL);
    }
    for (list, index, container) in all_containers(spec) {
        if container.security_context.as_deref().is_some_and(|it| it.windows_options.is_some()) {
            let list = path.child(list);
            let container_path = list.index(index);
            let context = container_path.child("securityContext");
            errors.forbidden(&context.child("windowsOptions"), DETAIL);
        }
    }
}

fn check_windows(errors: &mut Errors, path: &Path<'_>, spec: &PodSpec) {
    const DETAIL: &str = "cannot be set for a windows pod";
    let mut refuse = |path: &Path<'_>, fields: &[(&str, bool)]| {
        for (field, _) in fields.iter().filter(|(_, is_set)| *is_set) {
            errors.forbidden(&path.child(field), DETAIL);
        }
    };
    let context_path = path.child("securityContext");
    let default = Default::default();
    let context = spec.security_context.as_deref().unwrap_or(&default);
    refuse(
        &context_path,
        &[
            ("appArmorProfile", context.app_armor_profile.is_some()),
            ("seLinuxOptions", context.se_linux_options.is_some()),
        ],
    );
    refuse(
        path,
        &[("hostUsers", spec.host_users.is_some()), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc)],
    );
    refuse(
        &context_path,
        &[
            ("seccompProfile", context.seccomp_profile.is_some()),
            ("fsGroup", context.fs_group.is_some()),
            ("fsGroupChangePolicy", context.fs_group_change_policy.is_some()),
            ("sysctls", !context.sysctls.is_empty()),
        ],
    );
    refuse(path, &[("shareProcessNamespace", spec.share_process_namespace.is_some())]);
    refuse(
        &context_path,
        &[
            ("runAsUser", context.run_as_user.is_some()),
            ("runAsGroup", context.run_as_group.is_some()),
            ("supplementalGroups", !context.supplemental_groups.is_empty()),
            ("supplementalGroupsPolicy", context.supplemental_groups_policy.is_some()),
            ("seLinuxChangePolicy", context.se_linux_change_policy.is_some()),
        ],
    );
    for (list, index, container) in all_containers(spec) {
        let Some(context) = container.security_context.as_deref() else { continue };
        let list = path.child(list);
        let container_path = list.index(index);
        refuse(
            &container_path.child("securityContext"),
            &[
                ("appArmorProfile", context.app_armor_profile.is_some()),
                ("seLinuxOptions", context.se_linux_options.is_some()),
                ("seccompProfile", context.seccomp_profile.is_some()),
                ("capabilities", context.capabilities.is_some()),
                ("readOnlyRootFilesystem", context.read_only_root_filesystem.is_some()),
                ("privileged", context.privileged.is_some()),
                ("allowPrivilegeEscalation", context.allow_privilege_escalation.is_some()),
                ("procMount", context.proc_mount.is_some()),
                ("runAsUser", context.run_as_user.is_some()),
                ("runAsGroup", context.run_as_group.is_some()),
            ],
        );
    }
}
