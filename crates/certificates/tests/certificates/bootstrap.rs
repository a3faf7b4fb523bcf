//! How a node comes to its first client certificate.

use std::fs;

use crablet_api::certificates::RequestConditionType;
use crablet_certificates::{Bootstrap, ClientCertificate, Identity, Manager, Progress, Stage};
use crablet_client::{Kubeconfig, Pem};

use crate::world::{Fault, World, mode, pending, resting};

const COLLECTION: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn manager(certificate: ClientCertificate) -> Manager {
    match certificate {
        ClientCertificate::Rotated(manager) => *manager,
        ClientCertificate::Given | ClientCertificate::Bootstrap(_) => panic!("it is not renewed"),
    }
}

fn bootstrap(certificate: ClientCertificate) -> Bootstrap {
    match certificate {
        ClientCertificate::Bootstrap(bootstrap) => *bootstrap,
        ClientCertificate::Given | ClientCertificate::Rotated(_) => panic!("it is not asked for once"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_rotates_has_its_kubeconfig_at_once_and_its_certificate_soon() {
    let world = World::new();
    let manager = manager(world.open(true));
    let (mut identities, connect) = (manager.identities(), world.connect());
    assert!(identities.current().is_none());
    let kubeconfig = Kubeconfig::read(&world.path("kubelet.conf")).unwrap();
    assert_eq!(kubeconfig.cluster, Kubeconfig::read(&world.path("bootstrap.conf")).unwrap().cluster);
    let current = world.path("pki/kubelet-client-current.pem");
    assert_eq!(kubeconfig.user.client_certificate.unwrap().key, Pem::File(current.clone()));
    assert_eq!(kubeconfig.user.token, None);
    assert_eq!(mode(&world.path("kubelet.conf")), 0o600);

    tokio::spawn(async move { manager.run(&connect).await });
    assert!(identities.changed().await);
    let identity = identities.current().unwrap();
    assert_eq!(identity.leaf().common_name(), "system:node:n1");
    assert_eq!(identity.leaf().organizations(), ["system:nodes"]);
    assert_eq!(
        world.heard(),
        ["POST", "WATCH"].map(|verb| format!("system:bootstrap:abcdef {verb} {COLLECTION}"))
    );
    let requests = world.requests().await;
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    assert!(request.metadata.name.starts_with("csr-"), "{}", request.metadata.name);
    assert_eq!(&*request.spec.signer_name, "kubernetes.io/kube-apiserver-client-kubelet");
    let usages: Vec<&str> = request.spec.usages.iter().map(|usage| usage.as_str()).collect();
    assert_eq!(usages, ["digital signature", "client auth"]);
    assert_eq!(request.spec.expiration_seconds, None);

    let text = fs::read_to_string(&current).unwrap();
    assert!(
        text.starts_with("-----BEGIN CERTIFICATE-----") && text.contains("-----BEGIN EC PRIVATE KEY-----")
    );
    assert!(current.is_symlink());
    assert_eq!(mode(&current), 0o600);
    // The next start needs nobody.
    let again = self::manager(world.open(true));
    assert_eq!(again.identities().current().unwrap().certificate(), identity.certificate());
}

#[tokio::test(start_paused = true)]
async fn who_is_denied_asks_again_with_another_request_until_somebody_approves() {
    let world = World::without_approver().await;
    let manager = manager(world.open(true));
    let (mut identities, mut progress, connect) = (manager.identities(), manager.progress(), world.connect());
    let running = tokio::spawn(async move { manager.run(&connect).await });
    let first = pending(&mut progress).await;
    world.say(&first, RequestConditionType::Denied, "not yet").await;
    let told = resting(&mut progress).await;
    let expected =
        format!("certificate signing request {first} is denied, reason: SomebodySaid, message: not yet");
    assert!(told.contains(&expected), "{told}");
    let second = pending(&mut progress).await;
    assert_ne!(first, second);
    let told = progress.borrow().to_string();
    assert!(
        told.contains(&format!("kubectl certificate approve {second}")) && told.contains("not yet"),
        "{told}"
    );
    world.delete(&second).await;
    assert!(resting(&mut progress).await.contains(&format!("{second} was deleted")));
    let third = pending(&mut progress).await;
    world.approve(&third).await;
    assert!(identities.changed().await);
    assert_eq!(identities.current().unwrap().leaf().common_name(), "system:node:n1");
    let held = |progress: &Progress| matches!(progress.stage, Stage::Held { .. });
    assert!(progress.wait_for(held).await.unwrap().trouble.is_none());
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_approves_is_made_anew_after_a_quarter_of_an_hour() {
    let world = World::without_approver().await;
    let manager = manager(world.open(true));
    let (mut progress, connect) = (manager.progress(), world.connect());
    let running = tokio::spawn(async move { manager.run(&connect).await });
    let begun = world.clock.now();
    let first = pending(&mut progress).await;
    let told = resting(&mut progress).await;
    assert!(told.contains(&format!("{first} was not signed within 15 min")), "{told}");
    assert_eq!(world.clock.now().duration_since(begun).as_mins(), 15);
    assert_ne!(pending(&mut progress).await, first);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_asked_again_less_and_less_often() {
    let world = World::new();
    world.fail([Fault::Lost, Fault::Code(503), Fault::Code(401), Fault::Code(500), Fault::Lost, Fault::Lost]);
    let manager = manager(world.open(true));
    let (mut identities, connect) = (manager.identities(), world.connect());
    let begun = world.clock.now();
    let running = tokio::spawn(async move { manager.run(&connect).await });
    assert!(identities.changed().await);
    // 2, 4, 8 and 16 s, up to a tenth more, and then 32 s each time.
    let took = world.clock.now().duration_since(begun).as_secs();
    assert!((94..98).contains(&took), "{took}");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_loses_nothing() {
    let world = World::without_approver().await;
    // The request is created, and cannot be followed.
    world.fail([Fault::Nothing, Fault::Lost, Fault::Code(500)]);
    let manager = manager(world.open(true));
    let (mut identities, mut progress, connect) = (manager.identities(), manager.progress(), world.connect());
    let running = tokio::spawn(async move { manager.run(&connect).await });
    let name = pending(&mut progress).await;
    let told = progress.wait_for(|progress| progress.trouble.is_some()).await.unwrap().to_string();
    assert!(told.contains("cannot watch the certificate signing request"), "{told}");
    world.approve(&name).await;
    assert!(identities.changed().await);
    assert_eq!(world.requests().await.len(), 1);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_restart_while_nobody_has_approved_finds_the_same_key_and_request() {
    let world = World::without_approver().await;
    let key = world.path("pki/kubelet-client.key.tmp");
    let mut first = None;
    for _ in 0..3 {
        let bootstrap = bootstrap(world.open(false));
        let (mut progress, connect) = (bootstrap.progress(), world.connect());
        let running = tokio::spawn(async move { bootstrap.run(&connect).await });
        let name = pending(&mut progress).await;
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        let found = (name, fs::read_to_string(&key).unwrap());
        assert_eq!(found, *first.get_or_insert(found.clone()));
        assert_eq!(mode(&key), 0o600);
        assert!(!world.path("kubelet.conf").exists());
    }
    let (name, secret) = first.unwrap();
    assert!(name.starts_with("node-csr-"), "{name}");
    assert_eq!(world.requests().await.len(), 1);

    let bootstrap = bootstrap(world.open(false));
    world.approve(&name).await;
    bootstrap.run(&world.connect()).await;
    assert!(!key.exists());
    let current = world.path("pki/kubelet-client-current.pem");
    assert!(fs::read_to_string(&current).unwrap().ends_with(&secret));
    let own = Kubeconfig::read(&world.path("kubelet.conf")).unwrap().user.client_certificate.unwrap();
    assert_eq!(own.certificate, Pem::File(current));
    assert!(matches!(world.open(false), ClientCertificate::Given));
    // Ended before the kubeconfig was written: nobody is asked to approve again.
    fs::remove_file(world.path("kubelet.conf")).unwrap();
    self::bootstrap(world.open(false)).run(&world.connect()).await;
    assert!(world.path("kubelet.conf").exists());
    assert_eq!(world.requests().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_asks_once_is_denied_until_the_request_is_deleted_and_then_approved() {
    let world = World::without_approver().await;
    let bootstrap = bootstrap(world.open(false));
    let (mut progress, connect) = (bootstrap.progress(), world.connect());
    let running = tokio::spawn(async move { bootstrap.run(&connect).await });
    let name = pending(&mut progress).await;
    world.say(&name, RequestConditionType::Denied, "no").await;
    let again = |progress: &Progress| progress.trouble.as_ref().is_some_and(|trouble| trouble.times == 4);
    let told = progress.wait_for(again).await.unwrap().to_string();
    assert!(told.contains("is denied, reason: SomebodySaid, message: no"), "{told}");
    assert_eq!(world.requests().await.len(), 1);
    world.delete(&name).await;
    assert_eq!(pending(&mut progress).await, name);
    world.approve(&name).await;
    running.await.unwrap();
    assert!(world.path("kubelet.conf").exists());
}

#[tokio::test(start_paused = true)]
async fn a_torn_key_is_made_anew() {
    let world = World::new();
    fs::create_dir(world.path("pki")).unwrap();
    fs::write(world.path("pki/kubelet-client.key.tmp"), "-----BEGIN EC PRIVATE KEY-----\nMHcC").unwrap();
    bootstrap(world.open(false)).run(&world.connect()).await;
    assert!(world.path("kubelet.conf").exists());
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_is_of_no_use_any_more_is_replaced() {
    let world = World::new();
    let settings = world.settings(true);
    let connect = world.connect();
    let manager = self::manager(world.open(true));
    let mut identities = manager.identities();
    let running = tokio::spawn(async move { manager.run(&connect).await });
    assert!(identities.changed().await);
    running.abort();
    world.heard();
    let written = fs::read_to_string(&settings.kubeconfig).unwrap();
    let spoils: [&dyn Fn(); 4] = [
        &|| fs::write(&settings.kubeconfig, "junk: [").unwrap(),
        &|| fs::write(&settings.kubeconfig, written.replace("client-certificate:", "as-nothing:")).unwrap(),
        &|| world.clock.set_by(366 * 24 * 3600),
        &|| fs::write(world.path("pki/kubelet-client-current.pem"), "torn").unwrap(),
    ];
    for spoil in spoils {
        spoil();
        let manager = self::manager(world.open(true));
        assert_eq!(fs::read_to_string(&settings.kubeconfig).unwrap(), written);
        drop(manager);
    }
    // All of it has ended, or is torn: the bootstrap credentials ask for another.
    let (manager, connect) = (self::manager(world.open(true)), world.connect());
    let mut identities = manager.identities();
    assert!(identities.current().is_none());
    let running = tokio::spawn(async move { manager.run(&connect).await });
    assert!(identities.changed().await);
    assert!(world.heard().iter().all(|line| line.starts_with("system:bootstrap:abcdef ")));
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_certificate_within_a_kubeconfig_is_kept_and_replaced_at_once() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    let world = World::new();
    let connect = world.connect();
    let manager = self::manager(world.open(true));
    let mut identities = manager.identities();
    let running = tokio::spawn(async move { manager.run(&connect).await });
    assert!(identities.changed().await);
    running.abort();
    let first = identities.current().unwrap();
    fs::remove_dir_all(world.path("pki")).unwrap();
    let user = format!(
        "{{client-certificate-data: {}, client-key-data: {}}}",
        STANDARD.encode(first.certificate()),
        STANDARD.encode(first.key())
    );
    let kubeconfig = fs::read_to_string(world.path("bootstrap.conf")).unwrap();
    let kubeconfig = kubeconfig.replace("{token: abcdef.0123456789abcdef}", &user);
    fs::write(world.path("kubelet.conf"), &kubeconfig).unwrap();
    world.heard();

    let (manager, connect) = (self::manager(world.open(true)), world.connect());
    let mut identities = manager.identities();
    assert_eq!(identities.current().unwrap().certificate(), first.certificate());
    assert!(world.path("pki/kubelet-client-current.pem").exists());
    let running = tokio::spawn(async move { manager.run(&connect).await });
    assert!(identities.changed().await);
    assert_ne!(identities.current().unwrap().certificate(), first.certificate());
    assert!(world.heard().iter().all(|line| line.starts_with("system:node:n1 ")));
    assert_eq!(fs::read_to_string(world.path("kubelet.conf")).unwrap(), kubeconfig);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn no_key_is_shown_by_what_is_printed() {
    let world = World::new();
    let manager = manager(world.open(true));
    let (mut identities, progress, connect) = (manager.identities(), manager.progress(), world.connect());
    let running = tokio::spawn(async move { manager.run(&connect).await });
    assert!(identities.changed().await);
    running.abort();
    let identity = identities.current().unwrap();
    let secret = identity.key().lines().nth(1).unwrap().to_owned();
    assert!(!identity.certificate().contains("PRIVATE KEY"));
    for printed in [format!("{identity:?}"), format!("{identities:?}"), format!("{:?}", *progress.borrow())] {
        assert!(!printed.contains(&secret) && !printed.contains("PRIVATE"), "{printed}");
    }
    let other = world.path("server/admin.crt");
    let error = Identity::parse(&fs::read_to_string(other).unwrap(), identity.key()).unwrap_err();
    assert!(!format!("{error:?} {error}").contains(&secret));
}
