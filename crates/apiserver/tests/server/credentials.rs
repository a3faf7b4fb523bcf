use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::running::{CONFIG_MAPS, Running, config_map};

#[tokio::test]
async fn who_shows_what_is_not_believed_is_turned_away_in_upstreams_words() {
    let (server, other) = (Running::start().await, Running::start().await);
    let unauthorized = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    });
    let anybody = server.anybody();
    let strangers = anybody.clone().with_certificate(&other.directory.path().join("pki"), "admin");
    let none =
        "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMuY2x1c3Rlci5sb2NhbCJ9.";
    for client in [
        strangers,
        anybody.clone().with_header("authorization", "Bearer nonsense"),
        anybody.clone().with_header("authorization", "bearer abcdef.0123456789abcdef"),
        anybody.clone().with_header("authorization", format!("Bearer {none}")),
    ] {
        for client in [client.clone(), client.http1()] {
            let answer = client.get(CONFIG_MAPS).await;
            assert_eq!((answer.code, answer.json()), (401, unauthorized.clone()));
        }
    }
    // Who shows nothing is anonymous, and so is who shows something else.
    assert_eq!(anybody.get("/readyz").await.code, 200);
    assert_eq!(anybody.with_header("authorization", "Basic YTpi").get("/readyz").await.code, 200);
    let admin = server.admin();
    assert_eq!(admin.post(CONFIG_MAPS, &config_map("a", "1")).await.code, 201);
    assert_eq!(admin.http1().get(&format!("{CONFIG_MAPS}/a")).await.code, 200);
}

#[tokio::test]
async fn what_was_written_is_there_after_a_restart_and_the_kubeconfig_is_for_its_owner_alone() {
    let server = Running::start().await;
    let written = server.admin().post(CONFIG_MAPS, &config_map("a", "1")).await;
    let conf = server.directory.path().join("admin.conf");
    let first = std::fs::read_to_string(&conf).unwrap();
    assert_eq!(std::fs::metadata(&conf).unwrap().permissions().mode() & 0o777, 0o600);
    let server = Running::start_in(server.stop().await).await;
    let read = server.admin().get(&format!("{CONFIG_MAPS}/a")).await;
    assert_eq!((read.code, read.json()), (200, written.json()));
    let second = std::fs::read_to_string(&conf).unwrap();
    let without_port = |text: &str| text.lines().filter(|line| !line.contains("server:")).collect::<String>();
    assert_eq!(without_port(&first), without_port(&second));
    assert!(second.contains(&format!("server: https://{}", server.address)));
}

#[tokio::test]
async fn a_data_directory_is_for_one_server() {
    use crablet_apiserver::server::{Server, StartError};
    let server = Running::start().await;
    let options = crate::running::options(server.directory.path());
    let Err(error) = Server::start(options, crablet_host::clock::Clock::system()).await else { panic!() };
    assert!(matches!(error, StartError::Held { .. }), "{error}");
    assert!(
        error.to_string().starts_with("another API server is running with the data directory"),
        "{error}"
    );
}

#[tokio::test]
async fn tokens_can_be_verified_by_others() {
    let server = Running::start().await;
    let answer = server.admin().get("/.well-known/openid-configuration").await;
    assert_eq!(answer.json()["issuer"], "https://kubernetes.default.svc.cluster.local");
    assert_eq!(answer.json()["jwks_uri"], format!("https://{}/openid/v1/jwks", server.address));
    assert_eq!(answer.header("cache-control"), "public, max-age=3600");
    let answer = server.admin().get("/openid/v1/jwks").await;
    assert_eq!(answer.header("content-type"), "application/jwk-set+json");
    let key = &answer.json()["keys"][0];
    assert_eq!((&key["kty"], &key["crv"], &key["alg"]), (&json!("EC"), &json!("P-256"), &json!("ES256")));
    assert!(key["d"].is_null());
}
