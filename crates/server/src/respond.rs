//! Answers as text and as JSON, with the headers that upstream gives them.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame, SizeHint};

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

/// The same body, which keeps something until it has ended or is given up.
pub(crate) fn until_end<T: Send + Unpin + 'static>(body: Body, kept: T) -> Body {
    Body::new(UntilEnd { body, _kept: kept })
}

struct UntilEnd<T> {
    body: Body,
    _kept: T,
}

impl<T: Unpin> hyper::body::Body for UntilEnd<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
