mod cluster;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Mutex;

use crablet_api::FeatureGates;
use crablet_api::core::ResourceList;
use crablet_api::testing::pod_yaml;
use crablet_core::translate::{NodeFacts, Settings};
use crablet_host::mounts::{MountTable, PROC_SELF_MOUNTINFO};

use super::*;
use crate::contents::NoContents;
use crate::plugin::Request;
use crate::testing::Place;
use crate::tools::{Ending, ToolError};

fn node() -> NodeContext {
    let allocatable: ResourceList = [("cpu", "4"), ("memory", "64Mi")]
        .map(|(name, amount)| (name, amount.parse().unwrap()))
        .into_iter()
        .collect();
    let facts = NodeFacts { allocatable, ..NodeFacts::default() };
    NodeContext { facts, settings: Settings::default(), features: FeatureGates::default() }
}

fn volumes(place: &Place) -> HostVolumes {
    HostVolumes::new(place.path(), Clock::system(), Arc::new(NoContents))
}

/// A pod with one container that mounts all its volumes.
fn pod(metadata: &str, extra: &str, volumes: &[(&str, &str)]) -> Pod {
    let mounts: Vec<String> =
        volumes.iter().map(|(name, _)| format!("{{name: {name}, mountPath: /{name}}}")).collect();
    let sources: Vec<String> =
        volumes.iter().map(|(name, source)| format!("{{name: {name}, {source}}}")).collect();
    pod_yaml(&format!(
        "metadata: {{name: p, namespace: ns, uid: uid, {metadata}}}\nspec: {{{extra} containers: [{{name: c, \
         resources: {{limits: {{memory: 16Mi}}}}, volumeMounts: [{}]}}], volumes: [{}]}}",
        mounts.join(", "),
        sources.join(", ")
    ))
}

fn path_of(mounted: &BTreeMap<String, MountedVolume>, name: &str) -> PathBuf {
    match &mounted[name] {
        MountedVolume::Files { host_path, .. } => host_path.into(),
        other => panic!("{other:?}"),
    }
}

fn owner(path: &Path) -> (u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.gid(), metadata.mode() & 0o7777)
}

fn said(errors: Vec<VolumeError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn an_empty_directory_is_made_once_and_keeps_what_is_written() {
    let place = Place::new();
    let volumes = volumes(&place);
    let pod = pod("", "securityContext: {fsGroup: 4321},", &[("v", "emptyDir: {}")]);
    let mounted = volumes.set_up(&pod, &node()).await.unwrap();
    let path = path_of(&mounted, "v");
    assert_eq!(
        mounted["v"],
        MountedVolume::Files { host_path: path.display().to_string(), read_only: false, relabel: true }
    );
    assert_eq!(path, place.path().join("pods/uid/volumes/kubernetes.io~empty-dir/v"));
    assert!(place.path().join("pods/uid/plugins/kubernetes.io~empty-dir/v/ready").is_file());
    assert_eq!(owner(&path), (4321, 0o2777));
    fs::write(path.join("file"), "x").unwrap();
    fs::set_permissions(path.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    volumes.set_up(&pod, &node()).await.unwrap();
    assert_eq!(owner(&path.join("file")).1, 0o600, "what a container wrote is left alone");
    volumes.tear_down("uid").await.unwrap();
    assert!(!path.exists());
    volumes.tear_down("uid").await.unwrap();
}

#[tokio::test]
async fn an_agent_that_died_half_way_is_carried_on_from_wherever_it_was() {
    let place = Place::new();
    let volumes = volumes(&place);
    let sources = [
        ("disk", "emptyDir: {}"),
        ("memory", "emptyDir: {medium: Memory}"),
        (
            "told",
            "downwardAPI: {defaultMode: 420, items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}",
        ),
    ];
    let pod = pod("", "securityContext: {fsGroup: 4321},", &sources);
    let whole = volumes.set_up(&pod, &node()).await.unwrap();
    let plugins = place.path().join("pods/uid/plugins/kubernetes.io~empty-dir");
    for ready in ["disk", "memory", "wrapped_told"] {
        fs::remove_file(plugins.join(ready).join("ready")).unwrap();
        assert_eq!(volumes.set_up(&pod, &node()).await.unwrap(), whole);
        assert!(plugins.join(ready).join("ready").exists());
    }
    assert_eq!(place.mounts().len(), 2, "nothing is mounted twice");
    // The machine started again: memory is gone, the notes are there.
    for mount in place.mounts() {
        crablet_host::mounts::unmount(&mount, crablet_host::mounts::UnmountMode::Plain).unwrap();
    }
    assert_eq!(volumes.set_up(&pod, &node()).await.unwrap(), whole);
    assert_eq!(place.mounts().len(), 2);
    assert_eq!(fs::read_to_string(path_of(&whole, "told").join("name")).unwrap(), "p");
    // Somebody removed a directory.
    fs::remove_dir(path_of(&whole, "disk")).unwrap();
    volumes.set_up(&pod, &node()).await.unwrap();
    assert_eq!(owner(&path_of(&whole, "disk")), (4321, 0o2777));
    volumes.tear_down("uid").await.unwrap();
    assert!(place.mounts().is_empty());
}

#[tokio::test]
async fn memory_is_as_large_as_node_pod_and_volume_allow() {
    let place = Place::new();
    let volumes = volumes(&place);
    let sources = [
        ("small", "emptyDir: {medium: Memory, sizeLimit: 4Mi}"),
        ("large", "emptyDir: {medium: Memory, sizeLimit: 1Gi}"),
    ];
    let mounted = volumes.set_up(&pod("", "", &sources), &node()).await.unwrap();
    let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
    for (name, size) in [("small", "size=4096k"), ("large", "size=16384k")] {
        let mount = table.at(&path_of(&mounted, name)).unwrap();
        assert_eq!(mount.file_system, "tmpfs");
        assert!(mount.super_options.contains(size), "{}", mount.super_options);
        assert_eq!(owner(&path_of(&mounted, name)).1, 0o1777);
    }
}

#[tokio::test]
async fn huge_pages_are_mounted_in_the_size_that_the_container_asks_for() {
    let place = Place::new();
    let volumes = volumes(&place);
    let mut asking = pod("", "", &[("v", "emptyDir: {medium: HugePages}")]);
    let errors = said(volumes.set_up(&asking, &node()).await.unwrap_err());
    assert_eq!(
        errors,
        [
            "MountVolume.SetUp failed for volume \"v\" : medium HugePages: hugePages storage requested, but there is no resource request for huge pages"
        ]
    );
    asking.spec.containers[0].resources.requests =
        [("hugepages-2Mi", "4Mi".parse().unwrap())].into_iter().collect();
    if !Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists() {
        return;
    }
    let mounted = volumes.set_up(&asking, &node()).await.unwrap();
    let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
    let mount = table.at(&path_of(&mounted, "v")).unwrap();
    assert_eq!(mount.file_system, "hugetlbfs");
    assert!(mount.super_options.contains("pagesize=2M"), "{}", mount.super_options);
    volumes.set_up(&asking, &node()).await.unwrap();
    assert_eq!(place.mounts().len(), 1);
    let other = pod("", "", &[("v", "emptyDir: {medium: HugePages-1Gi}")]);
    let errors = said(volumes.set_up(&other, &node()).await.unwrap_err());
    assert!(errors[0].ends_with("pagesize '2Mi' and requested medium size '1Gi' differ"), "{errors:?}");
    volumes.tear_down("uid").await.unwrap();
    assert!(place.mounts().is_empty());
}

#[tokio::test]
async fn a_pod_is_told_about_itself_and_learns_of_changes() {
    let place = Place::new();
    let volumes = volumes(&place);
    let source = "downwardAPI: {defaultMode: 420, items: [
        {path: labels, fieldRef: {fieldPath: metadata.labels}},
        {path: deep/annotation, fieldRef: {fieldPath: \"metadata.annotations['k']\"}, mode: 256},
        {path: cpu, resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: 1m}},
        {path: memory, resourceFieldRef: {containerName: c, resource: limits.memory, divisor: 1Mi}}]}";
    let make = |label: &str| {
        pod(
            &format!("labels: {{a: {label}}}, annotations: {{k: v}}"),
            "securityContext: {fsGroup: 4321},",
            &[("v", source)],
        )
    };
    let mounted = volumes.set_up(&make("one"), &node()).await.unwrap();
    let path = path_of(&mounted, "v");
    assert!(matches!(mounted["v"], MountedVolume::Files { read_only: true, relabel: true, .. }));
    assert_eq!(path, place.path().join("pods/uid/volumes/kubernetes.io~downward-api/v"));
    assert!(place.mounts().contains(&path), "it is kept in memory");
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    assert_eq!((read("labels"), read("deep/annotation")), ("a=\"one\"".to_owned(), "v".to_owned()));
    assert_eq!((read("cpu"), read("memory")), ("4000".to_owned(), "16".to_owned()));
    let version = fs::read_link(path.join("..data")).unwrap();
    assert_eq!(owner(&path.join(&version).join("labels")), (4321, 0o644));
    assert_eq!(owner(&path.join(&version).join("deep/annotation")), (4321, 0o440));
    assert_eq!(owner(&path.join(&version)), (4321, 0o2755));
    volumes.refresh(&make("one"), &node()).await.unwrap();
    assert_eq!(fs::read_link(path.join("..data")).unwrap(), version, "unchanged");
    volumes.refresh(&make("two"), &node()).await.unwrap();
    assert_eq!(read("labels"), "a=\"two\"");
    assert_ne!(fs::read_link(path.join("..data")).unwrap(), version);
    volumes.tear_down("uid").await.unwrap();
    assert!(place.mounts().is_empty() && !path.exists());
}

#[tokio::test]
async fn projected_volumes_take_what_the_node_knows_and_say_what_they_do_not_take() {
    let place = Place::new();
    let volumes = volumes(&place);
    let source = "projected: {defaultMode: 292, sources: [
        {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}},
        {downwardAPI: {items: [{path: uid, fieldRef: {fieldPath: metadata.uid}}]}}]}";
    let mounted = volumes.set_up(&pod("", "", &[("v", source)]), &node()).await.unwrap();
    let path = path_of(&mounted, "v");
    assert_eq!(path, place.path().join("pods/uid/volumes/kubernetes.io~projected/v"));
    assert_eq!(fs::read_to_string(path.join("uid")).unwrap(), "uid");
    assert_eq!(fs::metadata(path.join("name")).unwrap().mode() & 0o7777, 0o444);
    for (source, expected) in [
        (
            "clusterTrustBundle: {path: a}",
            "ClusterTrustBundle projection is not supported in static kubelet mode",
        ),
        ("podCertificate: {signerName: a}", "unimplemented"),
        ("configMap: {name: c}", "cannot setup projected volume w because kube client is not configured"),
        (
            "serviceAccountToken: {path: t}",
            "cannot setup projected volume w because kube client is not configured",
        ),
    ] {
        let source = format!("projected: {{defaultMode: 292, sources: [{{{source}}}]}}");
        let errors = said(volumes.set_up(&pod("", "", &[("w", &source)]), &node()).await.unwrap_err());
        assert_eq!(errors, [format!("MountVolume.SetUp failed for volume \"w\" : {expected}")]);
    }
}

#[tokio::test]
async fn what_cannot_be_set_up_is_told_volume_by_volume() {
    let place = Place::new();
    let volumes = volumes(&place);
    let sources = [
        ("path", "hostPath: {path: /no/such/dir, type: Directory}"),
        ("steps", "hostPath: {path: /a/../b}"),
        ("map", "configMap: {name: c, defaultMode: 420}"),
        ("rbd", "rbd: {monitors: [m], image: i}"),
        ("tape", "emptyDir: {medium: Tape}"),
        (
            "field",
            "downwardAPI: {defaultMode: 420, items: [{path: a, fieldRef: {fieldPath: spec.nodeName}}]}",
        ),
        (
            "outside",
            "downwardAPI: {defaultMode: 420, items: [{path: ../a, fieldRef: {fieldPath: metadata.name}}]}",
        ),
        ("good", "hostPath: {path: /etc}"),
    ];
    let errors = said(volumes.set_up(&pod("", "", &sources), &node()).await.unwrap_err());
    let expected = [
        "\"path\" : hostPath type check failed: /no/such/dir is not a directory",
        "\"steps\" : invalid HostPath `/a/../b`: must not contain '..'",
        "\"map\" : not supported due to running kubelet in standalone mode",
        "\"rbd\" : volumes of the kind rbd are not supported: use a CSI driver instead, such as rbd.csi.ceph.com",
        "\"tape\" : unknown storage medium \"Tape\"",
        "\"field\" : unsupported fieldPath: spec.nodeName",
        "\"outside\" : invalid path: must not contain '..': ../a",
    ];
    assert_eq!(errors, expected.map(|error| format!("MountVolume.SetUp failed for volume {error}")));
    assert!(place.mounts().is_empty());
}

#[tokio::test]
async fn a_kind_that_has_a_csi_driver_is_refused_with_its_name() {
    let place = Place::new();
    let sources = [
        ("iscsi", "iscsi: {targetPortal: p, iqn: i, lun: 0}", "iscsi.csi.k8s.io"),
        ("fc", "fc: {targetWWNs: [w], lun: 0}", "fc.csi.k8s.io"),
        ("flexVolume", "flexVolume: {driver: d}", "that of its vendor"),
        ("cephfs", "cephfs: {monitors: [m]}", "cephfs.csi.ceph.com"),
        ("glusterfs", "glusterfs: {endpoints: e, path: p}", "org.gluster.glusterfs"),
        ("awsElasticBlockStore", "awsElasticBlockStore: {volumeID: v}", "ebs.csi.aws.com"),
        ("azureDisk", "azureDisk: {diskName: d, diskURI: u}", "disk.csi.azure.com"),
        ("azureFile", "azureFile: {secretName: s, shareName: share}", "file.csi.azure.com"),
        ("cinder", "cinder: {volumeID: v}", "cinder.csi.openstack.org"),
        ("gcePersistentDisk", "gcePersistentDisk: {pdName: p}", "pd.csi.storage.gke.io"),
        ("vsphereVolume", "vsphereVolume: {volumePath: p}", "csi.vsphere.vmware.com"),
        ("portworxVolume", "portworxVolume: {volumeID: v}", "pxd.portworx.com"),
    ];
    for (kind, source, driver) in sources {
        let errors = volumes(&place).set_up(&pod("", "", &[("v", source)]), &node()).await;
        let expected = format!(
            "MountVolume.SetUp failed for volume \"v\" : volumes of the kind {kind} are not supported: \
             use a CSI driver instead, such as {driver}"
        );
        assert_eq!(said(errors.unwrap_err()), [expected]);
    }
    let errors = volumes(&place)
        .set_up(&pod("", "", &[("v", "gitRepo: {repository: r}")]), &node())
        .await
        .unwrap_err();
    let expected = "MountVolume.SetUp failed for volume \"v\" : git-repo volume plugin has been disabled; if necessary, \
                    it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`";
    assert_eq!(said(errors), [expected]);
}

#[tokio::test]
async fn paths_of_the_node_and_images_are_passed_on_and_unused_volumes_are_not_made() {
    let place = Place::new();
    let sources = [("etc", "hostPath: {path: /etc}"), ("image", "image: {reference: 'r/i:1'}")];
    let mut pod = pod("", "", &sources);
    let unused = pod_yaml("metadata: {name: p}\nspec: {volumes: [{name: u, configMap: {name: c}}]}");
    pod.spec.volumes = pod.spec.volumes.iter().chain(&unused.spec.volumes).cloned().collect();
    let mounted = volumes(&place).set_up(&pod, &node()).await.unwrap();
    assert_eq!(mounted.keys().collect::<Vec<_>>(), ["etc", "image"]);
    let etc = MountedVolume::Files { host_path: "/etc".to_owned(), read_only: false, relabel: false };
    assert_eq!(mounted["etc"], etc);
    assert!(
        matches!(&mounted["image"], MountedVolume::Image(image) if image.image == "r/i:1"),
        "{mounted:?}"
    );
}

#[tokio::test]
async fn sub_paths_are_made_ready_and_taken_away_with_the_pod() {
    let place = Place::new();
    let volumes = volumes(&place);
    let mounted = volumes.set_up(&pod("", "", &[("v", "emptyDir: {}")]), &node()).await.unwrap();
    let wanted = SubPath {
        uid: "uid".to_owned(),
        container: "c".to_owned(),
        index: 0,
        volume: "v".to_owned(),
        volume_path: path_of(&mounted, "v"),
        path: "a/b".to_owned(),
    };
    let target = volumes.sub_path(&wanted).await.unwrap();
    assert_eq!(place.mounts(), [PathBuf::from(&target)]);
    assert_eq!(owner(Path::new(&target)).1, 0o777);
    let outside = SubPath { path: "../..".to_owned(), ..wanted };
    assert_eq!(
        volumes.sub_path(&outside).await.unwrap_err().to_string(),
        "failed to prepare subPath for volumeMount \"v\" of container \"c\""
    );
    volumes.tear_down("uid").await.unwrap();
    assert!(place.mounts().is_empty());
    assert!(!place.path().join("pods/uid/volume-subpaths").exists());
}

/// A kind of volume whose disk does not answer until it is told to.
struct Hanging(Mutex<Option<std::sync::mpsc::Receiver<()>>>);

#[async_trait]
impl Plugin for Hanging {
    fn supports(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Nfs(_))
    }

    fn refreshes(&self) -> bool {
        false
    }

    async fn set_up(&self, request: &Request) -> Result<MountedVolume, PluginError> {
        let answer = self.0.lock().unwrap().take();
        if let Some(answer) = answer {
            let work = move |_: &Request| Ok(answer.recv().is_ok());
            return request.blocking(work).await.map(|_| unreachable!("nobody waits that long"));
        }
        Ok(MountedVolume::Files { host_path: "/nfs".to_owned(), read_only: false, relabel: false })
    }
}

#[tokio::test]
async fn a_disk_that_does_not_answer_holds_up_its_own_pod_alone() {
    let place = Place::new();
    let (answer, disk) = std::sync::mpsc::channel();
    let volumes = volumes(&place)
        .with_deadline(Duration::from_millis(100))
        .with_plugin(Arc::new(Hanging(Mutex::new(Some(disk)))));
    let hung = pod("", "", &[("v", "nfs: {server: s, path: /}")]);
    let error = said(volumes.set_up(&hung, &node()).await.unwrap_err());
    assert_eq!(
        error,
        ["MountVolume.SetUp failed for volume \"v\" : timed out after 0s, the work on it continues"]
    );
    let error = said(volumes.set_up(&hung, &node()).await.unwrap_err());
    assert!(error[0].contains("earlier work on the pod's volumes has not ended"), "{error:?}");
    assert!(matches!(volumes.tear_down("uid").await, Err(TearDownError::TimedOut(_))));
    let mut other = pod("", "", &[("v", "emptyDir: {}")]);
    other.metadata.uid = "other".into();
    // On a busy machine its own work may take longer than the deadline; it never waits for the other's.
    while volumes.set_up(&other, &node()).await.is_err() {}
    while volumes.tear_down("other").await.is_err() {}
    answer.send(()).unwrap();
    while volumes.tear_down("uid").await.is_err() {}
    assert!(volumes.set_up(&hung, &node()).await.is_ok());
}

/// In place of the tool `mount`: what would be on a server is on this machine, where the server has it. How often it is
/// asked is told beside that.
fn mount_by_hand(arguments: &[&str]) -> Result<(), ToolError> {
    let [.., from, target] = arguments else { panic!("{arguments:?}") };
    let exported = Path::new(from.split_once(':').unwrap().1);
    let calls = exported.with_extension("calls");
    let arguments = arguments.join(" ");
    fs::write(&calls, fs::read_to_string(&calls).unwrap_or_default() + &arguments + "\n").unwrap();
    if !exported.exists() {
        return Err(ToolError::Mount { arguments, how: Ending::Exit(32), output: "no\n".to_owned() });
    }
    crablet_host::mounts::bind(exported, Path::new(target), false).unwrap();
    Ok(())
}

#[tokio::test]
async fn a_directory_of_a_server_is_mounted_once_and_a_failed_mount_leaves_nothing() {
    let place = Place::new();
    let volumes = || volumes(&place).with_plugin(Arc::new(Nfs(mount_by_hand)));
    let exported = place.path().join("exported");
    let source = format!("nfs: {{server: s, path: {}, readOnly: true}}", exported.display());
    let pod = pod("", "", &[("v", &source)]);
    let target = place.path().join("pods/uid/volumes/kubernetes.io~nfs/v");
    let asked = format!("-t nfs -o ro s:{} {}", exported.display(), target.display());
    let errors = said(volumes().set_up(&pod, &node()).await.unwrap_err());
    let expected = format!(
        "MountVolume.SetUp failed for volume \"v\" : mount failed: exit status 32\nMounting command: mount\n\
         Mounting arguments: {asked}\nOutput: no\n"
    );
    assert_eq!(errors, [expected]);
    assert!(!target.exists());

    place.directory("exported");
    fs::write(exported.join("file"), "x").unwrap();
    for _ in 0..2 {
        let mounted = volumes().set_up(&pod, &node()).await.unwrap();
        let host_path = target.display().to_string();
        assert_eq!(mounted["v"], MountedVolume::Files { host_path, read_only: true, relabel: false });
    }
    let calls = fs::read_to_string(exported.with_extension("calls")).unwrap();
    assert_eq!(calls, format!("{asked}\n{asked}\n"), "once in vain, and once");
    assert_eq!(place.mounts(), std::slice::from_ref(&target));
    assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "x");
    volumes().tear_down("uid").await.unwrap();
    assert!(place.mounts().is_empty() && !target.exists());
    assert_eq!(fs::read_to_string(exported.join("file")).unwrap(), "x");
}

/// A kind of volume whose volumes wait for each other.
struct Meeting(tokio::sync::Barrier);

#[async_trait]
impl Plugin for Meeting {
    fn supports(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Nfs(_))
    }

    fn refreshes(&self) -> bool {
        false
    }

    async fn set_up(&self, _: &Request) -> Result<MountedVolume, PluginError> {
        self.0.wait().await;
        Ok(MountedVolume::Files { host_path: "/nfs".to_owned(), read_only: false, relabel: false })
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_waits_holds_up_no_other_of_its_pod() {
    let place = Place::new();
    let volumes = volumes(&place).with_plugin(Arc::new(Meeting(tokio::sync::Barrier::new(2))));
    let source = "nfs: {server: s, path: /}";
    let mounted = volumes.set_up(&pod("", "", &[("v", source), ("w", source)]), &node()).await.unwrap();
    assert_eq!(mounted.keys().collect::<Vec<_>>(), ["v", "w"]);
    let alone = pod("", "", &[("v", source), ("good", "hostPath: {path: /etc}")]);
    let errors = said(volumes.set_up(&alone, &node()).await.unwrap_err());
    let expected =
        "MountVolume.SetUp failed for volume \"v\" : timed out after 123s, the work on it continues";
    assert_eq!(errors, [expected]);
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_refused() {
    let place = Place::new();
    let mut pod = pod("", "", &[("v", "emptyDir: {}")]);
    pod.metadata.uid = "../../etc".into();
    let errors = said(volumes(&place).set_up(&pod, &node()).await.unwrap_err());
    assert!(errors[0].ends_with("\"../../etc\" cannot be the name of a directory"), "{errors:?}");
}

#[tokio::test]
async fn a_place_for_another_volume_is_made_in_one_that_is_only_read() {
    let place = Place::new();
    let pod = pod_yaml(
        "metadata: {name: p, uid: uid}\nspec: {containers: [{name: c, volumeMounts: [
           {name: v, mountPath: /v}, {name: w, mountPath: /v/below}]}], volumes: [{name: w, emptyDir: {}},
           {name: v, downwardAPI: {defaultMode: 420, items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}",
    );
    let mounted = volumes(&place).set_up(&pod, &node()).await.unwrap();
    assert!(path_of(&mounted, "v").join("below").is_dir());
    assert_eq!(fs::read_to_string(path_of(&mounted, "v").join("name")).unwrap(), "p");
}
