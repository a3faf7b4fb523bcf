//! Finding out that who is at the other end of a TCP connection is gone without a word.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// As Go has it for the connections that it takes: who is silent is asked after this time, and then this often.
const IDLE: Duration = Duration::from_secs(15);
const INTERVAL: Duration = Duration::from_secs(15);
/// How many questions may stay without an answer.
const PROBES: u32 = 9;

/// Has the kernel ask whether the other end is still there while nothing is said; where nobody answers, the connection
/// fails.
pub fn keep_alive(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_tcp_keepidle(socket, IDLE)?;
    sockopt::set_tcp_keepintvl(socket, INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, PROBES)?;
    Ok(sockopt::set_socket_keepalive(socket, true)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_that_was_taken_asks_as_often_as_upstreams() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (taken, _) = listener.accept().unwrap();
        assert!(!sockopt::socket_keepalive(&taken).unwrap());
        keep_alive(&taken).unwrap();
        assert!(sockopt::socket_keepalive(&taken).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&taken).unwrap(), Duration::from_secs(15));
        assert_eq!(sockopt::tcp_keepintvl(&taken).unwrap(), Duration::from_secs(15));
        assert_eq!(sockopt::tcp_keepcnt(&taken).unwrap(), 9);
    }
}
