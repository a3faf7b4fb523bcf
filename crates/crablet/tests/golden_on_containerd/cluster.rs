//! The cluster of the recordings.

#[allow(dead_code, reason = "what else the comparison of configurations needs")]
#[path = "../../../core/tests/golden/node.rs"]
mod node;
#[path = "../../../simulation/tests/golden/objects.rs"]
mod objects;

use std::path::Path;
use std::sync::Arc;

/// What was in it.
pub(crate) fn cluster() -> Arc<node::Cluster> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/data/golden/_objects.json");
    Arc::new(node::Cluster::read(&serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()))
}
