//! What upstream writes down of pulls: that one is under way, and who may use an image that was pulled.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::credential::{Coordinates, Source, TrackedCredential, hex};

const VERSION: &str = "kubelet.config.k8s.io/v1beta1";

/// The versions that are read.
const VERSIONS: &[&str] = &[VERSION, "kubelet.config.k8s.io/v1alpha1"];

/// A pull that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PullIntent {
    kind: String,
    api_version: String,
    /// The image as a container's spec has it.
    pub(crate) image: String,
}

/// An image that was pulled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PulledRecord {
    kind: String,
    api_version: String,
    /// When this was last written.
    pub(crate) last_updated_time: Option<Timestamp>,
    /// The runtime's name for the image.
    pub(crate) image_ref: String,
    /// Who may use it, by the name that specs have for it, without tag and digest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) credential_mapping: BTreeMap<String, PullCredentials>,
}

/// Who may use an image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct PullCredentials {
    /// Those who have one of these secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) kubernetes_secrets: Vec<PullSecret>,
    /// Those who run as one of these service accounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) kubernetes_service_accounts: Vec<PullServiceAccount>,
    /// Every pod of the node.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) node_pods_accessible: bool,
}

/// A secret, and the hash of what it held.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PullSecret {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) credential_hash: String,
}

/// A service account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PullServiceAccount {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The hash stays out of logs: a short password can be found by it.
impl fmt::Debug for PullSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (uid, namespace, name) = (&self.uid, &self.namespace, &self.name);
        write!(f, "PullSecret({namespace}/{name} {uid})")
    }
}

impl PullSecret {
    pub(crate) fn is_same_secret(&self, other: &PullSecret) -> bool {
        (&self.uid, &self.namespace, &self.name) == (&other.uid, &other.namespace, &other.name)
    }
}

impl PullIntent {
    pub(crate) fn new(image: &str) -> PullIntent {
        PullIntent {
            kind: "ImagePullIntent".to_owned(),
            api_version: VERSION.to_owned(),
            image: image.to_owned(),
        }
    }

    /// Reads what was written, or nothing where it is something else.
    pub(crate) fn read(bytes: &[u8]) -> Option<PullIntent> {
        let intent: PullIntent = serde_json::from_slice(bytes).ok()?;
        let is_one = intent.kind == "ImagePullIntent" && VERSIONS.contains(&intent.api_version.as_str());
        is_one.then_some(intent)
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        written(self)
    }
}

impl PulledRecord {
    pub(crate) fn new(image_ref: &str, now: Timestamp) -> PulledRecord {
        PulledRecord {
            kind: "ImagePulledRecord".to_owned(),
            api_version: VERSION.to_owned(),
            last_updated_time: Some(whole_seconds(now)),
            image_ref: image_ref.to_owned(),
            credential_mapping: BTreeMap::new(),
        }
    }

    /// Reads what was written, or nothing where it is something else.
    pub(crate) fn read(bytes: &[u8]) -> Option<PulledRecord> {
        let record: PulledRecord = serde_json::from_slice(bytes).ok()?;
        let is_one = record.kind == "ImagePulledRecord" && VERSIONS.contains(&record.api_version.as_str());
        is_one.then(|| PulledRecord { api_version: VERSION.to_owned(), ..record })
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        written(self)
    }

    /// The record with somebody more who may use the image by a name; nothing, if that changes nothing.
    pub(crate) fn with(&self, name: &str, who: &PullCredentials, now: Timestamp) -> Option<PulledRecord> {
        if *who == PullCredentials::default() {
            return None;
        }
        let merged = match self.credential_mapping.get(name) {
            None => who.clone(),
            Some(known) => known.merged(who)?,
        };
        let mut record = self.clone();
        record.credential_mapping.insert(name.to_owned(), merged);
        record.last_updated_time = Some(whole_seconds(now));
        Some(record)
    }
}

impl PullCredentials {
    /// Who may use an image that was pulled with this credential, or with none.
    pub(crate) fn of(credential: Option<&TrackedCredential>) -> PullCredentials {
        let mut who = PullCredentials::default();
        match credential.map(|tracked| (tracked, &tracked.source)) {
            None | Some((_, None)) => who.node_pods_accessible = true,
            Some((tracked, Some(Source::Secret(secret)))) => {
                who.kubernetes_secrets.push(secret_of(secret, &tracked.hash));
            }
            Some((_, Some(Source::ServiceAccount(account)))) => {
                who.kubernetes_service_accounts.push(account_of(account));
            }
        }
        who
    }

    /// Both together; nothing, if the other one adds nothing.
    fn merged(&self, other: &PullCredentials) -> Option<PullCredentials> {
        if self.node_pods_accessible {
            return None;
        }
        if other.node_pods_accessible {
            return Some(PullCredentials { node_pods_accessible: true, ..PullCredentials::default() });
        }
        let mut merged = self.clone();
        for secret in &other.kubernetes_secrets {
            merged.kubernetes_secrets.retain(|known| !known.is_same_secret(secret));
            merged.kubernetes_secrets.push(secret.clone());
        }
        for account in &other.kubernetes_service_accounts {
            merged.kubernetes_service_accounts.retain(|known| known != account);
            merged.kubernetes_service_accounts.push(account.clone());
        }
        let by_name = |s: &PullSecret| (s.namespace.clone(), s.name.clone(), s.uid.clone());
        merged.kubernetes_secrets.sort_by_key(by_name);
        merged
            .kubernetes_service_accounts
            .sort_by_key(|s| (s.namespace.clone(), s.name.clone(), s.uid.clone()));
        (merged != *self).then_some(merged)
    }
}

pub(crate) fn secret_of(secret: &Coordinates, hash: &str) -> PullSecret {
    PullSecret {
        uid: secret.uid.clone(),
        namespace: secret.namespace.clone(),
        name: secret.name.clone(),
        credential_hash: hash.to_owned(),
    }
}

pub(crate) fn account_of(account: &Coordinates) -> PullServiceAccount {
    PullServiceAccount {
        uid: account.uid.clone(),
        namespace: account.namespace.clone(),
        name: account.name.clone(),
    }
}

/// The name of the file that a record of an image is in.
pub(crate) fn file_name(image: &str) -> String {
    format!("sha256-{}", hex(&Sha256::digest(image.as_bytes())))
}

/// Whether a file is a record, and not one that the Go kubelet did not finish writing.
pub(crate) fn is_record(file_name: &str) -> bool {
    file_name.starts_with("sha256-") && !file_name.ends_with(".tmp")
}

fn written(record: &impl Serialize) -> Vec<u8> {
    // Texts, numbers and maps of texts cannot fail to be written.
    let mut bytes = serde_json::to_vec(record).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// A time as it is written down.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-15T03:46:00.5Z".parse().unwrap()
    }

    fn secret(name: &str, hash: &str) -> PullCredentials {
        let coordinates = Coordinates { uid: "u".into(), namespace: "ns".into(), name: name.into() };
        PullCredentials {
            kubernetes_secrets: vec![secret_of(&coordinates, hash)],
            ..PullCredentials::default()
        }
    }

    fn node() -> PullCredentials {
        PullCredentials { node_pods_accessible: true, ..PullCredentials::default() }
    }

    #[test]
    fn files_are_upstreams() {
        assert_eq!(
            file_name("testimage-anonpull"),
            "sha256-a2eace2182b24cdbbb730798e47b10709b9ef5e0f0c1624a3bc06c8ca987727a"
        );
        let record =
            PulledRecord::new("sha256:abc", now()).with("a.io/b", &secret("pull", "hash"), now()).unwrap();
        let text = concat!(
            r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","#,
            r#""lastUpdatedTime":"2026-11-15T03:46:00Z","imageRef":"sha256:abc","credentialMapping":{"#,
            r#""a.io/b":{"kubernetesSecrets":[{"uid":"u","namespace":"ns","name":"pull","credentialHash":"hash"}]}}}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(record.write()).unwrap(), text);
        assert_eq!(PulledRecord::read(text.as_bytes()), Some(record.clone()));
        assert_eq!(PulledRecord::read(text.replace("v1beta1", "v1alpha1").as_bytes()), Some(record.clone()));
        assert!(!format!("{record:?}").contains("hash\""));
        let open = PulledRecord::new("r", now()).with("b", &node(), now()).unwrap();
        assert!(
            String::from_utf8(open.write()).unwrap().ends_with("{\"b\":{\"nodePodsAccessible\":true}}}\n")
        );
        let intent = PullIntent::new("busybox");
        let text = "{\"kind\":\"ImagePullIntent\",\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\"image\":\"busybox\"}\n";
        assert_eq!(String::from_utf8(intent.write()).unwrap(), text);
        assert_eq!(PullIntent::read(text.as_bytes()), Some(intent));
    }

    #[test]
    fn what_is_no_record_is_not_read() {
        for text in [
            "",
            "{}",
            "null",
            r#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v2","image":"a"}"#,
            r#"{"kind":"Pod","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"a"}"#,
            r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":null,"imageRef":"a","more":1}"#,
        ] {
            assert_eq!(PullIntent::read(text.as_bytes()), None, "{text}");
            assert_eq!(PulledRecord::read(text.as_bytes()), None, "{text}");
        }
        assert!(is_record(&file_name("a")));
        assert!(
            !is_record(&format!("{}.tmp", file_name("a"))) && !is_record(".tmp-1-2") && !is_record("notes")
        );
    }

    #[test]
    fn rights_add_up_and_the_nodes_swallow_all() {
        let record = PulledRecord::new("r", now());
        assert_eq!(record.with("a", &PullCredentials::default(), now()), None);
        let record = record.with("a", &secret("s2", "h"), now()).unwrap();
        assert_eq!(record.with("a", &secret("s2", "h"), now()), None);
        let record = record
            .with("a", &secret("s1", "h1"), now())
            .unwrap()
            .with("a", &secret("s2", "h2"), now())
            .unwrap();
        let hashes = |record: &PulledRecord| -> Vec<String> {
            record.credential_mapping["a"]
                .kubernetes_secrets
                .iter()
                .map(|s| s.credential_hash.clone())
                .collect()
        };
        assert_eq!(hashes(&record), ["h1", "h2"]);
        let record = record.with("b", &node(), now()).unwrap();
        assert_eq!(hashes(&record), ["h1", "h2"]);
        let record = record.with("a", &node(), now()).unwrap();
        assert_eq!(
            (record.credential_mapping["a"].clone(), record.with("a", &secret("s", "h"), now())),
            (node(), None)
        );
    }
}
