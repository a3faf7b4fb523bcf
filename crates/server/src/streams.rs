//! `/exec`, `/attach`, `/portForward` and `/run`: into the containers of a pod, by what the runtime offers for it.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use crablet_agent::statuses::Reported;
use crablet_api::core::Pod;
use crablet_core::translate::go_quote;
use crablet_cri::Error;
use crablet_cri_api::v1;
use crablet_metrics::{Counter, Family, RegisterError, Registry};
use crablet_streams::{
    StreamError, StreamRuntime, Streamer, Wanted, is_tunnel, is_upgrade, is_v5, is_websocket,
};

use crate::container_logs::find;
use crate::node::NodeHandles;
use crate::query::values;
use crate::respond::{plain, text};

/// How long the runtime keeps what was asked for and not taken, in seconds: after that there is room again.
const TRY_AGAIN_IN: &str = "60";
/// What the port to forward is called in the target.
const PORT: &str = "port";
/// The longest form that says what `/run` is to run.
const LARGEST_FORM: usize = 1 << 20;

/// What streams are made from.
pub struct Streams {
    /// Whose containers they lead to.
    pub node: NodeHandles,
    pub runtime: Arc<dyn StreamRuntime>,
    pub streamer: Streamer,
    /// Whether what only newer API servers speak is understood (`ExtendWebSocketsToKubelet`).
    pub extends_websockets: bool,
    /// How often that was used.
    pub metrics: StreamMetrics,
}

/// What is counted of streams, under upstream's names.
pub struct StreamMetrics {
    websockets: Family<Counter, 1>,
}

impl StreamMetrics {
    pub fn new(registry: &Registry) -> Result<StreamMetrics, RegisterError> {
        let websockets = registry.counter_family(
            "kubelet_websocket_streaming_requests_total",
            "[ALPHA] Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet.",
            ["subresource"],
        )?;
        Ok(StreamMetrics { websockets })
    }
}

type Shared = State<Arc<Streams>>;

/// What a path names.
struct Target {
    namespace: String,
    pod: String,
    uid: Option<String>,
    container: String,
}

/// Everything into containers.
pub fn streams_router(streams: Streams) -> Router {
    // With and without the pod's UID before the container.
    macro_rules! of_container {
        ($router:expr, $base:literal, $methods:ident, $act:ident) => {
            $router
                .route(
                    concat!($base, "/{namespace}/{pod}/{container}"),
                    $methods(
                        async |State(streams): Shared,
                               Path((namespace, pod, container)),
                               request: Request| {
                            answer(
                                streams.$act(Target { namespace, pod, uid: None, container }, request).await,
                            )
                        },
                    ),
                )
                .route(
                    concat!($base, "/{namespace}/{pod}/{uid}/{container}"),
                    $methods(
                        async |State(streams): Shared,
                               Path((namespace, pod, uid, container)),
                               request: Request| {
                            answer(
                                streams
                                    .$act(Target { namespace, pod, uid: Some(uid), container }, request)
                                    .await,
                            )
                        },
                    ),
                )
        };
    }
    let router = Router::new();
    let router = of_container!(router, "/exec", get_or_post, exec);
    let router = of_container!(router, "/attach", get_or_post, attach);
    let router = of_container!(router, "/run", post, run);
    router
        .route(
            "/portForward/{namespace}/{pod}",
            get_or_post(async |State(streams): Shared, Path((namespace, pod)), request: Request| {
                let target = Target { namespace, pod, uid: None, container: String::new() };
                answer(streams.port_forward(target, request).await)
            }),
        )
        .route(
            "/portForward/{namespace}/{pod}/{uid}",
            get_or_post(async |State(streams): Shared, Path((namespace, pod, uid)), request: Request| {
                let target = Target { namespace, pod, uid: Some(uid), container: String::new() };
                answer(streams.port_forward(target, request).await)
            }),
        )
        .with_state(Arc::new(streams))
}

fn get_or_post<H, T>(handler: H) -> MethodRouter<Arc<Streams>>
where
    H: axum::handler::Handler<T, Arc<Streams>>,
    T: 'static,
{
    get(handler.clone()).post(handler)
}

fn answer(answered: Result<Response, Refusal>) -> Response {
    answered.unwrap_or_else(Refusal::into_response)
}

/// Why there is no stream, in upstream's words.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Bad(String),
    #[error("pod does not exist")]
    NoPod,
    #[error("pod not found")]
    OtherPod,
    #[error("{0}")]
    NotFoundInRuntime(String),
    #[error("{}", .0.in_go_words())]
    Runtime(#[from] Error),
    /// The same where upstream does not look what it is.
    #[error("{}", .0.in_go_words())]
    Run(Error),
    #[error("the form is larger than {LARGEST_FORM} bytes, or was not sent to its end")]
    Form,
    #[error("{0}\n")]
    Stream(#[from] StreamError),
    #[error("command '{command}' exited with {code}: {stderr}")]
    Exited { command: String, code: i32, stderr: String },
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let why = self.to_string();
        match self {
            Refusal::Bad(_) => plain(StatusCode::BAD_REQUEST, why),
            Refusal::NoPod | Refusal::OtherPod => plain(StatusCode::NOT_FOUND, why),
            Refusal::NotFoundInRuntime(_) | Refusal::Exited { .. } | Refusal::Run(_) => {
                plain(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
            Refusal::Form => plain(StatusCode::PAYLOAD_TOO_LARGE, why),
            Refusal::Stream(error) => text(error.status(), why),
            Refusal::Runtime(error) if error.is_not_found() => plain(StatusCode::NOT_FOUND, why),
            Refusal::Runtime(error) if error.is_exhausted() => {
                let mut response = plain(StatusCode::TOO_MANY_REQUESTS, why);
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(TRY_AGAIN_IN));
                response
            }
            Refusal::Runtime(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, why),
        }
    }
}

impl Streams {
    async fn exec(&self, target: Target, request: Request) -> Result<Response, Refusal> {
        let wanted = wanted(request.uri().query())?;
        let pod = self.pod(&target)?;
        let id = self.container(&pod, &target).await?.ok_or_else(|| no_container(&target))?;
        check(&request)?;
        let cmd = values(request.uri().query(), "command").collect();
        let Wanted { stdin, stdout, stderr, tty } = wanted;
        let asked = v1::ExecRequest { container_id: id, cmd, tty, stdin, stdout, stderr };
        self.connect("exec", self.runtime.exec(asked).await?, request, wanted).await
    }

    async fn attach(&self, target: Target, request: Request) -> Result<Response, Refusal> {
        let wanted = wanted(request.uri().query())?;
        let pod = self.pod(&target)?;
        let full_name = format!("{}_{}", target.pod, target.namespace);
        let no_container = || {
            Refusal::NotFoundInRuntime(format!("container {} not found in pod {full_name}", target.container))
        };
        let id = self.container(&pod, &target).await?.ok_or_else(no_container)?;
        if target.uid.as_deref().is_some_and(|uid| *uid != *pod.pod.metadata.uid) {
            return Err(Refusal::NotFoundInRuntime(format!("pod {full_name} not found")));
        }
        // The container has a terminal or it has none, whatever is asked for.
        let tty = has_terminal(&pod.pod, &target.container).ok_or_else(no_container)?;
        check(&request)?;
        let Wanted { stdin, stdout, stderr, .. } = wanted;
        let asked = v1::AttachRequest { container_id: id, stdin, tty, stdout, stderr };
        self.connect("attach", self.runtime.attach(asked).await?, request, wanted).await
    }

    async fn port_forward(&self, target: Target, request: Request) -> Result<Response, Refusal> {
        let is_tunnel = self.extends_websockets && is_tunnel(request.headers());
        let port = match is_websocket(request.headers()) && !is_tunnel {
            true => ports(request.uri().query())?,
            false => Vec::new(),
        };
        let pod = self.pod(&target)?;
        let uid = &*pod.pod.metadata.uid;
        if target.uid.as_deref().is_some_and(|wanted| wanted != uid) {
            return Err(Refusal::OtherPod);
        }
        let sandbox = self.runtime.ready_sandbox(uid).await?.ok_or_else(|| {
            let full_name = format!("{}_{}", target.pod, target.namespace);
            Refusal::NotFoundInRuntime(format!("pod not found ({})", go_quote(&full_name)))
        })?;
        check(&request)?;
        let url = self.runtime.port_forward(v1::PortForwardRequest { pod_sandbox_id: sandbox, port }).await?;
        let response = match is_tunnel {
            true => {
                self.metrics.websockets.with(["portforward"]).increment();
                self.streamer.tunnel(&url, request).await?
            }
            false => self.streamer.pass(&url, request).await?,
        };
        Ok(response.map(Body::from))
    }

    async fn run(&self, target: Target, request: Request) -> Result<Response, Refusal> {
        let pod = self.pod(&target)?;
        let command = command_to_run(request).await?;
        let id = self.container(&pod, &target).await.map_err(Refusal::Run)?;
        let id = id.ok_or_else(|| no_container(&target))?;
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let output = self.runtime.run(&id, &words).await.map_err(Refusal::Run)?;
        if output.exit_code != 0 {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Refusal::Exited { command, code: output.exit_code, stderr });
        }
        let written = [output.stdout, output.stderr].concat();
        Ok(match written.is_empty() {
            true => StatusCode::OK.into_response(),
            // Upstream calls it that, whatever it is.
            false => ([(CONTENT_TYPE, "application/json")], written).into_response(),
        })
    }

    /// Connects a client with the runtime's address for its stream.
    async fn connect(
        &self,
        subresource: &str,
        url: String,
        request: Request,
        wanted: Wanted,
    ) -> Result<Response, Refusal> {
        let response = match self.extends_websockets && is_v5(request.headers()) {
            true => {
                self.metrics.websockets.with([subresource]).increment();
                self.streamer.translate(url, request, wanted)?
            }
            false => self.streamer.pass(&url, request).await?,
        };
        Ok(response.map(Body::from))
    }

    fn pod(&self, target: &Target) -> Result<Reported, Refusal> {
        let statuses = self.node.agent().map(|agent| agent.statuses).unwrap_or_default();
        find(&statuses, &target.namespace, &target.pod).ok_or(Refusal::NoPod)
    }

    /// The runtime is asked: the pod's worker may not have seen yet that the container ended.
    async fn container(&self, pod: &Reported, target: &Target) -> Result<Option<String>, Error> {
        self.runtime.running_container(&pod.pod.metadata.uid, &target.container).await
    }
}

/// What is to be run: what the form in the body says comes before what the path says.
async fn command_to_run(request: Request) -> Result<String, Refusal> {
    let (parts, body) = request.into_parts();
    let form = match is_form(&parts.headers) {
        true => to_bytes(body, LARGEST_FORM).await.map_err(|_| Refusal::Form)?,
        false => Default::default(),
    };
    let form = String::from_utf8_lossy(&form);
    let mut commands = values(Some(&form), "cmd").chain(values(parts.uri.query(), "cmd"));
    Ok(commands.next().unwrap_or_default())
}

fn is_form(headers: &HeaderMap) -> bool {
    let of = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = of.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// The runtime keeps an address for a while, so it is asked for one only for who can use it.
fn check(request: &Request) -> Result<(), Refusal> {
    match is_upgrade(request.headers()) && request.method() != Method::HEAD {
        true => Ok(()),
        false => Err(StreamError::NoUpgrade.into()),
    }
}

fn no_container(target: &Target) -> Refusal {
    Refusal::NotFoundInRuntime(format!("container not found ({})", go_quote(&target.container)))
}

fn wanted(query: Option<&str>) -> Result<Wanted, Refusal> {
    let is_set = |name| values(query, name).next().is_some_and(|value| value == "1");
    let (stdin, stdout, tty) = (is_set("input"), is_set("output"), is_set("tty"));
    // A terminal has one output.
    let stderr = is_set("error") && !tty;
    match stdin || stdout || stderr {
        true => Ok(Wanted { stdin, stdout, stderr, tty }),
        false => Err(Refusal::Bad("you must specify at least 1 of stdin, stdout, stderr".to_owned())),
    }
}

fn ports(query: Option<&str>) -> Result<Vec<i32>, Refusal> {
    let mut ports = Vec::new();
    for text in values(query, PORT) {
        if text.is_empty() {
            return Err(Refusal::Bad(format!("query parameter {PORT:?} cannot be empty")));
        }
        for port in text.split(',') {
            // Go takes no sign there.
            let number = if port.starts_with('+') { "" } else { port };
            match number.parse::<u16>() {
                Ok(0) => return Err(Refusal::Bad(format!("port {} must be > 0", go_quote(&text)))),
                Ok(port) => ports.push(port.into()),
                Err(error) => {
                    let why = match error.kind() {
                        std::num::IntErrorKind::PosOverflow => "value out of range",
                        _ => "invalid syntax",
                    };
                    let (text, port) = (go_quote(&text), go_quote(port));
                    let why =
                        format!("unable to parse {text} as a port: strconv.ParseUint: parsing {port}: {why}");
                    return Err(Refusal::Bad(why));
                }
            }
        }
    }
    match ports.is_empty() {
        true => Err(Refusal::Bad(format!("query parameter {PORT:?} is required"))),
        false => Ok(ports),
    }
}

/// Whether a container has a terminal; nothing where the pod has no such container.
fn has_terminal(pod: &Pod, name: &str) -> Option<bool> {
    let spec = &pod.spec;
    let ephemeral = spec.ephemeral_containers.iter().map(|ephemeral| &ephemeral.container);
    let mut containers = spec.containers.iter().chain(&spec.init_containers).chain(ephemeral);
    containers.find(|container| *container.name == *name).map(|container| container.tty)
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
