//! The kit on a real containerd. Needs root, and what `scripts/setup test` installs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use crablet_testkit::{Containerd, Image, eventually};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_containerd_serves_cri_and_runs_a_container_of_an_imported_image() -> Result<()> {
    let containerd = Containerd::start().await?;
    containerd.import(&Image::pause()?).await?;
    containerd.import(&Image::busybox()?).await?;

    let plugins = containerd.ctr(["plugins", "ls"]).await?;
    let cri: Vec<&str> = plugins.lines().filter(|line| line.contains("cri")).collect();
    ensure!(!cri.is_empty() && cri.iter().all(|line| line.trim_end().ends_with("ok")), "{plugins}");
    let images = containerd.ctr(["image", "list", "--quiet"]).await?;
    ensure!(
        images.contains("crablet.test/pause:1\n") && images.contains("crablet.test/busybox:1\n"),
        "{images}"
    );

    let place = Place::of(&containerd);
    let printed =
        containerd.ctr(place.run("greeter", &["--rm"], "crablet.test/busybox:1", &["echo", "hello"])).await?;
    assert_eq!(printed, "hello\n");
    containerd.stop().await
}

#[tokio::test]
async fn a_described_image_runs_as_described() -> Result<()> {
    let containerd = Containerd::start().await?;
    let script = "#!/bin/sh\necho \"$(id -u):$(id -g) $GREETING $PWD $* $(stat -c %a /secret)\"\n";
    let image = Image::busybox()?
        .named("example.test/described:2")
        .file("/bin/describe", script, 0o755)
        .file("/secret", "", 0o640)
        .directory("/srv", 0o755)
        .entrypoint(["/bin/describe"])
        .cmd(["one", "two"])
        .user("1000:2000")
        .env("GREETING", "hello")
        .working_dir("/srv");
    containerd.import(&image).await?;
    let place = Place::of(&containerd);
    let printed = containerd.ctr(place.run("described", &["--rm"], image.reference(), &[])).await?;
    assert_eq!(printed, "1000:2000 hello /srv one two 640\n");
    containerd.stop().await
}

#[tokio::test]
async fn two_containerds_do_not_meet() -> Result<()> {
    let (one, other) = tokio::try_join!(Containerd::start(), Containerd::start())?;
    assert_ne!(one.endpoint(), other.endpoint());
    assert_ne!(one.subnet(), other.subnet());
    assert_ne!(one.bridge(), other.bridge());
    assert_ne!(one.cgroup(), other.cgroup());

    one.import(&Image::busybox()?).await?;
    assert_eq!(other.ctr(["image", "list", "--quiet"]).await?, "");
    let id = unique("only-in-one");
    run_forever(&one, &id).await?;
    ensure!(!other.ctr(["container", "list"]).await?.contains(&id));

    other.stop().await?;
    ensure!(
        one.ctr(["task", "list"]).await?.contains("RUNNING"),
        "the end of one ended the other's container"
    );
    one.stop().await
}

#[tokio::test]
async fn a_container_outlives_a_restart_and_a_kill_of_containerd() -> Result<()> {
    let mut containerd = Containerd::start().await?;
    containerd.import(&Image::busybox()?).await?;
    let id = unique("outlives");
    run_forever(&containerd, &id).await?;
    let tasks = containerd.ctr(["task", "list"]).await?;
    ensure!(tasks.contains("RUNNING"), "{tasks}");

    let first = containerd.pid();
    containerd.restart().await?;
    assert_ne!(containerd.pid(), first);
    // The same process number: it is the same container, not a new one.
    assert_eq!(containerd.ctr(["task", "list"]).await?, tasks);

    containerd.kill().await?;
    assert_eq!(containerd.pid(), None);
    ensure!(!traces_of(&id).is_empty(), "the container went with containerd");
    ensure!(containerd.log().contains("Start streaming server"), "the log is gone: {}", containerd.log());
    containerd.start_again().await?;
    assert_eq!(containerd.ctr(["task", "list"]).await?, tasks);
    containerd.stop().await?;
    assert_eq!(traces_of(&id), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a_panicking_test_leaves_nothing_behind() -> Result<()> {
    let id = unique("panics");
    let (send, receive) = oneshot::channel();
    let test = tokio::spawn({
        let id = id.clone();
        async move {
            let containerd = Containerd::start().await.unwrap();
            containerd.import(&Image::busybox().unwrap()).await.unwrap();
            run_forever(&containerd, &id).await.unwrap();
            let traces = Traces::leave(&Place::of(&containerd), &id).await.unwrap();
            send.send(traces).ok().unwrap();
            panic!("this panic is part of the test");
        }
    });
    assert!(test.await.unwrap_err().is_panic());
    assert_eq!(receive.await?.remaining(), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn what_a_killed_run_left_is_removed_by_the_next_start() -> Result<()> {
    let (mut owner, socket) = start_private_containerd(&[]).await?;
    let place = Place::at(&socket)?;
    let id = unique("left");
    let arguments = place.run(&id, &["--detach", "--null-io"], "crablet.test/busybox:1", &forever(&id));
    let started = Command::new("ctr")
        .arg("--address")
        .arg(&socket)
        .args(["--namespace", "k8s.io"])
        .args(arguments)
        .output()
        .await?;
    ensure!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    let traces = Traces::leave(&place, &id).await?;

    owner.kill().await?;
    let next = Containerd::start().await?;
    // Another test's start may have come first, and may still be at it.
    eventually("nothing is left of the killed run", PATIENCE, || async {
        let remaining = traces.remaining();
        if remaining.is_empty() { Ok(()) } else { Err(remaining.join("\n")) }
    })
    .await?;
    next.stop().await
}

#[tokio::test]
async fn what_is_mounted_into_a_run_is_unmounted_and_not_deleted() -> Result<()> {
    let host = tempfile::tempdir()?;
    let precious = host.path().join("precious");
    fs::write(&precious, "kept")?;
    let containerd = Containerd::start().await?;
    let mount = containerd.directory("volume with blanks")?;
    command("mount", &["--bind", &host.path().display().to_string(), &mount.display().to_string()]).await?;
    ensure!(mount.join("precious").exists());
    containerd.stop().await?;
    ensure!(!mount.exists());
    assert_eq!(fs::read_to_string(&precious)?, "kept");
    Ok(())
}

#[tokio::test]
async fn a_private_containerd_ends_and_cleans_up_when_its_input_closes() -> Result<()> {
    let (mut owner, socket) = start_private_containerd(&[]).await?;
    let place = Place::at(&socket)?;
    let traces = Traces::leave(&place, &unique("input")).await?;
    drop(owner.stdin.take());
    ensure!(owner.wait().await?.success());
    assert_eq!(traces.remaining(), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn the_variable_names_another_containerd() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let wrapper = directory.path().join("containerd");
    let witness = directory.path().join("witness");
    fs::write(
        &wrapper,
        format!("#!/bin/sh\necho \"$*\" >> {}\nexec containerd-of-the-machine \"$@\"\n", witness.display()),
    )?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    // Found beside the wrapper, because its directory comes first in PATH.
    let real = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|directory| directory.join("containerd"))
        .find(|path| path.exists())
        .context("no containerd in PATH")?;
    std::os::unix::fs::symlink(real, directory.path().join("containerd-of-the-machine"))?;

    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH")?);
    let variables = [("CRABLET_CONTAINERD", wrapper.display().to_string()), ("PATH", path)];
    let (mut owner, _socket) = start_private_containerd(&variables).await?;
    drop(owner.stdin.take());
    ensure!(owner.wait().await?.success());
    let witnessed = fs::read_to_string(&witness)?;
    ensure!(witnessed.contains("--config /run/crablet-test/"), "{witnessed}");
    Ok(())
}

#[tokio::test]
async fn a_variable_that_names_no_program_is_refused_with_its_value() -> Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_private-containerd"))
        .env("CRABLET_CONTAINERD", "/nowhere/containerd")
        .stdin(Stdio::null())
        .output()
        .await?;
    ensure!(!output.status.success());
    let error = String::from_utf8(output.stderr)?;
    let expected =
        "CRABLET_CONTAINERD=/nowhere/containerd is not a program; it must be the path of a containerd";
    ensure!(error.contains(expected), "{error}");
    Ok(())
}

/// A run as seen from outside: where its files are, and what it calls its things.
struct Place {
    directory: PathBuf,
    bridge: String,
    cgroup: String,
}

impl Place {
    fn of(containerd: &Containerd) -> Place {
        let directory = containerd.socket().parent().expect("a socket is in a directory").to_owned();
        Place { directory, bridge: containerd.bridge(), cgroup: containerd.cgroup() }
    }

    fn at(socket: &Path) -> Result<Place> {
        let directory = socket.parent().context("the socket is in no directory")?.to_owned();
        let number =
            directory.file_name().context("the directory has no name")?.to_string_lossy().into_owned();
        Ok(Place { directory, bridge: format!("crablet{number}"), cgroup: format!("/crablet-test-{number}") })
    }

    /// Arguments for `ctr` that run a container in this run's own cgroup.
    fn run(&self, id: &str, options: &[&str], image: &str, command: &[&str]) -> Vec<String> {
        let runc_root = self.directory.join("runc").display().to_string();
        let cgroup = format!("{}/{id}", self.cgroup);
        let mut arguments = vec!["run", "--runc-root", &runc_root, "--cgroup", &cgroup];
        arguments.extend(options);
        arguments.extend([image, id]);
        arguments.extend(command);
        arguments.into_iter().map(str::to_owned).collect()
    }
}

/// What a run made, each thing with a name that no other run uses: numbers, and so bridges, are used again.
struct Traces {
    id: String,
    bridge: PathBuf,
    bridge_index: String,
}

impl Traces {
    /// Adds what CNI would have made for a pod: a bridge, and a network namespace kept alive by a mount.
    async fn leave(place: &Place, id: &str) -> Result<Traces> {
        command("ip", &["link", "add", &place.bridge, "type", "bridge"]).await?;
        let namespace = place.directory.join("state").join(format!("netns-{id}"));
        fs::write(&namespace, "")?;
        command("unshare", &[&format!("--net={}", namespace.display()), "true"]).await?;
        let bridge = Path::new("/sys/class/net").join(&place.bridge).join("ifindex");
        let traces = Traces { id: id.to_owned(), bridge_index: fs::read_to_string(&bridge)?, bridge };
        ensure!(traces.remaining().len() > 1, "there is nothing to remove: {:?}", traces.remaining());
        Ok(traces)
    }

    fn remaining(&self) -> Vec<String> {
        let mut remaining = traces_of(&self.id);
        if fs::read_to_string(&self.bridge).is_ok_and(|index| index == self.bridge_index) {
            remaining.push(format!("link {}", self.bridge.display()));
        }
        remaining
    }
}

/// The processes, mounts and cgroups with this text in their name.
fn traces_of(id: &str) -> Vec<String> {
    let mut traces = Vec::new();
    for entry in fs::read_dir("/proc").expect("processes can be listed").flatten() {
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        if arguments.contains(id) {
            traces.push(format!("process {}: {arguments}", entry.path().display()));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts can be listed");
    traces.extend(mounts.lines().filter(|line| line.contains(id)).map(|line| format!("mount {line}")));
    let mut directories = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().contains(id) {
                    traces.push(format!("cgroup {}", entry.path().display()));
                }
                directories.push(entry.path());
            }
        }
    }
    traces
}

/// Starts a container that runs until it is ended, and checks that it can be seen in every way.
async fn run_forever(containerd: &Containerd, id: &str) -> Result<()> {
    let place = Place::of(containerd);
    containerd.ctr(place.run(id, &["--detach", "--null-io"], "crablet.test/busybox:1", &forever(id))).await?;
    let traces = traces_of(id);
    for kind in ["process", "mount", "cgroup"] {
        ensure!(
            traces.iter().any(|trace| trace.starts_with(kind)),
            "no {kind} of {id} to be seen: {traces:?}"
        );
    }
    Ok(())
}

/// A command that shows the name of its container in its arguments.
fn forever(id: &str) -> [&str; 4] {
    ["sh", "-c", "while true; do sleep 1000; done", id]
}

fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

async fn command(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().await?;
    ensure!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Starts the program `private-containerd`, and returns it with its socket.
async fn start_private_containerd(variables: &[(&str, String)]) -> Result<(Child, PathBuf)> {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_private-containerd"))
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = owner.stdout.take().context("the program has no output")?;
    let line = BufReader::new(output)
        .lines()
        .next_line()
        .await?
        .context("the program ended before it printed its endpoint")?;
    let socket =
        line.strip_prefix("endpoint=unix://").with_context(|| format!("not an endpoint: {line:?}"))?;
    Ok((owner, PathBuf::from(socket)))
}
