//! The layer that turns tracing's events into lines.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crablet_host::clock::Clock;
use tokio::time::Instant;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::fields::{Fields, Text, Value};
use crate::filter::{Filter, required_verbosity};
use crate::format::{Format, Header, Line, write_line};
use crate::limit::{LINES_PER_SECOND, Limiter};

/// How long a line may take to be written before logging counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// What the layer and its handles share.
pub(crate) struct Log {
    pub(crate) filter: Filter,
    json: AtomicBool,
    header: Header,
    clock: Clock,
    limiter: Limiter,
    output: Output,
}

impl Log {
    pub(crate) fn new(
        filter: Filter,
        format: Format,
        header: Header,
        clock: Clock,
        writer: Box<dyn Write + Send>,
    ) -> Log {
        let output =
            Output { writer: Mutex::new(writer), created: Instant::now(), writing_since: AtomicU64::new(0) };
        let json = AtomicBool::new(format == Format::Json);
        Log { filter, json, header, clock, limiter: Limiter::new(), output }
    }

    pub(crate) fn format(&self) -> Format {
        if self.json.load(Ordering::Relaxed) { Format::Json } else { Format::Text }
    }

    pub(crate) fn set_format(&self, format: Format) {
        self.json.store(format == Format::Json, Ordering::Relaxed);
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.output.is_stuck()
    }

    fn write(&self, level: Level, verbosity: u32, file: &str, line: u32, fields: impl FnOnce() -> Fields) {
        let Some(dropped) = self.limiter.admit(level, Instant::now()) else { return };
        let (format, time) = (self.format(), self.clock.now());
        let mut out = String::with_capacity(256);
        if dropped > 0 {
            let fields = dropped_notice(dropped);
            let notice =
                Line { level: Level::WARN, verbosity: 0, time, file: file!(), line: line!(), fields };
            write_line(&mut out, format, &self.header, &notice);
        }
        let entry = Line { level, verbosity, time, file, line, fields: fields() };
        write_line(&mut out, format, &self.header, &entry);
        self.output.write(out.as_bytes());
    }
}

pub(crate) struct LogLayer(pub(crate) Arc<Log>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogLayer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.0.filter.allows(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.0.filter.allows(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.filter.max_level())
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            record.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let file = metadata.file().unwrap_or("unknown");
        let line = metadata.line().unwrap_or(0);
        self.0.write(*metadata.level(), required_verbosity(metadata), file, line, || {
            let mut fields = Fields::default();
            for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
                if let Some(outer) = span.extensions().get::<Fields>() {
                    outer.values.iter().for_each(|(name, value)| fields.put(name, value.clone()));
                }
            }
            event.record(&mut fields);
            fields
        });
    }
}

fn dropped_notice(dropped: u64) -> Fields {
    let message = Text::capture(format_args!("Dropped log lines that came too fast"));
    let values = vec![
        ("lines", Value::Unsigned(dropped)),
        ("linesPerSecond", Value::Unsigned(LINES_PER_SECOND.into())),
    ];
    Fields { message, values }
}

struct Output {
    writer: Mutex<Box<dyn Write + Send>>,
    created: Instant,
    /// When the write under way began, in milliseconds after `created` and never zero; zero while there is none.
    writing_since: AtomicU64,
}

impl Output {
    fn write(&self, bytes: &[u8]) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.writing_since.store(self.milliseconds().max(1), Ordering::Relaxed);
        // There is nowhere left to report that the log cannot be written.
        let _ = writer.write_all(bytes);
        self.writing_since.store(0, Ordering::Relaxed);
    }

    fn is_stuck(&self) -> bool {
        let since = self.writing_since.load(Ordering::Relaxed);
        since > 0 && u128::from(self.milliseconds().saturating_sub(since)) >= STUCK_AFTER.as_millis()
    }

    fn milliseconds(&self) -> u64 {
        u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
