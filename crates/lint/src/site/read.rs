//! The VMs of a text as `vmconfig` reads them, beside those that lint's readers made.

use std::collections::HashMap;

use vmconfig::source::Source;
use vmconfig::{Parsed, kubevirt, libvirt, qemu};

use crate::rule::Format;
use crate::vm::Vm;

/// For each VM what `vmconfig` makes of it, with lines of the whole text; `None` where
/// it sees no VM.
pub(crate) fn parsed(format: Format, source: &Source<'_>, vms: &[Vm]) -> Vec<Option<Parsed>> {
    match format {
        Format::Libvirt => vms.iter().map(|vm| domain(source, vm)).collect(),
        Format::Qemu | Format::Running => {
            let mut all = qemu::parse_all(source.text).into_iter();
            vms.iter().map(|_| all.next()).collect()
        }
        Format::Kubevirt => {
            // Where the text holds none, each VM is told as not read.
            let all = kubevirt::parse(source.text).unwrap_or_default().into_iter();
            let mut by_line: HashMap<u32, Parsed> =
                all.filter_map(|parsed| Some((parsed.line_of_vm()?, parsed))).collect();
            vms.iter()
                .map(|vm| by_line.remove(&source.line_number(vm.kubevirt.as_ref()?.object.span)))
                .collect()
        }
    }
}

fn domain(source: &Source<'_>, vm: &Vm) -> Option<Parsed> {
    let text = source.text.get(vm.whole.start..vm.whole.end)?;
    let mut parsed = libvirt::parse(text).ok()?;
    let before = source.line_number(vm.whole).saturating_sub(1);
    for line in parsed.lines.values_mut() {
        *line = line.saturating_add(before);
    }
    for kept in &mut parsed.kept {
        kept.line = kept.line.saturating_add(before);
    }
    Some(parsed)
}
