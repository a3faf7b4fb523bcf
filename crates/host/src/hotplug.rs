//! Learning that processors or memory were plugged in or out.

use std::io;

use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use tokio::net::UnixDatagram;
use tokio::task::consume_budget;

/// What the kernel itself tells; others tell what udev made of it.
const KERNEL: u32 = 1;
/// No message of the kernel is larger.
const LARGEST: usize = 8 << 10;
/// Where processors and blocks of memory are among the devices.
const PLACES: [&str; 2] = ["/devices/system/cpu/", "/devices/system/memory/"];

/// Tells when processors or memory come or go.
pub struct Hotplugs(UnixDatagram);

impl Hotplugs {
    /// Must be called on a tokio runtime.
    pub fn watch() -> io::Result<Hotplugs> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(KOBJECT_UEVENT))?;
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL))?;
        // As `interfaces::AddressChanges`: to tokio a socket that is read is like another.
        Ok(Hotplugs(UnixDatagram::from_std(socket.into())?))
    }

    /// Waits until something has changed since the last time. Dropping the future loses nothing.
    pub async fn next(&mut self) -> io::Result<()> {
        loop {
            // Whoever waits for a descriptor that has more gets no turn of its own accord.
            consume_budget().await;
            self.0.readable().await?;
            if self.read()? {
                return Ok(());
            }
        }
    }

    /// Whether the next message is one of those. Its room is needed only here.
    fn read(&self) -> io::Result<bool> {
        let mut buffer = [0; LARGEST];
        match self.0.try_recv(&mut buffer) {
            Ok(length) => Ok(is_of_machine(&buffer[..length])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // More happened than the kernel remembers.
            Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Whether a message is about a processor or a block of memory: `online@/devices/system/cpu/cpu3`, and more after a zero.
fn is_of_machine(message: &[u8]) -> bool {
    let head = message.split(|byte| *byte == 0).next().unwrap_or_default();
    let place = std::str::from_utf8(head).ok().and_then(|head| head.split_once('@'));
    place.is_some_and(|(_, place)| PLACES.iter().any(|prefix| place.starts_with(prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processors_and_memory_are_of_interest() {
        for (message, expected) in [
            (&b"online@/devices/system/cpu/cpu3\0ACTION=online\0"[..], true),
            (b"add@/devices/system/memory/memory34\0ACTION=add\0", true),
            (b"remove@/devices/virtual/net/veth1\0ACTION=remove\0", false),
            (b"add@/kernel/slab/x\0", false),
            (b"libudev\0\xfe\xed\xca\xfe", false),
            (b"", false),
            (b"@", false),
        ] {
            assert_eq!(is_of_machine(message), expected, "{message:?}");
        }
    }

    #[tokio::test]
    async fn the_kernel_is_listened_to() {
        let mut hotplugs = Hotplugs::watch().unwrap();
        // Nothing is plugged in here while this looks once.
        tokio::select! {
            biased;
            told = hotplugs.next() => panic!("{told:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
}
