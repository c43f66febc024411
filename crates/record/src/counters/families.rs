//! Counters with a part in their name that is found when counting.

use super::Counter;
use super::table::of_switch;

/// A family of counters: names with a part that is found when counting.
pub(super) const FAMILIES: &[Counter] = &[
    of_switch(
        "switch.drops.",
        "count",
        "Frames that vmlab's switch dropped for that reason: from the VM for what is wrong with them, to it for what it lacks",
    ),
    Counter {
        name: "guest.lock_waits.",
        unit: "count",
        meaning: "Waits for locks of that class in the guest",
        source: "guest /proc/lock_stat contentions",
    },
    Counter {
        name: "guest.lock_wait_s.",
        unit: "s",
        meaning: "Time waited for locks of that class in the guest",
        source: "guest /proc/lock_stat waittime-total",
    },
    Counter {
        name: "kvm.exits.",
        unit: "count",
        meaning: "Exits for that reason",
        source: "tracepoint kvm:kvm_exit",
    },
    Counter {
        name: "kvm.irqs.",
        unit: "count",
        meaning: "Interrupts of that vector that KVM injected into the guest",
        source: "tracepoint kvm:kvm_inj_virq",
    },
    Counter {
        name: "kvm.ipis.",
        unit: "count",
        meaning: "IPIs of that vector or kind between vCPUs that KVM delivered",
        source: "tracepoint kvm:kvm_apic_ipi",
    },
    Counter {
        name: "kvm.msr_writes.",
        unit: "count",
        meaning: "Writes to that MSR that KVM handled",
        source: "tracepoint kvm:kvm_msr",
    },
    Counter {
        name: "kvm.msr_reads.",
        unit: "count",
        meaning: "Readings of that MSR that KVM handled",
        source: "tracepoint kvm:kvm_msr",
    },
    Counter {
        name: "kvm.hypercalls.",
        unit: "count",
        meaning: "Hypercalls of that kind",
        source: "tracepoint kvm:kvm_hypercall",
    },
    Counter {
        name: "memory.node",
        unit: "B",
        meaning: "Guest memory on that node of the host at the run's end",
        source: "/proc/<pid>/numa_maps",
    },
];

/// What members of families mean in guests that run Linux: the vectors and
/// MSRs that it uses for itself.
///
/// Source: Linux `arch/x86/include/asm/{irq_vectors,msr-index}.h`.
pub(super) const LINUX_GUESTS: &[(&str, &str)] = &[
    ("kvm.irqs.0xec", "Interrupts injected with the vector of Linux's local timer"),
    ("kvm.irqs.0xf3", "Interrupts injected with Linux's vector for news from the hypervisor"),
    ("kvm.irqs.0xf6", "Interrupts injected with the vector of Linux's IRQ work"),
    ("kvm.irqs.0xfb", "Interrupts injected with Linux's vector for a function call on one vCPU"),
    ("kvm.irqs.0xfc", "Interrupts injected with Linux's vector for a function call on many vCPUs"),
    ("kvm.irqs.0xfd", "Interrupts injected with the vector of Linux's wake-ups (rescheduling)"),
    ("kvm.ipis.0xfb", "IPIs that call a function on one vCPU"),
    ("kvm.ipis.0xfc", "IPIs that call a function on many vCPUs (TLB shootdowns)"),
    ("kvm.ipis.0xfd", "IPIs that wake a task on another vCPU (rescheduling)"),
    ("kvm.msr_writes.tsc_deadline", "Settings of the guest's local timer"),
    ("kvm.msr_writes.x2apic_icr", "IPIs that the guest sent through x2APIC"),
    ("kvm.msr_writes.x2apic_eoi", "Ends of interrupts that were not spared by pv-EOI"),
    ("kvm.hypercalls.send_ipi", "IPIs that the guest sent by hypercall (pv-ipi)"),
    ("kvm.hypercalls.kick_cpu", "Kicks of halted lock waiters (pv-unhalt)"),
    ("kvm.hypercalls.sched_yield", "Yields to a preempted vCPU (pv-sched-yield)"),
];
