//! Sandboxes: their life, their statuses, and orders that make no sense.

use crablet_cri_api::{ContainerFilter, SandboxFilter, v1};
use expect_test::{Expect, expect};

use super::{FOREVER, UNTIL_ASKED, cases};
use crate::world::{World, map, namespaces};

/// An ID that no runtime gives.
const MISSING: &str = "no-such-sandbox";

cases!(
    a_sandbox_is_ready_then_not_then_gone,
    a_sandbox_in_the_hosts_network_has_no_address,
    a_sandbox_that_shares_its_processes_is_like_any_other,
    two_sandboxes_have_two_addresses,
    stopping_a_sandbox_twice_succeeds,
    stopping_a_sandbox_that_is_gone_or_never_was_succeeds,
    removing_a_sandbox_that_is_gone_or_never_was_succeeds,
    the_status_of_a_sandbox_that_never_was_is_not_found,
    a_ready_sandbox_can_be_removed,
    removing_a_sandbox_removes_its_containers,
    stopping_a_sandbox_stops_its_containers_and_keeps_them,
    stopping_a_sandbox_gives_its_containers_no_time,
    no_container_is_made_in_a_stopped_sandbox,
    no_container_is_made_in_a_sandbox_that_is_gone_or_never_was,
    two_sandboxes_cannot_have_the_same_name_and_attempt,
    a_stopped_sandbox_still_holds_its_name,
    another_attempt_runs_beside_the_first,
    pods_with_the_same_name_and_other_uids_run_side_by_side,
    a_sandbox_without_metadata_is_refused,
    a_sandbox_with_an_empty_name_is_run,
    a_sandbox_of_an_unknown_handler_is_refused_and_its_name_is_free_again,
    a_sandbox_of_a_named_handler_tells_it,
    labels_and_annotations_of_a_sandbox_are_kept_byte_for_byte,
    a_sandbox_is_found_by_the_beginning_of_its_id,
    a_sandbox_needs_no_log_directory,
    a_sandbox_with_ports_dns_and_a_hostname_runs,
);

async fn a_sandbox_is_ready_then_not_then_gone(world: &World) -> Expect {
    let mut config = world.pod("a");
    config.labels = map(&[("app", "web"), ("tier", "front")]);
    config.annotations = map(&[("note", "kept")]);
    let pod = world.run_sandbox(&config).await.expect("it runs");
    world.sandbox_status(&pod.id).await;
    world.list_sandboxes("all", SandboxFilter::default()).await;
    world.stop_sandbox(&pod.id).await;
    world.sandbox_status(&pod.id).await;
    world.list_sandboxes("all", SandboxFilter::default()).await;
    world.remove_sandbox(&pod.id).await;
    world.sandbox_status(&pod.id).await;
    world.list_sandboxes("all", SandboxFilter::default()).await;
    expect![[r#"
        run sandbox a: <a>
        status of sandbox <a>:
          <a> ns/a <case> #0 Ready created network=Pod <ip>
            label "app"="web"
            label "tier"="front"
            annotation "note"="kept"
        sandboxes all:
          <a> ns/a <case> #0 Ready created
            label "app"="web"
            label "tier"="front"
            annotation "note"="kept"
        stop sandbox <a>: done
        status of sandbox <a>:
          <a> ns/a <case> #0 NotReady created network=Pod
            label "app"="web"
            label "tier"="front"
            annotation "note"="kept"
        sandboxes all:
          <a> ns/a <case> #0 NotReady created
            label "app"="web"
            label "tier"="front"
            annotation "note"="kept"
        remove sandbox <a>: done
        status of sandbox <a>: PodSandboxStatus: NotFound: an error occurred when try to find sandbox: not found
        sandboxes all:
    "#]]
}

async fn a_sandbox_in_the_hosts_network_has_no_address(world: &World) -> Expect {
    let pod = world.ran("a").await;
    world.sandbox_status(&pod.id).await;
    world.stop_sandbox(&pod.id).await;
    world.sandbox_status(&pod.id).await;
    expect![[r#"
        status of sandbox <a>:
          <a> ns/a <case> #0 Ready created network=Node
        stop sandbox <a>: done
        status of sandbox <a>:
          <a> ns/a <case> #0 NotReady created network=Node
    "#]]
}

async fn a_sandbox_that_shares_its_processes_is_like_any_other(world: &World) -> Expect {
    let mut config = world.pod("a");
    namespaces(&mut config).pid = v1::NamespaceMode::Pod.into();
    let pod = world.run_sandbox(&config).await.expect("it runs");
    world.sandbox_status(&pod.id).await;
    expect![[r#"
        run sandbox a: <a>
        status of sandbox <a>:
          <a> ns/a <case> #0 Ready created network=Pod <ip>
    "#]]
}

async fn two_sandboxes_have_two_addresses(world: &World) -> Expect {
    let mut addresses = Vec::new();
    for name in ["a", "b"] {
        let pod = world.ran_from(world.pod(name)).await;
        addresses.extend(world.runtime.sandbox_status(&pod.id).await.expect("it has a status").ips);
    }
    addresses.sort();
    addresses.dedup();
    world.note(format!("{} addresses", addresses.len()));
    expect![[r#"
        2 addresses
    "#]]
}

async fn stopping_a_sandbox_twice_succeeds(world: &World) -> Expect {
    let pod = world.ran("a").await;
    world.stop_sandbox(&pod.id).await;
    world.stop_sandbox(&pod.id).await;
    world.sandbox_status(&pod.id).await;
    expect![[r#"
        stop sandbox <a>: done
        stop sandbox <a>: done
        status of sandbox <a>:
          <a> ns/a <case> #0 NotReady created network=Node
    "#]]
}

async fn stopping_a_sandbox_that_is_gone_or_never_was_succeeds(world: &World) -> Expect {
    let pod = world.ran("a").await;
    world.remove_sandbox(&pod.id).await;
    world.stop_sandbox(&pod.id).await;
    world.stop_sandbox(MISSING).await;
    expect![[r#"
        remove sandbox <a>: done
        stop sandbox <a>: done
        stop sandbox no-such-sandbox: done
    "#]]
}

async fn removing_a_sandbox_that_is_gone_or_never_was_succeeds(world: &World) -> Expect {
    let pod = world.ran("a").await;
    world.remove_sandbox(&pod.id).await;
    world.remove_sandbox(&pod.id).await;
    world.remove_sandbox(MISSING).await;
    expect![[r#"
        remove sandbox <a>: done
        remove sandbox <a>: done
        remove sandbox no-such-sandbox: done
    "#]]
}

async fn the_status_of_a_sandbox_that_never_was_is_not_found(world: &World) -> Expect {
    world.sandbox_status(MISSING).await;
    world.sandbox_status("").await;
    expect![[r#"
        status of sandbox no-such-sandbox: PodSandboxStatus: NotFound: an error occurred when try to find sandbox: not found
        status of sandbox : PodSandboxStatus: Unknown: an error occurred when try to find sandbox: prefix can't be empty
    "#]]
}

async fn a_ready_sandbox_can_be_removed(world: &World) -> Expect {
    let pod = world.ran_from(world.pod("a")).await;
    world.remove_sandbox(&pod.id).await;
    world.list_sandboxes("all", SandboxFilter::default()).await;
    expect![[r#"
        remove sandbox <a>: done
        sandboxes all:
    "#]]
}

async fn removing_a_sandbox_removes_its_containers(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let running = world.started(&pod, "running", FOREVER).await;
    let created = world.created(&pod, "created", FOREVER).await;
    let exited = world.ended(&pod, "exited", "exit 3").await;
    world.remove_sandbox(&pod.id).await;
    world.list_containers("all", ContainerFilter::default()).await;
    for id in [&running, &created, &exited] {
        world.container_status(id).await;
    }
    expect![[r#"
        remove sandbox <a>: done
        containers all:
        status of <running>: ContainerStatus: NotFound: an error occurred when try to find container "<running>": not found
        status of <created>: ContainerStatus: NotFound: an error occurred when try to find container "<created>": not found
        status of <exited>: ContainerStatus: NotFound: an error occurred when try to find container "<exited>": not found
    "#]]
}

async fn stopping_a_sandbox_stops_its_containers_and_keeps_them(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let running = world.started(&pod, "running", FOREVER).await;
    let created = world.created(&pod, "created", FOREVER).await;
    let exited = world.ended(&pod, "exited", "exit 3").await;
    world.stop_sandbox(&pod.id).await;
    for id in [&running, &created, &exited] {
        world.state(id).await;
    }
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        stop sandbox <a>: done
        state of <running>: Exited created started finished exit_code=137 reason="Error"
        state of <created>: Created created
        state of <exited>: Exited created started finished exit_code=3 reason="Error"
        containers all:
          <created> of <a> created #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
          <exited> of <a> exited #0 Exited created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
          <running> of <a> running #0 Exited created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
    "#]]
}

async fn stopping_a_sandbox_gives_its_containers_no_time(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let polite = world.ready(&pod, "polite", UNTIL_ASKED).await;
    world.stop_sandbox(&pod.id).await;
    world.state(&polite).await;
    world.log(&pod, "polite.log");
    expect![[r#"
        stop sandbox <a>: done
        state of <polite>: Exited created started finished exit_code=137 reason="Error"
        log polite.log:
          "stdout F ready\n"
    "#]]
}

async fn no_container_is_made_in_a_stopped_sandbox(world: &World) -> Expect {
    let pod = world.ran("a").await;
    world.stop_sandbox(&pod.id).await;
    let _ = world.create_container(&pod, &world.container("main", FOREVER)).await;
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        stop sandbox <a>: done
        create container main: CreateContainer: NotFound: failed to get sandbox container task: no running task found: task <a> not found: not found
        containers all:
    "#]]
}

async fn no_container_is_made_in_a_sandbox_that_is_gone_or_never_was(world: &World) -> Expect {
    let mut pod = world.ran("a").await;
    world.remove_sandbox(&pod.id).await;
    let _ = world.create_container(&pod, &world.container("main", FOREVER)).await;
    pod.id = MISSING.to_owned();
    let _ = world.create_container(&pod, &world.container("main", FOREVER)).await;
    expect![[r#"
        remove sandbox <a>: done
        create container main: CreateContainer: NotFound: failed to find sandbox id "<a>": not found
        create container main: CreateContainer: NotFound: failed to find sandbox id "no-such-sandbox": not found
    "#]]
}

async fn two_sandboxes_cannot_have_the_same_name_and_attempt(world: &World) -> Expect {
    let config = world.host_pod("a");
    let pod = world.run_sandbox(&config).await.expect("it runs");
    let _ = world.run_sandbox(&config).await;
    world.sandbox_status(&pod.id).await;
    world.remove_sandbox(&pod.id).await;
    let _ = world.run_sandbox(&config).await;
    expect![[r#"
        run sandbox a: <a>
        run sandbox a: RunPodSandbox: Unknown: failed to reserve sandbox name "a_ns_<case>_0": name "a_ns_<case>_0" is reserved for "<a>"
        status of sandbox <a>:
          <a> ns/a <case> #0 Ready created network=Node
        remove sandbox <a>: done
        run sandbox a: <a 2>
    "#]]
}

async fn a_stopped_sandbox_still_holds_its_name(world: &World) -> Expect {
    let config = world.host_pod("a");
    let pod = world.run_sandbox(&config).await.expect("it runs");
    world.stop_sandbox(&pod.id).await;
    let _ = world.run_sandbox(&config).await;
    expect![[r#"
        run sandbox a: <a>
        stop sandbox <a>: done
        run sandbox a: RunPodSandbox: Unknown: failed to reserve sandbox name "a_ns_<case>_0": name "a_ns_<case>_0" is reserved for "<a>"
    "#]]
}

async fn another_attempt_runs_beside_the_first(world: &World) -> Expect {
    let mut config = world.host_pod("a");
    let _ = world.run_sandbox(&config).await;
    config.metadata.get_or_insert_default().attempt = 1;
    let _ = world.run_sandbox(&config).await;
    world.list_sandboxes("all", SandboxFilter::default()).await;
    expect![[r#"
        run sandbox a: <a>
        run sandbox a: <a 2>
        sandboxes all:
          <a> ns/a <case> #0 Ready created
          <a 2> ns/a <case> #1 Ready created
    "#]]
}

async fn pods_with_the_same_name_and_other_uids_run_side_by_side(world: &World) -> Expect {
    let mut config = world.host_pod("a");
    let _ = world.run_sandbox(&config).await;
    config.metadata.get_or_insert_default().uid.push_str("-of-another");
    let other = world.run_sandbox(&config).await.expect("it runs");
    world.sandbox_status(&other.id).await;
    expect![[r#"
        run sandbox a: <a>
        run sandbox a: <a 2>
        status of sandbox <a 2>:
          <a 2> ns/a <case>-of-another #0 Ready created network=Node
    "#]]
}

async fn a_sandbox_without_metadata_is_refused(world: &World) -> Expect {
    let mut config = world.host_pod("a");
    config.metadata = None;
    let _ = world.run_sandbox(&config).await;
    expect![[r#"
        run sandbox : RunPodSandbox: Unknown: sandbox config must include metadata
    "#]]
}

async fn a_sandbox_with_an_empty_name_is_run(world: &World) -> Expect {
    let mut config = world.host_pod("");
    config.metadata.get_or_insert_default().namespace.clear();
    let _ = world.run_sandbox(&config).await;
    world.list_sandboxes("all", SandboxFilter::default()).await;
    expect![[r#"
        run sandbox : <>
        sandboxes all:
          <> / <case> #0 Ready created
    "#]]
}

async fn a_sandbox_of_an_unknown_handler_is_refused_and_its_name_is_free_again(world: &World) -> Expect {
    let config = world.host_pod("a");
    let _ = world.run_sandbox_by(&config, "hypervisor").await;
    world.list_sandboxes("all", SandboxFilter::default()).await;
    let _ = world.run_sandbox(&config).await;
    expect![[r#"
        run sandbox a: RunPodSandbox: Unknown: failed to get sandbox runtime: no runtime for "hypervisor" is configured
        sandboxes all:
        run sandbox a: <a>
    "#]]
}

async fn a_sandbox_of_a_named_handler_tells_it(world: &World) -> Expect {
    let pod = world.run_sandbox_by(&world.host_pod("a"), "runc").await.expect("it runs");
    world.sandbox_status(&pod.id).await;
    world.list_sandboxes("all", SandboxFilter::default()).await;
    expect![[r#"
        run sandbox a: <a>
        status of sandbox <a>:
          <a> ns/a <case> #0 Ready created network=Node handler="runc"
        sandboxes all:
          <a> ns/a <case> #0 Ready created handler="runc"
    "#]]
}

async fn labels_and_annotations_of_a_sandbox_are_kept_byte_for_byte(world: &World) -> Expect {
    let long = "0123456789abcdef".repeat(4096);
    let odd = map(&[
        ("empty", ""),
        ("long", &long),
        ("unicode", "Übergröße ⛵ 日本語 \u{200d}"),
        ("lines", "one\ntwo\r\n\tthree\0"),
        ("quotes \" ' \\", "{\"json\":[1,2]}"),
    ]);
    let mut config = world.host_pod("a");
    config.annotations = odd.clone();
    // Labels go to containerd too, which takes no more than 4096 bytes of one.
    config.labels = odd.into_iter().filter(|(key, _)| key != "long").collect();
    let pod = world.run_sandbox(&config).await.expect("it runs");
    let status = world.runtime.sandbox_status(&pod.id).await.expect("it has a status");
    assert_eq!((&status.labels, &status.annotations), (&config.labels, &config.annotations));
    world.list_sandboxes("all", SandboxFilter::default()).await;
    expect![[r#"
        run sandbox a: <a>
        sandboxes all:
          <a> ns/a <case> #0 Ready created
            label "empty"=""
            label "lines"="one\ntwo\r\n\tthree\0"
            label "quotes \" ' \\"="{\"json\":[1,2]}"
            label "unicode"="Übergröße ⛵ 日本語 \u{200d}"
            annotation "empty"=""
            annotation "lines"="one\ntwo\r\n\tthree\0"
            annotation "long"="0123456789abcdef0123"… (65536 characters, checksum 12179462671740805925)
            annotation "quotes \" ' \\"="{\"json\":[1,2]}"
            annotation "unicode"="Übergröße ⛵ 日本語 \u{200d}"
    "#]]
}

async fn a_sandbox_is_found_by_the_beginning_of_its_id(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let beginning = &pod.id[..32];
    let status = world.runtime.sandbox_status(beginning).await.map(|status| status.id == pod.id);
    world.note(format!("status: {status:?}"));
    let stopped = world.runtime.stop_sandbox(beginning).await;
    world.note(format!("stopped: {stopped:?}"));
    world.sandbox_status(&pod.id).await;
    let removed = world.runtime.remove_sandbox(beginning).await;
    world.note(format!("removed: {removed:?}"));
    world.list_sandboxes("all", SandboxFilter::default()).await;
    expect![[r#"
        status: Ok(true)
        stopped: Ok(())
        status of sandbox <a>:
          <a> ns/a <case> #0 NotReady created network=Node
        removed: Ok(())
        sandboxes all:
    "#]]
}

async fn a_sandbox_needs_no_log_directory(world: &World) -> Expect {
    let mut config = world.host_pod("a");
    config.log_directory.clear();
    let pod = world.run_sandbox(&config).await.expect("it runs");
    let main = world.ended(&pod, "main", "echo lost; exit 4").await;
    world.container_status(&main).await;
    expect![[r#"
        run sandbox a: <a>
        status of <main>:
          <main> main #0 Exited created started finished exit_code=4 reason="Error"
            image="crablet.test/busybox:1" ref="sha256:<digest 1>"
    "#]]
}

async fn a_sandbox_with_ports_dns_and_a_hostname_runs(world: &World) -> Expect {
    let mut config = world.pod("a");
    config.hostname = "by-another-name".to_owned();
    config.dns_config = Some(v1::DnsConfig {
        servers: vec!["192.0.2.53".to_owned()],
        searches: vec!["example.test".to_owned()],
        options: vec!["ndots:5".to_owned()],
    });
    config.port_mappings = vec![v1::PortMapping {
        protocol: v1::Protocol::Tcp.into(),
        container_port: 80,
        host_port: 0,
        host_ip: String::new(),
    }];
    let pod = world.run_sandbox(&config).await.expect("it runs");
    world.sandbox_status(&pod.id).await;
    expect![[r#"
        run sandbox a: <a>
        status of sandbox <a>:
          <a> ns/a <case> #0 Ready created network=Pod <ip>
    "#]]
}
