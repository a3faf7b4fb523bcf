//! `crablet-sim-runtime`: a simulated container runtime on a socket, for any kubelet or CRI client.

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use crablet_cri_sim::{Image, Latencies, Latency, Program, Settings, Simulator, serve};
use crablet_host::clock::Clock;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

const EXAMPLES: &str = "\
Examples:
  crablet-sim-runtime --listen unix:///run/sim.sock
      A runtime that pulls any image and runs it until it is stopped.
  crictl --runtime-endpoint unix:///run/sim.sock pods
      Ask it as any other runtime; a kubelet takes the same text as containerRuntimeEndpoint.
  crablet-sim-runtime --listen unix:///run/sim.sock --latency 5ms..200ms --seed 7
      One that is slow, the same way each time.
  crablet-sim-runtime --listen unix:///run/sim.sock --image crashes:1=exit=1,after=10s
      With an image whose containers end by themselves.

Programs:
  forever; exit=CODE, after=5s; term=ignore or term=CODE; memory=BYTES, memory-after=5s; cpu=MILLICORES;
  exec=CODE or exec=hang; with commas between them.
  For --image, and for the annotation sim.crablet.dev/program on a pod.

Without one, a container runs the part of busybox's shell that tests need: sh -c with echo, sleep, exit,
trap, while and the like. What that does not know runs until it is stopped. Logs are written where the
kubelet wants them. Nothing is run on this machine. ExecSync works; exec, attach and port-forward, which
need a streaming server, say that there is none.";

/// What the simulated runtime is to be like.
#[derive(Debug)]
struct SimRuntime {
    socket: PathBuf,
    seed: u64,
    latency: Latency,
    images: Vec<Image>,
    like: Like,
}

/// Which runtime's calls it has.
#[derive(Debug, Clone, Copy)]
enum Like {
    Everything,
    Containerd1_6,
    Containerd1_7,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let failed = match read(&command().get_matches()) {
        Err(reason) => Some((2, format!("{reason} (see --help)"))),
        Ok(wanted) => run(&wanted).await.err().map(|error| (1, format!("{error:#}"))),
    };
    let Some((code, reason)) = failed else { return ExitCode::SUCCESS };
    // Nothing is left to do if even this cannot be said.
    let _ = writeln!(std::io::stderr(), "crablet-sim-runtime: {reason}");
    ExitCode::from(code)
}

fn command() -> Command {
    Command::new("crablet-sim-runtime")
        .about("Serve a simulated container runtime on a socket")
        .long_about(
            "Serve a simulated container runtime (CRI v1) on a unix socket, for any kubelet or CRI client to run on: \
             containers that start, end, write logs and use memory in name only. It answers as containerd 1.6 does, \
             and its IDs and its latency follow from a seed. Runs until SIGTERM or SIGINT.",
        )
        .after_help(EXAMPLES)
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ENDPOINT")
                .required(true)
                .help("The socket to listen on, such as unix:///run/sim.sock"),
        )
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("NUMBER")
                .default_value("1")
                .help("What all chance follows from"),
        )
        .arg(
            Arg::new("latency")
                .long("latency")
                .value_name("DURATION")
                .default_value("0ms")
                .help("How long each call takes: 5ms, or anything within 5ms..200ms"),
        )
        .arg(
            Arg::new("image")
                .long("image")
                .value_name("NAME[=PROGRAM]")
                .action(ArgAction::Append)
                .help("An image that is there from the start, and what its containers do (may be repeated)"),
        )
        .arg(
            Arg::new("like")
                .long("like")
                .value_name("RUNTIME")
                .default_value("everything")
                .help("Whose calls it has: everything, containerd-1.6 or containerd-1.7"),
        )
}

/// Reads the arguments, or says what is wrong with them.
fn read(matches: &ArgMatches) -> Result<SimRuntime, String> {
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let images = matches.get_many::<String>("image").into_iter().flatten();
    Ok(SimRuntime {
        socket: socket(text("listen"))?,
        seed: text("seed").parse().map_err(|_| format!("--seed: {:?} is no whole number", text("seed")))?,
        latency: latency(text("latency"))?,
        images: images.map(|text| image(text)).collect::<Result<_, String>>()?,
        like: match text("like") {
            "everything" => Like::Everything,
            "containerd-1.6" => Like::Containerd1_6,
            "containerd-1.7" => Like::Containerd1_7,
            other => {
                return Err(format!(
                    "--like: {other:?} is not known: expected everything, containerd-1.6 or containerd-1.7"
                ));
            }
        },
    })
}

/// The longest path that a unix socket can have.
const LONGEST_PATH: usize = 107;

fn socket(endpoint: &str) -> Result<PathBuf, String> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    if !path.starts_with('/') || path.ends_with('/') {
        return Err(format!("--listen: {endpoint:?} is no unix socket: expected unix:///path/to/socket"));
    }
    if path.len() > LONGEST_PATH {
        return Err(format!(
            "--listen: the path {path} is longer than the {LONGEST_PATH} bytes that a unix socket can have"
        ));
    }
    Ok(path.into())
}

fn latency(text: &str) -> Result<Latency, String> {
    let wrong =
        || format!("--latency: {text:?} is no duration: expected 5ms, 1s, or two of them as 5ms..200ms");
    let duration = |text: &str| {
        let (number, factor) = match text.strip_suffix("ms") {
            Some(number) => (number, 0.001),
            None => (text.strip_suffix('s').unwrap_or(text), 1.0),
        };
        let seconds = number.parse::<f64>().map_err(|_| wrong())? * factor;
        Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
    };
    match text.split_once("..") {
        Some((least, most)) => Ok(Latency::Uniform(duration(least)?, duration(most)?)),
        None => match duration(text)? {
            Duration::ZERO => Ok(Latency::None),
            fixed => Ok(Latency::Fixed(fixed)),
        },
    }
}

fn image(text: &str) -> Result<Image, String> {
    let (name, program) = match text.split_once('=') {
        Some((name, program)) => (name, Some(program)),
        None => (text, None),
    };
    if name.is_empty() {
        return Err(format!("--image: {text:?} has no name: expected NAME or NAME=PROGRAM"));
    }
    let image = Image::new(name).running_anything();
    match program {
        None => Ok(image),
        Some(program) => {
            let program: Program = program.parse().map_err(|error| format!("--image {name}: {error}"))?;
            Ok(image.program(program))
        }
    }
}

/// Serves it until the process is told to stop.
async fn run(wanted: &SimRuntime) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listener = listen(&wanted.socket)?;
    let simulator = Simulator::new(settings(wanted));
    let socket = wanted.socket.display();
    println!("serving a simulated CRI v1 runtime on unix://{socket} (seed {})", wanted.seed);
    println!("try: crictl --runtime-endpoint unix://{socket} version");
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let served = serve(simulator, listener, stop).await;
    // Another one may have taken the path meanwhile, but only by removing it first.
    let _ = std::fs::remove_file(&wanted.socket);
    served.with_context(|| format!("cannot serve on {socket}"))
}

fn settings(wanted: &SimRuntime) -> Settings {
    let mut settings = match wanted.like {
        Like::Everything => Settings::default(),
        Like::Containerd1_6 => Settings::containerd_1_6(),
        Like::Containerd1_7 => Settings::containerd_1_7(),
    };
    settings.seed = wanted.seed;
    settings.start = Clock::system().now();
    settings.pull_anything = true;
    settings.makes_directories = true;
    // A kubelet looks for it, and this one is there.
    if let Some(directory) = wanted.socket.parent() {
        settings.file_system = directory.display().to_string();
    }
    settings.latencies = Latencies::all(wanted.latency);
    settings.images.extend(wanted.images.iter().cloned());
    settings
}

/// Listens on a path. What a runtime that is gone left there is replaced; a runtime that lives is not.
fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    let shown = path.display();
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            bail!("{shown} is there and is no socket: choose another path, or remove it");
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => bail!("another process listens on {shown}: stop it, or choose another path"),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)
                    .with_context(|| format!("cannot replace the old socket {shown}"))?;
            }
            Err(error) => return Err(anyhow!(error).context(format!("cannot use the socket {shown}"))),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(anyhow!(error).context(format!("cannot look at {shown}"))),
    }
    UnixListener::bind(path).with_context(|| format!("cannot listen on {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &[&str]) -> Result<SimRuntime, String> {
        let words = std::iter::once("crablet-sim-runtime").chain(arguments.iter().copied());
        read(&command().try_get_matches_from(words).unwrap())
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused_with_what_would() {
        for (arguments, expected) in [
            (
                &["--listen=run/x.sock"][..],
                "--listen: \"run/x.sock\" is no unix socket: expected unix:///path/to/socket",
            ),
            (
                &["--listen=tcp://x:1"],
                "--listen: \"tcp://x:1\" is no unix socket: expected unix:///path/to/socket",
            ),
            (&["--listen=/x", "--seed=a"], "--seed: \"a\" is no whole number"),
            (
                &["--listen=/x", "--latency=fast"],
                "--latency: \"fast\" is no duration: expected 5ms, 1s, or two of them as 5ms..200ms",
            ),
            (
                &["--listen=/x", "--like=cri-o"],
                "--like: \"cri-o\" is not known: expected everything, containerd-1.6 or containerd-1.7",
            ),
            (
                &["--listen=/x", "--image==exit=1"],
                "--image: \"=exit=1\" has no name: expected NAME or NAME=PROGRAM",
            ),
        ] {
            assert_eq!(check(arguments).unwrap_err(), expected, "{arguments:?}");
        }
        let error = check(&["--listen=/x", "--image=a=explode"]).unwrap_err();
        assert!(error.starts_with("--image a: \"explode\" is no part of a program: expected"), "{error}");
        assert!(check(&[&format!("--listen=/{}", "x".repeat(200))]).unwrap_err().contains("107 bytes"));
    }

    #[test]
    fn arguments_that_make_sense_are_taken() {
        let arguments =
            ["--listen=unix:///run/x.sock", "--latency=1ms..2s", "--image=a", "--image=b=exit=1,after=5s"];
        let wanted = check(&arguments).unwrap();
        assert_eq!(wanted.socket, Path::new("/run/x.sock"));
        assert_eq!(wanted.latency, Latency::Uniform(Duration::from_millis(1), Duration::from_secs(2)));
        let program = Program::exit_after(Duration::from_secs(5), 1);
        let images =
            [Image::new("a").running_anything(), Image::new("b").running_anything().program(program)];
        assert_eq!(wanted.images, images);
    }
}
