//! The node's lease: how it says that it is alive. It beats whatever else is slow.

use std::time::Duration;

use crablet_api::Text;
use crablet_api::coordination::Lease;
use crablet_api::meta::MicroTime;
use crablet_client::{Client, Error, Lane};
use crablet_host::clock::Clock;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use crate::node::{Identity, node_owner};
use crate::node_headline::NodeHeadline;
use crate::retry::Backoff;

const NAMESPACE: &str = "kube-node-lease";
/// A beat every such part of the time that the lease lasts.
const BEATS: u32 = 4;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The waits after a lease could not be made or renewed.
const SHORTEST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(7);
/// How often a renewal is tried before the lease is read anew.
const TRIES: usize = 5;

/// Renews the lease of the node, for ever.
pub struct Heart {
    client: Client,
    clock: Clock,
    node: watch::Receiver<Option<Identity>>,
    name: Text,
    seconds: i32,
    backoff: Backoff,
    /// Where it is told when it does not beat.
    headline: Option<NodeHeadline>,
    /// Since when it does not.
    fails_since: Option<Timestamp>,
}

impl Heart {
    /// One that beats for the node of that name, whose identity is known once it is registered.
    pub fn new(
        client: Client,
        clock: Clock,
        name: Text,
        node: watch::Receiver<Option<Identity>>,
        seconds: i32,
    ) -> Heart {
        let client = client.on(Lane::Heartbeat).within(PATIENCE);
        let backoff = Backoff::new(SHORTEST_WAIT, LONGEST_WAIT);
        let (headline, fails_since) = (None, None);
        Heart { client, clock, node, name, seconds, backoff, headline, fails_since }
    }

    /// One that tells there when it does not beat.
    pub fn told_of_in(self, headline: NodeHeadline) -> Heart {
        Heart { headline: Some(headline), ..self }
    }

    pub async fn run(mut self) {
        let between = Duration::from_secs(u64::try_from(self.seconds).unwrap_or(1)) / BEATS;
        let mut lease = None;
        let mut next = Instant::now();
        loop {
            let renewed = match lease {
                Some(lease) => self.renew(lease).await,
                None => None,
            };
            lease = Some(match renewed {
                Some(lease) => lease,
                None => self.ensure().await,
            });
            // After a machine that slept, one beat and not all that were missed.
            next = (next + between).max(Instant::now() + between / 2);
            sleep_until(next).await;
        }
    }

    /// Renews a lease as it was last; nothing where it is not that any more.
    async fn renew(&mut self, mut lease: Lease) -> Option<Lease> {
        for _ in 0..TRIES {
            self.beat(&mut lease);
            match self.client.replace(&lease).await {
                Ok(renewed) => {
                    self.beats();
                    return Some(renewed);
                }
                Err(error) if error.is_conflict() || error.is_not_found() => {
                    warn!(%error, "The lease of the node was changed by somebody else");
                    return None;
                }
                Err(error) => {
                    warn!(%error, "Cannot renew the lease of the node; trying again");
                    self.fails(&error);
                    sleep(self.backoff.after(&error)).await;
                }
            }
        }
        None
    }

    /// Reads the lease, or makes it, and renews it; until that is done.
    async fn ensure(&mut self) -> Lease {
        loop {
            match self.try_to_ensure().await {
                Ok(lease) => {
                    self.beats();
                    return lease;
                }
                Err(error) => {
                    let wait = self.backoff.after(&error);
                    warn!(%error, ?wait, "Cannot make sure of the lease of the node; trying again");
                    self.fails(&error);
                    sleep(wait).await;
                }
            }
        }
    }

    async fn try_to_ensure(&mut self) -> Result<Lease, Error> {
        match self.client.get::<Lease>(NAMESPACE, &self.name).await {
            Ok(mut lease) => {
                self.beat(&mut lease);
                self.client.replace(&lease).await
            }
            Err(error) if error.is_not_found() => {
                let mut lease = Lease::default();
                lease.metadata.name = self.name.clone();
                lease.metadata.namespace = NAMESPACE.into();
                // It goes with its node, so it does not come before it.
                if self.node.borrow().is_none() && self.node.wait_for(Option::is_some).await.is_err() {
                    std::future::pending::<()>().await;
                }
                self.beat(&mut lease);
                let made = self.client.create(&lease).await?;
                info!("Made the lease of the node");
                Ok(made)
            }
            Err(error) => Err(error),
        }
    }

    fn beats(&mut self) {
        self.backoff.reset();
        if self.fails_since.take().is_some()
            && let Some(headline) = &self.headline
        {
            headline.lease_is_not_renewed(None);
        }
    }

    fn fails(&mut self, error: &Error) {
        // A node that is not registered has no lease.
        if self.node.borrow().is_none() {
            return;
        }
        let since = *self.fails_since.get_or_insert_with(|| self.clock.now());
        if let Some(headline) = &self.headline {
            let within = LONGEST_WAIT.as_secs();
            headline.lease_is_not_renewed(Some(format!(
                "its lease has not been renewed since {since:.0}: {error}; it is tried again within {within} s"
            )));
        }
    }

    fn beat(&self, lease: &mut Lease) {
        if lease.metadata.owner_references.is_empty()
            && let Some(node) = &*self.node.borrow()
        {
            lease.metadata.owner_references = Box::new([node_owner(node)]);
        }
        lease.spec.holder_identity = Some(self.name.clone());
        lease.spec.lease_duration_seconds = Some(self.seconds);
        let now = self.clock.now().as_microsecond();
        lease.spec.renew_time = Some(MicroTime::from_unix_microseconds(now));
    }
}
