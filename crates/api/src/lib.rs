//! The Kubernetes objects the agent reads and writes, as lean types, and how they are decoded

pub mod document;

mod cidr;
mod cpuset;
mod duration;
mod names;
mod quantity;
mod taint;

pub use cidr::{Cidr, ParseCidrError};
pub use cpuset::{CpuSet, ParseCpuSetError};
pub use duration::{GoDuration, ParseDurationError, TimeOrGoDuration};
pub use names::{dns1123_label_errors, dns1123_subdomain_errors, label_value_errors, qualified_name_errors};
pub use quantity::{ParseQuantityError, Quantity, QuantityFormat};
pub use taint::{Taint, TaintEffect, TaintError};

mod parsed;
mod text_enum;

pub use parsed::Parsed;
