use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use proptest::prelude::*;

use super::*;

fn file(content: &str) -> ProjectedFile {
    ProjectedFile { content: content.as_bytes().to_vec(), mode: 0o644, user: None }
}

fn payload(files: &[(&str, &str)]) -> Payload {
    Payload::new(files.iter().map(|(path, content)| ((*path).to_owned(), file(content))).collect()).unwrap()
}

fn now() -> Timestamp {
    "2026-01-31T23:59:59.123456789Z".parse().unwrap()
}

fn put(directory: &Path, payload: &Payload) -> Written {
    write(directory, payload, now(), || Ok(())).unwrap()
}

/// Everything in the directory: versions as `..time`, links with their targets.
fn listing(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            match fs::read_link(entry.path()) {
                Ok(to) => format!("{name} -> {}", to.display()),
                Err(_) => name,
            }
        })
        .collect();
    names.sort();
    names
}

fn read(directory: &Path, path: &str) -> Option<String> {
    fs::read_to_string(directory.join(path)).ok()
}

#[test]
fn files_are_shown_by_links_through_the_version_in_force() {
    let place = tempfile::tempdir().unwrap();
    let written = put(place.path(), &payload(&[("labels", "a"), ("sub/one", "b"), ("./sub//two", "c")]));
    assert_eq!(written, Written::Changed);
    let version = "..2026_01_31_23_59_59.123456789";
    assert_eq!(
        listing(place.path()),
        [version, &format!("..data -> {version}"), "labels -> ..data/labels", "sub -> ..data/sub"]
    );
    assert_eq!(read(place.path(), "labels").as_deref(), Some("a"));
    assert_eq!(read(place.path(), "sub/two").as_deref(), Some("c"));
    assert_eq!(fs::metadata(place.path().join(version)).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn what_is_unchanged_is_not_written_again() {
    let place = tempfile::tempdir().unwrap();
    let same = payload(&[("a", "1"), ("b/c", "2")]);
    put(place.path(), &same);
    let before = (listing(place.path()), fs::symlink_metadata(place.path().join("..data")).unwrap().ino());
    let own = || panic!("nothing new to give to anybody");
    assert_eq!(write(place.path(), &same, now(), own).unwrap(), Written::Unchanged);
    let after = (listing(place.path()), fs::symlink_metadata(place.path().join("..data")).unwrap().ino());
    assert_eq!(before, after);
    for changed in [
        payload(&[("a", "1"), ("b/c", "3")]),
        payload(&[("a", "1")]),
        payload(&[("a", "1"), ("d", "2")]),
        payload(&[]),
    ] {
        assert_eq!(put(place.path(), &changed), Written::Changed);
        assert_eq!(put(place.path(), &changed), Written::Unchanged);
    }
}

#[test]
fn what_somebody_else_made_of_the_files_is_not_read_and_not_followed() {
    let place = tempfile::tempdir().unwrap();
    let same = payload(&[("a", "1"), ("b/c", "2")]);
    let check = |tamper: &dyn Fn(&Path)| {
        put(place.path(), &same);
        tamper(&place.path().join(fs::read_link(place.path().join("..data")).unwrap()));
        assert_eq!(put(place.path(), &same), Written::Changed);
        assert_eq!(read(place.path(), "a").as_deref(), Some("1"));
    };
    // A hole: it takes neither room nor time to make. To read it would take both.
    check(&|version| File::options().write(true).open(version.join("a")).unwrap().set_len(20 << 30).unwrap());
    check(&|version| {
        fs::remove_file(version.join("a")).unwrap();
        symlink("/dev/zero", version.join("a")).unwrap();
    });
    check(&|version| {
        fs::remove_file(version.join("a")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, version.join("a"), 0o600.into()).unwrap();
    });
    check(&|version| fs::write(version.join("b/more"), "").unwrap());
    // Where another volume is mounted in the container there is a directory.
    put(place.path(), &same);
    fs::create_dir_all(place.path().join("b/nested/deeper")).unwrap();
    assert_eq!(put(place.path(), &same), Written::Unchanged);
}

#[test]
fn files_that_are_no_more_go_with_their_links() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), &payload(&[("a", "1"), ("b/c", "2")]));
    put(place.path(), &payload(&[("d", "3")]));
    let names: Vec<String> =
        listing(place.path()).into_iter().filter(|name| !name.starts_with("..")).collect();
    assert_eq!(names, ["d -> ..data/d"]);
    assert_eq!(listing(place.path()).len(), 3, "one version is kept");
}

#[test]
fn modes_and_owners_are_set_whatever_the_umask() {
    let place = tempfile::tempdir().unwrap();
    let one = ProjectedFile { content: Vec::new(), mode: 0o777, user: Some(1234) };
    let two = ProjectedFile { content: Vec::new(), mode: 0o400, user: None };
    let files = BTreeMap::from([("one".to_owned(), one), ("two".to_owned(), two)]);
    put(place.path(), &Payload::new(files).unwrap());
    let seen = |name: &str| {
        let metadata = fs::metadata(place.path().join(name)).unwrap();
        (metadata.uid(), metadata.mode() & 0o7777)
    };
    assert_eq!((seen("one"), seen("two").1), ((1234, 0o777), 0o400));
    assert_eq!(fs::symlink_metadata(place.path().join("one")).unwrap().uid(), 1234);
}

#[test]
fn what_a_crash_left_is_cleaned_up_and_in_nobodys_way() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), &payload(&[("a", "1")]));
    // Killed while writing, before the rename, and after it.
    fs::create_dir(place.path().join("..2026_01_01_00_00_00.1")).unwrap();
    symlink("..2026_01_01_00_00_00.1", place.path().join("..data_tmp")).unwrap();
    symlink("..data/gone", place.path().join("gone")).unwrap();
    fs::remove_file(place.path().join("a")).unwrap();
    // Not the writer's.
    fs::create_dir(place.path().join("nested")).unwrap();
    symlink("elsewhere", place.path().join("foreign")).unwrap();
    put(place.path(), &payload(&[("a", "2"), ("nested/b", "3")]));
    let names = listing(place.path());
    assert_eq!(names.len(), 5, "{names:?}");
    assert_eq!(names[2..], ["a -> ..data/a", "foreign -> elsewhere", "nested"]);
    assert_eq!(read(place.path(), "a").as_deref(), Some("2"));
}

#[test]
fn a_version_that_somebody_removed_is_made_again() {
    let place = tempfile::tempdir().unwrap();
    let same = payload(&[("a", "1")]);
    put(place.path(), &same);
    fs::remove_dir_all(place.path().join(fs::read_link(place.path().join("..data")).unwrap())).unwrap();
    assert_eq!(put(place.path(), &same), Written::Changed);
    assert_eq!(read(place.path(), "a").as_deref(), Some("1"));
}

#[test]
fn new_files_have_their_owner_before_anybody_sees_them() {
    let place = tempfile::tempdir().unwrap();
    let own = || {
        assert!(!place.path().join("..data").exists());
        Err(failed("chown", place.path())(io::Error::other("no")))
    };
    assert!(write(place.path(), &payload(&[("a", "1")]), now(), own).is_err());
    assert!(!place.path().join("..data").exists());
    put(place.path(), &payload(&[("a", "1")]));
    assert_eq!(listing(place.path()).len(), 3, "the version that was not finished is gone");
}

#[test]
fn paths_that_lead_elsewhere_are_refused_in_upstreams_words() {
    let long = "x".repeat(256);
    let longer = "a/".repeat(2049);
    for (path, expected) in [
        ("", "invalid path: must not be empty: \"\""),
        ("/a", "invalid path: must be relative path: /a"),
        ("..", "invalid path: must not contain '..': .."),
        ("a/../b", "invalid path: must not contain '..': a/../b"),
        ("..a", "invalid path: must not start with '..': ..a"),
        ("./..data", "invalid path: must not start with '..': ./..data"),
        (long.as_str(), "invalid path: filenames must be less than or equal to 255 characters"),
        (longer.as_str(), "invalid path: must be less than or equal to 4096 characters"),
        (".", "invalid path: must not be empty: \"\""),
    ] {
        let error = Payload::new(BTreeMap::from([(path.to_owned(), file(""))])).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let both = BTreeMap::from([("a".to_owned(), file("")), ("a/b".to_owned(), file(""))]);
    assert_eq!(Payload::new(both).unwrap_err(), PayloadError::Both("a".to_owned()));
    assert!(Payload::new(BTreeMap::from([("a/..b".to_owned(), file(""))])).is_ok());
}

fn list_files(version: &Path, below: &Path, found: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(version.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => list_files(version, &path, found)?,
            false => _ = found.insert(path),
        }
    }
    Ok(())
}

/// What a reader gets who opens the version once and reads all in it.
fn snapshot(directory: &Path) -> Option<BTreeMap<PathBuf, Vec<u8>>> {
    let version = directory.join(fs::read_link(directory.join(DATA)).ok()?);
    let mut found = BTreeSet::new();
    list_files(&version, Path::new(""), &mut found).ok()?;
    let mut read = BTreeMap::new();
    for path in found {
        let content = fs::read(version.join(&path)).ok()?;
        read.insert(path, content);
    }
    // One that is no longer in force may have been swept away in part: the reader looks again, as real ones do.
    (directory.join(fs::read_link(directory.join(DATA)).ok()?) == version).then_some(read)
}

fn any_payload() -> impl Strategy<Value = Payload> {
    let name = prop_oneof!["[ab]", "[ab]x", "c/[ab]", "c/d/[ab]"];
    proptest::collection::btree_map(name, "[xyz]{0,3}", 0..5).prop_map(|files| {
        let files = files.into_iter().map(|(path, content)| (path, file(&content)));
        Payload::new(files.collect()).unwrap()
    })
}

fn contents(payload: &Payload) -> BTreeMap<PathBuf, Vec<u8>> {
    payload.files.iter().map(|(path, file)| (path.clone(), file.content.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_concurrent_reader_sees_one_version_and_never_a_mixture(
        payloads in proptest::collection::vec(any_payload(), 2..12)
    ) {
        let place = tempfile::tempdir().unwrap();
        let allowed: Vec<_> = payloads.iter().map(contents).collect();
        put(place.path(), &payloads[0]);
        let mut mixtures = Vec::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for (seconds, payload) in payloads.iter().cycle().take(payloads.len() * 4).enumerate() {
                    let later = now() + jiff::SignedDuration::from_secs(seconds.try_into().unwrap());
                    write(place.path(), payload, later, || Ok(())).unwrap();
                    assert_eq!(snapshot(place.path()), Some(contents(payload)), "what was written is shown");
                }
            });
            while !writer.is_finished() {
                mixtures.extend(snapshot(place.path()).filter(|seen| !allowed.contains(seen)));
            }
            writer.join().unwrap();
        });
        prop_assert!(mixtures.is_empty(), "{:?}", mixtures);
    }

    #[test]
    fn what_readers_see_is_the_payload_and_nothing_else(payloads in proptest::collection::vec(any_payload(), 1..5)) {
        let place = tempfile::tempdir().unwrap();
        for payload in &payloads {
            put(place.path(), payload);
            let visible: BTreeSet<String> =
                listing(place.path()).into_iter().filter(|name| !name.starts_with("..")).collect();
            let expected: BTreeSet<String> = payload
                .visible()
                .keys()
                .map(|name| format!("{0} -> ..data/{0}", name.to_str().unwrap()))
                .collect();
            prop_assert_eq!(visible, expected);
            for (path, file) in &payload.files {
                prop_assert_eq!(&fs::read(place.path().join(path)).unwrap(), &file.content);
            }
        }
    }

    #[test]
    fn no_path_that_is_accepted_leads_out(path in "[a./]{1,8}") {
        if let Ok(payload) = Payload::new(BTreeMap::from([(path, file("x"))])) {
            let place = tempfile::tempdir().unwrap();
            let volume = place.path().join("volume");
            fs::create_dir(&volume).unwrap();
            put(&volume, &payload);
            prop_assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
            for path in payload.files.keys() {
                prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
            }
        }
    }
}
