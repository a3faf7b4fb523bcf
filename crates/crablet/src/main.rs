//! The Kubernetes node agent.
fn main() {}
