//! Images from a registry.

use crablet_cri_api::ContainerFilter;
use expect_test::{Expect, expect};

use super::{FOREVER, cases};
use crate::world::{World, image};

cases!(
    an_image_is_pulled_by_its_tag,
    an_image_is_pulled_by_its_digest,
    an_image_can_be_pulled_twice,
    an_image_that_the_registry_lacks_is_not_found,
    a_tag_that_moved_leaves_the_older_image_without_one,
    a_container_of_a_pulled_image_refers_to_it_by_digest,
    a_pulled_image_that_was_imported_too_has_both_names,
);

async fn an_image_is_pulled_by_its_tag(world: &World) -> Expect {
    let name = world.published("1", "by tag").await;
    world.image_status(&name).await;
    let _ = world.pull(&name).await;
    world.image_status(&name).await;
    world.image_status(&world.digest_of(&name).await).await;
    expect![[r#"
        image "<registry>/<case>:1": none
        pull "<registry>/<case>:1": sha256:<digest 1>
        image "<registry>/<case>:1": sha256:<digest 1> <registry>/<case>:1 <registry>/<case>@sha256:<digest 2>
        image "<registry>/<case>@sha256:<digest 2>": sha256:<digest 1> <registry>/<case>:1 <registry>/<case>@sha256:<digest 2>
    "#]]
}

async fn an_image_is_pulled_by_its_digest(world: &World) -> Expect {
    let name = world.published("1", "by digest").await;
    let _ = world.pull(&name).await;
    let by_digest = world.digest_of(&name).await;
    world.remove_image(&name).await;
    world.image_status(&by_digest).await;
    let _ = world.pull(&by_digest).await;
    world.image_status(&by_digest).await;
    world.image_status(&name).await;
    expect![[r#"
        pull "<registry>/<case>:1": sha256:<digest 1>
        remove image "<registry>/<case>:1": done
        image "<registry>/<case>@sha256:<digest 2>": none
        pull "<registry>/<case>@sha256:<digest 2>": sha256:<digest 1>
        image "<registry>/<case>@sha256:<digest 2>": sha256:<digest 1> <registry>/<case>@sha256:<digest 2>
        image "<registry>/<case>:1": none
    "#]]
}

async fn an_image_can_be_pulled_twice(world: &World) -> Expect {
    let name = world.published("1", "twice").await;
    let _ = world.pull(&name).await;
    let _ = world.pull(&name).await;
    world.image_status(&name).await;
    expect![[r#"
        pull "<registry>/<case>:1": sha256:<digest 1>
        pull "<registry>/<case>:1": sha256:<digest 1>
        image "<registry>/<case>:1": sha256:<digest 1> <registry>/<case>:1 <registry>/<case>@sha256:<digest 2>
    "#]]
}

async fn an_image_that_the_registry_lacks_is_not_found(world: &World) -> Expect {
    let name = world.published("1", "lacking").await;
    let lacking = format!("{name}-lacking");
    let _ = world.pull(&lacking).await;
    world.image_status(&lacking).await;
    expect![[r#"
        pull "<registry>/<case>:1-lacking": PullImage: NotFound: failed to pull and unpack image "<registry>/<case>:1-lacking": failed to resolve reference "<registry>/<case>:1-lacking": <registry>/<case>:1-lacking: not found
        image "<registry>/<case>:1-lacking": none
    "#]]
}

async fn a_tag_that_moved_leaves_the_older_image_without_one(world: &World) -> Expect {
    let name = world.published("1", "older").await;
    let _ = world.pull(&name).await;
    let older = world.runtime.image_status(&image(&name)).await.expect("it answers").expect("it is there");
    world.published("1", "newer").await;
    world.image_status(&name).await;
    let _ = world.pull(&name).await;
    world.image_status(&name).await;
    world.image_status(&older.id).await;
    world.remove_image(&older.id).await;
    world.image_status(&name).await;
    expect![[r#"
        pull "<registry>/<case>:1": sha256:<digest 1>
        image "<registry>/<case>:1": sha256:<digest 1> <registry>/<case>:1 <registry>/<case>@sha256:<digest 2>
        pull "<registry>/<case>:1": sha256:<digest 3>
        image "<registry>/<case>:1": sha256:<digest 3> <registry>/<case>:1 <registry>/<case>@sha256:<digest 4>
        image "sha256:<digest 1>": sha256:<digest 1> <registry>/<case>@sha256:<digest 2>
        remove image "sha256:<digest 1>": done
        image "<registry>/<case>:1": sha256:<digest 3> <registry>/<case>:1 <registry>/<case>@sha256:<digest 4>
    "#]]
}

async fn a_container_of_a_pulled_image_refers_to_it_by_digest(world: &World) -> Expect {
    let name = world.published("1", "run").await;
    let pulled = world.pull(&name).await.expect("it is pulled");
    let pod = world.ran("a").await;
    for (container, reference) in [("by-name", name), ("by-reference", pulled)] {
        let mut config = world.container(container, FOREVER);
        config.image = Some(image(&reference));
        let id = world.started_from(&pod, &config).await;
        world.container_status(&id).await;
    }
    world.list_containers("all", ContainerFilter::default()).await;
    expect![[r#"
        pull "<registry>/<case>:1": sha256:<digest 1>
        status of <by-name>:
          <by-name> by-name #0 Running created started
            image="<registry>/<case>:1" ref="<registry>/<case>@sha256:<digest 2>" log="<dir>/a/by-name.log"
        status of <by-reference>:
          <by-reference> by-reference #0 Running created started
            image="<registry>/<case>:1" ref="<registry>/<case>@sha256:<digest 2>" log="<dir>/a/by-reference.log"
        containers all:
          <by-name> of <a> by-name #0 Running created image="<registry>/<case>:1" ref="sha256:<digest 1>"
          <by-reference> of <a> by-reference #0 Running created image="sha256:<digest 1>" ref="sha256:<digest 1>"
    "#]]
}

async fn a_pulled_image_that_was_imported_too_has_both_names(world: &World) -> Expect {
    let name = world.published("1", "both").await;
    let _ = world.pull(&name).await;
    world.had_image(&world.image_name("1"), "both").await;
    world.image_status(&name).await;
    expect![[r#"
        pull "<registry>/<case>:1": sha256:<digest 1>
        image "<registry>/<case>:1": sha256:<digest 1> <registry>/<case>:1 crablet.test/<case>:1 <registry>/<case>@sha256:<digest 2>
    "#]]
}
