//! Metrics: a registry, and the Prometheus text format 0.0.4.
//!
//! A metric is registered once, by name, and gives a handle that is cheap to clone and to update: an `Arc` of
//! atomics. A metric with labels is a [`Family`], from which [`Family::with`] gives the handle for one set of
//! label values; whoever updates it often keeps that handle. Values that are only known when asked for come from
//! [`Registry::gauge_fn`] or, for many at once, [`Registry::collector`].
//!
//! A node has one [`Registries`], which every part that counts something is given when it is made.
//!
//! Names are written as given and in order, so that two scrapes of the same state are the same text.

mod buckets;
mod error;
mod family;
mod info;
mod page;
mod process;
mod registry;
mod text;
mod value;

pub use buckets::{DEFAULT_BUCKETS, exponential_buckets, exponential_buckets_range, linear_buckets};
pub use error::RegisterError;
pub use family::{Family, MAX_LABEL_SETS};
pub use info::{BuildInfo, register_build_info, register_features};
pub use page::{PAGE_CONTENT_TYPE, Page, push_label};
pub use process::{boot_time, process_start_time, register_process_metrics, register_process_start_time};
pub use registry::{Registries, Registry, Samples};
pub use text::Kind;
pub use value::{Counter, Gauge, Histogram};
