//! Signals in the runtime's terms.

use crablet_api::core::Signal;
use crablet_cri_api::v1;

/// A signal by its name, which is `SIGRTMIN+1` to Kubernetes and `SIGRTMINPLUS1` to the runtime. One that the runtime
/// does not know is left to it.
pub fn to_runtime(signal: &Signal) -> v1::Signal {
    let name = signal.as_str();
    match name.contains(['+', '-']) {
        true => v1::Signal::from_str_name(&name.replace('+', "PLUS").replace('-', "MINUS")),
        false => v1::Signal::from_str_name(name),
    }
    .unwrap_or(v1::Signal::RuntimeDefault)
}

/// A signal of the runtime by Kubernetes' name; none for the one that the runtime chose.
pub fn from_runtime(signal: v1::Signal) -> Option<Signal> {
    match signal {
        v1::Signal::RuntimeDefault => None,
        known => Some(Signal::from(known.as_str_name().replace("PLUS", "+").replace("MINUS", "-").as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_has_its_like() {
        for word in Signal::WORDS {
            let signal = Signal::from(*word);
            let runtime = to_runtime(&signal);
            assert_ne!(runtime, v1::Signal::RuntimeDefault, "{word}");
            assert_eq!(from_runtime(runtime), Some(signal));
        }
        assert_eq!(to_runtime(&"SIGNONE".into()), v1::Signal::RuntimeDefault);
        assert_eq!(from_runtime(v1::Signal::RuntimeDefault), None);
        assert_eq!(to_runtime(&Signal::RtMinPlus15), v1::Signal::Sigrtminplus15);
    }
}
