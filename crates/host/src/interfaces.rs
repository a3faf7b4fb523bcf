//! The addresses of the machine's network interfaces, by netlink, and that they change.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use tokio::net::UnixDatagram;

const GET_ADDRESS: u16 = 22;
const NEW_ADDRESS: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// A request for all that there is.
const DUMP: u16 = 0x1 | 0x300;
/// What is told of addresses of both families that come and go.
const GROUPS: u32 = 0x10 | 0x100;
const HEADER: usize = 16;
/// What stands before the attributes of an address.
const ADDRESS_HEADER: usize = 8;
/// The machine's end of a connection, which counts; and, where there are no two ends, the address.
const LOCAL: u16 = 2;
const ADDRESS: u16 = 1;
/// No message of the kernel is larger.
const LARGEST: usize = 32 << 10;

/// The addresses of all interfaces.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &request(), SendFlags::empty())?;
    let mut found = Vec::new();
    let mut buffer = vec![0; LARGEST];
    loop {
        let (length, _) = recv(&socket, &mut *buffer, RecvFlags::empty())?;
        for (kind, body) in messages(&buffer[..length]) {
            match kind {
                NEW_ADDRESS => found.extend(address(body)),
                DONE => return Ok(found),
                ERROR => return Err(error(body)),
                _ => {}
            }
        }
    }
}

/// Tells when addresses come or go. Nothing is done meanwhile. (To tokio a socket that is read is like another: it has none
/// for netlink, and to have one of our own would take `unsafe`.)
pub struct AddressChanges(UnixDatagram);

impl AddressChanges {
    /// Must be called on a tokio runtime.
    pub fn watch() -> io::Result<AddressChanges> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(AddressChanges(UnixDatagram::from_std(socket.into())?))
    }

    /// Waits until something has changed since the last time. What that was, is to be found out.
    pub async fn next(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; LARGEST];
        told(self.0.recv(&mut buffer).await)?;
        loop {
            match self.0.try_recv(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                more => told(more)?,
            }
        }
    }
}

fn told(received: io::Result<usize>) -> io::Result<()> {
    match received {
        // More happened than the kernel remembers.
        Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => Ok(()),
        other => other.map(drop),
    }
}

fn request() -> Vec<u8> {
    let length = u32::try_from(HEADER + ADDRESS_HEADER).unwrap_or(u32::MAX);
    let mut message = length.to_ne_bytes().to_vec();
    message.extend([GET_ADDRESS.to_ne_bytes(), DUMP.to_ne_bytes()].concat());
    // A number of the request, the kernel's address, and nothing that is asked for in particular.
    message.extend([0; 8 + ADDRESS_HEADER]);
    message
}

/// Kinds and bodies of messages, as far as they are whole.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)).ok()?;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let body = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

fn address(body: &[u8]) -> Option<IpAddr> {
    let mut attributes = body.get(ADDRESS_HEADER..)?;
    let mut found = None;
    while let Some(head) = attributes.get(..4) {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]);
        let Some(value) = attributes.get(4..length) else { break };
        let ip = match (<[u8; 4]>::try_from(value), <[u8; 16]>::try_from(value)) {
            (Ok(octets), _) => Some(IpAddr::from(Ipv4Addr::from(octets))),
            (_, Ok(octets)) => Some(IpAddr::from(Ipv6Addr::from(octets))),
            _ => None,
        };
        match kind {
            LOCAL => return ip,
            ADDRESS => found = ip,
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn error(body: &[u8]) -> io::Error {
    match body.get(..4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes) {
        Some(error) => io::Error::from_raw_os_error(-error),
        None => io::ErrorKind::UnexpectedEof.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::LoopbackAddress;

    #[tokio::test]
    async fn an_address_that_comes_is_told_and_found() {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        // For documentation: nobody has it.
        let new = Ipv4Addr::new(192, 0, 2, 78);
        let before = addresses().unwrap();
        assert!(before.contains(&loopback) && !before.contains(&IpAddr::from(new)), "{before:?}");
        let mut changes = AddressChanges::watch().unwrap();
        let _added = LoopbackAddress::add(new).unwrap();
        changes.next().await.unwrap();
        assert!(addresses().unwrap().contains(&IpAddr::from(new)));
    }

    #[test]
    fn what_is_cut_short_is_passed_over() {
        let mut whole = 20_u32.to_ne_bytes().to_vec();
        whole.extend([NEW_ADDRESS.to_ne_bytes(), 0_u16.to_ne_bytes()].concat());
        whole.extend([0; 12]);
        assert_eq!(messages(&whole).count(), 1);
        for length in 0..whole.len() {
            assert_eq!(messages(&whole[..length]).count(), 0, "{length}");
        }
        assert_eq!(messages(&[0; 64]).count(), 0);
        assert_eq!(address(&[0; 40]), None);
    }
}
