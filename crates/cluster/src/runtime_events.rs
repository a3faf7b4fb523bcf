//! Where the agent learns what happens at the runtime, in the node's story.

use std::sync::Arc;

use crablet_agent::story::Teller;
use crablet_cri::observer::{Source, Status};
use tokio::sync::watch;

/// Tells which source it is, and why it is no better one, when that changes. The log has it from the observer.
pub(crate) async fn tell(mut observer: watch::Receiver<Status>, story: Teller) {
    let mut told = None;
    loop {
        let now = source(&observer.borrow_and_update());
        if now.is_some() && now != told {
            if let Some((source, reasons)) = &now {
                match reasons.as_slice() {
                    [] => story.note_logged("runtime events", format_args!("learned from {source}")),
                    reasons => story.note_logged(
                        "runtime events",
                        format_args!(
                            "learned from {source}, not from a better source: {}",
                            reasons.join("; ")
                        ),
                    ),
                }
            }
            told = now;
        }
        if observer.changed().await.is_err() {
            return;
        }
    }
}

/// The source, and why it is no better one. Nothing before one was tried for.
fn source(status: &Status) -> Option<(Source, Vec<Arc<str>>)> {
    let mut reasons = status.why_not_better.clone();
    if status.source == Source::Relist && reasons.is_empty() {
        // The best one broke, and nothing else was tried for since. A runtime that cannot be listed says nothing of it.
        if status.not_listed.is_some() {
            return None;
        }
        reasons.push(status.last_error.clone()?);
    }
    Some((status.source, reasons))
}

#[cfg(test)]
mod tests {
    use crablet_agent::story::Stories;
    use crablet_cri::HintSource;
    use crablet_host::clock::Clock;

    use super::*;
    use crate::node_identity;

    #[tokio::test(start_paused = true)]
    async fn a_source_is_told_when_it_is_another_or_why_it_is_no_better_one() {
        let story =
            Stories::new(Clock::simulated("2026-11-15T03:46:00Z".parse().unwrap())).open(&node_identity("n"));
        let status = watch::Sender::new(Status::default());
        let telling = tokio::spawn(tell(status.subscribe(), story.clone()));
        let settle = async || tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        let mut texts = Vec::new();
        let (none, lacks): (&[&str], &[&str]) = (&[], &["GetContainerEvents: unimplemented"]);
        for (source, why_not_better, last_error) in [
            (Source::Relist, none, None),
            (Source::Stream(HintSource::Cri), none, None),
            (Source::Stream(HintSource::Cri), none, None),
            (Source::Relist, none, Some("the stream ended")),
            (Source::Relist, lacks, Some("the stream ended")),
            (Source::Relist, lacks, None),
            (Source::Stream(HintSource::Containerd), lacks, None),
        ] {
            status.send_modify(|status| {
                status.source = source;
                status.why_not_better = why_not_better.iter().map(|&why| why.into()).collect();
                status.last_error = last_error.map(Arc::from);
            });
            settle().await;
            texts = story.story().entries.iter().map(|entry| entry.text.to_string()).collect();
        }
        assert_eq!(
            texts,
            [
                "learned from CRI's event stream",
                "learned from a relist each second, not from a better source: the stream ended",
                "learned from a relist each second, not from a better source: GetContainerEvents: unimplemented",
                "learned from containerd's event stream, not from a better source: GetContainerEvents: unimplemented",
            ]
        );
        drop(status);
        telling.await.unwrap();
    }
}
