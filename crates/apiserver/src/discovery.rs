//! What there is: groups, versions and kinds; health, version, OpenAPI.

use crate::answer::Document;
use crate::cluster::Cluster;
use crate::request::Request;
use crate::status::Refusal;

/// The answer to a path that is no object's; none if nothing is there.
pub(crate) fn answer(cluster: &Cluster, request: &Request) -> Result<Option<Document>, Refusal> {
    let _ = cluster;
    match request.path.as_str() {
        "/healthz" | "/livez" | "/readyz" => Ok(Some(Document::text(200, "ok"))),
        _ => Ok(None),
    }
}
