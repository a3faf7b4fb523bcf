//! The kubelet's configuration: what can be set, how it is put together, and what it may not say.
//!
//! ```text
//!  --config ──► document ─┐
//!  --config-dir/*.conf ───┼─ merge ─► one tree ─► decode ─► defaults ─► validate ─► Effective
//!  flags ──► flags table ─┘        (values know their places)
//! ```
//!
//! - [`KubeletConfiguration`]: the typed fields, and their defaults.
//! - [`FLAGS`]: every flag of the kubelet, as a table.
//! - [`load`]: puts it all together and reports everything that is wrong, with file, line and field.

mod acted_on;
mod defaults;
mod files;
mod flags;
mod gates;
mod kubelet_configuration;
mod load;
mod print;
mod thresholds;
mod validate;
mod words;

pub use defaults::{DEVIATIONS, Deviation, PARALLEL_IMAGE_PULLS};
pub use flags::{FLAGS, Flag, Kind, KubeletFlags, Target};
pub use gates::GateError;
pub use kubelet_configuration::*;
pub use load::{ConfigError, Effective, GivenFlag, load};
pub use thresholds::{Percentage, Threshold};
pub use validate::Invalid;
pub use words::*;
