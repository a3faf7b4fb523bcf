//! Lists of only some.

use crablet_cri_api::{ContainerFilter, ContainerState, SandboxFilter, SandboxState};
use expect_test::{Expect, expect};

use super::{FOREVER, cases};
use crate::world::{Pod, World, map};

cases!(
    sandboxes_are_listed_by_id,
    sandboxes_are_listed_by_state,
    sandboxes_are_listed_by_labels,
    sandboxes_are_listed_by_several_things_at_once,
    containers_are_listed_by_id,
    containers_are_listed_by_sandbox,
    containers_are_listed_by_state,
    containers_are_listed_by_labels,
    containers_are_listed_by_several_things_at_once,
);

/// Two sandboxes that run, and one that is stopped.
async fn sandboxes(world: &World) -> [Pod; 3] {
    let mut pods = Vec::new();
    for (name, app) in [("a", "web"), ("b", "web"), ("c", "")] {
        let mut config = world.host_pod(name);
        config.labels = map(&[("app", app), ("name", name), ("case", world.case)]);
        pods.push(world.ran_from(config).await);
    }
    let [a, b, c] = <[Pod; 3]>::try_from(pods).ok().expect("there are three");
    world.runtime.stop_sandbox(&b.id).await.expect("it is stopped");
    [a, b, c]
}

/// Four containers in two sandboxes: one exited, one running, two created.
async fn containers(world: &World) -> ([Pod; 2], [String; 4]) {
    let one = world.ran("one").await;
    let two = world.ran("two").await;
    let mut ids = Vec::new();
    for (pod, name, script) in [
        (&one, "exited", "exit 3"),
        (&one, "running", FOREVER),
        (&one, "created", ":"),
        (&two, "created", ":"),
    ] {
        let mut config = world.container(name, script);
        config.labels = map(&[("name", name), ("case", world.case), ("empty", "")]);
        ids.push(world.created_from(pod, &config).await);
    }
    let ids = <[String; 4]>::try_from(ids).expect("there are four");
    for id in &ids[..2] {
        world.runtime.start_container(id).await.expect("it starts");
    }
    world.until(&ids[0], ContainerState::Exited).await;
    ([one, two], ids)
}

async fn sandboxes_are_listed_by_id(world: &World) -> Expect {
    let [a, ..] = sandboxes(world).await;
    let by = |id: &str| SandboxFilter { id: Some(id.to_owned()), ..SandboxFilter::default() };
    world.list_sandboxes("by a whole ID", by(&a.id)).await;
    world.list_sandboxes("by the beginning of one", by(&a.id[..32])).await;
    world.list_sandboxes("by the end of one", by(&a.id[32..])).await;
    world.list_sandboxes("by a longer one", by(&format!("{}0", a.id))).await;
    world.list_sandboxes("by one that never was", by("no-such-sandbox")).await;
    world.list_sandboxes("by none", by("")).await;
    expect![[r#"
        sandboxes by a whole ID:
          <a> ns/a <case> #0 Ready created
            label "app"="web"
            label "case"="<case>"
            label "name"="a"
        sandboxes by the beginning of one:
          <a> ns/a <case> #0 Ready created
            label "app"="web"
            label "case"="<case>"
            label "name"="a"
        sandboxes by the end of one:
        sandboxes by a longer one:
        sandboxes by one that never was:
        sandboxes by none:
          <a> ns/a <case> #0 Ready created
            label "app"="web"
            label "case"="<case>"
            label "name"="a"
          <b> ns/b <case> #0 NotReady created
            label "app"="web"
            label "case"="<case>"
            label "name"="b"
          <c> ns/c <case> #0 Ready created
            label "app"=""
            label "case"="<case>"
            label "name"="c"
    "#]]
}

async fn sandboxes_are_listed_by_state(world: &World) -> Expect {
    sandboxes(world).await;
    for state in [SandboxState::Ready, SandboxState::NotReady] {
        let filter = SandboxFilter { state: Some(state), ..SandboxFilter::default() };
        world.list_sandboxes(&format!("that are {state:?}"), filter).await;
    }
    expect![[r#"
        sandboxes that are Ready:
          <a> ns/a <case> #0 Ready created
            label "app"="web"
            label "case"="<case>"
            label "name"="a"
          <c> ns/c <case> #0 Ready created
            label "app"=""
            label "case"="<case>"
            label "name"="c"
        sandboxes that are NotReady:
          <b> ns/b <case> #0 NotReady created
            label "app"="web"
            label "case"="<case>"
            label "name"="b"
    "#]]
}

async fn sandboxes_are_listed_by_labels(world: &World) -> Expect {
    sandboxes(world).await;
    for labels in [
        &[("app", "web")][..],
        &[("app", "web"), ("name", "a")],
        &[("app", "")],
        &[("app", "we")],
        &[("name", "a"), ("unknown", "")],
    ] {
        let filter = SandboxFilter { labels: map(labels), ..SandboxFilter::default() };
        world.list_sandboxes(&format!("with {labels:?}"), filter).await;
    }
    expect![[r#"
        sandboxes with [("app", "web")]:
          <a> ns/a <case> #0 Ready created
            label "app"="web"
            label "case"="<case>"
            label "name"="a"
          <b> ns/b <case> #0 NotReady created
            label "app"="web"
            label "case"="<case>"
            label "name"="b"
        sandboxes with [("app", "web"), ("name", "a")]:
          <a> ns/a <case> #0 Ready created
            label "app"="web"
            label "case"="<case>"
            label "name"="a"
        sandboxes with [("app", "")]:
          <c> ns/c <case> #0 Ready created
            label "app"=""
            label "case"="<case>"
            label "name"="c"
        sandboxes with [("app", "we")]:
        sandboxes with [("name", "a"), ("unknown", "")]:
    "#]]
}

async fn sandboxes_are_listed_by_several_things_at_once(world: &World) -> Expect {
    let [a, b, _] = sandboxes(world).await;
    let by = |pod: &Pod, state, name| SandboxFilter {
        id: Some(pod.id.clone()),
        state: Some(state),
        labels: map(&[("name", name)]),
    };
    world.list_sandboxes("where all holds", by(&a, SandboxState::Ready, "a")).await;
    world.list_sandboxes("where all holds", by(&b, SandboxState::NotReady, "b")).await;
    world.list_sandboxes("with another state", by(&a, SandboxState::NotReady, "a")).await;
    world.list_sandboxes("with another label", by(&a, SandboxState::Ready, "b")).await;
    expect![[r#"
        sandboxes where all holds:
          <a> ns/a <case> #0 Ready created
            label "app"="web"
            label "case"="<case>"
            label "name"="a"
        sandboxes where all holds:
          <b> ns/b <case> #0 NotReady created
            label "app"="web"
            label "case"="<case>"
            label "name"="b"
        sandboxes with another state:
        sandboxes with another label:
    "#]]
}

async fn containers_are_listed_by_id(world: &World) -> Expect {
    let (_pods, [exited, ..]) = containers(world).await;
    let by = |id: &str| ContainerFilter { id: Some(id.to_owned()), ..ContainerFilter::default() };
    world.list_containers("by a whole ID", by(&exited)).await;
    world.list_containers("by the beginning of one", by(&exited[..32])).await;
    world.list_containers("by the end of one", by(&exited[32..])).await;
    world.list_containers("by one that never was", by("no-such-container")).await;
    world.list_containers("by none", by("")).await;
    expect![[r#"
        containers by a whole ID:
          <exited> of <one> exited #0 Exited created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="exited"
        containers by the beginning of one:
          <exited> of <one> exited #0 Exited created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="exited"
        containers by the end of one:
        containers by one that never was:
        containers by none:
          <created> of <one> created #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="created"
          <exited> of <one> exited #0 Exited created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="exited"
          <running> of <one> running #0 Running created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="running"
          <created 2> of <two> created #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="created"
    "#]]
}

async fn containers_are_listed_by_sandbox(world: &World) -> Expect {
    let ([_, two], _) = containers(world).await;
    let by = |id: &str| ContainerFilter { sandbox_id: Some(id.to_owned()), ..ContainerFilter::default() };
    world.list_containers("by the whole ID of a sandbox", by(&two.id)).await;
    world.list_containers("by the beginning of one", by(&two.id[..32])).await;
    world.list_containers("by a sandbox that never was", by("no-such-sandbox")).await;
    expect![[r#"
        containers by the whole ID of a sandbox:
          <created 2> of <two> created #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="created"
        containers by the beginning of one:
          <created 2> of <two> created #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="created"
        containers by a sandbox that never was:
    "#]]
}

async fn containers_are_listed_by_state(world: &World) -> Expect {
    containers(world).await;
    for state in
        [ContainerState::Created, ContainerState::Running, ContainerState::Exited, ContainerState::Unknown]
    {
        let filter = ContainerFilter { state: Some(state), ..ContainerFilter::default() };
        world.list_containers(&format!("that are {state:?}"), filter).await;
    }
    expect![[r#"
        containers that are Created:
          <created> of <one> created #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="created"
          <created 2> of <two> created #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="created"
        containers that are Running:
          <running> of <one> running #0 Running created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="running"
        containers that are Exited:
          <exited> of <one> exited #0 Exited created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="exited"
        containers that are Unknown:
    "#]]
}

async fn containers_are_listed_by_labels(world: &World) -> Expect {
    containers(world).await;
    for labels in [
        &[("name", "created")][..],
        &[("name", "exited"), ("empty", "")],
        &[("name", "")],
        &[("unknown", "")],
    ] {
        let filter = ContainerFilter { labels: map(labels), ..ContainerFilter::default() };
        world.list_containers(&format!("with {labels:?}"), filter).await;
    }
    expect![[r#"
        containers with [("name", "created")]:
          <created> of <one> created #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="created"
          <created 2> of <two> created #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="created"
        containers with [("name", "exited"), ("empty", "")]:
          <exited> of <one> exited #0 Exited created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="exited"
        containers with [("name", "")]:
        containers with [("unknown", "")]:
    "#]]
}

async fn containers_are_listed_by_several_things_at_once(world: &World) -> Expect {
    let ([one, two], [_, running, ..]) = containers(world).await;
    let by = |pod: &Pod, state, name| ContainerFilter {
        id: None,
        sandbox_id: Some(pod.id.clone()),
        state: Some(state),
        labels: map(&[("name", name)]),
    };
    world.list_containers("where all holds", by(&two, ContainerState::Created, "created")).await;
    world.list_containers("of another sandbox", by(&two, ContainerState::Running, "running")).await;
    world.list_containers("with another state", by(&one, ContainerState::Running, "created")).await;
    let filter = ContainerFilter { id: Some(running), ..by(&two, ContainerState::Running, "running") };
    world.list_containers("with an ID of another sandbox", filter).await;
    expect![[r#"
        containers where all holds:
          <created 2> of <two> created #0 Created created image="crablet.test/busybox:1" ref="sha256:<digest 1>"
            label "case"="<case>"
            label "empty"=""
            label "name"="created"
        containers of another sandbox:
        containers with another state:
        containers with an ID of another sandbox:
    "#]]
}
