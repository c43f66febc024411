//! On which nodes memory lies.

use topology::PcpuSet;
use topology::bytes::rounded as size;

use crate::context::{Context, HostLookup};
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, qemu, running, xml};
use crate::rules::worlds::{ANY, BALANCING, NODES_NEARLY_FULL, TWO_SOCKETS};
use crate::vm::Vm;

const NUMATUNE: &str = "https://libvirt.org/formatdomain.html#numa-node-tuning";
const BIG_VMS: &str = "A. Theurer, \"KVM and Big VMs\", KVM Forum 2012";

/// Nodes of the pCPUs that the vCPUs are pinned to.
pub(super) fn vcpu_nodes(vm: &Vm, machine: &HostLookup) -> PcpuSet {
    let pinned = vm.pinned();
    let set =
        if pinned.is_empty() { vm.affinity.as_ref().map(|set| &set.value) } else { Some(&pinned) };
    set.map_or_else(PcpuSet::new, |set| machine.nodes_of(set))
}

pub(crate) const MEMORY_ELSEWHERE: Rule = Rule {
    id: "memory-elsewhere",
    severity: Severity::Warning,
    summary: "the memory is on a node where no vCPU runs",
    why: "Every access that misses the caches then crosses to the other node: half again to twice \
          the latency, and a fraction of the bandwidth.",
    mend: "Bind the memory to the nodes of the vCPUs' pCPUs",
    sources: &[NUMATUNE, BIG_VMS, "https://docs.kernel.org/admin-guide/mm/numaperf.html"],
    affected: &[],
    check: Check::Vm(memory_elsewhere),
    fires: &[
        xml(
            TWO_SOCKETS,
            "\
<vcpu>1</vcpu>
<numatune><memory mode='strict' nodeset='1'/></numatune>
<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>
",
        )
        .mended(&[("nodeset='1'", "nodeset='0'")]),
        qemu(
            TWO_SOCKETS,
            "numactl --physcpubind=1-2 --membind=1 qemu-system-x86_64 -accel kvm -cpu host -smp 2",
        )
        .mended(&[("--membind=1", "--membind=0")]),
        running(
            TWO_SOCKETS,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 1 -m 8G
# is: vCPU 0: pCPU 1
# is: memory: 1 GiB on node 0, 7 GiB on node 1; pages of 4 KiB
",
        )
        .mended(&[("1 GiB on node 0, 7 GiB on node 1", "8 GiB on node 0")]),
    ],
    quiet: &[],
};

/// Whether memory of these nodes is far from vCPUs of those. A configuration
/// may name more nodes than will be used; what is there is there.
fn is_elsewhere(vm: &Vm, memory: &PcpuSet, vcpus: &PcpuSet) -> bool {
    if vm.live.is_some() { !memory.is_subset(vcpus) } else { memory.is_disjoint(vcpus) }
}

fn memory_elsewhere(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(machine), Some(memory)) = (&context.machine, &vm.memory_nodes) else { return };
    let nodes = vcpu_nodes(vm, machine);
    // By guest node, where it is known which memory is whose.
    let by_cell = vm.cells.len() > 1 && (vm.live.is_none() || !vm.cell_nodes.is_empty());
    if nodes.is_empty() || by_cell {
        return;
    }
    if is_elsewhere(vm, &memory.value, &nodes) {
        let draft =
            out.at(memory.span, format!("Memory on node {}, vCPUs on node {nodes}", memory.value));
        if vm.format == crate::ConfigFormat::Libvirt {
            draft.suggest(memory.span, nodes.to_string());
        }
    }
}

pub(crate) const MEMORY_UNBOUND: Rule = Rule {
    id: "memory-unbound",
    severity: Severity::Hint,
    summary: "the vCPUs are pinned inside one node, and the memory is not bound to it",
    why: "Memory comes from the node of the thread that touches it first, which may be the emulator \
          thread's, and from other nodes when that one is full.",
    mend: "Add <numatune><memory mode='strict' nodeset='...'/></numatune>",
    sources: &[NUMATUNE, BIG_VMS],
    affected: &[],
    check: Check::Vm(memory_unbound),
    fires: &[xml(
        TWO_SOCKETS,
        "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>\n",
    )],
    quiet: &[xml(
        TWO_SOCKETS,
        "\
<vcpu>1</vcpu>
<numatune><memory mode='strict' nodeset='0'/></numatune>
<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>
",
    )],
};

fn memory_unbound(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let nodes = vcpu_nodes(vm, machine);
    if vm.one_to_one().is_some()
        && nodes.len() == 1
        && machine.nodes().len() > 1
        && vm.memory_nodes.is_none()
        && vm.live.is_none()
        && vm.cell_nodes.is_empty()
    {
        out.at(
            vm.pins_span(),
            format!("All vCPUs are on node {nodes}; the memory may be anywhere"),
        )
        .help(format!("Add <numatune><memory mode='strict' nodeset='{nodes}'/></numatune>"));
    }
}

pub(crate) const CELL_ELSEWHERE: Rule = Rule {
    id: "cell-elsewhere",
    severity: Severity::Warning,
    summary: "a guest node's memory is bound to another host node than its vCPUs",
    why: "The guest keeps tasks beside their memory by its own nodes; when those are crossed, all \
          that it takes for local is remote, and the other way round.",
    mend: "Bind each cell's memory to the node of its vCPUs' pCPUs",
    sources: &[NUMATUNE, BIG_VMS],
    affected: &[],
    check: Check::Vm(cell_elsewhere),
    fires: &[
        xml(
            TWO_SOCKETS,
            "\
<vcpu>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='9'/></cputune>
<numatune>
  <memnode cellid='0' mode='strict' nodeset='1'/>
  <memnode cellid='1' mode='strict' nodeset='0'/>
</numatune>
<cpu mode='host-model'><numa>
  <cell id='0' cpus='0' memory='1' unit='GiB'/>
  <cell id='1' cpus='1' memory='1' unit='GiB'/>
</numa></cpu>
",
        )
        .mended(&[
            ("nodeset='1'", "nodeset='0'"),
            (
                "<memnode cellid='1' mode='strict' nodeset='0'",
                "<memnode cellid='1' mode='strict' nodeset='1'",
            ),
        ]),
        running(
            TWO_SOCKETS,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2 -m 2G \\
  -object memory-backend-ram,id=m0,size=1G -numa node,cpus=0,memdev=m0 \\
  -object memory-backend-ram,id=m1,size=1G -numa node,cpus=1,memdev=m1
# is: vCPU 0: pCPU 1
# is: vCPU 1: pCPU 8
# is: memory m0: 1 GiB on node 1; pages of 4 KiB
# is: memory m1: 1 GiB on node 0; pages of 4 KiB
",
        )
        .mended(&[
            ("node 1", "node 0"),
            ("# is: memory m1: 1 GiB on node 0", "# is: memory m1: 1 GiB on node 1"),
        ]),
    ],
    quiet: &[],
};

/// The host nodes on which a cell's vCPUs are pinned.
fn cell_vcpu_nodes(vm: &Vm, cell: &PcpuSet, machine: &HostLookup) -> PcpuSet {
    let pins = vm.pins.iter().filter(|pin| cell.contains(pin.id.value));
    machine.nodes_of(&PcpuSet::union_of(pins.map(|pin| &pin.pcpus.value)))
}

fn cell_elsewhere(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    for (id, nodes) in &vm.cell_nodes {
        let Some(cell) = vm.cells.iter().find(|cell| cell.id == id.value) else { continue };
        let there = cell_vcpu_nodes(vm, &cell.vcpus, machine);
        if !there.is_empty() && is_elsewhere(vm, &nodes.value, &there) {
            let draft = out.at(
                nodes.span,
                format!(
                    "Cell {} has its memory on node {} and its vCPUs on node {there}",
                    id.value, nodes.value
                ),
            );
            if there.len() == 1 {
                draft.suggest(nodes.span, there.to_string());
            }
        }
    }
}

pub(crate) const CELL_SPANS_NODES: Rule = Rule {
    id: "cell-spans-nodes",
    severity: Severity::Warning,
    summary: "the vCPUs of one guest node are pinned to several host nodes",
    why: "The guest takes them for near each other and for equally near to that cell's memory; some \
          are not.",
    mend: "Give each host node a cell, with the vCPUs that are pinned there",
    sources: &[NUMATUNE, BIG_VMS],
    affected: &[],
    check: Check::Vm(cell_spans_nodes),
    fires: &[xml(
        TWO_SOCKETS,
        "\
<vcpu>4</vcpu>
<cputune>
  <vcpupin vcpu='0' cpuset='1'/>
  <vcpupin vcpu='1' cpuset='9'/>
  <vcpupin vcpu='2' cpuset='2'/>
  <vcpupin vcpu='3' cpuset='10'/>
</cputune>
<cpu mode='host-model'><numa>
  <cell id='0' cpus='0-1' memory='1' unit='GiB'/>
  <cell id='1' cpus='2-3' memory='1' unit='GiB'/>
</numa></cpu>
",
    )
    .mended(&[
        ("cpuset='9'", "cpuset='2'"),
        ("<vcpupin vcpu='2' cpuset='2'", "<vcpupin vcpu='2' cpuset='9'"),
    ])],
    quiet: &[],
};

fn cell_spans_nodes(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = context.machine.as_ref().filter(|_| vm.cells.len() > 1) else { return };
    for cell in &vm.cells {
        let nodes = cell_vcpu_nodes(vm, &cell.vcpus, machine);
        if nodes.len() > 1 {
            out.at(
                cell.span,
                format!("vCPUs {} of cell {} are pinned to the nodes {nodes}", cell.vcpus, cell.id),
            );
        }
    }
}

pub(crate) const MEMNODE_WITHOUT_CELL: Rule = Rule {
    id: "memnode-without-cell",
    severity: Severity::Error,
    summary: "a memnode names a cell that the domain does not have",
    why: "libvirt refuses the domain: memnode binds the memory of guest nodes, and this one has not \
          been declared inside <cpu><numa>.",
    mend: "Add the cell, or take the memnode out",
    sources: &[NUMATUNE],
    affected: &[],
    check: Check::Vm(memnode_without_cell),
    fires: &[xml(
        ANY,
        "<vcpu>1</vcpu>\n<numatune><memnode cellid='0' mode='strict' nodeset='0'/></numatune>\n",
    )],
    quiet: &[xml(
        ANY,
        "\
<vcpu>1</vcpu>
<memory unit='GiB'>1</memory>
<numatune><memnode cellid='0' mode='strict' nodeset='0'/></numatune>
<cpu mode='host-model'><numa><cell id='0' cpus='0' memory='1' unit='GiB'/></numa></cpu>
",
    )],
};

fn memnode_without_cell(vm: &Vm, _: &Context, out: &mut Drafts) {
    for (id, _) in &vm.cell_nodes {
        if !vm.cells.iter().any(|cell| cell.id == id.value) {
            out.at(id.span, format!("There is no cell {}", id.value));
        }
    }
}

pub(crate) const NODE_MISSING: Rule = Rule {
    id: "node-missing",
    severity: Severity::Error,
    summary: "memory is bound to a node that the host does not have",
    why: "The VM does not start. Numbers of nodes need not be contiguous: a host may have the nodes \
          0 and 8, and a node may be without memory.",
    mend: "Use the nodes that `vmlab host` shows",
    sources: &[NUMATUNE, "https://github.com/autotest/tp-qemu/pull/561"],
    affected: &[],
    check: Check::Vm(node_missing),
    fires: &[
        xml(
            TWO_SOCKETS,
            "<vcpu>1</vcpu>\n<numatune><memory mode='strict' nodeset='2'/></numatune>\n",
        )
        .mended(&[("nodeset='2'", "nodeset='1'")]),
        qemu(
            TWO_SOCKETS,
            "\
qemu-system-x86_64 -accel kvm -cpu host -m 1G \\
  -object memory-backend-ram,id=m,size=1G,host-nodes=4,policy=bind -numa node,cpus=0,memdev=m",
        )
        .mended(&[("host-nodes=4", "host-nodes=1")]),
    ],
    quiet: &[],
};

fn node_missing(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = context.machine.as_ref().filter(|machine| !machine.host.nodes.is_empty())
    else {
        return;
    };
    let known: PcpuSet = machine.host.nodes.iter().map(|node| node.id).collect();
    let cells = vm.cell_nodes.iter().map(|(_, nodes)| nodes);
    let backends = vm.cells.iter().filter_map(|cell| cell.nodes.as_ref());
    for nodes in vm.memory_nodes.iter().chain(cells).chain(backends) {
        let missing = nodes.value.difference(&known);
        if !missing.is_empty() {
            out.at(nodes.span, format!("The host has the nodes {known}, not {missing}"));
        }
    }
}

pub(crate) const NODE_TOO_FULL: Rule = Rule {
    id: "node-too-full",
    severity: Severity::Warning,
    summary: "the memory does not fit into the node that it is strictly bound to",
    why: "With mode strict the kernel does not take memory from elsewhere: it swaps, or kills the VM \
          when it touches what is not there.",
    mend: "Bind to more nodes with a cell for each, or give the VM less memory",
    sources: &[NUMATUNE, "https://man7.org/linux/man-pages/man2/set_mempolicy.2.html"],
    affected: &[],
    check: Check::Vm(node_too_full),
    fires: &[
        xml(
            TWO_SOCKETS,
            "<memory unit='GiB'>24</memory>\n<numatune><memory mode='strict' nodeset='0'/></numatune>\n",
        ).mended(&[("mode='strict'", "mode='preferred'")]),
        qemu(TWO_SOCKETS, "numactl --membind=0 qemu-system-x86_64 -accel kvm -cpu host -m 24G"),
    ],
    quiet: &[
        qemu(TWO_SOCKETS, "numactl --membind=0 qemu-system-x86_64 -accel kvm -cpu host -m 4G"),
    ],
};

fn node_too_full(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(machine), Some(nodes), Some(memory)) =
        (&context.machine, &vm.memory_nodes, &vm.memory_bytes)
    else {
        return;
    };
    let strict = vm.memory_mode.as_deref().is_none_or(|mode| mode == "strict");
    // What runs has its memory.
    if !strict || vm.live.is_some() {
        return;
    }
    let there: Option<u64> = nodes.value.iter().map(|id| machine.host.node(id)?.memory_bytes).sum();
    if let Some(there) = there.filter(|there| *there > 0 && memory.value > *there) {
        out.at(
            nodes.span,
            format!(
                "{} of memory on node {}, which has {}",
                size(memory.value),
                nodes.value,
                size(there)
            ),
        );
    }
}

pub(crate) const MEMORY_FITS_NO_NODE: Rule = Rule {
    id: "memory-fits-no-node",
    severity: Severity::Hint,
    summary: "no node of the host has so much memory free now",
    why: "Each node could hold it, but others took of all of them: the kernel lays part of the \
          guest's memory on another node, where each access costs more, and the guest can't see \
          which part. Page cache counts as taken here; the kernel gives that back first.",
    mend: "Free memory on one node (move a VM, drop caches), or give the guest a cell for each node \
           and bind them",
    sources: &[NUMATUNE, "https://docs.kernel.org/admin-guide/mm/numa_memory_policy.html"],
    affected: &[],
    check: Check::Vm(memory_fits_no_node),
    fires: &[
        xml(NODES_NEARLY_FULL, "<memory unit='GiB'>8</memory>\n<vcpu>2</vcpu>\n"),
        qemu(NODES_NEARLY_FULL, "qemu-system-x86_64 -accel kvm -cpu host -m 8G"),
    ],
    quiet: &[
        xml(NODES_NEARLY_FULL, "<memory unit='GiB'>6</memory>\n<vcpu>2</vcpu>\n"),
        qemu(NODES_NEARLY_FULL, "qemu-system-x86_64 -accel kvm -cpu host -m 4G"),
    ],
};

fn memory_fits_no_node(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(machine), Some(memory)) = (&context.machine, &vm.memory_bytes) else { return };
    let nodes = &machine.host.nodes;
    let bound = vm.memory_nodes.is_some()
        || vm.cells.len() > 1
        || vm.cells.iter().any(|cell| cell.nodes.is_some());
    // Huge pages come from pools of their own; what runs has its memory.
    if nodes.len() < 2 || bound || vm.huge_pages.is_some() || vm.live.is_some() {
        return;
    }
    let most = nodes.iter().filter_map(|node| node.memory_bytes).max().unwrap_or(0);
    let free: Option<Vec<u64>> = nodes.iter().map(|node| node.free_bytes).collect();
    let Some(free) = free.and_then(|free| free.into_iter().max()) else { return };
    if memory.value <= most && memory.value > free {
        let message = format!(
            "{} of memory; the most that a node has free is {}",
            size(memory.value),
            size(free)
        );
        out.at(memory.span, message);
    }
}

pub(crate) const BALANCING_PINNED: Rule = Rule {
    id: "numa-balancing-pinned",
    severity: Severity::Hint,
    summary: "automatic NUMA balancing scans a VM that is bound already",
    why: "The kernel unmaps the VM's pages at intervals to see who touches them; each touch is a \
          fault, and for a bound VM there is nothing to be learnt.",
    mend: "sysctl kernel.numa_balancing=0 on hosts whose VMs are all placed by hand",
    sources: &["https://docs.kernel.org/admin-guide/sysctl/kernel.html"],
    affected: &[],
    check: Check::Vm(balancing_pinned),
    fires: &[xml(
        BALANCING,
        "\
<vcpu>1</vcpu>
<numatune><memory mode='strict' nodeset='0'/></numatune>
<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>
",
    )],
    quiet: &[xml(BALANCING, "<vcpu>1</vcpu>\n")],
};

fn balancing_pinned(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(machine), Some(nodes)) = (&context.machine, &vm.memory_nodes) else { return };
    let on = machine.host.settings.numa_balancing.is_some_and(|mode| mode & 1 == 1);
    let bound =
        vm.live.as_ref().is_none_or(|live| live.memory().all(|(_, memory, _)| memory.bound));
    if on
        && bound
        && machine.nodes().len() > 1
        && vm.one_to_one().is_some()
        && vm.huge_pages.is_none()
    {
        out.at(nodes.span, "vCPUs and memory are bound, and the host's NUMA balancing is on");
    }
}
