//! Messages as bytes: a header, which says what they are, and a body of values.

use std::os::fd::OwnedFd;

use crate::value::Value;
use crate::wire::{Endian, Malformed, Reader, Writer};

/// What stands before the fields of a header, with their length.
pub const FIXED: usize = 16;
/// No message may be larger. The protocol allows for eight times as much, which nobody sends who is well.
const LARGEST: usize = 16 << 20;

const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
#[cfg(any(test, feature = "stand-in"))]
const SENDER: u8 = 7;
const SIGNATURE: u8 = 8;
const FDS: u8 = 9;

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Call,
    Return,
    Error,
    Signal,
    /// What this version of the protocol does not know is passed over.
    Other(u8),
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Call => 1,
            Kind::Return => 2,
            Kind::Error => 3,
            Kind::Signal => 4,
            Kind::Other(code) => code,
        }
    }

    fn of(code: u8) -> Kind {
        match code {
            1 => Kind::Call,
            2 => Kind::Return,
            3 => Kind::Error,
            4 => Kind::Signal,
            other => Kind::Other(other),
        }
    }
}

/// What an answer or a signal says.
#[derive(Debug, Default)]
pub struct Body {
    pub values: Vec<Value>,
    /// The file descriptors that came with it: [`Value::Fd`] says which.
    pub fds: Vec<OwnedFd>,
}

/// What somebody told all who listen.
#[derive(Debug)]
pub struct Signal {
    pub path: String,
    pub interface: String,
    pub member: String,
    pub body: Body,
}

/// A message.
#[derive(Debug)]
pub struct Message {
    pub kind: Kind,
    pub serial: u32,
    pub path: String,
    pub interface: String,
    pub member: String,
    pub error_name: String,
    pub reply_serial: u32,
    pub destination: String,
    #[cfg(any(test, feature = "stand-in"))]
    pub sender: String,
    pub body: Body,
}

impl Message {
    pub fn new(kind: Kind, serial: u32) -> Message {
        Message {
            kind,
            serial,
            path: String::new(),
            interface: String::new(),
            member: String::new(),
            error_name: String::new(),
            reply_serial: 0,
            destination: String::new(),
            #[cfg(any(test, feature = "stand-in"))]
            sender: String::new(),
            body: Body::default(),
        }
    }

    /// The bytes; the file descriptors go beside them.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut body = Writer::default();
        self.body.values.iter().for_each(|value| body.value(value));
        let signature: String = self.body.values.iter().map(Value::signature).collect();
        if signature.len() > 255 {
            return Err(Malformed::Long);
        }

        let mut fields = Vec::new();
        let mut field = |code: u8, value: Value| {
            fields.push(Value::Struct(vec![Value::Byte(code), Value::Variant(Box::new(value))]));
        };
        if !self.path.is_empty() {
            field(PATH, Value::ObjectPath(self.path.clone()));
        }
        let texts = [
            (INTERFACE, &self.interface),
            (MEMBER, &self.member),
            (ERROR_NAME, &self.error_name),
            (DESTINATION, &self.destination),
            #[cfg(any(test, feature = "stand-in"))]
            (SENDER, &self.sender),
        ];
        for (code, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            field(code, Value::Text(text.clone()));
        }
        if self.reply_serial != 0 {
            field(REPLY_SERIAL, Value::Uint32(self.reply_serial));
        }
        if !signature.is_empty() {
            field(SIGNATURE, Value::Signature(signature));
        }
        if !self.body.fds.is_empty() {
            field(FDS, Value::Uint32(u32::try_from(self.body.fds.len()).unwrap_or(u32::MAX)));
        }

        let order = match Endian::NATIVE {
            Endian::Little => b'l',
            Endian::Big => b'B',
        };
        let mut message = Writer(vec![order, self.kind.code(), 0, 1]);
        message.length(body.0.len());
        message.value(&Value::Uint32(self.serial));
        message.value(&Value::Array("(yv)".into(), fields));
        message.align(8);
        message.0.append(&mut body.0);
        if message.0.len() > LARGEST { Err(Malformed::Long) } else { Ok(message.0) }
    }

    /// How many bytes the message has that begins so.
    pub fn length(fixed: &[u8; FIXED]) -> Result<usize, Malformed> {
        let mut reader = Reader::new(fixed, endian(fixed[0])?);
        let [body, _serial, fields] = lengths(&mut reader)?;
        let length = (FIXED as u64 + u64::from(fields)).next_multiple_of(8) + u64::from(body);
        usize::try_from(length).ok().filter(|length| *length <= LARGEST).ok_or(Malformed::Long)
    }

    /// Reads a whole message. Says, too, how many file descriptors belong to it.
    pub fn decode(bytes: &[u8]) -> Result<(Message, usize), Malformed> {
        let kind = Kind::of(*bytes.get(1).ok_or(Malformed::Short)?);
        let endian = endian(bytes[0])?;
        let mut reader = Reader::new(bytes, endian);
        let [_body, serial, _fields] = lengths(&mut reader)?;
        let mut reader = Reader::new(bytes, endian);
        let fields = reader.values("yyyyuua(yv)")?.pop();
        reader.align(8)?;
        let mut message = Message::new(kind, serial);
        let (mut signature, mut fds) = (String::new(), 0);
        let Some(Value::Array(_, fields)) = fields else { return Err(Malformed::Header) };
        for field in fields {
            let Value::Struct(field) = field else { return Err(Malformed::Header) };
            let Ok([Value::Byte(code), Value::Variant(value)]) = <[Value; 2]>::try_from(field) else {
                return Err(Malformed::Header);
            };
            match (code, *value) {
                (PATH, Value::ObjectPath(path)) => message.path = path,
                (INTERFACE, Value::Text(interface)) => message.interface = interface,
                (MEMBER, Value::Text(member)) => message.member = member,
                (ERROR_NAME, Value::Text(name)) => message.error_name = name,
                (REPLY_SERIAL, Value::Uint32(serial)) => message.reply_serial = serial,
                (DESTINATION, Value::Text(destination)) => message.destination = destination,
                #[cfg(any(test, feature = "stand-in"))]
                (SENDER, Value::Text(sender)) => message.sender = sender,
                (SIGNATURE, Value::Signature(of_body)) => signature = of_body,
                (FDS, Value::Uint32(count)) => fds = usize::try_from(count).map_err(|_| Malformed::Header)?,
                (PATH..=FDS, _) if !is_sender(code) => return Err(Malformed::Header),
                _ => {}
            }
        }
        let mut body = Reader::new(&bytes[reader.place()..], endian);
        message.body.values = body.values(&signature)?;
        Ok((message, fds))
    }
}

/// Who sent it is of no interest to a client.
fn is_sender(code: u8) -> bool {
    code == 7
}

fn endian(code: u8) -> Result<Endian, Malformed> {
    match code {
        b'l' => Ok(Endian::Little),
        b'B' => Ok(Endian::Big),
        _ => Err(Malformed::Header),
    }
}

/// The body's length, the serial number and the length of the header's fields.
fn lengths(reader: &mut Reader<'_>) -> Result<[u32; 3], Malformed> {
    reader.values("yyyy")?;
    Ok([reader.u32()?, reader.u32()?, reader.u32()?])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let mut sent = Message::new(Kind::Call, 7);
        sent.path = "/org/freedesktop/login1".into();
        sent.interface = "org.freedesktop.login1.Manager".into();
        sent.member = "Inhibit".into();
        sent.destination = "org.freedesktop.login1".into();
        sent.body.values = ["shutdown", "kubelet", "why", "delay"].map(Value::from).to_vec();
        let bytes = sent.encode().unwrap();
        assert_eq!(Message::length(bytes[..FIXED].try_into().unwrap()), Ok(bytes.len()));
        let (read, fds) = Message::decode(&bytes).unwrap();
        assert_eq!(fds, 0);
        assert_eq!(format!("{read:?}"), format!("{sent:?}"));
        for length in 0..bytes.len() {
            assert!(Message::decode(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_message_that_would_be_too_large_is_refused_by_its_first_bytes() {
        let mut bytes = Message::new(Kind::Signal, 1).encode().unwrap();
        bytes[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(Message::length(bytes[..FIXED].try_into().unwrap()), Err(Malformed::Long));
        bytes[0] = b'x';
        assert_eq!(Message::length(bytes[..FIXED].try_into().unwrap()), Err(Malformed::Header));
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), is_big: bool) {
            if let Some(first) = bytes.first_mut() {
                *first = if is_big { b'B' } else { b'l' };
            }
            let _ = Message::decode(&bytes);
        }
    }
}
