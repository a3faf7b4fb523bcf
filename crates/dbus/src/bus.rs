//! A connection with a bus: its calls with their answers, and its signals.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::consume_budget;
use tokio::time::timeout;

use crate::message::{Body, Kind, Message, Signal};
use crate::transport::{Incoming, ReadError};
use crate::value::Value;
use crate::wire::Malformed;

/// How long an answer may take, and the beginning of a connection. As libdbus has it.
const DEADLINE: Duration = Duration::from_secs(25);
/// How many calls may wait to be sent.
const CALLS: usize = 64;
/// How many signals may wait to be heard. With more, the connection ends: who missed some has to look anew.
const SIGNALS: usize = 1024;
/// No line of the conversation before the first message is longer.
const LONGEST_LINE: usize = 1024;
/// Where the system's bus is, if nobody says otherwise.
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

/// Why something could not be asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody answers there.
    #[error("cannot connect to the bus at {}", path.display())]
    Connect {
        /// There.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The bus did not take us.
    #[error("the bus does not take us: it said {0:?}")]
    Refused(String),
    /// The connection has ended, and why, where who asks had a part in it.
    #[error("the connection to the bus has ended")]
    Closed(#[source] Option<Ended>),
    /// The call is none.
    #[error("this cannot be said on the bus")]
    Malformed(#[from] Malformed),
    /// The one who was called says that it failed.
    #[error("{name}: {message}")]
    Failed {
        /// The kind of failure.
        name: String,
        /// What is said of it.
        message: String,
    },
    /// No answer came.
    #[error("no answer within {} s", DEADLINE.as_secs())]
    Late,
}

/// Why a connection has ended.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The bus closed it.
    #[error("the bus closed the connection")]
    Closed,
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It could not be written to.
    #[error("the bus cannot be written to")]
    Write(#[source] io::Error),
    /// More signals came than were heard.
    #[error("more signals came than were heard")]
    TooManySignals,
}

/// What is asked of whom.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Who.
    pub destination: &'a str,
    /// The object.
    pub path: &'a str,
    /// Where the method is declared.
    pub interface: &'a str,
    /// The method.
    pub member: &'a str,
}

/// Who can be asked. Clones ask over the same connection.
#[derive(Debug, Clone)]
pub struct Bus(mpsc::Sender<Asked>);

#[derive(Debug)]
struct Asked {
    message: Message,
    answer: oneshot::Sender<Result<Message, Malformed>>,
}

/// The signals that a match was added for, in their order.
#[derive(Debug)]
pub struct Signals(mpsc::Receiver<Signal>);

/// A connection that is there.
#[derive(Debug)]
pub struct Connection {
    /// Who can be asked.
    pub bus: Bus,
    /// What is told.
    pub signals: Signals,
    /// What carries both.
    pub driver: Driver,
}

/// Where the system's bus is, by what `DBUS_SYSTEM_BUS_ADDRESS` says.
pub fn system_bus(address: Option<&str>) -> PathBuf {
    let of_address = address.and_then(|address| {
        let unix = address.split(';').find_map(|one| one.strip_prefix("unix:"))?;
        unix.split(',').find_map(|pair| pair.strip_prefix("path="))
    });
    of_address.unwrap_or(SYSTEM_BUS).into()
}

/// Connects to a bus. What can be asked, is answered once the driver runs.
pub async fn connect(path: &Path) -> Result<Connection, Error> {
    let mut connection = connect_to_service(path).await?;
    let hello = connection.bus.of_daemon("Hello", Vec::new());
    tokio::select! {
        biased;
        answered = hello => drop(answered?),
        ended = connection.driver.work() => return Err(Error::Closed(ended.err())),
    }
    Ok(connection)
}

/// Connects to a service that listens by itself, without a bus: nobody is greeted, and all its signals are heard.
pub async fn connect_to_service(path: &Path) -> Result<Connection, Error> {
    let to_connect = |source| Error::Connect { path: path.to_owned(), source };
    let begin = async {
        let mut socket = UnixStream::connect(path).await.map_err(to_connect)?;
        authenticate(&mut socket).await.map_err(to_connect)??;
        Ok::<_, Error>(socket)
    };
    let socket = timeout(DEADLINE, begin).await.map_err(|_| Error::Late)??;
    let (ask, asked) = mpsc::channel(CALLS);
    let (tell, signals) = mpsc::channel(SIGNALS);
    let driver =
        Driver { socket, incoming: Incoming::default(), asked, tell, serial: 0, waiting: BTreeMap::new() };
    Ok(Connection { bus: Bus(ask), signals: Signals(signals), driver })
}

/// Says who we are: the kernel vouches for it. Each line is answered by one.
async fn authenticate(socket: &mut UnixStream) -> io::Result<Result<(), Error>> {
    let user: String =
        rustix::process::geteuid().as_raw().to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
    for (line, expected) in
        [(format!("\0AUTH EXTERNAL {user}\r\n"), "OK "), ("NEGOTIATE_UNIX_FD\r\n".into(), "AGREE_UNIX_FD")]
    {
        socket.write_all(line.as_bytes()).await?;
        let said = line_of(socket).await?;
        if !said.starts_with(expected) {
            return Ok(Err(Error::Refused(said)));
        }
    }
    socket.write_all(b"BEGIN\r\n").await?;
    Ok(Ok(()))
}

async fn line_of(socket: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        if line.len() > LONGEST_LINE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        line.push(socket.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

impl Bus {
    /// Asks, and waits for the answer.
    pub async fn call(&self, call: Call<'_>, values: Vec<Value>) -> Result<Body, Error> {
        // Who sends it gives it its number.
        let mut message = Message::new(Kind::Call, 1);
        message.destination = call.destination.into();
        message.path = call.path.into();
        message.interface = call.interface.into();
        message.member = call.member.into();
        message.body.values = values;
        let (answer, answered) = oneshot::channel();
        let asking = async {
            self.0.send(Asked { message, answer }).await.map_err(|_| Error::Closed(None))?;
            answered.await.map_err(|_| Error::Closed(None))
        };
        let answer = timeout(DEADLINE, asking).await.map_err(|_| Error::Late)???;
        match answer.kind {
            Kind::Error => {
                let message =
                    answer.body.values.first().and_then(Value::as_text).unwrap_or_default().to_owned();
                Err(Error::Failed { name: answer.error_name, message })
            }
            Kind::Call | Kind::Return | Kind::Signal | Kind::Other(_) => Ok(answer.body),
        }
    }

    /// The value of a property, which stands in the place of the method.
    pub async fn property(&self, object: Call<'_>) -> Result<Option<Value>, Error> {
        let call = Call { interface: "org.freedesktop.DBus.Properties", member: "Get", ..object };
        let body = self.call(call, vec![object.interface.into(), object.member.into()]).await?;
        Ok(body.values.into_iter().next().map(|value| match value {
            Value::Variant(value) => *value,
            other => other,
        }))
    }

    /// Has signals heard that fit a rule, as `type='signal',member='PrepareForShutdown'`.
    pub async fn add_match(&self, rule: &str) -> Result<(), Error> {
        self.of_daemon("AddMatch", vec![rule.into()]).await.map(drop)
    }

    async fn of_daemon(&self, member: &str, values: Vec<Value>) -> Result<Body, Error> {
        let daemon = Call {
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member,
        };
        self.call(daemon, values).await
    }
}

impl Signals {
    /// The next one, or nothing when the connection has ended.
    pub async fn next(&mut self) -> Option<Signal> {
        self.0.recv().await
    }
}

/// What carries messages between the bus and those who ask it.
#[derive(Debug)]
pub struct Driver {
    socket: UnixStream,
    incoming: Incoming,
    asked: mpsc::Receiver<Asked>,
    tell: mpsc::Sender<Signal>,
    serial: u32,
    waiting: BTreeMap<u32, oneshot::Sender<Result<Message, Malformed>>>,
}

impl Driver {
    /// Works until the connection ends, or nobody is there any more who asks or hears.
    pub async fn run(mut self) -> Result<(), Ended> {
        self.work().await
    }

    /// May be dropped between two messages: what is half received is kept, and what is half written is not.
    async fn work(&mut self) -> Result<(), Ended> {
        let tell = self.tell.clone();
        let mut asks = true;
        loop {
            // Whoever hears the signals may be in the same task.
            consume_budget().await;
            tokio::select! {
                biased;
                message = self.incoming.next(&self.socket) => match message? {
                    Some(message) => self.received(message)?,
                    None => return Err(Ended::Closed),
                },
                asked = self.asked.recv(), if asks => match asked {
                    Some(asked) => self.ask(asked).await?,
                    None => asks = false,
                },
                () = tell.closed(), if !asks => return Ok(()),
            }
        }
    }

    async fn ask(&mut self, asked: Asked) -> Result<(), Ended> {
        let Asked { mut message, answer } = asked;
        // Those who waited in vain are gone.
        self.waiting.retain(|_, waits| !waits.is_closed());
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        message.serial = self.serial;
        let bytes = match message.encode() {
            Ok(bytes) => bytes,
            Err(malformed) => {
                // Who does not wait any more does not need it.
                let _ = answer.send(Err(malformed));
                return Ok(());
            }
        };
        self.waiting.insert(self.serial, answer);
        self.socket.write_all(&bytes).await.map_err(Ended::Write)
    }

    fn received(&mut self, message: Message) -> Result<(), Ended> {
        match message.kind {
            Kind::Return | Kind::Error => {
                if let Some(waits) = self.waiting.remove(&message.reply_serial) {
                    let _ = waits.send(Ok(message));
                }
                Ok(())
            }
            Kind::Signal => {
                let Message { path, interface, member, body, .. } = message;
                match self.tell.try_send(Signal { path, interface, member, body }) {
                    Err(mpsc::error::TrySendError::Full(_)) => Err(Ended::TooManySignals),
                    Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
                }
            }
            // We serve nobody.
            Kind::Call | Kind::Other(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_bus_is_where_its_address_says() {
        for (address, expected) in [
            (None, SYSTEM_BUS),
            (Some("unix:path=/run/bus"), "/run/bus"),
            (Some("tcp:host=localhost;unix:guid=1,path=/run/bus"), "/run/bus"),
            (Some("unix:abstract=/x"), SYSTEM_BUS),
        ] {
            assert_eq!(system_bus(address), Path::new(expected), "{address:?}");
        }
    }
}
