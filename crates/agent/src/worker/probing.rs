//! What the prober is told of a pod's containers.

use std::future::Future;
use std::pin::pin;

use crablet_api::Text;
use crablet_api::core::{PodConditionType, PodStatus};
use crablet_api::meta::ConditionStatus;
use crablet_core::probes::ProbeKind;
use crablet_cri_api::ContainerState;

use crate::prober::{Running, Watch};
use crate::worker::{Phase, Worker};

/// What the prober was told last.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Watched {
    pod_ip: String,
    stopping: bool,
    running: Vec<Running>,
}

impl Worker {
    /// Tells the prober which containers run now, where that is not what it knows. Called when a status was shown.
    pub(super) fn have_probed(&mut self) {
        if matches!(self.phase, Phase::Terminated) || !self.has_probes() {
            return;
        }
        let told = Watched {
            pod_ip: self.status.pod_ip.to_string(),
            stopping: !matches!(self.phase, Phase::Syncing),
            running: self.running(),
        };
        if self.told_prober.as_ref() == Some(&told) {
            return;
        }
        let (pod_ip, stopping, running) = (told.pod_ip.clone(), told.stopping, told.running.clone());
        let (pod, mailbox) = (self.pod.clone(), self.mailbox.clone());
        self.node.prober.watch(&self.owner.uid, Watch { pod, mailbox, pod_ip, stopping, running });
        self.told_prober = Some(told);
    }

    /// Waits for something that takes long. What probes find meanwhile is shown. The answer is nothing when the pod was
    /// told to end.
    pub(super) async fn attend<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mailbox) = (pin!(work), self.mailbox.clone());
        loop {
            tokio::select! {
                biased;
                () = mailbox.wait_for_end() => return None,
                done = &mut work => return Some(done),
                probes = mailbox.wait_for_probes() => {
                    self.probes = probes;
                    let status = self.make_status(false);
                    self.show_for_sure(status).await;
                    // Whatever else follows from it is for the next pass.
                    mailbox.tell(crate::mailbox::Input::Look);
                }
            }
        }
    }

    /// Nothing is to be probed any more, or not yet.
    pub(super) fn have_nothing_probed(&mut self) {
        if self.has_probes() {
            self.node.prober.forget(&self.owner.uid);
        }
        self.told_prober = None;
    }

    /// Whether this status says that the pod has become ready, or something else of the containers that are probed than
    /// the one before.
    pub(super) fn must_be_remembered(&self, status: &PodStatus) -> bool {
        let seen = |status: &PodStatus| -> Vec<(Text, bool, Option<bool>)> {
            let all = status.init_container_statuses.iter().chain(&status.container_statuses);
            all.map(|status| (status.container_id.clone(), status.ready, status.started)).collect()
        };
        let is_ready = |status: &PodStatus| {
            let mut conditions = status.conditions.iter();
            let ready = conditions.find(|condition| condition.r#type == PodConditionType::Ready);
            ready.is_some_and(|ready| ready.status == ConditionStatus::True)
        };
        is_ready(status) != is_ready(&self.status)
            || (self.has_probes() && seen(status) != seen(&self.status))
    }

    fn has_probes(&self) -> bool {
        let spec = &self.pod.spec;
        let mut all = spec.containers.iter().chain(&spec.init_containers);
        all.any(|container| ProbeKind::ALL.into_iter().any(|kind| kind.of(container).is_some()))
    }

    fn running(&self) -> Vec<Running> {
        let status = &self.status;
        let statuses = status.init_container_statuses.iter().chain(&status.container_statuses);
        let running = statuses.filter_map(|status| {
            let latest = self.observed.latest(&status.name)?;
            (latest.state == ContainerState::Running).then(|| Running {
                id: latest.id.clone(),
                name: status.name.clone(),
                since: latest.started_at,
                started: status.started == Some(true),
            })
        });
        running.collect()
    }
}
