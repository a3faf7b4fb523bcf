//! Manifests on disk.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use crablet_agent::sources::{CONFIG_HASH, CONFIG_SEEN, CONFIG_SOURCE};

use crate::support::*;

/// So long that only the kernel can have told of a change.
const NEVER: Duration = Duration::from_secs(3600);
/// On paused time, the next look comes as soon as nothing else is to be done.
const OFTEN: Duration = Duration::from_secs(1);

#[tokio::test]
async fn manifests_that_come_change_and_go_are_told_by_the_kernel() {
    let mut node = Node::reading_files(NEVER, &[("a.yaml", manifest("a", "one").as_bytes())]).await;
    assert_eq!(node.next().await, "ADD default/a-node");
    node.write("b.json", r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b","namespace":"x"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#);
    assert_eq!(node.next().await, "ADD x/b-node");
    node.write("a.yaml", manifest("a", "two"));
    assert_eq!(node.next().await, "REMOVE default/a-node");
    assert_eq!(node.next().await, "ADD default/a-node");
    node.remove("b.json");
    assert_eq!(node.next().await, "REMOVE x/b-node");
    fs::write(node.path(".hidden"), manifest("c", "one")).unwrap();
    fs::rename(node.path(".hidden"), node.path("c.yaml")).unwrap();
    assert_eq!(node.next().await, "ADD default/c-node");
    fs::rename(node.path("c.yaml"), node.path(".hidden")).unwrap();
    assert_eq!(node.next().await, "REMOVE default/c-node");
    assert_eq!(node.problems(0).await, [""; 0]);
}

#[tokio::test]
async fn a_manifest_that_is_deleted_and_written_again_at_once_is_another_beginning() {
    let mut node = Node::reading_files(NEVER, &[("a.yaml", manifest("a", "one").as_bytes())]).await;
    assert_eq!(node.next().await, "ADD default/a-node");
    node.remove("a.yaml");
    node.write("a.yaml", manifest("a", "one"));
    assert_eq!(node.next().await, "REMOVE default/a-node");
    assert_eq!(node.next().await, "ADD default/a-node");
    // What takes its place in one step is the same pod.
    fs::write(node.path(".hidden"), manifest("a", "one")).unwrap();
    fs::rename(node.path(".hidden"), node.path("a.yaml")).unwrap();
    node.write("b.yaml", manifest("b", "one"));
    assert_eq!(node.next().await, "ADD default/b-node");
}

#[tokio::test]
async fn a_static_pod_is_marked_and_recognised_after_a_restart() {
    let mut node = Node::reading_files(NEVER, &[("a.yaml", manifest("a", "one").as_bytes())]).await;
    let first = next_change(&mut node.sources).await;
    let pod = first.pod();
    let annotation = |name: &str| pod.metadata.annotations.get(name).unwrap().to_string();
    assert_eq!(annotation(CONFIG_SOURCE), "file");
    assert_eq!(annotation(CONFIG_HASH), pod.metadata.uid.as_str());
    assert!(annotation(CONFIG_SEEN).starts_with("2026-11-15T03:46:00."), "{}", annotation(CONFIG_SEEN));
    assert_eq!(pod.spec.node_name, "node");
    assert_eq!(pod.spec.tolerations.len(), 1);

    let mut again = files_of(node.folder.path(), NEVER).await;
    assert_eq!(next_change(&mut again).await.pod().metadata.uid, pod.metadata.uid);
    let mut elsewhere = Node::reading_files(NEVER, &[("a.yaml", manifest("a", "one").as_bytes())]).await;
    assert_ne!(next_change(&mut elsewhere.sources).await.pod().metadata.uid, pod.metadata.uid);
}

#[tokio::test]
async fn a_comment_is_no_change() {
    let mut node = Node::reading_files(NEVER, &[("a.yaml", manifest("a", "one").as_bytes())]).await;
    assert_eq!(node.next().await, "ADD default/a-node");
    node.write("a.yaml", format!("# Hello.\n{}", manifest("a", "one")));
    node.write("b.yaml", manifest("b", "one"));
    assert_eq!(node.next().await, "ADD default/b-node");
}

#[tokio::test]
async fn a_manifest_with_a_uid_of_its_own_is_updated_in_place() {
    let with_uid = |image| manifest("a", image).replace("  name: a\n", "  name: a\n  uid: mine\n");
    let mut node = Node::reading_files(NEVER, &[("a.yaml", with_uid("one").as_bytes())]).await;
    assert_eq!(node.next().await, "ADD default/a-node");
    node.write("a.yaml", with_uid("two"));
    let change = next_change(&mut node.sources).await;
    assert_eq!(shown(&change), "UPDATE default/a-node");
    assert_eq!(change.pod().spec.containers[0].image, "two");
}

#[tokio::test]
async fn sources_are_ready_when_their_pods_were_taken() {
    let mut node = Node::reading_files(NEVER, &[("a.yaml", manifest("a", "one").as_bytes())]).await;
    assert_eq!(node.next().await, "ADD default/a-node");
    assert!(!node.sources.ready.is_ready());
    ready_without_pods(&mut node.sources).await;
    assert!(node.sources.ready.is_ready());
}

#[tokio::test]
async fn a_directory_that_is_missing_is_said_once_and_read_when_it_comes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("etc/manifests");
    let mut sources = files_of(&path, NEVER).await;
    ready_without_pods(&mut sources).await;
    let expected =
        format!("{}: does not exist; pods are read from it as soon as it does [Ignored]", path.display());
    assert_eq!(problems(&sources, 1).await, [expected]);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("a.yaml"), manifest("a", "one")).unwrap();
    assert_eq!(next(&mut sources).await, "ADD default/a-node");
    assert_eq!(problems(&sources, 0).await, [""; 0]);
    fs::remove_dir_all(&path).unwrap();
    assert_eq!(next(&mut sources).await, "REMOVE default/a-node");
    problems(&sources, 1).await;
}

#[tokio::test]
async fn one_file_is_read_and_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pod.yaml");
    fs::write(&path, manifest("a", "one")).unwrap();
    fs::write(folder.path().join("other.yaml"), manifest("b", "one")).unwrap();
    let mut sources = files_of(&path, NEVER).await;
    assert_eq!(next(&mut sources).await, "ADD default/a-node");
    ready_without_pods(&mut sources).await;
    fs::write(&path, manifest("c", "one")).unwrap();
    assert_eq!(next(&mut sources).await, "REMOVE default/a-node");
    assert_eq!(next(&mut sources).await, "ADD default/c-node");
    fs::write(folder.path().join("new"), manifest("d", "one")).unwrap();
    fs::rename(folder.path().join("new"), &path).unwrap();
    assert_eq!(next(&mut sources).await, "REMOVE default/c-node");
    assert_eq!(next(&mut sources).await, "ADD default/d-node");
    fs::remove_file(&path).unwrap();
    assert_eq!(next(&mut sources).await, "REMOVE default/d-node");
}

#[tokio::test]
async fn of_one_file_that_is_broken_nothing_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pod.yaml");
    fs::write(&path, "kind: Pod\n").unwrap();
    let mut sources = files_of(&path, NEVER).await;
    problems(&sources, 1).await;
    fs::write(&path, manifest("a", "one")).unwrap();
    assert_eq!(next(&mut sources).await, "ADD default/a-node");
    assert!(!sources.ready.is_ready());
    ready_without_pods(&mut sources).await;
}

#[tokio::test]
async fn a_pod_keeps_running_while_its_file_is_half_written() {
    let whole = manifest("a", "one");
    let mut node = Node::reading_files(NEVER, &[("a.yaml", whole.as_bytes())]).await;
    assert_eq!(node.next().await, "ADD default/a-node");
    node.write("a.yaml", &whole[..whole.len() - 30]);
    let problems = node.problems(1).await;
    assert!(problems[0].starts_with("a.yaml:"), "{problems:?}");
    assert!(problems[0].ends_with("[LastGoodKept]"), "{problems:?}");
    // Others come and go meanwhile.
    node.write("b.yaml", manifest("b", "one"));
    assert_eq!(node.next().await, "ADD default/b-node");
    node.write("a.yaml", manifest("a", "two"));
    assert_eq!(node.next().await, "REMOVE default/a-node");
    assert_eq!(node.next().await, "ADD default/a-node");
    assert_eq!(node.problems(0).await, [""; 0]);
    node.write("a.yaml", "");
    node.problems(1).await;
    node.remove("a.yaml");
    assert_eq!(node.next().await, "REMOVE default/a-node");
    assert_eq!(node.problems(0).await, [""; 0]);
}

#[tokio::test]
async fn of_two_files_with_the_same_pod_the_first_by_name_counts() {
    let (one, two) = (manifest("a", "one"), manifest("a", "two"));
    let files: &[(&str, &[u8])] = &[("y.yaml", one.as_bytes()), ("z.yaml", two.as_bytes())];
    let mut node = Node::reading_files(NEVER, files).await;
    let change = next_change(&mut node.sources).await;
    assert_eq!(change.pod().spec.containers[0].image, "one");
    let expected =
        "z.yaml: asks for pod default/a-node, and so does y.yaml, which comes first by name [Ignored]";
    assert_eq!(node.problems(1).await, [expected]);
    node.remove("y.yaml");
    assert_eq!(node.next().await, "REMOVE default/a-node");
    let change = next_change(&mut node.sources).await;
    assert_eq!(change.pod().spec.containers[0].image, "two");
    assert_eq!(node.problems(0).await, [""; 0]);
}

#[tokio::test]
async fn a_link_is_followed_and_its_target_looked_at_from_time_to_time() {
    tokio::time::pause();
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("target");
    fs::write(&target, manifest("a", "one")).unwrap();
    let mut node = Node::reading_files(OFTEN, &[]).await;
    symlink(&target, node.path("a.yaml")).unwrap();
    assert_eq!(node.next().await, "ADD default/a-node");
    fs::write(&target, manifest("b", "two")).unwrap();
    assert_eq!(node.next().await, "REMOVE default/a-node");
    assert_eq!(node.next().await, "ADD default/b-node");
    fs::remove_file(&target).unwrap();
    assert_eq!(node.problems(1).await, ["a.yaml: is a symbolic link that leads nowhere [LastGoodKept]"]);
    fs::remove_file(node.path("a.yaml")).unwrap();
    assert_eq!(node.next().await, "REMOVE default/b-node");
}

#[tokio::test]
async fn a_directory_that_is_swapped_for_another_is_followed() {
    let mut node = Node::reading_files(NEVER, &[]).await;
    let path = node.path("manifests");
    let other = node.path("other");
    for (folder, name) in [(&path, "a"), (&other, "b")] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join(format!("{name}.yaml")), manifest(name, "one")).unwrap();
    }
    node.sources = files_of(&path, NEVER).await;
    assert_eq!(node.next().await, "ADD default/a-node");
    rustix::fs::renameat_with(
        rustix::fs::CWD,
        &path,
        rustix::fs::CWD,
        &other,
        rustix::fs::RenameFlags::EXCHANGE,
    )
    .unwrap();
    assert_eq!(node.next().await, "REMOVE default/a-node");
    assert_eq!(node.next().await, "ADD default/b-node");
    fs::write(path.join("c.yaml"), manifest("c", "one")).unwrap();
    assert_eq!(node.next().await, "ADD default/c-node");
}

#[tokio::test]
async fn many_manifests_at_once_are_all_read() {
    let mut node = Node::reading_files(NEVER, &[]).await;
    ready_without_pods(&mut node.sources).await;
    for index in 0..300 {
        node.write(&format!("{index:03}.yaml"), manifest(&format!("p{index:03}"), "one"));
    }
    let changes = node.next_of(300).await;
    assert_eq!((&*changes[0], &*changes[299]), ("ADD default/p000-node", "ADD default/p299-node"));
}
