//! What names a pod on the lines of the log that are about it.

use std::future::poll_fn;

use crablet_api::core::PodIdentity;
use futures_util::future::BoxFuture;
use tracing::Span;

/// A span for whatever is done for a pod: every line inside it carries the pod and its UID.
pub(crate) fn pod_span(pod: &PodIdentity) -> Span {
    crablet_logging::pod_span(&pod.namespace, &pod.name, &pod.uid)
}

/// Runs a pod's task in its span, which is there only while the task does something: most pods wait, and a span that
/// waits with each of them would take more room than the rest of what is known of who they are.
pub(crate) fn in_pod_span<T>(pod: PodIdentity, mut task: BoxFuture<'static, T>) -> impl Future<Output = T> {
    poll_fn(move |context| pod_span(&pod).in_scope(|| task.as_mut().poll(context)))
}
