//! Claims of pods on a real containerd, and a CSI driver that stands in for one: what a container writes is where the
//! driver keeps it, and stays there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crablet_csi::Code;
use crablet_csi::stand_in::{Call, Capability, Fault, LocalVolumes, Settings, StandIn};
use crablet_testkit::{Daemon, eventually};
use serde_json::{Value, json};

use crate::cluster::Server;
use crate::service::{ask, awaits_node, awaits_phase, create};
use crate::world::{PATIENCE, World, container_status};

const DRIVER: &str = "stand-in.csi.example.com";

pub(crate) async fn put(server: &Server, path: &str, object: Value) {
    let request = ["--header", "Content-Type: application/json", "--data", &object.to_string()];
    ask(&server.data, path, &request).await.unwrap();
}

/// A piece of storage and a claim to it, which is bound: a server without controllers is told so.
pub(crate) async fn put_claim(server: &Server, name: &str, source: Value) {
    let size = json!({"storage": "1Mi"});
    let mode = source.get("volumeMode").cloned().unwrap_or_else(|| json!("Filesystem"));
    let mut spec = json!({
        "capacity": size, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name},
        "persistentVolumeReclaimPolicy": "Retain",
    });
    spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    let volume =
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec});
    put(server, "/api/v1/persistentvolumes", volume).await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name, "volumeMode": mode,
            "resources": {"requests": size},
        },
    });
    put(server, claims, claim).await;
    if server.has_controllers() {
        let path = format!("{claims}/{name}");
        eventually("the claim is bound", PATIENCE, || async {
            let claim = ask(&server.data, &path, &[]).await?;
            if claim["status"]["phase"] == "Bound" { Ok(()) } else { Err(format!("{claim:#}")) }
        })
        .await
        .unwrap();
        return;
    }
    let bound = json!({"status": {"phase": "Bound", "capacity": size}});
    let claim = merge(server, &format!("{claims}/{name}/status"), bound).await;
    let reference = json!({"spec": {"claimRef": {"uid": claim["metadata"]["uid"]}}});
    merge(server, &format!("/api/v1/persistentvolumes/{name}"), reference).await;
}

pub(crate) async fn merge(server: &Server, path: &str, patch: Value) -> Value {
    let kind = "Content-Type: application/merge-patch+json";
    let request = ["--request", "PATCH", "--header", kind, "--data", &patch.to_string()];
    ask(&server.data, path, &request).await.unwrap()
}

/// Makes a piece of storage larger, as whoever does that in a cluster.
async fn grow(server: &Server, name: &str) {
    let size = json!({"storage": "2Mi"});
    let claim = format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}/status");
    let pending = json!({
        "allocatedResources": size, "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
    });
    merge(server, &claim, json!({"status": pending})).await;
    // Last: from here on the agent may act, for whichever pod has it.
    let volume = format!("/api/v1/persistentvolumes/{name}");
    merge(server, &volume, json!({"spec": {"capacity": size}})).await;
}

/// Its claim says that a volume has become larger, and so do events.
async fn has_grown(server: &Server, name: &str) -> Result<(), String> {
    let claim =
        ask(&server.data, &format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}"), &[]).await?;
    let status = &claim["status"];
    let is_done = status["capacity"]["storage"] == "2Mi"
        && status["conditions"].is_null()
        && status["allocatedResourceStatuses"].is_null();
    let events = ask(&server.data, "/api/v1/namespaces/default/events", &[]).await?;
    let is_told = |kind: &str| {
        let mut events = events["items"].as_array().unwrap().iter();
        events.any(|event| {
            event["reason"] == "FileSystemResizeSuccessful" && event["involvedObject"]["kind"] == kind
        })
    };
    match is_done && is_told("Pod") && is_told("PersistentVolumeClaim") {
        true => Ok(()),
        false => Err(format!("{claim:#} {events:#}")),
    }
}

fn with_claim(name: &str, command: &str) -> Value {
    json!({
        "nodeName": "node", "hostNetwork": true, "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "main", "image": "crablet.test/busybox:1", "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", format!("{command}; trap 'exit 0' TERM; while :; do sleep 0.1; done")],
            "volumeMounts": [{"name": "v", "mountPath": "/data"}],
        }],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_mounted_in_the_cluster_of_the_embedded_server_on_containerd() {
    let world = World::start().await;
    let server = Server::embedded(&world).await;
    claims_are_mounted(world, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_mounted_in_the_cluster_of_a_real_server_on_containerd() {
    let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") else { return };
    let world = World::start().await;
    let server = Server::real(&world, Path::new(&assets)).await;
    claims_are_mounted(world, server).await;
}

/// A pod that has a claim as a device, which it writes to and reads from.
fn with_device(name: &str) -> Value {
    let mut pod = with_claim(
        name,
        "printf greeting | dd of=/dev/stored conv=fsync,notrunc && \
         dd if=/dev/stored bs=8 count=1 | dd of=/dev/stored bs=8 seek=1 conv=fsync,notrunc",
    );
    let container = pod["containers"][0].as_object_mut().unwrap();
    container.remove("volumeMounts");
    container.insert("volumeDevices".to_owned(), json!([{"name": "v", "devicePath": "/dev/stored"}]));
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_a_device_of_its_pod_on_containerd() {
    let mut world = World::start().await;
    let server = Server::embedded(&world).await;
    let root = world.node.root();
    let volumes = Arc::new(LocalVolumes::new(&world.node.path("driver")));
    let settings = Settings { capabilities: vec![Capability::StageUnstageVolume], ..Settings::new(DRIVER) };
    let driver = StandIn::new(settings, Arc::clone(&volumes) as _);
    let registrar = root.join("plugins_registry/stand-in-reg.sock");
    driver.start(&root.join("plugins").join(DRIVER).join("csi.sock"), Some(&registrar)).unwrap();
    driver.plan("NodePublishVolume", Fault::fail(Code::Internal, "not now", 1));
    world.stop_agent().await;
    world.node.join(&server.kubeconfig().await);
    world.start_agent().await;
    awaits_node(&server.data).await;
    let of_driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"attachRequired": false},
    });
    put(&server, "/apis/storage.k8s.io/v1/csidrivers", of_driver).await;
    let source = json!({"csi": {"driver": DRIVER, "volumeHandle": "vol-1"}, "volumeMode": "Block"});
    put_claim(&server, "stored", source).await;
    create(&server.data, "stored", with_device("stored")).await;
    awaits_phase(&server.data, world.agent.as_ref().unwrap(), "stored", &["Running"]).await;
    eventually("what it wrote is on the device", PATIENCE, || async {
        let image = std::fs::read(volumes.image("vol-1")).map_err(|error| error.to_string())?;
        if image.starts_with(b"greetinggreeting") { Ok(()) } else { Err("it is not".to_owned()) }
    })
    .await
    .unwrap();
    eventually("what went wrong at first is told", PATIENCE, || async {
        let events = ask(&server.data, "/api/v1/namespaces/default/events", &[]).await?;
        let message =
            "MapVolume.MapPodDevice failed for volume \"stored\" : rpc error: code = Internal desc = not now";
        let is_it = |event: &Value| event["reason"] == "FailedMapVolume" && event["message"] == message;
        if events["items"].as_array().unwrap().iter().any(is_it) {
            Ok(())
        } else {
            Err(format!("{events:#}"))
        }
    })
    .await
    .unwrap();

    // Another agent asks for nothing that is there, and takes all of it back in the end.
    world.stop_agent().await;
    world.start_agent().await;
    let told =
        |calls: &[Call]| calls.iter().filter(|call| call.call.ends_with("NotifyRegistrationStatus")).count();
    driver.until(|calls| told(calls) == 2).await;
    server.delete("stored").await;
    server.awaits_end("stored").await;
    driver.until(|calls| calls.iter().any(|call| call.call.ends_with("NodeUnstageVolume"))).await;
    let asked: Vec<&str> =
        driver.calls().iter().filter_map(|call| call.call.strip_prefix("Node.Node")).collect();
    let asked: Vec<&str> = asked.into_iter().filter(|call| call.ends_with("Volume")).collect();
    let expected = ["StageVolume", "PublishVolume", "PublishVolume", "UnpublishVolume", "UnstageVolume"];
    assert_eq!(asked, expected);
    eventually("nothing is left of the device", PATIENCE, || async {
        let left = world.mounted();
        let devices = root.join("plugins/kubernetes.io/csi/volumeDevices/stored");
        match left.is_empty() && !devices.exists() {
            true => Ok(()),
            false => Err(format!("{left:#?}")),
        }
    })
    .await
    .unwrap();
    world.stop_agent().await;
}

async fn claims_are_mounted(mut world: World, server: Server) {
    let root = world.node.root();
    let volumes = Arc::new(LocalVolumes::new(&world.node.path("driver")));
    let settings = Settings {
        capabilities: vec![Capability::StageUnstageVolume, Capability::ExpandVolume],
        max_volumes_per_node: 8,
        topology: Some([("topology.example.com/zone".to_owned(), "z1".to_owned())].into()),
        ..Settings::new(DRIVER)
    };
    let driver = StandIn::new(settings, Arc::clone(&volumes) as _);
    let registrar = root.join("plugins_registry/stand-in-reg.sock");
    driver.start(&root.join("plugins").join(DRIVER).join("csi.sock"), Some(&registrar)).unwrap();
    world.stop_agent().await;
    world.node.join(&server.kubeconfig().await);
    world.start_agent().await;
    awaits_node(&server.data).await;
    eventually("the driver is known", PATIENCE, || async {
        let found = ask(&server.data, "/apis/storage.k8s.io/v1/csinodes/node", &[]).await?;
        let expected = json!([{
            "name": DRIVER, "nodeID": "node", "topologyKeys": ["topology.example.com/zone"], "allocatable": {"count": 8},
        }]);
        if found["spec"]["drivers"] == expected { Ok(()) } else { Err(format!("{found:#}")) }
    })
    .await
    .unwrap();
    let node = ask(&server.data, "/api/v1/nodes/node", &[]).await.unwrap();
    assert_eq!(node["metadata"]["labels"]["topology.example.com/zone"], "z1");
    let told = &node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"];
    assert_eq!(*told, format!("{{\"{DRIVER}\":\"node\"}}"));

    let of_driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"attachRequired": false},
    });
    put(&server, "/apis/storage.k8s.io/v1/csidrivers", of_driver).await;
    put_claim(&server, "stored", json!({"csi": {"driver": DRIVER, "volumeHandle": "vol-1"}})).await;
    let local = world.node.path("local");
    std::fs::create_dir_all(&local).unwrap();
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node"]},
    ]}]}});
    put_claim(&server, "local", json!({"local": {"path": local}, "nodeAffinity": affinity})).await;
    for (name, kept) in [("stored", volumes.data("vol-1")), ("local", local.clone())] {
        create(&server.data, name, with_claim(name, &format!("echo {name} > /data/greeting"))).await;
        awaits_phase(&server.data, world.agent.as_ref().unwrap(), name, &["Running"]).await;
        eventually("what it wrote is kept", PATIENCE, || async {
            std::fs::read_to_string(kept.join("greeting")).map_err(|error| error.to_string())
        })
        .await
        .unwrap();
    }

    // Another agent asks for nothing that a pod has, and restarts nothing. Before the next pod gets the volume the driver
    // says once more that it is staged, as upstream.
    let before = server.pod("stored").await.unwrap();
    let asked = |method: &str| driver.calls().iter().filter(|call| call.call.ends_with(method)).count();
    world.stop_agent().await;
    world.start_agent().await;
    driver
        .until(|calls| {
            calls.iter().filter(|call| call.call.ends_with("NotifyRegistrationStatus")).count() == 2
        })
        .await;
    grow(&server, "stored").await;
    create(&server.data, "beside", with_claim("stored", "cat /data/greeting > /dev/termination-log")).await;
    awaits_phase(&server.data, world.agent.as_ref().unwrap(), "beside", &["Running"]).await;
    let id = |pod: &Value| container_status(pod, "main")["containerID"].clone();
    assert_eq!(id(&server.pod("stored").await.unwrap()), id(&before));
    assert_eq!((asked("NodeStageVolume"), asked("NodePublishVolume"), asked("NodeExpandVolume")), (2, 2, 1));
    eventually("the volume has grown", PATIENCE, || has_grown(&server, "stored")).await.unwrap();

    // What has to be attached is in use before it is mounted, and no longer than that.
    let in_use = async || {
        let node = ask(&server.data, "/api/v1/nodes/node", &[]).await.unwrap();
        node["status"]["volumesInUse"].clone()
    };
    assert_eq!(in_use().await, Value::Null, "nobody attaches volumes of this driver");
    if server.has_controllers() {
        let path = format!("/apis/storage.k8s.io/v1/csidrivers/{DRIVER}");
        ask(&server.data, &path, &["--request", "DELETE"]).await.unwrap();
        put_claim(&server, "attached", json!({"csi": {"driver": DRIVER, "volumeHandle": "vol-2"}})).await;
        create(&server.data, "attached", with_claim("attached", "echo attached > /data/greeting")).await;
        awaits_phase(&server.data, world.agent.as_ref().unwrap(), "attached", &["Running"]).await;
        assert_eq!(in_use().await, json!([format!("kubernetes.io/csi/{DRIVER}^vol-2")]));
        server.delete("attached").await;
        server.awaits_end("attached").await;
        eventually("it is not in use any more", PATIENCE, || async {
            let in_use = in_use().await;
            if in_use.is_null() { Ok(()) } else { Err(in_use.to_string()) }
        })
        .await
        .unwrap();
    }

    for name in ["stored", "local", "beside"] {
        server.delete(name).await;
        server.awaits_end(name).await;
    }
    let attached = usize::from(server.has_controllers());
    let is_unstage = |call: &&Call| call.call.ends_with("NodeUnstageVolume");
    driver.until(|calls| calls.iter().filter(is_unstage).count() == 1 + attached).await;
    assert_eq!(asked("NodeUnpublishVolume"), 2 + attached);
    eventually("nothing is mounted any more", PATIENCE, || async {
        let left = world.mounted();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:#?}")) }
    })
    .await
    .unwrap();
    assert_eq!(std::fs::read_to_string(volumes.data("vol-1").join("greeting")).unwrap(), "stored\n");
    assert_eq!(std::fs::read_to_string(local.join("greeting")).unwrap(), "local\n");
    world.stop_agent().await;
}

/// Upstream's own driver and its registrar, where they are beside the other assets: built by others, in Go.
#[tokio::test(flavor = "multi_thread")]
async fn the_hostpath_driver_serves_pods_on_containerd() {
    let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) else { return };
    let (driver, registrar) = (assets.join("hostpathplugin"), assets.join("node-driver-registrar"));
    if !driver.exists() || !registrar.exists() {
        return;
    }
    let mut world = World::start().await;
    let server = Server::embedded(&world).await;
    let root = world.node.root();
    let socket = root.join("plugins/csi-hostpath/csi.sock");
    let data = world.node.path("hostpath-data");
    for directory in [socket.parent().unwrap(), &data, &root.join("plugins_registry")] {
        std::fs::create_dir_all(directory).unwrap();
    }
    let name = "hostpath.csi.k8s.io";
    let nothing = [] as [(&str, &str); 0];
    let arguments = [
        format!("--drivername={name}"),
        format!("--endpoint=unix://{}", socket.display()),
        format!("--statedir={}", data.display()),
        "--nodeid=node".to_owned(),
        "--v=5".to_owned(),
    ];
    let driver_log = world.node.path("hostpath.log");
    let _driver = Daemon::spawn(&driver, arguments, nothing, &driver_log).await.unwrap();
    let arguments = [
        format!("--csi-address={}", socket.display()),
        format!("--kubelet-registration-path={}", socket.display()),
        format!("--plugin-registration-path={}", root.join("plugins_registry").display()),
    ];
    let _registrar =
        Daemon::spawn(&registrar, arguments, nothing, &world.node.path("registrar.log")).await.unwrap();
    world.stop_agent().await;
    world.node.join(&server.kubeconfig().await);
    world.start_agent().await;
    awaits_node(&server.data).await;
    eventually("the driver is known", PATIENCE, || async {
        let found = ask(&server.data, "/apis/storage.k8s.io/v1/csinodes/node", &[]).await?;
        if found["spec"]["drivers"][0]["name"] == name { Ok(()) } else { Err(format!("{found:#}")) }
    })
    .await
    .unwrap();
    let of_driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": name},
        "spec": {"attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"]},
    });
    put(&server, "/apis/storage.k8s.io/v1/csidrivers", of_driver).await;
    let mut spec = with_claim("none", "echo inline > /data/greeting");
    spec["volumes"][0] = json!({"name": "v", "csi": {"driver": name, "volumeAttributes": {"size": "1Mi"}}});
    create(&server.data, "inline", spec).await;
    awaits_phase(&server.data, world.agent.as_ref().unwrap(), "inline", &["Running"]).await;
    let kept =
        || std::fs::read_dir(&data).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
    assert_eq!(kept(), 1, "the driver has a volume");
    server.delete("inline").await;
    server.awaits_end("inline").await;
    assert_eq!(kept(), 0, "and none any more: {}", std::fs::read_to_string(&driver_log).unwrap());
    world.stop_agent().await;
}
