//! Taints, CPU sets and CIDRs are the same after they were written and read again.
#![no_main]

use crablet_api::{Cidr, CpuSet, Taint};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    taints(text);
    cpus(text);
    cidr(text);
});

fn taints(text: &str) {
    let Ok(taints) = Taint::parse_list(text) else { return };
    for (index, taint) in taints.iter().enumerate() {
        assert_eq!(taint.validate(), Ok(()), "a taint that could be read is one that the API server takes");
        assert_eq!(taint.to_string().parse().as_ref(), Ok(taint));
        let json = serde_json::to_string(taint).expect("a taint can be written as JSON");
        assert_eq!(&serde_json::from_str::<Taint>(&json).expect("and read again"), taint);
        let twice = |other: &Taint| other.key == taint.key && other.effect == taint.effect;
        assert!(!taints[..index].iter().any(twice), "{taint} is there twice");
    }
    let written: Vec<String> = taints.iter().map(Taint::to_string).collect();
    assert_eq!(Taint::parse_list(&written.join(",")), Ok(taints));
}

fn cpus(text: &str) {
    let Ok(cpus) = text.parse::<CpuSet>() else { return };
    let written = cpus.to_string();
    assert_eq!(written.parse().as_ref(), Ok(&cpus), "{written}");
    assert_eq!(cpus.iter().count(), cpus.len());
    assert_eq!(cpus.is_empty(), text.is_empty());
    assert!(cpus.iter().is_sorted_by(|left, right| left < right));
    assert!(cpus.iter().all(|cpu| cpus.contains(cpu)));
    assert_eq!(cpus.iter().collect::<CpuSet>(), cpus);
}

fn cidr(text: &str) {
    let Ok(cidr) = text.parse::<Cidr>() else { return };
    let written = cidr.to_string();
    assert_eq!(written.parse(), Ok(cidr), "{written}");
    let bits = if cidr.address().is_ipv4() { 32 } else { 128 };
    assert!(cidr.prefix_length() <= bits);
}
