//! Round trips, what people write, and the real libvirt.

use proptest::prelude::*;

use crate::tests::{any_spec, check_round_trip};
use crate::*;

use super::{emit, parse};

mod daemon;
mod schema;

proptest! {
    #[test]
    fn what_is_emitted_is_read_as_the_same_vm(spec in any_spec()) {
        let EmittedText { text, losses } = emit(&spec);
        let parsed = parse(&text).unwrap();
        check_round_trip(&spec, &text, &losses, &parsed);
        prop_assert!(parsed.kept.len() <= spec.extra_args.len(), "{text}\n{:?}", parsed.kept);
    }

    #[test]
    fn any_text_is_read_without_harm(text in "[<>a-z/'= ]{0,80}") {
        let _ = parse(&text);
    }
}

fn settings(text: &str) -> Parsed {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn fragments_are_read() {
    let parsed = settings(
        "<!-- vtune -->
<vcpu placement='static'>4</vcpu>
<cputune>
  <vcpupin vcpu='0' cpuset='1'/>
  <vcpupin vcpu='1' cpuset='17'/>
</cputune>
<cpu mode='host-passthrough' check='none'>
    <topology sockets='1' dies='1' cores='2' threads='2'/>
</cpu>",
    );
    let spec = parsed.spec().unwrap();
    assert_eq!((spec.vcpus(), spec.cpu_model.as_str(), spec.topology.threads), (4, "host", 2));
    assert_eq!(spec.pins.vcpus[&1], "17".parse().unwrap());
    assert_eq!((parsed.line("pins.vcpus.1"), parsed.line("topology.cores")), (Some(5), Some(8)));
    assert_eq!(parsed.kept, []);
}

#[test]
fn what_libvirt_cannot_say_is_read_too() {
    let parsed = settings(
        "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>big</name>
  <memory>8388608</memory>
  <vcpu cpuset='0-3,^2'>2</vcpu>
  <title>hello</title>
  <cpu mode='custom' frobnicate='yes'><model>Skylake-Server</model><feature name='x2apic'/></cpu>
  <qemu:commandline>
    <qemu:arg value='-overcommit'/>
    <qemu:arg value='cpu-pm=on'/>
    <qemu:arg value='-daemonize'/>
  </qemu:commandline>
</domain>",
    );
    let spec = parsed.spec().unwrap();
    assert_eq!((spec.memory_mib, spec.hints.cpu_pm), (8192, Some(true)));
    assert_eq!(spec.cpu_model, "Skylake-Server,+x2apic");
    assert_eq!(spec.pins.vcpus[&0], "0-1,3".parse().unwrap());
    assert_eq!(spec.topology.sockets, 2);
    let kept: Vec<_> =
        parsed.kept.iter().map(|one| (one.line, one.path.as_str(), one.text.as_str())).collect();
    let expected = [
        (5, "/domain/title", "<title>hello</title>"),
        (6, "/domain/cpu/@frobnicate", "frobnicate='yes'"),
        (10, "/domain/qemu:commandline", "-daemonize"),
    ];
    assert_eq!(kept, expected);
}

#[test]
fn what_is_no_domain_is_refused() {
    let check = |text: &str, expected: &str| {
        assert_eq!(parse(text).unwrap_err().to_string(), expected);
    };
    check("<pool/>", "No <domain> in it: its first element is <pool>");
    assert!(parse("nothing").unwrap_err().to_string().starts_with("Not XML: "));
}
