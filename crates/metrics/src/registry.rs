//! What is reported, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::RegisterError;
use crate::family::{Family, FamilyState};
use crate::text::{FamilyWriter, Kind, is_label_name, is_metric_name, render_labels};
use crate::value::{Counter, Gauge, Histogram, Metric};

/// Counts, by metric, how often a value was not reported because the metric had too many of them.
const DROPPED: &str = "crablet_metrics_dropped_label_sets_total";

/// The metrics of one endpoint. Clones share them.
///
/// Registering what is registered already gives the same metric again, so that two parts of the program can
/// update one. Registering the same name as something else is an error.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Entries>>);

/// Where every part of a node registers what it counts: a registry for each path that upstream shows metrics under.
/// Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Registries {
    /// What `/metrics` shows.
    pub kubelet: Registry,
    /// What `/metrics/probes` shows: apart from the rest, since it has series for each container.
    pub probes: Registry,
}

impl Registry {
    /// A registry with nothing in it.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Registers a counter.
    pub fn counter(&self, name: &str, help: &str) -> Result<Counter, RegisterError> {
        Ok(self.counter_family(name, help, [])?.with([]))
    }

    /// Registers a counter with labels.
    pub fn counter_family<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
    ) -> Result<Family<Counter, N>, RegisterError> {
        self.register(name, help, labels, &[])
    }

    /// Registers a gauge.
    pub fn gauge(&self, name: &str, help: &str) -> Result<Gauge, RegisterError> {
        Ok(self.gauge_family(name, help, [])?.with([]))
    }

    /// Registers a gauge with labels.
    pub fn gauge_family<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
    ) -> Result<Family<Gauge, N>, RegisterError> {
        self.register(name, help, labels, &[])
    }

    /// Registers a histogram. The bounds rise; the bucket for what is above them all is added.
    pub fn histogram(&self, name: &str, help: &str, bounds: &[f64]) -> Result<Histogram, RegisterError> {
        Ok(self.histogram_family(name, help, [], bounds)?.with([]))
    }

    /// Registers a histogram with labels.
    pub fn histogram_family<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
        bounds: &[f64],
    ) -> Result<Family<Histogram, N>, RegisterError> {
        let bounds = bounds.strip_suffix(&[f64::INFINITY]).unwrap_or(bounds);
        let rising =
            bounds.is_sorted_by(|low, high| low < high) && bounds.iter().all(|bound| bound.is_finite());
        if !rising {
            return Err(RegisterError::Buckets { metric: name.to_owned(), bounds: bounds.to_vec() });
        }
        self.register(name, help, labels, bounds)
    }

    /// Registers a gauge whose value is computed when it is asked for.
    pub fn gauge_fn(
        &self,
        name: &str,
        help: &str,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), RegisterError> {
        check_names(name, &[], Kind::Gauge)?;
        let mut entries = self.entries();
        if let Some(known) = entries.metrics.get(name) {
            return Err(RegisterError::Taken { metric: name.to_owned(), kind: known.source.kind() });
        }
        entries
            .metrics
            .insert(name.into(), Entry { help: help.into(), source: Source::Computed(Arc::new(value)) });
        Ok(())
    }

    /// Registers a function that gives any number of samples when they are asked for.
    ///
    /// A registered metric wins over samples of the same name.
    pub fn collector(&self, collect: impl Fn(&mut Samples) + Send + Sync + 'static) {
        self.entries().collectors.push(Arc::new(collect));
    }

    /// Everything, in the text format.
    pub fn render(&self) -> String {
        // Computed values are asked for without the lock, so that they may take their time or register something.
        let Entries { metrics, collectors } = Entries::clone(&self.entries());
        let mut samples = Samples::default();
        collectors.iter().for_each(|collect| collect(&mut samples));
        report_dropped(&metrics, &mut samples);
        samples.0.retain(|name, _| !metrics.contains_key(&**name));

        let mut out = String::new();
        let mut collected = samples.0.into_iter().peekable();
        for (name, entry) in &metrics {
            while let Some((name, family)) = collected.next_if(|(earlier, _)| **earlier < **name) {
                family.write(&name, &mut out);
            }
            entry.write(name, &mut out);
        }
        collected.for_each(|(name, family)| family.write(&name, &mut out));
        out
    }

    fn register<M: Registered, const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
        bounds: &[f64],
    ) -> Result<Family<M, N>, RegisterError> {
        check_names(name, &labels, M::KIND)?;
        let mut entries = self.entries();
        let Some(known) = entries.metrics.get(name) else {
            let family = Arc::new(FamilyState::new(&labels, bounds));
            entries
                .metrics
                .insert(name.into(), Entry { help: help.into(), source: M::into_source(family.clone()) });
            return Ok(Family(family));
        };
        match M::from_source(&known.source) {
            Some(family) if family.has_shape(&labels, bounds) => Ok(Family(family.clone())),
            _ => Err(RegisterError::Taken { metric: name.to_owned(), kind: known.source.kind() }),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.entries().metrics.keys()).finish()
    }
}

/// Samples taken when they are asked for, by metric.
#[derive(Default)]
pub struct Samples(BTreeMap<Box<str>, Collected>);

impl Samples {
    /// Adds a sample. Help and kind count where the name is met first.
    pub fn add(&mut self, name: &str, help: &str, kind: Kind, labels: &[(&str, &str)], value: f64) {
        self.put(name, help, kind, labels, value, None);
    }

    /// Adds a sample that was taken at a time of its own, in milliseconds since 1970.
    pub fn add_at(
        &mut self,
        name: &str,
        help: &str,
        kind: Kind,
        labels: &[(&str, &str)],
        value: f64,
        timestamp: i64,
    ) {
        self.put(name, help, kind, labels, value, Some(timestamp));
    }

    fn put(
        &mut self,
        name: &str,
        help: &str,
        kind: Kind,
        labels: &[(&str, &str)],
        value: f64,
        timestamp: Option<i64>,
    ) {
        let labels = render_labels(labels.iter().copied());
        if !self.0.contains_key(name) {
            self.0.insert(name.into(), Collected { help: help.into(), kind, samples: BTreeMap::new() });
        }
        if let Some(family) = self.0.get_mut(name) {
            family.samples.insert(labels.into(), (value, timestamp));
        }
    }
}

struct Collected {
    help: Box<str>,
    kind: Kind,
    /// Value and time, by the labels as they are written.
    samples: BTreeMap<Box<str>, (f64, Option<i64>)>,
}

impl Collected {
    fn write(&self, name: &str, out: &mut String) {
        let mut writer = FamilyWriter::new(out, name, &self.help, self.kind);
        for (labels, (value, timestamp)) in &self.samples {
            writer.sample("", labels, *value, *timestamp);
        }
    }
}

type Collector = Arc<dyn Fn(&mut Samples) + Send + Sync>;

#[derive(Clone, Default)]
struct Entries {
    metrics: BTreeMap<Box<str>, Entry>,
    collectors: Vec<Collector>,
}

#[derive(Clone)]
struct Entry {
    help: Arc<str>,
    source: Source,
}

impl Entry {
    fn write(&self, name: &str, out: &mut String) {
        let mut writer = FamilyWriter::new(out, name, &self.help, self.source.kind());
        match &self.source {
            Source::Counter(family) => family.write(&mut writer),
            Source::Gauge(family) => family.write(&mut writer),
            Source::Histogram(family) => family.write(&mut writer),
            Source::Computed(value) => writer.sample("", "", value(), None),
        }
    }
}

/// Where a metric's values come from.
#[derive(Clone)]
enum Source {
    Counter(Arc<FamilyState<Counter>>),
    Gauge(Arc<FamilyState<Gauge>>),
    Histogram(Arc<FamilyState<Histogram>>),
    Computed(Arc<dyn Fn() -> f64 + Send + Sync>),
}

impl Source {
    fn kind(&self) -> Kind {
        match self {
            Source::Counter(_) => Kind::Counter,
            Source::Gauge(_) | Source::Computed(_) => Kind::Gauge,
            Source::Histogram(_) => Kind::Histogram,
        }
    }

    fn dropped(&self) -> u64 {
        match self {
            Source::Counter(family) => family.dropped(),
            Source::Gauge(family) => family.dropped(),
            Source::Histogram(family) => family.dropped(),
            Source::Computed(_) => 0,
        }
    }
}

/// A kind of metric that the registry keeps.
trait Registered: Metric {
    fn into_source(family: Arc<FamilyState<Self>>) -> Source;
    fn from_source(source: &Source) -> Option<&Arc<FamilyState<Self>>>;
}

macro_rules! registered {
    ($($kind:ident),*) => {$(
        impl Registered for $kind {
            fn into_source(family: Arc<FamilyState<$kind>>) -> Source {
                Source::$kind(family)
            }

            fn from_source(source: &Source) -> Option<&Arc<FamilyState<$kind>>> {
                if let Source::$kind(family) = source { Some(family) } else { None }
            }
        }
    )*};
}

registered!(Counter, Gauge, Histogram);

fn check_names(name: &str, labels: &[&str], kind: Kind) -> Result<(), RegisterError> {
    if !is_metric_name(name) {
        return Err(RegisterError::Name(name.to_owned()));
    }
    for (index, label) in labels.iter().enumerate() {
        let reserved = kind == Kind::Histogram && *label == "le";
        if !is_label_name(label) || reserved || labels[..index].contains(label) {
            return Err(RegisterError::Label { metric: name.to_owned(), label: (*label).to_owned() });
        }
    }
    Ok(())
}

fn report_dropped(metrics: &BTreeMap<Box<str>, Entry>, samples: &mut Samples) {
    for (name, entry) in metrics {
        let dropped = entry.source.dropped();
        if dropped > 0 {
            let help = "Values that were not reported because their metric had too many sets of labels.";
            samples.add(DROPPED, help, Kind::Counter, &[("metric", name)], dropped as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::MAX_LABEL_SETS;

    #[test]
    fn everything_is_written_in_order() {
        let registry = Registry::new();
        let runs = registry.counter_family("runs", "Runs.", ["node", "code"]).unwrap();
        runs.with(["b", "200"]).add(2);
        runs.with(["a", "500"]).increment();
        registry.gauge_fn("depth", "Depth of the\nqueue, in \\.", || 7.5).unwrap();
        registry.histogram("latency_seconds", "Latency.", &[0.1, 1.0]).unwrap().observe(0.25);
        registry.counter_family("never_used", "Nothing.", ["a"]).unwrap();
        registry.gauge("a_gauge", "First.").unwrap().set(-1.0);
        registry.collector(|samples| {
            samples.add_at(
                "cpu_seconds_total",
                "Time.",
                Kind::Counter,
                &[("id", "/")],
                1.5,
                1_700_000_000_000,
            );
            samples.add("zz", "Last.", Kind::Untyped, &[], 3e6);
            samples.add("a_gauge", "Not the registered one.", Kind::Gauge, &[], 99.0);
        });
        let expected = r#"# HELP a_gauge First.
# TYPE a_gauge gauge
a_gauge -1
# HELP cpu_seconds_total Time.
# TYPE cpu_seconds_total counter
cpu_seconds_total{id="/"} 1.5 1700000000000
# HELP depth Depth of the\nqueue, in \\.
# TYPE depth gauge
depth 7.5
# HELP latency_seconds Latency.
# TYPE latency_seconds histogram
latency_seconds_bucket{le="0.1"} 0
latency_seconds_bucket{le="1"} 1
latency_seconds_bucket{le="+Inf"} 1
latency_seconds_sum 0.25
latency_seconds_count 1
# HELP runs Runs.
# TYPE runs counter
runs{code="200",node="b"} 2
runs{code="500",node="a"} 1
# HELP zz Last.
# TYPE zz untyped
zz 3e+06
"#;
        assert_eq!(registry.render(), expected);
        assert_eq!(registry.clone().render(), expected);
    }

    #[test]
    fn a_histogram_with_labels_puts_the_bound_last() {
        let registry = Registry::new();
        let family = registry.histogram_family("h", "H.", ["verb"], &[1.0, f64::INFINITY]).unwrap();
        family.with(["get"]).observe(2.0);
        let text = registry.render();
        assert!(
            text.contains("h_bucket{verb=\"get\",le=\"1\"} 0\nh_bucket{verb=\"get\",le=\"+Inf\"} 1\n"),
            "{text}"
        );
        assert!(text.contains("h_sum{verb=\"get\"} 2\nh_count{verb=\"get\"} 1\n"), "{text}");
    }

    #[test]
    fn registering_twice_gives_the_same_metric() {
        let registry = Registry::new();
        registry.counter("runs", "Runs.").unwrap().increment();
        assert_eq!(registry.counter("runs", "Runs.").unwrap().get(), 1);
        let bounds = [1.0, 2.0];
        registry.histogram("h", "H.", &bounds).unwrap().observe(1.0);
        assert_eq!(registry.histogram("h", "H.", &bounds).unwrap().count(), 1);
    }

    #[test]
    fn a_name_cannot_be_two_things() {
        let registry = Registry::new();
        registry.counter("runs", "Runs.").unwrap();
        let taken = RegisterError::Taken { metric: "runs".to_owned(), kind: Kind::Counter };
        assert_eq!(registry.gauge("runs", "Runs.").unwrap_err(), taken);
        assert_eq!(registry.counter_family("runs", "Runs.", ["a"]).unwrap_err(), taken);
        assert_eq!(registry.gauge_fn("runs", "Runs.", || 0.0).unwrap_err(), taken);
        registry.histogram("h", "H.", &[1.0]).unwrap();
        let error = registry.histogram("h", "H.", &[2.0]).unwrap_err();
        assert_eq!(error.to_string(), "metric h is already registered as a histogram that differs");
    }

    #[test]
    fn what_prometheus_would_refuse_is_refused() {
        let registry = Registry::new();
        assert!(matches!(registry.gauge("a-b", ""), Err(RegisterError::Name(_))));
        assert!(matches!(registry.gauge_family("a", "", ["x", "x"]), Err(RegisterError::Label { .. })));
        assert!(matches!(registry.gauge_family("a", "", ["x-y"]), Err(RegisterError::Label { .. })));
        assert!(matches!(registry.histogram_family("a", "", ["le"], &[]), Err(RegisterError::Label { .. })));
        assert!(matches!(registry.histogram("a", "", &[2.0, 1.0]), Err(RegisterError::Buckets { .. })));
        assert!(matches!(registry.histogram("a", "", &[f64::NAN]), Err(RegisterError::Buckets { .. })));
        assert_eq!(registry.render(), "");
    }

    #[test]
    fn label_sets_are_bounded_and_the_rest_is_counted() {
        let registry = Registry::new();
        let family = registry.counter_family("runs", "Runs.", ["pod"]).unwrap();
        for pod in 0..MAX_LABEL_SETS + 3 {
            family.with([&pod.to_string()]).increment();
        }
        let text = registry.render();
        assert_eq!(text.lines().filter(|line| line.starts_with("runs{")).count(), MAX_LABEL_SETS);
        assert!(text.contains("crablet_metrics_dropped_label_sets_total{metric=\"runs\"} 3\n"));
        family.with(["0"]).increment();
        family.remove(["1"]);
        family.with(["new"]).increment();
        let text = registry.render();
        assert!(text.contains("runs{pod=\"0\"} 2\n") && text.contains("runs{pod=\"new\"} 1\n"));
        assert!(!text.contains("runs{pod=\"1\"}"));
        family.clear();
        assert!(!registry.render().contains("runs{"));
    }

    #[test]
    fn a_computed_value_may_use_the_registry() {
        let registry = Registry::new();
        let inner = registry.clone();
        registry
            .gauge_fn("outer", "Outer.", move || {
                inner.counter("asked", "Asked.").map_or(f64::NAN, |asked| {
                    asked.increment();
                    asked.get() as f64
                })
            })
            .unwrap();
        assert!(registry.render().contains("outer 1\n"));
        assert!(registry.render().contains("asked "));
    }
}
