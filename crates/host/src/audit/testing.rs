//! Made-up running VMs for the tests of what is judged about them.

use topology::PcpuSet;

use super::argv::CommandLineRequest;
use super::cgroup::Limits;
use super::memory::VmMemory;
use super::thread::{RunningThread, SchedulingPolicy, ThreadRole};
use super::{RunningVm, VcpuEvidence};

pub(crate) fn set(text: &str) -> PcpuSet {
    text.parse().expect("a pCPU list")
}

pub(crate) fn thread(tid: u32, role: ThreadRole, affinity: &str) -> RunningThread {
    RunningThread {
        tid,
        name: format!("t{tid}"),
        role,
        affinity: Some(set(affinity)),
        policy: Some(SchedulingPolicy::Other),
        realtime_priority: Some(0),
        nice: Some(0),
        last_pcpu: set(affinity).first(),
        limits: Limits::default(),
    }
}

/// A VM with vCPUs on these pCPUs; threads 10, 11...
pub(crate) fn vm(name: &str, vcpus: &[&str]) -> RunningVm {
    let vcpu = |(number, pcpus): (u32, &&str)| {
        thread(10 + number, ThreadRole::Vcpu { vcpu: Some(number) }, pcpus)
    };
    RunningVm {
        pid: name.bytes().map(u32::from).sum(),
        starttime_ticks: 0,
        program: "qemu-system-x86_64".to_owned(),
        argv: Vec::new(),
        option_files: Vec::new(),
        asked: CommandLineRequest {
            name: Some(name.to_owned()),
            vcpus: Some(vcpus.len() as u32),
            max_vcpus: Some(vcpus.len() as u32),
            threads: Some(1),
            ..CommandLineRequest::default()
        },
        threads: (0..).zip(vcpus).map(vcpu).collect(),
        vcpus_known_by: VcpuEvidence::Names,
        memory: VmMemory::default(),
        guest: None,
        halts: None,
        cpu_pm: None,
        start: None,
        notes: Vec::new(),
    }
}
