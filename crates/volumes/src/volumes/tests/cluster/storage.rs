//! Pieces of storage whose ways to a pod are cut off half-way, shared, or not open at all.

use std::os::unix::fs::symlink;

use super::*;

const READ_ONLY: (&str, &str) = ("v", "persistentVolumeClaim: {claimName: c, readOnly: true}");

fn of_group(uid: &str, group: u32) -> Pod {
    let mut pod = pod("", &format!("securityContext: {{fsGroup: {group}}},"), &[CLAIM]);
    pod.metadata.uid = uid.into();
    pod
}

/// A directory that a claim leads to, and where a pod gets it.
fn put_local(place: &Place, cluster: &Cluster, more: &str) -> (PathBuf, PathBuf) {
    let data = place.directory("data");
    put_claim(cluster, "", &format!("local: {{path: {}}}, {more}", data.display()));
    (data, place.path().join("pods/uid/volumes/kubernetes.io~local-volume/pv"))
}

fn has_option(path: &Path, option: &str) -> bool {
    MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap().at(path).unwrap().has_option(option)
}

#[tokio::test]
async fn a_local_volume_that_an_agent_began_to_mount_is_finished_by_the_next() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let (data, path) = put_local(&place, &cluster, "");
    fs::create_dir_all(&path).unwrap();
    crablet_host::mounts::bind(&data, &path, false).unwrap();
    volumes.set_up(&of_group("uid", 4321), &node()).await.unwrap();
    assert!(!has_option(&path, "ro"));
    let mounted = volumes.set_up(&pod("", "", &[READ_ONLY]), &node()).await.unwrap();
    assert!(has_option(&path, "ro"));
    assert!(matches!(mounted["v"], MountedVolume::Files { read_only: true, relabel: true, .. }));
    volumes.tear_down("uid").await.unwrap();
}

#[tokio::test]
async fn what_a_pod_made_of_the_files_of_a_local_volume_is_left_alone_by_another_agent() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let (data, path) = put_local(&place, &cluster, "");
    let pod = of_group("uid", 4321);
    volumes.set_up(&pod, &node()).await.unwrap();
    assert_eq!(owner(&data), (4321, 0o2775));
    fs::write(path.join("key"), "").unwrap();
    for (file, mode) in [(path.join("key"), 0o600), (path, 0o700)] {
        std::os::unix::fs::chown(&file, None, Some(7)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }
    let volumes = HostVolumes::new(place.path(), Clock::system(), Arc::clone(&cluster) as _);
    volumes.set_up(&pod, &node()).await.unwrap();
    assert_eq!((owner(&data), owner(&data.join("key"))), ((7, 0o700), (7, 0o600)));
    volumes.tear_down("uid").await.unwrap();
    // The next time it is mounted, it is the first time again.
    volumes.set_up(&pod, &node()).await.unwrap();
    assert_eq!((owner(&data), owner(&data.join("key"))), ((4321, 0o2770), (4321, 0o660)));
    volumes.tear_down("uid").await.unwrap();
}

#[tokio::test]
async fn a_local_volume_is_mounted_once_its_files_are_given_to_the_group() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let (data, _) = put_local(&place, &cluster, "");
    // What cannot be mounted elsewhere.
    crablet_host::mounts::bind(&data, &data, false).unwrap();
    let made = std::process::Command::new("mount").arg("--make-unbindable").arg(&data).status().unwrap();
    assert!(made.success());
    volumes.set_up(&of_group("uid", 4321), &node()).await.unwrap_err();
    assert_eq!(owner(&data).0, 4321);
}

#[tokio::test]
async fn a_local_volume_whose_files_cannot_be_given_to_the_group_is_not_left_mounted() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let (data, _) = put_local(&place, &cluster, "");
    // So deep that nobody walks to its end.
    let mut deep = rustix::fs::open(&data, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..600 {
        rustix::fs::mkdirat(&deep, "d", rustix::fs::Mode::RWXU).unwrap();
        deep = rustix::fs::openat(&deep, "d", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    }
    for _ in 0..2 {
        volumes.set_up(&of_group("uid", 4321), &node()).await.unwrap_err();
        assert!(place.mounts().is_empty());
    }
}

#[tokio::test]
async fn of_pods_that_share_a_local_volume_the_first_gives_it_to_its_group() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let (data, _) = put_local(&place, &cluster, "");
    for _ in 0..8 {
        std::os::unix::fs::chown(&data, None, Some(0)).unwrap();
        let (one, other, node) = (of_group("one", 1001), of_group("other", 1002), node());
        let (first, second) = tokio::join!(volumes.set_up(&one, &node), volumes.set_up(&other, &node));
        first.unwrap();
        second.unwrap();
        assert!([1001, 1002].contains(&owner(&data).0), "{:?}", owner(&data));
        for uid in ["one", "other"] {
            volumes.tear_down(uid).await.unwrap();
        }
    }
    // Nor does it matter that the root directory is behind a link.
    let link = place.path().join("link");
    symlink(place.path(), &link).unwrap();
    let volumes = HostVolumes::new(&link, Clock::system(), Arc::clone(&cluster) as _);
    for (uid, group) in [("one", 2001), ("other", 2002)] {
        volumes.set_up(&of_group(uid, group), &node()).await.unwrap();
        assert_eq!(owner(&data).0, 2001);
    }
    for uid in ["one", "other"] {
        volumes.tear_down(uid).await.unwrap();
    }
}

#[tokio::test]
async fn a_local_volume_has_its_mount_options_and_a_path_of_the_node_cannot_have_any() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let (_, path) = put_local(&place, &cluster, "mountOptions: [noexec, nosuid, noexec]");
    volumes.set_up(&pod("", "", &[READ_ONLY]), &node()).await.unwrap();
    for option in ["noexec", "nosuid", "ro"] {
        assert!(has_option(&path, option), "{option}");
    }
    volumes.tear_down("uid").await.unwrap();
    put_claim(&cluster, "", "hostPath: {path: /srv, type: ''}, mountOptions: [ro]");
    let errors = volumes.set_up(&pod("", "", &[CLAIM]), &node()).await.unwrap_err();
    assert_eq!(
        said(errors),
        ["MountVolume.MountOptionSupport check failed for volume \"pv\" : \
          mount options are not supported for this volume type"]
    );
}

#[tokio::test]
async fn storage_that_the_node_cannot_reach_is_refused() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let affinity = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: \
                    [{key: zone, operator: In, values: [here]}]}]}}";
    put_local(&place, &cluster, affinity);
    let (pod, mut node) = (pod("", "", &[CLAIM]), node());
    for zone in ["", "there"] {
        node.facts.labels.insert("zone", zone.into());
        let errors = volumes.set_up(&pod, &node).await.unwrap_err();
        assert_eq!(
            said(errors),
            ["MountVolume.NodeAffinity check failed for volume \"pv\" : \
              no matching NodeSelectorTerms"]
        );
    }
    node.facts.labels.insert("zone", "here".into());
    volumes.set_up(&pod, &node).await.unwrap();
    volumes.tear_down("uid").await.unwrap();
}
