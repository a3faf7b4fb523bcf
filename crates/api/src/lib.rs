//! The Kubernetes objects the agent reads and writes, as lean types, and how they are decoded.
//!
//! - [`core`], [`meta`], [`certificates`], [`coordination`], [`node`]: the objects, every field of Kubernetes 1.36.
//! - Values: [`Quantity`], [`GoDuration`], [`Taint`], [`CpuSet`], [`Cidr`], [`ImageReference`], [`IntOrString`], [`selector`], and [`resource_names`].
//! - [`from_json`] reads what an API server wrote, leniently; [`from_manifest`] what a person wrote, strictly;
//!   [`to_json`] writes; [`patch`] writes what changed.
//! - [`features`]: the feature gates, and which are on.
//! - [`default_pod`] and [`validate`]: what the API server does to a pod, for manifests that never meet one.
//! - [`PodRow`], [`human_duration`]: what `kubectl get pods` says of a pod, and how long ago.
//! - [`document`]: YAML and JSON as trees that know where each value was written.
//! - `testing`: pods in few words.

pub mod certificates;
pub mod coordination;
pub mod core;
pub mod document;
pub mod features;
pub mod meta;
pub mod node;
pub mod patch;
pub mod resource_names;
pub mod reviews;
pub mod selector;
pub mod storage;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod validate;

mod bytes;
mod cidr;
mod codec;
mod cpuset;
mod defaults;
mod duration;
mod human_duration;
mod image_reference;
mod int_or_string;
mod map;
mod names;
mod object;
mod one_of;
mod parsed;
mod pod_row;
mod quantity;
mod taint;
mod text;
mod text_enum;
mod word;

pub use bytes::Bytes;
pub use cidr::{Cidr, ParseCidrError};
pub use codec::{JsonError, ManifestError, from_json, from_manifest, to_json};
pub use cpuset::{CpuSet, ParseCpuSetError};
pub use defaults::default_pod;
pub use duration::{GoDuration, ParseDurationError, TimeOrGoDuration};
pub use features::{FeatureGates, Gate};
pub use human_duration::human_duration;
pub use image_reference::{ImageNameProblem, ImageReference};
pub use int_or_string::IntOrString;
pub use map::Map;
pub use names::{dns1123_label_errors, dns1123_subdomain_errors, label_value_errors, qualified_name_errors};
pub use object::Object;
pub use one_of::OneOf;
pub use parsed::Parsed;
pub use pod_row::PodRow;
pub use quantity::{ParseQuantityError, Quantity, QuantityFormat};
pub use taint::{Taint, TaintEffect, TaintError};
pub use text::Text;
pub use word::OtherWord;
#[doc(hidden)]
pub use word::read_word;
