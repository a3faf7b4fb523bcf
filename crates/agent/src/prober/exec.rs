//! A command in the container.

use std::time::Duration;

use crablet_cri::{Error, Runtime};

use super::Answer;

/// How much of what a command writes is read.
const MOST: usize = 10 << 10;

/// Runs a command. The runtime ends it when its time is up: a call that is let go of would leave it running.
pub(super) async fn probe(runtime: &dyn Runtime, id: &str, command: &[String], timeout: Duration) -> Answer {
    match runtime.exec_sync(id, command, Some(timeout)).await {
        Ok(output) if output.exit_code == 0 => Answer::Success,
        Ok(output) => {
            let mut written = output.stdout;
            written.extend_from_slice(&output.stderr);
            written.truncate(MOST);
            Answer::Failure(String::from_utf8_lossy(&written).into_owned())
        }
        Err(error) if took_too_long(&error) => {
            let (command, seconds) = (command.join(" "), timeout.as_secs());
            Answer::Failure(format!("command timed out: {command:?} timed out after {seconds}s"))
        }
        Err(error) => Answer::unknown(error.in_go_words()),
    }
}

/// Whether the runtime says that the command was still running when its time was up: `DeadlineExceeded`, which has the
/// number 4. A runtime that does not answer at all says nothing about the container.
pub(crate) fn took_too_long(error: &Error) -> bool {
    matches!(error, Error::Answer { code, .. } if *code as i32 == 4)
}
