//! Idling, spinning, time: what a guest does instead of leaving to the host.

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, qemu, running, xml, yaml};
use crate::rules::worlds::{ANY, HPET_HOST, OLD_KERNEL, ONLY_PAUSE, TWO_SOCKETS};
use crate::version::ReleaseVersion;
use crate::vm::Vm;

const OVERCOMMIT: &str = "https://www.qemu.org/docs/master/system/invocation.html";
const DEDICATED: &str = "https://docs.kernel.org/virt/kvm/x86/cpuid.html";

/// Domains with QEMU's own namespace, pinned and not.
const CPU_PM_FLOATS: &str = "\
<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
<name>example</name>
<vcpu>2</vcpu>
<qemu:commandline>
  <qemu:arg value='-overcommit'/>
  <qemu:arg value='cpu-pm=on'/>
</qemu:commandline>
</domain>
";
const CPU_PM_PINNED: &str = "\
<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
<name>example</name>
<vcpu>2</vcpu>
<cputune>
  <vcpupin vcpu='0' cpuset='10'/>
  <vcpupin vcpu='1' cpuset='11'/>
</cputune>
<qemu:commandline>
  <qemu:arg value='-overcommit'/>
  <qemu:arg value='cpu-pm=on'/>
</qemu:commandline>
</domain>
";

fn cpu_pm(vm: &Vm) -> Option<vmconfig::source::Span> {
    vm.cpu_pm.as_ref().filter(|on| on.value).map(|on| on.span)
}

pub(crate) const CPU_PM_UNPINNED: Rule = Rule {
    id: "cpu-pm-unpinned",
    severity: Severity::Warning,
    summary: "cpu-pm=on without pins of the VM's own",
    why: "With cpu-pm the guest's HLT, MWAIT and PAUSE no longer leave to the host: an idle vCPU \
          keeps its pCPU, the host sees it as fully busy, and whatever else runs there waits. \
          Measured on hosts without pins it raises latency and lowers the total.",
    mend: "Pin each vCPU to a pCPU that nothing else uses, or leave cpu-pm off",
    sources: &["\"Dedicated vCPU guest, overcommit cpu-pm feature test results\"", OVERCOMMIT],
    affected: &[],
    check: Check::Vm(cpu_pm_unpinned),
    fires: &[
        xml(ANY, CPU_PM_FLOATS),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host -smp 2 -overcommit cpu-pm=on")
            .mended(&[("qemu-system-x86_64", "taskset -c 2,3 qemu-system-x86_64")]),
        running(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2 -overcommit cpu-pm=on
# is: vCPU 0: any pCPU (0-31)
# is: vCPU 1: any pCPU (0-31)
",
        )
        .mended(&[("any pCPU (0-31)", "pCPU 1"), ("any pCPU (0-31)", "pCPU 2")]),
    ],
    quiet: &[xml(ANY, CPU_PM_PINNED)],
};

fn cpu_pm_unpinned(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let Some(span) = cpu_pm(vm)
        && !vm.is_pinned()
    {
        out.at(span, "Idle vCPUs keep their pCPUs, and nothing says which those are");
    }
}

pub(crate) const CPU_PM_SHARED: Rule = Rule {
    id: "cpu-pm-shared",
    severity: Severity::Warning,
    summary: "cpu-pm=on, but something else is pinned to a vCPU's pCPU",
    why: "An idle vCPU does not give its pCPU back: the other thread only gets what the host's \
          scheduler takes away from the vCPU, in slices of milliseconds.",
    mend: "Give each vCPU a pCPU of its own, and the emulator thread and iothreads others",
    sources: &["\"Dedicated vCPU guest, overcommit cpu-pm feature test results\"", OVERCOMMIT],
    affected: &[],
    check: Check::Vm(cpu_pm_shared),
    fires: &[
        xml(
            ANY,
            "\
<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
<name>example</name>
<vcpu>2</vcpu>
<cputune>
  <vcpupin vcpu='0' cpuset='10-11'/>
  <vcpupin vcpu='1' cpuset='10-11'/>
</cputune>
<qemu:commandline>
  <qemu:arg value='-overcommit'/>
  <qemu:arg value='cpu-pm=on'/>
</qemu:commandline>
</domain>
",
        ),
        running(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2 -overcommit cpu-pm=on
# is: vCPU 0: pCPU 1
# is: vCPU 1: pCPU 2
# is: emulator: any pCPU (0-31)
",
        )
        .mended(&[("any pCPU (0-31)", "pCPU 0")]),
    ],
    quiet: &[xml(ANY, CPU_PM_PINNED)],
};

fn cpu_pm_shared(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(span) = cpu_pm(vm).filter(|_| !vm.pins.is_empty()) else { return };
    let pinned = vm.pinned();
    let mut others = vm.emulator.iter().chain(vm.iothread_pins.iter().map(|pin| &pin.pcpus));
    if let Some(one) = vm.live_pins().iter().find(|pin| pin.pcpus.value.len() > 1) {
        out.at(
            one.pcpus.span,
            format!("vCPU {} moves over pCPUs {} and idles on them", one.id.value, one.pcpus.value),
        );
    } else if vm.one_to_one().is_some_and(|pins| pinned.len() < pins.len()) {
        out.at(span, "Two vCPUs share a pCPU, and neither gives it back when idle");
    } else if let Some(other) = others.find(|set| !set.value.is_disjoint(&pinned)) {
        out.at(other.span, "This thread waits for a vCPU that does not give its pCPU back");
    }
}

pub(crate) const CPU_PM_IGNORED: Rule = Rule {
    id: "cpu-pm-ignored",
    severity: Severity::Warning,
    summary: "cpu-pm=on has no effect here, and nobody says so",
    why: "QEMU asks KVM to let HLT, MWAIT and PAUSE stay in the guest. Where the kernel can't \
          (before Linux 4.17, or with the mitigation for cross-thread return predictions), QEMU \
          prints one line at most and goes on; without KVM and on Arm the option is not even \
          looked at. The VM runs as with cpu-pm=off.",
    mend: "Check with the counters halt_exits and exits of a running VM; update the kernel",
    sources: &[
        "\"Dedicated vCPU guest, overcommit cpu-pm feature test results\"",
        "https://docs.kernel.org/virt/kvm/api.html",
        "https://docs.kernel.org/admin-guide/hw-vuln/cross-thread-rsb.html",
    ],
    affected: &[],
    check: Check::Vm(cpu_pm_ignored),
    fires: &[
        xml(OLD_KERNEL, CPU_PM_PINNED),
        xml(ONLY_PAUSE, CPU_PM_PINNED),
        qemu(ANY, "taskset -c 2,3 qemu-system-x86_64 -accel tcg -smp 2 -overcommit cpu-pm=on")
            .mended(&[("-accel tcg", "-accel kvm -cpu host")]),
        qemu(
            ANY,
            "\
# vmlab: running 1
qemu-system-x86_64 -accel kvm -cpu host -smp 1 -overcommit cpu-pm=on
# is: vCPU 0: pCPU 1
# is: halt exits: 1526
# asked: halt exits: 0
",
        )
        .mended(&[("exits: 1526", "exits: 0")]),
    ],
    quiet: &[xml(TWO_SOCKETS, CPU_PM_PINNED)],
};

fn cpu_pm_ignored(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(span) = cpu_pm(vm) else { return };
    let machine = context.machine.as_ref();
    let old = machine
        .and_then(|machine| machine.kernel())
        .filter(|kernel| *kernel < ReleaseVersion(4, 17, 0));
    let mitigated = machine
        .and_then(|machine| machine.kvm_parameter("mitigate_smt_rsb"))
        .is_some_and(|value| value == "Y");
    let left_out = machine.and_then(|machine| machine.exits_to_disable());
    let halts = vm.live.as_ref().and_then(|live| live.halt_exits());
    if let Some((exits, is)) = halts.filter(|(exits, _)| *exits > 0) {
        out.at(is, format!("{exits} halts left the guest since it began"));
    } else if halts.is_some() {
        // What was counted says more than what is known of the host.
    } else if vm.accel.value != "kvm" {
        out.at(span, format!("cpu-pm needs KVM; the accelerator is {}", vm.accel.value));
    } else if vm.is_arm() {
        out.at(span, "QEMU does not look at cpu-pm on Arm");
    } else if let Some(kernel) = old {
        out.at(span, format!("Linux {}.{} can't disable these exits", kernel.0, kernel.1));
    } else if mitigated {
        out.at(span, "kvm.mitigate_smt_rsb keeps HLT and MWAIT exits on");
    } else if let Some(exits) = left_out.filter(|exits| !exits.iter().any(|exit| exit == "HLT")) {
        let can = if exits.is_empty() { "no exits" } else { &exits.join(", ") };
        out.at(
            span,
            format!("KVM says that it can leave out {can} here, and HLT is not among them"),
        );
    }
}

pub(crate) const CPU_PM_MIGRATION: Rule = Rule {
    id: "cpu-pm-migration",
    severity: Severity::Warning,
    summary: "cpu-pm=on in a VM that is to migrate",
    why: "The target needs the option too: a QEMU before 3.0 refuses the command line and the \
          migration fails; a kernel without the ability takes the VM and silently runs it as with \
          cpu-pm=off. MWAIT shown to the guest must exist on every target.",
    mend: "Migrate only between hosts of one kernel and QEMU, or leave cpu-pm off",
    sources: &["\"Dedicated vCPU guest, overcommit cpu-pm feature test results\""],
    affected: &[],
    check: Check::Vm(cpu_pm_migration),
    fires: &[
        xml(
            ANY,
            "\
<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
<name>example</name>
<vcpu>1</vcpu>
<cputune><vcpupin vcpu='0' cpuset='10'/></cputune>
<cpu mode='host-passthrough' migratable='on'/>
<qemu:commandline>
  <qemu:arg value='-overcommit'/>
  <qemu:arg value='cpu-pm=on'/>
</qemu:commandline>
</domain>
",
        ),
        qemu(
            ANY,
            "taskset -c 2 qemu-system-x86_64 -accel kvm -cpu EPYC -overcommit cpu-pm=on -incoming tcp:0:4444",
        ),
    ],
    quiet: &[
        xml(ANY, CPU_PM_PINNED),
        qemu(ANY, "taskset -c 2 qemu-system-x86_64 -accel kvm -cpu EPYC -overcommit cpu-pm=on"),
    ],
};

fn cpu_pm_migration(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let Some(span) = cpu_pm(vm).filter(|_| vm.may_migrate()) {
        out.at(span, "Every host that this VM migrates to must know and support cpu-pm");
    }
}

pub(crate) const IDLE_POLL_UNPINNED: Rule = Rule {
    id: "idle-poll-unpinned",
    severity: Severity::Warning,
    summary: "the guest polls when idle, and its vCPUs are not pinned",
    why: "With idle=poll every vCPU is busy all the time for the host. On shared pCPUs it takes \
          turns with real work, and its own wake-ups get slower instead of faster.",
    mend: "Pin the vCPUs to pCPUs of their own, or use the cpuidle governor haltpoll in the guest",
    sources: &[
        "https://docs.kernel.org/admin-guide/pm/cpuidle.html",
        "https://docs.kernel.org/virt/guest-halt-polling.html",
    ],
    affected: &[],
    check: Check::Vm(idle_poll_unpinned),
    fires: &[
        xml(ANY, "<vcpu>1</vcpu>\n<os><cmdline>console=ttyS0 idle=poll</cmdline></os>\n"),
        qemu(
            ANY,
            "qemu-system-x86_64 -accel kvm -cpu host -kernel vmlinuz -append 'console=ttyS0 idle=poll'",
        ).mended(&[("'console=ttyS0 idle=poll'", "'console=ttyS0'")]),
    ],
    quiet: &[
        xml(
            ANY,
            "\
<vcpu>1</vcpu>
<os><cmdline>console=ttyS0 idle=poll</cmdline></os>
<cputune><vcpupin vcpu='0' cpuset='2'/></cputune>
",
        ),
    ],
};

fn idle_poll_unpinned(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let Some(cmdline) = &vm.kernel_cmdline
        && cmdline.value.split_whitespace().any(|word| word == "idle=poll")
        && !vm.is_pinned()
    {
        out.at(cmdline.span, "idle=poll keeps every vCPU busy, on whatever pCPU it is");
    }
}

pub(crate) const HINT_DEDICATED_UNPINNED: Rule = Rule {
    id: "hint-dedicated-unpinned",
    severity: Severity::Warning,
    summary: "the guest is told that its vCPUs are never preempted, and they are not pinned",
    why: "KVM_HINTS_REALTIME makes the guest use plain spinlocks and no paravirtual flush or yield: \
          right on pCPUs of its own. When the host does preempt a lock holder, the others spin for \
          its whole absence.",
    mend: "Pin each vCPU to a pCPU of its own, or take the hint away",
    sources: &[DEDICATED, "https://libvirt.org/formatdomain.html#hypervisor-features"],
    affected: &[],
    check: Check::Vm(hint_dedicated_unpinned),
    fires: &[
        xml(ANY, "<vcpu>2</vcpu>\n<features><kvm><hint-dedicated state='on'/></kvm></features>\n"),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host,kvm-hint-dedicated=on -smp 2")
            .mended(&[("qemu-system-x86_64", "taskset -c 2,3 qemu-system-x86_64")]),
        running(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host,kvm-hint-dedicated=on -smp 1
# is: vCPU 0: any pCPU (0-31)
",
        )
        .mended(&[("any pCPU (0-31)", "pCPU 1")]),
    ],
    quiet: &[xml(
        ANY,
        "\
<vcpu>1</vcpu>
<features><kvm><hint-dedicated state='on'/></kvm></features>
<cputune><vcpupin vcpu='0' cpuset='2'/></cputune>
",
    )],
};

fn hint_dedicated_unpinned(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(hint) = vm.hint_dedicated.as_ref().filter(|hint| hint.value) else { return };
    let mut pins = vm.pins.iter();
    if !vm.is_pinned() {
        out.at(hint.span, "The guest relies on vCPUs that are never preempted; nothing keeps that");
    } else if pins.any(|pin| pin.pcpus.value.len() > 1) {
        out.at(hint.span, "vCPUs share sets of pCPUs, so they do preempt each other");
    }
}

pub(crate) const HPET_ON: Rule = Rule {
    id: "hpet-on",
    severity: Severity::Hint,
    summary: "the emulated HPET is switched on",
    why: "Each read and each arming of the HPET leaves to QEMU, some microseconds; a guest that \
          falls back to it as its clock spends much time in gettimeofday.",
    mend: "Switch it off; Linux uses kvm-clock or the TSC, Windows the Hyper-V clock",
    sources: &["https://libvirt.org/formatdomain.html#time-keeping"],
    affected: &[],
    check: Check::Vm(hpet_on),
    fires: &[
        xml(ANY, "<clock offset='utc'><timer name='hpet' present='yes'/></clock>\n"),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host -machine q35,hpet=on"),
        yaml(
            ANY,
            "domain:\n  clock:\n    timer:\n      hpet:\n        present: true\n  devices: {}\n",
        )
        .mended(&[("present: true", "present: false")]),
    ],
    quiet: &[
        xml(ANY, "<clock offset='utc'><timer name='hpet' present='no'/></clock>\n"),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host -machine q35,hpet=off"),
    ],
};

fn hpet_on(vm: &Vm, _: &Context, out: &mut Drafts) {
    for timer in vm.timers.iter().filter(|timer| timer.value.name == "hpet") {
        if let Some(present) = timer.value.present.as_ref().filter(|present| present.value) {
            let off = match vm.format {
                crate::ConfigFormat::Libvirt => "no",
                crate::ConfigFormat::Qemu
                | crate::ConfigFormat::Proxmox
                | crate::ConfigFormat::Running => "off",
                crate::ConfigFormat::Kubevirt => "false",
            };
            out.at(present.span, "The guest gets an emulated HPET").suggest(present.span, off);
        }
    }
}

pub(crate) const KVMCLOCK_OFF: Rule = Rule {
    id: "kvmclock-off",
    severity: Severity::Warning,
    summary: "kvm-clock is taken away and the guest gets no invariant TSC instead",
    why: "A Linux guest trusts the TSC only when it is said to be invariant; without that and \
          without kvm-clock it reads the emulated ACPI timer or HPET, with an exit for each reading.",
    mend: "Leave kvm-clock on, or pass the invariant TSC (feature invtsc with a TSC frequency)",
    sources: &[
        "https://docs.kernel.org/virt/kvm/x86/timekeeping.html",
        "A. Theurer, \"KVM and Big VMs\", KVM Forum 2012",
    ],
    affected: &[],
    check: Check::Vm(kvmclock_off),
    fires: &[
        xml(ANY, "<clock offset='utc'><timer name='kvmclock' present='no'/></clock>\n"),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host,kvmclock=off"),
        yaml(
            ANY,
            "domain:\n  clock:\n    timer:\n      kvm:\n        present: false\n  devices: {}\n",
        )
        .mended(&[("domain:", "domain:\n  cpu:\n    features:\n    - name: invtsc")]),
    ],
    quiet: &[
        xml(
            ANY,
            "\
<cpu mode='host-passthrough'><feature policy='require' name='invtsc'/></cpu>
<clock offset='utc'><timer name='kvmclock' present='no'/></clock>
",
        ),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host,kvmclock=off,+invtsc"),
    ],
};

fn kvmclock_off(vm: &Vm, _: &Context, out: &mut Drafts) {
    let invariant = vm.cpu.as_ref().is_some_and(|cpu| cpu.value.has("invtsc"));
    let hyperv = vm.timers.iter().any(|timer| timer.value.name.starts_with("hyperv"));
    for timer in vm.timers.iter().filter(|timer| timer.value.name == "kvmclock") {
        if let Some(present) = timer.value.present.as_ref().filter(|present| !present.value)
            && !invariant
            && !hyperv
        {
            out.at(present.span, "No kvm-clock and no invariant TSC: the guest's clock is slow");
        }
    }
}

pub(crate) const HOST_CLOCK_NOT_TSC: Rule = Rule {
    id: "host-clock-not-tsc",
    severity: Severity::Warning,
    summary: "the host's clock source is not the TSC, so kvm-clock is slow in every guest",
    why: "kvm-clock lets guests read the time without a system call only while the host's own clock \
          is the TSC; otherwise each gettimeofday enters the guest's kernel.",
    mend: "Find out in the host's kernel log why it left the TSC (often a BIOS setting or \
           unsynchronised sockets)",
    sources: &["https://docs.kernel.org/virt/kvm/x86/timekeeping.html"],
    affected: &[],
    check: Check::Vm(host_clock_not_tsc),
    fires: &[
        xml(HPET_HOST, "<vcpu>1</vcpu>\n"),
        qemu(HPET_HOST, "qemu-system-x86_64 -accel kvm -cpu host"),
        yaml(HPET_HOST, "domain:\n  devices: {}\n"),
    ],
    quiet: &[
        xml(TWO_SOCKETS, "<vcpu>1</vcpu>\n"),
        qemu(TWO_SOCKETS, "qemu-system-x86_64 -accel kvm -cpu host"),
        yaml(TWO_SOCKETS, "domain:\n  devices: {}\n"),
    ],
};

fn host_clock_not_tsc(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let x86 = machine.host.arch.as_deref() == Some("x86_64");
    if let Some(clock) = &machine.host.settings.clock_source
        && x86
        && vm.accel.value == "kvm"
        && !clock.contains("tsc")
        && machine.host.virtualised.is_vm != Some(true)
    {
        out.at(vm.head, format!("The host's clock source is {clock}"));
    }
}
