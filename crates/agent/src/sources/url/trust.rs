//! [`TrustStore`]: whose word this machine takes for who a server is.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CertificateError, ClientConfig, InvalidMessage, RootCertStore};
use tokio_rustls::TlsConnector;

/// Where distributions keep all certificates in one file. The first that is there is read.
const FILES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Where they keep one in a file. All are read.
const FOLDERS: [&str; 2] = ["/etc/ssl/certs", "/etc/pki/tls/certs"];
/// How much of a file is read.
const LONGEST_FILE: u64 = 10 << 20;
/// How many files of a folder are read.
const MOST_FILES: usize = 10_000;

/// Where the certificates are of those whose word is taken for who a server is: where Go looks for them. They are
/// read when the first server is to be asked by TLS.
#[derive(Clone, Debug)]
pub struct TrustStore {
    files: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

/// Why nobody can be asked by TLS.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrustError {
    #[error(
        "there is no certificate of an authority in {}; SSL_CERT_FILE and SSL_CERT_DIR may name other places",
        shown(.0)
    )]
    Nobody(TrustStore),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

impl TrustStore {
    /// This machine's.
    pub fn system() -> TrustStore {
        TrustStore::from_variables(|name| std::env::var_os(name))
    }

    /// This machine's, with these environment variables: `SSL_CERT_FILE` is read instead of the file of all
    /// certificates, and the folders of `SSL_CERT_DIR`, which colons separate, instead of the usual ones.
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> TrustStore {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        TrustStore {
            files: set("SSL_CERT_FILE")
                .map_or_else(|| FILES.map(PathBuf::from).into(), |file| vec![file.into()]),
            folders: set("SSL_CERT_DIR").map_or_else(
                || FOLDERS.map(PathBuf::from).into(),
                |folders| std::env::split_paths(&folders).collect(),
            ),
        }
    }

    /// Who makes TLS connections to those who can be trusted. This reads files.
    pub(super) fn connector(&self) -> Result<TlsConnector, TrustError> {
        let roots = self.roots();
        if roots.is_empty() {
            return Err(TrustError::Nobody(self.clone()));
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // Go keeps no sessions either, unless told to.
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn roots(&self) -> RootCertStore {
        // Distributions have each certificate in their file, in their folder, and there by two names.
        let mut certificates = BTreeSet::new();
        if let Some(first) = self.files.iter().find_map(|file| read(file).ok()) {
            certificates.extend(first);
        }
        for folder in &self.folders {
            let entries = fs::read_dir(folder).into_iter().flatten().take(MOST_FILES).flatten();
            certificates.extend(entries.filter_map(|entry| read(&entry.path()).ok()).flatten());
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.into_iter().map(CertificateDer::from));
        roots
    }
}

/// The certificates of a file. What is none is passed over.
fn read(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let certificates = CertificateDer::pem_reader_iter(File::open(path)?.take(LONGEST_FILE));
    Ok(certificates.flatten().map(|certificate| certificate.to_vec()).collect())
}

fn shown(store: &TrustStore) -> String {
    let places = store.files.iter().chain(&store.folders).map(|path| path.display().to_string());
    places.collect::<Vec<_>>().join(", ")
}

/// Why a host cannot be spoken to by TLS.
pub(super) fn why_not(host: &str, error: &io::Error) -> String {
    use CertificateError::*;
    let certificate = |what: &str| format!("the certificate of {host} {what}");
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(error)) => match error {
            UnknownIssuer => certificate("is signed by an unknown authority"),
            Expired | ExpiredContext { .. } => certificate("has expired"),
            NotValidYet | NotValidYetContext { .. } => certificate("is not valid yet"),
            NotValidForName | NotValidForNameContext { .. } => certificate("is for other names"),
            other => certificate(&format!("cannot be trusted ({other})")),
        },
        // What begins with `HTTP/` is no TLS record.
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            format!("{host} does not speak TLS; if that is meant, its URL begins with http://")
        }
        Some(error) => format!("{host} cannot be spoken to by TLS: {error}"),
        None => format!("{host} broke off while TLS was agreed on: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = include_str!("../../../tests/sources/testdata/authority.pem");
    const TWO: &str = include_str!("../../../tests/sources/testdata/server.pem");

    fn store(file: &Path, folders: &str) -> TrustStore {
        TrustStore::from_variables(|name| match name {
            "SSL_CERT_FILE" => Some(file.into()),
            "SSL_CERT_DIR" => Some(folders.into()),
            _ => None,
        })
    }

    #[test]
    fn certificates_are_taken_once_from_a_file_and_from_folders() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let folders = format!("{}:{}", at("a").display(), at("absent").display());
        fs::create_dir(at("a")).unwrap();
        fs::create_dir(at("a/folder")).unwrap();
        assert_eq!(store(&at("file"), &folders).roots().len(), 0);

        let bad = "-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----\n";
        fs::write(at("file"), format!("{ONE}{bad}a remark\n{ONE}-----BEGIN CERTIFICATE-----\n")).unwrap();
        assert_eq!(store(&at("file"), &folders).roots().len(), 1);
        fs::write(at("a/one"), ONE).unwrap();
        fs::write(at("a/two"), TWO).unwrap();
        std::os::unix::fs::symlink(at("a/two"), at("a/again")).unwrap();
        assert_eq!(store(&at("file"), &folders).roots().len(), 2);
    }

    #[test]
    fn the_places_are_those_of_the_system_unless_variables_name_others() {
        let system = TrustStore::from_variables(|_| Some(OsString::new()));
        assert_eq!((system.files.len(), system.folders.len()), (FILES.len(), FOLDERS.len()));
        let other = store(Path::new("/none"), "/absent:/missing");
        let error = other.connector().err().unwrap().to_string();
        assert!(error.contains("in /none, /absent, /missing;"), "{error}");
    }
}
