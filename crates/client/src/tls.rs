//! What TLS needs: whom to trust and who one is, from files that change while they are used.
//!
//! Both together are a [`Generation`]. When either changes there is a new one; who connects takes the newest, and what is
//! under way keeps its own.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crablet_host::files::{ReadError, read_bounded};
use crablet_x509::AnyServer;
use rustls::RootCertStore;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ClientConfig, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::kubeconfig::{ClientCertificate, Cluster, Pem};

/// How often files are looked at, when there is something to send.
const LOOKS_EVERY: Duration = Duration::from_secs(10);
const LARGEST_FILE: usize = 3 << 20;

/// Where systems have the certificates that they trust: the first that is there counts, as in Go.
const SYSTEM_ROOTS: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why certificates or keys are of no use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the certificate authority has no certificate that can be read")]
    NoAuthority,
    #[error(
        "no server can be trusted: the kubeconfig names no certificate authority, and the machine has none"
    )]
    NobodyTrusted,
    #[error("the client certificate cannot be read")]
    NoCertificate,
    #[error("the client key cannot be read")]
    NoKey,
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// Whom to trust and who one is, at some time.
pub(crate) struct Generation {
    pub(crate) number: u64,
    pub(crate) config: Arc<ClientConfig>,
}

pub(crate) struct Tls {
    trusts: Trusts,
    own: Option<ClientCertificate>,
    provider: Arc<CryptoProvider>,
    current: Mutex<Current>,
    /// Held by who looks at files.
    looked: tokio::sync::Mutex<Looked>,
}

#[derive(Clone)]
enum Trusts {
    Anybody,
    Signed(Option<Pem>),
}

struct Current {
    verifier: Arc<dyn ServerCertVerifier>,
    identity: Option<Arc<CertifiedKey>>,
    generation: Arc<Generation>,
}

struct Looked {
    at: Instant,
    found: Found,
}

/// What was found in files, or is given in place.
#[derive(Clone, Default, PartialEq, Eq)]
struct Found {
    authority: Option<Vec<u8>>,
    /// The certificate and its key.
    own: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    pub(crate) fn new(cluster: &Cluster, own: Option<&ClientCertificate>) -> Result<Tls, TlsError> {
        let trusts = match cluster.insecure_skip_tls_verify {
            true => Trusts::Anybody,
            false => Trusts::Signed(cluster.certificate_authority.clone()),
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let found = read(&trusts, own)?;
        let verifier = verifier(&found, &provider)?;
        let identity = found.own.as_ref().map(|own| certified(own, &provider)).transpose()?;
        let generation = generation(0, &verifier, identity.as_ref(), &provider)?;
        Ok(Tls {
            trusts,
            own: own.cloned(),
            provider,
            current: Mutex::new(Current { verifier, identity, generation }),
            looked: tokio::sync::Mutex::new(Looked { at: Instant::now(), found }),
        })
    }

    pub(crate) fn current(&self) -> Arc<Generation> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner).generation)
    }

    /// From now on this is who one is.
    pub(crate) fn set_identity(&self, certificate: &[u8], key: &[u8]) -> Result<(), TlsError> {
        let identity = certified(&(certificate.to_owned(), key.to_owned()), &self.provider)?;
        self.change(|current| current.identity = Some(identity))
    }

    /// Looks at the files, if nobody did for a while. What cannot be used changes nothing.
    pub(crate) async fn look(&self) {
        if !self.reads_files() {
            return;
        }
        let Ok(mut looked) = self.looked.try_lock() else { return };
        if looked.at.elapsed() < LOOKS_EVERY {
            return;
        }
        looked.at = Instant::now();
        let (trusts, own) = (self.trusts.clone(), self.own.clone());
        let reading = tokio::task::spawn_blocking(move || read(&trusts, own.as_ref()));
        let Ok(found) = reading.await else { return };
        let taken = found.and_then(|found| self.take(&mut looked.found, found));
        if let Err(error) = taken {
            warn!(err = %error, "New certificates or keys cannot be used; those from before are used on");
        }
    }

    /// Looks at the files with the next request: the server is not trusted any more.
    pub(crate) fn doubt(&self) {
        if let Ok(mut looked) = self.looked.try_lock()
            && let Some(earlier) = looked.at.checked_sub(LOOKS_EVERY)
        {
            looked.at = earlier;
        }
    }

    fn reads_files(&self) -> bool {
        let own = self.own.iter().flat_map(|own| [&own.certificate, &own.key]);
        let authority = match &self.trusts {
            Trusts::Signed(authority) => authority.as_ref(),
            Trusts::Anybody => None,
        };
        own.chain(authority).any(|pem| matches!(pem, Pem::File(_)))
    }

    /// Uses what is new in files. What is not may have been replaced by other means since.
    fn take(&self, before: &mut Found, found: Found) -> Result<(), TlsError> {
        if found.authority != before.authority {
            let verifier = verifier(&found, &self.provider)?;
            self.change(|current| current.verifier = verifier)?;
            before.authority = found.authority;
            info!("The certificate authority of the API server has changed");
        }
        if found.own != before.own {
            if let Some(own) = &found.own {
                let identity = certified(own, &self.provider)?;
                self.change(|current| current.identity = Some(identity))?;
                info!("The client certificate has changed");
            }
            before.own = found.own;
        }
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut Current)) -> Result<(), TlsError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut current);
        let number = current.generation.number + 1;
        current.generation =
            generation(number, &current.verifier, current.identity.as_ref(), &self.provider)?;
        Ok(())
    }
}

fn generation(
    number: u64,
    verifier: &Arc<dyn ServerCertVerifier>,
    identity: Option<&Arc<CertifiedKey>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<Generation>, TlsError> {
    let config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(verifier));
    let mut config = match identity {
        Some(identity) => {
            config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(identity))))
        }
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Connections are few and long, and each shows its certificate.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(Generation { number, config: Arc::new(config) }))
}

fn read(trusts: &Trusts, own: Option<&ClientCertificate>) -> Result<Found, TlsError> {
    let authority = match trusts {
        Trusts::Anybody => None,
        Trusts::Signed(Some(authority)) => Some(authority.read()?),
        Trusts::Signed(None) => Some(system_roots()?),
    };
    let own = match own {
        Some(own) => Some((own.certificate.read()?, own.key.read()?)),
        None => None,
    };
    Ok(Found { authority, own })
}

fn system_roots() -> Result<Vec<u8>, TlsError> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let places = named.iter().map(PathBuf::as_path).chain(SYSTEM_ROOTS.iter().map(Path::new));
    for place in places {
        match read_bounded(place, LARGEST_FILE) {
            Err(error) if error.is_not_found() => {}
            found => return Ok(found?),
        }
    }
    Err(TlsError::NobodyTrusted)
}

fn verifier(found: &Found, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let Some(authority) = &found.authority else {
        return Ok(Arc::new(AnyServer::new(Arc::clone(provider))));
    };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(authority).filter_map(Result::ok);
    if roots.add_parsable_certificates(certificates).0 == 0 {
        return Err(TlsError::NoAuthority);
    }
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    Ok(builder.build().map_err(|_| TlsError::NoAuthority)?)
}

fn certified(
    (certificate, key): &(Vec<u8>, Vec<u8>),
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsError::NoCertificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::NoKey)?;
    Ok(Arc::new(CertifiedKey::from_der(chain, key, provider)?))
}
