//! A router on a real socket, and a client that shows exactly what it answers.

use std::net::SocketAddr;

use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Server(SocketAddr);

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Server {
    pub(crate) async fn start(router: Router) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        tokio::spawn(crate::serve(listener, router, std::future::pending()));
        Server(address)
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        let mut stream = TcpStream::connect(self.0).await.expect("the server listens");
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("the server reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("the server answers");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let status = head[9..12].parse().expect("a status");
        Answer { status, head: format!("{head}\r\n"), body: body.to_owned() }
    }
}
