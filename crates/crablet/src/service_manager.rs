//! What systemd, or whoever started us and set `NOTIFY_SOCKET`, is told. Without it, all of this does nothing.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::warn;

/// How much longer than now a wait may last before systemd gives up on us.
const WAIT_EXTENSION: Duration = Duration::from_secs(120);

/// Tells that we are still starting, and why it takes so long.
pub(crate) fn waiting(why: &str) {
    let extension = u32::try_from(WAIT_EXTENSION.as_micros()).unwrap_or(u32::MAX);
    notify(&[NotifyState::Status(why), NotifyState::ExtendTimeoutUsec(extension)]);
}

/// Tells that we are up.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready, NotifyState::Status("running")]);
}

/// Tells that we are on our way out.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("stopping; pods keep running")]);
}

/// Tells again and again that we are alive, where we are asked to, as long as `healthy` finds us so.
pub(crate) async fn watchdog(healthy: impl Fn() -> Result<(), String>) {
    // Twice within the limit, as systemd recommends. No limit at all is no watchdog.
    let period = sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|period| !period.is_zero());
    let Some(period) = period else {
        return std::future::pending().await;
    };
    let mut ticks = interval_at(Instant::now(), period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match healthy() {
            Ok(()) => notify(&[NotifyState::Watchdog]),
            Err(reason) => warn!(reason, "Not healthy; the service manager is not told that we are alive"),
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(err = %error, "Cannot tell the service manager how we are");
    }
}
