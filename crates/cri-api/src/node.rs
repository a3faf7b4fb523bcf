//! What concerns the whole runtime, in plain types.

use crablet_cgroup_names::CgroupDriver;

use crate::malformed::{Malformed, required};
use crate::v1;

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The runtime's name: `containerd`, `cri-o`, …
    pub name: String,
    pub version: String,
    /// The version of CRI that it speaks.
    pub api_version: String,
}

/// Whether something is ready, and why not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// Whether it is ready.
    pub ready: bool,
    /// One word on why it is not.
    pub reason: String,
    /// A sentence on that.
    pub message: String,
}

/// How a runtime is.
#[derive(Debug, Clone, PartialEq)]
pub struct RuntimeStatus {
    /// Whether it can run containers.
    pub runtime: Condition,
    /// Whether it can give pods a network.
    pub network: Condition,
    /// The handlers it has, and what each can do; empty where it does not tell.
    pub handlers: Vec<v1::RuntimeHandler>,
    /// What it can do beyond its handlers; absent where it does not tell.
    pub features: Option<v1::RuntimeFeatures>,
}

impl From<v1::VersionResponse> for Version {
    fn from(response: v1::VersionResponse) -> Version {
        Version {
            name: response.runtime_name,
            version: response.runtime_version,
            api_version: response.runtime_api_version,
        }
    }
}

impl TryFrom<v1::StatusResponse> for RuntimeStatus {
    type Error = Malformed;

    fn try_from(response: v1::StatusResponse) -> Result<RuntimeStatus, Malformed> {
        let status = required(response.status, "StatusResponse", "status")?;
        let condition = |kind: &str| {
            status.conditions.iter().find(|condition| condition.r#type == kind).map_or_else(
                Condition::default,
                |condition| Condition {
                    ready: condition.status,
                    reason: condition.reason.clone(),
                    message: condition.message.clone(),
                },
            )
        };
        Ok(RuntimeStatus {
            runtime: condition("RuntimeReady"),
            network: condition("NetworkReady"),
            handlers: response.runtime_handlers,
            features: response.features,
        })
    }
}

impl From<v1::CgroupDriver> for CgroupDriver {
    fn from(driver: v1::CgroupDriver) -> CgroupDriver {
        match driver {
            v1::CgroupDriver::Systemd => CgroupDriver::Systemd,
            v1::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
        }
    }
}
