//! Any text, linted as it is and as the inside of each format.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use lint::{Context, RULES, apply, check_fleet, check_text, difference, output};

/// Every host and version that the rules' own examples are for.
static CONTEXTS: LazyLock<Vec<Context>> = LazyLock::new(|| {
    let examples = RULES.iter().flat_map(|rule| rule.fires);
    let mut said: Vec<&str> = Vec::new();
    let mut contexts = Vec::new();
    for example in examples {
        if !said.contains(&example.world.said) {
            said.push(example.world.said);
            contexts.push(example.world.context());
        }
    }
    contexts
});

fuzz_target!(|text: &str| {
    let indented: String = text.lines().map(|line| format!("  {line}\n")).collect();
    let forms = [
        text.to_owned(),
        format!("<domain type='kvm'>\n{text}\n</domain>\n"),
        format!("qemu-system-x86_64 -accel kvm {text}"),
        format!("# vmlab: running 1\nqemu-system-x86_64 {text}"),
        format!("apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nspec:\n{indented}"),
    ];
    let which = text.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
    let context = &CONTEXTS[which % CONTEXTS.len()];
    for form in forms {
        let Ok(checked) = check_text("x", &form, context) else { continue };
        let mut findings = checked.findings;
        findings.extend(check_fleet(&checked.vms, context));
        let (mended, _) = apply(&form, &findings);
        let _ = difference("x", &form, &mended);
        let _ = output::text(&findings, 80, true);
        let _ = output::json(&findings, 1);
        let _ = output::sarif(&findings, "0");
    }
});
