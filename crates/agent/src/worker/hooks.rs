//! The hook before a container's stop.

use std::time::Duration;

use crablet_api::core::LifecycleHandler;
use crablet_cri::Error;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::recorder::reason;
use crate::worker::Worker;

impl Worker {
    /// Runs the hook before a container's stop, within the grace period. How it ends changes nothing: the container
    /// is stopped.
    pub(super) fn run_pre_stop(
        &self,
        id: String,
        name: &str,
        seconds: i64,
    ) -> BoxFuture<'static, (String, Result<(), Error>)> {
        let spec = &self.pod.spec;
        let container =
            spec.containers.iter().chain(&spec.init_containers).find(|known| *known.name == *name);
        let hook = container
            .and_then(|container| container.lifecycle.as_ref())
            .and_then(|lifecycle| lifecycle.pre_stop.as_ref()?.one().cloned());
        let (runtime, recorder, story) =
            (self.node.runtime.clone(), self.node.recorder.clone(), self.story.clone());
        let involved = self.involved().in_container(self.kind_of(name), name);
        let within = Duration::from_secs(seconds.unsigned_abs());
        let name = name.to_owned();
        async move {
            let began = tokio::time::Instant::now();
            let failed = match hook {
                Some(LifecycleHandler::Exec(exec)) => {
                    let command: Vec<String> = exec.command.iter().map(ToString::to_string).collect();
                    match tokio::time::timeout(within, runtime.exec_sync(&id, &command, Some(within))).await {
                        Ok(Ok(output)) => output.exit_code != 0,
                        Ok(Err(_)) | Err(_) => true,
                    }
                }
                Some(LifecycleHandler::Sleep(sleep)) => {
                    let wanted = Duration::from_secs(sleep.seconds.unsigned_abs());
                    tokio::time::sleep(wanted.min(within)).await;
                    false
                }
                Some(LifecycleHandler::HttpGet(_) | LifecycleHandler::TcpSocket(_)) => true,
                None => false,
            };
            if failed {
                recorder.event(
                    &involved,
                    crate::recorder::EventType::Warning,
                    reason::FAILED_PRE_STOP_HOOK,
                    "PreStopHook failed",
                );
            }
            let outcome = if failed { "failed" } else { "is done" };
            story.step(
                "hook",
                began.elapsed(),
                format_args!("the hook before the stop of container {name} {outcome}"),
            );
            (id, Ok(()))
        }
        .boxed()
    }
}
