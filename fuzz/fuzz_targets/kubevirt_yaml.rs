//! Any text as KubeVirt's YAML.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vmconfig::kubevirt::{self, KubevirtKind};

fuzz_target!(|text: &str| {
    let Ok(all) = kubevirt::parse(text) else { return };
    for parsed in all {
        let Ok(spec) = parsed.spec() else { continue };
        let again =
            kubevirt::parse(&kubevirt::emit(&spec, KubevirtKind::Machine).text).expect("own text");
        assert_eq!(again.len(), 1);
    }
});
