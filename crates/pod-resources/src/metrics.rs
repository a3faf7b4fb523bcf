//! What is counted of requests, under upstream's names.

use crablet_metrics::{Counter, Family, RegisterError, Registry};

/// Counters of requests, by the version of the service that was asked.
#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) total: Family<Counter, 1>,
    pub(crate) list: Family<Counter, 1>,
    pub(crate) get: Family<Counter, 1>,
    pub(crate) get_errors: Family<Counter, 1>,
    pub(crate) get_allocatable: Family<Counter, 1>,
}

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> Result<Metrics, RegisterError> {
        let register = |name: &str, help: &str| {
            let help = format!("[ALPHA] {help} Broken down by server api version.");
            let name = format!("kubelet_pod_resources_endpoint_{name}");
            registry.counter_family(&name, &help, ["server_api_version"])
        };
        Ok(Metrics {
            total: register("requests_total", "Cumulative number of requests to the PodResource endpoint.")?,
            list: register("requests_list", "Number of requests to the PodResource List endpoint.")?,
            get: register("requests_get", "Number of requests to the PodResource Get endpoint.")?,
            get_errors: register(
                "errors_get",
                "Number of requests to the PodResource Get endpoint which returned error.",
            )?,
            get_allocatable: register(
                "requests_get_allocatable",
                "Number of requests to the PodResource GetAllocatableResources endpoint.",
            )?,
        })
    }
}
