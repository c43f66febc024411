//! Any text as a rules file, and any as one rule's condition; what is taken is asked.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lint::site::{SiteRules, explain, try_examples};
use lint::{Context, check_text_by};

const DOMAIN: &str = "<domain type='kvm'><name>a</name><memory unit='GiB'>8</memory><vcpu>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='4'/></cputune><devices>
<disk type='file'><driver cache='none'/><source file='/a'/><target dev='vda' bus='virtio'/></disk>
<interface type='user'/></devices></domain>";
const INSTANCE: &str = "apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: a, labels: {owner: b}}
spec: {domain: {cpu: {cores: 2}, devices: {}}}";

// The first byte chooses the form.
fuzz_target!(|input: (u8, &str)| {
    let (form, text) = input;
    let each =
        ["", "each = 'vm.disks'\n", "each = 'vm.pins.vcpus'\n", "each = 'object.metadata'\n"];
    let document = match form % 5 {
        0 => text.to_owned(),
        form => format!(
            "vmlab = 1\n[[rule]]\nid = 'a'\nseverity = 'hint'\ntext = 'T'\nhelp = 'H'\n{}when = '''\n{text}'''\n",
            each[usize::from(form) - 1]
        ),
    };
    let Ok(rules) = SiteRules::read("x", &document, &[]) else { return };
    let context = Context::default();
    for vm in [DOMAIN, INSTANCE] {
        let _ = check_text_by("vm", vm, &context, &[&rules]);
    }
    let _ = try_examples(&rules, &context);
    for rule in &rules.rules {
        let _ = explain(rule);
    }
});
