//! Plugins that come and go.

use std::time::Duration;

use crablet_csi::PluginType;
use crablet_csi::stand_in::{Fault, Settings};
use serde_json::json;
use tonic::Code;

use crate::support::{NAME, PANICKING, World, answered, count, quiet, soon};

#[tokio::test]
async fn a_driver_is_asked_who_it_is_and_told_that_it_is_registered() {
    let world = World::new();
    let mut registry = world.registry();
    let stand_in = world.start(Settings { max_volumes_per_node: 8, ..Settings::new(NAME) });
    let endpoint = world.driver_socket(NAME);
    let expected = [
        json!({"call": "Registration.GetInfo", "request": {}, "answer": {
            "type": "CSIPlugin", "name": NAME, "endpoint": endpoint, "supported_versions": ["1.0.0"],
        }}),
        json!({"call": "Node.NodeGetInfo", "request": {}, "answer": {
            "node_id": "node", "max_volumes_per_node": "8",
        }}),
        json!({"call": "Registration.NotifyRegistrationStatus", "request": {"plugin_registered": true},
            "answer": {}}),
    ];
    assert_eq!(answered(&stand_in, 3).await, expected);
    let deadlines: Vec<_> = stand_in.calls().iter().map(|call| call.deadline).collect();
    assert_eq!(deadlines, [1, 120, 5].map(|seconds| Some(Duration::from_secs(seconds))));
    registry.told(&["+record.csi.example.com"]).await;
    let plugin = registry.plugins().remove(0);
    assert_eq!((plugin.kind, plugin.endpoint), (PluginType::Csi, endpoint));
    assert_eq!(plugin.socket, world.registration_socket(NAME));
    assert_eq!(plugin.version.unwrap().to_string(), "1.0.0");
}

#[tokio::test]
async fn a_driver_that_was_there_before_is_found_and_so_is_one_in_a_folder_below() {
    let world = World::new();
    let first = world.start(Settings::new("first.example.com"));
    let mut registry = world.registry();
    registry.told(&["+first.example.com"]).await;
    let second = quiet(Settings::new("second.example.com"));
    let below = world.root().join("plugins_registry/some/folder/reg.sock");
    second.start(&world.driver_socket("second"), Some(&below)).unwrap();
    registry.told(&["+first.example.com", "+second.example.com"]).await;
    second.stop();
    registry.told(&["+first.example.com", "+second.example.com", "-second.example.com"]).await;
    drop(first);
}

#[tokio::test]
async fn a_driver_whose_sockets_go_is_deregistered_and_comes_back() {
    let world = World::new();
    let mut registry = world.registry();
    let stand_in = world.start(Settings::new("a.io"));
    registry.all(&["a.io"]).await;
    stand_in.stop();
    registry.told(&["+a.io", "-a.io"]).await;
    registry.all(&[]).await;
    stand_in.start_again().unwrap();
    registry.told(&["+a.io", "-a.io", "+a.io"]).await;
}

#[tokio::test]
async fn a_driver_that_was_killed_stays_registered_until_its_socket_is_made_anew() {
    let world = World::new();
    let mut registry = world.registry();
    let stand_in = world.start(Settings::new("a.io"));
    registry.all(&["a.io"]).await;
    stand_in.kill();
    // Another that comes later shows that nothing was said of the first meanwhile.
    let other = world.start(Settings::new("b.io"));
    registry.told(&["+a.io", "+b.io"]).await;
    stand_in.start_again().unwrap();
    registry.told(&["+a.io", "+b.io", "-a.io", "+a.io"]).await;
    answered(&stand_in, 6).await;
    drop(other);
}

#[tokio::test]
async fn a_registrar_that_fails_once_is_asked_again() {
    let world = World::new();
    let mut registry = world.registry();
    let stand_in = quiet(Settings::new("a.io"));
    stand_in.plan("GetInfo", Fault::fail(Code::Internal, "not yet", 1));
    let socket = world.registration_socket("a.io");
    stand_in.start(&world.driver_socket("a.io"), Some(&socket)).unwrap();
    assert_eq!(
        registry.refusal(&socket).await,
        format!(
            "RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {}, err: rpc error: code = \
             Internal desc = not yet",
            socket.display()
        )
    );
    registry.told(&["+a.io"]).await;
    registry.all(&["a.io"]).await;
    assert_eq!(count(&stand_in.calls(), "Registration.GetInfo"), 2);
}

#[tokio::test]
async fn a_driver_without_a_node_is_told_so_and_asked_again() {
    let world = World::new();
    let mut registry = world.registry();
    let stand_in = quiet(Settings::new("a.io"));
    stand_in.plan("NodeGetInfo", Fault::fail(Code::Unavailable, "no node yet", 1));
    stand_in.start(&world.driver_socket("a.io"), Some(&world.registration_socket("a.io"))).unwrap();
    let calls = answered(&stand_in, 6).await;
    let told = json!({"error": "RegisterPlugin error -- plugin registration failed with err: rpc error: code = \
                                Unavailable desc = no node yet"});
    assert_eq!(calls[2]["request"], told);
    assert_eq!(calls[5]["request"], json!({"plugin_registered": true}));
    registry.told(&["+a.io"]).await;
    registry.all(&["a.io"]).await;
}

#[tokio::test]
async fn a_registrar_that_cannot_be_told_is_deregistered_and_tried_again() {
    let world = World::new();
    let mut registry = world.registry();
    let stand_in = quiet(Settings::new("a.io"));
    stand_in.plan("NotifyRegistrationStatus", Fault::fail(Code::Internal, "what?", 1));
    stand_in.start(&world.driver_socket("a.io"), Some(&world.registration_socket("a.io"))).unwrap();
    registry.told(&["+a.io", "-a.io", "+a.io"]).await;
}

#[tokio::test]
async fn a_socket_that_goes_in_the_middle_of_a_registration_cuts_it_off() {
    let world = World::new();
    let mut registry = world.registry();
    let stand_in = quiet(Settings::new("a.io"));
    stand_in.plan("NodeGetInfo", Fault::hang());
    let socket = world.registration_socket("a.io");
    stand_in.start(&world.driver_socket("a.io"), Some(&socket)).unwrap();
    soon(stand_in.until(|calls| count(calls, "Node.NodeGetInfo") == 1)).await;
    std::fs::remove_file(&socket).unwrap();
    registry.told(&["-a.io"]).await;
    stand_in.start_again().unwrap();
    registry.told(&["-a.io", "+a.io"]).await;
    registry.all(&["a.io"]).await;
}

#[tokio::test]
async fn a_handler_that_panics_is_that_plugins_affair_until_it_is_made_anew() {
    let world = World::new();
    let mut registry = world.registry();
    let stand_in = world.start_at("a.io", Settings::new(PANICKING));
    let problem = registry.refusal(&world.registration_socket("a.io")).await;
    assert!(problem.starts_with("its registration failed unexpectedly"), "{problem}");
    let other = world.start(Settings::new("b.io"));
    registry.told(&["+b.io"]).await;
    stand_in.change(|settings| settings.name = "a.io".to_owned());
    stand_in.start_again().unwrap();
    registry.told(&["+b.io", "+a.io"]).await;
    registry.all(&["a.io", "b.io"]).await;
    stand_in.change(|settings| settings.name = PANICKING.to_owned());
    stand_in.start_again().unwrap();
    registry.refusal(&world.registration_socket("a.io")).await;
    stand_in.stop();
    registry.all(&["b.io"]).await;
    drop(other);
}
