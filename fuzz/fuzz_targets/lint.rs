//! Any text, linted as it is or as the inside of a format.

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

// The first byte chooses the form, the second the context.
fuzz_target!(|input: (u8, u8, &str)| {
    let (form, context, text) = input;
    let context = &CONTEXTS[usize::from(context) % CONTEXTS.len()];
    let document = match form % 5 {
        0 => text.to_owned(),
        1 => format!("<domain type='kvm'>\n{text}\n</domain>\n"),
        2 => format!("qemu-system-x86_64 -accel kvm {text}"),
        3 => format!("# vmlab: running 1\nqemu-system-x86_64 {text}"),
        _ => {
            let indented: String = text.lines().map(|line| format!("  {line}\n")).collect();
            format!("apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nspec:\n{indented}")
        }
    };
    let Ok(checked) = check_text("x", &document, context) else { return };
    let mut findings = checked.findings;
    findings.extend(check_fleet(&checked.vms, context));
    let (mended, _) = apply(&document, &findings);
    let _ = difference("x", &document, &mended);
    let _ = output::text(&findings, 80, true);
    let _ = output::json(&findings, 1, &output::LintNotes::default());
});
