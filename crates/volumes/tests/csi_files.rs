//! Volumes of a CSI driver that fails, and of agents that die: a pod runs on what its driver says is done, and on
//! nothing else.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

#[path = "csi_files/cluster.rs"]
mod cluster;
#[path = "csi_files/machine.rs"]
mod machine;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::time::Duration;

use crablet_api::core::Node;
use crablet_core::translate::MountedVolume;
use crablet_csi::stand_in::{Capability, Fault, Moment, Outcome, Trouble};
use crablet_csi::{Code, v1};
use crablet_host::mounts::{UnmountMode, is_mount_point, unmount};
use crablet_volumes::{Occurrence, Volumes as _};
use serde_json::json;

use tokio::time::timeout;

use machine::{DRIVER, Machine, StagesByFile, context};

/// The driver does it and says that it did not.
fn lost(code: Code, message: &str) -> Fault {
    let trouble = Trouble::Fail { code, message: message.to_owned() };
    Fault { trouble, moment: Moment::AfterEffect, times: Some(1) }
}

#[tokio::test]
async fn what_a_driver_did_not_say_is_done_is_asked_for_again_though_it_is_mounted() {
    for code in [Code::Unavailable, Code::Internal] {
        let machine = Machine::new().await;
        machine.driver.plan("NodeStageVolume", lost(code, "half staged"));
        machine.driver.plan("NodePublishVolume", lost(code, "half published"));
        let error = machine.set_up("a").await.unwrap_err();
        let expected = format!(
            "MountVolume.MountDevice failed for volume \"pv\" : rpc error: code = {code:?} desc = half staged"
        );
        assert_eq!(error, expected);
        let error = machine.set_up("a").await.unwrap_err();
        let expected = format!(
            "MountVolume.SetUp failed for volume \"pv\" : rpc error: code = {code:?} desc = half published"
        );
        assert_eq!(error, expected);
        machine.set_up("a").await.unwrap();
        machine.set_up("a").await.unwrap();
        assert_eq!(machine.asked(), ["Stage", "Stage", "Publish", "Publish"]);
        machine.tear_down("a").await.unwrap();
        machine.until_forgotten().await;
        assert_eq!(machine.asked()[4..], ["Unpublish", "Unstage"]);
    }
}

#[tokio::test]
async fn files_are_given_to_the_group_though_the_agent_died_after_the_publish() {
    let mut machine = Machine::new().await;
    machine.cluster.set("driver", json!({"attachRequired": false, "fsGroupPolicy": "File"}));
    machine.cluster.set("pod", json!({"securityContext": {"fsGroup": 4711}}));
    machine.driver.plan("NodePublishVolume", lost(Code::Unavailable, "nobody hears it"));
    machine.set_up("a").await.unwrap_err();
    machine.stop_agent();
    machine.start_agent().await;
    machine.set_up("a").await.unwrap();
    assert_eq!(fs::metadata(machine.target("a")).unwrap().gid(), 4711);
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
}

#[tokio::test]
async fn what_takes_longer_than_a_pod_waits_is_done_once_and_ready_then() {
    let mut machine = Machine::new().await;
    machine.stop_agent();
    machine.deadline = Duration::from_millis(300);
    machine.start_agent().await;
    machine.cluster.set("driver", json!({"attachRequired": false, "fsGroupPolicy": "File"}));
    machine.cluster.set("pod", json!({"securityContext": {"fsGroup": 4711}}));
    machine.driver.plan("NodePublishVolume", Fault::late(Duration::from_secs(1)));
    let error = machine.set_up("a").await.unwrap_err();
    assert!(error.ends_with("the work on it continues"), "{error}");
    let group = || fs::metadata(machine.target("a")).map(|found| found.gid()).unwrap_or_default();
    machine.until("the files are the group's", || group() == 4711).await;
    chown(machine.target("a"), None, Some(0)).unwrap();
    machine.until_set_up("a").await;
    assert_eq!(group(), 0, "they were given to the group once, and nobody looks again");
    assert_eq!(machine.asked(), ["Stage", "Publish"]);
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
}

#[tokio::test]
async fn a_driver_is_not_cut_off_by_the_end_of_a_pod_and_asked_for_the_opposite_when_it_is_done() {
    for (method, mode, uid) in [
        ("NodeStageVolume", "Filesystem", "a"),
        ("NodePublishVolume", "Filesystem", "a"),
        ("NodeStageVolume", "Block", "device"),
    ] {
        let machine = Machine::new().await;
        machine.cluster.set("volume", json!({"volumeMode": mode}));
        let trouble = Trouble::Delay(Duration::from_secs(1));
        machine.driver.plan(method, Fault { trouble, moment: Moment::BeforeEffect, times: Some(1) });
        let is_asked = machine.driver.until(|calls| calls.iter().any(|call| call.call.ends_with(method)));
        tokio::select! {
            _ = machine.set_up(uid) => panic!("{method} took no time"),
            () = is_asked => {}
        }
        machine.tear_down(uid).await.unwrap();
        machine.driver.until(|calls| calls.iter().any(|call| call.call.contains("Unstage"))).await;
        assert_eq!(machine.asked(), ["Stage", "Publish", "Unpublish", "Unstage"], "{method} {mode}");
        let calls = machine.driver.calls();
        assert!(!calls.iter().any(|call| call.outcome == Outcome::Cancelled), "{method} {mode}");
        machine.until_forgotten().await;
    }
}

#[tokio::test]
async fn a_second_pod_whose_volume_is_refused_leaves_what_is_known_of_the_first() {
    let mut machine = Machine::new().await;
    machine.set_up("a").await.unwrap();
    machine.stop_agent();
    machine.start_agent().await;
    machine.driver.plan("NodeStageVolume", Fault::fail(Code::Internal, "no", 1));
    let error = machine.set_up("b").await.unwrap_err();
    assert_eq!(
        error,
        "MountVolume.MountDevice failed for volume \"pv\" : rpc error: code = Internal desc = no"
    );
    assert!(machine.staged().join("vol_data.json").exists());
    machine.tear_down("b").await.unwrap();
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
    assert_eq!(machine.asked(), ["Stage", "Publish", "Stage", "Unpublish", "Unstage"], "{DRIVER}");
}

#[tokio::test]
async fn the_end_of_a_pod_calls_no_driver_that_was_never_asked_or_that_refused() {
    for secret in ["nodeStageSecretRef", "nodePublishSecretRef"] {
        for (mode, uid) in [("Filesystem", "a"), ("Block", "device")] {
            let machine = Machine::new().await;
            let source = json!({
                "driver": DRIVER, "volumeHandle": "../handle", secret: {"namespace": "ns", "name": "s"},
            });
            machine.cluster.set("volume", json!({"volumeMode": mode, "csi": source}));
            let error = machine.set_up(uid).await.unwrap_err();
            assert!(error.contains("secrets \"s\" not found"), "{error}");
            let asked = machine.asked();
            assert!(!machine.root.join(format!("pods/{uid}/volumes/kubernetes.io~csi/pv")).exists());
            assert!(!machine.root.join(format!("pods/{uid}/volumeDevices")).exists());
            machine.tear_down(uid).await.unwrap();
            assert!(!machine.asked()[asked.len()..].contains(&"Unpublish"), "{mode} {secret}");
        }
    }
    let machine = Machine::new().await;
    machine.driver.plan("NodePublishVolume", Fault::fail(Code::Internal, "no", 1));
    machine.set_up("a").await.unwrap_err();
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
    assert_eq!(machine.asked(), ["Stage", "Publish", "Unstage"]);
}

#[tokio::test]
async fn a_claim_that_a_pod_has_twice_is_published_once() {
    let machine = Machine::new().await;
    let volume = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": "c"}});
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    let container = json!({"name": "c", "volumeMounts": [mount("c"), mount("again")]});
    let spec = json!({"containers": [container], "volumes": [volume("c"), volume("again")]});
    machine.cluster.set("pod", spec);
    machine.set_up("a").await.unwrap();
    assert_eq!(machine.asked(), ["Stage", "Publish"]);
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
}

#[tokio::test]
async fn a_volume_stays_in_use_for_a_pod_that_comes_while_it_is_unstaged() {
    let machine = Machine::new().await;
    machine.attach();
    machine.set_up("a").await.unwrap();
    machine.driver.plan("NodeUnstageVolume", Fault::late(Duration::from_millis(500)));
    machine.tear_down("a").await.unwrap();
    machine.driver.until(|calls| calls.iter().any(|call| call.call.contains("Unstage"))).await;
    assert!(machine.is_in_use());
    machine.set_up("b").await.unwrap();
    assert!(machine.is_in_use());
    assert_eq!(machine.asked(), ["Stage", "Publish", "Unpublish", "Unstage", "Stage", "Publish"]);
    machine.tear_down("b").await.unwrap();
    machine.until_forgotten().await;
    machine.until("it is not in use", || !machine.is_in_use()).await;
}

#[tokio::test]
async fn what_a_pod_has_is_not_unstaged_and_stays_in_use_though_nobody_can_read_who_it_is() {
    let mut machine = Machine::new().await;
    machine.set_up("a").await.unwrap();
    machine.stop_agent();
    let written = machine.target("a").with_file_name("vol_data.json");
    let kept = fs::read(&written).unwrap();
    fs::write(&written, "{").unwrap();
    machine.attach();
    machine.start_agent().await;
    let error = machine.tear_down("a").await.unwrap_err();
    assert!(error.to_string().contains("vol_data.json"), "{error}");
    assert!(is_mount_point(&machine.target("a")).unwrap());
    assert!(machine.is_in_use());
    fs::write(&written, kept).unwrap();
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
    assert_eq!(machine.asked(), ["Stage", "Publish", "Unpublish", "Unstage"]);
}

#[tokio::test]
async fn what_a_power_cut_left_of_a_volume_that_is_not_mounted_keeps_no_pod_from_its_end() {
    for left in ["", "{\"driverName\":", "{}"] {
        let mut machine = Machine::new().await;
        machine.set_up("a").await.unwrap();
        machine.stop_agent();
        unmount(&machine.target("a"), UnmountMode::Plain).unwrap();
        fs::write(machine.target("a").with_file_name("vol_data.json"), left).unwrap();
        machine.start_agent().await;
        machine.tear_down("a").await.unwrap();
        machine.until_forgotten().await;
        assert_eq!(machine.asked(), ["Stage", "Publish", "Unstage"]);
    }
}

#[tokio::test]
async fn a_container_is_told_that_its_volume_is_for_reading_only() {
    let machine = Machine::new().await;
    let claim = json!({"name": "c", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}});
    machine.cluster.set("pod", json!({"volumes": [claim]}));
    let mounted = machine.set_up("a").await.unwrap();
    assert!(matches!(mounted, MountedVolume::Files { read_only: true, .. }), "{mounted:?}");
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
}

#[tokio::test]
async fn one_driver_that_does_not_take_its_volume_back_keeps_no_other_volume() {
    let machine = Machine::new().await;
    machine.set_up("two").await.unwrap();
    let empty = machine.root.join("pods/two/volumes/kubernetes.io~empty-dir/e");
    fs::create_dir_all(&empty).unwrap();
    machine.driver.plan("NodeUnpublishVolume", Fault::fail(Code::Internal, "not now", 1));
    let error = machine.tear_down("two").await.unwrap_err();
    assert_eq!(error.to_string(), "rpc error: code = Internal desc = not now");
    assert!(!empty.exists());
    let volumes = machine.root.join("pods/two/volumes/kubernetes.io~csi");
    assert_eq!(fs::read_dir(volumes).unwrap().count(), 1, "one was taken back");
    machine.driver.until(|calls| calls.iter().any(|call| call.call.contains("Unstage"))).await;
    machine.tear_down("two").await.unwrap();
    machine.until_forgotten().await;
}

#[tokio::test]
async fn what_an_agent_left_that_died_while_it_wrote_keeps_no_pod_from_its_end() {
    let machine = Machine::new().await;
    machine.set_up("a").await.unwrap();
    for directory in [machine.staged(), machine.target("a").parent().unwrap().to_owned()] {
        fs::write(directory.join(".tmp-1-0"), "{").unwrap();
    }
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
}

#[tokio::test]
async fn a_new_agent_publishes_again_what_wants_it_and_asks_nothing_of_other_drivers() {
    for (wants, expected) in
        [(true, &["Stage", "Publish", "Stage", "Publish"][..]), (false, &["Stage", "Publish"])]
    {
        let mut machine = Machine::new().await;
        machine.cluster.set("driver", json!({"requiresRepublish": wants}));
        machine.set_up("a").await.unwrap();
        machine.stop_agent();
        machine.start_agent().await;
        let volumes = machine.volumes.clone().unwrap();
        assert!(volumes.refresh_after("a").is_some(), "nobody knows yet");
        volumes.refresh(&machine.pod("a"), &context()).await.unwrap();
        assert_eq!(machine.asked(), expected);
        assert_eq!(volumes.refresh_after("a").is_some(), wants);
        machine.tear_down("a").await.unwrap();
        machine.until_forgotten().await;
    }
}

#[tokio::test]
async fn a_driver_that_comes_to_want_its_volumes_published_again_gets_that_of_running_pods() {
    let machine = Machine::new().await;
    machine.set_up("a").await.unwrap();
    let volumes = machine.volumes.clone().unwrap();
    assert_eq!(volumes.refresh_after("a"), None);
    let mut woken = machine.csi.clone().unwrap().drivers();
    woken.mark_unchanged();
    machine.cluster.set("driver", json!({"requiresRepublish": true}));
    timeout(Duration::from_secs(10), woken.changed()).await.expect("pods are told to look").unwrap();
    assert!(volumes.refresh_after("a").is_some());
    volumes.refresh(&machine.pod("a"), &context()).await.unwrap();
    assert_eq!(machine.asked(), ["Stage", "Publish", "Publish"]);
    machine.cluster.forget("driver");
    volumes.refresh(&machine.pod("a"), &context()).await.unwrap();
    assert_eq!(volumes.refresh_after("a"), None);
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
}

#[tokio::test]
async fn a_driver_that_learns_to_make_volumes_larger_is_known_to_for_pods_that_run() {
    let mut machine = Machine::new().await;
    machine.set_up("a").await.unwrap();
    let volumes = machine.volumes.clone().unwrap();
    assert_eq!(volumes.refresh_after("a"), None);
    machine.driver.change(|settings| settings.capabilities.push(Capability::ExpandVolume));
    machine.driver.stop();
    machine.driver.start_again().unwrap();
    machine.until_registered_again().await;
    volumes.refresh(&machine.pod("a"), &context()).await.unwrap();
    assert!(volumes.refresh_after("a").is_some());
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
}

#[tokio::test]
async fn a_driver_that_stages_without_a_mount_is_asked_to_once() {
    let machine = Machine::with(StagesByFile::new).await;
    machine.set_up("a").await.unwrap();
    machine.set_up("b").await.unwrap();
    machine.set_up("a").await.unwrap();
    assert_eq!(machine.asked(), ["Stage", "Publish", "Publish"]);
    machine.tear_down("a").await.unwrap();
    machine.tear_down("b").await.unwrap();
    machine.until_forgotten().await;
    machine.set_up("a").await.unwrap();
    assert_eq!(machine.asked()[3..], ["Unpublish", "Unpublish", "Unstage", "Stage", "Publish"]);
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
}

#[tokio::test]
async fn a_new_agent_measures_the_volumes_of_pods_that_run() {
    let mut machine = Machine::new().await;
    machine.stop_agent();
    machine.driver.change(|settings| {
        settings.capabilities.push(Capability::GetVolumeStats);
        settings.stats.usage = vec![v1::VolumeUsage {
            total: 9,
            used: 4,
            available: 5,
            unit: v1::volume_usage::Unit::Bytes.into(),
        }];
    });
    machine.start_agent().await;
    machine.set_up("a").await.unwrap();
    let told = async |machine: &Machine| {
        let stats = machine.volumes.as_ref().unwrap().stats("a").await;
        stats.into_iter().map(|found| (found.claim, found.usage.used)).collect::<Vec<_>>()
    };
    let before = told(&machine).await;
    assert_eq!(before, [(Some("c".into()), 4)]);
    machine.stop_agent();
    machine.start_agent().await;
    let volumes = machine.volumes.clone().unwrap();
    volumes.refresh(&machine.pod("a"), &context()).await.unwrap();
    assert_eq!(told(&machine).await, before);
    assert_eq!(machine.asked(), ["Stage", "Publish"]);
    machine.tear_down("a").await.unwrap();
    assert!(told(&machine).await.is_empty());
    machine.until_forgotten().await;
}

#[tokio::test]
async fn a_driver_that_does_not_say_what_it_calls_the_node_is_not_let_in() {
    let mut machine = Machine::new().await;
    machine.stop_agent();
    machine.driver.change(|settings| settings.node_id = String::new());
    machine.start_agent().await;
    let error = machine.set_up("a").await.unwrap_err();
    assert!(error.contains("not found in the list of registered CSI drivers"), "{error}");
    let told = machine.driver.calls().last().unwrap().to_json().to_string();
    assert!(told.contains("driverNodeID must not be empty"), "{told}");
}

#[tokio::test]
async fn a_driver_that_says_that_the_node_is_elsewhere_is_not_let_in() {
    let mut machine = Machine::new().await;
    machine.stop_agent();
    let mut node = Node::default();
    node.metadata.labels.insert("zone", "z2".into());
    machine.attachments.note(&node);
    machine.driver.change(|settings| settings.topology = Some([("zone".to_owned(), "z1".to_owned())].into()));
    machine.start_agent().await;
    let error = machine.set_up("a").await.unwrap_err();
    assert!(error.contains("not found in the list of registered CSI drivers"), "{error}");
    let told = machine.driver.calls().last().unwrap().to_json();
    let expected = "error updating Node object with CSI driver node info: detected topology value collision: \
                    driver reported \"zone\":\"z1\" but existing label is \"zone\":\"z2\"";
    let told = told["request"]["error"].as_str().unwrap();
    assert!(told.ends_with(expected), "{told}");
}

#[tokio::test]
async fn an_attachment_that_is_on_its_way_off_and_a_secret_that_is_no_text_are_of_no_use() {
    let machine = Machine::new().await;
    machine.attach();
    let metadata = json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"});
    machine.cluster.set("attachment", json!({"metadata": metadata, "status": {"attached": true}}));
    let error = machine.set_up("a").await.unwrap_err();
    assert!(error.ends_with("volume attachment is being deleted"), "{error}");
    machine.attach();
    machine.cluster.set("secret/s", json!({"metadata": {"name": "s"}, "data": {"key": "/w=="}}));
    let secret = json!({"namespace": "ns", "name": "s"});
    let source = json!({"driver": DRIVER, "volumeHandle": "../handle", "nodeStageSecretRef": secret});
    machine.cluster.set("volume", json!({"csi": source}));
    let error = machine.set_up("a").await.unwrap_err();
    assert_eq!(
        error,
        "MountVolume.MountDevice failed for volume \"pv\" : fetching NodeStageSecretRef ns/s failed: \
         the value of \"key\" is not UTF-8"
    );
    assert!(machine.asked().is_empty());
}

#[tokio::test]
async fn an_error_names_the_step_that_failed() {
    let machine = Machine::new().await;
    machine.attach();
    machine.cluster.set("attachment", json!({"status": {"attached": false}}));
    machine.driver.stop();
    let of_pod = "MountVolume.WaitForAttach failed for volume \"pv\" : volume ../handle is not attached for volume attachment csi-";
    let error = machine.set_up("a").await.unwrap_err();
    assert!(error.starts_with(of_pod), "{error}");
    machine.cluster.forget("attachment");
    let error = machine.set_up("a").await.unwrap_err();
    let of_pod = "MountVolume.WaitForAttach failed for volume \"pv\" : volume ../handle has GET error for volume attachment csi-";
    assert!(error.starts_with(of_pod) && error.ends_with("\" not found"), "{error}");
    machine.cluster.set("volume", json!({"volumeMode": "Block"}));
    let error = machine.set_up("device").await.unwrap_err();
    assert!(
        error.starts_with("MapVolume.WaitForAttach failed for volume \"pv\" : volume ../handle"),
        "{error}"
    );
    machine.cluster.forget("volume");
    machine.attach();
    let away = format!(
        "MountVolume.MountDevice failed for volume \"pv\" : kubernetes.io/csi: attacher.MountDevice failed to create \
         newCsiDriverClient: driver name {DRIVER} not found in the list of registered CSI drivers"
    );
    machine.until_it_fails_with("a", &away).await;
    machine.driver.start_again().unwrap();
    machine.until_set_up("a").await;
    machine.driver.stop();
    let away = format!(
        "MountVolume.SetUp failed for volume \"pv\" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: \
         driver name {DRIVER} not found in the list of registered CSI drivers"
    );
    machine.until_it_fails_with("b", &away).await;
}

#[tokio::test]
async fn what_a_driver_is_to_be_told_and_nobody_has_is_named_as_upstream_does() {
    let missing = "kubernetes.io/csi: failed to find the secret s in the namespace ns with error: secrets \"s\" not found";
    for (secret, mode, uid, expected) in [
        (
            "nodeStageSecretRef",
            "Filesystem",
            "a",
            "MountVolume.MountDevice failed for volume \"pv\" : fetching NodeStageSecretRef ns/s failed: ",
        ),
        (
            "nodePublishSecretRef",
            "Filesystem",
            "a",
            "MountVolume.SetUp failed for volume \"pv\" : fetching NodePublishSecretRef ns/s failed: ",
        ),
        (
            "nodeStageSecretRef",
            "Block",
            "device",
            "MapVolume.SetUpDevice failed for volume \"pv\" : kubernetes.io/csi: failed to get NodeStageSecretRef ns/s: ",
        ),
        (
            "nodePublishSecretRef",
            "Block",
            "device",
            "MapVolume.MapPodDevice failed for volume \"pv\" : kubernetes.io/csi: blockMapper.publishVolumeForBlock failed to get NodePublishSecretRef ns/s: ",
        ),
    ] {
        let machine = Machine::new().await;
        let source =
            json!({"driver": DRIVER, "volumeHandle": "../handle", secret: {"namespace": "ns", "name": "s"}});
        machine.cluster.set("volume", json!({"volumeMode": mode, "csi": source}));
        assert_eq!(machine.set_up(uid).await.unwrap_err(), format!("{expected}{missing}"));
        machine.tear_down(uid).await.unwrap();
        machine.until_forgotten().await;
    }
    let machine = Machine::new().await;
    machine.cluster.set("driver", json!({"tokenRequests": [{"audience": "vault"}]}));
    let error = machine.set_up("a").await.unwrap_err();
    let expected = "MountVolume.SetUp failed for volume \"pv\" : kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes: ";
    assert!(error.starts_with(expected), "{error}");
    machine.tear_down("a").await.unwrap();
    machine.until_forgotten().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_volume_is_told_where_that_is_wanted() {
    for is_wanted in [true, false] {
        let mut machine = Machine::new().await;
        machine.stop_agent();
        machine.tells_health = is_wanted;
        machine.driver.change(|settings| {
            settings.capabilities.extend([Capability::GetVolumeStats, Capability::VolumeCondition]);
            let message = "it is on fire".to_owned();
            settings.stats.volume_condition = Some(v1::VolumeCondition { abnormal: true, message });
        });
        machine.start_agent().await;
        machine.set_up("a").await.unwrap();
        let volumes = machine.volumes.clone().unwrap();
        assert_eq!(volumes.refresh_after("a").is_some(), is_wanted);
        volumes.refresh(&machine.pod("a"), &context()).await.unwrap();
        let told: Vec<_> =
            volumes.take_events("a").into_iter().map(|event| (event.what, event.message)).collect();
        let expected = (Occurrence::Abnormal, "Volume c: it is on fire".to_owned());
        assert_eq!(told, Vec::from_iter(is_wanted.then_some(expected)));
        machine.tear_down("a").await.unwrap();
        machine.until_forgotten().await;
    }
}
