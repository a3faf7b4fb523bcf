use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;
use crate::testing::Place;

const METHODS: [Method; 2] = [Method::Kernel, Method::PartByPart];

fn volume(place: &Place) -> PathBuf {
    let volume = place.directory("volume");
    place.directory("volume/a/b");
    place.directory("outside/b");
    fs::write(volume.join("a/file"), "").unwrap();
    fs::write(place.path().join("outside/file"), "").unwrap();
    volume
}

fn opened(base: &Base, path: &str) -> Result<u64, Refused> {
    base.place(Path::new(path)).map(|place| rustix::fs::fstat(place).unwrap().st_ino)
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn links_are_followed_within_the_directory_and_not_out_of_it() {
    for method in METHODS {
        let place = Place::new();
        let volume = volume(&place);
        symlink("a", volume.join("within")).unwrap();
        symlink("../a/b", volume.join("a/up-and-down")).unwrap();
        symlink(volume.join("a"), volume.join("from-the-root")).unwrap();
        symlink("../outside", volume.join("out")).unwrap();
        symlink(place.path().join("outside"), volume.join("out-from-the-root")).unwrap();
        symlink("/proc/self/root", volume.join("magic")).unwrap();
        symlink("nowhere", volume.join("broken")).unwrap();
        symlink("loop", volume.join("loop")).unwrap();
        let base = Base::open(&volume, method).unwrap();
        for (path, expected) in [
            (".", Ok(inode(&volume))),
            ("a", Ok(inode(&volume.join("a")))),
            ("a/b", Ok(inode(&volume.join("a/b")))),
            ("a/file", Ok(inode(&volume.join("a/file")))),
            ("within/b", Ok(inode(&volume.join("a/b")))),
            ("a/up-and-down", Ok(inode(&volume.join("a/b")))),
            ("from-the-root/file", Ok(inode(&volume.join("a/file")))),
            ("out", Err(Refused::Outside)),
            ("out/file", Err(Refused::Outside)),
            ("out-from-the-root/b", Err(Refused::Outside)),
            ("magic", Err(Refused::Outside)),
            ("loop", Err(Refused::Outside)),
            ("broken", Err(Refused::Missing)),
            ("missing/more", Err(Refused::Missing)),
            ("a/file/below", Err(Refused::Failed(Errno::NOTDIR))),
        ] {
            assert_eq!(opened(&base, path), expected, "{method:?} {path}");
        }
    }
}

/// Swaps a directory for a link to another, as fast as it can, while `look` runs.
fn racing(place: &Place, look: impl FnOnce(&Path)) {
    let volume = volume(place);
    symlink("../outside", volume.join("link")).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (directory, link) = (volume.join("a"), volume.join("link"));
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &directory, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        look(&volume);
        done.store(true, Ordering::Relaxed);
    });
}

/// Whether something outside was opened within so many tries.
fn escapes(method: Method, tries: usize) -> bool {
    let place = Place::new();
    let mut escaped = false;
    racing(&place, |volume| {
        let outside = inode(&place.path().join("outside/file"));
        let base = Base::open(volume, method).unwrap();
        escaped = (0..tries).any(|_| opened(&base, "a/file") == Ok(outside));
    });
    escaped
}

#[test]
fn a_directory_that_becomes_a_link_at_the_wrong_moment_leads_nowhere() {
    for method in METHODS {
        assert!(!escapes(method, 20_000), "{method:?}");
    }
}

#[test]
fn without_protection_the_race_is_lost() {
    assert!(escapes(Method::Unprotected, 5_000_000), "the test above would not notice a hole");
}

#[test]
fn in_a_race_what_is_within_is_still_found() {
    for method in METHODS {
        let place = Place::new();
        racing(&place, |volume| {
            let base = Base::open(volume, method).unwrap();
            assert!((0..100_000).any(|_| opened(&base, "a/file").is_ok()), "{method:?}");
        });
    }
}

#[test]
fn a_mount_of_the_same_file_system_is_told_apart() {
    for method in METHODS {
        let place = Place::new();
        place.directory("volume/a");
        let other = place.directory("other");
        crablet_host::mounts::bind(&other, &place.path().join("volume/a"), false).unwrap();
        place.directory("volume/b");
        let parent = rustix::fs::open(place.path().join("volume"), OFlags::RDONLY, Mode::empty()).unwrap();
        assert_eq!(open_on_same_mount(&parent, c"a", method).unwrap_err(), Errno::XDEV);
        assert!(open_on_same_mount(&parent, c"b", method).is_ok());
    }
}
