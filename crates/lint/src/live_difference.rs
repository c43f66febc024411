//! What was asked of a VM that runs against what is, for one finding.

use crate::finding::LiveDifference;
use crate::live::LiveVm;
use crate::running::{ObservedValue, ThreadOwner};
use crate::vm::Vm;
use vmconfig::source::{SourceText, Span};

/// `None` of a VM that does not run.
///
/// A finding points at a fact, or at the option that asked for something; then
/// the facts that this kind of option decides about are reported.
pub(crate) fn live_difference(
    vm: &Vm,
    source: &SourceText<'_>,
    span: Span,
) -> Option<LiveDifference> {
    let live = vm.live.as_ref()?;
    let fact = live.facts.iter().find(|fact| {
        (fact.span.start..=fact.span.end).contains(&span.start) && span.end <= fact.span.end
    });
    if let Some(fact) = fact {
        let asked = fact.value.asked.clone().unwrap_or_else(|| "nothing".to_owned());
        return Some(LiveDifference { asked, is: fact.value.is.to_string() });
    }
    let place = source.place(span);
    let asked = place.text.trim().trim_end_matches('\\').trim().to_owned();
    let about = about(asked.split_whitespace().next().unwrap_or_default(), &asked);
    let facts: Vec<String> = match about {
        Some(about) => facts(live, about),
        None => Vec::new(),
    };
    let is = if facts.is_empty() { "as asked".to_owned() } else { facts.join("; ") };
    Some(LiveDifference { asked, is })
}

/// Whether a fact is one of those that an option decides about.
type FactFilter = fn(&ObservedValue) -> bool;

fn about(option: &str, text: &str) -> Option<FactFilter> {
    let option = option.trim_start_matches('-');
    match option {
        "object" if text.contains("memory-backend") => Some(is_memory),
        "object" => Some(|is| matches!(is, ObservedValue::Thread(ThreadOwner::Iothread(_), _))),
        "m" | "mem-path" | "numa" => Some(is_memory),
        "machine" | "M" if text.contains("mem-merge") => Some(is_memory),
        "netdev" => Some(|is| matches!(is, ObservedValue::Thread(ThreadOwner::Vhost, _))),
        "smp" | "cpu" | "overcommit" | "append" => Some(ObservedValue::is_of_vcpu),
        _ if !text.starts_with('-') => Some(ObservedValue::is_of_vcpu),
        _ => None,
    }
}

fn is_memory(is: &ObservedValue) -> bool {
    matches!(is, ObservedValue::Memory(..))
}

/// The facts in words, alike vCPUs as one.
fn facts(live: &LiveVm, about: FactFilter) -> Vec<String> {
    let mut said: Vec<(Vec<u32>, String)> = Vec::new();
    for fact in live.facts.iter().filter(|fact| about(&fact.value.is)) {
        let is = &fact.value.is;
        let ObservedValue::Thread(ThreadOwner::Vcpu(Some(vcpu)), thread) = is else {
            said.push((Vec::new(), is.to_string()));
            continue;
        };
        let text = thread.to_string();
        match said.iter_mut().find(|(vcpus, known)| !vcpus.is_empty() && *known == text) {
            Some((vcpus, _)) => vcpus.push(*vcpu),
            None => said.push((vec![*vcpu], text)),
        }
    }
    said.into_iter()
        .map(|(vcpus, text)| match vcpus.as_slice() {
            [] => text,
            [one] => format!("vCPU {one}: {text}"),
            many => {
                let vcpus: topology::PcpuSet = many.iter().copied().collect();
                format!("vCPUs {vcpus}: {text}")
            }
        })
        .collect()
}
