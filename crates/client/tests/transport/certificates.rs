use std::time::Duration;

use crablet_client::{Https, Lane, Pem, ProxyEnvironment};
use crablet_host::clock::Clock;

use crate::server::{Manner, Server, name_of, write_identity};
use crate::{get, https, next_line, watch};

/// Lets time pass at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_certificate_that_is_put_in_is_shown_on_a_new_connection_and_watches_go_on() {
    let server = Server::start(Manner::default()).await;
    let (first, second) = (&server.pki.admin, &server.pki.kubelet_client);
    let https = https(&server.kubeconfig_with(first));
    let mut watching = watch(&https).await;
    assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), format!("/a 1 {}", name_of(first)));
    https.set_client_certificate(second.certificate.as_bytes(), second.key.as_bytes()).unwrap();
    for path in ["/b", "/c"] {
        let answer = get(&https, path, Lane::Common).await.unwrap();
        assert_eq!(answer, format!("{path} 2 {}", name_of(second)));
    }
    server.tell(1);
    assert_eq!(next_line(&mut watching).await, "1\n");
    // The file is as it was, and does not bring the old one back.
    pass(Duration::from_secs(11)).await;
    assert_eq!(get(&https, "/d", Lane::Common).await.unwrap(), format!("/d 2 {}", name_of(second)));
}

#[tokio::test]
async fn a_certificate_whose_file_changes_is_taken_up_and_a_half_of_one_is_not() {
    let server = Server::start(Manner::default()).await;
    let (first, second) = (&server.pki.admin, &server.pki.kubelet_client);
    let https = https(&server.kubeconfig_with(first));
    let mut watching = watch(&https).await;
    let path = server.directory.path().join("client.pem");
    std::fs::write(&path, format!("{}{}", second.certificate, first.key)).unwrap();
    pass(Duration::from_secs(11)).await;
    assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), format!("/a 1 {}", name_of(first)));
    std::fs::remove_file(&path).unwrap();
    pass(Duration::from_secs(11)).await;
    assert_eq!(get(&https, "/b", Lane::Common).await.unwrap(), format!("/b 1 {}", name_of(first)));
    write_identity(&path, second);
    pass(Duration::from_secs(11)).await;
    assert_eq!(get(&https, "/c", Lane::Common).await.unwrap(), format!("/c 2 {}", name_of(second)));
    server.tell(1);
    assert_eq!(next_line(&mut watching).await, "1\n");
}

#[tokio::test]
async fn a_server_whose_authority_is_put_into_the_file_is_trusted_with_the_next_request() {
    let (server, other) = (Server::start(Manner::default()).await, Server::start(Manner::default()).await);
    let path = server.directory.path().join("ca.crt");
    std::fs::write(&path, other.pki.keys.authority().certificate()).unwrap();
    let mut config = server.kubeconfig();
    config.cluster.certificate_authority = Some(Pem::File(path.clone()));
    let https = https(&config);
    let error = get(&https, "/a", Lane::Common).await.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("no TLS with {}: invalid peer certificate", server.address)),
        "{error}"
    );
    std::fs::write(&path, server.pki.keys.authority().certificate()).unwrap();
    let answer = get(&https, "/a", Lane::Common).await.unwrap();
    assert!(answer.ends_with(" nobody"), "{answer}");
}

#[tokio::test]
async fn a_server_may_have_another_name_or_none_that_matters() {
    let server = Server::start(Manner::default()).await;
    let mut config = server.kubeconfig();
    config.cluster.server = format!("https://localhost:{}", server.address.port());
    assert!(get(&https(&config), "/a", Lane::Common).await.is_err());
    config.cluster.tls_server_name = Some("kubernetes".to_owned());
    get(&https(&config), "/a", Lane::Common).await.unwrap();
    config.cluster.tls_server_name = None;
    config.cluster.certificate_authority = None;
    config.cluster.insecure_skip_tls_verify = true;
    get(&https(&config), "/a", Lane::Common).await.unwrap();
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_told_before_anything_is_sent() {
    let server = Server::start(Manner::default()).await;
    let new = |config| {
        let made = Https::new(&config, &ProxyEnvironment::default(), Clock::system());
        made.err().map(|error| error.to_string()).unwrap()
    };
    let mut config = server.kubeconfig();
    config.cluster.certificate_authority = Some(Pem::Data("junk".into()));
    assert_eq!(new(config), "the certificate authority has no certificate that can be read");
    let mut config = server.kubeconfig_with(&server.pki.admin);
    let own = config.user.client_certificate.as_mut().unwrap();
    own.key = Pem::Data(server.pki.kubelet_client.key.as_str().into());
    let error = new(config);
    assert!(error.starts_with("certificate and key cannot be used"), "{error}");
    let mut config = server.kubeconfig_with(&server.pki.admin);
    config.user.client_certificate.as_mut().unwrap().key = Pem::File("/nowhere/key".into());
    assert_eq!(new(config), "cannot read /nowhere/key");
}
