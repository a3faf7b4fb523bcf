//! What is in the folder of plugins and is not let in. It holds up nobody else.

use std::path::Path;

use crablet_csi::stand_in::Settings;
use serde_json::json;
use tokio::net::UnixListener;

use crate::support::{Registry, World, answered, quiet};

/// A good driver comes through, whatever else is there.
async fn assert_others_come_through(world: &World, registry: &mut Registry) {
    let good = world.start(Settings::new("good.io"));
    registry.told(&["+good.io"]).await;
    good.stop();
    registry.told(&["+good.io", "-good.io"]).await;
}

/// The driver at a socket is refused, is told so, and so is whoever looks.
async fn assert_refused(world: &World, name: &str, settings: Settings, why: &str) {
    let mut registry = world.registry();
    let stand_in = world.start_at(name, settings);
    let expected = format!("RegisterPlugin error -- {why}");
    assert_eq!(registry.refusal(&world.registration_socket(name)).await, expected);
    let calls = answered(&stand_in, 2).await;
    assert_eq!(calls[1]["call"], "Registration.NotifyRegistrationStatus");
    assert_eq!(calls[1]["request"], json!({"error": expected}));
    assert_others_come_through(world, &mut registry).await;
}

#[tokio::test]
async fn an_endpoint_outside_of_the_kubelets_folder() {
    let world = World::new();
    let root = world.root().canonicalize().unwrap();
    for (endpoint, reason) in [
        ("/run/docker.sock".into(), format!("it is outside of {}, or among its pods", root.display())),
        (
            format!("{}/plugins/../../docker.sock", root.display()),
            "it must be an absolute path of a unix socket, without \"..\"".to_owned(),
        ),
        ("csi.sock".into(), "it must be an absolute path of a unix socket, without \"..\"".to_owned()),
    ] {
        let settings = Settings { endpoint: Some(endpoint.clone()), ..Settings::new("a.io") };
        let why =
            format!("plugin validation failed with err: the endpoint {endpoint:?} is not accepted: {reason}");
        assert_refused(&world, "a.io", settings, &why).await;
        std::fs::remove_file(world.registration_socket("a.io")).unwrap();
    }
}

#[tokio::test]
async fn a_type_that_nobody_handles() {
    let world = World::new();
    for kind in ["Toaster", "DevicePlugin"] {
        let settings = Settings { kind: kind.to_owned(), ..Settings::new("a.io") };
        let socket = world.registration_socket("a.io");
        let why = format!("no handler registered for plugin type: {kind} at socket {}", socket.display());
        assert_refused(&world, "a.io", settings, &why).await;
        std::fs::remove_file(&socket).unwrap();
    }
}

#[tokio::test]
async fn a_driver_of_another_age() {
    let world = World::new();
    let settings = Settings { supported_versions: vec!["0.3.0".to_owned()], ..Settings::new("a.io") };
    let endpoint = world.driver_socket("a.io");
    let why = format!(
        "plugin validation failed with err: validation failed for CSI Driver a.io at endpoint {}: kubernetes.io/csi: \
         ValidatePlugin for CSI driver \"a.io\" failed. None of the versions specified [\"0.3.0\"] are supported. \
         err=highest supported version reported is 0.3.0, must be v1.x",
        endpoint.display()
    );
    assert_refused(&world, "a.io", settings, &why).await;
}

#[tokio::test]
async fn a_driver_that_announces_anothers_name_waits_until_it_is_free() {
    let world = World::new();
    let mut registry = world.registry();
    let owner = world.start(Settings::new("a.io"));
    registry.told(&["+a.io"]).await;
    let other = world.start_at("other", Settings::new("a.io"));
    let problem = registry.refusal(&world.registration_socket("other")).await;
    let expected = format!(
        "ValidatePlugin for CSI driver \"a.io\" failed. Another driver with the same name is already registered with a \
         higher supported version: \"1.0.0\" (at socket {})",
        world.registration_socket("a.io").display()
    );
    assert!(problem.ends_with(&expected), "{problem}");
    assert_eq!(registry.plugins().len(), 1);
    owner.stop();
    registry.told(&["+a.io", "-a.io", "+a.io"]).await;
    assert_eq!(registry.plugins()[1].socket, world.registration_socket("other"));
    drop(other);
}

#[tokio::test]
async fn a_driver_that_speaks_a_higher_version_takes_the_name_over_when_it_is_registered() {
    let world = World::new();
    let mut registry = world.registry();
    let owner = world.start(Settings::new("a.io"));
    registry.told(&["+a.io"]).await;
    let settings = Settings { supported_versions: vec!["1.9.0".to_owned()], ..Settings::new("a.io") };
    let newer = world.start_at("newer", settings);
    registry.told(&["+a.io", "+a.io"]).await;
    assert_eq!(registry.plugins()[1].socket, world.registration_socket("newer"));
    owner.stop();
    registry.all(&["a.io"]).await;
    newer.stop();
    registry.told(&["+a.io", "+a.io", "-a.io"]).await;
}

#[tokio::test]
async fn a_name_that_leads_elsewhere() {
    let world = World::new();
    let mut registry = world.registry();
    let other = world.start_at("other", Settings::new("../../etc"));
    let problem = registry.refusal(&world.registration_socket("other")).await;
    assert!(problem.contains("Its name must be"), "{problem}");
    drop(other);
}

#[tokio::test]
async fn a_registrar_that_connects_and_says_nothing() {
    let world = World::new();
    let mut registry = world.registry();
    let socket = world.registration_socket("silent");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    assert_others_come_through(&world, &mut registry).await;
    let problem = registry.refusal(&socket).await;
    assert!(problem.ends_with("code = DeadlineExceeded desc = context deadline exceeded"), "{problem}");
}

#[tokio::test]
async fn a_socket_that_nobody_listens_on() {
    let world = World::new();
    let mut registry = world.registry();
    let socket = world.registration_socket("dead");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    drop(UnixListener::bind(&socket).unwrap());
    let problem = registry.refusal(&socket).await;
    assert!(problem.contains("connect: connection refused"), "{problem}");
    assert_others_come_through(&world, &mut registry).await;
    std::fs::remove_file(&socket).unwrap();
    registry.all(&[]).await;
}

#[tokio::test]
async fn a_registrar_that_sends_a_hundred_megabytes() {
    let world = World::new();
    let mut registry = world.registry();
    let other = world.start_at("other", Settings::new(&"x".repeat(100 << 20)));
    let problem = registry.refusal(&world.registration_socket("other")).await;
    // A slow machine takes more than the second that it has.
    let is_refused =
        problem.contains("grpc: received message larger than max (") || problem.contains("deadline");
    assert!(is_refused, "{problem}");
    assert!(problem.len() < 1000, "{}", problem.len());
    assert_others_come_through(&world, &mut registry).await;
    drop(other);
}

#[tokio::test]
async fn a_link_instead_of_a_socket_and_files_that_are_none() {
    let world = World::new();
    let mut registry = world.registry();
    let folder = world.root().join("plugins_registry");
    std::fs::create_dir_all(&folder).unwrap();
    let hidden = quiet(Settings::new("hidden.io"));
    hidden.start(&world.driver_socket("hidden"), Some(&folder.join(".hidden.sock"))).unwrap();
    std::fs::write(folder.join("file"), "").unwrap();
    let link = folder.join("link.sock");
    std::os::unix::fs::symlink(Path::new(".hidden.sock"), &link).unwrap();
    assert_eq!(registry.refusal(&link).await, "it is a symbolic link, not a socket");
    assert_others_come_through(&world, &mut registry).await;
    std::fs::remove_file(&link).unwrap();
    registry.all(&[]).await;
    assert!(hidden.calls().is_empty());
}
