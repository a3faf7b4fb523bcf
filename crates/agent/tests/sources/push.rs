//! Pods that are given to the agent itself.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::sources::{Applied, CONFIG_SOURCE, Outcome, Push, Sources};
use crablet_config::KubeletConfiguration;
use crablet_host::checkpoint::{DirectoryCheckpoints, Operation, SimulatedCheckpoints};
use crablet_host::simulation::Fault;

use crate::support::*;

/// Sources that keep what they are given, and read `manifests` beside it.
async fn keeping(folder: &Path) -> (Sources, Push) {
    let store = DirectoryCheckpoints::open(&folder.join("pushed"), 2 << 20).unwrap();
    let config = KubeletConfiguration {
        static_pod_path: folder.join("manifests").to_str().unwrap().into(),
        ..KubeletConfiguration::default()
    };
    let sources = started(&config, Some(Arc::new(store))).await;
    let push = sources.push.clone().unwrap();
    (sources, push)
}

fn summary(applied: &Applied) -> (Outcome, String) {
    (applied.outcome, applied.pod.to_string())
}

#[tokio::test]
async fn pods_are_taken_in_kept_and_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let (mut sources, push) = keeping(folder.path()).await;
    ready_without_pods(&mut sources).await;
    let name = || "default/web-node".to_owned();
    let applied = push.apply("pod.yaml", &manifest("web", "one")).await.unwrap();
    assert_eq!(summary(&applied), (Outcome::Created, name()));
    let change = next_change(&mut sources).await;
    assert_eq!(shown(&change), "ADD default/web-node");
    assert_eq!(change.pod().metadata.uid, applied.pod.uid);
    assert_eq!(change.pod().metadata.annotations[CONFIG_SOURCE], "push");
    let same = push.apply("other.yaml", &format!("# Same.\n{}", manifest("web", "one"))).await.unwrap();
    assert_eq!((summary(&same), &same.pod.uid), ((Outcome::Unchanged, name()), &applied.pod.uid));
    let changed = push.apply("pod.yaml", &manifest("web", "two")).await.unwrap();
    assert_eq!(summary(&changed), (Outcome::Changed, name()));
    assert_ne!(changed.pod.uid, applied.pod.uid);
    assert_eq!(next(&mut sources).await, "REMOVE default/web-node");
    assert_eq!(next(&mut sources).await, "ADD default/web-node");

    let file = folder.path().join("pushed/default_web.yaml");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    drop((sources, push));
    let (mut sources, push) = keeping(folder.path()).await;
    let change = next_change(&mut sources).await;
    assert_eq!(
        (shown(&change), &change.pod().metadata.uid),
        ("ADD default/web-node".to_owned(), &changed.pod.uid)
    );

    push.delete("default", "web").await.unwrap();
    assert_eq!(next(&mut sources).await, "REMOVE default/web-node");
    assert!(!file.exists());
    let error = push.delete("default", "web").await.unwrap_err().to_string();
    assert_eq!(error, "there is no pod default/web");
    push.apply("pod.yaml", &manifest("web", "two")).await.unwrap();
    push.delete("default", "web-node").await.unwrap();
    assert!(!file.exists());
}

#[tokio::test]
async fn a_wrong_manifest_is_refused_with_its_lines() {
    let folder = tempfile::tempdir().unwrap();
    let (mut sources, push) = keeping(folder.path()).await;
    let two = format!("{}---\n{}", manifest("a", "one"), manifest("b", "one"));
    let huge = format!("{}#{}", manifest("a", "one"), " ".repeat(1 << 20));
    for (text, expected) in [
        (manifest("a", "''"), "pod.yaml:8: spec.containers[0].image: Required value"),
        (manifest("A", "one"), "pod.yaml:4: metadata.name: Invalid value: \"A-node\""),
        (String::new(), "pod.yaml: is empty"),
        ("kind: [".to_owned(), "pod.yaml:1: is not valid YAML: unclosed bracket '['"),
        (two, "pod.yaml:9: only the first document of the file is read; this one is ignored"),
        (huge, "the manifest has 1048669 bytes; at most 1048576 are accepted"),
        (
            manifest("a", "one").replace("  name: a\n", "  name: a\n  uid: ../a\n"),
            "pod.yaml:5: metadata.uid: Invalid value: a UID must consist of",
        ),
    ] {
        let error = push.apply("pod.yaml", &text).await.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    ready_without_pods(&mut sources).await;
    assert_eq!(std::fs::read_dir(folder.path().join("pushed")).unwrap().count(), 0);
}

#[tokio::test]
async fn what_others_ask_for_is_left_to_them() {
    let folder = tempfile::tempdir().unwrap();
    let manifests = folder.path().join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    std::fs::write(manifests.join("web.yaml"), manifest("web", "one")).unwrap();
    let (mut sources, push) = keeping(folder.path()).await;
    assert_eq!(next(&mut sources).await, "ADD default/web-node");
    let file = manifests.join("web.yaml");
    let error = push.apply("pod.yaml", &manifest("web", "two")).await.unwrap_err().to_string();
    assert_eq!(error, format!("pod default/web-node is there already: {} asks for it", file.display()));
    for name in ["web", "web-node"] {
        let error = push.delete("default", name).await.unwrap_err().to_string();
        let expected = format!(
            "pod default/{name} is not deleted here: remove the file {}, which asks for it",
            file.display()
        );
        assert_eq!(error, expected);
    }
}

#[tokio::test]
async fn a_kept_manifest_that_makes_no_sense_any_more_can_be_replaced_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let pushed = folder.path().join("pushed");
    std::fs::create_dir(&pushed).unwrap();
    std::fs::write(pushed.join("default_a.yaml"), manifest("a", "''")).unwrap();
    std::fs::write(pushed.join("default_b.yaml"), "").unwrap();
    std::fs::write(pushed.join("default_c.yaml"), manifest("c", "one")).unwrap();
    std::fs::create_dir(folder.path().join("manifests")).unwrap();
    let (mut sources, push) = keeping(folder.path()).await;
    assert_eq!(next(&mut sources).await, "ADD default/c-node");
    assert_eq!(
        problems(&sources, 2).await,
        [
            "the kept manifest default_a.yaml:8: spec.containers[0].image: Required value [Ignored]",
            "the kept manifest default_b.yaml: is empty [Ignored]"
        ]
    );
    push.apply("pod.yaml", &manifest("a", "one")).await.unwrap();
    assert_eq!(next(&mut sources).await, "ADD default/a-node");
    push.delete("default", "b").await.unwrap();
    assert_eq!(problems(&sources, 0).await, [""; 0]);
    assert_eq!(std::fs::read_dir(&pushed).unwrap().count(), 2);
}

#[tokio::test]
async fn a_name_longer_than_that_of_a_file_is_kept_too() {
    let folder = tempfile::tempdir().unwrap();
    let (mut sources, push) = keeping(folder.path()).await;
    let name = |end: &str| format!("{}{end}", "a.".repeat(120));
    for end in ["one", "two"] {
        push.apply("pod.yaml", &manifest(&name(end), "one")).await.unwrap();
        assert_eq!(next(&mut sources).await, format!("ADD default/{}-node", name(end)));
    }
    assert_eq!(std::fs::read_dir(folder.path().join("pushed")).unwrap().count(), 2);
}

#[tokio::test]
async fn what_cannot_be_kept_is_not_run_and_what_cannot_be_removed_runs_on() {
    let store = SimulatedCheckpoints::new();
    let mut sources = started(&KubeletConfiguration::default(), Some(Arc::new(store.clone()))).await;
    let push = sources.push.clone().unwrap();
    store.plan(Some(Operation::Save), 1, Fault::Fails(std::io::ErrorKind::StorageFull));
    let error = push.apply("pod.yaml", &manifest("a", "one")).await.unwrap_err();
    assert_eq!(error.to_string(), "the manifest could not be kept");
    push.apply("pod.yaml", &manifest("b", "one")).await.unwrap();
    assert_eq!(next(&mut sources).await, "ADD default/b-node");
    store.plan(Some(Operation::Remove), 1, Fault::Fails(std::io::ErrorKind::StorageFull));
    push.delete("default", "b").await.unwrap_err();
    push.apply("pod.yaml", &manifest("c", "one")).await.unwrap();
    assert_eq!(next(&mut sources).await, "ADD default/c-node");
    assert_eq!(store.content().len(), 2);
}

#[tokio::test]
async fn a_call_that_is_given_up_is_finished() {
    let store = SimulatedCheckpoints::new();
    let mut sources = started(&KubeletConfiguration::default(), Some(Arc::new(store.clone()))).await;
    let push = sources.push.clone().unwrap();
    let text = manifest("a", "one");
    let call = push.apply("pod.yaml", &text);
    // Polled once, which starts it.
    let given_up = tokio::time::timeout(Duration::ZERO, call).await;
    drop(given_up);
    assert_eq!(next(&mut sources).await, "ADD default/a-node");
    assert_eq!(store.content().len(), 1);
}
