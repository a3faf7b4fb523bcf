//! Eviction and shutdown.

use crablet_api::{FeatureGates, Gate, GoDuration};

use super::{Check, one_of};
use crate::kubelet_configuration::*;
use crate::thresholds::Threshold;
use crate::words::*;

impl Check {
    pub(super) fn eviction(&mut self, c: &KubeletConfiguration) {
        for (path, thresholds) in
            [(&["evictionHard"] as &[&str], &c.eviction_hard), (&["evictionSoft"], &c.eviction_soft)]
        {
            self.signals(path, thresholds.keys());
            for (signal, threshold) in thresholds {
                let message = match &threshold.value {
                    Threshold::Percentage(share) if *share < 0.0 => {
                        format!("eviction percentage threshold {signal} must be >= 0%: {threshold}")
                    }
                    Threshold::Percentage(share) if *share > 100.0 => {
                        format!("eviction percentage threshold {signal} must be <= 100%: {threshold}")
                    }
                    Threshold::Quantity(quantity) if quantity.sign() <= 0 => {
                        format!("eviction threshold {signal} must be positive: {threshold}")
                    }
                    Threshold::Percentage(_) | Threshold::Quantity(_) => continue,
                };
                self.fail(path, format!("{}: {message}", path[0]));
            }
        }
        self.signals(&["evictionSoftGracePeriod"], c.eviction_soft_grace_period.keys());
        for period in c.eviction_soft_grace_period.values().filter(|period| period.value.is_negative()) {
            let message = format!("evictionSoftGracePeriod: grace period {period} must be a positive value");
            self.fail(&["evictionSoftGracePeriod"], message);
        }
        for signal in
            c.eviction_soft.keys().filter(|signal| !c.eviction_soft_grace_period.contains_key(signal))
        {
            let message = format!(
                "evictionSoft: grace period must be specified for the soft eviction threshold {signal}; set it in \
                 evictionSoftGracePeriod (--eviction-soft-grace-period)"
            );
            self.fail(&["evictionSoft"], message);
        }
        self.signals(&["evictionMinimumReclaim"], c.eviction_minimum_reclaim.keys());
        for (signal, reclaim) in &c.eviction_minimum_reclaim {
            let message = match &reclaim.value {
                Threshold::Percentage(share) if *share <= 0.0 => {
                    format!("eviction percentage minimum reclaim {signal} must be positive: {reclaim}")
                }
                Threshold::Quantity(quantity) if quantity.sign() < 0 => {
                    format!("eviction minimum reclaim {signal} must not be negative: {reclaim}")
                }
                Threshold::Percentage(_) | Threshold::Quantity(_) => continue,
            };
            self.fail(&["evictionMinimumReclaim"], format!("evictionMinimumReclaim: {message}"));
        }
    }

    fn signals<'a>(
        &mut self,
        path: &'static [&'static str],
        signals: impl Iterator<Item = &'a EvictionSignal>,
    ) {
        for signal in signals {
            if let EvictionSignal::Other(other) = signal {
                let valid = one_of(EvictionSignal::WORDS);
                self.fail(
                    path,
                    format!("{}: unsupported eviction signal {other:?}; {valid} is accepted", path[0]),
                );
            }
        }
    }

    pub(super) fn shutdown(&mut self, c: &KubeletConfiguration, gates: &FeatureGates) {
        const TOTAL: &[&str] = &["shutdownGracePeriod"];
        const CRITICAL: &[&str] = &["shutdownGracePeriodCriticalPods"];
        const BY_PRIORITY: &[&str] = &["shutdownGracePeriodByPodPriority"];
        let (total, critical) = (c.shutdown_grace_period, c.shutdown_grace_period_critical_pods);
        let either = total > GoDuration::ZERO || critical > GoDuration::ZERO;
        if gates.enabled(Gate::GracefulNodeShutdown) {
            if critical > total {
                let message = format!(
                    "shutdownGracePeriodCriticalPods {critical} must be <= shutdownGracePeriod {total}"
                );
                self.invalid(CRITICAL, message);
            }
            for (path, period) in [(TOTAL, total), (CRITICAL, critical)] {
                if !period.is_zero() && period < GoDuration::from_secs(1) {
                    let message = format!("{} {period} must be either zero or otherwise >= 1 sec", path[0]);
                    self.invalid(path, message);
                }
            }
        } else if either {
            let message = "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate \
                           GracefulNodeShutdown";
            self.invalid_pair(TOTAL, CRITICAL, message.into());
        }
        if c.shutdown_grace_period_by_pod_priority.is_empty() {
        } else if !gates.enabled(Gate::GracefulNodeShutdownBasedOnPodPriority) {
            let message = "Specifying shutdownGracePeriodByPodPriority requires feature gate \
                           GracefulNodeShutdownBasedOnPodPriority";
            self.invalid(BY_PRIORITY, message.into());
        } else if either {
            let message = "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time";
            self.invalid(BY_PRIORITY, message.into());
        }
    }
}
