//! The client, on a stand-in for a bus and on a real one.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crablet_dbus::stand_in::{Answer, Called, StandIn, Told};
use crablet_dbus::{Bus, Call, Error, Signals, Value, connect};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const MANAGER: Call<'_> = Call {
    destination: "org.freedesktop.login1",
    path: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
    member: "Inhibit",
};

fn told(member: &str, value: bool) -> Told {
    Told {
        path: MANAGER.path.into(),
        interface: MANAGER.interface.into(),
        member: member.into(),
        values: vec![value.into()],
    }
}

async fn connected(path: &Path) -> (Bus, Signals, JoinHandle<String>) {
    let connection = connect(path).await.unwrap();
    let driver = connection.driver;
    let driver = tokio::spawn(async move { format!("{:?}", driver.run().await) });
    (connection.bus, connection.signals, driver)
}

#[tokio::test]
async fn a_file_descriptor_comes_with_its_answer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bus");
    let (reader, writer) = std::io::pipe().unwrap();
    let lock = std::sync::Mutex::new(Some(OwnedFd::from(writer)));
    let _stand_in = StandIn::listen(&path, move |called: &Called| {
        assert_eq!((&*called.destination, &*called.member), (MANAGER.destination, MANAGER.member));
        assert_eq!(called.values, ["shutdown", "who", "why", "delay"].map(Value::from));
        let fds = lock.lock().unwrap().take().into_iter().collect();
        Answer::Return { values: vec![Value::Fd(0)], fds, then: Vec::new() }
    })
    .unwrap();
    let (bus, _signals, _) = connected(&path).await;
    let values = ["shutdown", "who", "why", "delay"].map(Value::from);
    let mut body = bus.call(MANAGER, values.to_vec()).await.unwrap();
    assert_eq!(body.values, [Value::Fd(0)]);
    let mut lock = std::fs::File::from(body.fds.remove(0));
    lock.write_all(b"held").unwrap();
    drop(lock);
    // All of its writers are closed.
    let mut text = String::new();
    std::fs::File::from(OwnedFd::from(reader)).read_to_string(&mut text).unwrap();
    assert_eq!(text, "held");
}

#[tokio::test]
async fn only_those_signals_are_heard_that_were_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bus");
    let stand_in = StandIn::listen(&path, |_: &Called| Answer::values(Vec::new())).unwrap();
    let (bus, mut signals, _) = connected(&path).await;
    bus.add_match("type='signal',interface='org.freedesktop.login1.Manager',member='PrepareForShutdown'")
        .await
        .unwrap();
    stand_in.tell(told("PrepareForSleep", true));
    stand_in.tell(told("PrepareForShutdown", true));
    stand_in.tell(told("PrepareForShutdown", false));
    for expected in [true, false] {
        let signal = signals.next().await.unwrap();
        assert_eq!((&*signal.member, signal.body.values), ("PrepareForShutdown", vec![expected.into()]));
    }
}

#[tokio::test]
async fn calls_are_answered_side_by_side_and_errors_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bus");
    let _stand_in = StandIn::listen(&path, |called: &Called| match &*called.member {
        "Silent" => Answer::Silence,
        "Get" => Answer::values(vec![Value::variant(5_000_000_u64)]),
        member => Answer::Error { name: "org.example.No".into(), message: format!("no {member}") },
    })
    .unwrap();
    let (bus, _signals, _) = connected(&path).await;
    let silent = {
        let bus = bus.clone();
        tokio::spawn(async move { bus.call(Call { member: "Silent", ..MANAGER }, Vec::new()).await.is_ok() })
    };
    let delay = bus.property(Call { member: "InhibitDelayMaxUSec", ..MANAGER }).await.unwrap();
    assert_eq!(delay, Some(Value::Uint64(5_000_000)));
    let error = bus.call(Call { member: "Reboot", ..MANAGER }, vec![]).await.unwrap_err();
    assert_eq!(error.to_string(), "org.example.No: no Reboot");
    assert!(!silent.is_finished());
    silent.abort();
}

#[tokio::test]
async fn who_waits_hears_that_the_bus_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bus");
    let asked = Arc::new(Notify::new());
    let asks = Arc::clone(&asked);
    let stand_in = StandIn::listen(&path, move |_: &Called| {
        asks.notify_one();
        Answer::Silence
    })
    .unwrap();
    let (bus, mut signals, driver) = connected(&path).await;
    let waits = tokio::spawn(async move { bus.call(MANAGER, Vec::new()).await });
    asked.notified().await;
    stand_in.disconnect();
    assert!(matches!(waits.await.unwrap(), Err(Error::Closed(_))));
    assert!(signals.next().await.is_none());
    assert_eq!(driver.await.unwrap(), "Err(Closed)");
    drop(stand_in);
    assert!(matches!(connect(&path).await, Err(Error::Connect { .. })));
}

#[tokio::test]
async fn the_driver_ends_when_nobody_needs_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bus");
    let _stand_in = StandIn::listen(&path, |_: &Called| Answer::Silence).unwrap();
    let (bus, signals, driver) = connected(&path).await;
    drop((bus, signals));
    assert_eq!(driver.await.unwrap(), "Ok(())");
}

#[tokio::test]
async fn a_signal_that_nobody_has_room_for_ends_the_connection() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bus");
    let stand_in = StandIn::listen(&path, |_: &Called| Answer::Silence).unwrap();
    let (bus, _signals, driver) = connected(&path).await;
    bus.add_match("type='signal'").await.unwrap();
    for _ in 0..2000 {
        stand_in.tell(told("PrepareForShutdown", true));
    }
    assert_eq!(driver.await.unwrap(), "Err(TooManySignals)");
}

/// A real daemon, which ends with the test.
struct Daemon(Child);

impl Daemon {
    fn start(directory: &Path) -> Daemon {
        let configuration = directory.join("bus.conf");
        let listen = format!("unix:path={}", directory.join("bus").display());
        let text = format!(
            "<busconfig><type>custom</type><listen>{listen}</listen><auth>EXTERNAL</auth><policy context='default'>\
             <allow send_destination='*'/><allow eavesdrop='true'/><allow own='*'/></policy></busconfig>"
        );
        std::fs::write(&configuration, text).unwrap();
        let mut child = Command::new("dbus-daemon")
            .args(["--nofork", "--print-address", "--config-file"])
            .arg(&configuration)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It says where it listens when it does.
        let mut byte = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        Daemon(child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_real_daemon_is_understood() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(directory.path());
    let path = directory.path().join("bus");
    let (bus, mut signals, driver) = connected(&path).await;
    let daemon_call = |member| Call {
        destination: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        member,
    };
    let names = bus.call(daemon_call("ListNames"), Vec::new()).await.unwrap();
    let [Value::Array(of, names)] = &*names.values else { panic!("{names:?}") };
    assert!(of == "s" && names.contains(&Value::Text("org.freedesktop.DBus".into())), "{names:?}");
    let features = bus.property(daemon_call("Features")).await.unwrap();
    assert!(matches!(features, Some(Value::Array(of, _)) if of == "s"));
    // Someone takes a name, which all are told who asked for it.
    bus.add_match("type='signal',member='NameOwnerChanged',arg0='org.example.Here'").await.unwrap();
    let (other, _other_signals, _) = connected(&path).await;
    let request = other.call(daemon_call("RequestName"), vec!["org.example.Here".into(), 0_u32.into()]).await;
    assert_eq!(request.unwrap().values, [Value::Uint32(1)]);
    // We are told of our own name first.
    let changed = async {
        loop {
            let signal = signals.next().await.unwrap();
            if signal.member == "NameOwnerChanged" {
                return signal.body.values[0].as_text().unwrap().to_owned();
            }
        }
    };
    let changed = tokio::time::timeout(Duration::from_secs(60), changed).await.unwrap();
    assert_eq!(changed, "org.example.Here");
    let error =
        bus.call(Call { destination: "org.example.Nobody", ..MANAGER }, Vec::new()).await.unwrap_err();
    assert!(
        matches!(error, Error::Failed { name, .. } if name == "org.freedesktop.DBus.Error.ServiceUnknown")
    );
    drop(daemon);
    assert_eq!(driver.await.unwrap(), "Err(Closed)");
}
