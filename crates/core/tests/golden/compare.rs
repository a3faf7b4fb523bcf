//! Recordings, and what of ours is not as it was recorded.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

/// Where recordings are: `GOLDEN_DIR`, or else those that the project has.
pub fn directory() -> PathBuf {
    match std::env::var_os("GOLDEN_DIR") {
        Some(directory) => directory.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/data/golden"),
    }
}

/// Whether the recordings are those that the project has.
pub fn are_our_own() -> bool {
    std::env::var_os("GOLDEN_DIR").is_none()
}

/// The files of a directory that are recordings of a pod each.
pub fn recordings(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with('_'))
        .collect();
    paths.sort();
    paths
}

/// A file of JSON.
pub fn read(path: &Path) -> Json {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Something that is not as it was recorded.
#[derive(Debug, Clone)]
pub struct Problem {
    pub recording: String,
    pub place: String,
    pub recorded: Json,
    pub ours: Json,
}

impl Problem {
    /// Whether it is a difference that is known: the recording, where in it, and why.
    pub fn is(&self, (recording, place, _): &(&str, &str, &str)) -> bool {
        self.recording == *recording && self.place == *place
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Problem { recording, place, recorded, ours } = self;
        write!(formatter, "{recording}: {place}\n    recorded: {recorded}\n    ours:     {ours}")
    }
}

/// What is compared with a recording, and what came of it.
pub struct Comparison<'a> {
    recording: &'a str,
    pub problems: Vec<Problem>,
}

impl Comparison<'_> {
    /// With the recording of this name.
    pub fn with(recording: &str) -> Comparison<'_> {
        Comparison { recording, problems: Vec::new() }
    }

    /// Compares field by field.
    pub fn compare(&mut self, place: &str, recorded: &Json, ours: &Json) {
        match (recorded, ours) {
            (Json::Object(recorded), Json::Object(ours)) => {
                let mut names: Vec<&String> = recorded.keys().chain(ours.keys()).collect();
                names.sort();
                names.dedup();
                for name in names {
                    let get = |fields: &serde_json::Map<String, Json>| {
                        fields.get(name).cloned().unwrap_or_default()
                    };
                    self.compare(&format!("{place}.{name}"), &get(recorded), &get(ours));
                }
            }
            // Go takes the options of a resolver out of a hash map.
            (Json::Array(recorded), Json::Array(ours)) if place.ends_with(".dnsConfig.options") => {
                let sorted = |list: &[Json]| {
                    let mut list: Vec<String> = list.iter().map(ToString::to_string).collect();
                    list.sort();
                    list
                };
                if sorted(recorded) != sorted(ours) {
                    self.problem(place, &recorded.clone().into(), &ours.clone().into());
                }
            }
            (Json::Array(recorded), Json::Array(ours)) if recorded.len() == ours.len() => {
                for (index, (recorded, ours)) in recorded.iter().zip(ours).enumerate() {
                    self.compare(&format!("{place}[{index}]"), recorded, ours);
                }
            }
            (recorded, ours) if recorded == ours => {}
            (recorded, ours) => self.problem(place, recorded, ours),
        }
    }

    /// Notes that something is not as it was recorded.
    pub fn problem(&mut self, place: &str, recorded: &Json, ours: &Json) {
        self.problems.push(Problem {
            recording: self.recording.to_owned(),
            place: place.to_owned(),
            recorded: recorded.clone(),
            ours: ours.clone(),
        });
    }
}

/// A container's configuration with its variables as a map: their order is random in the recordings.
pub fn with_variables_as_a_map(mut container: Json) -> Json {
    if let Some(list) = container["envs"].as_array() {
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let map = list.iter().map(|one| (text(&one["key"]), Json::from(text(&one["value"]))));
        container["envs"] = Json::Object(map.collect());
    }
    container
}
