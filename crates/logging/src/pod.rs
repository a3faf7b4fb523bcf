//! How a pod is named in the log.

/// A span that adds `pod="namespace/name" uid="…"` to every line logged inside it.
///
/// Work on a pod runs inside such a span, so that its log lines name the pod without each of them saying so.
pub fn pod_span(namespace: &str, name: &str, uid: &str) -> tracing::Span {
    tracing::info_span!("pod", pod = %format_args!("{namespace}/{name}"), uid)
}
