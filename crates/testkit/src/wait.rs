//! Waiting for a condition.

use std::fmt::Display;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep, timeout_at};

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Asks again and again, until the answer is `Ok`.
///
/// `check` answers with the value that was awaited, or with the reason why it is not so yet. When `within` has passed,
/// the error says what was awaited, for how long, and the last reason:
///
/// ```
/// # use std::time::Duration;
/// # use crablet_testkit::eventually;
/// # async fn example() {
/// let pid = eventually("the pid file has a number in it", Duration::from_secs(10), || async {
///     let text = std::fs::read_to_string("/run/example.pid").map_err(|error| error.to_string())?;
///     text.trim().parse::<u32>().map_err(|error| format!("{text:?}: {error}"))
/// })
/// .await;
/// # }
/// ```
pub async fn eventually<T, Reason, Check, Answer>(
    awaited: &str,
    within: Duration,
    mut check: Check,
) -> Result<T>
where
    Reason: Display,
    Check: FnMut() -> Answer,
    Answer: Future<Output = Result<T, Reason>>,
{
    let deadline = Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    let mut last_reason = None;
    loop {
        match timeout_at(deadline, check()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(reason)) => last_reason = Some(reason),
            Err(_elapsed) => bail!("{}", failure(awaited, within, last_reason.as_ref(), true)),
        }
        if Instant::now() + pause >= deadline {
            bail!("{}", failure(awaited, within, last_reason.as_ref(), false));
        }
        sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

fn failure(awaited: &str, within: Duration, last_reason: Option<&impl Display>, check_hung: bool) -> String {
    let mut text = format!("waited {within:?} in vain until {awaited}");
    if let Some(reason) = last_reason {
        text.push_str(&format!("\n  last seen: {reason}"));
    }
    if check_hung {
        text.push_str("\n  the last check had not answered by then");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_awaited_value_is_returned_as_soon_as_it_is_there() {
        let tries = Cell::new(0);
        let began = Instant::now();
        let value = eventually("the third try", Duration::from_secs(60), || async {
            tries.set(tries.get() + 1);
            if tries.get() == 3 { Ok("there") } else { Err("not yet") }
        })
        .await
        .unwrap();
        assert_eq!(value, "there");
        assert!(began.elapsed() < Duration::from_millis(20), "took {:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_never_holds_fails_with_the_last_reason() {
        let tries = Cell::new(0);
        let error = eventually("the pod is Running", Duration::from_secs(2), || async {
            tries.set(tries.get() + 1);
            Err::<(), _>(format!("phase is Pending (look {})", tries.get()))
        })
        .await
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "waited 2s in vain until the pod is Running\n  last seen: phase is Pending (look {})",
                tries.get()
            )
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_hangs_does_not_outlast_the_deadline() {
        let error = eventually("the socket answers", Duration::from_secs(2), pending::<Result<(), &str>>)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "waited 2s in vain until the socket answers\n  the last check had not answered by then"
        );
    }
}
