//! [`Folder`]: what was last read from the directory of manifests, file by file.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crablet_api::Text;
use crablet_host::clock::Clock;

use super::look::{Look, Shape, Stamp, look, shape, unreadable};
use crate::adoption::Candidate;
use crate::sources::compare::mark;
use crate::sources::identity::Origin;
use crate::sources::manifest::{Made, read_pod};
use crate::sources::problems::{Consequence, Found};
use crate::sources::{Problems, SourceKind, StaticPods, Wanted};

/// The most files that are read from one directory.
const MOST_FILES: usize = 10_000;
/// Under what name problems of the path as a whole are kept.
const WHOLE: &str = "";

/// What was last read from a directory of manifests, or from one file.
pub(super) struct Folder {
    path: PathBuf,
    pods: StaticPods,
    problems: Problems,
    clock: Clock,
    shape: Shape,
    entries: BTreeMap<OsString, Entry>,
    /// Whether it could be told before what is there.
    was_read: bool,
    /// Whether something changed that was not told yet.
    is_news: bool,
    /// The UIDs of pods whose files were deleted since the last time that was told.
    forgotten: BTreeSet<Text>,
}

/// How sure it is that a broken file is not just being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// It was changed just now. What is broken is looked at once more before it is reported.
    MayBeWriting,
    /// It had its time.
    SayIt,
}

/// One file.
#[derive(Default)]
struct Entry {
    stamp: Option<Stamp>,
    /// What the file said when it last made sense.
    good: Option<Good>,
    /// What is wrong with what it says now.
    found: Vec<(u32, String)>,
    consequence: Option<Consequence>,
    /// The file that asks for the same pod and comes before it.
    duplicate_of: Option<OsString>,
    /// Whether its problems are to be told anew.
    is_news: bool,
}

struct Good {
    digest: Text,
    /// Whether the pod's UID is ours to give.
    is_ours: bool,
    wanted: Wanted,
}

impl Folder {
    pub(super) fn new(path: PathBuf, pods: StaticPods, problems: Problems, clock: Clock) -> Folder {
        let (shape, entries) = (Shape::Missing, BTreeMap::new());
        let forgotten = BTreeSet::new();
        Folder { path, pods, problems, clock, shape, entries, was_read: false, is_news: false, forgotten }
    }

    /// What the path is now.
    pub(super) fn shape(&self) -> Shape {
        shape(&self.path).unwrap_or(Shape::Other)
    }

    /// Looks at everything, and reads what has changed.
    pub(super) fn check_everything(&mut self) {
        let found = match shape(&self.path) {
            Ok(Shape::Directory) => match self.list() {
                Ok(names) => self.check_directory(names),
                Err(error) => Some(unreadable(&error)),
            },
            Ok(Shape::File) => {
                self.become_one(Shape::File);
                let name = self.path.file_name().unwrap_or_default().to_owned();
                self.check(&name, false, Haste::SayIt);
                None
            }
            Ok(Shape::Missing) => {
                self.become_one(Shape::Missing);
                Some("does not exist; pods are read from it as soon as it does".to_owned())
            }
            Ok(Shape::Other) => Some("is neither a directory nor a regular file".to_owned()),
            Err(error) => Some(unreadable(&error)),
        };
        let consequence = match self.entries.values().any(|entry| entry.good.is_some()) {
            true => Consequence::LastGoodKept,
            false => Consequence::Ignored,
        };
        let origin = self.path.display().to_string();
        let found = found.map(|message| Found { origin, line: 0, message });
        self.problems.set(SourceKind::File, WHOLE, consequence, found.into_iter().collect());
    }

    /// These files were deleted. One that is there again by now is another, though it may say the same.
    pub(super) fn forget(&mut self, names: &BTreeSet<OsString>) {
        for name in names {
            if let Some(good) = self.entries.get(name).and_then(|entry| entry.good.as_ref()) {
                self.forgotten.insert(good.wanted.pod.metadata.uid.clone());
            }
            self.remove(name);
        }
    }

    /// The UIDs of pods that ended meanwhile by being deleted, once.
    pub(super) fn forgotten(&mut self) -> BTreeSet<Text> {
        std::mem::take(&mut self.forgotten)
    }

    /// Reads these files again; the answer is those that are broken and may be in the middle of being written.
    pub(super) fn check_names(&mut self, names: &BTreeSet<OsString>, haste: Haste) -> BTreeSet<OsString> {
        match self.shape {
            Shape::Directory => names
                .iter()
                .filter(|name| !is_hidden(name) && self.check(name, true, haste))
                .cloned()
                .collect(),
            Shape::File => {
                let own = self.path.file_name().unwrap_or_default().to_owned();
                let is_own = names.contains(&own);
                // It may have become something else.
                if is_own && self.shape() != Shape::File {
                    self.check_everything();
                    return BTreeSet::new();
                }
                (is_own && self.check(&own, true, haste)).then_some(own).into_iter().collect()
            }
            Shape::Missing | Shape::Other => {
                self.check_everything();
                BTreeSet::new()
            }
        }
    }

    /// Whether there is another set of pods than was given out last. What is wrong with the files is told here.
    pub(super) fn has_news(&mut self) -> bool {
        if !std::mem::take(&mut self.is_news) {
            return false;
        }
        self.find_duplicates();
        self.tell_problems();
        // Where nothing is known of the one pod there is, that is not the same as there being none.
        self.shape != Shape::File || self.entries.values().all(|entry| entry.good.is_some())
    }

    /// The pods that another kubelet may have run under a UID of its own.
    pub(super) fn candidates(&mut self) -> Vec<Candidate<'_>> {
        let counted = self.entries.values_mut().filter(|entry| entry.duplicate_of.is_none());
        let good = counted.filter_map(|entry| Some((entry.stamp, entry.good.as_mut()?)));
        good.filter(|(_, good)| good.is_ours)
            .map(|(stamp, good)| Candidate {
                pod: &mut good.wanted.pod,
                digest: &good.digest,
                modified: stamp.and_then(|stamp| stamp.modified()),
            })
            .collect()
    }

    /// All pods.
    pub(super) fn wanted(&self) -> Vec<Wanted> {
        let wanted = self.entries.values().filter(|entry| entry.duplicate_of.is_none());
        wanted.filter_map(|entry| entry.good.as_ref()).map(|good| good.wanted.clone()).collect()
    }

    /// The names of the files, sorted.
    fn list(&self) -> io::Result<BTreeSet<OsString>> {
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if !is_hidden(&name) {
                names.insert(name);
            }
        }
        Ok(names)
    }

    /// The answer is what is wrong with the directory as a whole.
    fn check_directory(&mut self, mut names: BTreeSet<OsString>) -> Option<String> {
        self.become_one(Shape::Directory);
        let count = names.len();
        if let Some(first_beyond) = names.iter().nth(MOST_FILES).cloned() {
            names.split_off(&first_beyond);
        }
        let gone: Vec<OsString> =
            self.entries.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in gone {
            self.remove(&name);
        }
        for name in &names {
            self.check(name, false, Haste::SayIt);
        }
        let is_too_many = count > MOST_FILES;
        is_too_many.then(|| format!("has {count} files; the first {MOST_FILES} by name are read"))
    }

    /// What was read from something else does not count any more.
    fn become_one(&mut self, shape: Shape) {
        if self.shape != shape {
            let names: Vec<OsString> = self.entries.keys().cloned().collect();
            names.iter().for_each(|name| self.remove(name));
            self.shape = shape;
        }
        // Also where there is nothing: that nothing is wanted is worth knowing the first time.
        self.is_news |= !std::mem::replace(&mut self.was_read, true);
    }

    /// Looks at one file; the answer is whether it is broken and may be in the middle of being written. What is
    /// `forced` is read even where it seems to be the same: two changes can be too close for the clock of a disk.
    fn check(&mut self, name: &OsStr, forced: bool, haste: Haste) -> bool {
        if !self.entries.contains_key(name) && self.entries.len() >= MOST_FILES {
            return false;
        }
        let path = match self.shape {
            Shape::File => self.path.clone(),
            Shape::Directory | Shape::Missing | Shape::Other => self.path.join(name),
        };
        let known = self.entries.get(name).and_then(|entry| entry.stamp).filter(|_| !forced);
        let place = path.display().to_string();
        match look(&path, known) {
            Look::Gone => self.remove(name),
            Look::Same => {}
            Look::Bad(stamp, why) => self.set_bad(name, stamp, vec![(0, why)]),
            Look::Content(stamp, content) => {
                let origin = Origin { source: SourceKind::File, place: &place };
                match read_pod(&self.pods, origin, &content) {
                    Ok((made, remarks)) => self.set_good(name, stamp, &place, made, remarks),
                    Err(_) if haste == Haste::MayBeWriting => return true,
                    Err(found) => self.set_bad(name, Some(stamp), lines(found)),
                }
            }
        }
        false
    }

    fn set_good(&mut self, name: &OsStr, stamp: Stamp, place: &str, made: Made, remarks: Vec<Found>) {
        let now = format!("{:.9}", self.clock.now());
        let entry = self.entries.entry(name.to_owned()).or_default();
        entry.stamp = Some(stamp);
        entry.found = lines(remarks);
        entry.consequence = Some(Consequence::Noted);
        entry.is_news = true;
        self.is_news = true;
        // Who only touched the file or wrote a comment wants the same pod. It also keeps a UID that was adopted.
        if entry.good.as_ref().is_none_or(|good| good.digest != made.digest) {
            let is_ours = made.has_our_uid();
            let mut pod = made.pod;
            mark(&mut pod, SourceKind::File, &now);
            let wanted = Wanted { pod: Arc::new(pod), origin: place.into() };
            entry.good = Some(Good { digest: made.digest, is_ours, wanted });
        }
    }

    fn set_bad(&mut self, name: &OsStr, stamp: Option<Stamp>, found: Vec<(u32, String)>) {
        let entry = self.entries.entry(name.to_owned()).or_default();
        if entry.stamp == stamp && entry.found == found {
            return;
        }
        entry.stamp = stamp;
        entry.found = found;
        entry.consequence = Some(match entry.good {
            Some(_) => Consequence::LastGoodKept,
            None => Consequence::Ignored,
        });
        entry.is_news = true;
        self.is_news = true;
    }

    fn remove(&mut self, name: &OsStr) {
        if self.entries.remove(name).is_some() {
            self.is_news = true;
            self.problems.forget(SourceKind::File, &key(name));
        }
    }

    /// Of files that ask for the same pod, the first by name counts.
    fn find_duplicates(&mut self) {
        let mut first = BTreeMap::<(Text, Text), OsString>::new();
        for (name, entry) in &mut self.entries {
            let Some(good) = &entry.good else { continue };
            let metadata = &good.wanted.pod.metadata;
            let pod = (metadata.namespace.clone(), metadata.name.clone());
            let duplicate_of = match first.entry(pod) {
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(name.clone());
                    None
                }
                std::collections::btree_map::Entry::Occupied(place) => Some(place.get().clone()),
            };
            entry.is_news |= entry.duplicate_of != duplicate_of;
            entry.duplicate_of = duplicate_of;
        }
    }

    fn tell_problems(&mut self) {
        for (name, entry) in &mut self.entries {
            if !std::mem::take(&mut entry.is_news) {
                continue;
            }
            let path = match self.shape {
                Shape::File => self.path.clone(),
                Shape::Directory | Shape::Missing | Shape::Other => self.path.join(name),
            };
            let origin = path.display().to_string();
            let mut consequence = entry.consequence.unwrap_or(Consequence::Ignored);
            let mut found = entry.found.clone();
            if let (Some(other), Some(good)) = (&entry.duplicate_of, &entry.good) {
                consequence = Consequence::Ignored;
                let (pod, other) = (good.wanted.pod.identity(), self.path.join(other));
                let message =
                    format!("asks for pod {pod}, and so does {}, which comes first by name", other.display());
                found.push((0, message));
            }
            let found =
                found.into_iter().map(|(line, message)| Found { origin: origin.clone(), line, message });
            let version = entry.stamp.map_or(0, |stamp| stamp.version());
            self.problems.set_version(SourceKind::File, &key(name), version, consequence, found.collect());
        }
    }
}

/// Files whose name begins with a dot are somebody's own, such as an editor's.
fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

fn key(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

fn lines(found: Vec<Found>) -> Vec<(u32, String)> {
    found.into_iter().map(|found| (found.line, found.message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder(path: &std::path::Path) -> Folder {
        Folder::new(path.to_owned(), StaticPods::new("node"), Problems::new(), Clock::system())
    }

    fn manifest(name: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
        )
    }

    fn news(folder: &mut Folder) -> Option<Vec<Wanted>> {
        folder.has_news().then(|| folder.wanted())
    }

    fn names(news: Option<Vec<Wanted>>) -> Option<Vec<String>> {
        news.map(|pods| pods.iter().map(|wanted| wanted.pod.metadata.name.to_string()).collect())
    }

    #[test]
    fn a_file_that_may_be_in_the_middle_of_being_written_is_not_complained_about_yet() {
        let directory = tempfile::tempdir().unwrap();
        let mut folder = folder(directory.path());
        folder.check_everything();
        assert_eq!(names(news(&mut folder)), Some(vec![]));
        let path = directory.path().join("a.yaml");
        let asked: BTreeSet<OsString> = ["a.yaml".into()].into();
        let text = manifest("a");

        fs::write(&path, &text[..30]).unwrap();
        assert_eq!(folder.check_names(&asked, Haste::MayBeWriting), asked);
        assert_eq!((names(news(&mut folder)), folder.problems.list()), (None, vec![]));
        fs::write(&path, &text).unwrap();
        assert_eq!(folder.check_names(&asked, Haste::MayBeWriting), BTreeSet::new());
        assert_eq!(names(news(&mut folder)), Some(vec!["a-node".to_owned()]));

        fs::write(&path, &text[..30]).unwrap();
        assert_eq!(folder.check_names(&asked, Haste::MayBeWriting), asked);
        assert_eq!((names(news(&mut folder)), folder.problems.list()), (None, vec![]));
        assert_eq!(folder.check_names(&asked, Haste::SayIt), BTreeSet::new());
        assert_eq!(names(news(&mut folder)), Some(vec!["a-node".to_owned()]));
        assert_eq!(folder.problems.list()[0].consequence, Consequence::LastGoodKept);
    }

    #[test]
    fn where_nothing_changed_nothing_is_read_or_told() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::write(directory.path().join(name), manifest(name)).unwrap();
        }
        fs::write(directory.path().join("bad"), "").unwrap();
        let mut folder = folder(directory.path());
        folder.check_everything();
        let first = news(&mut folder).unwrap();
        for _ in 0..3 {
            folder.check_everything();
            assert_eq!(names(news(&mut folder)), None);
        }
        // What did not change is the very same pod.
        fs::remove_file(directory.path().join("b")).unwrap();
        folder.check_everything();
        let second = news(&mut folder).unwrap();
        assert_eq!((first.len(), second.len()), (2, 1));
        assert!(Arc::ptr_eq(&first[0].pod, &second[0].pod));
    }

    #[test]
    fn a_pod_that_was_adopted_keeps_its_uid_when_its_file_is_touched() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.yaml");
        fs::write(&path, manifest("a")).unwrap();
        fs::write(directory.path().join("b.yaml"), manifest("b").replace("{name: b}", "{name: b, uid: own}"))
            .unwrap();
        let mut folder = folder(directory.path());
        let uid = |folder: &mut Folder| news(folder).unwrap()[0].pod.metadata.uid.to_string();
        folder.check_everything();
        // A UID that a manifest gives itself is nobody's to change.
        let [candidate] = &mut *folder.candidates() else { panic!("one of them") };
        Arc::make_mut(candidate.pod).metadata.uid = "adopted".into();
        assert_eq!(uid(&mut folder), "adopted");
        fs::write(&path, format!("# Touched.\n{}", manifest("a"))).unwrap();
        folder.check_everything();
        assert_eq!(uid(&mut folder), "adopted");
        fs::write(&path, manifest("a").replace("image: i", "image: j")).unwrap();
        folder.check_everything();
        assert_ne!(uid(&mut folder), "adopted");
    }

    #[test]
    fn more_files_than_are_read_are_mentioned() {
        let directory = tempfile::tempdir().unwrap();
        for index in 0..=MOST_FILES {
            fs::write(directory.path().join(format!("{index:05}")), "").unwrap();
        }
        let mut folder = folder(directory.path());
        folder.check_everything();
        assert_eq!(folder.entries.len(), MOST_FILES);
        let told = format!("has {} files; the first {MOST_FILES} by name are read", MOST_FILES + 1);
        assert!(folder.problems.list().iter().any(|problem| problem.message == told));
    }
}
