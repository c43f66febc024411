//! What Proxmox's `qm` makes of its configurations.

use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, conf};
use crate::rules::worlds::ANY;
use crate::vm::Vm;

const QM: &str = "https://pve.proxmox.com/pve-docs/qm.conf.5.html";
const GUIDE: &str = "https://pve.proxmox.com/pve-docs/chapter-qm.html";

pub(crate) const SETTING_IGNORED: Rule = Rule {
    id: "proxmox-ignored",
    severity: Severity::Warning,
    summary: "qm starts the VM without what a setting says",
    why: "qm leaves out what it does not understand with a line in its log: a misspelt key, a value \
          of the wrong kind. An iothread and queues are for disks of virtio and for \
          scsihw: virtio-scsi-single, whose disks have a controller each; on a shared or an emulated \
          controller they are left out, and the disk is served by QEMU's main loop.",
    mend: "Write scsihw: virtio-scsi-single for iothreads and queues of scsi disks; correct or take \
           away what qm does not know",
    sources: &[QM, GUIDE],
    affected: &[],
    check: Check::Vm(setting_ignored),
    fires: &[
        conf(ANY, "scsihw: virtio-scsi-pci\nscsi0: local-lvm:vm-100-disk-0,iothread=1\n"),
        conf(ANY, "sockets: 1\nbios: ovmf\ncore: 4\n"),
        conf(ANY, "sockets: two\nbios: ovmf\n"),
    ],
    quiet: &[conf(ANY, "scsihw: virtio-scsi-single\nscsi0: local-lvm:vm-100-disk-0,iothread=1\n")],
};

fn setting_ignored(vm: &Vm, _: &Context, out: &mut Drafts) {
    for trouble in vm.troubles.iter().filter(|trouble| !trouble.value.stops()) {
        out.at(trouble.span, trouble.value.to_string());
    }
}

pub(crate) const START_REFUSED: Rule = Rule {
    id: "proxmox-refused",
    severity: Severity::Error,
    summary: "qm does not start the VM",
    why: "qm ends with an error where huge pages are asked for without numa: 1, where a node \
          (numa0:) says no memory, no vCPUs, or host nodes without a policy, and where the nodes \
          have not the VM's memory.",
    mend: "Say numa: 1, and of each node cpus, memory, hostnodes and policy; the nodes' memory is \
           the VM's",
    sources: &[QM],
    affected: &[],
    check: Check::Vm(start_refused),
    fires: &[
        conf(ANY, "sockets: 1\nhugepages: 1024\n"),
        conf(ANY, "numa: 1\nnuma0: cpus=0-1,hostnodes=0,memory=4096\n"),
        conf(ANY, "numa: 1\nnuma0: cpus=0-1,hostnodes=0,memory=2048,policy=bind\n"),
    ],
    quiet: &[
        conf(ANY, "numa: 1\nhugepages: 1024\n"),
        conf(ANY, "numa: 1\nnuma0: cpus=0,hostnodes=0,memory=4096,policy=bind\n"),
    ],
};

fn start_refused(vm: &Vm, _: &Context, out: &mut Drafts) {
    for trouble in vm.troubles.iter().filter(|trouble| trouble.value.stops()) {
        out.at(trouble.span, trouble.value.to_string());
    }
}
