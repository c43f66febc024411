//! The emulator that executes this machine's instructions.

use topology::Host;

/// What QEMU's emulator answers where a hypervisor says its name.
#[cfg(target_arch = "x86_64")]
const TCG: [u8; 12] = *b"TCGTCGTCGTCG";

/// Names the emulator where the processor does and nobody has declared it: a container on an
/// emulated host does not see what that was told of itself.
pub(super) fn find(host: &mut Host) {
    if host.virtualised.emulator.is_some() || !says_tcg() {
        return;
    }
    host.virtualised.is_vm = Some(true);
    host.virtualised.emulator = Some("QEMU (TCG)".to_owned());
    host.virtualised.signs.push("CPUID: TCG".to_owned());
    host.warnings.push(
        "QEMU's emulator executes this machine's instructions: times here are emulated time."
            .to_owned(),
    );
}

/// Source: QEMU `target/i386/cpu.c` (`cpu_x86_cpuid`, leaf 0x40000000), on by default
/// (`tcg-cpuid`).
#[cfg(target_arch = "x86_64")]
fn says_tcg() -> bool {
    let leaf = std::arch::x86_64::__cpuid(0x4000_0000);
    let words = [leaf.ebx, leaf.ecx, leaf.edx];
    words.iter().flat_map(|word| word.to_le_bytes()).eq(TCG)
}

/// Arm's processors say nothing of the kind.
#[cfg(not(target_arch = "x86_64"))]
fn says_tcg() -> bool {
    false
}
