//! What a driver is asked, and what its answers and errors mean.

use std::collections::BTreeMap;
use std::time::Duration;

use crablet_csi::stand_in::{Capability, Fault, Moment, Outcome, Settings};
use crablet_csi::{
    Access, AccessMode, Driver, Error, ExpandVolume, Node as _, NodeCapabilities, NodeInfo, PublishVolume,
    StageVolume, Usage, VolumeCapability, VolumeCondition, VolumeStats, v1,
};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tonic::Code;

use crate::support::{NAME, World, answered, soon};

fn map(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

fn ext4() -> VolumeCapability {
    let access = Access::Mount {
        fs_type: "ext4".to_owned(),
        mount_flags: vec!["noatime".to_owned()],
        volume_mount_group: Some(2000),
    };
    VolumeCapability { access, access_mode: AccessMode::SingleNodeWriter }
}

fn stage() -> StageVolume {
    StageVolume {
        volume_id: "vol".to_owned(),
        staging_target_path: "/staging".to_owned(),
        ..StageVolume::default()
    }
}

#[tokio::test]
async fn every_call_carries_what_it_is_given_and_its_deadline() {
    let world = World::new();
    let (stand_in, driver) = world.driver(Settings::new(NAME));
    driver
        .stage(StageVolume {
            capability: ext4(),
            publish_context: map("device", "/dev/sdb"),
            volume_context: map("tier", "fast"),
            secrets: map("password", "hunter2"),
            ..stage()
        })
        .await
        .unwrap();
    let block = VolumeCapability { access: Access::Block, access_mode: AccessMode::MultiNodeMultiWriter };
    driver
        .publish(PublishVolume {
            volume_id: "vol".to_owned(),
            staging_target_path: "/staging".to_owned(),
            target_path: "/target".to_owned(),
            capability: block,
            read_only: true,
            publish_context: map("device", "/dev/sdb"),
            volume_context: map("tier", "fast"),
            secrets: map("password", "hunter2"),
        })
        .await
        .unwrap();
    let expand = ExpandVolume {
        volume_id: "vol".to_owned(),
        volume_path: "/target".to_owned(),
        required_bytes: 2 << 30,
        capability: ext4(),
        ..ExpandVolume::default()
    };
    assert_eq!(driver.expand(expand).await, Ok(2 << 30));
    driver.stats("vol", "/target").await.unwrap();
    driver.unpublish("vol", "/target").await.unwrap();
    driver.unstage("vol", "/staging").await.unwrap();
    let mount = json!({
        "mount": {"fs_type": "ext4", "mount_flags": ["noatime"], "volume_mount_group": "2000"},
        "access_mode": {"mode": "SINGLE_NODE_WRITER"},
    });
    let expected = [
        json!({"call": "Node.NodeStageVolume", "answer": {}, "request": {
            "volume_id": "vol", "staging_target_path": "/staging", "volume_capability": mount,
            "publish_context": {"device": "/dev/sdb"}, "volume_context": {"tier": "fast"},
            "secrets": {"password": "hunter2"},
        }}),
        json!({"call": "Node.NodePublishVolume", "answer": {}, "request": {
            "volume_id": "vol", "staging_target_path": "/staging", "target_path": "/target", "readonly": true,
            "volume_capability": {"block": {}, "access_mode": {"mode": "MULTI_NODE_MULTI_WRITER"}},
            "publish_context": {"device": "/dev/sdb"}, "volume_context": {"tier": "fast"},
            "secrets": {"password": "hunter2"},
        }}),
        json!({"call": "Node.NodeExpandVolume", "answer": {"capacity_bytes": "2147483648"}, "request": {
            "volume_id": "vol", "volume_path": "/target", "capacity_range": {"required_bytes": "2147483648"},
            "volume_capability": mount,
        }}),
        json!({"call": "Node.NodeGetVolumeStats", "answer": {}, "request": {
            "volume_id": "vol", "volume_path": "/target",
        }}),
        json!({"call": "Node.NodeUnpublishVolume", "answer": {}, "request": {
            "volume_id": "vol", "target_path": "/target",
        }}),
        json!({"call": "Node.NodeUnstageVolume", "answer": {}, "request": {
            "volume_id": "vol", "staging_target_path": "/staging",
        }}),
    ];
    assert_eq!(answered(&stand_in, 6).await, expected);
    assert!(stand_in.calls().iter().all(|call| call.deadline == Some(Duration::from_secs(120))));
}

#[tokio::test]
async fn what_a_driver_says_of_itself_and_its_volumes_is_understood() {
    let world = World::new();
    let usage = |unit: v1::volume_usage::Unit, total| v1::VolumeUsage {
        available: 1,
        total,
        used: 2,
        unit: unit.into(),
    };
    let (_stand_in, driver) = world.driver(Settings {
        node_id: "n1".to_owned(),
        max_volumes_per_node: 8,
        topology: Some(map("zone", "z1")),
        capabilities: vec![Capability::StageUnstageVolume, Capability::VolumeMountGroup, Capability::Unknown],
        stats: v1::NodeGetVolumeStatsResponse {
            usage: vec![usage(v1::volume_usage::Unit::Bytes, 3), usage(v1::volume_usage::Unit::Inodes, 4)],
            volume_condition: Some(v1::VolumeCondition { abnormal: true, message: "worn".to_owned() }),
        },
        ..Settings::new(NAME)
    });
    let info = NodeInfo {
        node_id: "n1".to_owned(),
        max_volumes_per_node: 8,
        accessible_topology: Some(map("zone", "z1")),
    };
    assert_eq!(driver.info().await, Ok(info));
    let capabilities = NodeCapabilities {
        stage_unstage_volume: true,
        volume_mount_group: true,
        ..NodeCapabilities::default()
    };
    assert_eq!(driver.capabilities().await, Ok(capabilities));
    let stats = VolumeStats {
        bytes: Some(Usage { available: 1, total: 3, used: 2 }),
        inodes: Some(Usage { available: 1, total: 4, used: 2 }),
        condition: Some(VolumeCondition { abnormal: true, message: "worn".to_owned() }),
    };
    assert_eq!(driver.stats("vol", "/target").await, Ok(stats));
}

#[tokio::test]
async fn an_error_is_told_in_gos_words_and_is_final_unless_the_driver_may_still_be_at_it() {
    let world = World::new();
    let (stand_in, driver) = world.driver(Settings::new(NAME));
    for (code, name, is_final) in [
        (Code::Cancelled, "Canceled", false),
        (Code::DeadlineExceeded, "DeadlineExceeded", false),
        (Code::Unavailable, "Unavailable", false),
        (Code::ResourceExhausted, "ResourceExhausted", false),
        (Code::Aborted, "Aborted", false),
        (Code::Internal, "Internal", true),
        (Code::Unknown, "Unknown", true),
        (Code::InvalidArgument, "InvalidArgument", true),
        (Code::NotFound, "NotFound", true),
        (Code::AlreadyExists, "AlreadyExists", true),
        (Code::PermissionDenied, "PermissionDenied", true),
        (Code::FailedPrecondition, "FailedPrecondition", true),
        (Code::OutOfRange, "OutOfRange", true),
        (Code::Unimplemented, "Unimplemented", true),
        (Code::DataLoss, "DataLoss", true),
        (Code::Unauthenticated, "Unauthenticated", true),
    ] {
        stand_in.plan("NodeStageVolume", Fault::fail(code, "the disk is shy", 1));
        let error = driver.stage(stage()).await.unwrap_err();
        assert_eq!(error.to_string(), format!("rpc error: code = {name} desc = the disk is shy"));
        assert_eq!((error.code(), error.code_name(), error.is_final()), (code, name, is_final));
    }
    assert_eq!(driver.stage(stage()).await, Ok(()));
}

#[tokio::test]
async fn a_driver_that_hangs_is_waited_for_until_the_deadline_and_told_to_give_up() {
    let world = World::new();
    let (stand_in, driver) = world.driver(Settings::new(NAME));
    let impatient = driver.clone().with_timeout(Duration::from_millis(100));
    stand_in.plan("NodeStageVolume", Fault::hang());
    stand_in.plan("NodePublishVolume", Fault::late(Duration::from_secs(100)));
    let error = impatient.stage(stage()).await.unwrap_err();
    assert_eq!(error, Error::Deadline { within: Duration::from_millis(100) });
    assert_eq!(error.to_string(), "rpc error: code = DeadlineExceeded desc = context deadline exceeded");
    assert!(!error.is_final());
    let error = impatient.publish(PublishVolume::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    answered(&stand_in, 2).await;
    assert!(stand_in.calls().iter().all(|call| call.outcome == Outcome::Cancelled));
    assert_eq!(driver.stage(stage()).await, Ok(()), "it is the same connection");
}

#[tokio::test]
async fn a_driver_that_is_away_is_uncertain_and_is_found_again_when_it_is_back() {
    let world = World::new();
    let socket = world.driver_socket(NAME);
    let driver = Driver::new(&socket);
    let dialling = |why: &str| {
        format!(
            "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial \
             unix {}: connect: {why}\"",
            socket.display()
        )
    };
    let error = driver.info().await.unwrap_err();
    assert_eq!(error.to_string(), dialling("no such file or directory"));
    assert!(!error.is_final());

    let (stand_in, _) = world.driver(Settings::new(NAME));
    assert!(driver.info().await.is_ok());
    stand_in.plan("NodeStageVolume", Fault::die(Moment::BeforeEffect));
    let error = driver.stage(stage()).await.unwrap_err();
    assert!(error.to_string().contains("error reading from server"), "{error}");
    assert_eq!((error.code(), error.is_final()), (Code::Unavailable, false));

    // Its threads end behind its back, and the listener with the last of them.
    let refused = async {
        loop {
            let error = driver.info().await.unwrap_err();
            if error.to_string() == dialling("connection refused") {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    soon(refused).await;
    stand_in.start_again().unwrap();
    assert!(driver.info().await.is_ok());
}

#[tokio::test]
async fn an_answer_of_a_hundred_megabytes_is_refused_and_the_next_one_is_not() {
    let world = World::new();
    let (stand_in, driver) = world.driver(Settings { node_id: "x".repeat(100 << 20), ..Settings::new(NAME) });
    let error = driver.info().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (104857605 vs. 4194304)"
    );
    assert!(!error.is_final());
    stand_in.change(|settings| settings.node_id = "x".to_owned());
    assert!(driver.info().await.is_ok());
}

#[tokio::test]
async fn an_error_that_is_long_is_cut() {
    let world = World::new();
    let (stand_in, driver) = world.driver(Settings::new(NAME));
    let long = format!("mount failed: {}: no such device", "x".repeat(50_000));
    stand_in.plan("NodeStageVolume", Fault::fail(Code::Internal, &long, 1));
    let error = driver.stage(stage()).await.unwrap_err().to_string();
    assert!(error.len() < 5000, "{}", error.len());
    assert!(error.contains("mount failed: xx") && error.ends_with("xx: no such device"), "{error}");
}

#[tokio::test]
async fn somebody_who_does_not_speak_grpc_is_no_driver() {
    let world = World::new();
    let socket = world.root().join("csi.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
    });
    let error = soon(Driver::new(&socket).info()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    server.abort();
}
