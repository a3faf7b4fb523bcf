//! The pod that is started and stopped.

/// The image of its container.
pub(crate) const IMAGE: &str = "crablet.test/busybox:1";
/// What its container runs: it ends at once when it is asked to.
pub(crate) const COMMAND: &str = "trap 'exit 0' TERM; while :; do sleep 0.01; done";

/// A pod with one container, whose image is there.
pub(crate) fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1\n\
         kind: Pod\n\
         metadata: {{name: {name}}}\n\
         spec:\n  \
           containers:\n  \
           - name: main\n    \
             image: {IMAGE}\n    \
             imagePullPolicy: Never\n    \
             command: [/bin/sh, -c, \"{COMMAND}\"]\n"
    )
}
