//! Volumes that show what a cluster has.

use std::sync::atomic::{AtomicBool, Ordering};

use crablet_api::core::{
    ClusterTrustBundleProjection, ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret,
};
use crablet_core::translate::Unavailable;
use crablet_host::loop_device;

use super::*;
use crate::contents::{CertificateOf, NoCertificate, PodCertificate, Token, TokenRequest};

/// A cluster with one config map and one secret, both `one`.
#[derive(Default)]
struct Cluster {
    config_map: Mutex<Option<ConfigMap>>,
    secret: Mutex<Option<Secret>>,
    tokens: Mutex<Vec<TokenRequest>>,
    claims: Mutex<BTreeMap<String, PersistentVolumeClaim>>,
    volumes: Mutex<BTreeMap<String, PersistentVolume>>,
    /// What there is of the second source of the volume `v`.
    certificate: Mutex<Option<Result<PodCertificate, NoCertificate>>>,
    /// Nobody answers.
    is_away: AtomicBool,
}

#[async_trait]
impl Contents for Cluster {
    async fn config_map(&self, _: &str, name: &str) -> Result<Arc<ConfigMap>, Unavailable> {
        self.answer()?;
        let found = self.config_map.lock().unwrap().clone().filter(|_| name == "one");
        found.map(Arc::new).ok_or(Unavailable::NotFound)
    }

    async fn secret(&self, _: &str, name: &str) -> Result<Arc<Secret>, Unavailable> {
        self.answer()?;
        let found = self.secret.lock().unwrap().clone().filter(|_| name == "one");
        found.map(Arc::new).ok_or(Unavailable::NotFound)
    }

    async fn claim(&self, _: &str, name: &str) -> Result<Arc<PersistentVolumeClaim>, Unavailable> {
        self.answer()?;
        self.claims.lock().unwrap().get(name).cloned().map(Arc::new).ok_or(Unavailable::NotFound)
    }

    async fn persistent_volume(&self, name: &str) -> Result<Arc<PersistentVolume>, Unavailable> {
        self.answer()?;
        self.volumes.lock().unwrap().get(name).cloned().map(Arc::new).ok_or(Unavailable::NotFound)
    }

    async fn trust_anchors(&self, wanted: &ClusterTrustBundleProjection) -> Result<String, Unavailable> {
        self.answer()?;
        match wanted.name.as_deref() {
            Some("one") => Ok("whom to trust".to_owned()),
            Some(_) | None => Err(Unavailable::NotFound),
        }
    }

    async fn pod_certificate(&self, wanted: &CertificateOf<'_>) -> Result<PodCertificate, NoCertificate> {
        assert_eq!((&*wanted.pod.metadata.name, wanted.volume, wanted.index), ("p", "v", 1));
        self.certificate.lock().unwrap().clone().unwrap_or(Err(NoCertificate::Unimplemented))
    }

    async fn service_account_token(&self, request: &TokenRequest) -> Result<Option<Token>, Unavailable> {
        self.answer()?;
        if request.service_account == "later" {
            return Ok(None);
        }
        if request.service_account == "nobody" {
            return Err(Unavailable::Other(
                "failed to fetch token: serviceaccounts \"nobody\" not found".to_owned(),
            ));
        }
        let mut tokens = self.tokens.lock().unwrap();
        tokens.push(request.clone());
        Ok(Some(Token::new(&format!("token {}", tokens.len()))))
    }
}

impl Cluster {
    fn answer(&self) -> Result<(), Unavailable> {
        match self.is_away.load(Ordering::Relaxed) {
            true => Err(Unavailable::Other("the server is away".to_owned())),
            false => Ok(()),
        }
    }

    fn put_config_map(&self, data: &[(&str, &str)], binary_data: &[(&str, &str)]) {
        *self.config_map.lock().unwrap() = Some(ConfigMap {
            data: data.iter().map(|(key, value)| (*key, (*value).into())).collect(),
            binary_data: binary_data.iter().map(|(key, value)| (*key, (*value).into())).collect(),
            ..ConfigMap::default()
        });
    }

    fn put_secret(&self, data: &[(&str, &str)]) {
        let data = data.iter().map(|(key, value)| (*key, (*value).into())).collect();
        *self.secret.lock().unwrap() = Some(Secret { data, ..Secret::default() });
    }
}

/// A node in a cluster whose objects have some keys.
fn in_cluster(place: &Place) -> (HostVolumes, Arc<Cluster>) {
    let cluster = Arc::new(Cluster::default());
    cluster.put_config_map(&[("a", "text"), ("b", "more")], &[("c", "bytes")]);
    cluster.put_secret(&[("user", "me"), ("password", "s3cr3t")]);
    (HostVolumes::new(place.path(), Clock::system(), Arc::clone(&cluster) as _), cluster)
}

/// The files that a volume shows, as `path=content mode`.
fn files(volume: &Path) -> Vec<String> {
    fn walk(root: &Path, below: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(root.join(below)).unwrap() {
            let path = below.join(entry.unwrap().file_name());
            let metadata = fs::metadata(root.join(&path)).unwrap();
            match metadata.is_dir() {
                true => walk(root, &path, found),
                false => {
                    let content = fs::read_to_string(root.join(&path)).unwrap();
                    found.push(format!("{}={content} {:o}", path.display(), metadata.mode() & 0o7777));
                }
            }
        }
    }
    let mut found = Vec::new();
    walk(&volume.join("..data"), Path::new(""), &mut found);
    found.sort();
    found
}

/// What a volume shows, or why it does not.
async fn shown(source: &str) -> Vec<String> {
    let place = Place::new();
    let (volumes, _) = in_cluster(&place);
    match volumes.set_up(&pod("", "", &[("v", source)]), &node()).await {
        Ok(mounted) => files(&path_of(&mounted, "v")),
        Err(errors) => said(errors)
            .into_iter()
            .map(|error| error.replace("MountVolume.SetUp failed for volume \"v\" : ", ""))
            .collect(),
    }
}

#[tokio::test]
async fn keys_of_config_maps_and_secrets_are_files_with_their_modes() {
    for (source, expected) in [
        ("configMap: {name: one, defaultMode: 420}", &["a=text 644", "b=more 644", "c=bytes 644"][..]),
        (
            "configMap: {name: one, defaultMode: 420, items: [{key: c, path: deep/er/c, mode: 256}, {key: a, path: a}]}",
            &["a=text 644", "deep/er/c=bytes 400"],
        ),
        ("configMap: {name: one}", &["no defaultMode used, not even the default value for it"]),
        ("configMap: {name: two, defaultMode: 420}", &["configmap \"two\" not found"]),
        ("configMap: {name: two, defaultMode: 420, optional: false}", &["configmap \"two\" not found"]),
        ("configMap: {name: two, defaultMode: 420, optional: true}", &[]),
        (
            "configMap: {name: one, defaultMode: 420, items: [{key: x, path: x}]}",
            &["configmap references non-existent config key: x"],
        ),
        (
            "configMap: {name: one, defaultMode: 420, optional: true, items: [{key: x, path: x}, {key: a, path: z}]}",
            &["z=text 644"],
        ),
        (
            "configMap: {name: one, defaultMode: 420, items: [{key: a, path: ../a}]}",
            &["invalid path: must not contain '..': ../a"],
        ),
        ("secret: {secretName: one, defaultMode: 292}", &["password=s3cr3t 444", "user=me 444"]),
        (
            "secret: {secretName: one, defaultMode: 292, items: [{key: user, path: u, mode: 511}]}",
            &["u=me 777"],
        ),
        ("secret: {secretName: two, defaultMode: 420}", &["secret \"two\" not found"]),
        ("secret: {secretName: two, defaultMode: 420, optional: true}", &[]),
        (
            "secret: {secretName: one, defaultMode: 420, items: [{key: x, path: x}]}",
            &["references non-existent secret key: x"],
        ),
        ("secret: {secretName: one, defaultMode: 420, optional: true, items: [{key: x, path: x}]}", &[]),
    ] {
        assert_eq!(shown(source).await, expected, "{source}");
    }
}

#[tokio::test]
async fn a_projected_volume_shows_all_its_sources_or_says_all_that_is_wrong() {
    for (sources, expected) in [
        (
            "{secret: {name: one}}, {configMap: {name: one, items: [{key: a, path: user}]}},
             {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}},
             {serviceAccountToken: {path: t/token, audience: them, expirationSeconds: 600}}",
            &["name=p 640", "password=s3cr3t 640", "t/token=token 1 640", "user=text 640"][..],
        ),
        (
            "{secret: {name: two}}, {configMap: {name: two}}, {configMap: {name: one, items: [{key: x, path: x}]}},
             {secret: {name: one}}, {secret: {name: two}}",
            &["[secret \"two\" not found, configmap \"two\" not found, configmap references non-existent config key: x]"],
        ),
        ("{secret: {name: two, optional: true}}, {configMap: {name: two, optional: true}}", &[]),
        (
            "{downwardAPI: {items: [{path: a, fieldRef: {fieldPath: spec.x}}, {path: b, fieldRef: {fieldPath: spec.y}}]}},
             {secret: {name: two}}",
            &["[unsupported fieldPath: spec.x, unsupported fieldPath: spec.y, secret \"two\" not found]"],
        ),
    ] {
        let source = format!("projected: {{defaultMode: 416, sources: [{sources}]}}");
        assert_eq!(shown(&source).await, expected, "{sources}");
    }
}

#[tokio::test]
async fn a_token_is_asked_for_the_pod_and_belongs_to_its_user_and_group() {
    let source = "projected: {defaultMode: 420, sources: [{serviceAccountToken: {path: token, audience: them, expirationSeconds: 600}}]}";
    for (extra, expected) in [
        ("", (0, 0, 0o644)),
        ("securityContext: {runAsUser: 1234},", (1234, 0, 0o600)),
        ("securityContext: {fsGroup: 4321},", (0, 4321, 0o640)),
        ("securityContext: {runAsUser: 1234, fsGroup: 4321},", (1234, 4321, 0o640)),
        // Not all containers run as the same user.
        (
            "securityContext: {runAsUser: 1234}, initContainers: [{name: i, securityContext: {runAsUser: 5}}],",
            (0, 0, 0o644),
        ),
        ("initContainers: [{name: i, securityContext: {runAsUser: 5}}],", (0, 0, 0o644)),
    ] {
        let place = Place::new();
        let (volumes, cluster) = in_cluster(&place);
        let pod = pod("", &format!("{extra} serviceAccountName: robot,"), &[("v", source)]);
        let mounted = volumes.set_up(&pod, &node()).await.unwrap();
        let path = path_of(&mounted, "v");
        assert!(place.mounts().contains(&path), "tokens are in memory");
        let metadata = fs::metadata(path.join("token")).unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), expected, "{extra}");
        let asked = TokenRequest {
            namespace: "ns".into(),
            service_account: "robot".into(),
            service_account_uid: None,
            audiences: vec!["them".into()],
            expiration_seconds: Some(600),
            pod: "p".into(),
            pod_uid: "uid".into(),
        };
        assert_eq!(*cluster.tokens.lock().unwrap(), [asked]);
        volumes.refresh(&pod, &node()).await.unwrap();
        assert_eq!(fs::read_to_string(path.join("token")).unwrap(), "token 2");
    }
    let place = Place::new();
    let (volumes, _) = in_cluster(&place);
    let pod = pod("", "serviceAccountName: nobody,", &[("v", source)]);
    let errors = said(volumes.set_up(&pod, &node()).await.unwrap_err());
    assert_eq!(
        errors,
        [
            "MountVolume.SetUp failed for volume \"v\" : failed to fetch token: serviceaccounts \"nobody\" not found"
        ]
    );
}

#[tokio::test]
async fn a_certificate_is_shown_with_its_key_or_apart_from_it_for_nobody_but_the_pod() {
    let certificate =
        |number: u32| Some(Ok(PodCertificate::new(&format!("key {number}\n"), &format!("chain {number}\n"))));
    let source =
        "projected: {defaultMode: 420, sources: [{secret: {name: one, items: [{key: user, path: user}]}},
        {podCertificate: {signerName: a/b, keyType: ED25519, credentialBundlePath: tls/both, keyPath: key,
        certificateChainPath: chain}}]}";
    for (context, group, mode) in
        [("", None, "644"), ("securityContext: {fsGroup: 4321},", Some(4321), "640")]
    {
        let place = Place::new();
        let (volumes, cluster) = in_cluster(&place);
        let pod = pod("", context, &[("v", source)]);
        let not_yet = NoCertificate::NotYet("credential bundle is not issued yet".to_owned());
        *cluster.certificate.lock().unwrap() = Some(Err(not_yet.clone()));
        let errors = said(volumes.set_up(&pod, &node()).await.unwrap_err());
        let not_there = "MountVolume.SetUp failed for volume \"v\" : credential bundle is not issued yet";
        assert_eq!(errors, [not_there]);
        *cluster.certificate.lock().unwrap() = certificate(1);
        let path = path_of(&volumes.set_up(&pod, &node()).await.unwrap(), "v");
        let shown = |number: u32| {
            [
                format!("chain=chain {number}\n {mode}"),
                format!("key=key {number}\n {mode}"),
                format!("tls/both=key {number}\nchain {number}\n {mode}"),
                "user=me 644".to_owned(),
            ]
        };
        assert_eq!(files(&path), shown(1));
        let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
        assert_eq!(table.at(&path).unwrap().file_system, "tmpfs");
        if let Some(group) = group {
            assert_eq!(owner(&fs::canonicalize(path.join("key")).unwrap()), (group, 0o640));
        }
        *cluster.certificate.lock().unwrap() = certificate(2);
        volumes.refresh(&pod, &node()).await.unwrap();
        assert_eq!(files(&path), shown(2));
        // An agent that has just begun does not know it yet.
        *cluster.certificate.lock().unwrap() = Some(Err(not_yet));
        volumes.refresh(&pod, &node()).await.unwrap();
        *cluster.certificate.lock().unwrap() = Some(Err(NoCertificate::Refused("denied".to_owned())));
        let errors = said(volumes.refresh(&pod, &node()).await.unwrap_err());
        assert_eq!(errors, ["MountVolume.SetUp failed for volume \"v\" : denied"]);
        assert_eq!(files(&path), shown(2), "what is there stays");
        volumes.tear_down("uid").await.unwrap();
    }
}

#[tokio::test]
async fn secrets_are_in_memory_and_config_maps_on_disk_and_all_of_it_goes_with_the_pod() {
    let place = Place::new();
    let (volumes, _) = in_cluster(&place);
    let sources = [
        ("map", "configMap: {name: one, defaultMode: 420}"),
        ("secret", "secret: {secretName: one, defaultMode: 420}"),
        ("both", "projected: {defaultMode: 420, sources: [{secret: {name: one}}]}"),
    ];
    let pod = pod("", "securityContext: {fsGroup: 4321},", &sources);
    let mounted = volumes.set_up(&pod, &node()).await.unwrap();
    let volume = |plugin: &str, name: &str| place.path().join("pods/uid/volumes").join(plugin).join(name);
    let (map, secret) = (volume("kubernetes.io~configmap", "map"), volume("kubernetes.io~secret", "secret"));
    let both = volume("kubernetes.io~projected", "both");
    for (name, path) in [("map", &map), ("secret", &secret), ("both", &both)] {
        let expected =
            MountedVolume::Files { host_path: path.display().to_string(), read_only: true, relabel: true };
        assert_eq!(mounted[name], expected);
    }
    let mut mounts = place.mounts();
    mounts.sort();
    assert_eq!(mounts, [both, secret.clone()]);
    let table = MountTable::read(Path::new(PROC_SELF_MOUNTINFO)).unwrap();
    assert_eq!(table.at(&secret).unwrap().file_system, "tmpfs");
    assert_eq!(owner(&map), (4321, 0o2777));
    assert_eq!(files(&map), ["a=text 644", "b=more 644", "c=bytes 644"]);
    assert_eq!(owner(&fs::canonicalize(secret.join("user")).unwrap()), (4321, 0o644));
    assert_eq!(volumes.set_up(&pod, &node()).await.unwrap(), mounted);
    volumes.tear_down("uid").await.unwrap();
    assert!(place.mounts().is_empty() && !place.path().join("pods/uid/volumes").exists());
}

#[tokio::test]
async fn what_changes_is_shown_but_not_by_sub_paths_and_what_is_gone_stays_as_it_was() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let source = "configMap: {name: one, defaultMode: 420}";
    let pod = pod("", "", &[("v", source)]);
    let mounted = volumes.set_up(&pod, &node()).await.unwrap();
    let path = path_of(&mounted, "v");
    let part = SubPath {
        uid: "uid".to_owned(),
        container: "c".to_owned(),
        index: 0,
        volume: "v".to_owned(),
        volume_path: path.clone(),
        path: "a".to_owned(),
    };
    let part = volumes.sub_path(&part).await.unwrap();
    let version = fs::read_link(path.join("..data")).unwrap();
    volumes.refresh(&pod, &node()).await.unwrap();
    assert_eq!(fs::read_link(path.join("..data")).unwrap(), version, "nothing changed");
    cluster.put_config_map(&[("a", "changed"), ("d", "new")], &[]);
    volumes.refresh(&pod, &node()).await.unwrap();
    assert_eq!(files(&path), ["a=changed 644", "d=new 644"]);
    assert!(!path.join("b").is_symlink());
    assert_eq!(fs::read_to_string(&part).unwrap(), "text");
    *cluster.config_map.lock().unwrap() = None;
    let errors = said(volumes.refresh(&pod, &node()).await.unwrap_err());
    assert_eq!(errors, ["MountVolume.SetUp failed for volume \"v\" : configmap \"one\" not found"]);
    assert_eq!(files(&path), ["a=changed 644", "d=new 644"]);
    volumes.tear_down("uid").await.unwrap();
}

#[tokio::test]
async fn while_the_server_is_away_volumes_show_what_they_did_and_new_ones_are_not_made() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let sources = [
        ("map", "configMap: {name: one, defaultMode: 420}"),
        ("secret", "secret: {secretName: one, defaultMode: 420, optional: true}"),
        (
            "both",
            "projected: {defaultMode: 420, sources: [{secret: {name: one}}, {serviceAccountToken: {path: token}}]}",
        ),
    ];
    let pod = pod("", "", &sources);
    let mounted = volumes.set_up(&pod, &node()).await.unwrap();
    cluster.is_away.store(true, Ordering::Relaxed);
    // Another agent, which knows nothing.
    let volumes = HostVolumes::new(place.path(), Clock::system(), Arc::clone(&cluster) as _);
    assert_eq!(volumes.set_up(&pod, &node()).await.unwrap(), mounted);
    volumes.refresh(&pod, &node()).await.unwrap();
    assert_eq!(files(&path_of(&mounted, "both"))[1], "token=token 1 644");
    // The machine started again.
    for mount in place.mounts() {
        crablet_host::mounts::unmount(&mount, crablet_host::mounts::UnmountMode::Plain).unwrap();
    }
    let errors = said(volumes.set_up(&pod, &node()).await.unwrap_err());
    let expected = ["\"secret\" : the server is away", "\"both\" : the server is away"];
    assert_eq!(errors, expected.map(|error| format!("MountVolume.SetUp failed for volume {error}")));
    cluster.is_away.store(false, Ordering::Relaxed);
    assert_eq!(volumes.set_up(&pod, &node()).await.unwrap(), mounted);
    assert_eq!(files(&path_of(&mounted, "both"))[1], "token=token 2 644");
    volumes.tear_down("uid").await.unwrap();
}

#[tokio::test]
async fn a_token_that_is_still_to_come_is_missing_and_takes_none_away() {
    let place = Place::new();
    let (volumes, _) = in_cluster(&place);
    let source = "projected: {defaultMode: 420, sources: [{configMap: {name: one, items: [{key: a, path: a}]}}, \
                  {serviceAccountToken: {path: token}}]}";
    let with = |account: &str| pod("", &format!("serviceAccountName: {account},"), &[("v", source)]);
    let mounted = volumes.set_up(&with("later"), &node()).await.unwrap();
    let path = path_of(&mounted, "v");
    assert_eq!(files(&path), ["a=text 644"]);
    volumes.refresh(&with("robot"), &node()).await.unwrap();
    assert_eq!(files(&path), ["a=text 644", "token=token 1 644"]);
    // Another agent, to which the server has not answered yet.
    assert_eq!(volumes.set_up(&with("later"), &node()).await.unwrap(), mounted);
    assert_eq!(files(&path), ["a=text 644", "token=token 1 644"]);
    volumes.tear_down("uid").await.unwrap();
}

#[test]
fn a_token_is_not_in_what_is_printed_of_it() {
    assert_eq!(format!("{:?}", Token::new("s3cr3t")), "<6 bytes>");
}

mod storage;

/// A bound claim `c`, but for what is said of it, to a volume `pv` with this source.
fn put_claim(cluster: &Cluster, claim: &str, volume: &str) {
    let parts =
        ["metadata: {name: c, namespace: ns, uid: cu}", "spec: {volumeName: pv}", "status: {phase: Bound}"];
    let of_claim = parts.iter().filter(|part| !claim.contains(part.split(' ').next().unwrap()));
    let parts: Vec<&str> = of_claim.copied().chain(Some(claim).filter(|claim| !claim.is_empty())).collect();
    let text = format!("{{apiVersion: v1, kind: PersistentVolumeClaim, {}}}", parts.join(", "));
    let (claim, _) = crablet_api::from_manifest::<PersistentVolumeClaim>("claim", &text).unwrap();
    cluster.claims.lock().unwrap().insert("c".to_owned(), claim);
    let text = format!(
        "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: pv}}, spec: {{claimRef: {{uid: cu}}, {volume}}}}}"
    );
    let (volume, _) = crablet_api::from_manifest::<PersistentVolume>("volume", &text).unwrap();
    cluster.volumes.lock().unwrap().insert("pv".to_owned(), volume);
}

const CLAIM: (&str, &str) = ("v", "persistentVolumeClaim: {claimName: c}");

#[tokio::test]
async fn a_claim_leads_to_a_local_volume_whose_files_outlive_the_pod() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let data = place.directory("data");
    fs::write(data.join("file"), "kept").unwrap();
    put_claim(&cluster, "", &format!("local: {{path: {}}}", data.display()));
    let group = "securityContext: {fsGroup: 4321},";
    let mounted = volumes.set_up(&pod("", group, &[CLAIM]), &node()).await.unwrap();
    let path = place.path().join("pods/uid/volumes/kubernetes.io~local-volume/pv");
    assert_eq!(path_of(&mounted, "v"), path);
    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "kept");
    assert_eq!(owner(&data.join("file")), (4321, 0o664));
    // Another pod has it for reading, and leaves it to the group that it has.
    let mut other = pod(
        "",
        "securityContext: {fsGroup: 99},",
        &[("v", "persistentVolumeClaim: {claimName: c, readOnly: true}")],
    );
    other.metadata.uid = "other".into();
    let mounted = volumes.set_up(&other, &node()).await.unwrap();
    assert!(fs::write(path_of(&mounted, "v").join("file"), "no").is_err());
    assert_eq!(owner(&data.join("file")), (4321, 0o664));
    assert_eq!(place.mounts().len(), 2);
    // Another agent finds what is there.
    let volumes = HostVolumes::new(place.path(), Clock::system(), Arc::clone(&cluster) as _);
    volumes.set_up(&other, &node()).await.unwrap();
    cluster.is_away.store(true, Ordering::Relaxed);
    volumes.refresh(&other, &node()).await.unwrap();
    assert_eq!(place.mounts().len(), 2);
    for uid in ["uid", "other"] {
        volumes.tear_down(uid).await.unwrap();
        assert!(!place.path().join("pods").join(uid).join("volumes").exists());
    }
    assert!(place.mounts().is_empty());
    assert_eq!(fs::read_to_string(data.join("file")).unwrap(), "kept");
}

#[tokio::test]
async fn a_claim_leads_to_a_local_device_which_another_agent_takes_back() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let image = place.path().join("image");
    fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let device = loop_device::attach(&image).unwrap();
    let mut pod = pod("", "", &[("v", "persistentVolumeClaim: {claimName: c, readOnly: true}")]);
    let (devices, _) = crablet_api::from_manifest::<Pod>(
        "pod",
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, volumeDevices: \
         [{name: v, devicePath: /dev/x}]}]}}",
    )
    .unwrap();
    pod.spec.containers = devices.spec.containers;
    for (path, expected) in [
        (
            Path::new("/nowhere"),
            "EvalHostSymlinks failed for volume \"pv\" : lstat /nowhere: no such file or directory",
        ),
        (Path::new("/dev/null"), "MapBlockVolume failed for volume \"pv\" : /dev/null is not a block device"),
    ] {
        put_claim(&cluster, "", &format!("volumeMode: Block, local: {{path: {}}}", path.display()));
        let said = said(volumes.set_up(&pod, &node()).await.unwrap_err());
        assert_eq!(said, [format!("MapVolume.{expected}")]);
    }
    put_claim(&cluster, "", &format!("volumeMode: Block, local: {{path: {}}}", device.display()));
    let mounted = volumes.set_up(&pod, &node()).await.unwrap();
    let link = place.path().join("pods/uid/volumeDevices/kubernetes.io~local-volume/pv");
    let host_path = Some(link.display().to_string());
    assert_eq!(mounted["v"], MountedVolume::Device { host_path, read_only: true });
    assert_eq!(fs::read_link(&link).unwrap(), device);
    let on_node = place.path().join("plugins/kubernetes.io~local-volume/volumeDevices/pv/uid");
    assert_eq!(place.mounts(), std::slice::from_ref(&on_node));
    let over_it = loop_device::attached(&on_node).unwrap();
    assert!(over_it.is_some());
    let volumes = HostVolumes::new(place.path(), Clock::system(), Arc::clone(&cluster) as _);
    assert_eq!(volumes.set_up(&pod, &node()).await.unwrap(), mounted);
    assert_eq!((place.mounts().len(), loop_device::attached(&on_node).unwrap()), (1, over_it));
    volumes.tear_down("uid").await.unwrap();
    assert_eq!((place.mounts().len(), loop_device::attached(&on_node).unwrap()), (0, None));
    assert!(!on_node.parent().unwrap().exists() && !place.path().join("pods/uid/volumeDevices").exists());
    loop_device::detach(&image).unwrap();
}

#[tokio::test]
async fn a_claim_to_a_path_of_the_node_is_that_path() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    put_claim(&cluster, "", "hostPath: {path: /srv, type: ''}");
    let mounted = volumes.set_up(&pod("", "", &[CLAIM]), &node()).await.unwrap();
    assert_eq!(path_of(&mounted, "v"), Path::new("/srv"));
    assert!(volumes.groups("uid").is_empty());
    let annotations = [("pv.beta.kubernetes.io/gid", "4711".into())].into_iter().collect();
    cluster.volumes.lock().unwrap().get_mut("pv").unwrap().metadata.annotations = annotations;
    volumes.set_up(&pod("", "", &[CLAIM]), &node()).await.unwrap();
    assert_eq!(volumes.groups("uid"), [4711]);
    volumes.tear_down("uid").await.unwrap();
    assert!(volumes.groups("uid").is_empty());
}

#[tokio::test]
async fn a_claim_that_leads_nowhere_is_told_in_upstreams_words() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let local = "local: {path: /nowhere}";
    let processing = "error processing PVC ns/c: ";
    let unfit = "MountVolume.NewMounter initialization failed for volume \"pv\" : ";
    for (claim, volume, expected) in [
        ("", "", "no volume plugin matched".to_owned()),
        ("", local, format!("{unfit}path \"/nowhere\" does not exist")),
        ("", "local: {path: /dev/null}", format!("{unfit}only directory and block device are supported")),
        ("", "local: {path: ''}", format!("{unfit}local volume source is nil or local path is not set")),
        ("", "local: {path: /dev/null/x}", format!("{unfit}stat /dev/null/x: not a directory")),
        ("", "local: {path: /dev/../dev}", "invalid path: /dev/../dev must not contain '..'".to_owned()),
        (
            "",
            "iscsi: {}",
            "volumes of the kind iscsi are not supported: use a CSI driver instead, such as iscsi.csi.k8s.io"
                .to_owned(),
        ),
        ("status: {phase: Pending}", local, format!("{processing}PVC is not bound")),
        ("spec: {}", local, format!("{processing}PVC has empty pvc.Spec.VolumeName")),
        (
            "spec: {volumeName: other}",
            local,
            format!(
                "{processing}failed to fetch PV other from API server: persistentvolumes \"other\" not found"
            ),
        ),
        (
            "metadata: {name: c, namespace: ns, uid: cu, deletionTimestamp: '2026-01-01T00:00:00Z'}",
            local,
            format!("{processing}PVC is being deleted"),
        ),
        (
            "metadata: {name: c, namespace: ns, uid: new}",
            local,
            format!(
                "{processing}found PV object pv but its pv.Spec.ClaimRef.UID cu does not point to claim.UID new"
            ),
        ),
        (
            "",
            "volumeMode: Block, local: {path: /dev/x}",
            "volume v has volumeMode Block, but is specified in volumeMounts".to_owned(),
        ),
    ] {
        put_claim(&cluster, claim, volume);
        let said = said(volumes.set_up(&pod("", "", &[CLAIM]), &node()).await.unwrap_err());
        let claimed = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], \
                       failed to process volumes=[v]: ";
        let said = said[0].replace(claimed, "").replace("MountVolume.SetUp failed for volume \"pv\" : ", "");
        assert_eq!(said, expected, "{claim} {volume}");
    }
    cluster.claims.lock().unwrap().clear();
    let said = said(volumes.set_up(&pod("", "", &[CLAIM]), &node()).await.unwrap_err());
    let expected = "failed to fetch PVC from API server: persistentvolumeclaims \"c\" not found";
    assert!(said[0].ends_with(expected), "{said:?}");
}

#[tokio::test]
async fn a_claim_that_a_pod_makes_must_be_its_own() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let ephemeral = ("c", "ephemeral: {volumeClaimTemplate: {spec: {}}}");
    for (owner, expected) in
        [("uid", None), ("other", Some("PVC ns/p-c was not created for pod ns/p (pod is not owner)"))]
    {
        put_claim(
            &cluster,
            &format!(
                "metadata: {{name: p-c, namespace: ns, uid: cu, ownerReferences: [{{apiVersion: v1, kind: Pod, name: p, uid: {owner}, controller: true}}]}}"
            ),
            "hostPath: {path: /srv}",
        );
        let claim = cluster.claims.lock().unwrap().remove("c").unwrap();
        cluster.claims.lock().unwrap().insert("p-c".to_owned(), claim);
        let done = volumes.set_up(&pod("", "", &[ephemeral]), &node()).await;
        match expected {
            None => assert_eq!(path_of(&done.unwrap(), "c"), Path::new("/srv")),
            Some(expected) => assert!(said(done.unwrap_err())[0].ends_with(expected)),
        }
    }
}

#[tokio::test]
async fn whom_to_trust_is_a_file_and_may_be_nobody() {
    let place = Place::new();
    let (volumes, cluster) = in_cluster(&place);
    let source = |bundles: &str| format!("projected: {{defaultMode: 292, sources: [{bundles}]}}");
    let bundles = "{clusterTrustBundle: {name: one, path: roots}}, \
                   {clusterTrustBundle: {name: none, optional: true, path: nobody}}";
    let shows = pod("", "", &[("v", &source(bundles))]);
    let mounted = volumes.set_up(&shows, &node()).await.unwrap();
    let path = path_of(&mounted, "v");
    assert_eq!(files(&path), ["nobody= 444", "roots=whom to trust 444"]);
    cluster.is_away.store(true, Ordering::Relaxed);
    volumes.refresh(&shows, &node()).await.unwrap();
    assert_eq!(files(&path).len(), 2, "what was shown stays");
    cluster.is_away.store(false, Ordering::Relaxed);
    for (bundle, expected) in [
        (
            "{name: none, path: p}",
            "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"none\" not found",
        ),
        (
            "{signerName: s, labelSelector: {}, path: p}",
            "combination of signerName and labelSelector matched zero ClusterTrustBundles",
        ),
    ] {
        let source = source(&format!("{{clusterTrustBundle: {bundle}}}"));
        let errors = said(volumes.set_up(&pod("", "", &[("w", &source)]), &node()).await.unwrap_err());
        assert_eq!(errors, [format!("MountVolume.SetUp failed for volume \"w\" : {expected}")]);
    }
}
