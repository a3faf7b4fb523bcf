//! Images: what a test says of one, and the store of those that the runtime has.

use std::collections::{BTreeMap, BTreeSet};

use crablet_cri_api::v1;

use super::program::Program;
use super::random::Random;
use super::reference::{Reference, is_digest};

/// An image, as a test describes it. Without a [`Program`] of its own, its containers run the small shell of the
/// simulator: see [`shell`](super::shell).
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    pub(crate) name: String,
    /// What its ID follows from; its name where it is empty.
    content: String,
    pub(crate) size: u64,
    pub(crate) user: String,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) cmd: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) stop_signal: String,
    pub(crate) program: Option<Program>,
    pub(crate) pinned: bool,
    /// Whether programs that the small shell does not know run until they are stopped.
    pub(crate) runs_anything: bool,
    /// The name and the password that its registry asks for.
    pub(crate) private_to: Option<(String, String)>,
}

impl Image {
    pub fn new(name: impl Into<String>) -> Image {
        Image {
            name: name.into(),
            content: String::new(),
            size: 1 << 20,
            user: String::new(),
            entrypoint: Vec::new(),
            cmd: Vec::new(),
            env: Vec::new(),
            stop_signal: String::new(),
            program: None,
            pinned: false,
            runs_anything: false,
            private_to: None,
        }
    }

    /// Lets its registry ask for this name and this password.
    pub fn private_to(mut self, username: &str, password: &str) -> Image {
        self.private_to = Some((username.to_owned(), password.to_owned()));
        self
    }

    /// Lets its containers run programs that the small shell does not know: they run until they are stopped, and a
    /// command of theirs that is run in the container succeeds. It then has an entrypoint too, if it had none.
    pub fn running_anything(mut self) -> Image {
        self.runs_anything = true;
        if self.entrypoint.is_empty() && self.cmd.is_empty() {
            self.entrypoint = vec!["/entrypoint".to_owned()];
        }
        self
    }

    /// Whether its registry gives it to who has this.
    pub(crate) fn admits(&self, auth: Option<&v1::AuthConfig>) -> bool {
        self.private_to.as_ref().is_none_or(|(username, password)| {
            auth.is_some_and(|auth| auth.username == *username && auth.password == *password)
        })
    }

    /// What its containers do, whatever their command is.
    pub fn program(mut self, program: Program) -> Image {
        self.program = Some(program);
        self
    }

    /// The user to run as: a number or a name, and a group after a colon.
    pub fn user(mut self, user: &str) -> Image {
        self.user = user.to_owned();
        self
    }

    /// The program to run, and its first arguments.
    pub fn entrypoint<Word: Into<String>>(mut self, words: impl IntoIterator<Item = Word>) -> Image {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// The arguments that follow the entrypoint, unless the container has its own.
    pub fn cmd<Word: Into<String>>(mut self, words: impl IntoIterator<Item = Word>) -> Image {
        self.cmd = words.into_iter().map(Into::into).collect();
        self
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Image {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The signal that asks its containers to stop, such as `SIGQUIT`.
    pub fn stop_signal(mut self, signal: &str) -> Image {
        self.stop_signal = signal.to_owned();
        self
    }

    /// What is in it: images with the same content are one image, whatever their names are. An image of which nothing
    /// is said has a content of its own.
    pub fn content(mut self, content: &str) -> Image {
        self.content = content.to_owned();
        self
    }

    pub fn size(mut self, bytes: u64) -> Image {
        self.size = bytes;
        self
    }

    /// Marks it as one that must not be removed to make room.
    pub fn pinned(mut self) -> Image {
        self.pinned = true;
        self
    }

    pub fn id(&self) -> String {
        format!("sha256:{}", Random::of_text(&self.identity()).id())
    }

    fn manifest_digest(&self) -> String {
        format!("sha256:{}", Random::of_text(&format!("{} manifest", self.identity())).id())
    }

    fn identity(&self) -> String {
        if self.content.is_empty() { self.full_name() } else { format!("content {}", self.content) }
    }

    fn full_name(&self) -> String {
        Reference::parse(&self.name).map_or_else(|_| self.name.clone(), |reference| reference.to_string())
    }

    /// What a container of this image runs when it is made with this command and these arguments.
    pub(crate) fn command(&self, command: &[String], args: &[String]) -> Vec<String> {
        let (entrypoint, args) = match (command, args) {
            ([], []) => (self.entrypoint.as_slice(), self.cmd.as_slice()),
            ([], args) => (self.entrypoint.as_slice(), args),
            (command, args) => (command, args),
        };
        [entrypoint, args].concat()
    }
}

/// An image that the runtime has.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) id: String,
    pub(crate) image: Image,
    tags: BTreeSet<String>,
    digests: BTreeSet<String>,
}

impl Stored {
    pub(crate) fn first_tag(&self) -> Option<&String> {
        self.tags.first()
    }

    pub(crate) fn first_digest(&self) -> Option<&String> {
        self.digests.first()
    }

    pub(crate) fn to_cri(&self) -> v1::Image {
        let user = self.image.user.split(':').next().unwrap_or_default();
        let number = user.parse().ok();
        v1::Image {
            id: self.id.clone(),
            repo_tags: self.tags.iter().cloned().collect(),
            repo_digests: self.digests.iter().cloned().collect(),
            size: self.image.size,
            uid: number.map(|value| v1::Int64Value { value }),
            username: if number.is_some() { String::new() } else { user.to_owned() },
            spec: None,
            pinned: self.image.pinned,
        }
    }
}

/// Why an image was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unresolved {
    NotFound,
    Ambiguous,
}

/// The images that the runtime has.
#[derive(Debug, Default)]
pub(crate) struct Images {
    by_id: BTreeMap<String, Stored>,
    by_reference: BTreeMap<String, String>,
}

impl Images {
    /// Adds an image as if it had been imported: it has a tag and no digest.
    pub(crate) fn import(&mut self, image: Image) {
        let Ok(reference) = Reference::parse(&image.name) else { return };
        self.add(image, &reference, None);
    }

    /// Adds an image as if it had been pulled by this name, and gives its ID.
    pub(crate) fn pulled(&mut self, image: Image, reference: &Reference) -> String {
        let digest = match reference.digest() {
            Some(_) => reference.to_string(),
            None => format!("{}@{}", reference.repository, image.manifest_digest()),
        };
        self.add(image, reference, Some(digest))
    }

    fn add(&mut self, image: Image, reference: &Reference, digest: Option<String>) -> String {
        let id = image.id();
        let stored = self.by_id.entry(id.clone()).or_insert_with(|| Stored {
            id: id.clone(),
            image: image.clone(),
            tags: BTreeSet::new(),
            digests: BTreeSet::new(),
        });
        stored.image = image;
        if reference.digest().is_none() {
            stored.tags.insert(reference.to_string());
            if let Some(other) = self.by_reference.insert(reference.to_string(), id.clone())
                && other != id
                && let Some(other) = self.by_id.get_mut(&other)
            {
                other.tags.remove(&reference.to_string());
            }
        }
        if let Some(digest) = digest
            && let Some(stored) = self.by_id.get_mut(&id)
        {
            self.by_reference.insert(digest.clone(), id.clone());
            stored.digests.insert(digest);
        }
        id
    }

    /// Finds an image by a name, an ID, or the beginning of one.
    pub(crate) fn resolve(&self, text: &str) -> Result<&Stored, Unresolved> {
        if !is_digest(text)
            && let Ok(reference) = Reference::parse(text)
            && let Some(stored) =
                self.by_reference.get(&reference.to_string()).and_then(|id| self.by_id.get(id))
        {
            return Ok(stored);
        }
        let prefix = if text.starts_with("sha256:") { text.to_owned() } else { format!("sha256:{text}") };
        let mut matching = self
            .by_id
            .range(prefix.clone()..)
            .take_while(|(id, _)| id.starts_with(&prefix))
            .map(|(_, stored)| stored);
        match (matching.next(), matching.next()) {
            (None, _) => Err(Unresolved::NotFound),
            (Some(stored), None) => Ok(stored),
            (Some(_), Some(_)) => Err(Unresolved::Ambiguous),
        }
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Stored> {
        self.by_id.get(id)
    }

    pub(crate) fn remove(&mut self, id: &str) {
        self.by_id.remove(id);
        self.by_reference.retain(|_, other| other != id);
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Stored> {
        self.by_id.values()
    }
}

/// The image that a registry has by this name: the last that was added.
pub(crate) fn in_registry<'a>(registry: &'a [Image], wanted: &Reference) -> Option<&'a Image> {
    registry.iter().rev().find(|image| match (Reference::parse(&image.name), wanted.digest()) {
        (Ok(reference), None) => reference == *wanted,
        (Ok(reference), Some(digest)) => {
            reference.repository == wanted.repository && image.manifest_digest() == digest
        }
        (Err(_), _) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_found_by_name_id_and_the_beginning_of_its_id() {
        let mut images = Images::default();
        images.import(Image::new("busybox:1"));
        images.import(Image::new("other:1"));
        let id = Image::new("busybox:1").id();
        for text in ["busybox:1", "docker.io/library/busybox:1", &id, &id[7..], &id[7..20], &id[..20]] {
            assert_eq!(images.resolve(text).map(|stored| stored.id.as_str()), Ok(id.as_str()), "{text}");
        }
        assert_eq!(images.resolve("nope").err(), Some(Unresolved::NotFound));
        assert_eq!(images.resolve("").err(), Some(Unresolved::Ambiguous));
        images.remove(&id);
        assert_eq!(images.resolve("busybox:1").err(), Some(Unresolved::NotFound));
    }

    #[test]
    fn only_a_pulled_image_has_a_digest() {
        let mut images = Images::default();
        images.import(Image::new("busybox:1").user("1000:5"));
        let imported = images.resolve("busybox:1").unwrap().to_cri();
        assert_eq!(imported.repo_tags, ["docker.io/library/busybox:1"]);
        assert!(imported.repo_digests.is_empty());
        assert_eq!(imported.uid, Some(v1::Int64Value { value: 1000 }));

        let reference = Reference::parse("busybox:1").unwrap();
        images.pulled(Image::new("busybox:1").user("nobody"), &reference);
        let pulled = images.resolve("busybox:1").unwrap().to_cri();
        assert_eq!(pulled.repo_digests.len(), 1);
        assert!(pulled.repo_digests[0].starts_with("docker.io/library/busybox@sha256:"));
        assert_eq!((pulled.uid, pulled.username.as_str()), (None, "nobody"));
        assert_eq!(images.resolve(&pulled.repo_digests[0]).unwrap().id, pulled.id);
        let by_digest = Reference::parse(&pulled.repo_digests[0]).unwrap();
        assert!(in_registry(&[Image::new("busybox:1")], &by_digest).is_some());
    }

    #[test]
    fn a_containers_command_replaces_the_entrypoint_and_its_arguments_the_cmd() {
        let image = Image::new("a").entrypoint(["e"]).cmd(["c"]);
        let words = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (command, args, expected) in [
            (&[][..], &[][..], &["e", "c"][..]),
            (&[], &["x"], &["e", "x"]),
            (&["y"], &[], &["y"]),
            (&["y"], &["x"], &["y", "x"]),
        ] {
            assert_eq!(image.command(&words(command), &words(args)), words(expected));
        }
    }
}
