//! Runs a private containerd until it is told to stop, and removes everything it made.
//!
//! Prints one line, `endpoint=unix:///…`, once pods can be run on it. Ends on SIGTERM, on SIGINT, and when its standard
//! input closes.

use std::io::{self, Write};
use std::thread;

use anyhow::Result;
use crablet_testkit::{Containerd, Image};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

#[tokio::main]
async fn main() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let input_closed = input_closed();
    let run = async {
        let containerd = Containerd::start().await?;
        containerd.import(&Image::pause()?).await?;
        containerd.import(&Image::busybox()?).await?;
        let mut output = io::stdout();
        writeln!(output, "endpoint={}", containerd.endpoint())?;
        output.flush()?;
        anyhow::Ok(containerd)
    };
    // A signal during the start drops what has been started, which removes it.
    let containerd = tokio::select! {
        containerd = run => containerd?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = input_closed => {}
    }
    containerd.stop().await
}

/// Reads on a thread of its own: the runtime would wait at its end for a read that never returns.
fn input_closed() -> oneshot::Receiver<()> {
    let (closed, receiver) = oneshot::channel();
    thread::spawn(move || {
        // An input that cannot be read is as good as closed.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = closed.send(());
    });
    receiver
}
