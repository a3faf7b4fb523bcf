//! What concerns the whole runtime, and what is used.

use crablet_cri_api::{ContainerFilter, v1};
use expect_test::{Expect, expect};

use super::{FOREVER, cases};
use crate::transcript;
use crate::world::{World, map};

cases!(
    a_runtime_tells_who_it_is,
    a_runtime_tells_that_it_is_ready,
    a_runtime_takes_addresses_for_pods,
    a_call_that_the_runtime_lacks_is_unsupported,
    a_running_container_tells_what_it_uses,
    a_container_that_does_not_run_tells_less,
    what_containers_use_is_listed_by_filters,
    a_sandbox_tells_what_it_and_its_containers_use,
    what_sandboxes_use_is_listed_by_filters,
    streams_need_a_running_container,
);

async fn a_runtime_tells_who_it_is(world: &World) -> Expect {
    let version = world.runtime.version().await.expect("it answers");
    assert!(!version.name.is_empty() && !version.version.is_empty(), "{version:?}");
    world.note(version.api_version);
    expect![[r#"
        v1
    "#]]
}

async fn a_runtime_tells_that_it_is_ready(world: &World) -> Expect {
    let status = world.runtime.status().await.expect("it answers");
    world.note(format!("status:{}", transcript::runtime_status(&status)));
    expect![[r#"
        status:
          Condition { ready: true, reason: "", message: "" }
          Condition { ready: true, reason: "", message: "" }
    "#]]
}

async fn a_runtime_takes_addresses_for_pods(world: &World) -> Expect {
    for pod_cidr in ["10.217.0.0/24", "10.217.0.0/24,fd00::/64", "", "no-address"] {
        let answer = world.update_pod_cidr(pod_cidr).await;
        world.note(format!("{pod_cidr:?}: {answer:?}"));
    }
    expect![[r#"
        "10.217.0.0/24": Ok(())
        "10.217.0.0/24,fd00::/64": Ok(())
        "": Ok(())
        "no-address": Err(Answer { method: "UpdateRuntimeConfig", code: Unknown, message: "get routes: invalid CIDR address: no-address" })
    "#]]
}

async fn a_call_that_the_runtime_lacks_is_unsupported(world: &World) -> Expect {
    for _ in 0..2 {
        let answer = world.runtime.cgroup_driver().await;
        world.note(format!("{:?}", answer.map_err(|error| error.is_unsupported())));
    }
    for code in world.codes_of_what_may_be_lacking().await {
        world.note(format!("{code:?}"));
    }
    expect![[r#"
        Err(true)
        Err(true)
        Unimplemented
        Unimplemented
        Unimplemented
    "#]]
}

/// Which numbers a container's usage has.
fn shape(stats: &v1::ContainerStats) -> String {
    let mut text = String::new();
    if let Some(attributes) = &stats.attributes {
        let metadata = attributes.metadata.clone().unwrap_or_default();
        text += &format!("{} {} #{}", attributes.id, metadata.name, metadata.attempt);
        text += &format!(" labels={:?} annotations={:?}", attributes.labels, attributes.annotations);
    }
    if let Some(cpu) = &stats.cpu {
        assert!(cpu.timestamp > 0);
        text += &format!(
            " cpu[{}]",
            [cpu.usage_core_nano_seconds.is_some()].map(|known| if known { "total" } else { "" }).concat()
        );
    }
    if let Some(memory) = &stats.memory {
        assert!(memory.timestamp > 0);
        let known = [
            (memory.working_set_bytes.is_some(), " working_set"),
            (memory.usage_bytes.is_some(), " usage"),
            (memory.rss_bytes.is_some(), " rss"),
            (memory.page_faults.is_some(), " page_faults"),
            (memory.major_page_faults.is_some(), " major_page_faults"),
        ];
        let known: String = known.iter().filter(|(known, _)| *known).map(|(_, name)| *name).collect();
        text += &format!(" memory[{}]", known.trim_start());
    }
    if let Some(layer) = &stats.writable_layer {
        let known = [(layer.used_bytes.is_some(), " bytes"), (layer.inodes_used.is_some(), " inodes")];
        let known: String = known.iter().filter(|(known, _)| *known).map(|(_, name)| *name).collect();
        text += &format!(" layer[{}]", known.trim_start());
    }
    text
}

async fn a_running_container_tells_what_it_uses(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut config = world.container("main", FOREVER);
    config.labels = map(&[("app", "web")]);
    config.annotations = map(&[("note", "kept")]);
    let main = world.started_from(&pod, &config).await;
    // The writable layer is measured now and then, not when it is asked for.
    let stats = world.until_stats(&main, |stats| stats.writable_layer.is_some()).await;
    world.note(shape(&stats));
    expect![[r#"
        <main> main #0 labels={"app": "web"} annotations={"note": "kept"} cpu[total] memory[working_set usage rss page_faults major_page_faults] layer[bytes inodes]
    "#]]
}

async fn a_container_that_does_not_run_tells_less(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let created = world.created(&pod, "created", FOREVER).await;
    let exited = world.ended(&pod, "exited", "exit 3").await;
    for id in [created.as_str(), &exited, "no-such-container"] {
        match world.container_stats(id).await {
            Ok(stats) => world.note(format!("stats of {id}: {}", shape(&stats))),
            Err(error) => world.note(format!("stats of {id}: {}", transcript::error(&error))),
        }
    }
    expect![[r#"
        stats of <created>: ContainerStats: Unknown: unexpected metrics response: []
        stats of <exited>: ContainerStats: Unknown: unexpected metrics response: []
        stats of no-such-container: ContainerStats: NotFound: failed to find container: not found
    "#]]
}

async fn what_containers_use_is_listed_by_filters(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        let mut config = world.container(name, FOREVER);
        config.labels = map(&[("name", name), ("case", world.case)]);
        ids.push(world.started_from(&pod, &config).await);
    }
    let all = v1::ContainerStatsFilter { pod_sandbox_id: pod.id.clone(), ..Default::default() };
    for (what, filter) in [
        ("of the sandbox", all.clone()),
        ("by ID", v1::ContainerStatsFilter { id: ids[0].clone(), ..Default::default() }),
        ("by label", v1::ContainerStatsFilter { label_selector: map(&[("name", "two")]), ..all.clone() }),
        ("by a label that none has", v1::ContainerStatsFilter { label_selector: map(&[("x", "")]), ..all }),
    ] {
        let stats = world.list_container_stats(filter).await.expect("it answers");
        let mut names: Vec<String> = stats
            .into_iter()
            .filter_map(|stats| stats.attributes?.metadata)
            .map(|metadata| metadata.name)
            .collect();
        names.sort();
        world.note(format!("{what}: {names:?}"));
    }
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        of the sandbox: ["one", "two"]
        by ID: ["one"]
        by label: ["two"]
        by a label that none has: []
        containers all:
          <one> of <a> one #0 Running created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "name"="one"
          <two> of <a> two #0 Running created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "name"="two"
    "#]]
}

async fn a_sandbox_tells_what_it_and_its_containers_use(world: &World) -> Expect {
    let mut config = world.pod("a");
    config.labels = map(&[("app", "web")]);
    let pod = world.ran_from(config).await;
    world.started(&pod, "main", FOREVER).await;
    let stats = world.sandbox_stats(&pod.id).await.expect("it answers");
    let attributes = stats.attributes.unwrap_or_default();
    let metadata = attributes.metadata.unwrap_or_default();
    world.note(format!("{} {} labels={:?}", attributes.id, metadata.name, attributes.labels));
    let linux = stats.linux.unwrap_or_default();
    let network = linux.network.unwrap_or_default().default_interface.unwrap_or_default();
    world.note(format!(
        "cpu: {}, memory: {}, network: {:?} rx: {} tx: {}, processes: {}",
        linux.cpu.is_some_and(|cpu| cpu.usage_core_nano_seconds.is_some()),
        linux.memory.is_some_and(|memory| memory.working_set_bytes.is_some()),
        network.name,
        network.rx_bytes.is_some(),
        network.tx_bytes.is_some(),
        linux.process.is_some_and(|process| process.process_count.is_some()),
    ));
    for container in &linux.containers {
        let name = container.attributes.clone().unwrap_or_default().metadata.unwrap_or_default().name;
        world.note(format!(
            "{name}: cpu: {}, memory: {}",
            container.cpu.is_some(),
            container.memory.is_some()
        ));
    }
    expect![[r#"
        <a> a labels={"app": "web"}
        cpu: true, memory: true, network: "eth0" rx: true tx: true, processes: true
        main: cpu: true, memory: true
    "#]]
}

async fn what_sandboxes_use_is_listed_by_filters(world: &World) -> Expect {
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        let mut config = world.pod(name);
        config.labels = map(&[("name", name), ("case", world.case)]);
        ids.push(world.ran_from(config).await.id);
    }
    for (what, filter) in [
        ("by ID", v1::PodSandboxStatsFilter { id: ids[0].clone(), ..Default::default() }),
        (
            "by label",
            v1::PodSandboxStatsFilter { label_selector: map(&[("case", world.case)]), ..Default::default() },
        ),
        (
            "by a label that none has",
            v1::PodSandboxStatsFilter { label_selector: map(&[("x", "")]), ..Default::default() },
        ),
    ] {
        let stats = world.list_sandbox_stats(filter).await.expect("it answers");
        let mut names: Vec<String> = stats
            .into_iter()
            .filter_map(|stats| stats.attributes?.metadata)
            .map(|metadata| metadata.name)
            .collect();
        names.sort();
        world.note(format!("{what}: {names:?}"));
    }
    world.stop_sandbox(&ids[0]).await;
    let error = world.sandbox_stats(&ids[0]).await.expect_err("it is not ready");
    // The code is not the same in all versions of containerd.
    assert!(error.to_string().contains("is not in ready state"), "{error}");
    world.note_error("stats of no-such-sandbox", world.sandbox_stats("no-such-sandbox").await);
    expect![[r#"
        by ID: ["a"]
        by label: ["a", "b"]
        by a label that none has: []
        stop sandbox <a>: done
        stats of no-such-sandbox: PodSandboxStats: NotFound: an error occurred when trying to find sandbox no-such-sandbox: not found
    "#]]
}

async fn streams_need_a_running_container(world: &World) -> Expect {
    let pod = world.ran("a").await;
    let created = world.created(&pod, "created", FOREVER).await;
    let exited = world.ended(&pod, "exited", "exit 3").await;
    for id in [created.as_str(), &exited, "no-such-container"] {
        let request = v1::ExecRequest {
            container_id: id.to_owned(),
            cmd: vec!["true".to_owned()],
            stdout: true,
            ..Default::default()
        };
        world.note_error(&format!("exec in {id}"), world.exec_streamed(request).await);
        let request = v1::AttachRequest { container_id: id.to_owned(), stdout: true, ..Default::default() };
        world.note_error(&format!("attach to {id}"), world.attach(request).await);
    }
    let request = v1::PortForwardRequest { pod_sandbox_id: "no-such-sandbox".to_owned(), port: vec![80] };
    world.note_error("forward to no-such-sandbox", world.port_forward(request).await);
    world.stop_sandbox(&pod.id).await;
    let request = v1::PortForwardRequest { pod_sandbox_id: pod.id.clone(), port: vec![80] };
    world.note_error("forward to a stopped sandbox", world.port_forward(request).await);
    expect![[r#"
        exec in <created>: Exec: Unknown: container is in CONTAINER_CREATED state
        attach to <created>: Attach: Unknown: container is in CONTAINER_CREATED state
        exec in <exited>: Exec: Unknown: container is in CONTAINER_EXITED state
        attach to <exited>: Attach: Unknown: container is in CONTAINER_EXITED state
        exec in no-such-container: Exec: NotFound: failed to find container "no-such-container" in store: not found
        attach to no-such-container: Attach: NotFound: failed to find container in store: not found
        forward to no-such-sandbox: PortForward: NotFound: failed to find sandbox "no-such-sandbox": not found
        stop sandbox <a>: done
        forward to a stopped sandbox: PortForward: Unknown: sandbox container is not running
    "#]]
}
