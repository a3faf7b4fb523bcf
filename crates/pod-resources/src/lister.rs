//! The answers.

use std::sync::Arc;

use crablet_agent::statuses::Reported;
use crablet_api::core::Pod;
use crablet_core::restart::is_sidecar;
use tonic::{Request, Response, Status};

use crate::PodResources;
use crate::metrics::Metrics;
use crate::proto::{v1, v1alpha1};

/// Answers from the statuses of an agent. Clones are the same.
#[derive(Clone)]
pub(crate) struct Lister {
    from: Arc<PodResources>,
    metrics: Metrics,
}

impl Lister {
    pub(crate) fn new(from: PodResources, metrics: Metrics) -> Lister {
        Lister { from: Arc::new(from), metrics }
    }
}

#[tonic::async_trait]
impl v1::pod_resources_lister_server::PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<v1::ListPodResourcesRequest>,
    ) -> Result<Response<v1::ListPodResourcesResponse>, Status> {
        self.metrics.total.with(["v1"]).increment();
        self.metrics.list.with(["v1"]).increment();
        let views = self.from.statuses.list();
        let shown = views.iter().filter(|view| !self.from.only_active || is_active(view));
        let pod_resources = shown.map(|view| resources(&view.pod)).collect();
        Ok(Response::new(v1::ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<v1::AllocatableResourcesRequest>,
    ) -> Result<Response<v1::AllocatableResourcesResponse>, Status> {
        self.metrics.total.with(["v1"]).increment();
        self.metrics.get_allocatable.with(["v1"]).increment();
        Ok(Response::new(v1::AllocatableResourcesResponse::default()))
    }

    async fn get(
        &self,
        request: Request<v1::GetPodResourcesRequest>,
    ) -> Result<Response<v1::GetPodResourcesResponse>, Status> {
        self.metrics.total.with(["v1"]).increment();
        self.metrics.get.with(["v1"]).increment();
        let v1::GetPodResourcesRequest { pod_name, pod_namespace } = request.into_inner();
        let views = self.from.statuses.list();
        let is_it = |view: &&Reported| {
            view.pod.metadata.name == pod_name.as_str()
                && view.pod.metadata.namespace == pod_namespace.as_str()
        };
        // Where one that ends has the name of the next, that next one is meant.
        let Some(view) = views.iter().filter(is_it).min_by_key(|view| (view.terminated, is_ending(view)))
        else {
            self.metrics.get_errors.with(["v1"]).increment();
            // Upstream gives it no code of its own.
            let why = format!("pod {pod_name} in namespace {pod_namespace} not found");
            return Err(Status::unknown(why));
        };
        let pod_resources = Some(resources(&view.pod));
        Ok(Response::new(v1::GetPodResourcesResponse { pod_resources }))
    }
}

#[tonic::async_trait]
impl v1alpha1::pod_resources_lister_server::PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<v1alpha1::ListPodResourcesRequest>,
    ) -> Result<Response<v1alpha1::ListPodResourcesResponse>, Status> {
        self.metrics.total.with(["v1alpha1"]).increment();
        let resources = |view: Reported| v1alpha1::PodResources {
            name: view.pod.metadata.name.to_string(),
            namespace: view.pod.metadata.namespace.to_string(),
            containers: (view.pod.spec.containers.iter())
                .map(|container| v1alpha1::ContainerResources {
                    name: container.name.to_string(),
                    devices: Vec::new(),
                })
                .collect(),
        };
        let pod_resources = self.from.statuses.list().into_iter().map(resources).collect();
        Ok(Response::new(v1alpha1::ListPodResourcesResponse { pod_resources }))
    }
}

/// A pod's containers that run for as long as the pod does.
fn resources(pod: &Pod) -> v1::PodResources {
    let sidecars = pod.spec.init_containers.iter().filter(|container| is_sidecar(container));
    let containers = sidecars.chain(pod.spec.containers.iter());
    v1::PodResources {
        name: pod.metadata.name.to_string(),
        namespace: pod.metadata.namespace.to_string(),
        containers: containers
            .map(|container| v1::ContainerResources {
                name: container.name.to_string(),
                ..v1::ContainerResources::default()
            })
            .collect(),
    }
}

/// Whether a pod has something of the node still: as upstream, one that is over by its phase has while it is ending, and
/// none that has terminated.
fn is_active(view: &Reported) -> bool {
    !view.terminated && (!view.status.is_over() || is_ending(view))
}

/// Whether nobody wants it any more.
fn is_ending(view: &Reported) -> bool {
    view.ends.is_some() || view.pod.metadata.deletion_timestamp.is_some()
}
