//! What names a pod on the lines of the log that are about it.

use crablet_api::core::Pod;
use tracing::Span;

/// A span for whatever is done for a pod: every line inside it carries the pod and its UID.
pub(crate) fn pod_span(pod: &Pod) -> Span {
    let metadata = &pod.metadata;
    crablet_logging::pod_span(&metadata.namespace, &metadata.name, &metadata.uid)
}
