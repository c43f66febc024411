//! What the vCPUs of a guest did that no longer answers: the trial is over then,
//! and whoever wants to know why has nothing else.
//!
//! One cause can be told apart. QEMU's TCG before 8.1 may translate an
//! instruction of one vCPU while another vCPU is storing into it, and keep what
//! it read after the store has thrown its kind away. Linux patches itself so
//! (static keys, static calls): it puts a breakpoint in the place of an
//! instruction, and takes it out again. The stale breakpoint goes on being
//! executed, the kernel finds that there is none in memory and executes the
//! instruction again, for ever. Mended by QEMU's commit deba78709ae8,
//! "accel/tcg: Always lock pages before translation".

use std::time::{Duration, Instant};

use serde_json::json;

use super::OwnedVm;
use crate::Cancel;

/// How often the registers are read: a vCPU that loops is somewhere else the
/// next time, one that waits is not.
const LOOKS: usize = 20;

/// Looks that are told in full.
const TOLD_LOOKS: usize = 3;

/// Between two looks.
const BETWEEN: Duration = Duration::from_millis(50);

/// How long all of it may take.
pub(super) const VCPUS_LIMIT: Duration = Duration::from_secs(2);

/// vCPUs that are told of; the rest is left out.
const MOST_VCPUS: usize = 16;

/// An x86-64 kernel's entry for breakpoints is shorter than this, bytes.
/// Source: Linux `arch/x86/entry/entry_64.S`, `idtentry`.
const ENTRY_BYTES: u64 = 0x40;

/// Where a gate of the interrupt descriptor table for breakpoints lies in it.
const BREAKPOINT_GATE: u64 = 3 * 16;

impl OwnedVm {
    /// Adds to the console's end where each vCPU is, as far as QEMU tells by `until`.
    pub(super) fn note_vcpus(&mut self, until: Instant, cancel: &Cancel) {
        self.console.note("it has not answered yet; its vCPUs:");
        let (mut looks, mut at_breakpoints) = (0, 0);
        let mut entry = None;
        while looks < LOOKS && Instant::now() < until {
            let Some(registers) = self.ask_human("info registers -a", until, cancel) else {
                break;
            };
            if looks == 0
                && let Some(gate) = breakpoint_gate(&registers)
            {
                let line = format!("x/2gx {gate:#x}");
                entry = self.ask_human(&line, until, cancel).as_deref().and_then(gate_target);
            }
            if looks < TOLD_LOOKS {
                for vcpu in places(&registers).iter().take(MOST_VCPUS) {
                    self.console.note(vcpu);
                }
            }
            looks += 1;
            let enters = |rip: u64| entry.is_some_and(|at| (at..at + ENTRY_BYTES).contains(&rip));
            at_breakpoints += usize::from(values(&registers, "RIP=").any(enters));
            let next = Instant::now() + BETWEEN;
            while Instant::now() < next {
                if self.pump(next, cancel).is_err() {
                    return;
                }
            }
        }
        if looks == 0 {
            self.console.note("QEMU does not tell where they are");
        }
        if at_breakpoints > 0 {
            self.console.note(&format!(
                "one of them was entering a breakpoint's handler in {at_breakpoints} of {looks} \
                 looks: QEMU's TCG before 8.1 may go on executing a breakpoint that the kernel \
                 has taken out (see docs/emulation.md)"
            ));
        }
    }

    /// What QEMU's human monitor prints for `line`, if it does by `until`.
    pub(super) fn ask_human(
        &mut self,
        line: &str,
        until: Instant,
        cancel: &Cancel,
    ) -> Option<String> {
        let arguments = json!({ "command-line": line });
        let answer = self.qmp_by("human-monitor-command", Some(arguments), until, cancel);
        Some(answer.ok()??.ok()?.as_str()?.to_owned())
    }
}

/// Whether a console, of which `console` is the end, is that of a kernel that panicked at
/// a breakpoint which it had taken out of its code before: under QEMU's TCG before 8.1 a
/// guest of several vCPUs may meet one, see docs/emulation.md.
///
/// Source: Linux `exc_int3()` in `arch/x86/kernel/traps.c`, `__die_header()` in `dumpstack.c`.
#[must_use]
pub fn met_removed_breakpoint(console: &[u8]) -> bool {
    String::from_utf8_lossy(console).contains("int3: 0000 [#")
}

/// Each vCPU with its instruction's address and what says whether it waits, from
/// QEMU's `info registers -a`.
///
/// Source: QEMU `target/i386/cpu-dump.c`, `target/arm/cpu.c`.
pub(super) fn places(registers: &str) -> Vec<String> {
    let mut vcpus: Vec<String> = Vec::new();
    for line in registers.lines() {
        let line = line.trim();
        if line.starts_with("CPU#") {
            vcpus.push(line.to_owned());
        } else if let Some(vcpu) = vcpus.last_mut() {
            let told = |word: &&str| {
                ["RIP=", "EIP=", "PC=", "RFL=", "EFL=", "PSTATE=", "CPL=", "HLT="]
                    .iter()
                    .any(|name| word.starts_with(name))
            };
            for word in line.split_whitespace().filter(told) {
                vcpu.push(' ');
                vcpu.push_str(word);
            }
        }
    }
    vcpus
}

/// The values of a register, by vCPU.
fn values<'a>(registers: &'a str, name: &'a str) -> impl Iterator<Item = u64> + 'a {
    registers
        .split_whitespace()
        .filter_map(move |word| u64::from_str_radix(word.strip_prefix(name)?, 16).ok())
}

/// The address of the first vCPU's gate for breakpoints, if it runs 64-bit code.
fn breakpoint_gate(registers: &str) -> Option<u64> {
    values(registers, "RIP=").next()?;
    let line = registers.lines().find_map(|line| line.trim().strip_prefix("IDT="))?;
    let base = line.split_whitespace().next()?;
    u64::from_str_radix(base, 16).ok()?.checked_add(BREAKPOINT_GATE)
}

/// Where a gate leads, from `x/2gx` of it.
///
/// Source: AMD64 Architecture Programmer's Manual, volume 2, 4.8.4.
fn gate_target(memory: &str) -> Option<u64> {
    let (_, words) = memory.split_once(':')?;
    let mut words =
        words.split_whitespace().map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let (low, high) = (words.next()??, words.next()??);
    Some(high << 32 | (low >> 48) << 16 | low & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_vcpus_are_read() {
        // QEMU 7.2.22, two vCPUs of an x86 guest, and one of an arm64 guest.
        let x86 = "\r\nCPU#0\r\nRAX=ffffffff8184be10 RBX=0000000000000000 RCX=0 RDX=0\r\n\
            RIP=ffffffff8184c0fe RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1\r\n\
            ES =0000 0000000000000000 ffffffff 00c00000\r\n\
            IDT=     fffffe0000000000 00000fff\r\n\
            CPU#1\r\nRAX=0 RBX=0\r\nRIP=ffffffff8110d2c5 RFL=00000002 [-------] CPL=0 II=0 \
            A20=1 SMM=0 HLT=0\r\n";
        assert_eq!(
            places(x86),
            [
                "CPU#0 RIP=ffffffff8184c0fe RFL=00000246 CPL=0 HLT=1",
                "CPU#1 RIP=ffffffff8110d2c5 RFL=00000002 CPL=0 HLT=0",
            ]
        );
        assert_eq!(breakpoint_gate(x86), Some(0xffff_fe00_0000_0030));
        let all: Vec<u64> = values(x86, "RIP=").collect();
        assert_eq!(all, [0xffff_ffff_8184_c0fe, 0xffff_ffff_8110_d2c5]);
        let arm64 = "CPU#0\r\n PC=ffff800008bd2f88 X00=0000000000000000\r\n\
            PSTATE=600000c5 -ZC- EL1h    FPU disabled\r\n";
        assert_eq!(places(arm64), ["CPU#0 PC=ffff800008bd2f88 PSTATE=600000c5"]);
        assert_eq!(breakpoint_gate(arm64), None);
        assert!(places("unknown command").is_empty());
    }

    #[test]
    fn a_breakpoint_that_was_taken_out_is_told_from_other_panics() {
        // Linux 6.12 and 6.1.
        for oops in ["Oops: int3: 0000 [#1] PREEMPT SMP NOPTI", "int3: 0000 [#1] PREEMPT SMP"] {
            let console = format!(
                "[    3.717710] {oops}\r\n[    3.718928] RIP: 0010:sched_clock_tick+0x5/0xd0\r\n\
                 [    3.733855] Kernel panic - not syncing: Fatal exception in interrupt\r\n"
            );
            assert!(met_removed_breakpoint(console.as_bytes()));
        }
        let other = "Oops: 0002 [#1] PREEMPT SMP\r\nKernel panic - not syncing: Fatal exception";
        assert!(!met_removed_breakpoint(other.as_bytes()));
        assert!(!met_removed_breakpoint(b"exc_int3+0x2f/0x50"));
    }

    #[test]
    fn gates_lead_somewhere() {
        // The first gate of a Linux 6.1 guest, as QEMU 7.2.22 prints it.
        let memory = "fffffe0000000000: 0x92408e0000100990 0x00000000ffffffff\r\n";
        assert_eq!(gate_target(memory), Some(0xffff_ffff_9240_0990));
        assert_eq!(gate_target("Cannot access memory\r\n"), None);
        assert_eq!(gate_target("fffffe0000000000: 0x92"), None);
    }
}
