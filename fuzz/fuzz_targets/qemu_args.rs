//! Any text as a command line of QEMU.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vmconfig::qemu::{self, Capabilities};

fuzz_target!(|text: &str| {
    let Ok(parsed) = qemu::parse(text) else { return };
    let Ok(spec) = parsed.spec() else { return };
    // What it says itself, it reads.
    let emitted = qemu::emit_plain(&spec, &Capabilities::current());
    let again = qemu::parse_args(&emitted.args);
    assert_eq!(again.settings.topology, spec.topology);
});
