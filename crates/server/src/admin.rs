//! What an administrator can ask of a running agent.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post};
use crablet_logging::{Format, Handle, VModule};
use tracing::info;

use crate::explain::explain;
use crate::health::{Health, health_routes};
use crate::manifests;
use crate::node::NodeHandles;
use crate::pods::list_after;
use crate::respond::{json, not_found, text};

/// The longest value that a flag can be set to.
pub(crate) const LARGEST_FLAG: usize = 64 * 1024;

/// The administration of a running agent:
///
/// - `PUT /debug/flags/v`, `/debug/flags/vmodule`, `/debug/flags/logging-format`: change the log; the body is the
///   new value.
/// - `GET /debug/flags`: their values.
/// - `GET /configz`: the configuration in force, as `{"kubeletconfig": …}`.
/// - `GET /healthz`, `/healthz/<check>`.
/// - `GET /pods`: all pods, as a `PodList` with a version; with `?after=<version>`, once there is another one.
/// - `POST /pods?source=<file>`: takes in the pod of a manifest. `DELETE /pods/<namespace>/<name>`: lets it go.
/// - `GET /explain`, `/explain?pod=<pod>`: why pods are as they are; with `output=json` as JSON.
pub fn admin_router(
    health: Health,
    logging: Handle,
    kubelet_config: &serde_json::Value,
    node: NodeHandles,
) -> Router {
    let configz: Arc<str> = serde_json::json!({ "kubeletconfig": kubelet_config }).to_string().into();
    let apply = post(manifests::apply).layer(DefaultBodyLimit::max(manifests::LARGEST_BODY));
    let pods = Router::new()
        .route("/pods", apply.get(list_after))
        .route("/pods/{namespace}/{name}", delete(manifests::delete))
        .route("/explain", get(explain))
        .with_state(node);
    Router::new()
        .route("/debug/flags", get(show_flags))
        .route("/debug/flags/{flag}", any(set_flag))
        .with_state(logging)
        .layer(DefaultBodyLimit::max(LARGEST_FLAG))
        .merge(pods)
        .route("/configz", get(async move || json(configz.to_string())))
        .merge(health_routes(health))
        .fallback(not_found)
}

async fn show_flags(State(logging): State<Handle>) -> Response {
    let values = format!(
        "v={}\nvmodule={}\nlogging-format={}\n",
        logging.verbosity(),
        logging.vmodule(),
        logging.format()
    );
    text(StatusCode::OK, values)
}

async fn set_flag(
    State(logging): State<Handle>,
    Path(flag): Path<String>,
    method: Method,
    body: String,
) -> Response {
    match Flag::named(&flag) {
        Some(known) => change(&logging, &known, &method, &body, "the admin socket"),
        None => text(StatusCode::NOT_FOUND, "no such flag: there are v, vmodule and logging-format\n"),
    }
}

/// `PUT /debug/flags/v`.
pub(crate) fn set_verbosity(logging: &Handle, method: &Method, body: &str) -> Response {
    change(logging, &Flag::Verbosity, method, body, "the node's API")
}

fn change(logging: &Handle, flag: &Flag, method: &Method, body: &str, by: &str) -> Response {
    if method != Method::PUT {
        return flag_text(StatusCode::NOT_ACCEPTABLE, "unsupported http method\n");
    }
    let value = body.trim();
    match flag.set(logging, value) {
        Ok(done) => {
            info!(flag = flag.name(), value, "Logging was changed over {by}");
            flag_text(StatusCode::OK, done + "\n")
        }
        Err(reason) => flag_text(StatusCode::BAD_REQUEST, reason + "\n"),
    }
}

/// As upstream answers whoever changes a flag.
fn flag_text(status: StatusCode, body: impl Into<String>) -> Response {
    let headers = [(CONTENT_TYPE, "text/plain"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, headers, body.into()).into_response()
}

/// A flag that can be changed at run time.
enum Flag {
    Verbosity,
    VModule,
    Format,
}

impl Flag {
    fn named(name: &str) -> Option<Flag> {
        match name {
            "v" => Some(Flag::Verbosity),
            "vmodule" => Some(Flag::VModule),
            "logging-format" => Some(Flag::Format),
            _ => None,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Flag::Verbosity => "v",
            Flag::VModule => "vmodule",
            Flag::Format => "logging-format",
        }
    }

    /// Changes the flag and says so, in upstream's words where upstream has such a flag.
    fn set(&self, logging: &Handle, value: &str) -> Result<String, String> {
        match self {
            Flag::Verbosity => {
                let verbosity =
                    value.parse().ok().filter(|verbosity| i32::try_from(*verbosity).is_ok()).ok_or_else(
                        || format!("verbosity {value:?} is not a whole number from 0 to {}", i32::MAX),
                    )?;
                logging.set_verbosity(verbosity);
                Ok(format!("successfully set klog.logging.verbosity to {verbosity}"))
            }
            Flag::VModule => {
                let vmodule: VModule = value.parse().map_err(|error| format!("{error}"))?;
                let done = format!("successfully set vmodule to {:?}", vmodule.to_string());
                logging.set_vmodule(vmodule);
                Ok(done)
            }
            Flag::Format => {
                let format: Format = value.parse().map_err(|error| format!("{error}"))?;
                logging.set_format(format);
                Ok(format!("successfully set logging-format to {format}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::waiting_node;
    use crate::{bind_admin_socket, request, serve};
    use std::path::PathBuf;

    struct Admin {
        logging: Handle,
        socket: PathBuf,
        _folder: tempfile::TempDir,
    }

    impl Admin {
        async fn start() -> Admin {
            let folder = tempfile::tempdir().unwrap();
            let socket = folder.path().join("admin.sock");
            let (_, logging) = crablet_logging::subscriber(Default::default(), std::io::sink());
            let config = serde_json::json!({ "kind": "KubeletConfiguration", "maxPods": 110 });
            let router = admin_router(Health::new(), logging.clone(), &config, waiting_node("nothing"));
            let listener = bind_admin_socket(&socket).await.unwrap();
            tokio::spawn(serve(listener, router, std::future::pending()));
            Admin { logging, socket, _folder: folder }
        }

        async fn ask(&self, method: Method, path: &str, body: &str) -> (u16, String) {
            let (status, body) = request(&self.socket, method, path, body).await.unwrap();
            (status.as_u16(), body)
        }

        async fn put(&self, flag: &str, value: &str) -> (u16, String) {
            self.ask(Method::PUT, &format!("/debug/flags/{flag}"), value).await
        }
    }

    #[tokio::test]
    async fn the_log_is_changed_and_shown() {
        let admin = Admin::start().await;
        assert_eq!(
            admin.put("v", "4\n").await,
            (200, "successfully set klog.logging.verbosity to 4\n".to_owned())
        );
        assert_eq!(
            admin.put("vmodule", "worker=6,gc*=5").await,
            (200, "successfully set vmodule to \"worker=6,gc*=5\"\n".to_owned())
        );
        assert_eq!(
            admin.put("logging-format", "json").await,
            (200, "successfully set logging-format to json\n".to_owned())
        );
        assert_eq!((admin.logging.verbosity(), admin.logging.format()), (4, Format::Json));
        assert_eq!(
            admin.ask(Method::GET, "/debug/flags", "").await,
            (200, "v=4\nvmodule=worker=6,gc*=5\nlogging-format=json\n".to_owned())
        );
        assert_eq!(admin.put("vmodule", "").await, (200, "successfully set vmodule to \"\"\n".to_owned()));
    }

    #[tokio::test]
    async fn a_bad_value_is_refused_with_the_reason_and_changes_nothing() {
        let admin = Admin::start().await;
        for (flag, value, reason) in [
            ("v", "loud", "verbosity \"loud\" is not a whole number from 0 to 2147483647\n"),
            ("v", "-1", "verbosity \"-1\" is not a whole number from 0 to 2147483647\n"),
            ("vmodule", "worker", "vmodule item \"worker\": expected pattern=N, for example worker=4\n"),
            ("logging-format", "xml", "log format \"xml\" is not known: expected text or json\n"),
        ] {
            assert_eq!(admin.put(flag, value).await, (400, reason.to_owned()));
        }
        assert_eq!(admin.logging.verbosity(), 0);
        assert_eq!(admin.put("nosuch", "1").await.0, 404);
        assert_eq!(
            admin.ask(Method::GET, "/debug/flags/v", "").await,
            (406, "unsupported http method\n".to_owned())
        );
        assert_eq!(admin.put("v", &"1".repeat(LARGEST_FLAG + 1)).await.0, 413);
    }

    #[tokio::test]
    async fn configuration_and_health_are_shown() {
        let admin = Admin::start().await;
        let (status, body) = admin.ask(Method::GET, "/configz", "").await;
        assert_eq!(status, 200);
        let configz: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(configz["kubeletconfig"]["maxPods"], 110);
        assert_eq!(admin.ask(Method::GET, "/healthz", "").await, (200, "ok".to_owned()));
        assert_eq!(admin.ask(Method::GET, "/nosuch", "").await.0, 404);
    }
}
