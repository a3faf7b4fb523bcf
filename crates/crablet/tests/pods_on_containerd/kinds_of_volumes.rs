//! Each kind of volume that a cluster is needed for, as a container finds it: what is in it, whose it is, and how it is
//! mounted. What static pods can have is in `golden_on_containerd`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use crablet_api::certificates::PodCertificateRequest;
use crablet_cri::Runtime as _;
use crablet_csi::stand_in::{Capability, LocalVolumes, Settings, StandIn};
use crablet_host::clock::Clock;
use crablet_host::loop_device;
use crablet_testkit::eventually;
use crablet_x509::{Authority, Certificate, KeyPair, pem};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::Server;
use crate::csi::{merge, put, put_claim};
use crate::service::{ask, awaits_node, awaits_phase, create};
use crate::world::{PATIENCE, World, container_status};

const DRIVER: &str = "stand-in.csi.example.com";
const SIGNER: &str = "example.com/signer";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

/// Prints a word if it is among the options that what is at `/data` is mounted with.
const HAS: &str =
    r#"has() { awk '$5 == "/data" { print $6 "," $NF }' /proc/self/mountinfo | tr , '\n' | grep -x "$1"; }"#;

/// In place of the tool `mount`: what would be on a server is on this machine, where the server has it. All else is left to
/// the tool itself.
const MOUNT: &str = r#"#!/bin/sh
PATH=${PATH#*:}
[ "$1 $2" = "-t nfs" ] || exec mount "$@"
echo "$@" >> "${0%/*}/calls"
shift 2
options=
if [ "$1" = -o ]; then
    options=$2
    shift 2
fi
mount --bind "${1#*:}" "$2" || exit
[ -z "$options" ] || mount -o "remount,bind,$options" "$2"
"#;

/// A pod, and what a shell in it finds.
struct Case {
    name: &'static str,
    volume: Value,
    /// What else is in the pod's spec.
    spec: Value,
    script: &'static str,
    expected: String,
}

impl Case {
    fn new(name: &'static str, volume: Value, script: &'static str, expected: &str) -> Case {
        Case { name, volume, spec: json!({}), script, expected: expected.to_owned() }
    }

    fn claims(name: &'static str, script: &'static str, expected: &str) -> Case {
        Case::new(name, json!({"persistentVolumeClaim": {"claimName": name}}), script, expected)
    }

    fn with(mut self, spec: Value) -> Case {
        self.spec = spec;
        self
    }

    fn pod(&self) -> Value {
        let mut volume = self.volume.clone();
        volume["name"] = "v".into();
        let is_device = self.name.ends_with("block");
        let (field, use_of_it) = match is_device {
            true => ("volumeDevices", json!([{"name": "v", "devicePath": "/dev/stored"}])),
            false => ("volumeMounts", json!([{"name": "v", "mountPath": "/data"}])),
        };
        let script = format!("{HAS}\n{{\n{}\n}} > /dev/termination-log 2>&1", self.script);
        let mut spec = json!({
            "nodeName": "node", "hostNetwork": true, "restartPolicy": "Never",
            "containers": [{
                "name": "main", "image": "crablet.test/busybox:1", "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", script], field: use_of_it,
            }],
            "volumes": [volume],
        });
        spec.as_object_mut().unwrap().extend(self.spec.as_object().unwrap().clone());
        spec
    }
}

/// A disk, which is a file.
struct Disk(PathBuf);

impl Disk {
    fn new(file: PathBuf) -> Disk {
        fs::File::create(&file).unwrap().set_len(32 << 20).unwrap();
        Disk(file)
    }

    fn device(&self) -> PathBuf {
        loop_device::attach(&self.0).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = loop_device::detach(&self.0);
    }
}

/// Something on this machine with a file that only its owner may read.
fn directory(world: &World, name: &str) -> PathBuf {
    let path = world.node.path(name);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("file"), format!("of {name}\n")).unwrap();
    fs::set_permissions(path.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Issues what a pod asks for: two hours of which the second is for renewing it.
async fn issue_certificate(server: &Server, authority: &Authority) -> String {
    let path = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
    let request = eventually("a certificate is asked for", PATIENCE, || async {
        let mut found = ask(&server.data, path, &[]).await?;
        match &mut found["items"].as_array_mut().unwrap()[..] {
            [request] => Ok(request.take()),
            other => Err(format!("{other:#?}")),
        }
    });
    let request: PodCertificateRequest = serde_json::from_value(request.await.unwrap()).unwrap();
    let now = Clock::system().now();
    let text = pem::encode("CERTIFICATE REQUEST", request.spec.stub_pkcs10_request.as_ref().unwrap());
    // Certificates begin five minutes earlier, which is more than the server takes.
    let later = now + SignedDuration::from_secs(60);
    let leaf = authority.sign_request(&text, &["client auth"], Some(6900), later).unwrap();
    let certificate = Certificate::parse(&leaf).unwrap();
    let time = |at: Timestamp| format!("{at:.0}");
    let status = json!({
        "conditions": [{
            "type": "Issued", "status": "True", "reason": "Tested", "message": "here it is",
            "lastTransitionTime": time(now),
        }],
        "certificateChain": leaf,
        "notBefore": time(certificate.not_before()),
        "notAfter": time(certificate.not_after()),
        "beginRefreshAt": time(now + SignedDuration::from_hours(1)),
    });
    merge(server, &format!("{path}/{}/status", request.metadata.name), json!({"status": status})).await;
    leaf
}

/// Whether the runtime can mount images, which containerd does from 2.1 on.
async fn mounts_images(world: &World) -> bool {
    let version = world.client.version().await.unwrap().version;
    let mut parts = version.trim_start_matches('v').split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next(), parts.next()) >= (Some(2), Some(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_volume_shows_its_effect_in_its_container_on_containerd() {
    let gates = "featureGates: {ClusterTrustBundle: true, ClusterTrustBundleProjection: true, PodCertificateRequest: true}";
    let mut world = World::start_with(gates).await;
    let server = Server::embedded(&world).await;
    let programs = world.node.path("programs");
    fs::create_dir(&programs).unwrap();
    fs::write(programs.join("mount"), MOUNT).unwrap();
    fs::set_permissions(programs.join("mount"), fs::Permissions::from_mode(0o755)).unwrap();
    let volumes = LocalVolumes::new(&world.node.path("driver"));
    let kept = directory(&world, "driver/volume-kept");
    assert_eq!(kept, volumes.data("kept"));
    let capabilities = vec![Capability::StageUnstageVolume];
    let settings = Settings { capabilities, ..Settings::new(DRIVER) };
    let driver = StandIn::new(settings, Arc::new(volumes));
    let registrar = world.node.root().join("plugins_registry/stand-in-reg.sock");
    driver.start(&world.node.root().join("plugins").join(DRIVER).join("csi.sock"), Some(&registrar)).unwrap();
    world.stop_agent().await;
    world.node.join(&server.kubeconfig().await);
    world.node.with_programs(&programs);
    world.start_agent().await;
    awaits_node(&server.data).await;

    let of_driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"attachRequired": false, "fsGroupPolicy": "File"},
    });
    put(&server, "/apis/storage.k8s.io/v1/csidrivers", of_driver).await;
    let exported = directory(&world, "exported");
    let on_host = directory(&world, "on-host");
    let disks = [Disk::new(world.node.path("disk")), Disk::new(world.node.path("device"))];
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node"]},
    ]}]}});
    let nfs = json!({"server": "nfs.example.com", "path": exported});
    for (name, source) in [
        ("nfs", json!({"nfs": nfs, "mountOptions": ["noexec", "nodiratime"]})),
        ("host-path", json!({"hostPath": {"path": on_host, "type": "Directory"}})),
        ("csi", json!({"csi": {"driver": DRIVER, "volumeHandle": "kept"}, "mountOptions": ["noexec"]})),
        (
            "disk",
            json!({
                "local": {"path": disks[0].device()}, "nodeAffinity": affinity,
                "mountOptions": ["noatime", "errors=remount-ro"],
            }),
        ),
        (
            "block",
            json!({"local": {"path": disks[1].device()}, "nodeAffinity": affinity, "volumeMode": "Block"}),
        ),
    ] {
        put_claim(&server, name, source).await;
    }
    let template = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "resources": {"requests": {"storage": "1Mi"}},
        "selector": {"matchLabels": {"for": "ephemeral"}},
    });
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "ephemeral", "labels": {"for": "ephemeral"}},
        "spec": {
            "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": directory(&world, "ephemeral")},
        },
    });
    put(&server, "/api/v1/persistentvolumes", volume).await;
    let authority = Authority::make(
        KeyPair::generate().unwrap(),
        "signer",
        &[],
        Clock::system().now(),
        SignedDuration::from_hours(9),
    )
    .unwrap();
    for (name, signer) in [("own", None), ("example.com:signer:live", Some(SIGNER))] {
        let bundle = json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
            "metadata": {"name": name, "labels": {"for": "test"}},
            "spec": {"signerName": signer, "trustBundle": authority.certificate()},
        });
        put(&server, "/apis/certificates.k8s.io/v1beta1/clustertrustbundles", bundle).await;
    }

    let nobody = json!({"securityContext": {"runAsUser": 1000, "fsGroup": 4321}});
    let mut cases = vec![
        Case::new(
            "nfs-inline",
            json!({"nfs": {"server": "nfs.example.com", "path": exported, "readOnly": true}}),
            "cat /data/file; has ro; touch /data/new 2> /dev/null || echo refused",
            "of exported\nro\nrefused\n",
        ),
        Case::claims(
            "nfs",
            "cat /data/file; has noexec; has nodiratime; echo written > /data/written",
            "of exported\nnoexec\nnodiratime\n",
        ),
        Case::claims("host-path", "cat /data/file; echo written > /data/written", "of on-host\n"),
        Case::new(
            "read-only",
            json!({"persistentVolumeClaim": {"claimName": "host-path", "readOnly": true}}),
            "cat /data/file; has ro; touch /data/new 2> /dev/null || echo refused",
            "of on-host\nro\nrefused\n",
        ),
        Case::claims(
            "csi",
            "stat -c '%g %a' /data /data/file; has noexec; cat /data/file",
            "4321 2775\n4321 660\nnoexec\nof driver/volume-kept\n",
        )
        .with(nobody.clone()),
        Case::claims(
            "disk",
            "has noatime; has errors=remount-ro; stat -c '%g %a' /data; touch /data/new; stat -c '%u %g' /data/new",
            "noatime\nerrors=remount-ro\n4321 2775\n1000 4321\n",
        )
        .with(nobody),
        Case::claims(
            "block",
            "stat -c %F /dev/stored; printf greeting | dd of=/dev/stored conv=fsync,notrunc 2> /dev/null
             dd if=/dev/stored bs=8 count=1 2> /dev/null",
            "block special file\ngreeting",
        ),
        Case::new(
            "ephemeral",
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": template}}}),
            "cat /data/file; echo written > /data/written",
            "of ephemeral\n",
        ),
        Case::new(
            "trusts",
            json!({"projected": {"sources": [
                {"clusterTrustBundle": {"name": "own", "path": "own.pem"}},
                {"clusterTrustBundle": {
                    "signerName": SIGNER, "labelSelector": {"matchLabels": {"for": "test"}}, "path": "live.pem",
                }},
                {"clusterTrustBundle": {"name": "none", "optional": true, "path": "none.pem"}},
            ]}}),
            "stat -Lc '%a %s' /data/none.pem; cmp /data/own.pem /data/live.pem && cat /data/own.pem",
            &format!("644 0\n{}", authority.certificate()),
        ),
        Case::new(
            "certified",
            json!({"projected": {"sources": [{"podCertificate": {
                "signerName": SIGNER, "keyType": "ECDSAP256", "keyPath": "key", "certificateChainPath": "chain",
            }}]}}),
            "stat -Lc '%u %a' /data/key; head -n 1 /data/key; cat /data/chain",
            "1000 600\n-----BEGIN PRIVATE KEY-----\n",
        )
        .with(json!({"securityContext": {"runAsUser": 1000}})),
    ];
    match mounts_images(&world).await {
        true => cases.push(Case::new(
            "image",
            json!({"image": {"reference": "crablet.test/busybox:1", "pullPolicy": "Never"}}),
            "has ro; cat /data/etc/group",
            "ro\nroot:x:0:\nnogroup:x:65534:\n",
        )),
        false => eprintln!("skipped: volumes of images, which containerd has from 2.1 on"),
    }
    for case in &cases {
        create(&server.data, case.name, case.pod()).await;
    }
    let leaf = issue_certificate(&server, &authority).await;
    let agent = world.agent.as_ref().unwrap();
    for case in &cases {
        let pod = awaits_phase(&server.data, agent, case.name, &["Succeeded", "Failed"]).await;
        let told = &container_status(&pod, "main")["state"]["terminated"]["message"];
        let issued = if case.name == "certified" { &*leaf } else { "" };
        assert_eq!(told.as_str().unwrap_or_default(), format!("{}{issued}", case.expected), "{}", case.name);
    }
    let asked = fs::read_to_string(programs.join("calls")).unwrap();
    let from = format!("nfs.example.com:{}", exported.display());
    for (options, pod) in [("ro", "nfs-inline"), ("nodiratime,noexec", "nfs")] {
        let begin = format!("-t nfs -o {options} {from} ");
        assert_eq!(asked.lines().filter(|call| call.starts_with(&begin)).count(), 1, "{pod}: {asked}");
    }
    assert_eq!(
        ask(&server.data, &format!("{CLAIMS}/ephemeral-v"), &[]).await.unwrap()["status"]["phase"],
        "Bound"
    );

    for case in &cases {
        server.delete(case.name).await;
    }
    for case in &cases {
        server.awaits_end(case.name).await;
    }
    eventually("nothing is mounted any more", PATIENCE, || async {
        let left = world.mounted();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:#?}")) }
    })
    .await
    .unwrap();
    eventually("a claim ends with the pod that it was made for", PATIENCE, || async {
        match ask(&server.data, &format!("{CLAIMS}/ephemeral-v"), &[]).await {
            Ok(claim) => Err(format!("{claim:#}")),
            Err(_) => Ok(()),
        }
    })
    .await
    .unwrap();
    for written in [&exported, &on_host, &world.node.path("ephemeral")] {
        assert_eq!(fs::read_to_string(written.join("written")).unwrap(), "written\n");
    }
    assert!(kept.join("file").exists());
    world.stop_agent().await;
}
