//! How answers are written down: whole, but for what no two runs have in common.
//!
//! A field with nothing in it is left out. IDs become the names of what they stand for, digests are counted, times and
//! addresses are checked and only said to be there.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::net::IpAddr;

use crablet_cri::Error;
use crablet_cri_api::{
    Container, ContainerStatus, ExecOutput, Image, ImageUser, RuntimeStatus, Sandbox, SandboxMetadata,
    SandboxStatus, v1,
};
use jiff::Timestamp;

/// How many hexadecimal digits an ID has.
const ID_LENGTH: usize = 64;
/// Of a text with more characters than this, only the beginning and the length are shown.
const SHOWN: usize = 200;

/// What stands in a transcript for IDs and digests.
#[derive(Default)]
pub struct Names {
    ids: BTreeMap<String, String>,
    counts: BTreeMap<String, usize>,
}

impl Names {
    /// Remembers what an ID stands for.
    pub fn learn(&mut self, name: &str, id: &str) {
        assert!(id.len() == ID_LENGTH && id.chars().all(is_digit), "{id:?} is no ID");
        let count = self.counts.entry(name.to_owned()).or_default();
        *count += 1;
        let name = if *count == 1 { format!("<{name}>") } else { format!("<{name} {count}>") };
        self.ids.insert(id.to_owned(), name);
    }

    /// A text with names in the place of IDs and digests.
    pub fn normal(&self, text: &str) -> String {
        let mut normal = String::new();
        let mut rest = text;
        let mut digests: Vec<&str> = Vec::new();
        while let Some(start) = rest.find(is_digit) {
            let (before, from) = rest.split_at(start);
            let length = from.find(|character| !is_digit(character)).unwrap_or(from.len());
            let (digits, after) = from.split_at(length);
            normal.push_str(before);
            if length != ID_LENGTH {
                normal.push_str(digits);
            } else if let Some(name) = self.ids.get(digits) {
                normal.push_str(name);
            } else {
                let kind = if before.ends_with(':') { "digest" } else { "id" };
                let number = digests.iter().position(|known| *known == digits).unwrap_or_else(|| {
                    digests.push(digits);
                    digests.len() - 1
                });
                let _ = write!(normal, "<{kind} {}>", number + 1);
            }
            rest = after;
        }
        normal + rest
    }
}

fn is_digit(character: char) -> bool {
    matches!(character, '0'..='9' | 'a'..='f')
}

/// An error, without the endpoint.
pub fn error(error: &Error) -> String {
    match error {
        // containerd 1.7 has it in small letters.
        Error::Answer { .. } => error.to_string().replace("Prefix can't be empty", "prefix can't be empty"),
        Error::Malformed { .. } => error.to_string(),
        // Without the method: a list may have been asked for in one of two ways.
        Error::Unreachable { .. } => "unreachable".to_owned(),
        Error::Unsupported { .. } => "unsupported".to_owned(),
        Error::Deadline { .. } => "no answer in time".to_owned(),
        Error::NotCri { .. }
        | Error::TooLarge { .. }
        | Error::BadEndpoint { .. }
        | Error::PathTooLong { .. } => {
            panic!("{error}")
        }
    }
}

/// Fields, one after the other.
#[derive(Default)]
struct Fields(String);

impl Fields {
    /// Begins a line below the one that says what this is about.
    fn line(&mut self) {
        self.0.push_str("\n   ");
    }

    fn word(&mut self, word: impl Debug) -> &mut Fields {
        let _ = write!(self.0, " {word:?}");
        self
    }

    /// A time that is there, and does not lie before another one.
    fn time(&mut self, name: &str, time: Option<Timestamp>, after: Option<Timestamp>) -> &mut Fields {
        if let Some(time) = time {
            assert!(after.is_none_or(|after| after <= time), "{name} {time} lies before {after:?}");
            let _ = write!(self.0, " {name}");
        }
        self
    }

    fn text(&mut self, name: &str, text: &str) -> &mut Fields {
        if !text.is_empty() {
            let _ = write!(self.0, " {name}={}", shortened(text));
        }
        self
    }

    fn map(&mut self, name: &str, map: &BTreeMap<String, String>) -> &mut Fields {
        for (key, value) in map {
            self.line();
            let _ = write!(self.0, " {name} {}={}", shortened(key), shortened(value));
        }
        self
    }
}

/// A text in quotes; of a long one the beginning, the length and a checksum.
fn shortened(text: &str) -> String {
    let length = text.chars().count();
    if length <= SHOWN {
        return format!("{text:?}");
    }
    let beginning: String = text.chars().take(20).collect();
    // FNV-1a.
    let checksum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{beginning:?}… ({length} characters, checksum {checksum})")
}

fn metadata(metadata: &SandboxMetadata) -> String {
    let SandboxMetadata { name, namespace, uid, attempt } = metadata;
    format!("{namespace}/{name} {uid} #{attempt}")
}

/// A sandbox in a list.
pub fn sandbox(sandbox: &Sandbox) -> String {
    let Sandbox { id, metadata: of, state, created_at, labels, annotations, runtime_handler } = sandbox;
    let mut fields = Fields(format!("\n  {id} {} {state:?}", metadata(of)));
    fields
        .time("created", *created_at, None)
        .text("handler", runtime_handler)
        .map("label", labels)
        .map("annotation", annotations);
    fields.0
}

/// A sandbox, seen closely.
pub fn sandbox_status(status: &SandboxStatus) -> String {
    let SandboxStatus {
        id,
        metadata: of,
        state,
        created_at,
        ips,
        network,
        labels,
        annotations,
        runtime_handler,
    } = status;
    let mut fields = Fields(format!("\n  {id} {} {state:?}", metadata(of)));
    fields.time("created", *created_at, None);
    let _ = write!(fields.0, " network={network:?}");
    for ip in ips {
        assert!(ip.parse::<IpAddr>().is_ok_and(|ip| !ip.is_loopback() && !ip.is_unspecified()), "{ip}");
        fields.0.push_str(" <ip>");
    }
    fields.text("handler", runtime_handler).map("label", labels).map("annotation", annotations);
    fields.0
}

/// A container in a list.
pub fn container(container: &Container) -> String {
    let Container {
        id,
        sandbox_id,
        name,
        attempt,
        image,
        image_ref,
        image_id,
        state,
        created_at,
        labels,
        annotations,
    } = container;
    let mut fields = Fields(format!("\n  {id} of {sandbox_id} {name} #{attempt} {state:?}"));
    fields
        .time("created", *created_at, None)
        .text("image", image)
        .text("ref", image_ref)
        .text("image_id", image_id)
        .map("label", labels)
        .map("annotation", annotations);
    fields.0
}

/// A container, seen closely.
pub fn container_status(status: &ContainerStatus) -> String {
    let ContainerStatus {
        id,
        name,
        attempt,
        state: _,
        created_at: _,
        started_at: _,
        finished_at: _,
        exit_code: _,
        image,
        image_ref,
        image_id,
        reason: _,
        message: _,
        labels,
        annotations,
        mounts,
        log_path,
        resources,
        user,
        stop_signal,
    } = status;
    let mut fields = Fields(format!("\n  {id} {name} #{attempt} {}", container_state(status)));
    fields.line();
    fields
        .text("image", image)
        .text("ref", image_ref)
        .text("image_id", image_id)
        .text("log", log_path)
        .map("label", labels)
        .map("annotation", annotations);
    for mount in mounts {
        fields.line();
        let _ = write!(fields.0, " {}", self::mount(mount));
    }
    let resources = resources.as_ref().map(self::resources).unwrap_or_default();
    if !resources.is_empty() {
        fields.line();
        let _ = write!(fields.0, " resources{resources}");
    }
    if let Some(user) = user {
        fields.line();
        let _ = write!(fields.0, " {user:?}");
    }
    if *stop_signal != v1::Signal::RuntimeDefault {
        fields.word(stop_signal);
    }
    fields.0
}

/// Where a container is in its life, and how it ended.
pub fn container_state(status: &ContainerStatus) -> String {
    let ContainerStatus { state, created_at, started_at, finished_at, exit_code, reason, message, .. } =
        status;
    let mut fields = Fields(format!("{state:?}"));
    fields.time("created", *created_at, None).time("started", *started_at, *created_at);
    // containerd may take the time of an exit before that of the start, which ends when its own work on it does.
    fields.time("finished", *finished_at, *created_at);
    if *exit_code != 0 || finished_at.is_some() {
        let _ = write!(fields.0, " exit_code={exit_code}");
    }
    fields.text("reason", reason).text("message", message);
    fields.0
}

/// What is limited.
fn resources(resources: &v1::ContainerResources) -> String {
    let linux = resources.linux.clone().unwrap_or_default();
    let mut fields = Fields::default();
    for (name, value) in [
        ("cpu_period", linux.cpu_period),
        ("cpu_quota", linux.cpu_quota),
        ("cpu_shares", linux.cpu_shares),
        ("memory", linux.memory_limit_in_bytes),
        ("memory_and_swap", linux.memory_swap_limit_in_bytes),
        ("oom_score_adj", linux.oom_score_adj),
    ] {
        if value != 0 {
            let _ = write!(fields.0, " {name}={value}");
        }
    }
    fields.text("cpus", &linux.cpuset_cpus).text("mems", &linux.cpuset_mems).map("unified", &linux.unified);
    fields.0
}

fn mount(mount: &v1::Mount) -> String {
    let mut fields = Fields(format!("mount {:?} on {:?}", mount.host_path, mount.container_path));
    for (is_so, word) in [
        (mount.readonly, "readonly"),
        (mount.selinux_relabel, "relabelled"),
        (mount.recursive_read_only, "recursive"),
    ] {
        if is_so {
            let _ = write!(fields.0, " {word}");
        }
    }
    fields.word(mount.propagation());
    fields.0
}

/// What a command left behind.
pub fn exec_output(output: &ExecOutput) -> String {
    let ExecOutput { stdout, stderr, exit_code } = output;
    let mut fields = Fields(format!("{exit_code}"));
    fields.text("stdout", &String::from_utf8_lossy(stdout)).text("stderr", &String::from_utf8_lossy(stderr));
    fields.0
}

/// An image. Its size depends on how it was made.
pub fn image(image: &Image) -> String {
    let Image { id, repo_tags, repo_digests, size, user, pinned } = image;
    assert!(*size > 0, "{image:?}");
    let mut fields = Fields(id.clone());
    for name in repo_tags.iter().chain(repo_digests) {
        let _ = write!(fields.0, " {name}");
    }
    match user {
        Some(ImageUser::Id(id)) => {
            let _ = write!(fields.0, " user={id}");
        }
        Some(ImageUser::Name(name)) => {
            fields.text("user", name);
        }
        None => {}
    }
    if *pinned {
        fields.0.push_str(" pinned");
    }
    fields.0
}

/// How a runtime is.
pub fn runtime_status(status: &RuntimeStatus) -> String {
    let RuntimeStatus { runtime, network, handlers: _, features: _ } = status;
    format!("\n  {runtime:?}\n  {network:?}")
}

/// A log: every line's time is checked, and taken out.
pub fn log(text: &str) -> String {
    let mut shown = String::new();
    let mut last = Timestamp::MIN;
    for line in text.split_inclusive('\n') {
        let Some((time, rest)) = line.split_once(' ') else {
            panic!("{line:?} has no time");
        };
        let time: Timestamp = time.parse().unwrap_or_else(|error| panic!("{line:?}: {error}"));
        assert!(last <= time, "{time} comes after {last}");
        last = time;
        let _ = writeln!(shown, "  {}", shortened(rest));
    }
    shown
}
