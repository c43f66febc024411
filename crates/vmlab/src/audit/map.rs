//! The host's pCPUs, core by core, with the threads that may run on each.
//!
//! Threads that may run anywhere stand below the drawing, once: in every row
//! they would hide the others.

use std::collections::BTreeMap;

use host::audit::RunningVm;
use host::audit::thread::{RunningThread, ThreadRole};
use topology::{Host, Pcpu, PcpuSet};

/// Draws `vms` on `host`; lines are broken at `width`.
pub(crate) fn draw(vms: &[RunningVm], host: &Host, width: usize) -> String {
    let online = host.online();
    let mut pcpus: Vec<&Pcpu> = host.pcpus.iter().filter(|pcpu| pcpu.online).collect();
    pcpus.sort_by_key(|pcpu| (pcpu.socket, pcpu.node, pcpu.die, pcpu.cluster, pcpu.core, pcpu.id));
    let mut text = String::new();
    let mut group = None;
    for (at, pcpu) in pcpus.iter().enumerate() {
        let here = (pcpu.socket, pcpu.node);
        if group != Some(here) {
            group = Some(here);
            text += &heading(pcpu);
        }
        let same_core = |other: Option<&&Pcpu>| {
            let place = |pcpu: &Pcpu| (pcpu.socket, pcpu.die, pcpu.cluster, pcpu.core);
            pcpu.core.is_some() && other.is_some_and(|other| place(other) == place(pcpu))
        };
        let above = at > 0 && same_core(pcpus.get(at - 1));
        // A bracket ties the threads of a core together.
        let bracket = match (above, same_core(pcpus.get(at + 1))) {
            (false, true) => '┌',
            (true, true) => '│',
            (true, false) => '└',
            (false, false) => ' ',
        };
        let prefix = format!("  {bracket} pCPU {:<4}", pcpu.id);
        text += &wrap(&prefix, &on_pcpu(vms, &online, pcpu.id), width);
    }
    let free = wrap("anywhere: ", &anywhere(vms, &online), width);
    if !free.trim_end().ends_with(':') {
        text += &format!("\n{free}");
    }
    text
}

fn heading(pcpu: &Pcpu) -> String {
    let part = |name: &str, number: Option<u32>| number.map(|n| format!("{name} {n}"));
    let parts = [part("socket", pcpu.socket), part("node", pcpu.node)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { format!("{}\n", parts.join(", ")) }
}

/// What is held on this pCPU, a text for each VM.
fn on_pcpu(vms: &[RunningVm], online: &PcpuSet, pcpu: u32) -> Vec<String> {
    let here = |thread: &RunningThread| {
        thread.affinity.as_ref().is_some_and(|set| set.contains(pcpu) && !online.is_subset(set))
    };
    vms.iter().filter_map(|vm| of_vm(vm, here)).collect()
}

fn anywhere(vms: &[RunningVm], online: &PcpuSet) -> Vec<String> {
    let free =
        |thread: &RunningThread| thread.affinity.as_ref().is_some_and(|set| online.is_subset(set));
    vms.iter().filter_map(|vm| of_vm(vm, free)).collect()
}

/// `db: vCPUs 0-1, iothread io1, emulator (3)`.
fn of_vm(vm: &RunningVm, chosen: impl Fn(&RunningThread) -> bool) -> Option<String> {
    let mut vcpus = Vec::new();
    let mut others: BTreeMap<String, usize> = BTreeMap::new();
    for thread in vm.threads.iter().filter(|thread| chosen(thread)) {
        match &thread.role {
            ThreadRole::Vcpu { vcpu: Some(vcpu) } => vcpus.push(*vcpu),
            // What libvirt calls the emulator, in one word.
            role if role.is_emulator() && *role != ThreadRole::Vhost => {
                *others.entry("emulator".to_owned()).or_default() += 1;
            }
            role => *others.entry(role.to_string()).or_default() += 1,
        }
    }
    let mut parts = Vec::new();
    if !vcpus.is_empty() {
        let noun = if vcpus.len() == 1 { "vCPU" } else { "vCPUs" };
        parts.push(format!("{noun} {}", vcpus.into_iter().collect::<PcpuSet>()));
    }
    parts.extend(others.into_iter().map(|(role, count)| match count {
        1 => role,
        count => format!("{role} ({count})"),
    }));
    (!parts.is_empty()).then(|| format!("{}: {}", vm.label(), parts.join(", ")))
}

/// `prefix` and the parts behind it; more lines are indented as far.
fn wrap(prefix: &str, parts: &[String], width: usize) -> String {
    let indent = prefix.chars().count();
    let mut text = prefix.to_owned();
    let mut column = indent;
    for (at, part) in parts.iter().enumerate() {
        let length = part.chars().count() + 2;
        if at > 0 && column + length > width {
            text += &format!("\n{:indent$}", "");
            column = indent;
        } else if at > 0 {
            text.push(' ');
        }
        text += part;
        text += if at + 1 < parts.len() { ";" } else { "" };
        column += length;
    }
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::audit::argv::CommandLineRequest;
    use host::audit::memory::VmMemory;
    use host::audit::{VcpuEvidence, cgroup::Limits};

    fn thread(tid: u32, role: ThreadRole, affinity: &str) -> RunningThread {
        RunningThread {
            tid,
            name: String::new(),
            role,
            affinity: affinity.parse().ok(),
            policy: None,
            realtime_priority: None,
            nice: None,
            last_pcpu: None,
            limits: Limits::default(),
        }
    }

    fn vm(name: &str, threads: Vec<RunningThread>) -> RunningVm {
        RunningVm {
            pid: 7,
            starttime_ticks: 0,
            program: String::new(),
            argv: Vec::new(),
            option_files: Vec::new(),
            asked: CommandLineRequest {
                name: Some(name.to_owned()),
                ..CommandLineRequest::default()
            },
            threads,
            vcpus_known_by: VcpuEvidence::Names,
            memory: VmMemory::default(),
            guest: None,
            halts: None,
            cpu_pm: None,
            start: None,
            notes: Vec::new(),
        }
    }

    #[test]
    fn cores_with_who_may_run_there() {
        let pcpu = |id: u32| Pcpu {
            id,
            online: true,
            socket: Some(0),
            core: Some(id % 2),
            node: Some(id % 2),
            ..Pcpu::default()
        };
        let host = Host { pcpus: (0..4).map(pcpu).collect(), ..Host::default() };
        let vcpu = |vcpu: u32| ThreadRole::Vcpu { vcpu: Some(vcpu) };
        let vms = [
            vm(
                "db",
                vec![
                    thread(1, ThreadRole::MainLoop, "0-3"),
                    thread(2, vcpu(0), "1"),
                    thread(3, vcpu(1), "1"),
                    thread(4, ThreadRole::Vhost, "1,3"),
                    thread(5, ThreadRole::Other, "3"),
                    thread(6, ThreadRole::Worker, "3"),
                ],
            ),
            vm("web", vec![thread(8, ThreadRole::Vcpu { vcpu: None }, "1")]),
        ];
        let expected = "\
socket 0, node 0
  ┌ pCPU 0
  └ pCPU 2
socket 0, node 1
  ┌ pCPU 1   db: vCPUs 0-1, vhost;
             web: vCPU ?
  └ pCPU 3   db: emulator (2), vhost

anywhere: db: emulator
";
        assert_eq!(draw(&vms, &host, 40), expected);
        assert_eq!(draw(&[], &Host::default(), 40), "");
    }
}
