//! Whether vCPUs that idle keep their pCPUs: what `-overcommit cpu-pm=on` came
//! to in a VM that runs.
//!
//! Evidence, the strongest first: halt exits that KVM counted since the VM
//! began; what QEMU printed, where libvirt keeps that. No halt exit alone shows
//! nothing: a VM that was stopped makes none. vCPUs that keep their pCPUs do not
//! sleep, so they must have been awake for most of the time as well.
//!
//! What a guest did is not seen from here. One that polls instead of halting
//! (`idle=poll`) looks the same, and is told where QEMU was given its command
//! line. That a guest halts is shown by the same one without cpu-pm.
//!
//! Source: QEMU `target/i386/kvm/kvm.c` (`kvm_arch_init`); Linux
//! `Documentation/virt/kvm/api.rst`, `KVM_CAP_X86_DISABLE_EXITS`.

use std::fmt;
use std::fs;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RunningVm;
use super::libvirt_log::{self, LoggedStart};
use crate::counters::{self, VmThreads, kvm};

/// Age below which a VM had no occasion to halt, s.
const SHOWS_HALTS_S: f64 = 5.0;

/// The part of the time that vCPUs are awake which keep their pCPUs; the rest
/// is for firmware, in which all but one sleep until they are called.
const AWAKE_SHARE: f64 = 0.5;

/// What QEMU prints when KVM can't go on with a guest, which is stopped then.
const STOPPED: &str = "KVM internal error";

/// Halts that left the guest, since the VM began.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Halts {
    /// KVM's `halt_exits`, over all vCPUs.
    pub halt_exits: u64,
    /// Time that a vCPU ran or waited for its pCPU, s: the mean of all.
    pub awake_s: f64,
    /// Age of the VM, s.
    pub age_s: f64,
}

/// Whether `cpu-pm=on` is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuPm {
    /// In a word.
    pub state: CpuPmState,
    /// What shows it.
    pub evidence: String,
}

/// Whether something that was asked for is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CpuPmState {
    /// It is so.
    InForce,
    /// QEMU took it, and nothing shows what came of it.
    NotProven,
    /// KVM could not go on with the guest.
    Stopped,
    /// It is not so, and nobody said so.
    SilentlyIgnored,
    /// It is not so, QEMU said so and went on.
    RefusedByKvm,
    /// QEMU did not start.
    RefusedByQemu,
}

impl fmt::Display for CpuPmState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InForce => "in force",
            Self::NotProven => "accepted, not proven",
            Self::Stopped => "the VM stopped",
            Self::SilentlyIgnored => "silently ignored",
            Self::RefusedByKvm => "refused by KVM",
            Self::RefusedByQemu => "refused by QEMU",
        })
    }
}

impl fmt::Display for Halts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { halt_exits, awake_s, age_s } = self;
        match halt_exits {
            0 => f.write_str("no halt exit")?,
            1 => f.write_str("1 halt exit")?,
            exits => write!(f, "{exits} halt exits")?,
        }
        write!(f, " in {age_s:.0} s, of which its vCPUs were awake {awake_s:.0} s")
    }
}

/// Adds to `vm`, whose threads are known, how it halts, how it was started, and
/// what that says of cpu-pm.
pub(super) fn look(vm: &mut RunningVm) {
    let is_kvm = vm.asked.accel.as_deref() == Some("kvm");
    if is_kvm {
        vm.halts = halts(vm);
    }
    if vm.asked.libvirt {
        vm.start = vm.asked.name.as_deref().and_then(libvirt_log::last_start);
    }
    if vm.asked.cpu_pm {
        vm.cpu_pm = Some(judge(vm, is_kvm));
    }
}

fn halts(vm: &RunningVm) -> Option<Halts> {
    let halt_exits = *kvm::read_debugfs(vm.pid).get("kvm.halt_exits")? as u64;
    let vcpus = vm.threads.iter().filter(|thread| thread.role.is_vcpu());
    let vcpu_tids: Vec<u32> = vcpus.map(|thread| thread.tid).collect();
    let count = vcpu_tids.len().max(1) as f64;
    let threads = VmThreads { pid: vm.pid, vcpu_tids, vhost_tids: Vec::new() };
    let counters = counters::read_vm(&threads);
    let total = |name| counters.get(name).unwrap_or(0.0);
    let awake_s = (total("vcpu.run_s") + total("vcpu.wait_s")) / count;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime_s: f64 = uptime.split(' ').next()?.parse().ok()?;
    let began_s = vm.starttime_ticks as f64 / counters::ticks_per_second();
    Some(Halts { halt_exits, awake_s, age_s: (uptime_s - began_s).max(0.0) })
}

fn judge(vm: &RunningVm, is_kvm: bool) -> CpuPm {
    let judged = |state, evidence: String| CpuPm { state, evidence };
    if !is_kvm {
        let accel = vm.asked.accel.as_deref().unwrap_or("tcg");
        return judged(CpuPmState::SilentlyIgnored, format!("{accel} does not know it"));
    }
    if vm.program.contains("aarch64") {
        let why = "QEMU does not look at it on Arm";
        return judged(CpuPmState::SilentlyIgnored, why.to_owned());
    }
    if let Some(line) = vm.start.as_ref().and_then(LoggedStart::refused_by_kvm) {
        return judged(CpuPmState::RefusedByKvm, format!("QEMU said {line:?}"));
    }
    let mut said = vm.start.iter().flat_map(|start| &start.said);
    let stopped = said.find(|line| line.contains(STOPPED));
    let Some(halts) = vm.halts else {
        let why = "KVM's halt exits may not be read: be root, with debugfs mounted";
        return judged(CpuPmState::NotProven, why.to_owned());
    };
    let polls = vm.argv.iter().any(|word| word.split(' ').any(|word| word == "idle=poll"));
    if halts.halt_exits > 0 {
        judged(CpuPmState::SilentlyIgnored, halts.to_string())
    } else if let Some(line) = stopped {
        judged(CpuPmState::Stopped, format!("QEMU said {line:?}; {halts}"))
    } else if polls {
        let why = "its guest polls instead of halting (idle=poll)";
        judged(CpuPmState::NotProven, why.to_owned())
    } else if halts.age_s < SHOWS_HALTS_S || halts.awake_s < halts.age_s * AWAKE_SHARE {
        judged(CpuPmState::NotProven, halts.to_string())
    } else {
        judged(CpuPmState::InForce, halts.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::vm;
    use super::*;

    fn check(accel: &str, argv: &[&str], halts: Option<(u64, f64)>, said: &str, expected: &str) {
        let mut vm = vm("web", &["0", "1"]);
        vm.argv = argv.iter().map(|word| (*word).to_owned()).collect();
        vm.asked.accel = Some(accel.to_owned());
        vm.halts = halts.map(|(halt_exits, awake_s)| Halts { halt_exits, awake_s, age_s: 61.2 });
        vm.start = Some(LoggedStart { said: vec![said.to_owned()], ..LoggedStart::default() });
        let found = judge(&vm, accel == "kvm");
        assert_eq!(format!("{}: {}", found.state, found.evidence), expected);
    }

    #[test]
    fn what_was_counted_since_the_begin_decides() {
        let count = |halts, expected: &str| check("kvm", &[], halts, "", expected);
        count(
            Some((0, 59.0)),
            "in force: no halt exit in 61 s, of which its vCPUs were awake 59 s",
        );
        count(
            Some((1526, 7.0)),
            "silently ignored: 1526 halt exits in 61 s, of which its vCPUs were awake 7 s",
        );
        count(
            Some((0, 3.0)),
            "accepted, not proven: no halt exit in 61 s, of which its vCPUs were awake 3 s",
        );
        count(
            None,
            "accepted, not proven: KVM's halt exits may not be read: be root, with debugfs mounted",
        );
        check(
            "kvm",
            &["-append", "quiet idle=poll"],
            Some((0, 59.0)),
            "",
            "accepted, not proven: its guest polls instead of halting (idle=poll)",
        );
        check("tcg", &[], None, "", "silently ignored: tcg does not know it");
    }

    #[test]
    fn what_qemu_said_counts() {
        let line = "kvm: guest stopping CPU not supported: Invalid argument";
        check("kvm", &[], Some((3, 2.0)), line, &format!("refused by KVM: QEMU said {line:?}"));
        check(
            "kvm",
            &[],
            Some((0, 3.0)),
            "KVM internal error. Suberror: 1",
            "the VM stopped: QEMU said \"KVM internal error. Suberror: 1\"; no halt exit in 61 s, \
             of which its vCPUs were awake 3 s",
        );
    }
}
