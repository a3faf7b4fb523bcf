//! What a real kubectl prints against a real kube-apiserver 1.36, and whether it prints the same against ours.
//!
//! Each file in `cases/` has cases: commands that a person wrote, and what they printed, which nobody wrote. Ages, times,
//! UIDs, versions and addresses are replaced. A file has a server of its own, and a case a namespace of its own. Where
//! `KUBEBUILDER_ASSETS` names a directory with `kube-apiserver` and `etcd`, all is played on a real server as well; with
//! `RECORD=1` what is printed then is written into the files.
//!
//! `controllers.txt` and `top.txt` are played on ours alone, with its controllers. `differences.txt` has the cases that print
//! something else on ours, each with its reason.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test it is the assertion")]

mod case;
mod neutral;
mod node;
mod play;
mod program;

#[path = "../common/real.rs"]
mod real;
#[path = "../common/stand_in.rs"]
mod stand_in;

use std::path::{Path, PathBuf};

use case::{Case, File};
use play::{Embedded, Stage, difference};
use real::Real;

macro_rules! files {
    ($($name:ident)*) => {
        const FILES: &[&str] = &[$(stringify!($name)),*];

        mod kubectl_prints_what_it_prints_on_a_real_server {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::on_the_embedded_server(stringify!($name)).await;
            })*
        }

        mod a_real_server_still_lets_kubectl_print_this {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::on_a_real_server(stringify!($name)).await;
            })*
        }
    };
}

files! {
    access
    apply
    change
    controllers
    create
    delete
    describe
    discovery
    events
    exec
    get
    logs
    nodes
    refused
    run
    top
    wait
}

/// What happens by itself, and what a real server has others for: nothing of it was recorded.
const OURS_ALONE: &[&str] = &["controllers", "top"];
/// What a real server is asked to do without, so that it refuses it as a server that never had it. More cannot be spared.
const ABSENT: &[&str] = &["apps/v1", "autoscaling/v1", "autoscaling/v2", "batch/v1"];
/// Files that have a node to ask.
const NODE_IS_ASKED: &[&str] = &["exec", "logs", "top"];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl")
}

fn path_of(name: &str) -> PathBuf {
    directory().join("cases").join(format!("{name}.txt"))
}

#[test]
fn every_file_is_played_and_every_difference_has_its_reason() {
    let entries = std::fs::read_dir(directory().join("cases")).unwrap();
    let mut found: Vec<String> = entries
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort();
    assert_eq!(found, FILES);
    let recorded: Vec<Case> = FILES.iter().flat_map(|name| File::read(&path_of(name)).cases).collect();
    for difference in differences() {
        assert!(difference.comment.iter().any(|line| line.len() > 10), "{}: why?", difference.name);
        let same = recorded.iter().filter(|case| case.name == difference.name).collect::<Vec<_>>();
        assert_eq!(same.len(), 1, "{} is the name of one case", difference.name);
        let commands = |case: &Case| case.steps.iter().map(|step| step.command.clone()).collect::<Vec<_>>();
        assert_eq!(commands(same[0]), commands(&difference), "{}", difference.name);
        assert!(
            same[0].steps.iter().zip(&difference.steps).any(|(real, ours)| real.printed != ours.printed),
            "{} does not differ",
            difference.name
        );
    }
}

fn differences() -> Vec<Case> {
    File::read(&directory().join("differences.txt")).cases
}

async fn on_the_embedded_server(name: &str) {
    let differences = differences();
    let mut file = File::read(&path_of(name));
    for case in &mut file.cases {
        if let Some(ours) = differences.iter().find(|ours| ours.name == case.name) {
            case.steps.clone_from(&ours.steps);
        }
    }
    // The real server was alone, without a controller manager.
    let controllers = OURS_ALONE.contains(&name);
    let server = Embedded::start(controllers).await;
    let stage = server.stage();
    stage.prepare(&file, controllers).await;
    if NODE_IS_ASKED.contains(&name) {
        node::register(&stage, &server.authority()).await;
    }
    compare(&stage, &file).await;
}

async fn on_a_real_server(name: &str) {
    let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") else {
        eprintln!("KUBEBUILDER_ASSETS names no kube-apiserver and etcd: nothing to compare with");
        return;
    };
    if OURS_ALONE.contains(&name) {
        return;
    }
    let server = tokio::task::spawn_blocking(move || Real::start(Path::new(&assets), ABSENT)).await.unwrap();
    let stage = Stage::of_real(&server);
    let mut file = File::read(&path_of(name));
    stage.prepare(&file, false).await;
    if NODE_IS_ASKED.contains(&name) {
        node::register(&stage, &server.path("ca.crt")).await;
    }
    if std::env::var_os("RECORD").is_none() {
        return compare(&stage, &file).await;
    }
    for (position, case) in file.cases.iter_mut().enumerate() {
        let printed = stage.play(position, &file.files, case).await;
        for (step, printed) in case.steps.iter_mut().zip(printed) {
            step.printed = printed;
        }
    }
    file.write(&path_of(name));
}

async fn compare(stage: &Stage, file: &File) {
    let mut wrong = 0;
    for (position, case) in file.cases.iter().enumerate() {
        let printed = stage.play(position, &file.files, case).await;
        let unlike = case.steps.iter().zip(printed).find(|(step, found)| step.printed != *found);
        if let Some((step, found)) = unlike {
            wrong += 1;
            eprintln!("### {}\n$ {}\n{}", case.name, step.command, difference(&step.printed, &found));
        }
    }
    assert_eq!(wrong, 0, "of {} cases print something else", file.cases.len());
}
