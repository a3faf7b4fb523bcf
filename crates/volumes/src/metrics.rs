//! What is counted of volumes, under upstream's names.

use std::time::Duration;

use crablet_metrics::{DEFAULT_BUCKETS, Family, Histogram, Kind, RegisterError, Registry};

use crate::inventory::{Inventory, PluginName};
use crate::stats::Stats;

const BUCKETS: [f64; 13] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
/// Whether another kind of volume was made one of a driver, which nobody does here.
const MIGRATED: &str = "false";

/// What is done to volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Mount,
    Map,
    Unmount,
    /// A volume that no pod uses is taken from the node.
    UnmountDevice,
    Resize,
    /// Files are given to the pod's group.
    ApplyAccessControl,
}

/// Counters of volumes.
#[derive(Debug)]
pub(crate) struct Metrics {
    operations: Family<Histogram, 4>,
    since_wanted: Family<Histogram, 2>,
    of_drivers: Family<Histogram, 4>,
    measuring: Family<Histogram, 1>,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Metrics, RegisterError> {
        Ok(Metrics {
            operations: registry.histogram_family(
                "storage_operation_duration_seconds",
                "[ALPHA] Storage operation duration",
                ["volume_plugin", "operation_name", "status", "migrated"],
                &BUCKETS,
            )?,
            since_wanted: registry.histogram_family(
                "volume_operation_total_seconds",
                "[ALPHA] Storage operation end to end duration in seconds",
                ["plugin_name", "operation_name"],
                &BUCKETS,
            )?,
            of_drivers: registry.histogram_family(
                "csi_operations_seconds",
                "[ALPHA] Container Storage Interface operation duration with gRPC error code status total",
                ["driver_name", "method_name", "grpc_status_code", "migrated"],
                &BUCKETS,
            )?,
            measuring: registry.histogram_family(
                "kubelet_volume_metric_collection_duration_seconds",
                "[ALPHA] Duration in seconds to calculate volume stats",
                ["metric_source"],
                &DEFAULT_BUCKETS,
            )?,
        })
    }

    pub(crate) fn operation(&self, plugin: &PluginName, what: Operation, is_done: bool, took: Duration) {
        let what = match what {
            Operation::Mount => "volume_mount",
            Operation::Map => "map_volume",
            Operation::Unmount => "volume_unmount",
            Operation::UnmountDevice => "unmount_device",
            Operation::Resize => "volume_fs_resize",
            Operation::ApplyAccessControl => "volume_apply_access_control",
        };
        let status = if is_done { "success" } else { "fail-unknown" };
        let observed = self.operations.with([&plugin.label(), what, status, MIGRATED]);
        observed.observe(took.as_secs_f64());
    }

    /// A volume is there.
    pub(crate) fn mounted(&self, plugin: &PluginName, since_wanted: Duration) {
        let observed = self.since_wanted.with([&plugin.label(), "overall_volume_mount"]);
        observed.observe(since_wanted.as_secs_f64());
    }

    pub(crate) fn of_driver(&self, driver: &str, method: &str, code: &str, took: Duration) {
        self.of_drivers.with([driver, method, code, MIGRATED]).observe(took.as_secs_f64());
    }

    pub(crate) fn measured(&self, source: &str, took: Duration) {
        self.measuring.with([source]).observe(took.as_secs_f64());
    }
}

/// Has it told which volumes there are, and how much of those of claims is used.
pub(crate) fn register_collectors(registry: &Registry, inventory: Inventory, stats: Stats) {
    registry.collector(move |samples| {
        for (plugin, (wanted, there)) in inventory.counts() {
            for (state, count) in [("desired_state_of_world", wanted), ("actual_state_of_world", there)] {
                if count > 0 {
                    let (name, help) =
                        ("volume_manager_total_volumes", "[ALPHA] Number of volumes in Volume Manager");
                    let labels = [("plugin_name", &*plugin.label()), ("state", state)];
                    samples.add(name, help, Kind::Gauge, &labels, count as f64);
                }
            }
        }
    });
    registry.collector(move |samples| {
        for found in stats.of_claims() {
            let claim = found.claim.unwrap_or_default();
            let labels = [("namespace", &*found.namespace), ("persistentvolumeclaim", &*claim)];
            let usage = found.usage;
            for (name, help, value) in [
                ("kubelet_volume_stats_capacity_bytes", "[ALPHA] Capacity in bytes of the volume", usage.capacity),
                (
                    "kubelet_volume_stats_available_bytes",
                    "[ALPHA] Number of available bytes in the volume",
                    usage.available,
                ),
                ("kubelet_volume_stats_used_bytes", "[ALPHA] Number of used bytes in the volume", usage.used),
                ("kubelet_volume_stats_inodes", "[ALPHA] Maximum number of inodes in the volume", usage.inodes),
                (
                    "kubelet_volume_stats_inodes_free",
                    "[ALPHA] Number of free inodes in the volume",
                    usage.inodes_free,
                ),
                (
                    "kubelet_volume_stats_inodes_used",
                    "[ALPHA] Number of used inodes in the volume",
                    usage.inodes_used,
                ),
            ] {
                samples.add(name, help, Kind::Gauge, &labels, value as f64);
            }
            if let Some(condition) = usage.condition {
                let name = "kubelet_volume_stats_health_status_abnormal";
                let help = "[ALPHA] Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy";
                samples.add(name, help, Kind::Gauge, &labels, f64::from(u8::from(condition.abnormal)));
            }
        }
    });
}
