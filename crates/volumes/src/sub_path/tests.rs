use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;
use crate::testing::Place;

fn wanted(place: &Place, index: usize, path: &str) -> SubPath {
    SubPath {
        uid: "uid".to_owned(),
        container: "c".to_owned(),
        index,
        volume: "v".to_owned(),
        volume_path: place.directory("volume"),
        path: path.to_owned(),
    }
}

fn prepared(place: &Place, wanted: &SubPath) -> Result<PathBuf, SubPathError> {
    prepare(&Places::new(place.path()), wanted, Method::Kernel)
}

fn said(result: Result<PathBuf, SubPathError>) -> (String, String) {
    let error = result.unwrap_err();
    (error.to_string(), std::error::Error::source(&error).unwrap().to_string())
}

#[test]
fn a_directory_and_a_file_are_mounted_where_upstream_has_them() {
    let place = Place::new();
    place.directory("volume/a");
    fs::write(place.path().join("volume/a/file"), "x").unwrap();
    let directory = prepared(&place, &wanted(&place, 0, "a")).unwrap();
    assert_eq!(directory, place.path().join("pods/uid/volume-subpaths/v/c/0"));
    assert_eq!(fs::read_to_string(directory.join("file")).unwrap(), "x");
    let file = prepared(&place, &wanted(&place, 1, "./a//file")).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "x");
    fs::write(&file, "y").unwrap();
    assert_eq!(fs::read_to_string(place.path().join("volume/a/file")).unwrap(), "y");
    assert_eq!(place.mounts().len(), 2);
}

#[test]
fn a_second_time_mounts_nothing_more_and_another_part_takes_the_place() {
    let place = Place::new();
    place.directory("volume/a");
    place.directory("volume/b");
    fs::write(place.path().join("volume/file"), "x").unwrap();
    let first = prepared(&place, &wanted(&place, 0, "a")).unwrap();
    assert_eq!(prepared(&place, &wanted(&place, 0, "a")).unwrap(), first);
    assert_eq!(place.mounts().len(), 1);
    fs::write(place.path().join("volume/b/new"), "").unwrap();
    prepared(&place, &wanted(&place, 0, "b")).unwrap();
    assert!(first.join("new").exists());
    assert_eq!(place.mounts().len(), 1);
    prepared(&place, &wanted(&place, 0, "file")).unwrap();
    assert_eq!(fs::read_to_string(&first).unwrap(), "x");
    prepared(&place, &wanted(&place, 0, "a")).unwrap();
    assert!(first.is_dir());
    assert_eq!(place.mounts(), [first]);
}

#[test]
fn what_is_missing_is_made_with_the_permissions_of_the_volume() {
    let place = Place::new();
    let volume = place.directory("volume");
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o2777)).unwrap();
    std::os::unix::fs::chown(&volume, None, Some(4321)).unwrap();
    fs::create_dir(volume.join("there")).unwrap();
    fs::set_permissions(volume.join("there"), fs::Permissions::from_mode(0o700)).unwrap();
    let target = prepared(&place, &wanted(&place, 0, "there/a/b")).unwrap();
    for (path, expected) in [("there", 0o700), ("there/a", 0o2777), ("there/a/b", 0o2777)] {
        assert_eq!(fs::metadata(volume.join(path)).unwrap().mode() & 0o7777, expected, "{path}");
    }
    assert_eq!(fs::metadata(target).unwrap().ino(), fs::metadata(volume.join("there/a/b")).unwrap().ino());
}

#[test]
fn a_link_within_the_volume_is_followed_as_the_atomic_writer_needs_it() {
    let place = Place::new();
    let version = place.directory("volume/..2026");
    fs::write(version.join("labels"), "x").unwrap();
    symlink("..2026", place.path().join("volume/..data")).unwrap();
    symlink("..data/labels", place.path().join("volume/labels")).unwrap();
    let file = prepared(&place, &wanted(&place, 0, "labels")).unwrap();
    assert_eq!(fs::read_to_string(file).unwrap(), "x");
}

#[test]
fn errors_are_upstreams_and_say_nothing_of_the_nodes_files() {
    let place = Place::new();
    let volume = place.directory("volume");
    symlink("/etc", volume.join("out")).unwrap();
    symlink("nowhere", volume.join("broken")).unwrap();
    fs::write(volume.join("file"), "").unwrap();
    let not_prepared = "failed to prepare subPath for volumeMount \"v\" of container \"c\"";
    let not_created = "failed to create subPath directory for volumeMount \"v\" of container \"c\"";
    for (path, expected) in [
        ("out", not_prepared),
        ("out/passwd", not_prepared),
        ("../outside", not_prepared),
        ("/etc", not_prepared),
        ("file/below", not_prepared),
        ("broken", not_created),
        ("broken/more", not_created),
    ] {
        let (message, cause) = said(prepared(&place, &wanted(&place, 0, path)));
        assert_eq!(message, expected, "{path}: {cause}");
    }
    let (_, cause) = said(prepared(&place, &wanted(&place, 0, "out")));
    assert_eq!(cause, format!("\"out\" leads out of the volume {}", volume.display()));
    let mut elsewhere = wanted(&place, 0, "file");
    elsewhere.container = "../c".to_owned();
    assert_eq!(said(prepared(&place, &elsewhere)).1, "\"../c\" cannot be the name of a directory");
    assert!(place.mounts().is_empty());
}

#[test]
fn in_a_volume_that_is_only_read_what_is_there_is_found_and_nothing_is_made() {
    let place = Place::new();
    let volume = place.directory("volume");
    mounts::mount_tmpfs(&volume, mounts::Tmpfs::default()).unwrap();
    place.directory("volume/there");
    mounts::remount_bind_read_only(&volume).unwrap();
    let target = prepared(&place, &wanted(&place, 0, "there")).unwrap();
    assert!(fs::write(target.join("file"), "").is_err(), "the part is only read too");
    let (message, cause) = said(prepared(&place, &wanted(&place, 1, "missing")));
    assert_eq!(message, "failed to create subPath directory for volumeMount \"v\" of container \"c\"");
    assert!(cause.ends_with("read-only file system"), "{cause}");
}

/// Whether something outside was mounted for a container while a directory was swapped for a link, within so many tries.
fn escapes(method: Method, tries: usize) -> bool {
    let place = Place::new();
    let volume = place.directory("volume");
    place.directory("volume/a/part");
    let outside = place.directory("outside/part");
    symlink("../outside", volume.join("link")).unwrap();
    let outside = fs::metadata(outside).unwrap().ino();
    let places = Places::new(place.path());
    let done = AtomicBool::new(false);
    let mut escaped = false;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (directory, link) = (volume.join("a"), volume.join("link"));
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &directory, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        escaped = (0..tries).any(|_| {
            let target = prepare(&places, &wanted(&place, 0, "a/part"), method);
            target.is_ok_and(|target| fs::metadata(target).unwrap().ino() == outside)
        });
        done.store(true, Ordering::Relaxed);
    });
    escaped
}

#[test]
fn a_container_that_races_the_mount_gets_nothing_of_the_node() {
    assert!(!escapes(Method::Kernel, 1500));
    assert!(!escapes(Method::PartByPart, 1500));
}

#[test]
fn without_protection_the_container_wins_the_race() {
    assert!(escapes(Method::Unprotected, 1_000_000), "the test above would not notice a hole");
}

#[test]
fn a_container_that_races_the_making_makes_nothing_outside() {
    for method in [Method::Kernel, Method::PartByPart] {
        let place = Place::new();
        let volume = place.directory("volume");
        place.directory("volume/a");
        let outside = place.directory("outside");
        symlink("../outside", volume.join("link")).unwrap();
        let places = Places::new(place.path());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (directory, link) = (volume.join("a"), volume.join("link"));
                while !done.load(Ordering::Relaxed) {
                    renameat_with(CWD, &directory, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            for number in 0..500 {
                let _ = prepare(&places, &wanted(&place, 0, &format!("a/new{number}")), method);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read_dir(outside).unwrap().count(), 0, "{method:?}");
    }
}
