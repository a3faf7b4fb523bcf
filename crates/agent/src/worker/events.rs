//! What a worker says: events in upstream's words, and the headline that answers "why is my pod not running".

use crablet_api::core::PodConditionType;
use crablet_api::core::{ContainerState, PodPhase};
use crablet_api::meta::ConditionStatus;
use crablet_core::plan::{Plan, WaitingFor};
use crablet_core::translate::go_quote;
use crablet_cri::Error;

use crate::recorder::{ContainerKind, EventType, Involved, reason};
use crate::story::State;
use crate::worker::Worker;

impl Worker {
    /// An ordinary event about the pod, or one of its containers.
    pub(super) fn say(&self, container: Option<&str>, reason: &str, message: &str) {
        self.event(container, EventType::Normal, reason, message);
    }

    /// An event of concern about a container.
    pub(super) fn warn(&self, container: &str, reason: &str, message: &str) {
        self.event(Some(container), EventType::Warning, reason, message);
    }

    /// An event of concern about the pod.
    pub(super) fn warn_pod(&self, reason: &str, message: &str) {
        self.event(None, EventType::Warning, reason, message);
    }

    /// An event of concern about the node.
    pub(super) fn warn_node(&self, reason: &str, message: &str) {
        let node = Involved::node(self.node.facts.now().node.metadata.name.as_str());
        self.node.reports.recorder.event(&node, EventType::Warning, reason, message);
    }

    fn event(&self, container: Option<&str>, event_type: EventType, reason: &str, message: &str) {
        let involved = match container {
            None => self.involved(),
            Some(name) => self.involved().in_container(self.kind_of(name), name),
        };
        self.node.reports.recorder.event(&involved, event_type, reason, message);
    }

    /// Says that a part of a pod that ends could not be stopped: upstream's name for the stop, and what was to be.
    pub(super) fn tell_not_killed(&self, stop: &str, of: &str, error: &Error) {
        let (of, said) = (go_quote(of), go_quote(&error.in_go_words()));
        let message = format!("error killing pod: failed to \"{stop}\" for {of} with {stop}Error: {said}");
        self.warn_pod(reason::FAILED_TO_KILL_POD, &message);
    }

    pub(super) fn involved(&self) -> Involved {
        Involved::version_of(&self.pod)
    }

    pub(super) fn kind_of(&self, container: &str) -> ContainerKind {
        let spec = &self.pod.spec;
        if spec.init_containers.iter().any(|init| *init.name == *container) {
            ContainerKind::Init
        } else if spec.ephemeral_containers.iter().any(|ephemeral| *ephemeral.container.name == *container) {
            ContainerKind::Ephemeral
        } else {
            ContainerKind::Main
        }
    }

    /// Says why the pod is not running, or that it is.
    pub(super) fn tell_headline(&self, plan: &Plan) {
        if let Some((name, error)) = self.starts.errors.iter().next() {
            let (reason, message) = (&error.reason, &error.message);
            return self
                .story
                .headline(State::Blocked, format_args!("container {name}: {reason}: {message}"));
        }
        if let Some((name, message)) = self.starts.held_back.iter().next() {
            let words = format_args!("container {name}: CrashLoopBackOff: {message}");
            return self.story.headline(State::Blocked, words);
        }
        if let Some(volume) = self.volumes.waited_for(plan) {
            return self.story.headline(State::Waiting, format_args!("{volume}"));
        }
        match plan.waiting_for.first() {
            Some(WaitingFor::Sandbox { .. }) => {
                return self.story.headline(State::Waiting, format_args!("its sandbox"));
            }
            Some(WaitingFor::InitContainer { name }) => {
                return self.story.headline(State::Waiting, format_args!("init container {name} to finish"));
            }
            Some(WaitingFor::SidecarStartup { name }) => {
                return self.story.headline(State::Waiting, format_args!("sidecar {name} to have started"));
            }
            Some(WaitingFor::RestartOfAll) => {
                return self
                    .story
                    .headline(State::Waiting, format_args!("all its containers to begin again"));
            }
            Some(WaitingFor::BackOff { .. }) | None => {}
        }
        if let Some(start) = plan.start.first() {
            return self
                .story
                .headline(State::Waiting, format_args!("container {} to be started", start.name));
        }
        let conditions = &self.allocation.conditions;
        if let Some(error) = conditions.error() {
            return self.story.headline(State::Blocked, format_args!("it cannot be resized: {error}"));
        }
        if self.is_ready() {
            return match conditions.why_pending() {
                Some(why) => self
                    .story
                    .headline(State::Running, format_args!("without what it asks for by now: {why}")),
                None => self.story.headline(State::Running, format_args!("")),
            };
        }
        let unready = self.status.container_statuses.iter().find(|status| !status.ready);
        match unready.map(|status| (&status.name, status.state.one())) {
            Some((name, Some(ContainerState::Running(_)))) => {
                let waits_for = self.probe_waited_for(name).unwrap_or_default();
                self.story.headline(State::Unready, format_args!("container {name} is not ready{waits_for}"));
            }
            Some((name, _)) => {
                self.story.headline(State::Unready, format_args!("container {name} does not run"))
            }
            None => self.story.headline(State::Unready, format_args!("a readiness gate is not met")),
        }
    }

    /// Which probe of a container that runs has to succeed for it to be ready.
    fn probe_waited_for(&self, name: &str) -> Option<&'static str> {
        let container = self.pod.spec.containers.iter().find(|container| *container.name == *name)?;
        let status = self.status.container_statuses.iter().find(|status| *status.name == *name)?;
        if container.startup_probe.is_some() && status.started != Some(true) {
            return Some(": it waits for its startup probe to succeed");
        }
        container.readiness_probe.as_ref().map(|_| ": it waits for its readiness probe to succeed")
    }

    fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|condition| {
            condition.r#type == PodConditionType::Ready && condition.status == ConditionStatus::True
        })
    }

    /// Says how it ended.
    pub(super) fn tell_last_headline(&self) {
        let (reason, message) = (&self.status.reason, &self.status.message);
        match &self.status.phase {
            Some(PodPhase::Succeeded) => self.story.headline(State::Succeeded, format_args!("")),
            Some(PodPhase::Failed) if !reason.is_empty() => {
                self.story.headline(State::Failed, format_args!("{reason}: {message}"));
            }
            Some(PodPhase::Failed) => self.tell_who_failed(),
            _ => self.story.headline(State::Terminating, format_args!("all its containers have stopped")),
        }
    }

    fn tell_who_failed(&self) {
        let failed =
            self.status.init_and_regular_statuses().filter_map(|container| match container.state.one() {
                Some(ContainerState::Terminated(end)) if end.exit_code != 0 => Some((&container.name, end)),
                Some(_) | None => None,
            });
        match failed.min_by_key(|(_, end)| end.finished_at) {
            Some((name, end)) => {
                let (code, reason) = (end.exit_code, &end.reason);
                self.story
                    .headline(State::Failed, format_args!("container {name} ended with {code} ({reason})"));
            }
            None => self.story.headline(State::Failed, format_args!("a container failed")),
        }
    }

    pub(super) fn tell_of_network(&self, message: &str) {
        self.warn_pod(reason::NETWORK_NOT_READY, message);
        self.story.headline(State::Waiting, format_args!("the network: {message}"));
    }
}
