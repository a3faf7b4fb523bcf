//! What the runtime says of itself, and where its streaming server is.

use std::net::IpAddr;

use crablet_cri_api::{CgroupDriver, v1};
use tonic::Status;

use super::world::World;

/// How the simulator calls itself.
const NAME: &str = "crablet-sim";

pub(crate) fn version() -> v1::VersionResponse {
    v1::VersionResponse {
        version: "0.1.0".to_owned(),
        runtime_name: NAME.to_owned(),
        runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
        runtime_api_version: "v1".to_owned(),
    }
}

impl World {
    pub(crate) fn status(&self, verbose: bool) -> v1::StatusResponse {
        let condition = |kind: &str, problem: &Option<(String, String)>| {
            let (reason, message) = problem.clone().unwrap_or_default();
            v1::RuntimeCondition { r#type: kind.to_owned(), status: problem.is_none(), reason, message }
        };
        let mut response = v1::StatusResponse {
            status: Some(v1::RuntimeStatus {
                conditions: vec![
                    condition("RuntimeReady", &self.conditions.runtime_not_ready),
                    condition("NetworkReady", &self.conditions.network_not_ready),
                ],
            }),
            ..v1::StatusResponse::default()
        };
        if verbose {
            let systemd = self.settings.cgroup_driver == CgroupDriver::Systemd;
            let config = format!(
                "{{\"sandboxImage\":\"{}\",\"systemdCgroup\":{systemd}}}",
                self.settings.sandbox_image
            );
            response.info.insert("config".to_owned(), config);
        }
        if self.settings.capabilities.handlers_in_status {
            let can = &self.settings.capabilities;
            let names = std::iter::once("").chain(self.settings.runtime_handlers.iter().map(String::as_str));
            // The default one has two names: none, and the first.
            let handlers = names.enumerate().map(|(index, name)| v1::RuntimeHandler {
                name: name.to_owned(),
                features: Some(v1::RuntimeHandlerFeatures {
                    user_namespaces: can.user_namespaces,
                    recursive_read_only_mounts: can.recursive_read_only_mounts && index < 2,
                }),
            });
            response.runtime_handlers = handlers.collect();
            let supplemental_groups_policy = can.supplemental_groups_policy;
            response.features =
                Some(v1::RuntimeFeatures { supplemental_groups_policy, ..v1::RuntimeFeatures::default() });
        }
        response
    }

    pub(crate) fn runtime_config(&self) -> v1::RuntimeConfigResponse {
        let driver = match self.settings.cgroup_driver {
            CgroupDriver::Systemd => v1::CgroupDriver::Systemd,
            CgroupDriver::Cgroupfs => v1::CgroupDriver::Cgroupfs,
        };
        v1::RuntimeConfigResponse {
            linux: Some(v1::LinuxRuntimeConfiguration { cgroup_driver: driver.into() }),
        }
    }

    /// A URL at the streaming server, or the truth that there is none.
    pub(crate) fn streaming_url(&mut self, what: &str) -> Result<String, Status> {
        let token = self.random.id();
        match &self.settings.streaming_server {
            Some(server) => Ok(format!("{}/{what}/{}", server.trim_end_matches('/'), &token[..8])),
            None => Err(Status::unimplemented(format!(
                "{NAME} has no streaming server for {what}: use ExecSync, or a real runtime"
            ))),
        }
    }

    pub(crate) fn container_to_stream_from(&self, asked: &str, context: &str) -> Result<(), Status> {
        let id = self.find_container(asked).map_err(|missing| missing.status(context))?;
        let container = self.container(&id)?;
        match container.is_running() {
            true => Ok(()),
            false => {
                Err(Status::unknown(format!("container is in {} state", container.state().as_str_name())))
            }
        }
    }
}

/// Checks the ranges that pods get their addresses from. They change nothing here.
pub(crate) fn check_pod_cidr(request: &v1::UpdateRuntimeConfigRequest) -> Result<(), Status> {
    let network = request.runtime_config.as_ref().and_then(|config| config.network_config.as_ref());
    let ranges = network.map_or("", |network| network.pod_cidr.as_str());
    for range in ranges.split(',').map(str::trim).filter(|_| !ranges.is_empty()) {
        let is_valid = range.split_once('/').is_some_and(|(address, length)| {
            let most = match address.parse() {
                Ok(IpAddr::V4(_)) => 32,
                Ok(IpAddr::V6(_)) => 128,
                Err(_) => return false,
            };
            length.parse::<u8>().is_ok_and(|length| length <= most)
        });
        if !is_valid {
            return Err(Status::unknown(format!("get routes: invalid CIDR address: {range}")));
        }
    }
    Ok(())
}

/// Checks the streams that `Exec` and `Attach` ask for.
pub(crate) fn check_streams(
    tty: bool,
    stdin: bool,
    stdout: bool,
    stderr: bool,
    or: &str,
) -> Result<(), Status> {
    if tty && stderr {
        return Err(Status::invalid_argument("tty and stderr cannot both be true"));
    }
    if !stdin && !stdout && !stderr {
        return Err(Status::invalid_argument(format!("one of stdin, stdout, {or} stderr must be set")));
    }
    Ok(())
}
