//! What pods get: taints, swap, memory, back-off, logs.

use crablet_api::{FeatureGates, Gate, GoDuration, TaintEffect};

use super::{Check, one_of};
use crate::kubelet_configuration::*;
use crate::words::*;

impl Check {
    pub(super) fn pods(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        if c.run_once {
            let message = "runOnce (--runonce) true, Runonce mode has been deprecated and should not be set";
            self.invalid(&["runOnce"], message.into());
        }
        if let HairpinMode::Other(other) = &c.hairpin_mode {
            let message = format!(
                "option {other:?} specified for hairpinMode (--hairpin-mode). Valid options are {}",
                one_of(&["none", "hairpin-veth", "promiscuous-bridge"])
            );
            self.invalid(&["hairpinMode"], message);
        }
        if let ChangeDetectionStrategy::Other(other) = &c.config_map_and_secret_change_detection_strategy {
            let message = format!(
                "option {other:?} specified for configMapAndSecretChangeDetectionStrategy. Valid options are {}",
                one_of(ChangeDetectionStrategy::WORDS)
            );
            self.invalid(&["configMapAndSecretChangeDetectionStrategy"], message);
        }
        for taint in &c.register_with_taints {
            if let Err(reason) = taint.validate() {
                let message = format!(
                    "registerWithTaints (--register-with-taints): invalid taint: {taint}: {reason}; the effects are {}",
                    one_of(TaintEffect::WORDS)
                );
                self.fail(&["registerWithTaints"], message);
            }
            if taint.time_added.is_some() {
                self.invalid(&["registerWithTaints"], "taint.TimeAdded is not nil".into());
            }
        }
        self.swap_and_memory(c, gates);
        self.crash_loop_back_off(c, gates);
        self.container_logs(c);
        if let Some(ids) = c.user_namespaces.as_ref().and_then(|namespaces| namespaces.ids_per_pod) {
            let problem = match ids {
                ids if ids < 65536 => Some("less than 65536"),
                ids if ids > i64::from(u32::MAX) => Some("more than 4294967295"),
                _ => None,
            };
            if let Some(problem) = problem {
                self.invalid(
                    &["userNamespaces", "idsPerPod"],
                    format!("userNamespaces.idsPerPod {ids} must not be {problem}"),
                );
            } else if ids % 65536 != 0 {
                let message = format!("userNamespaces.idsPerPod {ids} must be a multiple of 65536");
                self.invalid(&["userNamespaces", "idsPerPod"], message);
            }
        }
    }

    fn swap_and_memory(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        const SWAP: &[&str] = &["memorySwap", "swapBehavior"];
        match &c.memory_swap.swap_behavior {
            Some(_) if !gates.enabled(Gate::NodeSwap) => {
                let message = "memorySwap.swapBehavior cannot be set when NodeSwap feature flag is disabled";
                self.invalid(SWAP, message.into());
            }
            Some(SwapBehavior::Other(other)) => {
                let message = format!(
                    "memorySwap.swapBehavior {other:?} must be one of: \"\", \"LimitedSwap\" or \"NoSwap\""
                );
                self.invalid(SWAP, message);
            }
            Some(SwapBehavior::LimitedSwap | SwapBehavior::NoSwap) | None => {}
        }
        match c.memory_throttling_factor {
            None if gates.enabled(Gate::MemoryQoS) => {
                let message = "memoryThrottlingFactor is required when MemoryQoS feature flag is enabled";
                self.invalid(&["memoryThrottlingFactor"], message.into());
            }
            Some(factor) if !(factor > 0.0 && factor <= 1.0) => {
                let message = format!(
                    "memoryThrottlingFactor {factor} must be greater than 0 and less than or equal to 1.0"
                );
                self.invalid(&["memoryThrottlingFactor"], message);
            }
            Some(_) | None => {}
        }
        match &c.memory_reservation_policy {
            MemoryReservationPolicy::None => {}
            MemoryReservationPolicy::TieredReservation => {
                if !gates.enabled(Gate::MemoryQoS) {
                    let message = "memoryReservationPolicy \"TieredReservation\" requires MemoryQoS feature gate to be enabled";
                    self.invalid(&["memoryReservationPolicy"], message.into());
                }
            }
            MemoryReservationPolicy::Other(other) => {
                let message = format!(
                    "option {other:?} specified for memoryReservationPolicy. Valid options are {}",
                    one_of(MemoryReservationPolicy::WORDS)
                );
                self.invalid(&["memoryReservationPolicy"], message);
            }
        }
    }

    fn crash_loop_back_off(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        const PATH: &[&str] = &["crashLoopBackOff", "maxContainerRestartPeriod"];
        let Some(period) = c.crash_loop_back_off.max_container_restart_period else { return };
        if !gates.enabled(Gate::KubeletCrashLoopBackOffMax) {
            let message = "FeatureGate KubeletCrashLoopBackOffMax not enabled, \
                           crashLoopBackOff.maxContainerRestartPeriod must not be set";
            self.invalid(PATH, message.into());
        } else if period < GoDuration::from_secs(1) || period > GoDuration::from_secs(300) {
            let message = format!(
                "crashLoopBackOff.maxContainerRestartPeriod (got: {} seconds) must be set between 1s and 300s",
                period.as_nanos() as f64 / 1e9
            );
            self.invalid(PATH, message);
        }
    }

    fn container_logs(&mut self, c: &KubeletConfiguration) {
        if c.container_log_max_workers < 1 {
            let message = format!(
                "containerLogMaxWorkers {} must be greater than or equal to 1",
                c.container_log_max_workers
            );
            self.invalid(&["containerLogMaxWorkers"], message);
        }
        if c.container_log_monitor_interval < GoDuration::from_secs(3) {
            let message = format!(
                "containerLogMonitorInterval {} must be a positive time duration greater than or equal to 3s",
                c.container_log_monitor_interval
            );
            self.invalid(&["containerLogMonitorInterval"], message);
        }
        if c.container_log_max_files <= 1 {
            let message =
                format!("containerLogMaxFiles {} must be greater than 1", c.container_log_max_files);
            self.invalid(&["containerLogMaxFiles"], message);
        }
        let directory = c.pod_logs_dir.as_ref();
        if !directory.starts_with('/') {
            let message = format!("podLogsDir {directory:?} must be an absolute path");
            self.invalid(&["podLogsDir"], message);
        }
        if !is_clean(directory) {
            let message = format!(
                "podLogsDir {directory:?} must be without \".\", \"..\", \"//\" and a slash at its end"
            );
            self.invalid(&["podLogsDir"], message);
        }
        if !directory.is_ascii() {
            let message = format!("podLogsDir {directory:?} must contain ASCII characters only");
            self.invalid(&["podLogsDir"], message);
        }
    }
}

/// Whether a path has no `.`, `..` or empty parts and no slash at its end.
fn is_clean(path: &str) -> bool {
    path == "/"
        || path
            .split('/')
            .enumerate()
            .all(|(index, part)| !matches!(part, "." | "..") && (index == 0 || !part.is_empty()))
}
