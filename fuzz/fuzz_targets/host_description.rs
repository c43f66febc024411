//! Any bytes as the description of a machine.

#![no_main]

use libfuzzer_sys::fuzz_target;
use topology::{Host, read_description};

fuzz_target!(|bytes: &[u8]| {
    let Ok(described) = read_description("input", bytes) else {
        return;
    };
    assert!(!described.host.online().is_empty() || described.unknown().is_empty());
    // A machine completes itself.
    let merged = described.clone().merge(described.clone()).expect("one machine");
    assert_eq!(merged.host.pcpus, described.host.pcpus);
    let host = described.into_host();
    let back = Host::from_json(&host.to_json()).expect("own text");
    assert_eq!(back, host);
    let placed: usize = host.nesting().iter().map(|group| group.pcpus.len()).sum();
    assert_eq!(placed, host.online().len());
});
