//! Certificates, requests for them, and the keys that both are of. What proves who somebody is, without a file or a clock.
//!
//! - [`KeyPair`]: a key for ECDSA with P-256, made or read. [`PublicKey`]: one of somebody else, of any kind.
//! - [`SubjectKey`]: one of any kind, made to have a certificate signed for it.
//! - [`Certificate`] and [`CertificateRequest`]: read; a request can be made as well.
//! - [`Authority`]: signs certificates.
//! - [`ClientAuthorities`]: whose signature makes a client's certificate one of ours. [`AnyClientCertificate`]: the
//!   handshake's part of that.
//! - [`AnyServer`]: a server that is believed whoever it is.
//! - [`pem`]: the text that all of these are kept in.

mod any_server;
mod authority;
mod certificate;
mod client_certificate;
mod key_pair;
mod name;
pub mod pem;
mod public_key;
mod request;
mod subject_key;

pub use any_server::AnyServer;
pub use authority::{Authority, SigningError, Subject};
pub use certificate::{AlternativeName, Certificate, CertificateError, Purpose};
pub use client_certificate::{
    AnyClientCertificate, ClientAuthorities, ClientAuthoritiesError, ClientCertificateError,
};
pub use key_pair::KeyPair;
pub use public_key::{Curve, KeyKind, PublicKey};
pub use request::{CertificateRequest, RequestError};
pub use subject_key::{KeyType, SubjectKey};
