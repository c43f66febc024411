//! What only a VM that runs can get wrong: it is not what was asked for.

use topology::bytes::rounded as size;

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::live::LiveVm;
use crate::read::running::SMALL_PAGE_BYTES;
use crate::rule::{Check, Rule, running};
use crate::rules::words::pcpus;
use crate::rules::worlds::{ANY, TWO_SOCKETS};
use crate::running::{MemoryPlacement, ObservedValue, ThreadPlacement};
use crate::vm::Vm;
use vmconfig::source::Span;

const HUGETLB: &str = "https://docs.kernel.org/admin-guide/mm/hugetlbpage.html";
const THP: &str = "https://docs.kernel.org/admin-guide/mm/transhuge.html";

/// Memory below which page sizes are not worth a word, bytes.
const MUCH_BYTES: u64 = 64 << 20;
/// The part of it in transparent huge pages that is fine.
const THP_SHARE: f64 = 0.5;

fn live(vm: &Vm) -> impl Iterator<Item = (&ObservedValue, Span)> {
    let facts = vm.live.iter().flat_map(|live| &live.facts);
    facts.map(|fact| (&fact.value.is, fact.span))
}

pub(crate) const PIN_NOT_AS_ASKED: Rule = Rule {
    id: "pin-not-as-asked",
    severity: Severity::Warning,
    summary: "a thread may run elsewhere than it was asked to",
    why: "Somebody moved the thread, or its cpuset, after the VM was started, or the pin was never \
          set. What the configuration says is then no reason for what is measured, and at the next \
          start everything is different again.",
    mend: "Set what the configuration says (virsh vcpupin, emulatorpin, iothreadpin), or write into \
           it what is meant",
    sources: &[
        "https://man7.org/linux/man-pages/man2/sched_setaffinity.2.html",
        "https://libvirt.org/formatdomain.html#cpu-tuning",
    ],
    affected: &[],
    check: Check::Vm(pin_not_as_asked),
    fires: &[running(
        ANY,
        "\
qemu-system-x86_64 -accel kvm -cpu host
# is: vCPU 0: pCPU 2
# asked: vCPU 0: pCPU 1
",
    )
    .mended(&[("pCPU 2", "pCPU 1")])],
    quiet: &[],
};

fn pin_not_as_asked(vm: &Vm, context: &Context, out: &mut Drafts) {
    let online = context.machine.as_ref().map(|machine| &machine.online);
    for fact in vm.live.iter().flat_map(|live| &live.facts) {
        let (ObservedValue::Thread(who, thread), Some(asked)) = (&fact.value.is, &fact.value.asked)
        else {
            continue;
        };
        let Some(asked) = asked.parse::<ThreadPlacement>().ok().map(|asked| asked.pcpus) else {
            continue;
        };
        // The kernel leaves out what is offline.
        let asked = online.map_or_else(|| asked.clone(), |online| asked.intersection(online));
        if asked != thread.pcpus {
            out.at(
                fact.span,
                format!(
                    "{who} was to run on {}, and may on {}",
                    pcpus(&asked),
                    pcpus(&thread.pcpus)
                ),
            );
        }
    }
}

pub(crate) const AFFINITY_NOT_CPUSET: Rule = Rule {
    id: "affinity-not-cpuset",
    severity: Severity::Hint,
    summary: "a thread may run on less than its cpuset says",
    why: "Somebody pinned the thread behind the back of whoever manages its control group. When the \
          cpuset is written again (libvirt, systemd, the kubelet do), the kernel forgets the \
          thread's own affinity (before Linux 6.2), and the pin is gone without a word.",
    mend: "Pin by one means: the cpuset of the thread's group, or affinities in a group of all pCPUs",
    sources: &["https://docs.kernel.org/admin-guide/cgroup-v2.html"],
    affected: &[],
    check: Check::Vm(affinity_not_cpuset),
    fires: &[running(
        TWO_SOCKETS,
        "\
qemu-system-x86_64 -accel kvm -cpu host
# is: vCPU 0: pCPU 1; cpuset 1-3
",
    )
    .mended(&[("cpuset 1-3", "cpuset 1")])],
    quiet: &[],
};

fn affinity_not_cpuset(vm: &Vm, context: &Context, out: &mut Drafts) {
    for (is, span) in live(vm) {
        let ObservedValue::Thread(who, thread) = is else { continue };
        let Some(cpuset) = &thread.cpuset else { continue };
        let online = context.machine.as_ref().map(|machine| &machine.online);
        let allowed = online.map_or_else(|| cpuset.clone(), |online| cpuset.intersection(online));
        if thread.pcpus != allowed {
            out.at(span, format!("{who} may run on {}, its cpuset is {cpuset}", thread.pcpus));
        }
    }
}

pub(crate) const MEMORY_NOT_LOCKED: Rule = Rule {
    id: "memory-not-locked",
    severity: Severity::Warning,
    summary: "locked memory was asked for and is not locked",
    why: "The host may swap the guest out under pressure, which locking was to prevent. QEMU goes \
          on when the limit on locked memory stops it.",
    mend: "Raise the limit on locked memory (ulimit -l; libvirt: <memtune><hard_limit>)",
    sources: &["https://man7.org/linux/man-pages/man2/mlock.2.html"],
    affected: &[],
    check: Check::Vm(memory_not_locked),
    fires: &[running(
        ANY,
        "\
qemu-system-x86_64 -accel kvm -cpu host -overcommit mem-lock=on
# is: locked: 64 KiB of 128 MiB
",
    )
    .mended(&[("locked: 64 KiB", "locked: 140 MiB")])],
    quiet: &[],
};

fn memory_not_locked(vm: &Vm, _: &Context, out: &mut Drafts) {
    for (is, span) in live(vm) {
        if let ObservedValue::Locked(locked, all) = is
            && locked < all
        {
            out.at(span, format!("{} of {} of guest memory are locked", size(*locked), size(*all)));
        }
    }
}

pub(crate) const MEMORY_SWAPPED: Rule = Rule {
    id: "memory-swapped",
    severity: Severity::Warning,
    summary: "parts of the VM are swapped out",
    why: "A vCPU that touches such a page stands still until the disk has brought it back, and the \
          guest can't know why: milliseconds where it expects a tenth of a microsecond.",
    mend: "Free memory on the host, or lock the guest's (-overcommit mem-lock=on, <locked/>)",
    sources: &["https://docs.kernel.org/filesystems/proc.html"],
    affected: &[],
    check: Check::Vm(memory_swapped),
    fires: &[running(
        ANY,
        "\
qemu-system-x86_64 -accel kvm -cpu host
# is: swapped out: 8 MiB
",
    )
    .mended(&[("out: 8 MiB", "out: 0 B")])],
    quiet: &[],
};

fn memory_swapped(vm: &Vm, _: &Context, out: &mut Drafts) {
    for (is, span) in live(vm) {
        if let ObservedValue::Swapped(bytes) = is
            && *bytes > 0
        {
            out.at(span, format!("{} of the VM are swapped out", size(*bytes)));
        }
    }
}

pub(crate) const HUGE_PAGES_NOT_USED: Rule = Rule {
    id: "huge-pages-not-used",
    severity: Severity::Warning,
    summary: "huge pages were asked for, and the memory has ordinary ones",
    why: "A mem-path that is not on a hugetlbfs is an ordinary file: QEMU takes it with a warning at \
          most, and every TLB miss of the guest walks two tables of 4 KiB pages.",
    mend: "Check that the path lies on a mounted hugetlbfs, and that its pool has enough free pages",
    sources: &[HUGETLB],
    affected: &[],
    check: Check::Vm(huge_pages_not_used),
    fires: &[running(
        ANY,
        "\
qemu-system-x86_64 -accel kvm -cpu host -m 1G -mem-path /srv/hugepages
# is: memory: 1 GiB on node 0; pages of 4 KiB; huge pages asked for
",
    )
    .mended(&[("/srv/hugepages", "/dev/hugepages"), ("of 4 KiB", "of 2 MiB")])],
    quiet: &[],
};

/// Memory facts with whose they are.
fn memory(live: &LiveVm) -> impl Iterator<Item = (String, &MemoryPlacement, Span)> {
    live.memory().map(|(backend, memory, span)| {
        (backend.map_or("Guest memory".to_owned(), |id| format!("Memory {id}")), memory, span)
    })
}

fn huge_pages_not_used(vm: &Vm, _: &Context, out: &mut Drafts) {
    for (what, memory, span) in vm.live.iter().flat_map(memory) {
        if memory.wants_pool && memory.page_bytes <= SMALL_PAGE_BYTES {
            out.at(span, format!("{what} has pages of {}", size(memory.page_bytes)));
        }
    }
}

pub(crate) const THP_NOT_USED: Rule = Rule {
    id: "thp-not-used",
    severity: Severity::Hint,
    summary: "little of the guest's memory is in transparent huge pages",
    why: "The host makes transparent huge pages, but had none when the guest touched its memory: \
          free memory is in small pieces, KSM or a balloon split them, or khugepaged has not come \
          by yet. The guest pays for each TLB miss as if they were off.",
    mend: "Free memory in one piece (/proc/sys/vm/compact_memory) and let khugepaged work, or take \
           huge pages from a pool",
    sources: &[THP],
    affected: &[],
    check: Check::Vm(thp_not_used),
    fires: &[running(
        TWO_SOCKETS,
        "\
qemu-system-x86_64 -accel kvm -cpu host -m 1G
# is: memory: 1 GiB on node 0; pages of 4 KiB; 4 MiB in transparent huge pages
",
    )],
    quiet: &[running(
        TWO_SOCKETS,
        "\
qemu-system-x86_64 -accel kvm -cpu host -m 1G
# is: memory: 1 GiB on node 0; pages of 4 KiB; 900 MiB in transparent huge pages
",
    )],
};

fn thp_not_used(vm: &Vm, context: &Context, out: &mut Drafts) {
    let never = context
        .machine
        .as_ref()
        .is_some_and(|machine| machine.host.settings.thp_enabled.as_deref() == Some("never"));
    // Then thp-never tells why.
    if never {
        return;
    }
    for (what, memory, span) in vm.live.iter().flat_map(memory) {
        let Some(huge) = memory.thp_bytes.filter(|_| memory.bytes() >= MUCH_BYTES) else {
            continue;
        };
        if (huge as f64) < memory.bytes() as f64 * THP_SHARE {
            let of = size(memory.bytes());
            out.at(span, format!("{what}: {} of {of} are in transparent huge pages", size(huge)));
        }
    }
}
