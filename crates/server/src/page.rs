//! A page of metrics, as short as its reader takes it.

use std::io::{self, Write as _};

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use crablet_metrics::PAGE_CONTENT_TYPE;
use flate2::Compression;
use flate2::write::GzEncoder;
use tracing::debug;

/// What takes longer than this to compress is not done where others wait.
const SMALL: usize = 64 << 10;

/// Answers with a page, compressed where the request's headers say that it may be.
pub(crate) async fn page(text: String, headers: &HeaderMap) -> Response {
    let content_type = [(CONTENT_TYPE, PAGE_CONTENT_TYPE)];
    if !takes_gzip(headers) {
        return (content_type, text).into_response();
    }
    let compressed = match text.len() {
        ..=SMALL => gzip(&text),
        _ => {
            let compressing = tokio::task::spawn_blocking(move || gzip(&text)).await;
            compressing.unwrap_or_else(|error| Err(io::Error::other(error)))
        }
    };
    match compressed {
        Ok(bytes) => (content_type, [(CONTENT_ENCODING, "gzip")], bytes).into_response(),
        Err(error) => {
            debug!(err = %error, "A page could not be compressed");
            axum::http::StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Pages repeat themselves so much that more effort gains little.
fn gzip(text: &str) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

/// Whether gzip is wanted more than the page as it is, as upstream's handler of metrics judges it: what fits anything
/// means the page as it is.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let (mut gzip, mut plain) = (0.0, 0.0);
    for part in values.flat_map(|value| value.split(',')) {
        let (name, parameters) = part.split_once(';').unwrap_or((part, ""));
        let quality = match parameters.trim().strip_prefix("q=") {
            None => 1.0,
            Some(text) => text.trim().parse().unwrap_or(0.0),
        };
        match name.trim() {
            "gzip" => gzip = f64::max(gzip, quality),
            "identity" | "*" => plain = f64::max(plain, quality),
            _ => {}
        }
    }
    gzip > plain
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use axum::body::to_bytes;
    use flate2::read::GzDecoder;

    use super::*;

    fn accepting(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (ACCEPT_ENCODING, value.parse().unwrap())).collect()
    }

    #[test]
    fn gzip_is_for_who_wants_it_more_than_the_page_as_it_is() {
        for (values, expected) in [
            (&[][..], false),
            (&["gzip"], true),
            (&["deflate, gzip;q=0.5"], true),
            (&["br", " gzip ; q=0.1"], true),
            (&["gzip;q=0"], false),
            (&["gzip;q=x"], false),
            (&["*"], false),
            (&["gzip, *"], false),
            (&["gzip;q=0.9, identity;q=0.5"], true),
            (&["gzip;q=0.5, identity"], false),
            (&["zstd"], false),
        ] {
            assert_eq!(takes_gzip(&accepting(values)), expected, "{values:?}");
        }
    }

    #[tokio::test]
    async fn a_page_is_the_same_compressed_or_not_and_says_how_it_is_written() {
        for lines in [1, 10_000] {
            let text = "kubelet_runs{path=\"x\"} 3\n".repeat(lines);
            for accepted in [&[][..], &["gzip"]] {
                let response = page(text.clone(), &accepting(accepted)).await;
                let expected = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
                assert_eq!(response.headers()[CONTENT_TYPE], expected);
                let is_zipped = response.headers().get(CONTENT_ENCODING).is_some_and(|value| value == "gzip");
                assert_eq!(is_zipped, !accepted.is_empty());
                let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
                let mut read = String::new();
                match is_zipped {
                    true => GzDecoder::new(&*bytes).read_to_string(&mut read).unwrap(),
                    false => (&*bytes).read_to_string(&mut read).unwrap(),
                };
                assert!(read == text, "{lines} lines, {accepted:?}");
            }
        }
    }
}
