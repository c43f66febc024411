//! Guest memory that libvirt or QEMU refuses: cells, modules, nodes, huge pages.

use std::collections::HashSet;

use topology::PcpuSet;
use topology::bytes::rounded as size;

use crate::ConfigFormat;
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, qemu, xml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;
use vmconfig::libvirt::DomainElement;
use vmconfig::source::LocatedValue;

const CPU: &str = "https://libvirt.org/formatdomain.html#cpu-model-and-topology";
const BACKING: &str = "https://libvirt.org/formatdomain.html#memory-backing";
const NUMATUNE: &str = "https://libvirt.org/formatdomain.html#numa-node-tuning";
const MODULES: &str = "https://libvirt.org/formatdomain.html#memory-devices";
const INVOCATION: &str = "https://www.qemu.org/docs/master/system/invocation.html";

pub(crate) const CELLS_NOT_CONTIGUOUS: Rule = Rule {
    id: "cells-not-contiguous",
    severity: Severity::Error,
    summary: "the numbers of the guest nodes do not run from 0 without a gap",
    why: "libvirt wants each number from 0 on just once, in any order. QEMU ends with `numa: Node ID \
          missing`.",
    mend: "Number the cells from 0 on without a gap",
    sources: &[CPU, INVOCATION],
    affected: &[],
    check: Check::Vm(cells_not_contiguous),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>2</vcpu>
<cpu><numa>
  <cell id='1' cpus='0' memory='1' unit='GiB'/>
  <cell id='2' cpus='1' memory='1' unit='GiB'/>
</numa></cpu>
",
        ).mended(&[("id='2'", "id='0'")]),
        qemu(
            ANY,
            "kvm -cpu host -smp 2 -m 2G -numa node,nodeid=0,cpus=0,mem=1G -numa node,nodeid=2,cpus=1,mem=1G",
        ).mended(&[("nodeid=2", "nodeid=1")]),
    ],
    quiet: &[],
};

fn cells_not_contiguous(vm: &Vm, _: &Context, out: &mut Drafts) {
    let number = vm.cells.len();
    let mut seen = HashSet::new();
    for cell in vm.cells.iter().filter(|_| vm.unread.is_empty()) {
        if !seen.insert(cell.id) {
            out.at(cell.span, format!("Cell {} is there already", cell.id));
        } else if cell.id as usize >= number {
            let message = match number {
                1 => format!("The only cell has the number {}, not 0", cell.id),
                _ => {
                    format!("{number} cells have the numbers 0 to {}, not {}", number - 1, cell.id)
                }
            };
            out.at(cell.span, message);
        }
    }
}

pub(crate) const CELL_NAMED_MISSING: Rule = Rule {
    id: "cell-missing",
    severity: Severity::Error,
    summary: "distances, huge pages, memory modules or buses name a guest node that is not there",
    why: "libvirt refuses what is said of a cell that the domain does not have. What is meant is \
          mostly a node of the host, which other elements name.",
    mend: "Name the guest's cells there; nodes of the host are <numatune>'s",
    sources: &[CPU, BACKING, MODULES],
    affected: &[],
    check: Check::Vm(cell_named_missing),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>1</vcpu>
<memoryBacking><hugepages><page size='2' unit='MiB' nodeset='1'/></hugepages></memoryBacking>
<cpu><numa><cell id='0' cpus='0' memory='1' unit='GiB'/></numa></cpu>
",
        ),
        xml(
            ANY,
            "\
<vcpu>1</vcpu>
<cpu><numa>
  <cell id='0' cpus='0' memory='1' unit='GiB'>
    <distances><sibling id='3' value='21'/></distances>
  </cell>
</numa></cpu>
",
        ),
    ],
    quiet: &[xml(
        ANY,
        "\
<vcpu>1</vcpu>
<memoryBacking><hugepages><page size='2' unit='MiB' nodeset='0'/></hugepages></memoryBacking>
<cpu><numa>
  <cell id='0' cpus='0' memory='1' unit='GiB'>
    <distances><sibling id='0' value='10'/></distances>
  </cell>
</numa></cpu>
",
    )],
};

fn cell_named_missing(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    let known: HashSet<u32> = vm.cells.iter().map(|cell| cell.id).collect();
    // Without cells the whole VM is taken for one, and a part of a domain may
    // have left them out.
    let is_there = |cell: u32| known.contains(&cell) || (known.is_empty() && cell == 0);
    let is_whole = !vm.name.is_empty() || !known.is_empty();
    if !is_whole {
        return;
    }
    for page in domain.all("memoryBacking/hugepages/page") {
        let Some(at) = page.list("nodeset") else { continue };
        if let Some(cell) = at.value.iter().find(|cell| !is_there(*cell)) {
            out.at(at.span, format!("Huge pages for cell {cell}, which is not there"));
        }
    }
    for sibling in domain.all("cpu/numa/cell/distances/sibling") {
        if let Some(at) = sibling.number("id").filter(|at| !is_there(at.value)) {
            out.at(at.span, format!("A distance to cell {}, which is not there", at.value));
        }
    }
    // Modules without any cell are another rule's.
    let mut nodes = domain.all("devices/memory/target/node");
    nodes.retain(|_| !known.is_empty());
    if vm.arch.as_ref().is_none_or(|arch| arch.value == "x86_64") {
        nodes.extend(domain.all("devices/controller/target/node"));
    }
    for at in nodes.into_iter().filter_map(DomainElement::text_number) {
        if !is_there(at.value) {
            out.at(at.span, format!("Cell {} is not there", at.value));
        }
    }
}

pub(crate) const MODULES_INVALID: Rule = Rule {
    id: "memory-modules-invalid",
    severity: Severity::Error,
    summary: "memory modules without guest nodes, or at the same addresses",
    why: "libvirt plugs memory into a guest node: on x86 it refuses <maxMemory slots> and modules \
          where no cell is, and modules whose addresses overlap.",
    mend: "Add a cell that holds all vCPUs and the memory that is there at start",
    sources: &[MODULES],
    affected: &[],
    check: Check::Vm(modules_invalid),
    fires: &[
        xml(
            ANY,
            "\
<maxMemory slots='4' unit='GiB'>16</maxMemory>
<memory unit='GiB'>4</memory>
<vcpu>2</vcpu>
<os><type arch='x86_64'>hvm</type></os>
",
        ),
        xml(
            ANY,
            "\
<maxMemory slots='4' unit='GiB'>16</maxMemory>
<vcpu>2</vcpu>
<cpu><numa><cell id='0' cpus='0-1' memory='4' unit='GiB'/></numa></cpu>
<devices>
  <memory model='dimm'><target><size unit='GiB'>2</size><node>0</node><address base='0x140000000'/></target></memory>
  <memory model='dimm'><target><size unit='GiB'>1</size><node>0</node><address base='0x180000000'/></target></memory>
</devices>
",
        ).mended(&[
            ("<vcpu>2</vcpu>", "<vcpu>2</vcpu>\n<os><type arch='x86_64'>hvm</type></os>"),
            (
                "<memory model='dimm'><target><size unit='GiB'>2",
                "<memory model='dimm'><target><size unit='GiB'>1",
            ),
        ]),
    ],
    quiet: &[],
};

fn modules_invalid(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(domain) = vm.qemu_domain() else { return };
    let is_x86 = vm.arch.as_ref().is_some_and(|arch| arch.value == "x86_64");
    let most = domain.first("maxMemory").filter(|most| most.at("slots").is_some());
    if let Some(most) = most.filter(|_| is_x86 && vm.cells.is_empty()) {
        out.at(most.tag, "Memory can be plugged into guest nodes only, and there is none");
    }
    let mut taken: Vec<(u64, u64, &DomainElement)> = Vec::new();
    for target in domain.all("devices/memory/target") {
        let base = target.first("address").and_then(|address| address.at("base"));
        let bytes = target.first("size").and_then(DomainElement::bytes);
        if let (Some(base), Some(bytes)) = (base, bytes.map(|at| at.value))
            && let Ok(start) = u64::from_str_radix(base.value.trim_start_matches("0x"), 16)
        {
            taken.push((start, start.saturating_add(bytes), target));
        }
    }
    taken.sort_by_key(|(start, ..)| *start);
    for pair in taken.windows(2) {
        if pair[1].0 < pair[0].1 {
            let address = pair[1].2.first("address").map_or(pair[1].2.tag, |one| one.tag);
            out.at(address, format!("The module before it goes to {:#x}", pair[0].1));
        }
    }
}

pub(crate) const NUMATUNE_INVALID: Rule = Rule {
    id: "numatune-invalid",
    severity: Severity::Error,
    summary: "memory policies that exclude each other",
    why: "Mode restrictive leaves memory to the control group, the others bind it in QEMU: libvirt \
          wants restrictive in <memory> and all <memnode>, or in none. Placement static needs a \
          nodeset, and what numad places is not bound by cell.",
    mend: "Use one mode for all; with placement='auto' leave <memnode> out",
    sources: &[NUMATUNE],
    affected: &[],
    check: Check::Vm(numatune_invalid),
    fires: &[
        xml(
            ANY,
            "\
<numatune>
  <memory mode='strict' nodeset='0-1'/>
  <memnode cellid='0' mode='restrictive' nodeset='1'/>
</numatune>
<cpu><numa><cell id='0' cpus='0' memory='1' unit='GiB'/></numa></cpu>
",
        )
        .mended(&[("mode='strict'", "mode='restrictive'")]),
        xml(ANY, "<numatune><memory mode='strict' placement='static'/></numatune>\n"),
    ],
    quiet: &[xml(ANY, "<numatune><memory mode='strict' placement='auto'/></numatune>\n")],
};

fn numatune_invalid(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(tune) = vm.qemu_domain().and_then(|domain| domain.first("numatune")) else { return };
    let memory = tune.first("memory");
    let mode = |one: &DomainElement| one.get("mode") == Some("restrictive");
    if let Some(memory) = memory {
        if memory.get("placement") == Some("static") && memory.at("nodeset").is_none() {
            out.at(memory.tag, "Placement static without a nodeset");
        }
        for node in tune.named("memnode") {
            if memory.get("placement") == Some("auto") {
                out.at(node.tag, "numad places the memory: it is not bound by cell");
            } else if mode(node) != mode(memory) {
                out.at(node.place("mode"), "Mode restrictive holds for all memory or for none");
            }
        }
    }
}

pub(crate) const HUGE_PAGES_TWICE: Rule = Rule {
    id: "huge-pages-twice",
    severity: Severity::Error,
    summary: "two sizes of huge pages, or two backends, for the same memory",
    why: "libvirt refuses two <page> elements for the same cell, two without a nodeset, and in a \
          guest without cells any two that differ. QEMU refuses -mem-path where -machine names a \
          memory backend, which libvirt does for <hugepages>: with one of its own in \
          <qemu:commandline> a domain does not start, or has other pages than it says. Elsewhere the one that is written first loses in silence.",
    mend: "Keep one size for each cell, and one place that says what the memory is made of",
    sources: &[BACKING, INVOCATION],
    affected: &[],
    check: Check::Vm(huge_pages_twice),
    fires: &[
        xml(
            ANY,
            "\
<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
<name>a</name>
<memoryBacking><hugepages/></memoryBacking>
<qemu:commandline>
  <qemu:arg value='-object'/>
  <qemu:arg value='memory-backend-memfd,id=m,size=2G,hugetlb=on'/>
  <qemu:arg value='-machine'/>
  <qemu:arg value='memory-backend=m'/>
</qemu:commandline>
</domain>
",
        ).mended(&[
            ("size=2G,hugetlb=on'", "size=4M,share=on'"),
            ("value='-machine'", "value='-device'"),
            ("value='memory-backend=m'", "value='ivshmem-plain,memdev=m'"),
        ]),
        xml(
            ANY,
            "\
<memoryBacking><hugepages>
  <page size='1' unit='GiB'/>
  <page size='2' unit='MiB' nodeset='0'/>
</hugepages></memoryBacking>
",
        ),
        xml(
            ANY,
            "\
<memoryBacking><hugepages>
  <page size='1' unit='GiB' nodeset='0'/>
  <page size='2' unit='MiB' nodeset='0-1'/>
</hugepages></memoryBacking>
<cpu><numa>
  <cell id='0' cpus='0' memory='1' unit='GiB'/>
  <cell id='1' cpus='1' memory='1' unit='GiB'/>
</numa></cpu>
",
        ).mended(&[("nodeset='0-1'", "nodeset='1'")]),
        qemu(
            ANY,
            "kvm -cpu host -m 2G -mem-path /dev/hugepages -machine q35,memory-backend=m -object memory-backend-memfd,id=m,size=2G,hugetlb=on",
        ).mended(&[("-mem-path /dev/hugepages -machine", "-machine")]),
    ],
    quiet: &[],
};

fn huge_pages_twice(vm: &Vm, _: &Context, out: &mut Drafts) {
    if vm.is_command() {
        if let (Some(path), true) = (&vm.memory_path, vm.machine_backend) {
            out.at(path.span, "-mem-path and the machine's memory-backend say two things");
        }
        return;
    }
    let Some(domain) = vm.qemu_domain() else { return };
    if let (Some(span), Some(_)) = (vm.passed_memory, domain.first("memoryBacking/hugepages")) {
        out.at(span, "<qemu:commandline> gives the guest memory that <hugepages> already made");
    }
    let pages = domain.all("memoryBacking/hugepages/page");
    let bytes = |page: &DomainElement| Some(page.bytes_of("size")?.value);
    let mut general: Option<&DomainElement> = None;
    let mut seen = PcpuSet::new();
    for page in &pages {
        if page.at("nodeset").is_none() {
            if general.is_some() {
                out.at(page.tag, "There is a page size for all memory already");
            }
            general = Some(page);
            continue;
        }
        let Some(LocatedValue { value: set, span }) = page.list("nodeset") else { continue };
        let again = set.intersection(&seen);
        if !again.is_empty() {
            out.at(span, format!("Cell {again} has a page size already"));
        }
        seen = seen.union(&set);
        let other = general.and_then(bytes).filter(|other| Some(*other) != bytes(page));
        if let (Some(other), true) = (other, vm.cells.is_empty()) {
            out.at(page.tag, format!("The memory has pages of {} already", size(other)));
        }
    }
}

pub(crate) const PAGE_SIZE_IMPOSSIBLE: Rule = Rule {
    id: "huge-page-size-impossible",
    severity: Severity::Error,
    summary: "huge pages of a size that the processor does not have",
    why: "x86-64 has pages of 4 KiB, 2 MiB and 1 GiB; no host has a pool of others, so that the VM \
          never starts.",
    mend: "Use 2 MiB or 1 GiB",
    sources: &["https://docs.kernel.org/admin-guide/mm/hugetlbpage.html", BACKING],
    affected: &[],
    check: Check::Vm(page_size_impossible),
    fires: &[
        xml(
            ANY,
            "<memoryBacking><hugepages><page size='4' unit='MiB'/></hugepages></memoryBacking>\n",
        ),
        qemu(
            ANY,
            "kvm -cpu host -m 2G -machine q35,memory-backend=m -object memory-backend-memfd,id=m,size=2G,hugetlb=on,hugetlbsize=4M",
        ).mended(&[("hugetlbsize=4M", "hugetlbsize=2M")]),
    ],
    quiet: &[
        xml(ANY, "<memoryBacking><hugepages><page size='2048'/></hugepages></memoryBacking>\n"),
    ],
};

fn page_size_impossible(vm: &Vm, _: &Context, out: &mut Drafts) {
    let is_x86 = vm.arch.as_ref().is_none_or(|arch| arch.value == "x86_64");
    if vm.format == ConfigFormat::Kubevirt || vm.live.is_some() {
        return;
    }
    let Some(huge) = vm.huge_pages.as_ref().filter(|_| is_x86) else { return };
    let of_cells = vm.pages_of_cells.iter().map(|(_, bytes)| *bytes);
    for bytes in huge.value.into_iter().chain(of_cells) {
        if !matches!(bytes, 0x1000 | 0x20_0000 | 0x4000_0000) {
            out.at(huge.span, format!("x86-64 has no pages of {}", size(bytes)));
        }
    }
}
