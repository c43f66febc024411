//! Any text as libvirt's domain XML.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vmconfig::libvirt;

fuzz_target!(|text: &str| {
    let Ok(parsed) = libvirt::parse(text) else { return };
    let Ok(spec) = parsed.spec() else { return };
    let again = libvirt::parse(&libvirt::emit(&spec).text).expect("own text");
    assert_eq!(again.settings.topology, spec.topology);
});
