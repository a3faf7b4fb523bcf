//! Whatever decodes as a pod, from an API server or from a manifest, is the same pod after it was written and read
//! again; defaulting it twice is defaulting it once; and validation has an answer to it.
#![no_main]

use crablet_api::core::Pod;
use crablet_api::document::Limits;
use crablet_api::validate::{ValidationFeatures, static_pod_from_manifest, validate_pod};
use crablet_api::{DefaultingFeatures, default_pod, from_json, to_json};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { bytes: 64 * 1024, ..Limits::MANIFEST };

fuzz_target!(|text: &str| {
    if text.len() > LIMITS.bytes {
        return;
    }
    let features = DefaultingFeatures::default();
    let _ = static_pod_from_manifest("text", text, &features, &ValidationFeatures::default(), |_| {});

    let Ok(mut pod) = from_json::<Pod>(text.as_bytes(), LIMITS) else { return };
    let written = to_json(&pod);
    let read: Pod = from_json(&written, Limits::MANIFEST).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(String::from_utf8_lossy(&to_json(&read)), String::from_utf8_lossy(&written));

    default_pod(&mut pod, &features);
    let once = to_json(&pod);
    default_pod(&mut pod, &features);
    assert_eq!(String::from_utf8_lossy(&to_json(&pod)), String::from_utf8_lossy(&once));
    validate_pod(&pod, &ValidationFeatures::default());
});
