//! [`Container`]: one process with its image, its environment and its mounts.

use crate::object::{object, words};
use crate::text::Text;

use super::{EnvFromSource, EnvVar, Lifecycle, Probe, ResourceRequirements, SecurityContext};

object! {
    /// One container of a pod.
    pub struct Container {
        name: Text = "name" always,
        image: Text = "image",
        command: Box<[Text]> = "command",
        args: Box<[Text]> = "args",
        working_dir: Text = "workingDir",
        ports: Box<[ContainerPort]> = "ports",
        env_from: Box<[EnvFromSource]> = "envFrom",
        env: Box<[EnvVar]> = "env",
        resources: ResourceRequirements = "resources",
        resize_policy: Box<[ContainerResizePolicy]> = "resizePolicy",
        restart_policy: Option<ContainerRestartPolicy> = "restartPolicy",
        restart_policy_rules: Box<[ContainerRestartRule]> = "restartPolicyRules",
        volume_mounts: Box<[VolumeMount]> = "volumeMounts",
        volume_devices: Box<[VolumeDevice]> = "volumeDevices",
        liveness_probe: Option<Box<Probe>> = "livenessProbe",
        readiness_probe: Option<Box<Probe>> = "readinessProbe",
        startup_probe: Option<Box<Probe>> = "startupProbe",
        lifecycle: Option<Box<Lifecycle>> = "lifecycle",
        termination_message_path: Text = "terminationMessagePath",
        termination_message_policy: Option<TerminationMessagePolicy> = "terminationMessagePolicy" word,
        image_pull_policy: Option<PullPolicy> = "imagePullPolicy" word,
        security_context: Option<Box<SecurityContext>> = "securityContext",
        stdin: bool = "stdin",
        stdin_once: bool = "stdinOnce",
        tty: bool = "tty",
    }
}

object! {
    /// A container that is added to a running pod to look into it.
    pub struct EphemeralContainer {
        target_container_name: Text = "targetContainerName",
        .. container: Container,
    }
}

object! {
    /// A port that a container listens on.
    pub struct ContainerPort {
        name: Text = "name",
        host_port: i32 = "hostPort",
        container_port: i32 = "containerPort" always,
        protocol: Option<Protocol> = "protocol" word,
        host_ip: Text = "hostIP",
    }
}

object! {
    /// Where a volume appears in a container.
    pub struct VolumeMount {
        name: Text = "name" always,
        read_only: bool = "readOnly",
        recursive_read_only: Option<RecursiveReadOnlyMode> = "recursiveReadOnly",
        mount_path: Text = "mountPath" always,
        sub_path: Text = "subPath",
        mount_propagation: Option<MountPropagationMode> = "mountPropagation",
        sub_path_expr: Text = "subPathExpr",
    }
}

object! {
    /// Where a volume appears as a block device in a container.
    pub struct VolumeDevice {
        name: Text = "name" always,
        device_path: Text = "devicePath" always,
    }
}

object! {
    /// What happens to a container when one of its resources changes.
    pub struct ContainerResizePolicy {
        resource_name: Text = "resourceName" always,
        restart_policy: ResourceResizeRestartPolicy = "restartPolicy" always,
    }
}

object! {
    /// What to do with a container that exits in a certain way.
    pub struct ContainerRestartRule {
        action: Option<ContainerRestartRuleAction> = "action" word,
        exit_codes: Option<Box<ContainerRestartRuleOnExitCodes>> = "exitCodes",
    }
}

object! {
    /// Exit codes that a rule is about.
    pub struct ContainerRestartRuleOnExitCodes {
        operator: Option<ContainerRestartRuleOnExitCodesOperator> = "operator" word,
        values: Box<[i32]> = "values",
    }
}

words! {
    /// A transport protocol.
    pub enum Protocol {
        Tcp = "TCP",
        Udp = "UDP",
        Sctp = "SCTP",
    }
}

words! {
    /// When an image is pulled.
    pub enum PullPolicy {
        Always = "Always",
        Never = "Never",
        IfNotPresent = "IfNotPresent",
    }
}

words! {
    /// Where the message of a container that ended comes from.
    pub enum TerminationMessagePolicy {
        File = "File",
        FallbackToLogsOnError = "FallbackToLogsOnError",
    }
}

words! {
    /// Whether mounts made inside a container are seen outside, and the other way round.
    pub enum MountPropagationMode {
        None = "None",
        HostToContainer = "HostToContainer",
        Bidirectional = "Bidirectional",
    }
}

words! {
    /// Whether a read-only mount is so in the mounts below it too.
    pub enum RecursiveReadOnlyMode {
        Disabled = "Disabled",
        IfPossible = "IfPossible",
        Enabled = "Enabled",
    }
}

words! {
    /// Whether a changed resource restarts the container.
    pub enum ResourceResizeRestartPolicy {
        NotRequired = "NotRequired",
        RestartContainer = "RestartContainer",
    }
}

words! {
    /// When one container is started again, where it differs from its pod.
    pub enum ContainerRestartPolicy {
        Always = "Always",
        Never = "Never",
        OnFailure = "OnFailure",
    }
}

words! {
    /// What a restart rule does.
    pub enum ContainerRestartRuleAction {
        Restart = "Restart",
        RestartAllContainers = "RestartAllContainers",
    }
}

words! {
    /// How exit codes are compared.
    pub enum ContainerRestartRuleOnExitCodesOperator {
        In = "In",
        NotIn = "NotIn",
    }
}
