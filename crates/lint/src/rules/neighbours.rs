//! Several VMs on one host.

use std::collections::{BTreeMap, BTreeSet};

use crate::context::Context;
use crate::finding::Severity;
use crate::fleet::{FleetDrafts, SharedHostVm};
use crate::rule::{Check, Rule, qemu, running, xml};
use crate::rules::worlds::{ANY, FOUR_CORES, TWO_SOCKETS};

const CPUTUNE: &str = "https://libvirt.org/formatdomain.html#cpu-tuning";
const BIG_VMS: &str = "A. Theurer, \"KVM and Big VMs\", KVM Forum 2012";

pub(crate) const VMS_SHARE_PCPU: Rule = Rule {
    id: "vms-share-pcpu",
    severity: Severity::Warning,
    summary: "vCPUs of two VMs are pinned to one pCPU",
    why: "Pinning promises a pCPU of one's own. Two vCPUs on one take turns in slices of \
          milliseconds, and the host's scheduler may not move either away, however idle the rest is.",
    mend: "Give each VM its own pCPUs (`vmlab plan` does that for a list of VMs)",
    sources: &[CPUTUNE],
    affected: &[],
    check: Check::Fleet(vms_share_pcpu),
    fires: &[xml(ANY, "\
<domains>
<domain type='kvm'><name>one</name><vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='2'/></cputune></domain>
<domain type='kvm'><name>two</name><vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='2'/></cputune></domain>
</domains>
"),
        running(ANY, "\
# vmlab: running 1
qemu-system-x86_64 -accel kvm -cpu host -name one
# is: vCPU 0: pCPU 2
# vmlab: running 2
qemu-system-x86_64 -accel kvm -cpu host -name two
# is: vCPU 0: pCPU 2
"),
    ],
    quiet: &[xml(ANY, "\
<domains>
<domain type='kvm'><name>one</name><vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='2'/></cputune></domain>
<domain type='kvm'><name>two</name><vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='3'/></cputune></domain>
</domains>
"),
        running(ANY, "\
# vmlab: running 1
qemu-system-x86_64 -accel kvm -cpu host -name one
# is: vCPU 0: pCPU 2
# vmlab: running 2
qemu-system-x86_64 -accel kvm -cpu host -name two
# is: vCPU 0: pCPU 3
"),
    ],
};

/// pCPU that a VM has pinned a vCPU to alone, and by which pin.
fn sole_pins(vm: &SharedHostVm) -> impl Iterator<Item = (u32, usize)> {
    vm.pins
        .iter()
        .enumerate()
        .filter(|(_, pin)| pin.pcpus.len() == 1)
        .filter_map(|(index, pin)| Some((pin.pcpus.first()?, index)))
}

/// Files may hold the same VM twice: a copy is no neighbour. Processes are
/// different, whatever their names.
fn are_different(one: &SharedHostVm, two: &SharedHostVm) -> bool {
    one.name != two.name || (one.live.is_some() && one.file != two.file)
}

fn vms_share_pcpu(vms: &[SharedHostVm], _: &Context, out: &mut FleetDrafts<'_>) {
    let mut owners: BTreeMap<u32, usize> = BTreeMap::new();
    for (at, vm) in vms.iter().enumerate() {
        let taken = sole_pins(vm).find_map(|(pcpu, pin)| {
            let owner = owners.get(&pcpu).filter(|owner| are_different(&vms[**owner], vm))?;
            Some((pcpu, pin, *owner))
        });
        if let Some((pcpu, pin, owner)) = taken {
            let (pin, other) = (&vm.pins[pin], &vms[owner]);
            let vcpu = pin.vcpu;
            let message = format!(
                "vCPU {vcpu} of {} is on pCPU {pcpu}, as one of {} is",
                vm.name, other.name
            );
            out.at_pin(vm, pin, message, vec![format!("{} is in {}", other.name, other.file)]);
        }
        for (pcpu, _) in sole_pins(vm) {
            owners.entry(pcpu).or_insert(at);
        }
    }
}

pub(crate) const VMS_SHARE_CORE: Rule = Rule {
    id: "vms-share-core",
    severity: Severity::Warning,
    summary: "vCPUs of two VMs are pinned to threads of one core",
    why: "Each takes up to half of the other's speed, by turns and invisibly; and the threads of a \
          core share the caches and buffers through which one guest can spy on another.",
    mend: "Give whole cores to VMs",
    sources: &["https://docs.kernel.org/admin-guide/hw-vuln/core-scheduling.html", CPUTUNE],
    affected: &[],
    check: Check::Fleet(vms_share_core),
    fires: &[xml(TWO_SOCKETS, "\
<domains>
<domain type='kvm'><name>one</name><vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='2'/></cputune></domain>
<domain type='kvm'><name>two</name><vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='18'/></cputune></domain>
</domains>
").mended(&[("cpuset='18'", "cpuset='3'")]),
        running(TWO_SOCKETS, "\
# vmlab: running 1
qemu-system-x86_64 -accel kvm -cpu host -name one
# is: vCPU 0: pCPU 2
# vmlab: running 2
qemu-system-x86_64 -accel kvm -cpu host -name two
# is: vCPU 0: pCPU 18
").mended(&[("pCPU 18", "pCPU 3")]),
    ],
    quiet: &[],
};

fn vms_share_core(vms: &[SharedHostVm], context: &Context, out: &mut FleetDrafts<'_>) {
    let Some(machine) = &context.machine else { return };
    let mut owners: BTreeMap<usize, (usize, u32)> = BTreeMap::new();
    for (at, vm) in vms.iter().enumerate() {
        let mut mine = BTreeSet::new();
        let mut told = false;
        for (pcpu, pin) in sole_pins(vm) {
            let Some(core) = machine.core(pcpu) else { continue };
            mine.insert((core, pcpu));
            let Some((owner, theirs)) = owners.get(&core) else { continue };
            let other = &vms[*owner];
            if told || *theirs == pcpu || !are_different(other, vm) {
                continue;
            }
            told = true;
            let pin = &vm.pins[pin];
            let vcpu = pin.vcpu;
            let message = format!(
                "vCPU {vcpu} of {} is on pCPU {pcpu}, a sibling of pCPU {theirs} of {}",
                vm.name, other.name
            );
            out.at_pin(vm, pin, message, vec![format!("{} is in {}", other.name, other.file)]);
        }
        for (core, pcpu) in mine {
            owners.entry(core).or_insert((at, pcpu));
        }
    }
}

pub(crate) const NEIGHBOUR_LOOSE: Rule = Rule {
    id: "neighbour-unpinned",
    severity: Severity::Warning,
    summary: "nothing keeps an unpinned VM away from the pCPUs of a pinned one",
    why: "A pin keeps a vCPU on its pCPU; it keeps nobody else off. The host's scheduler puts vCPUs \
          that may run anywhere there as well, and the pinned one can't move away.",
    mend: "Keep VMs without pins to other pCPUs (a cpuset for them all, <vcpu cpuset='...'>), or \
           isolate the pinned ones' (isolcpus=, an isolated cpuset)",
    sources: &[CPUTUNE, "https://docs.kernel.org/admin-guide/cgroup-v2.html"],
    affected: &[],
    check: Check::Fleet(neighbour_loose),
    fires: &[
        xml(TWO_SOCKETS, "\
<domains>
<domain type='kvm'><name>one</name><vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='2'/></cputune></domain>
<domain type='kvm'><name>two</name><vcpu>1</vcpu></domain>
</domains>
"),
        running(TWO_SOCKETS, "\
# vmlab: running 1
qemu-system-x86_64 -accel kvm -cpu host -name one
# is: vCPU 0: pCPU 2
# vmlab: running 2
qemu-system-x86_64 -accel kvm -cpu host -name two
# is: vCPU 0: any pCPU (0-31)
").mended(&[("any pCPU (0-31)", "pCPUs 8-15")]),
    ],
    quiet: &[
        xml(TWO_SOCKETS, "\
<domains>
<domain type='kvm'><name>one</name><vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='2'/></cputune></domain>
<domain type='kvm'><name>two</name><vcpu cpuset='8-15'>1</vcpu></domain>
</domains>
"),
    ],
};

fn neighbour_loose(vms: &[SharedHostVm], context: &Context, out: &mut FleetDrafts<'_>) {
    let Some(machine) = &context.machine else { return };
    let isolated = machine.host.isolated.clone().unwrap_or_default();
    let loose: Vec<&SharedHostVm> = vms.iter().filter(|vm| vm.floats).collect();
    for vm in vms.iter().filter(|vm| !vm.floats) {
        let sole = sole_pins(vm).find(|(pcpu, _)| !isolated.contains(*pcpu));
        let Some((_, pin)) = sole else { continue };
        let mut others = loose.iter().filter(|other| are_different(other, vm));
        let Some(first) = others.next() else { continue };
        let more = match others.count() {
            0 => String::new(),
            more => format!(" and of {more} more"),
        };
        let message = format!(
            "{} is pinned, and the vCPUs of {}{more} may run there too",
            vm.name, first.name
        );
        out.at_pin(
            vm,
            &vm.pins[pin],
            message,
            vec![format!("{} is in {}", first.name, first.file)],
        );
    }
}

pub(crate) const HOST_OVERCOMMITTED: Rule = Rule {
    id: "host-overcommitted",
    severity: Severity::Hint,
    summary: "the VMs together have more vCPUs than the host has pCPUs",
    why: "That is fine while most are idle. When they are not, vCPUs are preempted while they hold \
          locks, and the guests see time stolen.",
    mend: "Place fewer VMs on the host, or expect its throughput to be shared",
    sources: &[BIG_VMS, "https://docs.kernel.org/virt/kvm/x86/cpuid.html"],
    affected: &[],
    check: Check::Fleet(host_overcommitted),
    fires: &[
        xml(
            FOUR_CORES,
            "\
<domains>
<domain type='kvm'><name>one</name><vcpu>4</vcpu></domain>
<domain type='kvm'><name>two</name><vcpu>4</vcpu></domain>
</domains>
",
        ),
        qemu(
            FOUR_CORES,
            "\
qemu-system-x86_64 -name one -accel kvm -cpu host -smp 4
qemu-system-x86_64 -name two -accel kvm -cpu host -smp 4",
        ),
    ],
    quiet: &[
        xml(
            FOUR_CORES,
            "\
<domains>
<domain type='kvm'><name>one</name><vcpu>2</vcpu></domain>
<domain type='kvm'><name>two</name><vcpu>2</vcpu></domain>
</domains>
",
        ),
        qemu(
            FOUR_CORES,
            "\
qemu-system-x86_64 -name one -accel kvm -cpu host -smp 2
qemu-system-x86_64 -name two -accel kvm -cpu host -smp 2",
        ),
    ],
};

/// vCPUs of all VMs, each counted once by its name.
pub(super) fn all_vcpus(vms: &[SharedHostVm]) -> u64 {
    let key = |vm: &SharedHostVm| (vm.name.clone(), vm.live.as_ref().map(|_| vm.file.clone()));
    let by_name: BTreeMap<_, u32> = vms.iter().map(|vm| (key(vm), vm.vcpus)).collect();
    by_name.values().map(|vcpus| u64::from(*vcpus)).sum()
}

fn host_overcommitted(vms: &[SharedHostVm], context: &Context, out: &mut FleetDrafts<'_>) {
    let Some(machine) = &context.machine else { return };
    let (vcpus, online) = (all_vcpus(vms), machine.online.len());
    if let [_, .., last] = vms
        && online > 0
        && vcpus > online as u64
    {
        let message = format!("{} VMs have {vcpus} vCPUs on {online} pCPUs", vms.len());
        out.at(last, message, Vec::new());
    }
}
