//! The simulated runtime on a socket.

use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::net::UnixListener;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::mortal::Mortal;
use super::simulator::Simulator;
use crablet_lenient_authority::LenientAuthority;

/// How long calls that are under way have to end after a stop.
const PATIENCE: Duration = Duration::from_secs(1);

/// Serves a simulated runtime on a unix socket until `shutdown` is done. Its event streams then end; the simulator
/// lives on, and can be served again.
///
/// When the runtime dies its connections break, and until it is back new ones are closed at once.
pub async fn serve(
    simulator: Simulator,
    listener: UnixListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let connections = UnixListenerStream::new(listener).filter_map(|connection| {
        let deaths = simulator.deaths();
        let is_alive = simulator.is_alive();
        let connection = connection.map(|connection| LenientAuthority::new(Mortal::new(connection, deaths)));
        async move { is_alive.then_some(connection) }
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving =
        Server::builder().add_routes(simulator.services()).serve_with_incoming_shutdown(connections, async {
            // A sender that is gone means the same.
            let _ = stopped.await;
        });
    tokio::pin!(serving);
    tokio::select! {
        biased;
        served = &mut serving => return served,
        () = shutdown => {}
    }
    let _ = stop.send(());
    simulator.end_streams();
    // Calls that never end, which faults are for, are left behind.
    timeout(PATIENCE, serving).await.unwrap_or(Ok(()))
}
