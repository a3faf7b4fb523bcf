//! What a wrong configuration or a wrong flag is answered with, to the letter.
//!
//! Each case is tried on the program itself, as the agent and as `crablet config`, in a directory of its own that is
//! called `DIR` here. Whatever the case, the program must end with code 2, print nothing to standard output, leave
//! the directory as it was, and say what is wrong, where, and what would be accepted.
//!
//! A new case is two lines with an empty `expect![[""]]`; `UPDATE_EXPECT=1 cargo test -p crablet` fills it in.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::timeout;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// Whatever takes this long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// So many at once.
const AT_ONCE: usize = 4;

/// What is in the directory, and how the program is called.
struct Trial {
    /// The input in short, for the message of a failure.
    about: String,
    prepare: Vec<Preparation>,
    arguments: Vec<String>,
    ways: &'static [Way],
}

type Preparation = Box<dyn FnOnce(&Path) + Send>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Agent,
    Config,
    StrictConfig,
    /// As the agent, by a root that the permission bits count for.
    Unprivileged,
    /// Nothing but the arguments.
    Bare,
}

/// A `--config` file with these lines below its first two.
fn fields(lines: &str) -> Trial {
    file(format!("{HEAD}{lines}\n"))
}

/// A `--config` file with this content.
fn file(content: impl Into<Vec<u8>>) -> Trial {
    let content = content.into();
    let about = String::from_utf8_lossy(&content[..content.len().min(300)]).into_owned();
    let prepare = move |dir: &Path| fs::write(dir.join("kubelet.yaml"), content).unwrap();
    Trial { about, prepare: vec![Box::new(prepare)], ..flags(&["--config=DIR/kubelet.yaml"]) }
}

/// A `--config` file at this path.
fn at(path: &str) -> Trial {
    flags(&[&format!("--config={path}")])
}

/// Flags alone.
fn flags(flags: &[&str]) -> Trial {
    Trial {
        about: String::new(),
        prepare: Vec::new(),
        arguments: flags.iter().map(|&flag| flag.to_owned()).collect(),
        ways: &[Way::Agent, Way::Config],
    }
}

/// These arguments and no others.
fn bare(arguments: &[&str]) -> Trial {
    Trial { ways: &[Way::Bare], ..flags(arguments) }
}

/// A drop-in of a good file, with this content.
fn drop_in(content: impl Into<Vec<u8>>) -> Trial {
    let content = content.into();
    fields("").and_flag("--config-dir=DIR/conf.d").with(move |dir| {
        fs::create_dir(dir.join("conf.d")).unwrap();
        fs::write(dir.join("conf.d/10-a.conf"), content).unwrap();
    })
}

impl Trial {
    fn and_flag(mut self, flag: &str) -> Trial {
        self.arguments.push(flag.to_owned());
        self
    }

    /// Something more in the directory.
    fn with(mut self, prepare: impl FnOnce(&Path) + Send + 'static) -> Trial {
        self.prepare.push(Box::new(prepare));
        self
    }

    fn only(self, ways: &'static [Way]) -> Trial {
        Trial { ways, ..self }
    }

    /// What the program says to this; the same in every way that it is tried.
    async fn answer(self, code: i32) -> String {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        self.prepare.into_iter().for_each(|prepare| prepare(dir));
        let before = files_below(dir);
        let mut answers = BTreeMap::new();
        for &way in self.ways {
            let arguments = self.arguments.iter().map(|text| text.replace("DIR", dir.to_str().unwrap()));
            let output = run(way, dir, arguments.collect()).await;
            let stderr = String::from_utf8(output.stderr).unwrap().replace(dir.to_str().unwrap(), "DIR");
            let about = format!("{way:?} with {:?} {}:\n{stderr}", self.arguments, self.about);
            assert_eq!(output.status.code(), Some(code), "{about}");
            assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{about}");
            assert!(!stderr.contains("panicked"), "{about}");
            assert!(!dir.join("root").exists(), "something was started: {about}");
            assert_eq!(files_below(dir), before, "{about}");
            answers.entry(stderr).or_insert(way);
        }
        assert_eq!(answers.len(), 1, "not the same in every way: {answers:#?}");
        let answer: String = answers.into_keys().collect();
        answer.strip_suffix('\n').expect("the last line is a whole one").to_owned()
    }
}

async fn run(way: Way, dir: &Path, arguments: Vec<String>) -> Output {
    let program = env!("CARGO_BIN_EXE_crablet");
    let mut command = match way {
        // Anybody else than root has no privileges to begin with.
        Way::Unprivileged if rustix::process::geteuid().is_root() => {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set=-all", "--", program]);
            command
        }
        Way::Unprivileged | Way::Agent | Way::Config | Way::StrictConfig | Way::Bare => Command::new(program),
    };
    match way {
        Way::Config => command.arg("config"),
        Way::StrictConfig => command.args(["config", "--strict"]),
        Way::Agent | Way::Unprivileged | Way::Bare => &mut command,
    };
    command.args(arguments);
    if way != Way::Bare {
        command.arg(format!("--root-dir={}", dir.join("root").display()));
    }
    command.stdin(Stdio::null()).kill_on_drop(true);
    timeout(PATIENCE, command.output()).await.expect("the program hangs").expect("the program cannot be run")
}

/// Every path below a directory, however deep.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                directories.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// Tries each case, and holds its answer against the expected one.
async fn check(code: i32, cases: impl IntoIterator<Item = (Trial, Expect)>) {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let tries: Vec<_> = cases
        .into_iter()
        .map(|(trial, expected)| {
            let permits = permits.clone();
            let answer = async move {
                let _permit = permits.acquire_owned().await.unwrap();
                trial.answer(code).await
            };
            (tokio::spawn(answer), expected)
        })
        .collect();
    for (answer, expected) in tries {
        expected.assert_eq(&answer.await.unwrap());
    }
}

async fn refused(cases: impl IntoIterator<Item = (Trial, Expect)>) {
    check(2, cases).await;
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named_with_the_reason() {
    refused([
        (
            at("DIR/no-such-file"),
            expect!["crablet: DIR/no-such-file: cannot be read: no such file or directory"],
        ),
        (
            file("").and_flag("--config=DIR/kubelet.yaml/below"),
            expect!["crablet: DIR/kubelet.yaml/below: cannot be read: not a directory"],
        ),
        (at("DIR"), expect!["crablet: DIR: cannot be read: it is a directory, not a file"]),
        (at("/dev/null"), expect!["crablet: /dev/null: cannot be read: it is not a regular file"]),
        (at("/dev/zero"), expect!["crablet: /dev/zero: cannot be read: it is not a regular file"]),
        (
            at("DIR/dangling")
                .with(|dir| std::os::unix::fs::symlink("nowhere", dir.join("dangling")).unwrap()),
            expect!["crablet: DIR/dangling: cannot be read: no such file or directory"],
        ),
        (
            at("DIR/loop").with(|dir| std::os::unix::fs::symlink("loop", dir.join("loop")).unwrap()),
            expect!["crablet: DIR/loop: cannot be read: too many levels of symbolic links"],
        ),
        (
            at("DIR/pipe").with(|dir| {
                let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
                rustix::fs::mknodat(rustix::fs::CWD, dir.join("pipe"), kind, mode, 0).unwrap();
            }),
            expect!["crablet: DIR/pipe: cannot be read: it is not a regular file"],
        ),
        (
            at("DIR/socket")
                .with(|dir| drop(std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap())),
            expect!["crablet: DIR/socket: cannot be read: it is not a regular file"],
        ),
        (
            fields("").only(&[Way::Unprivileged]).with(|dir| {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(dir.join("kubelet.yaml"), fs::Permissions::from_mode(0o0)).unwrap();
            }),
            expect!["crablet: DIR/kubelet.yaml: cannot be read: permission denied"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_file_that_is_no_text_or_too_much_of_it_is_refused() {
    let utf_16: Vec<u8> =
        [0xff, 0xfe].into_iter().chain(HEAD.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let ten_megabytes = format!("{HEAD}maxPods: 1 # {}", "x".repeat(10 << 20));
    refused([
        (
            file(""),
            expect!["crablet: DIR/kubelet.yaml: is empty; expected a mapping with apiVersion and kind"],
        ),
        (
            file(" \n\n  \n"),
            expect!["crablet: DIR/kubelet.yaml: is empty; expected a mapping with apiVersion and kind"],
        ),
        (
            file("# nothing\n# but comments\n"),
            expect!["crablet: DIR/kubelet.yaml: is empty; expected a mapping with apiVersion and kind"],
        ),
        (
            file("---\n...\n"),
            expect!["crablet: DIR/kubelet.yaml: is empty; expected a mapping with apiVersion and kind"],
        ),
        (
            file("\u{feff}"),
            expect!["crablet: DIR/kubelet.yaml: is empty; expected a mapping with apiVersion and kind"],
        ),
        (
            file("null\n"),
            expect!["crablet: DIR/kubelet.yaml: is empty; expected a mapping with apiVersion and kind"],
        ),
        (
            file([HEAD.as_bytes(), b"clusterDomain: \xe9\n"].concat()),
            expect!["crablet: DIR/kubelet.yaml:3: is not UTF-8 text"],
        ),
        (file(utf_16), expect!["crablet: DIR/kubelet.yaml:1: is not UTF-8 text"]),
        (
            fields("clusterDomain: \"\0\""),
            expect![[r#"crablet: DIR/kubelet.yaml:3: is not valid YAML: unexpected character: `\u{0}'"#]],
        ),
        (
            file([0u8; 64]),
            expect![[r#"crablet: DIR/kubelet.yaml:1: is not valid YAML: unexpected character: `\u{0}'"#]],
        ),
        (
            file(ten_megabytes),
            expect!["crablet: DIR/kubelet.yaml: is larger than 3145728 bytes, the most that is accepted"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_file_that_is_not_yaml_is_refused_with_the_line() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, inner) in ('b'..='j').zip('a'..='i') {
        writeln!(bomb, "{name}: &{name} [{}]", format!("*{inner}, ").repeat(9)).unwrap();
    }
    let nested: String = (0..200).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    refused([
        (
            fields("maxPods: [1"),
            expect!["crablet: DIR/kubelet.yaml:3: is not valid YAML: unclosed bracket '['"],
        ),
        (
            fields("clusterDomain: \"cluster.local\nmaxPods: 5"),
            expect!["crablet: DIR/kubelet.yaml:4: is not valid YAML: invalid indentation in multiline quoted scalar"],
        ),
        (
            fields("logging:\n\tverbosity: 3"),
            expect!["crablet: DIR/kubelet.yaml:4: is not valid YAML: tabs disallowed within this context (block indentation)"],
        ),
        (
            fields("maxPods: 5\n podsPerCore: 3"),
            expect!["crablet: DIR/kubelet.yaml:4: is not valid YAML: mapping values are not allowed in this context"],
        ),
        (
            fields("maxPods: 5 podsPerCore: 3"),
            expect!["crablet: DIR/kubelet.yaml:3: is not valid YAML: mapping values are not allowed in this context"],
        ),
        (
            fields("maxPods 5"),
            expect!["crablet: DIR/kubelet.yaml:3: is not valid YAML: simple key expected ':'"],
        ),
        (
            fields("clusterDomain: @home"),
            expect!["crablet: DIR/kubelet.yaml:3: is not valid YAML: unexpected character: `@'"],
        ),
        (
            fields("clusterDomain: *home"),
            expect!["crablet: DIR/kubelet.yaml:3: is not valid YAML: while parsing node, found unknown anchor"],
        ),
        (
            fields("clusterDNS: &dns [10.0.0.1, *dns]"),
            expect!["crablet: DIR/kubelet.yaml:3: is not valid YAML: an alias may not stand inside the value it names"],
        ),
        (
            fields("logging: &l\n  options: *l"),
            expect!["crablet: DIR/kubelet.yaml:4: is not valid YAML: an alias may not stand inside the value it names"],
        ),
        (
            fields(&bomb),
            expect!["crablet: DIR/kubelet.yaml:8: expands to more than 200000 values (aliases count each time)"],
        ),
        (
            fields("? [maxPods]\n: 5"),
            expect!["crablet: DIR/kubelet.yaml:3: is not valid YAML: a key must be text, not a list or a mapping"],
        ),
        (
            fields("maxPods: !!int many"),
            expect!["crablet: DIR/kubelet.yaml:3: is not valid YAML: text is not a !!int"],
        ),
        (
            fields("logging:\n  <<: 5"),
            expect!["crablet: DIR/kubelet.yaml:4: is not valid YAML: << takes a mapping or a list of them, not a number"],
        ),
        (
            file(format!("%YAML 3.0\n%YAML 3.0\n---\n{HEAD}")),
            expect!["crablet: DIR/kubelet.yaml:1: is not valid YAML: unsupported YAML major version"],
        ),
        (
            fields(&format!("clusterDNS: {}", "[".repeat(10_000))),
            expect!["crablet: DIR/kubelet.yaml:3: is not valid YAML: is nested deeper than 100 levels"],
        ),
        (
            fields(&format!("logging: {}", "{a: ".repeat(10_000))),
            expect!["crablet: DIR/kubelet.yaml:3: is not valid YAML: is nested deeper than 100 levels"],
        ),
        (
            fields(&format!("clusterDNS:\n{}", "- ".repeat(10_000))),
            expect!["crablet: DIR/kubelet.yaml:4: is not valid YAML: is nested deeper than 100 levels"],
        ),
        (
            fields(&nested),
            expect!["crablet: DIR/kubelet.yaml:103: is not valid YAML: is nested deeper than 100 levels"],
        ),
        (
            file("{\"apiVersion\": \"kubelet.config.k8s.io/v1beta1\", \"kind\": }"),
            expect![[r#"crablet: DIR/kubelet.yaml: kind: is missing; expected "KubeletConfiguration""#]],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_file_of_another_kind_is_refused_with_the_kind_that_is_expected() {
    refused([
        (
            file("- kind: KubeletConfiguration\n"),
            expect!["crablet: DIR/kubelet.yaml:1: expected a mapping with apiVersion and kind, found a list"],
        ),
        (
            file("KubeletConfiguration\n"),
            expect!["crablet: DIR/kubelet.yaml:1: expected a mapping with apiVersion and kind, found text"],
        ),
        (
            file("5\n"),
            expect!["crablet: DIR/kubelet.yaml:1: expected a mapping with apiVersion and kind, found a number"],
        ),
        (
            file("kind: KubeletConfiguration\n"),
            expect![[r#"crablet: DIR/kubelet.yaml: apiVersion: is missing; expected "kubelet.config.k8s.io/v1beta1""#]],
        ),
        (
            file("apiVersion: kubelet.config.k8s.io/v1beta1\n"),
            expect![[r#"crablet: DIR/kubelet.yaml: kind: is missing; expected "KubeletConfiguration""#]],
        ),
        (file("maxPods: 5\n"), expect![[r#"
            crablet: DIR/kubelet.yaml: apiVersion: is missing; expected "kubelet.config.k8s.io/v1beta1"
            crablet: DIR/kubelet.yaml: kind: is missing; expected "KubeletConfiguration""#]]),
        (file("{}\n"), expect![[r#"
            crablet: DIR/kubelet.yaml: apiVersion: is missing; expected "kubelet.config.k8s.io/v1beta1"
            crablet: DIR/kubelet.yaml: kind: is missing; expected "KubeletConfiguration""#]]),
        (
            file("apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n"),
            expect![[r#"crablet: DIR/kubelet.yaml:1: apiVersion: expected "kubelet.config.k8s.io/v1beta1", found "kubelet.config.k8s.io/v1""#]],
        ),
        (file("apiVersion: v1\nkind: Pod\n"), expect![[r#"
            crablet: DIR/kubelet.yaml:1: apiVersion: expected "kubelet.config.k8s.io/v1beta1", found "v1"
            crablet: DIR/kubelet.yaml:2: kind: expected "KubeletConfiguration", found "Pod""#]]),
        (
            file("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: kubeletconfiguration\n"),
            expect![[r#"crablet: DIR/kubelet.yaml:2: kind: expected "KubeletConfiguration", found "kubeletconfiguration""#]],
        ),
        (
            file("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: [KubeletConfiguration]\n"),
            expect![[r#"crablet: DIR/kubelet.yaml:2: kind: expected "KubeletConfiguration", found a list"#]],
        ),
        (file("apiVersion: 1\nkind: true\n"), expect![[r#"
            crablet: DIR/kubelet.yaml:1: apiVersion: expected "kubelet.config.k8s.io/v1beta1", found a number
            crablet: DIR/kubelet.yaml:2: kind: expected "KubeletConfiguration", found a boolean"#]]),
    ])
    .await;
}

#[tokio::test]
async fn a_drop_in_is_held_to_the_same_rules() {
    refused([
        (
            fields("").and_flag("--config-dir=DIR/no-such-directory"),
            expect!["crablet: DIR/no-such-directory: cannot be read: no such file or directory"],
        ),
        (
            fields("").and_flag("--config-dir=DIR/kubelet.yaml"),
            expect!["crablet: DIR/kubelet.yaml: cannot be read: not a directory"],
        ),
        (
            flags(&["--config-dir=DIR/no-such-directory"]),
            expect!["crablet: DIR/no-such-directory: cannot be read: no such file or directory"],
        ),
        (
            drop_in(""),
            expect!["crablet: DIR/conf.d/10-a.conf: is empty; expected a mapping with apiVersion and kind"],
        ),
        (drop_in("maxPods: 5\n"), expect![[r#"
            crablet: DIR/conf.d/10-a.conf: apiVersion: is missing; expected "kubelet.config.k8s.io/v1beta1"
            crablet: DIR/conf.d/10-a.conf: kind: is missing; expected "KubeletConfiguration""#]]),
        (drop_in("apiVersion: v1\nkind: Pod\n"), expect![[r#"
            crablet: DIR/conf.d/10-a.conf:1: apiVersion: expected "kubelet.config.k8s.io/v1beta1", found "v1"
            crablet: DIR/conf.d/10-a.conf:2: kind: expected "KubeletConfiguration", found "Pod""#]]),
        (
            drop_in("maxPods: [\n"),
            expect!["crablet: DIR/conf.d/10-a.conf:1: is not valid YAML: unclosed bracket '['"],
        ),
        (
            drop_in(format!("{HEAD}maxPods: many\n")),
            expect!["crablet: DIR/conf.d/10-a.conf:3: maxPods: expected a whole number from -2147483648 to 2147483647, found text"],
        ),
        (
            drop_in(format!("{HEAD}maxPods: -1\n")),
            expect!["crablet: DIR/conf.d/10-a.conf:3: invalid configuration: maxPods (--max-pods) -1 must not be a negative number"],
        ),
        (
            drop_in(HEAD)
                .with(|dir| std::os::unix::fs::symlink("nowhere", dir.join("conf.d/20-b.conf")).unwrap()),
            expect!["crablet: DIR/conf.d/20-b.conf: cannot be read: no such file or directory"],
        ),
        (
            drop_in(HEAD).with(|dir| {
                fs::create_dir_all(dir.join(format!("conf.d{}", "/deeper".repeat(40)))).unwrap();
            }),
            expect!["crablet: DIR/conf.d/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper/deeper: cannot be read: the directories are nested more than 32 levels deep"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_value_of_the_wrong_type_is_refused_with_what_the_field_takes() {
    refused([
        (
            fields("maxPods: many"),
            expect!["crablet: DIR/kubelet.yaml:3: maxPods: expected a whole number from -2147483648 to 2147483647, found text"],
        ),
        (
            fields("maxPods: \"5\""),
            expect!["crablet: DIR/kubelet.yaml:3: maxPods: expected a whole number from -2147483648 to 2147483647, found text"],
        ),
        (
            fields("maxPods: 5.5"),
            expect!["crablet: DIR/kubelet.yaml:3: maxPods: expected a whole number from -2147483648 to 2147483647, found a number with a fraction"],
        ),
        (
            fields("maxPods: 3000000000"),
            expect!["crablet: DIR/kubelet.yaml:3: maxPods: expected a whole number from -2147483648 to 2147483647, found 3000000000"],
        ),
        (
            fields("maxPods: 99999999999999999999999999"),
            expect!["crablet: DIR/kubelet.yaml:3: maxPods: expected a whole number from -2147483648 to 2147483647, found a number of more than 64 bits"],
        ),
        (
            fields("maxPods: [5]"),
            expect!["crablet: DIR/kubelet.yaml:3: maxPods: expected a whole number from -2147483648 to 2147483647, found a list"],
        ),
        (
            fields("podPidsLimit: 9223372036854775808"),
            expect!["crablet: DIR/kubelet.yaml:3: podPidsLimit: expected a whole number from -9223372036854775808 to 9223372036854775807, found 9223372036854775808"],
        ),
        (
            fields("failSwapOn: \"false\""),
            expect!["crablet: DIR/kubelet.yaml:3: failSwapOn: expected true or false, found text"],
        ),
        (
            fields("failSwapOn: 0"),
            expect!["crablet: DIR/kubelet.yaml:3: failSwapOn: expected true or false, found a whole number"],
        ),
        (
            fields("clusterDomain: 5"),
            expect!["crablet: DIR/kubelet.yaml:3: clusterDomain: expected text, found a whole number"],
        ),
        (
            fields("clusterDomain: {name: cluster.local}"),
            expect!["crablet: DIR/kubelet.yaml:3: clusterDomain: expected text, found a mapping"],
        ),
        (
            fields("clusterDNS: 10.0.0.10"),
            expect!["crablet: DIR/kubelet.yaml:3: clusterDNS: expected a list, found text"],
        ),
        (
            fields("clusterDNS:\n- 10.0.0.10\n- 53"),
            expect!["crablet: DIR/kubelet.yaml:5: clusterDNS[1]: expected text, found a whole number"],
        ),
        (
            fields("logging: [json]"),
            expect!["crablet: DIR/kubelet.yaml:3: logging: expected a mapping, found a list"],
        ),
        (
            fields("logging: json"),
            expect!["crablet: DIR/kubelet.yaml:3: logging: expected a mapping, found text"],
        ),
        (
            fields("logging:\n  verbosity: -1"),
            expect!["crablet: DIR/kubelet.yaml:4: logging.verbosity: expected a whole number from 0 to 4294967295, found -1"],
        ),
        (
            fields("authentication:\n  anonymous: false"),
            expect!["crablet: DIR/kubelet.yaml:4: authentication.anonymous: expected a mapping, found a boolean"],
        ),
        (
            fields("evictionHard: 5%"),
            expect!["crablet: DIR/kubelet.yaml:3: evictionHard: expected a mapping, found text"],
        ),
        (
            fields("memoryThrottlingFactor: most"),
            expect!["crablet: DIR/kubelet.yaml:3: memoryThrottlingFactor: expected a number, found text"],
        ),
        (
            fields("registerWithTaints: [NoSchedule]"),
            expect!["crablet: DIR/kubelet.yaml:3: registerWithTaints[0]: expected a mapping, found text"],
        ),
        (
            fields("featureGates: [PodsAPI]"),
            expect!["crablet: DIR/kubelet.yaml:3: featureGates: expected a mapping, found a list"],
        ),
        (
            fields("featureGates:\n  PodsAPI: \"true\""),
            expect!["crablet: DIR/kubelet.yaml:4: featureGates.PodsAPI: expected true or false, found text"],
        ),
        (
            fields("cpuManagerPolicy: 1"),
            expect!["crablet: DIR/kubelet.yaml:3: cpuManagerPolicy: expected text, found a whole number"],
        ),
        (
            fields("staticPodURLHeader:\n  Authorization: secret"),
            expect!["crablet: DIR/kubelet.yaml:4: staticPodURLHeader.Authorization: expected a list, found text"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_duration_that_is_none_is_refused_with_what_one_looks_like() {
    refused([
        (
            fields("syncFrequency: 10"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: syncFrequency: expected a duration such as "10s" or "1h30m", found a whole number"#]],
        ),
        (
            fields("syncFrequency: \"10\""),
            expect![[r#"crablet: DIR/kubelet.yaml:3: syncFrequency: time: missing unit in duration "10"; expected a duration such as "10s" or "1h30m""#]],
        ),
        (
            fields("syncFrequency: 10 seconds"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: syncFrequency: time: unknown unit " seconds" in duration "10 seconds"; expected a duration such as "10s" or "1h30m""#]],
        ),
        (
            fields("syncFrequency: 1d"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: syncFrequency: time: unknown unit "d" in duration "1d"; expected a duration such as "10s" or "1h30m""#]],
        ),
        (
            fields("syncFrequency: soon"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: syncFrequency: time: invalid duration "soon"; expected a duration such as "10s" or "1h30m""#]],
        ),
        (
            fields("syncFrequency: 1000000h1000000h1000000h"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: syncFrequency: time: invalid duration "1000000h1000000h1000000h"; expected a duration such as "10s" or "1h30m""#]],
        ),
        (
            fields("authorization:\n  webhook:\n    cacheAuthorizedTTL: 5x"),
            expect![[r#"crablet: DIR/kubelet.yaml:5: authorization.webhook.cacheAuthorizedTTL: time: unknown unit "x" in duration "5x"; expected a duration such as "10s" or "1h30m""#]],
        ),
        (
            fields("logging:\n  flushFrequency: often"),
            expect![[r#"crablet: DIR/kubelet.yaml:4: logging.flushFrequency: time: invalid duration "often"; expected a duration such as "10s" or "1h30m""#]],
        ),
        (
            flags(&["--sync-frequency=10"]),
            expect![[r#"crablet: --sync-frequency: time: missing unit in duration "10"; expected a duration such as "10s" or "1h30m""#]],
        ),
        (
            flags(&["--sync-frequency=1d"]),
            expect![[r#"crablet: --sync-frequency: time: unknown unit "d" in duration "1d"; expected a duration such as "10s" or "1h30m""#]],
        ),
        (
            flags(&["--sync-frequency="]),
            expect![[r#"crablet: --sync-frequency: time: invalid duration ""; expected a duration such as "10s" or "1h30m""#]],
        ),
        (
            flags(&["--minimum-container-ttl-duration=soon"]),
            expect![[r#"crablet: --minimum-container-ttl-duration: time: invalid duration "soon"; expected a duration such as "10s" or "1h30m""#]],
        ),
    ])
    .await;
}

#[tokio::test]
async fn an_address_a_range_a_quantity_or_a_set_that_is_none_is_refused() {
    refused([
        (
            fields("address: 10.0.0"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: address: invalid IP address syntax; expected an address such as "10.0.0.1" or "fd00::1""#]],
        ),
        (
            fields("address: localhost"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: address: invalid IP address syntax; expected an address such as "10.0.0.1" or "fd00::1""#]],
        ),
        (
            fields("healthzBindAddress: \"::g\""),
            expect![[r#"crablet: DIR/kubelet.yaml:3: healthzBindAddress: invalid IP address syntax; expected an address such as "10.0.0.1" or "fd00::1""#]],
        ),
        (
            flags(&["--address=10.0.0.256"]),
            expect![[r#"crablet: --address: failed to parse IP: "10.0.0.256"; expected an address such as "10.0.0.1" or "fd00::1""#]],
        ),
        (
            fields("podCIDR: 10.0.0.0"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: podCIDR: invalid CIDR address: 10.0.0.0; expected a range such as "10.0.0.0/16""#]],
        ),
        (
            fields("podCIDR: 10.0.0.0/33"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: podCIDR: invalid CIDR address: 10.0.0.0/33; expected a range such as "10.0.0.0/16""#]],
        ),
        (
            fields("containerLogMaxSize: 10 MB"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: containerLogMaxSize: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'; expected a quantity such as "500m" or "10Mi""#]],
        ),
        (
            fields("containerLogMaxSize: 10Mb"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: containerLogMaxSize: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'; expected a quantity such as "500m" or "10Mi""#]],
        ),
        (
            fields("containerLogMaxSize: 1.2.3"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: containerLogMaxSize: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'; expected a quantity such as "500m" or "10Mi""#]],
        ),
        (
            fields("systemReserved:\n  memory: lots"),
            expect![[r#"crablet: DIR/kubelet.yaml:4: systemReserved.memory: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'; expected a quantity such as "500m" or "10Mi""#]],
        ),
        (
            fields("reservedMemory:\n- numaNode: 0\n  limits:\n    memory: lots"),
            expect![[r#"crablet: DIR/kubelet.yaml:6: reservedMemory[0].limits.memory: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'; expected a quantity such as "500m" or "10Mi""#]],
        ),
        (
            fields("reservedSystemCPUs: 0-"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: reservedSystemCPUs: strconv.Atoi: parsing "": invalid syntax; expected a list of CPUs such as "0-3,8""#]],
        ),
        (
            fields("reservedSystemCPUs: 3-1"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: reservedSystemCPUs: invalid range "3-1" (3 > 1)"#]],
        ),
        (
            fields("reservedSystemCPUs: 0-99999999"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: reservedSystemCPUs: invalid range "0-99999999": CPUs are numbered from 0 to 65535"#]],
        ),
        (
            fields("reservedSystemCPUs: all"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: reservedSystemCPUs: strconv.Atoi: parsing "all": invalid syntax; expected a list of CPUs such as "0-3,8""#]],
        ),
        (
            fields("qosReserved:\n  memory: \"50\""),
            expect![[r#"crablet: DIR/kubelet.yaml:4: qosReserved.memory: percentage such as "50%" expected, got '50'"#]],
        ),
        (
            fields("qosReserved:\n  memory: half%"),
            expect![[r#"crablet: DIR/kubelet.yaml:4: qosReserved.memory: invalid number in percentage 'half%'; a whole number such as "50%" is accepted"#]],
        ),
        (
            fields("qosReserved:\n  memory: 150%"),
            expect!["crablet: DIR/kubelet.yaml:4: qosReserved.memory: percentage '150%' must be between 0 and 100"],
        ),
        (
            fields("qosReserved:\n  cpu: 50%"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: qosReserved (--qos-reserved): cannot reserve "cpu" resource, only "memory""#]],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_number_that_is_out_of_range_is_refused_with_the_range() {
    refused([
        (
            fields("maxPods: -1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: maxPods (--max-pods) -1 must not be a negative number"],
        ),
        (
            fields("podsPerCore: -1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: podsPerCore (--pods-per-core) -1 must not be a negative number"],
        ),
        (
            fields("maxOpenFiles: -1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: maxOpenFiles (--max-open-files) -1 must not be a negative number"],
        ),
        (
            fields("eventBurst: -1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: eventBurst (--event-burst) -1 must not be a negative number"],
        ),
        (
            fields("eventRecordQPS: -1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: eventRecordQPS (--event-qps) -1 must not be a negative number"],
        ),
        (
            fields("kubeAPIBurst: -1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: kubeAPIBurst (--kube-api-burst) -1 must not be a negative number"],
        ),
        (
            fields("kubeAPIQPS: -1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: kubeAPIQPS (--kube-api-qps) -1 must not be a negative number"],
        ),
        (
            fields("registryBurst: -1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: registryBurst (--registry-burst) -1 must not be a negative number"],
        ),
        (
            fields("registryPullQPS: -1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: registryPullQPS (--registry-qps) -1 must not be a negative number"],
        ),
        (
            fields("nodeLeaseDurationSeconds: -1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: nodeLeaseDurationSeconds -1 must be greater than 0"],
        ),
        (
            fields("nodeStatusMaxImages: -2"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: nodeStatusMaxImages (--node-status-max-images) -2 must be -1 or greater"],
        ),
        (
            fields("oomScoreAdj: -1001"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: oomScoreAdj (--oom-score-adj) -1001 must be between -1000 and 1000, inclusive"],
        ),
        (
            fields("oomScoreAdj: 1001"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: oomScoreAdj (--oom-score-adj) 1001 must be between -1000 and 1000, inclusive"],
        ),
        (
            fields("iptablesDropBit: 32"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: iptablesDropBit (--iptables-drop-bit) 32 must be between 0 and 31, inclusive"],
        ),
        (
            fields("iptablesMasqueradeBit: -1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: iptablesMasqueradeBit (--iptables-masquerade-bit) -1 must be between 0 and 31, inclusive"],
        ),
        (
            fields("port: 65536"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: port (--port) 65536 must be between 1 and 65535, inclusive"],
        ),
        (
            fields("port: -1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: port (--port) -1 must be between 1 and 65535, inclusive"],
        ),
        (
            fields("readOnlyPort: 65536"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: readOnlyPort (--read-only-port) 65536 must be between 0 and 65535, inclusive"],
        ),
        (
            fields("healthzPort: 70000"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: healthzPort (--healthz-port) 70000 must be between 0 and 65535, inclusive"],
        ),
        (
            fields("imageGCHighThresholdPercent: 101"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: imageGCHighThresholdPercent (--image-gc-high-threshold) 101 must be between 0 and 100, inclusive"],
        ),
        (
            fields("imageGCLowThresholdPercent: -1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: imageGCLowThresholdPercent (--image-gc-low-threshold) -1 must be between 0 and 100, inclusive"],
        ),
        (
            fields("imageGCLowThresholdPercent: 86"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: imageGCLowThresholdPercent (--image-gc-low-threshold) 86 must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) 85"],
        ),
        (
            fields("imageGCHighThresholdPercent: 70"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: imageGCLowThresholdPercent (--image-gc-low-threshold) 80 must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) 70"],
        ),
        (
            fields("imageGCLowThresholdPercent: 60\nimageGCHighThresholdPercent: 60"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: imageGCLowThresholdPercent (--image-gc-low-threshold) 60 must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) 60"],
        ),
        (
            fields("imageMinimumGCAge: -1s"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: imageMinimumGCAge -1s must not be negative"],
        ),
        (
            fields("imageMaximumGCAge: -1s"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: imageMaximumGCAge -1s must not be negative"],
        ),
        (
            fields("imageMinimumGCAge: 2h\nimageMaximumGCAge: 1h"),
            expect!["crablet: DIR/kubelet.yaml:4: invalid configuration: imageMaximumGCAge 1h0m0s must be greater than imageMinimumGCAge 2h0m0s"],
        ),
        (
            fields("maxParallelImagePulls: 0"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: maxParallelImagePulls 0 must be a positive number"],
        ),
        (
            fields("containerLogMaxFiles: 1"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: containerLogMaxFiles 1 must be greater than 1"],
        ),
        (
            fields("containerLogMaxWorkers: 0"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: containerLogMaxWorkers 0 must be greater than or equal to 1"],
        ),
        (
            fields("containerLogMonitorInterval: 2s"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: containerLogMonitorInterval 2s must be a positive time duration greater than or equal to 3s"],
        ),
        (
            fields("memoryThrottlingFactor: 0"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: memoryThrottlingFactor 0 must be greater than 0 and less than or equal to 1.0"],
        ),
        (
            fields("memoryThrottlingFactor: 1.5"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: memoryThrottlingFactor 1.5 must be greater than 0 and less than or equal to 1.0"],
        ),
        (
            fields("cpuCFSQuotaPeriod: 200ms\nfeatureGates: {CustomCPUCFSQuotaPeriod: false}"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: cpuCFSQuotaPeriod (--cpu-cfs-quota-period) 200ms requires feature gate CustomCPUCFSQuotaPeriod"],
        ),
        (
            fields("cpuCFSQuotaPeriod: 2s"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: cpuCFSQuotaPeriod (--cpu-cfs-quota-period) 2s must be between 1ms and 1sec, inclusive"],
        ),
        (
            fields("crashLoopBackOff: {maxContainerRestartPeriod: 301s}\nfeatureGates: {KubeletCrashLoopBackOffMax: true}"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: crashLoopBackOff.maxContainerRestartPeriod (got: 301 seconds) must be set between 1s and 300s"],
        ),
        (
            fields("crashLoopBackOff: {maxContainerRestartPeriod: 10s}\nfeatureGates: {KubeletCrashLoopBackOffMax: false}"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: FeatureGate KubeletCrashLoopBackOffMax not enabled, crashLoopBackOff.maxContainerRestartPeriod must not be set"],
        ),
        (
            fields("userNamespaces: {idsPerPod: 1000}"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: userNamespaces.idsPerPod 1000 must not be less than 65536"],
        ),
        (
            fields("userNamespaces: {idsPerPod: 65537}"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: userNamespaces.idsPerPod 65537 must be a multiple of 65536"],
        ),
        (
            fields("userNamespaces: {idsPerPod: 4294967296}"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: userNamespaces.idsPerPod 4294967296 must not be more than 4294967295"],
        ),
        (
            fields("tracing: {samplingRatePerMillion: -1}"),
            expect!["crablet: DIR/kubelet.yaml:3: tracing.samplingRatePerMillion: Invalid value: -1: sampling rate must be positive"],
        ),
        (
            fields("tracing: {samplingRatePerMillion: 1000001}"),
            expect!["crablet: DIR/kubelet.yaml:3: tracing.samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or equal to one million"],
        ),
        (
            fields("tracing: {endpoint: \"http://localhost:4317\"}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: tracing.endpoint: Invalid value: "http://localhost:4317": unsupported scheme: http.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md"#]],
        ),
        (
            fields("logging: {verbosity: 2147483648}"),
            expect!["crablet: DIR/kubelet.yaml:3: logging.verbosity: Invalid value: 2147483648: Must be <= 2147483647"],
        ),
        (
            fields("logging: {flushFrequency: -1s}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: logging.flushFrequency: Invalid value: "-1s": Must be greater than zero"#]],
        ),
        (
            fields("systemReserved: {cpu: -100m}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: systemReserved (--system-reserved): resource quantity for "cpu" cannot be negative: -100m"#]],
        ),
        (
            fields("kubeReserved: {gpu: \"1\"}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: kubeReserved (--kube-reserved): cannot reserve "gpu" resource, only "cpu", "memory", "ephemeral-storage" or "pid""#]],
        ),
        (
            fields("reservedMemory: [{numaNode: 0, limits: {memory: 0}}]"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: reserved memory may not be zero for NUMA node 0 and resource "memory""#]],
        ),
        (
            fields("reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: the limit type "cpu" for NUMA node 0 is not supported, only [memory hugepages-<HugePageSize>] is accepted"#]],
        ),
        (
            fields("reservedMemory:\n- {numaNode: 0, limits: {memory: 1Gi}}\n- {numaNode: 0, limits: {memory: 2Gi}}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: the reserved memory has a duplicate value for NUMA node 0 and resource "memory""#]],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_word_that_is_not_in_the_set_is_refused_with_the_set() {
    refused([
        (
            fields("authorization: {mode: RBAC}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: authorization.mode (--authorization-mode): unknown authorization mode "RBAC"; "AlwaysAllow" or "Webhook" is accepted"#]],
        ),
        (
            fields("configMapAndSecretChangeDetectionStrategy: Poll"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: option "Poll" specified for configMapAndSecretChangeDetectionStrategy. Valid options are "Get", "Cache" or "Watch""#]],
        ),
        (
            fields("cgroupDriver: Systemd"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: cgroupDriver (--cgroup-driver) "Systemd": valid options are "cgroupfs" or "systemd""#]],
        ),
        (
            fields("cpuManagerPolicy: dynamic"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: cpuManagerPolicy (--cpu-manager-policy) "dynamic": valid options are "none" or "static""#]],
        ),
        (
            fields("memoryManagerPolicy: static"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: memoryManagerPolicy (--memory-manager-policy) "static": valid options are "None", "Static" or "BestEffort""#]],
        ),
        (
            fields("topologyManagerPolicy: best"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: topologyManagerPolicy (--topology-manager-policy) "best" must be one of: ["none" "best-effort" "restricted" "single-numa-node"]"#]],
        ),
        (
            fields("topologyManagerScope: node"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: topologyManagerScope (--topology-manager-scope) "node" must be one of: "container", or "pod""#]],
        ),
        (
            fields("hairpinMode: bridge"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: option "bridge" specified for hairpinMode (--hairpin-mode). Valid options are "none", "hairpin-veth" or "promiscuous-bridge""#]],
        ),
        (
            fields("imagePullCredentialsVerificationPolicy: Sometimes"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: option "Sometimes" specified for imagePullCredentialsVerificationPolicy. Valid options are "NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages" or "AlwaysVerify""#]],
        ),
        (
            fields("memoryReservationPolicy: Tiered"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: option "Tiered" specified for memoryReservationPolicy. Valid options are "None" or "TieredReservation""#]],
        ),
        (
            fields("memoryReservationPolicy: TieredReservation"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: memoryReservationPolicy "TieredReservation" requires MemoryQoS feature gate to be enabled"#]],
        ),
        (
            fields("memorySwap: {swapBehavior: UnlimitedSwap}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: memorySwap.swapBehavior "UnlimitedSwap" must be one of: "", "LimitedSwap" or "NoSwap""#]],
        ),
        (
            fields("enforceNodeAllocatable: [pods, everything]"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: option "everything" specified for enforceNodeAllocatable (--enforce-node-allocatable). Valid options are "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible" or "none""#]],
        ),
        (
            fields("evictionHard: {disk.available: 5%}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: evictionHard: unsupported eviction signal "disk.available"; "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "allocatableMemory.available" or "pid.available" is accepted"#]],
        ),
        (
            fields("logging: {format: xml}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: logging.format: Invalid value: "xml": Unsupported log format; "text" or "json" is accepted"#]],
        ),
        (
            fields("tlsMinVersion: \"1.2\""),
            expect![[r#"crablet: DIR/kubelet.yaml:3: tlsMinVersion (--tls-min-version): unknown tls version "1.2"; "VersionTLS10", "VersionTLS11", "VersionTLS12" or "VersionTLS13" is accepted"#]],
        ),
        (
            fields("showHiddenMetricsForVersion: \"1.36\""),
            expect![[r#"crablet: DIR/kubelet.yaml:3: showHiddenMetricsForVersion "1.36" must be omitted or have the value "1.35". Only the previous minor version is allowed"#]],
        ),
        (
            fields("registerWithTaints: [{key: dedicated, effect: NoSchedules}]"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: registerWithTaints (--register-with-taints): invalid taint: dedicated=:NoSchedules: invalid taint effect: NoSchedules, unsupported taint effect; the effects are "NoSchedule", "PreferNoSchedule" or "NoExecute""#]],
        ),
        (
            flags(&["--cgroup-driver=Systemd"]),
            expect![[r#"crablet: --cgroup-driver: invalid configuration: cgroupDriver (--cgroup-driver) "Systemd": valid options are "cgroupfs" or "systemd""#]],
        ),
        (
            flags(&["--logging-format=xml"]),
            expect![[r#"crablet: --logging-format: logging.format: Invalid value: "xml": Unsupported log format; "text" or "json" is accepted"#]],
        ),
        (
            flags(&["--authorization-mode=RBAC"]),
            expect![[r#"crablet: --authorization-mode: authorization.mode (--authorization-mode): unknown authorization mode "RBAC"; "AlwaysAllow" or "Webhook" is accepted"#]],
        ),
    ])
    .await;
}

#[tokio::test]
async fn settings_that_exclude_or_need_each_other_are_named_together() {
    refused([
        (
            fields("shutdownGracePeriod: 30s\nshutdownGracePeriodByPodPriority:\n- {priority: 0, shutdownGracePeriodSeconds: 10}"),
            expect!["crablet: DIR/kubelet.yaml:4: invalid configuration: Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time"],
        ),
        (
            fields("shutdownGracePeriod: 10s\nshutdownGracePeriodCriticalPods: 20s"),
            expect!["crablet: DIR/kubelet.yaml:4: invalid configuration: shutdownGracePeriodCriticalPods 20s must be <= shutdownGracePeriod 10s"],
        ),
        (
            fields("shutdownGracePeriodCriticalPods: 20s"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: shutdownGracePeriodCriticalPods 20s must be <= shutdownGracePeriod 0s"],
        ),
        (
            fields("shutdownGracePeriod: 500ms"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: shutdownGracePeriod 500ms must be either zero or otherwise >= 1 sec"],
        ),
        (
            fields("reservedSystemCPUs: 0-1\nsystemReservedCgroup: /system"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"],
        ),
        (
            fields("serializeImagePulls: true\nmaxParallelImagePulls: 2"),
            expect!["crablet: DIR/kubelet.yaml:4: invalid configuration: maxParallelImagePulls cannot be larger than 1 unless serializeImagePulls (--serialize-image-pulls) is set to false"],
        ),
        (
            fields("systemReservedCgroup: /s\nenforceNodeAllocatable: [pods, system-reserved, system-reserved-compressible]\nsystemReserved: {cpu: 100m}"),
            expect![[r#"crablet: DIR/kubelet.yaml:4: invalid configuration: both "system-reserved" and "system-reserved-compressible" cannot be specified together in enforceNodeAllocatable (--enforce-node-allocatable)"#]],
        ),
        (
            fields("kubeReservedCgroup: /k\nenforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]\nkubeReserved: {cpu: 100m}"),
            expect![[r#"crablet: DIR/kubelet.yaml:4: invalid configuration: both "kube-reserved" and "kube-reserved-compressible" cannot be specified together in enforceNodeAllocatable (--enforce-node-allocatable)"#]],
        ),
        (
            fields("enforceNodeAllocatable: [system-reserved]\nsystemReserved: {cpu: 100m}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: systemReservedCgroup (--system-reserved-cgroup) must be specified when "system-reserved" or "system-reserved-compressible" included in enforceNodeAllocatable (--enforce-node-allocatable)"#]],
        ),
        (
            fields("systemReservedCgroup: /s\nenforceNodeAllocatable: [system-reserved]"),
            expect![[r#"crablet: DIR/kubelet.yaml:4: systemReserved (--system-reserved) must say how much of "cpu", "memory", "ephemeral-storage" or "pid" is kept, since "system-reserved" is in enforceNodeAllocatable (--enforce-node-allocatable)"#]],
        ),
        (
            fields("systemReservedCgroup: /s\nenforceNodeAllocatable: [system-reserved-compressible]"),
            expect![[r#"crablet: DIR/kubelet.yaml:4: systemReserved (--system-reserved) must say how much of "cpu", "memory", "ephemeral-storage" or "pid" is kept, since "system-reserved-compressible" is in enforceNodeAllocatable (--enforce-node-allocatable)"#]],
        ),
        (
            fields("kubeReservedCgroup: /k\nenforceNodeAllocatable: [kube-reserved]"),
            expect![[r#"crablet: DIR/kubelet.yaml:4: kubeReserved (--kube-reserved) must say how much of "cpu", "memory", "ephemeral-storage" or "pid" is kept, since "kube-reserved" is in enforceNodeAllocatable (--enforce-node-allocatable)"#]],
        ),
        (
            fields("kubeReservedCgroup: /k\nkubeReserved: {}\nenforceNodeAllocatable: [kube-reserved-compressible]"),
            expect![[r#"crablet: DIR/kubelet.yaml:5: kubeReserved (--kube-reserved) must say how much of "cpu", "memory", "ephemeral-storage" or "pid" is kept, since "kube-reserved-compressible" is in enforceNodeAllocatable (--enforce-node-allocatable)"#]],
        ),
        (
            flags(&["--enforce-node-allocatable=pods,kube-reserved", "--kube-reserved-cgroup=/k"]),
            expect![[r#"crablet: --enforce-node-allocatable: kubeReserved (--kube-reserved) must say how much of "cpu", "memory", "ephemeral-storage" or "pid" is kept, since "kube-reserved" is in enforceNodeAllocatable (--enforce-node-allocatable)"#]],
        ),
        (
            fields("enforceNodeAllocatable: [none, pods]"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: enforceNodeAllocatable (--enforce-node-allocatable) may not contain additional enforcements when "none" is specified"#]],
        ),
        (
            fields("enforceNodeAllocatable: [pods, pods]"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: duplicated enforcements "pods" in enforceNodeAllocatable (--enforce-node-allocatable)"#]],
        ),
        (
            fields("cgroupsPerQOS: false"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: cgroupsPerQOS (--cgroups-per-qos) must be set to true when "pods" contained in enforceNodeAllocatable (--enforce-node-allocatable)"#]],
        ),
        (
            fields("systemCgroups: /system"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified"],
        ),
        (
            fields("runOnce: true"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: runOnce (--runonce) true, Runonce mode has been deprecated and should not be set"],
        ),
        (
            fields("tlsCertFile: /etc/tls.crt"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: tlsCertFile (--tls-cert-file) and tlsPrivateKeyFile (--tls-private-key-file) go together: only one is set"],
        ),
        (
            fields("tlsPrivateKeyFile: /etc/tls.key"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: tlsCertFile (--tls-cert-file) and tlsPrivateKeyFile (--tls-private-key-file) go together: only one is set"],
        ),
        (
            fields("enableSystemLogQuery: true\nenableSystemLogHandler: false"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: enableSystemLogHandler is required for enableSystemLogQuery"],
        ),
        (
            fields("serverTLSBootstrap: true\nfeatureGates: {RotateKubeletServerCertificate: false}"),
            expect!["crablet: DIR/kubelet.yaml:3: invalid configuration: serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate"],
        ),
        (
            fields("preloadedImagesVerificationAllowlist: [registry.example/a]"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: can't set `preloadedImagesVerificationAllowlist` if `imagePullCredentialsVerificationPolicy` is not "NeverVerifyAllowlistedImages""#]],
        ),
        (
            fields("imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [\"registry.example/a:1\"]"),
            expect!["crablet: DIR/kubelet.yaml:4: invalid configuration: invalid image pattern in `preloadedImagesVerificationAllowlist`: neither tag nor digest is accepted in an image reference: registry.example/a:1"],
        ),
        (
            fields("logging:\n  format: json\n  vmodule: [{filePattern: worker, verbosity: 4}]"),
            expect!["crablet: DIR/kubelet.yaml:5: logging.vmodule: Forbidden: Only supported for text log format"],
        ),
        (
            fields("logging: {vmodule: [{filePattern: worker}]}").and_flag("--logging-format=json"),
            expect!["crablet: DIR/kubelet.yaml:3: logging.vmodule: Forbidden: Only supported for text log format"],
        ),
        (fields("logging: {vmodule: [{filePattern: \"a=b\", verbosity: 1}, {verbosity: 1}]}"), expect![[r#"
            crablet: DIR/kubelet.yaml:3: logging.vmodule[0]: Invalid value: "a=b": File pattern must not contain equal sign or comma
            crablet: DIR/kubelet.yaml:3: logging.vmodule[1]: Required value: File pattern must not be empty"#]]),
        (
            fields("logging: {vmodule: [{filePattern: worker, verbosity: 4000000000}]}"),
            expect!["crablet: DIR/kubelet.yaml:3: logging.vmodule[0].verbosity: Invalid value: 4000000000: Must be <= 2147483647"],
        ),
        (
            fields("logging: {options: {json: {splitStream: true}}}"),
            expect!["crablet: DIR/kubelet.yaml:3: logging.options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled"],
        ),
        (
            flags(&["--exit-on-lock-contention"]),
            expect!["crablet: --exit-on-lock-contention: cannot exit on lock file contention: no lock file specified; set --lock-file"],
        ),
        (
            flags(&["--exit-on-lock-contention", "--lock-file="]),
            expect!["crablet: --exit-on-lock-contention: cannot exit on lock file contention: no lock file specified; set --lock-file"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn an_eviction_threshold_that_makes_no_sense_is_refused() {
    refused([
        (
            fields("evictionHard: {memory.available: much}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: evictionHard.memory.available: "much" is neither a percentage such as "10%" nor a quantity such as "100Mi""#]],
        ),
        (
            fields("evictionHard: {memory.available: 101%}"),
            expect!["crablet: DIR/kubelet.yaml:3: evictionHard: eviction percentage threshold memory.available must be <= 100%: 101%"],
        ),
        (
            fields("evictionHard: {memory.available: -1%}"),
            expect!["crablet: DIR/kubelet.yaml:3: evictionHard: eviction percentage threshold memory.available must be >= 0%: -1%"],
        ),
        (
            fields("evictionHard: {memory.available: \"0\"}"),
            expect!["crablet: DIR/kubelet.yaml:3: evictionHard: eviction threshold memory.available must be positive: 0"],
        ),
        (
            fields("evictionHard: {memory.available: -1Gi}"),
            expect!["crablet: DIR/kubelet.yaml:3: evictionHard: eviction threshold memory.available must be positive: -1Gi"],
        ),
        (
            fields("evictionHard: {memory.available: 5}"),
            expect!["crablet: DIR/kubelet.yaml:3: evictionHard.memory.available: expected text, found a whole number"],
        ),
        (
            fields("evictionHard: {memory: 1Gi}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: evictionHard: unsupported eviction signal "memory"; "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "allocatableMemory.available" or "pid.available" is accepted"#]],
        ),
        (
            fields("evictionSoft: {memory.available: 1Gi}"),
            expect!["crablet: DIR/kubelet.yaml:3: evictionSoft: grace period must be specified for the soft eviction threshold memory.available; set it in evictionSoftGracePeriod (--eviction-soft-grace-period)"],
        ),
        (
            fields("evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: soon}"),
            expect![[r#"crablet: DIR/kubelet.yaml:4: evictionSoftGracePeriod.memory.available: time: invalid duration "soon"; expected a duration such as "10s" or "1h30m""#]],
        ),
        (
            fields("evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: -1m}"),
            expect!["crablet: DIR/kubelet.yaml:4: evictionSoftGracePeriod: grace period -1m must be a positive value"],
        ),
        (
            fields("evictionSoftGracePeriod: {memory: 1m}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: evictionSoftGracePeriod: unsupported eviction signal "memory"; "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "allocatableMemory.available" or "pid.available" is accepted"#]],
        ),
        (
            fields("evictionMinimumReclaim: {memory.available: -1Gi}"),
            expect!["crablet: DIR/kubelet.yaml:3: evictionMinimumReclaim: eviction minimum reclaim memory.available must not be negative: -1Gi"],
        ),
        (
            fields("evictionMinimumReclaim: {memory.available: 0%}"),
            expect!["crablet: DIR/kubelet.yaml:3: evictionMinimumReclaim: eviction percentage minimum reclaim memory.available must be positive: 0%"],
        ),
        (
            fields("evictionMinimumReclaim: {memory: 1Gi}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: evictionMinimumReclaim: unsupported eviction signal "memory"; "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "allocatableMemory.available" or "pid.available" is accepted"#]],
        ),
        (
            flags(&["--eviction-hard=memory.available<lots"]),
            expect![[r#"crablet: --eviction-hard: evictionHard.memory.available: "lots" is neither a percentage such as "10%" nor a quantity such as "100Mi""#]],
        ),
        (
            flags(&["--eviction-hard=memory.available=5%"]),
            expect![[r#"crablet: --eviction-hard: malformed pair "memory.available=5%", expect string<string"#]],
        ),
        (
            flags(&["--eviction-soft=memory.available<1Gi"]),
            expect!["crablet: --eviction-soft: evictionSoft: grace period must be specified for the soft eviction threshold memory.available; set it in evictionSoftGracePeriod (--eviction-soft-grace-period)"],
        ),
        (
            flags(&["--eviction-soft-grace-period=memory.available<1m"]),
            expect![[r#"crablet: --eviction-soft-grace-period: malformed pair "memory.available<1m", expect string=string"#]],
        ),
        (
            flags(&["--eviction-minimum-reclaim=memory.available"]),
            expect![[r#"crablet: --eviction-minimum-reclaim: malformed pair "memory.available", expect string=string"#]],
        ),
    ])
    .await;
}

#[tokio::test]
async fn an_endpoint_or_a_path_that_cannot_be_used_is_refused() {
    refused([
        (
            fields("containerRuntimeEndpoint: tcp://127.0.0.1:1234"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: containerRuntimeEndpoint "tcp://127.0.0.1:1234" must be a unix socket such as "unix:///run/x.sock""#]],
        ),
        (
            fields("containerRuntimeEndpoint: run/containerd.sock"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: containerRuntimeEndpoint "run/containerd.sock" must be a unix socket such as "unix:///run/x.sock""#]],
        ),
        (
            fields("containerRuntimeEndpoint: unix://run/containerd.sock"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: containerRuntimeEndpoint "unix://run/containerd.sock" must be a unix socket such as "unix:///run/x.sock""#]],
        ),
        (
            flags(&["--container-runtime-endpoint="]),
            expect!["crablet: --container-runtime-endpoint: invalid configuration: the containerRuntimeEndpoint was not specified or empty"],
        ),
        (
            fields("imageServiceEndpoint: http://images"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: imageServiceEndpoint "http://images" must be a unix socket such as "unix:///run/x.sock""#]],
        ),
        (
            drop_in(format!("{HEAD}podLogsDir: logs\n")),
            expect![[r#"crablet: DIR/conf.d/10-a.conf:3: invalid configuration: podLogsDir "logs" must be an absolute path"#]],
        ),
        (
            fields("podLogsDir: /var/log/../pods"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: podLogsDir "/var/log/../pods" must be without ".", "..", "//" and a slash at its end"#]],
        ),
        (
            fields("podLogsDir: /var/log/pöds"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: invalid configuration: podLogsDir "/var/log/pöds" must contain ASCII characters only"#]],
        ),
        (
            flags(&["--root-dir="]).only(&[Way::Bare]),
            expect!["crablet: --root-dir: the root directory must not be empty"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_gate_that_cannot_be_set_is_refused() {
    refused([
        (
            fields("featureGates: {NoSuchGate: true}"),
            expect!["crablet: DIR/kubelet.yaml:3: featureGates.NoSuchGate: unrecognized feature gate: NoSuchGate"],
        ),
        (
            fields("featureGates: {CPUManagerPolicyOptions: false}"),
            expect!["crablet: DIR/kubelet.yaml:3: featureGates.CPUManagerPolicyOptions: cannot set feature gate CPUManagerPolicyOptions to false, feature is locked to true"],
        ),
        (fields("featureGates: {GracefulNodeShutdown: false}"), expect![[r#"
            crablet: DIR/kubelet.yaml:3: featureGates.GracefulNodeShutdown: GracefulNodeShutdownBasedOnPodPriority is enabled, but depends on features that are disabled: [GracefulNodeShutdown]
            crablet: DIR/kubelet.yaml:3: featureGates.GracefulNodeShutdown: WindowsGracefulNodeShutdown is enabled, but depends on features that are disabled: [GracefulNodeShutdown]"#]]),
        (
            fields("featureGates: {AllBeta: false, GracefulNodeShutdownBasedOnPodPriority: true}"),
            expect!["crablet: DIR/kubelet.yaml:3: featureGates.GracefulNodeShutdownBasedOnPodPriority: GracefulNodeShutdownBasedOnPodPriority is enabled, but depends on features that are disabled: [GracefulNodeShutdown]"],
        ),
        (
            fields("featureGates: {GracefulNodeShutdown: 0}"),
            expect!["crablet: DIR/kubelet.yaml:3: featureGates.GracefulNodeShutdown: expected true or false, found a whole number"],
        ),
        (
            flags(&["--feature-gates=NoSuchGate=true"]),
            expect!["crablet: --feature-gates: featureGates.NoSuchGate: unrecognized feature gate: NoSuchGate"],
        ),
        (flags(&["--feature-gates=GracefulNodeShutdown=false"]), expect![[r#"
            crablet: --feature-gates: featureGates.GracefulNodeShutdown: GracefulNodeShutdownBasedOnPodPriority is enabled, but depends on features that are disabled: [GracefulNodeShutdown]
            crablet: --feature-gates: featureGates.GracefulNodeShutdown: WindowsGracefulNodeShutdown is enabled, but depends on features that are disabled: [GracefulNodeShutdown]"#]]),
        (
            flags(&["--feature-gates=PodsAPI"]),
            expect![[r#"crablet: --feature-gates: malformed pair "PodsAPI", expect string=bool"#]],
        ),
        (
            flags(&["--feature-gates=PodsAPI=maybe"]),
            expect![[r#"crablet: --feature-gates: invalid value of PodsAPI: expected true or false, found "maybe""#]],
        ),
        (
            flags(&["--feature-gates=PodsAPI="]),
            expect![[r#"crablet: --feature-gates: invalid value of PodsAPI: expected true or false, found """#]],
        ),
        (
            flags(&["--feature-gates==true"]),
            expect![[r#"crablet: --feature-gates: malformed pair "=true", expect string=bool"#]],
        ),
        (
            fields("featureGates: {EventedPLEG: true}").and_flag("--feature-gates=CPUManagerPolicyOptions=false"),
            expect!["crablet: --feature-gates: featureGates.CPUManagerPolicyOptions: cannot set feature gate CPUManagerPolicyOptions to false, feature is locked to true"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_flag_with_a_value_that_it_does_not_take_is_refused_by_its_name() {
    refused([
        (
            flags(&["--max-pods=many"]),
            expect![[r#"crablet: --max-pods: expected a whole number, found "many""#]],
        ),
        (flags(&["--max-pods="]), expect![[r#"crablet: --max-pods: expected a whole number, found """#]]),
        (
            flags(&["--max-pods=1.5"]),
            expect![[r#"crablet: --max-pods: expected a whole number, found "1.5""#]],
        ),
        (
            flags(&["--max-pods=0x-5"]),
            expect![[r#"crablet: --max-pods: expected a whole number, found "0x-5""#]],
        ),
        (
            flags(&["--max-pods=3000000000"]),
            expect!["crablet: --max-pods: maxPods: expected a whole number from -2147483648 to 2147483647, found 3000000000"],
        ),
        (
            flags(&["--max-pods=99999999999999999999"]),
            expect!["crablet: --max-pods: expected a whole number of at most 64 bits, found 99999999999999999999"],
        ),
        (
            flags(&["--max-pods=-1"]),
            expect!["crablet: --max-pods: invalid configuration: maxPods (--max-pods) -1 must not be a negative number"],
        ),
        (
            flags(&["--v=-1"]),
            expect!["crablet: --v: logging.verbosity: expected a whole number from 0 to 4294967295, found -1"],
        ),
        (flags(&["-v=loud"]), expect![[r#"crablet: --v: expected a whole number, found "loud""#]]),
        (
            flags(&["--maximum-dead-containers=many"]),
            expect![[r#"crablet: --maximum-dead-containers: expected a whole number, found "many""#]],
        ),
        (
            flags(&["--fail-swap-on=maybe"]),
            expect![[r#"crablet: --fail-swap-on: expected true or false, found "maybe""#]],
        ),
        (
            flags(&["--exit-on-lock-contention=maybe"]),
            expect![[r#"crablet: --exit-on-lock-contention: expected true or false, found "maybe""#]],
        ),
        (
            flags(&["--enable-load-reader=maybe"]),
            expect![[r#"crablet: --enable-load-reader: expected true or false, found "maybe""#]],
        ),
        (
            flags(&["--runonce"]),
            expect!["crablet: --runonce: invalid configuration: runOnce (--runonce) true, Runonce mode has been deprecated and should not be set"],
        ),
        (
            flags(&["--healthz-bind-address=localhost"]),
            expect![[r#"crablet: --healthz-bind-address: failed to parse IP: "localhost"; expected an address such as "10.0.0.1" or "fd00::1""#]],
        ),
        (
            flags(&["--kube-reserved=memory"]),
            expect![[r#"crablet: --kube-reserved: malformed pair "memory", expect string=string"#]],
        ),
        (
            flags(&["--kube-reserved=memory=lots"]),
            expect![[r#"crablet: --kube-reserved: kubeReserved.memory: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'; expected a quantity such as "500m" or "10Mi""#]],
        ),
        (
            flags(&["--kube-reserved=memory=1Gi,gpu=1"]),
            expect![[r#"crablet: --kube-reserved: kubeReserved (--kube-reserved): cannot reserve "gpu" resource, only "cpu", "memory", "ephemeral-storage" or "pid""#]],
        ),
        (
            flags(&["--qos-reserved=memory"]),
            expect![[r#"crablet: --qos-reserved: malformed pair "memory", expect string=string"#]],
        ),
        (
            flags(&["--reserved-cpus=0-"]),
            expect![[r#"crablet: --reserved-cpus: reservedSystemCPUs: strconv.Atoi: parsing "": invalid syntax; expected a list of CPUs such as "0-3,8""#]],
        ),
        (
            flags(&["--reserved-memory=0"]),
            expect!["crablet: --reserved-memory: the reserved memory has incorrect format, expected numaNodeID:type=quantity[,type=quantity...], got 0"],
        ),
        (
            flags(&["--reserved-memory=a:memory=1Gi"]),
            expect!["crablet: --reserved-memory: failed to convert the NUMA node ID, expected integer, got a"],
        ),
        (
            flags(&["--reserved-memory=0:memory"]),
            expect!["crablet: --reserved-memory: the reserved limit has incorrect value, expected type=quantity, got memory"],
        ),
        (
            flags(&["--reserved-memory=0:cpu=1"]),
            expect![[r#"crablet: --reserved-memory: memory type conversion error, unknown type: "cpu"; expected memory or hugepages-<size>"#]],
        ),
        (
            flags(&["--reserved-memory=0:memory=lots"]),
            expect![[r#"crablet: --reserved-memory: failed to parse the quantity: lots; expected one such as "10Mi""#]],
        ),
        (
            flags(&["--register-with-taints=dedicated"]),
            expect!["crablet: --register-with-taints: invalid taint spec: dedicated; expected key=value:effect or key:effect"],
        ),
        (
            flags(&["--register-with-taints=dedicated=x:Never"]),
            expect!["crablet: --register-with-taints: invalid taint effect: Never, unsupported taint effect; expected NoSchedule, PreferNoSchedule or NoExecute"],
        ),
        (
            flags(&["--register-with-taints=a=b=c:NoSchedule"]),
            expect!["crablet: --register-with-taints: invalid taint spec: a=b=c:NoSchedule; expected key=value:effect or key:effect"],
        ),
        (
            flags(&["--register-with-taints=a:NoSchedule,a:NoSchedule"]),
            expect!["crablet: --register-with-taints: duplicated taints with the same key and effect: {a  NoSchedule <nil>}"],
        ),
        (
            flags(&["--manifest-url-header=Authorization"]),
            expect!["crablet: --manifest-url-header: malformed pair, expect string:string"],
        ),
        (
            flags(&["--vmodule=worker"]),
            expect![[r#"crablet: --vmodule: "worker" does not have the pattern=N format"#]],
        ),
        (
            flags(&["--vmodule=worker=loud"]),
            expect![[r#"crablet: --vmodule: the verbosity in "worker=loud" is not a whole number"#]],
        ),
        (
            flags(&["--vmodule==4"]),
            expect![[r#"crablet: --vmodule: "=4" does not have the pattern=N format"#]],
        ),
        (
            flags(&["--log-text-info-buffer-size=big"]),
            expect![[r#"crablet: --log-text-info-buffer-size: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'; expected a quantity such as "500m" or "10Mi""#]],
        ),
        (
            flags(&["--node-labels=node-role.kubernetes.io/control-plane="]),
            expect!["crablet: --node-labels: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [node-role.kubernetes.io/control-plane]; --node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix (kubelet.kubernetes.io, node.kubernetes.io) or be in the specifically allowed set (beta.kubernetes.io/arch, beta.kubernetes.io/instance-type, beta.kubernetes.io/os, failure-domain.beta.kubernetes.io/region, failure-domain.beta.kubernetes.io/zone, kubernetes.io/arch, kubernetes.io/hostname, kubernetes.io/os, node.kubernetes.io/instance-type, topology.kubernetes.io/region, topology.kubernetes.io/zone)"],
        ),
        (
            flags(&["--node-labels=a b=c"]),
            expect!["crablet: --node-labels: invalid node labels: 'a b' - name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"],
        ),
        (
            flags(&["--node-labels=a=b c"]),
            expect!["crablet: --node-labels: invalid node labels: 'b c' - a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"],
        ),
        (
            flags(&["--cpu-manager-policy-options=full-pcpus-only"]),
            expect![[r#"crablet: --cpu-manager-policy-options: malformed pair "full-pcpus-only", expect string=string"#]],
        ),
        (
            flags(&["--pod-cidr=10.0.0.0"]),
            expect![[r#"crablet: --pod-cidr: podCIDR: invalid CIDR address: 10.0.0.0; expected a range such as "10.0.0.0/16""#]],
        ),
        (
            flags(&["--enforce-node-allocatable=everything"]),
            expect![[r#"crablet: --enforce-node-allocatable: invalid configuration: option "everything" specified for enforceNodeAllocatable (--enforce-node-allocatable). Valid options are "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible" or "none""#]],
        ),
        (
            flags(&["--housekeeping-interval=often"]),
            expect![[r#"crablet: --housekeeping-interval: time: invalid duration "often"; expected a duration such as "10s" or "1h30m""#]],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_command_line_that_makes_no_sense_is_refused_with_a_hint() {
    refused([
        (
            flags(&["--max-pod=5"]),
            expect!["crablet: --max-pod: unknown flag; did you mean --max-pods? (see --help)"],
        ),
        (flags(&["--no-such-thing"]), expect!["crablet: --no-such-thing: unknown flag (see --help)"]),
        (flags(&["-z"]), expect!["crablet: -z: unknown flag (see --help)"]),
        (
            flags(&["--fail-swap-on", "false"]),
            expect![[r#"crablet: unexpected argument "false"; a flag that may stand alone takes its value after an equals sign (see --help)"#]],
        ),
        (bare(&["--config"]), expect!["crablet: --config: a value is required (see --help)"]),
        (bare(&["config", "--max-pods"]), expect!["crablet: --max-pods: a value is required (see --help)"]),
        (bare(&["-v"]), expect!["crablet: --v: a value is required (see --help)"]),
        (bare(&["nonsense"]), expect![[r#"crablet: unknown command "nonsense" (see --help)"#]]),
        (
            bare(&["confg"]),
            expect![[r#"crablet: unknown command "confg"; did you mean "config"? (see --help)"#]],
        ),
        (bare(&["--v=2", "nonsense"]), expect![[r#"crablet: unexpected argument "nonsense" (see --help)"#]]),
        (
            bare(&["--v=2", "config"]),
            expect![[r#"crablet: unexpected argument "config"; a command stands before its flags (see --help)"#]],
        ),
        (bare(&["config", "nonsense"]), expect![[r#"crablet: unexpected argument "nonsense" (see --help)"#]]),
        (
            bare(&["config", "--stric"]),
            expect!["crablet: --stric: unknown flag; did you mean --strict? (see --help)"],
        ),
        (
            bare(&["config", "--strict=true"]),
            expect!["crablet: unexpected value 'true' for '--strict' found; no more were expected (see --help)"],
        ),
        (bare(&["log", "--max-pods=5"]), expect!["crablet: --max-pods: unknown flag (see --help)"]),
        (bare(&["log", "loud"]), expect![[r#"crablet: unexpected argument "loud" (see --help)"#]]),
        (bare(&["log", "--v"]), expect!["crablet: --v: a value is required (see --help)"]),
        (bare(&["version", "--raw"]), expect!["crablet: --raw: unknown flag (see --help)"]),
        (
            bare(&["--version=maybe"]),
            expect![[r#"crablet: --version: expected true, false or raw, found "maybe""#]],
        ),
        (bare(&["--", "nonsense"]), expect![[r#"crablet: unknown command "nonsense" (see --help)"#]]),
        (bare(&[""]), expect![[r#"crablet: unknown command "" (see --help)"#]]),
    ])
    .await;
}

#[tokio::test]
async fn an_argument_that_is_no_text_is_refused() {
    let argument = OsStr::from_bytes(b"--config=\xff");
    let output = Command::new(env!("CARGO_BIN_EXE_crablet")).arg(argument).output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let expected = expect![[r#"
        crablet: invalid UTF-8 was detected in one or more arguments (see --help)
    "#]];
    expected.assert_eq(&String::from_utf8(output.stderr).unwrap());
}

#[tokio::test]
async fn several_mistakes_are_all_listed_at_once() {
    refused([
        (fields("maxPods: -1\nport: 0x10000\ncgroupDriver: x\nevictionHard: {disk: 5%}\nfeatureGates: {Bogus: true}"), expect![[r#"
            crablet: DIR/kubelet.yaml:7: featureGates.Bogus: unrecognized feature gate: Bogus
            crablet: DIR/kubelet.yaml:3: invalid configuration: maxPods (--max-pods) -1 must not be a negative number
            crablet: DIR/kubelet.yaml:5: invalid configuration: cgroupDriver (--cgroup-driver) "x": valid options are "cgroupfs" or "systemd"
            crablet: DIR/kubelet.yaml:6: evictionHard: unsupported eviction signal "disk"; "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "allocatableMemory.available" or "pid.available" is accepted
            crablet: DIR/kubelet.yaml:4: invalid configuration: port (--port) 65536 must be between 1 and 65535, inclusive"#]]),
        (fields("maxPods: many\nport: [10250]\nclusterDNS:\n- 5\n- 10.0.0.1\n- 6\nlogging: {verbosity: x, format: 5}\n"), expect![[r#"
            crablet: DIR/kubelet.yaml:6: clusterDNS[0]: expected text, found a whole number
            crablet: DIR/kubelet.yaml:9: logging.format: expected text, found a whole number
            crablet: DIR/kubelet.yaml:9: logging.verbosity: expected a whole number from 0 to 4294967295, found text
            crablet: DIR/kubelet.yaml:3: maxPods: expected a whole number from -2147483648 to 2147483647, found text
            crablet: DIR/kubelet.yaml:4: port: expected a whole number from -2147483648 to 2147483647, found a list"#]]),
        (flags(&["--max-pods=many", "--address=home", "--config=DIR/no-such-file", "--config-dir=DIR/nowhere", "--lock-file=", "--sync-frequency=1d"]), expect![[r#"
            crablet: DIR/no-such-file: cannot be read: no such file or directory
            crablet: DIR/nowhere: cannot be read: no such file or directory
            crablet: --max-pods: expected a whole number, found "many"
            crablet: --address: failed to parse IP: "home"; expected an address such as "10.0.0.1" or "fd00::1"
            crablet: --sync-frequency: time: unknown unit "d" in duration "1d"; expected a duration such as "10s" or "1h30m""#]]),
        (drop_in("kind: Pod\n").with(|dir| fs::write(dir.join("conf.d/20-b.conf"), "[").unwrap()).with(|dir| fs::write(dir.join("kubelet.yaml"), format!("{HEAD}maxPods: many\n")).unwrap()), expect![[r#"
            crablet: DIR/kubelet.yaml:3: maxPods: expected a whole number from -2147483648 to 2147483647, found text
            crablet: DIR/conf.d/10-a.conf: apiVersion: is missing; expected "kubelet.config.k8s.io/v1beta1"
            crablet: DIR/conf.d/10-a.conf:1: kind: expected "KubeletConfiguration", found "Pod"
            crablet: DIR/conf.d/20-b.conf:1: is not valid YAML: unclosed bracket '['"#]]),
        (flags(&["--node-labels=kubernetes.io/x=y,a b=c", "--exit-on-lock-contention", "--max-pods=-1"]), expect![[r#"
            crablet: --exit-on-lock-contention: cannot exit on lock file contention: no lock file specified; set --lock-file
            crablet: --node-labels: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [kubernetes.io/x]; --node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix (kubelet.kubernetes.io, node.kubernetes.io) or be in the specifically allowed set (beta.kubernetes.io/arch, beta.kubernetes.io/instance-type, beta.kubernetes.io/os, failure-domain.beta.kubernetes.io/region, failure-domain.beta.kubernetes.io/zone, kubernetes.io/arch, kubernetes.io/hostname, kubernetes.io/os, node.kubernetes.io/instance-type, topology.kubernetes.io/region, topology.kubernetes.io/zone)
            crablet: --node-labels: invalid node labels: 'a b' - name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            crablet: --max-pods: invalid configuration: maxPods (--max-pods) -1 must not be a negative number"#]]),
    ])
    .await;
}

#[tokio::test]
async fn what_is_quoted_from_a_file_cannot_pose_as_a_line_of_its_own() {
    refused([
        (
            fields("featureGates: {\"Bogus\\ncrablet: all is well\": true}"),
            expect![[r#"crablet: DIR/kubelet.yaml:3: featureGates.Bogus\ncrablet: all is well: unrecognized feature gate: Bogus\ncrablet: all is well"#]],
        ),
        (
            fields("\"max\\e[2JPods\\nx\": {}\nauthorization: {mode: \"a\\nb\"}"),
            expect![[r#"crablet: DIR/kubelet.yaml:4: authorization.mode (--authorization-mode): unknown authorization mode "a\nb"; "AlwaysAllow" or "Webhook" is accepted"#]],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_doubt_fails_the_strict_check_alone() {
    let strict = |trial: Trial| trial.only(&[Way::StrictConfig]);
    check(
        1,
        [
            (strict(fields("maxPod: 5")), expect![[r#"
                warning: DIR/kubelet.yaml:3: maxPod: unknown field
                crablet: 1 doubtful thing was found"#]]),
            (strict(fields("maxPods: 5\nmaxPods: 6")), expect![[r#"
                warning: DIR/kubelet.yaml:4: maxPods: is set twice (first on line 3); the last one counts
                crablet: 1 doubtful thing was found"#]]),
            (strict(fields("logging: {colour: red, colour: blue}")), expect![[r#"
                warning: DIR/kubelet.yaml:3: logging.colour: is set twice (first on line 3); the last one counts
                warning: DIR/kubelet.yaml:3: logging.colour: unknown field
                crablet: 2 doubtful things were found"#]]),
            (strict(fields("maxPods: 5\n---\nmaxPods: 6")), expect![[r#"
                warning: DIR/kubelet.yaml:4: only the first document of the file is read; this one is ignored
                crablet: 1 doubtful thing was found"#]]),
            (strict(fields("featureGates: {AllowServiceExternalIPs: true}")), expect![[r#"
                warning: DIR/kubelet.yaml:3: featureGates.AllowServiceExternalIPs: setting GA feature gate AllowServiceExternalIPs. It will be removed in a future release
                crablet: 1 doubtful thing was found"#]]),
            (strict(fields("clusterDNS: [dns.example]")), expect![[r#"
                warning: DIR/kubelet.yaml:3: clusterDNS: "dns.example" is not an IP address and is not used
                crablet: 1 doubtful thing was found"#]]),
            (strict(fields("").and_flag("--max-pods=5")), expect![[r#"
                warning: --max-pods: is deprecated; set maxPods in the file of --config instead
                crablet: 1 doubtful thing was found"#]]),
            (strict(fields("").and_flag("--containerd=x")), expect![[r#"
                warning: --containerd: is deprecated and has no effect
                crablet: 1 doubtful thing was found"#]]),
            (strict(drop_in(format!("{HEAD}maxPod: 5\n"))), expect![[r#"
                warning: DIR/conf.d/10-a.conf:3: maxPod: unknown field
                crablet: 1 doubtful thing was found"#]]),
        ],
    )
    .await;
    check(2, [(strict(fields("maxPod: 5\nmaxPods: -1")), expect!["crablet: DIR/kubelet.yaml:4: invalid configuration: maxPods (--max-pods) -1 must not be a negative number"])]).await;
}
