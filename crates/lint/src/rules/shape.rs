//! The guest's topology and processor model.

use topology::PcpuSet;
use topology::bytes::rounded as size;

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, ConfigFormat, Rule, conf, qemu, xml, yaml};
use crate::rules::worlds::{AMD, ANY, FAR_NODES, NO_SMT, TWO_SOCKETS};
use crate::vm::{CpuView, Vm};

const CPU: &str = "https://libvirt.org/formatdomain.html#cpu-model-and-topology";
const MODELS: &str = "https://www.qemu.org/docs/master/system/qemu-cpu-models.html";
const INVOCATION: &str = "https://www.qemu.org/docs/master/system/invocation.html";
const BIG_VMS: &str = "A. Theurer, \"KVM and Big VMs\", KVM Forum 2012";

pub(crate) const TOPOLOGY_PRODUCT: Rule = Rule {
    id: "topology-product",
    severity: Severity::Error,
    summary: "the topology's product is not the number of vCPUs",
    why: "libvirt and QEMU refuse to start the VM: sockets x dies x clusters x cores x threads must \
          be the most vCPUs that it can have.",
    mend: "Make the product equal to the (maximal) number of vCPUs",
    sources: &[CPU, INVOCATION],
    affected: &[],
    check: Check::Vm(topology_product),
    fires: &[
        xml(
            ANY,
            "<vcpu>4</vcpu>\n<cpu mode='host-model'><topology sockets='1' cores='4' threads='2'/></cpu>\n",
        ).mended(&[("<vcpu>4", "<vcpu current='4'>8")]),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host -smp 4,sockets=1,cores=4,threads=2"),
    ],
    quiet: &[
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host -smp 4,sockets=1,cores=2,threads=2"),
    ],
};

fn topology_product(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let Some(topology) = &vm.topology
        && vm.kubevirt.is_none()
        && topology.value.vcpus() != vm.max_vcpus.value
    {
        let levels = &topology.value;
        out.at(
            topology.span,
            format!(
                "The topology has {} vCPUs ({} x {} x {} x {} x {}), the VM {}",
                levels.vcpus(),
                levels.sockets,
                levels.dies,
                levels.clusters,
                levels.cores,
                levels.threads,
                vm.max_vcpus.value
            ),
        );
    }
}

pub(crate) const TOPOLOGY_MISSING: Rule = Rule {
    id: "topology-missing",
    severity: Severity::Warning,
    summary: "the vCPUs are pinned one to one, but the guest has no topology",
    why: "Without a topology each vCPU is a socket of its own to the guest. Its scheduler then \
          hardly moves tasks between them, and pinning takes from the host's scheduler what it \
          could have done instead: measured slower than no pinning.",
    mend: "Add a topology that mirrors the pCPUs: <topology sockets='1' cores='N' threads='T'/>",
    sources: &["D. Faggioli et al., \"The cost of containerizing VMs\", KVM Forum 2021"],
    affected: &[],
    check: Check::Vm(topology_missing),
    fires: &[xml(
        ANY,
        "\
<vcpu>2</vcpu>
<cputune><vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='17'/></cputune>
<cpu mode='host-passthrough'/>
",
    )
    .mended(&[(
        "mode='host-passthrough'/",
        "mode='host-passthrough'><topology sockets='1' cores='1' threads='2'/></cpu",
    )])],
    quiet: &[],
};

fn topology_missing(vm: &Vm, _: &Context, out: &mut Drafts) {
    let pinned = vm.one_to_one().is_some_and(|pins| pins.len() > 1);
    if pinned && vm.topology.is_none() && vm.cells.is_empty() {
        let span = vm.cpu.as_ref().map_or(vm.vcpus.span, |cpu| cpu.span);
        out.at(span, format!("The guest sees {} sockets of one core", vm.vcpus.value));
    }
}

pub(crate) const THREADS_EXCEED_HOST: Rule = Rule {
    id: "threads-exceed-host",
    severity: Severity::Warning,
    summary: "a guest core has more threads than a core of the host",
    why: "The guest's scheduler avoids using both threads of a core while another is idle, and \
          shares caches between them, where really each vCPU has a core to itself. KubeVirt's \
          scheduler does not look at it.",
    mend: "Give the guest cores of as many threads as the host's cores have",
    sources: &["https://github.com/kubevirt/kubevirt/issues/11749", CPU],
    affected: &[],
    check: Check::Vm(threads_exceed_host),
    fires: &[
        xml(
            NO_SMT,
            "<vcpu>4</vcpu>\n<cpu mode='host-model'><topology sockets='1' cores='2' threads='2'/></cpu>\n",
        ).mended(&[("cores='2' threads='2'", "cores='4' threads='1'")]),
        qemu(NO_SMT, "qemu-system-x86_64 -accel kvm -cpu host -smp 4,sockets=1,cores=2,threads=2"),
        yaml(NO_SMT, "domain:\n  cpu:\n    cores: 2\n    threads: 2\n  devices: {}\n"),
    ],
    quiet: &[
        qemu(
            TWO_SOCKETS,
            "qemu-system-x86_64 -accel kvm -cpu host -smp 4,sockets=1,cores=2,threads=2",
        ),
        yaml(NO_SMT, "domain:\n  cpu:\n    cores: 4\n    threads: 1\n  devices: {}\n"),
    ],
};

fn threads_exceed_host(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(machine), Some(topology)) = (&context.machine, &vm.topology) else { return };
    let threads = topology.value.threads;
    if machine.online.is_empty() || threads as usize <= machine.threads_per_core {
        return;
    }
    let span = topology.value.threads_at.unwrap_or(topology.span);
    let draft = out.at(
        span,
        format!("{threads} threads a guest core; the host's have {}", machine.threads_per_core),
    );
    if let Some(cores_at) = topology.value.cores_at
        && machine.threads_per_core == 1
    {
        draft.suggest(span, "1");
        draft.suggest(cores_at, topology.value.cores.saturating_mul(threads).to_string());
    }
}

pub(crate) const AMD_THREADS_HIDDEN: Rule = Rule {
    id: "amd-threads-hidden",
    severity: Severity::Warning,
    summary: "on AMD the guest does not see its threads without the feature topoext",
    why: "A guest finds the threads of AMD's processors by the leaf that topoext announces, and \
          QEMU never switches that on by itself for -cpu host and max: the guest takes each thread \
          for a core, and QEMU prints one warning.",
    mend: "Ask for the feature topoext",
    sources: &[MODELS, "https://www.kernel.org/doc/html/latest/arch/x86/topology.html"],
    affected: &[],
    check: Check::Vm(amd_threads_hidden),
    fires: &[
        xml(
            AMD,
            "<vcpu>4</vcpu>\n<cpu mode='host-passthrough'><topology sockets='1' cores='2' threads='2'/></cpu>\n",
        ),
        qemu(AMD, "qemu-system-x86_64 -accel kvm -cpu host -smp 4,sockets=1,cores=2,threads=2")
            .mended(&[("-cpu host", "-cpu host,topoext=on")]),
        yaml(
            AMD,
            "domain:\n  cpu:\n    cores: 2\n    threads: 2\n    model: host-passthrough\n  devices: {}\n",
        ),
    ],
    quiet: &[
        xml(
            AMD,
            "\
<vcpu>4</vcpu>
<cpu mode='host-passthrough'>
  <topology sockets='1' cores='2' threads='2'/>
  <feature policy='require' name='topoext'/>
</cpu>
",
        ),
        yaml(
            AMD,
            "\
domain:
  cpu:
    cores: 2
    threads: 2
    model: host-passthrough
    features:
    - name: topoext
  devices: {}
",
        ),
    ],
};

fn is_host(cpu: &CpuView) -> bool {
    matches!(cpu.model.as_str(), "host" | "max" | "host-passthrough" | "maximum")
}

fn amd_threads_hidden(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(machine), Some(cpu)) = (&context.machine, &vm.cpu) else { return };
    if machine.is_amd() && vm.threads() > 1 && is_host(&cpu.value) && !cpu.value.has("topoext") {
        let at = vm.topology.as_ref().and_then(|topology| topology.value.threads_at);
        let draft = out.at(
            at.unwrap_or(cpu.span),
            format!("The guest will see cores instead of threads with {}", cpu.value.model),
        );
        if vm.format == crate::ConfigFormat::Qemu {
            let end = crate::Span { start: cpu.span.end, end: cpu.span.end };
            draft.suggest(end, ",topoext=on");
        }
    }
}

pub(crate) const MODEL_GENERIC: Rule = Rule {
    id: "cpu-model-generic",
    severity: Severity::Warning,
    summary: "the guest gets QEMU's oldest processor model",
    why: "qemu64 and kvm64 have no AVX, AES or CRC instructions and hide the host's real family: \
          cryptography and checksums run several times slower, and the guest's kernel applies \
          mitigations for processors that it isn't on. QEMU falls back to it when nobody says a \
          model.",
    mend: "Use the host's processor (host-passthrough, -cpu host), or a named model that all hosts \
           of the pool have",
    sources: &[MODELS],
    affected: &[],
    check: Check::Vm(model_generic),
    fires: &[
        xml(
            ANY,
            "<vcpu>1</vcpu>\n<os><type arch='x86_64'>hvm</type></os>\n<cpu mode='custom'><model>qemu64</model></cpu>\n",
        ),
        xml(ANY, "<memory unit='GiB'>1</memory>\n<vcpu>1</vcpu>\n<os><type>hvm</type></os>\n"),
        xml(
            ANY,
            "<memory unit='GiB'>1</memory>\n<vcpu>2</vcpu>\n<os><type arch='x86_64'>hvm</type></os>\n\
             <cpu><topology sockets='1' cores='2' threads='1'/></cpu>\n",
        ),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -smp 2"),
        qemu(ANY, "kvm -m 4G -smp 4"),
        conf(ANY, "scsihw: virtio-scsi-single\nsockets: 1\n"),
        yaml(ANY, "domain:\n  cpu:\n    model: kvm64\n  devices: {}\n"),
    ],
    quiet: &[
        xml(
            ANY,
            "<vcpu>1</vcpu>\n<os><type arch='x86_64'>hvm</type></os>\n<cpu mode='host-model'/>\n",
        ),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host -smp 2"),
        qemu(ANY, "kvm -m 4G -cpu qemu64,+aes,+popcnt,+pni,+sse4.1,+sse4.2,+ssse3,enforce"),
        conf(ANY, "cpu: x86-64-v2-AES\nsockets: 1\n"),
        yaml(ANY, "domain:\n  cpu:\n    model: host-model\n  devices: {}\n"),
    ],
};

/// Whether the features of a level of x86-64 (v2 and above) are added one by one: a
/// processor that all hosts of a pool have.
fn has_level(cpu: &CpuView) -> bool {
    let has = |names: &[&str]| names.iter().any(|name| cpu.has(name));
    has(&["popcnt"]) && has(&["sse4.2", "sse4-2", "sse4_2"])
}

fn model_generic(vm: &Vm, _: &Context, out: &mut Drafts) {
    if vm.accel.value != "kvm" || vm.is_arm() {
        return;
    }
    // On other architectures the default is another one.
    let is_x86 = vm.arch.as_ref().is_none_or(|arch| arch.value == "x86_64");
    // A part of a domain leaves to the rest of it what it does not say.
    let is_whole = vm.memory_bytes.is_some();
    match (&vm.cpu, vm.format) {
        (Some(cpu), _)
            if matches!(cpu.value.model.as_str(), "qemu64" | "kvm64" | "qemu32" | "kvm32")
                && !has_level(&cpu.value) =>
        {
            out.at(cpu.span, format!("The processor model is {}", cpu.value.model));
        }
        (None, ConfigFormat::Qemu | ConfigFormat::Proxmox) if is_x86 => {
            out.at(vm.head, "No -cpu: the guest gets qemu64");
        }
        (None, ConfigFormat::Libvirt) if is_x86 && is_whole => {
            out.at(vm.head, "No <cpu>: the guest gets qemu64");
        }
        (Some(cpu), ConfigFormat::Libvirt) if is_x86 && is_whole && cpu.value.model.is_empty() => {
            out.at(cpu.span, "<cpu> names no model and no mode: the guest gets qemu64");
        }
        _ => {}
    }
}

pub(crate) const PASSTHROUGH_MIGRATION: Rule = Rule {
    id: "passthrough-migration",
    severity: Severity::Hint,
    summary: "host-passthrough in a VM that is to migrate",
    why: "The guest sees this host's processor as it is, microcode and kernel included; on a target \
          that differs in any of it, migration is refused at best, and at worst the guest crashes \
          on an instruction that is gone.",
    mend: "Migrate only between identical hosts; else use host-model or a named model",
    sources: &[CPU, "https://kubevirt.io/user-guide/compute/live_migration/"],
    affected: &[],
    check: Check::Vm(passthrough_migration),
    fires: &[
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host -incoming tcp:0:4444"),
        yaml(
            ANY,
            "evictionStrategy: LiveMigrate\ndomain:\n  cpu:\n    model: host-passthrough\n  devices: {}\n",
        ),
    ],
    quiet: &[
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu EPYC-Rome -incoming tcp:0:4444"),
        yaml(
            ANY,
            "evictionStrategy: None\ndomain:\n  cpu:\n    model: host-passthrough\n  devices: {}\n",
        ),
    ],
};

fn passthrough_migration(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let (Some(cpu), Some(_)) = (&vm.cpu, vm.migrates)
        && is_host(&cpu.value)
        // KubeVirt has no other model there.
        && !(vm.is_arm() && vm.kubevirt.is_some())
    {
        out.at(
            cpu.span,
            format!("The VM is to migrate, with the processor model {}", cpu.value.model),
        );
    }
}

pub(crate) const INVTSC_MIGRATION: Rule = Rule {
    id: "invtsc-migration",
    severity: Severity::Warning,
    summary: "the invariant TSC without a frequency blocks migration",
    why: "An invariant TSC promises a constant rate for the guest's whole life; QEMU refuses to \
          migrate such a VM unless the rate was said at start, so that the target can scale to it.",
    mend: "Say the TSC's frequency (<timer name='tsc' frequency='...'/>, tsc-frequency=)",
    sources: &[MODELS, "https://docs.kernel.org/virt/kvm/x86/timekeeping.html"],
    affected: &[],
    check: Check::Vm(invtsc_migration),
    fires: &[
        xml(
            ANY,
            "<vcpu>1</vcpu>\n<cpu mode='host-passthrough' migratable='on'><feature policy='require' name='invtsc'/></cpu>\n",
        ),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu EPYC,+invtsc -incoming tcp:0:4444")
            .mended(&[("+invtsc", "+invtsc,tsc-frequency=2100000000")]),
    ],
    quiet: &[xml(
        ANY,
        "\
<vcpu>1</vcpu>
<cpu mode='host-model' migratable='on'><feature policy='require' name='invtsc'/></cpu>
<clock offset='utc'><timer name='tsc' frequency='2100000000'/></clock>
",
    )],
};

fn invtsc_migration(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let Some(cpu) = &vm.cpu
        && vm.may_migrate()
        && cpu.value.has("invtsc")
        && !cpu.value.tsc_frequency
        && vm.kubevirt.is_none()
    {
        out.at(cpu.span, "invtsc without a frequency: QEMU refuses to migrate this VM");
    }
}

pub(crate) const CELLS_COVER: Rule = Rule {
    id: "cells-cover",
    severity: Severity::Error,
    summary: "a vCPU is in two guest nodes, or one in a node does not exist",
    why: "libvirt and QEMU refuse a vCPU that is in two cells, and QEMU one that the VM does not \
          have.",
    mend: "List each vCPU in one cell, hot-pluggable ones too",
    sources: &[CPU, INVOCATION],
    affected: &[],
    check: Check::Vm(cells_cover),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>4</vcpu>
<cpu mode='host-model'><numa>
  <cell id='0' cpus='0-1' memory='1' unit='GiB'/>
  <cell id='1' cpus='1-2' memory='1' unit='GiB'/>
</numa></cpu>
",
        ).mended(&[("cpus='1-2'", "cpus='2-3'")]),
        qemu(
            ANY,
            "qemu-system-x86_64 -accel kvm -cpu host -smp 4 -m 2G -numa node,cpus=0-1 -numa node,cpus=1-3",
        ).mended(&[("cpus=1-3", "cpus=2-3")]),
    ],
    quiet: &[],
};

fn cells_cover(vm: &Vm, _: &Context, out: &mut Drafts) {
    // `-numa cpu` places vCPUs in another way, so no cell has any.
    let unknown = vm.vcpus_unknown || vm.max_vcpus.value > 65_536;
    if vm.cells.iter().all(|cell| cell.vcpus.is_empty()) || unknown {
        return;
    }
    let mut seen = PcpuSet::new();
    for cell in &vm.cells {
        let again = cell.vcpus.intersection(&seen);
        if !again.is_empty() {
            out.at(cell.span, format!("vCPU {again} is in another cell, too"));
        }
        let beyond: PcpuSet =
            cell.vcpus.iter().filter(|vcpu| *vcpu >= vm.max_vcpus.value).collect();
        if !beyond.is_empty() {
            let most = vm.max_vcpus.value;
            out.at(cell.span, format!("vCPU {beyond} does not exist: the VM has {most}"));
        }
        seen = seen.union(&cell.vcpus);
    }
}

pub(crate) const CELLS_INCOMPLETE: Rule = Rule {
    id: "cells-incomplete",
    severity: Severity::Warning,
    summary: "a vCPU is in no guest node",
    why: "QEMU puts it into node 0 with a warning that this will be refused, and libvirt says \
          nothing: the guest then uses memory of one node from vCPUs that were meant for another.",
    mend: "List each vCPU in one cell, hot-pluggable ones too",
    sources: &[CPU, INVOCATION],
    affected: &[],
    check: Check::Vm(cells_incomplete),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>4</vcpu>
<cpu mode='host-model'><numa>
  <cell id='0' cpus='0' memory='1' unit='GiB'/>
  <cell id='1' cpus='1-2' memory='1' unit='GiB'/>
</numa></cpu>
",
        ),
        qemu(
            ANY,
            "qemu-system-x86_64 -accel kvm -cpu host -smp 4 -m 2G -numa node,cpus=0-1 -numa node,cpus=2",
        ).mended(&[("cpus=2", "cpus=2-3")]),
    ],
    quiet: &[
        xml(
            ANY,
            "\
<vcpu>4</vcpu>
<cpu mode='host-model'><numa>
  <cell id='0' cpus='0-1' memory='1' unit='GiB'/>
  <cell id='1' cpus='2-3' memory='1' unit='GiB'/>
  <cell id='2' memory='1' unit='GiB'/>
</numa></cpu>
",
        ),
    ],
};

fn cells_incomplete(vm: &Vm, _: &Context, out: &mut Drafts) {
    let unknown = vm.vcpus_unknown || vm.max_vcpus.value > 65_536 || !vm.unread.is_empty();
    if vm.cells.iter().all(|cell| cell.vcpus.is_empty()) || unknown {
        return;
    }
    let seen = PcpuSet::union_of(vm.cells.iter().map(|cell| &cell.vcpus));
    let missing: PcpuSet = (0..vm.max_vcpus.value).filter(|vcpu| !seen.contains(*vcpu)).collect();
    if let Some(last) = vm.cells.last().filter(|_| !missing.is_empty()) {
        out.at(last.span, format!("No cell has vCPU {missing}"));
    }
}

pub(crate) const CELLS_MEMORY: Rule = Rule {
    id: "cells-memory",
    severity: Severity::Warning,
    summary: "the guest nodes' memory does not add up to the VM's",
    why: "QEMU refuses to start; libvirt silently takes the sum instead of what <memory> says.",
    mend: "Make the sum of the cells equal to the VM's memory",
    sources: &[CPU, INVOCATION],
    affected: &[],
    check: Check::Vm(cells_memory),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>2</vcpu>
<memory unit='GiB'>4</memory>
<cpu mode='host-model'><numa>
  <cell id='0' cpus='0' memory='1' unit='GiB'/>
  <cell id='1' cpus='1' memory='1' unit='GiB'/>
</numa></cpu>
",
        )
        .mended(&[("<memory unit='GiB'>4</memory>", "<memory unit='GiB'>2</memory>")]),
        qemu(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2 -m 4G \\
  -object memory-backend-ram,id=m0,size=1G -numa node,cpus=0-1,memdev=m0",
        )
        .mended(&[("size=1G", "size=4G")]),
    ],
    quiet: &[xml(
        ANY,
        "\
<vcpu>2</vcpu>
<memory unit='KiB'>6291500</memory>
<cpu mode='host-model'><numa>
  <cell id='0' cpus='0' memory='2097152' unit='KiB'/>
  <cell id='1' cpus='1' memory='2097200' unit='KiB'/>
</numa></cpu>
<devices>
  <memory model='dimm'><target><size unit='GiB'>2</size><node>0</node></target></memory>
</devices>
",
    )],
};

fn cells_memory(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(memory) = &vm.memory_bytes else { return };
    let parts: Option<Vec<u64>> = vm.cells.iter().map(|cell| cell.memory_bytes).collect();
    let Some(parts) = parts.filter(|parts| !parts.is_empty()) else { return };
    let sum = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(*part));
    // libvirt's cells are of whole MiB, and its <memory> counts modules too.
    let rounding = if vm.format == ConfigFormat::Libvirt { (parts.len() as u64) << 20 } else { 0 };
    let whole = [sum, sum.saturating_add(vm.module_bytes)];
    if !whole.iter().any(|whole| whole.abs_diff(memory.value) <= rounding) {
        out.at(
            memory.span,
            format!(
                "The VM has {}, its {} cells together {}",
                size(memory.value),
                parts.len(),
                size(sum)
            ),
        );
    }
}

pub(crate) const ONE_GUEST_NODE: Rule = Rule {
    id: "one-guest-node",
    severity: Severity::Warning,
    summary: "a VM that spans host nodes has one guest node",
    why: "The guest's kernel splits locks, free lists and page lists by node. With one node for \
          vCPUs of many, 80 vCPUs compiled a kernel in 292 s; with the host's four in 189 s, because \
          of locks alone. And without nodes the guest can't keep memory near the vCPU that uses it.",
    mend: "Give the guest a cell for each host node that it spans, with memory bound there \
           (KubeVirt: cpu.numa.guestMappingPassthrough with huge pages)",
    sources: &[BIG_VMS],
    affected: &[],
    check: Check::Vm(one_guest_node),
    fires: &[
        xml(TWO_SOCKETS, "<vcpu>24</vcpu>\n"),
        qemu(TWO_SOCKETS, "qemu-system-x86_64 -accel kvm -cpu host -smp 24"),
        yaml(TWO_SOCKETS, "domain:\n  cpu:\n    cores: 24\n  devices: {}\n"),
    ],
    quiet: &[
        xml(
            TWO_SOCKETS,
            "\
<vcpu>24</vcpu>
<memory unit='GiB'>8</memory>
<cpu mode='host-model'><numa>
  <cell id='0' cpus='0-11' memory='4' unit='GiB'/>
  <cell id='1' cpus='12-23' memory='4' unit='GiB'/>
</numa></cpu>
",
        ),
        qemu(TWO_SOCKETS, "qemu-system-x86_64 -accel kvm -cpu host -smp 16"),
        yaml(
            TWO_SOCKETS,
            "\
domain:
  cpu:
    cores: 24
    dedicatedCpuPlacement: true
    numa:
      guestMappingPassthrough: {}
  memory:
    guest: 8Gi
    hugepages:
      pageSize: 2Mi
  devices: {}
",
        ),
    ],
};

fn one_guest_node(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let nodes = machine.nodes();
    if nodes.len() < 2
        || vm.cells.len() > 1
        || vm.kube("domain.cpu.numa.guestMappingPassthrough").is_some()
    {
        return;
    }
    let vcpus = vm.vcpus.value as usize;
    if vcpus > machine.widest_node() && vcpus <= machine.online.len() {
        out.at(
            vm.vcpus.span,
            format!(
                "{vcpus} vCPUs need more than one host node (of {} pCPUs), and the guest sees one",
                machine.widest_node()
            ),
        );
    }
}

pub(crate) const CELL_DISTANCES: Rule = Rule {
    id: "cell-distances",
    severity: Severity::Hint,
    summary: "guest nodes without distances on a host whose nodes are not equally far",
    why: "The guest takes all other nodes for equally far (20) and spreads over them alike, where \
          the host has near and far ones.",
    mend: "Add the host's distances to the cells (<distances>, -numa dist)",
    sources: &[CPU],
    affected: &[],
    check: Check::Vm(cell_distances),
    fires: &[xml(
        FAR_NODES,
        "\
<vcpu>3</vcpu>
<cpu mode='host-model'><numa>
  <cell id='0' cpus='0' memory='1' unit='GiB'/>
  <cell id='1' cpus='1' memory='1' unit='GiB'/>
  <cell id='2' cpus='2' memory='1' unit='GiB'/>
</numa></cpu>
",
    )
    .mended(&[
        ("<vcpu>3</vcpu>", "<vcpu>2</vcpu>"),
        ("  <cell id='2' cpus='2' memory='1' unit='GiB'/>\n", ""),
    ])],
    quiet: &[],
};

fn cell_distances(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let far: std::collections::BTreeSet<u32> = machine
        .host
        .nodes
        .iter()
        .flat_map(|node| node.distances.values().copied())
        .filter(|distance| *distance > 10)
        .collect();
    if vm.cells.len() > 2 && far.len() > 1 && !vm.cells.iter().any(|cell| cell.distances) {
        out.at(vm.cells[0].span, "The guest takes all its nodes for equally far");
    }
}
