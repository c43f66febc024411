//! Page sizes: pools of huge pages, transparent ones, merging.

use topology::bytes::rounded as size;

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, qemu, running, xml, yaml};
use crate::rules::worlds::{ANY, HUGE_ON_NODE_1, KSM, THP_NEVER};
use crate::vm::{HugeMemory, Vm};
use vmconfig::source::Span;

const BACKING: &str = "https://libvirt.org/formatdomain.html#memory-backing";
const HUGETLB: &str = "https://docs.kernel.org/admin-guide/mm/hugetlbpage.html";
const THP: &str = "https://docs.kernel.org/admin-guide/mm/transhuge.html";
const KSM_DOC: &str = "https://docs.kernel.org/admin-guide/mm/ksm.html";
const BIG_VMS: &str = "A. Theurer, \"KVM and Big VMs\", KVM Forum 2012";

/// Below this a guest's page tables fit the caches in small pages, too.
const LARGE_BYTES: u64 = 4 << 30;

pub(crate) const HUGE_PAGES_NOT_RESERVED: Rule = Rule {
    id: "huge-pages-not-reserved",
    severity: Severity::Error,
    summary: "the host has too few free huge pages where the VM wants them",
    why: "Huge pages come from a pool that is filled by hand, for each node apart. When the node's \
          pool is too small QEMU does not start, or dies of SIGBUS when it touches the page that is \
          not there.",
    mend: "Fill the pool of that node: echo N > \
           /sys/devices/system/node/nodeX/hugepages/hugepages-SIZEkB/nr_hugepages",
    sources: &[HUGETLB, BACKING],
    affected: &[],
    check: Check::Vm(huge_pages_not_reserved),
    fires: &[
        xml(
            HUGE_ON_NODE_1,
            "\
<memory unit='GiB'>2</memory>
<memoryBacking><hugepages><page size='2048' unit='KiB'/></hugepages></memoryBacking>
<numatune><memory mode='strict' nodeset='0'/></numatune>
",
        )
        .mended(&[("nodeset='0'", "nodeset='1'")]),
        qemu(
            HUGE_ON_NODE_1,
            "\
qemu-system-x86_64 -accel kvm -cpu host -m 2G \\
  -object memory-backend-memfd,id=m,size=2G,hugetlb=on,hugetlbsize=2M,host-nodes=0,policy=bind",
        )
        .mended(&[("host-nodes=0", "host-nodes=1")]),
        yaml(
            HUGE_ON_NODE_1,
            "\
domain:
  memory:
    guest: 16Gi
    hugepages:
      pageSize: 2Mi
  devices: {}
",
        )
        .mended(&[("guest: 16Gi", "guest: 2Gi")]),
        xml(
            HUGE_ON_NODE_1,
            "\
<vcpu>2</vcpu>
<memory unit='GiB'>6</memory>
<memoryBacking><hugepages>
  <page size='2' unit='MiB' nodeset='0'/>
  <page size='4' unit='KiB' nodeset='1'/>
</hugepages></memoryBacking>
<numatune>
  <memnode cellid='0' mode='strict' nodeset='0'/>
  <memnode cellid='1' mode='strict' nodeset='0'/>
</numatune>
<cpu mode='host-passthrough'><numa>
  <cell id='0' cpus='0' memory='2048' unit='MiB'/>
  <cell id='1' cpus='1' memory='4096' unit='MiB'/>
</numa></cpu>
",
        )
        .mended(&[(
            "<memnode cellid='0' mode='strict' nodeset='0'",
            "<memnode cellid='0' mode='strict' nodeset='1'",
        )]),
    ],
    quiet: &[],
};

fn huge_pages_not_reserved(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(machine), Some(huge)) = (&context.machine, &vm.huge_pages) else { return };
    let host = &machine.host;
    // A host description without pools does not say that there are none; and
    // what runs has its pages.
    let unknown =
        host.huge_pages.is_empty() && host.nodes.iter().all(|node| node.huge_pages.is_empty());
    if unknown || vm.live.is_some() {
        return;
    }
    // What is of one size and for the same nodes comes from one pool.
    let mut pools: Vec<(HugeMemory<'_>, bool)> = Vec::new();
    for memory in vm.in_huge_pages(2 << 20) {
        let nodes = |memory: &HugeMemory<'_>| memory.nodes.map(|nodes| nodes.value.clone());
        let same = |(pool, _): &&mut (HugeMemory<'_>, bool)| {
            pool.page_bytes == memory.page_bytes && nodes(pool) == nodes(&memory)
        };
        match pools.iter_mut().find(same) {
            Some((pool, several)) => {
                pool.bytes = pool.bytes.saturating_add(memory.bytes);
                *several = true;
            }
            None => pools.push((memory, false)),
        }
    }
    let by_cell = !vm.pages_of_cells.is_empty();
    for (memory, several) in pools {
        let span = if by_cell && !several { memory.span } else { huge.span };
        reserved(&memory, span, host, out);
    }
}

/// Whether the host has free pages for so much memory.
fn reserved(memory: &HugeMemory<'_>, span: Span, host: &topology::Host, out: &mut Drafts) {
    let page = memory.page_bytes;
    // Free ones and used ones.
    let count = |pools: &[topology::HugePagePool]| {
        let pools = pools.iter().filter(|pool| pool.page_bytes == page);
        pools.fold((0, 0), |(free, used), pool| {
            (free + pool.free, used + pool.total.saturating_sub(pool.free))
        })
    };
    let sum = |(a, b): (u64, u64), (c, d): (u64, u64)| (a + c, b + d);
    let ((there, used), place) = match memory.nodes {
        Some(nodes) => {
            let there = nodes.value.iter().filter_map(|id| host.node(id));
            let counts = there.map(|node| count(&node.huge_pages)).fold((0, 0), sum);
            (counts, format!("on node {}", nodes.value))
        }
        None if host.huge_pages.is_empty() => {
            let counts = host.nodes.iter().map(|node| count(&node.huge_pages)).fold((0, 0), sum);
            (counts, "on the host".to_owned())
        }
        None => (count(&host.huge_pages), "on the host".to_owned()),
    };
    let needed = memory.bytes.div_ceil(page.max(1));
    // What is used may be this VM's own, if it runs already.
    if there < needed && used < needed {
        let draft = out.at(
            span,
            format!("{needed} pages of {} are needed {place}, {there} are free", size(page)),
        );
        if memory.nodes.is_some() {
            for node in &host.nodes {
                let (free, _) = count(&node.huge_pages);
                if free >= needed {
                    draft.note(format!("node {} has {free}", node.id));
                }
            }
        }
    }
}

pub(crate) const MEMORY_NOT_WHOLE_PAGES: Rule = Rule {
    id: "memory-not-whole-pages",
    severity: Severity::Error,
    summary: "the memory is not a multiple of the huge page size",
    why: "QEMU and KubeVirt refuse it; where an older QEMU (7.2) rounds the file up, the last page \
          is mostly wasted, and what is smaller than one page it refuses as well.",
    mend: "Round the memory to whole huge pages",
    sources: &[HUGETLB, "https://kubevirt.io/user-guide/compute/hugepages/"],
    affected: &[],
    check: Check::Vm(memory_not_whole_pages),
    fires: &[
        xml(
            ANY,
            "\
<memory unit='MiB'>1500</memory>
<memoryBacking><hugepages><page size='1' unit='GiB'/></hugepages></memoryBacking>
",
        )
        .mended(&[("unit='MiB'>1500", "unit='GiB'>2")]),
        qemu(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -m 1500M \\
  -object memory-backend-memfd,id=m,size=1500M,hugetlb=on,hugetlbsize=1G",
        ),
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1500Mi
    hugepages:
      pageSize: 1Gi
  devices: {}
",
        )
        .mended(&[("guest: 1500Mi", "guest: 2Gi")]),
        xml(
            ANY,
            "\
<vcpu>2</vcpu>
<memory unit='GiB'>6</memory>
<memoryBacking><hugepages>
  <page size='2' unit='MiB' nodeset='0'/>
  <page size='4' unit='KiB' nodeset='1'/>
</hugepages></memoryBacking>
<numatune>
  <memnode cellid='0' mode='strict' nodeset='0'/>
  <memnode cellid='1' mode='strict' nodeset='0'/>
</numatune>
<cpu mode='host-passthrough'><numa>
  <cell id='0' cpus='0' memory='2049' unit='MiB'/>
  <cell id='1' cpus='1' memory='4095' unit='MiB'/>
</numa></cpu>
",
        )
        .mended(&[("memory='2049'", "memory='2050'"), ("memory='4095'", "memory='4094'")]),
    ],
    quiet: &[qemu(
        ANY,
        "\
qemu-system-x86_64 -accel kvm -cpu host -m 2G \\
  -object memory-backend-memfd,id=m,size=2G,hugetlb=on,hugetlbsize=1G",
    )],
};

fn memory_not_whole_pages(vm: &Vm, _: &Context, out: &mut Drafts) {
    // libvirt rounds the parts up where there are modules beside them. Of what has pages
    // of no known size nothing can be said.
    if vm.module_bytes != 0 {
        return;
    }
    for HugeMemory { page_bytes, bytes, span, .. } in vm.in_huge_pages(0) {
        if page_bytes > 0 && bytes % page_bytes != 0 {
            out.at(span, format!("{} is not a multiple of {}", size(bytes), size(page_bytes)));
        }
    }
}

pub(crate) const THP_OFF: Rule = Rule {
    id: "thp-never",
    severity: Severity::Warning,
    summary: "a large guest without huge pages on a host that never makes transparent ones",
    why: "A TLB miss in a guest walks two page tables, up to 24 loads; with pages of 4 KiB a guest \
          of many GiB misses all the time. Transparent huge pages cure most of it at no cost to the \
          configuration, and this host has them off.",
    mend: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (QEMU asks for them), or give \
           the VM huge pages",
    sources: &[THP, BACKING],
    affected: &[],
    check: Check::Vm(thp_never),
    fires: &[
        xml(THP_NEVER, "<memory unit='GiB'>8</memory>\n"),
        qemu(THP_NEVER, "qemu-system-x86_64 -accel kvm -cpu host -m 8G"),
        yaml(THP_NEVER, "domain:\n  memory:\n    guest: 8Gi\n  devices: {}\n"),
        running(
            THP_NEVER,
            "\
qemu-system-x86_64 -accel kvm -cpu host -m 8G
# is: memory: 8 GiB on node 0; pages of 4 KiB
",
        )
        .mended(&[("of 4 KiB", "of 2 MiB")]),
    ],
    quiet: &[
        xml(
            THP_NEVER,
            "<memory unit='GiB'>8</memory>\n<memoryBacking><hugepages/></memoryBacking>\n",
        ),
        qemu(THP_NEVER, "qemu-system-x86_64 -accel kvm -cpu host -m 1G"),
        yaml(
            THP_NEVER,
            "domain:\n  memory:\n    guest: 8Gi\n    hugepages:\n      pageSize: 2Mi\n  devices: {}\n",
        ),
    ],
};

fn thp_never(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(machine), Some(memory)) = (&context.machine, &vm.memory_bytes) else { return };
    let never = machine.host.settings.thp_enabled.as_deref() == Some("never");
    if never && vm.huge_pages.is_none() && memory.value >= LARGE_BYTES {
        out.at(memory.span, format!("{} in pages of 4 KiB", size(memory.value)));
    }
}

pub(crate) const KSM_SPLITS: Rule = Rule {
    id: "ksm-splits-huge-pages",
    severity: Severity::Warning,
    summary: "KSM runs on the host and may split the VM's transparent huge pages",
    why: "To merge two small pages KSM splits the huge pages that they are in; the guest loses what \
          huge pages gave it (up to 10 % in the cited measurement), and its first write to a merged \
          page waits for a copy.",
    mend: "Keep this VM out (<nosharepages/>, -machine mem-merge=off), or stop KSM",
    sources: &[KSM_DOC, BIG_VMS, BACKING],
    affected: &[],
    check: Check::Vm(ksm_splits),
    fires: &[
        xml(
            KSM,
            "<vcpu>1</vcpu>\n<memory unit='GiB'>8</memory>\n<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>\n",
        ),
        qemu(KSM, "taskset -c 2,3 qemu-system-x86_64 -accel kvm -cpu host -smp 2 -m 8G")
            .mended(&[("-m 8G", "-m 8G -machine q35,mem-merge=off")]),
        yaml(
            KSM,
            "domain:\n  cpu:\n    cores: 2\n    dedicatedCpuPlacement: true\n  memory:\n    guest: 8Gi\n  devices: {}\n",
        ),
        running(
            KSM,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 1 -m 8G
# is: vCPU 0: pCPU 1
# is: memory: 8 GiB on node 0; pages of 4 KiB; 6 GiB in transparent huge pages; mergeable
",
        )
        .mended(&[("pages; mergeable", "pages")]),
    ],
    quiet: &[
        xml(
            KSM,
            "\
<vcpu>1</vcpu>
<memory unit='GiB'>8</memory>
<memoryBacking><nosharepages/></memoryBacking>
<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>
",
        ),
        yaml(KSM, "domain:\n  cpu:\n    cores: 2\n  memory:\n    guest: 8Gi\n  devices: {}\n"),
    ],
};

fn ksm_splits(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(machine), Some(memory)) = (&context.machine, &vm.memory_bytes) else { return };
    let runs = machine.host.settings.ksm_run == Some(1);
    let thp = machine.host.settings.thp_enabled.as_deref() != Some("never");
    let kept_out = vm.merge.as_ref().is_some_and(|merge| !merge.value);
    // Whoever pins wants speed and not density.
    if runs && thp && !kept_out && vm.huge_pages.is_none() && vm.is_pinned() {
        out.at(memory.span, "KSM runs here, and this VM's memory takes part");
    }
}

pub(crate) const KSM_WITH_HUGETLB: Rule = Rule {
    id: "ksm-with-huge-pages",
    severity: Severity::Hint,
    summary: "page merging is asked for in a VM whose huge pages can't be merged",
    why: "KSM looks at anonymous memory only; pages of hugetlbfs are never merged. The option has no \
          effect, so what was to be saved is not saved.",
    mend: "Decide: huge pages without merging, or merging without huge pages",
    sources: &[KSM_DOC, BACKING],
    affected: &[],
    check: Check::Vm(ksm_with_hugetlb),
    fires: &[qemu(
        ANY,
        "\
qemu-system-x86_64 -accel kvm -cpu host -m 2G -machine q35,mem-merge=on \\
  -object memory-backend-memfd,id=m,size=2G,hugetlb=on",
    )
    .mended(&[("mem-merge=on", "mem-merge=off")])],
    quiet: &[],
};

fn ksm_with_hugetlb(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let (Some(merge), Some(_)) = (&vm.merge, &vm.huge_pages)
        && merge.value
    {
        out.at(merge.span, "Huge pages are never merged");
    }
}
