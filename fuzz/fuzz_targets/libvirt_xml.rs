//! Any text as libvirt's domain XML.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vmconfig::libvirt;

fuzz_target!(|text: &str| {
    let Ok(all) = libvirt::parse(text) else { return };
    for parsed in all {
        let Ok(spec) = parsed.spec() else { continue };
        let again = libvirt::parse(&libvirt::emit(&spec).text).expect("own text");
        let [again] = &again[..] else { panic!("{} domains", again.len()) };
        assert_eq!(again.settings.topology, spec.topology);
    }
});
