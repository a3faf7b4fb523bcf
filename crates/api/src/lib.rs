//! The Kubernetes objects the agent reads and writes, as lean types, and how they are decoded

pub mod coordination;
pub mod core;
pub mod document;
pub mod meta;
pub mod node;
pub mod patch;
pub mod selector;
pub mod testing;
pub mod validate;

mod bytes;
mod cidr;
mod codec;
mod cpuset;
mod defaults;
mod duration;
mod int_or_string;
mod map;
mod names;
mod object;
mod one_of;
mod quantity;
mod taint;

pub use bytes::Bytes;
pub use cidr::{Cidr, ParseCidrError};
pub use codec::{JsonError, ManifestError, from_json, from_manifest, to_json};
pub use cpuset::{CpuSet, ParseCpuSetError};
pub use defaults::{DefaultingFeatures, default_pod};
pub use duration::{GoDuration, ParseDurationError, TimeOrGoDuration};
pub use int_or_string::IntOrString;
pub use map::Map;
pub use names::{dns1123_label_errors, dns1123_subdomain_errors, label_value_errors, qualified_name_errors};
pub use object::Object;
pub use one_of::OneOf;
pub use quantity::{ParseQuantityError, Quantity, QuantityFormat};
pub use taint::{Taint, TaintEffect, TaintError};

mod parsed;
mod text;
mod text_enum;
mod word;

pub use parsed::Parsed;
pub use text::Text;
pub use word::OtherWord;
