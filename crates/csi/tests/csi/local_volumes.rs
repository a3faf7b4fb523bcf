//! The stand-in with real directories and devices.

use std::fs;
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crablet_csi::stand_in::{Fault, LocalVolumes, Moment, Settings, StandIn};
use crablet_csi::{
    Access, AccessMode, Driver, ExpandVolume, Node as _, PublishVolume, StageVolume, VolumeCapability,
};
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
    let volumes = Arc::new(LocalVolumes::new(&world.root().join("data")));
    let stand_in = StandIn::new(Settings::new(NAME), volumes.clone());
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
    fs::write(volumes.data("../vol").join("file"), "kept").unwrap();
    assert_eq!(fs::read_to_string(places.target.join("file")).unwrap(), "kept");
    assert!(fs::write(places.target.join("file"), "").is_err(), "it is read-only");
    fs::write(places.staging.join("file"), "kept too").unwrap();

    for _ in 0..2 {
        driver.unpublish("../vol", &text(&places.target)).await.unwrap();
        driver.unstage("../vol", &text(&places.staging)).await.unwrap();
    }
    assert!(!places.target.exists() && fs::read_dir(&places.staging).unwrap().next().is_none());
    assert_eq!(fs::read_to_string(volumes.data("../vol").join("file")).unwrap(), "kept too");
}

#[tokio::test]
async fn a_driver_that_dies_after_the_effect_leaves_the_mount() {
    let world = World::new();
    let places = Places::new(&world);
    let stand_in = StandIn::new(Settings::new(NAME), Arc::new(LocalVolumes::new(&world.root().join("data"))));
    stand_in.start(&world.driver_socket(NAME), None).unwrap();
    let driver = Driver::new(&world.driver_socket(NAME));
    for (moment, is_mounted) in [(Moment::BeforeEffect, false), (Moment::AfterEffect, true)] {
        stand_in.plan("NodeStageVolume", Fault::die(moment));
        assert!(!driver.stage(places.stage()).await.unwrap_err().is_final());
        assert_eq!(is_mount_point(&places.staging).unwrap(), is_mounted);
        stand_in.start_again().unwrap();
    }
}

#[tokio::test]
async fn a_volume_that_is_a_block_device_is_bound_as_one_and_grows() {
    let world = World::new();
    let places = Places::new(&world);
    let volumes = Arc::new(LocalVolumes::new(&world.root().join("data")));
    let stand_in = StandIn::new(Settings::new(NAME), volumes.clone());
    stand_in.start(&world.driver_socket(NAME), None).unwrap();
    let driver = Driver::new(&world.driver_socket(NAME));
    let block = || VolumeCapability { access: Access::Block, access_mode: AccessMode::SingleNodeWriter };
    let publish = || PublishVolume { capability: block(), read_only: false, ..places.publish() };
    assert!(driver.publish(publish()).await.unwrap_err().to_string().contains("not staged"));
    for _ in 0..2 {
        driver.stage(StageVolume { capability: block(), ..places.stage() }).await.unwrap();
        driver.publish(publish()).await.unwrap();
    }
    assert!(fs::metadata(&places.target).unwrap().file_type().is_block_device());
    let size = || fs::File::open(&places.target).unwrap().seek(SeekFrom::End(0)).unwrap();
    assert_eq!(size(), 64 << 20);
    let expand = ExpandVolume {
        volume_id: "../vol".to_owned(),
        volume_path: text(&places.target),
        required_bytes: 128 << 20,
        capability: block(),
        ..ExpandVolume::default()
    };
    assert_eq!(driver.expand(expand).await, Ok(128 << 20));
    assert_eq!(size(), 128 << 20);
    for _ in 0..2 {
        driver.unpublish("../vol", &text(&places.target)).await.unwrap();
        driver.unstage("../vol", &text(&places.staging)).await.unwrap();
    }
    assert!(!places.target.exists() && volumes.image("../vol").exists());
}
