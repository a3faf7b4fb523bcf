//! The log: tracing's events in the kubelet's formats, with a verbosity that changes at run time.
//!
//! A line takes this way:
//!
//! - `filter` decides per place in the code whether it is shown at all; tracing remembers the answer there.
//! - `limit` admits a bounded number of lines a second, and counts what it drops.
//! - `fields` captures the message, the fields and those of the enclosing spans, each at a bounded size.
//! - `format` writes one line of text or JSON, escaped so that a value cannot pose as a line of its own.
//! - `layer` puts these together and hands the line to the writer in one piece.
//!
//! What is shown: errors, warnings and info always, debug from verbosity 4, trace from 6. Of libraries warnings
//! and errors, and the rest from 8 (info), 9 (debug) and 10 (trace).

mod error_chain;
mod fields;
mod filter;
mod format;
mod layer;
mod limit;
mod pod;
mod vmodule;

use std::io::{self, Write};
use std::sync::Arc;

use crablet_host::clock::Clock;
use jiff::tz::TimeZone;
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;

pub use error_chain::ErrorChain;
pub use format::{Format, UnknownFormat};
pub use pod::pod_span;
pub use vmodule::{VModule, VModuleError};

/// How to log at first. Format, verbosity and vmodule can be changed later through the [`Handle`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The form of the lines.
    pub format: Format,
    /// How detailed the log is: `-v`.
    pub verbosity: u32,
    /// How detailed it is for single files: `--vmodule`. It can only add lines.
    pub vmodule: VModule,
    /// What tells the time of each line.
    pub clock: Clock,
    /// The time zone in which text lines show it.
    pub time_zone: TimeZone,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            format: Format::default(),
            verbosity: 0,
            vmodule: VModule::default(),
            clock: Clock::system(),
            time_zone: TimeZone::system(),
        }
    }
}

/// Starts logging to standard error, for the whole process and for good.
pub fn init(settings: Settings) -> Result<Handle, InitError> {
    let (subscriber, handle) = subscriber(settings, io::stderr());
    tracing::subscriber::set_global_default(subscriber).map_err(|_| InitError)?;
    Ok(handle)
}

/// Logging was started twice.
#[derive(Debug, thiserror::Error)]
#[error("logging has already been started in this process")]
pub struct InitError;

/// A subscriber that logs to `writer`, for `tracing::subscriber::with_default` and the like. Each line is handed
/// over in one write.
pub fn subscriber(
    settings: Settings,
    writer: impl Write + Send + 'static,
) -> (impl Subscriber + Send + Sync, Handle) {
    let log = Arc::new(layer::Log::new(
        filter::Filter::new(settings.verbosity, settings.vmodule),
        settings.format,
        format::Header { process: std::process::id(), time_zone: settings.time_zone },
        settings.clock,
        Box::new(writer),
    ));
    (Registry::default().with(layer::LogLayer(log.clone())), Handle(log))
}

/// Changes a running log.
#[derive(Clone)]
pub struct Handle(Arc<layer::Log>);

impl Handle {
    /// The verbosity in force.
    pub fn verbosity(&self) -> u32 {
        self.0.filter.verbosity()
    }

    /// Changes the verbosity, from the next line on.
    pub fn set_verbosity(&self, verbosity: u32) {
        self.0.filter.set_verbosity(verbosity);
    }

    /// The verbosity of single files.
    pub fn vmodule(&self) -> VModule {
        VModule::clone(&self.0.filter.vmodule())
    }

    /// Changes the verbosity of single files, from the next line on.
    pub fn set_vmodule(&self, vmodule: VModule) {
        self.0.filter.set_vmodule(vmodule);
    }

    /// The form of the lines.
    pub fn format(&self) -> Format {
        self.0.format()
    }

    /// Changes the form, from the next line on.
    pub fn set_format(&self, format: Format) {
        self.0.set_format(format);
    }

    /// Fails while a line has been waiting to be written for two minutes: the log's part of the health checks.
    pub fn check(&self) -> Result<(), String> {
        if self.0.is_stuck() { Err("logging blocked".to_owned()) } else { Ok(()) }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Handle")
            .field("format", &self.format())
            .field("verbosity", &self.verbosity())
            .field("vmodule", &self.vmodule())
            .finish()
    }
}
