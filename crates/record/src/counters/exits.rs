//! Why a vCPU left its guest: the reasons' numbers and names, as KVM's
//! tracepoint `kvm_exit` has them, and what they mean.
//!
//! Source: Linux `arch/x86/include/uapi/asm/{svm,vmx}.h`,
//! `arch/arm64/include/asm/{esr,kvm_asm}.h`; Intel SDM volume 3, appendix C;
//! AMD APM volume 2, appendix C; Arm ARM, `ESR_EL2.EC`.

/// Whose numbers the reasons of exits are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCodes {
    /// AMD's (`kvm_amd`).
    Svm,
    /// Intel's (`kvm_intel`).
    Vmx,
    /// Exception classes of arm64's hypervisor mode.
    Arm64,
}

impl ExitCodes {
    /// The reason's name, lower case with underscores; one that has no name is
    /// its number: `hlt`, `0x7f`.
    #[must_use]
    pub fn name(self, code: u64) -> String {
        // Flags stand above Intel's reason.
        let code = if self == Self::Vmx { code & 0xffff } else { code };
        let known = self.table().iter().find(|row| u64::from(row.0) == code);
        known.map_or_else(|| format!("{code:#x}"), |row| row.1.to_owned())
    }

    /// The reasons of which nobody should have to ask whether they were
    /// counted: that there was none is worth knowing.
    pub fn common(self) -> impl Iterator<Item = &'static str> {
        let irq = (self == Self::Arm64).then_some(ARM64_IRQ);
        let table = self.table().iter().map(|row| row.1);
        table.filter(|name| meaning(name).is_some()).chain(irq)
    }

    fn table(self) -> &'static [(u32, &'static str)] {
        match self {
            Self::Svm => SVM,
            Self::Vmx => VMX,
            Self::Arm64 => ARM64,
        }
    }
}

/// What an exit of that name means, where it is worth a sentence.
pub(super) fn meaning(name: &str) -> Option<&'static str> {
    MEANINGS.iter().find(|row| row.0.contains(&name)).map(|row| row.1)
}

const SVM: &[(u32, &str)] = &[
    (0x000, "read_cr0"),
    (0x002, "read_cr2"),
    (0x003, "read_cr3"),
    (0x004, "read_cr4"),
    (0x008, "read_cr8"),
    (0x010, "write_cr0"),
    (0x012, "write_cr2"),
    (0x013, "write_cr3"),
    (0x014, "write_cr4"),
    (0x018, "write_cr8"),
    (0x040, "de_excp"),
    (0x041, "db_excp"),
    (0x043, "bp_excp"),
    (0x046, "ud_excp"),
    (0x047, "nm_excp"),
    (0x048, "df_excp"),
    (0x04d, "gp_excp"),
    (0x04e, "pf_excp"),
    (0x051, "ac_excp"),
    (0x052, "mc_excp"),
    (0x060, "interrupt"),
    (0x061, "nmi"),
    (0x062, "smi"),
    (0x063, "init"),
    (0x064, "vintr"),
    (0x065, "cr0_sel_write"),
    (0x06e, "rdtsc"),
    (0x06f, "rdpmc"),
    (0x072, "cpuid"),
    (0x073, "rsm"),
    (0x074, "iret"),
    (0x075, "swint"),
    (0x076, "invd"),
    (0x077, "pause"),
    (0x078, "hlt"),
    (0x079, "invlpg"),
    (0x07a, "invlpga"),
    (0x07b, "io"),
    (0x07c, "msr"),
    (0x07d, "task_switch"),
    (0x07f, "shutdown"),
    (0x080, "vmrun"),
    (0x081, "hypercall"),
    (0x082, "vmload"),
    (0x083, "vmsave"),
    (0x084, "stgi"),
    (0x085, "clgi"),
    (0x087, "rdtscp"),
    (0x089, "wbinvd"),
    (0x08a, "monitor"),
    (0x08b, "mwait"),
    (0x08d, "xsetbv"),
    (0x08f, "write_efer_trap"),
    (0x090, "write_cr0_trap"),
    (0x094, "write_cr4_trap"),
    (0x098, "write_cr8_trap"),
    (0x0a2, "invpcid"),
    (0x0a5, "bus_lock"),
    (0x0a6, "idle_hlt"),
    (0x400, "npf"),
    (0x401, "avic_incomplete_ipi"),
    (0x402, "avic_unaccelerated_access"),
    (0x403, "vmgexit"),
];

const VMX: &[(u32, &str)] = &[
    (0, "exception_nmi"),
    (1, "external_interrupt"),
    (2, "triple_fault"),
    (3, "init_signal"),
    (4, "sipi_signal"),
    (7, "interrupt_window"),
    (8, "nmi_window"),
    (9, "task_switch"),
    (10, "cpuid"),
    (12, "hlt"),
    (13, "invd"),
    (14, "invlpg"),
    (15, "rdpmc"),
    (16, "rdtsc"),
    (18, "vmcall"),
    (19, "vmclear"),
    (20, "vmlaunch"),
    (21, "vmptrld"),
    (22, "vmptrst"),
    (23, "vmread"),
    (24, "vmresume"),
    (25, "vmwrite"),
    (26, "vmoff"),
    (27, "vmon"),
    (28, "cr_access"),
    (29, "dr_access"),
    (30, "io_instruction"),
    (31, "msr_read"),
    (32, "msr_write"),
    (33, "invalid_state"),
    (34, "msr_load_fail"),
    (36, "mwait_instruction"),
    (37, "monitor_trap_flag"),
    (39, "monitor_instruction"),
    (40, "pause_instruction"),
    (41, "mce_during_vmentry"),
    (43, "tpr_below_threshold"),
    (44, "apic_access"),
    (45, "eoi_induced"),
    (46, "gdtr_idtr"),
    (47, "ldtr_tr"),
    (48, "ept_violation"),
    (49, "ept_misconfig"),
    (50, "invept"),
    (51, "rdtscp"),
    (52, "preemption_timer"),
    (53, "invvpid"),
    (54, "wbinvd"),
    (55, "xsetbv"),
    (56, "apic_write"),
    (57, "rdrand"),
    (58, "invpcid"),
    (59, "vmfunc"),
    (60, "encls"),
    (61, "rdseed"),
    (62, "pml_full"),
    (63, "xsaves"),
    (64, "xrstors"),
    (67, "umwait"),
    (68, "tpause"),
    (74, "bus_lock"),
    (75, "notify"),
];

/// Exception classes; interrupts, which have none, are [`ARM64_IRQ`].
const ARM64: &[(u32, &str)] = &[
    (0x00, "unknown"),
    (0x01, "wfx"),
    (0x07, "fp_asimd"),
    (0x09, "pac"),
    (0x16, "hvc64"),
    (0x17, "smc64"),
    (0x18, "sys64"),
    (0x19, "sve"),
    (0x1a, "eret"),
    (0x20, "iabt_low"),
    (0x22, "pc_align"),
    (0x24, "dabt_low"),
    (0x2f, "serror"),
    (0x30, "breakpt_low"),
    (0x32, "softstp_low"),
    (0x34, "watchpt_low"),
    (0x3c, "brk64"),
];

/// Name of an exit of arm64 for an interrupt of the host.
pub const ARM64_IRQ: &str = "irq";

/// What reasons mean; those of different makers that are one share a row.
const MEANINGS: &[(&[&str], &str)] = &[
    (&["hlt"], "Exits because the guest halted: an idle vCPU"),
    (&["idle_hlt"], "Exits because the guest halted with no interrupt waiting"),
    (&["wfx"], "Exits because the guest waited for an interrupt or event (WFI, WFE)"),
    (&["mwait", "mwait_instruction"], "Exits because the guest executed MWAIT"),
    (&["monitor", "monitor_instruction"], "Exits because the guest executed MONITOR"),
    (
        &["pause", "pause_instruction"],
        "Exits because the guest spun at a lock (pause-loop exiting)",
    ),
    (&["npf", "ept_violation"], "Nested page faults: guest memory that KVM had not mapped yet"),
    (&["ept_misconfig"], "Accesses to emulated devices' memory (virtio's doorbells among them)"),
    (&["dabt_low"], "Stage-2 data aborts: memory not mapped yet, and emulated devices"),
    (&["iabt_low"], "Stage-2 instruction aborts: code not mapped yet"),
    (
        &["interrupt", "external_interrupt", ARM64_IRQ],
        "Exits because an interrupt of the host came: its timer, devices, IPIs",
    ),
    (
        &["vintr", "interrupt_window"],
        "Exits to inject an interrupt that waited until the guest could take it",
    ),
    (&["msr", "msr_write", "msr_read"], "Accesses to MSRs: timers, IPIs and ends of interrupts"),
    (&["sys64"], "Accesses to system registers: timers, IPIs (ICC_SGI1R)"),
    (&["io", "io_instruction"], "Accesses to I/O ports: serial console, old devices"),
    (&["cpuid"], "CPUID, which always exits"),
    (
        &["hypercall", "vmcall", "hvc64"],
        "Hypercalls: paravirtual IPIs, kicks and yields, firmware calls",
    ),
    (
        &["apic_write", "avic_unaccelerated_access"],
        "Writes to the virtual APIC beyond what the processor does",
    ),
    (&["apic_access"], "Accesses to the APIC's page"),
    (&["avic_incomplete_ipi"], "IPIs that the processor could not deliver to a vCPU by itself"),
    (&["eoi_induced"], "Ends of interrupts of which KVM wants to know"),
    (&["preemption_timer"], "The guest's timer, run on the processor's preemption timer"),
    (&["pml_full"], "The log of written pages is full: migration, dirty tracking"),
    (&["write_cr0", "write_cr3", "write_cr4", "cr_access"], "Accesses to control registers"),
    (&["tpr_below_threshold", "write_cr8"], "Changes of the interrupt priority (Windows)"),
    (&["rdpmc"], "Readings of performance counters"),
    (&["wbinvd"], "Cache flushes"),
    (&["exception_nmi", "nmi"], "Exceptions and NMIs, the host's performance counters among them"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_kernel() {
        let check = |codes: ExitCodes, code: u64, name: &str| assert_eq!(codes.name(code), name);
        check(ExitCodes::Svm, 0x78, "hlt");
        check(ExitCodes::Svm, 0x400, "npf");
        check(ExitCodes::Svm, 0xffff_ffff, "0xffffffff");
        check(ExitCodes::Vmx, 12, "hlt");
        // VM entry failed on invalid state.
        check(ExitCodes::Vmx, 0x8000_0021, "invalid_state");
        check(ExitCodes::Arm64, 1, "wfx");
        check(ExitCodes::Arm64, 0x3f, "0x3f");
    }

    #[test]
    fn names_agree_with_a_kernel_s_own() {
        // `events/kvm/kvm_exit/format` of Linux 6.1, x86-64.
        let format = include_str!("../../testdata/linux-6.1-x86_64/kvm_exit.format");
        let (vmx, svm) = format.split_once(") : __print_symbolic(").expect("two makers");
        for (codes, text) in [(ExitCodes::Vmx, vmx), (ExitCodes::Svm, svm)] {
            let mut known = 0;
            for row in text.split("{ ").skip(1) {
                let Some((code, name)) = row.split_once(", \"") else { continue };
                let name = name.split('"').next().expect("a quote").to_lowercase();
                // `0x040 + 6`: exception 6.
                let number = |text: &str| match text.trim().strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16).ok(),
                    None => text.trim().parse().ok(),
                };
                let code = code.split('+').map(number).sum::<Option<u64>>();
                let Some(code) = code.filter(|code| *code < 0x8000_0000) else { continue };
                let ours = codes.name(code);
                if !ours.starts_with("0x") {
                    assert_eq!(ours, name.replace(' ', "_"), "{code:#x}");
                    known += 1;
                }
            }
            assert!(known >= codes.table().len() - 3, "{codes:?}: {known}");
        }
    }

    #[test]
    fn every_meaning_is_of_a_reason() {
        let mut seen: Vec<&str> = Vec::new();
        for name in MEANINGS.iter().flat_map(|row| row.0) {
            let known =
                [SVM, VMX, ARM64].iter().any(|table| table.iter().any(|row| row.1 == *name));
            assert!(known || *name == ARM64_IRQ, "{name} is no reason");
            assert!(!seen.contains(name), "{name} twice");
            seen.push(name);
        }
        for table in [SVM, VMX, ARM64] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0), "{table:?}");
        }
    }
}
