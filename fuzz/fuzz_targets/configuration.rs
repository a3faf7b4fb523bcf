//! What decodes as a kubelet's configuration is the same configuration after it was written and read again.
#![no_main]

use crablet_api::document::{Limits, decode, parse, write_yaml};
use crablet_config::KubeletConfiguration;
use libfuzzer_sys::fuzz_target;

#[path = "../loss.rs"]
mod loss;

const LIMITS: Limits = Limits { bytes: 64 * 1024, ..Limits::MANIFEST };

fuzz_target!(|text: &str| {
    let Some(configuration) = read(text, LIMITS) else { return };
    if loss::has_unwritable_quantity(&configuration) {
        return;
    }
    let json = serde_json::to_value(&configuration).expect("a configuration can be written as JSON");
    let from_json: KubeletConfiguration =
        serde_json::from_value(json.clone()).unwrap_or_else(|error| panic!("{error}: {json}"));
    assert_eq!(from_json, configuration);

    // JSON is YAML, but for long keys and control characters.
    let json = json.to_string();
    let limits = Limits { bytes: usize::MAX, ..LIMITS };
    let Ok((tree, problems)) = parse("json", &json, limits) else { return };
    assert!(problems.is_empty(), "{problems:?}: {json}");
    let (from_tree, unknown) =
        decode::<KubeletConfiguration>(&tree).unwrap_or_else(|error| panic!("{error}: {json}"));
    assert!(unknown.is_empty(), "{unknown:?}: {json}");
    assert_eq!(from_tree, configuration);

    let yaml = write_yaml(&tree, &|_| None);
    assert_eq!(read(&yaml, limits).as_ref(), Some(&configuration), "{yaml}");
});

fn read(text: &str, limits: Limits) -> Option<KubeletConfiguration> {
    let (tree, _) = parse("text", text, limits).ok()?;
    Some(decode(&tree).ok()?.0)
}
