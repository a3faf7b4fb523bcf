use std::net::SocketAddr;

use crablet_client::Lane;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::server::{Manner, Server, acceptor};
use crate::{get, https};

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A proxy that tells what it was asked, and answers with this.
async fn proxy(answer: &'static str) -> (SocketAddr, mpsc::Receiver<String>) {
    proxy_within(None, answer).await
}

/// One that is spoken to within TLS, if it has something to speak it with.
async fn proxy_within(
    tls: Option<TlsAcceptor>,
    answer: &'static str,
) -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, heard) = mpsc::channel(10);
    tokio::spawn(async move {
        loop {
            let (ours, _) = listener.accept().await.unwrap();
            let mut ours: Box<dyn Stream> = match &tls {
                Some(tls) => Box::new(tls.accept(ours).await.unwrap()),
                None => Box::new(ours),
            };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(ours.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let target = head.split(' ').nth(1).unwrap().to_owned();
            asked.send(head).await.unwrap();
            ours.write_all(answer.as_bytes()).await.unwrap();
            if answer.contains("200") {
                let mut theirs = TcpStream::connect(target).await.unwrap();
                tokio::spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await;
                });
            }
        }
    });
    (address, heard)
}

#[tokio::test]
async fn a_server_is_reached_through_a_proxy() {
    let server = Server::start(Manner::default()).await;
    let (proxy, mut heard) = proxy("HTTP/1.1 200 Connection established\r\n\r\n").await;
    let mut config = server.kubeconfig();
    config.cluster.proxy_url = Some(format!("http://me:hunter2@{proxy}").into());
    assert_eq!(get(&https(&config), "/a", Lane::Common).await.unwrap(), "/a 1 nobody");
    let asked = heard.recv().await.unwrap();
    assert_eq!(
        asked,
        format!(
            "CONNECT {0} HTTP/1.1\r\nHost: {0}\r\nProxy-Authorization: Basic bWU6aHVudGVyMg==\r\n\r\n",
            server.address
        )
    );
}

#[tokio::test]
async fn a_proxy_may_have_a_certificate_of_its_own() {
    let server = Server::start(Manner::default()).await;
    let tls = acceptor(&server.pki, &["http/1.1"]);
    let (proxy, mut heard) = proxy_within(Some(tls), "HTTP/1.1 200 OK\r\n\r\n").await;
    let mut config = server.kubeconfig();
    config.cluster.proxy_url = Some(format!("https://{proxy}").into());
    assert_eq!(get(&https(&config), "/a", Lane::Common).await.unwrap(), "/a 1 nobody");
    assert!(heard.recv().await.unwrap().starts_with("CONNECT "));
}

#[tokio::test]
async fn a_proxy_that_says_no_is_told_without_its_password() {
    let server = Server::start(Manner::default()).await;
    let (proxy, _heard) = proxy("HTTP/1.1 403 Forbidden\r\n\r\n").await;
    let mut config = server.kubeconfig();
    config.cluster.proxy_url = Some(format!("http://me:hunter2@{proxy}").into());
    let error = get(&https(&config), "/a", Lane::Common).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the proxy http://{proxy} does not connect to {}: it says 403 Forbidden", server.address)
    );
}
