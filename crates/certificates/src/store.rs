//! Certificates in files, where upstream has them.
//!
//! A certificate and its key are in one file, `<prefix>-<time>.pem`; `<prefix>-current.pem` is a symbolic link to the one
//! in use. A file is complete before the link leads to it, and the link changes at once: whatever a crash leaves, there is
//! the old one or the new one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use crablet_host::files::{ReadError, WriteError, read_bounded, write_atomically};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tracing::warn;

use crate::identity::{Identity, IdentityError};

pub(crate) const LARGEST_FILE: usize = 1 << 20;

/// The certificates of one purpose.
#[derive(Clone, Debug)]
pub struct Store {
    prefix: &'static str,
    directory: PathBuf,
    /// A certificate and its key that are used while there is no other.
    files: Option<(PathBuf, PathBuf)>,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{} cannot be used", path.display())]
    Unusable { path: PathBuf, source: IdentityError },
    #[error("the certificate cannot be used")]
    New(#[source] IdentityError),
    #[error("expected {} to be a symbolic link, but it is a file", .0.display())]
    NotALink(PathBuf),
    #[error("cannot make the link {}", path.display())]
    Link { path: PathBuf, source: io::Error },
    #[error("cannot make the directory {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
}

impl Store {
    /// The store of a directory, after what a crash of upstream's may have left was put right.
    pub fn open(
        prefix: &'static str,
        directory: &Path,
        files: Option<(PathBuf, PathBuf)>,
    ) -> Result<Store, StoreError> {
        let store = Store { prefix, directory: directory.to_owned(), files };
        let (current, updated) = (store.current_path(), store.path("updated"));
        if !current.exists() && is_link(&updated)? {
            fs::rename(&updated, &current).map_err(|source| StoreError::Link { path: current, source })?;
        }
        Ok(store)
    }

    /// Where the one in use is.
    pub fn current_path(&self) -> PathBuf {
        self.path("current")
    }

    /// The one in use. One that cannot be read is as good as none: another is asked for.
    pub fn current(&self) -> Result<Option<Identity>, StoreError> {
        let current = self.current_path();
        let own = |extension: &str| self.directory.join(format!("{}.{extension}", self.prefix));
        let places = [Some((current.clone(), current)), self.files.clone(), Some((own("crt"), own("key")))];
        for (certificate, key) in places.into_iter().flatten() {
            match read_pair(&certificate, &key) {
                Ok(Some(identity)) => return Ok(Some(identity)),
                Ok(None) => {}
                Err(StoreError::Unusable { path, source }) => {
                    warn!(path = %path.display(), err = crate::progress::told(&source), "A certificate cannot be used and is passed over");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Keeps a certificate and its key, both in PEM; it is the one in use from now on.
    pub fn update(&self, certificate: &str, key: &str, now: Timestamp) -> Result<Identity, StoreError> {
        let identity = Identity::parse(certificate, key).map_err(StoreError::New)?;
        make_directory(&self.directory)?;
        let path = self.path(&now.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d-%H-%M-%S").to_string());
        write_atomically(&path, format!("{}{}", identity.certificate(), identity.key()).as_bytes(), 0o600)?;
        self.link(&path)?;
        Ok(identity)
    }

    fn link(&self, target: &Path) -> Result<(), StoreError> {
        let (current, updated) = (self.current_path(), self.path("updated"));
        is_link(&current)?;
        let failed = |source| StoreError::Link { path: current.clone(), source };
        if is_link(&updated)? {
            fs::remove_file(&updated).map_err(failed)?;
        }
        symlink(std::path::absolute(target).map_err(failed)?, &updated).map_err(failed)?;
        fs::rename(&updated, &current).map_err(failed)?;
        File::open(&self.directory).and_then(|directory| directory.sync_all()).map_err(failed)
    }

    fn path(&self, which: &str) -> PathBuf {
        self.directory.join(format!("{}-{which}.pem", self.prefix))
    }
}

/// Whether there is a link. Something else in its place is an error.
fn is_link(path: &Path) -> Result<bool, StoreError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Ok(true),
        Ok(_) => Err(StoreError::NotALink(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(StoreError::Link { path: path.to_owned(), source }),
    }
}

/// Makes a directory that others may look into, as upstream.
pub(crate) fn make_directory(path: &Path) -> Result<(), StoreError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
    made.map_err(|source| StoreError::Directory { path: path.to_owned(), source })
}

/// A certificate and its key from files. None if one of them is not there.
pub(crate) fn read_pair(certificate: &Path, key: &Path) -> Result<Option<Identity>, StoreError> {
    let (Some(chain), Some(secret)) = (read(certificate)?, read(key)?) else { return Ok(None) };
    let unusable = |source| StoreError::Unusable { path: certificate.to_owned(), source };
    Identity::parse(&chain, &secret).map(Some).map_err(unusable)
}

pub(crate) fn read(path: &Path) -> Result<Option<String>, StoreError> {
    match read_bounded(path, LARGEST_FILE) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use crablet_x509::{Authority, KeyPair, Purpose, Subject};
    use jiff::SignedDuration;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-16T05:00:00Z".parse().unwrap()
    }

    /// A certificate and its key.
    fn pair(name: &str) -> (String, String) {
        let day = SignedDuration::from_hours(24);
        let authority = Authority::make(KeyPair::generate().unwrap(), "ca", &[], now(), day).unwrap();
        let key = KeyPair::generate().unwrap();
        let subject = Subject { name, groups: &[] };
        let certificate = authority.issue(key.public(), subject, &[], Purpose::Client, now(), day).unwrap();
        (format!("{certificate}{}", authority.certificate()), key.to_pem().unwrap())
    }

    fn common_name(store: &Store) -> Option<String> {
        store.current().unwrap().map(|identity| identity.leaf().common_name())
    }

    #[test]
    fn what_is_kept_is_in_one_file_of_its_owner_and_the_link_leads_to_the_newest() {
        let directory = tempfile::tempdir().unwrap();
        let pki = directory.path().join("pki");
        let store = Store::open("kubelet-client", &pki, None).unwrap();
        assert_eq!(common_name(&store), None);
        for (name, at) in [("one", now()), ("two", now() + SignedDuration::from_secs(61)), ("three", now())] {
            let (certificate, key) = pair(name);
            store.update(&certificate, &key, at).unwrap();
            assert_eq!(common_name(&store).as_deref(), Some(name));
            assert_eq!(fs::read_to_string(store.current_path()).unwrap(), format!("{certificate}{key}"));
        }
        let mut names: Vec<_> = fs::read_dir(&pki)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "kubelet-client-2026-11-16-05-00-00.pem",
                "kubelet-client-2026-11-16-05-01-01.pem",
                "kubelet-client-current.pem"
            ]
        );
        let target = fs::read_link(store.current_path()).unwrap();
        assert_eq!(target, pki.join("kubelet-client-2026-11-16-05-00-00.pem"));
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn other_places_are_looked_at_as_long_as_there_is_no_link() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let files = Some((at("given.crt"), at("given.key")));
        let store = Store::open("kubelet-server", directory.path(), files).unwrap();
        for (certificate, key, name) in
            [("kubelet-server.crt", "kubelet-server.key", "own"), ("given.crt", "given.key", "given")]
        {
            let (chain, secret) = pair(name);
            fs::write(at(certificate), chain).unwrap();
            fs::write(at(key), secret).unwrap();
            assert_eq!(common_name(&store).as_deref(), Some(name));
        }
        let (certificate, key) = pair("newest");
        store.update(&certificate, &key, now()).unwrap();
        assert_eq!(common_name(&store).as_deref(), Some("newest"));
    }

    #[test]
    fn what_a_crash_left_is_put_right_or_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Store::open("kubelet-client", directory.path(), None);
        let store = open().unwrap();
        let (certificate, key) = pair("one");
        store.update(&certificate, &key, now()).unwrap();
        // Upstream was killed between removing one link and renaming the other.
        fs::rename(store.current_path(), store.path("updated")).unwrap();
        assert_eq!(common_name(&open().unwrap()).as_deref(), Some("one"));
        // A link from a try before is in the way.
        symlink("/nowhere", store.path("updated")).unwrap();
        store.update(&certificate, &key, now()).unwrap();
        // The file is torn.
        let file = fs::canonicalize(store.current_path()).unwrap();
        let whole = fs::read(&file).unwrap();
        for length in [0, whole.len() / 3, whole.len() - 30] {
            fs::write(&file, &whole[..length]).unwrap();
            assert_eq!(common_name(&open().unwrap()), None, "{length}");
        }
        // The link leads nowhere.
        fs::remove_file(&file).unwrap();
        assert_eq!(common_name(&open().unwrap()), None);
        store.update(&certificate, &key, now()).unwrap();
        assert_eq!(common_name(&store).as_deref(), Some("one"));
    }

    #[test]
    fn what_is_not_a_pair_is_not_kept_and_a_file_in_the_place_of_the_link_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open("kubelet-client", directory.path(), None).unwrap();
        let ((certificate, key), (_, other)) = (pair("one"), pair("two"));
        assert!(matches!(store.update(&certificate, &other, now()), Err(StoreError::New(_))));
        assert!(matches!(store.update("", &key, now()), Err(StoreError::New(_))));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        fs::write(store.current_path(), "mine").unwrap();
        let error = store.update(&certificate, &key, now()).unwrap_err();
        assert!(matches!(error, StoreError::NotALink(_)), "{error}");
        assert_eq!(fs::read(store.current_path()).unwrap(), b"mine");
    }
}
