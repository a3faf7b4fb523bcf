//! The stand-in with real directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crablet_csi::stand_in::{Directories, Fault, Moment, Settings, StandIn};
use crablet_csi::{Driver, Node as _, PublishVolume, StageVolume};
use crablet_host::mounts::{UnmountMode, is_mount_point, unmount};

use crate::support::{NAME, World};

/// Where a volume is staged and published; nothing is mounted there when the test is over.
struct Places {
    staging: PathBuf,
    target: PathBuf,
}

impl Places {
    fn new(world: &World) -> Places {
        let root = world.root().canonicalize().unwrap();
        let places = Places { staging: root.join("staging"), target: root.join("pod/mount") };
        fs::create_dir(&places.staging).unwrap();
        fs::create_dir(root.join("pod")).unwrap();
        places
    }

    fn stage(&self) -> StageVolume {
        StageVolume {
            volume_id: "../vol".to_owned(),
            staging_target_path: text(&self.staging),
            ..StageVolume::default()
        }
    }

    fn publish(&self) -> PublishVolume {
        PublishVolume {
            volume_id: "../vol".to_owned(),
            staging_target_path: text(&self.staging),
            target_path: text(&self.target),
            read_only: true,
            ..PublishVolume::default()
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for place in [&self.target, &self.staging] {
            let _ = unmount(place, UnmountMode::Detach);
        }
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_volume_is_a_directory_that_is_bound_where_it_is_wanted() {
    let world = World::new();
    let places = Places::new(&world);
    let directories = Arc::new(Directories::new(&world.root().join("data")));
    let stand_in = StandIn::new(Settings::new(NAME), directories.clone());
    stand_in.start(&world.driver_socket(NAME), None).unwrap();
    let driver = Driver::new(&world.driver_socket(NAME));

    let error = driver.publish(places.publish()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "rpc error: code = FailedPrecondition desc = the volume is not staged",
        "never published before staged"
    );
    for _ in 0..2 {
        driver.stage(places.stage()).await.unwrap();
        driver.publish(places.publish()).await.unwrap();
    }
    fs::write(directories.data("../vol").join("file"), "kept").unwrap();
    assert_eq!(fs::read_to_string(places.target.join("file")).unwrap(), "kept");
    assert!(fs::write(places.target.join("file"), "").is_err(), "it is read-only");
    fs::write(places.staging.join("file"), "kept too").unwrap();

    for _ in 0..2 {
        driver.unpublish("../vol", &text(&places.target)).await.unwrap();
        driver.unstage("../vol", &text(&places.staging)).await.unwrap();
    }
    assert!(!places.target.exists() && fs::read_dir(&places.staging).unwrap().next().is_none());
    assert_eq!(fs::read_to_string(directories.data("../vol").join("file")).unwrap(), "kept too");
}

#[tokio::test]
async fn a_driver_that_dies_after_the_effect_leaves_the_mount() {
    let world = World::new();
    let places = Places::new(&world);
    let stand_in = StandIn::new(Settings::new(NAME), Arc::new(Directories::new(&world.root().join("data"))));
    stand_in.start(&world.driver_socket(NAME), None).unwrap();
    let driver = Driver::new(&world.driver_socket(NAME));
    for (moment, is_mounted) in [(Moment::BeforeEffect, false), (Moment::AfterEffect, true)] {
        stand_in.plan("NodeStageVolume", Fault::die(moment));
        assert!(!driver.stage(places.stage()).await.unwrap_err().is_final());
        assert_eq!(is_mount_point(&places.staging).unwrap(), is_mounted);
        stand_in.start_again().unwrap();
    }
}
