//! Which lines are shown, changeable while the program runs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};

use crate::vmodule::VModule;

/// The verbosity from which on an event is shown.
///
/// The events of libraries are about their own insides, so they need more than ours do.
pub(crate) fn required_verbosity(metadata: &Metadata<'_>) -> u32 {
    let own = metadata.target().starts_with("crablet");
    match *metadata.level() {
        Level::ERROR | Level::WARN => 0,
        Level::INFO if own => 0,
        Level::DEBUG if own => 4,
        Level::TRACE if own => 6,
        Level::INFO => 8,
        Level::DEBUG => 9,
        _ => 10,
    }
}

/// The verbosity in force.
///
/// The answer for a place in the code depends on nothing but that place, so tracing caches it there, and a line
/// that is off costs one load. Whoever changes the filter has tracing ask again.
pub(crate) struct Filter {
    verbosity: AtomicU32,
    /// Saves taking the lock where there is no vmodule, which is nearly always.
    has_vmodule: AtomicBool,
    vmodule: RwLock<Arc<VModule>>,
}

impl Filter {
    pub(crate) fn new(verbosity: u32, vmodule: VModule) -> Filter {
        Filter {
            verbosity: AtomicU32::new(verbosity),
            has_vmodule: AtomicBool::new(!vmodule.is_empty()),
            vmodule: RwLock::new(Arc::new(vmodule)),
        }
    }

    pub(crate) fn allows(&self, metadata: &Metadata<'_>) -> bool {
        let required = required_verbosity(metadata);
        if required <= self.verbosity() {
            return true;
        }
        if !self.has_vmodule.load(Ordering::Relaxed) {
            return false;
        }
        let file = metadata.file().unwrap_or_default();
        let module_path = metadata.module_path().unwrap_or_default();
        required <= self.vmodule().verbosity(file, module_path)
    }

    /// The most detailed level that is shown anywhere.
    pub(crate) fn max_level(&self) -> LevelFilter {
        let modules = self.vmodule().rules().map(|(_, verbosity)| verbosity).max().unwrap_or(0);
        match self.verbosity().max(modules) {
            0..4 => LevelFilter::INFO,
            4..6 => LevelFilter::DEBUG,
            6.. => LevelFilter::TRACE,
        }
    }

    pub(crate) fn verbosity(&self) -> u32 {
        self.verbosity.load(Ordering::Relaxed)
    }

    pub(crate) fn set_verbosity(&self, verbosity: u32) {
        self.verbosity.store(verbosity, Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }

    pub(crate) fn vmodule(&self) -> Arc<VModule> {
        self.vmodule.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_vmodule(&self, vmodule: VModule) {
        let has_vmodule = !vmodule.is_empty();
        *self.vmodule.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(vmodule);
        self.has_vmodule.store(has_vmodule, Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }
}
