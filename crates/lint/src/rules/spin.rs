//! Pause-loop exits: what the host does when a vCPU spins.

use crate::context::{Context, HostLookup};
use crate::finding::{Drafts, Severity};
use crate::fleet::{FleetDrafts, SharedHostVm};
use crate::rule::{Check, Rule, qemu, running, xml, yaml};
use crate::rules::neighbours::all_vcpus;
use crate::rules::worlds::{PLE, PLE_OFF};
use crate::vm::Vm;

const BIG_VMS: &str = "A. Theurer, \"KVM and Big VMs\", KVM Forum 2012";
const PARAMETERS: &str = "https://docs.kernel.org/admin-guide/kernel-parameters.html";

/// VMs of this size and more suffer from pause-loop exits in the cited talk.
const BIG_VCPUS: u32 = 16;
/// vCPUs up to which the defaults work well in the cited talk.
const FINE_VCPUS: u32 = 10;

/// The processor's knob for how long a vCPU may spin before it exits, with the
/// kernel's default: `(module, parameter, default)`.
fn window(machine: &HostLookup) -> Option<(&'static str, &'static str, u32)> {
    let on = |name: &str| machine.kvm_parameter(name).is_some_and(|value| value != "0");
    if on("ple_gap") {
        Some(("kvm_intel", "ple_window", 4096))
    } else if on("pause_filter_count") {
        Some(("kvm_amd", "pause_filter_count", 3000))
    } else {
        None
    }
}

/// The default stretched as the wait behind the others is: with as many times
/// the vCPUs, a lock that everybody wants comes round as many times later.
fn target(default: u32, vcpus: u32) -> u32 {
    let stretched = u64::from(default) * u64::from(vcpus) / u64::from(FINE_VCPUS);
    u32::try_from(stretched.next_power_of_two()).unwrap_or(u32::MAX)
}

const TWO_BIG: &str = "\
<domains>
<domain type='kvm'><name>one</name><vcpu>20</vcpu></domain>
<domain type='kvm'><name>two</name><vcpu>20</vcpu></domain>
</domains>
";

const TWO_BIG_YAML: &str = "\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: one
spec:
  domain:
    cpu:
      cores: 20
    devices: {}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: two
spec:
  domain:
    cpu:
      cores: 20
    devices: {}
";

pub(crate) const PLE_BIG_VM: Rule = Rule {
    id: "ple-big-vm",
    severity: Severity::Warning,
    summary: "a big VM on an overcommitted host, with a short pause-loop window",
    why: "A vCPU that spins longer than the window leaves to the host, which looks for a sibling to \
          yield to: more candidates in a bigger VM, most of them wrong, each tried under run-queue \
          locks. At 10 vCPUs and twice the host's pCPUs that worked very well with the default \
          window; at 20 vCPUs it took over half of all time. A vCPU waits for the others in front of \
          it, so the window that tells waiting from a preempted lock holder grows with their number: \
          default x vCPUs / 10, the next power of two.",
    mend: "Don't overcommit big VMs; else widen the window and measure",
    sources: &[BIG_VMS, PARAMETERS],
    affected: &[],
    check: Check::Fleet(ple_big_vm),
    fires: &[xml(PLE, TWO_BIG), yaml(PLE, TWO_BIG_YAML)],
    quiet: &[
        xml(PLE, "<vcpu>20</vcpu>\n"),
        yaml(PLE, "domain:\n  cpu:\n    cores: 20\n  devices: {}\n"),
    ],
};

/// The biggest VM, where all together have more vCPUs than the host pCPUs.
fn biggest_overcommitted<'a>(
    vms: &'a [SharedHostVm],
    machine: &HostLookup,
) -> Option<&'a SharedHostVm> {
    let biggest = vms.iter().filter(|vm| vm.kvm).max_by_key(|vm| vm.vcpus)?;
    (!machine.online.is_empty() && all_vcpus(vms) > machine.online.len() as u64).then_some(biggest)
}

fn ple_big_vm(vms: &[SharedHostVm], context: &Context, out: &mut FleetDrafts<'_>) {
    let Some(machine) = &context.machine else { return };
    let (Some(big), Some((module, parameter, default))) =
        (biggest_overcommitted(vms, machine), window(machine))
    else {
        return;
    };
    let now = machine.kvm_parameter(parameter).and_then(|value| value.parse().ok());
    let now: u32 = now.unwrap_or(default);
    let wanted = target(default, big.vcpus);
    if big.vcpus < BIG_VCPUS || now >= wanted {
        return;
    }
    let (vcpus, all, pcpus) = (big.vcpus, all_vcpus(vms), machine.online.len());
    let message =
        format!("{} has {vcpus} vCPUs, and all VMs together {all} on {pcpus} pCPUs", big.name);
    let notes = vec![
        format!("{module}.{parameter} is {now}; for {vcpus} vCPUs begin with {wanted}"),
        format!("{default} x {vcpus} / {FINE_VCPUS}, the next power of two"),
    ];
    out.at(big, message, notes);
}

pub(crate) const PLE_OFF_OVERCOMMITTED: Rule = Rule {
    id: "ple-off-overcommitted",
    severity: Severity::Warning,
    summary: "pause-loop exits are off on an overcommitted host",
    why: "A vCPU that waits for a lock whose holder was preempted then spins to the end of its \
          slice. Eight VMs of 20 vCPUs at twice the host's pCPUs moved 394 MB/s like that, and 8175 \
          MB/s with the exits on.",
    mend: "Switch them on (kvm_intel.ple_gap=128, kvm_amd.pause_filter_count=3000), or don't \
           overcommit",
    sources: &[BIG_VMS, PARAMETERS],
    affected: &[],
    check: Check::Fleet(ple_off),
    fires: &[xml(PLE_OFF, TWO_BIG), yaml(PLE_OFF, TWO_BIG_YAML)],
    quiet: &[
        xml(PLE_OFF, "<vcpu>20</vcpu>\n"),
        yaml(PLE_OFF, "domain:\n  cpu:\n    cores: 20\n  devices: {}\n"),
    ],
};

fn ple_off(vms: &[SharedHostVm], context: &Context, out: &mut FleetDrafts<'_>) {
    let Some(machine) = &context.machine else { return };
    let off = ["ple_gap", "pause_filter_count"]
        .into_iter()
        .find(|name| machine.kvm_parameter(name) == Some("0"));
    if let (Some(off), Some(big)) = (off, biggest_overcommitted(vms, machine))
        && big.vcpus > 1
    {
        let (all, pcpus) = (all_vcpus(vms), machine.online.len());
        out.at(big, format!("{off}=0, and {all} vCPUs share {pcpus} pCPUs"), Vec::new());
    }
}

pub(crate) const PLE_FOR_NOTHING: Rule = Rule {
    id: "ple-for-nothing",
    severity: Severity::Hint,
    summary: "a big VM with pCPUs of its own pays for pause-loop exits",
    why: "With a pCPU for each vCPU no lock holder is ever preempted, so every exit of a spinning \
          vCPU finds nobody to yield to, and finding that out is dear: an 80-vCPU VM without \
          overcommit booted in 369 s with the exits and in 25 s without (Linux 3.6; later kernels \
          are better at it).",
    mend: "Switch the exits off for this VM alone: -overcommit cpu-pm=on (which keeps HLT in the \
           guest, too); for the whole host kvm_intel.ple_gap=0, kvm_amd.pause_filter_count=0",
    sources: &[BIG_VMS, PARAMETERS],
    affected: &[],
    check: Check::Vm(ple_for_nothing),
    fires: &[
        qemu(PLE, "taskset -c 0-15 qemu-system-x86_64 -accel kvm -cpu host -smp 16")
            .mended(&[("-smp 16", "-smp 16 -overcommit cpu-pm=on")]),
        running(
            PLE,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 16
# is: vCPU ?: pCPUs 0-15
",
        )
        .mended(&[("?: pCPUs 0-15", "?: any pCPU (0-31)")]),
    ],
    quiet: &[],
};

fn ple_for_nothing(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let own = vm.one_to_one().map(|_| vm.pinned().len());
    let room = own.or(vm.affinity.as_ref().map(|set| set.value.len())).unwrap_or(0);
    let cpu_pm = vm.cpu_pm.as_ref().is_some_and(|on| on.value);
    if let Some((module, parameter, _)) = window(machine)
        && vm.accel.value == "kvm"
        && vm.vcpus.value >= BIG_VCPUS
        && room >= vm.vcpus.value as usize
        && !cpu_pm
    {
        out.at(vm.vcpus.span, format!("{} vCPUs on {room} pCPUs of their own", vm.vcpus.value))
            .note(format!("{module}.{parameter} has the exits on"));
    }
}
