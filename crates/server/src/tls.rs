//! What the node's main port is served with.

use std::sync::Arc;

use crablet_x509::AnyClientCertificate;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};
use tracing::warn;

/// Suites that upstream knows by name and nobody should use: they are not there.
const LEGACY_SUITES: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];
/// The newer suites, which are accepted whatever is said.
const NEWER_SUITES: &[&str] =
    &["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];
/// The version that leaves the newer suites alone.
const NEWEST_VERSION: &str = "VersionTLS13";

/// What a configuration says of TLS.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlsSettings<'a> {
    /// `VersionTLS12` if empty. What is older is not spoken.
    pub min_version: &'a str,
    /// All that are good if empty.
    pub cipher_suites: &'a [Box<str>],
    /// By their numbers; all that are good if empty.
    pub curve_preferences: &'a [i32],
}

/// What cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("Cipher suite {0} not supported or doesn't exist")]
    UnknownSuite(Box<str>),
    #[error("none of the curves {0:?} is supported: tlsCurvePreferences")]
    NoCurve(Vec<i32>),
    #[error("TLS cannot be served like that")]
    Unusable(#[from] rustls::Error),
}

/// The configuration of a server that shows the certificate which `identities` gives, and takes any from its clients.
pub fn tls_config(
    settings: TlsSettings<'_>,
    identities: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, TlsError> {
    let mut provider = aws_lc_rs::default_provider();
    restrict_suites(&mut provider, settings.cipher_suites)?;
    restrict_curves(&mut provider, settings.curve_preferences)?;
    let has_older = provider.cipher_suites.iter().any(is_older);
    let versions: &[&SupportedProtocolVersion] = match settings.min_version {
        NEWEST_VERSION => &[&TLS13],
        _ if !has_older => &[&TLS13],
        _ => &[&TLS13, &TLS12],
    };
    let provider = Arc::new(provider);
    let clients = AnyClientCertificate::new(Arc::clone(&provider), &[]);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(Arc::new(clients))
        .with_cert_resolver(identities);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Who sees a session again would not see its certificate checked again.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn is_older(suite: &SupportedCipherSuite) -> bool {
    suite.tls13().is_none()
}

fn restrict_suites(provider: &mut CryptoProvider, wanted: &[Box<str>]) -> Result<(), TlsError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let name = |suite: &SupportedCipherSuite| format!("{:?}", suite.suite());
    let known: Vec<String> =
        provider.cipher_suites.iter().filter(|suite| is_older(suite)).map(name).collect();
    // Two have older names too.
    let is = |name: &str, wanted: &str| name == wanted || name.strip_suffix("_SHA256") == Some(wanted);
    for suite in wanted {
        if LEGACY_SUITES.contains(&&**suite) {
            warn!(suite = %suite, "A cipher suite of tlsCipherSuites is too weak to be used; it is left out");
        } else if !NEWER_SUITES.contains(&&**suite) && !known.iter().any(|name| is(name, suite)) {
            return Err(TlsError::UnknownSuite(suite.clone()));
        }
    }
    provider.cipher_suites.retain(|suite| {
        let name = name(suite);
        !is_older(suite) || wanted.iter().any(|wanted| is(&name, wanted))
    });
    Ok(())
}

fn restrict_curves(provider: &mut CryptoProvider, wanted: &[i32]) -> Result<(), TlsError> {
    if wanted.is_empty() {
        return Ok(());
    }
    provider.kx_groups.retain(|group| wanted.contains(&i32::from(u16::from(group.name()))));
    match provider.kx_groups.is_empty() {
        true => Err(TlsError::NoCurve(wanted.to_vec())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suites(wanted: &[&str]) -> Result<Vec<String>, String> {
        let mut provider = aws_lc_rs::default_provider();
        let wanted: Vec<Box<str>> = wanted.iter().map(|&name| name.into()).collect();
        restrict_suites(&mut provider, &wanted).map_err(|error| error.to_string())?;
        let older = provider.cipher_suites.iter().filter(|suite| is_older(suite));
        Ok(older.map(|suite| format!("{:?}", suite.suite())).collect())
    }

    #[test]
    fn only_the_suites_that_are_named_are_accepted() {
        assert_eq!(suites(&[]).unwrap().len(), 6);
        let one = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        assert_eq!(suites(&[one, "TLS_AES_128_GCM_SHA256"]).unwrap(), [one]);
        assert_eq!(
            suites(&["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"]).unwrap(),
            ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"]
        );
        assert_eq!(suites(&["TLS_RSA_WITH_RC4_128_SHA"]).unwrap(), [""; 0]);
        assert_eq!(
            suites(&[one, "TLS_NONE"]).unwrap_err(),
            "Cipher suite TLS_NONE not supported or doesn't exist"
        );
    }

    #[test]
    fn curves_are_named_by_their_numbers() {
        let curves = |wanted: &[i32]| {
            let mut provider = aws_lc_rs::default_provider();
            restrict_curves(&mut provider, wanted).map(|()| provider.kx_groups.len())
        };
        assert_eq!(curves(&[29, 23]).unwrap(), 2);
        assert!(curves(&[]).unwrap() > 2);
        assert_eq!(
            curves(&[7]).unwrap_err().to_string(),
            "none of the curves [7] is supported: tlsCurvePreferences"
        );
    }
}
