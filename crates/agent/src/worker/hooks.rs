//! The hooks of containers: after their start and before their stop. What a hook wrote or was answered may be a secret
//! and is told to nobody.

use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crablet_api::IntOrString;
use crablet_api::core::{Container, LifecycleHandler, Pod, TCPSocketAction};
use crablet_core::kill::{KillReason, container_grace};
use crablet_core::plan::Kill;
use crablet_core::probes::target::{HttpTarget, NoTarget, Purpose, http_target};
use crablet_core::status::StartError;
use crablet_core::translate::{go_quote, pod_description};
use crablet_cri::{Error, Runtime};
use crablet_cri_api::{ContainerState, ExecOutput};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::prober::exec::took_too_long;
use crate::prober::http::{self, HttpError};
use crate::recorder::{EventType, reason};
use crate::story::State;
use crate::worker::Worker;
use crate::worker::carry_out::NotStarted;
use crate::worker::stops::{self, NotKilled};

/// How long a hook after a start may take. Upstream waits for ever.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a runtime that is away is left alone.
const RUNTIME_AWAY: Duration = Duration::from_secs(1);

/// How often to ask whether a container still runs while the hook after its start does.
const CONTAINER_LOOK: Duration = Duration::from_secs(10);

/// What a hook does, made ready.
enum Hook {
    Exec(Vec<String>),
    Http(Box<HttpTarget>),
    Sleep(Duration),
    /// It cannot be done.
    Broken(Broken),
}

/// Why a hook cannot be done.
#[derive(Debug, Clone, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    NoTarget(#[from] NoTarget),
    /// A handler that does nothing.
    #[error("{}", invalid(.0))]
    TcpSocket(Box<TCPSocketAction>),
}

/// Why a hook failed, in upstream's words.
#[derive(Debug, thiserror::Error)]
enum HookError {
    #[error("command '{command}' exited with {code}: {complaint}, message: {}", quoted(written))]
    Exited { command: String, code: i32, complaint: String, written: Vec<u8> },
    /// Nobody gave it a time, which the words tell all the same.
    #[error("command timed out: {} timed out after 0s, message: \"\"", go_quote(command))]
    TimedOut { command: String },
    #[error("{}, message: \"\"", .0.in_go_words())]
    Exec(Error),
    #[error("Get {}: {error}", go_quote(url))]
    Get { url: String, error: HttpError },
    #[error("the container ended")]
    ContainerEnded,
    #[error(transparent)]
    Broken(Broken),
}

/// How a hook that did not fail came to its end.
enum Done {
    AsWanted,
    /// By HTTP, because what was to be asked by HTTPS does not speak it.
    WithoutTls(String),
}

impl Hook {
    fn new(handler: &LifecycleHandler, container: &Container, pod_ip: &str) -> Hook {
        match handler {
            LifecycleHandler::Exec(exec) => {
                Hook::Exec(exec.command.iter().map(ToString::to_string).collect())
            }
            LifecycleHandler::HttpGet(get) => match http_target(get, container, pod_ip, Purpose::Lifecycle) {
                Ok(target) => Hook::Http(Box::new(target)),
                Err(error) => Hook::Broken(error.into()),
            },
            LifecycleHandler::Sleep(sleep) => Hook::Sleep(Duration::from_secs(sleep.seconds.unsigned_abs())),
            LifecycleHandler::TcpSocket(socket) => Hook::Broken(Broken::TcpSocket(socket.clone())),
        }
    }

    async fn run(
        &self,
        runtime: &dyn Runtime,
        id: &str,
        within: Option<Duration>,
    ) -> Result<Done, HookError> {
        match self {
            Hook::Exec(command) => match exec(runtime, id, command, within).await {
                Ok(output) if output.exit_code == 0 => Ok(Done::AsWanted),
                Ok(output) => {
                    let ExecOutput { exit_code: code, mut stdout, stderr } = output;
                    let complaint = String::from_utf8_lossy(&stderr).into_owned();
                    stdout.extend(stderr);
                    Err(HookError::Exited { command: command.join(" "), code, complaint, written: stdout })
                }
                Err(error) if took_too_long(&error) => {
                    Err(HookError::TimedOut { command: command.join(" ") })
                }
                Err(error) => Err(HookError::Exec(error)),
            },
            Hook::Http(target) => get(target, Instant::now() + within.unwrap_or(LONGEST)).await,
            Hook::Sleep(wanted) => {
                tokio::time::sleep(*wanted).await;
                Ok(Done::AsWanted)
            }
            Hook::Broken(why) => Err(HookError::Broken(why.clone())),
        }
    }
}

/// Waits until a container does not run any more. A runtime ends what it runs in a container together with it; one that
/// fails to must not hold up the pod for ever.
async fn ended(runtime: &dyn Runtime, id: &str) {
    loop {
        tokio::time::sleep(CONTAINER_LOOK).await;
        match runtime.container_status(id).await {
            Ok(status) if status.state != ContainerState::Exited => {}
            Ok(_) => return,
            Err(error) if error.is_not_found() => return,
            Err(_) => {}
        }
    }
}

/// A runtime that went away says nothing about the hook, and that is no reason to stop a container: the command is run
/// again once the runtime is back, unless its time is over by then. Nobody ends it then but the end of its container.
async fn exec(
    runtime: &dyn Runtime,
    id: &str,
    command: &[String],
    within: Option<Duration>,
) -> Result<ExecOutput, Error> {
    let began = Instant::now();
    loop {
        match runtime.exec_sync(id, command, None).await {
            Err(error) if error.is_unreachable() && within.is_none_or(|within| began.elapsed() < within) => {
                tokio::time::sleep(RUNTIME_AWAY).await;
            }
            answer => return answer,
        }
    }
}

/// A handler that does nothing, as Go prints it.
fn invalid(socket: &TCPSocketAction) -> String {
    let port = match &socket.port {
        IntOrString::Int(number) => format!("{{0 {number} }}"),
        IntOrString::String(name) => format!("{{1 0 {name}}}"),
    };
    let socket = format!("&TCPSocketAction{{Port:{port},Host:{},}}", socket.host);
    format!("invalid handler: &LifecycleHandler{{Exec:nil,HTTPGet:nil,TCPSocket:{socket},Sleep:nil,}}")
}

/// What is said of a hook that failed, in upstream's words.
fn failure(handler: &LifecycleHandler, container: &str, pod: &Pod, error: impl Display) -> String {
    let hook = match handler {
        LifecycleHandler::Exec(exec) => {
            let words: Vec<&str> = exec.command.iter().map(|word| word.as_str()).collect();
            format!("Exec lifecycle hook ([{}])", words.join(" "))
        }
        LifecycleHandler::HttpGet(get) => format!("HTTP lifecycle hook ({})", get.path),
        LifecycleHandler::Sleep(sleep) => format!("Sleep lifecycle hook ({})", sleep.seconds),
        LifecycleHandler::TcpSocket(_) => return format!("Cannot run handler: {error}"),
    };
    let (container, pod) = (go_quote(container), go_quote(&pod_description(pod)));
    format!("{hook} for Container {container} in Pod {pod} failed - error: {error}")
}

fn quoted(written: &[u8]) -> String {
    go_quote(&String::from_utf8_lossy(written))
}

/// Any answer will do.
async fn get(target: &HttpTarget, deadline: Instant) -> Result<Done, HookError> {
    match http::get(target, deadline).await {
        Ok(_) | Err((_, HttpError::Body(_))) => Ok(Done::AsWanted),
        Err((url, HttpError::NotTls)) => {
            let mut plain = HttpTarget { secure: false, ..target.clone() };
            // It was meant for somebody who speaks TLS.
            plain.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
            match http::get(&plain, deadline).await {
                Ok(_) | Err((_, HttpError::Body(_))) => Ok(Done::WithoutTls(plain.address.in_url())),
                // As upstream: what went wrong first is what is told.
                Err(_) => Err(HookError::Get { url, error: HttpError::NotTls }),
            }
        }
        Err((url, error)) => Err(HookError::Get { url, error }),
    }
}

impl Worker {
    /// Runs the hook after a container's start, and waits for it. Where it fails, the container is stopped.
    pub(super) async fn run_post_start(&mut self, container: &Container, id: &str) -> Result<(), NotStarted> {
        let lifecycle = container.lifecycle.as_ref();
        let Some(handler) = lifecycle.and_then(|lifecycle| lifecycle.post_start.as_ref()?.one()) else {
            return Ok(());
        };
        let (name, began) = (container.name.clone(), Instant::now());
        let hook = Hook::new(handler, container, &self.pod_ip());
        self.story.headline(
            State::Waiting,
            format_args!("the hook after the start of container {name} to be done"),
        );
        let runtime = self.node.runtime.clone();
        let run = async {
            tokio::select! {
                biased;
                done = hook.run(&*runtime, id, None) => done,
                () = ended(&*runtime, id) => Err(HookError::ContainerEnded),
            }
        };
        // An end is more urgent; the container is stopped then anyway.
        let Some(done) = self.attend(run).await else { return Ok(()) };
        let error = match done {
            Ok(done) => {
                self.tell_of_fallback(&done);
                let what = format_args!("the hook after the start of container {name} is done");
                self.story.step("hook", began.elapsed(), what);
                return Ok(());
            }
            Err(error) => error,
        };
        self.warn(&name, reason::FAILED_POST_START_HOOK, "PostStartHook failed");
        let kill = Kill {
            id: id.to_owned(),
            grace: container_grace(&self.pod, &name, KillReason::PostStartHook),
            reason: KillReason::PostStartHook,
            message: "FailedPostStartHook".into(),
            name: name.clone(),
            starts_anew: false,
        };
        match self.kill(&[kill]).await {
            Ok(()) | Err(NotKilled::PodEnds | NotKilled::Failed(_)) => {}
        }
        let message = failure(handler, &name, &self.pod, error);
        let error = StartError::new("PostStartHookError", message);
        Err(NotStarted { error, until: None, has_event: true })
    }

    /// Runs the hook before a container's stop, which nobody waits for longer than the grace period. How it ends changes
    /// nothing: the container is stopped. A command that takes longer runs on until its container ends, as upstream.
    pub(super) fn run_pre_stop(
        &self,
        id: String,
        name: &str,
        seconds: i64,
    ) -> BoxFuture<'static, stops::Done> {
        let hook = self.pre_stop(name);
        let (runtime, recorder, story) =
            (self.node.runtime.clone(), self.node.reports.recorder.clone(), self.story.clone());
        let pod = self.involved();
        let involved = pod.in_container(self.kind_of(name), name);
        let within = Duration::from_secs(seconds.unsigned_abs());
        let name = name.to_owned();
        let node = Arc::clone(&self.node);
        async move {
            let Some(hook) = hook else { return stops::Done::Hook { id } };
            let began = Instant::now();
            let container = id.clone();
            let mut run = pin!(hook.run(&*runtime, &container, Some(within)));
            let done = tokio::time::timeout(within, &mut run).await;
            let how = match done {
                Ok(Ok(Done::AsWanted)) => "is done",
                Ok(Ok(Done::WithoutTls(at))) => {
                    node.metrics.fell_back_to_http();
                    recorder.event(&pod, EventType::Warning, reason::LIFECYCLE_HTTP_FALLBACK, fallback(&at));
                    "is done"
                }
                // What it was for is over: the container is stopped.
                Err(_) if matches!(hook, Hook::Sleep(_)) => {
                    node.metrics.cut_sleep_short();
                    "took too long"
                }
                Ok(Err(_)) | Err(_) => {
                    let reason = reason::FAILED_PRE_STOP_HOOK;
                    recorder.event(&involved, EventType::Warning, reason, "PreStopHook failed");
                    if done.is_err() {
                        // It ends with what holds this, when the container was seen to have ended.
                        let _ = run.await;
                    }
                    return stops::Done::Hook { id };
                }
            };
            let what = format_args!("the hook before the stop of container {name} {how}");
            story.step("hook", began.elapsed(), what);
            stops::Done::Hook { id }
        }
        .boxed()
    }

    fn pre_stop(&self, name: &str) -> Option<Hook> {
        let container = self.pod.spec.find_container(name)?;
        let handler = container.lifecycle.as_ref()?.pre_stop.as_ref()?.one()?;
        Some(Hook::new(handler, container, &self.pod_ip()))
    }

    /// The pod's address; empty where it has none of its own, and the node's is not known.
    fn pod_ip(&self) -> String {
        let of_sandbox = self.observed.active_sandbox().and_then(|sandbox| sandbox.ips.first());
        of_sandbox.filter(|ip| !ip.is_empty()).cloned().unwrap_or_else(|| self.status.pod_ip.to_string())
    }

    fn tell_of_fallback(&self, done: &Done) {
        match done {
            Done::AsWanted => {}
            Done::WithoutTls(at) => {
                self.node.metrics.fell_back_to_http();
                self.warn_pod(reason::LIFECYCLE_HTTP_FALLBACK, &fallback(at));
            }
        }
    }
}

fn fallback(at: &str) -> String {
    format!("request to HTTPS lifecycle hook {at} got HTTP response, retry with HTTP succeeded")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crablet_api::testing::pod_yaml;

    /// What is said of this hook after the start of the first container, with this error, or the one that it has.
    #[track_caller]
    fn check(handler: &str, error: &str, expected: &str) {
        let pod = pod_yaml(&format!(
            "metadata: {{name: web, namespace: default, uid: u}}\n\
             spec: {{containers: [{{name: c, lifecycle: {{postStart: {{{handler}}}}}}}]}}\n"
        ));
        let container = &pod.spec.containers[0];
        let hooks = container.lifecycle.as_ref().unwrap().post_start.as_ref().unwrap();
        let handler = hooks.one().unwrap();
        let error = match Hook::new(handler, container, "10.0.0.1") {
            Hook::Broken(error) => error.to_string(),
            Hook::Exec(_) | Hook::Http(_) | Hook::Sleep(_) => error.to_owned(),
        };
        assert_eq!(failure(handler, &container.name, &pod, error), expected);
    }

    #[test]
    fn a_hook_that_failed_is_told_in_upstreams_words() {
        check(
            "exec: {command: [sh, -c, 'exit 3']}",
            "no",
            "Exec lifecycle hook ([sh -c exit 3]) for Container \"c\" in Pod \"web_default(u)\" failed - error: no",
        );
        check(
            "httpGet: {path: /up, port: 80}",
            "no",
            "HTTP lifecycle hook (/up) for Container \"c\" in Pod \"web_default(u)\" failed - error: no",
        );
        check(
            "sleep: {seconds: 5}",
            "no",
            "Sleep lifecycle hook (5) for Container \"c\" in Pod \"web_default(u)\" failed - error: no",
        );
    }

    #[test]
    fn what_a_command_wrote_is_quoted_as_go_does() {
        assert_eq!(quoted(b"it's\x1b \0\xc2\xa0\n"), r#""it's\x1b \x00\u00a0\n""#);
    }

    #[test]
    fn a_hook_that_cannot_be_run_is_told_in_upstreams_words() {
        check(
            "httpGet: {path: /up, port: nowhere}",
            "",
            "HTTP lifecycle hook (/up) for Container \"c\" in Pod \"web_default(u)\" failed - error: \
             strconv.Atoi: parsing \"nowhere\": invalid syntax",
        );
        check(
            "tcpSocket: {port: 80}",
            "",
            "Cannot run handler: invalid handler: &LifecycleHandler{Exec:nil,HTTPGet:nil,\
             TCPSocket:&TCPSocketAction{Port:{0 80 },Host:,},Sleep:nil,}",
        );
        check(
            "tcpSocket: {port: http, host: db}",
            "",
            "Cannot run handler: invalid handler: &LifecycleHandler{Exec:nil,HTTPGet:nil,\
             TCPSocket:&TCPSocketAction{Port:{1 0 http},Host:db,},Sleep:nil,}",
        );
    }
}
