//! The pod that is started and stopped.

/// The image of its container: one small program that waits, and ends at once when it is asked to.
pub(crate) const IMAGE: &str = "crablet.test/pause:1";

/// A pod with one container, whose image is there.
pub(crate) fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1\n\
         kind: Pod\n\
         metadata: {{name: {name}}}\n\
         spec: {{containers: [{{name: main, image: \"{IMAGE}\", imagePullPolicy: Never}}]}}\n"
    )
}

/// The same with two containers.
pub(crate) fn pod_of_two(name: &str) -> String {
    let container = |name: &str| format!("{{name: {name}, image: \"{IMAGE}\", imagePullPolicy: Never}}");
    format!(
        "apiVersion: v1\n\
         kind: Pod\n\
         metadata: {{name: {name}}}\n\
         spec: {{containers: [{}, {}]}}\n",
        container("main"),
        container("beside")
    )
}

/// The same whose container has more fields.
pub(crate) fn pod_with(name: &str, fields: &str) -> String {
    format!(
        "apiVersion: v1\n\
         kind: Pod\n\
         metadata: {{name: {name}}}\n\
         spec: {{containers: [{{name: main, image: \"{IMAGE}\", imagePullPolicy: Never, {fields}}}]}}\n"
    )
}
