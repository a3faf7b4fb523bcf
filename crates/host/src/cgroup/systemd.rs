//! systemd as the one who makes cgroups: slices by D-Bus, with the properties that other kubelets and runc give them.
//!
//! systemd has to know of every limit, or it puts its own in place of it when it next looks. What it does not know of, such
//! as huge pages, is written to the file system after it, and so is everything else once more, as others do.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use crablet_dbus::{
    Body, Bus, Call, Connection, Error, Signals, Value, connect, connect_to_service, system_bus,
};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::limits::accepted_shares;
use super::{Bound, CgroupError, CpuBandwidth, Limits, Version, weight_of_shares};

/// The manager of units, to whom its methods are sent.
const MANAGER: Call<'static> = Call {
    destination: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
    member: "",
};

/// The signals that say what became of what was asked for.
const JOB_REMOVED: &str = "type='signal',sender='org.freedesktop.systemd1',path='/org/freedesktop/systemd1',\
                           interface='org.freedesktop.systemd1.Manager',member='JobRemoved'";

const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";

/// How long a unit may take to come or go, as runc has it.
const JOB_DEADLINE: Duration = Duration::from_secs(30);

/// How much is asked at the same time, each on a connection of its own: systemd does one thing after the other anyway, and
/// a bus has few connections for all that a user runs.
const ASKED_AT_ONCE: usize = 8;

/// How often something is asked for, where a connection breaks: systemd or the bus may start anew.
const TRIES: u32 = 2;

/// The versions from which on there are properties for the period of a quota and for processors.
const HAS_QUOTA_PERIOD: u32 = 242;
const HAS_ALLOWED_CPUS: u32 = 244;

/// systemd counts a quota in hundredths of a processor, in microseconds a second.
const HUNDREDTH: u64 = 10_000;
const SECOND: u64 = 1_000_000;

/// A property of a unit.
type Property = (&'static str, Value);

/// Where systemd is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// On a bus, by its name there.
    Bus(PathBuf),
    /// On a socket of its own, without a bus.
    Private(PathBuf),
}

/// systemd. A connection is made for what is asked at the moment and dropped after it: on one that stays, everything that
/// happens to any unit would wake the agent.
pub(super) struct Systemd {
    /// Where it may be, best first.
    places: Vec<Place>,
    version: OnceLock<u32>,
    turns: Semaphore,
}

impl Systemd {
    /// That of this machine.
    pub(super) fn of_machine() -> Systemd {
        let bus = system_bus(std::env::var("DBUS_SYSTEM_BUS_ADDRESS").ok().as_deref());
        Systemd::at(vec![Place::Bus(bus), Place::Private("/run/systemd/private".into())])
    }

    pub(super) fn at(places: Vec<Place>) -> Systemd {
        Systemd { places, version: OnceLock::new(), turns: Semaphore::new(ASKED_AT_ONCE) }
    }

    /// Makes the slice at a path, and says whether it had to be made. One that is there is left as it is.
    pub(super) async fn start_slice(&self, path: &str, cgroups: Version) -> Result<bool, CgroupError> {
        let unit = unit(path);
        match self.ask(unit, &Question::Start(slice(path, cgroups))).await? {
            None => Ok(false),
            Some(result) if result == "done" => Ok(true),
            Some(result) => Err(CgroupError::NotStarted { unit: unit.to_owned(), result }),
        }
    }

    /// Tells systemd of limits. Gives the limits as they are by then: it counts more coarsely than the kernel.
    pub(super) async fn set(
        &self,
        path: &str,
        limits: &Limits,
        cgroups: Version,
    ) -> Result<Limits, CgroupError> {
        let rounded = rounded(limits);
        if !properties(&rounded, cgroups, u32::MAX).is_empty() {
            self.ask(unit(path), &Question::Set(&rounded, cgroups)).await?;
        }
        Ok(rounded)
    }

    /// Takes the slice at a path away, with all below it. There may be none.
    pub(super) async fn stop(&self, path: &str) -> Result<(), CgroupError> {
        // What became of it is seen in the file system.
        self.ask(unit(path), &Question::Stop).await.map(drop)
    }

    /// Asks at the first place where somebody answers. Says what became of the job, if there was one.
    async fn ask(&self, unit: &str, question: &Question<'_>) -> Result<Option<String>, CgroupError> {
        let _turn = self.turns.acquire().await;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_to_ask(unit, question).await {
                Err(Error::Closed(_)) if tries < TRIES => {}
                answer => {
                    return answer.map_err(|source| CgroupError::Systemd { unit: unit.to_owned(), source });
                }
            }
        }
    }

    async fn try_to_ask(&self, unit: &str, question: &Question<'_>) -> Result<Option<String>, Error> {
        let (Connection { bus, signals, driver }, is_bus) = self.connect().await?;
        let mut asked = Asked { bus, signals };
        let answer = async {
            if is_bus {
                asked.bus.add_match(JOB_REMOVED).await?;
                asked.call("Subscribe", Vec::new()).await?;
            }
            asked.answer(unit, question, &self.version).await
        };
        tokio::select! {
            biased;
            answer = answer => answer,
            ended = driver.run() => Err(Error::Closed(ended.err())),
        }
    }

    async fn connect(&self) -> Result<(Connection, bool), Error> {
        let mut first = None;
        for place in &self.places {
            let connected = match place {
                Place::Bus(socket) => connect(socket).await.map(|connection| (connection, true)),
                Place::Private(socket) => {
                    connect_to_service(socket).await.map(|connection| (connection, false))
                }
            };
            match connected {
                Ok(connected) => return Ok(connected),
                Err(error) => _ = first.get_or_insert(error),
            }
        }
        Err(first.unwrap_or(Error::Closed(None)))
    }
}

/// What systemd is asked about a unit.
enum Question<'limits> {
    /// To make it, with these properties.
    Start(Vec<Property>),
    /// To hold it to these limits.
    Set(&'limits Limits, Version),
    /// To take it away.
    Stop,
}

/// systemd, for as long as something is asked of it.
struct Asked {
    bus: Bus,
    signals: Signals,
}

impl Asked {
    async fn answer(
        &mut self,
        unit: &str,
        question: &Question<'_>,
        version: &OnceLock<u32>,
    ) -> Result<Option<String>, Error> {
        let job = match question {
            Question::Start(properties) => {
                let no_others = Value::Array("(sa(sv))".into(), Vec::new());
                let properties = Value::properties(properties.clone());
                let values = vec![unit.into(), "replace".into(), properties, no_others];
                self.job("StartTransientUnit", values).await
            }
            Question::Set(limits, cgroups) => {
                let properties = properties(limits, *cgroups, self.version(version).await?);
                let values = vec![unit.into(), true.into(), Value::properties(properties)];
                return self.call("SetUnitProperties", values).await.map(|_| None);
            }
            Question::Stop => self.job("StopUnit", vec![unit.into(), "replace".into()]).await,
        };
        match job {
            Ok(result) => {
                if result != "done" || matches!(question, Question::Stop) {
                    self.forget_failure(unit).await;
                }
                Ok(Some(result))
            }
            // It is there, or gone, already.
            Err(Error::Failed { name, .. }) if name == UNIT_EXISTS || name == NO_SUCH_UNIT => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn call(&self, member: &str, values: Vec<Value>) -> Result<Body, Error> {
        self.bus.call(Call { member, ..MANAGER }, values).await
    }

    /// Asks for something that takes a while, and says what became of it.
    async fn job(&mut self, member: &str, values: Vec<Value>) -> Result<String, Error> {
        let body = self.call(member, values).await?;
        let job = body.values.first().and_then(Value::as_text).unwrap_or_default();
        let removed = async {
            loop {
                let signal = self.signals.next().await.ok_or(Error::Closed(None))?;
                if let ("JobRemoved", [_, path, _, result]) = (&*signal.member, &*signal.body.values)
                    && path.as_text() == Some(job)
                {
                    return Ok(result.as_text().unwrap_or_default().to_owned());
                }
            }
        };
        timeout(JOB_DEADLINE, removed).await.map_err(|_| Error::Late)?
    }

    /// systemd keeps what failed until it is told to forget it. Mostly nothing has.
    async fn forget_failure(&self, unit: &str) {
        let _ = self.call("ResetFailedUnit", vec![unit.into()]).await;
    }

    async fn version(&self, known: &OnceLock<u32>) -> Result<u32, Error> {
        if let Some(version) = known.get() {
            return Ok(*version);
        }
        let text = self.bus.property(Call { member: "Version", ..MANAGER }).await?;
        let version = number_of(text.as_ref().and_then(Value::as_text).unwrap_or_default());
        Ok(*known.get_or_init(|| version))
    }
}

/// The number of a version such as `v252.39-1~deb12u1`; the oldest one where there is none.
fn number_of(version: &str) -> u32 {
    let digits = version.trim_start_matches(|character: char| !character.is_ascii_digit());
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// The unit that a cgroup is.
fn unit(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or("-.slice")
}

/// What a slice is made with.
fn slice(path: &str, cgroups: Version) -> Vec<Property> {
    let parent = Path::new(path).parent().and_then(Path::to_str).map_or("-.slice", unit);
    let disks = match cgroups {
        Version::V1 => "BlockIOAccounting",
        Version::V2 => "IOAccounting",
    };
    vec![
        ("Description", format!("libcontainer container {}", unit(path)).into()),
        ("Wants", Value::texts([parent])),
        ("MemoryAccounting", true.into()),
        ("CPUAccounting", true.into()),
        (disks, true.into()),
        ("TasksAccounting", true.into()),
        ("DefaultDependencies", false.into()),
    ]
}

/// The limits with a quota that systemd can count: more rather than less, so that what is below fits.
fn rounded(limits: &Limits) -> Limits {
    let mut limits = limits.clone();
    if let Some(CpuBandwidth { quota: Bound::At(quota), period }) = &mut limits.cpu_bandwidth
        && *period > 0
    {
        *quota = per_second(*quota, *period).saturating_mul(*period) / SECOND;
    }
    limits
}

/// A quota in microseconds a second, in whole hundredths.
fn per_second(quota: u64, period: u64) -> u64 {
    (quota.saturating_mul(SECOND) / period.max(1)).next_multiple_of(HUNDREDTH)
}

/// Limits as properties of a unit, in as far as systemd has one for each.
fn properties(limits: &Limits, cgroups: Version, systemd: u32) -> Vec<Property> {
    let mut properties = Vec::new();
    let mut set = |name: &'static str, value: u64| properties.push((name, value.into()));
    let infinite = |bound: Bound| match bound {
        Bound::At(amount) => amount,
        Bound::Unlimited => u64::MAX,
    };
    if let Some(memory) = limits.memory {
        match cgroups {
            Version::V1 => set("MemoryLimit", infinite(memory)),
            Version::V2 => set("MemoryMax", infinite(memory)),
        }
    }
    if let Some(shares) = limits.cpu_shares {
        match cgroups {
            Version::V1 => set("CPUShares", accepted_shares(shares)),
            Version::V2 => set("CPUWeight", weight_of_shares(shares)),
        }
    }
    if let Some(CpuBandwidth { quota, period }) = limits.cpu_bandwidth {
        if systemd >= HAS_QUOTA_PERIOD {
            set("CPUQuotaPeriodUSec", period);
        }
        let quota = match quota {
            Bound::At(quota) => per_second(quota, period),
            Bound::Unlimited => u64::MAX,
        };
        set("CPUQuotaPerSecUSec", quota);
    }
    if let Some(processes) = limits.processes {
        set("TasksMax", infinite(processes.as_processes()));
    }
    if let Version::V2 = cgroups {
        for (file, value) in &limits.unified {
            let name = match file.as_str() {
                "memory.high" => "MemoryHigh",
                "memory.low" => "MemoryLow",
                "memory.min" => "MemoryMin",
                "memory.max" => "MemoryMax",
                "memory.swap.max" => "MemorySwapMax",
                _ => continue,
            };
            match value.trim() {
                "max" => set(name, u64::MAX),
                number => _ = number.parse().map(|number| set(name, number)),
            }
        }
    }
    if let Some(cpus) = limits.cpus.as_deref().and_then(bits)
        && systemd >= HAS_ALLOWED_CPUS
    {
        properties.push(("AllowedCPUs", Value::Bytes(cpus)));
    }
    properties
}

/// Processors such as `0-3,8` as a bit for each, the first in the lowest. Nothing where there are none.
fn bits(cpus: &str) -> Option<Vec<u8>> {
    let mut bits = Vec::new();
    for range in cpus.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        for cpu in first..=last {
            let byte = usize::from(cpu / 8);
            if bits.len() <= byte {
                bits.resize(byte + 1, 0);
            }
            bits[byte] |= 1 << (cpu % 8);
        }
    }
    (!bits.is_empty()).then_some(bits)
}

#[cfg(test)]
mod tests;
