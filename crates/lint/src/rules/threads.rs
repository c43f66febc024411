//! QEMU's other threads, real-time scheduling and quotas.

use topology::PcpuSet;

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, conf, running, xml, yaml};
use crate::rules::words::pcpus;
use crate::rules::worlds::{ANY, TWO_SOCKETS};
use crate::vm::{NicBackendView, Vm};

const CPUTUNE: &str = "https://libvirt.org/formatdomain.html#cpu-tuning";
const IOTHREADS: &str = "https://libvirt.org/formatdomain.html#iothreads-allocation";

pub(crate) const EMULATOR_ON_VCPU: Rule = Rule {
    id: "emulator-on-vcpu",
    severity: Severity::Warning,
    summary: "the emulator thread is pinned to a vCPU's pCPU",
    why: "QEMU's main loop handles device emulation, timers, the monitor and migration; each time \
          it runs, the vCPU on that pCPU stands still.",
    mend: "Pin the emulator thread to pCPUs that no vCPU has",
    sources: &[CPUTUNE],
    affected: &[],
    check: Check::Vm(emulator_on_vcpu),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>2</vcpu>
<cputune>
  <vcpupin vcpu='0' cpuset='1'/>
  <vcpupin vcpu='1' cpuset='2'/>
  <emulatorpin cpuset='1'/>
</cputune>
",
        )
        .mended(&[("<emulatorpin cpuset='1'", "<emulatorpin cpuset='0'")]),
        running(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2
# is: vCPU 0: pCPU 1
# is: vCPU 1: pCPU 2
# is: emulator: pCPUs 0-2
",
        )
        .mended(&[("emulator: pCPUs 0-2", "emulator: pCPU 0")]),
    ],
    quiet: &[],
};

fn emulator_on_vcpu(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(emulator) = &vm.emulator else { return };
    let Some((both, may)) = on_vcpus(vm, &emulator.value) else { return };
    let draft = out.at(
        emulator.span,
        format!("The emulator thread {may} on {}, where vCPUs are pinned", pcpus(&both)),
    );
    let rest = emulator.value.difference(&both);
    if !rest.is_empty() {
        draft.fix(emulator.span, rest.to_string()).help(format!("Leave it {}", pcpus(&rest)));
    }
}

/// What a thread shares with the vCPUs, and whether it must be there.
fn on_vcpus(vm: &Vm, thread: &PcpuSet) -> Option<(PcpuSet, &'static str)> {
    let both = thread.intersection(&vm.pinned());
    let nowhere_else = both.len() == thread.len();
    // A set with pCPUs to spare leaves the scheduler a way out.
    if both.is_empty() || (!nowhere_else && vm.one_to_one().is_none()) {
        return None;
    }
    Some((both, if nowhere_else { "runs" } else { "may run" }))
}

pub(crate) const EMULATOR_UNPINNED: Rule = Rule {
    id: "emulator-unpinned",
    severity: Severity::Hint,
    summary: "the vCPUs are pinned and the emulator thread is not",
    why: "The emulator thread, and with it vhost's kernel threads, then runs wherever the host's \
          scheduler likes, which includes the vCPUs' pCPUs unless they are isolated.",
    mend: "Add <emulatorpin cpuset='...'/> with pCPUs of the same node that no vCPU has",
    sources: &[CPUTUNE],
    affected: &[],
    check: Check::Vm(emulator_unpinned),
    fires: &[xml(
        TWO_SOCKETS,
        "<vcpu>1</vcpu>\n<cputune><vcpupin vcpu='0' cpuset='1'/></cputune>\n",
    )
    .mended(&[("</cputune>", "<emulatorpin cpuset='0'/></cputune>")])],
    quiet: &[],
};

fn emulator_unpinned(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    let isolated = machine.host.isolated.as_ref();
    let safe = isolated.is_some_and(|isolated| vm.pinned().is_subset(isolated));
    if vm.one_to_one().is_some() && vm.emulator.is_none() && vm.affinity.is_none() && !safe {
        let nodes = machine.nodes_of(&vm.pinned());
        let free: PcpuSet = machine
            .online
            .iter()
            .filter(|pcpu| machine.node(*pcpu).is_none_or(|node| nodes.contains(node)))
            .filter(|pcpu| machine.siblings(*pcpu).is_disjoint(&vm.pinned()))
            .collect();
        let draft = out.at(vm.pins_span(), "The emulator thread may run on the vCPUs' pCPUs");
        if !free.is_empty() {
            draft.note(format!("near the vCPUs and not on their cores are {}", pcpus(&free)));
        }
    }
}

pub(crate) const EMULATOR_ON_SIBLING: Rule = Rule {
    id: "emulator-on-sibling",
    severity: Severity::Hint,
    summary: "the emulator thread is pinned to a sibling of a vCPU's pCPU",
    why: "Both threads of a core share its execution units and caches: a busy emulator thread takes \
          up to half of that vCPU's speed.",
    mend: "Pin the emulator thread to a core that has no vCPU",
    sources: &["https://docs.kernel.org/scheduler/sched-domains.html", CPUTUNE],
    affected: &[],
    check: Check::Vm(emulator_on_sibling),
    fires: &[xml(
        TWO_SOCKETS,
        "\
<vcpu>1</vcpu>
<cputune><vcpupin vcpu='0' cpuset='1'/><emulatorpin cpuset='17'/></cputune>
",
    )
    .mended(&[("cpuset='17'", "cpuset='0'")])],
    quiet: &[],
};

fn emulator_on_sibling(vm: &Vm, context: &Context, out: &mut Drafts) {
    let (Some(machine), Some(emulator)) = (&context.machine, &vm.emulator) else { return };
    let pinned = vm.pinned();
    let beside: PcpuSet = emulator
        .value
        .iter()
        .filter(|pcpu| !pinned.contains(*pcpu))
        .filter(|pcpu| !machine.siblings(*pcpu).is_disjoint(&pinned))
        .collect();
    if vm.one_to_one().is_some() && !beside.is_empty() && beside.len() == emulator.value.len() {
        out.at(
            emulator.span,
            format!(
                "The emulator thread runs on {}, beside a vCPU on the same core",
                pcpus(&beside)
            ),
        );
    }
}

pub(crate) const VHOST_ON_VCPU: Rule = Rule {
    id: "vhost-on-vcpu",
    severity: Severity::Warning,
    summary: "vhost threads share the vCPUs' pCPUs through the emulator's affinity",
    why: "The kernel threads that move a virtio NIC's packets run where the emulator thread may: \
          under network load they take turns with the vCPUs that wait for those packets.",
    mend: "Pin the emulator thread, and with it vhost, to pCPUs that no vCPU has",
    sources: &[CPUTUNE, "https://docs.kernel.org/admin-guide/cgroup-v1/cpusets.html"],
    affected: &[],
    check: Check::Vm(vhost_on_vcpu),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>2</vcpu>
<cputune>
  <vcpupin vcpu='0' cpuset='1'/>
  <vcpupin vcpu='1' cpuset='2'/>
  <emulatorpin cpuset='1-2'/>
</cputune>
<devices><interface type='bridge'><model type='virtio'/></interface></devices>
",
        )
        .mended(&[("cpuset='1-2'", "cpuset='0'")]),
        running(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2
# is: vCPU 0: pCPU 1
# is: vCPU 1: pCPU 2
# is: vhost: pCPU 2
",
        )
        .mended(&[("# is: vhost: pCPU 2", "# is: vhost: pCPU 0")]),
    ],
    quiet: &[],
};

fn vhost_on_vcpu(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let Some(vhost) = &vm.vhost {
        if let Some((both, may)) = on_vcpus(vm, &vhost.value) {
            let message = format!("vhost's threads {may} on {}", pcpus(&both));
            out.at(vhost.span, message).note("vCPUs are pinned to each of these");
        }
        return;
    }
    let Some(emulator) = &vm.emulator else { return };
    let pinned = vm.pinned();
    let vhost = vm.nics.iter().find(|nic| {
        let off = nic.vhost.as_ref().is_some_and(|vhost| !vhost.value);
        nic.is_virtio() && nic.backend == NicBackendView::Tap && !off
    });
    if let Some(nic) = vhost
        && !emulator.value.is_empty()
        && emulator.value.is_subset(&pinned)
    {
        out.at(
            nic.span,
            format!(
                "vhost's threads run on {}, as the emulator thread does",
                pcpus(&emulator.value)
            ),
        )
        .note("vCPUs are pinned to each of these");
    }
}

pub(crate) const IOTHREAD_ON_VCPU: Rule = Rule {
    id: "iothread-on-vcpu",
    severity: Severity::Warning,
    summary: "an iothread is pinned to a vCPU's pCPU",
    why: "An iothread is there to serve a disk while the vCPUs compute; on a vCPU's pCPU the two \
          take turns, and each request costs a change of tasks.",
    mend: "Pin the iothread to a pCPU that no vCPU has, in the same node",
    sources: &[IOTHREADS],
    affected: &[],
    check: Check::Vm(iothread_on_vcpu),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>1</vcpu>
<iothreads>1</iothreads>
<cputune><vcpupin vcpu='0' cpuset='1'/><iothreadpin iothread='1' cpuset='1'/></cputune>
",
        ),
        running(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2 -object iothread,id=io1
# is: vCPU 0: pCPU 1
# is: vCPU 1: pCPU 2
# is: iothread io1: pCPU 2
",
        )
        .mended(&[("# is: iothread io1: pCPU 2", "# is: iothread io1: pCPU 3")]),
    ],
    quiet: &[xml(
        ANY,
        "\
<vcpu>1</vcpu>
<iothreads>1</iothreads>
<cputune><vcpupin vcpu='0' cpuset='1'/><iothreadpin iothread='1' cpuset='2'/></cputune>
",
    )],
};

fn iothread_on_vcpu(vm: &Vm, _: &Context, out: &mut Drafts) {
    for pin in &vm.iothread_pins {
        if let Some((both, may)) = on_vcpus(vm, &pin.pcpus.value) {
            out.at(
                pin.pcpus.span,
                format!(
                    "iothread {} {may} on {}, where vCPUs are pinned",
                    pin.id.value,
                    pcpus(&both)
                ),
            );
        }
    }
}

pub(crate) const IOTHREAD_UNPINNED: Rule = Rule {
    id: "iothread-unpinned",
    severity: Severity::Hint,
    summary: "the vCPUs are pinned and an iothread is not",
    why: "An iothread without a pin runs wherever the host's scheduler likes, also on the vCPUs' \
          pCPUs and in another node than the VM's memory.",
    mend: "Add an <iothreadpin> with a pCPU of the same node that no vCPU has",
    sources: &[IOTHREADS],
    affected: &[],
    check: Check::Vm(iothread_unpinned),
    fires: &[xml(
        ANY,
        "\
<vcpu>1</vcpu>
<iothreads>2</iothreads>
<cputune><vcpupin vcpu='0' cpuset='1'/><iothreadpin iothread='1' cpuset='2'/></cputune>
",
    )
    .mended(&[("<iothreads>2</iothreads>", "<iothreads>1</iothreads>")])],
    quiet: &[],
};

fn iothread_unpinned(vm: &Vm, _: &Context, out: &mut Drafts) {
    let (Some(span), Some(_)) = (vm.iothreads_at, vm.one_to_one()) else { return };
    let is_pinned = |id: &str| vm.iothread_pins.iter().any(|pin| pin.id.value == id);
    let free: Vec<&str> =
        vm.iothreads.iter().map(String::as_str).filter(|id| !is_pinned(id)).collect();
    if !free.is_empty() {
        out.at(span, format!("Without a pin: iothread {}", free.join(", ")));
    }
}

pub(crate) const IOTHREADPIN_WITHOUT_IOTHREAD: Rule = Rule {
    id: "iothreadpin-without-iothread",
    severity: Severity::Error,
    summary: "an iothreadpin names an iothread that the domain does not have",
    why: "libvirt refuses the domain: there is no thread to pin.",
    mend: "Raise the number in <iothreads>, or take the pin out; iothreads count from 1",
    sources: &[IOTHREADS],
    affected: &[],
    check: Check::Vm(iothreadpin_without_iothread),
    fires: &[xml(
        ANY,
        "\
<vcpu>1</vcpu>
<iothreads>1</iothreads>
<cputune><iothreadpin iothread='2' cpuset='2'/></cputune>
",
    )
    .mended(&[("<iothreads>1</iothreads>", "<iothreads>2</iothreads>")])],
    quiet: &[],
};

fn iothreadpin_without_iothread(vm: &Vm, _: &Context, out: &mut Drafts) {
    for pin in &vm.iothread_pins {
        if !vm.iothreads.contains(&pin.id.value) {
            let number = vm.iothreads.len();
            out.at(
                pin.id.span,
                format!("iothread {} does not exist: the domain has {number}", pin.id.value),
            );
        }
    }
}

pub(crate) const FIFO_SHARES_PCPU: Rule = Rule {
    id: "fifo-shares-pcpu",
    severity: Severity::Warning,
    summary: "a real-time vCPU may starve the emulator thread",
    why: "A vCPU under SCHED_FIFO or SCHED_RR that never sleeps lets nothing else run on its pCPU. \
          If the emulator thread is there too, the guest waits for I/O that never comes.",
    mend: "Pin real-time vCPUs one to one and the emulator thread elsewhere",
    sources: &[CPUTUNE, "https://man7.org/linux/man-pages/man7/sched.7.html"],
    affected: &[],
    check: Check::Vm(fifo_shares_pcpu),
    fires: &[xml(ANY, "\
<vcpu>1</vcpu>
<cputune><vcpupin vcpu='0' cpuset='1'/><vcpusched vcpus='0' scheduler='fifo' priority='1'/></cputune>
"),
        running(ANY, "\
qemu-system-x86_64 -accel kvm -cpu host -smp 1
# is: vCPU 0: pCPU 1; real-time
# is: emulator: pCPU 1
").mended(&[("# is: emulator: pCPU 1", "# is: emulator: pCPU 0")]),
    ],
    quiet: &[xml(ANY, "\
<vcpu>1</vcpu>
<cputune>
  <vcpupin vcpu='0' cpuset='1'/>
  <emulatorpin cpuset='0'/>
  <vcpusched vcpus='0' scheduler='fifo' priority='1'/>
</cputune>
"),
    ],
};

fn fifo_shares_pcpu(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(fifo) = &vm.fifo else { return };
    let pins = vm.live_pins();
    let real_time = pins.iter().filter(|pin| fifo.value.contains(pin.id.value));
    let their = PcpuSet::union_of(real_time.map(|pin| &pin.pcpus.value));
    let message = match &vm.emulator {
        Some(emulator) if emulator.value.difference(&their).is_empty() => {
            "The emulator thread runs only where real-time vCPUs do"
        }
        None => "vCPUs run in real time, and the emulator thread is not pinned away from them",
        Some(_) if their.is_empty() => "vCPUs run in real time and are not pinned",
        Some(_) => return,
    };
    out.at(fifo.span, message);
}

pub(crate) const CPU_LIMIT_THROTTLES: Rule = Rule {
    id: "cpu-limit-throttles",
    severity: Severity::Warning,
    summary: "a limit on CPU time throttles the VM",
    why: "The kernel stops all threads of the group for the rest of the period (100 ms) when the \
          quota is used up. vCPUs, emulator thread, iothreads and vhost draw on the same quota, so \
          a VM whose vCPUs are busy is stopped while it holds locks: measured as 30 % less network \
          throughput, and taken for a regression at first.",
    mend: "Ask for CPU time with requests or shares and set no limit; or give whole pCPUs \
           (dedicatedCpuPlacement, vcpupin)",
    sources: &[
        "https://docs.kernel.org/scheduler/sched-bwc.html",
        "https://github.com/redhat-performance/benchmark-runner/issues/1205",
        "https://github.com/kubevirt/kubevirt/issues/12970",
    ],
    affected: &[],
    check: Check::Vm(cpu_limit_throttles),
    fires: &[
        xml(ANY, "<vcpu>2</vcpu>\n<cputune><global_quota>150000</global_quota></cputune>\n"),
        conf(ANY, "cores: 4\ncpulimit: 2\nscsihw: virtio-scsi-single\n"),
        yaml(
            ANY,
            "\
domain:
  cpu:
    cores: 2
  resources:
    limits:
      cpu: 2
  devices: {}
",
        )
        .mended(&[("limits:", "requests:")]),
        running(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 1
# is: vCPU 0: pCPU 1; quota 50000 of 100000 µs
",
        )
        .mended(&[("1; quota 50000 of 100000 µs", "1")]),
    ],
    quiet: &[
        conf(ANY, "cores: 4\ncpulimit: 0\nscsihw: virtio-scsi-single\n"),
        xml(ANY, "<vcpu>2</vcpu>\n<cputune><shares>2048</shares></cputune>\n"),
    ],
};

fn cpu_limit_throttles(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let Some(quota) = &vm.quota
        && quota.value > 0
    {
        out.at(quota.span, format!("Its threads share {} µs of CPU time a period", quota.value));
    }
    if let Some(limit) = vm.kube("domain.resources.limits.cpu")
        && !vm.is_dedicated()
    {
        let threads =
            if vm.kube("domain.ioThreadsPolicy").is_some() { " and iothreads" } else { "" };
        let vcpus = vm.vcpus.value;
        out.at(
            limit.span,
            format!(
                "{} CPUs for {vcpus} vCPU{}, the emulator thread{threads} together",
                limit.text().unwrap_or_default(),
                if vcpus == 1 { "" } else { "s" }
            ),
        );
    }
}
