//! A registry and a runtime's images that do what a test says.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use crablet_cri::{Error, ImagePull};
use crablet_cri_api::{Image, v1};
use tokio::time::sleep;
use tonic::Code;

use super::error::ServiceError;
use super::service::ImageService;

/// The images, and what was asked about them.
#[derive(Default)]
pub(super) struct FakeImages(Mutex<State>);

#[derive(Default)]
struct State {
    present: BTreeMap<String, Image>,
    pulls: BTreeMap<String, Script>,
    broken: Option<String>,
    loses: bool,
    looks_take: Duration,
    running: usize,
    most_running: usize,
    pulled: Vec<(String, Option<String>)>,
    cancelled: usize,
}

/// How the pulls of an image go: how long they take, and how they fail, in turn. Then they succeed.
#[derive(Debug, Clone, Default)]
struct Script {
    takes: Duration,
    failures: VecDeque<String>,
}

impl FakeImages {
    pub(super) fn new() -> Arc<FakeImages> {
        let images = FakeImages::default();
        images.looks_take(1);
        Arc::new(images)
    }

    pub(super) fn has(&self, name: &str) {
        self.change(|state| _ = state.present.insert(name.to_owned(), image(name)));
    }

    /// Pulls of an image take so many seconds.
    pub(super) fn takes(&self, name: &str, seconds: u64) {
        self.change(|state| {
            state.pulls.entry(name.to_owned()).or_default().takes = Duration::from_secs(seconds);
        });
    }

    /// The next pull of an image fails.
    pub(super) fn fails(&self, name: &str, error: &str) {
        self.change(|state| {
            state.pulls.entry(name.to_owned()).or_default().failures.push_back(error.to_owned());
        });
    }

    /// The runtime cannot say what is there.
    pub(super) fn is_broken(&self, error: &str) {
        self.change(|state| state.broken = Some(error.to_owned()));
    }

    /// What is pulled is not there afterwards.
    pub(super) fn loses_what_is_pulled(&self) {
        self.change(|state| state.loses = true);
    }

    /// From now on it takes so many milliseconds to say what was there when it was asked.
    pub(super) fn looks_take(&self, milliseconds: u64) {
        self.change(|state| state.looks_take = Duration::from_millis(milliseconds));
    }

    /// The pulls that began, with the names of whose credentials they had.
    pub(super) fn pulled(&self) -> Vec<(String, Option<String>)> {
        self.0.lock().unwrap().pulled.clone()
    }

    pub(super) fn count(&self, name: &str) -> usize {
        self.pulled().iter().filter(|(image, _)| image == name).count()
    }

    pub(super) fn most_running(&self) -> usize {
        self.0.lock().unwrap().most_running
    }

    pub(super) fn cancelled(&self) -> usize {
        self.0.lock().unwrap().cancelled
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }
}

/// The answer of a runtime that says this, in its own words or in those of a client in Go.
pub(super) fn error(text: &str) -> Error {
    let codes = [("NotFound", Code::NotFound), ("Internal", Code::Internal)];
    let coded = text.strip_prefix("rpc error: code = ").and_then(|rest| rest.split_once(" desc = "));
    let coded = coded.map(|(name, message)| (codes.iter().find(|code| code.0 == name).unwrap().1, message));
    let (code, message) = coded.unwrap_or((Code::Unknown, text));
    Error::Answer { method: "Image", code, message: message.to_owned() }
}

fn image(name: &str) -> Image {
    Image {
        id: format!("id of {name}"),
        repo_tags: vec![name.to_owned()],
        repo_digests: Vec::new(),
        size: 1234,
        user: None,
        pinned: false,
    }
}

#[async_trait]
impl ImageService for FakeImages {
    async fn status(&self, spec: &v1::ImageSpec) -> Result<Option<Image>, ServiceError> {
        let (seen, looks_take) = self.change(|state| {
            let seen = match &state.broken {
                Some(text) => Err(ServiceError::Inspect(error(text))),
                None => Ok(state.present.get(&spec.image).cloned()),
            };
            (seen, state.looks_take)
        });
        // Meanwhile other things happen, and what was seen may be so no longer.
        sleep(looks_take).await;
        seen
    }

    async fn list(&self) -> Result<Vec<Image>, ServiceError> {
        Ok(self.change(|state| state.present.values().cloned().collect()))
    }

    async fn pull(&self, pull: ImagePull) -> Result<String, ServiceError> {
        let name = pull.image.image;
        let script = self.change(|state| {
            state.running += 1;
            state.most_running = state.most_running.max(state.running);
            state.pulled.push((name.clone(), pull.auth.map(|auth| auth.username)));
            let script = state.pulls.entry(name.clone()).or_default();
            let now = script.clone();
            script.failures.pop_front();
            now
        });
        let mut running = Running { images: self, is_done: false };
        sleep(script.takes).await;
        running.is_done = true;
        assert!(!name.contains("panic"), "the test wants it");
        match script.failures.front() {
            Some(text) => Err(ServiceError::Pull(error(text))),
            None => Ok(self.change(|state| {
                let image = image(&name);
                let id = image.id.clone();
                if !state.loses {
                    state.present.insert(name, image);
                }
                id
            })),
        }
    }
}

struct Running<'a> {
    images: &'a FakeImages,
    is_done: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.images.change(|state| {
            state.running -= 1;
            state.cancelled += usize::from(!self.is_done);
        });
    }
}
