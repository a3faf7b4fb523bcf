//! Logs and traces.

use crablet_api::{FeatureGates, Gate, GoDuration};

use super::{Check, one_of};
use crate::kubelet_configuration::*;
use crate::words::*;

impl Check {
    pub(super) fn logging(&mut self, logging: &Logging, gates: &FeatureGates) {
        if logging.flush_frequency.duration <= GoDuration::ZERO {
            let message = format!(
                "logging.flushFrequency: Invalid value: \"{}\": Must be greater than zero",
                logging.flush_frequency.duration
            );
            self.fail(&["logging", "flushFrequency"], message);
        }
        if let LogFormat::Other(other) = &logging.format {
            let message = format!(
                "logging.format: Invalid value: {other:?}: Unsupported log format; {} is accepted",
                one_of(LogFormat::WORDS)
            );
            self.fail(&["logging", "format"], message);
        }
        if logging.verbosity > i32::MAX.unsigned_abs() {
            let message =
                format!("logging.verbosity: Invalid value: {}: Must be <= {}", logging.verbosity, i32::MAX);
            self.fail(&["logging", "verbosity"], message);
        }
        if !logging.vmodule.is_empty() && logging.format != LogFormat::Text {
            let message = "logging.vmodule: Forbidden: Only supported for text log format";
            self.fail(&["logging", "vmodule"], message.into());
        }
        for (index, item) in logging.vmodule.iter().enumerate() {
            if item.file_pattern.is_empty() {
                let message =
                    format!("logging.vmodule[{index}]: Required value: File pattern must not be empty");
                self.fail(&["logging", "vmodule"], message);
            }
            if item.verbosity > i32::MAX.unsigned_abs() {
                let message = format!(
                    "logging.vmodule[{index}].verbosity: Invalid value: {}: Must be <= {}",
                    item.verbosity,
                    i32::MAX
                );
                self.fail(&["logging", "vmodule"], message);
            }
            if item.file_pattern.contains(['=', ',']) {
                let message = format!(
                    "logging.vmodule[{index}]: Invalid value: {:?}: File pattern must not contain equal sign or comma",
                    item.file_pattern
                );
                self.fail(&["logging", "vmodule"], message);
            }
        }
        if gates.enabled(Gate::LoggingAlphaOptions) {
            return;
        }
        for (format, options) in [("text", &logging.options.text), ("json", &logging.options.json)] {
            for (field, is_set) in [
                ("splitStream", options.split_stream),
                ("infoBufferSize", !options.info_buffer_size.is_zero()),
            ] {
                if is_set {
                    let message = format!(
                        "logging.options.{format}.{field}: Forbidden: Feature LoggingAlphaOptions is disabled"
                    );
                    self.fail(&["logging", "options"], message);
                }
            }
        }
    }

    pub(super) fn tracing(&mut self, c: &KubeletConfiguration) {
        let Some(tracing) = &c.tracing else { return };
        match tracing.sampling_rate_per_million {
            Some(rate) if rate < 0 => {
                let message = format!(
                    "tracing.samplingRatePerMillion: Invalid value: {rate}: sampling rate must be positive"
                );
                self.fail(&["tracing", "samplingRatePerMillion"], message);
            }
            Some(rate) if rate > 1_000_000 => {
                let message = format!(
                    "tracing.samplingRatePerMillion: Invalid value: {rate}: sampling rate per million must be less \
                     than or equal to one million"
                );
                self.fail(&["tracing", "samplingRatePerMillion"], message);
            }
            Some(_) | None => {}
        }
        if let Some(endpoint) = &tracing.endpoint
            && let Some((scheme, _)) = endpoint.split_once("//")
            && !["dns:", "unix:", "unix-abstract:"].contains(&scheme)
        {
            let message = format!(
                "tracing.endpoint: Invalid value: {endpoint:?}: unsupported scheme: {}.  Options are none, dns, unix, \
                 or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md",
                scheme.trim_end_matches(':')
            );
            self.fail(&["tracing", "endpoint"], message);
        }
    }
}
