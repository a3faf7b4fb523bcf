use std::os::unix::fs::symlink;

use crablet_host::mounts::{Tmpfs, bind, mount_tmpfs};

use super::*;
use crate::testing::Place;

const EMPTY: &str = "pods/uid/volumes/kubernetes.io~empty-dir";

fn torn_down(place: &Place) -> Result<(), TearDownError> {
    tear_down(&Places::new(place.path()), "uid", Part::All, Method::Kernel)
}

#[test]
fn everything_is_unmounted_and_removed_whoever_made_it() {
    let place = Place::new();
    let memory = place.directory(&format!("{EMPTY}/memory"));
    mount_tmpfs(&memory, Tmpfs::default()).unwrap();
    mount_tmpfs(&memory, Tmpfs::default()).unwrap();
    place.directory(&format!("{EMPTY}/memory/below"));
    bind(&place.directory("elsewhere"), &memory.join("below"), false).unwrap();
    fs::write(place.directory(&format!("{EMPTY}/disk")).join("file"), "x").unwrap();
    fs::write(place.directory("pods/uid/plugins/kubernetes.io~empty-dir/disk").join("ready"), "").unwrap();
    let target = place.directory("pods/uid/volume-subpaths/v/c/0");
    bind(&place.path().join(EMPTY).join("disk"), &target, false).unwrap();
    let server = place.directory("pods/uid/volumes/kubernetes.io~nfs/server");
    mount_tmpfs(&server, Tmpfs::default()).unwrap();
    fs::write(server.join("remote"), "x").unwrap();
    place.directory("pods/uid/containers/c");
    let other = place.directory("pods/uid2/volumes/kubernetes.io~empty-dir/v");
    mount_tmpfs(&other, Tmpfs::default()).unwrap();
    torn_down(&place).unwrap();
    assert_eq!(place.mounts(), [other], "another pod whose name begins alike is left alone");
    let left: Vec<_> = fs::read_dir(place.path().join("pods/uid"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["containers"], "the rest of the pod's directory is not ours");
    torn_down(&place).unwrap();
}

#[test]
fn the_table_is_read_only_where_something_is_mounted_or_there_is_too_much_to_look_at() {
    let place = Place::new();
    let volume = place.directory(&format!("{EMPTY}/v"));
    let pod = mounts::resolved(&place.path().join("pods/uid")).unwrap();
    let readings = std::cell::Cell::new(0);
    let unmounted = || {
        readings.set(0);
        let read = || {
            readings.set(readings.get() + 1);
            read_table()
        };
        unmount_all(&pod, None, read).unwrap();
        readings.get()
    };
    assert_eq!(unmounted(), 0);
    mount_tmpfs(&volume, Tmpfs::default()).unwrap();
    assert_eq!(unmounted(), 1);
    assert!(place.mounts().is_empty());
    for number in 0..FEW_PLACES {
        fs::write(volume.join(number.to_string()), "").unwrap();
    }
    assert_eq!(unmounted(), 1);
}

#[test]
fn nothing_to_take_away_is_fine_and_a_name_that_leads_elsewhere_is_not() {
    let place = Place::new();
    torn_down(&place).unwrap();
    place.directory("pods/uid");
    torn_down(&place).unwrap();
    for bad in ["", "..", "a/b"] {
        let error = tear_down(&Places::new(place.path()), bad, Part::All, Method::Kernel).unwrap_err();
        assert!(matches!(error, TearDownError::Uid(_)), "{error:?}");
    }
}

#[test]
fn a_busy_mount_is_an_error_and_keeps_what_is_behind_it() {
    let place = Place::new();
    let precious = place.directory("precious");
    fs::write(precious.join("file"), "content").unwrap();
    let volume = place.directory(&format!("{EMPTY}/v"));
    let inner = place.directory(&format!("{EMPTY}/v/inner"));
    let other = place.directory(&format!("{EMPTY}/other"));
    bind(&precious, &inner, false).unwrap();
    mount_tmpfs(&other, Tmpfs::default()).unwrap();
    let open = fs::File::open(inner.join("file")).unwrap();
    let error = torn_down(&place).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot unmount {}: device or resource busy", inner.display()));
    assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "content");
    assert_eq!(place.mounts(), [inner], "the others are gone");
    assert!(volume.exists() && other.exists(), "nothing is removed while something is mounted");
    drop(open);
    torn_down(&place).unwrap();
    assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "content");
    assert!(!volume.exists());
}

#[test]
fn what_an_unknown_plugin_left_is_not_emptied() {
    let place = Place::new();
    let volume = place.directory("pods/uid/volumes/kubernetes.io~csi/v");
    fs::write(volume.join("vol_data.json"), "{}").unwrap();
    let error = torn_down(&place).unwrap_err();
    assert!(matches!(&error, TearDownError::Foreign(path) if *path == volume), "{error:?}");
    assert!(volume.join("vol_data.json").exists());
}

#[test]
fn a_root_directory_behind_a_link_is_found_in_the_mount_table() {
    let place = Place::new();
    place.directory("real");
    symlink("real", place.path().join("root")).unwrap();
    let volume = place.directory(&format!("root/{EMPTY}/v"));
    mount_tmpfs(&volume, Tmpfs::default()).unwrap();
    tear_down(&Places::new(place.path().join("root")), "uid", Part::All, Method::Kernel).unwrap();
    assert!(place.mounts().is_empty());
    assert!(!volume.exists());
}

#[test]
fn what_takes_long_gets_help_and_what_does_not_gets_none() {
    let (help, helped) = mpsc::channel();
    let work = || helped.recv().unwrap();
    assert_eq!(
        unless_it_takes(Duration::from_millis(1), work, move || help.send("aborted").unwrap()),
        "aborted"
    );
    assert_eq!(unless_it_takes(Duration::MAX, || "done", || panic!("nobody needs help")), "done");
}
