//! A stand-in for a node's server, as far as TLS goes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crablet_apiserver::pki::Pki;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Serves with a certificate of its own, and only who shows one that an authority has signed. Its port.
pub async fn listen<Answer, Answering>(authority: &Path, answer: Answer) -> u16
where
    Answer: Fn(Request<Incoming>) -> Answering + Clone + Send + Sync + 'static,
    Answering: Future<Output = hyper::Result<Response<Full<Bytes>>>> + Send,
{
    let directory = tempfile::tempdir().unwrap();
    let now = crablet_host::clock::Clock::system().now();
    let own = Pki::open(directory.path(), &BTreeSet::from(["n1".to_owned()]), now).unwrap().serving;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let clients =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap(),
        )
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer))
                    .with_upgrades();
                let _ = connection.await;
            });
        }
    });
    port
}
