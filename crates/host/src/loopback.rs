//! Addresses of the loopback interface beside its own: what is there is reached on this machine alone, from every network
//! namespace that has a route to it.

use std::io;
use std::net::Ipv4Addr;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
/// A request that wants an answer, makes what is not there, and takes what is.
const FLAGS: u16 = 0x1 | 0x4 | 0x100 | 0x400;
const IPV4: u8 = 2;
/// It is never taken as the source of a connection to somewhere else.
const SCOPE_HOST: u8 = 254;
/// The loopback interface is the first one of each network namespace.
const LOOPBACK: u32 = 1;
const ATTRIBUTES: [u16; 2] = [1, 2];
/// A header of 16 bytes, then the error's number.
const ERROR_AT: usize = 16;

/// An address of the loopback interface. It goes when this is dropped; one that a killed process left is taken over.
#[derive(Debug)]
pub struct LoopbackAddress(Ipv4Addr);

impl LoopbackAddress {
    pub fn add(address: Ipv4Addr) -> io::Result<LoopbackAddress> {
        ask(NEW_ADDRESS, address)?;
        Ok(LoopbackAddress(address))
    }
}

impl Drop for LoopbackAddress {
    fn drop(&mut self) {
        // There is nobody to tell, and the next one takes it over.
        let _ = ask(DELETE_ADDRESS, self.0);
    }
}

fn ask(kind: u16, address: Ipv4Addr) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    send(&socket, &message(kind, address), SendFlags::empty())?;
    let mut answer = [0; 256];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    let error = answer[..length].get(ERROR_AT..ERROR_AT + 4).and_then(|bytes| bytes.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn message(kind: u16, address: Ipv4Addr) -> Vec<u8> {
    let mut body = vec![IPV4, 32, 0, SCOPE_HOST];
    body.extend(LOOPBACK.to_ne_bytes());
    for attribute in ATTRIBUTES {
        body.extend([8_u16.to_ne_bytes(), attribute.to_ne_bytes()].concat());
        body.extend(address.octets());
    }
    let length = u32::try_from(ERROR_AT + body.len()).unwrap_or(u32::MAX);
    let mut message = length.to_ne_bytes().to_vec();
    message.extend([kind.to_ne_bytes(), FLAGS.to_ne_bytes()].concat());
    // A number of the request, and the kernel's address.
    message.extend([0; 8]);
    message.extend(body);
    message
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn an_address_is_there_until_it_is_dropped_and_can_be_taken_over() {
        // For documentation: nobody has it.
        let address = Ipv4Addr::new(192, 0, 2, 77);
        assert!(TcpListener::bind((address, 0)).is_err());
        let left = LoopbackAddress::add(address).unwrap();
        std::mem::forget(left);
        let taken = LoopbackAddress::add(address).unwrap();
        let listener = TcpListener::bind((address, 0)).unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop((taken, listener));
        assert!(TcpListener::bind((address, 0)).is_err());
    }
}
