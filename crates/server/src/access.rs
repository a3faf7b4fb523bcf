//! Who may ask the node what: every request to its main port comes through here.

mod attributes;
mod authentication;
mod authorization;
mod error;
mod metrics;
mod retry;
mod reviews;
mod user;
mod websocket_token;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use crablet_client::Client;
use crablet_host::clock::Clock;
use crablet_logging::ErrorChain;
use crablet_metrics::{RegisterError, Registry};
use tracing::{debug, warn};

use crate::respond::{not_found, plain};
use attributes::Attributes;
pub use authentication::Authorities;
pub(crate) use authentication::Shown;
use authentication::{Authentication, Tokens};
use authorization::Authorization;
pub use authorization::Lasts;
use metrics::{ReviewMetrics, TokenMetrics};
use websocket_token::without_token;

/// How long the API server may take for one answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Who may ask the node what. Clones are the same.
#[derive(Clone)]
pub struct Access(Arc<Parts>);

struct Parts {
    authentication: Authentication,
    authorization: Authorization,
    clock: Clock,
}

/// What decides it.
pub struct AccessSettings {
    /// Whose signatures on client certificates count.
    pub authorities: Authorities,
    /// Whether the API server is asked about tokens, and how long its answers last.
    pub tokens: Option<Duration>,
    pub allows_anonymous: bool,
    /// Whether the API server is asked what is allowed, and how long its answers last; otherwise whoever is known may
    /// do everything.
    pub reviews: Option<Lasts>,
    /// Where questions to the API server are counted.
    pub metrics: Registry,
}

/// Why nobody can be let in.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("no client provided, cannot use webhook authentication")]
    Authentication,
    #[error("no client provided, cannot use webhook authorization")]
    Authorization,
    #[error("cannot register metrics")]
    Metrics(#[from] RegisterError),
}

impl Access {
    /// To the node of that name.
    pub fn new(
        settings: AccessSettings,
        node: &str,
        client: Option<Client>,
        clock: Clock,
    ) -> Result<Access, AccessError> {
        let client = client.map(|client| client.within(ANSWERS_WITHIN));
        let tokens = match settings.tokens {
            None => None,
            Some(lasts) => {
                let registry = &settings.metrics;
                let metrics = (ReviewMetrics::authentication(registry)?, TokenMetrics::register(registry)?);
                Some(Tokens::new(client.clone().ok_or(AccessError::Authentication)?, lasts, metrics))
            }
        };
        let authorization = match settings.reviews {
            None => Authorization::AlwaysAllow,
            Some(lasts) => {
                let metrics = ReviewMetrics::authorization(&settings.metrics)?;
                Authorization::asked(client.ok_or(AccessError::Authorization)?, node, lasts, Some(metrics))
            }
        };
        let AccessSettings { authorities, allows_anonymous, metrics, .. } = settings;
        let lifetimes = metrics::lifetimes(&metrics)?;
        let authentication = Authentication { authorities, tokens, allows_anonymous, lifetimes };
        Ok(Access(Arc::new(Parts { authentication, authorization, clock })))
    }
}

/// What stands before every path: who may ask, and what there is to ask for.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) access: Access,
    /// The first parts of paths that there are not here: nobody is asked about them.
    pub(crate) missing: Arc<[&'static str]>,
}

/// Lets a request pass whose sender may send it; answers it otherwise.
pub(crate) async fn guard(
    State(Guard { access, missing }): State<Guard>,
    mut request: Request,
    next: Next,
) -> Response {
    let attributes = Attributes::of(request.method(), request.uri().path());
    let Some(Attributes { verb, subresources, .. }) =
        attributes.filter(|found| !missing.contains(&found.root))
    else {
        return not_found().await;
    };
    let Parts { authentication, authorization, clock } = &*access.0;
    let shown = request.extensions().get::<Shown>().cloned().unwrap_or_default();
    let user = match authentication.user(&shown, request.headers(), clock.now()).await {
        Ok(user) => user,
        Err(error) => {
            // Strangers must not be able to fill the log.
            debug!(err = %ErrorChain(&error), verb, ?subresources, "Turned away somebody unknown");
            return plain(StatusCode::UNAUTHORIZED, "Unauthorized");
        }
    };
    without_token(request.headers_mut());
    for subresource in subresources {
        match authorization.allows(&user, verb, subresource).await {
            Ok(true) => return next.run(request).await,
            Ok(false) => {}
            Err(error) => {
                let name = &user.name;
                warn!(err = %error, user = %name, verb, subresource, "Cannot find out whether it is allowed");
                let why = format!(
                    "Authorization error (user={name}, verb={verb}, resource=nodes, subresource={subresource})"
                );
                return plain(StatusCode::INTERNAL_SERVER_ERROR, why);
            }
        }
    }
    debug!(user = %user.name, verb, ?subresources, "Forbidden");
    let subresources = subresources.join(" ");
    plain(
        StatusCode::FORBIDDEN,
        format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{subresources}])\n",
            user.name
        ),
    )
}
