//! Whether the guest runs on the processor at all, and what was not read.

use crate::ConfigFormat;
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{Check, Rule, qemu, xml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;

const INVOCATION: &str = "https://www.qemu.org/docs/master/system/invocation.html";
const DOMAIN: &str = "https://libvirt.org/formatdomain.html";

pub(crate) const EMULATED: Rule = Rule {
    id: "emulated",
    severity: Severity::Warning,
    summary: "the guest is emulated: nothing asks for KVM",
    why: "QEMU without an accelerator, and libvirt with type='qemu', translate every instruction \
          of the guest: ten to a hundred times slower than KVM. It happens in silence where a \
          script was written without -accel kvm, or where a tool made the domain while KVM could \
          not be used.",
    mend: "Say -accel kvm, or <domain type='kvm'>; say -accel tcg if that is what is wanted",
    sources: &[INVOCATION, DOMAIN],
    affected: &[],
    check: Check::Vm(emulated),
    fires: &[
        qemu(ANY, "qemu-system-x86_64 -m 4G -smp 4"),
        qemu(ANY, "qemu-system-x86_64 -machine q35,accel=tcg:kvm -m 4G"),
        qemu(ANY, "qemu-system-x86_64 -m \"$1\" -smp 4"),
        qemu(ANY, "qemu-system-x86_64 -machine q35 -cpu max -m 4G -smp 4"),
        xml(ANY, "<domain type='qemu'>\n<name>a</name>\n<vcpu>2</vcpu>\n</domain>\n"),
    ],
    quiet: &[
        qemu(ANY, "kvm -m 4G -smp 4"),
        qemu(ANY, "qemu-system-x86_64 -machine accel=kvm:tcg -m 4G"),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -accel tcg -m 4G"),
        qemu(ANY, "qemu-system-x86_64 -accel tcg -m 4G"),
        qemu(ANY, "qemu-system-x86_64 -m 4G \"$@\""),
        qemu(ANY, "qemu-system-riscv64 -machine virt -m 4G"),
        xml(ANY, "<domain type='kvm'>\n<name>a</name>\n<vcpu>2</vcpu>\n</domain>\n"),
    ],
};

fn emulated(vm: &Vm, context: &Context, out: &mut Drafts) {
    let is_said = vm.is_command() && vm.accel.span != vm.head;
    // Another processor than the host's can't be had otherwise.
    let host = context.machine.as_ref().and_then(|machine| machine.host.arch.as_deref());
    let foreign = vm.arch.as_ref().is_some_and(|arch| arch.value != host.unwrap_or("x86_64"));
    if vm.unread_options && !vm.kvm_behind_tcg
        || vm.accel.value != "tcg"
        || is_said && !vm.kvm_behind_tcg
        || foreign
        || vm.live.is_some()
    {
        return;
    }
    let message = match vm.format {
        _ if vm.kvm_behind_tcg => "TCG stands before KVM, and it never fails",
        ConfigFormat::Libvirt => "The domain's type is qemu: libvirt starts QEMU without KVM",
        _ => "No accelerator is named, and this program takes TCG first",
    };
    out.at(vm.accel.span, message);
}

pub(crate) const NOT_RESOLVED: Rule = Rule {
    id: "not-resolved",
    severity: Severity::Hint,
    summary: "a part of the command line is in a file of its own, or depends on what only \
              running it tells",
    why: "Variables and arrays that are assigned in a straight line are followed. What depends on \
          arguments, branches, loops or other programs is not guessed: options in it were not \
          looked at, and findings may come from their absence. So it is with the file of \
          -readconfig where it can't be read, and with a line there that QEMU does not take.",
    mend: "Check a script where the files are that it names, or check the command line as it runs: `ps -ww -o args`, or `vmlab lint --running`",
    sources: &["https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html"],
    affected: &[],
    check: Check::Vm(not_resolved),
    fires: &[
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host \"$@\""),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host -smp $(nproc)"),
        qemu(ANY, "qemu-system-x86_64 -accel kvm -cpu host -readconfig vm.cfg"),
    ],
    quiet: &[
        qemu(ANY, "SMP=4\nqemu-system-x86_64 -accel kvm -cpu host -smp $SMP"),
        qemu(ANY, "args=(-accel kvm -cpu host)\nargs+=(-smp 4)\nqemu-system-x86_64 \"${args[@]}\""),
    ],
};

fn not_resolved(vm: &Vm, _: &Context, out: &mut Drafts) {
    for word in &vm.unread {
        out.at(word.span, format!("What {} stands for was not read", word.value));
    }
}
