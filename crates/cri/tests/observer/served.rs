//! The observer on the simulated runtime behind a socket, where a death breaks connections.

use std::sync::Arc;
use std::time::Duration;

use crablet_cri::observer::{EventKind, Observer, Source, Status};
use crablet_cri::{Client, client};
use crablet_cri_sim::{Settings, Simulator, serve};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::simulated::run_pod;
use crate::{CONTAINERD, CRI};

/// Long enough for a machine under load: what takes this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

async fn until(status: &mut watch::Receiver<Status>, what: &str, is_so: impl FnMut(&Status) -> bool) {
    let waited = timeout(PATIENCE, status.wait_for(is_so)).await;
    waited.unwrap_or_else(|_| panic!("{what} in time")).expect("the observer runs");
}

#[tokio::test]
async fn a_runtime_that_dies_is_relisted_until_it_streams_again_and_no_exit_is_lost() {
    for (settings, source) in [(Settings::containerd_1_7(), CRI), (Settings::containerd_1_6(), CONTAINERD)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sim.sock");
        let simulator = Simulator::new(settings);
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(serve(simulator.clone(), listener, std::future::pending()));
        let endpoint = format!("unix://{}", path.display());
        let client = Client::new(&endpoint, None, client::Settings::default()).unwrap();
        let (_, ids) = run_pod(&client, "pod", 3).await;
        let (observer, mut events, mut status) = Observer::new(Arc::new(client));
        tokio::spawn(observer.run());
        until(&mut status, "a stream", |status| status.source == source).await;

        let mut exits = Vec::new();
        let mut take_until = async |id: &str| {
            loop {
                let event = timeout(PATIENCE, events.recv()).await.expect("an exit in time");
                let event = event.expect("the observer runs");
                if let EventKind::ContainerDied(exit) = event.kind {
                    exits.push((event.id.to_string(), exit.map(|exit| exit.exit_code)));
                    if *event.id == *id {
                        return;
                    }
                }
            }
        };
        simulator.exit_container(&ids[0], 1);
        take_until(&ids[0]).await;

        simulator.die();
        until(&mut status, "relists instead of a stream that broke", |status| {
            let is_broken = |error: &Arc<str>| error.contains("cannot be reached");
            status.source == Source::Relist && status.last_error.as_ref().is_some_and(is_broken)
        })
        .await;
        simulator.exit_container(&ids[1], 2);
        simulator.come_back();
        take_until(&ids[1]).await;
        until(&mut status, "the stream again", |status| status.source == source).await;
        assert_eq!(status.borrow().last_error, None, "by {source}");
        simulator.exit_container(&ids[2], 3);
        take_until(&ids[2]).await;

        let expected: Vec<_> = ids.into_iter().zip([1, 2, 3].map(Some)).collect();
        assert_eq!(exits, expected, "by {source}");
    }
}
