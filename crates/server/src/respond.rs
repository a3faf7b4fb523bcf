//! Answers as text and as JSON, with the headers that upstream gives them.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};

pub(crate) fn text(status: StatusCode, body: impl Into<String>) -> Response {
    let headers = [(CONTENT_TYPE, "text/plain; charset=utf-8"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, headers, body.into()).into_response()
}

/// As upstream's router answers, which says less of how it is to be read.
pub(crate) fn plain(status: StatusCode, body: impl Into<String>) -> Response {
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], body.into()).into_response()
}

pub(crate) fn json(body: impl Into<Body>) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (headers, body.into()).into_response()
}

/// JSON as upstream's router gives it.
pub(crate) fn plain_json(body: impl Into<Body>) -> Response {
    ([(CONTENT_TYPE, "application/json")], body.into()).into_response()
}

/// The answer for a path that there is not.
pub(crate) async fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}
