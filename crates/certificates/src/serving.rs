//! Serving certificates from files: made by ourselves, or by whoever looks after the node.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crablet_host::files::write_atomically;
use crablet_host::watch::{Watch, WatchError};
use crablet_x509::{AlternativeName, Authority, CertificateError, KeyPair, Purpose, Subject};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::identity::{Identities, Identity};
use crate::progress::told;
use crate::store::{StoreError, make_directory, read, read_pair};

/// How often files are looked at, whether the kernel tells of a change or not.
const LOOKS_EVERY: Duration = Duration::from_secs(60);
const LASTS: SignedDuration = SignedDuration::from_hours(365 * 24);

#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    #[error("error reading {}, certificate and key must be supplied as a pair", .0.display())]
    Half(PathBuf),
    #[error("unable to generate self signed cert")]
    Make(#[from] CertificateError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The files `kubelet.crt` and `kubelet.key` of a directory: a certificate for the host's name, or its address if that is
/// its name, signed by an authority that nobody knows. It is made if it is not there.
pub fn self_signed(directory: &Path, host: &str, now: Timestamp) -> Result<(PathBuf, PathBuf), ServingError> {
    let (certificate, key) = (directory.join("kubelet.crt"), directory.join("kubelet.key"));
    let pair = match (read(&certificate)?, read(&key)?) {
        (Some(_), Some(_)) => return Ok((certificate, key)),
        (Some(_), None) => return Err(ServingError::Half(key)),
        // The key is written first: we were ended before the certificate was.
        (None, Some(pem)) => KeyPair::parse(&pem).map_err(|_| ServingError::Half(certificate.clone()))?,
        (None, None) => KeyPair::generate()?,
    };
    let (seconds, names) = (now.as_second(), [AlternativeName::of(host)]);
    let authority = Authority::make(KeyPair::generate()?, &format!("{host}-ca@{seconds}"), &[], now, LASTS)?;
    let name = format!("{host}@{seconds}");
    let subject = Subject { name: &name, groups: &[] };
    let own = authority.issue(pair.public(), subject, &names, Purpose::Server, now, LASTS)?;
    make_directory(directory)?;
    write_atomically(&key, pair.to_pem()?.as_bytes(), 0o600).map_err(StoreError::Write)?;
    let chain = format!("{own}{}", authority.certificate());
    write_atomically(&certificate, chain.as_bytes(), 0o644).map_err(StoreError::Write)?;
    info!(tlsCertFile = %certificate.display(), tlsPrivateKeyFile = %key.display(), "Using self-signed cert");
    Ok((certificate, key))
}

/// A serving certificate and its key in files, which are read anew when they change.
pub struct ServingFiles {
    certificate: PathBuf,
    key: PathBuf,
    latest: watch::Sender<Option<Arc<Identity>>>,
}

impl ServingFiles {
    /// Both files have to be there and to fit each other.
    pub fn open(certificate: PathBuf, key: PathBuf) -> Result<ServingFiles, ServingError> {
        let Some(identity) = read_pair(&certificate, &key)? else {
            return Err(ServingError::Half(if certificate.exists() { key } else { certificate }));
        };
        let latest = watch::Sender::new(Some(Arc::new(identity)));
        Ok(ServingFiles { certificate, key, latest })
    }

    /// The certificate to use now, whenever now is.
    pub fn identities(&self) -> Identities {
        Identities::unending(self.latest.subscribe())
    }

    /// Works for as long as it is polled. Files that do not fit each other change nothing: one of them was written, and
    /// the other is about to be.
    pub async fn run(self) -> Infallible {
        let mut watches = [&self.certificate, &self.key]
            .map(|path| Watch::file(path).inspect_err(|error| self.unwatched(path, error)).ok());
        let mut complained = false;
        loop {
            match read_pair(&self.certificate, &self.key) {
                Ok(Some(identity)) => {
                    complained = false;
                    self.take(identity);
                }
                // It is being replaced.
                Ok(None) => {}
                Err(error) if !std::mem::replace(&mut complained, true) => {
                    warn!(
                        err = told(&error),
                        "A new serving certificate cannot be used; the one from before is used on"
                    );
                }
                Err(_) => {}
            }
            let [certificate, key] = &mut watches;
            tokio::select! {
                () = changed(certificate) => {}
                () = changed(key) => {}
                () = tokio::time::sleep(LOOKS_EVERY) => {}
            }
        }
    }

    fn take(&self, identity: Identity) {
        self.latest.send_if_modified(|latest| {
            let is_new = latest.as_ref().is_none_or(|latest| {
                latest.certificate() != identity.certificate() || latest.key() != identity.key()
            });
            if is_new {
                info!(tlsCertFile = %self.certificate.display(), ends = %identity.not_after(), "There is a new serving certificate");
                *latest = Some(Arc::new(identity));
            }
            is_new
        });
    }

    fn unwatched(&self, path: &Path, error: &WatchError) {
        warn!(path = %path.display(), err = told(error), "A file cannot be watched; it is looked at each minute");
    }
}

/// Waits for a hint to look. Without a watch there is none.
async fn changed(watch: &mut Option<Watch>) {
    if let Some(watched) = watch {
        if watched.changed().await.is_ok() {
            return;
        }
        *watch = None;
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    fn now() -> Timestamp {
        "2026-11-16T05:00:00Z".parse().unwrap()
    }

    /// Whether who trusts the authority trusts it under a name.
    fn is_trusted(identity: &Identity, name: &'static str, now: Timestamp) -> bool {
        let [own, authority] = identity.certified_key().cert.as_slice() else {
            panic!("there is no authority")
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().unsigned_abs()));
        verifier.verify_server_cert(own, &[], &ServerName::try_from(name).unwrap(), &[], now).is_ok()
    }

    #[test]
    fn a_certificate_is_made_once_for_the_hosts_name() {
        let directory = tempfile::tempdir().unwrap();
        let pki = directory.path().join("pki");
        let (certificate, key) = self_signed(&pki, "host.example", now()).unwrap();
        assert_eq!(
            (certificate.as_path(), key.as_path()),
            (&*pki.join("kubelet.crt"), &*pki.join("kubelet.key"))
        );
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&certificate), mode(&key)), (0o644, 0o600));
        let identity = read_pair(&certificate, &key).unwrap().unwrap();
        assert!(identity.leaf().has_exactly(&[AlternativeName::of("host.example")]));
        assert_eq!(identity.leaf().common_name(), format!("host.example@{}", now().as_second()));
        assert_eq!(identity.certified_key().cert.len(), 2, "the authority comes along");
        assert!(is_trusted(&identity, "host.example", now()));
        assert!(!is_trusted(&identity, "other.example", now()));
        assert!(!is_trusted(&identity, "host.example", now() + SignedDuration::from_hours(366 * 24)));
        let before = fs::read(&certificate).unwrap();
        self_signed(&pki, "host.example", now() + SignedDuration::from_hours(1)).unwrap();
        assert_eq!(fs::read(&certificate).unwrap(), before);
    }

    #[test]
    fn half_a_pair_is_completed_if_it_is_ours_and_refused_otherwise() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = self_signed(directory.path(), "192.0.2.1", now()).unwrap();
        let secret = fs::read(&key).unwrap();
        fs::remove_file(&certificate).unwrap();
        self_signed(directory.path(), "192.0.2.1", now()).unwrap();
        assert_eq!(fs::read(&key).unwrap(), secret);
        assert!(
            read_pair(&certificate, &key)
                .unwrap()
                .unwrap()
                .leaf()
                .has_exactly(&[AlternativeName::of("192.0.2.1")])
        );
        fs::remove_file(&key).unwrap();
        let error = self_signed(directory.path(), "192.0.2.1", now()).unwrap_err();
        let expected =
            format!("error reading {}, certificate and key must be supplied as a pair", key.display());
        assert_eq!(error.to_string(), expected);
    }

    #[tokio::test]
    async fn files_are_read_anew_when_both_have_changed() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (certificate, key) = self_signed(one.path(), "one", now()).unwrap();
        let (new_certificate, new_key) = self_signed(two.path(), "two", now()).unwrap();
        let files = ServingFiles::open(certificate.clone(), key.clone()).unwrap();
        let mut identities = files.identities();
        let names = |identities: &Identities| identities.current().unwrap().leaf().common_name();
        assert!(names(&identities).starts_with("one@"));
        let running = tokio::spawn(files.run());
        // What is half written, and what does not fit, is never taken.
        fs::write(&key, "").unwrap();
        fs::copy(&new_certificate, &certificate).unwrap();
        fs::copy(&new_key, &key).unwrap();
        assert!(identities.changed().await);
        assert!(names(&identities).starts_with("two@"));
        running.abort();
    }

    #[test]
    fn files_that_are_not_there_or_do_not_fit_are_named() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (certificate, _) = self_signed(one.path(), "one", now()).unwrap();
        let (_, other_key) = self_signed(two.path(), "two", now()).unwrap();
        let open = |certificate: &Path, key: &Path| {
            let error = ServingFiles::open(certificate.into(), key.into()).err().unwrap();
            told(&error)
        };
        assert!(open(&certificate, Path::new("/nowhere")).starts_with("error reading /nowhere, "));
        let error = open(&certificate, &other_key);
        assert!(error.starts_with(&format!("{} cannot be used: ", certificate.display())), "{error}");
    }
}
