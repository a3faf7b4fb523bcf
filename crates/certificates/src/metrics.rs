//! What is counted of renewals, under upstream's names.

use crablet_metrics::{Counter, Histogram, RegisterError, Registry};
use jiff::SignedDuration;

/// For how long certificates that were renewed had been there, in seconds: from a minute to four years.
const AGES: [f64; 10] = [
    60.0,
    3600.0,
    14400.0,
    86400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];
const ERRORS: &str = "[ALPHA] Counter of certificate renewal errors.";

/// Counters of one certificate's renewals.
pub struct Renewals {
    errors: Counter,
    ages: Option<Histogram>,
}

impl Renewals {
    /// Those of the certificate that a node shows to its API server.
    pub fn of_client(registry: &Registry) -> Result<Renewals, RegisterError> {
        let name = "kubelet_certificate_manager_client_expiration_renew_errors";
        Ok(Renewals { errors: registry.counter(name, ERRORS)?, ages: None })
    }

    /// Those of the certificate that a node serves with.
    pub fn of_serving(registry: &Registry) -> Result<Renewals, RegisterError> {
        let ages = registry.histogram(
            "kubelet_certificate_manager_server_rotation_seconds",
            "[ALPHA] Histogram of the number of seconds the previous certificate lived before being rotated.",
            &AGES,
        )?;
        let errors = registry.counter("kubelet_server_expiration_renew_errors", ERRORS)?;
        Ok(Renewals { errors, ages: Some(ages) })
    }

    pub(crate) fn failed(&self) {
        self.errors.increment();
    }

    /// There is another certificate in place of one of this age.
    pub(crate) fn replaced(&self, age: SignedDuration) {
        if let Some(ages) = &self.ages {
            ages.observe(age.as_secs_f64());
        }
    }
}
