//! The cluster's certificates and keys: made on first start, kept in files, made anew when their time comes.
//!
//! A key is written before its certificate, and a certificate that does not fit its key is made anew: so whatever a
//! crash leaves is repaired by the next start. The certificate authority alone is never made anew while it is there,
//! because everybody who trusts it would have to be told.

mod kubeconfig;
mod token_key;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crablet_host::files::{ReadError, WriteError, read_bounded, write_atomically};
use jiff::{SignedDuration, Timestamp};

use crablet_x509::{AlternativeName, KeyPair, Purpose, Subject};
pub use crablet_x509::{Authority, Certificate, CertificateError, CertificateRequest, RequestError};
pub(crate) use crablet_x509::{Curve, KeyKind, PublicKey, pem};
pub use kubeconfig::kubeconfig;
pub use token_key::Keys;

use crate::controllers::KUBERNETES_ADDRESS;

/// Ten years: whoever trusts it would have to be told of another.
const AUTHORITY_LASTS: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

/// Certificates last so long, and are made anew when a tenth is left.
const LASTS: SignedDuration = SignedDuration::from_hours(365 * 24);
const RENEWED_BEFORE: SignedDuration = SignedDuration::from_hours(36 * 24);

const LARGEST_FILE: usize = 1 << 20;

/// Who somebody is, and what proves it.
#[derive(Clone)]
pub struct Identity {
    /// In PEM.
    pub certificate: String,
    /// In PEM.
    pub key: String,
}

/// The key is nobody's business.
impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// All that a cluster proves itself with.
#[derive(Debug)]
pub struct Pki {
    /// The certificate authority and the key of tokens.
    pub keys: Keys,
    /// The server, to its clients.
    pub serving: Identity,
    /// The server, to the nodes.
    pub kubelet_client: Identity,
    /// The first user.
    pub admin: Identity,
}

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot make the directory {}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{} cannot be used", path.display())]
    Unusable { path: PathBuf, source: CertificateError },
    #[error("{} is there, but its key {} is not; put the key back, or remove both to begin a new cluster", certificate.display(), key.display())]
    NoKey { certificate: PathBuf, key: PathBuf },
    #[error("{} is not the certificate of {}", certificate.display(), key.display())]
    OtherKey { certificate: PathBuf, key: PathBuf },
    #[error("the certificate authority {} has ended on {ended}; remove it to begin a new one", path.display())]
    Ended { path: PathBuf, ended: Timestamp },
    #[error("cannot make a certificate")]
    Make(#[from] CertificateError),
}

impl Pki {
    /// Reads what is there, and makes what is not.
    pub fn open(directory: &Path, serves: &BTreeSet<String>, now: Timestamp) -> Result<Pki, PkiError> {
        make_directory(directory)?;
        let authority = open_authority(directory, now)?;
        let serving_names: Vec<AlternativeName> =
            serves.iter().map(|name| AlternativeName::of(name)).collect();
        let open = |name: &str, subject: Subject<'_>, names: &[AlternativeName], purpose| {
            open_identity(directory, name, &authority, subject, names, purpose, now)
        };
        let server = Subject { name: "kube-apiserver", groups: &[] };
        let serving = open("apiserver", server, &serving_names, Purpose::Server)?;
        let client = Subject { name: "kube-apiserver-kubelet-client", groups: &["system:masters"] };
        let kubelet_client = open("apiserver-kubelet-client", client, &[], Purpose::Client)?;
        let admin = Subject { name: "kubernetes-admin", groups: &["system:masters"] };
        let admin = open("admin", admin, &[], Purpose::Client)?;
        let keys = Keys::new(authority, &open_key(&directory.join("sa.key"))?)?;
        Ok(Pki { keys, serving, kubelet_client, admin })
    }
}

impl Pki {
    /// Who a node is, for one that is on the same machine and needs no approval.
    pub fn node(&self, directory: &Path, name: &str, now: Timestamp) -> Result<Identity, PkiError> {
        let user = format!("system:node:{name}");
        let subject = Subject { name: &user, groups: &["system:nodes"] };
        open_identity(directory, "node", self.keys.authority(), subject, &[], Purpose::Client, now)
    }
}

/// What the server is called by its clients.
pub fn serving_names(host_name: &str, addresses: &[IpAddr]) -> BTreeSet<String> {
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "127.0.0.1",
        "::1",
        host_name,
    ];
    let addresses = addresses.iter().filter(|address| !address.is_unspecified()).map(IpAddr::to_string);
    let names = names.into_iter().filter(|name| !name.is_empty()).map(str::to_owned);
    names.chain(addresses).chain([KUBERNETES_ADDRESS.to_string()]).collect()
}

/// Makes a directory that is ours alone.
pub fn make_directory(path: &Path) -> Result<(), PkiError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| PkiError::Directory { path: path.to_owned(), source })
}

fn open_authority(directory: &Path, now: Timestamp) -> Result<Authority, PkiError> {
    let (path, key_path) = (directory.join("ca.crt"), directory.join("ca.key"));
    let certificate = read(&path)?;
    if certificate.is_some() && read(&key_path)?.is_none() {
        return Err(PkiError::NoKey { certificate: path, key: key_path });
    }
    let key = KeyPair::parse(&open_key(&key_path)?)?;
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |source| PkiError::Unusable { path, source }
    };
    let Some(certificate) = certificate else {
        let names = [AlternativeName::of("kubernetes")];
        let authority = Authority::make(key, "kubernetes", &names, now, AUTHORITY_LASTS)?;
        write_atomically(&path, authority.certificate().as_bytes(), 0o600)?;
        return Ok(authority);
    };
    let parsed = Certificate::parse(&certificate).map_err(unusable(&path))?;
    if parsed.not_after() <= now {
        return Err(PkiError::Ended { path, ended: parsed.not_after() });
    }
    let authority = Authority::open(&certificate, key).map_err(unusable(&path))?;
    match authority.is_of(&parsed) {
        true => Ok(authority),
        false => Err(PkiError::OtherKey { certificate: path, key: key_path }),
    }
}

fn open_identity(
    directory: &Path,
    name: &str,
    authority: &Authority,
    subject: Subject<'_>,
    names: &[AlternativeName],
    purpose: Purpose,
    now: Timestamp,
) -> Result<Identity, PkiError> {
    let path = directory.join(format!("{name}.crt"));
    let key = open_key(&directory.join(format!("{name}.key")))?;
    let pair = KeyPair::parse(&key)?;
    if let Some(certificate) = read(&path)?
        && let Ok(parsed) = Certificate::parse(&certificate)
        && parsed.not_after().duration_since(now) > RENEWED_BEFORE
        && parsed.is_of_key(pair.public())
        && authority.has_signed(&parsed)
        && parsed.has_exactly(names)
    {
        return Ok(Identity { certificate, key });
    }
    let certificate = authority.issue(pair.public(), subject, names, purpose, now, LASTS)?;
    write_atomically(&path, certificate.as_bytes(), 0o600)?;
    Ok(Identity { certificate, key })
}

/// The key in a file, in PEM; a new one if there is none.
fn open_key(path: &Path) -> Result<String, PkiError> {
    if let Some(key) = read(path)? {
        KeyPair::parse(&key).map_err(|source| PkiError::Unusable { path: path.to_owned(), source })?;
        return Ok(key);
    }
    let key = KeyPair::generate()?.to_pkcs8_pem()?;
    write_atomically(path, key.as_bytes(), 0o600)?;
    Ok(key)
}

fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match read_bounded(path, LARGEST_FILE) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const NOW: &str = "2026-11-15T12:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn names() -> BTreeSet<String> {
        serving_names("host", &["192.0.2.1".parse().unwrap(), "0.0.0.0".parse().unwrap()])
    }

    #[test]
    fn what_was_made_once_is_the_same_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pki");
        let first = Pki::open(&path, &names(), now()).unwrap();
        let second = Pki::open(&path, &names(), now() + SignedDuration::from_hours(24)).unwrap();
        assert_eq!(first.keys.authority().certificate(), second.keys.authority().certificate());
        assert_eq!(first.serving.certificate, second.serving.certificate);
        assert_eq!(first.admin.certificate, second.admin.certificate);
        assert_eq!(first.keys, second.keys);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        for file in std::fs::read_dir(&path).unwrap() {
            assert_eq!(mode(&file.unwrap().path()), 0o600);
        }
    }

    #[test]
    fn a_serving_certificate_has_all_names_and_is_made_anew_for_new_ones_or_near_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let first = Pki::open(directory.path(), &names(), now()).unwrap();
        let parsed = Certificate::parse(&first.serving.certificate).unwrap();
        let expected: Vec<AlternativeName> = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "host",
            "127.0.0.1",
            "::1",
            "10.96.0.1",
            "192.0.2.1",
        ]
        .iter()
        .map(|name| AlternativeName::of(name))
        .collect();
        assert!(parsed.has_exactly(&expected));
        let renamed = Pki::open(directory.path(), &serving_names("other", &[]), now()).unwrap();
        assert_ne!(first.serving.certificate, renamed.serving.certificate);
        assert_eq!(first.admin.certificate, renamed.admin.certificate);
        let later = now() + LASTS - RENEWED_BEFORE;
        let renewed = Pki::open(directory.path(), &serving_names("other", &[]), later).unwrap();
        assert_ne!(renewed.serving.certificate, renamed.serving.certificate);
        assert_ne!(renewed.admin.certificate, renamed.admin.certificate);
    }

    #[test]
    fn what_a_crash_left_is_repaired() {
        let directory = tempfile::tempdir().unwrap();
        let first = Pki::open(directory.path(), &names(), now()).unwrap();
        // The new key was written, and its certificate was not.
        let key = KeyPair::generate().unwrap().to_pkcs8_pem().unwrap();
        std::fs::write(directory.path().join("apiserver.key"), key).unwrap();
        std::fs::write(directory.path().join("admin.crt"), "").unwrap();
        let second = Pki::open(directory.path(), &names(), now()).unwrap();
        assert_ne!(first.serving.certificate, second.serving.certificate);
        assert_eq!(first.admin.key, second.admin.key);
        // The authority's key was written, and its certificate was not: all are made anew for it.
        std::fs::remove_file(directory.path().join("ca.crt")).unwrap();
        let third = Pki::open(directory.path(), &names(), now()).unwrap();
        assert!(third.keys.authority().has_signed(&Certificate::parse(&third.admin.certificate).unwrap()));
    }

    #[test]
    fn an_authority_is_never_made_anew_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        Pki::open(directory.path(), &names(), now()).unwrap();
        let open = |at: Timestamp| Pki::open(directory.path(), &names(), at).unwrap_err().to_string();
        assert!(open(now() + SignedDuration::from_hours(24 * 365 * 11)).contains("has ended on"));
        let other = KeyPair::generate().unwrap().to_pkcs8_pem().unwrap();
        std::fs::write(directory.path().join("ca.key"), other).unwrap();
        assert!(open(now()).contains("is not the certificate of"));
        std::fs::write(directory.path().join("ca.key"), "junk").unwrap();
        assert!(open(now()).ends_with("ca.key cannot be used"));
        std::fs::remove_file(directory.path().join("ca.key")).unwrap();
        assert!(open(now()).contains("but its key"));
    }
}
