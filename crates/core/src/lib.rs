//! Pure decisions. Functions from plain data to plain data: no I/O, no clock, no async, no logging.

pub mod admission;
pub mod adoption;
pub mod backoff;
pub mod container_gc;
pub mod declared_features;
pub mod eviction;
/// The hash by which a running container is recognised.
pub mod hash;
pub mod image_gc;
pub mod kill;
/// The labels and annotations by which sandboxes and containers are found again.
pub mod labels;
pub mod node_allocatable;
pub mod observed;
pub mod oom;
pub mod plan;
/// What a pod's own cgroup allows.
pub mod pod_cgroup;
pub mod preemption;
pub mod probes;
/// How a pod is treated when resources run short, and how much it asks for in all.
pub mod qos;
pub mod resize;
pub mod restart;
pub mod shutdown;
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
/// What a pod and its containers are made from, in the runtime's terms.
pub mod translate;
pub mod user_ids;
