//! One HTTP/1 request and its answer, over a connection that is there.
//!
//! Who connects, how (by TLS, over a unix socket), for how long and where a redirect leads differs from caller to
//! caller. This is what is the same for all of them.

use std::pin::pin;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::http::response::Parts;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Why an exchange broke off. The text is that of the cause.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Before the head of an answer was there.
    #[error(transparent)]
    Head(hyper::Error),
    /// Within the body of the answer.
    #[error(transparent)]
    Body(hyper::Error),
}

/// Sends a request and reads its answer. Of the body no more is read than `most` says once the head is there: whoever
/// wants to know whether it goes on asks for a byte more.
///
/// All of it is in this one future: nothing is spawned, and the connection goes away with it.
pub async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    request: Request<Bytes>,
    most: impl FnOnce(&Parts) -> usize,
) -> Result<Response<Vec<u8>>, ExchangeError> {
    let handshake = http1::Builder::new().title_case_headers(true).handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(ExchangeError::Head)?;
    let call = async {
        let response = sender.send_request(request.map(Full::new)).await.map_err(ExchangeError::Head)?;
        let (head, body) = response.into_parts();
        let most = most(&head);
        Ok(Response::from_parts(head, read(body, most).await?))
    };
    let (mut call, mut connection) = (pin!(call), pin!(connection));
    tokio::select! {
        biased;
        answer = &mut call => answer,
        // Whatever it ended with, the call knows it too.
        _ = &mut connection => call.await,
    }
}

async fn read(mut incoming: Incoming, most: usize) -> Result<Vec<u8>, ExchangeError> {
    let mut body = Vec::new();
    while body.len() < most {
        let Some(frame) = incoming.frame().await else { break };
        if let Some(data) = frame.map_err(ExchangeError::Body)?.data_ref() {
            body.extend_from_slice(data);
        }
    }
    body.truncate(most);
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    /// A server that says this to whatever it is asked, and then keeps the connection open, or not.
    fn server(answer: &'static str, stays: bool) -> DuplexStream {
        let (ours, mut theirs) = duplex(1 << 16);
        tokio::spawn(async move {
            let _ = theirs.read(&mut [0; 1024]).await;
            let _ = theirs.write_all(answer.as_bytes()).await;
            if stays {
                std::future::pending::<()>().await;
            }
        });
        ours
    }

    async fn ask(stream: DuplexStream, most: usize) -> Result<Response<Vec<u8>>, ExchangeError> {
        exchange(stream, Request::new(Bytes::new()), |_| most).await
    }

    const HELLO: &str = "HTTP/1.1 203 OK\r\nContent-Length: 5\r\n\r\nhello";

    #[tokio::test]
    async fn an_answer_has_its_head_and_its_body() {
        for stays in [false, true] {
            let answer = ask(server(HELLO, stays), 100).await.unwrap();
            assert_eq!((answer.status().as_u16(), answer.body().as_slice()), (203, &b"hello"[..]));
        }
    }

    #[tokio::test]
    async fn no_more_of_a_body_is_read_or_awaited_than_is_wanted() {
        let endless = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhello";
        for (most, expected) in [(5, "hello"), (2, "he"), (0, "")] {
            let answer = ask(server(endless, true), most).await.unwrap();
            assert_eq!(answer.body(), expected.as_bytes());
        }
    }

    #[tokio::test]
    async fn where_it_broke_off_is_told() {
        assert!(matches!(ask(server("", false), 9).await, Err(ExchangeError::Head(_))));
        assert!(matches!(ask(server("no HTTP at all", false), 9).await, Err(ExchangeError::Head(_))));
        let half = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhello";
        assert!(matches!(ask(server(half, false), 9).await, Err(ExchangeError::Body(_))));
    }

    #[tokio::test]
    async fn a_request_is_sent_with_its_body_and_titled_headers() {
        let (ours, mut theirs) = duplex(1 << 16);
        let asked = tokio::spawn(async move {
            let mut buffer = [0; 1024];
            let length = theirs.read(&mut buffer).await.unwrap();
            theirs.write_all(HELLO.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        });
        let request = Request::post("/a").header("x-b", "c").body(Bytes::from("body")).unwrap();
        exchange(ours, request, |_| 0).await.unwrap();
        assert_eq!(asked.await.unwrap(), "POST /a HTTP/1.1\r\nX-B: c\r\nContent-Length: 4\r\n\r\nbody");
    }
}
