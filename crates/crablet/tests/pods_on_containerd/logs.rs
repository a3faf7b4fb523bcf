//! What containers write, through rotations.

use std::path::{Path, PathBuf};

use crablet_cri::Runtime as _;
use crablet_logs::{Followed, LogOptions, LogWatcher, read_logs};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::oneshot;

use crate::world::{World, entries, is_ready, of_one};

/// How many lines are written: for some ten seconds, in which logs are rotated three times.
const LINES: u32 = 20_000;

#[tokio::test]
async fn nothing_is_lost_to_who_follows_a_log_through_its_rotations_on_containerd() {
    let world = World::start_with(
        "containerLogMaxSize: 20Ki\ncontainerLogMonitorInterval: 3s\ncontainerLogMaxFiles: 3",
    )
    .await;
    let script = format!(
        "n=0; while [ $n -lt {LINES} ]; do echo $n; n=$((n+1)); [ $((n % 100)) = 0 ] && sleep 0.05; done; exit 0"
    );
    world.put("writes", &format!("  restartPolicy: Never\n{}", of_one(&script)));
    world.awaits("writes", "is ready", is_ready).await;
    let containers = world.containers_of("writes").await;
    let path = PathBuf::from(world.client.container_status(&containers[0].1).await.unwrap().log_path);

    let (end, ended) = oneshot::channel();
    let ended = async move { ended.await.unwrap_or_default() }.boxed();
    let followed = Followed { watcher: LogWatcher::default(), ended };
    let options = LogOptions { follow: true, ..LogOptions::default() };
    let mut log = Box::pin(read_logs(path.clone(), &options, Some(followed)));
    let follow = async {
        let mut text = Vec::new();
        while let Some(piece) = log.next().await {
            text.extend(piece.unwrap().into_bytes());
        }
        String::from_utf8(text).unwrap()
    };
    let (text, ()) = tokio::join!(follow, async {
        world.awaits_phase("writes", "Succeeded").await;
        end.send(()).unwrap();
    });
    let numbers: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    let expected: Vec<u32> = (0..LINES).collect();
    let first_wrong = numbers.iter().zip(&expected).position(|(number, expected)| number != expected);
    assert_eq!((numbers.len(), first_wrong), (expected.len(), None));

    let files = entries(path.parent().unwrap_or(Path::new("")));
    assert!(files.len() == 3 && files.iter().any(|name| name.ends_with(".gz")), "{files:?}");
    world.take_all().await;
    world.assert_nothing_is_left().await;
    world.containerd.stop().await.unwrap();
}
