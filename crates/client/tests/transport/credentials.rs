use std::time::Duration;

use crablet_client::{Exec, ExecVersion, Lane};

use crate::server::{Manner, Server, name_of};
use crate::{get, https};

#[tokio::test]
async fn a_token_file_is_read_again_each_minute_or_when_its_token_is_not_known() {
    let server = Server::start(Manner::default()).await;
    server.know("one");
    let path = server.directory.path().join("token");
    std::fs::write(&path, "one\n").unwrap();
    let mut config = server.kubeconfig();
    config.user.token_file = Some(path.clone());
    config.user.token = Some("never".into());
    let https = https(&config);
    get(&https, "/a", Lane::Common).await.unwrap();
    std::fs::write(&path, "two").unwrap();
    assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), "/a 1 nobody");
    server.know("two");
    assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), "401");
    assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), "/a 1 nobody");
    std::fs::write(&path, "three").unwrap();
    server.know("three");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    assert!(get(&https, "/a", Lane::Common).await.unwrap().ends_with(" nobody"));
}

#[tokio::test]
async fn a_fixed_token_is_sent() {
    let server = Server::start(Manner::default()).await;
    server.know("s3cr3t");
    let mut config = server.kubeconfig();
    config.user.token = Some("s3cr3t".into());
    assert_eq!(get(&https(&config), "/a", Lane::Common).await.unwrap(), "/a 1 nobody");
}

/// A program that answers with the status in a file, and counts how often it was asked.
fn program(server: &Server) -> Exec {
    let directory = server.directory.path().display();
    let script = format!(
        "echo x >> {directory}/asked; echo \"{{\\\"kind\\\":\\\"ExecCredential\\\",\\\"apiVersion\\\":\\\"client.authentication.k8s.io/v1beta1\\\",\\\"status\\\":$(cat {directory}/status)}}\""
    );
    Exec {
        version: ExecVersion::V1Beta1,
        command: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), script],
        env: Vec::new(),
        install_hint: String::new(),
        provide_cluster_info: false,
    }
}

fn asked(server: &Server) -> usize {
    std::fs::read_to_string(server.directory.path().join("asked")).unwrap().lines().count()
}

#[tokio::test]
async fn a_program_is_asked_once_and_again_when_its_token_is_not_known_or_its_time_is_over() {
    let server = Server::start(Manner::default()).await;
    let status = server.directory.path().join("status");
    let mut config = server.kubeconfig();
    config.user.exec = Some(program(&server));
    let https = https(&config);
    server.know("one");
    std::fs::write(&status, r#"{"token":"one","expirationTimestamp":"2999-01-01T00:00:00Z"}"#).unwrap();
    for _ in 0..3 {
        assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), "/a 1 nobody");
    }
    assert_eq!(asked(&server), 1);
    std::fs::write(&status, r#"{"token":"two","expirationTimestamp":"2020-01-01T00:00:00Z"}"#).unwrap();
    server.know("two");
    assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), "401");
    assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), "/a 1 nobody");
    assert_eq!(asked(&server), 2);
    assert_eq!(get(&https, "/a", Lane::Common).await.unwrap(), "/a 1 nobody");
    assert_eq!(asked(&server), 3);
}

#[tokio::test]
async fn a_program_may_give_a_certificate() {
    let server = Server::start(Manner::default()).await;
    let admin = &server.pki.admin;
    let quoted = |text: &str| text.replace('\n', "\\n");
    let status = format!(
        r#"{{"clientCertificateData":"{}","clientKeyData":"{}"}}"#,
        quoted(&admin.certificate),
        quoted(&admin.key)
    );
    let mut config = server.kubeconfig();
    let mut exec = program(&server);
    // echo of some shells reads backslashes.
    exec.args[1] = exec.args[1].replace("; echo", "; printf '%s\\n'");
    config.user.exec = Some(exec);
    std::fs::write(server.directory.path().join("status"), status).unwrap();
    let answer = get(&https(&config), "/a", Lane::Common).await.unwrap();
    assert_eq!(answer, format!("/a 1 {}", name_of(admin)));
}

#[tokio::test]
async fn a_program_that_fails_is_told_and_asked_again() {
    let server = Server::start(Manner::default()).await;
    let mut config = server.kubeconfig();
    config.user.exec = Some(Exec {
        args: vec!["-c".to_owned(), "echo no session >&2; exit 1".to_owned()],
        ..program(&server)
    });
    let error = get(&https(&config), "/a", Lane::Common).await.unwrap_err();
    assert_eq!(error.to_string(), "the credential plugin /bin/sh failed with exit status: 1: no session");
}
