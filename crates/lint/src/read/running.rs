//! VMs that run: the command line as the configuration, and in place of what
//! it asks for, what is.

use std::collections::BTreeMap;

use topology::PcpuSet;

use crate::live::LiveVm;
use crate::read::qemu;
use crate::running::{ASKED, IS, MARK, Observation, ObservedValue, ThreadOwner};
use crate::vm::{Pin, Topology, Vm};
use vmconfig::source::{LocatedValue, SourceText, Span};

/// Part of the memory on a node that is not worth a word.
const ELSEWHERE_SHARE: f64 = 0.05;
/// The biggest base page there is (arm64, ppc64), bytes.
pub(crate) const SMALL_PAGE_BYTES: u64 = 64 << 10;

/// Whether a text holds VMs that run.
pub(crate) fn holds_running(text: &str) -> bool {
    text.trim_start().starts_with(MARK)
}

/// The nodes on which more than a few of the pages lie.
pub(crate) fn main_nodes(by_node: &BTreeMap<u32, u64>) -> PcpuSet {
    let total = by_node.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    let much = |bytes: u64| bytes as f64 > total as f64 * ELSEWHERE_SHARE;
    by_node.iter().filter(|(_, bytes)| much(**bytes)).map(|(node, _)| *node).collect()
}

pub(crate) fn read(source: &SourceText<'_>, settings: bool) -> Vec<Vm> {
    let text = source.text;
    let mut vms = Vec::new();
    qemu::read(source, settings, &mut |vm| vms.push(vm));
    let starts: Vec<usize> = vms.iter().map(|vm| vm.head.start).collect();
    for (at, vm) in vms.iter_mut().enumerate() {
        let end = starts.get(at + 1).copied().unwrap_or(text.len());
        let live = facts(text, starts[at], end);
        apply(&live, vm);
        vm.live = Some(live);
        if vm.name == program(text, vm.head)
            && let Some(pid) = pid_before(text, vm.head.start)
        {
            vm.name = format!("pid {pid}");
        }
    }
    vms
}

fn program(text: &str, head: Span) -> &str {
    text.get(head.start..head.end).and_then(|path| path.rsplit('/').next()).unwrap_or_default()
}

fn pid_before(text: &str, start: usize) -> Option<u32> {
    let mark = text.get(..start)?.rfind(MARK)? + MARK.len();
    text[mark..start].lines().next()?.trim().parse().ok()
}

/// The facts between two places of a text.
fn facts(text: &str, from: usize, to: usize) -> LiveVm {
    let mut live = LiveVm::default();
    let mut start = from;
    for line in text.get(from..to).unwrap_or_default().split_inclusive('\n') {
        let said = line.trim_end();
        let span = Span { start, end: start + said.len() };
        start += line.len();
        if let Some(Ok(is)) = said.strip_prefix(IS).map(str::parse::<ObservedValue>) {
            let span = Span { start: span.start + IS.len(), end: span.end };
            live.facts.push(LocatedValue::new(Observation { is, asked: None }, span));
        } else if let Some((of, asked)) =
            said.strip_prefix(ASKED).and_then(|said| said.split_once(": "))
            && let Some(fact) = live.facts.iter_mut().find(|fact| fact.value.is.of() == of)
        {
            fact.value.asked = Some(asked.to_owned());
        }
    }
    live
}

/// Puts what is in the place of what was asked for.
fn apply(live: &LiveVm, vm: &mut Vm) {
    threads(live, vm);
    memory(live, vm);
    for fact in &live.facts {
        match &fact.value.is {
            ObservedValue::Topology([sockets, dies, clusters, cores, threads]) => {
                let topology = Topology {
                    sockets: *sockets,
                    dies: *dies,
                    clusters: *clusters,
                    cores: *cores,
                    threads: *threads,
                    threads_at: Some(fact.span),
                    cores_at: Some(fact.span),
                };
                vm.topology = Some(LocatedValue::new(topology, fact.span));
            }
            ObservedValue::Accelerator(name) => {
                vm.accel = LocatedValue::new(name.clone(), fact.span)
            }
            _ => {}
        }
    }
}

fn threads(live: &LiveVm, vm: &mut Vm) {
    let mut real_time = PcpuSet::new();
    let mut nameless: Option<LocatedValue<PcpuSet>> = None;
    for (who, thread, span) in live.threads(|_| true) {
        let pcpus = LocatedValue::new(thread.pcpus.clone(), span);
        let joined = |before: Option<LocatedValue<PcpuSet>>| match before {
            Some(before) => LocatedValue::new(before.value.union(&thread.pcpus), before.span),
            None => pcpus.clone(),
        };
        match who {
            ThreadOwner::Vcpu(Some(vcpu)) => {
                if thread.real_time {
                    real_time = real_time.union(&PcpuSet::from_iter([*vcpu]));
                    vm.fifo = Some(LocatedValue::new(real_time.clone(), span));
                }
                // A vCPU that may run anywhere is not pinned.
                if !thread.anywhere {
                    vm.pins.push(Pin {
                        id: LocatedValue::new(*vcpu, span),
                        pcpus: pcpus.clone(),
                        span,
                    });
                }
            }
            ThreadOwner::Vcpu(None) if !thread.anywhere => nameless = Some(joined(nameless.take())),
            ThreadOwner::Vcpu(None) => {}
            // Other threads are in the way wherever they may run.
            ThreadOwner::Emulator => vm.emulator = Some(joined(vm.emulator.take())),
            ThreadOwner::Iothread(id) => {
                let id = LocatedValue::new(id.clone(), span);
                vm.iothread_pins.push(Pin { id, pcpus: pcpus.clone(), span });
            }
            ThreadOwner::Vhost => vm.vhost = Some(joined(vm.vhost.take())),
        }
        if let Some((quota, _)) = thread.quota
            && vm.quota.is_none()
        {
            vm.quota = Some(LocatedValue::new(i64::try_from(quota).unwrap_or(i64::MAX), span));
        }
    }
    vm.affinity = nameless;
}

fn memory(live: &LiveVm, vm: &mut Vm) {
    let Some((_, biggest, span)) = live.memory().max_by_key(|(_, memory, _)| memory.bytes()) else {
        return;
    };
    vm.memory_nodes = live.by_node().map(|by_node| LocatedValue::new(main_nodes(&by_node), span));
    vm.huge_pages = (biggest.page_bytes > SMALL_PAGE_BYTES)
        .then(|| LocatedValue::new(Some(biggest.page_bytes), span));
    vm.merge = Some(LocatedValue::new(live.memory().any(|(_, memory, _)| memory.mergeable), span));
    for cell in &mut vm.cells {
        let Some((memory, span)) = live.backend(cell.memdev.as_deref()) else { continue };
        let by_node: Option<BTreeMap<u32, u64>> =
            memory.by_node.iter().map(|(node, bytes)| Some(((*node)?, *bytes))).collect();
        if let Some(by_node) = by_node.filter(|by_node| !by_node.is_empty()) {
            let nodes = LocatedValue::new(main_nodes(&by_node), span);
            cell.nodes = Some(nodes.clone());
            vm.cell_nodes.push((LocatedValue::new(cell.id, span), nodes));
        }
    }
}
