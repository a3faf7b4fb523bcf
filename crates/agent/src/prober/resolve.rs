//! The addresses of a name: from the node's table of hosts, else from its name servers.
//!
//! The C library would be asked on a thread of its own, which stays behind when its answer is not waited for any more,
//! and there are so many threads only: names that do not resolve would hold up the probes of others. Here a question is
//! a socket that goes away with whoever asked.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crablet_core::translate::parse_resolv_conf;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// How long a name server may take before the next one is asked, and how often all are asked, where nothing is said.
const PATIENCE: Duration = Duration::from_secs(5);
const ROUNDS: usize = 2;
/// An answer is not larger than this over UDP.
const LARGEST: usize = 4096;
/// Set in the third byte of an answer that did not fit.
const TRUNCATED: u8 = 0x02;
const A: u16 = 1;
const AAAA: u16 = 28;

/// Who knows names.
#[derive(Debug, Default, Clone)]
pub(super) struct Resolver {
    hosts: String,
    servers: Vec<SocketAddr>,
    search: Vec<String>,
    /// A name with as many dots is asked for as it is first.
    dots: usize,
}

/// Why a name has no addresses, in Go's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    #[error("no such host")]
    NoSuchHost,
    #[error("i/o timeout")]
    Timeout,
    #[error("server misbehaving")]
    Misbehaving,
    #[error("cannot unmarshal DNS message")]
    Malformed,
    #[error(transparent)]
    Socket(#[from] io::Error),
}

impl Resolver {
    /// The node's. Its two files are small and are read anew each time, as the C library does.
    pub(super) fn of_node() -> Resolver {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let conf = parse_resolv_conf(&read("/etc/resolv.conf")).unwrap_or_default();
        let dots = conf.options.iter().find_map(|option| option.strip_prefix("ndots:")?.parse().ok());
        let servers = conf.servers.iter().filter_map(|server| server.parse::<IpAddr>().ok());
        Resolver {
            hosts: read("/etc/hosts"),
            servers: servers.map(|server| SocketAddr::new(server, 53)).collect(),
            search: conf.searches.iter().map(ToString::to_string).collect(),
            dots: dots.unwrap_or(1),
        }
    }

    /// The addresses of a name, IPv4 first, or why there are none.
    pub(super) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        let known = self.in_table(name);
        if !known.is_empty() {
            return Ok(known);
        }
        let mut why = LookupError::NoSuchHost;
        for candidate in self.candidates(name) {
            match self.ask_all(&candidate).await {
                Ok(found) if !found.is_empty() => return Ok(found),
                Ok(_) => {}
                Err(reason) => why = reason,
            }
        }
        Err(why)
    }

    fn in_table(&self, name: &str) -> Vec<IpAddr> {
        let name = name.trim_end_matches('.');
        let lines = self.hosts.lines().map(|line| line.split('#').next().unwrap_or_default());
        let of_line = lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = words.next()?.parse().ok()?;
            words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
        });
        of_line.collect()
    }

    fn candidates(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.trim_end_matches('.').to_owned()];
        }
        let mut all: Vec<String> = self.search.iter().map(|domain| format!("{name}.{domain}")).collect();
        let first = name.matches('.').count() >= self.dots;
        all.insert(if first { 0 } else { all.len() }, name.to_owned());
        all
    }

    async fn ask_all(&self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        let mut why = LookupError::NoSuchHost;
        for _ in 0..ROUNDS {
            for server in &self.servers {
                let both = async { tokio::join!(ask(*server, name, A), ask(*server, name, AAAA)) };
                match timeout(PATIENCE, both).await {
                    Ok((Ok(mut four), Ok(six))) => {
                        four.extend(six);
                        return Ok(four);
                    }
                    Ok((Ok(found), Err(_)) | (Err(_), Ok(found))) if !found.is_empty() => return Ok(found),
                    Ok((Err(reason), _) | (_, Err(reason))) => why = reason,
                    Err(_) => why = LookupError::Timeout,
                }
            }
        }
        Err(why)
    }
}

/// Asks a server. A name that it does not know has no addresses.
async fn ask(server: SocketAddr, name: &str, kind: u16) -> Result<Vec<IpAddr>, LookupError> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    // The kernel chose a port at random, and only that server may answer to it.
    let id = socket.local_addr()?.port();
    let question = question(id, name, kind)?;
    let mut answer = by_datagram(&socket, id, &question).await?;
    if answer.get(2).is_some_and(|flags| flags & TRUNCATED != 0) {
        answer = by_stream(server, &question).await?;
    }
    let read = if number(&answer, 0) == Some(id) { read_answer(&answer, kind) } else { None };
    read.unwrap_or(Err(LookupError::Malformed))
}

async fn by_datagram(socket: &UdpSocket, id: u16, question: &[u8]) -> io::Result<Vec<u8>> {
    socket.send(question).await?;
    let mut buffer = vec![0; LARGEST];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if number(&buffer[..length], 0) == Some(id) {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}

/// The same question where the answer is too long for a datagram. Both go with their length in front.
async fn by_stream(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), question].concat()).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

fn question(id: u16, name: &str, kind: u16) -> Result<Vec<u8>, LookupError> {
    let mut message = Vec::with_capacity(name.len() + 18);
    message.extend_from_slice(&id.to_be_bytes());
    // Recursion is wanted; one question.
    message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length));
        message.push(length.ok_or(LookupError::NoSuchHost)?);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    Ok(message)
}

/// What an answer says, or nothing where it makes no sense.
fn read_answer(message: &[u8], kind: u16) -> Option<Result<Vec<IpAddr>, LookupError>> {
    match message.get(3)? & 0x0f {
        0 | 3 => {}
        _ => return Some(Err(LookupError::Misbehaving)),
    }
    let (questions, answers) = (number(message, 4)?, number(message, 6)?);
    let mut at = 12;
    for _ in 0..questions {
        at = after_name(message, at)? + 4;
    }
    let mut found = Vec::new();
    for _ in 0..answers {
        at = after_name(message, at)?;
        let (is, length) = (number(message, at)?, usize::from(number(message, at + 8)?));
        let data = message.get(at + 10..at + 10 + length)?;
        if is == kind {
            let four = <[u8; 4]>::try_from(data).map(IpAddr::from);
            found.push(four.or_else(|_| <[u8; 16]>::try_from(data).map(IpAddr::from)).ok()?);
        }
        at += 10 + length;
    }
    Some(Ok(found))
}

fn after_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match usize::from(*message.get(at)?) {
            0 => return Some(at + 1),
            // The rest stands elsewhere.
            length if length >= 0xc0 => return Some(at + 2),
            length => at += length + 1,
        }
    }
}

fn number(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// A name server that answers every question for IPv4 with this, and knows no IPv6 address.
    async fn server(address: Option<[u8; 4]>) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let at = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let mut answer = buffer[..length].to_vec();
                let is_a = answer[length - 3] == 1;
                answer[2] = 0x81;
                answer[3] = if address.is_none() { 3 } else { 0 };
                if let Some(address) = address.filter(|_| is_a) {
                    answer[7] = 1;
                    answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                    answer.extend_from_slice(&address);
                }
                let _ = socket.send_to(&answer, from).await;
            }
        });
        at
    }

    /// A name server whose answers, as many addresses as it is told, do not fit into a datagram.
    async fn verbose_server(addresses: u8) -> SocketAddr {
        let (datagrams, at, streams) = loop {
            let datagrams = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let at = datagrams.local_addr().unwrap();
            // Somebody else may have that port for streams.
            if let Ok(streams) = TcpListener::bind(at).await {
                break (datagrams, at, streams);
            }
        };
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = datagrams.recv_from(&mut buffer).await {
                let mut answer = buffer[..length].to_vec();
                answer[2] = 0x81 | TRUNCATED;
                let _ = datagrams.send_to(&answer, from).await;
            }
        });
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = streams.accept().await {
                let length = stream.read_u16().await.unwrap();
                let mut answer = vec![0; usize::from(length)];
                stream.read_exact(&mut answer).await.unwrap();
                answer[2] = 0x81;
                if answer[usize::from(length) - 3] == 1 {
                    answer[7] = addresses;
                    for last in 0..addresses {
                        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, last]);
                    }
                }
                let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                stream.write_all(&[&length, answer.as_slice()].concat()).await.unwrap();
            }
        });
        at
    }

    fn asking(servers: &[SocketAddr]) -> Resolver {
        Resolver {
            servers: servers.to_vec(),
            search: vec!["svc.local".into()],
            dots: 2,
            ..Resolver::default()
        }
    }

    #[tokio::test]
    async fn a_name_server_tells_addresses() {
        let resolver = asking(&[server(Some([10, 1, 2, 3])).await]);
        assert_eq!(resolver.addresses("db").await.unwrap(), vec![IpAddr::from([10, 1, 2, 3])]);
    }

    #[tokio::test]
    async fn an_answer_that_does_not_fit_into_a_datagram_is_asked_for_by_tcp() {
        let resolver = asking(&[verbose_server(200).await]);
        let expected: Vec<IpAddr> = (0..200).map(|last| IpAddr::from([10, 0, 0, last])).collect();
        assert_eq!(resolver.addresses("db").await.unwrap(), expected);
    }

    #[tokio::test]
    async fn a_name_that_nobody_knows_has_no_address() {
        let resolver = asking(&[server(None).await]);
        assert!(matches!(resolver.addresses("db").await, Err(LookupError::NoSuchHost)));
        assert!(matches!(resolver.addresses("a..b").await, Err(LookupError::NoSuchHost)));
        assert!(matches!(Resolver::default().addresses("db").await, Err(LookupError::NoSuchHost)));
    }

    #[tokio::test]
    async fn the_table_of_hosts_goes_first() {
        let hosts = "127.0.0.1 localhost # here\n10.0.0.9\tdb.local DB\n# 10.0.0.8 db\n::1 db\n".into();
        let resolver = Resolver { hosts, ..Resolver::default() };
        let expected = ["10.0.0.9", "::1"].map(|address| address.parse::<IpAddr>().unwrap());
        assert_eq!(resolver.addresses("db").await.unwrap(), expected.to_vec());
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_server_that_does_not_answer_is_given_up() {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let resolver = asking(&[silent.local_addr().unwrap()]);
        assert!(matches!(resolver.addresses("db.").await, Err(LookupError::Timeout)));
    }

    #[test]
    fn domains_are_searched_before_or_after_the_name_itself() {
        let resolver = asking(&[]);
        assert_eq!(resolver.candidates("db"), ["db.svc.local", "db"]);
        assert_eq!(resolver.candidates("a.b.c"), ["a.b.c", "a.b.c.svc.local"]);
        assert_eq!(resolver.candidates("db."), ["db"]);
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_refused() {
        let whole =
            [&[0, 7, 0x81, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4][..], &[1, 2, 3, 4]]
                .concat();
        assert_eq!(read_answer(&whole, A).unwrap().unwrap(), [IpAddr::from([1, 2, 3, 4])]);
        for length in 0..whole.len() {
            assert!(read_answer(&whole[..length], A).is_none(), "{length}");
        }
    }
}
