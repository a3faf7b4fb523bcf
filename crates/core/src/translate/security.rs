//! The user that a container runs as, and its rights.

use crablet_api::core::{
    Container, Pod, PodSecurityContext, ProcMountType, SELinuxOptions, SecurityContext,
    SupplementalGroupsPolicy,
};
use crablet_cri_api::{ImageUser, v1};

use super::node::NodeContext;
use super::profiles;
use super::refusal::ContainerRefusal;
use super::{UnsupportedGroupsPolicy, pod_description};

/// What every container is kept from reading; as container engines do.
const MASKED_PATHS: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// What every container is kept from writing.
const READONLY_PATHS: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// What a container's security context says, with its pod's behind it.
pub(super) struct Effective<'a> {
    pod: Option<&'a PodSecurityContext>,
    own: Option<&'a SecurityContext>,
}

impl<'a> Effective<'a> {
    pub(super) fn of(pod: &'a Pod, container: &'a Container) -> Effective<'a> {
        Effective { pod: pod.spec.security_context.as_deref(), own: container.security_context.as_deref() }
    }

    fn either<T>(
        &self,
        own: impl Fn(&'a SecurityContext) -> Option<T>,
        pod: impl Fn(&'a PodSecurityContext) -> Option<T>,
    ) -> Option<T> {
        self.own.and_then(own).or_else(|| self.pod.and_then(pod))
    }

    fn run_as_user(&self) -> Option<i64> {
        self.either(|own| own.run_as_user, |pod| pod.run_as_user)
    }

    fn run_as_group(&self) -> Option<i64> {
        self.either(|own| own.run_as_group, |pod| pod.run_as_group)
    }

    fn run_as_non_root(&self) -> bool {
        self.either(|own| own.run_as_non_root, |pod| pod.run_as_non_root) == Some(true)
    }

    fn se_linux(&self) -> Option<&'a SELinuxOptions> {
        self.either(|own| own.se_linux_options.as_deref(), |pod| pod.se_linux_options.as_deref())
    }
}

/// Refuses a container that must not be root and is, or may be.
pub(super) fn check_non_root(
    pod: &Pod,
    container: &Container,
    image_user: Option<&ImageUser>,
) -> Result<(), ContainerRefusal> {
    let effective = Effective::of(pod, container);
    if !effective.run_as_non_root() {
        return Ok(());
    }
    let whose = || (pod_description(pod), container.name.to_string());
    match (effective.run_as_user(), image_user) {
        (Some(0), _) => {
            let (pod, container) = whose();
            Err(ContainerRefusal::RunAsUserIsRoot { pod, container })
        }
        (Some(_), _) => Ok(()),
        (None, Some(ImageUser::Name(user))) => {
            let (pod, container) = whose();
            Err(ContainerRefusal::ImageUserIsNotANumber { user: user.clone(), pod, container })
        }
        // An image that names nobody runs as root.
        (None, Some(ImageUser::Id(0)) | None) => {
            let (pod, container) = whose();
            Err(ContainerRefusal::ImageRunsAsRoot { pod, container })
        }
        (None, Some(ImageUser::Id(user))) if !(0..=i64::from(i32::MAX)).contains(user) => {
            let (pod, container) = whose();
            Err(ContainerRefusal::ImageUserIsInvalid { user: *user, pod, container })
        }
        (None, Some(ImageUser::Id(_))) => Ok(()),
    }
}

/// The security context of a container. `namespaces` are those of its pod, and `extra_groups` those that its volumes
/// ask for.
pub(super) fn of_container(
    pod: &Pod,
    container: &Container,
    node: &NodeContext,
    image_user: Option<&ImageUser>,
    namespaces: v1::NamespaceOption,
    extra_groups: &[i64],
) -> Result<v1::LinuxContainerSecurityContext, ContainerRefusal> {
    let effective = Effective::of(pod, container);
    let own = effective.own;
    let seccomp = profiles::seccomp(pod, container, &node.settings)?;
    let (apparmor, apparmor_profile) = match profiles::app_armor(pod, container)? {
        Some((profile, name)) => (Some(profile), name),
        None => (None, String::new()),
    };
    let (run_as_user, run_as_username) = match (effective.run_as_user(), image_user) {
        (Some(user), _) => (Some(user), String::new()),
        (None, Some(ImageUser::Id(user))) => (Some(*user), String::new()),
        (None, Some(ImageUser::Name(name))) => (None, name.clone()),
        (None, None) => (Some(0), String::new()),
    };
    let unmasked = own.and_then(|own| own.proc_mount.as_ref()) == Some(&ProcMountType::Unmasked);
    let mut groups = groups_of(effective.pod);
    groups.extend_from_slice(extra_groups);
    #[allow(deprecated, reason = "older runtimes know no other field for AppArmor")]
    Ok(v1::LinuxContainerSecurityContext {
        capabilities: own.and_then(|own| own.capabilities.as_ref()).map(|wanted| v1::Capability {
            add_capabilities: wanted.add.iter().map(ToString::to_string).collect(),
            drop_capabilities: wanted.drop.iter().map(ToString::to_string).collect(),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged: own.and_then(|own| own.privileged) == Some(true),
        namespace_options: Some(namespaces),
        selinux_options: effective.se_linux().map(se_linux),
        run_as_user: run_as_user.map(|value| v1::Int64Value { value }),
        run_as_group: effective.run_as_group().map(|value| v1::Int64Value { value }),
        run_as_username,
        readonly_rootfs: own.and_then(|own| own.read_only_root_filesystem) == Some(true),
        supplemental_groups: groups,
        supplemental_groups_policy: groups_policy(effective.pod)? as i32,
        no_new_privs: own.and_then(|own| own.allow_privilege_escalation) == Some(false),
        masked_paths: match unmasked {
            true => Vec::new(),
            false => texts(MASKED_PATHS).chain(node.facts.masked_paths.iter().cloned()).collect(),
        },
        readonly_paths: if unmasked { Vec::new() } else { texts(READONLY_PATHS).collect() },
        seccomp: Some(seccomp),
        apparmor,
        apparmor_profile,
        seccomp_profile_path: String::new(),
    })
}

/// The groups that a pod's containers join: the owner of its volumes, and those that it names.
fn groups_of(context: Option<&PodSecurityContext>) -> Vec<i64> {
    context.map_or_else(Vec::new, |context| {
        context.fs_group.into_iter().chain(context.supplemental_groups.iter().copied()).collect()
    })
}

/// Whether the image's own groups are joined too.
pub(super) fn groups_policy(
    context: Option<&PodSecurityContext>,
) -> Result<v1::SupplementalGroupsPolicy, UnsupportedGroupsPolicy> {
    match context.and_then(|context| context.supplemental_groups_policy.as_ref()) {
        None | Some(SupplementalGroupsPolicy::Merge) => Ok(v1::SupplementalGroupsPolicy::Merge),
        Some(SupplementalGroupsPolicy::Strict) => Ok(v1::SupplementalGroupsPolicy::Strict),
        Some(SupplementalGroupsPolicy::Other(word)) => Err(UnsupportedGroupsPolicy(word.to_string())),
    }
}

pub(super) fn se_linux(options: &SELinuxOptions) -> v1::SeLinuxOption {
    v1::SeLinuxOption {
        user: options.user.to_string(),
        role: options.role.to_string(),
        r#type: options.r#type.to_string(),
        level: options.level.to_string(),
    }
}

fn texts(list: &'static [&'static str]) -> impl Iterator<Item = String> {
    list.iter().map(|text| (*text).to_owned())
}

#[cfg(test)]
mod tests {
    use crablet_api::testing::pod_yaml;

    use super::*;
    use crate::translate::testing::node;

    fn made(pod: &str, container: &str) -> Pod {
        pod_yaml(&format!(
            "metadata: {{name: p, namespace: ns, uid: u}}\nspec: {{securityContext: {{{pod}}},
             containers: [{{name: c, securityContext: {{{container}}}}}]}}"
        ))
    }

    fn context(pod: &str, container: &str, user: Option<ImageUser>) -> v1::LinuxContainerSecurityContext {
        let pod = made(pod, container);
        let namespaces = v1::NamespaceOption::default();
        of_container(&pod, &pod.spec.containers[0], &node(), user.as_ref(), namespaces, &[99]).unwrap()
    }

    fn user(context: &v1::LinuxContainerSecurityContext) -> String {
        format!(
            "{:?} {:?} {:?}",
            context.run_as_user.map(|user| user.value),
            context.run_as_group.map(|group| group.value),
            context.run_as_username
        )
    }

    #[test]
    fn a_container_runs_as_it_says_as_its_pod_says_or_as_its_image_says() {
        assert_eq!(user(&context("", "", None)), "Some(0) None \"\"");
        assert_eq!(user(&context("", "", Some(ImageUser::Id(7)))), "Some(7) None \"\"");
        assert_eq!(user(&context("", "", Some(ImageUser::Name("web".into())))), "None None \"web\"");
        let named = Some(ImageUser::Name("web".into()));
        assert_eq!(user(&context("runAsUser: 1, runAsGroup: 2", "", named.clone())), "Some(1) Some(2) \"\"");
        assert_eq!(
            user(&context("runAsUser: 1, runAsGroup: 2", "runAsUser: 3, runAsGroup: 0", named)),
            "Some(3) Some(0) \"\""
        );
    }

    #[test]
    fn groups_are_those_of_the_pod_and_of_its_volumes() {
        let strict = "fsGroup: 5, supplementalGroups: [6, 7], supplementalGroupsPolicy: Strict";
        let made_context = context(strict, "", None);
        assert_eq!(made_context.supplemental_groups, [5, 6, 7, 99]);
        assert_eq!(made_context.supplemental_groups_policy(), v1::SupplementalGroupsPolicy::Strict);
        let odd = made("supplementalGroupsPolicy: Odd", "");
        let error = groups_policy(odd.spec.security_context.as_deref()).unwrap_err();
        assert_eq!(error.to_string(), "unsupported supplementalGroupsPolicy: Odd");
    }

    #[test]
    fn rights_are_the_containers_own() {
        let plain = context("", "", None);
        assert!(!plain.privileged && !plain.no_new_privs && !plain.readonly_rootfs);
        assert_eq!((plain.capabilities, plain.selinux_options), (None, None));
        assert_eq!(plain.masked_paths.last().unwrap(), "/sys/devices/virtual/powercap");
        assert_eq!(plain.readonly_paths.len(), 5);
        let rights = context(
            "seLinuxOptions: {level: pod}",
            "privileged: true, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, procMount: Unmasked,
             capabilities: {add: [NET_ADMIN], drop: [ALL]}, seLinuxOptions: {user: u, role: r, type: t, level: l}",
            None,
        );
        assert!(rights.privileged && rights.no_new_privs && rights.readonly_rootfs);
        assert_eq!((rights.masked_paths.len(), rights.readonly_paths.len()), (0, 0));
        let capabilities = rights.capabilities.unwrap();
        assert_eq!(
            (capabilities.add_capabilities, capabilities.drop_capabilities),
            (vec!["NET_ADMIN".to_owned()], vec!["ALL".to_owned()])
        );
        let selinux = rights.selinux_options.unwrap();
        assert_eq!([selinux.user, selinux.role, selinux.r#type, selinux.level].join(":"), "u:r:t:l");
        assert_eq!(context("seLinuxOptions: {level: pod}", "", None).selinux_options.unwrap().level, "pod");
        assert!(!context("", "allowPrivilegeEscalation: true", None).no_new_privs);
    }

    #[test]
    fn thermal_counters_of_the_node_are_masked_too() {
        let pod = made("", "");
        let mut node = node();
        node.facts.masked_paths = vec!["/sys/devices/system/cpu/cpu0/thermal_throttle".to_owned()];
        let namespaces = v1::NamespaceOption::default();
        let context = of_container(&pod, &pod.spec.containers[0], &node, None, namespaces, &[]).unwrap();
        assert_eq!(context.masked_paths.last(), node.facts.masked_paths.last());
    }

    #[test]
    fn a_container_that_must_not_be_root_is_refused_when_it_is_or_may_be() {
        let check = |pod: &str, container: &str, user: Option<ImageUser>| {
            let pod = made(pod, container);
            check_non_root(&pod, &pod.spec.containers[0], user.as_ref())
                .map_or_else(|error| error.to_string(), |()| "ok".to_owned())
        };
        let non_root = "runAsNonRoot: true";
        let web = || Some(ImageUser::Name("web".into()));
        assert_eq!(check("", "", None), "ok");
        assert_eq!(check(non_root, "runAsNonRoot: false", None), "ok");
        assert_eq!(check(non_root, "runAsUser: 5", web()), "ok");
        assert_eq!(check(non_root, "", Some(ImageUser::Id(5))), "ok");
        assert_eq!(check(non_root, "", Some(ImageUser::Id(2_147_483_647))), "ok");
        assert_ne!(check(non_root, "", Some(ImageUser::Id(2_147_483_648))), "ok");
        assert_eq!(
            check(non_root, "runAsUser: 0", None),
            "container's runAsUser breaks non-root policy (pod: \"p_ns(u)\", container: c)"
        );
        for user in [None, Some(ImageUser::Id(0))] {
            assert_eq!(
                check("", non_root, user),
                "container has runAsNonRoot and image will run as root (pod: \"p_ns(u)\", container: c)"
            );
        }
        assert_eq!(
            check("", non_root, web()),
            "container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root (pod: \
             \"p_ns(u)\", container: c)"
        );
        assert_eq!(
            check("", non_root, Some(ImageUser::Id(-3))),
            "container has runAsNonRoot and image has an invalid user id (-3). (Must be 1-(2147483647)): must be \
             between 0 and 2147483647, inclusive (pod: \"p_ns(u)\", container: c)"
        );
    }
}
