//! Images.

use crablet_cri_api::ContainerFilter;
use expect_test::{Expect, expect};

use super::{FOREVER, cases};
use crate::transcript;
use crate::world::{BUSYBOX, DESCRIBED, World, image};

cases!(
    an_image_is_found_by_its_names_and_its_id,
    an_image_that_is_not_there_has_no_status,
    a_name_that_is_none_is_an_error,
    an_image_tells_its_user,
    images_are_listed,
    one_content_with_two_names_is_one_image,
    removing_an_image_by_one_name_removes_all_its_names,
    removing_an_image_by_its_id_removes_all_its_names,
    removing_an_image_that_is_not_there_succeeds,
    an_image_in_use_can_be_removed_and_its_container_lives,
    an_image_that_cannot_be_reached_is_not_pulled,
    a_pull_of_what_is_no_name_fails,
    the_disk_of_images_is_told,
);

async fn an_image_is_found_by_its_names_and_its_id(world: &World) -> Expect {
    let name = world.image_name("1");
    world.had_image(&name, "found").await;
    let known = world.runtime.image_status(&image(&name)).await.expect("it answers").expect("it is there");
    world.image_status(&name).await;
    world.image_status(&known.id).await;
    let digits = known.id.trim_start_matches("sha256:");
    world.image_status(digits).await;
    let by_beginning = world.runtime.image_status(&image(&digits[..32])).await.expect("it answers");
    world.note(format!("by the beginning of its ID: {:?}", by_beginning.map(|found| found.id == known.id)));
    let repository = name.trim_end_matches(":1");
    world.image_status(repository).await;
    world.image_status(&format!("{repository}:2")).await;
    expect![[r#"
        image "crablet.test/<case>:1": sha256:<digest 1> crablet.test/<case>:1
        image "sha256:<digest 1>": sha256:<digest 1> crablet.test/<case>:1
        image "<id 1>": sha256:<digest 1> crablet.test/<case>:1
        by the beginning of its ID: Some(true)
        image "crablet.test/<case>": none
        image "crablet.test/<case>:2": none
    "#]]
}

async fn an_image_that_is_not_there_has_no_status(world: &World) -> Expect {
    for name in [
        "crablet.test/missing:1",
        "missing",
        "busybox:1",
        "sha256:0000000000000000000000000000000000000000000000000000000000000001",
        "crablet.test/busybox@sha256:0000000000000000000000000000000000000000000000000000000000000001",
    ] {
        world.image_status(name).await;
    }
    expect![[r#"
        image "crablet.test/missing:1": none
        image "missing": none
        image "busybox:1": none
        image "sha256:<digest 1>": none
        image "crablet.test/busybox@sha256:<digest 1>": none
    "#]]
}

async fn a_name_that_is_none_is_an_error(world: &World) -> Expect {
    for name in ["", "Upper/Case", "two words", "crablet.test/busybox:", ":1"] {
        world.image_status(name).await;
    }
    expect![[r#"
        image "": ImageStatus: Unknown: can not resolve "" locally: ambiguous digest string
        image "Upper/Case": none
        image "two words": none
        image "crablet.test/busybox:": none
        image ":1": none
    "#]]
}

async fn an_image_tells_its_user(world: &World) -> Expect {
    world.image_status(DESCRIBED).await;
    world.image_status(BUSYBOX).await;
    expect![[r#"
        image "crablet.test/described:1": sha256:<digest 1> crablet.test/described:1 user=1000
        image "crablet.test/busybox:1": sha256:<digest 2> crablet.test/busybox:1
    "#]]
}

async fn images_are_listed(world: &World) -> Expect {
    let name = world.image_name("1");
    world.had_image(&name, "listed").await;
    let mut list = world.runtime.list_images().await.expect("images can be listed");
    list.retain(|image| {
        let known = [name.as_str(), BUSYBOX, DESCRIBED];
        image.repo_tags.iter().any(|tag| known.contains(&tag.as_str()))
    });
    list.sort_by(|one, other| one.repo_tags.cmp(&other.repo_tags));
    for image in &list {
        world.note(transcript::image(image));
    }
    expect![[r#"
        sha256:<digest 1> crablet.test/busybox:1
        sha256:<digest 2> crablet.test/described:1 user=1000
        sha256:<digest 3> crablet.test/<case>:1
    "#]]
}

async fn one_content_with_two_names_is_one_image(world: &World) -> Expect {
    let [one, two] = ["1", "2"].map(|tag| world.image_name(tag));
    world.had_image(&one, "twice").await;
    world.had_image(&two, "twice").await;
    world.image_status(&one).await;
    world.image_status(&two).await;
    expect![[r#"
        image "crablet.test/<case>:1": sha256:<digest 1> crablet.test/<case>:1 crablet.test/<case>:2
        image "crablet.test/<case>:2": sha256:<digest 1> crablet.test/<case>:1 crablet.test/<case>:2
    "#]]
}

async fn removing_an_image_by_one_name_removes_all_its_names(world: &World) -> Expect {
    let [one, two] = ["1", "2"].map(|tag| world.image_name(tag));
    world.had_image(&one, "removed by name").await;
    world.had_image(&two, "removed by name").await;
    world.remove_image(&one).await;
    world.image_status(&one).await;
    world.image_status(&two).await;
    expect![[r#"
        remove image "crablet.test/<case>:1": done
        image "crablet.test/<case>:1": none
        image "crablet.test/<case>:2": none
    "#]]
}

async fn removing_an_image_by_its_id_removes_all_its_names(world: &World) -> Expect {
    let [one, two] = ["1", "2"].map(|tag| world.image_name(tag));
    world.had_image(&one, "removed by ID").await;
    world.had_image(&two, "removed by ID").await;
    let known = world.runtime.image_status(&image(&one)).await.expect("it answers").expect("it is there");
    world.remove_image(&known.id).await;
    world.image_status(&one).await;
    world.image_status(&two).await;
    world.image_status(&known.id).await;
    expect![[r#"
        remove image "sha256:<digest 1>": done
        image "crablet.test/<case>:1": none
        image "crablet.test/<case>:2": none
        image "sha256:<digest 1>": none
    "#]]
}

async fn removing_an_image_that_is_not_there_succeeds(world: &World) -> Expect {
    let name = world.image_name("1");
    world.had_image(&name, "removed twice").await;
    world.remove_image(&name).await;
    world.remove_image(&name).await;
    world.remove_image("crablet.test/missing:1").await;
    world.remove_image("sha256:0000000000000000000000000000000000000000000000000000000000000001").await;
    world.remove_image("").await;
    expect![[r#"
        remove image "crablet.test/<case>:1": done
        remove image "crablet.test/<case>:1": done
        remove image "crablet.test/missing:1": done
        remove image "sha256:<digest 1>": done
        remove image "": RemoveImage: Unknown: can not resolve "" locally: ambiguous digest string
    "#]]
}

async fn an_image_in_use_can_be_removed_and_its_container_lives(world: &World) -> Expect {
    let name = world.image_name("1");
    world.had_image(&name, "in use").await;
    let pod = world.ran("a").await;
    let mut config = world.container("main", FOREVER);
    config.image = Some(image(&name));
    let main = world.started_from(&pod, &config).await;
    world.remove_image(&name).await;
    world.image_status(&name).await;
    world.container_status(&main).await;
    world.list_containers("all", ContainerFilter::default()).await;
    config.metadata.get_or_insert_default().attempt = 1;
    let _ = world.create_container(&pod, &config).await;
    expect![[r#"
        remove image "crablet.test/<case>:1": done
        image "crablet.test/<case>:1": none
        status of <main>:
          <main> main #0 Running created started
            image="crablet.test/<case>:1" ref="sha256:<digest 1>" log="<dir>/a/main.log"
        containers all:
          <main> of <a> main #0 Running created image="crablet.test/<case>:1" ref="sha256:<digest 1>"
        create container main: CreateContainer: NotFound: failed to resolve image "crablet.test/<case>:1": not found
    "#]]
}

async fn an_image_that_cannot_be_reached_is_not_pulled(world: &World) -> Expect {
    let name = "registry.invalid/missing:1";
    let error = world.pull_image(name).await.expect_err("nobody has it");
    // What the network says is not the runtime's own word.
    world.note(format!("pull {name:?}: {:?}", error.code()));
    world.image_status(name).await;
    expect![[r#"
        pull "registry.invalid/missing:1": Unknown
        image "registry.invalid/missing:1": none
    "#]]
}

async fn a_pull_of_what_is_no_name_fails(world: &World) -> Expect {
    for name in ["", "two words", "a/../b"] {
        let error = world.pull_image(name).await.expect_err("it is no name");
        world.note(format!("pull {name:?}: {}", transcript::error(&error)));
    }
    expect![[r#"
        pull "": PullImage: Unknown: failed to parse image reference "": invalid reference format
        pull "two words": PullImage: Unknown: failed to parse image reference "two words": invalid reference format
        pull "a/../b": PullImage: Unknown: failed to parse image reference "a/../b": invalid reference format
    "#]]
}

async fn the_disk_of_images_is_told(world: &World) -> Expect {
    let info = world.image_fs_info().await.expect("it answers");
    for usage in &info.image_filesystems {
        let place = usage.fs_id.as_ref().expect("a place").mountpoint.clone();
        assert!(usage.timestamp > 0 && place.starts_with('/'), "{usage:?}");
        let known = [usage.used_bytes.is_some(), usage.inodes_used.is_some()];
        world.note(format!("a filesystem with bytes and inodes known: {known:?}"));
    }
    world.note(format!("{} of containers", info.container_filesystems.len()));
    expect![[r#"
        a filesystem with bytes and inodes known: [true, true]
        0 of containers
    "#]]
}
