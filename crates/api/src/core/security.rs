//! As whom and with what rights containers run.

use crate::object::{object, words};
use crate::text::Text;

object! {
    /// As whom and with what rights the containers of a pod run, unless they say otherwise.
    pub struct PodSecurityContext {
        se_linux_options: Option<Box<SELinuxOptions>> = "seLinuxOptions",
        windows_options: Option<Box<WindowsSecurityContextOptions>> = "windowsOptions",
        run_as_user: Option<i64> = "runAsUser",
        run_as_group: Option<i64> = "runAsGroup",
        run_as_non_root: Option<bool> = "runAsNonRoot",
        supplemental_groups: Box<[i64]> = "supplementalGroups",
        supplemental_groups_policy: Option<SupplementalGroupsPolicy> = "supplementalGroupsPolicy",
        fs_group: Option<i64> = "fsGroup",
        sysctls: Box<[Sysctl]> = "sysctls",
        fs_group_change_policy: Option<PodFSGroupChangePolicy> = "fsGroupChangePolicy",
        seccomp_profile: Option<Box<SeccompProfile>> = "seccompProfile",
        app_armor_profile: Option<Box<AppArmorProfile>> = "appArmorProfile",
        se_linux_change_policy: Option<PodSELinuxChangePolicy> = "seLinuxChangePolicy",
    }
}

object! {
    /// As whom and with what rights a container runs.
    pub struct SecurityContext {
        capabilities: Option<Box<Capabilities>> = "capabilities",
        privileged: Option<bool> = "privileged",
        se_linux_options: Option<Box<SELinuxOptions>> = "seLinuxOptions",
        windows_options: Option<Box<WindowsSecurityContextOptions>> = "windowsOptions",
        run_as_user: Option<i64> = "runAsUser",
        run_as_group: Option<i64> = "runAsGroup",
        run_as_non_root: Option<bool> = "runAsNonRoot",
        read_only_root_filesystem: Option<bool> = "readOnlyRootFilesystem",
        allow_privilege_escalation: Option<bool> = "allowPrivilegeEscalation",
        proc_mount: Option<ProcMountType> = "procMount",
        seccomp_profile: Option<Box<SeccompProfile>> = "seccompProfile",
        app_armor_profile: Option<Box<AppArmorProfile>> = "appArmorProfile",
    }
}

object! {
    /// Linux capabilities to add and to drop.
    pub struct Capabilities {
        add: Box<[Text]> = "add",
        drop: Box<[Text]> = "drop",
    }
}

object! {
    /// An SELinux context.
    pub struct SELinuxOptions {
        user: Text = "user",
        role: Text = "role",
        r#type: Text = "type",
        level: Text = "level",
    }
}

object! {
    /// As whom a Windows container runs.
    pub struct WindowsSecurityContextOptions {
        gmsa_credential_spec_name: Option<Text> = "gmsaCredentialSpecName",
        gmsa_credential_spec: Option<Text> = "gmsaCredentialSpec",
        run_as_user_name: Option<Text> = "runAsUserName",
        host_process: Option<bool> = "hostProcess",
    }
}

object! {
    /// Which system calls are allowed.
    pub struct SeccompProfile {
        r#type: SeccompProfileType = "type" always,
        localhost_profile: Option<Text> = "localhostProfile",
    }
}

object! {
    /// Which AppArmor profile applies.
    pub struct AppArmorProfile {
        r#type: AppArmorProfileType = "type" always,
        localhost_profile: Option<Text> = "localhostProfile",
    }
}

object! {
    /// A kernel parameter of the pod's namespaces.
    pub struct Sysctl {
        name: Text = "name" always,
        value: Text = "value" always,
    }
}

words! {
    /// How much of `/proc` is hidden.
    pub enum ProcMountType {
        Default = "Default",
        Unmasked = "Unmasked",
    }
}

words! {
    /// Where a seccomp profile comes from.
    pub enum SeccompProfileType {
        Unconfined = "Unconfined",
        RuntimeDefault = "RuntimeDefault",
        Localhost = "Localhost",
    }
}

words! {
    /// Where an AppArmor profile comes from.
    pub enum AppArmorProfileType {
        Unconfined = "Unconfined",
        RuntimeDefault = "RuntimeDefault",
        Localhost = "Localhost",
    }
}

words! {
    /// Whether the image's groups are joined too.
    pub enum SupplementalGroupsPolicy {
        Merge = "Merge",
        Strict = "Strict",
    }
}

words! {
    /// When the owner of a volume's files is changed.
    pub enum PodFSGroupChangePolicy {
        OnRootMismatch = "OnRootMismatch",
        Always = "Always",
    }
}

words! {
    /// How the SELinux label of a volume is changed.
    pub enum PodSELinuxChangePolicy {
        Recursive = "Recursive",
        MountOption = "MountOption",
    }
}
