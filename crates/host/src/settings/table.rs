//! The table of settings: one row each. Sorted by what they belong to; settings
//! that are made together are made in this order, and undone in reverse.
//!
//! Source of the facts: the documents that each row names, of Linux 6.1 to
//! 6.18. Left alone on purpose: what can't be put back (CPU hotplug, boot
//! parameters), and what decides about the host's safety.

use super::cpuset::PartitionKind;
use super::place::SettingPath;
use super::place::SettingPath::{
    BootOnly, Each, Files, IdleLatency, IdleNames, Irqs, Module, Parameter, Partition, Pool, Vfio,
};
use super::value::SettingValues::{
    Devices, IdleStates, Number, Offered, Pages, Pcpus, Switch, Words,
};
use super::{Setting, SettingValues};

const THP: &str = "Linux Documentation/admin-guide/mm/transhuge.rst";
const KSM: &str = "Linux Documentation/admin-guide/mm/ksm.rst";
const HUGETLB: &str = "Linux Documentation/admin-guide/mm/hugetlbpage.rst";
const SYSCTL_KERNEL: &str = "Linux Documentation/admin-guide/sysctl/kernel.rst";
const SYSCTL_VM: &str = "Linux Documentation/admin-guide/sysctl/vm.rst";
const HALT_POLLING: &str = "Linux Documentation/virt/kvm/halt-polling.rst";
const PARAMETERS: &str = "Linux Documentation/admin-guide/kernel-parameters.txt";
const KVM_X86: &str = "Linux arch/x86/kvm/x86.c (module parameters)";
const KVM_INTEL: &str = "Linux arch/x86/kvm/vmx/vmx.c (module parameters)";
const KVM_AMD: &str = "Linux arch/x86/kvm/svm/svm.c (module parameters)";
const PLE: &str = "Linux arch/x86/kvm/vmx/vmx.c, svm/svm.c (ple_*, pause_filter_*)";
const CPUFREQ: &str = "Linux Documentation/admin-guide/pm/cpufreq.rst";
const PSTATE: &str = "Linux Documentation/admin-guide/pm/intel_pstate.rst";
const CPUIDLE: &str = "Linux Documentation/admin-guide/pm/cpuidle.rst";
const HALTPOLL: &str = "Linux Documentation/virt/guest-halt-polling.rst";
const CGROUP: &str = "Linux Documentation/admin-guide/cgroup-v2.rst (cpuset.cpus.partition)";
const IRQ: &str = "Linux Documentation/core-api/irq/irq-affinity.rst";
const VHOST: &str = "Linux drivers/vhost/net.c (experimental_zcopytx)";
const VFIO: &str = "Linux Documentation/driver-api/vfio.rst";
const SCHED: &str = "Linux kernel/sched/debug.c; before 5.13 kernel/sysctl.c";
const WORKQUEUE: &str = "Linux Documentation/core-api/workqueue.rst (affinity scopes)";

const CYCLES: &str = "TSC cycles";
const ANY: SettingValues = Number { min: 0, max: i64::MAX };
const U32: SettingValues = Number { min: 0, max: 4_294_967_295 };

const fn row(
    id: &'static str,
    what: &'static str,
    unit: &'static str,
    values: SettingValues,
    place: SettingPath,
    source: &'static str,
) -> Setting {
    Setting { id, what, unit, values, place, source, risk: "" }
}

impl Setting {
    const fn risk(self, risk: &'static str) -> Self {
        Self { risk, ..self }
    }
}

const PTES: SettingValues = Number { min: 0, max: 511 };
const THP_WORDS: SettingValues = Words(&["always", "madvise", "never"]);
const DEFRAG_WORDS: SettingValues =
    Words(&["always", "defer", "defer+madvise", "madvise", "never"]);
const SHMEM_WORDS: SettingValues =
    Words(&["always", "within_size", "advise", "never", "deny", "force"]);
const TRAP_WORDS: SettingValues = Words(&["trap", "notrap"]);

/// All settings that vmlab changes.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    // Transparent huge pages.
    row("thp", "Which memory the kernel backs with transparent huge pages", "", THP_WORDS, Files(&["sys/kernel/mm/transparent_hugepage/enabled"]), THP)
        .risk("Memory that a program has already is not changed"),
    row("thp_defrag", "Whether a page fault compacts memory to get a huge page", "", DEFRAG_WORDS, Files(&["sys/kernel/mm/transparent_hugepage/defrag"]), THP),
    row("thp_shmem", "Huge pages in shared memory, as vhost-user guests have it", "", SHMEM_WORDS, Files(&["sys/kernel/mm/transparent_hugepage/shmem_enabled"]), THP),
    row("thp_use_zero_page", "Whether reading untouched memory maps a huge page of zeros", "", Switch, Files(&["sys/kernel/mm/transparent_hugepage/use_zero_page"]), THP),
    row("thp_shrink_underused", "Whether huge pages that are mostly zero are split when memory is short", "", Switch, Files(&["sys/kernel/mm/transparent_hugepage/shrink_underused"]), THP),
    row("khugepaged_defrag", "Whether khugepaged compacts memory to get a huge page", "", Switch, Files(&["sys/kernel/mm/transparent_hugepage/khugepaged/defrag"]), THP),
    row("khugepaged_scan_sleep_ms", "Pause between two scans of khugepaged", "ms", U32, Files(&["sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs"]), THP)
        .risk("0 keeps a pCPU busy"),
    row("khugepaged_alloc_sleep_ms", "Pause of khugepaged after it found no huge page", "ms", U32, Files(&["sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs"]), THP),
    row("khugepaged_pages_to_scan", "Pages that khugepaged looks at in one scan", "pages", Number { min: 1, max: 4_294_967_295 }, Files(&["sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan"]), THP),
    row("khugepaged_max_ptes_none", "Untouched small pages that a new huge page may take in", "pages", PTES, Files(&["sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none"]), THP)
        .risk("High values let programs use more memory than they asked for"),
    row("khugepaged_max_ptes_swap", "Swapped pages that a new huge page may take in", "pages", PTES, Files(&["sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_swap"]), THP),
    row("khugepaged_max_ptes_shared", "Shared pages that a new huge page may take in", "pages", PTES, Files(&["sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_shared"]), THP),

    // Same-page merging. The advisor comes before what it adjusts.
    row("ksm_advisor_mode", "Who chooses how much KSM scans", "", Words(&["none", "scan-time"]), Files(&["sys/kernel/mm/ksm/advisor_mode"]), KSM),
    row("ksm_advisor_max_cpu", "Most of a pCPU that the advisor lets KSM use", "%", Number { min: 1, max: 100 }, Files(&["sys/kernel/mm/ksm/advisor_max_cpu"]), KSM),
    row("ksm_advisor_target_scan_time_s", "Time in which the advisor wants all candidates scanned", "s", U32, Files(&["sys/kernel/mm/ksm/advisor_target_scan_time"]), KSM),
    row("ksm_advisor_min_pages_to_scan", "Fewest pages that the advisor lets KSM scan", "pages", ANY, Files(&["sys/kernel/mm/ksm/advisor_min_pages_to_scan"]), KSM),
    row("ksm_advisor_max_pages_to_scan", "Most pages that the advisor lets KSM scan", "pages", ANY, Files(&["sys/kernel/mm/ksm/advisor_max_pages_to_scan"]), KSM),
    row("ksm_merge_across_nodes", "Whether KSM merges pages of different nodes", "", Switch, Files(&["sys/kernel/mm/ksm/merge_across_nodes"]), KSM)
        .risk("Refused while pages are merged: set ksm to 2 first"),
    row("ksm_max_page_sharing", "Most uses of one merged page", "uses", Number { min: 2, max: i64::MAX }, Files(&["sys/kernel/mm/ksm/max_page_sharing"]), KSM)
        .risk("Refused while pages are merged: set ksm to 2 first"),
    row("ksm_use_zero_pages", "Whether empty pages are merged with the kernel's page of zeros", "", Switch, Files(&["sys/kernel/mm/ksm/use_zero_pages"]), KSM),
    row("ksm_smart_scan", "Whether pages that could not be merged are skipped for some scans", "", Switch, Files(&["sys/kernel/mm/ksm/smart_scan"]), KSM),
    row("ksm_pages_to_scan", "Pages that KSM looks at before it sleeps", "pages", U32, Files(&["sys/kernel/mm/ksm/pages_to_scan"]), KSM)
        .risk("Refused while the advisor chooses it"),
    row("ksm_sleep_ms", "Sleep of KSM between two scans", "ms", U32, Files(&["sys/kernel/mm/ksm/sleep_millisecs"]), KSM)
        .risk("0 keeps a pCPU busy"),
    row("ksm", "Same-page merging: 0 stopped, 1 running, 2 stopped and unmerged", "", Words(&["0", "1", "2"]), Files(&["sys/kernel/mm/ksm/run"]), KSM)
        .risk("Back from 1 to 0, pages that were merged stay so until they are written; breaks transparent huge pages; 2 may take seconds and much memory"),

    // Memory of nodes and huge page pools.
    row("numa_balancing", "Automatic moving of pages to the node that uses them: 0 off, 1 on, 2 memory tiers, 3 both", "", Number { min: 0, max: 3 }, Files(&["proc/sys/kernel/numa_balancing"]), SYSCTL_KERNEL),
    row("hugepages_64k", "Pool of huge pages of 64 KiB (arm64)", "pages", Pages, Pool { kib: 64 }, HUGETLB),
    row("hugepages_2m", "Pool of huge pages of 2 MiB, for the whole host or by node", "pages", Pages, Pool { kib: 2048 }, HUGETLB)
        .risk("Takes memory from everybody else at once"),
    row("hugepages_32m", "Pool of huge pages of 32 MiB (arm64)", "pages", Pages, Pool { kib: 32_768 }, HUGETLB),
    row("hugepages_512m", "Pool of huge pages of 512 MiB (arm64 with 64 KiB pages)", "pages", Pages, Pool { kib: 524_288 }, HUGETLB),
    row("hugepages_1g", "Pool of huge pages of 1 GiB, for the whole host or by node", "pages", Pages, Pool { kib: 1_048_576 }, HUGETLB)
        .risk("Takes memory from everybody else at once; hardly to be had once the host has run for a while"),
    row("compaction_proactiveness", "How eagerly memory is compacted in the background", "", Number { min: 0, max: 100 }, Files(&["proc/sys/vm/compaction_proactiveness"]), SYSCTL_VM),
    row("swappiness", "How eagerly anonymous memory is swapped out", "", Number { min: 0, max: 200 }, Files(&["proc/sys/vm/swappiness"]), SYSCTL_VM),
    row("zone_reclaim_mode", "Whether a full node frees memory of its own before it takes another's: bits 1, 2, 4", "", Number { min: 0, max: 7 }, Files(&["proc/sys/vm/zone_reclaim_mode"]), SYSCTL_VM),

    // Halt polling.
    row("halt_poll_ns", "Longest time that KVM polls before a halted vCPU gives its pCPU away; 0 switches it off", "ns", U32, Parameter(&[("kvm", "halt_poll_ns")]), HALT_POLLING)
        .risk("Polling takes pCPU time from whatever else runs there"),
    row("halt_poll_ns_grow", "Factor by which the polling time grows", "", U32, Parameter(&[("kvm", "halt_poll_ns_grow")]), HALT_POLLING),
    row("halt_poll_ns_grow_start", "Polling time with which growing begins", "ns", U32, Parameter(&[("kvm", "halt_poll_ns_grow_start")]), HALT_POLLING),
    row("halt_poll_ns_shrink", "Divisor by which the polling time shrinks; 0 makes it 0 at once", "", U32, Parameter(&[("kvm", "halt_poll_ns_shrink")]), HALT_POLLING),

    // KVM's other parameters, x86.
    row("ple_gap", "Cycles between two PAUSEs of one spinning loop; 0 switches pause exits off (AMD: pause_filter_thresh)", CYCLES, U32, Parameter(&[("kvm_intel", "ple_gap"), ("kvm_amd", "pause_filter_thresh")]), PLE),
    row("ple_window", "How long a vCPU may spin before it exits (AMD: pause_filter_count, in PAUSEs)", CYCLES, U32, Parameter(&[("kvm_intel", "ple_window"), ("kvm_amd", "pause_filter_count")]), PLE),
    row("ple_window_grow", "Factor by which the window grows after an exit; from ple_window on it is added instead, and 0 keeps the window", "", U32, Parameter(&[("kvm_intel", "ple_window_grow"), ("kvm_amd", "pause_filter_count_grow")]), PLE),
    row("ple_window_shrink", "Divisor by which the window shrinks when a vCPU is scheduled in; from ple_window on it is taken off instead, and 0 resets it", "", U32, Parameter(&[("kvm_intel", "ple_window_shrink"), ("kvm_amd", "pause_filter_count_shrink")]), PLE),
    row("ple_window_max", "Longest window", CYCLES, U32, Parameter(&[("kvm_intel", "ple_window_max"), ("kvm_amd", "pause_filter_count_max")]), PLE),
    row("nested", "Whether guests may run guests", "", Switch, Parameter(&[("kvm_intel", "nested"), ("kvm_amd", "nested")]), PARAMETERS),
    row("ept", "Nested paging on Intel", "", Switch, Parameter(&[("kvm_intel", "ept")]), KVM_INTEL)
        .risk("Off, guests are far slower"),
    row("npt", "Nested paging on AMD", "", Switch, Parameter(&[("kvm_amd", "npt")]), KVM_AMD)
        .risk("Off, guests are far slower"),
    row("eptad", "Accessed and dirty bits in Intel's nested page tables", "", Switch, Parameter(&[("kvm_intel", "eptad")]), KVM_INTEL),
    row("vpid", "Tagged TLBs on Intel", "", Switch, Parameter(&[("kvm_intel", "vpid")]), KVM_INTEL),
    row("pml", "Logging of dirty pages by hardware on Intel", "", Switch, Parameter(&[("kvm_intel", "pml")]), KVM_INTEL),
    row("flexpriority", "Task priority register without exits on Intel", "", Switch, Parameter(&[("kvm_intel", "flexpriority")]), KVM_INTEL),
    row("unrestricted_guest", "Real mode of guests without emulation on Intel", "", Switch, Parameter(&[("kvm_intel", "unrestricted_guest")]), KVM_INTEL),
    row("preemption_timer", "Guests' timers by the preemption timer on Intel", "", Switch, Parameter(&[("kvm_intel", "preemption_timer")]), KVM_INTEL),
    row("enable_apicv", "Interrupts without exits on Intel", "", Switch, Parameter(&[("kvm_intel", "enable_apicv")]), KVM_INTEL),
    row("enable_ipiv", "Interprocessor interrupts without exits on Intel", "", Switch, Parameter(&[("kvm_intel", "enable_ipiv")]), KVM_INTEL),
    row("avic", "Interrupts without exits on AMD", "", Switch, Parameter(&[("kvm_amd", "avic")]), KVM_AMD),
    row("vgif", "Virtual interrupt flag of nested guests on AMD", "", Switch, Parameter(&[("kvm_amd", "vgif")]), KVM_AMD),
    row("vls", "VMLOAD and VMSAVE of nested guests without exits on AMD", "", Switch, Parameter(&[("kvm_amd", "vls")]), KVM_AMD),
    row("lbrv", "Virtual last-branch records on AMD", "", Switch, Parameter(&[("kvm_amd", "lbrv")]), KVM_AMD),
    row("nrips", "Next instruction told by hardware on AMD", "", Switch, Parameter(&[("kvm_amd", "nrips")]), KVM_AMD),
    row("tdp_mmu", "KVM's newer handling of nested page tables", "", Switch, Parameter(&[("kvm", "tdp_mmu")]), KVM_X86),
    row("eager_page_split", "Whether huge pages are split at once when dirty pages are logged", "", Switch, Parameter(&[("kvm", "eager_page_split")]), PARAMETERS),
    row("nx_huge_pages", "Splitting of executable huge pages against the iTLB multihit defect", "", Switch, Parameter(&[("kvm", "nx_huge_pages")]), PARAMETERS)
        .risk("Off on an affected processor, a guest can crash the host"),
    row("enable_pmu", "Performance counters for guests", "", Switch, Parameter(&[("kvm", "enable_pmu")]), KVM_X86),
    row("kvmclock_periodic_sync", "Whether kvmclock is adjusted every five minutes", "", Switch, Parameter(&[("kvm", "kvmclock_periodic_sync")]), KVM_X86),
    row("lapic_timer_advance", "Whether guests' timers are set early by what an exit costs", "", Switch, Parameter(&[("kvm", "lapic_timer_advance")]), KVM_X86),
    row("min_timer_period_us", "Shortest period of a guest's periodic timer", "us", U32, Parameter(&[("kvm", "min_timer_period_us")]), KVM_X86),
    row("pi_inject_timer", "Whether timer interrupts are posted from a housekeeping pCPU", "", Switch, Parameter(&[("kvm", "pi_inject_timer")]), KVM_X86),
    row("vector_hashing", "How lowest-priority interrupts choose a vCPU", "", Switch, Parameter(&[("kvm", "vector_hashing")]), KVM_X86),

    // KVM on arm64 is part of the kernel.
    row("kvm_arm_mode", "How KVM uses EL2 on arm64", "", Words(&["none", "nvhe", "protected", "nested"]), BootOnly("kvm-arm.mode"), PARAMETERS),
    row("kvm_arm_wfi_trap_policy", "Whether a guest's WFI exits on arm64", "", TRAP_WORDS, BootOnly("kvm-arm.wfi_trap_policy"), PARAMETERS),
    row("kvm_arm_wfe_trap_policy", "Whether a guest's WFE exits on arm64", "", TRAP_WORDS, BootOnly("kvm-arm.wfe_trap_policy"), PARAMETERS),
    row("kvm_arm_vgic_v4_enable", "Direct injection of virtual interrupts on arm64", "", Switch, BootOnly("kvm-arm.vgic_v4_enable"), PARAMETERS),

    // Networks.
    row("vhost_net", "Whether the kernel moves guests' packets", "", Words(&["present", "absent"]), Module("vhost_net"), VHOST),
    row("vhost_net_zerocopy", "Whether vhost sends without copying", "", Switch, Parameter(&[("vhost_net", "experimental_zcopytx")]), VHOST),

    // Devices.
    row("vfio_pci", "PCI devices that VFIO's driver has, for guests; those that it has already stay", "", Devices, Vfio, VFIO)
        .risk("The host loses what the devices are for: disks, interfaces"),

    // Frequency.
    row("cpufreq_governor", "Who chooses the frequency of all pCPUs", "", Offered, Each { folder: "sys/devices/system/cpu/cpufreq", prefix: "policy", file: "scaling_governor" }, CPUFREQ),
    row("cpufreq_min_khz", "Lowest frequency that may be chosen, all pCPUs", "kHz", U32, Each { folder: "sys/devices/system/cpu/cpufreq", prefix: "policy", file: "scaling_min_freq" }, CPUFREQ)
        .risk("Heat: the hardware may throttle"),
    row("cpufreq_max_khz", "Highest frequency that may be chosen, all pCPUs", "kHz", U32, Each { folder: "sys/devices/system/cpu/cpufreq", prefix: "policy", file: "scaling_max_freq" }, CPUFREQ),
    row("energy_preference", "Performance against energy, as a hint to the processor", "", Offered, Each { folder: "sys/devices/system/cpu/cpufreq", prefix: "policy", file: "energy_performance_preference" }, PSTATE),
    row("cpufreq_boost", "Frequencies above the nominal one (with intel_pstate: intel_no_turbo)", "", Switch, Files(&["sys/devices/system/cpu/cpufreq/boost"]), CPUFREQ),
    row("intel_no_turbo", "1 forbids frequencies above the nominal one, under intel_pstate", "", Switch, Files(&["sys/devices/system/cpu/intel_pstate/no_turbo"]), PSTATE),

    // Idling.
    row("cpuidle_governor", "Who chooses how deep an idle pCPU sleeps", "", Offered, Files(&["sys/devices/system/cpu/cpuidle/current_governor"]), CPUIDLE),
    row("cpuidle_disabled", "Idle states that no pCPU may enter, by name", "", IdleStates, IdleNames, CPUIDLE)
        .risk("Heat, and less boost for the busy pCPUs"),
    row("cpuidle_max_latency_us", "Longest exit latency of the idle states that pCPUs may enter", "us", U32, IdleLatency, CPUIDLE)
        .risk("Heat, and less boost for the busy pCPUs"),
    row("guest_halt_poll_ns", "Longest polling of this host when it idles, if it is a guest itself", "ns", U32, Parameter(&[("haltpoll", "guest_halt_poll_ns")]), HALTPOLL),
    row("guest_halt_poll_grow", "Factor by which that grows", "", U32, Parameter(&[("haltpoll", "guest_halt_poll_grow")]), HALTPOLL),
    row("guest_halt_poll_grow_start", "Polling with which growing begins", "ns", U32, Parameter(&[("haltpoll", "guest_halt_poll_grow_start")]), HALTPOLL),
    row("guest_halt_poll_shrink", "Divisor by which that shrinks; 0 makes it 0 at once", "", U32, Parameter(&[("haltpoll", "guest_halt_poll_shrink")]), HALTPOLL),
    row("guest_halt_poll_allow_shrink", "Whether that may shrink", "", Switch, Parameter(&[("haltpoll", "guest_halt_poll_allow_shrink")]), HALTPOLL),

    // Who may run where.
    row("partition_pcpus", "pCPUs that are taken out of everybody else's cpuset, with load balancing among them", "", Pcpus, Partition(PartitionKind::Root), CGROUP)
        .risk("Everything else is squeezed onto the other pCPUs"),
    row("isolated_pcpus", "pCPUs that are taken out of everybody else's cpuset, without load balancing", "", Pcpus, Partition(PartitionKind::Isolated), CGROUP)
        .risk("Everything else is squeezed onto the other pCPUs; unpinned threads inside all stay on one pCPU"),
    row("irqs_off_pcpus", "pCPUs that no device's interrupt may go to", "", Pcpus, Irqs, IRQ)
        .risk("irqbalance undoes it: stop that first; some interrupts refuse, which is reported"),
    row("workqueue_pcpus", "pCPUs on which unbound work of the kernel may run", "", Pcpus, Files(&["sys/devices/virtual/workqueue/cpumask"]), WORKQUEUE),

    // The scheduler.
    row("sched_base_slice_ns", "How long a thread runs before another's turn (EEVDF, Linux 6.6 or newer)", "ns", U32, Files(&["sys/kernel/debug/sched/base_slice_ns"]), SCHED),
    row("sched_latency_ns", "Time in which each runnable thread has a turn (CFS, before Linux 6.6)", "ns", U32, Files(&["sys/kernel/debug/sched/latency_ns", "proc/sys/kernel/sched_latency_ns"]), SCHED),
    row("sched_min_granularity_ns", "How long a thread runs at least (CFS, before Linux 6.6)", "ns", U32, Files(&["sys/kernel/debug/sched/min_granularity_ns", "proc/sys/kernel/sched_min_granularity_ns"]), SCHED),
    row("sched_wakeup_granularity_ns", "How far a woken thread must lag to preempt (CFS, before Linux 6.6)", "ns", U32, Files(&["sys/kernel/debug/sched/wakeup_granularity_ns", "proc/sys/kernel/sched_wakeup_granularity_ns"]), SCHED),
    row("sched_migration_cost_ns", "How long a thread counts as warm in its pCPU's cache", "ns", U32, Files(&["sys/kernel/debug/sched/migration_cost_ns", "proc/sys/kernel/sched_migration_cost_ns"]), SCHED),
    row("sched_nr_migrate", "Most threads that one balancing moves", "threads", U32, Files(&["sys/kernel/debug/sched/nr_migrate", "proc/sys/kernel/sched_nr_migrate"]), SCHED),
    row("sched_tunable_scaling", "Whether slices grow with the number of pCPUs: 0 no, 1 logarithmically, 2 linearly", "", Number { min: 0, max: 2 }, Files(&["sys/kernel/debug/sched/tunable_scaling", "proc/sys/kernel/sched_tunable_scaling"]), SCHED)
        .risk("Changes the slices, which are not put back by it: set those, too"),
    row("sched_preempt", "When the kernel itself may be preempted", "", Words(&["none", "voluntary", "full", "lazy"]), Files(&["sys/kernel/debug/sched/preempt"]), SCHED),
    row("sched_autogroup_enabled", "Whether each session has its share of the pCPUs", "", Switch, Files(&["proc/sys/kernel/sched_autogroup_enabled"]), "Linux man page sched(7)"),
    row("sched_cfs_bandwidth_slice_us", "Slices in which quotas of pCPU time are handed out", "us", Number { min: 1, max: 4_294_967_295 }, Files(&["proc/sys/kernel/sched_cfs_bandwidth_slice_us"]), "Linux Documentation/scheduler/sched-bwc.rst"),
    row("sched_rt_period_us", "Period in which real-time threads' time is counted", "us", Number { min: 1, max: 2_147_483_647 }, Files(&["proc/sys/kernel/sched_rt_period_us"]), "Linux Documentation/scheduler/sched-rt-group.rst"),
    row("sched_rt_runtime_us", "Time of each period that real-time threads may take; -1 all of it", "us", Number { min: -1, max: 2_147_483_647 }, Files(&["proc/sys/kernel/sched_rt_runtime_us"]), "Linux Documentation/scheduler/sched-rt-group.rst")
        .risk("-1 lets a real-time thread that spins take its pCPU for ever"),
    row("sched_rr_timeslice_ms", "Slice of round-robin real-time threads", "ms", Number { min: 1, max: 2_147_483_647 }, Files(&["proc/sys/kernel/sched_rr_timeslice_ms"]), "Linux man page sched(7)"),

    // What wakes idle and busy pCPUs.
    row("timer_migration", "Whether idle pCPUs leave their timers to busy ones", "", Switch, Files(&["proc/sys/kernel/timer_migration"]), SYSCTL_KERNEL),
    row("nmi_watchdog", "The watchdog for hard lockups, which takes a performance counter", "", Switch, Files(&["proc/sys/kernel/nmi_watchdog"]), SYSCTL_KERNEL),
    row("soft_watchdog", "The watchdog for soft lockups", "", Switch, Files(&["proc/sys/kernel/soft_watchdog"]), SYSCTL_KERNEL),
    row("watchdog_thresh_s", "Time after which a lockup is reported; soft ones after twice that", "s", Number { min: 0, max: 60 }, Files(&["proc/sys/kernel/watchdog_thresh"]), SYSCTL_KERNEL),
    row("watchdog_pcpus", "pCPUs on which the watchdog runs", "", Pcpus, Files(&["proc/sys/kernel/watchdog_cpumask"]), SYSCTL_KERNEL),
    row("vm_stat_interval_s", "How often each pCPU adds up its memory statistics", "s", Number { min: 1, max: 2_147_483_647 }, Files(&["proc/sys/vm/stat_interval"]), SYSCTL_VM),
];
