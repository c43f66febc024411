//! Where vCPUs are pinned, against the host's cores.

use topology::PcpuSet;

use crate::context::{Context, HostLookup};
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, qemu, running, xml, yaml};
use crate::rules::samples::VTUNE;
use crate::rules::words::{numbers, pcpus};
use crate::rules::worlds::{ANY, ISOLATED, OFFLINE, RESERVED, TWO_CACHES, TWO_SOCKETS};
use crate::vm::{Pin, Vm};

const TUNED: &str = "D. Faggioli et al., \"The cost of containerizing VMs\", KVM Forum 2021";
/// Most pCPUs that are named one by one.
const NAMED_PCPUS: usize = 4;
const ISOLCPUS: &str = "https://docs.kernel.org/admin-guide/kernel-parameters.html";

pub(crate) const SIBLINGS_SPLIT: Rule = Rule {
    id: "siblings-split",
    severity: Severity::Warning,
    summary: "threads of one guest core are pinned to different host cores",
    why: "The guest's scheduler believes that these vCPUs share a core and its caches: it keeps \
          related tasks on them, and spreads load over what it takes for other cores. With the \
          threads on different cores both decisions are wrong; a VM tuned like this was measured \
          slower than one without any tuning.",
    mend: "Pin the threads of a guest core to the threads of one host core (`vmlab host` shows \
           which belong together)",
    sources: &[TUNED, "https://github.com/kubevirt/kubevirt/issues/4687"],
    affected: &[],
    check: Check::Vm(siblings_split),
    fires: &[
        xml(
            TWO_SOCKETS,
            "\
<vcpu>4</vcpu>
<cputune>
  <vcpupin vcpu='0' cpuset='1'/>
  <vcpupin vcpu='1' cpuset='2'/>
  <vcpupin vcpu='2' cpuset='17'/>
  <vcpupin vcpu='3' cpuset='18'/>
</cputune>
<cpu mode='host-passthrough'><topology sockets='1' cores='2' threads='2'/></cpu>
",
        ),
        running(
            TWO_SOCKETS,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2,threads=2
# is: vCPU 0: pCPU 1
# is: vCPU 1: pCPU 2
",
        )
        .mended(&[("pCPU 2", "pCPU 17")]),
    ],
    quiet: &[xml(TWO_SOCKETS, VTUNE)],
};

fn siblings_split(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let Some(cores) = guest_cores(vm, machine) else { return };
    let (threads, pins) = (vm.threads() as usize, vm.live_pins());
    let split = |core: &[PcpuSet]| core.iter().any(|on| *on != core[0]);
    let Some(first) = cores.chunks(threads).position(split) else { return };
    let wrong = cores.chunks(threads).filter(|core| split(core)).count();
    let group = &pins[first * threads..][..threads];
    let vcpus: Vec<u32> = group.iter().map(|pin| pin.id.value).collect();
    let on = PcpuSet::union_of(group.iter().map(|pin| &pin.pcpus.value));
    let draft = out.at(
        group[0].span,
        format!(
            "vCPUs {} are threads of one guest core, but {} are on different host cores",
            numbers(vcpus),
            pcpus(&on)
        ),
    );
    draft.note(format!("{wrong} of {} guest cores are split", cores.len() / threads));
    for pcpu in on.iter().take(NAMED_PCPUS) {
        draft.note(format!("pCPU {pcpu} is a thread of the core {}", machine.siblings(pcpu)));
    }
    let Some(pinned) = vm.one_to_one() else { return };
    if let Some(order) = regroup(&pinned, threads, machine) {
        for ((pin, before), after) in pins.iter().zip(&pinned).zip(&order) {
            if before != after {
                draft.fix(pin.pcpus.span, after.to_string());
            }
        }
        draft.help("Give each guest core a host core; the same pCPUs suffice in another order");
    }
}

/// The host cores of each vCPU in turn, if every one is pinned, guest cores
/// have several threads and so have the host's.
fn guest_cores(vm: &Vm, machine: &HostLookup) -> Option<Vec<PcpuSet>> {
    let (threads, pins) = (vm.threads() as usize, vm.live_pins());
    let whole = pins.len() == vm.vcpus.value as usize && pins.len().is_multiple_of(threads.max(1));
    let in_turn = pins.iter().enumerate().all(|(at, pin)| pin.id.value as usize == at);
    (threads > 1 && machine.threads_per_core > 1 && whole && in_turn)
        .then(|| pins.iter().map(|pin| machine.cores_of(&pin.pcpus.value)).collect())
}

/// The same pCPUs core by core, if they are whole cores of as many threads.
fn regroup(pinned: &[u32], threads: usize, machine: &HostLookup) -> Option<Vec<u32>> {
    let all: PcpuSet = pinned.iter().copied().collect();
    let mut order = Vec::new();
    for pcpu in pinned {
        if !order.contains(pcpu) {
            let core = machine.siblings(*pcpu);
            if core.len() != threads || !core.is_subset(&all) {
                return None;
            }
            order.extend(core.iter());
        }
    }
    (order.len() == pinned.len()).then_some(order)
}

pub(crate) const SIBLINGS_LOOSE: Rule = Rule {
    id: "siblings-loose",
    severity: Severity::Hint,
    summary: "nothing keeps the threads of a guest core on one host core",
    why: "The guest is told which vCPUs share a core, and schedules by it; the host moves them from \
          core to core. Most of the time the guest's picture is wrong: tasks that it keeps apart \
          share a core, and others that could do not.",
    mend: "Pin the vCPUs so that the picture holds, or give the guest cores of one thread",
    sources: &[TUNED, "https://github.com/kubevirt/kubevirt/issues/11749"],
    affected: &[],
    check: Check::Vm(siblings_loose),
    fires: &[
        xml(TWO_SOCKETS, FLOATING_THREADS),
        yaml(TWO_SOCKETS, "domain:\n  cpu:\n    cores: 2\n    threads: 2\n  devices: {}\n"),
        running(
            TWO_SOCKETS,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2,threads=2
# is: vCPU 0: pCPUs 1-2
# is: vCPU 1: pCPUs 1-2
",
        )
        .mended(&[("pCPUs 1-2", "pCPUs 1,17"), ("pCPUs 1-2", "pCPUs 1,17")]),
    ],
    quiet: &[
        xml(TWO_SOCKETS, VTUNE),
        yaml(TWO_SOCKETS, "domain:\n  cpu:\n    cores: 2\n  devices: {}\n"),
    ],
};

const FLOATING_THREADS: &str = "\
<vcpu>4</vcpu>
<cpu mode='host-passthrough'><topology sockets='1' cores='2' threads='2'/></cpu>
";

fn siblings_loose(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    // A command line can't say pins; whoever started QEMU sets them later.
    let unsaid = vm.is_command() && vm.live.is_none();
    if vm.threads() < 2 || machine.threads_per_core < 2 || vm.is_dedicated() || unsaid {
        return;
    }
    let loose = match guest_cores(vm, machine) {
        Some(cores) => {
            let threads = vm.threads() as usize;
            cores
                .chunks(threads)
                .any(|core| core[0].len() > 1 && core.iter().all(|on| *on == core[0]))
        }
        None => vm.live_pins().len() < vm.vcpus.value as usize,
    };
    if loose {
        let at = vm.topology.as_ref().and_then(|topology| topology.value.threads_at);
        let threads = vm.threads();
        out.at(
            at.unwrap_or(vm.vcpus.span),
            format!(
                "The guest takes {threads} vCPUs at a time for threads of a core; the host does not"
            ),
        );
    }
}

pub(crate) const CORES_SHARE_CORE: Rule = Rule {
    id: "cores-share-core",
    severity: Severity::Warning,
    summary: "vCPUs that the guest takes for cores are pinned to threads of one host core",
    why: "The guest's scheduler puts two busy tasks on two vCPUs that it takes for full cores, \
          while other host cores of the VM stay idle. The configurations `pin_def` and `pin` of the \
          cited paper do this and were slower than no pinning at all.",
    mend: "Say it to the guest: a topology with as many threads as the host's cores have; or pin \
           each vCPU to a core of its own",
    sources: &[TUNED],
    affected: &[],
    check: Check::Vm(cores_share_core),
    fires: &[
        xml(
            TWO_SOCKETS,
            "\
<vcpu>4</vcpu>
<cputune>
  <vcpupin vcpu='0' cpuset='1'/>
  <vcpupin vcpu='1' cpuset='17'/>
  <vcpupin vcpu='2' cpuset='2'/>
  <vcpupin vcpu='3' cpuset='18'/>
</cputune>
<cpu mode='host-passthrough'><topology sockets='1' cores='4' threads='1'/></cpu>
",
        ),
        running(
            TWO_SOCKETS,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2,cores=2
# is: vCPU 0: pCPU 1
# is: vCPU 1: pCPU 17
",
        )
        .mended(&[("pCPU 17", "pCPU 2")]),
    ],
    quiet: &[xml(TWO_SOCKETS, VTUNE)],
};

fn cores_share_core(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(machine), Some(pinned)) = (&context.machine, vm.one_to_one()) else { return };
    if vm.threads() > 1 {
        return;
    }
    let shared = |at: &usize| {
        let other = pinned.iter().position(|other| {
            *other != pinned[*at] && machine.core(*other) == machine.core(pinned[*at])
        });
        machine.core(pinned[*at]).is_some() && other.is_some_and(|other| other > *at)
    };
    let Some(first) = (0..pinned.len()).find(shared) else { return };
    let core = machine.siblings(pinned[first]);
    let vcpus: Vec<u32> =
        (0..pinned.len()).filter(|at| core.contains(pinned[*at])).map(|at| at as u32).collect();
    let span = vm.topology.as_ref().map_or(vm.pins_span(), |topology| topology.span);
    let message = format!(
        "vCPUs {} look like cores to the guest, but {} are threads of one host core",
        numbers(vcpus),
        pcpus(&core)
    );
    let draft = out.at(span, message);
    let count = (0..pinned.len()).filter(shared).count();
    draft.note(format!("{count} host cores hold more than one vCPU of this VM"));
    let threads = machine.threads_per_core;
    let whole = pinned.len().is_multiple_of(threads)
        && pinned.chunks(threads).all(|group| {
            machine.cores_of(&group.iter().copied().collect()).len() == 1
                && group.iter().collect::<std::collections::BTreeSet<_>>().len() == threads
        });
    if !whole {
        return;
    }
    if let Some(topology) = &vm.topology
        && let (Some(cores_at), Some(threads_at)) =
            (topology.value.cores_at, topology.value.threads_at)
        && (topology.value.cores as usize).is_multiple_of(threads)
    {
        let cores = topology.value.cores as usize / threads;
        draft.suggest(cores_at, cores.to_string()).suggest(threads_at, threads.to_string());
        draft.help("Tell the guest which vCPUs are threads");
    } else {
        let cores = pinned.len() / threads;
        draft.help(format!(
            "Tell the guest which vCPUs are threads: <topology sockets='1' cores='{cores}' \
             threads='{threads}'/> inside <cpu>"
        ));
    }
}

pub(crate) const PINS_CROSS_CACHE: Rule = Rule {
    id: "pins-cross-cache",
    severity: Severity::Hint,
    summary: "the pins spread over several last-level caches although one would do",
    why: "vCPUs that share data then exchange it between caches, over the memory bus or the \
          fabric, and the guest does not know: without a cache in its topology it takes all vCPUs \
          for equally near.",
    mend: "Pin all vCPUs under one last-level cache, or show the caches as dies or guest nodes",
    sources: &["https://docs.kernel.org/scheduler/sched-domains.html"],
    affected: &[],
    check: Check::Vm(pins_cross_cache),
    fires: &[xml(
        TWO_CACHES,
        "\
<vcpu>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='5'/></cputune>
",
    )
    .mended(&[("cpuset='5'", "cpuset='2'")])],
    quiet: &[],
};

fn pins_cross_cache(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(machine), Some(_)) = (&context.machine, vm.one_to_one()) else { return };
    let pinned = vm.pinned();
    let caches = machine.caches_of(&pinned).len();
    let told = vm.topology.as_ref().is_some_and(|topology| {
        topology.value.sockets > 1 || topology.value.dies > 1 || topology.value.clusters > 1
    });
    if caches < 2
        || machine.nodes_of(&pinned).len() > 1
        || machine.widest_cache().is_none_or(|widest| pinned.len() > widest)
        || told
        || vm.cells.len() > 1
    {
        return;
    }
    out.at(
        vm.pins_span(),
        format!("{} lie under {caches} last-level caches, and would fit under one", pcpus(&pinned)),
    );
}

pub(crate) const PINS_CROSS_NODE: Rule = Rule {
    id: "pins-cross-node",
    severity: Severity::Warning,
    summary: "the pins spread over several host nodes although the VM fits into one",
    why: "Whatever node its memory is on, some vCPUs are far from it, and the guest can't know \
          which. A VM that fits into one node runs best inside it.",
    mend: "Pin all vCPUs inside one node and bind the memory there",
    sources: &[
        "A. Theurer, \"KVM and Big VMs\", KVM Forum 2012",
        "https://docs.kernel.org/admin-guide/mm/numaperf.html",
    ],
    affected: &[],
    check: Check::Vm(pins_cross_node),
    fires: &[
        xml(
            TWO_SOCKETS,
            "\
<vcpu>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='9'/></cputune>
",
        ),
        running(
            TWO_SOCKETS,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2,cores=2
# is: vCPU 0: pCPU 1
# is: vCPU 1: pCPU 8
",
        )
        .mended(&[("pCPU 8", "pCPU 2")]),
    ],
    quiet: &[xml(TWO_SOCKETS, VTUNE)],
};

fn pins_cross_node(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let pinned = vm.pinned();
    let nodes = machine.nodes_of(&pinned);
    if nodes.len() < 2 || vm.cells.len() > 1 || vm.vcpus.value as usize > machine.widest_node() {
        return;
    }
    let draft = out.at(
        vm.pins_span(),
        format!(
            "{} vCPUs are pinned to the nodes {nodes}, and would fit into one of {} pCPUs",
            vm.vcpus.value,
            machine.widest_node()
        ),
    );
    for node in &nodes {
        let there: PcpuSet =
            pinned.iter().filter(|pcpu| machine.node(*pcpu) == Some(node)).collect();
        draft.note(format!("node {node} has {}", pcpus(&there)));
    }
}

pub(crate) const PIN_IS_OFFLINE: Rule = Rule {
    id: "pin-offline",
    severity: Severity::Error,
    summary: "something is pinned to a pCPU that is offline or does not exist",
    why: "The kernel refuses an affinity without a single online pCPU, and the VM does not start; \
          if some of the set are online, it silently uses those alone.",
    mend: "Pin to online pCPUs",
    sources: &["https://man7.org/linux/man-pages/man2/sched_setaffinity.2.html"],
    affected: &[],
    check: Check::Vm(pin_offline),
    fires: &[
        xml(OFFLINE, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='17'/></cputune>\n"),
        qemu(OFFLINE, "taskset -c 16-19 qemu-system-x86_64 -accel kvm -cpu host -smp 4"),
    ],
    quiet: &[
        xml(OFFLINE, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>\n"),
        qemu(OFFLINE, "taskset -c 0-3 qemu-system-x86_64 -accel kvm -cpu host -smp 4"),
    ],
};

fn pin_offline(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = context.machine.as_ref().filter(|machine| !machine.online.is_empty())
    else {
        return;
    };
    for (who, set) in everything_pinned(vm) {
        let missing = set.value.difference(&machine.online);
        if missing.is_empty() {
            continue;
        }
        let here = missing.iter().all(|pcpu| machine.host.pcpu(pcpu).is_some());
        let what = if here { "offline" } else { "not in this host" };
        out.at(set.span, format!("{who} is pinned to {}: {what}", pcpus(&missing)))
            .note(format!("online are {}", machine.online));
    }
}

/// Every affinity of a VM with whose it is.
fn everything_pinned(vm: &Vm) -> Vec<(String, &vmconfig::source::LocatedValue<PcpuSet>)> {
    let vcpus =
        vm.live_pins().into_iter().map(|pin| (format!("vCPU {}", pin.id.value), &pin.pcpus));
    let iothreads =
        vm.iothread_pins.iter().map(|pin| (format!("iothread {}", pin.id.value), &pin.pcpus));
    let emulator = vm.emulator.iter().map(|set| ("the emulator thread".to_owned(), set));
    let all = vm.affinity.iter().map(|set| ("the VM".to_owned(), set));
    vcpus.chain(iothreads).chain(emulator).chain(all).collect()
}

pub(crate) const PIN_IS_RESERVED: Rule = Rule {
    id: "pin-reserved",
    severity: Severity::Warning,
    summary: "a vCPU is pinned to a pCPU that is reserved for the host",
    why: "What the host itself runs there, interrupts included, interrupts the guest, and the guest \
          in turn starves the host's own work.",
    mend: "Pin vCPUs outside of the reserved pCPUs; the emulator thread may live there",
    sources: &["https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/"],
    affected: &[],
    check: Check::Vm(pin_reserved),
    fires: &[
        xml(RESERVED, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>\n"),
        running(
            RESERVED,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2
# is: vCPU 0: pCPU 1
# is: vCPU 1: pCPU 2
",
        )
        .mended(&[("pCPU 1", "pCPU 3")]),
    ],
    quiet: &[xml(RESERVED, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='2'/></cputune>\n")],
};

fn pin_reserved(vm: &Vm, context: &Context, out: &mut Drafts) {
    for pin in vm.live_pins() {
        let taken = pin.pcpus.value.intersection(&context.reserved);
        if !taken.is_empty() {
            out.at(
                pin.pcpus.span,
                format!(
                    "vCPU {} is pinned to {}, reserved for the host",
                    pin.id.value,
                    pcpus(&taken)
                ),
            );
        }
    }
}

pub(crate) const PIN_ON_FIRST: Rule = Rule {
    id: "pin-on-pcpu-0",
    severity: Severity::Hint,
    summary: "a vCPU is pinned to pCPU 0, where the host does most of its own work",
    why: "The boot processor keeps time, takes interrupts that nobody moved elsewhere and runs work \
          that is bound to it; it can't be isolated from all of that.",
    mend: "Leave pCPU 0, and its siblings, to the host and the emulator threads",
    sources: &[
        "https://docs.kernel.org/timers/no_hz.html",
        "https://docs.kernel.org/core-api/irq/irq-affinity.html",
    ],
    affected: &[],
    check: Check::Vm(pin_on_first),
    fires: &[xml(ANY, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='0'/></cputune>\n")],
    quiet: &[xml(ANY, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>\n")],
};

fn pin_on_first(vm: &Vm, context: &Context, out: &mut Drafts) {
    // A VM that fills the host has no choice.
    let fills = context
        .machine
        .as_ref()
        .is_some_and(|machine| vm.vcpus.value as usize >= machine.online.len());
    let first = vm.live_pins().into_iter().find(|pin| {
        pin.pcpus.value.len() == 1 && pin.pcpus.value.contains(0) && !context.reserved.contains(0)
    });
    if let Some(pin) = first.filter(|_| !fills) {
        out.at(pin.pcpus.span, format!("vCPU {} is on pCPU 0", pin.id.value));
    }
}

pub(crate) const PIN_NOT_ISOLATED: Rule = Rule {
    id: "pin-not-isolated",
    severity: Severity::Warning,
    summary: "the host isolates pCPUs, but a vCPU is pinned outside of them",
    why: "Isolated pCPUs run nothing but what is sent there; all other work of the host, the other \
          VMs' emulator threads included, shares the rest, and there this vCPU has to wait.",
    mend: "Pin the vCPUs to isolated pCPUs",
    sources: &[ISOLCPUS],
    affected: &[],
    check: Check::Vm(pin_not_isolated),
    fires: &[
        xml(ISOLATED, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='8'/></cputune>\n"),
        running(
            ISOLATED,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2
# is: vCPU 0: pCPU 1
# is: vCPU 1: pCPU 8
",
        )
        .mended(&[("pCPU 8", "pCPU 2")]),
    ],
    quiet: &[xml(ISOLATED, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>\n")],
};

fn isolated(context: &Context) -> Option<&PcpuSet> {
    context.machine.as_ref()?.host.isolated.as_ref().filter(|set| !set.is_empty())
}

fn pin_not_isolated(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(isolated) = isolated(context) else { return };
    let outside: Vec<&Pin> =
        vm.live_pins().into_iter().filter(|pin| !pin.pcpus.value.is_subset(isolated)).collect();
    if let Some(first) = outside.first() {
        let message = if outside.len() == 1 {
            format!("vCPU {} is pinned outside of the isolated pCPUs", first.id.value)
        } else {
            format!("{} vCPUs are pinned outside of the isolated pCPUs", outside.len())
        };
        out.at(first.pcpus.span, message).note(format!("isolated are {isolated}"));
    }
}

pub(crate) const SET_OVER_ISOLATED: Rule = Rule {
    id: "set-over-isolated",
    severity: Severity::Warning,
    summary: "a thread may run on several isolated pCPUs, among which nothing balances",
    why: "isolcpus= takes pCPUs out of the scheduler's load balancing: a thread that may run on \
          several of them stays on the first, and all threads with the same set pile up there.",
    mend: "Pin each thread to one isolated pCPU",
    sources: &[ISOLCPUS],
    affected: &[],
    check: Check::Vm(set_over_isolated),
    fires: &[
        xml(ISOLATED, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='1-4'/></cputune>\n"),
        qemu(ISOLATED, "taskset -c 1-4 qemu-system-x86_64 -accel kvm -cpu host -smp 4"),
    ],
    quiet: &[
        xml(ISOLATED, "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>\n"),
        qemu(ISOLATED, "taskset -c 8-11 qemu-system-x86_64 -accel kvm -cpu host -smp 4"),
    ],
};

fn set_over_isolated(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(isolated) = isolated(context) else { return };
    let pinned = vm.one_to_one().is_some();
    for (who, set) in everything_pinned(vm) {
        // With every vCPU pinned the common set is only where they start.
        if who == "the VM" && pinned {
            continue;
        }
        let inside = set.value.intersection(isolated);
        if inside.len() > 1 {
            out.at(
                set.span,
                format!("{who} may run on {}, which are isolated: it stays on one", pcpus(&inside)),
            );
        }
    }
}
