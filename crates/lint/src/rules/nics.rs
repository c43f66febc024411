//! NICs, vhost and queues.

use crate::Span;
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, ConfigFormat, Rule, qemu, xml, yaml};
use crate::rules::worlds::{ANY, NO_VHOST, TWO_SOCKETS};
use crate::vm::{NicBackendView, NicView, Vm};

const NICS: &str = "https://libvirt.org/formatdomain.html#network-interfaces";
const MULTIQUEUE: &str = "https://www.linux-kvm.org/page/Multiqueue";
const VHOST_NET: &str = "https://www.linux-kvm.org/page/UsingVhost";

/// From so many vCPUs on one queue is a bottleneck.
const MANY_VCPUS: u32 = 8;

pub(crate) const NIC_EMULATED: Rule = Rule {
    id: "nic-emulated",
    severity: Severity::Warning,
    summary: "an emulated network card",
    why: "e1000 and its like take several exits a packet and have one queue without offloads; \
          virtio-net with vhost moves packets in the kernel and many at a time.",
    mend: "Use the model virtio",
    sources: &[NICS, VHOST_NET],
    affected: &[],
    check: Check::Vm(nic_emulated),
    fires: &[
        xml(ANY, "<devices><interface type='bridge'><model type='e1000'/></interface></devices>\n").mended(&[
            ("type='e1000'", "type='virtio'"),
        ]),
        xml(
            ANY,
            "<os><type arch='x86_64'>hvm</type></os>\n<devices><interface type='network'><source \
             network='default'/></interface></devices>\n",
        ),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host -net nic -net user"),
        qemu(
            ANY,
            "qemu-system-x86_64 -accel kvm -cpu host -netdev tap,id=n,vhost=on -device e1000,netdev=n",
        ).mended(&[("-device e1000", "-device virtio-net-pci")]),
        yaml(
            ANY,
            "domain:\n  devices:\n    interfaces:\n    - name: default\n      model: e1000\n      bridge: {}\n",
        ).mended(&[("model: e1000", "model: virtio")]),
    ],
    quiet: &[],
};

fn nic_emulated(vm: &Vm, _: &Context, out: &mut Drafts) {
    for nic in &vm.nics {
        if let Some(model) = &nic.model
            && ["e1000", "rtl8139", "ne2k", "pcnet", "vmxnet3"]
                .iter()
                .any(|old| model.value.starts_with(old))
        {
            out.at(model.span, format!("The NIC is an emulated {}", model.value));
        }
        // Only where the architecture is said: others have other defaults.
        if nic.model.is_none()
            && vm.format == ConfigFormat::Libvirt
            && nic.backend != NicBackendView::Other
            && vm.says_x86()
        {
            out.at(nic.span, "No model: libvirt makes it an emulated rtl8139");
        }
    }
}

pub(crate) const NIC_USER: Rule = Rule {
    id: "nic-user-mode",
    severity: Severity::Hint,
    summary: "a NIC through QEMU's user-mode network",
    why: "slirp takes every packet apart in QEMU's main loop: a few Gbit/s at most, and it delays \
          all else that the main loop does.",
    mend: "Use a tap device (with passt, a bridge or macvtap) where throughput or latency matter",
    sources: &["https://www.qemu.org/docs/master/system/devices/net.html", NICS],
    affected: &[],
    check: Check::Vm(nic_user),
    fires: &[
        xml(ANY, "<devices><interface type='user'><model type='virtio'/></interface></devices>\n")
            .mended(&[("type='user'", "type='bridge'")]),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host -nic user,model=virtio-net-pci"),
    ],
    quiet: &[
        xml(
            ANY,
            "\
<devices><interface type='user'>
  <backend type='passt'/>
  <model type='virtio'/>
</interface></devices>
",
        ),
        qemu(
            ANY,
            "qemu-system-x86_64 -accel kvm -cpu host -netdev tap,id=n,vhost=on -device virtio-net-pci,netdev=n",
        ),
    ],
};

fn nic_user(vm: &Vm, _: &Context, out: &mut Drafts) {
    for nic in vm.nics.iter().filter(|nic| nic.backend == NicBackendView::User) {
        out.at(nic.span, "Packets go through QEMU's user-mode network");
    }
}

pub(crate) const VHOST_OFF: Rule = Rule {
    id: "vhost-off",
    severity: Severity::Warning,
    summary: "a virtio NIC on a tap device without vhost",
    why: "QEMU then copies each packet itself, in its main loop; vhost moves them in a kernel thread \
          that runs beside the vCPUs.",
    mend: "Switch vhost on (<driver name='vhost'/>, -netdev tap,vhost=on)",
    sources: &[VHOST_NET, NICS],
    affected: &[],
    check: Check::Vm(vhost_off),
    fires: &[
        xml(
            ANY,
            "<devices><interface type='bridge'><model type='virtio'/><driver name='qemu'/></interface></devices>\n",
        ).mended(&[("<driver name='qemu'/></interface>", "</interface>")]),
        qemu(
            ANY,
            "qemu-system-x86_64 -accel kvm -cpu host -netdev tap,id=n -device virtio-net-pci,netdev=n",
        ).mended(&[("id=n", "id=n,vhost=on")]),
    ],
    quiet: &[],
};

/// libvirt uses vhost unless told otherwise, QEMU only when told to.
fn uses_vhost(vm: &Vm, nic: &NicView) -> bool {
    nic.is_virtio()
        && nic.backend == NicBackendView::Tap
        && nic.vhost.as_ref().map_or(!vm.is_command(), |vhost| vhost.value)
}

fn vhost_off(vm: &Vm, _: &Context, out: &mut Drafts) {
    for nic in &vm.nics {
        if nic.is_virtio() && nic.backend == NicBackendView::Tap && !uses_vhost(vm, nic) {
            match &nic.vhost {
                Some(vhost) => {
                    let on = if vm.format == ConfigFormat::Libvirt { "vhost" } else { "on" };
                    out.at(vhost.span, "vhost is off").suggest(vhost.span, on);
                }
                None => {
                    let end = Span { start: nic.span.end, end: nic.span.end };
                    out.at(nic.span, "vhost is off, as by default").suggest(end, ",vhost=on");
                }
            }
        }
    }
}

pub(crate) const VHOST_MODULE_MISSING: Rule = Rule {
    id: "vhost-module-missing",
    severity: Severity::Warning,
    summary: "a NIC wants vhost, and the host has no vhost_net module loaded",
    why: "libvirt silently falls back to QEMU's own, slow path when it may not open /dev/vhost-net; \
          QEMU itself prints a warning.",
    mend: "modprobe vhost_net, and name it in /etc/modules-load.d",
    sources: &[VHOST_NET, NICS],
    affected: &[],
    check: Check::Vm(vhost_module_missing),
    fires: &[
        xml(
            NO_VHOST,
            "<devices><interface type='bridge'><model type='virtio'/></interface></devices>\n",
        ),
        qemu(
            NO_VHOST,
            "qemu-system-x86_64 -accel kvm -cpu host -netdev tap,id=n,vhost=on -device virtio-net-pci,netdev=n",
        ),
        yaml(
            NO_VHOST,
            "domain:\n  devices:\n    interfaces:\n    - name: default\n      bridge: {}\n",
        ),
    ],
    quiet: &[
        xml(
            TWO_SOCKETS,
            "<devices><interface type='bridge'><model type='virtio'/></interface></devices>\n",
        ),
        qemu(
            TWO_SOCKETS,
            "qemu-system-x86_64 -accel kvm -cpu host -netdev tap,id=n,vhost=on -device virtio-net-pci,netdev=n",
        ),
        yaml(
            TWO_SOCKETS,
            "domain:\n  devices:\n    interfaces:\n    - name: default\n      bridge: {}\n",
        ),
    ],
};

fn vhost_module_missing(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(machine) = &context.machine else { return };
    if machine.has_vhost("vhost_net") != Some(false) {
        return;
    }
    if let Some(nic) = vm.nics.iter().find(|nic| uses_vhost(vm, nic)) {
        out.at(nic.span, "The host has no vhost_net: packets go through QEMU's main loop");
    }
}

pub(crate) const VHOST_USER_NOT_SHARED: Rule = Rule {
    id: "vhost-user-not-shared",
    severity: Severity::Error,
    summary: "a vhost-user NIC in a VM whose memory is not shared",
    why: "The other process maps the guest's memory to move packets; with private memory it can't, \
          and the NIC moves none.",
    mend: "Share the memory (<memoryBacking><access mode='shared'/>, memory-backend with share=on)",
    sources: &["https://www.qemu.org/docs/master/interop/vhost-user.html", NICS],
    affected: &[],
    check: Check::Vm(vhost_user_not_shared),
    fires: &[
        xml(
            ANY,
            "<devices><interface type='vhostuser'><model type='virtio'/></interface></devices>\n",
        ),
        qemu(
            ANY,
            "qemu-system-x86_64 -accel kvm -cpu host -netdev vhost-user,id=n,chardev=c -device virtio-net-pci,netdev=n",
        ),
    ],
    quiet: &[
        xml(
            ANY,
            "\
<memoryBacking><access mode='shared'/></memoryBacking>
<devices><interface type='vhostuser'><model type='virtio'/></interface></devices>
",
        ),
        qemu(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -m 1G \\
  -object memory-backend-memfd,id=m,size=1G,share=on -machine q35,memory-backend=m \\
  -netdev vhost-user,id=n,chardev=c -device virtio-net-pci,netdev=n",
        ),
    ],
};

fn vhost_user_not_shared(vm: &Vm, _: &Context, out: &mut Drafts) {
    for nic in vm.nics.iter().filter(|nic| nic.backend == NicBackendView::VhostUser) {
        if !vm.shared_memory {
            out.at(nic.span, "vhost-user needs the guest's memory shared");
        }
    }
}

pub(crate) const VHOST_USER_IMPOSSIBLE: Rule = Rule {
    id: "vhost-user-impossible",
    severity: Severity::Error,
    summary: "a vhost-user NIC with parts that it can't have",
    why: "vhost-user has no part of the kernel's vhost, and works with virtio-net alone: QEMU refuses \
          -netdev vhost-user with vhost=, libvirt and QEMU refuse other cards in front of it.",
    mend: "Take vhost= away; give the NIC the model virtio",
    sources: &["https://www.qemu.org/docs/master/system/invocation.html", NICS],
    affected: &[],
    check: Check::Vm(vhost_user_impossible),
    fires: &[
        xml(
            ANY,
            "\
<memoryBacking><access mode='shared'/></memoryBacking>
<devices><interface type='vhostuser'><model type='e1000'/></interface></devices>
",
        ).mended(&[("type='e1000'", "type='virtio'")]),
        qemu(
            ANY,
            "kvm -cpu host -netdev vhost-user,id=n,chardev=c,vhost=on -device virtio-net-pci,netdev=n",
        ).mended(&[("chardev=c,vhost=on", "chardev=c")]),
    ],
    quiet: &[],
};

fn vhost_user_impossible(vm: &Vm, _: &Context, out: &mut Drafts) {
    for nic in vm.nics.iter().filter(|nic| nic.backend == NicBackendView::VhostUser) {
        if let Some(vhost) = nic.vhost.as_ref().filter(|_| vm.format == ConfigFormat::Qemu) {
            out.at(vhost.span, "vhost-user takes no vhost=: the kernel's vhost is another way");
        }
        if let Some(model) = nic.model.as_ref().filter(|_| !nic.is_virtio()) {
            out.at(model.span, format!("vhost-user works with virtio, not with {}", model.value));
        }
    }
}

pub(crate) const VHOST_USER_NO_RECONNECT: Rule = Rule {
    id: "vhost-user-no-reconnect",
    severity: Severity::Hint,
    summary: "a vhost-user NIC that does not connect anew",
    why: "QEMU connects to the switch once, at its start. When the switch is started again, the NIC \
          stays dead until the VM is.",
    mend: "Let QEMU connect anew (<reconnect enabled='yes' timeout='1'/>, reconnect=1 or \
           reconnect-ms=1000 since QEMU 9.2), or let it listen",
    sources: &["https://www.qemu.org/docs/master/system/invocation.html", NICS],
    affected: &[],
    check: Check::Vm(vhost_user_no_reconnect),
    fires: &[
        xml(
            ANY,
            "\
<memoryBacking><access mode='shared'/></memoryBacking>
<devices><interface type='vhostuser'>
  <source type='unix' path='/run/s' mode='client'/><model type='virtio'/>
</interface></devices>
",
        ),
        qemu(
            ANY,
            "\
kvm -cpu host -m 1G -object memory-backend-memfd,id=m,size=1G,share=on -machine q35,memory-backend=m \\
  -chardev socket,id=c,path=/run/s -netdev vhost-user,id=n,chardev=c -device virtio-net-pci,netdev=n",
        ),
    ],
    quiet: &[
        xml(
            ANY,
            "\
<memoryBacking><access mode='shared'/></memoryBacking>
<devices>
  <interface type='vhostuser'>
    <source type='unix' path='/run/a' mode='server'/><model type='virtio'/>
  </interface>
  <interface type='vhostuser'>
    <source type='unix' path='/run/b' mode='client'><reconnect enabled='yes' timeout='1'/></source>
    <model type='virtio'/>
  </interface>
</devices>
",
        ),
        qemu(
            ANY,
            "\
kvm -cpu host -m 1G -object memory-backend-memfd,id=m,size=1G,share=on -machine q35,memory-backend=m \\
  -chardev socket,id=a,path=/run/a,server=on,wait=off -netdev vhost-user,id=n,chardev=a \\
  -device virtio-net-pci,netdev=n \\
  -chardev socket,id=b,path=/run/b,reconnect-ms=1000 -netdev vhost-user,id=o,chardev=b \\
  -device virtio-net-pci,netdev=o",
        ),
    ],
};

fn vhost_user_no_reconnect(vm: &Vm, _: &Context, out: &mut Drafts) {
    for nic in vm.nics.iter().filter(|nic| nic.reconnects == Some(false)) {
        out.at(nic.span, "When the switch is started again, this NIC stays dead");
    }
}

pub(crate) const QUEUES_EXCEED_VCPUS: Rule = Rule {
    id: "queues-exceed-vcpus",
    severity: Severity::Warning,
    summary: "a device has more queues than the VM has vCPUs",
    why: "A guest uses one queue a vCPU; the others only cost memory, interrupts and, with vhost, a \
          kernel thread each.",
    mend: "At most as many queues as vCPUs",
    sources: &[MULTIQUEUE, NICS],
    affected: &[],
    check: Check::Vm(queues_exceed_vcpus),
    fires: &[
        xml(
            ANY,
            "\
<vcpu>2</vcpu>
<devices><interface type='bridge'><model type='virtio'/><driver queues='8'/></interface></devices>
",
        )
        .mended(&[("<vcpu>2</vcpu>", "<vcpu>8</vcpu>")]),
        qemu(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 2 -netdev tap,id=n,vhost=on,queues=8 \\
  -device virtio-net-pci,netdev=n,mq=on,vectors=18",
        )
        .mended(&[("-smp 2", "-smp 8")]),
    ],
    quiet: &[],
};

fn queues_exceed_vcpus(vm: &Vm, _: &Context, out: &mut Drafts) {
    if vm.vcpus_unknown {
        return;
    }
    let most = vm.max_vcpus.value;
    let nics = vm.nics.iter().map(|nic| (&nic.queues, "NIC"));
    let disks = vm.disks.iter().map(|disk| (&disk.queues, "disk"));
    for (queues, what) in nics.chain(disks) {
        if let Some(queues) = queues
            && queues.value > most
        {
            out.at(queues.span, format!("{} queues of a {what} for {most} vCPUs", queues.value))
                .fix(queues.span, most.to_string());
        }
    }
}

pub(crate) const QUEUES_ONE: Rule = Rule {
    id: "queues-one",
    severity: Severity::Hint,
    summary: "a virtio NIC with one queue in a VM with many vCPUs",
    why: "One vhost thread moves all packets and one vCPU takes all interrupts; that is the limit \
          with small packets or many connections.",
    mend: "Give the NIC several queues (<driver queues='N'/>, queues=N,mq=on, \
           networkInterfaceMultiqueue: true), at most one a vCPU",
    sources: &[MULTIQUEUE, NICS],
    affected: &[],
    check: Check::Vm(queues_one),
    fires: &[
        xml(
            ANY,
            "<vcpu>16</vcpu>\n<devices><interface type='bridge'><model type='virtio'/></interface></devices>\n",
        ).mended(&[("<vcpu>16</vcpu>", "<vcpu>4</vcpu>")]),
        qemu(
            ANY,
            "qemu-system-x86_64 -accel kvm -cpu host -smp 16 -netdev tap,id=n,vhost=on -device virtio-net-pci,netdev=n",
        ),
        yaml(
            ANY,
            "domain:\n  cpu:\n    cores: 16\n  devices:\n    interfaces:\n    - name: default\n      bridge: {}\n",
        ).mended(&[("devices:", "devices:\n    networkInterfaceMultiqueue: true")]),
    ],
    quiet: &[
        qemu(
            ANY,
            "\
qemu-system-x86_64 -accel kvm -cpu host -smp 16 -netdev tap,id=n,vhost=on,queues=8 \\
  -device virtio-net-pci,netdev=n,mq=on,vectors=18",
        ),
    ],
};

fn queues_one(vm: &Vm, _: &Context, out: &mut Drafts) {
    for nic in &vm.nics {
        let one = nic.queues.as_ref().is_none_or(|queues| queues.value == 1);
        if nic.is_virtio()
            && nic.backend == NicBackendView::Tap
            && one
            && vm.vcpus.value >= MANY_VCPUS
        {
            out.at(nic.span, format!("One queue for {} vCPUs", vm.vcpus.value));
        }
    }
}

pub(crate) const QUEUES_NOT_OFFERED: Rule = Rule {
    id: "queues-not-offered",
    severity: Severity::Warning,
    summary: "a NIC's back end has several queues, and the device does not offer them",
    why: "Without mq=on the guest sees one queue; with too few vectors it shares interrupts among \
          queues or falls back to one.",
    mend: "Add mq=on and vectors=2*QUEUES+2 to the device",
    sources: &[MULTIQUEUE],
    affected: &[],
    check: Check::Vm(queues_not_offered),
    fires: &[qemu(
        ANY,
        "\
qemu-system-x86_64 -accel kvm -cpu host -smp 8 -netdev tap,id=n,vhost=on,queues=4 \\
  -device virtio-net-pci,netdev=n",
    )
    .mended(&[("netdev=n", "netdev=n,mq=on,vectors=10")])],
    quiet: &[],
};

fn queues_not_offered(vm: &Vm, _: &Context, out: &mut Drafts) {
    for nic in vm.nics.iter().filter(|nic| nic.is_virtio()) {
        let Some(queues) = nic.queues.as_ref().filter(|queues| queues.value > 1) else { continue };
        let wanted = queues.value.saturating_mul(2).saturating_add(2);
        if nic.multiqueue == Some(false) {
            out.at(queues.span, format!("{} queues, and the device has no mq=on", queues.value));
        } else if let Some(vectors) = &nic.vectors
            && vectors.value < wanted
        {
            out.at(
                vectors.span,
                format!(
                    "{} vectors for {} queues: {wanted} are needed",
                    vectors.value, queues.value
                ),
            )
            .fix(vectors.span, wanted.to_string());
        }
    }
}
