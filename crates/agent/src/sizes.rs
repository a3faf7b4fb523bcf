//! What the machine has changes while it runs: processors and memory are plugged in, disks grow, huge pages are set aside.
//!
//! The kernel tells of what is plugged in; all else is looked at when the node reports anyway.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crablet_host::hotplug::Hotplugs;
use crablet_host::machine::MachineError;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::node_config::Sizes;
use crate::node_facts::LiveFacts;

/// How long nothing more has to be told before it is looked: memory comes block by block.
const SETTLES_WITHIN: Duration = Duration::from_secs(1);
/// It is looked after this time though more is told.
const LONGEST_UNSETTLED: Duration = Duration::from_secs(10);

/// Who tells that something was plugged in or out.
pub trait Teller {
    /// Waits until something was, since the last time. Dropping the future loses nothing.
    fn next(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

impl Teller for Hotplugs {
    fn next(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        Hotplugs::next(self)
    }
}

/// Keeps what is known of it as it is. It is looked in a thread of its own: a disk may hang. Without a teller it is looked at
/// each report.
pub async fn keep(
    facts: LiveFacts,
    every: Duration,
    mut hotplugs: Option<impl Teller>,
    look: impl Fn() -> Result<Sizes, MachineError> + Send + Sync + 'static,
) {
    let look = Arc::new(look);
    loop {
        let told = async {
            match &mut hotplugs {
                Some(hotplugs) => hotplugs.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            told = told => match told {
                Ok(()) => settle(&mut hotplugs).await,
                Err(error) => {
                    warn!(%error, "Not told any more of what is plugged in or out; it is seen at the next report");
                    hotplugs = None;
                    continue;
                }
            },
            () = sleep(every) => {}
        }
        let look = Arc::clone(&look);
        if let Ok(sizes) = spawn_blocking(move || look()).await {
            take(&facts, &sizes);
        }
    }
}

/// Waits until nothing more is told for a while, though not for ever.
async fn settle(hotplugs: &mut Option<impl Teller>) {
    if let Some(hotplugs) = hotplugs {
        let settled = async { while let Ok(Ok(())) = timeout(SETTLES_WITHIN, hotplugs.next()).await {} };
        let _ = timeout(LONGEST_UNSETTLED, settled).await;
    }
}

fn take(facts: &LiveFacts, sizes: &Result<Sizes, MachineError>) {
    match sizes {
        Ok(sizes) if facts.measure(sizes) => {
            let told = |name: &str| sizes.capacity.get(name).map(ToString::to_string).unwrap_or_default();
            info!(cpu = told("cpu"), memory = told("memory"), "The machine has something else than before");
        }
        Ok(_) => {}
        Err(error) => warn!(%error, "Cannot tell what the machine has"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};

    use crablet_api::Quantity;
    use crablet_config::Flag;
    use crablet_host::machine::{Machine, Storage};
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::*;
    use crate::node_facts::Facts;

    fn machine(cpus: u32, memory: u64, huge_pages: u64, swap: u64) -> Machine {
        Machine {
            cpus,
            memory: memory << 30,
            swap: swap << 30,
            huge_pages: BTreeMap::from([(2 << 20, huge_pages)]),
            ..Machine::read(Path::new("/")).unwrap()
        }
    }

    #[test]
    fn what_is_plugged_in_or_set_aside_is_taken_in_and_only_that_is_news() {
        let flags = [("kube-reserved", "cpu=500m,memory=1Gi"), ("eviction-hard", "memory.available<1Gi")];
        let flags = flags.map(|(name, value)| (Flag::find(name).unwrap(), value));
        let effective = crablet_config::load(&flags).unwrap();
        let storage =
            |gigabytes: u64| Storage { capacity: gigabytes << 30, available: 0, inodes: 0, inodes_free: 0 };
        let facts = LiveFacts::new(Facts::default());
        facts
            .change(|node| drop(node.status.capacity.insert("example.com/dongles", Quantity::from_value(3))));
        let news = facts.subscribe();
        let check = |machine: Machine, gigabytes: u64, expected: Option<[&str; 5]>| {
            let mut news = news.clone();
            news.mark_unchanged();
            take(
                &facts,
                &Ok(Sizes::new(
                    &effective.configuration,
                    &effective.flags,
                    &effective.features,
                    &machine,
                    Some(storage(gigabytes)),
                )),
            );
            assert_eq!(news.has_changed().unwrap(), expected.is_some(), "{machine:?}");
            let Some(expected) = expected else { return };
            let facts = facts.now();
            let (capacity, allocatable) = (&facts.node.status.capacity, &facts.node.status.allocatable);
            let told = ["cpu", "memory"].map(|name| allocatable[name].to_string());
            let huge = ["ephemeral-storage", "hugepages-2Mi"].map(|name| capacity[name].to_string());
            let swap =
                facts.node.status.node_info.swap.as_ref().and_then(|swap| swap.capacity).unwrap_or_default();
            let told = [told, huge].concat();
            assert_eq!(told, expected[..4]);
            assert_eq!(swap.to_string(), expected[4]);
            assert_eq!(capacity["example.com/dongles"], Quantity::from_value(3), "what others gave stays");
            assert_eq!(facts.translation.facts.allocatable, *allocatable);
            assert_eq!(facts.translation.facts.swap_capacity, swap);
        };
        check(machine(2, 10, 0, 0), 100, Some(["1500m", "8Gi", "100Gi", "0", "0"]));
        check(machine(2, 10, 0, 0), 100, None);
        check(machine(4, 20, 0, 0), 100, Some(["3500m", "18Gi", "100Gi", "0", "0"]));
        check(machine(4, 20, 512, 0), 200, Some(["3500m", "17Gi", "200Gi", "1Gi", "0"]));
        check(machine(4, 20, 512, 4), 200, Some(["3500m", "17Gi", "200Gi", "1Gi", "4294967296"]));
        check(machine(1, 10, 0, 0), 100, Some(["500m", "8Gi", "100Gi", "0", "0"]));
    }

    /// What a test says that the kernel does.
    struct Told(mpsc::Receiver<io::Result<()>>);

    impl Teller for Told {
        async fn next(&mut self) -> io::Result<()> {
            match self.0.recv().await {
                Some(told) => told,
                None => std::future::pending().await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_looked_once_when_the_kernel_is_done_telling_and_at_reports_when_it_tells_no_more() {
        const REPORTS: Duration = Duration::from_secs(3600);
        let (cpus, looks) = (Arc::new(AtomicU32::new(2)), Arc::new(AtomicU32::new(0)));
        let facts = LiveFacts::new(Facts::default());
        let (tell, told) = mpsc::channel(100);
        let effective = crablet_config::load(&[]).unwrap();
        let look = {
            let (cpus, looks) = (Arc::clone(&cpus), Arc::clone(&looks));
            move || {
                looks.fetch_add(1, Ordering::Relaxed);
                let machine = machine(cpus.load(Ordering::Relaxed), 10, 0, 0);
                Ok(Sizes::new(
                    &effective.configuration,
                    &effective.flags,
                    &effective.features,
                    &machine,
                    None,
                ))
            }
        };
        let keeper = tokio::spawn(keep(facts.clone(), REPORTS, Some(Told(told)), look));
        let mut news = facts.subscribe();
        let mut follows = async |count: u32| {
            let began = Instant::now();
            cpus.store(count, Ordering::Relaxed);
            news.changed().await.unwrap();
            assert_eq!(facts.now().node.status.capacity["cpu"].to_string(), count.to_string());
            began.elapsed()
        };
        // Memory comes block by block.
        for _ in 0..40 {
            tell.send(Ok(())).await.unwrap();
        }
        assert!(follows(4).await < REPORTS);
        assert_eq!(looks.load(Ordering::Relaxed), 1);
        tell.send(Ok(())).await.unwrap();
        assert!(follows(3).await < REPORTS);
        tell.send(Err(io::Error::other("no room"))).await.unwrap();
        assert!(follows(5).await >= REPORTS);
        assert_eq!(looks.load(Ordering::Relaxed), 3);
        keeper.abort();
    }
}
