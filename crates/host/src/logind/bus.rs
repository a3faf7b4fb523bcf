//! logind as it is: on the system's bus.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use crablet_dbus::{Bus, Call, Connection, Ended, Error, Signals, Value, connect, system_bus};

use super::{InhibitLock, Logind, LogindError, Session};
use crate::files::write_atomically;

/// Where administrators, and we, add to logind's configuration.
const DROP_INS: &str = "/etc/systemd/logind.conf.d";
/// Our file there, which is called as upstream's.
const DROP_IN: &str = "99-kubelet.conf";

const LOGIND: Call<'_> = Call {
    destination: "org.freedesktop.login1",
    path: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
    member: "",
};
const SYSTEMD: Call<'_> = Call {
    destination: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
    member: "",
};
/// The signal that tells of a shutdown.
const PREPARE: &str = "PrepareForShutdown";
/// On which logind reads its configuration anew.
const SIGHUP: i32 = 1;

/// Where logind is to be found.
#[derive(Debug, Clone)]
pub struct Places {
    /// The bus.
    pub bus: PathBuf,
    /// Where its configuration is added to.
    pub drop_ins: PathBuf,
}

impl Places {
    /// Those of the machine, with the address of its bus, if one was given.
    pub fn of_machine(bus: Option<&str>) -> Places {
        Places { bus: system_bus(bus), drop_ins: DROP_INS.into() }
    }
}

/// logind on the system's bus.
#[derive(Debug)]
pub struct SystemLogind(Places);

impl SystemLogind {
    pub fn new(places: Places) -> SystemLogind {
        SystemLogind(places)
    }
}

#[async_trait]
impl Logind for SystemLogind {
    async fn connect(&self) -> Result<Box<dyn Session>, LogindError> {
        let Connection { bus, signals, driver } = connect(&self.0.bus).await?;
        let driver = Box::pin(async move { driver.run().await });
        let mut session = BusSession { bus, signals, driver, drop_ins: self.0.drop_ins.clone() };
        let Call { destination, path, interface, .. } = LOGIND;
        let rule = format!(
            "type='signal',sender='{destination}',path='{path}',interface='{interface}',member='{PREPARE}'"
        );
        session.ask(async |bus| bus.add_match(&rule).await).await?;
        Ok(Box::new(session))
    }
}

/// The driver works while somebody asks or listens, and needs no task of its own.
struct BusSession {
    bus: Bus,
    signals: Signals,
    driver: Pin<Box<dyn Future<Output = Result<(), Ended>> + Send>>,
    drop_ins: PathBuf,
}

impl BusSession {
    async fn ask<T>(&mut self, ask: impl AsyncFnOnce(Bus) -> Result<T, Error>) -> Result<T, LogindError> {
        tokio::select! {
            biased;
            ended = &mut self.driver => {
                self.driver = Box::pin(std::future::pending());
                Err(LogindError::Bus(Error::Closed(ended.err())))
            }
            answer = ask(self.bus.clone()) => Ok(answer?),
        }
    }

    async fn property(&mut self, name: &'static str) -> Result<Value, LogindError> {
        let property = Call { member: name, ..LOGIND };
        let value = self.ask(async |bus| bus.property(property).await).await?;
        value.ok_or(LogindError::Odd(name))
    }
}

#[async_trait]
impl Session for BusSession {
    async fn longest_delay(&mut self) -> Result<Duration, LogindError> {
        const NAME: &str = "InhibitDelayMaxUSec";
        match self.property(NAME).await? {
            Value::Uint64(microseconds) => Ok(Duration::from_micros(microseconds)),
            _ => Err(LogindError::Odd(NAME)),
        }
    }

    async fn set_longest_delay(&mut self, delay: Duration) -> Result<(), LogindError> {
        let directory = self.drop_ins.clone();
        let written = tokio::task::spawn_blocking(move || write_drop_in(&directory, delay)).await;
        written.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(LogindError::Configure)?;
        let kill = Call { member: "KillUnit", ..SYSTEMD };
        let values = vec!["systemd-logind.service".into(), "all".into(), SIGHUP.into()];
        self.ask(async |bus| bus.call(kill, values).await).await.map(drop)
    }

    async fn inhibit(&mut self) -> Result<InhibitLock, LogindError> {
        let inhibit = Call { member: "Inhibit", ..LOGIND };
        let why = ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"];
        let values = why.map(Value::from).to_vec();
        let mut body = self.ask(async |bus| bus.call(inhibit, values).await).await?;
        match body.fds.pop() {
            Some(fd) => Ok(InhibitLock::new(fd)),
            None => Err(LogindError::Odd("which lock it gives")),
        }
    }

    async fn is_shutting_down(&mut self) -> Result<bool, LogindError> {
        const NAME: &str = "PreparingForShutdown";
        match self.property(NAME).await? {
            Value::Bool(is_so) => Ok(is_so),
            _ => Err(LogindError::Odd(NAME)),
        }
    }

    async fn next(&mut self) -> Option<bool> {
        loop {
            let signal = tokio::select! {
                biased;
                // What came before the end is still to be heard.
                signal = self.signals.next() => signal?,
                _ = &mut self.driver => {
                    self.driver = Box::pin(std::future::pending());
                    continue;
                }
            };
            if let (PREPARE, [Value::Bool(is_so)]) = (&*signal.member, &*signal.body.values) {
                return Some(*is_so);
            }
        }
    }
}

fn write_drop_in(directory: &Path, delay: Duration) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let seconds = delay.as_secs();
    let text = format!("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={seconds}\n");
    write_atomically(&directory.join(DROP_IN), text.as_bytes(), 0o644).map_err(|error| error.source)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;
    use std::sync::{Arc, Mutex};

    use crablet_dbus::stand_in::{Answer, Called, StandIn, Told};

    use super::*;

    /// A logind, as far as we ask it.
    #[derive(Default)]
    struct Played {
        asked: Vec<(String, Vec<Value>)>,
        /// Whoever reads from these learns when a lock is let go of.
        locks: Vec<std::io::PipeReader>,
        is_shutting_down: bool,
    }

    struct World {
        directory: tempfile::TempDir,
        played: Arc<Mutex<Played>>,
        bus: Option<StandIn>,
    }

    impl World {
        fn new() -> World {
            let (directory, played) = (tempfile::tempdir().unwrap(), Arc::default());
            let mut world = World { directory, played, bus: None };
            world.begin();
            world
        }

        fn begin(&mut self) {
            let played = Arc::clone(&self.played);
            let answer = move |called: &Called| {
                let mut played = played.lock().unwrap();
                played.asked.push((called.member.clone(), called.values.clone()));
                match &*called.member {
                    "Get" => Answer::values(vec![match called.values[1].as_text().unwrap() {
                        "InhibitDelayMaxUSec" => Value::variant(5_000_000_u64),
                        "PreparingForShutdown" => Value::variant(played.is_shutting_down),
                        other => panic!("{other}"),
                    }]),
                    "Inhibit" if played.is_shutting_down => Answer::Error {
                        name: "org.freedesktop.login1.OperationInProgress".into(),
                        message: "The operation inhibition has been requested for is already running".into(),
                    },
                    "Inhibit" => {
                        let (reader, writer) = std::io::pipe().unwrap();
                        played.locks.push(reader);
                        let fds = vec![OwnedFd::from(writer)];
                        Answer::Return { values: vec![Value::Fd(0)], fds, then: Vec::new() }
                    }
                    "KillUnit" => Answer::values(Vec::new()),
                    other => panic!("{other}"),
                }
            };
            self.bus = Some(StandIn::listen(&self.bus_path(), answer).unwrap());
        }

        fn bus_path(&self) -> PathBuf {
            self.directory.path().join("bus")
        }

        async fn connect(&self) -> Box<dyn Session> {
            let drop_ins = self.directory.path().join("etc/logind.conf.d");
            SystemLogind::new(Places { bus: self.bus_path(), drop_ins }).connect().await.unwrap()
        }

        fn tell(&self, is_so: bool) {
            let told = Told {
                path: LOGIND.path.into(),
                interface: LOGIND.interface.into(),
                member: PREPARE.into(),
                values: vec![is_so.into()],
            };
            self.bus.as_ref().unwrap().tell(told);
        }

        fn last(&self) -> (String, Vec<Value>) {
            self.played.lock().unwrap().asked.last().unwrap().clone()
        }
    }

    #[tokio::test]
    async fn a_lock_is_asked_for_as_upstream_does_and_ends_when_it_is_dropped() {
        let world = World::new();
        let mut session = world.connect().await;
        assert_eq!(session.longest_delay().await.unwrap(), Duration::from_secs(5));
        let lock = session.inhibit().await.unwrap();
        let why = ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"];
        assert_eq!(world.last(), ("Inhibit".into(), why.map(Value::from).to_vec()));
        let mut reader = world.played.lock().unwrap().locks.remove(0);
        drop(lock);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "nobody holds it any more");
    }

    #[tokio::test]
    async fn a_longer_delay_is_written_to_a_file_that_logind_is_told_to_read() {
        let world = World::new();
        let mut session = world.connect().await;
        session.set_longest_delay(Duration::from_secs(120)).await.unwrap();
        let file = world.directory.path().join("etc/logind.conf.d/99-kubelet.conf");
        let text = std::fs::read_to_string(file).unwrap();
        assert_eq!(text, "# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=120\n");
        let values = vec!["systemd-logind.service".into(), "all".into(), Value::Int32(1)];
        assert_eq!(world.last(), ("KillUnit".into(), values));
    }

    #[tokio::test]
    async fn shutdowns_and_their_ends_are_heard_also_what_came_before_the_bus_went() {
        let mut world = World::new();
        let mut session = world.connect().await;
        assert!(!session.is_shutting_down().await.unwrap());
        world.tell(true);
        world.tell(false);
        assert_eq!(session.next().await, Some(true));
        assert_eq!(session.next().await, Some(false));
        world.bus = None;
        assert_eq!(session.next().await, None);
        assert_eq!(session.next().await, None);
        assert!(matches!(session.inhibit().await, Err(LogindError::Bus(Error::Closed(_)))));
        world.begin();
        world.tell(true);
        let mut session = world.connect().await;
        world.tell(false);
        assert_eq!(session.next().await, Some(false), "it listens from then on");
    }

    #[tokio::test]
    async fn a_shutdown_that_has_begun_cannot_be_held_up() {
        let world = World::new();
        world.played.lock().unwrap().is_shutting_down = true;
        let mut session = world.connect().await;
        assert!(session.is_shutting_down().await.unwrap());
        let error = session.inhibit().await.unwrap_err();
        assert!(
            matches!(error, LogindError::Bus(Error::Failed { name, .. }) if name.ends_with("InProgress"))
        );
    }
}
